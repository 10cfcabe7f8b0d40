#include "compiler/program/hopper/plan.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/program/hopper/ring.h"
#include "compiler/proof/in_range.h"

namespace outboard::program {
namespace {

using codegen::LoopNest;
using codegen::MmaAddend;
using codegen::MmaFactor;
using codegen::MmaPlan;
using codegen::MmaProduct;
using codegen::MmaSide;

absl::Status NoViewOf(const auto&... what) {
  return absl::UnimplementedError(absl::StrCat("product by warpgroups: ", what...));
}

// The stride of `ranges` as one index of which the last one varies fastest; 0 where it has none.
int64_t StrideOf(const LoopNest& kernel, const codegen::Affine& index,
                 const std::vector<int>& ranges) {
  const auto stride = [&](int range) {
    return static_cast<int64_t>(index.CoefficientOf(kernel.ranges[range].node));
  };
  int64_t all = 0, below = 1;
  for (size_t i = ranges.size(); i-- > 0;) {
    const int64_t extent = kernel.ranges[ranges[i]].extent;
    if (extent == 1) continue;
    if (below == 1) all = stride(ranges[i]);
    if (stride(ranges[i]) != all * below) return 0;
    below *= extent;
  }
  return below == 1 ? stride(ranges.back()) : all;
}

// How many terms of the index are one of these ranges, its quotient or its remainder.
size_t TermsOf(const LoopNest& kernel, const codegen::Affine& index,
               std::initializer_list<const std::vector<int>*> ranges) {
  size_t terms = 0;
  for (const std::vector<int>* some : ranges)
    for (const int range : *some) {
      const UOp* const node = kernel.ranges[range].node;
      const codegen::PeriodicMoves periodic = codegen::PeriodicMovesOf(index, node);
      terms += index.CoefficientOf(node) != 0;
      terms += periodic.of_quotients != 0;
      terms += periodic.of_remainders != 0;
    }
  return terms;
}

struct ViewDim {
  int64_t extent = 1, stride = 0;
};

// The dimensions of `ranges` as one index of which the last one varies fastest, the inner one
// first: as few as there can be.
std::vector<ViewDim> DimsOf(const LoopNest& kernel, const codegen::Affine& index,
                            const std::vector<int>& ranges) {
  std::vector<ViewDim> dims;
  const auto add = [&](int64_t extent, uint64_t stride) {
    const auto by = static_cast<int64_t>(stride);
    if (extent == 1) return;
    if (!dims.empty() && by == dims.back().stride * dims.back().extent)
      dims.back().extent *= extent;
    else
      dims.push_back({extent, by});
  };
  for (size_t i = ranges.size(); i-- > 0;) {
    const codegen::Range& range = kernel.ranges[ranges[i]];
    const codegen::PeriodicMoves periodic = codegen::PeriodicMovesOf(index, range.node);
    if (periodic.divisor == 0) {
      add(range.extent, index.CoefficientOf(range.node));
    } else {
      add(periodic.divisor, periodic.of_remainders);
      add(range.extent / periodic.divisor, periodic.of_quotients);
    }
  }
  if (dims.empty())
    dims.push_back(
        {1, static_cast<int64_t>(index.CoefficientOf(kernel.ranges[ranges.back()].node))});
  return dims;
}

bool AnyEndsEarly(const LoopNest& kernel,
                  std::initializer_list<const std::vector<int>*> ranges) {
  for (const std::vector<int>* some : ranges)
    for (const int range : *some)
      if (kernel.ranges[range].end() != nullptr) return true;
  return false;
}
class ShapeFinder {
 public:
  ShapeFinder(const LoopNest& kernel, const MmaProduct& product)
      : kernel_(kernel), product_(product) {}

  absl::StatusOr<HopperShape> Find() {
    // Beyond such an end there would have to be zeros.
    for (const MmaAddend& addend : product_.addends)
      if (AnyEndsEarly(kernel_, {&addend.reduced})) return NoViewOf("the sum ends early");
    if (product_.batch.size() + MmaRanks() > MappedTensor::kRankMax)
      return NoViewOf(product_.batch.size(), " ranges of the batch; a view has room for two");
    HopperShape shape{.dtype = product_.dtype,
                      .columns_dtype = product_.columns_dtype,
                      .three_tf32 = product_.parts == codegen::MmaParts::kThree,
                      .m = product_.rows.count,
                      .n = product_.columns.count};
    // Two neighbouring columns are kept together, at the nearest place within C.
    if (product_.adds_rows && shape.n % 2 != 0)
      return NoViewOf("sums of rows of ", shape.n, " columns, an odd number");
    for (const int r : product_.batch) shape.batch.push_back(kernel_.ranges[r].extent);
    for (const MmaAddend& addend : product_.addends) {
      HopperAddend& of = shape.addends.emplace_back();
      of.k = addend.steps;
      OB_ASSIGN_OR_RETURN(of.a, OperandOf(addend, addend.rows, product_.rows));
      OB_ASSIGN_OR_RETURN(of.b, OperandOf(addend, addend.columns, product_.columns));
    }
    return shape;
  }

 private:
  static constexpr int64_t kRowsTogether = 128;     // of most tiles
  static constexpr size_t MmaRanks() { return 2; }  // steps, and rows or columns

  absl::StatusOr<HopperOperand> OperandOf(const MmaAddend& addend, const MmaFactor& of,
                                          const MmaSide& side) {
    absl::StatusOr<HopperOperand> view = ViewOf(addend, of, side);
    constexpr int kGatheredBytes = 2;
    if (view.ok() || !of.copied || ByteWidth(product_.dtype) != kGatheredBytes) return view;
    if (product_.addends.size() > 1)
      return NoViewOf("one of several products has an operand to be gathered: ",
                      std::string(view.status().message()));
    const codegen::Affine& index = forms_.Of(of.value->src[0]->src[1]);
    const auto stride = [&](int range) { return index.CoefficientOf(kernel_.ranges[range].node); };
    return HopperOperand{.elements = kernel_.slot_elements[GlobalOfAccess(of.value).slot()],
                         .along_rows = of.across,
                         .run = of.run,
                         .rows_in_lanes = !of.across && stride(addend.reduced.back()) != 1 &&
                                          stride(side.ranges.back()) == 1};
  }

  absl::StatusOr<HopperOperand> ViewOf(const MmaAddend& addend, const MmaFactor& of,
                                       const MmaSide& side) {
    const UOp* const load = of.value;
    if (load->op != Op::kLoad || load->src.size() != 1)
      return NoViewOf("an operand is computed or has a gate");
    const codegen::Affine& index = forms_.Of(load->src[0]->src[1]);
    const auto stride = [&](int range) {
      return static_cast<int64_t>(index.CoefficientOf(kernel_.ranges[range].node));
    };
    const int64_t width = ByteWidth(product_.dtype);
    const std::vector<ViewDim> steps = DimsOf(kernel_, index, addend.reduced),
                               rows = DimsOf(kernel_, index, side.ranges);
    if (index.constant != 0 ||
        TermsOf(kernel_, index, {&addend.reduced, &side.ranges, &product_.batch}) !=
            index.terms.size())
      return NoViewOf("an operand's index is no sum of its loops");
    HopperOperand operand;
    operand.along_rows = rows[0].stride == 1 && steps[0].stride != 1;
    if (operand.along_rows && !MayLieAlongRows(product_.dtype))
      return NoViewOf("an operand of ", width,
                      " bytes is stored by columns, which the unit does not read, and nothing "
                      "transposes it");
    if (rows[0].stride != 1 && steps[0].stride != 1)
      return NoViewOf("an operand has no contiguous range");
    if (steps.size() > 2 || rows.size() > 2)
      return NoViewOf("an operand's steps or rows lie in ", std::max(steps.size(), rows.size()),
                      " dimensions; a view has room for two");
    const int64_t slot = GlobalOfAccess(load).slot();
    operand.elements = kernel_.slot_elements[slot];
    MappedTensor& view = operand.view;
    view.slot = static_cast<int32_t>(slot);
    view.element = ElementOf(product_.dtype);
    view.dims = {steps[0].extent, rows[0].extent};
    if (operand.along_rows) std::swap(view.dims[0], view.dims[1]);
    view.strides = {(operand.along_rows ? steps : rows)[0].stride * width};
    const auto add = [&](int64_t extent, int64_t apart) {
      view.dims.push_back(extent);
      view.strides.push_back(apart * width);
    };
    if (steps.size() > 1) {
      if (steps[0].extent % DepthOf(product_.dtype) != 0)
        return NoViewOf(steps[0].extent, " steps lie together, no multiple of a stage's");
      operand.inner_k = steps[0].extent;
      add(steps[1].extent, steps[1].stride);
    }
    if (rows.size() > 1) {
      if (rows[0].extent % kRowsTogether != 0)
        return NoViewOf(rows[0].extent, " rows lie together, no multiple of ", kRowsTogether);
      operand.inner_rows = rows[0].extent;
      add(rows[1].extent, rows[1].stride);
    }
    for (size_t i = product_.batch.size(); i-- > 0;)
      add(kernel_.ranges[product_.batch[i]].extent, stride(product_.batch[i]));
    for (const int64_t bytes : view.strides)
      if (bytes <= 0 || bytes % MappedTensor::kStrideAlign != 0)
        return NoViewOf("rows of an operand are ", bytes, " bytes apart");
    if (view.rank() > MappedTensor::kRankMax)
      return NoViewOf("an operand lies in ", view.rank(), " dimensions");
    if (view.span_bytes() > operand.elements * width)
      return NoViewOf("an operand is read beyond its buffer");
    return operand;
  }

  const LoopNest& kernel_;
  const MmaProduct& product_;
  codegen::AffineForms forms_;
};

// Of a store: where it is a view that boxes can be written to.
class ResultFinder {
 public:
  ResultFinder(const LoopNest& kernel, const MmaProduct& product)
      : kernel_(kernel), product_(product) {}

  absl::StatusOr<HopperResult> Find(const UOp* store) {
    if (store->src.size() != 2) return NoViewOf("a store has a gate");
    if (SumsPoints(store)) return NoViewOf("a store is of sums");
    const int64_t slot = GlobalOfAccess(store->src[0]).slot();
    for (const UOp* node : kernel_.nodes)
      if (node->op == Op::kLoad && GlobalOfAccess(node).slot() == slot)
        return NoViewOf("a result is read, too");
    // Other stores of the tile are done by then, over what this one's value would read.
    for (const UOp* node : PostOrder(store->src[1]))
      if (node->op == Op::kLoad && IsStored(GlobalOfAccess(node).slot()))
        return NoViewOf("a result's value is computed from what another store is over");
    HopperResult result{.dtype = store->src[1]->dtype, .elements = kernel_.slot_elements[slot]};
    if (result.dtype != DType::kF32 && !IsFloatOf16(result.dtype))
      return NoViewOf("results of ", std::string(Name(result.dtype)));
    const codegen::Affine& index = forms_.Of(store->src[0]->src[1]);
    const auto stride = [&](int range) {
      return static_cast<int64_t>(index.CoefficientOf(kernel_.ranges[range].node));
    };
    const std::vector<int>&rows = product_.rows.ranges, &columns = product_.columns.ranges;
    if (StrideOf(kernel_, index, columns) != 1 || index.constant != 0 ||
        index.terms.size() != TermsOf(kernel_, index, {&rows, &columns, &product_.batch}) ||
        index.terms.size() != rows.size() + columns.size() + product_.batch.size())
      return NoViewOf("a result's index is no sum of its loops, or its columns are apart");
    const int64_t width = ByteWidth(result.dtype);
    MappedTensor& view = result.view;
    view.slot = static_cast<int32_t>(slot);
    view.element = ElementOf(result.dtype);
    view.dims = {product_.columns.count, product_.rows.count};
    view.strides = {StrideOf(kernel_, index, rows) * width};
    for (size_t i = product_.batch.size(); i-- > 0;) {
      view.dims.push_back(kernel_.ranges[product_.batch[i]].extent);
      view.strides.push_back(stride(product_.batch[i]) * width);
    }
    for (const int64_t bytes : view.strides)
      if (bytes <= 0 || bytes % MappedTensor::kStrideAlign != 0)
        return NoViewOf("rows of a result are ", bytes, " bytes apart");
    if (view.span_bytes() > result.elements * width)
      return NoViewOf("a result is written beyond its buffer");
    return result;
  }

 private:
  bool IsStored(int64_t slot) const {
    return std::any_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const UOp* store) {
      return GlobalOfAccess(store->src[0]).slot() == slot;
    });
  }

  const LoopNest& kernel_;
  const MmaProduct& product_;
  codegen::AffineForms forms_;
};

// What a product by warpgroups takes, in MMA's 128 x 128 tiles as 1 for each step of k. Estimated
// from how many bytes of shared memory a tile reads for one product; not measured.
struct HopperCandidate {
  int64_t columns;
  double speed;
};
constexpr HopperCandidate kCandidates[] = {{256, 1.9}, {192, 1.83}, {128, 1.7}, {64, 1.2}};
constexpr int64_t kStepBytesMin = 256;  // two stages: below, the ring never fills
// What a block takes before its first product and after its last one, and for joining parts, in
// bytes of k. Estimated: some microseconds.
constexpr int64_t kFillBytes = 512, kJoinBytes = 768;
// Of an operand that is gathered: how much of the speed is left. Estimated from the instructions of
// those who gather beside the time of the unit; not measured.
constexpr double kGatherSpeed = 0.8, kElementSpeed = 0.5;
// Half of B is read from the second cache once instead of twice.
constexpr double kClusterGain = 1.03;

struct Choice {
  HopperTile tile;
  double time = 0;
};

class TileChooser {
 public:
  // `alone`: a block has one tile and copies for itself.
  TileChooser(const HopperShape& shape, const Target& target, bool alone)
      : shape_(shape),
        plain_(shape),
        alone_(alone),
        multiprocessors_(std::max<int64_t>(1, target.multiprocessors)) {
    plain_.results.clear();
  }

  std::optional<Choice> Best(double below) {
    std::optional<Choice> best;
    for (const HopperCandidate& candidate : kCandidates)
      for (const int64_t split : {1, 2, 4})
        for (const int64_t cluster : {2, 1})
          for (const int64_t stages : {4, 2}) {
            HopperTile tile{
                .columns = candidate.columns, .stages = stages, .cluster = cluster, .split = split};
            if (!Fits(tile) || (alone_ && cluster > 1)) continue;
            const double time = TimeOf(tile, candidate.speed);
            if (time < (best ? best->time : below)) best = {{tile, time}};
            break;  // more stages are better
          }
    if (best && !alone_ && best->tile.split == 1 && TilesOf(best->tile) > multiprocessors_)
      best->tile.persistent_blocks = multiprocessors_;
    return best;
  }

  int64_t Waves(int64_t blocks, int64_t cluster = 1) const {
    const int64_t at_once = BlocksAtOnce(multiprocessors_, cluster);
    return (blocks + at_once - 1) / at_once;
  }

 private:
  int64_t TilesOf(const HopperTile& tile) const {
    return shape_.batches() * ((shape_.m + tile.rows - 1) / tile.rows) *
           ((shape_.n + tile.columns - 1) / tile.columns);
  }

  bool Fits(const HopperTile& tile) const {
    // Without boxes there is more room, and parts may be narrower.
    if (!CheckHopperShape(shape_, tile).ok() && !CheckHopperShape(plain_, tile).ok()) return false;
    // Parts are for what leaves multiprocessors idle, clusters for what does not.
    if (tile.split > 1) return TilesOf(tile) * tile.split <= multiprocessors_;
    return tile.cluster == 1 || TilesOf(tile) >= multiprocessors_;
  }

  double TimeOf(const HopperTile& tile, double speed) const {
    const int64_t blocks = TilesOf(tile) * tile.split;
    const int64_t more = kFillBytes + (tile.split > 1 ? kJoinBytes : 0);
    const int64_t steps = shape_.steps() / tile.split + more / ByteWidth(shape_.dtype);
    return static_cast<double>(Waves(blocks, tile.cluster) * steps * tile.rows *
                               tile.columns) /
           (speed * (tile.cluster > 1 ? kClusterGain : 1) * SpeedOfGathers());
  }

  double SpeedOfGathers() const {
    double speed = 1;
    for (const HopperOperand* operand : {&shape_.addends[0].a, &shape_.addends[0].b})
      if (operand->gathered())
        speed = std::min(speed, operand->run == 1 ? kElementSpeed : kGatherSpeed);
    return speed;
  }

  const HopperShape& shape_;
  HopperShape plain_;
  const bool alone_;
  const int64_t multiprocessors_;
};

constexpr int64_t kDigits[] = {1000, 10, 10, 10, 10, 100};

}  // namespace

bool OutputsEndEarly(const LoopNest& kernel, const MmaProduct& product) {
  return AnyEndsEarly(kernel, {&product.batch, &product.rows.ranges, &product.columns.ranges});
}

absl::StatusOr<HopperShape> HopperShapeOf(const LoopNest& kernel, const MmaProduct& product) {
  return ShapeFinder(kernel, product).Find();
}

int64_t WgmmaAmount(const HopperTile& tile) {
  int64_t amount = 0;
  const int64_t numbers[] = {
      tile.columns, tile.stages, tile.cluster, tile.split, tile.persistent_blocks > 0 ? 1 : 0,
      tile.order};
  for (size_t i = 0; i < std::size(numbers); ++i) amount = amount * kDigits[i] + numbers[i];
  return amount;
}

HopperTile WgmmaTileOf(int64_t amount, const Target& target) {
  HopperTile tile;
  int64_t persists = 0;
  int64_t* const numbers[] = {&tile.columns, &tile.stages, &tile.cluster,
                              &tile.split,   &persists,    &tile.order};
  for (size_t i = std::size(numbers); i-- > 0;) {
    *numbers[i] = i == 0 ? amount : amount % kDigits[i];
    amount /= kDigits[i];
  }
  if (persists == 1) tile.persistent_blocks = std::max<int64_t>(1, target.multiprocessors);
  return tile;
}

std::vector<BoxedStore> BoxedStoresOf(const LoopNest& kernel, const MmaProduct& product) {
  std::vector<BoxedStore> found;
  for (const UOp* store : kernel.stores) {
    constexpr size_t kResultsMax = 2;
    if (found.size() == kResultsMax) break;
    absl::StatusOr<HopperResult> result = ResultFinder(kernel, product).Find(store);
    // One type, one pair of boxes.
    if (result.ok() && (found.empty() || found[0].result.dtype == result->dtype))
      found.push_back({store, *std::move(result)});
  }
  return found;
}

absl::StatusOr<HopperPlan> MakeHopperPlan(const LoopNest& kernel, const MmaProduct& product,
                                          const HopperTile& tile) {
  HopperPlan plan{.product = product, .tile = tile};
  if (OutputsEndEarly(kernel, product) && (tile.cluster > 1 || tile.persistent_blocks > 0))
    return NoViewOf("a loop ends early: no clusters that share copies, no persistent blocks");
  OB_ASSIGN_OR_RETURN(plan.shape, HopperShapeOf(kernel, product));
  plan.boxed = BoxedStoresOf(kernel, product);
  for (const BoxedStore& boxed : plan.boxed) plan.shape.results.push_back(boxed.result);
  absl::Status status = CheckHopperShape(plan.shape, tile);
  if (!status.ok() && !plan.boxed.empty()) {  // a tile that has no room for boxes
    plan.boxed.clear();
    plan.shape.results.clear();
    status = CheckHopperShape(plan.shape, tile);
  }
  if (!status.ok()) return status;
  return plan;
}

absl::StatusOr<std::optional<HopperPlan>> PlanHopper(const LoopNest& kernel, const Target& target,
                                                     const std::vector<codegen::Opt>* opts,
                                                     const std::optional<MmaPlan>& mma,
                                                     Gathers gathers) {
  const bool asked =
      opts != nullptr && opts->size() == 1 && (*opts)[0].kind == codegen::OptKind::kWgmma;
  const bool able = target.kind == TargetKind::kCuda && target.arch == "sm_90a";
  if (asked) {
    if (!able) return NoViewOf("the target is no sm_90a");
    absl::StatusOr<MmaProduct> product = codegen::FindMmaProduct(kernel);
    if (!product.ok()) return product.status();
    if (!codegen::IsSummedOver(kernel, (*opts)[0].axis))
      return absl::InvalidArgumentError("WGMMA: the axis is not the one that is summed over");
    OB_ASSIGN_OR_RETURN(HopperPlan plan,
                        MakeHopperPlan(kernel, *product, WgmmaTileOf((*opts)[0].amount, target)));
    return plan;
  }
  if (opts != nullptr || !able || !mma) return std::nullopt;
  const int64_t width = ByteWidth(mma->product.dtype);
  if (mma->product.steps * width < kStepBytesMin) return std::nullopt;
  absl::StatusOr<HopperShape> shape = HopperShapeOf(kernel, mma->product);
  if (!shape.ok()) return std::nullopt;
  const std::vector<BoxedStore> boxed = BoxedStoresOf(kernel, mma->product);
  for (const BoxedStore& store : boxed) shape->results.push_back(store.result);
  TileChooser chooser(*shape, target, OutputsEndEarly(kernel, mma->product));
  const auto area = static_cast<double>(mma->tile.rows * mma->tile.columns);
  constexpr double kLargeTile = 128 * 128;
  const double speed = std::min(1.0, std::sqrt(area / kLargeTile));
  const auto tiles = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t waves = chooser.Waves(shape->batches() * tiles(shape->m, mma->tile.rows) *
                                      tiles(shape->n, mma->tile.columns));
  const double by_mma =
      static_cast<double>(waves * (shape->steps() + kFillBytes / width)) * area / speed;
  const bool any = gathers == Gathers::kAnyway && shape->gathers();
  const std::optional<Choice> best =
      chooser.Best(any ? std::numeric_limits<double>::infinity() : by_mma);
  if (!best) return std::nullopt;
  OB_ASSIGN_OR_RETURN(HopperPlan plan, MakeHopperPlan(kernel, mma->product, best->tile));
  return plan;
}

bool ComputesRowSums(const UOp* kernel, const Target& target) {
  if (codegen::MatrixUnitOf(target) != MatrixUnit::kMma) return false;
  Graph guards;
  const absl::StatusOr<const UOp*> guarded = proof::GuardUnproved(guards, kernel);
  if (!guarded.ok()) return false;
  const absl::StatusOr<LoopNest> nest = codegen::AnalyzeKernel(*guarded);
  if (!nest.ok()) return false;
  const absl::StatusOr<std::optional<MmaPlan>> plan = PlanMma(*nest, target, nullptr);
  if (!plan.ok() || !plan->has_value()) return false;
  MmaProduct product = (*plan)->product;
  if (product.columns.count % 2 != 0) return false;
  const absl::StatusOr<std::optional<HopperPlan>> hopper =
      PlanHopper(*nest, target, nullptr, *plan);
  if (hopper.ok() && hopper->has_value()) return true;
  product.adds_rows = false;
  // What a still larger tile reads less is less than the whole result, which is not read once more.
  constexpr int64_t kLargeTile = 128 * 128;
  const codegen::MmaTile& tile = (*plan)->tile;
  return tile.rows * tile.columns >= kLargeTile ||
         codegen::ChooseMmaTile(product, target) == tile;
}

}  // namespace outboard::program
