#include "compiler/shard/candidates.h"

#include <algorithm>
#include <bit>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/sums/gather.h"
#include "compiler/shard/products.h"

namespace outboard::shard {
namespace {

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

// Candidates beyond these are not made: each has a list of all inputs and results.
bool IsFull(const std::vector<SpreadCandidate>& candidates) {
  return candidates.size() >= static_cast<size_t>(kCandidatesMax);
}

// Candidates that cut dimensions of the heaviest products along which a factor that is state is
// repeated: the batch.
void AddProductSeeds(const Mesh& mesh, const UOp* sink, const StepState& state,
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
        if (param == nullptr || !state.is_state[ParamOf(param).slot()] ||
            !IsRepeated(weights, dim) || IsRepeated(product->src[1 - factor], dim))
          continue;
        if (IsFull(out)) return;
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
      if (IsFull(out)) return;
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
void AddInputSeeds(const Mesh& mesh, const StepState& state, const SpreadCandidate& base,
                   AxisSet axes, std::vector<SpreadCandidate>& out) {
  std::map<int64_t, std::vector<const UOp*>> by_length;
  for (size_t slot = 0; slot < state.params.size(); ++slot) {
    const UOp* const param = state.params[slot];
    if (state.is_state[slot] || param->rank() == 0 || !MayBeCut(param, 0) ||
        !base.params[slot].is_whole())
      continue;
    by_length[param->shape[0].value()].push_back(param);
  }
  for (const auto& [length, params] : by_length) {
    if (IsFull(out)) return;
    SpreadCandidate candidate = base;
    candidate.name = absl::StrCat(base.prefix(), "data: dimension 0 of inputs, ", length, " long");
    for (const UOp* param : params)
      candidate.seeds[param] = CutSharding(mesh, param->shape, 0, axes);
    out.push_back(std::move(candidate));
  }
}

// What replaces state lies as it does, so that a step leaves what it found; `in_parts`: whole state
// is stored in parts from now on. nullopt: the planner decides.
std::optional<Layout> LayoutOfNext(const Mesh& mesh, const UOp* result, const Layout& found,
                                   bool in_parts) {
  if (!found.is_whole()) return found;
  const Layout stored = in_parts ? StoredLayout(mesh, result->shape) : Layout{};
  return stored.is_whole() ? std::nullopt : std::optional(stored);
}

// Where `options` does not say how a result is to lie: as what it replaces does.
std::vector<std::optional<Sharding>> ResultsOf(const Mesh& mesh, const UOp* sink,
                                               const StepState& state,
                                               absl::Span<const Layout> params,
                                               const ShardOptions& options, bool in_parts) {
  std::vector<std::optional<Sharding>> results(sink->src.size());
  for (size_t i = 0; i < sink->src.size(); ++i) {
    const UOp* const result = sink->src[i];
    std::optional<Layout> layout;
    if (i < options.results.size() && options.results[i]) {
      layout = options.results[i];
    } else if (const int slot = state.replaced[i]; slot != StepState::kNothing) {
      const bool is_known = static_cast<size_t>(slot) < params.size();
      layout = LayoutOfNext(mesh, result, is_known ? params[slot] : Layout{}, in_parts);
    } else if (!state.has_state() && in_parts) {
      // What is made without state, weights at the start, becomes state.
      layout = LayoutOfNext(mesh, result, Layout{}, in_parts);
    }
    if (layout) results[i] = ShardingOf(mesh, *layout, result->shape);
  }
  return results;
}

std::vector<Sharding> ParamsAt(const Mesh& mesh, const StepState& state,
                               absl::Span<const Layout> layouts, bool in_parts) {
  std::vector<Sharding> params;
  for (size_t slot = 0; slot < state.params.size(); ++slot) {
    const Layout layout = slot < layouts.size() ? layouts[slot] : Layout{};
    params.push_back(ShardingOf(mesh, layout, state.params[slot]->shape));
    if (state.is_state[slot] && in_parts) params.back().soft = params.back().cut_axes();
  }
  return params;
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

std::vector<SpreadCandidate> CandidatesOf(const Mesh& mesh, const UOp* sink, const StepState& state,
                                          absl::Span<const Layout> params,
                                          const ShardOptions& options, bool in_parts) {
  SpreadCandidate base;
  base.name = "whole";
  base.params = ParamsAt(mesh, state, params, in_parts);
  base.results = ResultsOf(mesh, sink, state, params, options, in_parts);
  base.in_parts =
      in_parts && std::any_of(base.results.begin(), base.results.end(),
                              [](const auto& result) { return result && !result->is_whole(); });
  if (base.in_parts) base.name = "state in parts";
  std::vector<SpreadCandidate> candidates;
  const auto add_data = [&](const SpreadCandidate& from, AxisSet axes) {
    AddInputSeeds(mesh, state, from, axes, candidates);
    AddCallSeeds(mesh, sink, from, axes, candidates);
    AddProductSeeds(mesh, sink, state, from, axes, candidates);
  };
  const AxisSet all = AllAxes(mesh);
  const bool tensor = options.spread == Spread::kTensor || options.spread == Spread::kAuto;
  if (all != 0 && tensor) {
    SpreadCandidate weights = base;
    weights.name = absl::StrCat(base.in_parts ? "state in parts; " : "", "tensor: weights");
    weights.tensor_axes = all;
    candidates.push_back(weights);
    // Devices of one node share weights, nodes share the batch.
    const AxisSet last = std::bit_floor(all);
    weights.tensor_axes = last;
    if (last != all) add_data(weights, all & ~last);
  }
  if (all != 0 && options.spread != Spread::kTensor) add_data(base, all);
  if (IsFull(candidates)) candidates.resize(kCandidatesMax - 1);
  if (candidates.empty() || options.spread != Spread::kTensor)
    candidates.insert(candidates.begin(), std::move(base));  // wins where nothing is better
  return candidates;
}

SpreadCandidate NextStep(const Mesh& mesh, const UOp* sink, const StepState& state,
                         absl::Span<const Layout> params, const ShardOptions& options,
                         const SpreadCandidate& candidate) {
  SpreadCandidate next = candidate;
  next.params = ParamsAt(mesh, state, params, candidate.in_parts);
  next.results = ResultsOf(mesh, sink, state, params, options, candidate.in_parts);
  return next;
}

}  // namespace outboard::shard
