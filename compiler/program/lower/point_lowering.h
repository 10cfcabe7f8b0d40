// Lowers the values of a kernel at one point: emits what a node of it is where the ranges that it
// depends on are open, and the kernel's stores there. Loops, and who runs which points of them, are
// for those who use this:
//
//   Lowering              loops of a plan, or of blocks of threads (lowering.h)
//   MmaLowering           products by mma.sync (compiler/program/mma/lower_mma.cc)
//   HopperLowering        products by warpgroups (compiler/program/hopper/lower_hopper.cc)
//   OnlineElements        attention on GPUs (compiler/program/online/online_elements.h)
//
// Each of them, for a point: opens a loop or branch, and OpenScope; ranges().Open of the ranges
// that have a value there; Provide of what is not computed at each point (a sum of a matrix unit,
// an operand that was copied); Emit of values, and Store; then ranges().Close, CloseScope, and the
// end of the loop or branch.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/program/lower/open_ranges.h"
#include "compiler/program/lower/value_scopes.h"
#include "compiler/program/program.h"

namespace outboard::codegen {
struct MmaProduct;
}

namespace outboard::program {

// Where the results of a reduction lie.
struct ResultPlace {
  ValueId memory = -1;
  std::vector<int> ranges;  // tiled ones that it depends on, as the memory's dimensions
};

class PointLowering {
 public:
  // `kernel` outlives this. A BUFFER for each of the kernel's slots is emitted.
  explicit PointLowering(const LoopNest& kernel);
  virtual ~PointLowering() = default;
  PointLowering(const PointLowering&) = delete;
  PointLowering& operator=(const PointLowering&) = delete;

  const LoopNest& kernel() const { return kernel_; }
  ProgramBuilder& builder() { return b_; }
  OpenRanges& ranges() { return ranges_; }
  // The memory of a slot, or that a LOAD, STORE or INDEX refers to.
  ValueId buffer(int64_t slot) const { return buffers_[static_cast<size_t>(slot)]; }
  ValueId BufferOf(const UOp* access) const { return buffer(GlobalOfAccess(access).slot()); }
  // The whole program; once.
  Program Take() { return b_.Take(static_cast<int>(kernel_.slot_elements.size())); }

  // ---- scopes: one for each loop or branch of the program, just inside of it
  void OpenScope() { computed_.Open(); }
  void CloseScope() { computed_.Close(); }
  // Exchanges what is known for what `scopes` knows: for code that is at points of its own.
  void SwapScopes(ValueScopes& scopes) { std::swap(scopes, computed_); }

  // ---- values
  // The node's value at the point. Computed again in each scope but those inside of one that knows
  // it.
  ValueId Emit(const UOp* root);
  // Until the innermost scope is closed, the node has this value.
  void Know(const UOp* node, ValueId value) { computed_.Set(node, value); }
  // From now on the node is not computed from its sources: it has this value, cast to its type (a
  // matrix unit sums narrow floats in f32), or what `read`, which provides nothing, emits at each
  // point. Values that are known in open scopes stay.
  void Provide(const UOp* node, ValueId value) { provided_[node] = {value, nullptr}; }
  void Provide(const UOp* node, std::function<ValueId()> read) {
    provided_[node] = {-1, std::move(read)};
  }
  bool IsProvided(const UOp* node) const { return provided_.contains(node); }
  void Withdraw(const UOp* node) { provided_.erase(node); }
  // The result of a reduction, which has to be provided or put somewhere before it is emitted.
  void PutResult(const UOp* node, ResultPlace place) { results_[node] = std::move(place); }
  void ForgetResult(const UOp* node) { results_.erase(node); }
  // These quotients are computed as products with the divisor's inverse, by the device's unit.
  void SetByInverse(absl::flat_hash_set<const UOp*> quotients) {
    by_inverse_ = std::move(quotients);
  }

  // ---- arithmetic
  // The instruction of a node of arithmetic, without its sources.
  static Instruction AluOf(const UOp* node);
  // What `op` leaves any value as it is with.
  ValueId Identity(Op op, DType dtype);
  // A running value with one more term: a product need not be rounded before it is added.
  ValueId Combine(Op op, ValueId a, ValueId b);

  // ---- conditions; as everywhere -1: true
  // The conjunction of conditions that are not assumed.
  ValueId Gate(const std::vector<const UOp*>& conditions);
  // Inside of a branch that has checked a condition.
  void Assume(const UOp* condition) { assumed_.insert(condition); }
  void EndAssume(const UOp* condition) { assumed_.erase(condition); }
  bool IsAssumed(const UOp* condition) const { return assumed_.contains(condition); }
  // A condition of all loads that are emitted from now on.
  void LoadOnlyIf(ValueId condition) { loads_if_ = condition; }
  // Loads that do not depend on `ranges`, but on others, and that are emitted from now on are not
  // merged with those before the call. For threads that have no registers to keep them in.
  void LoadAgain(RangeSet ranges) {
    again_for_ = ranges;
    ++again_;
  }
  // Opens a branch around the code that follows, for a block's tile of a product, of which nothing
  // may lie below the ends of ranges; -1: no range ends early. The batch is open; `row` and
  // `column` are the tile's first ones, multiples of its size.
  ValueId IfBelowEnds(const codegen::MmaProduct& product, ValueId row, int64_t rows, ValueId column,
                      int64_t columns);
  // Whether `size` points of `ranges` from the flat index `first` on reach below their ends.
  ValueId ReachesBelowEnds(const std::vector<int>& ranges, ValueId first, int64_t size);
  // `condition`, and that the point lies below the ends of `ranges`, which are open.
  ValueId AndBelowEnds(ValueId condition, const std::vector<int>& ranges);

  // ---- stores
  // Values of these ranges are divided among blocks or threads: what does not depend on them is
  // stored where they are 0 alone.
  void MarkDivided(RangeSet ranges) { divided_ |= ranges; }
  // Emits the values of all stores at the point, then the stores.
  void Store(const std::vector<const UOp*>& stores);

 protected:
  // Called for each load before it is added, for blocks of threads: `load` may read another memory,
  // and `mask`, the condition under which it is done (-1: always), may get stricter.
  virtual void AdaptLoad(const UOp* /*node*/, Instruction& /*load*/, ValueId& /*mask*/) {}

  const LoopNest& kernel_;
  ProgramBuilder b_;
  OpenRanges ranges_;

 private:
  ValueId Compute(const UOp* node);
  ValueId Load(const UOp* node);

  struct Provided {
    ValueId value = -1;
    std::function<ValueId()> read;  // null: `value`
  };
  std::vector<ValueId> buffers_;  // by slot
  ValueScopes computed_;
  RangeSet divided_ = 0;
  ValueId loads_if_ = -1;
  RangeSet again_for_ = 0;  // of LoadAgain, which was called so often
  int64_t again_ = 0;
  absl::flat_hash_map<const UOp*, Provided> provided_;
  absl::flat_hash_map<const UOp*, ResultPlace> results_;  // by reduction
  absl::flat_hash_set<const UOp*> by_inverse_;
  absl::flat_hash_set<const UOp*> assumed_;  // conditions
};

}  // namespace outboard::program
