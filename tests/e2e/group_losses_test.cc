// The example for MNIST, trained on several devices, has the losses and weights of one. Its batch
// is cut, so its batch statistics are sums over the devices; lengths that do not divide are padded.
//
// The network has kinks: RELU and MAX decide by the last bit, sums over the batch are added in
// another order on each mesh, and in f32 one decision that falls otherwise changes a gradient by a
// hundredth, as the same batch in reverse order does on one device. In f64 no last bit comes near
// a decision, and all is as on one device. In f32 the first loss is, before any decision counts
// (docs/decisions/134-kinks.md); a small network is in all its losses (several_workers_test.cc).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/examples/mnist.h"
#include "client/nn/state.h"
#include "client/ops/elementwise/promote.h"
#include "client/session/current_session.h"
#include "client/session/session.h"
#include "tests/e2e/lost_test.h"
#include "tests/support/random_bytes.h"

namespace outboard {
namespace {

constexpr int64_t kImages = 300, kBatch = 20;  // three devices do not divide it
constexpr int kSteps = 20;

Tensor Bytes(std::vector<int64_t> dims, int below) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  const std::string bytes = test::RandomBytesBelow(count, below);
  return Tensor::from<uint8_t>(std::vector<uint8_t>(bytes.begin(), bytes.end()), std::move(dims));
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::pair<std::string, std::vector<double>>> weights;  // after the last step
};

class GroupLossesTest : public test::LostTest {
 protected:
  ~GroupLossesTest() override { SetDefaultFloat(DType::kF32); }

  Trained Train(uint32_t devices, const std::string& spread, int steps) {
    session::SessionOptions options = cluster_.Options();
    options.devices = devices;
    options.spread = spread;
    options.tell = [](const std::string&) {};
    SetSession(ValueOrDie(Session::Connect(options)));
    Trained trained;
    {
      Tensor::manual_seed(1);
      const Tensor images = Bytes({kImages, 1, 28, 28}, 256), labels = Bytes({kImages}, 10);
      examples::MnistTrainer trainer(images, labels, kBatch);
      for (int i = 0; i < steps; ++i) trained.losses.push_back(trainer.Step().item());
      for (const auto& [name, weight] : nn::state_dict(trainer.net()))
        trained.weights.emplace_back(name, weight.cast(DType::kF64).to_vector<double>());
    }
    ValueOrDie(CloseSession());
    SetSession(nullptr);
    return trained;
  }
};

TEST_F(GroupLossesTest, InDoublePrecision_AllLossesAndWeightsAreThoseOfOneDevice) {
  cluster_.StartUp(1, "--devices 4 --no-idle-search");
  SetDefaultFloat(DType::kF64);
  const Trained alone = Train(1, "auto", kSteps);
  const std::pair<uint32_t, const char*> meshes[] = {{4, "data"}, {3, "fsdp"}, {2, "tensor"}};
  for (const auto& [devices, spread] : meshes) {
    const Trained trained = Train(devices, spread, kSteps);
    for (size_t i = 0; i < kSteps; ++i)
      EXPECT_NEAR(trained.losses[i], alone.losses[i], 1e-12 * std::abs(alone.losses[i]))
          << devices << " devices, " << spread << ", step " << i;
    // Running means and variances are among them.
    ASSERT_EQ(trained.weights.size(), alone.weights.size());
    for (size_t w = 0; w < alone.weights.size(); ++w) {
      const auto& [name, expected] = alone.weights[w];
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(trained.weights[w].second[i], expected[i], 1e-9)
            << devices << " devices, " << spread << ", " << name << " " << i;
    }
  }
}

TEST_F(GroupLossesTest, InSinglePrecision_TheFirstLossIsThatOfOneDevice) {
  cluster_.StartUp(1, "--devices 3 --no-idle-search");
  const Trained alone = Train(1, "auto", 1);
  for (const uint32_t devices : {2u, 3u}) {
    const Trained trained = Train(devices, "data", 1);
    EXPECT_NEAR(trained.losses[0], alone.losses[0], 5e-6 * std::abs(alone.losses[0])) << devices;
  }
}

}  // namespace
}  // namespace outboard
