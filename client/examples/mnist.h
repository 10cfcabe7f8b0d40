// The network, optimiser and loop body of tinygrad's beautiful_mnist, for 28 x 28 images of ten
// classes.
#pragma once

#include <string>
#include <vector>

#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard::examples {

struct MnistNet {
  nn::Conv2d conv1{1, 32, 5}, conv2{32, 32, 5};
  nn::BatchNorm2d norm1{32};
  nn::Conv2d conv3{32, 64, 3}, conv4{64, 64, 3};
  nn::BatchNorm2d norm2{64};
  nn::Linear out{576, 10};

  // [batch, 1, 28, 28] of floats -> [batch, 10].
  Tensor operator()(const Tensor& x) const;
  void Collect(nn::StateDict& state, const std::string& prefix) const;
};

// A training in progress. Needs images [n, 1, 28, 28] and labels [n], both of u8 and in the cloud.
class MnistTrainer {
 public:
  MnistTrainer(Tensor images, Tensor labels, int64_t batch, double lr = 0.001);

  // One step on a batch drawn in the cloud; sends one message and waits for nothing. With
  // `send_loss` the loss comes back with it.
  Tensor Step(bool send_loss = true);

  // How many of the first `count` images are classified right. `count` is rounded up to whole
  // batches, which must exist. All batches are one graph, under way at once; waits for the last.
  int64_t CountRight(const Tensor& images, const Tensor& labels, int64_t count,
                     int64_t batch) const;

  const MnistNet& net() const { return net_; }

 private:
  const Tensor images_, labels_;
  const int64_t batch_;
  const MnistNet net_;
  optim::Adam adam_;
};

}  // namespace outboard::examples
