#include "compiler/program/online/groups.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/program/hopper/results.h"

namespace outboard::program {
namespace {

// For addresses, counters, barriers, rows' numbers and what an element's expression keeps.
constexpr int64_t kOtherRegisters = 56;

absl::Status NoneOf(const auto&... what) {
  return absl::UnimplementedError(absl::StrCat("ONLINE by warpgroups: ", what...));
}

int64_t RegistersOf(const OnlinePlan& plan, const OnlineTile& tile) {
  int64_t sums = 0;
  for (const OnlineProduct& product : plan.products)
    sums += plan.matrices[product.matrix].width / 2 / tile.parts;
  size_t scores = 0;
  for (const OnlinePass& pass : plan.passes) scores = std::max(scores, pass.scores.size());
  // What several passes keep for wide rows: found with ptxas, for heads of 256.
  int64_t of_rows = 0;
  for (const OnlineMatrix& matrix : plan.matrices)
    if (plan.passes.size() > 1) of_rows = std::max(of_rows, matrix.width / 8 - 16);
  // Scores, and the values of 16 bits that are made of them.
  return sums + static_cast<int64_t>(scores) * tile.steps / 2 + tile.steps / 4 + of_rows +
         kOtherRegisters;
}

// One warpgroup that multiplies beside one that copies divides nothing.
int64_t RegistersMaxOf(const OnlineTile& tile) {
  return tile.threads() > 2 * kWarpgroupThreads ? kOnlineConsumerRegisters : 255;
}

}  // namespace

absl::StatusOr<MappedTensor> OnlineViewOf(const OnlinePlan& plan, const OnlineMatrix& matrix) {
  if (matrix.load == nullptr) return NoneOf("a matrix is unpacked");
  if (matrix.load->src.size() != 1) return NoneOf("a matrix has a gate");
  if (matrix.other.size() != 1 || (matrix.of_rows && plan.rows.size() != 1))
    return NoneOf("rows or columns of a matrix are several ranges");
  constexpr size_t kOwnRank = 2;
  if (plan.batch.size() + kOwnRank > MappedTensor::kRankMax)
    return NoneOf(plan.batch.size(), " ranges of the batch; a view has room for two");
  codegen::AffineForms forms;
  const codegen::Affine& index = forms.Of(matrix.load->src[0]->src[1]);
  const auto stride = [&](int range) {
    return static_cast<int64_t>(index.CoefficientOf(plan.kernel.ranges[range].node));
  };
  const int column = matrix.other[0], row = matrix.of_rows ? plan.rows[0] : plan.range;
  if (stride(column) != 1) return NoneOf("columns of a matrix are apart");
  const int64_t slot = GlobalOfAccess(matrix.load).slot(), width = ByteWidth(plan.dtype);
  MappedTensor view{.slot = static_cast<int32_t>(slot),
                    .element = ElementOf(plan.dtype),
                    .swizzled = true,
                    .dims = {matrix.width, plan.kernel.ranges[row].extent},
                    .strides = {stride(row) * width}};
  size_t known = 2;
  for (size_t i = plan.batch.size(); i-- > 0; ++known) {
    view.dims.push_back(plan.kernel.ranges[plan.batch[i]].extent);
    view.strides.push_back(stride(plan.batch[i]) * width);
  }
  if (index.constant != 0 || known != index.terms.size())
    return NoneOf("a matrix' index is no sum of its loops");
  for (const int64_t bytes : view.strides)
    if (bytes <= 0 || bytes % MappedTensor::kStrideAlign != 0)
      return NoneOf("rows of a matrix are ", bytes, " bytes apart, no multiple of ",
                    MappedTensor::kStrideAlign);
  if (view.span_bytes() > plan.kernel.slot_elements[static_cast<size_t>(slot)] * width)
    return NoneOf("a matrix is read beyond its buffer");
  return view;
}

absl::Status CheckOnlineGroups(const OnlinePlan& plan, const OnlineTile& tile,
                               const Target& target) {
  if (target.kind != TargetKind::kCuda || target.arch != "sm_90a")
    return NoneOf("the target is no sm_90a");
  if ((tile.warps != 4 && tile.warps != 8) || tile.fragments != 1)
    return absl::InvalidArgumentError("ONLINE by warpgroups: a block has 4 or 8 warps of 16 rows");
  if (tile.steps != 32 && tile.steps != 64 && tile.steps != 128)
    return absl::InvalidArgumentError("ONLINE by warpgroups: 32, 64 or 128 steps");
  if (tile.stages != 2 && tile.stages != 4)
    return absl::InvalidArgumentError("ONLINE by warpgroups: 2 or 4 stages");
  if (ByteWidth(plan.dtype) != 2) return NoneOf("matrices of f32");
  if (tile.parts > 1 && plan.column_count % (kOnlineBoxColumns * tile.parts) != 0)
    return NoneOf("parts of ", plan.column_count, " columns are no multiple of ",
                  kOnlineBoxColumns);
  int64_t bytes = 2 * kSwizzleAlign;  // barriers, and the guards of masks
  for (const OnlineMatrix& matrix : plan.matrices) {
    if (matrix.width % kOnlineBoxColumns != 0)
      return NoneOf("matrices of ", matrix.width, " columns, no multiple of ", kOnlineBoxColumns);
    bytes += matrix.width * (matrix.of_rows ? tile.rows() : tile.stages * tile.steps) *
             ByteWidth(plan.dtype);
    if (const auto view = OnlineViewOf(plan, matrix); !view.ok()) return view.status();
  }
  if (bytes > target.block_bytes_max())
    return absl::ResourceExhaustedError(absl::StrCat("ONLINE by warpgroups: ", bytes,
                                                     " bytes of shared memory; a block has ",
                                                     target.block_bytes_max()));
  if (const int64_t registers = RegistersOf(plan, tile); registers > RegistersMaxOf(tile))
    return absl::ResourceExhaustedError(absl::StrCat("ONLINE by warpgroups: about ", registers,
                                                     " registers of a thread; it has ",
                                                     RegistersMaxOf(tile)));
  return absl::OkStatus();
}

}  // namespace outboard::program
