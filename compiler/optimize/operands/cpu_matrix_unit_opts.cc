// The rows and columns of one block are copied, and multiplied while both copies are in the L2
// cache. This file chooses the size of the blocks, so that copying, which costs as much per element
// as some sixty products, is a small part of the work and there are enough tasks.
#include "compiler/optimize/operands/cpu_matrix_unit_opts.h"

#include <algorithm>

#include "compiler/kernel/affine.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/cost.h"
#include "compiler/optimize/limits.h"
#include "compiler/optimize/loop_order.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kRowsLeast = 8, kColumnsLeast = kCoreColumns / 2 + 1, kStepsLeast = 16;
constexpr int64_t kProductsLeast = 1 << 15;  // below, laying out the tiles is felt
constexpr double kTasksWanted = 8;
constexpr double kShortRun = 32;  // elements in a row that are copied as quickly as a page is found
constexpr int64_t kRegisterRows = 32, kRegisterColumns = 32;  // four squares of sums

int64_t Up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

class Chooser {
 public:
  Chooser(const LoopNest& kernel, const Target& target) : kernel_(kernel), target_(target) {}

  std::optional<std::vector<Opt>> Run() {
    if (!FindAxes() || !ChooseBlocks()) return std::nullopt;
    Add(OptKind::kVector, columns_, kCoreColumns);
    if (const int64_t vectors = tile_columns_ / kCoreColumns; vectors > 1)
      Add(OptKind::kUpcast, columns_, vectors);
    if (tile_rows_ > 1) Add(OptKind::kUpcast, rows_, tile_rows_);
    Add(OptKind::kCpuMatrixUnit, inner_axis_, rows_);
    std::vector<Loop> loops, wanted;
    for (int i = 0; i < kernel_.output_count; ++i)
      if (i != rows_ && i != columns_) wanted.push_back({i});
    const auto others = static_cast<int64_t>(wanted.size());
    for (const auto& [range, size] : {std::pair{rows_, block_rows_}, {columns_, block_columns_}})
      if (size < Extent(range)) {
        Add(OptKind::kBlock, range, size);
        loops.push_back({range, size});
        wanted.push_back({range, size});
      }
    const auto inside = static_cast<int64_t>(wanted.size());
    const int64_t row_level = others + (block_rows_ < Extent(rows_) ? 1 : 0);
    for (int i = 0; i < kernel_.output_count; ++i) loops.push_back({i});
    wanted.push_back({rows_});
    wanted.push_back({columns_});
    AddSwaps(loops, wanted, opts_);
    const int64_t tasks = column_tasks_ ? inside : row_level;
    if (tasks > 0) Add(OptKind::kThread, 0, tasks);
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    const auto number = [&](const UOp* load) {
      return std::find(loads.begin(), loads.end(), load) - loads.begin();
    };
    Add(OptKind::kLocal, number(core_.rows), column_tasks_ ? inside : row_level);
    Add(OptKind::kLocal, number(core_.columns), inside);
    return opts_;
  }

 private:
  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  int64_t Blocks(int range, int64_t size) const { return (Extent(range) + size - 1) / size; }
  void Add(OptKind kind, int64_t axis, int64_t amount) { opts_.push_back({kind, axis, amount}); }

  // How far the first store's elements of neighbouring columns are apart; 0 where that varies.
  uint64_t StoreStride(int range) {
    return forms_.Of(kernel_.stores[0]->src[0]->src[1]).CoefficientOf(kernel_.ranges[range].node);
  }

  // Columns that are consecutive in the result, then the most work.
  bool FindAxes() {
    if (target_.bf16 != Bf16Products::kTiles || kernel_.groups.size() != 1 ||
        kernel_.parallel_count != kernel_.output_count || LanesMax(kernel_, target_) < kCoreColumns)
      return false;
    const ReduceGroup& group = kernel_.groups[0];
    if (kernel_.OutputSet() & ~group.deps) return false;
    double best = 0;
    for (const int inner : group.ranges)
      for (int row = 0; row < kernel_.output_count; ++row)
        for (int column = 0; column < kernel_.output_count; ++column) {
          if (row == column || Extent(row) < kRowsLeast || Extent(column) < kColumnsLeast ||
              Extent(inner) < kStepsLeast)
            continue;
          const auto core = FindCpuMatrixUnit(kernel_, group, row, column, inner);
          const auto products = static_cast<double>(Extent(row) * Extent(column) * Extent(inner));
          const double worth = products * (StoreStride(column) == 1 ? 1e6 : 1);
          if (!core.ok() || products < kProductsLeast || worth <= best) continue;
          best = worth;
          core_ = *core;
          rows_ = row;
          columns_ = column;
          inner_ = inner;
        }
    if (best == 0) return false;
    inner_axis_ = kernel_.output_count;
    while (group.ranges[inner_axis_ - kernel_.output_count] != inner_) ++inner_axis_;
    return true;
  }

  bool ChooseBlocks() {
    tile_rows_ = std::min(kRegisterRows, Extent(rows_));
    tile_columns_ = std::min(kRegisterColumns, Up(Extent(columns_), kCoreColumns));
    int64_t line_bytes = 2, others = 1;
    for (const int range : kernel_.groups[0].ranges)
      line_bytes *= range == inner_ ? Up(Extent(range), kCoreSteps) : Extent(range);
    for (int i = 0; i < kernel_.output_count; ++i)
      if (i != rows_ && i != columns_) others *= Extent(i);
    // Of both operands: three quarters of a second cache of 2 MiB.
    const int64_t blocks_bytes_max =
        std::min(optimize::ReusedBytesMax(target_) / 2 * 3, limits::kLocalBytesMax / 4 * 3);
    const int64_t lines_max = blocks_bytes_max / line_bytes;
    double least = 0;
    for (int64_t rows = tile_rows_; rows < Extent(rows_) + tile_rows_; rows += tile_rows_)
      for (int64_t columns = tile_columns_; columns < Extent(columns_) + tile_columns_ &&
                                            Up(rows, kCoreColumns) + columns <= lines_max;
           columns += tile_columns_)
        for (const bool column_tasks : {false, true}) {
          const int64_t row_blocks = Blocks(rows_, rows);
          const int64_t column_blocks = column_tasks ? Blocks(columns_, columns) : 1;
          const auto tasks = static_cast<double>(others * row_blocks * column_blocks);
          const double short_runs = 1 + kShortRun / static_cast<double>(columns);
          double cost = static_cast<double>(row_blocks * Extent(columns_)) * short_runs +
                        static_cast<double>(column_blocks * Extent(rows_));
          if (tasks < kTasksWanted) cost *= kTasksWanted / tasks;
          if (least > 0 && cost > least) continue;  // of equals the last, which is the largest
          least = cost;
          block_rows_ = rows;
          block_columns_ = columns;
          column_tasks_ = column_tasks;
        }
    return least > 0;
  }

  const LoopNest& kernel_;
  const Target& target_;
  AffineForms forms_;
  CpuMatrixUnit core_;
  int rows_ = -1, columns_ = -1, inner_ = -1, inner_axis_ = 0;
  int64_t tile_rows_ = 1, tile_columns_ = 1, block_rows_ = 1, block_columns_ = 1;
  bool column_tasks_ = false;  // blocks of columns are tasks too, and rows copied for each
  std::vector<Opt> opts_;
};

}  // namespace

std::optional<std::vector<Opt>> CpuMatrixUnitOpts(const LoopNest& kernel, const Target& target) {
  return Chooser(kernel, target).Run();
}

}  // namespace outboard::codegen
