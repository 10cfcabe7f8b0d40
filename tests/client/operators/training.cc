// What layers and losses are made of.
#include <cmath>
#include <numeric>

#include "compiler/reference/alu.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

// -log_softmax(row)[label], of a row of `classes` numbers.
double Loss(const Array& x, int64_t row, int64_t label) {
  double sum = 0;
  for (int64_t i = 0; i < x.dims[1]; ++i) sum += std::exp(x({row, i}));
  return std::log(sum) - x({row, label});
}

Array Scalar(double value) { return {{}, {value}}; }

}  // namespace

Group Training() {
  const Operand logits = {{3, 4}}, along = {{2}}, positive = {{2}, 0.5, 2};
  return {
      "Training",
      {
          Row{"dropout",
              "x.dropout(p)",
              "same",
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {{{8}}},
              [](auto& x) { return x[0].dropout(0.5); },
              [](auto& x) { return x[0]; },
              0},
          Row{"dropout",
              "x.dropout(p)",
              "same",
              Types::kFloats,
              Yields::kSame,
              Gradient::kYes,
              {{{8}}},
              [](auto& x) {
                const TrainingMode mode(true);
                return x[0].dropout(0.5);
              },
              [](auto& x) {
                return Build({8}, [&](auto& i) {
                  const auto word =
                      static_cast<uint32_t>(reference::Threefry(static_cast<uint64_t>(i[0]), 7));
                  return word >> 31 ? 2 * x[0](i) : 0;
                });
              },
              1},
          Row{"batchnorm",
              "x.batchnorm(weight, bias, mean, invstd)",
              "[B, C, ...] with [C]",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 2, 2}}, along, along, along, positive},
              [](auto& x) { return x[0].batchnorm(x[1], x[2], x[3], x[4]); },
              [](auto& x) {
                return Build({2, 2, 2}, [&](auto& i) {
                  const Dims c = {i[1]};
                  return (x[0](i) - x[3](c)) * x[4](c) * x[1](c) + x[2](c);
                });
              },
              8},
          Row{"layernorm",
              "x.layernorm(axis, eps)",
              "same",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 4}}},
              [](auto& x) { return x[0].layernorm(-1, 0.5); },
              [](auto& x) {
                return Build({2, 4}, [&](auto& i) {
                  double mean = 0, square = 0;
                  for (int64_t j = 0; j < 4; ++j) mean += x[0]({i[0], j}) / 4;
                  for (int64_t j = 0; j < 4; ++j)
                    square += (x[0]({i[0], j}) - mean) * (x[0]({i[0], j}) - mean) / 4;
                  return (x[0](i) - mean) / std::sqrt(square + 0.5);
                });
              },
              8},
          Row{"sparse_categorical_crossentropy",
              "x.sparse_categorical_crossentropy(labels, ignore_index, label_smoothing)",
              "[..., classes], [...] -> []",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {logits, {{3}, 0, 0, {2, -1, 0}, DType::kI32}},
              [](auto& x) { return x[0].sparse_categorical_crossentropy(x[1]); },
              [](auto& x) { return Scalar((Loss(x[0], 0, 2) + Loss(x[0], 2, 0)) / 2); },
              4},
          Row{"sparse_categorical_crossentropy",
              "x.sparse_categorical_crossentropy(labels, ignore_index, label_smoothing)",
              "[..., classes], [...] -> []",
              Types::kFloats,
              Yields::kSame,
              Gradient::kYes,
              {logits, {{3}, 0, 0, {2, 1, 0}, DType::kU8}},
              [](auto& x) { return x[0].sparse_categorical_crossentropy(x[1], -1, 0.25); },
              [](auto& x) {
                double loss = 0;
                for (int64_t i = 0; i < 3; ++i) {
                  loss += 0.75 * Loss(x[0], i, 2 - i);
                  for (int64_t j = 0; j < 4; ++j) loss += 0.25 / 4 * Loss(x[0], i, j);
                }
                return Scalar(loss / 3);
              },
              6},
          Row{"mse_loss",
              "x.mse_loss(target)",
              "broadcast -> []",
              Types::kNumbers,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 2}}, {{2, 2}}},
              [](auto& x) { return x[0].mse_loss(x[1]); },
              [](auto& x) {
                double sum = 0;
                for (size_t i = 0; i < 4; ++i) {
                  double away = x[0].values[i] - x[1].values[i];
                  if (IsUnsigned(x.dtype))  // integers wrap before they become floats
                    away = static_cast<double>(
                        static_cast<uint64_t>(static_cast<int64_t>(away * away)) &
                        (ByteWidth(x.dtype) == 8 ? ~uint64_t{0}
                                                 : (uint64_t{1} << 8 * ByteWidth(x.dtype)) - 1));
                  else
                    away *= away;
                  sum += away / 4;
                }
                return Scalar(sum);
              },
              4},
          Row{"binary_crossentropy_logits",
              "x.binary_crossentropy_logits(target)",
              "broadcast -> []",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 2}}, {{2, 2}, 0, 1}},
              [](auto& x) { return x[0].binary_crossentropy_logits(x[1]); },
              [](auto& x) {
                double sum = 0;
                for (size_t i = 0; i < 4; ++i) {
                  const double z = x[0].values[i], t = x[1].values[i];
                  const double s = 1 / (1 + std::exp(-z));
                  sum -= t * std::log(s) + (1 - t) * std::log(1 - s);
                }
                return Scalar(sum / 4);
              },
              4},
      },
  };
}

}  // namespace outboard::operators
