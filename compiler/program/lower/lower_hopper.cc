// Products by warpgroups (compiler/program/hopper): what a kernel stores is computed from each sum
// in the thread that has it.
#include "compiler/program/hopper/plan.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

class HopperLowering {
 public:
  HopperLowering(const LoopNest& kernel, const HopperPlan& plan)
      : low_(kernel, nullptr), kernel_(kernel), plan_(plan) {
    low_.mapped_ = kernel.OutputSet();
  }

  Program Run() {
    AddHopperProduct(
        low_.b_, plan_.shape, plan_.tile,
        [&](SumPlace place, ValueId first, ValueId second) { Store(place, first, second); });
    return low_.b_.Take(static_cast<int>(kernel_.slot_elements.size()));
  }

 private:
  void Store(SumPlace place, ValueId first, ValueId second) {
    ProgramBuilder& b = low_.b_;
    const codegen::MmaProduct& product = plan_.product;
    low_.Enter();
    const ValueId branch = place.inside < 0 ? -1 : b.If(place.inside);
    low_.BindAll(product.batch, place.batch);
    low_.BindAll(product.rows.ranges, place.row);
    for (const ValueId sum : {first, second}) {
      low_.Enter();
      low_.BindAll(product.columns.ranges,
                   sum == first ? place.column : b.Plus(place.column, b.Int(1)));
      low_.together_[product.sum] = sum;
      low_.Stores();
      for (const int r : product.columns.ranges) low_.Unbind(r);
      low_.Leave();
    }
    for (const int r : product.rows.ranges) low_.Unbind(r);
    for (const int r : product.batch) low_.Unbind(r);
    if (branch >= 0) b.EndIf(branch);
    low_.Leave();
  }

  Lowering low_;
  const LoopNest& kernel_;
  const HopperPlan& plan_;
};

Program LowerHopper(const LoopNest& kernel, const HopperPlan& plan) {
  return HopperLowering(kernel, plan).Run();
}

}  // namespace outboard::program
