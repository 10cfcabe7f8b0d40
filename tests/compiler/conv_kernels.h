// Convolutions of two dimensions and both of their gradients, as kernels: padding, strides and any
// order of channels.
#pragma once

#include <utility>
#include <vector>

#include "tests/compiler/kernel_build.h"

namespace outboard::test {

struct ConvCase {
  int64_t batch = 2, in = 16, out = 24, height = 9, width = 9;
  int64_t kernel = 3, stride = 1, padding = 1;
  bool channels_last = true;  // images, [b,h,w,c] instead of [b,c,h,w]
  bool taps_last = false;     // weights, [out,in,kh,kw] instead of [out,kh,kw,in]
  DType dtype = DType::kBF16, result = DType::kF32;

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

class ConvKernels {
 public:
  ConvKernels(Graph& graph, const ConvCase& c) : g(graph), c_(c) {}

  // y[b,oh,ow,oc] = sum x[b,oh*stride+kh-padding,ow*stride+kw-padding,ic] * w[oc,kh,kw,ic]; slots
  // y, x, w.
  const UOp* Forward() {
    const UOp *b = Range(g, 0, c_.batch), *oh = Range(g, 1, c_.out_height()),
              *ow = Range(g, 2, c_.out_width()), *oc = Range(g, 3, c_.out);
    const UOp *ic = ReduceRange(g, 4, c_.in), *kh = ReduceRange(g, 5, c_.kernel),
              *kw = ReduceRange(g, 6, c_.kernel);
    const UOp *h = Window(oh, kh), *w = Window(ow, kw);
    const UOp* const sum =
        Fold(g, Op::kAdd, Mul(g, Input(b, h, w, ic), Weight(oc, kh, kw, ic)), {ic, kh, kw});
    return StoreOf(Image(b, oh, ow, oc, c_.out_height(), c_.out_width(), c_.out), sum,
                   c_.batch * c_.out_height() * c_.out_width() * c_.out);
  }

  // dx[b,h,w,ic] = sum dy[b,oh,ow,oc] * w[oc,kh,kw,ic] where oh * stride + kh - padding is h; slots
  // dx, dy, w.
  const UOp* InputGradient() {
    const UOp *b = Range(g, 0, c_.batch), *h = Range(g, 1, c_.height), *w = Range(g, 2, c_.width),
              *ic = Range(g, 3, c_.in);
    const UOp *oc = ReduceRange(g, 4, c_.out), *kh = ReduceRange(g, 5, c_.kernel),
              *kw = ReduceRange(g, 6, c_.kernel);
    const auto [oh, row_is] = Back(h, kh, c_.out_height());
    const auto [ow, column_is] = Back(w, kw, c_.out_width());
    const UOp* const dy =
        GatedLoadAt(g, 1, c_.dtype, c_.batch * c_.out_height() * c_.out_width() * c_.out,
                    Image(b, oh, ow, oc, c_.out_height(), c_.out_width(), c_.out),
                    Alu(g, Op::kAnd, row_is, column_is), ConstFloat(g, c_.dtype, 0));
    const UOp* const sum =
        Fold(g, Op::kAdd, Mul(g, Cast(g, dy, DType::kF32), Weight(oc, kh, kw, ic)), {oc, kh, kw});
    return StoreOf(Image(b, h, w, ic, c_.height, c_.width, c_.in), sum,
                   c_.batch * c_.height * c_.width * c_.in);
  }

  // dw[oc,kh,kw,ic] = sum x[b,oh*stride+kh-padding,...,ic] * dy[b,oh,ow,oc]; slots dw, x, dy.
  const UOp* WeightGradient() {
    const UOp *oc = Range(g, 0, c_.out), *kh = Range(g, 1, c_.kernel), *kw = Range(g, 2, c_.kernel),
              *ic = Range(g, 3, c_.in);
    const UOp *b = ReduceRange(g, 4, c_.batch), *oh = ReduceRange(g, 5, c_.out_height()),
              *ow = ReduceRange(g, 6, c_.out_width());
    const UOp* const dy =
        LoadAt(g, 2, c_.dtype, c_.batch * c_.out_height() * c_.out_width() * c_.out,
               Image(b, oh, ow, oc, c_.out_height(), c_.out_width(), c_.out));
    const UOp* const sum = Fold(
        g, Op::kAdd, Mul(g, Cast(g, dy, DType::kF32), Input(b, Window(oh, kh), Window(ow, kw), ic)),
        {b, oh, ow});
    return StoreOf(PlaceOfWeight(oc, kh, kw, ic), sum, c_.out * c_.kernel * c_.kernel * c_.in);
  }

 private:
  const UOp* Window(const UOp* place, const UOp* tap) {
    return Add(g, Add(g, Mul(g, place, ConstIndex(g, c_.stride)), tap), ConstIndex(g, -c_.padding));
  }
  // The place whose window has `at` under `tap`, and whether there is one.
  std::pair<const UOp*, const UOp*> Back(const UOp* at, const UOp* tap, int64_t places) {
    const UOp* const from =
        Add(g, Add(g, at, Mul(g, tap, ConstIndex(g, -1))), ConstIndex(g, c_.padding));
    if (c_.stride == 1) return {from, Within(g, from, places)};
    const UOp* const stride = ConstIndex(g, c_.stride);
    const UOp* const place = Alu(g, Op::kIDiv, from, stride);
    const UOp* const whole = Alu(g, Op::kCmpEq, Mul(g, place, stride), from);
    return {place, Alu(g, Op::kAnd, whole, Within(g, place, places))};
  }
  const UOp* Image(const UOp* b, const UOp* h, const UOp* w, const UOp* channel, int64_t height,
                   int64_t width, int64_t channels) {
    return c_.channels_last ? RowMajor(g, {b, h, w, channel}, {c_.batch, height, width, channels})
                            : RowMajor(g, {b, channel, h, w}, {c_.batch, channels, height, width});
  }
  const UOp* PlaceOfWeight(const UOp* oc, const UOp* kh, const UOp* kw, const UOp* ic) {
    return c_.taps_last ? RowMajor(g, {oc, ic, kh, kw}, {c_.out, c_.in, c_.kernel, c_.kernel})
                        : RowMajor(g, {oc, kh, kw, ic}, {c_.out, c_.kernel, c_.kernel, c_.in});
  }
  // In f32. Zero outside.
  const UOp* Input(const UOp* b, const UOp* h, const UOp* w, const UOp* ic) {
    const UOp* const at = Image(b, h, w, ic, c_.height, c_.width, c_.in);
    const int64_t elements = c_.batch * c_.height * c_.width * c_.in;
    const UOp* const x =
        c_.padding == 0
            ? LoadAt(g, 1, c_.dtype, elements, at)
            : GatedLoadAt(g, 1, c_.dtype, elements, at,
                          Alu(g, Op::kAnd, Within(g, h, c_.height), Within(g, w, c_.width)),
                          ConstFloat(g, c_.dtype, 0));
    return Cast(g, x, DType::kF32);
  }
  const UOp* Weight(const UOp* oc, const UOp* kh, const UOp* kw, const UOp* ic) {
    return Cast(g,
                LoadAt(g, 2, c_.dtype, c_.out * c_.kernel * c_.kernel * c_.in,
                       PlaceOfWeight(oc, kh, kw, ic)),
                DType::kF32);
  }
  const UOp* StoreOf(const UOp* at, const UOp* sum, int64_t elements) {
    return Sink(
        g, {StoreAt(g, 0, elements, at, c_.result == DType::kF32 ? sum : Cast(g, sum, c_.result))});
  }

  Graph& g;
  const ConvCase& c_;
};

}  // namespace outboard::test
