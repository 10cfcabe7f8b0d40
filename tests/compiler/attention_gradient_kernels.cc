#include "tests/compiler/attention_gradient_kernels.h"

#include <limits>

#include "compiler/ir/build.h"
#include "tests/compiler/kernel_build.h"

namespace outboard::test {
namespace {

// What both kernels compute of the score of query i and key j.
struct Score {
  const UOp *e = nullptr, *p = nullptr, *dp = nullptr, *seen = nullptr;  // p, dp: by the sum
};

class Builder {
 public:
  Builder(Graph& g, const GradientShape& shape)
      : g_(g), shape_(shape), h_(Range(g, 0, shape.heads)) {}

  const UOp* h() const { return h_; }
  const UOp* Of(int64_t slot, const UOp* row, const UOp* column) {
    const bool of_keys = slot == kSlotK || slot == kSlotV;
    const int64_t rows = of_keys ? shape_.keys : shape_.queries;
    return Cast(g_,
                LoadAt(g_, slot, DType::kBF16, shape_.heads * rows * shape_.width,
                       RowMajor(g_, {h_, row, column}, {shape_.heads, rows, shape_.width})),
                DType::kF32);
  }
  const UOp* OfRow(int64_t slot, const UOp* i) {
    return LoadAt(g_, slot, DType::kF32, shape_.rows(),
                  RowMajor(g_, {h_, i}, {shape_.heads, shape_.queries}));
  }
  const UOp* Rounded(const UOp* value) {
    return Cast(g_, Cast(g_, value, DType::kBF16), DType::kF32);
  }
  const UOp* Scaled(const UOp* value) {
    return Mul(g_, value, ConstFloat(g_, DType::kF32, shape_.scale));
  }

  // `d`: two ranges of a head's numbers.
  Score Of(const UOp* i, const UOp* j, const UOp* d, const UOp* e) {
    Score score;
    const UOp* x = Scaled(
        Rounded(Fold(g_, Op::kAdd, Mul(g_, Of(kSlotQ, i, d), Of(kSlotK, j, d)), {d})));
    if (shape_.causal) {
      score.seen = Alu(g_, Op::kCmpLt, j, Add(g_, i, ConstIndex(g_, 1)));
      x = Where(g_, score.seen, x,
                ConstFloat(g_, DType::kF32, -std::numeric_limits<double>::infinity()));
    }
    score.e = Alu(g_, Op::kExp, Add(g_, x, Alu(g_, Op::kNeg, OfRow(kSlotMax, i))));
    score.p = Alu(g_, Op::kFDiv, score.e, OfRow(kSlotSum, i));
    const UOp* const dp =
        Fold(g_, Op::kAdd, Mul(g_, Of(kSlotOut, i, e), Of(kSlotV, j, e)), {e});
    score.dp =
        Alu(g_, Op::kFDiv, shape_.loads_dot ? dp : Rounded(dp), OfRow(kSlotSum, i));
    return score;
  }
  const UOp* GradientOf(const Score& score, const UOp* dot) {
    const UOp* const dx = Mul(g_, score.e, Add(g_, score.dp, dot));
    const UOp* const zero = ConstFloat(g_, DType::kF32, 0);
    return Rounded(Scaled(score.seen == nullptr ? dx : Where(g_, score.seen, dx, zero)));
  }
  const UOp* Store(int64_t slot, const UOp* row, int64_t rows, const UOp* column,
                   const UOp* value) {
    return StoreAt(g_, slot, shape_.heads * rows * shape_.width,
                   RowMajor(g_, {h_, row, column}, {shape_.heads, rows, shape_.width}),
                   Cast(g_, value, DType::kBF16));
  }

 private:
  Graph& g_;
  const GradientShape& shape_;
  const UOp* const h_;
};

}  // namespace

const UOp* QueriesGradientKernel(Graph& g, const GradientShape& shape) {
  Builder b(g, shape);
  const UOp *i = Range(g, 1, shape.queries), *c = Range(g, 2, shape.width);
  const UOp* const j = ReduceRange(g, 3, shape.keys);
  const Score score =
      b.Of(i, j, ReduceRange(g, 4, shape.width), ReduceRange(g, 5, shape.width));
  const UOp* const dot =
      shape.loads_dot ? b.OfRow(1, i)
                      : Alu(g, Op::kNeg, Fold(g, Op::kAdd, Mul(g, score.p, score.dp), {j}));
  const UOp* const dx = b.GradientOf(score, dot);
  const UOp* const dq = Fold(g, Op::kAdd, Mul(g, dx, b.Of(kSlotK, j, c)), {j});
  const UOp* const store = b.Store(0, i, shape.queries, c, dq);
  if (shape.loads_dot) return Sink(g, {store});
  return Sink(g, {store, StoreAt(g, 1, shape.rows(),
                                 RowMajor(g, {b.h(), i}, {shape.heads, shape.queries}), dot)});
}

const UOp* KeysGradientKernel(Graph& g, const GradientShape& shape) {
  Builder b(g, shape);
  const UOp *j = Range(g, 1, shape.keys), *c = Range(g, 2, shape.width);
  const UOp* const i = ReduceRange(g, 3, shape.queries);
  const Score score =
      b.Of(i, j, ReduceRange(g, 4, shape.width), ReduceRange(g, 5, shape.width));
  const UOp* const dx = b.GradientOf(score, b.OfRow(kSlotDot, i));
  const UOp* const dk = Fold(g, Op::kAdd, Mul(g, dx, b.Of(kSlotQ, i, c)), {i});
  const UOp* const dv =
      Fold(g, Op::kAdd, Mul(g, b.Rounded(score.p), b.Of(kSlotOut, i, c)), {i});
  return Sink(g, {b.Store(0, j, shape.keys, c, dk), b.Store(1, j, shape.keys, c, dv)});
}

}  // namespace outboard::test
