// The decision table answers as the interpreter of the same rules does: the same rule, the same
// result, the same number of attempts.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/matcher.h"
#include "compiler/rewrite/rules/rules.h"
#include "compiler/rewrite/simplify.h"
#include "tests/compiler/rewrite_expressions.h"
#include "tests/compiler/rewrite_interpreter.h"

namespace outboard {
namespace {

using namespace pattern;
using test::ApplyByInterpreter;
using test::RandomExpressions;

class MatcherTest : public testing::Test {
 protected:
  void Compare(Graph& g, const UOp* node) {
    const Rule* fired = nullptr;
    const UOp* const result = SimplifyMatcher().Apply(g, node, &fired);
    const test::Interpretation wanted = ApplyByInterpreter(g, tables_, node);
    const auto name = [](const Rule* rule) { return rule == nullptr ? "nothing" : rule->name; };
    ASSERT_EQ(name(fired), name(wanted.fired)) << GraphToString(node) << repeat_;
    ASSERT_EQ(result, wanted.result) << GraphToString(node) << repeat_;
    ASSERT_EQ(SimplifyMatcher().CountAttempts(node, fired), wanted.attempts)
        << GraphToString(node) << repeat_;
    if (fired != nullptr) fired_.insert(fired->name);
  }

  const std::vector<std::span<const Rule>> tables_ = {rules::Value(),   rules::Logic(),
                                                      rules::Sum(),     rules::Division(),
                                                      rules::Compare(), rules::Tensor()};
  const uint64_t seed_ = testing::UnitTest::GetInstance()->random_seed();
  const std::string repeat_ = "repeat with --gtest_random_seed=" + std::to_string(seed_);
  std::mt19937_64 random_{seed_};
  std::set<std::string_view> fired_;
};

TEST_F(MatcherTest, AnswersAsTheInterpreterDoes) {
  static constexpr DType kTypes[] = {DType::kI8,  DType::kU8,  DType::kBool, DType::kI64,
                                     DType::kU64, DType::kF32, DType::kF16,  DType::kI32};
  for (int round = 0; round < 60; ++round) {
    Graph g;
    RandomExpressions expressions(g, random_);
    for (int i = 0; i < 40; ++i) {
      const DType dtype = kTypes[random_() % std::size(kTypes)];
      const UOp* const scalar = expressions.Make(dtype, 3);
      for (const UOp* node : PostOrder({scalar, expressions.Index(4)})) {
        Compare(g, node);
        if (HasFatalFailure()) return;
      }
      // The same with a shape: broadcast leaves, and constants that are broadcast.
      const UOp* const a = Param(g, 0, dtype, {Dim(3)});
      const UOp* const b = Full(g, expressions.Constant(dtype), a->shape);
      for (const Op op : {Op::kAdd, Op::kMul, Op::kMax, Op::kCmpLt, Op::kCmpNe, Op::kAnd, Op::kXor})
        for (const UOp* left : {a, b})
          if (const auto made = g.Make(op, DType::kVoid, {left, b}); made.ok()) {
            Compare(g, *made);
            if (const auto more = g.Make(op, DType::kVoid, {b, *made}); more.ok())
              Compare(g, *more);
            if (HasFatalFailure()) return;
          }
    }
  }
  EXPECT_GT(fired_.size(), 80u) << "too few rules fired for this to say much; " << repeat_;
}

// What an index by numbers could get wrong.
TEST_F(MatcherTest, NumbersAreThoseOfTheType) {
  static constexpr Rule kRules[] = {{"all-ones", x & 255, x}, {"minus-one", x | -1, lit(-1)}};
  const Matcher matcher({std::span<const Rule>(kRules)});
  Graph g;
  const auto fires = [&](Op op, DType dtype, int64_t value) {
    const UOp* const leaf = Param(g, 0, dtype, {});
    return matcher.Apply(g, Alu(g, op, leaf, ConstInt(g, dtype, value))) != nullptr;
  };
  EXPECT_TRUE(fires(Op::kAnd, DType::kU8, 255));
  EXPECT_TRUE(fires(Op::kAnd, DType::kI8, -1)) << "255 wraps to it";
  EXPECT_TRUE(fires(Op::kAnd, DType::kI32, 255));
  EXPECT_FALSE(fires(Op::kAnd, DType::kI32, -1));
  EXPECT_TRUE(fires(Op::kOr, DType::kU8, 255)) << "-1 wraps to it";
  EXPECT_FALSE(fires(Op::kOr, DType::kU16, 255));
  EXPECT_FALSE(fires(Op::kOr, DType::kBool, 1)) << "true is no -1";
}

TEST_F(MatcherTest, ZerosOfFloatsAreTwo) {
  static constexpr Rule kRules[] = {{"zero", x * 0, lit(0)}, {"minus-zero", x + -0.0, x}};
  const Matcher matcher({std::span<const Rule>(kRules)});
  Graph g;
  const UOp* const leaf = Param(g, 0, DType::kF32, {});
  const auto fires = [&](Op op, double value) {
    return matcher.Apply(g, Alu(g, op, leaf, ConstFloat(g, DType::kF32, value))) != nullptr;
  };
  EXPECT_TRUE(fires(Op::kMul, 0.0));
  EXPECT_FALSE(fires(Op::kMul, -0.0));
  EXPECT_TRUE(fires(Op::kAdd, -0.0));
  EXPECT_FALSE(fires(Op::kAdd, 0.0));
}

// Conditions on types alone are decided by the table: for every type, scalar and not.
TEST_F(MatcherTest, ConditionsOnTypes) {
  static constexpr Rule kRules[] = {{"shaped-or-bool", x == y, lit(1), !is_scalar(x) || is_bool(y)},
                                    {"signed", x != y, lit(0), is_signed(x) && is_scalar(y)},
                                    {"of-a-cast", cast(x) < y, lit(0), is_bool(x)}};
  const Matcher matcher({std::span<const Rule>(kRules)});
  Graph g;
  for (int code = 1; code < kDTypeCount; ++code)
    for (const Shape& shape : {Shape{}, Shape{Dim(2)}}) {
      const auto dtype = static_cast<DType>(code);
      const UOp *const a = Param(g, 0, dtype, shape), *const b = Param(g, 1, dtype, shape);
      const auto fires = [&](Op op, const UOp* p, const UOp* q) {
        return matcher.Apply(g, Alu(g, op, p, q)) != nullptr;
      };
      EXPECT_EQ(fires(Op::kCmpEq, a, b), !shape.empty() || dtype == DType::kBool);
      EXPECT_EQ(fires(Op::kCmpNe, a, b), IsSigned(dtype) && shape.empty());
      const UOp* const flag = Param(g, 2, DType::kBool, shape);
      EXPECT_EQ(fires(Op::kCmpLt, g.MakeChecked(Op::kCast, dtype, {flag}), a), true);
      EXPECT_EQ(fires(Op::kCmpLt, g.MakeChecked(Op::kCast, DType::kF32, {a}),
                      Param(g, 3, DType::kF32, shape)),
                dtype == DType::kBool);
    }
}

}  // namespace
}  // namespace outboard
