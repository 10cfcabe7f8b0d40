#include "gateway/admission/open_check.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gateway/ledger/money.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"
#include "wire/session_name.h"

namespace outboard::gateway {
namespace {

bool IsName(const std::string& text) {
  return text.size() <= wire::kOpenNameBytesMax &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
}

// 0 devices read as 1, as a client from before this field says it.
absl::Status CheckMesh(const proto::Open& open) {
  const uint32_t devices = std::max(1u, open.devices());
  if (devices > wire::kSessionDevicesMax)
    return absl::InvalidArgumentError(absl::StrCat("devices = ", open.devices(), "; a session has ",
                                                   "at most ", wire::kSessionDevicesMax));
  if (open.mesh_size() > static_cast<int>(wire::kMeshAxesMax))
    return absl::InvalidArgumentError(absl::StrCat("a mesh of ", open.mesh_size(),
                                                   " axes; limit ", wire::kMeshAxesMax));
  uint64_t product = 1;  // below 64^5
  for (const uint32_t size : open.mesh()) product *= std::min(size, wire::kSessionDevicesMax + 1);
  if (open.mesh_size() > 0 && product != devices)
    return absl::InvalidArgumentError(absl::StrCat("a mesh of ", absl::StrJoin(open.mesh(), " x "),
                                                   " for ", devices, " devices"));
  if (open.spread() == "stages")
    return absl::UnimplementedError("spread = \"stages\": pipeline stages are not there yet");
  static constexpr std::string_view kSpreads[] = {"", "auto", "data", "fsdp", "tensor"};
  if (std::find(std::begin(kSpreads), std::end(kSpreads), open.spread()) == std::end(kSpreads))
    return absl::InvalidArgumentError(
        absl::StrCat("spread = \"", absl::CHexEscape(open.spread().substr(0, 32)),
                     "\": write \"auto\", \"data\", \"fsdp\" or \"tensor\""));
  return absl::OkStatus();
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
  if (absl::Status status = CheckMesh(open); !status.ok()) return status;
  if (open.has_max_cost_micro_usd() && open.max_cost_micro_usd() == 0)
    return absl::InvalidArgumentError("Open: the most that a session may cost is not nothing");
  if (open.max_cost_micro_usd() > static_cast<uint64_t>(kAmountMaxMicroUsd))
    return absl::FailedPreconditionError(
        absl::StrCat("Open: the most that the session may cost is beyond what the books can hold, ",
                     ToString(MicroUsd{kAmountMaxMicroUsd})));
  if (!open.name().empty() && !wire::IsSessionName(open.name()))
    return absl::InvalidArgumentError(
        absl::StrCat("Open: a session's name is ", wire::kSessionNameRule));
  for (const std::string* const text : {&open.attach(), &open.fork_of()})
    if (!text->empty() && !wire::IsSessionName(*text) && !wire::IsSessionIdText(*text))
      return absl::InvalidArgumentError("Open: attach and fork_of are names or ids of sessions");
  const bool is_new = open.resume_token().empty() && open.attach().empty();
  if (!is_new && (!open.name().empty() || !open.fork_of().empty()))
    return absl::InvalidArgumentError("Open: only a new session is given a name or a state");
  if (!open.attach().empty() && !open.resume_token().empty())
    return absl::InvalidArgumentError("Open: a session is entered, or resumed");
  // Others know what they asked for.
  if (open.attach().empty() && open.fork_of().empty()) open.clear_is_new_client();
  if (!IsName(open.gang()))
    return absl::InvalidArgumentError(
        absl::StrCat("Open: a gang's name has at most ", wire::kOpenNameBytesMax,
                     " printable characters"));
  if (!open.gang().empty() && (open.gang_size() < 1 || open.gang_size() > wire::kGangSizeMax))
    return absl::InvalidArgumentError(absl::StrCat("Open: a gang of ", open.gang_size(),
                                                   " sessions; from 1 to ", wire::kGangSizeMax));
  if (!IsName(open.device_class()))
    return absl::InvalidArgumentError(
        absl::StrCat("Open: a class has at most ", wire::kOpenNameBytesMax,
                     " printable characters"));
  // A new session has used no kernel yet.
  if (open.resume_token().empty()) open.clear_kernel_uses();
  return absl::OkStatus();
}

}  // namespace outboard::gateway
