// Products of bf16 as the Tensor API writes them, all the way: schedule, tiles where this machine
// has them, and back, against the interpreter, within the tolerances of docs/semantics.md.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "compiler/ir/build.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

class Bf16Products : public testing::Test {
 protected:
  // Eighths between 1/2 and 2, of either sign: numbers that the bounds call tame.
  const UOp* Input(std::vector<int64_t> dims) {
    const UOp* const x = Param(g_, static_cast<int64_t>(params_.size()), DType::kBF16,
                               Shape(dims.begin(), dims.end()));
    std::vector<double> values;
    for (int64_t i = 0; i < ElementCount(x->shape); ++i)
      values.push_back((random_() % 2 == 0 ? 0.125 : -0.125) *
                       static_cast<double>(4 + random_() % 13));
    params_.push_back(Floats(DType::kBF16, std::move(dims), values));
    return x;
  }
  // a[m,k] * b[k,n]: products and sums in f32, rounded once.
  const UOp* MatMul(const UOp* a, const UOp* b) {
    const Dim m = a->shape[0], k = a->shape[1], n = b->shape[1];
    const auto wide = [&](const UOp* x, const Shape& shape) {
      return Cast(g_, Expand(g_, Reshape(g_, x, shape), {m, n, k}), DType::kF32);
    };
    const UOp* const product =
        Mul(g_, wide(a, {m, Dim(1), k}), wide(Permute(g_, b, {1, 0}), {Dim(1), n, k}));
    return Reshape(g_, Cast(g_, Reduce(g_, Op::kAdd, product, {2}), DType::kBF16), {m, n});
  }

  Graph g_;
  std::vector<HostTensor> params_;
  std::mt19937 random_{1};
};

TEST_F(Bf16Products, EveryOrderOfOperands) {
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      params_.clear();
      const UOp* a = a_turned ? Permute(g_, Input({70, 40}), {1, 0}) : Input({40, 70});
      const UOp* b = b_turned ? Permute(g_, Input({50, 70}), {1, 0}) : Input({70, 50});
      ExpectSame(Sink(g_, {MatMul(a, b)}), params_);
    }
}

TEST_F(Bf16Products, LayerWithBiasAndThenAnother) {
  const UOp* const x = Input({33, 64});
  const UOp* const product = MatMul(x, Input({64, 48}));
  const UOp* const y = Add(g_, product, Expand(g_, Input({1, 48}), product->shape));
  const UOp* const zero = Full(g_, ConstFloat(g_, DType::kBF16, 0), y->shape);
  const UOp* const z = MatMul(Alu(g_, Op::kMax, y, zero), Input({48, 20}));
  ExpectSame(Sink(g_, {z}), params_);
}

// What lies outside is zero, which the copies have to hold.
TEST_F(Bf16Products, PaddedOperand) {
  const UOp* const x = Pad(g_, Input({30, 40}), {Dim(3), Dim(5), Dim(2), Dim(4)});
  const UOp* const y = MatMul(x, Input({46, 32}));
  ExpectSame(Sink(g_, {y}), params_);
}

}  // namespace
}  // namespace outboard::test
