// Applies the Opts of devices that run blocks of threads to a plan (opt.h), and says what follows
// from the plan for lowering: where the results of threads meet, and how a copy in the memory of a
// block is laid out. Threads: one at a time.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"

namespace outboard::codegen {

// The bytes that memory is read in.
inline constexpr int64_t kSectorBytes = 32;

// Fills a plan of plain loops. All arguments outlive it.
class ThreadPlanner {
 public:
  ThreadPlanner(const LoopNest& kernel, LoopPlan& plan, const Target& target)
      : kernel_(kernel), plan_(plan), target_(target), nests_(kernel.ranges.size()) {
    plan_.blocks = true;
  }

  // `group` is that of a reduction's range, -1 for an output range. The axis exists, and is no
  // sequence and in no nested reduction. Errors: INVALID_ARGUMENT, why the Opt is not legal here.
  absl::Status Vector(int group, int range, int64_t lanes);
  absl::Status Repeat(int group, int range, int64_t count);  // UPCAST and UNROLL
  absl::Status Lane(int range, int64_t count);
  absl::Status Warp(int range, int64_t count);
  absl::Status Share(int group, int range, int64_t count);
  absl::Status Cluster(int64_t blocks);
  absl::Status Align(int group, int range, int64_t count);
  absl::Status Grid(int64_t count);
  absl::Status Local(const UOp* load);
  absl::Status Keep(const UOp* load, int64_t count);
  // Checks the whole, and lets blocks reach beyond the extent. Errors: INVALID_ARGUMENT as above;
  // RESOURCE_EXHAUSTED names the limit.
  absl::Status Finish();

 private:
  // How many values of a range are where, from inside.
  struct Nest {
    int lanes = 1;
    int64_t inner = 1, threads = 1, outer = 1;
    int64_t align = 1;
    const UOp* aligned = nullptr;
    bool odd_begin = false;
    int64_t step() const { return lanes * inner * threads * outer; }
  };

  absl::Status MayHaveThreads(int64_t count) const;
  absl::Status AddThreads(int range, int64_t count);
  absl::Status Rows(int64_t slot);
  absl::Status CheckCopy(const BlockCopy& copy) const;
  bool IsTaskLoop(int range) const;
  // Errors: INVALID_ARGUMENT  most of `count` steps would lie beyond the extent
  absl::Status Fits(int range, int64_t count) const;
  void Rebuild(int group, int range);
  Tile& TileOf(int group, int range);
  absl::Status CheckInPlace() const;
  absl::Status CheckCluster() const;
  absl::Status CheckAligned(const Tile& tile) const;
  absl::Status CheckOdd(const Tile& tile) const;
  absl::Status CheckKept() const;
  absl::Status CheckSize() const;

  const LoopNest& kernel_;
  LoopPlan& plan_;
  const Target& target_;
  std::vector<Nest> nests_;  // by range
};

// Where the results of threads that divide a reduction (SHARE) meet.
struct Joining {
  uint64_t lanes = 0;   // bits of a thread's number, within a warp: joined by halves
  uint64_t warps = 0;   // the others of a block: joined through its memory
  uint64_t blocks = 0;  // of a cluster: joined through the memory of each of them
  uint64_t rest = 0;    // of threads with other results
  int64_t points = 1;   // results of a thread, for each of the reductions
  // Elements of the block's memory for each reduction; 0 where no memory is needed.
  int64_t elements() const;
  // Those of what the blocks of a cluster leave for each other.
  int64_t left_elements() const;
};
Joining JoiningOf(const LoopNest& kernel, const LoopPlan& plan, size_t group);

// The type in which results are joined.
inline DType JoinTypeOf(DType dtype) {
  return IsFloat(dtype) && dtype != DType::kF64 ? DType::kF32 : dtype;
}
// Elements of the block's memory for all joins, by type, in the order of the groups: those of one
// type take turns in it.
std::vector<std::pair<DType, int64_t>> JoinMemory(const LoopNest& kernel, const LoopPlan& plan);
// Of f32, where each block of a cluster leaves its results for the others. Those of each reduction
// have a place of their own: others may still read those of the one before.
int64_t ClusterJoinElements(const LoopNest& kernel, const LoopPlan& plan);

// Bytes of the block's memory for joining at once; a group with more joins some of its reductions
// after the others.
inline constexpr int64_t kJoinBytesMax = 16 << 10;
// How many reductions of so many elements each.
inline int64_t JoinedAtOnce(int64_t elements, DType type) {
  return std::max<int64_t>(1, kJoinBytesMax / (elements * ByteWidth(type)));
}

// A copy in memory of the block: the values of a block of threads along each range, `k` outermost.
struct CopyDim {
  int range = -1;
  int64_t extent = 1;  // of a block
  int64_t stride = 1;  // in the copy
  bool reduced = false;
};
struct CopyLayout {
  std::vector<CopyDim> dims;  // as they lie, outermost first
  int along = -1;             // the dim along which memory is consecutive; -1: none
  int lanes = 1;              // elements that are loaded at once along it
  int64_t elements = 1;
};
CopyLayout LayOutCopy(const LoopNest& kernel, const LoopPlan& plan, const BlockCopy& copy);

}  // namespace outboard::codegen
