#include "compiler/shard/choose.h"

#include <algorithm>
#include <bit>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/sums/gather.h"
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
                                          const ShardOptions& options, bool in_parts) {
  const Inputs inputs = InputsOf(sink, options);
  const bool has_state = std::find(inputs.state.begin(), inputs.state.end(), true) !=
                         inputs.state.end();
  SpreadCandidate base;
  base.name = "whole";
  const bool is_cut =
      std::any_of(params.begin(), params.end(), [](const Layout& p) { return !p.is_whole(); });
  for (size_t slot = 0; slot < inputs.params.size(); ++slot) {
    const Layout layout = slot < params.size() ? params[slot] : Layout{};
    base.params.push_back(ShardingOf(mesh, layout, inputs.params[slot]->shape));
    if (inputs.state[slot] && in_parts)
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
    if (!is_cut && !in_parts) continue;
    for (size_t slot = 0; slot < inputs.params.size() && !base.results[i]; ++slot) {
      if (!inputs.state[slot] || !SameType(result, inputs.params[slot])) continue;
      Layout layout = slot < params.size() ? params[slot] : Layout{};
      if (layout.is_whole() && in_parts)
        layout = StoredLayout(mesh, result->shape);
      if (!layout.is_whole()) base.results[i] = ShardingOf(mesh, layout, result->shape);
    }
    // What is made without state, weights at the start, becomes state.
    if (has_state || base.results[i] || !in_parts) continue;
    if (const Layout layout = StoredLayout(mesh, result->shape); !layout.is_whole())
      base.results[i] = ShardingOf(mesh, layout, result->shape);
  }
  base.in_parts = in_parts &&
                  std::any_of(base.results.begin(), base.results.end(),
                              [](const auto& result) { return result && !result->is_whole(); });
  if (base.in_parts) base.name = "state in parts";
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
    weights.name = absl::StrCat(base.in_parts ? "state in parts; " : "", "tensor: weights");
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

// What nothing waits for but the end of the Run, the sums of gradients, is on its way while the
// rest of the backward pass is computed. That is two thirds of a step, and they come one by one
// until its end: on average half of it, a third of the computing, is left for one, and nothing for
// the last. So at most half of their time is hidden.
static double SecondsOf(const ShardWork& work, const DeviceSpeeds& speeds) {
  const double computing = work.operations / speeds.operations_per_s;
  return computing + work.transfer_s - 0.5 * std::min(work.late_s, computing / 3);
}

absl::StatusOr<Prediction> Predict(const Mesh& mesh, const UOp* sink, GraphNodes& nodes,
                                   const ShardOptions& options, SpreadCandidate& candidate) {
  std::vector<bool> donated = options.donated;
  if (const Inputs inputs = InputsOf(sink, options); donated.size() < inputs.state.size())
    donated.insert(donated.end(), inputs.state.begin() + static_cast<int64_t>(donated.size()),
                   inputs.state.end());
  ShardWork work;
  for (bool again = true; again;) {
    again = false;
    Planner planner(mesh, sink, nodes);
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
    RankWriter writer(nullptr, mesh, sink, &donated, options.speeds);
    OB_RETURN_IF_ERROR(writer.Run(*plan).status());
    work = writer.work();
  }
  const auto held = static_cast<double>(options.memory.held_bytes);
  return Prediction{
      .seconds = SecondsOf(work, options.speeds),
      .memory_bytes = held + work.peak_bytes,
      .kept_bytes = held + work.kept_bytes};
}

namespace {

// Whether `a` is to be chosen rather than `b`.
bool IsBetter(const Prediction& a, const Prediction& b, const DeviceMemory& memory) {
  const auto has = static_cast<double>(memory.bytes);
  const auto room = [has](const Prediction& p) {
    return has == 0 || p.memory_bytes <= has ? 2 : p.kept_bytes <= has ? 1 : 0;
  };
  if (room(a) != room(b)) return room(a) > room(b);
  return room(a) == 2 ? a.seconds < b.seconds : a.memory_bytes < b.memory_bytes;
}

// The bytes that a device of `devices` has after the Run if everything is cut that may be.
double KeptBytesOn(int64_t devices, const Mesh& mesh, const UOp* sink,
                   absl::Span<const Layout> params, const ShardOptions& options) {
  const Mesh line{{devices}};
  const auto bytes_on = [&](const UOp* value, bool may_be_cut) {
    const Layout layout = may_be_cut ? StoredLayout(line, value->shape) : Layout{};
    return LocalBytes(ShardingOf(line, layout, value->shape), value);
  };
  const auto cut = static_cast<double>(options.memory.held_cut_bytes);
  double bytes = static_cast<double>(options.memory.held_bytes) - cut +
                 cut * static_cast<double>(mesh.ranks()) / static_cast<double>(devices);
  const Inputs inputs = InputsOf(sink, options);
  for (size_t slot = 0; slot < inputs.params.size(); ++slot) {
    const bool donated =
        slot < options.donated.size() ? options.donated[slot] : inputs.state[slot];
    if (donated) continue;
    bytes += bytes_on(inputs.params[slot], slot < params.size() && !params[slot].is_whole());
  }
  for (size_t i = 0; i < sink->src.size(); ++i) {
    const bool whole = i < options.results.size() && options.results[i] &&
                       options.results[i]->is_whole();
    bytes += bytes_on(sink->src[i], !whole);
  }
  return bytes;
}

absl::Status NoRoom(const Mesh& mesh, const UOp* sink, absl::Span<const Layout> params,
                    const ShardOptions& options, double needed_bytes) {
  const auto has = static_cast<double>(options.memory.bytes);
  int64_t devices = mesh.ranks() + 1;
  while (devices <= limits::kRanksMax &&
         KeptBytesOn(devices, mesh, sink, params, options) > has)
    ++devices;
  const bool cuts = options.spread == Spread::kAuto || options.spread == Spread::kFsdp;
  return absl::ResourceExhaustedError(absl::StrCat(
      "what the Run leaves takes ", static_cast<int64_t>(needed_bytes), " bytes on each of ",
      mesh.ranks(), " devices", cuts ? ", cut where it can be" : "", "; a device has ",
      options.memory.bytes, ". ",
      devices <= limits::kRanksMax
          ? absl::StrCat(cuts ? "" : "With spread \"fsdp\" ", devices, " devices would do")
          : "No number of devices would do"));
}

}  // namespace

absl::StatusOr<SpreadChoice> Choose(const Mesh& mesh, const UOp* sink, GraphNodes& nodes,
                                    absl::Span<const Layout> params, const ShardOptions& options) {
  std::optional<SpreadChoice> best;
  double least_kept = 0;
  const auto consider = [&](bool in_parts) -> absl::Status {
    for (SpreadCandidate& candidate : CandidatesOf(mesh, sink, params, options, in_parts)) {
      OB_ASSIGN_OR_RETURN(const Prediction found, Predict(mesh, sink, nodes, options, candidate));
      least_kept = best ? std::min(least_kept, found.kept_bytes) : found.kept_bytes;
      if (best && !IsBetter(found, best->prediction, options.memory)) continue;
      best = {std::move(candidate), found};
    }
    return absl::OkStatus();
  };
  OB_RETURN_IF_ERROR(consider(options.spread == Spread::kFsdp));
  const auto has = static_cast<double>(options.memory.bytes);
  if (options.spread == Spread::kAuto && mesh.ranks() > 1) {
    const bool is_cut =
        std::any_of(params.begin(), params.end(), [](const Layout& p) { return !p.is_whole(); });
    if (is_cut || (has > 0 && best->prediction.memory_bytes > has))
      OB_RETURN_IF_ERROR(consider(/*in_parts=*/true));
  }
  if (has > 0 && least_kept > has) return NoRoom(mesh, sink, params, options, least_kept);
  return *std::move(best);
}

}  // namespace outboard::shard
