#include "compiler/rewrite/matcher.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/result.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;

constexpr int kVariantsMax = 16;
constexpr size_t kEntriesMax = 64;  // of one operation: bits of a word
constexpr uint64_t kConstants = (uint64_t{1} << kConstantClasses) - 1;
constexpr uint8_t kClassOfOthers = kConstantClasses;

// Every way to write a pattern with the operands of its commutative operations swapped. Constants
// stand on the right in canonical graphs, but not in those that come in, so they are swapped too.
std::vector<Pattern> Variants(const Pattern& pattern) {
  std::vector<Pattern> variants = {pattern};
  for (int i = 0; i < pattern.size; ++i) {
    const PatternNode& p = pattern.nodes[i];
    if (p.kind != Kind::kOp || p.source_count != 2 || !IsCommutative(p.op)) continue;
    const PatternNode &left = pattern.nodes[p.source[0]], &right = pattern.nodes[p.source[1]];
    // any + any, constant + constant, x + x: the same either way.
    if (left.kind == right.kind && left.kind != Kind::kOp && left.name == right.name) continue;
    const size_t count = variants.size();
    OB_CHECK(2 * count <= kVariantsMax);
    for (size_t v = 0; v < count; ++v) {
      variants.push_back(variants[v]);
      std::swap(variants.back().nodes[i].source[0], variants.back().nodes[i].source[1]);
    }
  }
  return variants;
}

bool AsksForConstant(const PatternNode& p) {
  return p.kind == Kind::kAnyConst || p.kind == Kind::kConstName || p.kind == Kind::kInt ||
         p.kind == Kind::kFloatBits;
}

}  // namespace

Matcher::Matcher(std::initializer_list<std::span<const Rule>> tables) {
  group_of_.fill(-1);
  class_of_.fill(kClassOfOthers);
  for (const auto& table : tables)  // classes first: entries are sets of them
    for (const Rule& rule : table)
      for (int i = 0; i < rule.match.root().source_count; ++i) {
        const PatternNode& source = rule.match.nodes[rule.match.root().source[i]];
        if (source.kind != Kind::kOp) continue;
        uint8_t& c = class_of_[static_cast<size_t>(source.op)];
        if (c == kClassOfOthers) c = static_cast<uint8_t>(classes_++);
      }
  OB_CHECK(classes_ <= kClassesMax);
  for (const auto& table : tables)
    for (const Rule& rule : table)
      for (const Pattern& match : Variants(rule.match)) AddEntry(rule, match);
}

uint64_t Matcher::ClassesOf(const PatternNode& node) const {
  if (node.kind == Kind::kOp) return uint64_t{1} << class_of_[static_cast<size_t>(node.op)];
  // Numbers wrap, so 255 and -1 are the same u8: an unusual one may be of any class.
  if ((node.kind == Kind::kInt || node.kind == Kind::kFloatBits) &&
      ClassOfNumber(node) != ConstantClass::kOther)
    return uint64_t{1} << static_cast<int>(ClassOfNumber(node));
  return AsksForConstant(node) ? kConstants : ~uint64_t{0};
}

void Matcher::AddEntry(const Rule& rule, const Pattern& match) {
  int16_t& index = group_of_[static_cast<size_t>(match.root().op)];
  if (index < 0) {
    index = static_cast<int16_t>(groups_.size());
    groups_.emplace_back();
  }
  Group& group = groups_[index];
  OB_CHECK(group.entries.size() < kEntriesMax);
  const uint64_t bit = uint64_t{1} << group.entries.size();
  const uint32_t typed = NamesOfOperandType(match);
  Entry entry{.steps = MatchSteps(match),
              .rule = &rule,
              .root_sources = match.root().source_count,
              .conditions = {},
              .is_first = group.entries.empty() || group.entries.back().rule != &rule,
              .asked_for = 0};
  PatternNodes of_types;
  for (const int8_t at : ConjunctNodes(rule.condition))
    (AsksForTypesOnly(rule.condition, at, typed) ? of_types : entry.conditions).push_back(at);
  for (int c = 0; c < kTypeClasses; ++c)
    if (std::all_of(of_types.begin(), of_types.end(),
                    [&](int8_t at) { return HoldsForTypes(rule.condition, at, c); }))
      group.by_type[c] |= bit;
  for (int i = 0; i < 3; ++i) {
    uint64_t classes = ~uint64_t{0};
    if (i < match.root().source_count) {
      const PatternNode& source = match.nodes[match.root().source[i]];
      classes = ClassesOf(source);
      if (AsksForConstant(source)) entry.asked_for |= 1;
      if (source.kind == Kind::kOp) entry.asked_for |= classes;
    }
    for (int c = 0; c < classes_; ++c)
      if (classes >> c & 1) group.by_source[i][c] |= bit;
  }
  group.entries.push_back(std::move(entry));
}

uint8_t Matcher::ClassOf(const UOp* node) const {
  if (const UOp* const constant = ConstantOf(node))
    return static_cast<uint8_t>(ClassOfConstant(constant));
  return class_of_[static_cast<size_t>(node->op)];
}

const UOp* Matcher::Apply(Graph& graph, const UOp* node, const Rule** fired) const {
  const int16_t index = group_of_[static_cast<size_t>(node->op)];
  if (index < 0) return nullptr;
  const Group& group = groups_[index];
  uint64_t candidates = group.by_type[TypeClassOf(OperandType(node), node->shape.empty())];
  const size_t looked_at = std::min<size_t>(node->src.size(), 3);
  for (size_t i = 0; i < looked_at; ++i) candidates &= group.by_source[i][ClassOf(node->src[i])];
  if (candidates == 0) return nullptr;
  Match match(node);
  for (; candidates != 0; candidates &= candidates - 1) {
    const Entry& entry = group.entries[std::countr_zero(candidates)];
    const Rule& rule = *entry.rule;
    if (entry.root_sources != 0 && static_cast<size_t>(entry.root_sources) != node->src.size())
      continue;
    if (!entry.steps.Run(node, match)) continue;
    if (!std::all_of(entry.conditions.begin(), entry.conditions.end(),
                     [&](int8_t at) { return Holds(rule.condition, at, match); }))
      continue;
    const UOp* const result = rule.function != nullptr ? rule.function(graph, match)
                                                       : BuildResult(graph, rule.result, match);
    // Equal shapes of symbolic dimensions may be spelled differently; such a result would not fit
    // in.
    if (result == nullptr || result == node || result->dtype != node->dtype ||
        result->shape != node->shape)
      continue;
    if (fired != nullptr) *fired = &rule;
    return result;
  }
  return nullptr;
}

int64_t Matcher::CountAttempts(const UOp* node, const Rule* fired) const {
  const int16_t index = group_of_[static_cast<size_t>(node->op)];
  if (index < 0) return 0;
  uint64_t present = 0;
  for (const UOp* source : node->src) {
    const uint64_t bit = uint64_t{1} << ClassOf(source);
    present |= bit & kConstants ? 1 : bit;
  }
  int64_t attempts = 0;
  for (const Entry& entry : groups_[index].entries) {
    attempts += entry.is_first && (entry.asked_for & ~present) == 0;
    if (entry.rule == fired) break;
  }
  return attempts;
}

}  // namespace outboard
