// Invariants (CheckInvariants looks at D1 and D2; the sites that could break the others name them)
//   D1  A session has a relay exactly while the core has a seat for it: frames of an executor that
//       was replaced find no relay that would pass them on.
//   D2  There is an entry for a session only while the core has the session.
//   D3  An epoch is announced to the client once its row is on disk: a restarted gateway begins no
//       epoch twice.
//   D4  An executor attaches, stores snapshots and sends frames only with the token of the
//       session's last Assign. The snapshot of several ranks has the parts of all, of one item and
//       one Assign.
//   D5  An endpoint is used only while its connection has an entry here, or its relay knows it.
//   D6  Values leave on one stream, which ends with each epoch.
//   D7  A worker that was set aside gets no session until an operator lifts it, also after a
//       restart of the gateway.
//   D8  An event whose handling threw is the last: the core may have half of it, and actions of it
//       are lost. What was queued for the disk is what a crash at that point leaves, which a
//       gateway that starts anew goes on from.
//
// The entry of a session
//
//   (none) --Restore--> awaits its worker --Do(Welcome)--> has a relay
//   (none) --Do(Assign)--> has a relay --Attach--> has an executor
//   has an executor --Do(Live), Connect--> has a client --Do(Detach)--> has an executor
//   has a relay --Do(DropExecutor), DropRelay--> between two executors --Do(Assign)--> has a relay
//   has an executor --Detached, OnSessionEnded--> ending
//   ending --the other of the two, TellOverdueEndings--> the core decides
//   any --Do(Forget)--> (none)
#include "gateway/data_path/core_driver.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/admission/graph_admission.h"
#include "gateway/admission/graph_bytes.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "gateway/base/token.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/observer.h"
#include "gateway/data_path/relay.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/ledger/usage.h"
#include "proto/cloud.pb.h"
#include "telemetry/counters.h"
#include "wire/limits.h"
#include "wire/status_code.h"
#include "wire/version.h"

namespace outboard::gateway {

namespace {

constexpr uint32_t kRecoverySinceProtocol = 2;

// Of a driver that nobody watches.
DriverObserver nobody;

// KnownIdentity of a row, where it is "gpu-3#12@77aa...": the 12th to join.
std::string IdentityOfRow(const std::string& worker) {
  const size_t at = worker.rfind('@');
  if (at == std::string::npos) return worker;  // of an older gateway: nobody can prove to be it
  const std::string name = worker.substr(0, at);
  return KnownIdentity(name.substr(0, name.rfind('#')), worker.substr(at + 1));
}

}  // namespace

CoreDriver::CoreDriver(const CoreOptions& options, DriverHost* host, WriteQueue* writes,
                       BlobUses* blobs, ClientAuth* auth, DriverPlanted planted)
    : host_(host),
      writes_(writes),
      blobs_(blobs),
      auth_(auth),
      options_(options),
      planted_(planted),
      graph_admission_(std::make_unique<GraphAdmission>()),
      graphs_(std::make_unique<GraphBytes>(kGraphBytesInFlightMax)),
      sharder_(std::make_unique<GraphSharder>()),
      observer_(&nobody),
      core_(options) {
  writes_->OnNotWritten([this](SessionId session, const absl::Status&) {  // it is logged
    std::lock_guard lock(mutex_);
    Tell(RowNotWritten{session});
  });
}

CoreDriver::~CoreDriver() = default;

void CoreDriver::Restore(const TakenOver& taken, const Usage& past) {
  const SessionRow& row = taken.row;
  proto::GroupState state;
  std::shared_ptr<GroupRuns> runs;
  if (row.devices > 1) {
    const bool is_known = row.recoverable && !row.group_state.empty() &&
                          state.ParseFromString(row.group_state) &&
                          (!state.has_parts() || state.seq() == row.snapshot_seq) &&
                          ResumeRuns(row.tenant, row.devices, state, runs);
    if (!is_known) return LoseGroup(row);
  }
  std::lock_guard lock(mutex_);
  Session& session = Entry(row.session);
  session.runs = std::move(runs);
  session.group_state = row.group_state;
  session.opened_at = row.opened_at;
  session.attach_hash = TokenFromBytes(row.attach_hash);
  session.is_restored = true;
  if (const size_t at = row.worker.rfind('@'); at != std::string::npos)
    session.had_by.insert(row.worker.substr(at + 1));
  SessionRestored event;
  event.session = row.session;
  event.tenant = row.tenant;
  event.resume_hash = TokenFromBytes(row.resume_hash).value_or(host_->DrawToken());
  event.epoch = row.epoch;
  event.grant = taken.last_grant;
  event.key_id = taken.last_key;
  // They count from 1, and not so fast.
  event.placement = static_cast<uint64_t>(host_->WallNow().unix_ms);
  event.devices = row.devices;
  // All executors of one on several devices are new: it begins with its last snapshot.
  if (row.devices == 1) event.worker_identity = IdentityOfRow(row.worker);
  event.mesh.assign(state.mesh().begin(), state.mesh().end());
  event.spread = state.spread();
  event.has_parts = state.has_parts();
  event.had_client = row.state == SessionRowState::kOpen;
  event.recoverable = row.recoverable;
  event.snapshot_root = row.snapshot_root;
  event.snapshot_seq = row.snapshot_seq;
  event.past_amount = past.amount;
  event.past_ms = past.device_ms;
  event.price_per_hour = row.price_per_hour;
  event.name = row.name;
  event.price_class = row.price_class;
  event.idle_prices = row.idle_prices;
  event.wall = row.opened_at;
  Tell(event);
}

// False: it does not say how the arrays lie that the session's snapshot holds.
bool CoreDriver::ResumeRuns(TenantId tenant, uint32_t devices, const proto::GroupState& state,
                            std::shared_ptr<GroupRuns>& runs) {
  if (!state.has_parts()) return true;
  const auto spread = shard::SpreadFromName(state.spread().empty() ? "auto" : state.spread());
  shard::Mesh mesh{{state.mesh().begin(), state.mesh().end()}};
  if (mesh.sizes.empty()) mesh.sizes.push_back(devices);
  if (!spread.ok() || !shard::CheckMesh(mesh).ok() || mesh.ranks() != devices) return false;
  runs = std::make_shared<GroupRuns>(tenant, std::move(mesh), *spread, sharder_.get(),
                                     state.gathers_fetched());
  return runs->Resume(state).ok();
}

// Nobody knows how its ranks share what it has.
void CoreDriver::LoseGroup(SessionRow row) {
  Remember(row);
  row.state = SessionRowState::kLost;
  row.closed_at = host_->WallNow();
  writes_->Write(std::move(row));
}

void CoreDriver::Remember(const SessionRow& lost) {
  std::lock_guard lock(mutex_);
  if (auto hash = TokenFromBytes(lost.resume_hash)) lost_.push_back(*hash);
}

// Does not throw (D8).
void CoreDriver::Tell(const Event& event) {
  if (has_given_up_) return;
  const absl::Status status = ErrorIfThrown("an event of the gateway's core", [&] {
    const MonoTime now = planted_.wall_clock ? MonoTime{host_->WallNow().unix_ms * 1'000'000}
                                             : host_->Now();
    std::vector<Action> actions = core_.On(event, now);
    if (actions.empty()) return absl::OkStatus();
    writes_->Cork();
    const absl::Cleanup uncork = [this] { writes_->Uncork(); };
    for (Action& action : actions) {
      std::visit([this](auto& a) { Do(a); }, action);
      if (has_given_up_) break;  // within an event that this action told of
    }
    return absl::OkStatus();
  });
  if (!status.ok() && !std::exchange(has_given_up_, true)) host_->GiveUp(status);
  changed_.notify_all();
}

// ---- entries ------------------------------------------------------------------------------------

CoreDriver::Client* CoreDriver::FindClient(ConnId conn) const {
  const auto it = clients_.find(conn);
  return it == clients_.end() ? nullptr : it->second.get();
}

CoreDriver::Session* CoreDriver::Find(const SessionId& session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : it->second.get();
}

CoreDriver::Session& CoreDriver::Entry(const SessionId& session) {
  auto& entry = sessions_[session];
  if (entry == nullptr) entry = std::make_unique<Session>();
  return *entry;
}

CoreDriver::Worker* CoreDriver::FindWorker(WorkerId worker) const {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : it->second.get();
}

std::string CoreDriver::NameOf(WorkerId worker) const {
  const Worker* const known = FindWorker(worker);
  return known == nullptr ? "" : known->name;
}

std::string CoreDriver::CheckInvariants() const {
  std::lock_guard lock(mutex_);
  if (std::string broken = core_.CheckInvariants(); !broken.empty()) return broken;
  for (const auto& [id, session] : sessions_) {
    if (!core_.Has(id)) return "D2: an entry of " + id.Hex();
    if ((session->relay != nullptr) != core_.HasSeat(id)) return "D1: the relay of " + id.Hex();
  }
  return "";
}

// ---- clients ------------------------------------------------------------------------------------

ConnId CoreDriver::AddClient(ClientPort* port) {
  std::lock_guard lock(mutex_);
  const ConnId conn{next_conn_++};
  clients_[conn] = std::make_unique<Client>(Client{port, {}, {}, {}, nullptr});
  return conn;
}

void CoreDriver::ClientAdmitted(ConnId conn) {
  std::lock_guard lock(mutex_);
  if (Client* const client = FindClient(conn)) client->silent_ns = 0;
}

void CoreDriver::ClientSpoke(ConnId conn) {
  std::lock_guard lock(mutex_);
  if (Client* const client = FindClient(conn)) client->silent_ns.reset();
}

void CoreDriver::RemoveClient(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientGone{conn});
  // Held until here: a relay that still knew the endpoint would use it after its end (D5).
  const auto it = clients_.find(conn);
  if (it == clients_.end()) return;
  Client& client = *it->second;
  if (client.relay != nullptr) client.relay->DropClient(&client.endpoint());
  clients_.erase(it);
}

void CoreDriver::ClientBroke(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientGone{conn});
}

void CoreDriver::Open(ConnId conn, const Identity& identity, const proto::Open& open) {
  std::lock_guard lock(mutex_);
  Client* const client = FindClient(conn);
  if (client == nullptr) return;
  client->identity = identity;
  client->open = open;
  identity.shares_tuning ? static_cast<void>(sharing_.insert(identity.tenant))
                         : static_cast<void>(sharing_.erase(identity.tenant));
  auto refuse = [&](const absl::Status& why,
                    telemetry::Refusal reason = telemetry::Refusal::kProtocol) {
    telemetry::CountRefused(reason);
    Relay::SendEnd(client->endpoint(), why, {}, 0, 0);
  };
  if (has_given_up_) return refuse(GivenUp(), telemetry::Refusal::kLedger);
  const auto protocol = wire::AgreeOn(open.protocol(), wire::kProtocolOfClients,
                                      "the client speaks protocol", "this gateway");
  if (!protocol.ok()) return refuse(protocol.status());
  const auto schema = wire::AgreeOn(open.graph_schema(), wire::kGraphSchemas,
                                    "the client writes graph schema", "this gateway reads");
  if (!schema.ok()) return refuse(schema.status());
  // An executor chooses the newest version in this range, so the range has only one.
  wire::SetRange({*protocol, *protocol}, *client->open.mutable_protocol());
  if (!open.attach().empty() || !open.resume_token().empty()) TellProgress();
  if (!open.attach().empty()) {
    client->resume_token = host_->DrawToken();
    Tell(ClientAttach{conn, identity.tenant, open.attach(), HashOf(client->resume_token),
                      host_->WallNow(), identity.key_id, MaxCostOf(open), QueueNsOf(open),
                      open.devices(), {open.mesh().begin(), open.mesh().end()}, open.spread()});
    return;
  }
  if (open.resume_token().empty()) {
    // What cannot be written cannot be billed; sessions that run go on, and are posted later.
    if (absl::Status trouble = WriteTrouble(); !trouble.ok())
      return refuse(trouble, telemetry::Refusal::kLedger);
    if (absl::Status wrong = CheckClass(open); !wrong.ok()) return refuse(wrong);
    client->resume_token = host_->DrawToken();
    const Token name = host_->DrawToken();
    // A fork has as many devices as its parent, if it says none.
    const uint32_t devices_least = open.fork_of().empty() ? 1 : 0;
    Tell(ClientOpen{conn, identity.tenant, std::max(devices_least, open.devices()),
                    SessionId{name.hi, name.lo}, HashOf(client->resume_token), host_->WallNow(),
                    /*recovers=*/*protocol >= kRecoverySinceProtocol, identity.key_id,
                    MaxCostOf(open), QueueNsOf(open), open.gang(), open.gang_size(),
                    {open.mesh().begin(), open.mesh().end()}, open.spread(), open.name(),
                    open.fork_of(), open.fork_seq(), open.device_class(),
                    open.device_memory_bytes_min()});
    return;
  }
  const auto token = TokenFromBytes(open.resume_token());
  if (!token) return refuse(absl::InvalidArgumentError("a resume token must have 16 bytes"));
  const Token hash = HashOf(*token);
  if (std::find(lost_.begin(), lost_.end(), hash) != lost_.end()) {
    return refuse(absl::NotFoundError(
                      "the session ended with the process that served it, which was started again"),
                  telemetry::Refusal::kNoSession);
  }
  client->resume_token = *token;
  Tell(ClientResume{conn, identity.tenant, hash, host_->WallNow(), identity.key_id,
                    MaxCostOf(open), QueueNsOf(open), open.device_class(),
                    open.device_memory_bytes_min()});
}

void CoreDriver::Close(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientClosed{conn, absl::OkStatus()});
}

void CoreDriver::Leave(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientLeft{conn});
}

std::vector<GatewayCore::Listed> CoreDriver::ListSessions(TenantId tenant) const {
  std::lock_guard lock(mutex_);
  return core_.List(tenant, host_->Now());
}

absl::StatusOr<std::pair<SessionId, Bill>> CoreDriver::StopSession(TenantId tenant,
                                                                   const std::string& session) {
  std::lock_guard lock(mutex_);
  if (has_given_up_) return WriteTrouble();
  const std::optional<SessionId> id = core_.FindNamed(tenant, session);
  if (!id)
    return absl::NotFoundError(
        "the account has no such session; `outboard ps` lists those there are");
  being_stopped_ = {*id, Bill{}};
  Tell(EndSession{*id});
  if (has_given_up_) return WriteTrouble();
  return *std::exchange(being_stopped_, std::nullopt);
}

void CoreDriver::Fail(ConnId conn, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Tell(ClientClosed{conn, why});
}

void CoreDriver::FailSession(SessionId session, const absl::Status& why) {
  telemetry::CountRefused(telemetry::Refusal::kFault);
  std::lock_guard lock(mutex_);
  Tell(EndSession{session, why});
}

void CoreDriver::Deny(ConnId conn, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Tell(ClientDenied{conn, why});
}

absl::Status CoreDriver::OpenValues(ValuesEndpoint* endpoint, const Identity& identity,
                                    SessionId session, Token token) {
  std::lock_guard lock(mutex_);
  if (!core_.IsTheClients(session, identity.tenant, HashOf(token)))
    return absl::NotFoundError("no such session");
  SetValues(Entry(session), endpoint);
  Entry(session).values_key = identity.key_id;
  return absl::OkStatus();
}

void CoreDriver::CloseValues(ValuesEndpoint* endpoint, SessionId id) {
  std::lock_guard lock(mutex_);
  Session* const session = Find(id);
  if (session != nullptr && session->values == endpoint) SetValues(*session, nullptr);
}

void CoreDriver::ValuesWritable(SessionId id) {
  std::shared_ptr<Relay> relay;
  {
    std::lock_guard lock(mutex_);
    if (const Session* const session = Find(id)) relay = session->relay;
  }
  if (relay != nullptr) relay->ClientWritable();
}

// D6.
void CoreDriver::SetValues(Session& session, ValuesEndpoint* endpoint) {
  if (session.values != nullptr && endpoint != nullptr)
    session.values->End(absl::AbortedError("opened anew"));
  session.values = endpoint;
  if (session.relay != nullptr) session.relay->SetValues(endpoint);
}

void CoreDriver::EndValues(Session& session, const absl::Status& why) {
  if (session.values == nullptr) return;
  session.values->End(why);
  SetValues(session, nullptr);
}

// ---- time ---------------------------------------------------------------------------------------

// What is done beside the core's own tick is done again with the next. If a part of it throws, that
// part ends, and is in the log; leases are charged all the same.
void CoreDriver::OnTick() {
  std::lock_guard lock(mutex_);
  if (has_given_up_) return;
  const auto each_by_itself = [](absl::string_view what, const auto& work) {
    return ErrorIfThrown(what, [&] {
      work();
      return absl::OkStatus();
    });
  };
  TellProgress();
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    const SessionId id = at->first;
    const absl::Status status = each_by_itself("asking for a snapshot", [&] {
      if (at->second->relay != nullptr) at->second->relay->CheckSnapshot();
    });
    if (!status.ok()) Tell(EndSession{id, status});
    at = sessions_.upper_bound(id);  // it may be gone
  }
  each_by_itself("setting workers aside", [&] { TakeOffences(); }).IgnoreError();
  each_by_itself("ending sessions", [&] { TellOverdueEndings(); }).IgnoreError();
  each_by_itself("ending silent streams", [&] { EndTheSilent(); }).IgnoreError();
  each_by_itself("refusing sessions", [&] { RefuseWhatCannotBeWritten(); }).IgnoreError();
  Tell(Tick{});
  ++ticks_;
  each_by_itself("keeping receipts", [&] { KeepReceiptsInTime(); }).IgnoreError();
  each_by_itself("measuring links", [&] { MeasureLinks(); }).IgnoreError();
  if (ticks_ % kKeyCheckTicks != 0) return;
  each_by_itself("checking keys", [&] { CheckKeys(); }).IgnoreError();
  each_by_itself("looking at workers set aside", [&] { LookAtQuarantine(); }).IgnoreError();
}

// Also before an executor is told to be lost: what it had done is not charged again.
void CoreDriver::TellProgress() {
  for (const auto& [id, session] : sessions_) TellProgress(id, *session);
}

void CoreDriver::TellProgress(SessionId id, const Session& session) {
  if (session.relay != nullptr)
    Tell(SessionProgress{id,
                         session.relay->busy() || session.relay->is_streaming() ||
                             planted_.never_idle,
                         planted_.bill_replay ? 0 : session.relay->done_seq(),
                         session.is_connecting || session.relay->is_opening() ||
                             session.relay->awaits_saved()});
}

void CoreDriver::CheckKeys() {
  std::set<std::string> keys;
  for (const auto& [conn, client] : clients_) keys.insert(client->identity.key_id);
  for (const auto& [id, session] : sessions_)
    if (session->values != nullptr) keys.insert(session->values_key);
  for (const auto& [id, worker] : workers_) keys.insert(worker->key_id);
  keys.erase("");
  if (keys.empty()) return;
  host_->PostKeys([this, keys = std::move(keys)] {
    for (const std::string& key_id : keys) {
      const absl::Status status = auth_->Check(key_id);
      if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status))
        DenyKey(key_id, status);
    }
  });
}

void CoreDriver::DenyKey(const std::string& key_id, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  std::vector<ConnId> denied;
  for (const auto& [conn, client] : clients_)
    if (client->identity.key_id == key_id) denied.push_back(conn);
  for (const auto& [id, session] : sessions_)
    if (session->values != nullptr && session->values_key == key_id) EndValues(*session, why);
  for (const ConnId conn : denied) Tell(ClientDenied{conn, why});
  for (const auto& [id, worker] : workers_)
    if (worker->key_id == key_id) worker->endpoint->End(why);
}

// ---- shutdown -----------------------------------------------------------------------------------

void CoreDriver::Drain() {
  std::lock_guard lock(mutex_);
  core_.Drain();
  for (const auto& [conn, client] : clients_)
    Notify(*client, proto::Notice::DRAINING, "the gateway stops soon", 0);
}

void CoreDriver::AwaitEmpty(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return core_.session_count() == 0 || has_given_up_; });
}

void CoreDriver::StopAll() {
  std::lock_guard lock(mutex_);
  KeepReceipts();
  stopping_ = true;
  Tell(gateway::StopAll{});
  // After the commands that end their executors; a worker then looks for another gateway.
  for (auto& [id, worker] : workers_)
    worker->endpoint->End(absl::UnavailableError("the gateway is stopping"));
}

uint32_t CoreDriver::devices_total() const {
  std::lock_guard lock(mutex_);
  return core_.devices_total();
}
bool CoreDriver::AwaitDevices(uint32_t count, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return core_.devices_total() >= count; });
}
Census CoreDriver::CountAll() const {
  std::lock_guard lock(mutex_);
  return core_.CountAll(host_->Now());
}
size_t CoreDriver::session_count() const {
  std::lock_guard lock(mutex_);
  return core_.session_count();
}

}  // namespace outboard::gateway
