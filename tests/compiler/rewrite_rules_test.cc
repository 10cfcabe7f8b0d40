// Every rule keeps the value of what it matches. One test walks all tables: each rule alone, on
// expressions made to match it, exhaustively at 8 bits and at random at full width; floats by
// random bits.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rewriter.h"
#include "compiler/rewrite/rules/rules.h"
#include "compiler/rewrite/simplify.h"
#include "tests/compiler/rewrite_expressions.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;
using test::RandomExpressions;

constexpr DType kTypes[] = {DType::kI8,     DType::kU8,   DType::kBool, DType::kI32, DType::kU32,
                            DType::kI64,    DType::kU64,  DType::kF32,  DType::kF16, DType::kF64,
                            DType::kF8E4M3, DType::kBF16, DType::kI16};

// A random expression of the form of `pattern`; nullptr where the types do not allow one.
class Instance {
 public:
  Instance(Graph& graph, std::mt19937_64& random)
      : g_(graph), random_(random), expressions_(graph, random) {}

  const UOp* Make(const Pattern& pattern, DType dtype) {
    bound_.fill(nullptr);
    return At(pattern, pattern.size - 1, dtype);
  }

 private:
  const UOp* At(const Pattern& pattern, int at, DType dtype) {
    const PatternNode& p = pattern.nodes[at];
    switch (p.kind) {
      case Kind::kAny: return expressions_.Make(dtype, static_cast<int>(random_() % 4));
      case Kind::kAnyConst: return expressions_.Constant(dtype);
      case Kind::kName:
      case Kind::kConstName: {
        const UOp*& bound = bound_[p.name];
        if (bound != nullptr) return bound->dtype == dtype ? bound : nullptr;
        if (p.kind == Kind::kConstName && IsFloat(dtype)) return nullptr;
        const bool leaf = random_() % 2;
        return bound = p.kind == Kind::kConstName ? expressions_.Constant(dtype)
                       : leaf                     ? expressions_.Leaf(dtype)
                              : expressions_.Make(dtype, static_cast<int>(random_() % 4));
      }
      case Kind::kInt: return ConstOf(g_, dtype, static_cast<double>(p.number));
      case Kind::kFloatBits:
        return IsFloat(dtype) ? ConstFloat(g_, dtype, std::bit_cast<double>(p.number)) : nullptr;
      default: return Operation(pattern, p, dtype);
    }
  }

  const UOp* Operation(const Pattern& pattern, const PatternNode& p, DType dtype) {
    if (IsCompare(p.op) && !IsBool(dtype)) return nullptr;
    DType operands = dtype;
    const auto pick = [&] { return kTypes[random_() % std::size(kTypes)]; };
    if (IsCompare(p.op) || p.op == Op::kCast) operands = pick();
    if (p.op == Op::kBitcast) {
      operands = pick();
      if (IsBool(dtype) || IsBool(operands) || ByteWidth(dtype) != ByteWidth(operands))
        return nullptr;
    }
    std::vector<const UOp*> src;
    const bool whatever = p.source_count == 0;
    const int count = !whatever                                                    ? p.source_count
                      : IsUnary(p.op) || p.op == Op::kCast || p.op == Op::kBitcast ? 1
                                                                                   : 2;
    for (int i = 0; i < count; ++i) {
      DType wanted = operands;
      if (p.op == Op::kLoad && i == 0) {
        src.push_back(Place(pattern, p, dtype));
        continue;
      }
      if ((p.op == Op::kWhere && i == 0) || (p.op == Op::kLoad && i == 1)) wanted = DType::kBool;
      src.push_back(whatever ? expressions_.Make(wanted, static_cast<int>(random_() % 4))
                             : At(pattern, p.source[i], wanted));
    }
    for (const UOp* s : src)
      if (s == nullptr) return nullptr;
    auto made = g_.Make(p.op, dtype, src);
    return made.ok() ? *made : nullptr;
  }

  const UOp* Place(const Pattern& pattern, const PatternNode& load, DType dtype) {
    const UOp* const buffer =
        g_.MakeChecked(Op::kGlobal, dtype, {}, {static_cast<int64_t>(random_() % 2), 8});
    const UOp* const place =
        g_.MakeChecked(Op::kIndex, dtype, {buffer, expressions_.Leaf(DType::kI64)});
    const int8_t name = pattern.nodes[load.source[0]].name;
    if (name >= 0) bound_[name] = place;
    return place;
  }

  Graph& g_;
  std::mt19937_64& random_;
  RandomExpressions expressions_;
  std::array<const UOp*, kNamesMax> bound_;
};

class RulesTest : public testing::Test {
 protected:
  // Tries one rule alone until it has fired on `wanted` expressions or has been tried often enough.
  int Prove(const Rule& rule, int wanted, int tries) {
    const Matcher matcher({std::span<const Rule>(&rule, 1)});
    int fired = 0;
    for (int i = 0; i < tries && fired < wanted; ++i) {
      if (i % 500 == 0) graph_ = std::make_unique<Graph>();
      Instance instance(*graph_, random_);
      // 8 bits most of the time, where all values can be tried.
      const DType dtype = kTypes[random_() % (random_() % 2 ? 3 : std::size(kTypes))];
      const UOp* const before = instance.Make(rule.match, dtype);
      if (before == nullptr) continue;
      const UOp* const after = matcher.Apply(*graph_, before);
      if (after == nullptr) continue;
      ++fired;
      const std::string difference = test::Difference(before, after, 1 << 10, random_);
      EXPECT_EQ(difference, "") << rule.name << ", repeat with --gtest_random_seed=" << seed_;
      if (!difference.empty()) break;
    }
    return fired;
  }

  const uint64_t seed_ = testing::UnitTest::GetInstance()->random_seed();
  std::mt19937_64 random_{seed_};
  std::unique_ptr<Graph> graph_;
};

TEST_F(RulesTest, EveryRuleKeepsTheValue) {
  for (const auto& table :
       {rules::Value(), rules::Sum(), rules::Division(), rules::Compare(), rules::Logic()})
    for (const Rule& rule : table)
      EXPECT_GE(Prove(rule, 150, 40000), 10)
          << rule.name
          << " hardly ever fired: this proves nothing; repeat with --gtest_random_seed=" << seed_;
}

// Rules that have constants only beside one value: every constant, every value, of both 8-bit
// types.
TEST_F(RulesTest, ConstantsExhaustivelyAt8Bits) {
  using namespace pattern;
  for (const auto& table : {rules::Value(), rules::Sum(), rules::Division(), rules::Compare()})
    for (const Rule& rule : table) {
      const PatternNode& root = rule.match.root();
      if (root.source_count != 2 || root.op == Op::kFDiv) continue;
      const Matcher matcher({std::span<const Rule>(&rule, 1)});
      for (const DType dtype : {DType::kI8, DType::kU8}) {
        Graph g;
        const UOp* const leaf = Param(g, 0, dtype, {});
        for (int64_t c = IntMin(dtype); c <= IntMax(dtype); ++c) {
          const UOp* const number = ConstInt(g, dtype, c);
          for (const UOp* before : {Alu(g, root.op, leaf, number), Alu(g, root.op, number, leaf),
                                    Alu(g, root.op, Add(g, leaf, ConstInt(g, dtype, 3)), number)}) {
            const UOp* const after = matcher.Apply(g, before);
            if (after == nullptr) continue;
            ASSERT_EQ(test::Difference(before, after, 256, random_), "") << rule.name;
          }
        }
      }
    }
}

// Two constants beside a value, as nested quotients, remainders and comparisons have them.
TEST_F(RulesTest, NestedConstantsAt8Bits) {
  static constexpr int64_t kNumbers[] = {-128, -127, -64, -7, -3, -2, -1, 0,  1,   2,   3,   4,
                                         5,    6,    7,   8,  12, 16, 63, 64, 126, 127, 128, 255};
  static constexpr Op kInner[] = {Op::kAdd, Op::kMul, Op::kIDiv, Op::kMod};
  static constexpr Op kOuter[] = {Op::kAdd,   Op::kMul,   Op::kIDiv, Op::kMod,
                                  Op::kCmpLt, Op::kCmpEq, Op::kMax};
  for (const DType dtype : {DType::kI8, DType::kU8}) {
    const auto graph = std::make_unique<Graph>();
    Graph& g = *graph;
    const UOp* const whole = Param(g, 0, dtype, {});
    const UOp* const part = Cast(g, Var(g, 0, 0, 100), dtype);
    for (const UOp* leaf : {whole, part})
      for (const Op inner : kInner)
        for (const Op outer : kOuter)
          for (const int64_t c0 : kNumbers)
            for (const int64_t c1 : kNumbers) {
              const UOp* const n0 = ConstInt(g, dtype, WrapTo(dtype, c0));
              const UOp* const n1 = ConstInt(g, dtype, WrapTo(dtype, c1));
              const UOp* const before = Alu(g, outer, Alu(g, inner, leaf, n0), n1);
              ASSERT_EQ(test::Difference(before, Simplify(g, before), 256, random_), "");
            }
  }
}

// Every pair of bounds on one value, joined.
TEST_F(RulesTest, PairsOfBounds) {
  Graph g;
  const UOp* const leaf = Cast(g, Var(g, 0, -4, 4), DType::kI8);
  std::vector<const UOp*> bounds;
  for (int64_t c = -6; c <= 6; ++c) {
    const UOp* const number = ConstInt(g, DType::kI8, c);
    for (const Op op : {Op::kCmpLt, Op::kCmpEq, Op::kCmpNe})
      for (const UOp* bound : {Alu(g, op, leaf, number), Alu(g, op, number, leaf)})
        bounds.push_back(bound);
  }
  for (const UOp* a : bounds)
    for (const UOp* b : bounds)
      for (const Op op : {Op::kAnd, Op::kOr, Op::kXor, Op::kCmpEq, Op::kCmpNe, Op::kCmpLt}) {
        const UOp* const before = Alu(g, op, a, b);
        ASSERT_EQ(test::Difference(before, Simplify(g, before), 256, random_), "");
      }
}

class WholeTest : public RulesTest {
 protected:
  void Check(Graph& g, const UOp* before, int64_t lanes) {
    RewriteStats stats;
    const UOp* const after = Simplify(g, before, &stats);
    ASSERT_FALSE(stats.stopped) << ExpressionToString(before)
                                << " repeat with --gtest_random_seed=" << seed_;
    ASSERT_EQ(test::Difference(before, after, lanes, random_), "")
        << "repeat with --gtest_random_seed=" << seed_;
    const UOp* const again = Simplify(g, after);
    ASSERT_EQ(again, after) << ExpressionToString(before) << "\n"
                            << ExpressionToString(after) << "\n"
                            << ExpressionToString(again)
                            << " repeat with --gtest_random_seed=" << seed_;
  }
};

TEST_F(WholeTest, RandomExpressionsKeepTheirValue) {
  for (int round = 0; round < 200; ++round) {
    Graph g;
    RandomExpressions expressions(g, random_);
    for (int i = 0; i < 40; ++i)
      Check(g,
            expressions.Make(kTypes[random_() % std::size(kTypes)],
                             1 + static_cast<int>(random_() % 5)),
            300);
    if (HasFatalFailure()) return;
  }
}

TEST_F(WholeTest, RandomIndicesKeepTheirValueOverTheWholeDomain) {
  for (int round = 0; round < 200; ++round) {
    Graph g;
    RandomExpressions expressions(g, random_);
    for (int i = 0; i < 20; ++i) {
      const UOp* const index = expressions.Index(1 + static_cast<int>(random_() % 5));
      Check(g, index, 5000);
      Check(g, Alu(g, Op::kCmpLt, index, expressions.Index(2)), 5000);
      Check(g,
            Alu(g, Op::kCmpEq, Cast(g, index, DType::kI32),
                Cast(g, expressions.Index(2), DType::kI32)),
            5000);
    }
    if (HasFatalFailure()) return;
  }
}

// The same expressions in a Graph that has seen other things first.
TEST_F(WholeTest, ResultsDoNotDependOnHistory) {
  for (int round = 0; round < 100; ++round) {
    const uint64_t seed = random_();
    const auto texts = [&](bool history) {
      Graph g;
      std::mt19937_64 random(seed + 1);
      if (history)
        for (int i = 0; i < 20; ++i) Simplify(g, RandomExpressions(g, random).Index(3));
      random.seed(seed);
      RandomExpressions expressions(g, random);
      std::vector<std::string> out;
      for (int i = 0; i < 10; ++i) {
        out.push_back(GraphToString(Simplify(g, expressions.Index(4))));
        out.push_back(GraphToString(Simplify(g, expressions.Make(DType::kI32, 4))));
      }
      return out;
    };
    ASSERT_EQ(texts(false), texts(true)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace outboard
