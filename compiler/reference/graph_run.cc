#include "compiler/reference/graph_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/reference/limits.h"

namespace outboard::reference {
namespace {

WalkPlan MakePlan(const UOp* root) {
  WalkPlan plan;
  absl::flat_hash_map<const UOp*, int> place;
  std::vector<int> last_use;
  for (const UOp* node : PostOrder(root, /*into_functions=*/false)) {
    const int here = static_cast<int>(plan.steps.size());
    place[node] = here;
    last_use.push_back(here);
    WalkPlan::Step step{node, {}, {}};
    if (node->op != Op::kFunction)
      for (const UOp* source : node->src) step.sources.push_back(place.at(source));
    for (const int source : step.sources) last_use[source] = here;
    plan.steps.push_back(std::move(step));
  }
  for (size_t i = 0; i + 1 < last_use.size(); ++i)
    plan.steps[last_use[i]].done.push_back(static_cast<int>(i));
  return plan;
}

std::string DimsToString(const std::vector<int64_t>& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

absl::Status BadInput(const UOp* node, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(NodeToString(node), ": ", what));
}

}  // namespace

const WalkPlan* WalkPlans::Of(const UOp* root) {
  std::unique_ptr<WalkPlan>& plan = plans_[root];
  if (plan == nullptr) plan = std::make_unique<WalkPlan>(MakePlan(root));
  return plan.get();
}

absl::Status GraphRun::Begin(const UOp* sink) {
  for (size_t i = 0; i < bindings_.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (bindings_[i].slot == bindings_[j].slot)
        return absl::InvalidArgumentError(
            absl::StrCat("two bindings of VAR slot ", bindings_[i].slot));
  Push(sink, {});
  return absl::OkStatus();
}

absl::StatusOr<const UOp*> GraphRun::Advance() {
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.next == frame.plan->steps.size()) {
      ValueRef result = std::move(frame.values.back());
      frames_.pop_back();
      if (frames_.empty()) {
        result_ = std::move(result);
      } else {
        Finish(frames_.back(), std::move(result));
      }
      continue;
    }
    const WalkPlan::Step& step = frame.plan->steps[frame.next];
    OB_RETURN_IF_ERROR(budget_->Work(step.node, 1, 1));
    if (IsCollective(step.node->op)) return step.node;
    if (step.node->op == Op::kCall) {
      std::vector<ValueRef> arguments;
      for (size_t i = 1; i < step.sources.size(); ++i)
        arguments.push_back(frame.values[step.sources[i]]);
      Push(step.node->src[0]->src[0], std::move(arguments));
      continue;
    }
    OB_ASSIGN_OR_RETURN(ValueRef value, Evaluate(frame, step));
    Finish(frame, std::move(value));
  }
  return nullptr;
}

absl::StatusOr<ValueRef> GraphRun::CollectiveSource() {
  const Frame& frame = frames_.back();
  const ValueRef& source = frame.values[frame.plan->steps[frame.next].sources[0]];
  if (source->in_memory()) return source;
  auto kept = std::make_shared<Value>();
  kept->node = source->node;
  kept->dtype = source->dtype;
  kept->dims = source->dims;
  OB_ASSIGN_OR_RETURN(kept->kept, Keep(*source, *budget_));
  return kept;
}

absl::StatusOr<std::vector<HostTensor>> GraphRun::Results() const {
  std::vector<HostTensor> hosts;
  for (const ValueRef& source : result_->sources) {
    OB_ASSIGN_OR_RETURN(HostTensor host, ToHost(*source, *budget_));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

void GraphRun::Push(const UOp* root, std::vector<ValueRef> arguments) {
  const WalkPlan* const plan = plans_->Of(root);
  frames_.push_back({plan, std::move(arguments), std::vector<ValueRef>(plan->steps.size()), 0});
}

// Ends the step that `frame` is at.
void GraphRun::Finish(Frame& frame, ValueRef value) {
  frame.values[frame.next] = std::move(value);
  for (const int place : frame.plan->steps[frame.next].done) frame.values[place] = nullptr;
  ++frame.next;
}

absl::StatusOr<ValueRef> GraphRun::Evaluate(const Frame& frame, const WalkPlan::Step& step) {
  const UOp* const node = step.node;
  const auto source = [&](int i) -> const ValueRef& { return frame.values[step.sources[i]]; };
  if (!IsLegalAt(node->op, Level::kTensor) || node->op == Op::kBuffer || node->op == Op::kMulAcc)
    return BadInput(node, "cannot be interpreted");

  switch (node->op) {
    case Op::kFunction: return ValueRef();  // entered by CALL
    case Op::kParam:
      if (frames_.size() > 1) return frame.arguments[ParamOf(node).slot()];
      break;
    case Op::kContiguous:
    case Op::kDetach:
    case Op::kLayout: return source(0);
    case Op::kAssign: return source(1);
    case Op::kGetTuple: return source(0)->sources[GetTupleOf(node).index()];
    default: break;
  }

  auto value = std::make_shared<Value>();
  value->node = node;
  value->dtype = node->dtype;
  for (int i = 0;
       i < static_cast<int>(node->op == Op::kSink ? node->src.size() : node->own_sources()); ++i)
    value->sources.push_back(source(i));
  OB_RETURN_IF_ERROR(ReadArg(frame, step, *value));
  if (node->op == Op::kSink || node->op == Op::kTuple) return value;
  if (node->op == Op::kVar) OB_RETURN_IF_ERROR(BindVar(*value));
  OB_RETURN_IF_ERROR(SetDims(*value));
  if (node->op == Op::kParam) {
    OB_RETURN_IF_ERROR(TakeParam(*value));
    return value;
  }
  OB_RETURN_IF_ERROR(Settle(*value));
  return value;
}

// Keeps the value, or leaves it to be pulled.
absl::Status GraphRun::Settle(Value& value) {
  if (value.node->op == Op::kReduce) {
    OB_ASSIGN_OR_RETURN(value.kept, KeepReduce(value, *budget_));
  } else if (value.node->op == Op::kReshape && value.sources[0]->in_memory()) {
    value.kept = value.sources[0]->kept;
    value.host = value.sources[0]->host;
  } else {
    for (const ValueRef& source : value.sources) value.cone += source->cone;
    if (value.count() > stored_elements_ && value.cone <= reference_limits::kConeNodes)
      return absl::OkStatus();
    OB_ASSIGN_OR_RETURN(value.kept, Keep(value, *budget_));
  }
  value.sources.clear();
  value.cone = 1;
  return absl::OkStatus();
}

// node->arg with numbers for the symbolic dimensions, which are the sources after the operation's
// own.
absl::Status GraphRun::ReadArg(const Frame& frame, const WalkPlan::Step& step, Value& value) {
  const UOp* const node = step.node;
  value.numbers.assign(node->arg.begin(), node->arg.end());
  if (!InfoOf(node->op).has_dims) return absl::OkStatus();
  int next = node->own_sources();
  for (int64_t& entry : value.numbers) {
    if (entry != kSymbolicDim) continue;
    LaneBlock tile;
    const int64_t first = 0;
    Pull(*frame.values[step.sources[next++]], std::span(&first, 1), tile);
    entry = tile.i[0];
    if (entry < 0) return BadInput(node, absl::StrCat("a dimension is ", entry));
  }
  return absl::OkStatus();
}

absl::Status GraphRun::BindVar(Value& value) {
  const VarOf var(value.node);
  const auto found = std::find_if(bindings_.begin(), bindings_.end(),
                                  [&](const Binding& b) { return b.slot == var.slot(); });
  if (found == bindings_.end()) return BadInput(value.node, "has no binding");
  if (found->value < var.min() || found->value > var.max())
    return BadInput(value.node, absl::StrCat("the binding ", found->value, " is not in ", var.min(),
                                             "..", var.max()));
  value.numbers = {found->value};
  return absl::OkStatus();
}

absl::Status GraphRun::SetDims(Value& value) {
  const std::vector<int64_t>& arg = value.numbers;
  if (value.sources.empty()) {  // CONST, VAR: a scalar
    if (value.node->op == Op::kIota) value.dims = arg;
    if (value.node->op == Op::kParam) value.dims.assign(arg.begin() + 1, arg.end());
    return absl::OkStatus();
  }
  value.dims = value.sources.back()->dims;
  switch (value.node->op) {
    case Op::kReshape:
      value.dims = arg;
      if (value.count() != value.sources[0]->count())
        return BadInput(value.node, "other element counts");
      break;
    case Op::kExpand: value.dims = arg; break;
    case Op::kPermute:
      for (size_t i = 0; i < arg.size(); ++i) value.dims[i] = value.sources[0]->dims[arg[i]];
      break;
    case Op::kPad:
      for (size_t i = 0; i < value.dims.size(); ++i) value.dims[i] += arg[2 * i] + arg[2 * i + 1];
      break;
    case Op::kShrink:
      for (size_t i = 0; i < value.dims.size(); ++i) {
        if (arg[2 * i] > arg[2 * i + 1] || arg[2 * i + 1] > value.dims[i])
          return BadInput(value.node, absl::StrCat(arg[2 * i], "..", arg[2 * i + 1], " is not in ",
                                                   value.dims[i]));
        value.dims[i] = arg[2 * i + 1] - arg[2 * i];
      }
      break;
    case Op::kReduce:
      for (size_t i = 1; i < arg.size(); ++i) value.dims[arg[i]] = 1;
      break;
    default:
      for (const ValueRef& source : value.sources)
        if (source->dims != value.dims) return BadInput(value.node, "sources of several shapes");
  }
  return absl::OkStatus();
}

absl::Status GraphRun::TakeParam(Value& value) {
  const int64_t slot = ParamOf(value.node).slot();
  if (slot >= static_cast<int64_t>(params_.size()))
    return BadInput(value.node, absl::StrCat("only ", params_.size(), " tensors are given"));
  const HostTensor& given = params_[slot];
  if (given.dtype != value.dtype || given.dims != value.dims)
    return BadInput(value.node, absl::StrCat("is given ", std::string(Name(given.dtype)),
                                             DimsToString(given.dims)));
  if (static_cast<__int128>(given.bytes.size()) !=
      static_cast<__int128>(value.count()) * ByteWidth(value.dtype))
    return BadInput(value.node, absl::StrCat("is given ", given.bytes.size(), " bytes"));
  value.host = &given;
  return absl::OkStatus();
}

}  // namespace outboard::reference
