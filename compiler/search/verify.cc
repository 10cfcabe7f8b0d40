#include "compiler/search/verify.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/search/compare.h"

namespace outboard::search {
namespace {

constexpr int64_t kAlignment = 64;
// The work that plain loops do in some tenths of a second.
constexpr int64_t kPlainWorkMax = 300'000'000;

// xorshift64*: Marsaglia, "Xorshift RNGs", 2003, with Vigna's multiplier.
class Random {
 public:
  explicit Random(size_t seed) : state_(0x9E3779B97F4A7C15ULL + seed) {}
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545F4914F6CDD1DULL) >> 32;
  }

 private:
  uint64_t state_;
};

}  // namespace

SlotBuffers::SlotBuffers(const UOp* sink) {
  const std::vector<const UOp*> nodes = PostOrder(sink);
  for (const UOp* node : nodes) {
    if (node->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node).slot());
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot].dtype = node->dtype;
    slots_[slot].elements = GlobalOf(node).elements();
    slots_[slot].memory.resize(GlobalOf(node).elements() * ByteWidth(node->dtype) + kAlignment);
  }
  for (const UOp* node : nodes) {
    if (node->op == Op::kStore) slots_[GlobalOfAccess(node).slot()].written = true;
    if (node->op == Op::kLoad) slots_[GlobalOfAccess(node).slot()].read = true;
  }
  for (Slot& slot : slots_) {
    const auto address = reinterpret_cast<uintptr_t>(slot.memory.data());
    pointers_.push_back(
        reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment));
  }
}

void SlotBuffers::FillRandom(bool updated_only) {
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.elements == 0 || (updated_only && !(slot.written && slot.read))) continue;
    Random random(s);
    const int width = ByteWidth(slot.dtype);
    // Sixteen elements' bits once: storing a small float element by element is slow.
    char values[17][8];
    for (int i = 0; i <= 16; ++i) {
      if (IsFloat(slot.dtype)) {
        StoreFloat(slot.dtype, (i - 8) / 8.0, values[i]);
      } else {
        StoreInt(slot.dtype, IsBool(slot.dtype) ? i & 1 : i & 7, values[i]);
      }
    }
    char* const data = static_cast<char*>(pointers_[s]);
    for (int64_t i = 0; i < slot.elements; ++i)
      std::memcpy(data + i * width, values[random.Next() % 17], width);
  }
}

void SlotBuffers::FillOutputs() {
  for (size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s].written && !slots_[s].read)
      std::memset(pointers_[s], UnwrittenByte(slots_[s].dtype),
                  slots_[s].elements * ByteWidth(slots_[s].dtype));
}

int64_t SlotBuffers::written_bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_)
    if (slot.written) bytes += slot.elements * ByteWidth(slot.dtype);
  return bytes;
}

absl::StatusOr<Verifier> Verifier::Make(const UOp* sink, const CompiledKernel& plain,
                                        const RunTasks& run) {
  Verifier verifier;
  verifier.sink_ = sink;
  verifier.run_ = run;
  verifier.buffers_ = std::make_unique<SlotBuffers>(sink);
  SlotBuffers& buffers = *verifier.buffers_;
  buffers.FillRandom();
  buffers.FillOutputs();
  const int64_t tasks = plain.tasks, work = std::max(plain.flops, plain.bytes);
  const bool in_place = std::any_of(buffers.slots_.begin(), buffers.slots_.end(),
                                    [](const auto& slot) { return slot.written && slot.read; });
  if (work <= kPlainWorkMax || tasks < 16 || in_place) {
    OB_RETURN_IF_ERROR(run(plain, buffers.pointers(), 0, tasks));
  } else {
    const double share = static_cast<double>(kPlainWorkMax) / static_cast<double>(work);
    const auto each =
        std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(tasks)) / 4);
    for (const int64_t begin : {int64_t{0}, tasks / 3, tasks / 3 * 2, tasks - each})
      OB_RETURN_IF_ERROR(run(plain, buffers.pointers(), begin, begin + each));
  }
  for (size_t s = 0; s < buffers.slots_.size(); ++s) {
    const SlotBuffers::Slot& slot = buffers.slots_[s];
    verifier.want_.emplace_back();
    if (slot.written)
      verifier.want_.back().assign(static_cast<const char*>(buffers.pointers_[s]),
                                   slot.elements * ByteWidth(slot.dtype));
  }
  return verifier;
}

std::vector<ExpectedSlot> Verifier::Expected() {
  buffers_->FillRandom(/*updated_only=*/true);
  std::vector<ExpectedSlot> slots;
  for (size_t s = 0; s < want_.size(); ++s) {
    const SlotBuffers::Slot& slot = buffers_->slots_[s];
    if (!slot.written) continue;
    slots.push_back({.slot = s,
                     .dtype = slot.dtype,
                     .elements = slot.elements,
                     .before = slot.read ? buffers_->pointers_[s] : nullptr,
                     .after = want_[s].data()});
  }
  return slots;
}

absl::Status Verifier::Check(const CompiledKernel& candidate) {
  buffers_->FillRandom(/*updated_only=*/true);
  buffers_->FillOutputs();
  OB_RETURN_IF_ERROR(run_(candidate, buffers_->pointers(), 0, candidate.tasks));
  for (size_t s = 0; s < want_.size(); ++s) {
    const SlotBuffers::Slot& slot = buffers_->slots_[s];
    const char *got = static_cast<const char*>(buffers_->pointers_[s]), *want = want_[s].data();
    const int width = slot.written ? ByteWidth(slot.dtype) : 0;
    const std::string unwritten(8, UnwrittenByte(slot.dtype));
    for (int64_t i = 0; slot.written && i < slot.elements; ++i, got += width, want += width) {
      if (std::memcmp(got, want, width) == 0) continue;
      if (std::memcmp(want, unwritten.data(), width) == 0) continue;  // the plain run left it out
      double x = 0, y = 0;
      bool equal = false;
      if (IsFloat(slot.dtype)) {
        x = LoadFloat(slot.dtype, got), y = LoadFloat(slot.dtype, want);
        equal = IsWithinTolerance(slot.dtype, x, y);
      } else {
        x = static_cast<double>(LoadInt(slot.dtype, got));
        y = static_cast<double>(LoadInt(slot.dtype, want));
      }
      if (!equal)
        return absl::DataLossError(
            absl::StrCat("slot ", s, " element ", i, " is ", x, " and by plain loops ", y));
    }
  }
  return absl::OkStatus();
}

}  // namespace outboard::search
