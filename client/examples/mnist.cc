#include "client/examples/mnist.h"

#include <utility>

#include "client/ops/elementwise/promote.h"

namespace outboard::examples {
namespace {

// Pixels as numbers in 0..1.
Tensor Pixels(const Tensor& images, const Tensor& rows) {
  return images[rows].cast(DefaultFloat()) * (1.0 / 255);
}

}  // namespace

Tensor MnistNet::operator()(const Tensor& x) const {
  const Tensor a = norm1(conv2(conv1(x).relu()).relu()).max_pool2d();
  const Tensor b = norm2(conv4(conv3(a).relu()).relu()).max_pool2d();
  return out(b.flatten(1));
}

void MnistNet::Collect(nn::StateDict& state, const std::string& prefix) const {
  conv1.Collect(state, nn::Join(prefix, "conv1"));
  conv2.Collect(state, nn::Join(prefix, "conv2"));
  norm1.Collect(state, nn::Join(prefix, "norm1"));
  conv3.Collect(state, nn::Join(prefix, "conv3"));
  conv4.Collect(state, nn::Join(prefix, "conv4"));
  norm2.Collect(state, nn::Join(prefix, "norm2"));
  out.Collect(state, nn::Join(prefix, "out"));
}

MnistTrainer::MnistTrainer(Tensor images, Tensor labels, int64_t batch, double lr)
    : images_(std::move(images)),
      labels_(std::move(labels)),
      batch_(batch),
      adam_(nn::parameters(net_), lr) {}

Tensor MnistTrainer::Step(bool send_loss) {
  const TrainingMode training(true);
  Tensor loss;
  {  // Nothing of the forward pass outlives this block, so the step is given all that it replaces.
    const Tensor rows = Tensor::randint({batch_}, 0, images_.shape(0));
    loss = net_(Pixels(images_, rows)).sparse_categorical_crossentropy(labels_[rows]);
    loss.backward();
  }
  if (send_loss)
    adam_.step({loss});
  else
    adam_.step({}, {loss});
  return loss;
}

int64_t MnistTrainer::CountRight(const Tensor& images, const Tensor& labels, int64_t count,
                                 int64_t batch) const {
  const TrainingMode testing(false);
  std::vector<Tensor> right;
  for (int64_t begin = 0; begin < count; begin += batch) {
    // The first row is data, not part of the graph, so that every batch is the same graph.
    const Tensor first = Tensor::from<int32_t>({static_cast<int32_t>(begin)});
    const Tensor rows = Tensor::arange(batch) + first;
    const Tensor guess = net_(Pixels(images, rows)).argmax(1);
    right.push_back((guess == labels[rows]).sum());
    realize({}, {{right.back()}});
  }
  int64_t sum = 0;
  for (const Tensor& tensor : right) sum += static_cast<int64_t>(tensor.item());
  return sum;
}

}  // namespace outboard::examples
