#include "compiler/shard/plan.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/shard/products.h"
#include "compiler/shard/rules.h"

namespace outboard::shard {

std::vector<Sharding> FramePlan::HomesOfSources(const UOp* node) const {
  std::vector<Sharding> homes;
  const int own = node->own_sources();
  homes.reserve(own);
  for (int i = 0; i < own; ++i) homes.push_back(of(node->src[i]).home);
  return homes;
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
  const UOp* const call = frame.nodes[at];
  const UOp* const function = call->src[0];
  std::vector<Sharding> arguments;
  for (size_t i = 1; i < call->src.size(); ++i) {
    arguments.push_back(Settled(frame.of(call->src[i]).home));
    if (depth >= kNestedCallsMax) arguments.back() = WholeSharding(call->src[i]->rank());
  }
  std::vector<Sharding> results;
  const FramePlan* body = nullptr;
  if (depth < kNestedCallsMax) {
    const std::pair key(function, arguments);
    const auto known = bodies_.find(key);
    if (known != bodies_.end()) {
      body = known->second;
    } else {
      Choices* const outer = std::exchange(choices_, nullptr);
      auto planned = Plan(
          function->src[0],
          {.params = arguments, .seeds = {}, .results = {}, .tensor_axes = tensor_axes}, depth + 1);
      choices_ = outer;
      OB_RETURN_IF_ERROR(planned.status());
      body = *planned;
      bodies_.emplace(key, body);
    }
    results = body->results;
  } else {
    const UOp* value = function->src[0];
    while (value->op == Op::kCall) value = value->src[0]->src[0];
    if (value->op != Op::kTuple) {
      results.push_back(WholeSharding(call->rank()));
    } else {
      for (const UOp* source : value->src) results.push_back(WholeSharding(source->rank()));
    }
  }
  frame.bodies[at] = body;
  if (call->dtype == DType::kVoid) {
    frame.tuples[at] = std::move(results);
  } else {
    frame.plans[at] = {results[0], results[0]};
  }
  return absl::OkStatus();
}

absl::Status Planner::ForwardPass(FramePlan& frame, const PlanInputs& inputs, int depth) {
  std::vector<Sharding> wants;
  for (int i = 0; i < static_cast<int>(frame.nodes.size()); ++i) {
    const UOp* const node = frame.nodes[i];
    NodePlan& plan = frame.plans[i];
    switch (node->op) {
      case Op::kFunction:
      case Op::kSink: continue;
      case Op::kCall:
        OB_RETURN_IF_ERROR(PlanCall(frame, i, inputs.tensor_axes, depth));
        if (node->dtype == DType::kVoid) continue;
        break;
      case Op::kTuple: frame.tuples[i] = frame.HomesOfSources(node); continue;
      case Op::kGetTuple:
        plan.raw = frame.tuples[frame.place.at(node->src[0])][GetTupleOf(node).index()];
        break;
      case Op::kParam: {
        const auto slot = static_cast<size_t>(ParamOf(node).slot());
        plan.raw = slot < inputs.params.size() ? inputs.params[slot] : WholeSharding(node->rank());
        break;
      }
      case Op::kLayout: {
        OB_ASSIGN_OR_RETURN(plan.raw, OfLayout(node, frame.of(node->src[0]).home));
        break;
      }
      default: {
        const std::vector<Sharding> homes = frame.HomesOfSources(node);
        plan.raw = Forward(mesh_, node, homes);
        if (inputs.tensor_axes == 0 || node->op != Op::kMul) break;
        if (((homes[0].used() | homes[1].used()) & inputs.tensor_axes) != 0) break;
        const auto cut = WeightsCut(mesh_, node, inputs.tensor_axes);
        for (int dim = 0; cut && dim < node->rank(); ++dim)
          if (plan.raw.dims[dim].axes == 0) plan.raw.dims[dim] = cut->dims[dim];
        break;
      }
    }
    const auto seed = inputs.seeds.find(node);
    const bool seeded = seed != inputs.seeds.end();
    if (seeded && Demand(mesh_, node, seed->second, frame.HomesOfSources(node), wants))
      plan.raw = seed->second;
    plan.home = plan.raw;
    // A whole input is cut where it is read.
    if (seeded && node->op == Op::kParam && plan.raw.is_whole()) plan.home = seed->second;
    const auto choice = choices_->find(node);
    if (choice == choices_->end()) continue;
    if (choice->second.settles) {
      if (plan.raw.partial != 0) plan.home = choice->second.home;
    } else if (plan.raw.is_whole() &&
               Demand(mesh_, node, choice->second.home, frame.HomesOfSources(node), wants)) {
      plan.raw = plan.home = choice->second.home;
    }
  }
  return absl::OkStatus();
}

bool Planner::BackwardPass(FramePlan& frame, const PlanInputs& inputs) {
  bool changed = false;
  std::vector<std::vector<Sharding>> wanted(frame.nodes.size());
  std::vector<Sharding> wants;
  const auto choose = [&](const UOp* node, Sharding home, bool settles) {
    Choice& choice = (*choices_)[node];
    if (choice.home == home && choice.settles == settles && !choice.home.dims.empty()) return;
    changed = changed || !(choice.home == home) || choice.settles != settles;
    choice = {std::move(home), settles};
  };
  for (int i = static_cast<int>(frame.nodes.size()) - 1; i >= 0; --i) {
    const UOp* const node = frame.nodes[i];
    NodePlan& plan = frame.plans[i];
    const auto want = [&](const UOp* source, Sharding p) {
      wanted[frame.place.at(source)].push_back(std::move(p));
    };
    if (node->op == Op::kSink) {
      for (size_t r = 0; r < node->src.size(); ++r)
        if (r < inputs.results.size() && inputs.results[r]) {
          want(node->src[r], *inputs.results[r]);
        } else {
          want(node->src[r], Settled(frame.of(node->src[r]).home));
        }
      continue;
    }
    if (node->op == Op::kTuple || node->op == Op::kCall) {
      const int first = node->op == Op::kCall ? 1 : 0;
      for (size_t s = first; s < node->src.size(); ++s) {
        const Sharding& home = frame.of(node->src[s]).home;
        const bool sum = node->op == Op::kTuple && !AddsInF32(node->src[s]->dtype);
        want(node->src[s], sum ? home : Settled(home));
      }
    }
    if (node->dtype == DType::kVoid) continue;
    // What this node's users want, first: its own wants follow from where it then lies.
    const std::vector<Sharding>& users = wanted[i];
    const bool free = node->op != Op::kParam && node->op != Op::kLayout && !users.empty() &&
                      !inputs.seeds.contains(node);
    if (free && plan.raw.partial != 0) {
      const Sharding* whole = nullptr;
      bool same = true;
      for (const Sharding& user : users) {
        if ((user.partial & plan.raw.partial) == plan.raw.partial) continue;
        same = same && (whole == nullptr || *whole == user);
        whole = &user;
      }
      if (whole != nullptr) {
        choose(node, same && whole->partial == 0 ? *whole : Settled(plan.raw), /*settles=*/true);
        plan.home = (*choices_)[node].home;
      }
    } else if (free && plan.raw.is_whole() && !users[0].is_whole() && users[0].partial == 0) {
      bool same = true;
      for (const Sharding& user : users) same = same && user == users[0];
      if (same && Demand(mesh_, node, users[0], frame.HomesOfSources(node), wants)) {
        choose(node, users[0], /*settles=*/false);
        plan.raw = plan.home = users[0];
      }
    }
    if (node->op == Op::kLayout) {
      want(node->src[0], plan.raw);
    } else if (FlowOf(node->op) != DimFlow::kNone &&
               Demand(mesh_, node, plan.raw, frame.HomesOfSources(node), wants)) {
      for (size_t s = 0; s < wants.size(); ++s) want(node->src[s], std::move(wants[s]));
    }
  }
  return changed;
}

absl::StatusOr<const FramePlan*> Planner::Plan(const UOp* root, const PlanInputs& inputs,
                                               int depth) {
  frames_.push_back(std::make_unique<FramePlan>());
  FramePlan& frame = *frames_.back();
  frame.nodes = PostOrder(root, /*into_functions=*/false);
  const size_t count = frame.nodes.size();
  planned_nodes_ += static_cast<int64_t>(count);
  if (planned_nodes_ > limits::kFunctionWalkNodesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("FUNCTION: bodies that are called with several layouts have over ",
                     limits::kFunctionWalkNodesMax, " nodes together"));
  frame.place.reserve(count);
  for (size_t i = 0; i < count; ++i) frame.place.emplace(frame.nodes[i], static_cast<int>(i));
  frame.plans.resize(count);
  frame.tuples.resize(count);
  frame.bodies.resize(count);
  frame.params.assign(inputs.params.begin(), inputs.params.end());
  Choices choices;
  for (int round = 0; round < kPlanRoundsMax; ++round) {
    choices_ = &choices;
    OB_RETURN_IF_ERROR(ForwardPass(frame, inputs, depth));
    choices_ = &choices;
    if (!BackwardPass(frame, inputs)) break;
  }
  choices_ = &choices;
  OB_RETURN_IF_ERROR(ForwardPass(frame, inputs, depth));
  if (root->op == Op::kSink) {
    for (size_t r = 0; r < root->src.size(); ++r)
      frame.results.push_back(r < inputs.results.size() && inputs.results[r]
                                  ? *inputs.results[r]
                                  : Settled(frame.of(root->src[r]).home));
  } else if (root->op == Op::kTuple || root->dtype == DType::kVoid) {
    frame.results = frame.tuples[frame.place.at(root)];
    // A sum of small floats is f32 until it is whole, which a caller could not see.
    if (root->op == Op::kTuple)
      for (size_t r = 0; r < root->src.size(); ++r)
        if (AddsInF32(root->src[r]->dtype)) frame.results[r].partial = 0;
  } else {
    frame.results.push_back(frame.of(root).home);
    if (AddsInF32(root->dtype)) frame.results[0].partial = 0;
  }
  return &frame;
}

}  // namespace outboard::shard
