#include "worker/session/restoration.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/limits.h"
#include "wire/limits.h"
#include "wire/status_code.h"

namespace outboard::worker {
namespace {

absl::Status NoSense(const std::string& what) {
  return absl::DataLossError(absl::StrCat("the session's snapshot cannot be read: ", what));
}

}  // namespace

Restoration::Restoration(std::string manifest_root, BlobInbox* inbox)
    : manifest_root_(std::move(manifest_root)), inbox_(inbox) {
  inbox_->Want({.root = manifest_root_});
}

template <typename Entry>
std::string Restoration::KeyOf(const Entry& entry) {
  std::string key = entry.blob_root();
  absl::StrAppend(&key, " ", entry.dtype());
  for (const uint64_t dim : entry.dims()) absl::StrAppend(&key, " ", dim);
  return key;
}

template <typename Entry>
absl::Status Restoration::Ask(const Entry& entry) {
  if (entry.dtype() == 0) return absl::OkStatus();  // no array
  if (entry.dtype() >= static_cast<uint32_t>(kDTypeCount) || entry.dims_size() > limits::kRankMax ||
      entry.blob_root().size() != wire::kHashBytes)
    return NoSense(absl::StrCat("the array of handle ", entry.handle()));
  const std::string key = KeyOf(entry);
  if (!arrays_.try_emplace(key).second) return absl::OkStatus();
  uint64_t bytes = static_cast<uint64_t>(ByteWidth(static_cast<DType>(entry.dtype())));
  for (const uint64_t dim : entry.dims())
    if (__builtin_mul_overflow(bytes, dim, &bytes))
      return NoSense(absl::StrCat("the array of handle ", entry.handle()));
  awaited_[entry.blob_root()].push_back(
      {key, static_cast<DType>(entry.dtype()), {entry.dims().begin(), entry.dims().end()}});
  inbox_->Want({.root = entry.blob_root(), .size_bytes = bytes});
  return absl::OkStatus();
}

absl::Status Restoration::ReadManifest(absl::StatusOr<runtime::DeviceBuffer> manifest) {
  OB_RETURN_IF_ERROR(manifest.status());
  std::string bytes(static_cast<size_t>(manifest->bytes()), '\0');
  OB_RETURN_IF_ERROR(
      manifest->device().Download(manifest->address(), manifest->bytes(), bytes.data()));
  if (!snapshot_.ParseFromString(bytes) || snapshot_.seq() == 0) return NoSense("its manifest");
  for (const auto& held : snapshot_.held()) OB_RETURN_IF_ERROR(Ask(held));
  for (const auto& answer : snapshot_.unacknowledged()) OB_RETURN_IF_ERROR(Ask(answer));
  return absl::OkStatus();
}

absl::StatusOr<bool> Restoration::OnBlob(const std::string& root) {
  const bool is_manifest = snapshot_.seq() == 0;
  const auto awaited = awaited_.find(root);
  if (is_manifest ? root != manifest_root_ : awaited == awaited_.end()) return false;
  std::optional<absl::StatusOr<runtime::DeviceBuffer>> contents = inbox_->Take(root);
  if (!contents) return false;
  if (is_manifest) {
    OB_RETURN_IF_ERROR(ReadManifest(*std::move(contents)));
    return awaited_.empty();
  }
  OB_RETURN_IF_ERROR(contents->status());
  Awaited next = std::move(awaited->second.back());
  awaited->second.pop_back();
  if (awaited->second.empty()) awaited_.erase(awaited);
  OB_RETURN_IF_ERROR(CheckBytes(next.dtype, next.dims, (*contents)->bytes()));
  arrays_[next.key] = std::make_shared<DeviceArray>(
      DeviceArray{next.dtype, std::move(next.dims), **std::move(contents)});
  return awaited_.empty();
}

absl::Status Restoration::Install(SessionState& state, UnacknowledgedAnswers& unacknowledged,
                                  uint64_t received_seq) {
  for (const proto::SessionSnapshot::Held& held : snapshot_.held()) {
    if (held.dtype() != 0) {
      state.Hold(held.handle(), arrays_.at(KeyOf(held)));
      continue;
    }
    absl::Status status(wire::CodeFromWire(held.code()), held.message());
    if (status.ok()) return NoSense(absl::StrCat("the failure of handle ", held.handle()));
    if (!held.op().empty())
      status = AboutNode(std::move(status), FailedNode{held.node(), held.op()});
    state.Poison(held.handle(), std::move(status), held.cause_seq());
  }
  for (const proto::SessionSnapshot::Unacknowledged& answer : snapshot_.unacknowledged()) {
    if (answer.has_saved()) {
      SaveAnswer save{answer.seq(), {}};
      if (answer.has_failed())
        *save.item.mutable_failed() = answer.failed();
      else
        *save.item.mutable_saved() = answer.saved();
      unacknowledged.AddSave(std::move(save));
    } else if (answer.seq() > received_seq) {
      DeviceArrayPtr array = answer.dtype() != 0 ? arrays_.at(KeyOf(answer)) : nullptr;
      Answer value{std::move(array), answer.index(), answer.handle(), answer.failed()};
      OB_RETURN_IF_ERROR(unacknowledged.Add(answer.seq(), std::move(value)));
    }
  }
  std::vector<KernelUseRecord> uses;
  for (const proto::KernelUse& entry : snapshot_.kernel_uses()) {
    OB_ASSIGN_OR_RETURN(KernelUseRecord logged, KernelUseFromWire(entry));
    uses.push_back(std::move(logged));
  }
  arrays_.clear();
  OB_RETURN_IF_ERROR(state.RestoreNames(snapshot_));
  return state.RestoreKernelUses(uses);
}

}  // namespace outboard::worker
