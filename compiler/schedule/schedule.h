// From a tensor graph to kernels: what is computed together, which results are materialised, and in
// which order kernels run. One function per pass, in this order. From DivideKeys on they are
// repeated as long as the target does not compute kernels of some attention well (ScheduleOptions):
// its keys then stay whole, its gradients are not rounded, or, from SumOverColumns on, it stores
// its scores, which all do after the eighth round.
//
//   Prepare              inlines calls (prepare.h)
//   LowerCollectives     a device-level graph's collectives become transfers and folds
//                        (collective/lower.h)
//   CutAtTransfers       what transfers send become results, what they receive inputs
//                        (collective/cut.h)
//   Simplify             the rules (rewrite/simplify.h); once more where keys were divided
//   DivideKeys           attention of few queries is divided into parts of its keys
//                        (keys/key_parts.h)
//   SplitReductions      large sums with few results become two steps (split.h)
//   WithoutCopies        what is in memory anyway is sent from there (collective/cut.h)
//   RoundGradients       gradients of scores of f32 are rounded before they are multiplied with
//                        matrices of 16 bits, on NVIDIA's GPUs (keys/rounded_gradients.h)
//   WithDistinctResults  a result that is an input, or another result, becomes a copy of it
//   FindScores           values never to materialise, an attention's scores (attention.h)
//   SumOverColumns       sums over keys in attention's gradients become sums over columns, on
//                        NVIDIA's GPUs (keys/gradient_sums.h). Two results may be one then:
//                        WithDistinctResults and FindScores follow again. Where that takes much
//                        more memory, or some kernel is not computed well, all passes from here on
//                        are made without it
//   ChooseMaterialized   which values are stored; all others are recomputed at each use
//                        (materialize.h)
//   LowerKernel          a materialised value becomes a loop nest, movements index arithmetic
//                        (lower.h); LowerScatter for data-dependent offsets (gather/scatter.h)
//   StoreProductsApart   products that no matrix unit computes in one kernel get a kernel each
//                        (materialize/products_apart.h)
//   ChooseLayouts        the order of axes of temporaries in memory, and which inputs are copied
//                        (layout.h). Where there are some, ApplyLayouts, and all kernels are
//                        lowered again
//   ChoosePitches        where rows of temporaries begin (layout.h), which lowers them again, too
//   FuseKernels          kernels over the same rows become one with several stores
//                        (fuse_kernels.h)
//   AllowTf32            kernels of products of f32 say so, where the graph allows it; on GPUs
//   NumberSlotsAlike     kernels that are equal but for the numbers of their buffers become equal,
//                        on GPUs (launches/slots.h)
//   Refused              whether the target computes the kernels with scores
//                        (keys/score_kernels.h); asked again of those that later passes change
//   Assemble             what follows up to PlanMemory (assemble/assemble.h)
//   DropCopies           what is only copied is made where its copy would be
//   WriteInPlace         results are written over donated inputs (in_place.h), and of those only
//                        the rows that change (gather/row_store.h). After a plan without,
//                        WriteTemporariesInPlace: large temporaries over others
//   GroupLaunches        equal kernels become one launch, on GPUs (launches/group.h). Where there
//                        are transfers, PlanSteps instead: when they are started and waited for
//                        (collective/steps.h)
//   PlanMemory           one arena for all temporaries (assemble/memory_plan.h)
//   MarkSteady           which buffers GPUs may fetch early (launches/steady.h)
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/collective/steps.h"
#include "compiler/schedule/in_place/policy.h"
#include "compiler/target.h"

namespace outboard::schedule {

struct ScheduledBuffer {
  enum class Kind { kInput, kOutput, kTemporary };
  Kind kind = Kind::kTemporary;
  int64_t index = 0;  // PARAM slot, index in the SINK, or a temporary's byte offset in the arena
  DType dtype = DType::kVoid;
  int64_t elements = 0;
  // The padded extents of an input or output that has dimensions made of VARs: its elements lie
  // where they would in an array of these dimensions (padded_dims.h). Empty otherwise.
  std::vector<int64_t> padded_dims;

  int64_t bytes() const { return elements * ByteWidth(dtype); }
};

// The first two are policies, which a worker's user may change. The others ask the compiler what it
// would make of a kernel (compiler/schedule_options.h).
struct ScheduleOptions {
  ScorePolicy scores = ScorePolicy::kByCost;
  OverwritePolicy overwrites = OverwritePolicy::kLarge;
  // Whether the target computes a kernel with scores well. Where it does not, the attentions that
  // the kernel's scores are of store theirs (keys/score_kernels.h). Null: it does.
  std::function<bool(const UOp* kernel)> computes_scores;
  // Whether it computes a product with sums over its rows (fuse/row_sums.h) well; where it does
  // not, they are read again. Null: it does not.
  std::function<bool(const UOp* kernel)> computes_sums;
  // In how many parts its blocks add the sum of a product's kernel by themselves, so that no second
  // kernel has to. Null: in one.
  std::function<int64_t(const UOp* kernel)> parts_of_sum;
  // Whether a matrix unit computes it. Products of one kernel that none does are stored apart from
  // each other where that pays (materialize/products_apart.h). Null: there is no matrix unit.
  std::function<bool(const UOp* kernel)> uses_matrix_unit;
  // How many views each copy of it has where so many copies are one launch (launches/group.h).
  // Null: none.
  std::function<int64_t(const UOp* kernel, int64_t copies)> maps_of;
};

struct ScheduledKernel {
  const UOp* ast = nullptr;  // SINK of STOREs, of the Graph given to MakeSchedule
  std::vector<int> buffers;  // GLOBAL slot i is Schedule::buffers[buffers[i]]
  // How many kernels, this one and those behind it, have the same ast and do not depend on each
  // other: a device may compute them by one launch (compiler/copies.h). 0: an earlier one counts
  // this one.
  int together = 1;
};

// Bytes that ranks exchange (runtime/collective/collective.h): the buffers as they lie in memory.
struct ScheduledTransfer {
  Op op = Op::kUnshard;  // UNSHARD: all-gather; ALLTOALL: all-to-all; COPY: broadcast
  int64_t count = 1, stride = 1, root = 0;
  int send = 0, receive = 0;  // into Schedule::buffers
};

inline constexpr int kNoInput = -1;

struct Schedule {
  std::vector<ScheduledBuffer> buffers;
  // over[i]: slot of the donated PARAM into whose memory result i is written; kNoInput for memory
  // of its own.
  std::vector<int> over;
  std::vector<ScheduledKernel> kernels;  // in the order to run them
  std::vector<ScheduledTransfer> transfers;
  std::vector<std::vector<int>> buckets;  // of transfers that are started together
  std::vector<ScheduledStep> steps;       // kernels, and starts and waits of buckets, in order
  int64_t arena_bytes = 0;
  int64_t arena_bytes_least =
      0;  // the most bytes of temporaries alive at once: a lower bound for any plan
};

// Returns the kernels that compute `sink`, which must be verified, at tensor or device level.
// Result i is written to the
// output buffer with index i: all of it, except what a donated input below it holds already and
// elements beyond a VAR's bound value. Inputs are written only if their PARAM slot is in `donated`,
// as Schedule::over says. The kernels belong to `graph` (`sink` may belong to another) and serve
// every binding of the VARs. Deterministic: equal graphs give equal kernels. Threads: pure. Errors:
// RESOURCE_EXHAUSTED  a limit of the graph or of the kernels
absl::StatusOr<Schedule> MakeSchedule(Graph& graph, const UOp* sink, const Target& target,
                                      std::span<const int64_t> donated = {},
                                      const ScheduleOptions& options = {});

// One line with a kernel's loops, reads and writes, for people and golden tests.
std::string KernelToString(const Schedule& schedule, size_t kernel);
// All steps, one line each.
std::string ScheduleToString(const Schedule& schedule);

}  // namespace outboard::schedule
