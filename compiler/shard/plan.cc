#include "compiler/shard/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/sums/gather.h"
#include "compiler/shard/products.h"
#include "compiler/shard/rules.h"

namespace outboard::shard {

FrameNodes::FrameNodes(const UOp* root) : nodes(PostOrder(root, /*into_functions=*/false)) {
  place.reserve(nodes.size());
  for (int i = 0; i < count(); ++i) place.emplace(nodes[i], i);
  is_gather.resize(nodes.size());
  first_source.reserve(nodes.size() + 1);
  for (int i = 0; i < count(); ++i) {
    const UOp* const node = nodes[i];
    first_source.push_back(static_cast<int>(source_places.size()));
    is_gather[i] = node->op == Op::kReduce && IsGather(node);
    const int own = node->op == Op::kFunction ? 0 : node->own_sources();
    for (int s = 0; s < own; ++s) source_places.push_back(place.at(node->src[s]));
  }
  first_source.push_back(static_cast<int>(source_places.size()));
  parts = count() + std::ssize(source_places);
  for (const UOp* node : nodes) parts += node->rank();
  NoteStored();
  feeds_product.resize(nodes.size());
  for (int i = count() - 1; i >= 0; --i) {
    const UOp* const node = nodes[i];
    const bool is_product = node->op == Op::kCall ||
                            (node->op == Op::kReduce && !is_gather[i] &&
                             node->src[0]->op == Op::kMul);
    for (const int source : SourcesOf(i))
      if (is_product || feeds_product[i]) feeds_product[source] = true;
  }
}

void FrameNodes::NoteStored() {
  std::vector<int> users(nodes.size());
  for (const int source : source_places) ++users[source];
  is_stored.resize(nodes.size());
  for (int i = 0; i < count(); ++i) {
    if (nodes[i]->op != Op::kReduce) continue;
    is_stored[i] = !is_gather[i];
    if (!is_gather[i] || !IsStatic(nodes[i]->shape)) continue;
    const UOp* under = nodes[i]->src[0];
    while (under != nullptr && under->op != Op::kReduce)
      under = users[place.at(under)] == 1 && under->op != Op::kContiguous ? ValueUnder(under)
                                                                          : nullptr;
    if (under == nullptr) continue;
    const int sum = place.at(under);
    if (users[sum] != 1 || !is_stored[sum] || !IsStatic(under->shape) ||
        ElementCount(nodes[i]->shape) >= ElementCount(under->shape))
      continue;
    is_stored[sum] = false;
    is_stored[i] = true;
  }
}

const FrameNodes& GraphNodes::Of(const UOp* root) {
  std::unique_ptr<const FrameNodes>& frame = frames_[root];
  if (frame == nullptr) frame = std::make_unique<const FrameNodes>(root);
  return *frame;
}

SourceShardings FramePlan::HomesOfSources(int at) const {
  homes_.clear();
  for (const int source : frame->SourcesOf(at)) homes_.push_back(&plans[source].home);
  return homes_;
}

// The hint on the same value that wants a mesh axis of this one for another dimension; nullptr:
// none. The search ends at a hint that the value is whole along that axis, and at anything computed
// in between.
// Errors: RESOURCE_EXHAUSTED  over limits::kLayoutsTogetherMax hints below
static absl::StatusOr<const UOp*> ContradictedBy(const LayoutOf& layout) {
  if (layout.dim() == LayoutOf::kWhole) return nullptr;
  int hints = 0;
  for (const UOp* below = layout.node()->src[0]; below->op == Op::kLayout; below = below->src[0]) {
    if (++hints > limits::kLayoutsTogetherMax)
      return absl::ResourceExhaustedError(absl::StrCat("LAYOUT: one value has over ",
                                                       limits::kLayoutsTogetherMax,
                                                       " hints on top of each other"));
    const LayoutOf other(below);
    // An equal hint has looked at what is below itself, so that a chain of them is looked at once.
    if (other.mesh_axis() == layout.mesh_axis() && other.dim() == layout.dim()) return nullptr;
    const bool covers =
        other.mesh_axis() == layout.mesh_axis() || other.mesh_axis() == LayoutOf::kAnyAxis;
    if (other.dim() == LayoutOf::kWhole) {
      if (covers) return nullptr;
      continue;
    }
    if ((covers || layout.mesh_axis() == LayoutOf::kAnyAxis) && other.dim() != layout.dim())
      return below;
  }
  return nullptr;
}

absl::StatusOr<Sharding> Planner::OfLayout(const UOp* node, const Sharding& source) const {
  const LayoutOf layout(node);
  const auto refused = [&](absl::StatusCode code, auto... what) {
    return AboutNode(absl::Status(code, absl::StrCat(NodeToString(node), ": ", what...)), sink_,
                     node);
  };
  if (layout.mesh_axis() >= mesh_.axes())
    return refused(absl::StatusCode::kInvalidArgument, "mesh axis ", layout.mesh_axis(),
                   " is not one of the mesh ", ToString(mesh_), ", which has ", mesh_.axes());
  const AxisSet axes = layout.mesh_axis() == LayoutOf::kAnyAxis
                           ? AllAxes(mesh_)
                           : AllAxes(mesh_) & (1 << layout.mesh_axis());
  OB_ASSIGN_OR_RETURN(const UOp* const other, ContradictedBy(layout));
  if (other != nullptr)
    return refused(absl::StatusCode::kInvalidArgument, "dimension ", layout.dim(),
                   " is to be cut by a mesh axis that cuts dimension ", LayoutOf(other).dim(),
                   " of the same value already (", NodeToString(other),
                   "): a mesh axis cuts one dimension of a value");
  Sharding p = Settled(source);
  for (DimCut& cut : p.dims)
    if (cut.axes & axes) cut = {};
  p.soft &= ~axes;
  if (layout.dim() == LayoutOf::kWhole || axes == 0) return p;
  const Dim& length = node->shape[layout.dim()];
  if (!length.is_const())
    return refused(absl::StatusCode::kUnimplemented, "dimension ", layout.dim(), " of ",
                   ShapeToString(node->shape), " has a VAR and cannot be cut");
  // Other axes that cut the dimension already stay, and share it.
  const AxisSet all = axes | p.dims[layout.dim()].axes;
  p.dims[layout.dim()] = CutSharding(mesh_, node->shape, layout.dim(), all).dims[layout.dim()];
  return p;
}

absl::Status Planner::PlanCall(FramePlan& frame, int at, AxisSet tensor_axes, int depth) {
  const UOp* const call = frame.frame->nodes[at];
  const UOp* const function = call->src[0];
  std::vector<Sharding> arguments;
  for (const int source : frame.frame->SourcesOf(at).subspan(1)) {
    arguments.push_back(Settled(frame.plans[source].home));
    if (depth >= kNestedCallsMax)
      arguments.back() = WholeSharding(frame.frame->nodes[source]->rank());
  }
  TupleShardings results;
  const FramePlan* body = nullptr;
  if (depth < kNestedCallsMax) {
    std::pair key(function, std::move(arguments));
    const auto known = bodies_.find(key);
    if (known != bodies_.end()) {
      body = known->second;
    } else {
      OB_ASSIGN_OR_RETURN(
          body, Plan(function->src[0],
                     {.params = key.second, .seeds = {}, .results = {}, .tensor_axes = tensor_axes},
                     depth + 1));
      bodies_.emplace(std::move(key), body);
    }
    // Not a copy for each call of a body with thousands of values; frames_ owns them.
    results = TupleShardings(std::shared_ptr<void>(), &body->results);
  } else {
    TupleShardings& whole = whole_[function];
    if (whole == nullptr) {
      std::vector<Sharding> values;
      const UOp* value = function->src[0];
      while (value->op == Op::kCall) value = value->src[0]->src[0];
      if (value->op != Op::kTuple) {
        values.push_back(WholeSharding(call->rank()));
      } else {
        for (const UOp* source : value->src) values.push_back(WholeSharding(source->rank()));
      }
      whole = std::make_shared<const std::vector<Sharding>>(std::move(values));
    }
    results = whole;
  }
  frame.bodies[at] = body;
  if (call->dtype == DType::kVoid) {
    frame.tuples[at] = std::move(results);
  } else {
    frame.plans[at] = {(*results)[0], (*results)[0]};
  }
  return absl::OkStatus();
}

absl::Status Planner::ForwardPass(FramePlan& frame, const PlanInputs& inputs, const Seeds& seeds,
                                  const Choices& choices, int depth) {
  std::vector<Sharding> wants;
  auto seed = seeds.begin();
  for (int i = 0; i < frame.frame->count(); ++i) {
    const UOp* const node = frame.frame->nodes[i];
    NodePlan& plan = frame.plans[i];
    const bool is_seed = seed != seeds.end() && seed->first == i;
    const Sharding* const seeded = is_seed ? (seed++)->second : nullptr;
    switch (node->op) {
      case Op::kFunction:
      case Op::kSink: continue;
      case Op::kCall:
        OB_RETURN_IF_ERROR(PlanCall(frame, i, inputs.tensor_axes, depth));
        if (node->dtype == DType::kVoid) continue;
        break;
      case Op::kTuple: {
        std::vector<Sharding> values;
        for (const Sharding* home : frame.HomesOfSources(i)) values.push_back(*home);
        frame.tuples[i] = std::make_shared<const std::vector<Sharding>>(std::move(values));
        continue;
      }
      case Op::kGetTuple:
        plan.raw = (*frame.tuples.at(frame.frame->SourcesOf(i)[0]))[GetTupleOf(node).index()];
        break;
      case Op::kParam: {
        const auto slot = static_cast<size_t>(ParamOf(node).slot());
        plan.raw = slot < inputs.params.size() ? inputs.params[slot] : WholeSharding(node->rank());
        break;
      }
      case Op::kLayout: {
        OB_ASSIGN_OR_RETURN(plan.raw, OfLayout(node, *frame.HomesOfSources(i)[0]));
        break;
      }
      default: {
        const SourceShardings homes = frame.HomesOfSources(i);
        plan.raw = Forward(mesh_, node, homes);
        if (inputs.tensor_axes == 0 || node->op != Op::kMul) break;
        if (((homes[0]->used() | homes[1]->used()) & inputs.tensor_axes) != 0) break;
        const auto cut = WeightsCut(mesh_, node, inputs.tensor_axes);
        for (int dim = 0; cut && dim < node->rank(); ++dim)
          if (plan.raw.dims[dim].axes == 0) plan.raw.dims[dim] = cut->dims[dim];
        break;
      }
    }
    if (seeded != nullptr && Demand(mesh_, node, *seeded, frame.HomesOfSources(i), wants))
      plan.raw = *seeded;
    plan.home = plan.raw;
    // A whole input is cut where it is read.
    if (seeded != nullptr && node->op == Op::kParam && plan.raw.is_whole()) plan.home = *seeded;
    const Choice& choice = choices[i];
    if (!choice.is_made) continue;
    if (choice.settles) {
      if (plan.raw.partial != 0) plan.home = choice.home;
    } else if (plan.raw.is_whole() &&
               Demand(mesh_, node, choice.home, frame.HomesOfSources(i), wants)) {
      plan.raw = plan.home = choice.home;
    }
  }
  return absl::OkStatus();
}

void Planner::Wanted::Add(const Sharding& p, AxisSet raw_partial) {
  if (!is_any) {
    first = p;
  } else {
    same = same && p == first;
  }
  is_any = true;
  if (raw_partial == 0 || (p.partial & raw_partial) == raw_partial) return;
  settles_alike = settles_alike && (!settles || settled == p);
  settled = p;
  settles = true;
}

bool Planner::BackwardPass(FramePlan& frame, const PlanInputs& inputs, const Seeds& seeds,
                           Choices& choices) {
  bool changed = false;
  std::vector<Wanted>& wanted = wanted_;
  wanted.assign(frame.plans.size(), {});
  std::vector<Sharding> wants;
  const auto choose = [&](int at, Sharding home, bool settles) {
    Choice& choice = choices[at];
    if (choice.is_made && choice.home == home && choice.settles == settles) return;
    changed = true;
    choice = {std::move(home), true, settles};
  };
  const auto want = [&](int source, const Sharding& p) {
    wanted[source].Add(p, frame.plans[source].raw.partial);
  };
  auto seed = seeds.rbegin();
  for (int i = frame.frame->count() - 1; i >= 0; --i) {
    const UOp* const node = frame.frame->nodes[i];
    const absl::Span<const int> sources = frame.frame->SourcesOf(i);
    NodePlan& plan = frame.plans[i];
    const bool is_seed = seed != seeds.rend() && seed->first == i;
    if (is_seed) ++seed;
    if (node->op == Op::kSink) {
      for (size_t r = 0; r < sources.size(); ++r)
        want(sources[r], r < inputs.results.size() && inputs.results[r]
                             ? *inputs.results[r]
                             : Settled(frame.plans[sources[r]].home));
      continue;
    }
    if (node->op == Op::kTuple || node->op == Op::kCall) {
      for (const int source : sources.subspan(node->op == Op::kCall ? 1 : 0)) {
        const Sharding& home = frame.plans[source].home;
        const bool sum =
            node->op == Op::kTuple && !AddsInF32(frame.frame->nodes[source]->dtype);
        want(source, sum ? home : Settled(home));
      }
    }
    if (node->dtype == DType::kVoid) continue;
    // What this node's users want, first: its own wants follow from where it then lies.
    const Wanted& users = wanted[i];
    const bool free =
        node->op != Op::kParam && node->op != Op::kLayout && users.is_any && !is_seed;
    if (free && plan.raw.partial != 0) {
      if (users.settles) {
        const bool as_wanted = users.settles_alike && users.settled.partial == 0;
        choose(i, as_wanted ? users.settled : Settled(plan.raw), /*settles=*/true);
        plan.home = choices[i].home;
      }
    } else if (free && users.same && plan.raw.is_whole() && !users.first.is_whole() &&
               users.first.partial == 0 &&
               Demand(mesh_, node, users.first, frame.HomesOfSources(i), wants)) {
      choose(i, users.first, /*settles=*/false);
      plan.raw = plan.home = users.first;
    }
    if (node->op == Op::kLayout) {
      want(sources[0], plan.raw);
    } else if (FlowOf(node->op) != DimFlow::kNone && !sources.empty() &&
               Demand(mesh_, node, plan.raw, frame.HomesOfSources(i), wants)) {
      for (size_t s = 0; s < wants.size(); ++s) want(sources[s], wants[s]);
    }
  }
  return changed;
}

absl::StatusOr<const FramePlan*> Planner::Plan(const UOp* root, const PlanInputs& inputs,
                                               int depth) {
  frames_.push_back(std::make_unique<FramePlan>());
  FramePlan& frame = *frames_.back();
  frame.frame = &nodes_.Of(root);
  const FrameNodes& of = *frame.frame;
  planned_parts_ += of.parts;
  nodes_.compared_parts += of.parts;
  if (planned_parts_ > limits::kPlannedPartsMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        "a plan for several devices has over ", limits::kPlannedPartsMax,
        " nodes, sources and dimensions, those of FUNCTIONs again for each way in which they are "
        "called"));
  frame.plans.resize(of.nodes.size());
  frame.params.assign(inputs.params.begin(), inputs.params.end());
  Seeds seeds;
  for (const auto& [node, p] : inputs.seeds)
    if (const auto at = of.place.find(node); at != of.place.end())
      seeds.emplace_back(at->second, &p);
  std::sort(seeds.begin(), seeds.end());
  Choices choices(of.nodes.size());
  bool changed = true;
  for (int round = 0; round < kPlanRoundsMax && changed; ++round) {
    OB_RETURN_IF_ERROR(ForwardPass(frame, inputs, seeds, choices, depth));
    changed = BackwardPass(frame, inputs, seeds, choices);
  }
  // Without a change the passes leave the plan as another would.
  if (changed) OB_RETURN_IF_ERROR(ForwardPass(frame, inputs, seeds, choices, depth));
  const auto home = [&](const UOp* node) -> const Sharding& {
    return frame.plans[of.place.at(node)].home;
  };
  if (root->op == Op::kSink) {
    for (size_t r = 0; r < root->src.size(); ++r)
      frame.results.push_back(r < inputs.results.size() && inputs.results[r]
                                  ? *inputs.results[r]
                                  : Settled(home(root->src[r])));
  } else if (root->op == Op::kTuple || root->dtype == DType::kVoid) {
    frame.results = *frame.tuples.at(of.place.at(root));
    // A sum of small floats is f32 until it is whole, which a caller could not see.
    if (root->op == Op::kTuple)
      for (size_t r = 0; r < root->src.size(); ++r)
        if (AddsInF32(root->src[r]->dtype)) frame.results[r].partial = 0;
  } else {
    frame.results.push_back(home(root));
    if (AddsInF32(root->dtype)) frame.results[0].partial = 0;
  }
  return &frame;
}

}  // namespace outboard::shard
