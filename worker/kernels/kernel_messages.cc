#include "worker/kernels/kernel_messages.h"

#include "absl/strings/str_cat.h"

namespace outboard::worker {

void KeyToWire(const TuningKey& key, proto::KernelKey& message) {
  message.set_kernel(key.kernel);
  message.set_search_version(key.search_version);
  message.set_hardware(key.hardware);
  message.set_shareable(key.shareable);
}

TuningKey KeyFromWire(const proto::KernelKey& message) {
  return {message.kernel(), message.search_version(), message.hardware(), message.shareable()};
}

void DemandToWire(const Demand& demand, proto::KernelDemand& message) {
  KeyToWire(demand.key, *message.mutable_key());
  message.set_name(demand.name.substr(0, kKernelTextBytesMax));
  message.set_encoding(demand.encoding);
  message.set_cost_us(demand.cost_us);
}

Demand DemandFromWire(const proto::KernelDemand& message) {
  return {.key = KeyFromWire(message.key()),
          .name = message.name(),
          .encoding = message.encoding(),
          .cost_us = message.cost_us()};
}

absl::Status CheckCompile(const proto::CompileKernels& compile) {
  const proto::CompileRequest& request = compile.request();
  if (request.kernels_size() > static_cast<int>(kBatchKernelsMax))
    return absl::InvalidArgumentError(
        absl::StrCat(request.kernels_size(), " kernels in a request; limit ", kBatchKernelsMax));
  for (const proto::KernelSource& kernel : request.kernels())
    if (kernel.opts().size() > kKernelTextBytesMax)
      return absl::InvalidArgumentError(
          absl::StrCat("Opts of ", kernel.opts().size(), " bytes; limit ", kKernelTextBytesMax));
  const proto::CompileTarget& target = request.target();
  for (const std::string* text :
       {&target.name(), &target.model(), &target.arch(), &target.features()})
    if (text->size() > kKernelTextBytesMax)
      return absl::InvalidArgumentError(
          absl::StrCat("a target's text of ", text->size(), " bytes; limit ", kKernelTextBytesMax));
  return absl::OkStatus();
}

}  // namespace outboard::worker
