// What four warps do together: wgmma and setmaxnreg.
//
// wgmma are products with operands in shared memory, which run beside the threads.
// Each warp computes its 16 rows of 64. Group n of a warpgroup is complete only when all four warps
// have committed theirs: a warp that waits for it waits for the others. Early runs compute when a
// product is issued, late ones when the first warp waits for its group; in between its accumulators
// belong to it, and so do the bytes it reads.
//
// setmaxnreg divides the registers of a block. At entry every thread has as many as the kernel's
// directives leave it, and the block's pool is empty. A `dec` gives a warp's to the pool; an `inc`
// waits until the pool has what it needs. All warps of a warpgroup run the same ones, and meet
// between one and the next (PTX ISA, "setmaxnreg").
#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"
#include "tests/gpu/ptx/matrix.h"

namespace outboard::ptx {
namespace {

constexpr int kRegisters = 65536;  // of a multiprocessor
constexpr int kRegistersLeast = 24, kRegistersMost = 256, kRegistersStep = 8;
constexpr size_t kWarps = 4;  // of a warpgroup

// A matrix descriptor (PTX ISA, "Matrix Descriptor Format"); offsets in bytes.
struct Descriptor {
  explicit Descriptor(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
        base_offset(static_cast<int>(bits >> 49 & 7)),
        mode(static_cast<int>(bits >> 62)) {}
  uint32_t start, leading, stride;
  int base_offset;
  int mode;  // 0: none, 1: 128 bytes, 2: 64, 3: 32

  uint32_t span() const { return mode == 0 ? 16 : 256u >> mode; }
  uint32_t Swizzled(uint32_t address) const {
    const uint32_t bits = mode == 0 ? 0 : (1u << (4 - mode)) - 1;
    return address ^ ((address >> 7 & bits) << 4);
  }
  // Element (row, k) of rows x k, k along the 32 bytes of a row.
  uint32_t KMajor(uint32_t row, uint32_t k_byte) const {
    if (mode == 0)
      return start + row / 8 * stride + k_byte / 16 * leading + row % 8 * 16 + k_byte % 16;
    return Swizzled(start + row / 8 * stride + row % 8 * span() + k_byte);
  }
  // The same with rows along the span: only 16-bit elements.
  uint32_t RowMajor(uint32_t row, uint32_t k) const {
    const uint32_t wide = span() / 2;
    if (mode == 0) return start + row / 8 * stride + k / 8 * leading + k % 8 * 16 + row % 8 * 2;
    return Swizzled(start + row / wide * leading + k / 8 * stride + k % 8 * span() +
                    row % wide * 2);
  }
};

// Rows of an instruction's operands, and whether it writes them.
template <class F>
void ForRows(const Function& function, const Instruction& in, F f) {
  int written = 0;  // of the list, from its beginning
  switch (in.op) {
    case Op::kLd:
    case Op::kUnpack:
    case Op::kLdmatrix: written = in.list_size; break;
    case Op::kMma: written = function.shapes[in.shape].d_count; break;
    default: break;
  }
  for (const int row : {in.guard, in.a, in.b, in.c, in.e})
    if (row >= 0) f(row, false);
  for (const int row : {in.d, in.d2})
    if (row >= 0) f(row, true);
  for (int i = 0; i < in.list_size; ++i) f(function.operands[in.list + i], i < written);
}

}  // namespace

// Registers that a product owns must not be touched, and what is written needs a fence before the
// next product.
void Execution::CheckPendingRows(Warp* warp, const Instruction& in) {
  if (in.op == Op::kWgmma) return;  // IssueProduct looks
  ForRows(function_, in, [&](int row, bool written) {
    if (!function_.product_rows[row]) return;
    if (warp->pending_write[row] != 0 || (written && warp->pending_read[row] != 0)) {
      Tell(ReportKind::kAccumulator, in, warp, 0, Space::kGeneric, 0,
           "a register of a product that was not waited for (wgmma.wait_group)");
    }
    if (written) warp->unfenced[row] = 1;
  });
}

bool Execution::Wgmma(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  if (warp->index / 4 * 4 + 4 > static_cast<int>(warp->block->warps.size())) {
    Tell(ReportKind::kMisuse, in, warp, 0, Space::kGeneric, 0, "a warpgroup has four warps");
    return false;
  }
  Warpgroup& warpgroup = warp->block->warpgroups[warp->index / 4];
  switch (in.op) {
    case Op::kWgmmaFence: std::fill(warp->unfenced.begin(), warp->unfenced.end(), 0); return true;
    case Op::kWgmma: IssueProduct(warp, in); return status_.ok();
    case Op::kWgmmaCommit:
      ++warpgroup.committed[warp->index % 4];
      for (int i = 0; i < 4; ++i)
        for (Group& other : warp->block->warps[warp->index / 4 * 4 + i]->groups)
          if (other.wait == Wait::kWarpgroup) other.wait = Wait::kNone;
      return true;
    default: return WaitProducts(warp, group, in);
  }
}

bool Execution::WaitProducts(Warp* warp, Group* group, const Instruction& in) {
  Warpgroup& warpgroup = warp->block->warpgroups[warp->index / 4];
  const uint64_t mine = warpgroup.committed[warp->index % 4];
  if (mine <= static_cast<uint64_t>(in.offset)) return true;
  const uint64_t wanted = mine - static_cast<uint64_t>(in.offset);
  for (const uint64_t committed : warpgroup.committed) {
    if (committed >= wanted) continue;
    group->wait = Wait::kWarpgroup;
    return false;
  }
  std::deque<PendingProduct> later;
  for (PendingProduct& product : warpgroup.pending) {
    if (product.group > wanted)
      later.push_back(std::move(product));
    else
      product.compute();
  }
  warpgroup.pending = std::move(later);
  uint32_t& known = warp->clocks.own[SlotOf(kProductThread) + warp->index / 4];
  known = std::max(known, clock_base_ + static_cast<uint32_t>(wanted));
  for (uint64_t& pending : warp->pending_write)
    if (pending <= wanted) pending = 0;
  for (uint64_t& pending : warp->pending_read)
    if (pending <= wanted) pending = 0;
  return true;
}

// Checks the bytes of `rows` x `k` elements and lists their addresses, k fastest.
bool Execution::GatherTile(Warp* warp, const Instruction& in, uint64_t descriptor, Type type,
                           int first_row, int rows, int k, bool transposed,
                           std::vector<uint32_t>* addresses) {
  const Descriptor d(descriptor);
  if (d.base_offset != 0) {
    Fail(absl::UnimplementedError("matrix descriptors with a base offset are not known"));
    return false;
  }
  const int bytes = type == Type::kTf32 ? 4 : BytesOf(type);
  Actor reader = LaneActor(warp, 0);
  reader.thread = kProductThread + static_cast<uint32_t>(warp->index / 4);
  reader.clock =
      clock_base_ +
      static_cast<uint32_t>(warp->block->warpgroups[warp->index / 4].committed[warp->index % 4]) +
      1;
  reader.asynchronous = true;
  addresses->reserve(static_cast<size_t>(rows) * static_cast<size_t>(k));
  for (int r = first_row; r < first_row + rows; ++r) {
    for (int e = 0; e < k; ++e) {
      const uint32_t at =
          transposed ? d.RowMajor(static_cast<uint32_t>(r), static_cast<uint32_t>(e))
                     : d.KMajor(static_cast<uint32_t>(r), static_cast<uint32_t>(e * bytes));
      addresses->push_back(at);
      // Pieces of 16 bytes stay together.
      if (!transposed && e * bytes % 16 != 0) continue;
      Place place;
      const uint64_t piece = transposed ? static_cast<uint64_t>(bytes) : 16;
      if (!Resolve(warp, 0, in, Space::kShared, at, piece, piece, &place)) return false;
      CheckRead(reader, in, place, piece);
      if (!status_.ok()) return false;
    }
  }
  return true;
}

void Execution::IssueProduct(Warp* warp, const Instruction& in) {
  const MatrixShape& shape = function_.shapes[in.shape];
  if (!KnownElement(shape.a) || !KnownElement(shape.b))
    return Fail(absl::UnimplementedError(
        absl::StrCat("PTX line ", in.line, ": wgmma of this type is not known")));
  Warpgroup& warpgroup = warp->block->warpgroups[warp->index / 4];
  const uint64_t group = warpgroup.committed[warp->index % 4] + 1;
  const int32_t* d = function_.operands.data() + in.list;
  const int32_t* a = d + shape.d_count;
  for (int i = 0; i < shape.d_count + shape.a_count; ++i) {
    if (warp->unfenced[d[i]])
      return Tell(ReportKind::kAccumulator, in, warp, 0, Space::kGeneric, 0,
                  "a register was written without wgmma.fence since");
    if (i >= shape.d_count && warp->pending_write[d[i]] != 0)
      return Tell(ReportKind::kAccumulator, in, warp, 0, Space::kGeneric, 0,
                  "A is an accumulator that was not waited for");
  }
  const int bytes = shape.a == Type::kTf32 ? 4 : BytesOf(shape.a);
  std::vector<uint32_t> a_addresses, b_addresses;
  if (shape.a_count == 0 &&
      !GatherTile(warp, in, warp->row(in.a)[0], shape.a, 16 * (warp->index % 4), 16, shape.k,
                  shape.transpose_a, &a_addresses))
    return;
  if (!GatherTile(warp, in, warp->row(in.b)[0], shape.b, 0, shape.n, shape.k, shape.transpose_b,
                  &b_addresses))
    return;
  for (int i = 0; i < shape.d_count; ++i) warp->pending_write[d[i]] = group;
  for (int i = 0; i < shape.a_count; ++i) warp->pending_read[a[i]] = group;
  const bool accumulate = warp->row(in.c)[0] & 1;
  const bool saturate = in.sat;

  const auto compute = [this, warp, &shape, d, a, bytes, accumulate, saturate,
                        a_addresses = std::move(a_addresses),
                        b_addresses = std::move(b_addresses)] {
    const uint8_t* memory = warp->block->shared->data.data();
    const auto read = [&](uint32_t address, Type type) {
      uint64_t bits = 0;
      std::memcpy(&bits, memory + address, static_cast<size_t>(bytes));
      return ElementOf(type, bits);
    };
    const int k = shape.k, n = shape.n;
    std::vector<double> left(16 * static_cast<size_t>(k)), right(static_cast<size_t>(n) * k);
    if (shape.a_count == 0) {
      for (size_t i = 0; i < left.size(); ++i) left[i] = read(a_addresses[i], shape.a);
    } else {
      const int per = 4 / bytes;
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
          for (int e = 0; e < per; ++e)
            left[static_cast<size_t>((lane / 4 + 8 * (i % 2)) * k + lane % 4 * per + e +
                                     4 * per * (i / 2))] =
                ElementOf(shape.a, warp->row(a[i])[lane] >> (8 * bytes * e));
    }
    for (size_t i = 0; i < right.size(); ++i) right[i] = read(b_addresses[i], shape.b);
    const double sign = shape.negate_a != shape.negate_b ? -1 : 1;
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < n / 2; ++i) {
        const int row = lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        const bool packed = shape.d == Type::kF16;
        uint64_t& bits = warp->row(d[packed ? i / 2 : i])[lane];
        const int shift = packed ? 16 * (i % 2) : 0;
        std::array<double, 1 + 32> terms{};
        const double* x = &left[static_cast<size_t>(row * k)];
        const double* y = &right[static_cast<size_t>(column * k)];
        for (int j = 0; j < k; ++j) terms[static_cast<size_t>(1 + j)] = sign * x[j] * y[j];
        if (accumulate) terms[0] = ElementOf(shape.d, packed ? bits >> shift & 0xffff : bits);
        const double sum = SumOf(shape.a, {terms.data(), static_cast<size_t>(1 + k)});
        const uint64_t result = SumBits(shape.d, sum, saturate);
        bits = packed ? (bits & ~(uint64_t{0xffff} << shift)) | result << shift : result;
      }
    }
  };
  if (counting_) ++machine_->counters_.products;
  if (!late())
    compute();
  else
    warpgroup.pending.push_back({group, compute});
}

// ---- registers

// What ptxas 13 gives (`ptxas -v`): .maxnreg, else an equal share of what .minnctapersm leaves a
// block, but no more than the kernel's largest setmaxnreg names. 0 where it "is unable to determine
// the register count at entry" and ignores setmaxnreg.
int Execution::RegistersAtEntry() const {
  const int threads = std::max(function_.max_threads, function_.required_threads);
  int registers = function_.registers;
  if (registers == 0 && threads > 0 && function_.blocks_min > 0)
    registers = kRegisters / (threads * function_.blocks_min) / kRegistersStep * kRegistersStep;
  int named = 0;
  for (const Instruction& in : function_.code)
    if (in.op == Op::kSetmaxnreg) named = std::max(named, static_cast<int>(in.offset));
  return std::min(registers, named);
}

bool Execution::SetRegisters(Warp* warp, Group* group, const Instruction& in) {
  const auto misuse = [&](std::string what) {
    Tell(ReportKind::kMisuse, in, warp, 0, Space::kGeneric, 0, std::move(what));
    return false;
  };
  const int named = static_cast<int>(in.offset);
  if (named < kRegistersLeast || named > kRegistersMost || named % kRegistersStep != 0)
    return misuse("the number of registers is no multiple of 8 from 24 to 256");
  if (warp->registers == 0) warp->registers = RegistersAtEntry();
  if (warp->registers == 0)
    return misuse(
        "is ignored: neither .maxnreg nor .maxntid with .minnctapersm says how many registers a "
        "thread has at entry");
  if (!InStep(warp, in)) return false;
  const bool raises = in.mode == 0;
  if (raises ? named < warp->registers : named > warp->registers)
    return misuse(absl::StrCat(raises ? "inc" : "dec", " to ", named, " where a thread has ",
                               warp->registers, " registers"));
  const int more = (named - warp->registers) * 32;
  Block* const block = warp->block;
  if (more > block->registers_free) {
    group->wait = Wait::kRegisters;
    return false;
  }
  block->registers_free -= more;
  warp->registers = named;
  warp->register_clocks.push_back(warp->clock());
  if (more >= 0) return true;
  for (const auto& other : block->warps)
    for (Group& waiting : other->groups)
      if (waiting.wait == Wait::kRegisters) waiting.wait = Wait::kNone;
  return true;
}

// Whether the warpgroup's other warps run this one, too, and are known to have run the one before.
bool Execution::InStep(Warp* warp, const Instruction& in) {
  Block* const block = warp->block;
  std::vector<const Instruction*>& changes =
      block->warpgroups[static_cast<size_t>(warp->index) / kWarps].register_changes;
  const size_t step = warp->register_clocks.size();
  const size_t first = static_cast<size_t>(warp->index) / kWarps * kWarps;
  for (size_t i = first; i < std::min(first + kWarps, block->warps.size()); ++i) {
    const Warp& other = *block->warps[i];
    if (&other == warp) continue;
    const size_t done = other.register_clocks.size();
    if (other.live == 0 && done <= step) return NotByAll(warp, in), false;
    if (step == 0) continue;
    if (done >= step && other.register_clocks[step - 1] <= warp->clocks.own[other.index]) continue;
    Tell(ReportKind::kMisuse, in, warp, 0, Space::kGeneric, 0,
         "the warps of the warpgroup have not met since the setmaxnreg before");
    return false;
  }
  if (step == changes.size()) changes.push_back(&in);
  if (changes[step] == &in) return true;
  return NotByAll(warp, in), false;
}

// When the last lane of a warp has left.
void Execution::CheckRegisters(Warp* warp, const Instruction& in) {
  if (warp->live != 0) return;
  const Warpgroup& group = warp->block->warpgroups[static_cast<size_t>(warp->index) / kWarps];
  if (group.register_changes.size() > warp->register_clocks.size()) NotByAll(warp, in);
}

void Execution::NotByAll(Warp* warp, const Instruction& in) {
  Tell(ReportKind::kDivergence, in, warp, 0, Space::kGeneric, 0,
       "not all warps of the warpgroup run the same setmaxnreg");
}

}  // namespace outboard::ptx
