// Matrices, convolutions and windows.
#include <algorithm>
#include <limits>

#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

// [..., n, k] x [..., k, m], of two or three axes.
Array MatMul(const Array& a, const Array& b) {
  const int64_t n = a.dims[a.dims.size() - 2], k = a.dims.back(), m = b.dims.back();
  const Dims batch =
      Common(Dims(a.dims.begin(), a.dims.end() - 2), Dims(b.dims.begin(), b.dims.end() - 2));
  Dims left = batch, right = batch, result = batch;
  left.insert(left.end(), {n, k});
  right.insert(right.end(), {k, m});
  result.insert(result.end(), {n, m});
  const Array x = Stretch(a, left), y = Stretch(b, right);
  return Build(result, [&](const Dims& i) {
    Dims p = i, q = i;
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      p[p.size() - 1] = j;
      q[q.size() - 2] = j;
      sum += x(p) * y(q);
    }
    return sum;
  });
}

struct Window {
  int64_t stride_h, stride_w, dilation, padding_h, padding_w, groups = 1;
};

Array Conv2d(const Array& x, const Array& w, const Array* bias, Window o) {
  const int64_t out = w.dims[0], in = w.dims[1], kh = w.dims[2], kw = w.dims[3];
  const int64_t oh = (x.dims[2] + 2 * o.padding_h - o.dilation * (kh - 1) - 1) / o.stride_h + 1;
  const int64_t ow = (x.dims[3] + 2 * o.padding_w - o.dilation * (kw - 1) - 1) / o.stride_w + 1;
  return Build({x.dims[0], out, oh, ow}, [&](const Dims& i) {
    double sum = bias == nullptr ? 0 : (*bias)({i[1]});
    for (int64_t c = 0; c < in; ++c)
      for (int64_t y = 0; y < kh; ++y)
        for (int64_t z = 0; z < kw; ++z) {
          const int64_t h = i[2] * o.stride_h + y * o.dilation - o.padding_h;
          const int64_t v = i[3] * o.stride_w + z * o.dilation - o.padding_w;
          if (h < 0 || h >= x.dims[2] || v < 0 || v >= x.dims[3]) continue;
          const int64_t channel = i[1] / (out / o.groups) * in + c;
          sum += x({i[0], channel, h, v}) * w({i[1], c, y, z});
        }
    return sum;
  });
}

// f over the elements of each window that lie inside.
Array Pool(const Array& x, int64_t kh, int64_t kw, Window o,
           const std::function<double(const std::vector<double>&)>& f) {
  const int64_t oh = (x.dims[2] + 2 * o.padding_h - o.dilation * (kh - 1) - 1) / o.stride_h + 1;
  const int64_t ow = (x.dims[3] + 2 * o.padding_w - o.dilation * (kw - 1) - 1) / o.stride_w + 1;
  return Build({x.dims[0], x.dims[1], oh, ow}, [&](const Dims& i) {
    std::vector<double> inside;
    for (int64_t y = 0; y < kh; ++y)
      for (int64_t z = 0; z < kw; ++z) {
        const int64_t h = i[2] * o.stride_h + y * o.dilation - o.padding_h;
        const int64_t v = i[3] * o.stride_w + z * o.dilation - o.padding_w;
        if (h >= 0 && h < x.dims[2] && v >= 0 && v < x.dims[3])
          inside.push_back(x({i[0], i[1], h, v}));
      }
    return f(inside);
  });
}

double Largest(const std::vector<double>& e) { return *std::max_element(e.begin(), e.end()); }

Row Convolution(std::vector<Operand> operands, Conv2dOptions options, Window window) {
  return {"conv2d",
          "x.conv2d(weight, bias, {.groups, .stride, .dilation, .padding})",
          "[B, C, H, W], [O, C / groups, KH, KW], [O] -> [B, O, OH, OW]",
          Types::kNumbers,
          Yields::kSame,
          Gradient::kYes,
          std::move(operands),
          [options](const Tensors& x) {
            return x[0].conv2d(x[1], x.operands.size() > 2 ? x[2] : Tensor(), options);
          },
          [window](const Arrays& x) {
            return Conv2d(x[0], x[1], x.operands.size() > 2 ? &x[2] : nullptr, window);
          },
          4};  // a device may add up a window in any order
}

Row Matrices(const std::string& name, const std::string& form, Operand a, Operand b,
             std::function<Tensor(const Tensors&)> make,
             std::function<Array(const Arrays&)> wanted) {
  return {name,
          form,
          "[..., n, k] x [..., k, m] -> [..., n, m]; a vector is a row or a column",
          Types::kAll,
          Yields::kSame,
          Gradient::kYes,
          {std::move(a), std::move(b)},
          std::move(make),
          std::move(wanted),
          2};
}

Row MaxPool(Operand x, Pool2dOptions options, int64_t kh, int64_t kw, Window window) {
  return {"max_pool2d",
          "x.max_pool2d({.kernel, .stride, .dilation, .padding})",
          "[B, C, H, W] -> [B, C, OH, OW]",
          Types::kAll,
          Yields::kSame,
          Gradient::kYes,
          {std::move(x)},
          [options](const Tensors& t) { return t[0].max_pool2d(options); },
          [=](const Arrays& t) { return Pool(t[0], kh, kw, window, Largest); },
          0};
}

}  // namespace

Group Products() {
  const std::string matmul = "a.matmul(b)", dot = "a.dot(b)";
  const Operand weight = {{3, 2}}, image = {{1, 2, 4, 3}};
  return {
      "Products and windows",
      {
          Matrices(
              "matmul", matmul, {{2, 3}}, {{2, 3, 2}}, [](auto& x) { return x[0].matmul(x[1]); },
              [](auto& x) { return MatMul(x[0], x[1]); }),
          Matrices(
              "matmul", matmul, {{3}}, weight, [](auto& x) { return x[0].matmul(x[1]); },
              [](auto& x) { return Reshaped(MatMul(Reshaped(x[0], {1, 3}), x[1]), {2}); }),
          Matrices(
              "dot", dot, {{2, 3}}, {{3}}, [](auto& x) { return x[0].dot(x[1]); },
              [](auto& x) { return Reshaped(MatMul(x[0], Reshaped(x[1], {3, 1})), {2}); }),
          Row{"matmul",
              "a.matmul(b, dtype)",
              "[..., n, k] x [..., k, m] -> [..., n, m]",
              Types::kAll,
              Yields::kF32,
              Gradient::kNone,
              {{{2, 3}}, weight},
              [](auto& x) { return x[0].matmul(x[1], DType::kF32); },
              [](auto& x) { return MatMul(x[0], x[1]); },
              3},
          Row{"linear",
              "x.linear(weight, bias)",
              "[..., in] x [in, out] + [out]",
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {{{2, 3}}, {{3}}, {{3}}},
              [](auto& x) { return x[0].linear(x[1], x[2]); },
              [](auto& x) {
                return Build({2, 3},
                             [&](auto& i) { return x[0](i) * x[1]({i[1]}) + x[2]({i[1]}); });
              },
              3},
          Row{"linear",
              "x.linear(weight, bias)",
              "[..., in] x [in, out] + [out]",
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {{{2, 3}}, weight, {{2}}},
              [](auto& x) { return x[0].linear(x[1], x[2]); },
              [](auto& x) {
                const Array y = MatMul(x[0], x[1]);
                return Build({2, 2}, [&](auto& i) { return y(i) + x[2]({i[1]}); });
              },
              3},
          Convolution({image, {{2, 2, 2, 2}}, {{2}}}, {}, {1, 1, 1, 0, 0}),
          Convolution({{{1, 2, 4, 4}}, {{4, 1, 3, 2}}},
                      {.groups = 2, .stride = 2, .dilation = 1, .padding = 1}, {2, 2, 1, 1, 1, 2}),
          Convolution({{{2, 1, 5, 4}}, {{1, 1, 2, 2}}}, {.dilation = 2}, {1, 1, 2, 0, 0}),
          MaxPool({{1, 2, 4, 4}, -9, 9}, {}, 2, 2, {2, 2, 1, 0, 0}),
          Convolution({{{1, 1, 4, 5}}, {{1, 1, 1, 2}}},
                      {.stride = {2, 1}, .dilation = 2, .padding = {0, 1}}, {2, 1, 2, 0, 1}),
          MaxPool({{1, 1, 4, 5}, -9, 9}, {.kernel = {1, 3}, .stride = {0, 2}, .padding = {0, 1}}, 1,
                  3, {1, 2, 1, 0, 1}),
          MaxPool({{1, 1, 5, 4}, -9, 9}, {.kernel = 3, .stride = 2, .padding = 1}, 3, 3,
                  {2, 2, 1, 1, 1}),
          Row{"avg_pool2d",
              "x.avg_pool2d({.kernel, .stride, .dilation, .padding})",
              "[B, C, H, W] -> [B, C, OH, OW]",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{1, 2, 4, 4}}},
              [](auto& x) { return x[0].avg_pool2d({.stride = 1, .padding = 1}); },
              [](auto& x) {
                return Pool(x[0], 2, 2, {1, 1, 1, 1, 1}, [](auto& inside) {
                  double sum = 0;
                  for (const double e : inside) sum += e;
                  return sum / 4;  // the padding counts
                });
              },
              2},
      },
  };
}

}  // namespace outboard::operators
