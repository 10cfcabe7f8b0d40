#include "client/nn/optim.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/autograd/backward.h"
#include "client/lazy/call_site.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/product/product.h"

namespace outboard::optim {

namespace {

void CheckAtLeastZero(const char* what, double value) {
  if (!(value >= 0)) ThrowInvalid(absl::StrCat("an optimiser with ", what, " ", value));
}

// A share that a running mean keeps.
void CheckShare(const char* what, double value) {
  if (!(value >= 0 && value < 1))
    ThrowInvalid(absl::StrCat("an optimiser with ", what, " ", value, ", not in [0, 1)"));
}

Tensor Norm(const Tensor& x) { return x.square().sum().sqrt(); }

// a / b, and 1 unless both norms are above 0.
Tensor Ratio(const Tensor& x_norm, const Tensor& y_norm, const Tensor& a, const Tensor& b) {
  return ((x_norm > 0) & (y_norm > 0)).where(a / b, 1);
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, double lr, At at)
    : params_(std::move(parameters)), lr_(lr) {
  const CallSite site(at);
  if (params_.empty()) ThrowInvalid("an optimiser without parameters");
  CheckAtLeastZero("lr", lr);
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].empty()) ThrowInvalid("a parameter is empty");
    for (size_t j = 0; j < i; ++j)
      if (params_[j].value() == params_[i].value()) ThrowInvalid("a parameter is given twice");
    if (!params_[i].requires_grad()) params_[i].requires_grad_();
  }
  lr_tensor_ = Tensor::from<float>({static_cast<float>(lr)}, {1});
}

Tensor Optimizer::Scalar(double value) {
  state_.push_back(Tensor::from<float>({static_cast<float>(value)}, {1}));
  return state_.back();
}

std::vector<Tensor> Optimizer::ZerosLikeParams() {
  std::vector<Tensor> zeros;
  for (const Tensor& parameter : params_) {
    const DType dtype = Promote(parameter.dtype(), DType::kF32);
    zeros.push_back(Tensor::zeros(parameter.shape(), dtype).state_());
    state_.push_back(zeros.back());
  }
  return zeros;
}

Tensor Optimizer::TimesRate(const Tensor& amount) const {
  return amount * lr_tensor_.reshape(Dims{}).cast(amount.dtype());
}

void Optimizer::Start() {
  std::vector<Tensor> all = params_;
  all.insert(all.end(), state_.begin(), state_.end());
  realize(all, {}, CallSite::Line());
}

void Optimizer::set_lr(double lr, At at) {
  const CallSite site(at);
  CheckAtLeastZero("lr", lr);
  lr_ = lr;
  lr_tensor_.assign(Tensor::from<float>({static_cast<float>(lr)}, {1}));
}

void Optimizer::zero_grad() {
  for (Tensor& parameter : params_) parameter.set_grad({});
}

std::vector<Tensor> Optimizer::schedule_step(At at) {
  const CallSite site(at);
  std::vector<Tensor> gradients;
  bool any = false;
  for (const Tensor& parameter : params_) {
    gradients.push_back(parameter.grad());
    any = any || !gradients.back().empty();
    if (IsGradientUsedUp(parameter))
      throw Error(absl::FailedPreconditionError(
                      "step: a gradient was used up by the step before, and nothing was added to "
                      "it; zero_grad() before backward()"),
                  at);
  }
  if (!any)
    throw Error(
        absl::FailedPreconditionError("step: no parameter has a gradient; was backward() called?"),
        at);
  Begin();
  std::vector<Tensor> changed;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (gradients[i].empty()) continue;
    params_[i].assign(params_[i] - Update(i, gradients[i]).cast(params_[i].dtype()));
    changed.push_back(params_[i]);
  }
  gradients.clear();
  UseUpGradients(params_);
  for (Tensor& loss : TakeDifferentiated(params_[0])) changed.push_back(std::move(loss));
  return changed;
}

void Optimizer::step(const std::vector<Tensor>& fetch, const std::vector<Tensor>& compute, At at) {
  const CallSite site(at);
  std::vector<Tensor> changed = schedule_step();
  zero_grad();
  changed.insert(changed.end(), compute.begin(), compute.end());
  realize(changed, fetch, CallSite::Line());
}

// ---- LARS, SGD, Muon ----------------------------------------------------------------------------

LARS::LARS(std::vector<Tensor> parameters, double lr, LarsOptions options, At at)
    : Optimizer(std::move(parameters), lr, at), options_(options) {
  const CallSite site(at);
  CheckAtLeastZero("momentum", options.momentum);
  CheckAtLeastZero("weight_decay", options.weight_decay);
  if (options.nesterov && options.momentum == 0) ThrowInvalid("SGD: nesterov without momentum");
  if (options.momentum != 0) velocity_ = ZerosLikeParams();
  Start();
}

Tensor LARS::WithMomentum(size_t i, const Tensor& direction) {
  const double momentum = options_.momentum;
  if (momentum == 0) return direction;
  const Tensor velocity = velocity_[i] * momentum + direction;
  velocity_[i].assign(velocity);
  return options_.nesterov ? direction + velocity * momentum : velocity;
}

Tensor LARS::Update(size_t i, const Tensor& gradient) {
  const auto& [momentum, decay, nesterov, classic, tcoef] = options_;
  const Tensor& w = params_[i];
  const auto scaled = [&, decay = decay, tcoef = tcoef](const Tensor& direction) {
    if (tcoef == 0) return TimesRate(direction);
    const Tensor w_norm = Norm(w), g_norm = Norm(gradient);
    const Tensor ratio = Ratio(w_norm, g_norm, w_norm * tcoef, g_norm + w_norm * decay);
    return TimesRate(direction * ratio);
  };
  const Tensor direction = decay != 0 ? gradient + w * decay : gradient;
  return classic ? WithMomentum(i, scaled(direction)) : scaled(WithMomentum(i, direction));
}

Muon::Muon(std::vector<Tensor> parameters, double lr, MuonOptions options, At at)
    : LARS(std::move(parameters), lr, {options.momentum, 0, options.nesterov, false, 0}, at),
      decay_(options.weight_decay),
      ns_steps_(options.ns_steps),
      ns_coefficients_(std::move(options.ns_coefficients)) {
  const CallSite site(at);
  CheckAtLeastZero("weight_decay", decay_);
  for (const Tensor& parameter : params_)
    if (parameter.rank() < 2)
      ThrowInvalid("Muon: a parameter of fewer than two axes; give it to another optimiser");
}

Tensor Muon::Update(size_t i, const Tensor& gradient) {
  const Dims dims = gradient.shape();
  const Tensor momentum = WithMomentum(i, gradient).reshape(Dims{dims[0], -1});
  const Tensor even = newton_schulz(momentum, ns_steps_, ns_coefficients_);
  const Tensor step = TimesRate(even.reshape(dims));
  return decay_ == 0 ? step : step + TimesRate(params_[i] * decay_);
}

// ---- LAMB, AdamW, Adam --------------------------------------------------------------------------

LAMB::LAMB(std::vector<Tensor> parameters, double lr, double b1, double b2, double eps,
           double weight_decay, bool adam, At at)
    : Optimizer(std::move(parameters), lr, at),
      b1_(b1),
      b2_(b2),
      eps_(eps),
      weight_decay_(weight_decay),
      adam_(adam) {
  const CallSite site(at);
  CheckShare("b1", b1);
  CheckShare("b2", b2);
  CheckAtLeastZero("eps", eps);
  CheckAtLeastZero("weight_decay", weight_decay);
  b1_power_ = Scalar(1);
  b2_power_ = Scalar(1);
  mean_ = ZerosLikeParams();
  square_ = ZerosLikeParams();
  Start();
}

void LAMB::Begin() {
  b1_power_.assign(b1_power_ * b1_);
  b2_power_.assign(b2_power_ * b2_);
}

// mean / (sqrt(square) + eps), both running means without the zeros that they began with (Kingma
// and Ba, algorithm 1).
Tensor LAMB::Update(size_t i, const Tensor& gradient) {
  const auto mix = [&](Tensor& average, const Tensor& value, double keep) {
    const Tensor result = average * keep + value * (1 - keep);
    average.assign(result);
    return result;
  };
  const auto corrected = [&](const Tensor& average, const Tensor& power) {
    return average / (1 - power.reshape(Dims{}).cast(average.dtype()));
  };
  const Tensor mean = corrected(mix(mean_[i], gradient, b1_), b1_power_);
  const Tensor square = corrected(mix(square_[i], gradient.square(), b2_), b2_power_);
  Tensor step = mean / (square.sqrt() + eps_);
  if (weight_decay_ != 0) step = step + params_[i] * weight_decay_;
  if (!adam_) {
    const Tensor w_norm = Norm(params_[i]), step_norm = Norm(step);
    step = step * Ratio(w_norm, step_norm, w_norm, step_norm);
  }
  return TimesRate(step);
}

}  // namespace outboard::optim
