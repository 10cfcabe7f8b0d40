// A network for images, trained on several devices, has the losses of one. Its batch is cut, so its
// batch statistics are sums over the devices; lengths that do not divide are padded.
//
// The network of client/examples/mnist.h has kinks: RELU and MAX decide by the last bit, sums over
// the batch are added in another order on each mesh, and one decision that falls otherwise changes
// a gradient by a hundredth. On one device the same batch in reverse order does the same. So the
// network here is the same but smooth, which nothing amplifies, and is held to 1e-4 after all
// steps; that with kinks is held to rounding in its first loss, before any decision counts.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/examples/mnist.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/nn/state.h"
#include "client/session/current_session.h"
#include "client/session/session.h"
#include "tests/e2e/lost_test.h"
#include "tests/support/random_bytes.h"

namespace outboard {
namespace {

constexpr int64_t kImages = 300, kBatch = 20;  // three devices do not divide it

struct SmoothNet {
  nn::Conv2d conv1{1, 8, 5}, conv2{8, 8, 5};
  nn::BatchNorm2d norm1{8};
  nn::Conv2d conv3{8, 16, 3}, conv4{16, 16, 3};
  nn::BatchNorm2d norm2{16};
  nn::Linear out{144, 10};

  Tensor operator()(const Tensor& x) const {
    const Tensor a = norm1(conv2(conv1(x).silu()).silu()).avg_pool2d();
    const Tensor b = norm2(conv4(conv3(a).silu()).silu()).avg_pool2d();
    return out(b.reshape({b.shape(0), 144}));
  }
  void Collect(nn::StateDict& state, const std::string& prefix) const {
    conv1.Collect(state, nn::Join(prefix, "conv1"));
    conv2.Collect(state, nn::Join(prefix, "conv2"));
    norm1.Collect(state, nn::Join(prefix, "norm1"));
    conv3.Collect(state, nn::Join(prefix, "conv3"));
    conv4.Collect(state, nn::Join(prefix, "conv4"));
    norm2.Collect(state, nn::Join(prefix, "norm2"));
    out.Collect(state, nn::Join(prefix, "out"));
  }
};

Tensor Bytes(std::vector<int64_t> dims, int below) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  const std::string bytes = test::RandomBytesBelow(count, below);
  return Tensor::from<uint8_t>(std::vector<uint8_t>(bytes.begin(), bytes.end()), std::move(dims));
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::pair<std::string, std::vector<float>>> weights;  // after the first step
};

class GroupLossesTest : public test::LostTest {
 protected:
  template <typename Net>
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
      const Net net;
      optim::SGD sgd(nn::parameters(net), 0.01);
      const TrainingMode training(true);
      for (int i = 0; i < steps; ++i) {
        const Tensor rows = Tensor::randint({kBatch}, 0, kImages);
        const Tensor loss = net(images[rows].cast(DType::kF32) * (1.0 / 255))
                                .sparse_categorical_crossentropy(labels[rows]);
        loss.backward();
        sgd.step({loss});
        trained.losses.push_back(loss.item());
        if (i > 0) continue;
        for (const auto& [name, weight] : nn::state_dict(net))
          if (weight.dtype() == DType::kF32)
            trained.weights.emplace_back(name, weight.template to_vector<float>());
      }
    }
    ValueOrDie(CloseSession());
    SetSession(nullptr);
    return trained;
  }
};

TEST_F(GroupLossesTest, ASmoothNetworkForImages_HasTheLossesAndWeightsOfOneDevice) {
  cluster_.StartUp(1, "--devices 4 --no-idle-search");
  const Trained alone = Train<SmoothNet>(1, "auto", 20);
  const std::pair<uint32_t, const char*> meshes[] = {{2, "data"}, {3, "data"}, {4, "fsdp"}};
  for (const auto& [devices, spread] : meshes) {
    const Trained trained = Train<SmoothNet>(devices, spread, 20);
    for (size_t i = 0; i < trained.losses.size(); ++i)
      EXPECT_NEAR(trained.losses[i], alone.losses[i], 1e-4 * std::abs(alone.losses[i]))
          << devices << " devices, " << spread << ", step " << i;
    // Running means and variances are among them.
    ASSERT_EQ(trained.weights.size(), alone.weights.size());
    for (size_t w = 0; w < alone.weights.size(); ++w) {
      const auto& [name, expected] = alone.weights[w];
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(trained.weights[w].second[i], expected[i], 2e-6)
            << devices << " devices, " << spread << ", " << name << " " << i;
    }
  }
}

TEST_F(GroupLossesTest, ANetworkWithKinks_HasTheFirstLossOfOneDevice) {
  cluster_.StartUp(1, "--devices 3 --no-idle-search");
  const Trained alone = Train<examples::MnistNet>(1, "auto", 1);
  for (const uint32_t devices : {2u, 3u}) {
    const Trained trained = Train<examples::MnistNet>(devices, "data", 1);
    EXPECT_NEAR(trained.losses[0], alone.losses[0], 5e-6 * std::abs(alone.losses[0])) << devices;
  }
}

}  // namespace
}  // namespace outboard
