#include "compiler/rewrite/matcher.h"

#include <algorithm>
#include <bit>

#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/rewrite/fold.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;
using Wide = __int128;

constexpr int kVariantsMax = 16;

bool IsPureNumber(const UOp* constant, const PatternNode& p) {
  if (p.kind == Kind::kFloatBits) return IsFloat(constant->dtype) && constant->arg[0] == p.number;
  if (IsFloat(constant->dtype))
    return constant->arg[0] == std::bit_cast<int64_t>(static_cast<double>(p.number));
  return constant->int_value() == WrapTo(constant->dtype, p.number) &&
         (!IsBool(constant->dtype) || p.number == 0 || p.number == 1);
}

// ---- matching -----------------------------------------------------------------------------------

bool MatchAt(const Pattern& pattern, int at, const UOp* node, Match& match) {
  const PatternNode& p = pattern.nodes[at];
  const auto bind = [&] {
    const UOp*& bound = match.bound[p.name];
    if (bound == nullptr) bound = node;
    return bound == node;
  };
  switch (p.kind) {
    case Kind::kAny: return true;
    case Kind::kAnyConst: return ConstantOf(node) != nullptr;
    case Kind::kName: return bind();
    case Kind::kConstName: {
      const UOp* const constant = ConstantOf(node);
      return constant != nullptr && IsIntOrBool(constant->dtype) && bind();
    }
    case Kind::kInt:
    case Kind::kFloatBits: {
      const UOp* const constant = ConstantOf(node);
      return constant != nullptr && IsPureNumber(constant, p);
    }
    case Kind::kOp:
      if (node->op != p.op) return false;
      if (p.source_count == 0) return true;  // whatever its sources
      if (static_cast<size_t>(p.source_count) != node->src.size()) return false;
      for (int i = 0; i < p.source_count; ++i)
        if (!MatchAt(pattern, p.source[i], node->src[i], match)) return false;
      return true;
    default: return false;
  }
}

// ---- conditions ---------------------------------------------------------------------------------

const UOp* FirstBound(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  if (p.name >= 0) return match.bound[p.name];
  for (int i = 0; i < p.source_count; ++i)
    if (const UOp* found = FirstBound(pattern, p.source[i], match)) return found;
  return nullptr;
}

// The least and greatest value of an expression in exact integers, and whether every step stayed
// within `dtype`.
struct Reach {
  Wide min = 0, max = 0;
  bool fits = true;
};

Reach ReachOf(const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  Reach r;
  if (p.name >= 0) {
    r.min = match.bound[p.name]->vmin;
    r.max = match.bound[p.name]->vmax;
  } else if (p.kind == Kind::kInt) {
    r.min = r.max = p.number;
  } else {
    const Reach a = ReachOf(pattern, p.source[0], match, dtype);
    const Reach b = p.source_count > 1 ? ReachOf(pattern, p.source[1], match, dtype) : Reach{};
    r.fits = a.fits && b.fits;
    if (!r.fits) return r;  // so that nothing below overflows: every operand is within 64 bits
    if (p.op == Op::kNeg) {
      r.min = -a.max;
      r.max = -a.min;
    } else if (p.op == Op::kAdd) {
      r.min = a.min + b.min;
      r.max = a.max + b.max;
    } else if (p.op == Op::kMul) {
      const auto [least, most] =
          std::minmax({a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max});
      r.min = least;
      r.max = most;
    } else {
      r.fits = false;
    }
  }
  r.fits = r.fits && r.min >= IntMin(dtype) && r.max <= IntMax(dtype);
  return r;
}

// The value of a condition, or of an expression over constants in one: exact for anything that fits
// 64 bits.
Wide Evaluate(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  const auto value = [&](int i) { return Evaluate(pattern, p.source[i], match); };
  const auto node = [&] { return FirstBound(pattern, p.source[0], match); };
  switch (p.kind) {
    case Kind::kConstName: return ConstantOf(match.bound[p.name])->int_value();
    case Kind::kInt: return p.number;
    case Kind::kIsInt: return IsInt(node()->dtype);
    case Kind::kIsSigned: return IsSigned(node()->dtype);
    case Kind::kIsBool: return IsBool(node()->dtype);
    case Kind::kIsFloat: return IsFloat(node()->dtype);
    case Kind::kIsScalar: return node()->shape.empty();
    case Kind::kNotNegative: return node()->vmin >= 0 && !IsFloat(node()->dtype);
    case Kind::kLow: return node()->vmin;
    case Kind::kHigh: return node()->vmax;
    case Kind::kFits: return ReachOf(pattern, p.source[0], match, node()->dtype).fits;
    case Kind::kDivides: {
      const Wide divisor = value(0);
      return divisor != 0 && value(1) % divisor == 0;
    }
    case Kind::kBoth: return value(0) && value(1);
    case Kind::kEither: return value(0) || value(1);
    case Kind::kNot: return !value(0);
    case Kind::kOp:
      switch (p.op) {
        case Op::kNeg: return -value(0);
        case Op::kAdd: return value(0) + value(1);
        case Op::kMul: return value(0) * value(1);
        case Op::kIDiv: return value(1) == 0 ? Wide{0} : value(0) / value(1);
        case Op::kMod: return value(1) == 0 ? value(0) : value(0) % value(1);
        case Op::kCmpLt: return value(0) < value(1);
        case Op::kCmpEq: return value(0) == value(1);
        case Op::kCmpNe: return value(0) != value(1);
        default: break;
      }
      [[fallthrough]];
    default: OB_CHECK(false && "this cannot stand in a condition");
  }
}

// ---- results ------------------------------------------------------------------------------------

int64_t FoldAt(const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  if (p.kind == Kind::kInt) return WrapTo(dtype, p.number);
  if (p.kind == Kind::kConstName) return ConstantOf(match.bound[p.name])->int_value();
  OB_CHECK(p.kind == Kind::kOp);
  const int64_t a = FoldAt(pattern, p.source[0], match, dtype);
  const int64_t b = p.source_count > 1 ? FoldAt(pattern, p.source[1], match, dtype) : 0;
  const auto folded = FoldInt(p.op, dtype, a, b);
  OB_CHECK(folded.has_value());
  return *folded;
}

// `dtype` is the type that the place asks for; kVoid where the place leaves it open.
const UOp* BuildAt(Graph& graph, const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  const auto constant = [&](const UOp* scalar) { return Full(graph, scalar, match.root->shape); };
  switch (p.kind) {
    case Kind::kName:
    case Kind::kConstName: return match.bound[p.name];
    case Kind::kInt: return constant(ConstOf(graph, dtype, static_cast<double>(p.number)));
    case Kind::kFloatBits:
      return constant(ConstFloat(graph, dtype, std::bit_cast<double>(p.number)));
    case Kind::kFold:
      return constant(ConstInt(graph, dtype, FoldAt(pattern, p.source[0], match, dtype)));
    default: break;
  }
  OB_CHECK(p.kind == Kind::kOp);
  // A comparison's sources have the type of what they are made of.
  DType wanted = dtype;
  if (IsCompare(p.op)) wanted = FirstBound(pattern, at, match)->dtype;
  std::array<const UOp*, 3> src;
  for (int i = 0; i < p.source_count; ++i) {
    const bool gate = (p.op == Op::kWhere && i == 0) || (p.op == Op::kLoad && i == 1);
    src[i] = BuildAt(graph, pattern, p.source[i], match, gate ? DType::kBool : wanted);
  }
  return graph.MakeChecked(p.op, p.op == Op::kCast ? dtype : DType::kVoid,
                           Sources(src.data(), p.source_count));
}

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

}  // namespace

// ---- the index ----------------------------------------------------------------------------------

Matcher::Matcher(std::initializer_list<std::span<const Rule>> tables) {
  group_of_.fill(-1);
  class_of_.fill(0);
  uint8_t classes = 1;
  for (const auto& table : tables)
    for (const Rule& rule : table)
      for (const Pattern& match : Variants(rule.match)) {
        int16_t& group = group_of_[static_cast<size_t>(match.root().op)];
        if (group < 0) {
          group = static_cast<int16_t>(groups_.size());
          groups_.emplace_back();
        }
        groups_[group].entries.push_back({match, &rule});
        for (int i = 0; i < match.root().source_count; ++i) {
          const PatternNode& source = match.nodes[match.root().source[i]];
          if (source.kind == Kind::kAny || source.kind == Kind::kName) continue;
          const Op op = source.kind == Kind::kOp ? source.op : Op::kConst;
          uint8_t& c = class_of_[static_cast<size_t>(op)];
          if (c == 0) c = classes++;
        }
      }
  for (Group& group : groups_) {
    OB_CHECK(group.entries.size() <= 64);
    for (size_t i = 0; i < 3; ++i) group.possible[i].assign(classes, 0);
    for (size_t e = 0; e < group.entries.size(); ++e) {
      const Pattern& match = group.entries[e].match;
      for (int i = 0; i < 3; ++i) {
        uint8_t only = 0;  // the one class that can match; 0: all of them
        if (i < match.root().source_count) {
          const PatternNode& source = match.nodes[match.root().source[i]];
          if (source.kind != Kind::kAny && source.kind != Kind::kName)
            only =
                class_of_[static_cast<size_t>(source.kind == Kind::kOp ? source.op : Op::kConst)];
        }
        for (uint8_t c = 0; c < classes; ++c)
          if (only == 0 || only == c) group.possible[i][c] |= uint64_t{1} << e;
      }
    }
  }
}

const UOp* Matcher::Apply(Graph& graph, const UOp* node, const Rule** fired) const {
  const int16_t index = group_of_[static_cast<size_t>(node->op)];
  if (index < 0) return nullptr;
  const Group& group = groups_[index];
  uint64_t candidates = ~uint64_t{0} >> (64 - group.entries.size());
  const size_t looked_at = std::min<size_t>(node->src.size(), 3);
  for (size_t i = 0; i < looked_at; ++i)
    candidates &= group.possible[i][class_of_[static_cast<size_t>(MatchedOp(node->src[i]))]];
  for (; candidates != 0; candidates &= candidates - 1) {
    const Entry& entry = group.entries[std::countr_zero(candidates)];
    Match match;
    match.root = node;
    const Rule& rule = *entry.rule;
    if (!MatchAt(entry.match, entry.match.size - 1, node, match)) continue;
    if (rule.condition.size > 0 && !Evaluate(rule.condition, rule.condition.size - 1, match))
      continue;
    const UOp* const result =
        rule.function != nullptr
            ? rule.function(graph, match)
            : BuildAt(graph, rule.result, rule.result.size - 1, match, node->dtype);
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

}  // namespace outboard
