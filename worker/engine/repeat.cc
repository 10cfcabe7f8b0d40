#include "worker/engine/repeat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/uop.h"
#include "compiler/rewrite/bind.h"
#include "wire/limits.h"

namespace outboard::worker {
namespace {

using absl::InvalidArgumentError;

// `places` below `end`, each at most once.
absl::Status CheckPlaces(std::vector<int64_t> places, int64_t end, const char* what) {
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 || places[i] >= end)
      return InvalidArgumentError(absl::StrCat(what, " ", places[i], " of ", end));
    if (i > 0 && places[i] == places[i - 1])
      return InvalidArgumentError(absl::StrCat(what, " ", places[i], " twice"));
  }
  return absl::OkStatus();
}

bool ReadsVar(ShapeView shape, int64_t slot) {
  for (const Dim& dim : shape)
    if (!dim.is_const())
      for (const UOp* node : PostOrder(dim.expression()))
        if (node->op == Op::kVar && VarOf(node).slot() == slot) return true;
  return false;
}

absl::Status CheckCursor(const UOp* sink, std::span<const Binding> bindings, const Repeat& repeat) {
  const auto [slot, stride] = *repeat.cursor;
  const std::vector<const UOp*> vars = VarsOf(sink);
  const auto var = std::find_if(vars.begin(), vars.end(),
                                [&](const UOp* node) { return VarOf(node).slot() == slot; });
  const auto bound = std::find_if(bindings.begin(), bindings.end(),
                                  [&](const Binding& b) { return b.slot == slot; });
  if (var == vars.end() || bound == bindings.end())
    return InvalidArgumentError(
        absl::StrCat("the cursor is VAR ", slot, ", which the graph has not"));
  const __int128 last =
      static_cast<__int128>(bound->value) + static_cast<__int128>(stride) * (repeat.count - 1);
  const int64_t min = VarOf(*var).min(), max = VarOf(*var).max();
  if (last < min || last > max)
    return InvalidArgumentError(absl::StrCat("the cursor, VAR ", slot, ", goes from ", bound->value,
                                             " by ", stride, " in ", repeat.count,
                                             " repetitions, which leaves ", min, "..", max));
  for (const UOp* param : ParamsOf(sink))
    if (ReadsVar(param->shape, slot))
      return InvalidArgumentError(absl::StrCat("input ", ParamOf(param).slot(), " of shape ",
                                               ShapeToString(param->shape),
                                               " changes its shape with the cursor, VAR ", slot));
  std::vector<int64_t> fixed = repeat.stack;
  for (const Repeat::Carry& carry : repeat.carry) fixed.push_back(carry.output);
  for (const int64_t i : fixed)
    if (ReadsVar(sink->src[i]->shape, slot))
      return InvalidArgumentError(absl::StrCat(
          "output ", i, " of shape ", ShapeToString(sink->src[i]->shape),
          ", which is carried or stacked, changes its shape with the cursor, VAR ", slot));
  return absl::OkStatus();
}

// `status`, of repetition k.
absl::Status InRepetition(const absl::Status& status, int64_t k, int64_t count) {
  absl::Status told(status.code(), absl::StrCat("in repetition ", k + 1, " of ", count, ": ",
                                                std::string(status.message())));
  const std::optional<FailedNode> node = FailedNodeOf(status);
  return node ? AboutNode(std::move(told), *node) : told;
}

}  // namespace

std::vector<int64_t> Repeat::CarriedInputs() const {
  std::vector<int64_t> inputs;
  for (const Carry& c : carry) inputs.push_back(c.input);
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

absl::StatusOr<std::optional<Repeat>> RepeatOf(const proto::Run& run) {
  if (run.repeat() <= 1) {
    if (run.carry_size() > 0 || run.stack_size() > 0 || run.has_cursor())
      return InvalidArgumentError("a Run carries, stacks or has a cursor, and is not repeated");
    return std::nullopt;
  }
  if (run.repeat() > wire::kRepeatMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("a Run repeated ", run.repeat(), " times; limit ", wire::kRepeatMax));
  Repeat repeat;
  repeat.count = run.repeat();
  std::vector<int64_t> outputs;
  for (const proto::Carry& carry : run.carry()) {
    repeat.carry.push_back({carry.output(), carry.input()});
    if (carry.output() >= static_cast<uint32_t>(run.outputs_size()))
      return InvalidArgumentError(
          absl::StrCat("carries output ", carry.output(), " of ", run.outputs_size()));
  }
  repeat.stack.assign(run.stack().begin(), run.stack().end());
  OB_RETURN_IF_ERROR(CheckPlaces(repeat.CarriedInputs(), run.inputs_size(), "carries to input"));
  OB_RETURN_IF_ERROR(CheckPlaces(repeat.stack, run.outputs_size(), "stacks output"));
  if (run.has_cursor()) repeat.cursor = {run.cursor().slot(), run.cursor().stride()};
  return repeat;
}

absl::Status CheckRepeat(const UOp* sink, std::span<const Binding> bindings, const Repeat& repeat) {
  const std::vector<const UOp*> params = ParamsOf(sink);
  for (const Repeat::Carry& carry : repeat.carry) {
    const UOp& from = *sink->src[carry.output];
    const UOp& to = *params[carry.input];
    OB_ASSIGN_OR_RETURN(const std::vector<int64_t> left, DimsAt(from.shape, bindings));
    OB_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted, DimsAt(to.shape, bindings));
    if (from.dtype != to.dtype || left != wanted)
      return InvalidArgumentError(absl::StrCat(
          "output ", carry.output, " is ", std::string(Name(from.dtype)), ShapeToString(from.shape),
          ", input ", carry.input, ", to which it is carried, ", std::string(Name(to.dtype)),
          ShapeToString(to.shape)));
  }
  for (const int64_t i : repeat.stack)
    if (sink->src[i]->rank() >= limits::kRankMax)
      return InvalidArgumentError(absl::StrCat("output ", i, " of rank ", sink->src[i]->rank(),
                                               " is stacked; limit ", limits::kRankMax));
  return repeat.cursor ? CheckCursor(sink, bindings, repeat) : absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceArrayPtr>> ExecuteAll(Engine& engine, const UOp* sink,
                                                       std::vector<DeviceArrayPtr> inputs,
                                                       std::span<const Binding> bindings,
                                                       const Repeat& repeat,
                                                       const ExecuteOnce& execute_once,
                                                       const std::function<void()>& on_repetition) {
  // All of the memory before any of the work.
  std::vector<std::shared_ptr<DeviceArray>> stacks;
  for (const int64_t i : repeat.stack) {
    OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(sink->src[i]->shape, bindings));
    dims.insert(dims.begin(), repeat.count);
    absl::StatusOr<std::shared_ptr<DeviceArray>> stack =
        engine.NewArray(sink->src[i]->dtype, std::move(dims));
    if (!stack.ok()) return AboutNode(stack.status(), sink, sink->src[i]);
    stacks.push_back(*std::move(stack));
  }
  std::vector<bool> carried(inputs.size(), false);
  for (const Repeat::Carry& carry : repeat.carry) carried[carry.input] = true;
  std::vector<Binding> bound(bindings.begin(), bindings.end());
  std::vector<DeviceArrayPtr> outputs;
  for (int64_t k = 0; k < repeat.count; ++k) {
    std::vector<DeviceArrayPtr> now(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      now[i] = carried[i] ? std::move(inputs[i]) : inputs[i];
    outputs.clear();  // what is carried has one owner
    absl::StatusOr<std::vector<DeviceArrayPtr>> results = execute_once(std::move(now), bound);
    if (!results.ok()) return InRepetition(results.status(), k, repeat.count);
    outputs = *std::move(results);
    for (size_t s = 0; s < stacks.size(); ++s) {
      const DeviceArray& part = *outputs[repeat.stack[s]];
      OB_RETURN_IF_ERROR(engine.device().Copy(stacks[s]->address() + k * part.bytes(),
                                              part.address(), part.bytes()));
    }
    for (const Repeat::Carry& carry : repeat.carry) inputs[carry.input] = outputs[carry.output];
    if (repeat.cursor)
      for (Binding& binding : bound)
        if (binding.slot == repeat.cursor->slot) binding.value += repeat.cursor->stride;
    on_repetition();
  }
  for (size_t s = 0; s < stacks.size(); ++s) outputs[repeat.stack[s]] = std::move(stacks[s]);
  return outputs;
}

}  // namespace outboard::worker
