#include "compiler/shard/choose.h"

#include <algorithm>
#include <bit>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/spec.h"
#include "compiler/shard/lower.h"
#include "compiler/shard/products.h"

namespace outboard::shard {
namespace {

bool SameType(const UOp* a, const UOp* b) { return a->dtype == b->dtype && a->shape == b->shape; }

// The inputs of a graph, and which of them are state.
struct Inputs {
  std::vector<const UOp*> params;
  std::vector<bool> state;
};

Inputs InputsOf(const UOp* sink, const ShardOptions& options) {
  Inputs inputs{ParamsOf(sink), options.state};
  for (size_t slot = inputs.state.size(); slot < inputs.params.size(); ++slot)
    inputs.state.push_back(std::any_of(sink->src.begin(), sink->src.end(), [&](const UOp* result) {
      return SameType(result, inputs.params[slot]);
    }));
  return inputs;
}

bool MayBeCut(const UOp* node, int dim) {
  return node->shape[dim].is_const() && node->shape[dim].value() > 1;
}

// Sums of products, the heaviest first.
std::vector<const UOp*> ProductsOf(const UOp* sink) {
  std::vector<std::pair<double, const UOp*>> weighed;
  for (const UOp* node : PostOrder(sink, /*into_functions=*/false)) {
    if (node->op != Op::kReduce || ReduceOf(node).op() != Op::kAdd || IsGather(node)) continue;
    const UOp* product = node->src[0];
    if (product->op == Op::kCast) product = product->src[0];
    if (product->op != Op::kMul) continue;
    double elements = 1;
    for (const Dim& dim : product->shape) elements *= static_cast<double>(dim.max());
    weighed.emplace_back(-elements, node);
  }
  std::stable_sort(weighed.begin(), weighed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const UOp*> products;
  for (const auto& [weight, node] : weighed) products.push_back(node);
  return products;
}

// Candidates that cut dimensions of the heaviest products along which a factor that is state is
// repeated: the batch.
void AddProductSeeds(const Mesh& mesh, const UOp* sink, const Inputs& inputs,
                     const SpreadCandidate& base, AxisSet axes, std::vector<SpreadCandidate>& out) {
  constexpr size_t kProductsMax = 4;
  const std::vector<const UOp*> products = ProductsOf(sink);
  for (size_t i = 0; i < std::min(products.size(), kProductsMax); ++i) {
    const UOp* product = products[i]->src[0];
    if (product->op == Op::kCast) product = product->src[0];
    for (int dim = 0; dim < product->rank(); ++dim) {
      if (ReduceOf(products[i]).reduces(dim) || !MayBeCut(product, dim)) continue;
      for (const int factor : {0, 1}) {
        const UOp* const weights = product->src[factor];
        const UOp* const param = ParamUnder(weights);
        if (param == nullptr || !inputs.state[ParamOf(param).slot()] || !IsRepeated(weights, dim) ||
            IsRepeated(product->src[1 - factor], dim))
          continue;
        SpreadCandidate candidate = base;
        candidate.name = absl::StrCat(base.prefix(), "data: dimension ", dim, " of a product, ",
                                      product->shape[dim].value(), " long");
        candidate.seeds[products[i]] = CutSharding(mesh, products[i]->shape, dim, axes);
        out.push_back(std::move(candidate));
      }
    }
  }
}

// Candidates that cut dimension 0 of what the first CALL is given beside inputs.
void AddCallSeeds(const Mesh& mesh, const UOp* sink, const SpreadCandidate& base, AxisSet axes,
                  std::vector<SpreadCandidate>& out) {
  for (const UOp* node : PostOrder(sink, /*into_functions=*/false)) {
    if (node->op != Op::kCall) continue;
    for (size_t i = 1; i < node->src.size(); ++i) {
      const UOp* const argument = node->src[i];
      if (argument->rank() < 2 || ParamUnder(argument) != nullptr || !MayBeCut(argument, 0))
        continue;
      SpreadCandidate candidate = base;
      candidate.name = absl::StrCat(base.prefix(), "data: dimension 0 of argument ", i - 1,
                                    " of a call, ", argument->shape[0].value(), " long");
      candidate.seeds[argument] = CutSharding(mesh, argument->shape, 0, axes);
      out.push_back(std::move(candidate));
    }
    return;
  }
}

// Candidates that cut dimension 0 of inputs that are no state, by its length.
void AddInputSeeds(const Mesh& mesh, const Inputs& inputs, const SpreadCandidate& base,
                   AxisSet axes, std::vector<SpreadCandidate>& out) {
  std::map<int64_t, SpreadCandidate> by_length;
  for (size_t slot = 0; slot < inputs.params.size(); ++slot) {
    const UOp* const param = inputs.params[slot];
    if (inputs.state[slot] || param->rank() == 0 || !MayBeCut(param, 0) ||
        !base.params[slot].is_whole())
      continue;
    const int64_t length = param->shape[0].value();
    SpreadCandidate& candidate = by_length.emplace(length, base).first->second;
    candidate.name = absl::StrCat(base.prefix(), "data: dimension 0 of inputs, ", length, " long");
    candidate.seeds[param] = CutSharding(mesh, param->shape, 0, axes);
  }
  for (auto& [length, candidate] : by_length) out.push_back(std::move(candidate));
}

}  // namespace

Layout StoredLayout(const Mesh& mesh, ShapeView shape) {
  int64_t best = Layout::kWhole, best_length = 0;
  bool best_divides = false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (!shape[dim].is_const() || shape[dim].value() < mesh.ranks()) continue;
    const int64_t length = shape[dim].value();
    const bool divides = length % mesh.ranks() == 0;
    if (std::pair(divides, length) <= std::pair(best_divides, best_length)) continue;
    best = static_cast<int64_t>(dim);
    best_length = length;
    best_divides = divides;
  }
  return best == Layout::kWhole ? Layout{} : Layout{std::vector<int64_t>(mesh.sizes.size(), best)};
}

std::vector<SpreadCandidate> CandidatesOf(const Mesh& mesh, const UOp* sink,
                                          absl::Span<const Layout> params,
                                          const ShardOptions& options) {
  const Inputs inputs = InputsOf(sink, options);
  SpreadCandidate base;
  base.name = "whole";
  for (size_t slot = 0; slot < inputs.params.size(); ++slot) {
    const Layout layout = slot < params.size() ? params[slot] : Layout{};
    base.params.push_back(ShardingOf(mesh, layout, inputs.params[slot]->shape));
    if (inputs.state[slot] && options.spread == Spread::kFsdp)
      base.params.back().soft = base.params.back().cut_axes();
  }
  for (size_t i = 0; i < sink->src.size(); ++i) {
    base.results.emplace_back();
    const UOp* const result = sink->src[i];
    if (i < options.results.size() && options.results[i]) {
      base.results[i] = ShardingOf(mesh, *options.results[i], result->shape);
      continue;
    }
    // What replaces state lies as it does, so that a step leaves what it found.
    for (size_t slot = 0; slot < inputs.params.size() && !base.results[i]; ++slot) {
      if (!inputs.state[slot] || !SameType(result, inputs.params[slot])) continue;
      Layout layout = slot < params.size() ? params[slot] : Layout{};
      if (layout.is_whole() && options.spread == Spread::kFsdp)
        layout = StoredLayout(mesh, result->shape);
      if (!layout.is_whole()) base.results[i] = ShardingOf(mesh, layout, result->shape);
    }
  }
  std::vector<SpreadCandidate> candidates;
  const auto add_data = [&](const SpreadCandidate& from, AxisSet axes) {
    AddInputSeeds(mesh, inputs, from, axes, candidates);
    AddCallSeeds(mesh, sink, from, axes, candidates);
    AddProductSeeds(mesh, sink, inputs, from, axes, candidates);
  };
  const AxisSet all = AllAxes(mesh);
  const bool tensor = options.spread == Spread::kTensor || options.spread == Spread::kAuto;
  if (all != 0 && tensor) {
    SpreadCandidate weights = base;
    weights.name = "tensor: weights";
    weights.tensor_axes = all;
    candidates.push_back(weights);
    // Devices of one node share weights, nodes share the batch.
    const AxisSet last = std::bit_floor(all);
    weights.tensor_axes = last;
    if (last != all) add_data(weights, all & ~last);
  }
  if (all != 0 && options.spread != Spread::kTensor) add_data(base, all);
  if (candidates.size() >= static_cast<size_t>(kCandidatesMax))
    candidates.resize(kCandidatesMax - 1);
  if (candidates.empty() || options.spread != Spread::kTensor)
    candidates.insert(candidates.begin(), std::move(base));  // wins where nothing is better
  return candidates;
}

absl::StatusOr<double> Predict(const Mesh& mesh, const UOp* sink, const ShardOptions& options,
                               SpreadCandidate& candidate) {
  ShardWork work;
  for (bool again = true; again;) {
    again = false;
    Planner planner(mesh);
    OB_ASSIGN_OR_RETURN(const FramePlan* const plan, planner.Plan(sink, candidate.inputs()));
    for (size_t i = 0; i < sink->src.size(); ++i) {
      const ShapeView shape = sink->src[i]->shape;
      const Sharding& p = plan->results[i];
      if (LayoutOfSharding(mesh, p, shape)) continue;
      // The same cuts, in the parts in which values are stored.
      Sharding stored = WholeSharding(static_cast<int>(shape.size()));
      for (size_t dim = 0; dim < shape.size(); ++dim)
        if (const AxisSet axes = p.dims[dim].axes; axes != 0)
          stored.dims[dim] = CutSharding(mesh, shape, static_cast<int64_t>(dim), axes).dims[dim];
      candidate.results[i] = std::move(stored);
      again = true;  // each result once
    }
    if (again) continue;
    RankWriter writer(nullptr, mesh, sink);
    OB_RETURN_IF_ERROR(writer.Run(*plan).status());
    work = writer.work();
  }
  return work.operations / options.speeds.operations_per_s +
         work.bytes_sent / options.speeds.link_bytes_per_s +
         static_cast<double>(work.collectives) * options.speeds.collective_s;
}

}  // namespace outboard::shard
