// Products by warpgroups (compiler/program/hopper): what a kernel stores is computed from each sum
// in the thread that has it.
#include <algorithm>
#include <utility>

#include "compiler/program/hopper/plan.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/program/lower/row_sums.h"

namespace outboard::program {

class HopperLowering {
 public:
  HopperLowering(const LoopNest& kernel, const HopperPlan& plan)
      : low_(kernel, nullptr), kernel_(kernel), plan_(plan) {
    low_.mapped_ = kernel.OutputSet();
  }

  Program Run() {
    ProductStores stores;
    std::vector<const UOp*> direct;
    for (const UOp* store : kernel_.stores)
      if (!SumsPoints(store) &&
          std::none_of(plan_.boxed.begin(), plan_.boxed.end(),
                       [&](const BoxedStore& boxed) { return boxed.store == store; }))
        direct.push_back(store);
    stores.boxed = [&](size_t result, SumPlace place, ValueId first, ValueId second) {
      return Values(plan_.boxed[result].store->src[1], place, first, second);
    };
    if (!direct.empty() || plan_.boxed.empty())
      stores.direct = [&](SumPlace place, ValueId first, ValueId second) {
        const ValueId branch = place.inside < 0 ? -1 : low_.b_.If(place.inside);
        ForBoth(place, first, second, [&] { low_.Store(direct); });
        if (branch >= 0) low_.b_.EndIf(branch);
      };
    RowSums sums(low_, plan_.product, /*tile_rows=*/0, plan_.tile.columns);
    if (sums.any()) AddSums(sums, stores);
    AddHopperProduct(low_.b_, plan_.shape, plan_.tile, stores);
    return low_.b_.Take(static_cast<int>(kernel_.slot_elements.size()));
  }

 private:
  void AddSums(RowSums& sums, ProductStores& stores) {
    stores.keep = [&](int64_t half, SumPlace place, ValueId first, ValueId second) {
      int64_t lane = 0;
      ForBoth(place, first, second,
              [&] { sums.Keep(half, low_.b_.Int(lane++), place.inside); });
    };
    stores.add = [&](ValueId thread, SumPlace place) {
      low_.BindAll(plan_.product.batch, place.batch);
      sums.Store(thread, place.row, place.column);
      for (const int r : plan_.product.batch) low_.Unbind(r);
    };
  }

  // Calls `body` for each of the two sums, at its place.
  template <typename Body>
  void ForBoth(SumPlace place, ValueId first, ValueId second, const Body& body) {
    const codegen::MmaProduct& product = plan_.product;
    low_.Enter();
    low_.BindAll(product.batch, place.batch);
    low_.BindAll(product.rows.ranges, place.row);
    for (const ValueId sum : {first, second}) {
      low_.Enter();
      low_.BindAll(product.columns.ranges,
                   sum == first ? place.column : low_.b_.Plus(place.column, low_.b_.Int(1)));
      low_.together_[product.sum] = sum;
      body();
      for (const int r : product.columns.ranges) low_.Unbind(r);
      low_.Leave();
    }
    for (const int r : product.rows.ranges) low_.Unbind(r);
    for (const int r : product.batch) low_.Unbind(r);
    low_.Leave();
  }

  ValueId Values(const UOp* value, SumPlace place, ValueId first, ValueId second) {
    Instruction lanes{.code = Code::kLanes, .dtype = value->dtype, .lanes = 2};
    ForBoth(place, first, second, [&] { lanes.src.push_back(low_.Emit(value)); });
    return low_.b_.Add(std::move(lanes));
  }

  Lowering low_;
  const LoopNest& kernel_;
  const HopperPlan& plan_;
};

Program LowerHopper(const LoopNest& kernel, const HopperPlan& plan) {
  return HopperLowering(kernel, plan).Run();
}

}  // namespace outboard::program
