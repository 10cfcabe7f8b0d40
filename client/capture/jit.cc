#include "client/capture/jit.h"

#include <utility>

#include "client/capture/jit_step.h"

namespace outboard {

Jit::Jit(Step step) : step_(std::move(step)) {}
Jit::~Jit() = default;
Jit::Jit(Jit&&) noexcept = default;
Jit& Jit::operator=(Jit&&) noexcept = default;

std::vector<Tensor> Jit::operator()(const std::vector<Tensor>& tensors,
                                    const std::vector<SymInt>& sizes, At at) {
  if (captured()) return Send(tensors, sizes, at);
  if (std::exchange(ran_, true))
    return Capture(
        tensors, sizes, [&] { return step_(tensors, sizes); }, at);
  const std::vector<Tensor> returned = step_(tensors, sizes);
  realize(returned, {}, at);
  return returned;
}

void Jit::reset() {
  ran_ = false;
  captured_ = nullptr;
}

std::vector<Tensor> Jit::Capture(const std::vector<Tensor>& tensors,
                                 const std::vector<SymInt>& sizes,
                                 const std::function<std::vector<Tensor>()>& step, At at) {
  auto captured = std::make_unique<internal::JitStep>(tensors, sizes, at);
  std::vector<Tensor> returned = captured->Finish(step());
  captured_ = std::move(captured);
  return returned;
}

std::vector<Tensor> Jit::Send(const std::vector<Tensor>& tensors, const std::vector<SymInt>& sizes,
                              At at) {
  return captured_->Send(tensors, sizes, at);
}

}  // namespace outboard
