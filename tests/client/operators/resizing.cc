// Padding with what is there, and interpolation.
#include <algorithm>
#include <cmath>

#include "client/ops/shape/shape.h"
#include "client/ops/window/window.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

constexpr char kPad[] = "pad(x, {{before, after}, ...}, mode, value)";
constexpr char kPadShapes[] = "longer by before + after; negative: shorter";
constexpr char kInterpolate[] = "interpolate(x, size, mode, align_corners)";
constexpr char kInterpolateShapes[] = "[..., D...] -> [..., size...]";

// Where element i of an axis padded by `before` comes from, with `n` elements.
int64_t Source(PadMode mode, int64_t i, int64_t n) {
  switch (mode) {
    case PadMode::kReflect: return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i;
    case PadMode::kReplicate: return std::clamp<int64_t>(i, 0, n - 1);
    case PadMode::kCircular: return (i + n) % n;
    default: return i;
  }
}

Row PadRow(PadMode mode, const std::vector<std::pair<int64_t, int64_t>>& sides) {
  return Moved(
      "pad", kPad, kPadShapes, {{{3, 4}, -5, 5}},
      [=](const Tensors& x) {
        SymIntPairs pairs;
        for (const auto& [before, after] : sides) pairs.emplace_back(before, after);
        return pad(x[0], pairs, mode);
      },
      [=](const Arrays& x) {
        const Dims dims = {3 + sides[0].first + sides[0].second,
                           4 + sides[1].first + sides[1].second};
        return Build(dims, [&](const Dims& i) {
          return x[0](
              {Source(mode, i[0] - sides[0].first, 3), Source(mode, i[1] - sides[1].first, 4)});
        });
      });
}

// Element `place` of a line, between two elements where it is no whole number.
double Between(const Array& x, int64_t row, double place) {
  const double held = std::clamp<double>(place, 0, static_cast<double>(x.dims[1] - 1));
  const auto low = static_cast<int64_t>(std::floor(held));
  const double share = held - static_cast<double>(low);
  const double a = x({row, low}), b = share == 0 ? a : x({row, low + 1});
  return a + (b - a) * share;
}

Row LinearRow(Operand x, int64_t size, bool align_corners) {
  return {"interpolate",
          kInterpolate,
          kInterpolateShapes,
          Types::kFloats,
          Yields::kSame,
          Gradient::kYes,
          {std::move(x)},
          [=](const Tensors& t) {
            return interpolate(t[0], {size}, Interpolation::kLinear, align_corners);
          },
          [=](const Arrays& t) {
            const auto from = static_cast<double>(t[0].dims[1]), to = static_cast<double>(size);
            return Build({t[0].dims[0], size}, [&](const Dims& i) {
              const auto k = static_cast<double>(i[1]);
              const double place = align_corners ? k * (from - 1) / std::max<double>(to - 1, 1)
                                                 : (k + 0.5) * from / to - 0.5;
              return Between(t[0], i[0], place);
            });
          },
          16};
}

Row NearestRow(Interpolation mode, const Dims& size) {
  return Moved(
      "interpolate", kInterpolate, kInterpolateShapes, {{{2, 3, 4}, -5, 5}},
      [=](const Tensors& x) { return interpolate(x[0], size, mode); },
      [=](const Arrays& x) {
        const int64_t middle = mode == Interpolation::kNearestExact ? 1 : 0;
        return Build({2, size[0], size[1]}, [&](const Dims& i) {
          return x[0]({i[0], (2 * i[1] + middle) * 3 / (2 * size[0]),
                       (2 * i[2] + middle) * 4 / (2 * size[1])});
        });
      });
}

}  // namespace

Group Resizing() {
  return {
      "Padding and resizing (shape.h, window.h)",
      {
          PadRow(PadMode::kReflect, {{2, 1}, {0, 3}}),
          PadRow(PadMode::kReflect, {{-1, 2}, {1, 0}}),
          PadRow(PadMode::kReplicate, {{2, 1}, {0, 5}}),
          PadRow(PadMode::kReplicate, {{0, -2}, {3, -1}}),
          PadRow(PadMode::kCircular, {{2, 3}, {4, 0}}),
          PadRow(PadMode::kConstant, {{-1, -1}, {0, -2}}),
          Moved(
              "pad", kPad, kPadShapes, {{{2, 3}, -5, 5}},
              [](auto& x) {
                return pad(x[0], {{1, 0}, {-1, 2}}, PadMode::kConstant, 1).cast(x.dtype);
              },
              [](auto& x) {
                return Build({3, 4}, [&](auto& i) {
                  return i[0] == 0 || i[1] > 1 ? 1 : x[0]({i[0] - 1, i[1] + 1});
                });
              }),
          LinearRow({{2, 4}}, 7, false),
          LinearRow({{2, 5}}, 3, false),
          LinearRow({{2, 4}}, 9, true),
          LinearRow({{1, 4}}, 1, true),
          Row{"interpolate",
              kInterpolate,
              kInterpolateShapes,
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {{{1, 2}, 0, 0, {4, 1}}},
              [](auto& x) {
                return interpolate(x[0], {2, 4});
              },
              [](auto& x) {  // the last line is as the first
                const bool rounds = !IsFloat(x.dtype);
                const double a = x[0].values[0], b = x[0].values[1];
                return Build({2, 4}, [&](auto& i) {
                  const double y = i[1] == 0   ? a
                                   : i[1] == 1 ? 0.75 * a + 0.25 * b
                                   : i[1] == 2 ? 0.25 * a + 0.75 * b
                                               : b;
                  if (IsBool(x.dtype)) return y != 0 ? 1.0 : 0.0;
                  return !rounds ? y : x.dtype == DType::kU8 ? std::nearbyint(y) : std::trunc(y);
                });
              },
              2},
          NearestRow(Interpolation::kNearest, {5, 8}),
          NearestRow(Interpolation::kNearest, {2, 3}),
          NearestRow(Interpolation::kNearestExact, {5, 2}),
          NearestRow(Interpolation::kNearestExact, {6, 3}),
      },
  };
}

}  // namespace outboard::operators
