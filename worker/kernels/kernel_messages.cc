#include "worker/kernels/kernel_messages.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/search/neighbours.h"

namespace outboard::worker {

void DemandToWire(const Demand& demand, proto::KernelDemand& message) {
  message.set_name(demand.name.substr(0, kKernelTextBytesMax));
  message.set_canonical(demand.encoding);
  message.set_cost_us(demand.cost_us);
}

Demand DemandFromWire(const proto::KernelDemand& message, const std::string& hardware) {
  return {.key = {IdOfEncoding(message.canonical()).ToBytes(), search::kSpaceVersion, hardware},
          .name = message.name(),
          .encoding = message.canonical(),
          .cost_us = message.cost_us()};
}

absl::Status CheckCount(int count, size_t most, const char* what) {
  if (static_cast<size_t>(count) <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", count, " in a request; limit ", most));
}

absl::Status CheckCompile(const proto::CompileKernels& compile) {
  const proto::CompileRequest& request = compile.request();
  OB_RETURN_IF_ERROR(CheckCount(request.kernels_size(), kBatchKernelsMax, "kernels"));
  for (const proto::KernelSource& kernel : request.kernels())
    if (kernel.opts().size() > kKernelTextBytesMax)
      return absl::InvalidArgumentError(
          absl::StrCat("Opts of ", kernel.opts().size(), " bytes; limit ", kKernelTextBytesMax));
  if (request.has_target())
    return absl::InvalidArgumentError("a target in a request to compile: it is named before");
  return absl::OkStatus();
}

absl::Status CheckTarget(const proto::CompileTarget& target) {
  for (const std::string* text :
       {&target.name(), &target.model(), &target.arch(), &target.features()})
    if (text->size() > kKernelTextBytesMax)
      return absl::InvalidArgumentError(
          absl::StrCat("a target's text of ", text->size(), " bytes; limit ", kKernelTextBytesMax));
  return absl::OkStatus();
}

namespace {

absl::Status CheckLinkedKey(const std::string& key) {
  if (key.size() == kLinkedKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a key of linked code of ", key.size(), " bytes, not ", kLinkedKeyBytes));
}

}  // namespace

absl::Status CheckLinked(const proto::FindLinked& find) {
  OB_RETURN_IF_ERROR(CheckCount(find.keys_size(), kBatchLinkedMax, "keys of linked code"));
  for (const std::string& key : find.keys()) OB_RETURN_IF_ERROR(CheckLinkedKey(key));
  return absl::OkStatus();
}

absl::Status CheckLinked(const proto::AddLinked& add) {
  OB_RETURN_IF_ERROR(CheckCount(add.kernels_size(), kBatchLinkedMax, "linked kernels"));
  for (const proto::LinkedKernel& kernel : add.kernels()) {
    OB_RETURN_IF_ERROR(CheckLinkedKey(kernel.key()));
    if (kernel.code().empty() || kernel.code().size() > kLinkedBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("linked code of ", kernel.code().size(),
                                                     " bytes; limit ", kLinkedBytesMax));
  }
  return absl::OkStatus();
}

}  // namespace outboard::worker
