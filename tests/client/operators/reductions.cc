// Operators over whole axes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "client/ops/reduce/scans.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

using Elements = std::vector<double>;
constexpr char kShapes[] = "without the axes; keepdim: of length 1";

double SumOf(const Elements& e) { return std::accumulate(e.begin(), e.end(), 0.0); }
double MeanOf(const Elements& e) { return SumOf(e) / static_cast<double>(e.size()); }
double VarOf(const Elements& e, double correction) {
  double sum = 0;
  for (const double x : e) sum += (x - MeanOf(e)) * (x - MeanOf(e));
  return sum / (static_cast<double>(e.size()) - correction);
}
double LogSumExp(const Elements& e) {
  double sum = 0;
  for (const double x : e) sum += std::exp(x);
  return std::log(sum);
}

Row Over(const std::string& name, const std::string& form, Types types, Yields yields,
         Operand operand, std::function<Tensor(const Tensor&)> make, Dims axes, bool keep,
         std::function<double(const Elements&)> f, double units = 2,
         Gradient gradient = Gradient::kYes) {
  return {name,
          form,
          kShapes,
          types,
          yields,
          gradient,
          {std::move(operand)},
          [make](const Tensors& x) { return make(x[0]); },
          [=](const Arrays& x) { return Fold(x[0], axes, keep, f); },
          units};
}

// One value for each element along the last axis, from all of them.
Row Along(const std::string& name, const std::string& form,
          std::function<Tensor(const Tensor&)> make,
          std::function<double(double, const Elements&)> f) {
  return {name,
          form,
          "same",
          Types::kAll,
          Yields::kFloat,
          Gradient::kYes,
          {{{2, 4}}},
          [make](const Tensors& x) { return make(x[0]); },
          [f](const Arrays& x) {
            return Build({2, 4}, [&](auto& i) {
              const auto row = x[0].values.begin() + 4 * i[0];
              return f(x[0](i), Elements(row, row + 4));
            });
          },
          4};
}

// Element i along the first axis from that before and x.
Row Scanned(const std::string& name, const std::string& form, Types types, Yields yields,
            std::function<Tensor(const Tensor&)> make, std::function<double(double, double)> f,
            Gradient gradient) {
  return {name,
          form,
          "same",
          types,
          yields,
          gradient,
          {{{3, 2}}},
          [make](const Tensors& x) { return make(x[0]); },
          [f](const Arrays& x) {
            return Build({3, 2}, [&](auto& i) {
              double value = x[0]({0, i[1]});
              for (int64_t j = 1; j <= i[0]; ++j) value = f(value, x[0]({j, i[1]}));
              return value;
            });
          },
          4};
}

}  // namespace

Group Reductions() {
  const Operand cube = {{2, 3, 2}}, small = {{2, 3}, -3, 3}, spread = {{2, 5}, -9, 9};
  const auto none = Gradient::kNone;
  const auto max_of = [](const Elements& e) { return *std::max_element(e.begin(), e.end()); };
  const auto min_of = [](const Elements& e) { return *std::min_element(e.begin(), e.end()); };
  const auto place_of_max = [](const Elements& e) {
    return static_cast<double>(std::max_element(e.begin(), e.end()) - e.begin());
  };
  const auto place_of_min = [](const Elements& e) {
    return static_cast<double>(std::min_element(e.begin(), e.end()) - e.begin());
  };
  const auto product = [](const Elements& e) {
    return std::accumulate(e.begin(), e.end(), 1.0, std::multiplies<>());
  };
  const auto any_of = [](const Elements& e) {
    return std::any_of(e.begin(), e.end(), [](double x) { return x != 0; });
  };
  const auto all_of = [](const Elements& e) {
    return std::all_of(e.begin(), e.end(), [](double x) { return x != 0; });
  };
  const std::string sum = "x.sum(axes, keepdim)";
  // A device may add a dozen terms in any fixed order (docs/semantics.md).
  constexpr double kOrders = 4;
  return {
      "Reductions",
      {
          Over(
              "sum", sum, Types::kAll, Yields::kSum, cube, [](auto& x) { return x.sum(); },
              {0, 1, 2}, false, SumOf, kOrders),
          Over(
              "sum", sum, Types::kAll, Yields::kSum, cube,
              [](auto& x) { return x.sum({0, -1}, true); }, {0, 2}, true, SumOf, kOrders),
          Over(
              "sum", sum, Types::kAll, Yields::kSum, {{0, 3}}, [](auto& x) { return x.sum({0}); },
              {0}, false, SumOf, 0, none),
          Over(
              "prod", "x.prod(axes, keepdim)", Types::kAll, Yields::kSum, small,
              [](auto& x) { return x.prod(1); }, {1}, false, product, 4),
          Over(
              "mean", "x.mean(axes, keepdim)", Types::kAll, Yields::kFloat, cube,
              [](auto& x) { return x.mean(-2); }, {1}, false, MeanOf),
          Over(
              "max", "x.max(axes, keepdim)", Types::kAll, Yields::kSame, spread,
              [](auto& x) { return x.max(1, true); }, {1}, true, max_of, 0),
          Over(
              "min", "x.min(axes, keepdim)", Types::kAll, Yields::kSame, spread,
              [](auto& x) { return x.min({1}); }, {1}, false, min_of, 0),
          Over(
              "any", "x.any(axes, keepdim)", Types::kAll, Yields::kBool, {{2, 3}, 0, 1},
              [](auto& x) { return x.any({0}); }, {0}, false, any_of, 0, none),
          Over(
              "all", "x.all(axes, keepdim)", Types::kAll, Yields::kBool, {{2, 3}, 0, 1},
              [](auto& x) { return x.all({0}); }, {0}, false, all_of, 0, none),
          Over(
              "var", "x.var(axes, keepdim, correction)", Types::kAll, Yields::kFloat, cube,
              [](auto& x) { return x.var({0, 1}); }, {0, 1}, false,
              [](const Elements& e) { return VarOf(e, 1); }),
          Over(
              "std", "x.std(axes, keepdim, correction)", Types::kAll, Yields::kFloat,
              {{2, 4}, 0, 0, {0, 1, 0, 1, 1, 1, 0, 0}},
              [](auto& x) { return x.std({1}, false, 0); }, {1}, false,
              [](const Elements& e) { return std::sqrt(VarOf(e, 0)); }),
          Over(
              "argmax", "x.argmax(axis, keepdim), x.argmax()", Types::kAll, Yields::kI32, spread,
              [](auto& x) { return x.argmax(1); }, {1}, false, place_of_max, 0, none),
          Over(
              "argmax", "x.argmax(axis, keepdim), x.argmax()", Types::kAll, Yields::kI32, spread,
              [](auto& x) { return x.argmax(); }, {0, 1}, false, place_of_max, 0, none),
          Over(
              "argmin", "x.argmin(axis, keepdim)", Types::kAll, Yields::kI32, spread,
              [](auto& x) { return x.argmin(-1, true); }, {1}, true, place_of_min, 0, none),
          Over(
              "logsumexp", "x.logsumexp(axes, keepdim)", Types::kAll, Yields::kFloat, {{2, 4}},
              [](auto& x) { return x.logsumexp(); }, {1}, false, LogSumExp, 4),
          Row{"cumsum",
              "x.cumsum(axis)",
              "same",
              Types::kAll,
              Yields::kSum,
              Gradient::kYes,
              {{{3, 2}}},
              [](auto& x) { return x[0].cumsum(0); },
              [](auto& x) {
                return Build({3, 2}, [&](auto& i) {
                  double sum = 0;
                  for (int64_t j = 0; j <= i[0]; ++j) sum += x[0]({j, i[1]});
                  return sum;
                });
              },
              2},
          Scanned(
              "cumprod", "cumprod(x, axis)", Types::kAll, Yields::kSame,
              [](auto& x) { return cumprod(x, 0); }, [](double a, double b) { return a * b; },
              Gradient::kYes),
          Scanned(
              "cummax", "cummax(x, axis).values", Types::kAll, Yields::kSame,
              [](auto& x) -> Tensor {
                const RunningExtreme top = cummax(x, 0);
                return top.values;
              },
              [](double a, double b) { return std::max(a, b); }, Gradient::kYes),
          Scanned(
              "cummin", "cummin(x, axis).values", Types::kAll, Yields::kSame,
              [](auto& x) { return cummin(x, 0).values; },
              [](double a, double b) { return std::min(a, b); }, Gradient::kYes),
          Scanned(
              "logcumsumexp", "logcumsumexp(x, axis)", Types::kAll, Yields::kFloat,
              [](auto& x) { return logcumsumexp(x, 0); },
              [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); },
              Gradient::kYes),
          Row{"cummax",
              "cummax(x, axis).indices, the first place",
              "same",
              Types::kAll,
              Yields::kI32,
              none,
              {{{7}, 0, 0, {0, 1, 0, 1, 3, 3, 2}}},
              [](auto& x) { return cummax(x[0]).indices; },
              [](auto& x) {
                int64_t top = 0;
                return Build({7}, [&](auto& i) {
                  if (x[0](i) > x[0]({top})) top = i[0];
                  return static_cast<double>(top);
                });
              },
              0},
          // NaN is an extreme, and stays one.
          Row{"cummin",
              "cummin(x, axis).indices, the first place",
              "same",
              Types::kFloats,
              Yields::kI32,
              none,
              {{{5}, 0, 0, {2, 1, std::numeric_limits<double>::quiet_NaN(), 0, 1}}},
              [](auto& x) { return cummin(x[0]).indices; },
              [](auto&) { return Array{{5}, {0, 1, 2, 2, 2}}; },
              0},
          // Longer than a block.
          Row{"cummax",
              "cummax(x, axis).indices, the first place",
              "same",
              Types::kIntegers,
              Yields::kI32,
              none,
              {{{300}, 0, 100}},
              [](auto& x) { return cummax(x[0]).indices; },
              [](auto& x) {
                int64_t top = 0;
                return Build({300}, [&](auto& i) {
                  if (x[0](i) > x[0]({top})) top = i[0];
                  return static_cast<double>(top);
                });
              },
              0},
          // Longer than a block, and than two.
          Row{"cumsum",
              "x.cumsum(axis)",
              "same",
              Types::kIntegersAndBool,
              Yields::kSum,
              Gradient::kNone,
              {{{600}, 0, 1}},
              [](auto& x) { return x[0].cumsum(-1); },
              [](auto& x) {
                double sum = 0;
                return Build({600}, [&](auto& i) { return sum += x[0](i); });
              },
              0},
          Over(
              "logsumexp", "x.logsumexp(axes, keepdim)", Types::kAll, Yields::kFloat, cube,
              [](auto& x) { return x.logsumexp({0, 2}, true); }, {0, 2}, true, LogSumExp, 4),
          Along(
              "softmax", "x.softmax(axes)", [](auto& x) { return x.softmax(); },
              [](double x, const Elements& e) { return std::exp(x - LogSumExp(e)); }),
          Along(
              "log_softmax", "x.log_softmax(axes)", [](auto& x) { return x.log_softmax(); },
              [](double x, const Elements& e) { return x - LogSumExp(e); }),
      },
  };
}

}  // namespace outboard::operators
