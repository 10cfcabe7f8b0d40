#include "client/nn/optim.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/autograd/backward.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/product/linalg.h"

namespace outboard::optim {

namespace {

void CheckAtLeastZero(const char* what, double value, const At& at) {
  if (!(value >= 0)) ThrowInvalid(at, absl::StrCat("an optimiser with ", what, " ", value));
}

// A share that a running mean keeps.
void CheckShare(const char* what, double value, const At& at) {
  if (!(value >= 0 && value < 1))
    ThrowInvalid(at, absl::StrCat("an optimiser with ", what, " ", value, ", not in [0, 1)"));
}

Tensor Times(const Tensor& x, double factor, const At& at) { return Arg(x, at) * Arg(factor, at); }
Tensor Plus(const Tensor& x, const Tensor& y, const At& at) { return Arg(x, at) + Arg(y, at); }

Tensor Norm(const Tensor& x, const At& at) { return x.square(at).sum({}, false, at).sqrt(at); }

// a / b, and 1 unless both norms are above 0.
Tensor Ratio(const Tensor& x_norm, const Tensor& y_norm, const Tensor& a, const Tensor& b,
             const At& at) {
  const Tensor both = (Arg(x_norm, at) > Arg(0, at)) & Arg(Arg(y_norm, at) > Arg(0, at), at);
  return both.where(Arg(Arg(a, at) / Arg(b, at), at), Arg(1, at));
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, double lr, At at)
    : params_(std::move(parameters)), lr_(lr) {
  if (params_.empty()) ThrowInvalid(at, "an optimiser without parameters");
  CheckAtLeastZero("lr", lr, at);
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].empty()) ThrowInvalid(at, "a parameter is empty");
    for (size_t j = 0; j < i; ++j)
      if (params_[j].value() == params_[i].value()) ThrowInvalid(at, "a parameter is given twice");
    if (!params_[i].requires_grad()) params_[i].requires_grad_(true, at);
  }
  lr_tensor_ = Tensor::from<float>({static_cast<float>(lr)}, {1}, at);
}

Tensor Optimizer::Scalar(double value, At at) {
  state_.push_back(Tensor::from<float>({static_cast<float>(value)}, {1}, at));
  return state_.back();
}

std::vector<Tensor> Optimizer::ZerosLikeParams(At at) {
  std::vector<Tensor> zeros;
  for (const Tensor& parameter : params_) {
    const DType dtype = *Promote(parameter.dtype(at), DType::kF32);
    zeros.push_back(Tensor::zeros(parameter.shape(at), dtype, at).state_(at));
    state_.push_back(zeros.back());
  }
  return zeros;
}

Tensor Optimizer::TimesRate(const Tensor& amount, At at) const {
  const Tensor rate = lr_tensor_.reshape(Dims{}, at).cast(amount.dtype(at), at);
  return Arg(amount, at) * Arg(rate, at);
}

void Optimizer::Start(At at) {
  std::vector<Tensor> all = params_;
  all.insert(all.end(), state_.begin(), state_.end());
  realize(all, {}, at);
}

void Optimizer::set_lr(double lr, At at) {
  CheckAtLeastZero("lr", lr, at);
  lr_ = lr;
  lr_tensor_.assign(Arg(Tensor::from<float>({static_cast<float>(lr)}, {1}, at), at));
}

void Optimizer::zero_grad() {
  for (Tensor& parameter : params_) parameter.set_grad({});
}

std::vector<Tensor> Optimizer::schedule_step(At at) {
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
  Begin(at);
  std::vector<Tensor> changed;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (gradients[i].empty()) continue;
    const Tensor amount = Update(i, gradients[i], at).cast(params_[i].dtype(at), at);
    params_[i].assign(Arg(Arg(params_[i], at) - Arg(amount, at), at));
    changed.push_back(params_[i]);
  }
  gradients.clear();
  UseUpGradients(params_);
  for (Tensor& loss : TakeDifferentiated(params_[0])) changed.push_back(std::move(loss));
  return changed;
}

void Optimizer::step(const std::vector<Tensor>& fetch, const std::vector<Tensor>& compute, At at) {
  std::vector<Tensor> changed = schedule_step(at);
  zero_grad();
  changed.insert(changed.end(), compute.begin(), compute.end());
  realize(changed, fetch, at);
}

// ---- LARS, SGD, Muon ----------------------------------------------------------------------------

LARS::LARS(std::vector<Tensor> parameters, double lr, LarsOptions options, At at)
    : Optimizer(std::move(parameters), lr, at), options_(options) {
  CheckAtLeastZero("momentum", options.momentum, at);
  CheckAtLeastZero("weight_decay", options.weight_decay, at);
  if (options.nesterov && options.momentum == 0) ThrowInvalid(at, "SGD: nesterov without momentum");
  if (options.momentum != 0) velocity_ = ZerosLikeParams(at);
  Start(at);
}

Tensor LARS::WithMomentum(size_t i, const Tensor& direction, At at) {
  if (options_.momentum == 0) return direction;
  const Tensor velocity = Plus(Times(velocity_[i], options_.momentum, at), direction, at);
  velocity_[i].assign(Arg(velocity, at));
  if (!options_.nesterov) return velocity;
  return Plus(direction, Times(velocity, options_.momentum, at), at);
}

Tensor LARS::Update(size_t i, const Tensor& gradient, At at) {
  const auto& [momentum, decay, nesterov, classic, tcoef] = options_;
  const Tensor& w = params_[i];
  const auto scaled = [&](const Tensor& direction) {
    if (tcoef == 0) return TimesRate(direction, at);
    const Tensor w_norm = Norm(w, at), g_norm = Norm(gradient, at);
    const Tensor ratio = Ratio(w_norm, g_norm, Times(w_norm, tcoef, at),
                               Plus(g_norm, Times(w_norm, decay, at), at), at);
    return TimesRate(Arg(direction, at) * Arg(ratio, at), at);
  };
  Tensor direction = gradient;
  if (decay != 0) direction = Plus(direction, Times(w, decay, at), at);
  if (classic) return WithMomentum(i, scaled(direction), at);
  return scaled(WithMomentum(i, direction, at));
}

Muon::Muon(std::vector<Tensor> parameters, double lr, MuonOptions options, At at)
    : LARS(std::move(parameters), lr, {options.momentum, 0, options.nesterov, false, 0}, at),
      decay_(options.weight_decay),
      ns_steps_(options.ns_steps),
      ns_coefficients_(std::move(options.ns_coefficients)) {
  CheckAtLeastZero("weight_decay", decay_, at);
  for (const Tensor& parameter : params_)
    if (parameter.rank(at) < 2)
      ThrowInvalid(at, "Muon: a parameter of fewer than two axes; give it to another optimiser");
}

Tensor Muon::Update(size_t i, const Tensor& gradient, At at) {
  const Dims dims = gradient.shape(at);
  const Tensor momentum = WithMomentum(i, gradient, at).reshape(Dims{dims[0], -1}, at);
  const Tensor even = newton_schulz(momentum, ns_steps_, ns_coefficients_, 1e-7, at);
  const Tensor step = TimesRate(even.reshape(dims, at), at);
  return decay_ == 0 ? step : Plus(step, TimesRate(Times(params_[i], decay_, at), at), at);
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
  CheckShare("b1", b1, at);
  CheckShare("b2", b2, at);
  CheckAtLeastZero("eps", eps, at);
  CheckAtLeastZero("weight_decay", weight_decay, at);
  b1_power_ = Scalar(1, at);
  b2_power_ = Scalar(1, at);
  mean_ = ZerosLikeParams(at);
  square_ = ZerosLikeParams(at);
  Start(at);
}

void LAMB::Begin(At at) {
  b1_power_.assign(Arg(Times(b1_power_, b1_, at), at));
  b2_power_.assign(Arg(Times(b2_power_, b2_, at), at));
}

Tensor LAMB::Update(size_t i, const Tensor& gradient, At at) {
  const auto mix = [&](Tensor& average, const Tensor& value, double keep) {
    const Tensor result = Plus(Times(average, keep, at), Times(value, 1 - keep, at), at);
    average.assign(Arg(result, at));
    return result;
  };
  const auto corrected = [&](const Tensor& average, const Tensor& power) {
    const Tensor whole = power.reshape(Dims{}, at).cast(average.dtype(at), at);
    return Arg(average, at) / Arg(Arg(1, at) - Arg(whole, at), at);
  };
  const Tensor mean = corrected(mix(mean_[i], gradient, b1_), b1_power_);
  const Tensor square = corrected(mix(square_[i], gradient.square(at), b2_), b2_power_);
  const Tensor size = Arg(square.sqrt(at), at) + Arg(eps_, at);
  Tensor step = Arg(mean, at) / Arg(size, at);
  if (weight_decay_ != 0) step = Plus(step, Times(params_[i], weight_decay_, at), at);
  if (!adam_) {
    const Tensor w_norm = Norm(params_[i], at), step_norm = Norm(step, at);
    step = Arg(step, at) * Arg(Ratio(w_norm, step_norm, w_norm, step_norm, at), at);
  }
  return TimesRate(step, at);
}

}  // namespace outboard::optim
