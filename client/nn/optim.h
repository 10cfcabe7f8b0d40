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
// step uses up the gradients: grad() is empty afterwards, and the replaced buffers are donated
// unless something else can still read them. To retain a gradient, copy the Tensor that grad()
// returns.
//
// Names, arguments and rules are tinygrad's. State is f32, or as wide as its parameter.
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
  // means), `fetch` and `compute` in one Run, which also sends back the values of `fetch`. A tensor
  // may be in `fetch` in one step and in `compute` in another: the graph is the same. Parameters
  // without a gradient do not change. Throws Error with FAILED_PRECONDITION if no parameter has a
  // gradient.
  void step(const std::vector<Tensor>& fetch = {}, const std::vector<Tensor>& compute = {},
            At at = At::current());
  // The first half of a step: assigns, and returns the tensors to realise, including the losses on
  // which backward() (client/autograd/backward.h) was called, because later they would need a
  // second forward pass. Uses up the gradients of the parameters, and those of that backward()
  // which belong to no optimiser: they count as lost until zero_grad().
  std::vector<Tensor> schedule_step(At at = At::current());
  void zero_grad();

  // Sets the learning rate. It is state in the cloud: changing it changes no graph.
  void set_lr(double lr, At at = At::current());
  double lr() const { return lr_; }                       // as set by set_lr
  const Tensor& lr_tensor() const { return lr_tensor_; }  // f32 [1]; may be assigned
  const std::vector<Tensor>& params() const { return params_; }
  const std::vector<Tensor>& state() const { return state_; }  // without the learning rate

 protected:
  // The functions below must be called within a CallSite (client/lazy/call_site.h).
  // Realises parameters and state, so that the first step is the same graph as the later ones.
  void Start();
  // Makes a state of one number, f32 [1].
  Tensor Scalar(double value);
  // Makes a state of zeros for each parameter.
  std::vector<Tensor> ZerosLikeParams();
  // Returns `amount` times the learning rate.
  Tensor TimesRate(const Tensor& amount) const;

  // Called once per step, before any Update.
  virtual void Begin() {}
  // Returns the amount to subtract from parameter i; assigns the state.
  virtual Tensor Update(size_t i, const Tensor& gradient) = 0;

  std::vector<Tensor> params_;
  std::vector<Tensor> state_;

 private:
  double lr_;
  Tensor lr_tensor_;
};

// You, Gitman and Ginsburg (2017). With d = g + weight_decay * w and the trust ratio
// r = tcoef |w| / (|g| + weight_decay |w|), 1 where a norm is 0 or tcoef is: `classic` momentum is
// the running sum m = momentum * m + r lr d, which is subtracted; else m = momentum * m + d, and r
// lr m is. With nesterov d + momentum * m takes the place of m.
struct LarsOptions {
  double momentum = 0.9, weight_decay = 1e-4;
  bool nesterov = false, classic = true;
  double tcoef = 0.001;
};

class LARS : public Optimizer {
 public:
  explicit LARS(std::vector<Tensor> parameters, double lr = 0.001, LarsOptions options = {},
                At at = At::current());

 protected:
  Tensor Update(size_t i, const Tensor& gradient) override;
  // Returns the update that momentum makes from a parameter's direction.
  Tensor WithMomentum(size_t i, const Tensor& direction);

  const LarsOptions options_;

 private:
  std::vector<Tensor> velocity_;
};

// LARS without trust ratios: PyTorch's SGD, unless `classic`.
class SGD : public LARS {
 public:
  explicit SGD(std::vector<Tensor> parameters, double lr = 0.001, double momentum = 0,
               double weight_decay = 0, bool nesterov = false, bool classic = false,
               At at = At::current())
      : LARS(std::move(parameters), lr, {momentum, weight_decay, nesterov, classic, 0}, at) {}
};

// Options of Muon; weight decay is decoupled from the gradient.
struct MuonOptions {
  double momentum = 0.95, weight_decay = 0.1;
  int64_t ns_steps = 5;
  std::vector<double> ns_coefficients = {3.4445, -4.775, 2.0315};
  bool nesterov = true;
};

// Jordan (2024): SGD whose momentum, as a matrix [first axis, all others], is made nearly
// orthogonal by `ns_steps` of newton_schulz (client/ops/product/product.h). Of parameters of two or
// more axes.
class Muon : public LARS {
 public:
  explicit Muon(std::vector<Tensor> parameters, double lr = 0.001, MuonOptions options = {},
                At at = At::current());

 private:
  Tensor Update(size_t i, const Tensor& gradient) override;

  const double decay_;
  const int64_t ns_steps_;
  const std::vector<double> ns_coefficients_;
};

// You et al. (2019): the step of AdamW times |w| / |step|, which is 1 where one of them is 0.
class LAMB : public Optimizer {
 public:
  explicit LAMB(std::vector<Tensor> parameters, double lr = 0.001, double b1 = 0.9,
                double b2 = 0.999, double eps = 1e-6, double weight_decay = 0, bool adam = false,
                At at = At::current());

 private:
  void Begin() override;
  Tensor Update(size_t i, const Tensor& gradient) override;

  double b1_, b2_, eps_, weight_decay_;
  bool adam_;
  Tensor b1_power_, b2_power_;  // b1^t, b2^t
  std::vector<Tensor> mean_, square_;
};

// Kingma and Ba (2015); with weight_decay, decoupled from the gradient (Loshchilov and Hutter,
// 2019).
class AdamW : public LAMB {
 public:
  explicit AdamW(std::vector<Tensor> parameters, double lr = 0.001, double b1 = 0.9,
                 double b2 = 0.999, double eps = 1e-8, double weight_decay = 0.01,
                 At at = At::current())
      : LAMB(std::move(parameters), lr, b1, b2, eps, weight_decay, true, at) {}
};

class Adam : public AdamW {
 public:
  explicit Adam(std::vector<Tensor> parameters, double lr = 0.001, double b1 = 0.9,
                double b2 = 0.999, double eps = 1e-8, At at = At::current())
      : AdamW(std::move(parameters), lr, b1, b2, eps, 0, at) {}
};

}  // namespace outboard::optim
