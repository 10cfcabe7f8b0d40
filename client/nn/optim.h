// Optimisers: a step is one Run that computes the forward and backward pass, the new parameters and
// the loss.
//
//   optim::Adam adam(nn::parameters(model));
//   for (...) {
//     Tensor loss = model(x).sparse_categorical_crossentropy(y);
//     loss.backward();
//     adam.step({loss});                 // sends one message, waits for nothing
//     print(loss.item());                // waits for what that message brings back
//   }
//
// step uses the gradients up: grad() is empty after it, and the buffers that it replaces are
// donated unless something else can still read them. Keep a gradient by copying the Tensor that
// grad() gives.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::optim {

class Optimizer {
 public:
  // Throws Error with INVALID_ARGUMENT where there is nothing to optimise.
  Optimizer(std::vector<Tensor> parameters, double lr, At at);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Assigns the new parameters and realises them, the optimiser's state, pending assigns (running
  // means), `fetch` and `compute` by one Run, which also sends the values of `fetch` back. What is
  // now in one and now in the other is one graph. Parameters without a gradient stay as they are.
  // Throws Error with FAILED_PRECONDITION if no parameter has a gradient.
  void step(const std::vector<Tensor>& fetch = {}, const std::vector<Tensor>& compute = {},
            At at = At::current());
  void zero_grad();

  // The learning rate is state in the cloud: changing it changes no graph.
  void set_lr(double lr, At at = At::current());
  double lr() const { return lr_; }
  const std::vector<Tensor>& params() const { return params_; }

 protected:
  // Realises parameters and state, so that the first step is the same graph as the later ones.
  void Start(At at);
  // State of one number, f32 [1].
  Tensor Scalar(double value, At at);
  // State of zeros like each parameter.
  std::vector<Tensor> ZerosLikeParams(At at);

  // Once a step, before any Update.
  virtual void Begin(At at) {}
  // The amount to subtract from parameter i, before the learning rate; assigns the state.
  virtual Tensor Update(size_t i, const Tensor& gradient, At at) = 0;

  std::vector<Tensor> params_;
  std::vector<Tensor> state_;

 private:
  double lr_;
  Tensor lr_tensor_;
};

// w -= lr * d, where d is the gradient with `weight_decay` * w added; with momentum the running sum
// m = momentum * m + d (with nesterov, momentum * m + d of the new m). PyTorch's spelling of it.
class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, double lr = 0.001, double momentum = 0,
               double weight_decay = 0, bool nesterov = false, At at = At::current());

 private:
  Tensor Update(size_t i, const Tensor& gradient, At at) override;

  double momentum_, weight_decay_;
  bool nesterov_;
  std::vector<Tensor> velocity_;
};

// Kingma and Ba (2015); with weight_decay, decoupled from the gradient (Loshchilov and Hutter,
// 2019).
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<Tensor> parameters, double lr = 0.001, double b1 = 0.9,
                 double b2 = 0.999, double eps = 1e-8, double weight_decay = 0.01,
                 At at = At::current());

 private:
  void Begin(At at) override;
  Tensor Update(size_t i, const Tensor& gradient, At at) override;

  double b1_, b2_, eps_, weight_decay_;
  Tensor b1_power_, b2_power_;  // b1^t, b2^t
  std::vector<Tensor> mean_, square_;
};

class Adam : public AdamW {
 public:
  explicit Adam(std::vector<Tensor> parameters, double lr = 0.001, double b1 = 0.9,
                double b2 = 0.999, double eps = 1e-8, At at = At::current())
      : AdamW(std::move(parameters), lr, b1, b2, eps, 0, at) {}
};

}  // namespace outboard::optim
