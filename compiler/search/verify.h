// Verifies that a candidate computes the same results as a kernel that is trusted: plain loops, or
// on a GPU the compiler's own choice where plain threads would take too long. Used by the search
// before a candidate can win.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/uop.h"
#include "compiler/search/measurer.h"

namespace outboard::search {

// Memory for each of a kernel's slots, aligned to cache lines.
class SlotBuffers {
 public:
  explicit SlotBuffers(const UOp* sink);

  // Random numbers in every slot, the same each time: floats between -1 and 1 of few digits, so
  // that sums hardly round, and integers between 0 and 7. With `updated_only`, only in those that
  // the kernel both writes and reads: the others are unchanged.
  void FillRandom(bool updated_only = false);
  // Sets every byte of the slots that the kernel writes and does not read to UnwrittenByte.
  void FillOutputs();

  std::span<void* const> pointers() const { return pointers_; }
  // Of the slots that the kernel writes: what a comparison reads.
  int64_t written_bytes() const;

 private:
  friend class Verifier;
  struct Slot {
    DType dtype = DType::kVoid;
    int64_t elements = 0;
    bool written = false, read = false;
    std::vector<char> memory;
  };
  std::vector<Slot> slots_;
  std::vector<void*> pointers_;
};

// Runs tasks [begin, end) of a compiled kernel over buffers by slot.
using RunTasks = std::function<absl::Status(
    const CompiledKernel& kernel, std::span<void* const> buffers, int64_t begin, int64_t end)>;

// Compares results with those of plain loops. A kernel with much work is run in part: its first
// tasks, some in the middle, the last.
class Verifier {
 public:
  // `plain` is the kernel without Opts but a THREAD over all its output loops.
  // Errors: those of `run`.
  static absl::StatusOr<Verifier> Make(const UOp* sink, const CompiledKernel& plain,
                                       const RunTasks& run);

  // Errors: those of the `run` given to Make; DATA_LOSS  a result differs by more than rounding can
  // explain (slot, element, both values)
  absl::Status Check(const CompiledKernel& candidate);

  // What Check compares with, for a device that does so itself. Valid until the next call of
  // anything here.
  std::vector<ExpectedSlot> Expected();

  SlotBuffers& buffers() { return *buffers_; }

 private:
  Verifier() = default;

  const UOp* sink_ = nullptr;
  RunTasks run_;
  std::unique_ptr<SlotBuffers> buffers_;
  std::vector<std::string> want_;  // by slot; empty for slots that are not written
};

}  // namespace outboard::search
