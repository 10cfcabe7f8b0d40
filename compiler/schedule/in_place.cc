#include "compiler/schedule/in_place.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/gather/row_store.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// A writer is moved past so many kernels at most: what it and the kernels behind it read lives as
// long, and that would soon cost more memory than is saved. It also bounds the search.
constexpr size_t kMoveMax = 256;

int64_t Bytes(const UOp* node) { return ElementCount(node->shape) * ByteWidth(node->dtype); }

// Where the kernel stores to its slot, if it computes each element of it once; else nullptr.
const UOp* PlaceOfEachPoint(const FusedKernel& kernel, int64_t slot) {
  const UOp* place = nullptr;
  int64_t points = 1, elements = 0;
  for (const UOp* store : kernel.ast->src) {
    const GlobalOf global = GlobalOfAccess(store);
    if (global.slot() != slot) continue;
    if (place != nullptr || store->src.size() == 3) return nullptr;
    place = store->src[0]->src[1];
    elements = global.elements();
  }
  for (const UOp* node : PostOrder(kernel.ast)) {
    if (IsRange(node, RangeKind::kSequence)) return nullptr;
    if (IsRange(node, RangeKind::kOutput)) points *= RangeOf(node).extent();
  }
  // A store fills its buffer: with as many points as elements it does so once.
  return points == elements ? place : nullptr;
}

class Placer {
 public:
  Placer(std::vector<FusedKernel>& kernels, std::span<const int64_t> donated,
         const SentBefore& sent)
      : kernels_(kernels), after_(kernels.size()), position_(kernels.size()) {
    const absl::flat_hash_set<int64_t> slots(donated.begin(), donated.end());
    for (size_t k = 0; k < kernels.size(); ++k) {
      order_.push_back(k);
      position_[k] = k;
      const FusedKernel& kernel = kernels[k];
      for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
        const UOp* const node = kernel.buffers[slot];
        const bool writes = slot < static_cast<size_t>(kernel.stores);
        const bool given_up =
            node->op == Op::kParam && slots.contains(ParamOf(node).slot()) && IsStatic(node->shape);
        if (given_up && !readers_.contains(node)) inputs_.push_back(node);
        (writes ? writers_ : readers_)[node].push_back(k);
        for (const size_t writer : writers_[node])
          if (writer != k) after_[writer].push_back(k);
        if (const auto before = sent.find(node); before != sent.end())
          for (const size_t writer : writers_[before->second]) after_[writer].push_back(k);
      }
    }
    std::sort(inputs_.begin(), inputs_.end(),
              [](const UOp* a, const UOp* b) { return ParamOf(a).slot() < ParamOf(b).slot(); });
  }

  WrittenOver Run(std::span<const UOp* const> results) {
    for (const bool updates : {true, false})  // what an input is read for has it before all others
      for (const UOp* result : results) {
        // Values with dimensions of VARs have places of their own while they are computed.
        // One that a transfer brings is read here, perhaps, and written by no kernel.
        const auto writers = writers_.find(result);
        if (writers == writers_.end() || writers->second.empty()) continue;
        if (over_.contains(result) || !IsStatic(result->shape)) continue;
        for (const UOp* input : inputs_) {
          if (taken_.contains(input) || Bytes(input) != Bytes(result)) continue;
          if (!(updates ? Update(result, input) : Reuse(result, input))) continue;
          over_.emplace(result, input);
          taken_.insert(input);
          break;
        }
      }
    return over_;
  }

  const std::vector<size_t>& order() const { return order_; }

 private:
  // One kernel reads the input where it writes the result.
  bool Update(const UOp* result, const UOp* input) {
    const std::vector<size_t>& writers = writers_.at(result);
    const std::vector<size_t>& readers = readers_.at(input);
    const size_t writer = writers[0];
    if (writers.size() != 1 || input->dtype != result->dtype) return false;
    if (std::find(readers.begin(), readers.end(), writer) == readers.end()) return false;
    const FusedKernel& kernel = kernels_[writer];
    const auto slot_of = [&](const UOp* node) {
      return std::find(kernel.buffers.begin(), kernel.buffers.end(), node) - kernel.buffers.begin();
    };
    const int64_t to = slot_of(result), from = slot_of(input);
    const UOp* const place = PlaceOfEachPoint(kernel, to);
    if (place == nullptr) return false;
    for (const UOp* node : PostOrder(kernel.ast)) {
      if (node->op != Op::kLoad) continue;
      const int64_t slot = GlobalOfAccess(node).slot();
      if (slot == to || (slot == from && node->src[0]->src[1] != place)) return false;
    }
    return MoveBehind(writer, readers);
  }

  // All that read the input are done before the result is begun.
  bool Reuse(const UOp* result, const UOp* input) const {
    size_t last = 0, first = SIZE_MAX;
    for (const size_t reader : readers_.at(input)) last = std::max(last, position_[reader]);
    for (const size_t writer : writers_.at(result)) first = std::min(first, position_[writer]);
    return last < first;
  }

  // Moves `writer` behind the other readers, with what waits for it; false where a reader does.
  bool MoveBehind(size_t writer, const std::vector<size_t>& readers) {
    const size_t first = position_[writer];
    size_t last = first;
    for (const size_t reader : readers) last = std::max(last, position_[reader]);
    if (last - first > kMoveMax) return false;
    absl::flat_hash_set<size_t> waits = {writer};
    std::vector<size_t> stack = {writer};
    while (!stack.empty()) {
      const size_t kernel = stack.back();
      stack.pop_back();
      for (const size_t next : after_[kernel])
        if (position_[next] <= last && waits.insert(next).second) stack.push_back(next);
    }
    for (const size_t reader : readers)
      if (reader != writer && waits.contains(reader)) return false;
    const auto begin = order_.begin() + static_cast<int64_t>(first),
               end = order_.begin() + static_cast<int64_t>(last) + 1;
    std::stable_partition(begin, end, [&](size_t kernel) { return !waits.contains(kernel); });
    for (size_t i = first; i <= last; ++i) position_[order_[i]] = i;
    for (const size_t reader : readers)
      if (reader != writer) after_[reader].push_back(writer);
    return true;
  }

  const std::vector<FusedKernel>& kernels_;
  absl::flat_hash_map<const UOp*, std::vector<size_t>> writers_, readers_;  // kernels, by number
  std::vector<const UOp*> inputs_;          // donated and read, by slot
  std::vector<std::vector<size_t>> after_;  // kernels that must come after one
  std::vector<size_t> order_, position_;    // numbers by place, places by number
  WrittenOver over_;
  absl::flat_hash_set<const UOp*> taken_;
};

// `kernel` with one slot for a result and the input under it.
FusedKernel WithOneSlot(Graph& graph, const FusedKernel& kernel, const WrittenOver& over) {
  FusedKernel out{nullptr, {}, kernel.stores};
  std::vector<int64_t> slots;
  for (const UOp* node : kernel.buffers) {
    auto place = std::find_if(out.buffers.begin(), out.buffers.end(), [&](const UOp* result) {
      const auto input = over.find(result);
      return input != over.end() && input->second == node;
    });
    if (place == out.buffers.end()) place = out.buffers.insert(place, node);
    slots.push_back(place - out.buffers.begin());
  }
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* node : PostOrder(kernel.ast))
    if (node->op == Op::kGlobal)
      by[node] = graph.MakeChecked(Op::kGlobal, node->dtype, {},
                                   {slots[GlobalOf(node).slot()], GlobalOf(node).elements()});
  out.ast = Substitute(graph, kernel.ast, by);
  if (out.buffers.size() < kernel.buffers.size()) out.ast = StoreChangedRows(graph, out.ast);
  return out;
}

}  // namespace

WrittenOver WriteInPlace(Graph& graph, std::vector<FusedKernel>& kernels,
                         std::span<const UOp* const> results, std::span<const int64_t> donated,
                         const SentBefore& sent) {
  if (donated.empty()) return {};
  Placer placer(kernels, donated, sent);
  WrittenOver over = placer.Run(results);
  std::vector<FusedKernel> ordered;
  for (const size_t k : placer.order()) ordered.push_back(WithOneSlot(graph, kernels[k], over));
  kernels = std::move(ordered);
  return over;
}

}  // namespace outboard::schedule
