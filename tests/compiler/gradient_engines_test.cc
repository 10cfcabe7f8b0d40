// Gradients are graphs like any other, but of shapes that nobody writes by hand: every engine must
// agree on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "base/check.h"
#include "compiler/gradient/gradient.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

constexpr DType F32 = DType::kF32;
using Xs = std::vector<const UOp*>;

class GradientEngines : public testing::Test {
 protected:
  const UOp* Input(std::vector<int64_t> dims, double low = -1, double high = 1) {
    const UOp* const x = BufferNode(g, tensors_.size(), F32, Shape(dims.begin(), dims.end()));
    std::vector<double> values;
    for (int64_t i = 0; i < ElementCount(x->shape); ++i)
      values.push_back(std::uniform_real_distribution<>(low, high)(random_));
    tensors_.push_back(Floats(F32, dims, values));
    inputs_.push_back(x);
    return x;
  }
  const UOp* Number(const UOp* like, double value) {
    return Full(g, ConstOf(g, F32, value), like->shape);
  }
  const UOp* Node(Op op, Sources src, absl::Span<const int64_t> arg = {}) {
    return g.MakeChecked(op, DType::kVoid, src, arg);
  }
  const UOp* Total(const UOp* x) {
    std::vector<int64_t> axes;
    for (int i = 0; i < x->rank(); ++i) axes.push_back(i);
    return Reduce(g, Op::kAdd, x, axes);
  }

  // y and the gradients of its weighted sum with respect to every input, on every engine. The
  // inputs are random and the graphs tame, so engines agree up to rounding: relative to the largest
  // element of each result.
  void ExpectAgreement(const UOp* y, double error = 1e-4) {
    const UOp* const weights = Input(StaticDims(y->shape));
    const Xs wrt(inputs_.begin(), inputs_.end() - 1);
    Xs roots = ValueOrDie(Gradient(g, y, weights, wrt));
    roots.push_back(y);
    const EncodedGraph encoded = ValueOrDie(EncodeGraph(Sink(g, roots)));
    Graph decoded;
    const UOp* const sink = ValueOrDie(DecodeGraph(decoded, encoded.bytes));
    std::vector<HostTensor> params;
    for (const uint64_t handle : encoded.buffers) params.push_back(tensors_[handle]);
    Results expected;
    for (const Engine& engine : Engines()) {
      const auto results = engine.run(sink, params, {});
      ASSERT_TRUE(results.ok()) << engine.name << ": " << results.status() << "\n"
                                << GraphToString(sink);
      if (expected.empty()) expected = *results;
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::vector<double> wanted = FloatsOf(expected[i]), found = FloatsOf((*results)[i]);
        double scale = 1;
        for (const double value : wanted) scale = std::max(scale, std::abs(value));
        ASSERT_EQ(found.size(), wanted.size());
        for (size_t j = 0; j < found.size(); ++j)
          ASSERT_NEAR(found[j], wanted[j], error * scale)
              << engine.name << ", result " << i << ", element " << j << "\n"
              << GraphToString(sink);
      }
    }
  }

  // x with windows of `size` places, `stride` apart, along its last axis: [..., places, size].
  const UOp* Windows(const UOp* x, int64_t size, int64_t stride) {
    const int64_t length = x->shape.back().value(), places = (length - size) / stride + 1;
    Shape kept(x->shape.begin(), x->shape.end() - 1), dims = kept, flat = kept;
    dims.insert(dims.end(), {Dim(places), Dim(size), Dim(length)});
    const auto along = [&](int64_t n, size_t from_end) {
      Shape ones(dims.size(), Dim(1));
      ones[dims.size() - from_end] = Dim(n);
      return Expand(g, Reshape(g, Iota(g, DType::kI32, n), ones), dims);
    };
    const UOp* const start =
        Mul(g, along(places, 3), Full(g, ConstInt(g, DType::kI32, stride), dims));
    const UOp* const hit = Alu(g, Op::kCmpEq, along(length, 1), Add(g, start, along(size, 2)));
    Shape spread = kept;
    spread.insert(spread.end(), {Dim(1), Dim(1), Dim(length)});
    const UOp* const picked =
        Where(g, hit, Expand(g, Reshape(g, x, spread), dims), Full(g, ConstOf(g, F32, 0), dims));
    const UOp* const sum = Reduce(g, Op::kAdd, picked, {static_cast<int64_t>(dims.size()) - 1});
    flat.insert(flat.end(), {Dim(places), Dim(size)});
    return Reshape(g, sum, flat);
  }

  Graph g;
  std::mt19937_64 random_{7};
  std::vector<HostTensor> tensors_;
  Xs inputs_;
};

TEST_F(GradientEngines, TwoLayersAndASoftmax) {
  const UOp *const x = Input({5, 6}), *const w = Input({6, 7}), *const v = Input({7, 4});
  const auto product = [&](const UOp* a, const UOp* b) {
    const Dim m = a->shape[0], k = a->shape[1], n = b->shape[1];
    const UOp* const left = Expand(g, Reshape(g, a, {m, k, 1}), {m, k, n});
    return Reshape(
        g, Reduce(g, Op::kAdd, Mul(g, left, Expand(g, Reshape(g, b, {1, k, n}), {m, k, n})), {1}),
        {m, n});
  };
  const UOp* const hidden = product(x, w);
  const UOp* const logits = product(Alu(g, Op::kMax, hidden, Number(hidden, 0)), v);
  const UOp* const largest = Expand(g, Reduce(g, Op::kMax, logits, {1}), logits->shape);
  const UOp* const exponent = Alu(g, Op::kExp2, Add(g, logits, Alu(g, Op::kNeg, largest)));
  ExpectAgreement(
      Alu(g, Op::kFDiv, exponent, Expand(g, Reduce(g, Op::kAdd, exponent, {1}), logits->shape)));
}

TEST_F(GradientEngines, Convolution) {
  const UOp *const x = Input({2, 3, 9}), *const w = Input({4, 3, 3});
  const UOp* const windows = Windows(x, 3, 2);  // [2, 3, 4, 3]
  const UOp* const left = Expand(g, Reshape(g, windows, {2, 1, 3, 4, 3}), {2, 4, 3, 4, 3});
  const UOp* const right = Expand(g, Reshape(g, w, {1, 4, 3, 1, 3}), {2, 4, 3, 4, 3});
  ExpectAgreement(Reduce(g, Op::kAdd, Mul(g, left, right), {2, 4}));
}

// The forward pass finds the largest of values that the backward pass computes again in another
// kernel; were they to differ in the last bit, no place would equal the largest and the gradient
// would vanish without a sound.
TEST_F(GradientEngines, LargestOfComputedValues) {
  const UOp *const x = Input({64, 32}), *const scale = Input({1, 32}, 0.5, 2),
                   *const shift = Input({1, 32});
  const UOp* const mean =
      Mul(g, Reduce(g, Op::kAdd, x, {0}), Full(g, ConstOf(g, F32, 1.0 / 64), {1, 32}));
  const UOp* const centred = Add(g, x, Alu(g, Op::kNeg, Expand(g, mean, x->shape)));
  const UOp* const variance = Mul(g, Reduce(g, Op::kAdd, Mul(g, centred, centred), {0}),
                                  Full(g, ConstOf(g, F32, 1.0 / 64), {1, 32}));
  const UOp* const deviation = Alu(g, Op::kSqrt, Add(g, variance, Number(variance, 1e-5)));
  const UOp* const normal = Alu(g, Op::kFDiv, centred, Expand(g, deviation, x->shape));
  const UOp* const y =
      Add(g, Mul(g, normal, Expand(g, scale, x->shape)), Expand(g, shift, x->shape));
  const UOp* const smooth = Mul(g, y, Alu(g, Op::kSin, y));
  ExpectAgreement(Reduce(g, Op::kMax, Reshape(g, smooth, {64, 8, 4}), {2}));
}

TEST_F(GradientEngines, ProductsAndCalls) {
  const UOp *const x = Input({3, 5}, 0.5, 1.5), *const w = Input({3, 5});
  const UOp *const p = Param(g, 0, F32, {3, 5}), *const q = Param(g, 1, F32, {3, 5});
  const UOp* const layer =
      Node(Op::kFunction, {Node(Op::kTuple, {Alu(g, Op::kSin, Mul(g, p, q)), Add(g, p, q)}), p, q});
  const UOp* y = x;
  for (int i = 0; i < 3; ++i) y = Node(Op::kGetTuple, {Node(Op::kCall, {layer, y, w})}, {i % 2});
  ExpectAgreement(Add(g, Reduce(g, Op::kMul, x, {1}), Reduce(g, Op::kMul, y, {1})));
}

TEST_F(GradientEngines, SecondOrder) {
  const UOp *const x = Input({4, 3}), *const w = Input({4, 3});
  const UOp* const y = Total(Alu(
      g, Op::kSin, Mul(g, x, Pad(g, Shrink(g, Alu(g, Op::kExp2, w), {1, 4, 0, 3}), {0, 1, 0, 0}))));
  const Xs first = ValueOrDie(Gradient(g, y, nullptr, {x, w}));
  ExpectAgreement(Add(g, Total(Mul(g, first[0], first[0])), Total(Mul(g, first[1], first[0]))));
}

TEST_F(GradientEngines, RandomGraphs) {
  const auto first = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  for (uint64_t seed = first; seed < first + 40; ++seed) {
    SCOPED_TRACE("repeat with --gtest_filter=GradientEngines.RandomGraphs --gtest_random_seed=" +
                 std::to_string(seed));
    random_.seed(seed);
    tensors_.clear();
    inputs_.clear();
    const auto pick = [&](size_t n) {
      return std::uniform_int_distribution<size_t>(0, n - 1)(random_);
    };
    Xs pool = {Input({4, 4}), Input({4, 4})};
    for (int i = 0; i < 10; ++i) {
      const UOp *const a = pool[pick(pool.size())], *const b = pool[pick(pool.size())];
      const UOp* const positive = Add(g, Mul(g, b, b), Number(b, 0.5));
      const auto axis = static_cast<int64_t>(pick(2));
      const auto spread = [&](Op op, std::vector<int64_t> axes) {
        return Expand(g, Reduce(g, op, a, axes), a->shape);
      };
      const UOp* made = nullptr;
      switch (pick(14)) {
        case 0: made = Alu(g, Op::kExp2, a); break;
        case 1: made = Alu(g, Op::kLog2, positive); break;
        case 2: made = Alu(g, Op::kSqrt, positive); break;
        case 3: made = Alu(g, Op::kFDiv, a, positive); break;
        case 4: made = Add(g, a, b); break;
        case 5: made = Mul(g, a, b); break;
        case 6: made = Alu(g, Op::kMax, a, Number(a, 0.05)); break;
        case 7: made = Permute(g, a, {1, 0}); break;
        case 8: made = Flip(g, a, {axis}); break;
        case 9: made = Shrink(g, Pad(g, a, {1, 1, 0, 2}), {0, 4, 1, 5}); break;
        case 10: made = spread(Op::kAdd, {axis}); break;
        case 11: made = spread(Op::kMul, {axis}); break;
        case 12: made = Reshape(g, Permute(g, Reshape(g, a, {2, 8}), {1, 0}), {4, 4}); break;
        default: made = Node(Op::kContiguous, {a}); break;
      }
      pool.push_back(Alu(g, Op::kSin, made));
    }
    ExpectAgreement(pool.back(), 1e-3);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace outboard::test
