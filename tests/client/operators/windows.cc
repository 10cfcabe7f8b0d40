// Convolutions and pools over any number of axes.
#include <algorithm>
#include <cmath>

#include "client/ops/window/window.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

// How a window slides along one axis.
struct Slide {
  int64_t kernel, stride = 1, dilation = 1, before = 0, after = 0;
};
using Slides = std::vector<Slide>;

int64_t PlacesOf(int64_t length, const Slide& s) {
  return (length + s.before + s.after - s.dilation * (s.kernel - 1) - 1) / s.stride + 1;
}

// Calls f with every index of `dims`.
void ForEach(const Dims& dims, const std::function<void(const Dims&)>& f) {
  Build(dims, [&](const Dims& i) {
    f(i);
    return 0;
  });
}

Dims KernelOf(const Slides& slides) {
  Dims kernel;
  for (const Slide& slide : slides) kernel.push_back(slide.kernel);
  return kernel;
}

// Where element `k` of the window at `place` lies; empty where that is outside of `lengths`.
Dims Inside(const Dims& lengths, const Slides& slides, const Dims& place, const Dims& k) {
  Dims at;
  for (size_t i = 0; i < slides.size(); ++i) {
    at.push_back(place[i] * slides[i].stride + k[i] * slides[i].dilation - slides[i].before);
    if (at[i] < 0 || at[i] >= lengths[i]) return {};
  }
  return at;
}

Dims Tail(const Dims& dims, size_t count) {
  return Dims(dims.end() - static_cast<int64_t>(count), dims.end());
}

Dims Joined(Dims head, const Dims& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

Array Convolved(const Array& x, const Array& w, const Array* bias, int64_t groups,
                const Slides& slides) {
  const size_t n = slides.size();
  const Dims lengths = Tail(x.dims, n);
  Dims dims = {x.dims[0], w.dims[0]};
  for (size_t i = 0; i < n; ++i) dims.push_back(PlacesOf(lengths[i], slides[i]));
  return Build(dims, [&](const Dims& o) {
    double sum = bias == nullptr ? 0 : (*bias)({o[1]});
    ForEach(Tail(w.dims, n + 1), [&](const Dims& ck) {
      const Dims at = Inside(lengths, slides, Tail(o, n), Tail(ck, n));
      if (at.empty()) return;
      const int64_t channel = o[1] / (w.dims[0] / groups) * w.dims[1] + ck[0];
      sum += x(Joined({o[0], channel}, at)) * w(Joined({o[1]}, ck));
    });
    return sum;
  });
}

// Every element of x adds its product with the weight to the places of its window.
Array Transposed(const Array& x, const Array& w, int64_t groups, const Slides& slides,
                 const Dims& lengths) {
  const size_t n = slides.size();
  const int64_t per_group = w.dims[1];
  Array y = Build(Joined({x.dims[0], groups * per_group}, lengths), [](auto&) { return 0; });
  ForEach(x.dims, [&](const Dims& i) {
    ForEach(Tail(w.dims, n + 1), [&](const Dims& ok) {
      const Dims at = Inside(lengths, slides, Tail(i, n), Tail(ok, n));
      if (at.empty()) return;
      const int64_t out = i[1] / (x.dims[1] / groups) * per_group + ok[0];
      size_t place = static_cast<size_t>(i[0] * y.dims[1] + out);
      for (size_t a = 0; a < n; ++a) place = place * lengths[a] + at[a];
      y.values[place] += x(i) * w(Joined({i[1]}, ok));
    });
  });
  return y;
}

// f(the elements of each window that are inside, their places in the flattened axes).
using OfWindow =
    std::function<double(const std::vector<double>&, const std::vector<int64_t>& places)>;

Array Pooled(const Array& x, const Slides& slides, const Dims& places, const OfWindow& f) {
  const size_t n = slides.size();
  const Dims lengths = Tail(x.dims, n);
  const Dims before(x.dims.begin(), x.dims.end() - static_cast<int64_t>(n));
  return Build(Joined(before, places), [&](const Dims& o) {
    std::vector<double> elements;
    std::vector<int64_t> at_places;
    ForEach(KernelOf(slides), [&](const Dims& k) {
      const Dims at = Inside(lengths, slides, Tail(o, n), k);
      if (at.empty()) return;
      elements.push_back(x(Joined(Dims(o.begin(), o.end() - static_cast<int64_t>(n)), at)));
      int64_t place = 0;
      for (size_t a = 0; a < n; ++a) place = place * lengths[a] + at[a];
      at_places.push_back(place);
    });
    return f(elements, at_places);
  });
}

double Largest(const std::vector<double>& e, const std::vector<int64_t>&) {
  return *std::max_element(e.begin(), e.end());
}

double PlaceOfLargest(const std::vector<double>& e, const std::vector<int64_t>& places) {
  return static_cast<double>(places[std::max_element(e.begin(), e.end()) - e.begin()]);
}

// The mean, where a window counts as `count` elements; 0: as many as are inside.
OfWindow MeanOf(double count) {
  return [count](const std::vector<double>& e, const std::vector<int64_t>&) {
    double sum = 0;
    for (const double element : e) sum += element;
    return sum / (count == 0 ? static_cast<double>(e.size()) : count);
  };
}

Row Convolution(std::vector<Operand> operands, const ConvolutionOptions& options,
                const Slides& slides) {
  return {"convolution",
          "convolution(x, weight, bias, {.groups, .stride, .dilation, .padding, .dtype})",
          "[B, C, D...], [O, C / groups, K...], [O] -> [B, O, P...]",
          Types::kNumbers,
          Yields::kSame,
          Gradient::kYes,
          std::move(operands),
          [options](const Tensors& x) {
            return convolution(x[0], x[1], x.operands.size() > 2 ? x[2] : Tensor(), options);
          },
          [=](const Arrays& x) {
            return Convolved(x[0], x[1], x.operands.size() > 2 ? &x[2] : nullptr, options.groups,
                             slides);
          },
          8};
}

Row Transpose(std::vector<Operand> operands, const TransposedConvolutionOptions& options,
              const Slides& slides, const Dims& lengths) {
  return {"transposed_convolution",
          "transposed_convolution(x, weight, bias, {.groups, .stride, .dilation, .padding, "
          ".output_padding})",
          "[B, C, D...], [C, O / groups, K...], [O] -> [B, O, P...]",
          Types::kNumbers,
          Yields::kSame,
          Gradient::kYes,
          std::move(operands),
          [options](const Tensors& x) {
            return transposed_convolution(x[0], x[1], x.operands.size() > 2 ? x[2] : Tensor(),
                                          options);
          },
          [=](const Arrays& x) {
            const Array y = Transposed(x[0], x[1], options.groups, slides, lengths);
            return Build(y.dims, [&](const Dims& i) {
              return y(i) + (x.operands.size() > 2 ? x[2]({i[1]}) : 0);
            });
          },
          8};
}

Row MaxPool(Operand x, const PoolOptions& options, const Slides& slides, const Dims& places) {
  return {"max_pool",
          "max_pool(x, {.kernel, .stride, .dilation, .padding, .ceil_mode})",
          "[..., D...] -> [..., P...]",
          Types::kAll,
          Yields::kSame,
          Gradient::kYes,
          {std::move(x)},
          [options](const Tensors& t) { return max_pool(t[0], options); },
          [=](const Arrays& t) { return Pooled(t[0], slides, places, Largest); },
          0};
}

Row PlacesOfMaxPool(Operand x, const PoolOptions& options, const Slides& slides,
                    const Dims& places) {
  return {"max_pool_with_places",
          "max_pool_with_places(x, {.kernel, .stride, .dilation, .padding, .ceil_mode}).places",
          "[..., D...] -> [..., P...]",
          Types::kAll,
          Yields::kI32,
          Gradient::kNone,
          {std::move(x)},
          [options](const Tensors& t) {
            const MaxPooled pooled = max_pool_with_places(t[0], options);
            return pooled.places;
          },
          [=](const Arrays& t) { return Pooled(t[0], slides, places, PlaceOfLargest); },
          0};
}

Row AvgPool(Operand x, const PoolOptions& options, bool count_padding, const Slides& slides,
            const Dims& places, double count) {
  return {"avg_pool",
          "avg_pool(x, {.kernel, .stride, .dilation, .padding, .ceil_mode}, count_padding)",
          "[..., D...] -> [..., P...]",
          Types::kAll,
          Yields::kFloat,
          Gradient::kYes,
          {std::move(x)},
          [=](const Tensors& t) { return avg_pool(t[0], options, count_padding); },
          [=](const Arrays& t) { return Pooled(t[0], slides, places, MeanOf(count)); },
          3};
}

}  // namespace

Group Windows() {
  const Operand line = {{2, 2, 5}}, image = {{1, 2, 4, 5}}, volume = {{1, 1, 3, 4, 3}};
  const Operand wide = {{1, 2, 5, 4}, -9, 9};
  return {
      "Windows over any number of axes (window.h)",
      {
          Convolution({line, {{2, 2, 3}}, {{2}}}, {}, {{3}}),
          Convolution({line, {{4, 1, 2}}, {{4}}},
                      {.groups = 2, .stride = 2, .dilation = 2, .padding = 1}, {{2, 2, 2, 1, 1}}),
          Convolution({image, {{2, 2, 2, 3}}, {{2}}},
                      {.stride = PerAxis{2, 1}, .padding = Padding{{1, 0}, {0, 2}}},
                      {{2, 2, 1, 1, 0}, {3, 1, 1, 0, 2}}),
          Convolution({image, {{1, 2, 2, 2}}}, {.padding = {{-1, 0}, {1, -2}}},
                      {{2, 1, 1, -1, 0}, {2, 1, 1, 1, -2}}),
          Convolution({volume, {{2, 1, 2, 2, 2}}, {{2}}}, {.dilation = {1, 2, 1}, .padding = 1},
                      {{2, 1, 1, 1, 1}, {2, 1, 2, 1, 1}, {2, 1, 1, 1, 1}}),
          Transpose({line, {{2, 3, 3}}, {{3}}}, {}, {{3}}, {7}),
          Transpose({line, {{2, 2, 2}}}, {.groups = 2, .stride = 3, .output_padding = 1}, {{2, 3}},
                    {15}),
          Transpose({image, {{2, 2, 3, 2}}, {{2}}},
                    {.stride = {2, 1}, .dilation = {1, 2}, .padding = {1, 2}},
                    {{3, 2, 1, 1, 1}, {2, 1, 2, 2, 2}}, {7, 3}),
          Transpose({volume, {{1, 2, 2, 1, 2}}}, {.stride = 2, .padding = {{1, 0}, {0, 0}, {0, 1}}},
                    {{2, 2, 1, 1, 0}, {1, 2}, {2, 2, 1, 0, 1}}, {5, 7, 5}),
          MaxPool({{3, 7}, -9, 9}, {.kernel = {3}, .stride = 2, .padding = 1}, {{3, 2, 1, 1, 1}},
                  {4}),
          MaxPool(
              wide,
              {.kernel = {2, 3}, .stride = {1, 2}, .dilation = {2, 1}, .padding = {{0, 1}, {1, 0}}},
              {{2, 1, 2, 0, 1}, {3, 2, 1, 1, 0}}, {4, 2}),
          MaxPool(wide, {.kernel = {2, 3}, .stride = {2, 3}, .ceil_mode = true}, {{2, 2}, {3, 3}},
                  {3, 2}),
          MaxPool({{1, 1, 4, 3, 4}, -9, 9}, {.kernel = {2, 2, 2}}, {{2, 2}, {2, 2}, {2, 2}},
                  {2, 1, 2}),
          PlacesOfMaxPool(wide, {.kernel = {3, 2}, .stride = 1, .padding = 1},
                          {{3, 1, 1, 1, 1}, {2, 1, 1, 1, 1}}, {5, 5}),
          PlacesOfMaxPool({{2, 5}, 0, 0, {1, 3, 3, 2, 3, 7, 7, 7, 7, 7}},
                          {.kernel = {2}, .ceil_mode = true}, {{2, 2}}, {3}),
          Row{"max_pool_with_places",
              "max_pool_with_places(x, {.kernel, .stride, .dilation, .padding, .ceil_mode}).values",
              "[..., D...] -> [..., P...]",
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {wide},
              [](auto& x) { return max_pool_with_places(x[0]).values; },
              [](auto& x) {
                return Pooled(x[0], {{2, 2}, {2, 2}}, {2, 2}, Largest);
              },
              0},
          AvgPool({{2, 6}}, {.kernel = {3}, .stride = 2, .padding = 1}, true, {{3, 2, 1, 1, 1}},
                  {3}, 3),
          AvgPool(image, {.kernel = {3, 2}, .stride = 1, .padding = 1}, false,
                  {{3, 1, 1, 1, 1}, {2, 1, 1, 1, 1}}, {4, 6}, 0),
          AvgPool(image, {.kernel = {2, 2}, .stride = {3, 3}, .ceil_mode = true}, true,
                  {{2, 3}, {2, 3}}, {2, 2}, 0),
          AvgPool(image, {.kernel = {2, 2}, .ceil_mode = true}, true, {{2, 2}, {2, 2}}, {2, 3}, 0),
          AvgPool({{1, 3, 3, 3}}, {.kernel = {1, 2, 3}, .dilation = {1, 2, 1}}, true,
                  {{1}, {2, 2, 2}, {3, 3}}, {3, 1, 1}, 6),
          Row{"avg_pool",
              "avg_pool(x, {.kernel, .stride, .dilation, .padding, .ceil_mode}, count_padding)",
              "[..., D...] -> [..., P...]",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{4}}},
              [](auto& x) {
                return avg_pool(x[0],
                                {.kernel = {3}, .stride = 2, .padding = 1, .ceil_mode = true});
              },
              [](auto& x) {  // the last window is an element, a zero, and one that hangs over
                const auto& v = x[0].values;
                return Array{{3}, {(v[0] + v[1]) / 3, (v[1] + v[2] + v[3]) / 3, v[3] / 2}};
              },
              3},
          Row{"max_unpool",
              "max_unpool(x, places, {.kernel, .stride, .dilation, .padding}, size)",
              "[B, C, D...] -> [B, C, size...]",
              Types::kNumbers,
              Yields::kSame,
              Gradient::kYes,
              {{{1, 1, 2, 2}}, {{1, 1, 2, 2}, 0, 0, {15, 3, 3, 99}, DType::kI32}},
              [](auto& x) { return max_unpool(x[0], x[1]); },
              [](auto& x) {
                return Build({1, 1, 4, 4}, [&](auto& i) {
                  const int64_t place = i[2] * 4 + i[3];
                  if (place == 15) return x[0].values[0];
                  return place == 3 ? x[0].values[1] + x[0].values[2] : 0.0;
                });
              },
              2},
          Row{"max_unpool",
              "max_unpool(x, places, {.kernel, .stride, .dilation, .padding}, size)",
              "[B, C, D...] -> [B, C, size...]",
              Types::kNumbers,
              Yields::kSame,
              Gradient::kYes,
              {{{2, 1, 2}}, {{2, 1, 2}, 0, 0, {4, 0, 1, 2}, DType::kU8}},
              [](auto& x) { return max_unpool(x[0], x[1], {}, {5}); },
              [](auto& x) {
                return Build({2, 1, 5}, [&](auto& i) {
                  for (int64_t k = 0; k < 2; ++k)
                    if (x[1]({i[0], 0, k}) == static_cast<double>(i[2])) return x[0]({i[0], 0, k});
                  return 0.0;
                });
              },
              0},
      },
  };
}

}  // namespace outboard::operators
