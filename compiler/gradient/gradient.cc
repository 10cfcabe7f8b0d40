#include "compiler/gradient/gradient.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/gradient/gradient_rules.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"

namespace outboard {
namespace {

using gradient::Composite;
using gradient::CompositeOf;
using gradient::Rule;
using gradient::RuleOf;
using gradient::Step;

bool IsTuple(const UOp* node) {
  return node->op == Op::kTuple || (node->op == Op::kCall && node->dtype == DType::kVoid);
}

// The values that a node stands for: the members of a tuple, found through calls, or the node
// itself.
Sources ValuesOf(const UOp* const& node) {
  const UOp* tuple = node;
  while (tuple->op == Op::kCall) tuple = tuple->src[0]->src[0];
  return tuple->op == Op::kTuple ? tuple->src : Sources(&node, 1);
}

// A gradient function is determined by what it is asked for.
struct FunctionKey {
  const UOp* function = nullptr;
  std::vector<int64_t> arguments;  // those that want a gradient, ascending
  std::vector<int64_t> results;    // those that have one, ascending

  friend bool operator==(const FunctionKey&, const FunctionKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const FunctionKey& key) {
    return H::combine(std::move(h), key.function, key.arguments, key.results);
  }
};

struct GradientFunction {
  const UOp* function = nullptr;  // nullptr: no result depends on any of the arguments
  std::vector<int64_t> members;   // for each of key.arguments its place in the TUPLE, or -1
};

// One walk from results back to `wrt`, through the user's graph or through the body of one
// FUNCTION.
struct Walk {
  FunctionKey key;  // of the function whose body this is; empty for the user's graph
  std::vector<const UOp*> wrt;
  absl::flat_hash_set<const UOp*> ends;     // the same
  std::vector<const UOp*> order;            // PostOrder of the root
  size_t left = 0;                          // nodes of `order` not yet walked, from the back
  absl::flat_hash_set<const UOp*> on_path;  // depends on one of `wrt`
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>>
      gradients;  // of each of ValuesOf(node), nullptr: none

  Walk(const UOp* root, std::vector<const UOp*> with_respect_to) : wrt(std::move(with_respect_to)) {
    order = PostOrder(root, /*into_functions=*/false);
    left = order.size();
    ends.insert(wrt.begin(), wrt.end());
    for (const UOp* node : order) {
      const bool carries = IsFloat(node->dtype) || IsTuple(node);
      if (carries && (ends.contains(node) || DependsOnPath(node))) on_path.insert(node);
    }
  }

  bool DependsOnPath(const UOp* node) const {
    if (node->op == Op::kAssign) return on_path.contains(node->src[1]);
    if (RuleOf(node->op) == nullptr && !IsTuple(node) && node->op != Op::kCall &&
        node->op != Op::kGetTuple)
      return false;
    return std::any_of(node->src.begin(), node->src.end(),
                       [&](const UOp* s) { return on_path.contains(s); });
  }

  // Whether the gradient of one of `nodes` is asked for.
  bool EndsAtAny(absl::Span<const UOp* const> nodes) const {
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const UOp* node) { return ends.contains(node); });
  }

  const UOp* GradientOf(const UOp* node) const {
    const auto found = gradients.find(node);
    return found == gradients.end() ? nullptr : found->second[0];
  }
};

class Differentiator {
 public:
  explicit Differentiator(Graph& g) : g_(g) {}

  // Runs `first` to its end. A CALL whose gradient function does not exist yet puts a walk over its
  // body on top; a stack of our own, since a client decides how deep functions nest.
  absl::Status Run(Walk& first) {
    std::vector<std::unique_ptr<Walk>> inner;
    while (first.left > 0 || !inner.empty()) {
      Walk& walk = inner.empty() ? first : *inner.back();
      if (walk.left == 0) {
        OB_RETURN_IF_ERROR(FinishFunction(walk));
        inner.pop_back();
        continue;
      }
      if (g_.node_count() + gradient::kNodesPerStepMax > limits::kGraphNodesMax)
        return absl::ResourceExhaustedError(
            absl::StrCat("Gradient: the graph has ", g_.node_count(),
                         " nodes, too near the limit of ", limits::kGraphNodesMax));
      const UOp* const node = walk.order[walk.left - 1];
      if (node->op == Op::kCall && walk.gradients.contains(node)) {
        const FunctionKey key = KeyOf(walk, node);
        if (const auto known = functions_.find(key); known == functions_.end()) {
          OB_ASSIGN_OR_RETURN(std::unique_ptr<Walk> body, WalkOfBody(key));
          inner.push_back(std::move(body));
          continue;
        } else {
          OB_RETURN_IF_ERROR(CallStep(walk, node, key, known->second));
        }
      } else {
        OB_RETURN_IF_ERROR(NodeStep(walk, node));
      }
      --walk.left;
    }
    return absl::OkStatus();
  }

  // Adds `gradient` to what value `i` of `node` has so far.
  absl::Status Give(Walk& walk, const UOp* node, int64_t i, const UOp* gradient) {
    if (gradient == nullptr || !walk.on_path.contains(node)) return absl::OkStatus();
    const Sources values = ValuesOf(node);
    if (gradient->dtype != values[i]->dtype || gradient->shape != values[i]->shape)
      return absl::UnimplementedError(
          absl::StrCat("Gradient: the shape ", ShapeToString(gradient->shape),
                       " cannot be shown to equal that of ", NodeToString(values[i])));
    std::vector<const UOp*>& sums = walk.gradients[node];
    sums.resize(values.size(), nullptr);
    sums[i] = sums[i] == nullptr ? gradient : Add(g_, sums[i], gradient);
    return absl::OkStatus();
  }

 private:
  absl::Status NodeStep(Walk& walk, const UOp* node) {
    const auto found = walk.gradients.find(node);
    if (found == walk.gradients.end()) return absl::OkStatus();
    const std::vector<const UOp*> dy = found->second;  // a copy: Give may move the map's entries
    if (node->op == Op::kTuple) {
      for (size_t i = 0; i < dy.size(); ++i) OB_RETURN_IF_ERROR(Give(walk, node->src[i], 0, dy[i]));
      return absl::OkStatus();
    }
    if (node->op == Op::kGetTuple) return Give(walk, node->src[0], GetTupleOf(node).index(), dy[0]);
    if (const std::optional<Composite> whole = CompositeOf(node);
        whole && !walk.EndsAtAny(whole->inner))
      return CompositeStep(walk, *whole, dy[0]);
    const Rule rule = RuleOf(node->op);
    if (rule == nullptr) return absl::OkStatus();
    Step step{g_, node, dy[0], {}, {}};
    const int sources = node->own_sources();
    bool any = false;
    for (int i = 0; i < sources; ++i) {
      step.needs.push_back(walk.on_path.contains(node->src[i]));
      step.gives.push_back(nullptr);
      any |= step.needs[i];
    }
    if (!any) return absl::OkStatus();  // one of `wrt` with nothing of interest beneath it
    OB_RETURN_IF_ERROR(rule(step));
    for (int i = 0; i < sources; ++i)
      OB_RETURN_IF_ERROR(Give(walk, node->src[i], 0, step.gives[i]));
    return absl::OkStatus();
  }

  absl::Status CompositeStep(Walk& walk, const Composite& whole, const UOp* dy) {
    Step step{g_, whole.node, dy, {}, {}};
    for (const UOp* argument : whole.arguments)
      step.needs.push_back(walk.on_path.contains(argument));
    step.gives.resize(whole.arguments.size(), nullptr);
    OB_RETURN_IF_ERROR(whole.rule(step, whole));
    for (size_t i = 0; i < whole.arguments.size(); ++i)
      OB_RETURN_IF_ERROR(Give(walk, whole.arguments[i], 0, step.gives[i]));
    return absl::OkStatus();
  }

  static FunctionKey KeyOf(const Walk& walk, const UOp* call) {
    FunctionKey key{call->src[0], {}, {}};
    for (size_t i = 1; i < call->src.size(); ++i)
      if (walk.on_path.contains(call->src[i])) key.arguments.push_back(static_cast<int64_t>(i) - 1);
    const std::vector<const UOp*>& dy = walk.gradients.at(call);
    for (size_t i = 0; i < dy.size(); ++i)
      if (dy[i] != nullptr) key.results.push_back(static_cast<int64_t>(i));
    return key;
  }

  // The gradients of the results are PARAMs after those of the function.
  absl::StatusOr<std::unique_ptr<Walk>> WalkOfBody(const FunctionKey& key) {
    const UOp* const body = key.function->src[0];
    std::vector<const UOp*> wrt;
    for (const int64_t i : key.arguments) wrt.push_back(key.function->src[i + 1]);
    auto walk = std::make_unique<Walk>(body, std::move(wrt));
    walk->key = key;
    OB_ASSIGN_OR_RETURN(const std::vector<const UOp*> given, ResultGradients(key));
    for (size_t i = 0; i < given.size(); ++i)
      OB_RETURN_IF_ERROR(Give(*walk, body, key.results[i], given[i]));
    return walk;
  }

  absl::StatusOr<std::vector<const UOp*>> ResultGradients(const FunctionKey& key) {
    const Sources values = ValuesOf(key.function->src[0]);
    std::vector<const UOp*> given;
    for (const int64_t i : key.results) {
      std::vector<int64_t> arg = {
          static_cast<int64_t>(key.function->src.size() - 1 + given.size())};
      std::vector<const UOp*> src;
      AppendDims(values[i]->shape, arg, src);
      OB_ASSIGN_OR_RETURN(const UOp* param, g_.Make(Op::kParam, values[i]->dtype, src, arg));
      given.push_back(param);
    }
    return given;
  }

  absl::Status FinishFunction(const Walk& walk) {
    GradientFunction made;
    std::vector<const UOp*> members;
    for (const UOp* param : walk.wrt) {
      const UOp* const gradient = walk.GradientOf(param);
      made.members.push_back(gradient == nullptr ? -1 : static_cast<int64_t>(members.size()));
      if (gradient != nullptr) members.push_back(gradient);
    }
    if (!members.empty()) {
      OB_ASSIGN_OR_RETURN(const UOp* tuple, g_.Make(Op::kTuple, DType::kVoid, members));
      std::vector<const UOp*> src = {tuple};
      src.insert(src.end(), walk.key.function->src.begin() + 1, walk.key.function->src.end());
      OB_ASSIGN_OR_RETURN(const std::vector<const UOp*> given, ResultGradients(walk.key));
      src.insert(src.end(), given.begin(), given.end());
      OB_ASSIGN_OR_RETURN(made.function, g_.Make(Op::kFunction, DType::kVoid, src));
    }
    functions_.emplace(walk.key, std::move(made));
    return absl::OkStatus();
  }

  absl::Status CallStep(Walk& walk, const UOp* call, const FunctionKey& key,
                        const GradientFunction& function) {
    if (function.function == nullptr) return absl::OkStatus();
    const std::vector<const UOp*> dy = walk.gradients.at(call);
    std::vector<const UOp*> src = {function.function};
    src.insert(src.end(), call->src.begin() + 1, call->src.end());
    for (const int64_t i : key.results) src.push_back(dy[i]);
    OB_ASSIGN_OR_RETURN(const UOp* result, g_.Make(Op::kCall, DType::kVoid, src));
    for (size_t i = 0; i < key.arguments.size(); ++i) {
      if (function.members[i] < 0) continue;
      OB_ASSIGN_OR_RETURN(const UOp* member,
                          g_.Make(Op::kGetTuple, DType::kVoid, {result}, {function.members[i]}));
      OB_RETURN_IF_ERROR(Give(walk, call->src[key.arguments[i] + 1], 0, member));
    }
    return absl::OkStatus();
  }

  Graph& g_;
  absl::flat_hash_map<FunctionKey, GradientFunction> functions_;
};

absl::Status CheckInput(const UOp* y, const UOp* dy, absl::Span<const UOp* const> wrt) {
  const auto invalid = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("Gradient: ", parts...));
  };
  if (!IsFloat(y->dtype)) return invalid("of ", NodeToString(y), ", which is no float");
  if (dy == nullptr) {
    for (const Dim& dim : y->shape)
      if (dim != Dim(1))
        return invalid("of ", NodeToString(y), ", which has more than one element, without a dy");
  } else if (dy->dtype != y->dtype || dy->shape != y->shape) {
    return invalid("dy is ", NodeToString(dy), ", for ", NodeToString(y));
  }
  for (const UOp* node : wrt)
    if (!IsFloat(node->dtype))
      return invalid("with respect to ", NodeToString(node), ", which is no float");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<const UOp*>> Gradient(Graph& g, const UOp* y, const UOp* dy,
                                                 absl::Span<const UOp* const> wrt) {
  OB_RETURN_IF_ERROR(CheckInput(y, dy, wrt));
  if (dy == nullptr) dy = Full(g, ConstOf(g, y->dtype, 1), y->shape);
  Walk walk(y, {wrt.begin(), wrt.end()});
  Differentiator differentiator(g);
  OB_RETURN_IF_ERROR(differentiator.Give(walk, y, 0, dy));
  OB_RETURN_IF_ERROR(differentiator.Run(walk));
  std::vector<const UOp*> gradients;
  for (const UOp* node : wrt) {
    const UOp* const gradient = walk.GradientOf(node);
    gradients.push_back(gradient != nullptr ? gradient
                                            : Full(g, ConstOf(g, node->dtype, 0), node->shape));
  }
  return gradients;
}

}  // namespace outboard
