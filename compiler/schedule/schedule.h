// From a tensor graph to kernels: what is computed together, where results are kept, and in which
// order.
//
//   Prepare          calls written out
//   SplitReductions  large sums with few results, in two steps (split.h)
//   ChooseMaterialized     which values are kept in memory; all others are computed where they are
//                          read
//                    (fusion.h)
//   FindScores       with FLASH, which values are never kept: an attention's scores (attention.h)
//   LowerKernel      a kept value as a loop nest: movements become index arithmetic (lower.h);
//                    LowerScatter where data names the places (scatter.h)
//   ChooseLayouts    in which order the axes of kept values lie in memory (layout.h); where that is
//                    another one than was written, all are lowered anew
//   FuseKernels     kernels over the same rows become one with several stores (merge.h)
//   WriteInPlace     results written over inputs that nobody reads afterwards (in_place.h); of
//                    these only the rows that change (row_store.h)
//   PlanMemory       one arena for all temporaries (memory_plan.h)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

struct ScheduledBuffer {
  enum class Kind { kInput, kOutput, kTemporary };
  Kind kind = Kind::kTemporary;
  int64_t index = 0;  // PARAM slot; place in the SINK; for temporaries the byte offset in the arena
  DType dtype = DType::kVoid;
  int64_t elements = 0;
  // Of an input or output with dimensions of VARs: the longest that each dimension can be. Its
  // elements lie where they would in an array of these lengths (room.h). Else empty.
  std::vector<int64_t> padded_dims;

  int64_t bytes() const { return elements * ByteWidth(dtype); }
};

struct ScheduleOptions {
  bool flash = false;  // scores of attention are not kept (attention.h); FLASH=1 at the worker
};

struct ScheduledKernel {
  const UOp* ast = nullptr;  // SINK of STOREs, of the Graph given to MakeSchedule
  std::vector<int> buffers;  // GLOBAL slot i is Schedule::buffers[buffers[i]]
};

inline constexpr int kNoInput = -1;

struct Schedule {
  std::vector<ScheduledBuffer> buffers;
  // By place in the SINK: the slot of the donated PARAM in whose memory the result is written;
  // kNoInput for memory of its own.
  std::vector<int> over;
  std::vector<ScheduledKernel> kernels;  // in the order to run them
  int64_t arena_bytes = 0;
  int64_t arena_bytes_least = 0;  // most bytes of temporaries alive at once: no plan can need less
};

// The kernels that compute `sink`, which must be verified. Result i is written whole to the output
// buffer of index i, but for what the input below it holds already and what lies behind a VAR's
// value; of the inputs only those of the PARAM slots in `donated` are written, as Schedule::over
// says. Kernels are made in `graph`; `sink` may be of another. They serve every binding of its
// VARs. Errors: RESOURCE_EXHAUSTED, limits of the graph or of the kernels.
// Deterministic: equal graphs and targets give equal kernels. Threads: pure.
absl::StatusOr<Schedule> MakeSchedule(Graph& graph, const UOp* sink, const Target& target,
                                      std::span<const int64_t> donated = {},
                                      const ScheduleOptions& options = {});

// A kernel's loops, what it reads and writes, in one line. For people and golden tests.
std::string KernelToString(const Schedule& schedule, size_t kernel);
// All of them, a line each.
std::string ScheduleToString(const Schedule& schedule);

}  // namespace outboard::schedule
