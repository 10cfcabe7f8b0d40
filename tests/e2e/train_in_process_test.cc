// A training step from the user's lines to kernels, compiled against interpreted.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/tensor/tensor.h"
#include "tests/e2e/in_process.h"
#include "tests/e2e/small_training.h"

namespace outboard {
namespace {

using test::SmallNet;

// The losses of some steps; everything random comes from the seed.
std::vector<double> Train(test::EngineKind kind, int steps) {
  SetSession(test::InProcessSession(kind));
  Tensor::manual_seed(7);
  std::vector<double> losses;
  {
    SmallNet net;
    optim::Adam adam(nn::parameters(net), 0.01);
    Tensor images = Tensor::randint({40, 1, 8, 8}, 0, 255).cast(DType::kU8).realize();
    Tensor labels = Tensor::randint({40}, 0, 5).realize();
    TrainingMode training(true);
    for (int i = 0; i < steps; ++i) {
      const Tensor samples = Tensor::randint({16}, 0, 40);
      Tensor loss = net(images[samples].cast(DType::kF32) / 255)
                        .sparse_categorical_crossentropy(labels[samples]);
      loss.backward();
      adam.step({loss});
      losses.push_back(loss.item());
    }
  }
  SetSession(nullptr);
  return losses;
}

TEST(TrainInProcess, CompiledEqualsInterpreted) {
  const std::vector<double> expected = Train(test::EngineKind::kReference, 4);
  const std::vector<double> actual = Train(test::EngineKind::kCompiled, 4);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], actual[i], 1e-3 * expected[i]) << "step " << i;
}

TEST(TrainInProcess, Learns) {
  const std::vector<double> losses = Train(test::EngineKind::kCompiled, 60);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

TEST(TrainInProcess, StepIsOneRunAndOneRoundTrip) {
  SetSession(test::InProcessSession(test::EngineKind::kCompiled));
  {
    Tensor w = Tensor::uniform({8, 4}).requires_grad_();
    optim::SGD sgd({w}, 0.1);
    const Tensor x = Tensor::ones({16, 8}).realize();
    std::vector<session::Stats> stats;
    for (int i = 0; i < 6; ++i) {
      Tensor loss = x.matmul(w).square().mean();
      loss.backward();
      sgd.step({loss});
      loss.item();
      stats.push_back(SessionIfConnected()->stats());
    }
    EXPECT_EQ(stats[5].runs - stats[2].runs, 3u);
    // None where the answer is there before it is asked for.
    EXPECT_LE(stats[5].blocking_round_trips - stats[2].blocking_round_trips, 3u);
    EXPECT_EQ(stats[5].frames_up - stats[2].frames_up, 3u);
  }
  SetSession(nullptr);
}

}  // namespace
}  // namespace outboard
