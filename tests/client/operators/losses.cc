// Losses, with each reduction.
#include "client/ops/reduce/losses.h"

#include <cmath>

#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

// log_softmax over the classes, which are axis 1 of [N, C].
double LogP(const Array& x, int64_t row, int64_t label) {
  double sum = 0;
  for (int64_t i = 0; i < x.dims[1]; ++i) sum += std::exp(x({row, i}));
  return x({row, label}) - std::log(sum);
}

double MeanLogP(const Array& x, int64_t row) {
  double sum = 0;
  for (int64_t i = 0; i < x.dims[1]; ++i) sum += LogP(x, row, i) / static_cast<double>(x.dims[1]);
  return sum;
}

double LogSigmoid(double x) { return -std::log1p(std::exp(-x)); }

Array Scalar(double value) { return {{}, {value}}; }

Row Loss(const std::string& name, const std::string& form, const std::string& shapes,
         std::vector<Operand> operands, std::function<Tensor(const Tensors&)> make,
         std::function<Array(const Arrays&)> wanted) {
  return OfEveryType(name, form, shapes, Yields::kFloat, std::move(operands), std::move(make),
                     std::move(wanted), /*units=*/8);
}

}  // namespace

Group Losses() {
  const Operand logits = {{3, 4}}, labels = {{3}, 0, 0, {2, 1, 0}, DType::kI32},
                share = {{3, 4}, 0, 1}, probability = {{2, 3}, 0.25, 0.75}, target = {{2, 3}, 0, 1};
  const std::string entropy = "cross_entropy(x, target, reduction, label_smoothing)",
                    sparse =
                        "sparse_categorical_crossentropy(x, labels, ignore_index, "
                        "label_smoothing, reduction)",
                    nll = "nll_loss(x, labels, weight, ignore_index, reduction)",
                    logit = "binary_crossentropy_logits(x, target, reduction, pos_weight)";
  const std::string classes = "[N, C, ...], [N, ...] or [N, C, ...] -> [] or [N, ...]";
  return {
      "Losses",
      {
          Loss(
              "cross_entropy", entropy, classes, {logits, labels},
              [](auto& x) { return cross_entropy(x[0], x[1]); },
              [](auto& x) {
                return Scalar(-(LogP(x[0], 0, 2) + LogP(x[0], 1, 1) + LogP(x[0], 2, 0)) / 3);
              }),
          Loss(
              "cross_entropy", entropy, classes, {logits, labels},
              [](auto& x) { return cross_entropy(x[0], x[1], Reduction::kNone, 0.25); },
              [](auto& x) {
                return Build({3}, [&](auto& i) {
                  const double hit = LogP(x[0], i[0], 2 - i[0]);
                  return -0.75 * hit - 0.25 * MeanLogP(x[0], i[0]);
                });
              }),
          Loss(
              "cross_entropy", entropy, classes, {logits, share},
              [](auto& x) { return cross_entropy(x[0], x[1], Reduction::kSum); },
              [](auto& x) {
                double sum = 0;
                for (int64_t i = 0; i < 3; ++i)
                  for (int64_t j = 0; j < 4; ++j) sum -= x[1]({i, j}) * LogP(x[0], i, j);
                return Scalar(sum);
              }),
          Loss(
              "sparse_categorical_crossentropy", sparse, "[..., C], [...] -> [] or [...]",
              {logits, labels},
              [](auto& x) {
                return sparse_categorical_crossentropy(x[0], x[1], 1, 0, Reduction::kNone);
              },
              [](auto& x) { return Array{{3}, {-LogP(x[0], 0, 2), 0, -LogP(x[0], 2, 0)}}; }),
          Loss(
              "sparse_categorical_crossentropy", sparse, "[..., C], [...] -> [] or [...]",
              {logits, labels},
              [](auto& x) {
                return sparse_categorical_crossentropy(x[0], x[1], {}, 0, Reduction::kSum);
              },
              [](auto& x) {
                return Scalar(-(LogP(x[0], 0, 2) + LogP(x[0], 1, 1) + LogP(x[0], 2, 0)));
              }),
          Loss(
              "nll_loss", nll, "[N, C, ...], [N, ...], [C] -> [] or [N, ...]",
              {logits, labels, {{4}, 0.5, 2}},
              [](auto& x) { return nll_loss(x[0], x[1], x[2], 1); },
              [](auto& x) {
                const double a = x[2]({2}), b = x[2]({0});
                return Scalar(-(a * x[0]({0, 2}) + b * x[0]({2, 0})) / (a + b));
              }),
          Loss(
              "nll_loss", nll, "[N, C, ...], [N, ...], [C] -> [] or [N, ...]", {logits, labels},
              [](auto& x) { return nll_loss(x[0], x[1], {}, {}, Reduction::kNone); },
              [](auto& x) { return Build({3}, [&](auto& i) { return -x[0]({i[0], 2 - i[0]}); }); }),
          Loss(
              "binary_crossentropy", "binary_crossentropy(x, target, reduction)",
              "any -> [] or any", {probability, target},
              [](auto& x) { return binary_crossentropy(x[0], x[1], Reduction::kNone); },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) {
                  const double p = x[0](i), t = x[1](i);
                  return -t * std::log(p) - (1 - t) * std::log(1 - p);
                });
              }),
          Loss(
              "binary_crossentropy_logits", logit, "any -> [] or any",
              {{{2, 3}}, target, {{3}, 0.5, 2}},
              [](auto& x) {
                const Tensor losses =
                    binary_crossentropy_logits(x[0], x[1], Reduction::kNone, x[2]);
                return reduced(losses, Reduction::kSum);
              },
              [](auto& x) {
                double sum = 0;
                for (int64_t i = 0; i < 2; ++i)
                  for (int64_t j = 0; j < 3; ++j) {
                    const double t = x[1]({i, j}), y = x[0]({i, j});
                    sum -= x[2]({j}) * t * LogSigmoid(y) + (1 - t) * LogSigmoid(-y);
                  }
                return Scalar(sum);
              }),
      },
  };
}

}  // namespace outboard::operators
