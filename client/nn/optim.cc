#include "client/nn/optim.h"

#include <utility>

#include "absl/strings/str_cat.h"

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
  lr_tensor_ = Scalar(lr, at);
}

Tensor Optimizer::Scalar(double value, At at) {
  state_.push_back(Tensor::from<float>({static_cast<float>(value)}, {1}, at));
  return state_.back();
}

std::vector<Tensor> Optimizer::ZerosLikeParams(At at) {
  std::vector<Tensor> zeros;
  for (const Tensor& parameter : params_) {
    zeros.push_back(Tensor::zeros(parameter.shape(at), parameter.dtype(at), at).state_(at));
    state_.push_back(zeros.back());
  }
  return zeros;
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

void Optimizer::step(const std::vector<Tensor>& fetch, const std::vector<Tensor>& compute, At at) {
  bool any = false;
  std::vector<Tensor> gradients;
  for (Tensor& parameter : params_) {
    gradients.push_back(parameter.grad());
    any = any || !gradients.back().empty();
  }
  if (!any)
    throw Error(
        absl::FailedPreconditionError("step: no parameter has a gradient; was backward() called?"),
        at);
  Begin(at);
  std::vector<Tensor> changed;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (gradients[i].empty()) continue;
    const Tensor amount = Update(i, gradients[i], at);
    const Tensor scaled = Arg(amount, at) * Arg(lr_tensor_.cast(amount.dtype(at), at), at);
    params_[i].assign(Arg(Arg(params_[i], at) - Arg(scaled, at), at));
    changed.push_back(params_[i]);
  }
  gradients.clear();
  zero_grad();
  changed.insert(changed.end(), compute.begin(), compute.end());
  realize(changed, fetch, at);
}

SGD::SGD(std::vector<Tensor> parameters, double lr, double momentum, double weight_decay,
         bool nesterov, At at)
    : Optimizer(std::move(parameters), lr, at),
      momentum_(momentum),
      weight_decay_(weight_decay),
      nesterov_(nesterov) {
  CheckAtLeastZero("momentum", momentum, at);
  CheckAtLeastZero("weight_decay", weight_decay, at);
  if (nesterov && momentum == 0) ThrowInvalid(at, "SGD: nesterov without momentum");
  if (momentum_ != 0) velocity_ = ZerosLikeParams(at);
  Start(at);
}

Tensor SGD::Update(size_t i, const Tensor& gradient, At at) {
  Tensor g = gradient;
  if (weight_decay_ != 0) g = Arg(g, at) + Arg(Arg(params_[i], at) * Arg(weight_decay_, at), at);
  if (momentum_ == 0) return g;
  const Tensor velocity = Arg(Arg(velocity_[i], at) * Arg(momentum_, at), at) + Arg(g, at);
  velocity_[i].assign(Arg(velocity, at));
  if (!nesterov_) return velocity;
  return Arg(g, at) + Arg(Arg(velocity, at) * Arg(momentum_, at), at);
}

AdamW::AdamW(std::vector<Tensor> parameters, double lr, double b1, double b2, double eps,
             double weight_decay, At at)
    : Optimizer(std::move(parameters), lr, at),
      b1_(b1),
      b2_(b2),
      eps_(eps),
      weight_decay_(weight_decay) {
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

void AdamW::Begin(At at) {
  b1_power_.assign(Arg(Arg(b1_power_, at) * Arg(b1_, at), at));
  b2_power_.assign(Arg(Arg(b2_power_, at) * Arg(b2_, at), at));
}

Tensor AdamW::Update(size_t i, const Tensor& gradient, At at) {
  const auto mix = [&](Tensor& average, const Tensor& value, double keep) {
    const Tensor kept = Arg(average, at) * Arg(keep, at);
    const Tensor added = Arg(value, at) * Arg(1 - keep, at);
    const Tensor result = Arg(kept, at) + Arg(added, at);
    average.assign(Arg(result, at));
    return result;
  };
  const auto corrected = [&](const Tensor& average, const Tensor& power) {
    const Tensor share = Arg(1, at) - Arg(power.cast(average.dtype(at), at), at);
    return Arg(average, at) / Arg(share, at);
  };
  const Tensor mean = corrected(mix(mean_[i], gradient, b1_), b1_power_);
  const Tensor square = corrected(mix(square_[i], gradient.square(at), b2_), b2_power_);
  const Tensor size = Arg(square.sqrt(at), at) + Arg(eps_, at);
  const Tensor update = Arg(mean, at) / Arg(size, at);
  if (weight_decay_ == 0) return update;
  return Arg(update, at) + Arg(Arg(params_[i], at) * Arg(weight_decay_, at), at);
}

}  // namespace outboard::optim
