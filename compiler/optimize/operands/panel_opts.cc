#include "compiler/optimize/operands/panel_opts.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "compiler/ir/build.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/optimize/operands/staging.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kVectorsOfRows = 2;  // each element that is read serves two vectors
constexpr int64_t kStepsMax = 12;
// Longer rows are computed online, in blocks: 32 rows of a block are 16 KB, and what is carried
// from one to the next costs little beside it.
constexpr int64_t kWholeRowMax = 2048;
constexpr int64_t kOnlineBlock = 128;
constexpr int64_t kElementwiseSteps = 4;  // of a panel made from panels: independent exponentials

// The most steps at once, but rather fewer without a rest.
int64_t StepsOf(int64_t extent, int64_t most) {
  most = std::min({extent, most, kStepsMax});
  for (int64_t steps = most; steps > most / 2; --steps)
    if (extent % steps == 0) return steps;
  return std::max<int64_t>(most, 1);
}

class Chooser {
 public:
  // With `online`, `kernel` is what that Opt makes of `plain`.
  Chooser(const LoopNest& kernel, const Target& target, const LoopNest& plain,
          std::optional<Opt> online)
      : kernel_(kernel),
        target_(target),
        plain_(plain),
        online_(online),
        panels_(PanelsOf(kernel)) {}

  std::vector<Opt> Run() {
    if (panels_.empty()) return {};
    for (const UOp* panel : panels_) rows_ |= kernel_.DepsOf(panel) & kernel_.OutputSet();
    FindLanes();
    if (lanes_ < 0) return {};
    for (int64_t vectors = kVectorsOfRows; vectors >= 1; --vectors) {
      const std::vector<Opt> opts = OptsFor(vectors);
      Graph graph;  // the kernel again, since applying takes it
      auto copy = AnalyzeKernel(Sink(graph, plain_.stores));
      if (copy.ok() && ApplyOpts(*std::move(copy), opts, target_).ok()) return opts;
    }
    return {};
  }

 private:
  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  static bool In(RangeSet set, int range) { return set >> range & 1; }

  // The longest range of rows for all of which some matrix is the same.
  void FindLanes() {
    RangeSet shared = 0;
    for (const UOp* load : LoadsOf(kernel_))
      for (const UOp* panel : panels_)
        if (In(kernel_.DepsOf(load), PanelRange(kernel_, panel)))
          shared |= rows_ & ~kernel_.DepsOf(load);
    for (int i = 0; i < kernel_.parallel_count; ++i)
      if (In(shared, i) && Extent(i) > 1 && (lanes_ < 0 || Extent(i) >= Extent(lanes_))) lanes_ = i;
  }

  std::vector<Opt> OptsFor(int64_t vectors) const {
    std::vector<Opt> opts;
    const int64_t lanes = std::min<int64_t>(LanesMax(kernel_, target_),
                                            std::bit_ceil(static_cast<uint64_t>(Extent(lanes_))));
    opts.push_back({OptKind::kVector, lanes_, lanes});
    vectors = std::min(vectors, (Extent(lanes_) + lanes - 1) / lanes);
    if (vectors > 1) opts.push_back({OptKind::kUpcast, lanes_, vectors});
    const int64_t held = (target_.vector_registers - 4) / vectors - 1;  // results of a row vector

    // Of what is computed from the panels, the longest other range.
    int columns = -1;
    for (int i = 0; i < kernel_.parallel_count; ++i)
      if (!In(rows_, i) && (columns < 0 || Extent(i) > Extent(columns))) columns = i;
    if (columns >= 0)
      if (const int64_t steps = StepsOf(Extent(columns), held); steps > 1)
        opts.push_back({OptKind::kUpcast, columns, steps});

    // Rows outside: a panel serves all that is computed from it.
    std::vector<int> loops(kernel_.output_count);
    for (int i = 0; i < kernel_.output_count; ++i) loops[i] = i;
    int64_t tasks = 0;
    for (int i = 0; i < kernel_.parallel_count; ++i) {
      if (!In(rows_, loops[i])) continue;
      for (int k = i; k > tasks; --k) {
        opts.push_back({OptKind::kSwap, k - 1, k});
        std::swap(loops[k - 1], loops[k]);
      }
      ++tasks;
    }
    opts.push_back({OptKind::kThread, 0, tasks});
    CopyRows(tasks, opts);
    int64_t multiple = 1;
    for (size_t i = 0; i < panels_.size(); ++i) {
      const int products = ProductsIn(panels_[i]);
      int64_t most = products == 0 ? kElementwiseSteps : held / products;
      if (online_) most = std::clamp<int64_t>(most, 1, std::min(kStepsMax, online_->amount));
      const int64_t steps = online_ ? most : StepsOf(Extent(PanelRange(kernel_, panels_[i])), most);
      multiple = std::lcm(multiple, steps);
      opts.push_back({OptKind::kPanel, static_cast<int64_t>(i), steps});
    }
    if (online_)
      opts.insert(opts.begin(), {OptKind::kOnline, online_->axis,
                                 (online_->amount + multiple - 1) / multiple * multiple});
    return opts;
  }

  // What products read of the rows in lanes, which mostly are not next to each other in memory.
  void CopyRows(int64_t level, std::vector<Opt>& opts) const {
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    for (size_t i = 0; i < loads.size(); ++i) {
      const RangeSet deps = kernel_.DepsOf(loads[i]);
      if (In(deps, lanes_) && (deps & ~kernel_.OutputSet()) != 0 &&
          (deps & ~rows_ & kernel_.OutputSet()) == 0 && CanStage(kernel_, loads[i]).ok())
        opts.push_back({OptKind::kLocal, static_cast<int64_t>(i), level});
    }
  }

  // Reductions that are computed for this panel, not for one that it reads.
  int ProductsIn(const UOp* panel) const {
    int products = 0;
    std::vector<const UOp*> stack = {panel}, seen;
    while (!stack.empty()) {
      const UOp* const node = stack.back();
      stack.pop_back();
      if (std::find(seen.begin(), seen.end(), node) != seen.end()) continue;
      seen.push_back(node);
      if (node != panel && std::find(panels_.begin(), panels_.end(), node) != panels_.end())
        continue;
      if (node->op == Op::kReduceLoop) {
        products += (kernel_.DepsOf(node) & ~kernel_.OutputSet()) != 0;
      } else {
        stack.insert(stack.end(), node->src.begin(), node->src.end());
      }
    }
    return products;
  }

  const LoopNest& kernel_;
  const Target& target_;
  const LoopNest& plain_;
  const std::optional<Opt> online_;
  const std::vector<const UOp*> panels_;
  RangeSet rows_ = 0;  // output ranges that panels depend on
  int lanes_ = -1;     // of these, the one in lanes
};

}  // namespace

std::vector<Opt> OnlineOpts(const LoopNest& kernel, const Target& target, int64_t block) {
  const std::vector<const UOp*> panels = PanelsOf(kernel);
  if (panels.empty()) return {};
  const int range = PanelRange(kernel, panels[0]);
  const std::vector<Axis> axes = AxesOf(kernel);
  const auto axis = std::find_if(axes.begin() + kernel.output_count, axes.end(),
                                 [&](const Axis& a) { return a.range == range; });
  if (axis == axes.end() || block >= kernel.ranges[range].extent) return {};
  Graph graph;
  const auto online = AnalyzeKernel(WithoutFactors(graph, kernel, range));
  if (!online.ok()) return {};
  return Chooser(*online, target, kernel, Opt{OptKind::kOnline, axis - axes.begin(), block}).Run();
}

std::vector<Opt> PanelOpts(const LoopNest& kernel, const Target& target) {
  const std::vector<const UOp*> panels = PanelsOf(kernel);
  if (panels.empty()) return {};
  const bool whole = kernel.ranges[PanelRange(kernel, panels[0])].extent <= kWholeRowMax;
  for (const bool online : {!whole, whole})
    if (std::vector<Opt> opts = online ? OnlineOpts(kernel, target, kOnlineBlock)
                                       : Chooser(kernel, target, kernel, std::nullopt).Run();
        !opts.empty())
      return opts;
  return {};
}

}  // namespace outboard::codegen
