// Sums over windows and taps that a gradient makes: which become sums by remainders of the stride,
// and that these are the same numbers.
#include "compiler/gradient/window_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/harness.h"

namespace outboard::gradient {
namespace {

constexpr int64_t kPlace = 2, kWindow = 3, kTap = 4;  // axes
constexpr int64_t kBatch = 2, kSummed = 5;            // lengths

// WHERE(place == stride * window + dilation * tap, x, 0), of axes [batch, channels, place, window,
// tap] and x a sum that was rounded to bf16.
struct Case {
  const char* name;
  // Whether it becomes another sum.
  bool is_taken = true;
  int64_t places = 16, windows = 7, taps = 3, stride = 2;
  int64_t dilation = 1, channels = 8;
  // Along which x is repeated, besides that of places.
  int64_t repeated = kPlace;
  DType numbers = DType::kI32;
  int64_t place_axis = kPlace;
};

class WindowSumsTest : public testing::Test {
 protected:
  const UOp* Terms(const Case& c) {
    const Shape dims = {batch, c.channels, c.places, c.windows, c.taps};
    Shape given = dims;
    given[kPlace] = given[c.repeated] = Dim(1);
    Shape products = given;
    products.emplace_back(kSummed);
    const UOp* const sum = Reduce(g, Op::kAdd, Param(g, 0, DType::kF32, products), {5});
    const UOp* const x = Cast(g, Reshape(g, sum, given), DType::kBF16);
    const auto number = [&](int64_t axis, int64_t factor) {
      Shape ones(dims.size(), Dim(1));
      ones[axis] = dims[axis];
      const UOp* const along = Expand(g, Reshape(g, Iota(g, c.numbers, dims[axis]), ones), dims);
      return factor == 1 ? along : Mul(g, along, Full(g, ConstInt(g, c.numbers, factor), dims));
    };
    const UOp* const is_hot = Alu(g, Op::kCmpEq, number(c.place_axis, 1),
                                  Add(g, number(kWindow, c.stride), number(kTap, c.dilation)));
    return Where(g, is_hot, Expand(g, x, dims), Full(g, ConstFloat(g, DType::kBF16, 0), dims));
  }

  // The sums of `terms`, once as they are and once by SumOfWindows, for the same drawn inputs.
  void ExpectSameSums(const Case& c, const UOp* terms, const UOp* sum,
                      const std::vector<Binding>& bindings = {}) {
    const UOp* const plain = Reduce(g, Op::kAdd, Cast(g, terms, DType::kF64), {kWindow, kTap});
    std::vector<int64_t> dims = {kBatch, c.channels, 1, c.windows, c.taps, kSummed};
    dims[static_cast<size_t>(c.repeated)] = 1;
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::mt19937 random(3);
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<double>(static_cast<int>(random() % 17) - 8) / 32);
    const std::vector<HostTensor> params = {test::Floats(DType::kF32, dims, values)};
    const std::vector<HostTensor> results =
        ValueOrDie(Interpret(Sink(g, {plain, sum}), params, bindings));
    const std::vector<double> want = test::FloatsOf(results[0]), got = test::FloatsOf(results[1]);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], std::ldexp(std::abs(want[i]), -8)) << "element " << i;
  }

  Graph g;
  Dim batch = Dim(kBatch);
};

TEST_F(WindowSumsTest, AreTheSumsOfAllTerms) {
  const Case cases[] = {
      {.name = "3 taps, stride 2"},
      {.name = "4 taps, stride 2", .windows = 7, .taps = 4},
      {.name = "5 taps, stride 2", .places = 20, .windows = 8, .taps = 5},
      {.name = "7 taps, stride 2", .places = 26, .windows = 10, .taps = 7},
      {.name = "places behind the windows", .places = 18},
      {.name = "windows behind the places", .places = 12},
      {.name = "7 taps, stride 3", .places = 24, .windows = 6, .taps = 7, .stride = 3},
      {.name = "6 taps, stride 4", .places = 24, .windows = 5, .taps = 6, .stride = 4},
      {.name = "i64", .numbers = DType::kI64},
      {.name = "stride 1", .places = 9, .stride = 1},
      {.name = "stride 1, dilation", .places = 10, .stride = 1, .dilation = 2},
      {.name = "stride 1, one for all windows", .places = 9, .stride = 1, .repeated = kWindow},
      {.name = "stride 1, places numbered as windows",
       .places = 9,
       .stride = 1,
       .place_axis = kWindow},

      {.name = "odd places", .is_taken = false, .places = 15},
      {.name = "borders of one place, stride 3",
       .is_taken = false,
       .places = 15,
       .windows = 4,
       .taps = 4,
       .stride = 3},
      {.name = "11 taps, stride 5",
       .is_taken = false,
       .places = 40,
       .windows = 6,
       .taps = 11,
       .stride = 5},
      {.name = "4 taps, stride 3: 3 / 2 as many",
       .is_taken = false,
       .places = 12,
       .windows = 3,
       .taps = 4,
       .stride = 3},
      {.name = "many products with zeros", .is_taken = false, .places = 20},
      {.name = "dilation", .is_taken = false, .places = 18, .dilation = 2},
      {.name = "7 channels", .is_taken = false, .channels = 7},
      {.name = "no overlap", .is_taken = false, .places = 14, .taps = 2},
      {.name = "one for all windows", .is_taken = false, .repeated = kWindow},
      {.name = "one for all taps", .is_taken = false, .repeated = kTap},
      {.name = "one for all channels", .is_taken = false, .repeated = 1},
      {.name = "places numbered as windows",
       .is_taken = false,
       .windows = 8,
       .place_axis = kWindow},
      {.name = "u8", .is_taken = false, .numbers = DType::kU8},
      {.name = "u8, stride 1", .is_taken = false, .places = 9, .stride = 1, .numbers = DType::kU8},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const UOp* const terms = Terms(c);
    const UOp* const sum = SumOfWindows(g, terms, {kWindow, kTap});
    ASSERT_EQ(sum != nullptr, c.is_taken);
    if (sum == nullptr) continue;
    EXPECT_EQ(sum->dtype, DType::kBF16);
    ExpectSameSums(c, terms, sum);
  }
}

TEST_F(WindowSumsTest, OfABatchThatVaries_AreTheSumsOfAllTerms) {
  batch = Dim(Var(g, 0, 1, 4));
  const Case c = {.name = "3 taps, stride 2"};
  const UOp* const terms = Terms(c);
  const UOp* const sum = SumOfWindows(g, terms, {kWindow, kTap});
  ASSERT_NE(sum, nullptr);
  ExpectSameSums(c, terms, sum, {{0, kBatch}});
}

// [batch, channels, 3, 4, window, tap]: places have two axes, and are no numbers along one.
TEST_F(WindowSumsTest, NumbersAlongTwoAxesAreLeft) {
  const Shape dims = {2, 8, 3, 4, 5, 3}, given = {2, 8, 1, 1, 5, 3},
              products = {2, 8, 1, 1, 5, 3, 5};
  const UOp* const sum = Reduce(g, Op::kAdd, Param(g, 0, DType::kF32, products), {6});
  const UOp* const x = Cast(g, Reshape(g, sum, given), DType::kBF16);
  const auto number = [&](const Shape& along, int64_t count) {
    return Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(count)), along), dims);
  };
  const UOp* const two = Full(g, ConstInt(g, DType::kI32, 2), dims);
  const UOp* const is_hot =
      Alu(g, Op::kCmpEq, number({1, 1, 3, 4, 1, 1}, 12),
          Add(g, Mul(g, number({1, 1, 1, 1, 5, 1}, 5), two), number({1, 1, 1, 1, 1, 3}, 3)));
  const UOp* const terms =
      Where(g, is_hot, Expand(g, x, dims), Full(g, ConstFloat(g, DType::kBF16, 0), dims));
  EXPECT_EQ(SumOfWindows(g, terms, {4, 5}), nullptr);
}

}  // namespace
}  // namespace outboard::gradient
