// Layers and optimisers: gradients by finite differences, one Run a step, and what a step leaves
// behind.
#include "client/lazy/lazy_graph.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using NnTest = ClientTest;

// d(loss)/d(each element of each input) by central differences in f64, against gradient().
void CheckGradients(const std::vector<Tensor>& inputs,
                    const std::function<Tensor(const std::vector<Tensor>&)>& loss_of,
                    double tolerance = 1e-6) {
  const std::vector<Tensor> gradients = loss_of(inputs).gradient(inputs);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double> values = inputs[i].to_vector<double>();
    std::vector<double> wanted;
    for (size_t e = 0; e < values.size(); ++e) {
      const auto at = [&](double offset) {
        std::vector<double> moved = values;
        moved[e] += offset;
        std::vector<Tensor> changed = inputs;
        changed[i] = Tensor::from<double>(moved, inputs[i].shape());
        return loss_of(changed).item();
      };
      wanted.push_back((at(kStep) - at(-kStep)) / (2 * kStep));
    }
    SCOPED_TRACE(testing::Message() << "input " << i);
    ExpectNear(gradients[i], wanted, tolerance);
  }
}

Tensor Random(const Dims& dims) { return Tensor::uniform(dims, -1, 1, DType::kF64).realize(); }

TEST_F(NnTest, GradientsOfLayers) {
  CheckGradients({Random({3, 4}), Random({5, 4}), Random({5})}, [](const auto& in) {
    return in[0].linear(in[1].transpose(), in[2]).tanh().square().sum();
  });
  CheckGradients({Random({2, 2, 5, 4}), Random({3, 2, 3, 2}), Random({3})}, [](const auto& in) {
    return in[0].conv2d(in[1], in[2]).sigmoid().square().sum();
  });
  CheckGradients({Random({1, 4, 5, 5}), Random({4, 2, 2, 2})}, [](const auto& in) {
    return in[0].conv2d(in[1], {}, {.groups = 2, .stride = 2, .padding = 1}).square().sum();
  });
  CheckGradients({Random({2, 1, 4, 5})},
                 [](const auto& in) { return in[0].max_pool2d().square().sum(); });
  CheckGradients({Random({1, 1, 5, 5})}, [](const auto& in) {
    return in[0].max_pool2d({.kernel = 3, .stride = 2, .padding = 1}).square().sum();
  });
  const Tensor labels = Tensor::from<int32_t>({1, 0, -1});
  CheckGradients({Random({3, 4})},
                 [&](const auto& in) { return in[0].sparse_categorical_crossentropy(labels); });
  CheckGradients({Random({4, 3}), Random({3})}, [](const auto& in) {
    const Tensor mean = in[0].mean({0});
    const Tensor var = (in[0] - mean).square().mean({0});
    return (in[0].batchnorm(in[1], {}, mean, (var + 1e-5).rsqrt()) *
            Tensor::arange(12, DType::kF64).reshape({4, 3}))
        .sum();
  });
  const Tensor rows = Tensor::from<int32_t>({2, 0, 2});
  CheckGradients({Random({3, 2})}, [&](const auto& in) { return in[0][rows].square().sum(); });
  CheckGradients({Random({3, 2}), Random({3, 1})}, [](const auto& in) {
    return Tensor::cat({in[0], in[1]}, 1).softmax().log().mean() + in[0].gelu().sum() +
           in[0].elu().sum() + in[1].softplus().sum() + in[1].var();
  });
}

TEST_F(NnTest, BatchNormUsesTheBatchsStatisticsInTraining) {
  nn::BatchNorm2d norm(2);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 10, 20, 30, 40}, {2, 2, 1, 2});
  {
    const TrainingMode mode(true);
    const Tensor y = norm(x);
    ExpectNear(y.mean({0, 2, 3}), {0, 0}, 1e-5);
    ExpectNear(y.square().mean({0, 2, 3}), {1, 1}, 1e-4);
  }
  // Channel 0 is 1 2 10 20, channel 1 is 3 4 30 40.
  ExpectNear(norm.running_mean, {0.1 * 8.25, 0.1 * 19.25});
  ExpectNear(norm.running_var, {0.9 + 0.1 * 232.75 / 3, 0.9 + 0.1 * 1042.75 / 3});
  const double scale = 1 / std::sqrt(0.9 + 0.1 * 232.75 / 3 + 1e-5);
  EXPECT_NEAR(norm(x).to_vector<double>()[0], (1 - 0.825) * scale, 1e-5);
}

struct Net {
  nn::Conv2d conv{1, 2, 3};
  nn::BatchNorm2d norm{2};
  nn::Linear out{2 * 2 * 2, 3};

  Tensor operator()(const Tensor& x) const {
    return out(norm(conv(x).relu()).max_pool2d().flatten(1).dropout(0.1));
  }
  void Collect(nn::StateDict& state, const std::string& prefix) const {
    conv.Collect(state, nn::Join(prefix, "conv"));
    norm.Collect(state, nn::Join(prefix, "norm"));
    out.Collect(state, nn::Join(prefix, "out"));
  }
};

TEST_F(NnTest, AStepIsOneRunOfOneGraph) {
  session->evaluate = false;
  const Tensor images = Tensor::zeros({50, 1, 6, 6}, DType::kU8).contiguous().realize();
  const Tensor labels = Tensor::zeros({50}, DType::kU8).contiguous().realize();
  const Net net;
  optim::Adam adam(nn::parameters(net));
  const auto step = [&] {
    const TrainingMode mode(true);
    Tensor loss;
    {  // nothing of the forward pass outlives it, so all that is replaced can be donated
      const Tensor rows = Tensor::randint({4}, 0, 50);
      loss = net(images[rows].cast(DType::kF32)).sparse_categorical_crossentropy(labels[rows]);
      loss.backward();
    }
    adam.step({loss});
    return loss;
  };
  step().item();
  const int64_t live = session->live_buffers();
  const size_t graphs = session->graph_count();
  for (int i = 0; i < 1000; ++i) {
    const int64_t runs = session->runs, awaits = session->awaits, donated = session->donated;
    const Tensor loss = step();
    EXPECT_EQ(session->awaits, awaits);
    (void)loss.item();
    ASSERT_EQ(session->runs, runs + 1);
    ASSERT_EQ(session->awaits, awaits + 1);
    // Parameters (6), Adam's state (2 * 6 + 2), running mean and variance, the counter of the
    // random numbers.
    ASSERT_EQ(session->donated, donated + 6 + 14 + 2 + 1);
  }
  EXPECT_EQ(session->graph_count(), graphs) << "every step is the same graph";
  EXPECT_EQ(session->live_buffers(), live);
  EXPECT_EQ(session->fetches, 0);
  EXPECT_EQ(session->puts, 5) << "learning rate, Adam's two powers, the random key and counter";
  EXPECT_LT(internal::LazyGraph::Current()->graph().node_count(), 6000);
}

TEST_F(NnTest, OptimisersFollowTheirFormulas) {
  const auto train = [](auto make) {
    Tensor p = Tensor::from<float>({1, -2}).requires_grad_();
    auto optimizer = make(std::vector<Tensor>{p});
    for (int i = 0; i < 3; ++i) {
      p.square().sum().backward();
      optimizer->step();
    }
    return p;
  };
  const auto by_hand = [](auto update) {
    std::vector<double> p = {1, -2};
    for (double& x : p) update(x);
    return p;
  };
  ExpectNear(train([](auto p) { return std::make_unique<optim::SGD>(p, 0.1, 0.9); }),
             by_hand([](double& x) {
               double v = 0;
               for (int i = 0; i < 3; ++i) {
                 v = 0.9 * v + 2 * x;
                 x -= 0.1 * v;
               }
             }));
  ExpectNear(train([](auto p) { return std::make_unique<optim::SGD>(p, 0.1, 0.9, 0.01, true); }),
             by_hand([](double& x) {
               double v = 0;
               for (int i = 0; i < 3; ++i) {
                 const double g = 2 * x + 0.01 * x;
                 v = 0.9 * v + g;
                 x -= 0.1 * (g + 0.9 * v);
               }
             }));
  ExpectNear(
      train([](auto p) { return std::make_unique<optim::AdamW>(p, 0.1, 0.9, 0.999, 1e-8, 0.01); }),
      by_hand([](double& x) {
        double m = 0, v = 0;
        for (int t = 1; t <= 3; ++t) {
          const double g = 2 * x;
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          const double up =
              m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
          x -= 0.1 * (up + 0.01 * x);
        }
      }),
      1e-4);
}

// Of vectors, since the step is as long as the parameter says.
TEST_F(NnTest, LayerwiseOptimisersFollowTheirFormulas) {
  const auto norm = [](const std::vector<double>& x) { return std::hypot(x[0], x[1]); };
  const auto train = [](auto make) {
    Tensor p = Tensor::from<float>({1, -2}).requires_grad_();
    auto optimizer = make(std::vector<Tensor>{p});
    for (int i = 0; i < 3; ++i) {
      p.square().sum().backward();
      optimizer->step();
    }
    return p;
  };
  for (const bool classic : {true, false}) {
    const optim::LarsOptions options{0.9, 0.25, true, classic, 0.5};
    std::vector<double> p = {1, -2}, m = {0, 0};
    for (int t = 0; t < 3; ++t) {
      const std::vector<double> g = {2 * p[0], 2 * p[1]};
      const double r = 0.5 * norm(p) / (norm(g) + 0.25 * norm(p));
      for (int i = 0; i < 2; ++i) {
        const double d = (g[i] + 0.25 * p[i]) * (classic ? r * 0.1 : 1);
        m[i] = 0.9 * m[i] + d;
        p[i] -= (d + 0.9 * m[i]) * (classic ? 1 : r * 0.1);
      }
    }
    ExpectNear(train([&](auto q) { return std::make_unique<optim::LARS>(q, 0.1, options); }), p);
  }
  std::vector<double> p = {1, -2}, m = {0, 0}, v = {0, 0}, up = {0, 0};
  for (int t = 1; t <= 3; ++t) {
    for (int i = 0; i < 2; ++i) {
      const double g = 2 * p[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.99 * v[i] + 0.01 * g * g;
      up[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.99, t))) + 1e-6) +
              0.25 * p[i];
    }
    const double r = norm(p) / norm(up);
    for (int i = 0; i < 2; ++i) p[i] -= 0.1 * r * up[i];
  }
  ExpectNear(
      train([](auto q) { return std::make_unique<optim::LAMB>(q, 0.1, 0.9, 0.99, 1e-6, 0.25); }), p,
      1e-4);
  Tensor rows = Tensor::from<float>({2, 0}, {1, 2}).requires_grad_();
  optim::MuonOptions once;  // one row: an orthogonal step has length 1
  once.weight_decay = 0.5;
  once.ns_coefficients = {2, -1.5, 0.5};
  optim::Muon muon({rows}, 0.1, once);
  (rows * Tensor::from<float>({3, 4}, {1, 2})).sum().backward();
  muon.step();
  ExpectNear(rows, {2 - 0.1 * (0.6 + 1), -0.1 * 0.8});
  EXPECT_EQ(StatusOf([&] {
              optim::Muon vector({Tensor::from<float>({1, 2})});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  Tensor zero = Tensor::from<float>({0, 0}).requires_grad_();
  optim::LAMB lamb({zero}, 0.1);
  (zero + 1).sum().backward();
  lamb.step();
  ExpectNear(zero, {-0.1, -0.1});  // a norm of 0 is a ratio of 1
}

TEST_F(NnTest, ParametersThatStartAlikeAreNotOne) {
  nn::BatchNorm2d a(2), b(2);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2, 1, 1});
  const TrainingMode mode(true);
  (a(x) * 2 + b(x)).square().sum().backward();
  const auto ga = a.bias.grad().to_vector<double>(), gb = b.bias.grad().to_vector<double>();
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(ga[i], 2 * gb[i], 1e-4);
}

TEST_F(NnTest, GradientsAddUpUntilAStep) {
  Tensor p = Tensor::from<float>({3}).requires_grad_();
  (p * 2).sum().backward();
  (p * 5).sum().backward();
  ExpectNear(p.grad(), {7});
  optim::SGD sgd({p}, 1);
  sgd.step();
  EXPECT_TRUE(p.grad().empty());
  ExpectNear(p, {-4});
  EXPECT_EQ(StatusOf([&] { sgd.step(); }).code(), absl::StatusCode::kFailedPrecondition);
  sgd.set_lr(0.5);
  p.sum().backward();
  sgd.step();
  ExpectNear(p, {-4.5});
}

TEST_F(NnTest, StateDict) {
  const Net a, b;
  const auto state = nn::state_dict(a);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                             "norm.running_mean", "norm.running_var", "out.weight",
                                             "out.bias"}));
  EXPECT_EQ(nn::parameters(a).size(), 6u);
  nn::load_state_dict(nn::state_dict(b), state);
  EXPECT_EQ(b.out.weight.to_vector<float>(), a.out.weight.to_vector<float>());
  auto less = state;
  less.pop_back();
  EXPECT_EQ(StatusOf([&] { nn::load_state_dict(nn::state_dict(b), less); }).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard
