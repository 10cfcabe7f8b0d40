// The program of docs/packages.md, which uses the installed library: it fits a line.
#include <cstdio>

#include "client/nn/layers.h"
#include "client/nn/optim.h"
using outboard::Tensor;

int main() try {
  outboard::nn::Linear line(1, 1);
  outboard::optim::SGD sgd({line.weight, line.bias}, 0.1);
  const Tensor x = Tensor::uniform({256, 1}, -1, 1), y = x * 3 + 1;
  for (int step = 0; step < 200; ++step) {
    line(x).mse_loss(y).backward();
    sgd.step();
  }
  std::printf("y = %.2f x + %.2f\n", line.weight.item(), line.bias.item());
} catch (const outboard::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
