// Layers with given weights, and optimisers after two steps.
#include "client/nn/layers.h"

#include <cmath>

#include "client/nn/optim.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

// The parameter after two steps on sum(p^2), whose gradient is 2p. `update(p, g, t)` is step t.
template <typename State>
Row TwoSteps(const std::string& name, const std::string& form,
             std::function<std::unique_ptr<optim::Optimizer>(Tensor)> make,
             std::function<void(double& p, double g, int t, State&)> update) {
  return {name,
          form,
          "of each parameter",
          Types::kFloats,
          Yields::kSame,
          Gradient::kNone,
          {{{4}}},
          [make](const Tensors& x) {
            Tensor p = x[0].contiguous();
            const auto optimizer = make(p);
            for (int t = 1; t <= 2; ++t) {
              p.square().sum().backward();
              optimizer->step();
            }
            return p;
          },
          [update](const Arrays& x) {
            return Build(x[0].dims, [&](auto& i) {
              double p = x[0](i);
              State state = {};
              for (int t = 1; t <= 2; ++t) update(p, 2 * p, t, state);
              return p;
            });
          },
          16};
}

struct Moments {
  double mean = 0, square = 0;
};

void AdamStep(double& p, double g, int t, Moments& m, double decay) {
  m.mean = 0.75 * m.mean + 0.25 * g;
  m.square = 0.5 * m.square + 0.5 * g * g;
  const double mean = m.mean / (1 - std::pow(0.75, t)), square = m.square / (1 - std::pow(0.5, t));
  p -= 0.125 * (mean / (std::sqrt(square) + 0.125) + decay * p);
}

}  // namespace

Group Layers() {
  const Operand image = {{2, 2, 2, 1}}, along = {{2}};
  return {
      "Layers (nn)",
      {
          Row{"Linear",
              "nn::Linear(in, out, bias)",
              "[..., in] -> [..., out]",
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {{{2, 3}}, {{2, 3}}, {{2}}},
              [](auto& x) {
                nn::Linear layer(3, 2);
                layer.weight = x[1];
                layer.bias = x[2];
                return layer(x[0]);
              },
              [](auto& x) {
                return Build({2, 2}, [&](auto& i) {
                  double sum = x[2]({i[1]});
                  for (int64_t k = 0; k < 3; ++k) sum += x[0]({i[0], k}) * x[1]({i[1], k});
                  return sum;
                });
              },
              8},
          Row{"Conv2d",
              "nn::Conv2d(in, out, kernel, options, bias)",
              "[B, in, H, W] -> [B, out, OH, OW]",
              Types::kNumbers,
              Yields::kSame,
              Gradient::kYes,
              {{{1, 1, 3, 3}}, {{2, 1, 2, 2}}, along},
              [](auto& x) {
                nn::Conv2d layer(1, 2, 2);
                layer.weight = x[1];
                layer.bias = x[2];
                return layer(x[0]);
              },
              [](auto& x) {
                return Build({1, 2, 2, 2}, [&](auto& i) {
                  double sum = x[2]({i[1]});
                  for (int64_t h = 0; h < 2; ++h)
                    for (int64_t w = 0; w < 2; ++w)
                      sum += x[0]({0, 0, i[2] + h, i[3] + w}) * x[1]({i[1], 0, h, w});
                  return sum;
                });
              },
              8},
          Row{"Embedding",
              "nn::Embedding(count, dim)",
              "[...] of integers -> [..., dim]",
              Types::kAll,
              Yields::kSame,
              Gradient::kYes,
              {{{3, 2}}, {{2}, 0, 0, {2, 0}, DType::kI64}},
              [](auto& x) {
                nn::Embedding layer(3, 2);
                layer.weight = x[0];
                return layer(x[1]);
              },
              [](auto& x) {
                return Build({2, 2}, [&](auto& i) { return x[0]({i[0] == 0 ? 2 : 0, i[1]}); });
              },
              0},
          Row{"LayerNorm",
              "nn::LayerNorm(dim, eps, affine)",
              "[..., dim] -> same",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {{{2, 3}}, {{3}}, {{3}}},
              [](auto& x) {
                nn::LayerNorm layer(3, 0.5);
                layer.weight = x[1];
                layer.bias = x[2];
                return layer(x[0]);
              },
              [](auto& x) {
                return Build({2, 3}, [&](auto& i) {
                  double mean = 0, var = 0;
                  for (int64_t j = 0; j < 3; ++j) mean += x[0]({i[0], j}) / 3;
                  for (int64_t j = 0; j < 3; ++j)
                    var += (x[0]({i[0], j}) - mean) * (x[0]({i[0], j}) - mean) / 3;
                  return (x[0](i) - mean) / std::sqrt(var + 0.5) * x[1]({i[1]}) + x[2]({i[1]});
                });
              },
              10},
          Row{"BatchNorm2d",
              "nn::BatchNorm2d(channels, eps, affine, momentum)",
              "same",
              Types::kAll,
              Yields::kFloat,
              Gradient::kYes,
              {image, along, along},
              [](auto& x) {
                const TrainingMode mode(true);
                nn::BatchNorm2d layer(2, 0.5);
                layer.weight = x[1];
                layer.bias = x[2];
                return layer(x[0]);
              },
              [](auto& x) {
                const auto away = [](double a, double mean) { return (a - mean) * (a - mean); };
                return Build({2, 2, 2, 1}, [&](auto& i) {
                  double mean = 0, var = 0;
                  for (int64_t b = 0; b < 2; ++b)
                    for (int64_t h = 0; h < 2; ++h) mean += x[0]({b, i[1], h, 0}) / 4;
                  for (int64_t b = 0; b < 2; ++b)
                    for (int64_t h = 0; h < 2; ++h) var += away(x[0]({b, i[1], h, 0}), mean) / 4;
                  return (x[0](i) - mean) / std::sqrt(var + 0.5) * x[1]({i[1]}) + x[2]({i[1]});
                });
              },
              10},
      },
  };
}

Group Optimisers() {
  return {
      "Optimisers (optim)",
      {
          TwoSteps<double>(
              "SGD", "optim::SGD(parameters, lr, momentum, weight_decay, nesterov)",
              [](Tensor p) {
                return std::make_unique<optim::SGD>(std::vector{p}, 0.125, 0.5, 0.25, true);
              },
              [](double& p, double g, int, double& velocity) {
                g += 0.25 * p;
                velocity = 0.5 * velocity + g;
                p -= 0.125 * (g + 0.5 * velocity);
              }),
          TwoSteps<Moments>(
              "AdamW", "optim::AdamW(parameters, lr, b1, b2, eps, weight_decay)",
              [](Tensor p) {
                return std::make_unique<optim::AdamW>(std::vector{p}, 0.125, 0.75, 0.5, 0.125, 0.5);
              },
              [](double& p, double g, int t, Moments& m) { AdamStep(p, g, t, m, 0.5); }),
          TwoSteps<Moments>(
              "Adam", "optim::Adam(parameters, lr, b1, b2, eps)",
              [](Tensor p) {
                return std::make_unique<optim::Adam>(std::vector{p}, 0.125, 0.75, 0.5, 0.125);
              },
              [](double& p, double g, int t, Moments& m) { AdamStep(p, g, t, m, 0); }),
      },
  };
}

}  // namespace outboard::operators
