// Tests that the prover of inequalities is right on random indices: each expression that it says is
// never negative is evaluated for all values of the loops for which the conditions hold.
// in_range_test.cc tests what it must be able to prove of kernels.
#include "compiler/proof/prover.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <random>
#include <vector>

#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "tests/compiler/kernel_build.h"

namespace outboard::test {
namespace {

// Of the integers that Random makes; quotients are towards zero.
class Evaluator {
 public:
  explicit Evaluator(const std::vector<const UOp*>& ranges) : ranges_(ranges) {}

  // Returns false after the last point.
  bool Next() {
    for (size_t r = 0; r < ranges_.size(); ++r) {
      if (++point_[r] < RangeOf(ranges_[r]).extent()) return true;
      point_[r] = 0;
    }
    return false;
  }
  int64_t Of(const UOp* node) const {
    if (node->is_const()) return node->int_value();
    for (size_t r = 0; r < ranges_.size(); ++r)
      if (node == ranges_[r]) return point_[r];
    const int64_t a = Of(node->src[0]), b = Of(node->src[1]);
    switch (node->op) {
      case Op::kAdd: return a + b;
      case Op::kMul: return a * b;
      case Op::kIDiv: return a / b;
      case Op::kMod: return a % b;
      case Op::kCmpLt: return a < b ? 1 : 0;
      default: ADD_FAILURE() << ExpressionToString(node); return 0;
    }
  }

 private:
  const std::vector<const UOp*> ranges_;
  std::vector<int64_t> point_ = std::vector<int64_t>(ranges_.size());
};

// Sums, multiples, quotients and remainders of three ranges, one made of the others. Of index 847
// the facts of a division have divisions of their own, which were once added to a list while it was
// read: an error of AddressSanitizer. With `put_together`, also sums of a quotient and a remainder
// of one division, by the right factor or another.
void CheckRandomIndices(bool put_together) {
  const uint32_t indices = put_together ? 100 : 400;
  constexpr int kNodes = 14;
  int proved = 0, negative = 0;
  std::vector<uint32_t> seeds = {847};
  for (uint32_t seed = 0; seed < indices; ++seed) seeds.push_back(seed);
  for (const uint32_t seed : seeds) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
    const auto number = [&](int64_t first, size_t count) {
      return first + static_cast<int64_t>(below(count));
    };
    Graph g;
    std::vector<const UOp*> nodes;
    for (int r = 0; r < 3; ++r) nodes.push_back(Range(g, r, number(2, 7)));
    const std::vector<const UOp*> ranges = nodes;
    for (int i = 0; i < kNodes; ++i) {
      const UOp *const a = nodes[below(nodes.size())], *const b = nodes[below(nodes.size())];
      const UOp* const c = ConstIndex(g, number(2, 7));
      switch (below(6)) {
        case 0: nodes.push_back(Add(g, a, b)); break;
        case 1: nodes.push_back(Add(g, a, Mul(g, b, ConstIndex(g, -1)))); break;
        case 2: nodes.push_back(Mul(g, a, c)); break;
        case 3:
        case 4: nodes.push_back(Alu(g, Op::kIDiv, a, c)); break;
        default: nodes.push_back(Alu(g, Op::kMod, a, c)); break;
      }
    }
    for (int i = 0; put_together && i < kNodes; ++i) {
      const UOp* const a = nodes[below(nodes.size())];
      const int64_t divisor = number(2, 3), factor = divisor + (below(4) == 0 ? 1 : 0);
      const auto by = [&](Op op, const UOp* x, int64_t n) {
        return Alu(g, op, x, ConstIndex(g, n));
      };
      nodes.push_back(
          Add(g, by(Op::kMul, by(Op::kIDiv, a, divisor), factor), by(Op::kMod, a, divisor)));
    }
    std::vector<const UOp*> conditions;
    std::vector<bool> holds;
    for (int i = 0; i < 2; ++i) {
      const UOp* const limited = nodes[nodes.size() - 1 - below(6)];
      conditions.push_back(Alu(g, Op::kCmpLt, limited, ConstIndex(g, number(-2, 14))));
      holds.push_back(below(2) == 0);
    }
    for (const auto divisions : proof::Prover::kTries) {
      proof::ProofBudget budget{.steps = 100'000};
      proof::Prover prover(&budget, divisions);
      for (size_t i = 0; i < conditions.size(); ++i) prover.Assume(conditions[i], holds[i]);
      for (const UOp* node : nodes) {
        const UOp* const shifted = Add(g, node, ConstIndex(g, number(-4, 6)));
        const bool is_proved = prover.NeverNegative(prover.FormOf(shifted));
        proved += is_proved ? 1 : 0;
        Evaluator evaluator(ranges);
        do {
          bool inside = true;
          for (size_t i = 0; i < conditions.size(); ++i)
            inside = inside && (evaluator.Of(conditions[i]) != 0) == holds[i];
          if (!inside || evaluator.Of(shifted) >= 0) continue;
          ++negative;
          ASSERT_FALSE(is_proved) << ExpressionToString(shifted);
          break;
        } while (evaluator.Next());
      }
    }
  }
  std::printf("%d proved, %d negative somewhere\n", proved, negative);
  EXPECT_GT(proved, 1'000);
  EXPECT_GT(negative, 1'000);
}

TEST(Prover, WhatIsNeverNegativeOfRandomIndices_IsNotNegativeAtAnyPoint) {
  CheckRandomIndices(/*put_together=*/false);
}

TEST(Prover, WhatIsNeverNegativeOfDividedIndices_IsNotNegativeAtAnyPoint) {
  CheckRandomIndices(/*put_together=*/true);
}

// A row's number, taken apart and put together again, is that number: sums of 16 rows are stored at
// (49 b + 7 h + w) / 16, and it is known that block row / 16 exists.
TEST(Prover, APlaceOfQuotientsAndRemainders_IsWhatWasDivided) {
  constexpr int64_t kRows = 1568, kBlocks = kRows / 16, kColumns = 2048;
  Graph g;
  const auto times = [&](const UOp* x, int64_t factor) { return Mul(g, x, ConstIndex(g, factor)); };
  const auto divided = [&](Op op, const UOp* x, int64_t by) {
    return Alu(g, op, x, ConstIndex(g, by));
  };
  const UOp* const row = Add(g, Add(g, times(Range(g, 0, 13), 128), times(Range(g, 1, 2), 64)),
                             times(Range(g, 2, 4), 16));
  const UOp* const line = divided(Op::kIDiv, row, 7);
  const auto is_below = [&](int64_t places, int64_t of_image) {
    const UOp* const again = Add(
        g,
        Add(g, times(divided(Op::kIDiv, line, 7), of_image), times(divided(Op::kMod, line, 7), 7)),
        divided(Op::kMod, row, 7));
    const UOp* const place =
        Add(g, times(divided(Op::kIDiv, again, 16), kColumns), Range(g, 3, kColumns));
    proof::ProofBudget budget{.steps = 20'000};
    proof::Prover prover(&budget, proof::Prover::Divisions::kJoined);
    prover.Assume(Alu(g, Op::kCmpLt, divided(Op::kIDiv, row, 16), ConstIndex(g, kBlocks)), true);
    const auto left = proof::AddScaled(proof::Constant(places - 1), prover.FormOf(place), -1);
    return left && prover.NeverNegative(*left);
  };
  EXPECT_TRUE(is_below(kBlocks * kColumns, 49));
  EXPECT_FALSE(is_below(kBlocks * kColumns - 1, 49));
  EXPECT_FALSE(is_below(kBlocks * kColumns, 50));
}

// By the first try that proves it; nullopt where none does. Each has the steps of an access.
using Divisions = proof::Prover::Divisions;
struct Assumed {
  const UOp* condition;
  bool holds;
};
std::optional<Divisions> ProvedBy(const UOp* never_negative, const std::vector<Assumed>& all) {
  for (const auto divisions : proof::Prover::kTries) {
    proof::ProofBudget budget{.steps = 20'000};
    proof::Prover prover(&budget, divisions);
    for (const auto& [condition, holds] : all) prover.Assume(condition, holds);
    if (prover.NeverNegative(prover.FormOf(never_negative))) return divisions;
  }
  return std::nullopt;
}

TEST(Prover, EachTryProvesWhatTheOthersDoNot) {
  Graph g;
  const auto c = [&](int64_t value) { return ConstIndex(g, value); };
  const auto by = [&](Op op, const UOp* x, int64_t n) { return Alu(g, op, x, c(n)); };
  const UOp *const a = Range(g, 1, 6), *const b = Range(g, 2, 8);
  EXPECT_EQ(ProvedBy(a, {}), Divisions::kAtoms);
  // a / 4 and a % 4 are a where both are added up; nothing else is known of their sum.
  const UOp* const again = Add(g, by(Op::kMul, by(Op::kIDiv, a, 4), 4), by(Op::kMod, a, 4));
  const UOp* const less = Add(g, by(Op::kMul, a, -1), c(2));
  EXPECT_EQ(ProvedBy(Add(g, again, Add(g, less, c(-2))), {}), Divisions::kJoined);
  // A quotient and a remainder that are added up by other factors than those of a number.
  const UOp* const half = by(Op::kIDiv, Add(g, b, by(Op::kMul, a, -1)), 2);
  const UOp* const odd = Add(g, by(Op::kMul, by(Op::kIDiv, half, 2), 3), by(Op::kMod, half, 2));
  EXPECT_EQ(ProvedBy(Add(g, odd, c(-3)), {{Alu(g, Op::kCmpLt, again, c(4)), true},
                                          {Alu(g, Op::kCmpLt, odd, c(2)), false}}),
            Divisions::kRelated);
  EXPECT_EQ(ProvedBy(Add(g, odd, c(-3)), {}), std::nullopt);
}

// What a vector of eight reads from place 8 n on of rows of 128.
TEST(Prover, ARemainderOfAMultipleIsAMultiple) {
  Graph g;
  const UOp* const row = Add(g, Mul(g, Range(g, 0, 100), ConstIndex(g, 8)), ConstIndex(g, 3));
  const UOp* const place = Alu(g, Op::kMod, row, ConstIndex(g, 128));
  const auto is_below = [&](int64_t end) {
    return ProvedBy(Add(g, Mul(g, place, ConstIndex(g, -1)), ConstIndex(g, end - 1)), {});
  };
  EXPECT_EQ(is_below(124), Divisions::kAtoms);  // 8 * 15 + 3 is the greatest
  EXPECT_EQ(is_below(123), std::nullopt);
  const auto is_least = [&](int64_t least) {
    return ProvedBy(Add(g, place, ConstIndex(g, -least)), {});
  };
  EXPECT_EQ(is_least(3), Divisions::kAtoms);
  EXPECT_EQ(is_least(4), std::nullopt);
}

// Where sums of rows of ResNet-50's last stage are stored: tiles in groups, of which the last one
// is smaller, and the row's number divided and put together again. It took 200,000 steps: quotients
// of equal numbers were different ones, and ranges were searched for as long as proofs.
TEST(Prover, AStoreOfRowSumsInGroupsOfTilesIsProvedInFewSteps) {
  Graph g;
  const auto c = [&](int64_t value) { return ConstIndex(g, value); };
  const auto sum = [&](const UOp* x, const UOp* y) { return Add(g, x, y); };
  const auto by = [&](Op op, const UOp* x, int64_t n) { return Alu(g, op, x, c(n)); };
  const UOp *const block = Range(g, 0, 104), *const thread = Range(g, 1, 384);
  const UOp* const in_group = by(Op::kMod, block, 64);
  const UOp* const first = Alu(g, Op::kCmpLt, by(Op::kIDiv, block, 64), c(1));
  const auto choice = [&](const UOp* x, const UOp* y) {
    return g.MakeChecked(Op::kWhere, DType::kVoid, {first, x, y});
  };
  const UOp* const tile_row =
      choice(sum(by(Op::kMul, by(Op::kIDiv, block, 64), 8), by(Op::kMod, in_group, 8)),
             sum(by(Op::kMod, in_group, 5), c(8)));
  const UOp* const tile_column =
      choice(by(Op::kIDiv, in_group, 8), by(Op::kMod, by(Op::kIDiv, in_group, 5), 8));
  const UOp* const in_warpgroup = by(Op::kMod, thread, 128);
  const UOp* const group = sum(by(Op::kIDiv, thread, 128), c(-1));
  const UOp* const row =
      sum(by(Op::kMul, tile_row, 128),
          sum(by(Op::kMul, group, 64), by(Op::kMul, by(Op::kIDiv, in_warpgroup, 32), 16)));
  const UOp* const again = sum(by(Op::kMul, by(Op::kIDiv, row, 49), 49), by(Op::kMod, row, 49));
  const UOp* const place =
      sum(sum(sum(by(Op::kMul, tile_column, 256), by(Op::kMul, by(Op::kMod, in_warpgroup, 4), 2)),
              by(Op::kIDiv, by(Op::kMod, thread, 32), 16)),
          by(Op::kMul, by(Op::kIDiv, again, 16), 2048));
  const UOp* const is_row =
      Alu(g, Op::kAnd, Alu(g, Op::kCmpLt, by(Op::kMod, by(Op::kMod, thread, 32), 16), c(4)),
          Alu(g, Op::kCmpLt, by(Op::kIDiv, row, 16), c(98)));
  const auto proved_by = [&](int64_t elements) {
    return ProvedBy(sum(by(Op::kMul, place, -1), c(elements - 1)),
                    {{Alu(g, Op::kCmpLt, c(0), by(Op::kIDiv, thread, 128)), true}, {is_row, true}});
  };
  EXPECT_EQ(proved_by(98 * 2048), Divisions::kJoined);
  EXPECT_EQ(proved_by(97 * 2048), std::nullopt);
}

// In an index of very many remainders each sum beside a quotient looks at all of them, and that is
// paid for.
TEST(Prover, RemaindersBesideAQuotient_AreStepsOfTheBudget) {
  constexpr int64_t kRemainders = 200, kSums = 40;
  constexpr int64_t kSteps = 20'000;
  const auto steps_left = [](Op op) {
    Graph g;
    const UOp* const x = Range(g, 0, 1 << 20);
    std::vector<const UOp*> sums;
    for (int64_t i = 0; i < kRemainders; ++i)
      sums.push_back(Alu(g, Op::kMod, x, ConstIndex(g, i + 2)));
    while (sums.size() > 1) {  // a flat tree: a deep one is given up
      std::vector<const UOp*> pairs;
      for (size_t i = 0; i + 1 < sums.size(); i += 2) pairs.push_back(Add(g, sums[i], sums[i + 1]));
      if (sums.size() % 2 != 0) pairs.push_back(sums.back());
      sums = pairs;
    }
    const UOp* sum = Add(g, sums[0], Alu(g, op, x, ConstIndex(g, kRemainders + 2)));
    for (int64_t i = 1; i < kSums; ++i) sum = Add(g, sum, Range(g, static_cast<int>(i), 7));
    proof::ProofBudget budget{.steps = kSteps};
    proof::Prover prover(&budget, proof::Prover::Divisions::kJoined);
    prover.FormOf(sum);
    return budget.steps;
  };
  EXPECT_LT(steps_left(Op::kIDiv), steps_left(Op::kMod) - kSums * kRemainders / 2);
}

}  // namespace
}  // namespace outboard::test
