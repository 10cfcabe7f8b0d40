#include "compiler/program/hopper/plan.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"

namespace outboard::program {
namespace {

using codegen::LoopNest;
using codegen::MmaPlan;
using codegen::MmaProduct;
using codegen::MmaSide;

absl::Status NoViewOf(const auto&... what) {
  return absl::UnimplementedError(absl::StrCat("product by warpgroups: ", what...));
}

class ShapeFinder {
 public:
  ShapeFinder(const LoopNest& kernel, const MmaProduct& product)
      : kernel_(kernel), product_(product) {}

  absl::StatusOr<HopperShape> Find() {
    for (const std::vector<int>* ranges :
         {&product_.batch, &product_.reduced, &product_.rows.ranges, &product_.columns.ranges})
      for (const int r : *ranges)
        if (kernel_.ranges[r].end() != nullptr) return NoViewOf("a loop ends early");
    if (product_.reduced.size() != 1)
      return NoViewOf(product_.reduced.size(), " reduced ranges; a view has one");
    if (product_.batch.size() + MmaRanks() > MappedTensor::kRankMax)
      return NoViewOf(product_.batch.size(), " ranges of the batch; a view has room for two");
    HopperShape shape{.dtype = product_.dtype,
                      .m = product_.rows.count,
                      .n = product_.columns.count,
                      .k = product_.steps};
    for (const int r : product_.batch) shape.batch.push_back(kernel_.ranges[r].extent);
    OB_ASSIGN_OR_RETURN(shape.a, OperandOf(product_.rows));
    OB_ASSIGN_OR_RETURN(shape.b, OperandOf(product_.columns));
    return shape;
  }

 private:
  static constexpr size_t MmaRanks() { return 2; }  // steps, and rows or columns

  absl::StatusOr<HopperOperand> OperandOf(const MmaSide& side) {
    const UOp* const load = side.value;
    if (load->op != Op::kLoad || load->src.size() != 1)
      return NoViewOf("an operand is computed or has a gate");
    if (side.ranges.size() != 1)
      return NoViewOf(side.ranges.size(), " ranges of rows or columns; a view has one");
    const codegen::Affine& index = forms_.Of(load->src[0]->src[1]);
    const auto stride = [&](int range) {
      return static_cast<int64_t>(index.CoefficientOf(kernel_.ranges[range].node));
    };
    const int64_t width = ByteWidth(product_.dtype);
    const int step = product_.reduced[0], row = side.ranges[0];
    size_t known = 0;
    for (const int range : {step, row}) known += stride(range) != 0;
    for (const int range : product_.batch) known += stride(range) != 0;
    if (index.constant != 0 || known != index.terms.size())
      return NoViewOf("an operand's index is no sum of its loops");
    HopperOperand operand;
    operand.along_rows = stride(row) == 1 && stride(step) != 1;
    const int inner = operand.along_rows ? row : step, outer = operand.along_rows ? step : row;
    if (stride(inner) != 1) return NoViewOf("an operand has no contiguous range");
    const int64_t slot = GlobalOfAccess(load).slot();
    operand.elements = kernel_.slot_elements[slot];
    MappedTensor& view = operand.view;
    view.slot = static_cast<int32_t>(slot);
    view.element =
        product_.dtype == DType::kBF16 ? MappedTensor::Element::kBF16 : MappedTensor::Element::kF16;
    view.dims = {kernel_.ranges[inner].extent, kernel_.ranges[outer].extent};
    view.strides = {stride(outer) * width};
    for (size_t i = product_.batch.size(); i-- > 0;) {
      view.dims.push_back(kernel_.ranges[product_.batch[i]].extent);
      view.strides.push_back(stride(product_.batch[i]) * width);
    }
    for (const int64_t bytes : view.strides)
      if (bytes <= 0 || bytes % MappedTensor::kStrideAlign != 0)
        return NoViewOf("rows of an operand are ", bytes, " bytes apart");
    if (view.span_bytes() > operand.elements * width)
      return NoViewOf("an operand is read beyond its buffer");
    return operand;
  }

  const LoopNest& kernel_;
  const MmaProduct& product_;
  codegen::AffineForms forms_;
};

// Parts of a matrix unit's speed, by MMA's 128 x 128 tiles as 1. Estimated from how many bytes of
// shared memory a tile reads for one product; not measured.
struct HopperCandidate {
  int64_t columns;
  double speed;
};
constexpr HopperCandidate kCandidates[] = {{256, 1.9}, {128, 1.7}, {64, 1.2}};
constexpr int64_t kStepsMin = 128;  // two stages: below, the ring never fills

double Waves(int64_t batches, int64_t m, int64_t n, int64_t rows, int64_t columns,
             const Target& target) {
  const int64_t tiles = batches * ((m + rows - 1) / rows) * ((n + columns - 1) / columns);
  return std::ceil(static_cast<double>(tiles) / std::max(1, target.threads));
}

}  // namespace

absl::StatusOr<HopperShape> HopperShapeOf(const LoopNest& kernel, const MmaProduct& product) {
  return ShapeFinder(kernel, product).Find();
}

std::optional<HopperPlan> PlanHopper(const LoopNest& kernel, const Target& target,
                                     const MmaPlan& instead) {
  if (target.kind != TargetKind::kCuda || target.arch != "sm_90a") return std::nullopt;
  if (instead.product.steps < kStepsMin) return std::nullopt;
  absl::StatusOr<HopperShape> shape = HopperShapeOf(kernel, instead.product);
  if (!shape.ok()) return std::nullopt;
  const auto area = static_cast<double>(instead.tile.rows * instead.tile.columns);
  constexpr double kLargeTile = 128 * 128;
  const double speed = std::min(1.0, std::sqrt(area / kLargeTile));
  double least =
      Waves(shape->batches(), shape->m, shape->n, instead.tile.rows, instead.tile.columns, target) *
      area / speed;
  std::optional<HopperPlan> best;
  for (const HopperCandidate& candidate : kCandidates) {
    HopperTile tile{.columns = candidate.columns};
    if (!CheckHopperShape(*shape, tile).ok()) continue;
    const double waves =
        Waves(shape->batches(), shape->m, shape->n, tile.rows, tile.columns, target);
    const double time = waves * static_cast<double>(tile.rows * tile.columns) / candidate.speed;
    if (time >= least) continue;
    if (waves > 1) tile.persistent_blocks = std::max(1, target.threads);
    least = time;
    best = {instead.product, *shape, tile};
  }
  return best;
}

}  // namespace outboard::program
