#include "tests/compiler/kernel_random_opts.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/divide_up.h"
#include "compiler/optimize/apply.h"

namespace outboard::test {

using codegen::Opt;
using codegen::OptKind;

std::vector<Opt> RandomOpts(const UOp* sink, const Target& target, std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
  const auto axes = static_cast<int64_t>(codegen::AxesOf(kernel).size());
  const auto loads = static_cast<int64_t>(codegen::CopyableOf(kernel).size());
  // Loops are counted by the last two kinds: those come last, or nothing that changes them is
  // legal.
  static constexpr OptKind kFirst[] = {OptKind::kVector, OptKind::kUpcast, OptKind::kUnroll,
                                       OptKind::kGroup};
  static constexpr OptKind kThen[] = {OptKind::kBlock, OptKind::kSwap};
  std::vector<Opt> opts;
  int64_t copies = 1;  // of the code; few, since most of the time is LLVM's
  const auto attempt = [&](OptKind kind) {
    Opt opt{kind, pick(axes + 1), 0};
    switch (kind) {
      case OptKind::kVector: opt.amount = int64_t{1} << (1 + pick(5)); break;
      case OptKind::kUpcast:
      case OptKind::kUnroll:
      case OptKind::kGroup: opt.amount = 2 + pick(5); break;
      case OptKind::kBlock: opt.amount = 1 + pick(24); break;
      case OptKind::kSwap:
        opt.axis = pick(4);
        opt.amount = opt.axis + 1 + pick(3);
        break;
      case OptKind::kThread:
        opt.axis = 0;
        opt.amount = 1 + pick(4);
        break;
      case OptKind::kLocal:
        opt.axis = pick(loads + 1);
        opt.amount = pick(6);
        break;
      case OptKind::kCpuMatrixUnit: opt.amount = pick(4); break;
      case OptKind::kMma:  // of GPUs
      case OptKind::kWgmma:
      case OptKind::kOnline:
      case OptKind::kPanel:  // never drawn: it needs a reduction in another one's rows
      case OptKind::kFlatten:
      case OptKind::kGrid:
      case OptKind::kLane:
      case OptKind::kWarp:
      case OptKind::kShare:
      case OptKind::kCluster:
      case OptKind::kAlign:
      case OptKind::kKeep: break;
    }
    if ((kind == OptKind::kUpcast || kind == OptKind::kUnroll) && copies * opt.amount > 8) return;
    opts.push_back(opt);
    if (!codegen::ApplyOpts(ValueOrDie(codegen::AnalyzeKernel(sink)), opts, target).ok())
      opts.pop_back();
    else if (kind == OptKind::kUpcast || kind == OptKind::kUnroll)
      copies *= opt.amount;
  };
  if (pick(4) == 0) attempt(OptKind::kFlatten);
  for (int i = 0; i < 10; ++i) attempt(kFirst[pick(std::size(kFirst))]);
  for (int i = 0; i < 8; ++i) attempt(kThen[pick(std::size(kThen))]);
  for (int i = 0; i < 3; ++i) attempt(OptKind::kThread);
  for (int i = 0; i < 6; ++i) attempt(OptKind::kLocal);
  return opts;
}

namespace {

// A cluster whose blocks divide every reduction: which is legal as a whole alone. Empty where the
// kernel has none.
std::vector<Opt> RandomCluster(const UOp* sink, const Target& target, std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
  const std::vector<codegen::Axis> axes = codegen::AxesOf(kernel);
  const int64_t blocks = int64_t{2} << pick(3);
  std::vector<Opt> opts = {{OptKind::kCluster, 0, blocks}};
  for (size_t g = 0; g < kernel.groups.size(); ++g) {
    std::vector<int64_t> own;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis].group == static_cast<int>(g)) own.push_back(static_cast<int64_t>(axis));
    if (own.empty()) return {};
    const int64_t axis = own[static_cast<size_t>(pick(own.size()))];
    if (pick(3) == 0) opts.push_back({OptKind::kVector, axis, int64_t{2} << pick(2)});
    opts.push_back({OptKind::kShare, axis, blocks * target.block_threads_max()});
    if (pick(3) == 0) opts.push_back({OptKind::kAlign, axis, int64_t{2} << pick(4)});
    if (pick(2) == 0) opts.push_back({OptKind::kUnroll, axis, 2 + pick(3)});
  }
  opts.push_back({OptKind::kGrid, 0, kernel.output_count});
  const auto legal = [&] {
    return codegen::ApplyOpts(ValueOrDie(codegen::AnalyzeKernel(sink)), opts, target).ok();
  };
  // What the axis has no room for goes first.
  for (size_t i = opts.size(); !legal() && i-- > 0;)
    if (opts[i].kind == OptKind::kAlign || opts[i].kind == OptKind::kUnroll ||
        opts[i].kind == OptKind::kVector)
      opts.erase(opts.begin() + static_cast<int64_t>(i));
  return legal() ? opts : std::vector<Opt>();
}

// Threads that have the same elements of the longest rows wherever these are read, and keep a part
// of one of them in the memory of their block: which is legal as a whole alone. Empty where the
// kernel has no such rows.
std::vector<Opt> RandomKept(const UOp* sink, const Target& target, std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
  const std::vector<codegen::Axis> axes = codegen::AxesOf(kernel);
  int64_t columns = 0;
  for (const codegen::Axis& axis : axes)
    if (axis.group >= 0) columns = std::max(columns, kernel.ranges[axis.range].extent);
  int64_t lanes = int64_t{1} << pick(3);
  int64_t threads = int64_t{2} << pick(6);
  const bool odd = target.kind == TargetKind::kCuda && pick(2) == 0;
  while (lanes > 1 && columns % lanes != 0 && !odd) lanes /= 2;
  threads = std::min(threads, target.block_threads_max());
  while (threads > 1 && 2 * threads * lanes > columns) threads /= 2;
  const int64_t align = pick(3) == 0 ? 2 * lanes : 1;
  const int64_t before = align == 1 ? 0 : columns % lanes == 0 ? align - lanes : align - 1;
  const int64_t steps = DivideUp(columns + before, threads * lanes);
  if (threads < 2 || steps < 2) return {};
  std::vector<Opt> opts;
  int64_t blocks = kernel.output_count;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (kernel.ranges[axes[i].range].extent != columns) continue;
    const bool reduced = axes[i].group >= 0;
    const auto add = [&](OptKind kind, int64_t amount) {
      if (amount > 1) opts.push_back({kind, static_cast<int64_t>(i), amount});
    };
    add(OptKind::kVector, lanes);
    if (reduced) {
      add(OptKind::kShare, threads);
    } else {
      add(OptKind::kLane, std::min<int64_t>(threads, kWarpThreads));
      add(OptKind::kWarp, threads / kWarpThreads);
      blocks = std::min(blocks, static_cast<int64_t>(i));
    }
    add(OptKind::kAlign, align);
    add(reduced ? OptKind::kUnroll : OptKind::kUpcast, steps);
  }
  if (blocks > 0) opts.push_back({OptKind::kGrid, 0, blocks});
  const auto loads = static_cast<int64_t>(codegen::LoadsOf(kernel).size());
  const int64_t first = pick(static_cast<size_t>(loads)), count = 1 + pick(8);
  for (int64_t i = 0; i < loads; ++i) {
    opts.push_back({OptKind::kKeep, (first + i) % loads, std::min(count, steps - 1)});
    if (codegen::ApplyOpts(ValueOrDie(codegen::AnalyzeKernel(sink)), opts, target).ok())
      return opts;
    opts.pop_back();
  }
  return {};
}

}  // namespace

std::vector<Opt> RandomThreadOpts(const UOp* sink, const Target& target, std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
  const auto axes = static_cast<int64_t>(codegen::AxesOf(kernel).size());
  const auto loads = static_cast<int64_t>(codegen::LoadsOf(kernel).size());
  static constexpr OptKind kKinds[] = {OptKind::kVector, OptKind::kUpcast, OptKind::kUnroll,
                                       OptKind::kGroup,  OptKind::kLane,   OptKind::kLane,
                                       OptKind::kWarp,   OptKind::kShare,  OptKind::kShare,
                                       OptKind::kLocal,  OptKind::kSwap,   OptKind::kAlign};
  std::vector<Opt> opts;
  const bool clusters = target.cluster_blocks_max() > 1 && pick(2) == 0;
  if (clusters) opts = RandomCluster(sink, target, random);
  if (opts.empty() && target.kind == TargetKind::kCuda) opts = RandomKept(sink, target, random);
  const bool kept = !opts.empty() && opts.back().kind == OptKind::kKeep;
  int64_t copies = 1;  // of the code
  const auto attempt = [&](OptKind kind) {
    Opt opt{kind, pick(axes + 1), 0};
    const bool written_out = kind == OptKind::kUpcast || kind == OptKind::kUnroll;
    switch (kind) {
      case OptKind::kVector: opt.amount = int64_t{2} << pick(2); break;
      case OptKind::kLane:
      case OptKind::kWarp:
      case OptKind::kShare: opt.amount = int64_t{2} << pick(6); break;
      case OptKind::kAlign: opt.amount = int64_t{2} << pick(4); break;
      case OptKind::kLocal: opt = {kind, pick(loads + 1), 0}; break;
      case OptKind::kSwap:
        opt.axis = pick(4);
        opt.amount = opt.axis + 1 + pick(3);
        break;
      case OptKind::kGrid: opt = {kind, 0, 1 + pick(4)}; break;
      default: opt.amount = 2 + pick(5); break;
    }
    if (written_out && copies * opt.amount > 8) return;
    const size_t before = opts.size();
    opts.push_back(opt);
    // An axis that ends within a vector has threads.
    if (kind == OptKind::kVector && pick(2) == 0)
      opts.push_back({OptKind::kLane, opt.axis, int64_t{2} << pick(3)});
    if (!codegen::ApplyOpts(ValueOrDie(codegen::AnalyzeKernel(sink)), opts, target).ok())
      opts.resize(before);
    else if (written_out)
      copies *= opt.amount;
  };
  if (opts.empty() && pick(4) == 0) attempt(OptKind::kFlatten);
  for (int i = 0; i < 24; ++i) attempt(kKinds[pick(std::size(kKinds))]);
  if (!kept && (opts.empty() || opts[0].kind != OptKind::kCluster))
    for (int i = 0; i < 4; ++i) attempt(OptKind::kGrid);
  return opts;
}

}  // namespace outboard::test
