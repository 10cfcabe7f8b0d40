#include "gateway/data_path/open_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gateway/ledger/money.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"

namespace outboard::gateway {
namespace {

bool IsName(const std::string& text) {
  return text.size() <= wire::kOpenNameBytesMax &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::Status TakeOpen(proto::Open& open) {
  // First, and by its number alone: entries without content are many times larger in memory than
  // on the wire.
  if (open.kernel_uses_size() > static_cast<int>(wire::kOpenKernelUsesMax))
    return absl::InvalidArgumentError(absl::StrCat(
        "Open: ", open.kernel_uses_size(), " kernel uses; limit ", wire::kOpenKernelUsesMax));
  open.clear_session_id();
  open.clear_snapshot_ms();
  open.clear_snapshot_root();
  open.DiscardUnknownFields();
  if (const size_t bytes = open.ByteSizeLong(); bytes > wire::kOpenBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("Open: ", bytes, " bytes; limit ", wire::kOpenBytesMax));
  if (!IsName(open.client_name()) || !IsName(open.client_version()))
    return absl::InvalidArgumentError(
        absl::StrCat("Open: client_name and client_version have at most ", wire::kOpenNameBytesMax,
                     " printable characters"));
  for (const proto::KernelUse& use : open.kernel_uses())
    if (use.kernel().size() != wire::kHashBytes)
      return absl::InvalidArgumentError("Open: a kernel's id has 32 bytes");
  if (open.has_max_cost_micro_usd() && open.max_cost_micro_usd() == 0)
    return absl::InvalidArgumentError("Open: the most that a session may cost is not nothing");
  if (open.max_cost_micro_usd() > static_cast<uint64_t>(kAmountMaxMicroUsd))
    return absl::FailedPreconditionError(
        absl::StrCat("Open: the most that the session may cost is beyond what the books can hold, ",
                     ToString(MicroUsd{kAmountMaxMicroUsd})));
  if (!IsName(open.gang()))
    return absl::InvalidArgumentError(
        absl::StrCat("Open: a gang's name has at most ", wire::kOpenNameBytesMax,
                     " printable characters"));
  if (!open.gang().empty() && (open.gang_size() < 1 || open.gang_size() > wire::kGangSizeMax))
    return absl::InvalidArgumentError(absl::StrCat("Open: a gang of ", open.gang_size(),
                                                   " sessions; from 1 to ", wire::kGangSizeMax));
  // A new session has used no kernel yet.
  if (open.resume_token().empty()) open.clear_kernel_uses();
  return absl::OkStatus();
}

}  // namespace outboard::gateway
