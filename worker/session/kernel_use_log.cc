#include "worker/session/kernel_use_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::worker {

proto::KernelUse ToWire(const KernelUseRecord& entry) {
  proto::KernelUse out;
  out.set_seq(entry.seq);
  out.set_kernel(entry.version.kernel.ToBytes());
  if (entry.version.opts) out.set_opts(*entry.version.opts);
  return out;
}

absl::StatusOr<KernelUseRecord> KernelUseFromWire(const proto::KernelUse& entry) {
  OB_ASSIGN_OR_RETURN(const KernelId kernel, KernelId::FromBytes(entry.kernel()));
  KernelUseRecord out{entry.seq(), {kernel, std::nullopt}};
  if (entry.has_opts()) out.version.opts = entry.opts();
  return out;
}

absl::Status KernelUseLog::Note(uint64_t seq, KernelVersion version) {
  const auto [known, fresh] = in_use_.try_emplace(version.kernel, version.opts);
  if (!fresh && known->second == version.opts) return absl::OkStatus();
  if (entries_.size() >= kKernelUsesMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the session has used more than ", kKernelUsesMax, " versions of kernels, the limit"));
  known->second = version.opts;
  entries_.push_back({seq, std::move(version)});
  return absl::OkStatus();
}

}  // namespace outboard::worker
