#include "compiler/optimize/threads/long_rows.h"

#include <algorithm>
#include <bit>

#include "absl/container/btree_set.h"
#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"

namespace outboard::codegen {
namespace {

// Whether the value of an element depends on its place in the row, as where a label is.
bool ComparesPlaces(const LoopNest& kernel, int along) {
  const auto extent = [&](int range) { return kernel.ranges[static_cast<size_t>(range)].extent; };
  return std::ranges::any_of(kernel.nodes, [&](const UOp* node) {
    return (node->op == Op::kCmpEq || node->op == Op::kCmpNe || node->op == Op::kCmpLt) &&
           std::ranges::any_of(node->src, [&](const UOp* source) {
             return source->op == Op::kRange && extent(kernel.IndexOf(source)) == extent(along);
           });
  });
}

// How many loads lie along an output range of that length alone, as scales and biases of a norm.
int64_t OperandsBeside(const LoopNest& kernel, int along) {
  return std::ranges::count_if(kernel.nodes, [&](const UOp* node) {
    const RangeSet deps = node->op == Op::kLoad ? kernel.DepsOf(node) : 0;
    if (std::popcount(deps) != 1 || (deps & kernel.OutputSet()) == 0) return false;
    return kernel.ranges[static_cast<size_t>(std::countr_zero(deps))].extent ==
           kernel.ranges[static_cast<size_t>(along)].extent;
  });
}

class LongRowChooser {
 public:
  LongRowChooser(const LoopNest& kernel, const Target& target, const std::vector<Body>& bodies,
                 const RowToKeep& row, const LongRowsMay& may)
      : kernel_(kernel),
        target_(target),
        bodies_(bodies),
        row_(row),
        may_(may),
        slots_(SlotsReadAgain(kernel, bodies, row.main, row.along)) {}

  // More threads than usual, with fewer registers each; and more blocks.
  LongRow Choose() const {
    const auto more = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(DivideUp(row_.steps * row_.lanes, kRowValuesMax))));
    const int64_t full = Threads(false);
    const bool beside = OperandsBeside(kernel_, row_.along) > 1;
    int64_t most = Threads(beside && (row_.align > 1 || more > full * may_.cluster_max));
    // Two blocks of half the threads have the registers of one, and one of them loads while the
    // other one joins. Where their memory has no room for both, one keeps the row in registers.
    if (may_.cluster_max == 1 && most < more && more <= full &&
        BytesInMemory(most, InRegisters(most, full)) > target_.half_of_block_bytes() - kJoinBytes)
      most = full;
    const int64_t blocks = Blocks(more, most);
    if (blocks == 1) return {.threads = more};
    if (blocks <= may_.cluster_max)
      return slots_.empty() ? LongRow{} : LongRow{.threads = more, .blocks = blocks};
    const int64_t in_registers = may_.are_kept ? InRegisters(most, full) : 0;
    if (in_registers == 0) return {};
    return {.threads = most * may_.cluster_max,
            .blocks = may_.cluster_max,
            .in_registers = in_registers};
  }

 private:
  // How many threads of a block may divide a row: of 1,024 each has 64 registers, half of which
  // hold its part of one row; 512 have room for two, for places that are compared, or for `more`.
  int64_t Threads(bool more) const {
    constexpr int64_t kOfTwoRows = 512;
    const int64_t rows =
        std::ranges::count_if(bodies_[static_cast<size_t>(row_.main)].accesses,
                              [&](const Access& access) { return access.deps >> row_.along & 1; });
    const int64_t most = target_.block_threads_max();
    if (rows > 2) return kThreadsWanted;
    const bool two =
        rows == 2 || more || (may_.cluster_max > 1 && ComparesPlaces(kernel_, row_.along));
    return two ? std::min(most, kOfTwoRows) : most;
  }

  // Of a cluster of so many threads, of which a block has at most `most`.
  int64_t Blocks(int64_t threads, int64_t most) const {
    const auto multiprocessors = static_cast<double>(std::max<int64_t>(target_.multiprocessors, 1));
    double rows = 1;
    for (RangeSet deps = kernel_.groups[static_cast<size_t>(row_.main)].deps & kernel_.OutputSet();
         deps != 0; deps &= deps - 1)
      rows *= static_cast<double>(
          kernel_.ranges[static_cast<size_t>(std::countr_zero(deps))].extent);
    int64_t blocks = DivideUp(threads, most);
    // Where all values that a thread of 1,024 may keep are taken and the last step is not
    // everybody's: twice as many blocks of half the threads.
    if (blocks > 1 && most == target_.block_threads_max() && row_.steps % threads != 0 &&
        DivideUp(row_.steps, threads) * row_.lanes == kRowValuesMax &&
        2 * blocks <= may_.cluster_max)
      blocks *= 2;
    // Few rows: the same threads on more multiprocessors.
    while (blocks > 1 && 2 * blocks <= may_.cluster_max &&
           threads / (2 * blocks) >= kThreadsWanted &&
           rows * static_cast<double>(2 * blocks) <= multiprocessors)
      blocks *= 2;
    return blocks;
  }

  // Vectors of a thread of a block of `of_block`, which have the registers of `full`; 0: there is
  // no room for the others in the memory of the blocks. As few in registers as leave no more than
  // that: of 1,024 threads there is one block on a multiprocessor anyway. With seven eighths
  // GPT-2's loss spills nothing on sm_89, with all it does.
  int64_t InRegisters(int64_t of_block, int64_t full) const {
    const int64_t vectors = Vectors(of_block), most = kRowValuesMax * full / of_block;
    for (const int64_t values : {most / 2, most * 3 / 4, most * 7 / 8, most}) {
      const int64_t kept = values / row_.lanes;
      if (!slots_.empty() && kept >= 1 && kept < vectors &&
          BytesInMemory(of_block, kept) <= target_.block_bytes_max() - kJoinBytes)
        return kept;
    }
    return 0;
  }

  // Of a thread.
  int64_t Vectors(int64_t of_block) const {
    return DivideUp(row_.steps, of_block * may_.cluster_max);
  }
  // Of a block that has so many vectors of each thread in registers.
  int64_t BytesInMemory(int64_t of_block, int64_t in_registers) const {
    int64_t bytes = 0;  // of the values at one place of the row
    for (const int64_t slot : slots_)
      bytes += ByteWidth(kernel_.slot_dtypes[static_cast<size_t>(slot)]);
    return (Vectors(of_block) - in_registers) * row_.lanes * of_block * bytes;
  }

  const LoopNest& kernel_;
  const Target& target_;
  const std::vector<Body>& bodies_;
  const RowToKeep& row_;
  const LongRowsMay& may_;
  const std::vector<int64_t> slots_;  // read again
};

}  // namespace

LongRow ChooseLongRow(const LoopNest& kernel, const Target& target, const std::vector<Body>& bodies,
                      const RowToKeep& row, const LongRowsMay& may) {
  return LongRowChooser(kernel, target, bodies, row, may).Choose();
}

std::vector<int64_t> SlotsReadAgain(const LoopNest& kernel, const std::vector<Body>& bodies,
                                    int main, int along) {
  const auto extent = [&](int range) { return kernel.ranges[static_cast<size_t>(range)].extent; };
  absl::btree_set<int64_t> slots;
  for (const Access& row : bodies[static_cast<size_t>(main)].accesses) {
    if (row.store || (row.deps >> along & 1) == 0) continue;
    const int64_t slot = GlobalOfAccess(row.index).slot();
    if (slots.contains(slot)) continue;
    const auto has_row = [&](const Access& access) {
      if (access.store || GlobalOfAccess(access.index).slot() != slot) return false;
      for (int r = 0; r < static_cast<int>(kernel.ranges.size()); ++r)
        if ((access.deps >> r & 1) != 0 && extent(r) == extent(along)) return true;
      return false;
    };
    if (std::ranges::count_if(bodies, [&](const Body& body) {
          return std::ranges::any_of(body.accesses, has_row);
        }) > 1)
      slots.insert(slot);
  }
  return {slots.begin(), slots.end()};
}

}  // namespace outboard::codegen
