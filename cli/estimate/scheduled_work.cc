#include "cli/estimate/scheduled_work.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/access_profile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/opt.h"
#include "compiler/rewrite/bind.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "compiler/starting_opts.h"

namespace outboard::cli {

namespace {

using codegen::LoopNest;
using codegen::OptKind;
using codegen::RangeSet;
using session::KernelWork;
using session::ProductKind;

constexpr double kLibraryCall = 20;  // of f64, one for each element: CostTable::library_call

// The product that a sum adds up, each term rounded perhaps; nullptr: it adds something else.
const UOp* ProductOf(const UOp* sum) {
  if (ReduceOf(sum).op() != Op::kAdd || !IsFloat(sum->dtype)) return nullptr;
  const UOp* x = sum->src[0];
  while (x->op == Op::kCast || x->op == Op::kWhere) x = x->src[x->op == Op::kWhere ? 1 : 0];
  return x->op == Op::kMul ? x : nullptr;
}

int WidthOf(const UOp* operand) {
  int width = ByteWidth(operand->dtype);
  while (operand->op == Op::kCast && IsFloat(operand->src[0]->dtype)) {
    operand = operand->src[0];
    width = std::min(width, ByteWidth(operand->dtype));
  }
  return width;
}

// How a matrix unit multiplies such operands: both as the wider one is.
ProductKind KindOf(const UOp* product, bool tf32) {
  switch (std::max(WidthOf(product->src[0]), WidthOf(product->src[1]))) {
    case 1: return ProductKind::kF8;
    case 2: return ProductKind::kHalf;
    default: return tf32 ? ProductKind::kTf32 : ProductKind::kThreeTf32;
  }
}

bool IsByMatrixUnit(const std::vector<codegen::Opt>& opts) {
  return std::any_of(opts.begin(), opts.end(), [](const codegen::Opt& opt) {
    return opt.kind == OptKind::kMma || opt.kind == OptKind::kWgmma || opt.kind == OptKind::kOnline;
  });
}

class Counter {
 public:
  Counter(const LoopNest& kernel, absl::Span<const Binding> bindings)
      : kernel_(kernel), bindings_(bindings) {}

  absl::StatusOr<KernelWork> Count(bool by_matrix_unit) {
    for (const codegen::Range& range : kernel_.ranges) {
      int64_t extent = range.extent;
      if (range.end() != nullptr) {
        OB_ASSIGN_OR_RETURN(const int64_t end,
                            ValueAt(range.end(), {bindings_.data(), bindings_.size()}));
        extent = std::clamp<int64_t>(end, 0, extent);
      }
      extents_.push_back(static_cast<double>(extent));
    }
    KernelWork work;
    std::optional<ProductKind> slowest;  // of the products by matrix units
    codegen::AffineForms forms;
    std::map<int64_t, double> elements;  // by slot
    const std::vector<codegen::Body> bodies = codegen::FindBodies(kernel_, forms);
    for (size_t b = 0; b < bodies.size(); ++b) {
      for (const RangeSet deps : bodies[b].ops) work.others += Points(deps);
      for (const RangeSet deps : bodies[b].slow_ops) work.others += kLibraryCall * Points(deps);
      for (const codegen::Access& access : bodies[b].accesses)
        elements[GlobalOfAccess(access.node).slot()] += Points(access.deps);
      if (b == kernel_.groups.size()) continue;
      for (const UOp* const sum : kernel_.groups[b].nodes) {
        const UOp* const product = ProductOf(sum);
        if (product == nullptr) continue;
        const double points = Points(bodies[b].ranges);
        work.products += 2 * points;
        work.others -= 2 * points;  // the product and the sum are there as well
        if (!by_matrix_unit) continue;
        const ProductKind kind = KindOf(product, kernel_.tf32);
        slowest = std::min(slowest.value_or(kind), kind);
        for (const UOp* operand : product->src)  // which it widens by itself
          for (; operand->op == Op::kCast; operand = operand->src[0])
            work.others -= Points(kernel_.DepsOf(operand));
      }
    }
    work.kind = slowest.value_or(ProductKind::kF32);
    work.others = std::max(0.0, work.others);
    for (const auto& [slot, count] : elements)
      work.bytes += std::min(count, static_cast<double>(kernel_.slot_elements[slot])) *
                    ByteWidth(kernel_.slot_dtypes[slot]);
    return work;
  }

 private:
  double Points(RangeSet ranges) const {
    double points = 1;
    for (size_t i = 0; i < extents_.size(); ++i)
      if (ranges >> i & 1) points *= extents_[i];
    return points;
  }

  const LoopNest& kernel_;
  const absl::Span<const Binding> bindings_;
  std::vector<double> extents_;
};

absl::StatusOr<KernelWork> WorkOf(const UOp* kernel, const Target& target,
                                  absl::Span<const Binding> bindings) {
  OB_ASSIGN_OR_RETURN(const auto lists, StartingOpts(kernel, target));
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* const plain, PlainKernel(graph, kernel, target));
  OB_ASSIGN_OR_RETURN(const LoopNest nest, codegen::AnalyzeKernel(plain));
  if (nest.empty) return KernelWork{.count = 0};
  return Counter(nest, bindings).Count(IsByMatrixUnit(lists[0]));
}

}  // namespace

absl::StatusOr<std::vector<KernelWork>> ScheduledKernels(const session::SentGraph& sent,
                                                         const Target& target) {
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* const sink, DecodeGraph(graph, *sent.encoding));
  OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule,
                      schedule::MakeSchedule(graph, sink, target, sent.donated,
                                             ScheduleOptionsFor(target)));
  std::vector<KernelWork> kernels;
  absl::flat_hash_map<const UOp*, KernelWork> known;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    if (kernel.together == 0) continue;
    auto at = known.find(kernel.ast);
    if (at == known.end()) {
      OB_ASSIGN_OR_RETURN(const KernelWork work, WorkOf(kernel.ast, target, sent.bindings));
      at = known.emplace(kernel.ast, work).first;
    }
    // One launch computes them all.
    KernelWork launch = at->second;
    launch.products *= kernel.together;
    launch.others *= kernel.together;
    launch.bytes *= kernel.together;
    if (launch.count > 0) kernels.push_back(launch);
  }
  return kernels;
}

bool HasAllGraphs(const session::RecordedWork& work,
                  const std::vector<session::SentGraph>& graphs) {
  return graphs.size() == work.graphs;
}

session::RecordedWork ScheduledFor(const Target& target, session::RecordedWork work,
                                   const std::vector<session::SentGraph>& graphs) {
  if (!work.unknown.empty() || !HasAllGraphs(work, graphs)) return work;
  work.kernels.clear();
  for (const session::SentGraph& graph : graphs) {
    const auto kernels = ScheduledKernels(graph, target);
    if (!kernels.ok()) {
      work.unknown = absl::StrCat("a graph cannot be scheduled for ", target.arch, ": ",
                                  kernels.status().message());
      return work;
    }
    for (KernelWork kernel : *kernels) {
      kernel.count *= static_cast<double>(graph.steps);
      work.kernels.push_back(kernel);
    }
  }
  return work;
}

}  // namespace outboard::cli
