#include <bit>
#include <cmath>

#include "compiler/ir/accessors.h"
#include "compiler/kernel/access_profile.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/loop_order.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/optimize/vectors/vector_chooser.h"

namespace outboard::codegen {
namespace {

// An operand whose lanes are neighbours and that stays in the second cache is read from where it
// is. Of one that is copied, as much at once as stays there (copy_bytes_max_), half of it where
// tiles are not larger.
constexpr double kCopyReuseLeast = 64;           // reads of each element
constexpr double kCopyRowBytesLeast = 512;       // between steps of a reduction: no line is reused
constexpr int64_t kCopyRowsWanted = 256;         // that use a copy, so that it costs little
constexpr int64_t kCopyPickedRowsWanted = 1024;  // where it is made element by element
constexpr int64_t kCopyRowsLeast = 64;
constexpr int64_t kCopyTasksWanted = 32;
constexpr int64_t kFarRowsWanted = 48;  // of an operand of rows, copied at once: three cache lines

}  // namespace

bool VectorChooser::CopyUnpacked() {
  if (main_ == kernel_.groups.size() || RowsInPlace(kernel_) || UnpackedOf(kernel_).empty())
    return false;
  const size_t loads = copyable_.size();
  std::vector<Body> before = loop_cost_.CountUnpackedAsAccesses();
  for (const Access& access : body(main_).accesses)
    if (access.operations > 0 && PaysToCopy(access)) copyable_.push_back(access.node);
  if (copyable_.size() > loads) ChooseTiles();
  if (copyable_.size() > loads && CopyOperands()) return true;
  loop_cost_.Restore(std::move(before));
  copyable_.resize(loads);
  return false;
}

double VectorChooser::ColumnBytes(const Access& access) const {
  return Points(access.deps & ~kernel_.OutputSet()) * std::max(4, ByteWidth(access.node->dtype));
}

bool VectorChooser::PaysToCopy(const Access& access) {
  if (access.store || !CanStage(kernel_, access.node).ok()) return false;
  const auto elements =
      static_cast<double>(kernel_.slot_elements[GlobalOfAccess(access.index).slot()]);
  // A window would be copied once for each place that it is seen from.
  if (access.operations == 0 && Points(access.deps) > elements) return false;
  if (Points(kernel_.OutputSet() & ~access.deps) < kCopyReuseLeast) return false;
  return ColumnBytes(access) * loop_cost_.lanes() <= copy_bytes_max_;
}

bool VectorChooser::Copied(const Access& access, int v) {
  if (v < 0 || v >= kernel_.output_count || !In(access.deps, v)) return false;
  if (std::find(copyable_.begin(), copyable_.end(), access.node) == copyable_.end()) return false;
  if (access.operations > 0 || ConstantStride(access, v) != 1) return true;
  const double bytes = ByteWidth(access.node->dtype);
  if (Points(access.deps) * bytes <= copy_bytes_max_) return false;
  const int inner = kernel_.groups[main_].ranges.back();
  return In(access.deps, inner) &&
         std::abs(static_cast<double>(ConstantStride(access, inner))) * bytes >= kCopyRowBytesLeast;
}

double VectorChooser::CopyBytes(int v, int64_t vectors) {
  double column = 0;
  for (const Access& access : body(main_).accesses)
    if (Copied(access, v)) column += ColumnBytes(access);
  return column * static_cast<double>(vectors * LanesFor(v));
}

int VectorChooser::BlockedRows(RangeSet deps) const {
  for (int i = 0; i < kernel_.parallel_count; ++i)
    if (!In(deps, i) && Extent(i) > 1) return i;
  return -1;
}

bool VectorChooser::CopyOperands() {
  const int v = output_lanes_;
  if (v < 0 || tile_rows_ == 0) return false;
  std::vector<const Access*> copied;
  double column = 0;
  RangeSet deps = 0;
  bool picked = false;
  for (const Access& access : body(main_).accesses)
    if (Copied(access, v)) {
      copied.push_back(&access);
      column += ColumnBytes(access);
      deps |= access.deps;
      picked = picked || (ConstantStride(access, v) != 1 &&
                          SquaresAlong(kernel_, access.node, LanesFor(v)) < 0);
    }
  if (copied.empty() || (deps & tile_rows_) != 0) return false;
  const int r = BlockedRows(deps);
  if (r < 0) return false;
  const auto blocks = [&](int range, int64_t size) { return (Extent(range) + size - 1) / size; };
  const double tasks = Points(deps & kernel_.OutputSet() & ~(RangeSet{1} << v));
  const double row = Points(kernel_.OutputSet() & ~deps) / static_cast<double>(Extent(r));
  const auto rows_for = [&](int64_t wanted) {
    const auto size = static_cast<int64_t>(std::ceil(static_cast<double>(wanted) / row));
    return (size + counts_[r] - 1) / counts_[r] * counts_[r];
  };
  const int64_t width = counts_[v] * LanesFor(v);
  if (CopyBytes(v, counts_[v]) > copy_bytes_max_) return false;
  int64_t rows = (Extent(r) + counts_[r] - 1) / counts_[r] * counts_[r],
          columns =
              std::max<int64_t>(1, static_cast<int64_t>(copy_bytes_max_ / 2 / column) / width) *
              width;
  const auto few = [&] {
    return tasks * static_cast<double>(blocks(r, rows) * blocks(v, columns)) < kCopyTasksWanted;
  };
  // More tasks by fewer rows that share a copy, down to where the copy is felt; then by copies of
  // fewer columns.
  const auto halve_rows = [&](int64_t least) {
    while (few() && rows > least)
      rows = std::max(least, (rows / 2 + counts_[r] - 1) / counts_[r] * counts_[r]);
  };
  halve_rows(rows_for(picked ? kCopyPickedRowsWanted : kCopyRowsWanted));
  while (few() && columns > width) columns = std::max<int64_t>(1, columns / width / 2) * width;
  halve_rows(rows_for(kCopyRowsLeast));

  const int64_t level = AddLoopsAroundCopies(kernel_, deps, {{v, columns}, {r, rows}}, v, opts_);
  const std::vector<const UOp*> loads = CopyableOf(kernel_);
  for (const Access* access : copied)
    Add(OptKind::kLocal, std::find(loads.begin(), loads.end(), access->node) - loads.begin(),
        level);
  return true;
}

bool VectorChooser::IsFar(const Access& access) {
  const int inner = kernel_.groups[main_].ranges.back();
  if (!In(access.deps, inner)) return false;
  const auto stride = static_cast<uint64_t>(std::abs(ConstantStride(access, inner)) *
                                            ByteWidth(access.node->dtype));
  const uint64_t apart = stride & -stride;
  return apart >= kCopyRowBytesLeast &&
         Points(access.deps & ~kernel_.OutputSet()) * static_cast<double>(apart) >
             static_cast<double>(optimize::ReusedBytesMax(target_));
}

bool VectorChooser::CopyFarRows() {
  const int v = output_lanes_;
  if (main_ == kernel_.groups.size() || !In(body(main_).ranges, v)) return false;
  const RangeSet outputs = kernel_.OutputSet();
  const std::vector<const UOp*> loads = LoadsOf(kernel_);
  std::vector<Opt> copies;
  int r = -1;
  double column = 0;
  for (const Access& access : body(main_).accesses) {
    const RangeSet rows = access.deps & outputs;
    if (access.store || std::popcount(rows) != 1 || !In(tile_rows_, std::countr_zero(rows)) ||
        !IsFar(access) || !CanStage(kernel_, access.node).ok())
      continue;
    const int range = std::countr_zero(rows);
    // Tiles that read a row again.
    const double reuse = Points(outputs & ~rows) / static_cast<double>(counts_[v] * LanesFor(v));
    if (reuse < 2 || (r >= 0 && range != r)) continue;
    r = range;
    column += ColumnBytes(access);
    copies.push_back(
        {OptKind::kLocal, std::find(loads.begin(), loads.end(), access.node) - loads.begin(), 1});
  }
  // A task is a block of rows, in which no group may be computed for all of them.
  if (r < 0 || std::any_of(kernel_.groups.begin(), kernel_.groups.end(),
                           [&](const ReduceGroup& group) { return !In(group.deps, r); }))
    return false;
  int64_t rows = kFarRowsWanted / counts_[r] * counts_[r];
  const auto halve = [&] { rows = std::max(counts_[r], rows / 2 / counts_[r] * counts_[r]); };
  if (rows >= Extent(r)) return false;
  while (rows > counts_[r] && column * static_cast<double>(rows) > copy_bytes_max_ / 2) halve();
  if (column * static_cast<double>(rows) > copy_bytes_max_) return false;
  if ((Extent(r) + rows - 1) / rows < kCopyTasksWanted / 2) halve();
  Add(OptKind::kBlock, r, rows);
  Add(OptKind::kThread, 0, 1);
  opts_.insert(opts_.end(), copies.begin(), copies.end());
  return true;
}

}  // namespace outboard::codegen
