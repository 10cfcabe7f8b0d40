// The kernels that a small convolutional network spends its time in; slot 0 is written.
#pragma once

#include "tests/compiler/kernel_build.h"

namespace outboard::test {

struct Conv {
  int64_t batch, in, out, kernel, height, width;  // height and width of the input
  int64_t oh() const { return height - kernel + 1; }
  int64_t ow() const { return width - kernel + 1; }
  int64_t x() const { return batch * in * height * width; }
  int64_t w() const { return out * in * kernel * kernel; }
  int64_t y() const { return batch * out * oh() * ow(); }
  double flops() const { return 2.0 * static_cast<double>(y()) * in * kernel * kernel; }
};

// y[b,oc,oh,ow] = sum x[b,ic,oh+kh,ow+kw] * w[oc,ic,kh,kw]; slots y, x, w
inline const UOp* ConvForward(Graph& g, const Conv& c) {
  const UOp *b = Range(g, 0, c.batch), *oc = Range(g, 1, c.out), *oh = Range(g, 2, c.oh()),
            *ow = Range(g, 3, c.ow());
  const UOp *ic = ReduceRange(g, 4, c.in), *kh = ReduceRange(g, 5, c.kernel),
            *kw = ReduceRange(g, 6, c.kernel);
  const UOp* const x = LoadAt(
      g, 1, DType::kF32, c.x(),
      RowMajor(g, {b, ic, Add(g, oh, kh), Add(g, ow, kw)}, {c.batch, c.in, c.height, c.width}));
  const UOp* const w = LoadAt(g, 2, DType::kF32, c.w(),
                              RowMajor(g, {oc, ic, kh, kw}, {c.out, c.in, c.kernel, c.kernel}));
  const UOp* const sum = Fold(g, Op::kAdd, Mul(g, x, w), {ic, kh, kw});
  return Sink(g, {StoreAt(g, 0, c.y(),
                          RowMajor(g, {b, oc, oh, ow}, {c.batch, c.out, c.oh(), c.ow()}), sum)});
}

// dw[oc,ic,kh,kw] = sum x[b,ic,oh+kh,ow+kw] * dy[b,oc,oh,ow]; slots dw, x, dy
inline const UOp* ConvWeightGradient(Graph& g, const Conv& c) {
  const UOp *oc = Range(g, 0, c.out), *ic = Range(g, 1, c.in), *kh = Range(g, 2, c.kernel),
            *kw = Range(g, 3, c.kernel);
  const UOp *b = ReduceRange(g, 4, c.batch), *oh = ReduceRange(g, 5, c.oh()),
            *ow = ReduceRange(g, 6, c.ow());
  const UOp* const x = LoadAt(
      g, 1, DType::kF32, c.x(),
      RowMajor(g, {b, ic, Add(g, oh, kh), Add(g, ow, kw)}, {c.batch, c.in, c.height, c.width}));
  const UOp* const dy = LoadAt(g, 2, DType::kF32, c.y(),
                               RowMajor(g, {b, oc, oh, ow}, {c.batch, c.out, c.oh(), c.ow()}));
  const UOp* const sum = Fold(g, Op::kAdd, Mul(g, x, dy), {b, oh, ow});
  return Sink(g, {StoreAt(g, 0, c.w(),
                          RowMajor(g, {oc, ic, kh, kw}, {c.out, c.in, c.kernel, c.kernel}), sum)});
}

// dx[b,ic,ih,iw] = sum over oc, kh, kw of dy[b,oc,ih-kh,iw-kw] * w[oc,ic,kh,kw] where that exists;
// slots dx, dy, w. `gate_term`: the gate is around the product too, as a collapsed sum writes it.
inline const UOp* ConvInputGradient(Graph& g, const Conv& c, bool gate_term) {
  const UOp *b = Range(g, 0, c.batch), *ic = Range(g, 1, c.in), *ih = Range(g, 2, c.height),
            *iw = Range(g, 3, c.width);
  const UOp *oc = ReduceRange(g, 4, c.out), *kh = ReduceRange(g, 5, c.kernel),
            *kw = ReduceRange(g, 6, c.kernel);
  const UOp* const minus = ConstIndex(g, -1);
  const UOp *oh = Add(g, ih, Mul(g, kh, minus)), *ow = Add(g, iw, Mul(g, kw, minus));
  const UOp* const gate = Alu(g, Op::kAnd, Within(g, oh, c.oh()), Within(g, ow, c.ow()));
  const UOp* const zero = ConstFloat(g, DType::kF32, 0);
  const UOp* const dy =
      GatedLoadAt(g, 1, DType::kF32, c.y(),
                  RowMajor(g, {b, oc, oh, ow}, {c.batch, c.out, c.oh(), c.ow()}), gate, zero);
  const UOp* const w = LoadAt(g, 2, DType::kF32, c.w(),
                              RowMajor(g, {oc, ic, kh, kw}, {c.out, c.in, c.kernel, c.kernel}));
  const UOp* term = Mul(g, dy, w);
  if (gate_term) term = Where(g, gate, term, zero);
  const UOp* const sum = Fold(g, Op::kAdd, term, {oc, kh, kw});
  return Sink(g, {StoreAt(g, 0, c.x(),
                          RowMajor(g, {b, ic, ih, iw}, {c.batch, c.in, c.height, c.width}), sum)});
}

// c[m,n] = sum a[m,k] * b[k,n], or b[n,k] where `transposed`; slots c, a, b
inline const UOp* MatMul(Graph& g, int64_t m, int64_t n, int64_t k, bool transposed = false) {
  const UOp *i = Range(g, 0, m), *j = Range(g, 1, n), *l = ReduceRange(g, 2, k);
  const UOp* const a = LoadAt(g, 1, DType::kF32, m * k, RowMajor(g, {i, l}, {m, k}));
  const UOp* const b =
      LoadAt(g, 2, DType::kF32, n * k,
             transposed ? RowMajor(g, {j, l}, {n, k}) : RowMajor(g, {l, j}, {k, n}));
  return Sink(
      g, {StoreAt(g, 0, m * n, RowMajor(g, {i, j}, {m, n}), Fold(g, Op::kAdd, Mul(g, a, b), {l}))});
}

}  // namespace outboard::test
