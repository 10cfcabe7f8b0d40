// Quotients behind a padding: zeros beside 0/0 that is computed in a vector's unused lanes. LLVM 19
// takes 0/0 for 0, and left out the mask.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

class PaddedQuotients : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kRows[] = {1, 5}, kColumns[] = {1, 2, 7, 17, 40};

  // All shapes and paddings, of `quotient` of the input.
  void Check(const std::function<const UOp*(Graph&, const UOp*)>& quotient) {
    const double inf = std::numeric_limits<double>::infinity();
    const std::vector<double> corners = {inf, -inf, 0, -0.0, 1, 3, inf - inf};
    std::mt19937 random(1);
    for (const int64_t rows : kRows)
      for (const int64_t columns : kColumns)
        for (const Shape& padding : {Shape{0, 0, 2, 0}, Shape{0, 2, 2, 0}, Shape{1, 0, 0, 3},
                                     Shape{2, 2, 1, 1}, Shape{0, 0, 0, 2}}) {
          std::vector<double> values;
          for (int64_t i = 0; i < rows * columns; ++i)
            values.push_back(corners[random() % corners.size()]);
          const HostTensor x = Floats(GetParam(), {rows, columns}, values);
          Graph g;
          const UOp* const input = Param(g, 0, x.dtype, Shape(x.dims.begin(), x.dims.end()));
          const UOp* const sink = Sink(g, {Pad(g, quotient(g, input), padding)});
          ExpectSame(sink, std::vector<HostTensor>{x});
          ASSERT_FALSE(HasFailure()) << rows << " x " << columns;
        }
  }
};

TEST_P(PaddedQuotients, OfAValueByItself_AreZeroInThePadding) {
  Check([](Graph& g, const UOp* x) { return Alu(g, Op::kFDiv, x, x); });
}

TEST_P(PaddedQuotients, WidenedToF32_AreZeroInThePadding) {
  Check([](Graph& g, const UOp* x) {
    const UOp* const wide = Cast(g, x, DType::kF32);
    return Alu(g, Op::kFDiv, wide, wide);
  });
}

TEST_P(PaddedQuotients, ByZero_AreZeroInThePadding) {
  Check([](Graph& g, const UOp* x) {
    const UOp* const zero = Full(g, ConstFloat(g, x->dtype, 0), x->shape);
    return Alu(g, Op::kFDiv, x, zero);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, PaddedQuotients,
                         testing::Values(DType::kF32, DType::kF64, DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace outboard::test
