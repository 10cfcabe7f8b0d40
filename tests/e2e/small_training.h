// A training that takes a moment: a convolutional network with batch norm on 40 images of 8 x 8
// pixels in five classes, the same in every run and every process.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard::test {

struct SmallNet {
  nn::Conv2d conv{1, 4, 3};
  nn::BatchNorm2d norm{4};
  nn::Linear linear{4 * 3 * 3, 5};

  Tensor operator()(const Tensor& x) const {
    return linear(norm(conv(x).relu()).max_pool2d().flatten(1));
  }
  void Collect(nn::StateDict& state, const std::string& prefix) const {
    conv.Collect(state, prefix + "conv.");
    norm.Collect(state, prefix + "norm.");
    linear.Collect(state, prefix + "linear.");
  }
};

// By how much a loss may differ from `expected` where sums have another order. Late ones are
// small differences of numbers of about ten, whose last bit stays.
inline double LossTolerance(double expected) { return 1e-4 * std::abs(expected) + 1e-6; }

class SmallTraining {
 public:
  // `cuts_batch`: on several devices each has a part of the batch, and gradients are summed over
  // them. By itself the choice leaves so small a network whole on each device, and nothing is sent.
  explicit SmallTraining(bool cuts_batch = false)
      : cuts_batch_(cuts_batch),
        net_((Tensor::manual_seed(7), SmallNet())),
        sgd_(nn::parameters(net_), 0.05, 0.9) {
    // A class is where the bright row is.
    std::vector<uint8_t> pixels, classes;
    for (int i = 0; i < 40; ++i) {
      for (int p = 0; p < 64; ++p)
        pixels.push_back(static_cast<uint8_t>(p / 8 == i % 5 ? 200 : (p * 7 + i * 13) % 60));
      classes.push_back(static_cast<uint8_t>(i % 5));
    }
    images_ = Tensor::from<uint8_t>(pixels, {40, 1, 8, 8});
    labels_ = Tensor::from<uint8_t>(classes);
  }

  // Sends one step, which brings its loss back; waits for nothing.
  Tensor Step() {
    const TrainingMode training(true);
    const Tensor samples = Tensor::randint({16}, 0, 40);
    const Tensor pixels = images_[samples].cast(DType::kF32) / 255;
    Tensor loss = net_(cuts_batch_ ? pixels.shard(0) : pixels)
                      .sparse_categorical_crossentropy(labels_[samples]);
    loss.backward();
    sgd_.step({loss});
    return loss;
  }

  // Parameters and running means as they are now, one after the other.
  std::string Weights() const {
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : nn::state_dict(net_)) tensors.push_back(tensor);
    std::string all;
    for (const TensorFuture& value : fetch(tensors)) all += value.to_host().bytes;
    return all;
  }

 private:
  const bool cuts_batch_;
  SmallNet net_;
  // Not Adam, whose first steps go by the sign of a gradient even where that is noise.
  optim::SGD sgd_;
  Tensor images_, labels_;
};

}  // namespace outboard::test
