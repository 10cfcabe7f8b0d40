// Norms, attention and recurrent steps.
#include <cmath>
#include <limits>

#include "client/ops/product/product.h"
#include "client/ops/reduce/norms.h"
#include "tests/client/operators/each.h"

namespace outboard::operators {
namespace {

struct Moments {
  double mean = 0, variance = 0;
};

Moments MomentsOf(const std::vector<double>& elements) {
  Moments m;
  const auto count = static_cast<double>(elements.size());
  for (const double e : elements) m.mean += e / count;
  for (const double e : elements) m.variance += (e - m.mean) * (e - m.mean) / count;
  return m;
}

// x [B, C, D] with `size` channels a group.
double GroupNormed(const Array& x, const Dims& i, int64_t size, double eps) {
  std::vector<double> group;
  for (int64_t c = i[1] / size * size; c < (i[1] / size + 1) * size; ++c)
    for (int64_t d = 0; d < x.dims[2]; ++d) group.push_back(x({i[0], c, d}));
  const Moments m = MomentsOf(group);
  return (x(i) - m.mean) / std::sqrt(m.variance + eps);
}

Row GroupNorm(int64_t groups, bool affine) {
  std::vector<Operand> operands = {{{2, 4, 3}}};
  if (affine) operands.insert(operands.end(), 2, {{4}});
  return {"group_norm",
          "group_norm(x, groups, weight, bias, eps)",
          "[B, C, ...] with [C]",
          Types::kAll,
          Yields::kFloat,
          Gradient::kYes,
          std::move(operands),
          [=](const Tensors& x) {
            return group_norm(x[0], groups, affine ? x[1] : Tensor(), affine ? x[2] : Tensor(),
                              0.5);
          },
          [=](const Arrays& x) {
            return Build({2, 4, 3}, [&](const Dims& i) {
              const double y = GroupNormed(x[0], i, 4 / groups, 0.5);
              return affine ? y * x[1]({i[1]}) + x[2]({i[1]}) : y;
            });
          },
          10};
}

// What is added to the score of query i and key j.
using MaskOf = std::function<double(const Arrays&, int64_t i, int64_t j)>;

// query [H, L, E], key and value [H / share, S, ...].
Array Attended(const Arrays& x, int64_t share, const MaskOf& mask) {
  const Array &q = x[0], &k = x[1], &v = x[2];
  return Build({q.dims[0], q.dims[1], v.dims[2]}, [&](const Dims& o) {
    double total = 0, sum = 0;
    for (int64_t j = 0; j < k.dims[1]; ++j) {
      double score = 0;
      for (int64_t e = 0; e < q.dims[2]; ++e) score += q({o[0], o[1], e}) * k({o[0] / share, j, e});
      const double weight =
          std::exp(score / std::sqrt(static_cast<double>(q.dims[2])) + mask(x, o[1], j));
      total += weight;
      sum += weight * v({o[0] / share, j, o[2]});
    }
    return sum / total;
  });
}

Row Attention(std::vector<Operand> operands, std::function<Tensor(const Tensors&)> make,
              int64_t share, MaskOf mask) {
  return {"scaled_dot_product_attention",
          "scaled_dot_product_attention(query, key, value, {.mask, .dropout_p, .is_causal, "
          ".enable_gqa})",
          "[..., L, E], [..., S, E], [..., S, V] -> [..., L, V]",
          Types::kNumbers,
          Yields::kFloat,
          Gradient::kYes,
          std::move(operands),
          std::move(make),
          [=](const Arrays& x) { return Attended(x, share, mask); },
          16};
}

// Gate `g` of row b: x [B, I], h [B, H], weights [4 H, ...] and biases [4 H].
double Gate(const Arrays& x, int64_t g, int64_t b, int64_t j) {
  const int64_t row = g * x[1].dims[1] + j;
  double sum = x[5]({row}) + x[6]({row});
  for (int64_t i = 0; i < x[0].dims[1]; ++i) sum += x[0]({b, i}) * x[3]({row, i});
  for (int64_t i = 0; i < x[1].dims[1]; ++i) sum += x[1]({b, i}) * x[4]({row, i});
  return sum;
}

Row Lstm(const std::string& part, std::function<Tensor(const LstmState&)> pick,
         std::function<double(double cell, double output)> wanted) {
  return {"lstm_cell",
          "lstm_cell(x, {hidden, cell}, {input, hidden, input_bias, hidden_bias})." + part,
          "[B, I], [B, H] with [4 H, I], [4 H, H], [4 H] -> [B, H]",
          Types::kNumbers,
          Yields::kFloat,
          Gradient::kYes,
          {{{2, 3}}, {{2, 2}}, {{2, 2}}, {{8, 3}}, {{8, 2}}, {{8}}, {{8}}},
          [pick](const Tensors& x) {
            return pick(lstm_cell(x[0], {x[1], x[2]}, LstmWeights{x[3], x[4], x[5], x[6]}));
          },
          [wanted](const Arrays& x) {
            return Build({2, 2}, [&](const Dims& i) {
              const auto gate = [&](int64_t g) { return Gate(x, g, i[0], i[1]); };
              const double cell =
                  Sigmoid(gate(1)) * x[2](i) + Sigmoid(gate(0)) * std::tanh(gate(2));
              return wanted(cell, Sigmoid(gate(3)));
            });
          },
          24};
}

Row Statistics(const std::string& part, std::function<Tensor(const BatchStatistics&)> pick,
               std::function<double(const Moments&)> wanted) {
  return {"batch_statistics",
          "batch_statistics(x)." + part,
          "[B, C, ...] -> [C]",
          Types::kAll,
          Yields::kFloat,
          Gradient::kYes,
          {{{2, 3, 2}}},
          [pick](const Tensors& x) { return pick(batch_statistics(x[0])); },
          [wanted](const Arrays& x) {
            return Fold(x[0], {0, 2}, false,
                        [&](const std::vector<double>& e) { return wanted(MomentsOf(e)); });
          },
          6};
}

}  // namespace

Group Networks() {
  const double unseen = -std::numeric_limits<double>::infinity();
  const Operand query = {{2, 3, 2}}, key = {{2, 4, 2}}, value = {{2, 4, 3}};
  return {
      "Norms, attention and recurrent steps (norms.h, product.h)",
      {
          GroupNorm(2, true),
          GroupNorm(4, false),
          Row{"rms_norm",
              "rms_norm(x, weight, eps)",
              "[..., C] with [C]",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 3}}, {{3}}},
              [](auto& x) { return rms_norm(x[0], x[1], 0.25); },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) {
                  double square = 0;
                  for (int64_t j = 0; j < 3; ++j) square += x[0]({i[0], j}) * x[0]({i[0], j}) / 3;
                  return x[0](i) / std::sqrt(square + 0.25) * x[1]({i[1]});
                });
              },
              6},
          Statistics(
              "mean", [](auto& s) { return s.mean; }, [](auto& m) { return m.mean; }),
          Statistics(
              "variance", [](auto& s) { return s.variance; }, [](auto& m) { return m.variance; }),
          Row{"batch_norm",
              "batch_norm(x, weight, bias, running, momentum, eps)",
              "[B, C, ...] with [C]",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 3, 2}}, {{3}}, {{3}}, {{3}}, {{3}, 0.5, 2}},
              [](auto& x) {
                RunningStatistics running = {x[3], x[4], {}};
                return batch_norm(x[0], x[1], x[2], running, 0.1, 0.25);
              },
              [](auto& x) {
                return Build({2, 3, 2}, [&](auto& i) {
                  const Dims c = {i[1]};
                  return (x[0](i) - x[3](c)) / std::sqrt(x[4](c) + 0.25) * x[1](c) + x[2](c);
                });
              },
              8},
          Row{"batch_norm",
              "running.variance after batch_norm(x, weight, bias, running, momentum, eps)",
              "[B, C, ...] with [C]",
              Types::kFloats,
              Yields::kSame,
              Gradient::kNone,
              {{{2, 3, 2}}, {{3}}, {{3}, 0.5, 2}},
              [](auto& x) {
                const TrainingMode mode(true);
                RunningStatistics running = {x[1].contiguous(), x[2].contiguous(), {}};
                batch_norm(x[0], {}, {}, running, 0.25);
                return running.variance;
              },
              [](auto& x) {
                const Array variance = Fold(x[0], {0, 2}, false, [](const std::vector<double>& e) {
                  return MomentsOf(e).variance * 4 / 3;
                });
                return Build({3}, [&](auto& i) { return 0.75 * x[2](i) + 0.25 * variance(i); });
              },
              6},
          Attention(
              {query, key, value},
              [](auto& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }, 1,
              [](auto&, int64_t, int64_t) { return 0; }),
          Attention(
              {query, key, value},
              [](auto& x) {
                return scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true});
              },
              1, [=](auto&, int64_t i, int64_t j) { return j > i ? unseen : 0; }),
          Attention(
              {query,
               key,
               value,
               {{3, 4}, 0, 0, {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0}, DType::kBool}},
              [](auto& x) {
                const AttentionOptions options = {.mask = x[3]};
                return scaled_dot_product_attention(x[0], x[1], x[2], options);
              },
              1,
              [=](auto& x, int64_t i, int64_t j) {
                return x[3]({i, j}) != 0 ? 0 : unseen;
              }),
          Attention(
              {{{4, 3, 2}}, key, value, {{3, 4}}},
              [](auto& x) {
                return scaled_dot_product_attention(x[0], x[1], x[2],
                                                    {.mask = x[3], .enable_gqa = true});
              },
              2,
              [](auto& x, int64_t i, int64_t j) {
                return x[3]({i, j});
              }),
          Lstm(
              "cell", [](auto& s) { return s.cell; }, [](double cell, double) { return cell; }),
          Lstm(
              "hidden", [](auto& s) { return s.hidden; },
              [](double cell, double output) { return output * std::tanh(cell); }),
      },
  };
}

}  // namespace outboard::operators
