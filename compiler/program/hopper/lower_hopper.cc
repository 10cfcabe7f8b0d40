// Products by warpgroups (compiler/program/hopper): what a kernel stores is computed from each sum
// in the thread that has it.
#include <algorithm>
#include <deque>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/divide_up.h"
#include "compiler/kernel/affine.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/hopper/ring.h"
#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/mma/row_sums.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {

class HopperLowering {
 public:
  HopperLowering(const LoopNest& kernel, const HopperPlan& plan)
      : point_(kernel),
        b_(point_.builder()),
        ranges_(point_.ranges()),
        kernel_(kernel),
        plan_(plan) {
    point_.MarkDivided(kernel.OutputSet());
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
    if (!direct.empty() || plan_.boxed.empty()) {
      LoadAhead(direct, stores);
      stores.direct = [&](SumPlace place, ValueId first, ValueId second) {
        const ValueId branch = place.inside < 0 ? -1 : b_.If(place.inside);
        ForBoth(place, first, second, [&] {
          TakeLoaded();
          point_.Store(direct);
        });
        if (branch >= 0) b_.EndIf(branch);
      };
    }
    if (OutputsEndEarly(kernel_, plan_.product))
      stores.needed = [&](ValueId batch, ValueId row, ValueId column) {
        const codegen::MmaProduct& product = plan_.product;
        ranges_.OpenAll(product.batch, batch);
        const ValueId branch =
            point_.IfBelowEnds(product, row, plan_.tile.rows, column, plan_.tile.columns);
        ranges_.CloseAll(product.batch);
        return branch;
      };
    RowSums sums(point_, plan_.product.rows, plan_.product.columns, /*tile_rows=*/0,
                 plan_.tile.columns);
    if (sums.any()) AddSums(sums, stores);
    const int64_t depth = DepthOf(plan_.shape.dtype), split = plan_.tile.split;
    // What gathers has one addend.
    const HopperAddend& of = plan_.shape.addends[0];
    const int64_t steps = DivideUp(DivideUp(of.k, depth), split) * split * depth;
    const codegen::MmaAddend& addend = plan_.product.addends[0];
    const ProductGathers gathers{
        Places(addend.rows, plan_.product.rows, of.a, plan_.tile.rows, steps),
        Places(addend.columns, plan_.product.columns, of.b, plan_.tile.columns, steps)};
    AddHopperProduct(b_, plan_.shape, plan_.tile, stores, gathers);
    return point_.Take();
  }

 private:
  // Whether it is made of loops and constants alone.
  static bool IsPlace(const UOp* index) {
    for (const UOp* node : PostOrder(index))
      if (node->op != Op::kRange && node->op != Op::kConst && node->op != Op::kVar &&
          !IsAlu(node->op))
        return false;
    return true;
  }

  // Loads at each sum's own place, of what the stores compute from it. What is stored over is read
  // at the same element, so loads of other sums may come before the store.
  std::vector<const UOp*> LoadsBeside(const std::vector<const UOp*>& direct) const {
    const RangeSet columns = Columns();
    std::vector<const UOp*> loads, stack;
    absl::flat_hash_set<const UOp*> seen;
    for (const UOp* store : direct) stack.push_back(store->src[1]);
    while (!stack.empty()) {
      const UOp* const node = stack.back();
      stack.pop_back();
      if (node == plan_.product.sum || node->op == Op::kReduceLoop || !seen.insert(node).second)
        continue;
      if (node->op == Op::kLoad && node->src.size() == 1 && (kernel_.DepsOf(node) & columns) != 0 &&
          IsPlace(node->src[0]->src[1]))
        loads.push_back(node);
      else
        stack.insert(stack.end(), node->src.begin(), node->src.end());
    }
    return loads;
  }

  // A warp's loads of one pair are 256 bytes of each buffer: it waits for memory unless several
  // pairs' are in flight. They take registers beside the sums.
  void LoadAhead(const std::vector<const UOp*>& direct, ProductStores& stores) {
    constexpr int64_t kPairsMost = 8, kFewColumns = 128, kRegisters = 24, kRegistersOfFew = 48;
    loads_ = LoadsBeside(direct);
    if (loads_.empty()) return;
    const int64_t registers = plan_.tile.columns <= kFewColumns ? kRegistersOfFew : kRegisters;
    stores.pairs_ahead =
        std::min(kPairsMost, registers / (2 * static_cast<int64_t>(loads_.size())));
    if (stores.pairs_ahead < 2) return loads_.clear();
    stores.ahead = [&](SumPlace place, ValueId first, ValueId second) {
      point_.LoadOnlyIf(place.inside);
      ForBoth(place, first, second, [&] {
        for (const UOp* load : loads_) loaded_.push_back(point_.Emit(load));
      });
      point_.LoadOnlyIf(-1);
    };
  }

  // What was loaded ahead is the value of its loads, for the next sum.
  void TakeLoaded() {
    if (loaded_.empty()) return;
    for (const UOp* load : loads_) {
      point_.Know(load, loaded_.front());
      loaded_.pop_front();
    }
  }

  void AddSums(RowSums& sums, ProductStores& stores) {
    stores.keep = [&](int64_t half, SumPlace place, ValueId first, ValueId second) {
      int64_t lane = 0;
      ForBoth(place, first, second, [&] {
        // What was just stored of this sum need not be computed again.
        if (last_.first == first)
          point_.Know(last_.value, b_.Add({.code = Code::kLane,
                                           .dtype = last_.value->dtype,
                                           .src = {last_.pair},
                                           .imm = {lane, 0, 0}}));
        sums.Keep(half, b_.Int(lane++), place.inside);
      });
    };
    stores.add = [&](ValueId thread, SumPlace place) {
      ranges_.OpenAll(plan_.product.batch, place.batch);
      sums.Store(thread, place.row, place.column);
      ranges_.CloseAll(plan_.product.batch);
    };
  }

  // Null for what has a view. `tile`: rows of a tile; `steps`: those of all stages.
  GatherPlaces Places(const codegen::MmaFactor& of, const codegen::MmaSide& side,
                      const HopperOperand& operand, int64_t tile, int64_t steps) {
    if (!operand.gathered()) return nullptr;
    // Nothing says of the last tiles of an order that is not whole that they are in the matrix.
    const int64_t down = DivideUp(plan_.shape.m, plan_.tile.rows);
    const bool cut = side.count % tile != 0 || down % std::min(plan_.tile.order, down) != 0;
    return [this, &of, &side, &operand, cut, steps](ValueId batch, ValueId row, ValueId k) {
      const codegen::MmaProduct& product = plan_.product;
      const codegen::MmaAddend& addend = product.addends[0];
      const auto below = [&](ValueId value, bool runs, int64_t count) {
        return b_.Less(runs ? b_.Plus(value, b_.Int(operand.run - 1)) : value, b_.Int(count));
      };
      GatheredPlace place;
      if (cut) place.inside = below(row, operand.along_rows, side.count);
      if (addend.steps != steps)
        place.inside = b_.And(place.inside, below(k, !operand.along_rows, addend.steps));
      point_.OpenScope();
      ranges_.OpenAll(product.batch, batch);
      ranges_.OpenAll(side.ranges, row);
      ranges_.OpenAll(addend.reduced, k);
      const UOp* const load = of.value;
      if (load->src.size() == 3)
        place.inside = b_.And(place.inside, point_.Gate(ConjunctsOf(load->src[1])));
      place.index = IndexOf(load, {&product.batch, &side.ranges}, addend.reduced);
      place.buffer = point_.BufferOf(load);
      for (const std::vector<int>* ranges : {&product.batch, &side.ranges, &addend.reduced})
        ranges_.CloseAll(*ranges);
      point_.CloseScope();
      return place;
    };
  }

  // The index of a load: where it is a sum of loops, those of rows first, which a thread computes
  // once for all steps, then those of steps, once for all of its rows.
  ValueId IndexOf(const UOp* load, std::initializer_list<const std::vector<int>*> rows,
                  const std::vector<int>& steps) {
    const UOp* const whole = load->src[0]->src[1];
    const codegen::Affine& index = forms_.Of(whole);
    for (const auto& [term, coefficient] : index.terms)
      if (term->op != Op::kRange) return point_.Emit(whole);
    const auto sum = [&](ValueId total, const std::vector<int>& ranges) {
      for (const int r : ranges)
        if (const auto stride = static_cast<int64_t>(index.CoefficientOf(kernel_.ranges[r].node)))
          total = b_.Plus(total, b_.Times(ranges_[r].value, stride));
      return total;
    };
    ValueId of_rows = b_.Int(static_cast<int64_t>(index.constant));
    for (const std::vector<int>* ranges : rows) of_rows = sum(of_rows, *ranges);
    return b_.Plus(of_rows, sum(b_.Int(0), steps));
  }

  // Calls `body` for each of the two sums, at its place.
  template <typename Body>
  void ForBoth(SumPlace place, ValueId first, ValueId second, const Body& body) {
    const codegen::MmaProduct& product = plan_.product;
    point_.OpenScope();
    ranges_.OpenAll(product.batch, place.batch);
    ranges_.OpenAll(product.rows.ranges, place.row);
    for (const ValueId sum : {first, second}) {
      if (sum < 0) continue;
      point_.OpenScope();
      ValueId column = place.column;
      if (sum == second)
        column = place.next_column >= 0 ? place.next_column : b_.Plus(column, b_.Int(1));
      ranges_.OpenAll(product.columns.ranges, column);
      point_.Provide(product.sum, sum);
      body();
      ranges_.CloseAll(product.columns.ranges);
      point_.CloseScope();
    }
    ranges_.CloseAll(product.rows.ranges);
    ranges_.CloseAll(product.batch);
    point_.CloseScope();
  }

  ValueId Values(const UOp* value, SumPlace place, ValueId first, ValueId second) {
    const auto [known, is_new] = in_pairs_.try_emplace(value);
    if (is_new) known->second = InPairs(value);
    const std::vector<const UOp*>& nodes = known->second;
    if (!nodes.empty()) {
      const ValueId pair = Pair(nodes, place, first, second);
      last_ = {value, first, pair};
      return pair;
    }
    Instruction lanes{.code = Code::kLanes, .dtype = value->dtype, .lanes = 2};
    ForBoth(place, first, second, [&] { lanes.src.push_back(point_.Emit(value)); });
    return b_.Add(std::move(lanes));
  }

  // The arithmetic of a value that differs from column to column, sources first. None, unless there
  // are sums or products of bf16 in it, of which an instruction has two.
  std::vector<const UOp*> InPairs(const UOp* value) const {
    const RangeSet columns = Columns();
    std::vector<const UOp*> nodes, stack = {value};
    bool pays = false;
    const auto is_arithmetic = [&](const UOp* node) {
      return node != plan_.product.sum && (IsAlu(node->op) || node->op == Op::kCast) &&
             (IsFloat(node->dtype) || IsBool(node->dtype)) &&
             (kernel_.DepsOf(node) & columns) != 0 && IsFloat(node->src.back()->dtype);
    };
    absl::flat_hash_set<const UOp*> done, opened;
    while (!stack.empty()) {
      const UOp* const node = stack.back();
      if (done.contains(node) || !is_arithmetic(node)) {
        stack.pop_back();
        continue;
      }
      if (opened.insert(node).second) {
        stack.insert(stack.end(), node->src.begin(), node->src.end());
        continue;
      }
      stack.pop_back();
      done.insert(node);
      nodes.push_back(node);
      pays |= node->dtype == DType::kBF16 && (node->op == Op::kAdd || node->op == Op::kMul);
    }
    if (!pays) nodes.clear();
    return nodes;
  }

  // The value of the last of `nodes`, in two lanes.
  ValueId Pair(const std::vector<const UOp*>& nodes, SumPlace place, ValueId first,
               ValueId second) {
    const absl::flat_hash_set<const UOp*> in_pairs(nodes.begin(), nodes.end());
    std::vector<const UOp*> scalars;
    absl::flat_hash_map<const UOp*, ValueId> pairs;
    for (const UOp* node : nodes)
      for (const UOp* source : node->src)
        if (!in_pairs.contains(source) && pairs.try_emplace(source, -1).second)
          scalars.push_back(source);
    std::vector<ValueId> values;
    ForBoth(place, first, second, [&] {
      for (const UOp* node : scalars) values.push_back(point_.Emit(node));
    });
    for (size_t i = 0; i < scalars.size(); ++i) {
      Instruction lanes{.code = Code::kLanes, .dtype = scalars[i]->dtype, .lanes = 2};
      lanes.src = {values[i], values[scalars.size() + i]};
      pairs[scalars[i]] =
          lanes.src[0] == lanes.src[1] ? b_.Splat(lanes.src[0], 2) : b_.Add(std::move(lanes));
    }
    for (const UOp* node : nodes) {
      if (node->op == Op::kCast) {
        pairs[node] = b_.Cast(pairs.at(node->src[0]), node->dtype);
        continue;
      }
      Instruction alu = PointLowering::AluOf(node);
      alu.lanes = 2;
      for (const UOp* source : node->src) alu.src.push_back(pairs.at(source));
      pairs[node] = b_.Add(std::move(alu));
    }
    return pairs.at(nodes.back());
  }

  RangeSet Columns() const {
    RangeSet columns = 0;
    for (const int r : plan_.product.columns.ranges) columns |= RangeSet{1} << r;
    return columns;
  }

  PointLowering point_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const LoopNest& kernel_;
  const HopperPlan& plan_;
  codegen::AffineForms forms_;
  std::vector<const UOp*> loads_;  // that are emitted ahead, for each sum
  std::deque<ValueId> loaded_;     // their values for the next sums, in order
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> in_pairs_;  // InPairs
  struct LastPair {
    const UOp* value = nullptr;
    ValueId first = -1, pair = -1;  // the sum of its first lane
  };
  LastPair last_;
};

Program LowerHopper(const LoopNest& kernel, const HopperPlan& plan) {
  return HopperLowering(kernel, plan).Run();
}

}  // namespace outboard::program
