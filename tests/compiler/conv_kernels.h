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
  int64_t groups = 1;  // each of `in` and `out` channels
  bool tf32 = false;   // operands of f32 may be rounded

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

class ConvKernels {
 public:
  ConvKernels(Graph& graph, const ConvCase& c)
      : g(graph), c_(c), group_(c.groups > 1 ? Range(graph, 0, c.groups) : nullptr) {}

  // y[b,oh,ow,oc] = sum x[b,oh*stride+kh-padding,ow*stride+kw-padding,ic] * w[oc,kh,kw,ic]; slots
  // y, x, w.
  const UOp* Forward() {
    const UOp *b = Of(0, c_.batch), *oh = Of(1, c_.out_height()), *ow = Of(2, c_.out_width()),
              *oc = Of(3, c_.out);
    const UOp *ic = SummedOf(4, c_.in), *kh = SummedOf(5, c_.kernel), *kw = SummedOf(6, c_.kernel);
    const UOp *h = Window(oh, kh), *w = Window(ow, kw);
    const UOp* const sum =
        Fold(g, Op::kAdd, Mul(g, Input(b, h, w, ic), Weight(oc, kh, kw, ic)), {ic, kh, kw});
    return StoreOf(Image(b, oh, ow, oc, c_.out_height(), c_.out_width(), c_.out), sum,
                   ResultElements());
  }

  // dx[b,h,w,ic] = sum dy[b,oh,ow,oc] * w[oc,kh,kw,ic] where oh * stride + kh - padding is h; slots
  // dx, dy, w.
  const UOp* InputGradient() {
    const UOp *b = Of(0, c_.batch), *h = Of(1, c_.height), *w = Of(2, c_.width), *ic = Of(3, c_.in);
    const UOp *oc = SummedOf(4, c_.out), *kh = SummedOf(5, c_.kernel), *kw = SummedOf(6, c_.kernel);
    const auto [oh, row_is] = Back(h, kh, c_.out_height());
    const auto [ow, column_is] = Back(w, kw, c_.out_width());
    const UOp* const dy =
        GatedLoadAt(g, 1, c_.dtype, ResultElements(),
                    Image(b, oh, ow, oc, c_.out_height(), c_.out_width(), c_.out),
                    Alu(g, Op::kAnd, row_is, column_is), ConstFloat(g, c_.dtype, 0));
    const UOp* const sum =
        Fold(g, Op::kAdd, Mul(g, Wide(dy), Weight(oc, kh, kw, ic)), {oc, kh, kw});
    return StoreOf(Image(b, h, w, ic, c_.height, c_.width, c_.in), sum, ImageElements());
  }

  // dw[oc,kh,kw,ic] = sum x[b,oh*stride+kh-padding,...,ic] * dy[b,oh,ow,oc]; slots dw, x, dy.
  const UOp* WeightGradient() {
    const UOp *oc = Of(0, c_.out), *kh = Of(1, c_.kernel), *kw = Of(2, c_.kernel),
              *ic = Of(3, c_.in);
    const UOp *b = SummedOf(4, c_.batch), *oh = SummedOf(5, c_.out_height()),
              *ow = SummedOf(6, c_.out_width());
    const UOp* const dy = LoadAt(g, 2, c_.dtype, ResultElements(),
                                 Image(b, oh, ow, oc, c_.out_height(), c_.out_width(), c_.out));
    const UOp* const sum = Fold(
        g, Op::kAdd, Mul(g, Wide(dy), Input(b, Window(oh, kh), Window(ow, kw), ic)), {b, oh, ow});
    return StoreOf(PlaceOfWeight(oc, kh, kw, ic), sum, WeightElements());
  }

 private:
  int64_t ResultElements() const {
    return c_.batch * c_.out_height() * c_.out_width() * c_.out * c_.groups;
  }
  int64_t ImageElements() const { return c_.batch * c_.height * c_.width * c_.in * c_.groups; }
  int64_t WeightElements() const { return c_.out * c_.groups * c_.kernel * c_.kernel * c_.in; }
  const UOp* Wide(const UOp* x) { return x->dtype == DType::kF32 ? x : Cast(g, x, DType::kF32); }
  const UOp* Of(int range, int64_t extent) {
    return Range(g, range + (group_ != nullptr ? 1 : 0), extent);
  }
  const UOp* SummedOf(int range, int64_t extent) {
    return ReduceRange(g, range + (group_ != nullptr ? 1 : 0), extent);
  }
  // Of `channels` a group.
  const UOp* InGroup(const UOp* channel, int64_t channels) {
    return group_ == nullptr ? channel : Add(g, Mul(g, group_, ConstIndex(g, channels)), channel);
  }
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
    channel = InGroup(channel, channels);
    channels *= c_.groups;
    return c_.channels_last ? RowMajor(g, {b, h, w, channel}, {c_.batch, height, width, channels})
                            : RowMajor(g, {b, channel, h, w}, {c_.batch, channels, height, width});
  }
  const UOp* PlaceOfWeight(const UOp* oc, const UOp* kh, const UOp* kw, const UOp* ic) {
    oc = InGroup(oc, c_.out);
    const int64_t out = c_.out * c_.groups;
    return c_.taps_last ? RowMajor(g, {oc, ic, kh, kw}, {out, c_.in, c_.kernel, c_.kernel})
                        : RowMajor(g, {oc, kh, kw, ic}, {out, c_.kernel, c_.kernel, c_.in});
  }
  // In f32. Zero outside.
  const UOp* Input(const UOp* b, const UOp* h, const UOp* w, const UOp* ic) {
    const UOp* const at = Image(b, h, w, ic, c_.height, c_.width, c_.in);
    const int64_t elements = ImageElements();
    const UOp* const x =
        c_.padding == 0
            ? LoadAt(g, 1, c_.dtype, elements, at)
            : GatedLoadAt(g, 1, c_.dtype, elements, at,
                          Alu(g, Op::kAnd, Within(g, h, c_.height), Within(g, w, c_.width)),
                          ConstFloat(g, c_.dtype, 0));
    return Wide(x);
  }
  const UOp* Weight(const UOp* oc, const UOp* kh, const UOp* kw, const UOp* ic) {
    return Wide(LoadAt(g, 2, c_.dtype, WeightElements(), PlaceOfWeight(oc, kh, kw, ic)));
  }
  const UOp* StoreOf(const UOp* at, const UOp* sum, int64_t elements) {
    const UOp* const result = c_.result == DType::kF32 ? sum : Cast(g, sum, c_.result);
    return g.MakeChecked(Op::kSink, DType::kVoid, {StoreAt(g, 0, elements, at, result)},
                         c_.tf32 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{});
  }

  Graph& g;
  const ConvCase& c_;
  const UOp* const group_;  // null: one group
};

}  // namespace outboard::test
