#include "compiler/schedule/materialize/long_kernels.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/cost.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

constexpr int64_t kCountMax = 1 << 20;  // of buffers, and of loops

// What a kernel that computes a value has: of operations, of buffers that it reads, and of loops of
// reductions.
struct KernelSize {
  double operations = 0;
  int64_t buffers = 0;
  int loops = 0;
};

bool HasManyLoops(const KernelSize& size) { return size.loops > optimize::kKernelLoopsMax; }

// What is computed by the source of a value: it is found where its source is.
bool IsPassedOn(const UOp* node) { return IsMovement(node->op) || node->op == Op::kCast; }
bool IsComputed(const UOp* node) { return IsAlu(node->op) || node->op == Op::kReduce; }

class Splitter {
 public:
  Splitter(const KernelValues& values, absl::flat_hash_set<const UOp*>& stored,
           int64_t& steps_left)
      : values_(values), stored_(stored), steps_left_(steps_left) {}

  void Run() {
    for (const UOp* node : values_.order) {
      const UOp*& behind = behind_[node] = node;
      if (IsPassedOn(node) && !stored_.contains(node)) behind = behind_.at(node->src[0]);
      StoreBetweenMovements(node);
      KernelSize size = EstimatedSize(node);
      if (IsTooLong(size)) size = DistinctSize(node);
      while (IsTooLong(size)) {
        const UOp* const largest = LargestBelow(node, HasManyLoops(size));
        if (largest == nullptr) break;
        stored_.insert(largest);
        size = DistinctSize(node);
      }
      size_[node] = size;
    }
  }

 private:
  bool IsTooLong(const KernelSize& size) const {
    return size.operations > optimize::kKernelSizeMax || size.buffers >= values_.buffers_max ||
           HasManyLoops(size);
  }

  bool MayBeStored(const UOp* node) const {
    return !stored_.contains(node) && PaddedSize(node->shape) > 0 && values_.may_be_stored(node);
  }
  // Whether what is only passed on may be stored, too, where nothing computed can be: not if it has
  // more elements than what it passes on.
  bool MayBeCopied(const UOp* node) const {
    return IsPassedOn(node) && MayBeStored(node) &&
           PaddedSize(node->shape) <= PaddedSize(behind_.at(node)->shape);
  }

  // Through how many movements, one on top of the other, an element of a value is found, and the
  // source through which it has most of them.
  struct Depth {
    int movements = 0;
    const UOp* deepest = nullptr;
  };

  void CountMovements(const UOp* node) {
    Depth depth;
    for (const UOp* source : node->src)
      if (!stored_.contains(source) && depths_.at(source).movements > depth.movements)
        depth = {depths_.at(source).movements, source};
    depth.movements += IsMovement(node->op);
    depths_[node] = depth;
  }

  // Whether it may be stored between the movements below `node`: not if it is much larger, as the
  // products that a sum adds are.
  bool MayBeCut(const UOp* value, const UOp* node) const {
    constexpr int64_t kLarger = 2;
    return PaddedSize(value->shape) / kLarger <= PaddedSize(node->shape) &&
           (IsComputed(value) ? MayBeStored(value) : MayBeCopied(value));
  }

  // Stores the nearest value that it may where an element would be found through more movements
  // than optimize::kKernelMovementsMax: each adds index arithmetic to that of those before. If no
  // such value is at least half as deep, nothing is stored, and counting starts again from 0.
  void StoreBetweenMovements(const UOp* node) {
    constexpr size_t kPathMax = 1024;
    CountMovements(node);
    while (depths_.at(node).movements > optimize::kKernelMovementsMax) {
      std::vector<const UOp*> path;  // between `node` and the cut
      const UOp* cut = depths_.at(node).deepest;
      while (cut != nullptr && !MayBeCut(cut, node)) {
        path.push_back(cut);
        cut = depths_.at(cut).deepest;
        if (cut == nullptr || path.size() == kPathMax ||
            depths_.at(cut).movements < optimize::kKernelMovementsMax / 2)
          cut = nullptr;
      }
      if (cut == nullptr) {
        depths_[node] = {};
        return;
      }
      stored_.insert(cut);
      for (size_t i = path.size(); i-- > 0;) CountMovements(path[i]);
      CountMovements(node);
    }
  }

  double SizeOf(const UOp* node) const {
    constexpr double kIndexWork = 4;  // of a movement, or of a load
    return IsAlu(node->op) || node->op == Op::kCast
               ? optimize::OpSize(node->op, node->dtype, values_.costs)
               : kIndexWork;
  }
  // Of the reduction itself: its axes, of which those of one-hot conditions may be no loops.
  int LoopsOf(const UOp* node) const {
    if (node->op != Op::kReduce || !values_.is_loop(node)) return 0;
    int loops = 0;
    for (const int64_t axis : ReduceOf(node).axes())
      loops += node->src[0]->shape[axis] != Dim(1) ? 1 : 0;
    return loops;
  }
  // What reading a source adds to a kernel. Counts parts that several sources share again.
  KernelSize SizeWithin(const UOp* source) const {
    return stored_.contains(source) ? KernelSize{SizeOf(source), 1} : size_.at(source);
  }

  KernelSize EstimatedSize(const UOp* node) const {
    KernelSize size{SizeOf(node), node->op == Op::kParam ? 1 : 0, LoopsOf(node)};
    for (const UOp* s : node->src) {
      const KernelSize within = SizeWithin(s);
      size.operations += within.operations;
      // An estimate doubles where parts are shared.
      size.buffers = std::min(size.buffers + within.buffers, kCountMax);
      size.loops = std::min(size.loops + within.loops, static_cast<int>(kCountMax));
    }
    return size;
  }

  // The size of the kernel that computes `node`, each operation, buffer and loop once. Of one that
  // is much too long it may be less than that: where nothing can be stored, each node above would
  // count all of it again.
  KernelSize DistinctSize(const UOp* node) const {
    constexpr double kFarTooLong = 4 * optimize::kKernelSizeMax;
    if (steps_left_ <= 0) return EstimatedSize(node);
    KernelSize size{SizeOf(node), 0, LoopsOf(node)};
    absl::flat_hash_set<const UOp*> seen = {node};
    std::vector<const UOp*> stack(node->src.begin(), node->src.end());
    while (!stack.empty() && size.operations < kFarTooLong) {
      const UOp* const source = stack.back();
      stack.pop_back();
      --steps_left_;
      if (!seen.insert(source).second) continue;
      size.operations += SizeOf(source);
      if (stored_.contains(source) || source->op == Op::kParam) {
        ++size.buffers;
      } else {
        size.loops += LoopsOf(source);
        stack.insert(stack.end(), source->src.begin(), source->src.end());
      }
    }
    return size;
  }

  // The largest value that `node` is computed with and that may be stored, each looked for through
  // movements; nullptr if there is none of some size. `by_loops`: the one with the most of them.
  // Otherwise, where nothing computed may be stored, a long one that is only passed on.
  const UOp* LargestBelow(const UOp* node, bool by_loops) const {
    constexpr double kSizeLeast = 16, kCopyLeast = optimize::kKernelSizeMax / 2;
    const auto extent_of = [&](const UOp* source) {
      const KernelSize& size = size_.at(source);
      return by_loops ? static_cast<double>(size.loops) : size.operations;
    };
    const UOp *largest = nullptr, *copy = nullptr;
    for (const UOp* source : node->src) {
      const UOp* const behind = behind_.at(source);
      if (IsComputed(behind) && MayBeStored(behind) &&
          extent_of(behind) >= (by_loops ? 1 : kSizeLeast) &&
          (largest == nullptr || extent_of(behind) > extent_of(largest)))
        largest = behind;
      if (!by_loops && extent_of(source) >= kCopyLeast && MayBeCopied(source) &&
          (copy == nullptr || extent_of(source) > extent_of(copy)))
        copy = source;
    }
    return largest != nullptr ? largest : copy;
  }

  const KernelValues& values_;
  absl::flat_hash_set<const UOp*>& stored_;
  int64_t& steps_left_;
  absl::flat_hash_map<const UOp*, KernelSize> size_;  // of the kernel that would compute it
  absl::flat_hash_map<const UOp*, const UOp*> behind_;  // what a value passes on
  absl::flat_hash_map<const UOp*, Depth> depths_;
};

}  // namespace

void SplitLongKernels(const KernelValues& values, absl::flat_hash_set<const UOp*>& stored,
                      int64_t& steps_left) {
  Splitter(values, stored, steps_left).Run();
}

}  // namespace outboard::schedule
