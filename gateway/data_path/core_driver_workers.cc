// Workers as they join, say that they live, and leave.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/accounts/accounts.h"
#include "gateway/base/limits.h"
#include "gateway/base/token.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/observer.h"
#include "gateway/data_path/relay.h"
#include "proto/fleet.pb.h"
#include "wire/data_address.h"
#include "wire/merkle.h"
#include "wire/proof/signing_key.h"
#include "wire/version.h"

namespace outboard::gateway {

namespace {

constexpr uint32_t kTakeSnapshotSinceProtocol = 3;

// Other workers are told to connect there: one that is no address of a host counts as none.
std::string DataAddressOf(const proto::Register& reg) {
  return wire::ParseDataAddress(reg.data_address()).ok() ? reg.data_address() : "";
}

// What is kept of a worker's identity. One that shows none is another each time. A machine of an
// account's own is nobody else, whatever it shows: an identity that is made of the name on a
// certificate (ports.cc) is no secret.
std::string IdentityHash(const std::string& identity, const Identity* owner, DriverHost& host) {
  if (identity.size() != kWorkerIdentityBytes)
    return absl::BytesToHexString(BytesOf(host.DrawToken()));
  const std::string whose =
      owner == nullptr ? "outboard worker"
                       : absl::StrCat("outboard machine of account ", owner->tenant.value, "\n");
  const wire::Hash hash = Sha256(whose + identity);
  return absl::BytesToHexString(std::string(wire::AsBytes(hash).substr(0, 16)));
}

}  // namespace

WorkerId CoreDriver::AddWorker(WorkerEndpoint* endpoint, const proto::Register& reg,
                               const Identity* owner, const std::string& node_serial) {
  std::lock_guard lock(mutex_);
  const WorkerId id{next_worker_++};
  const std::string known_as = NameToldBy(reg.name());
  const std::string name = absl::StrCat(known_as, "#", id.value);
  const std::string identity = IdentityHash(reg.identity(), owner, *host_);
  workers_[id] = std::make_unique<Worker>(
      Worker{endpoint, name, identity, std::min(reg.protocol().max(), wire::kProtocolVersion),
             reg.has_collectives(), reg.groups_recover(), DataAddressOf(reg)});
  if (reg.receipt_key().size() == signing::kPublicKeyBytes)
    workers_.at(id)->receipt_key = reg.receipt_key();
  workers_.at(id)->node_serial = node_serial;
  WorkerJoined event{
      id, name, {}, KnownIdentity(known_as, identity), {}, reg.one_account(),
      aside_.contains(identity)};
  event.out.assign(reg.out_of_service().begin(), reg.out_of_service().end());
  if (owner != nullptr) {
    event.owner = workers_.at(id)->owner = owner->tenant;
    workers_.at(id)->key_id = owner->key_id;
  }
  BeginAllowances(*workers_.at(id));
  workers_.at(id)->sessions_named = static_cast<size_t>(reg.sessions_size());
  event.exclusive = reg.exclusive_devices();
  event.serves_groups = reg.serves_groups();
  event.has_collectives = reg.has_collectives();
  event.groups_recover = reg.groups_recover();
  event.spans = reg.has_collectives() && !workers_.at(id)->data_address.empty();
  event.build = NameToldBy(reg.version());
  event.snapshots_when_asked = workers_.at(id)->protocol >= kTakeSnapshotSinceProtocol;
  workers_.at(id)->speeds = SpeedsOf(reg);
  for (const proto::Device& device : reg.devices()) {
    workers_.at(id)->device_bytes.push_back(device.memory_bytes());
    event.devices.push_back(SlotOf(device, owner != nullptr));
    // Checked by CheckJoin; the prices may have changed since.
    if (prices_ != nullptr && event.devices.back().price_class.empty())
      event.out.push_back(static_cast<uint32_t>(event.devices.size() - 1));
  }
  for (const proto::HeldSession& held : reg.sessions()) {
    const auto session = SessionId::FromBytes(held.session_id());
    const auto token = TokenFromBytes(held.attach_token());
    if (!session || !token || !MayClaim(id, *session, *token)) continue;  // D4
    event.held.push_back(
        {*session, {held.devices().begin(), held.devices().end()}, held.placement()});
  }
  observer_->OnWorkerJoined(name, event.devices.size(), event.held.size());
  LookAtIdentity(id);
  Tell(event);
  MeasureLinksOf(id, reg);
  return id;
}

void CoreDriver::RemoveWorker(WorkerId worker) {
  std::lock_guard lock(mutex_);
  const std::string name = NameOf(worker);
  if (workers_.erase(worker) == 0) return;
  links_.Left(worker);
  if (!stopping_) observer_->OnWorkerLeft(name, "its connection ended");
  TellProgress();
  Tell(WorkerGone{worker});
}

void CoreDriver::OnHeartbeat(WorkerId worker, const proto::Heartbeat& beat) {
  std::lock_guard lock(mutex_);
  if (!MayName(worker, static_cast<size_t>(beat.sessions_size()))) return;
  std::vector<SessionId> alive;
  for (const std::string& bytes : beat.sessions()) {
    if (auto id = SessionId::FromBytes(bytes)) alive.push_back(*id);
  }
  std::vector<uint64_t> memory_bytes(beat.memory_bytes().begin(), beat.memory_bytes().end());
  for (const SessionId& id : alive) CheckSpoken(worker, id);
  // One list is of no use where the other has been shortened.
  if (alive.size() != memory_bytes.size()) memory_bytes.clear();
  Tell(WorkerHeartbeat{worker, alive, std::move(memory_bytes)});
  for (const SessionId& id : alive) {
    const Session* const session = Find(id);
    if (session != nullptr && session->relay != nullptr) session->relay->SetBill(core_.BillOf(id));
  }
}

void CoreDriver::OnDraining(WorkerId worker) {
  std::lock_guard lock(mutex_);
  TellProgress();  // what its sessions repeat elsewhere is free up to where their clients saw them
  Tell(WorkerDraining{worker});
}

}  // namespace outboard::gateway
