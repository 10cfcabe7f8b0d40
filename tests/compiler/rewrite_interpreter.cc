#include "tests/compiler/rewrite_interpreter.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "compiler/ir/accessors.h"
#include "compiler/rewrite/condition.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/result.h"

namespace outboard::test {
namespace {

using Kind = PatternNode::Kind;

bool IsNumber(const UOp* constant, const PatternNode& p) {
  if (p.kind == Kind::kFloatBits)
    return IsFloat(constant->dtype) && ConstantBits(constant) == p.number;
  if (IsFloat(constant->dtype))
    return ConstantBits(constant) == std::bit_cast<int64_t>(static_cast<double>(p.number));
  return constant->int_value() == WrapTo(constant->dtype, p.number) &&
         (!IsBool(constant->dtype) || p.number == 0 || p.number == 1);
}

// Calls `then` for each way in which `node` matches, until one returns true; names as they are
// bound by then.
using Then = std::function<bool(const Match&)>;

bool Try(const Pattern& pattern, int at, const UOp* node, Match match, const Then& then);

// The sources of `p` from number `i` on, in this order of the sources of `node`.
bool TrySources(const Pattern& pattern, const PatternNode& p,
                const std::vector<const UOp*>& sources, int i, const Match& match,
                const Then& then) {
  if (i == p.source_count) return then(match);
  return Try(pattern, p.source[i], sources[i], match,
             [&](const Match& next) { return TrySources(pattern, p, sources, i + 1, next, then); });
}

bool Try(const Pattern& pattern, int at, const UOp* node, Match match, const Then& then) {
  const PatternNode& p = pattern.nodes[at];
  const UOp* const constant = ConstantOf(node);
  switch (p.kind) {
    case Kind::kAny: return then(match);
    case Kind::kAnyConst: return constant != nullptr && then(match);
    case Kind::kInt:
    case Kind::kFloatBits: return constant != nullptr && IsNumber(constant, p) && then(match);
    case Kind::kName:
    case Kind::kConstName: {
      if (p.kind == Kind::kConstName && (constant == nullptr || !IsIntOrBool(constant->dtype)))
        return false;
      const UOp*& bound = match.bound[p.name];
      if (bound != nullptr && bound != node) return false;
      bound = node;
      return then(match);
    }
    default: break;
  }
  if (node->op != p.op) return false;
  if (p.source_count == 0) return then(match);
  std::vector<const UOp*> sources(node->src.begin(), node->src.end());
  if (sources.size() != static_cast<size_t>(p.source_count)) return false;
  if (TrySources(pattern, p, sources, 0, match, then)) return true;
  if (!IsCommutative(p.op) || sources.size() != 2) return false;
  std::swap(sources[0], sources[1]);
  return TrySources(pattern, p, sources, 0, match, then);
}

bool SourcesFit(const Pattern& pattern, const UOp* node) {
  const auto present = [&](Op op) {
    return std::any_of(node->src.begin(), node->src.end(),
                       [&](const UOp* source) { return MatchedOp(source) == op; });
  };
  const PatternNode& root = pattern.root();
  for (int i = 0; i < root.source_count; ++i) {
    const PatternNode& source = pattern.nodes[root.source[i]];
    if (source.kind == Kind::kAny || source.kind == Kind::kName) continue;
    if (!present(source.kind == Kind::kOp ? source.op : Op::kConst)) return false;
  }
  return true;
}

}  // namespace

Interpretation ApplyByInterpreter(Graph& graph, const std::vector<std::span<const Rule>>& tables,
                                  const UOp* node) {
  Interpretation answer;
  for (const auto& table : tables)
    for (const Rule& rule : table) {
      if (rule.match.root().op != node->op) continue;
      answer.attempts += SourcesFit(rule.match, node);
      Match match(node);
      for (size_t name = 0; name < kNamesMax; ++name)
        if (name != kOperandsName)
          match.bound[name] = nullptr;  // binding asks whether it is the first
      Try(rule.match, rule.match.size - 1, node, match, [&](const Match& found) {
        if (rule.condition.size > 0 && !Holds(rule.condition, rule.condition.size - 1, found))
          return false;
        const UOp* const result = rule.function != nullptr ? rule.function(graph, found)
                                                           : BuildResult(graph, rule.result, found);
        if (result == nullptr || result == node || result->dtype != node->dtype ||
            result->shape != node->shape)
          return false;
        answer.result = result;
        answer.fired = &rule;
        return true;
      });
      if (answer.fired != nullptr) return answer;
    }
  return answer;
}

}  // namespace outboard::test
