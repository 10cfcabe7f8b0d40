// The language that rewrite rules are written in: constexpr data with the look of algebra.
//
//   inline constexpr Rule kRules[] = {
//       // name         matches           becomes             when
//       {"add-zero",    x + 0,            x,                  is_int(x)},
//       {"div-of-div",  (x / c0) / c1,    x / fold(c0 * c1),  c0 > 0 && c1 > 0 && fits(c0 * c1)},
//       {"sum",         any + any,        CanonicalSum},      // more than a line: a named function
//   };
//
// A pattern is a small array of nodes. In a match
//   x y z w      stand for any node, and for the same one wherever they are repeated;
//   c0 c1 c2     for a constant of an integer type or bool, also one that is broadcast to a shape;
//   any          for anything, constant for any constant, of floats too;
//   a number     for that constant, of whatever type;
//   operators    for the operation, the operands of a commutative one in either order.
// A condition may also test the type of `operands`: the sources of the root's operation. In a
// result, a number is a constant of the result's type and shape, and fold(e) is the value of e as a
// constant, in wrapping arithmetic of that type. A condition is evaluated on constants, in exact
// integers, with the predicates below. A rule whose result or condition uses a name that its match
// does not bind does not compile.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "compiler/ir/uop.h"

namespace outboard {

inline constexpr int kPatternNodesMax = 40;
inline constexpr int kNamesMax = 8;
inline constexpr int kOperandsName = 7;

struct PatternNode {
  enum class Kind : uint8_t {
    kNothing,
    kAny,        // matches anything, binds nothing
    kAnyConst,   // any constant, binds nothing
    kName,       // binds any node
    kConstName,  // binds a constant of an integer type or bool
    kInt,        // a number: the constant of this value, integer or float
    kFloatBits,  // the float constant of these bits
    kOp,         // an operation over sources
    kFold,       // results: its source evaluated to a constant
    // From here: in conditions only.
    kIsInt,
    kIsSigned,
    kIsBool,
    kIsFloat,
    kIsScalar,
    kFits,         // the source, computed in exact integers over bounds, stays within its type
    kDivides,      // the first is not 0 and divides the second
    kNotNegative,  // by its bounds
    kLow,
    kHigh,  // vmin, vmax as numbers
    kBoth,
    kEither,
    kNot,
  };
  Kind kind = Kind::kNothing;
  Op op = Op::kConst;
  int8_t name = -1;
  int8_t source_count = 0;
  std::array<int8_t, 3> source = {};
  int64_t number = 0;
};

// A pattern in post-order: its root is the last node. Operations have up to three sources.
struct Pattern {
  std::array<PatternNode, kPatternNodesMax> nodes{};
  int8_t size = 0;

  constexpr Pattern() = default;
  constexpr Pattern(int value) {  // NOLINT: x + 0
    Append({.kind = PatternNode::Kind::kInt, .number = value});
  }
  constexpr Pattern(double value) {  // NOLINT: x + -0.0
    Append({.kind = PatternNode::Kind::kFloatBits, .number = std::bit_cast<int64_t>(value)});
  }
  constexpr const PatternNode& root() const { return nodes[size - 1]; }
  constexpr void Append(const PatternNode& node);
};

namespace internal {
// Never defined: a constant expression that reaches one does not compile, and the error shows its
// name.
void a_pattern_has_too_many_nodes();
void the_match_of_a_rule_must_start_with_an_operation();
void the_result_uses_a_name_that_the_match_does_not_bind();
void the_condition_uses_a_name_that_the_match_does_not_bind();

constexpr Pattern Named(PatternNode::Kind kind, int8_t name) {
  Pattern p;
  p.Append({.kind = kind, .name = name});
  return p;
}

constexpr uint32_t NamesOf(const Pattern& p) {
  uint32_t names = 0;
  for (int i = 0; i < p.size; ++i)
    if (p.nodes[i].name >= 0) names |= 1u << p.nodes[i].name;
  return names;
}

constexpr Pattern Join(PatternNode root, std::initializer_list<Pattern> sources) {
  Pattern p;
  for (const Pattern& source : sources) {
    const int8_t base = p.size;
    for (int i = 0; i < source.size; ++i) {
      PatternNode node = source.nodes[i];
      for (int s = 0; s < node.source_count; ++s)
        node.source[s] = static_cast<int8_t>(node.source[s] + base);
      p.Append(node);
    }
    root.source[root.source_count++] = static_cast<int8_t>(p.size - 1);
  }
  p.Append(root);
  return p;
}

constexpr Pattern OpOf(Op op, std::initializer_list<Pattern> sources) {
  return Join({.kind = PatternNode::Kind::kOp, .op = op}, sources);
}
constexpr Pattern KindOf(PatternNode::Kind kind, std::initializer_list<Pattern> sources) {
  return Join({.kind = kind}, sources);
}
}  // namespace internal

constexpr void Pattern::Append(const PatternNode& node) {
  if (size == kPatternNodesMax) internal::a_pattern_has_too_many_nodes();
  nodes[size++] = node;
}

// The names for writing rules, for files with `using namespace outboard::pattern`.
namespace pattern {

using Kind = PatternNode::Kind;
using internal::KindOf;
using internal::OpOf;

inline constexpr Pattern x = internal::Named(Kind::kName, 0), y = internal::Named(Kind::kName, 1),
                         z = internal::Named(Kind::kName, 2), w = internal::Named(Kind::kName, 3);
inline constexpr Pattern c0 = internal::Named(Kind::kConstName, 4),
                         c1 = internal::Named(Kind::kConstName, 5),
                         c2 = internal::Named(Kind::kConstName, 6);
inline constexpr Pattern operands = internal::Named(Kind::kName, kOperandsName);
inline constexpr Pattern any = internal::Named(Kind::kAny, -1);
inline constexpr Pattern constant = internal::Named(Kind::kAnyConst, -1);

constexpr Pattern operator-(const Pattern& a) { return OpOf(Op::kNeg, {a}); }
constexpr Pattern operator+(const Pattern& a, const Pattern& b) { return OpOf(Op::kAdd, {a, b}); }
// In conditions and fold only.
constexpr Pattern operator-(const Pattern& a, const Pattern& b) { return a + -b; }
constexpr Pattern operator*(const Pattern& a, const Pattern& b) { return OpOf(Op::kMul, {a, b}); }
constexpr Pattern operator/(const Pattern& a, const Pattern& b) { return OpOf(Op::kIDiv, {a, b}); }
constexpr Pattern operator%(const Pattern& a, const Pattern& b) { return OpOf(Op::kMod, {a, b}); }
constexpr Pattern operator&(const Pattern& a, const Pattern& b) { return OpOf(Op::kAnd, {a, b}); }
constexpr Pattern operator|(const Pattern& a, const Pattern& b) { return OpOf(Op::kOr, {a, b}); }
constexpr Pattern operator^(const Pattern& a, const Pattern& b) { return OpOf(Op::kXor, {a, b}); }
constexpr Pattern operator<<(const Pattern& a, const Pattern& b) { return OpOf(Op::kShl, {a, b}); }
constexpr Pattern operator>>(const Pattern& a, const Pattern& b) { return OpOf(Op::kShr, {a, b}); }
constexpr Pattern operator<(const Pattern& a, const Pattern& b) { return OpOf(Op::kCmpLt, {a, b}); }
constexpr Pattern operator>(const Pattern& a, const Pattern& b) { return b < a; }
constexpr Pattern operator==(const Pattern& a, const Pattern& b) {
  return OpOf(Op::kCmpEq, {a, b});
}
constexpr Pattern operator!=(const Pattern& a, const Pattern& b) {
  return OpOf(Op::kCmpNe, {a, b});
}
constexpr Pattern max(const Pattern& a, const Pattern& b) { return OpOf(Op::kMax, {a, b}); }
constexpr Pattern fdiv(const Pattern& a, const Pattern& b) { return OpOf(Op::kFDiv, {a, b}); }
constexpr Pattern where(const Pattern& c, const Pattern& a, const Pattern& b) {
  return OpOf(Op::kWhere, {c, a, b});
}
constexpr Pattern unary(Op op, const Pattern& a) { return OpOf(op, {a}); }
// In a result: to the root's type.
constexpr Pattern cast(const Pattern& a) { return unary(Op::kCast, a); }
constexpr Pattern bitcast(const Pattern& a) { return unary(Op::kBitcast, a); }
constexpr Pattern sqrt(const Pattern& a) { return unary(Op::kSqrt, a); }
constexpr Pattern trunc(const Pattern& a) { return unary(Op::kTrunc, a); }
constexpr Pattern contiguous(const Pattern& a) { return unary(Op::kContiguous, a); }
constexpr Pattern load(const Pattern& place) { return OpOf(Op::kLoad, {place}); }
constexpr Pattern load(const Pattern& place, const Pattern& gate, const Pattern& otherwise) {
  return OpOf(Op::kLoad, {place, gate, otherwise});
}
// A node of this operation with any sources; the rule's function inspects them.
constexpr Pattern node(Op op) { return OpOf(op, {}); }

constexpr Pattern lit(int value) { return Pattern(value); }
constexpr Pattern fold(const Pattern& e) { return KindOf(Kind::kFold, {e}); }

constexpr Pattern is_int(const Pattern& e) { return KindOf(Kind::kIsInt, {e}); }
constexpr Pattern is_signed(const Pattern& e) { return KindOf(Kind::kIsSigned, {e}); }
constexpr Pattern is_bool(const Pattern& e) { return KindOf(Kind::kIsBool, {e}); }
constexpr Pattern is_float(const Pattern& e) { return KindOf(Kind::kIsFloat, {e}); }
constexpr Pattern is_scalar(const Pattern& e) { return KindOf(Kind::kIsScalar, {e}); }
constexpr Pattern fits(const Pattern& e) { return KindOf(Kind::kFits, {e}); }
constexpr Pattern divides(const Pattern& d, const Pattern& e) {
  return KindOf(Kind::kDivides, {d, e});
}
constexpr Pattern not_negative(const Pattern& e) { return KindOf(Kind::kNotNegative, {e}); }
constexpr Pattern low(const Pattern& e) { return KindOf(Kind::kLow, {e}); }
constexpr Pattern high(const Pattern& e) { return KindOf(Kind::kHigh, {e}); }
constexpr Pattern operator&&(const Pattern& a, const Pattern& b) {
  return KindOf(Kind::kBoth, {a, b});
}
constexpr Pattern operator||(const Pattern& a, const Pattern& b) {
  return KindOf(Kind::kEither, {a, b});
}
constexpr Pattern operator!(const Pattern& a) { return KindOf(Kind::kNot, {a}); }

}  // namespace pattern

// A node that a rule matched, and the nodes bound to the names. Only names that occur in the match
// are set.
struct Match {
  const UOp* root;
  std::array<const UOp*, kNamesMax> bound;

  // Binds kOperandsName to the last source of `node`, whose type is that of the operands.
  explicit Match(const UOp* node) : root(node) {
    bound[kOperandsName] = node->src.empty() ? node : node->src.back();
  }

  const UOp* operator[](const Pattern& name) const { return bound[name.root().name]; }
};

// Returns the replacement of the root: of the same type and shape, and equal to it for every input.
// nullptr or the root itself: the rule does not apply.
using RuleFunction = const UOp* (*)(Graph&, const Match&);

struct Rule {
  std::string_view name;
  Pattern match, result, condition;
  RuleFunction function = nullptr;

  consteval Rule(std::string_view n, const Pattern& m, const Pattern& r, const Pattern& when = {})
      : name(n), match(m), result(r), condition(when) {
    Check();
    if (internal::NamesOf(result) & ~internal::NamesOf(match))
      internal::the_result_uses_a_name_that_the_match_does_not_bind();
  }
  consteval Rule(std::string_view n, const Pattern& m, RuleFunction f, const Pattern& when = {})
      : name(n), match(m), condition(when), function(f) {
    Check();
  }

 private:
  consteval void Check() const {
    if (match.root().kind != PatternNode::Kind::kOp)
      internal::the_match_of_a_rule_must_start_with_an_operation();
    if (internal::NamesOf(condition) & ~(internal::NamesOf(match) | 1u << kOperandsName))
      internal::the_condition_uses_a_name_that_the_match_does_not_bind();
  }
};

}  // namespace outboard
