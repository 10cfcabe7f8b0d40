// How CoreDriver carries out what the core decides (D1, D3 and D6 of core_driver.cc).
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/thrown.h"
#include "gateway/base/token.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/observer.h"
#include "gateway/groups/group_runs.h"
#include "proto/fleet.pb.h"
#include "wire/merkle.h"

namespace outboard::gateway {

namespace {

const char* TextOf(WaitReason reason) {
  switch (reason) {
    case WaitReason::kQuota: return "waiting for a device: the account has all that it may have";
    case WaitReason::kGang: return "waiting for the other sessions of the gang";
    case WaitReason::kDevices: break;
  }
  return "waiting for a device";
}

// Of the session, on all of its workers.
size_t RanksOf(const Assign& assign) {
  size_t ranks = 0;
  for (const GroupPart& part : assign.parts) ranks += part.ranks;
  return assign.parts.empty() ? assign.devices.size() : ranks;
}

}  // namespace

std::optional<MicroUsd> CoreDriver::MaxCostOf(const proto::Open& open) {
  if (!open.has_max_cost_micro_usd()) return std::nullopt;
  return MicroUsd{static_cast<int64_t>(open.max_cost_micro_usd())};
}

std::optional<int64_t> CoreDriver::QueueNsOf(const proto::Open& open) {
  if (!open.has_queue_ms_max()) return std::nullopt;
  return int64_t{open.queue_ms_max()} * 1'000'000;
}

void CoreDriver::BeginRelay(SessionId id, TenantId tenant, size_t ranks, bool replays) {
  blobs_->BeginSession(tenant, id);
  Session& session = Entry(id);
  session.relay = std::make_shared<Relay>(
      id, tenant, blobs_, graph_admission_.get(), [host = host_] { return host->Now(); }, observer_,
      static_cast<uint32_t>(ranks));
  session.relay->CountGraphs(graphs_.get());
  session.relay->SetRuns(session.runs);
  session.relay->SetHeads(heads_);
  session.relay->GiveKernelUses(std::exchange(session.kernel_uses, {}), replays);
}

// Their executors attach again, each to a relay of its own.
void CoreDriver::Do(Welcome& action) {
  const Worker* const worker = FindWorker(action.worker);
  if (worker == nullptr) return;
  proto::GatewayCommand command;
  proto::Welcome& welcome = *command.mutable_welcome();
  welcome.set_worker_id(action.worker.value);
  welcome.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat_ns / 1'000'000));
  welcome.set_worker_timeout_ms(static_cast<uint32_t>(options_.worker_timeout_ns / 1'000'000));
  welcome.set_protocol(worker->protocol);
  // The socket asks for the fleet secret.
  if (!worker->owner.has_value()) welcome.set_local_socket(local_socket_);
  for (size_t i = 0; i < action.sessions.size(); ++i) {
    welcome.add_sessions(action.sessions[i].session.Bytes());
    BeginRelay(action.sessions[i].session, action.tenants[i], action.sessions[i].devices.size(),
               /*replays=*/false);
    Entry(action.sessions[i].session).had_by.insert(worker->identity);
  }
  worker->endpoint->Send(std::move(command));
}

// Nothing: every rank computes all. Where a session goes on, its arrays lie as they did.
std::shared_ptr<GroupRuns> CoreDriver::RunsFor(const Assign& assign, const Worker& worker) {
  if (auto known = Entry(assign.session).runs; known != nullptr) return known;
  bool exchange = worker.has_collectives;
  for (const GroupPart& part : assign.parts) {
    const Worker* const partner = FindWorker(part.worker);
    exchange &= partner != nullptr && partner->has_collectives;
  }
  if (RanksOf(assign) < 2 || !exchange) return nullptr;
  shard::Mesh mesh{{assign.mesh.begin(), assign.mesh.end()}};
  if (mesh.sizes.empty()) mesh.sizes.push_back(static_cast<int64_t>(RanksOf(assign)));
  const auto spread = shard::SpreadFromName(assign.spread.empty() ? "auto" : assign.spread);
  const shard::DeviceSpeeds speeds = SpeedsFor(assign, worker, mesh);
  auto runs = std::make_shared<GroupRuns>(assign.tenant, std::move(mesh),
                                          spread.value_or(shard::Spread::kAuto), sharder_.get(),
                                          /*gathers_fetched=*/worker.groups_recover);
  for (const uint32_t device : assign.devices)
    if (device < worker.device_bytes.size()) runs->LimitMemory(worker.device_bytes[device]);
  for (const GroupPart& part : assign.parts) {
    const Worker* const other = FindWorker(part.worker);
    if (other == nullptr || other == &worker) continue;
    for (const uint64_t bytes : other->device_bytes) runs->LimitMemory(bytes);
  }
  runs->LimitMemory(options_.memory_bytes_max);
  runs->SetSpeeds(speeds);
  return runs;
}

void CoreDriver::Do(Assign& action) {
  const Worker* const worker = FindWorker(action.worker);
  if (worker == nullptr) return;
  const Token token = TokenOf(action, *worker);
  Entry(action.session).had_by.insert(worker->identity);
  proto::GatewayCommand command;
  proto::Assign& assign = *command.mutable_assign();
  assign.set_session_id(action.session.Bytes());
  assign.set_attach_token(BytesOf(token));
  assign.set_placement(action.placement);
  for (uint32_t device : action.devices) assign.add_devices(device);
  assign.mutable_mesh()->Assign(action.mesh.begin(), action.mesh.end());
  if (RanksOf(action) > 1 && action.mesh.empty())
    assign.add_mesh(static_cast<uint32_t>(RanksOf(action)));
  for (const GroupPart& part : action.parts) {
    assign.mutable_group()->set_first_rank(action.first_rank);
    proto::GroupPlace::Node& node = *assign.mutable_group()->add_nodes();
    node.set_ranks(part.ranks);
    if (const Worker* const partner = FindWorker(part.worker))
      node.set_data_address(partner->data_address);
  }
  for (const RefusedItem& item : action.refused) {
    proto::RefusedItem& refused = *assign.add_refused();
    refused.set_seq(item.seq);
    refused.set_code(static_cast<uint32_t>(item.why.code()));
    refused.set_message(std::string(item.why.message()));
  }
  assign.set_memory_bytes_max(options_.memory_bytes_max);
  assign.set_account(static_cast<uint64_t>(action.tenant.value));
  assign.set_shares_tuning(sharing_.contains(action.tenant));
  worker->endpoint->Send(std::move(command));
}

// A session on several devices that begins has no arrays.
std::string CoreDriver::FirstStateOf(const Assign& assign, GroupRuns* runs) {
  proto::GroupState state;
  if (runs != nullptr) state = runs->Describe();
  state.mutable_mesh()->Assign(assign.mesh.begin(), assign.mesh.end());
  if (assign.mesh.empty()) state.add_mesh(static_cast<uint32_t>(RanksOf(assign)));
  state.set_spread(assign.spread);
  return state.SerializeAsString();
}

Token CoreDriver::TokenOf(const Assign& assign, const Worker& worker) {
  Session& session = Entry(assign.session);
  if (assign.first_rank > 0 && session.group_token.has_value()) {
    const Token token = *session.group_token;
    if (assign.first_rank + assign.devices.size() == RanksOf(assign)) session.group_token.reset();
    return token;
  }
  const Token token = host_->DrawToken();
  session.runs = RunsFor(assign, worker);
  if (RanksOf(assign) > 1 && assign.snapshot_seq == 0 && session.group_state.empty())
    session.group_state = FirstStateOf(assign, session.runs.get());
  // The relay is there before the worker can know the session.
  BeginRelay(assign.session, assign.tenant, RanksOf(assign), /*replays=*/true);
  Entry(assign.session).attach_hash = HashOf(token);
  if (RanksOf(assign) > 1) {
    Entry(assign.session).parts.emplace(static_cast<uint32_t>(RanksOf(assign)));
    blobs_->ForgetParts(assign.session, assign.snapshot_seq);
  }
  if (!assign.parts.empty()) Entry(assign.session).group_token = token;
  return token;
}

void CoreDriver::Do(EndExecutor& action) {
  const Worker* const worker = FindWorker(action.worker);
  if (worker == nullptr) return;
  proto::GatewayCommand command;
  command.mutable_release()->set_session_id(action.session.Bytes());
  worker->endpoint->Send(std::move(command));
}

void CoreDriver::Do(DropExecutor& action) {
  if (Session* const session = Find(action.session)) DropRelay(*session);
}

void CoreDriver::DropRelay(Session& session) {
  session.ending.reset();
  const std::shared_ptr<Relay> relay = std::exchange(session.relay, nullptr);
  if (relay == nullptr) return;
  relay->EndExecutor();
  relay->DropClient(nullptr);
  relay->SetValues(nullptr);
  session.kernel_uses = relay->TakeKernelUses();
}

void CoreDriver::Do(EndWorker& action) {
  if (const Worker* const worker = FindWorker(action.worker)) {
    observer_->OnWorkerLeft(worker->name, "no heartbeat arrived in time");
    worker->endpoint->End(std::move(action.why));
  }
}

// D3. When the row is written, whether it still holds is looked at once more.
void CoreDriver::Do(Live& action) {
  Entry(action.session).is_connecting = true;
  if (planted_.live_before_written) return Connect(action);
  if (action.epoch == 1) beginning_.insert(action.conn);
  writes_->Then([this, live = action](const absl::Status& written) {
    std::lock_guard lock(mutex_);
    beginning_.erase(live.conn);
    if (written.ok() && core_.IsLive(live.session, live.conn, live.epoch)) Connect(live);
  });
}

void CoreDriver::Connect(const Live& live) {
  Client* const client = FindClient(live.conn);
  Session* const session = Find(live.session);
  if (client == nullptr || session == nullptr || session->relay == nullptr) return;
  session->is_connecting = false;
  // It has what it asked for as a new client; what it is sent from now on is its own.
  if (client->relay != nullptr && client->relay->has_opened())
    client->open.clear_is_new_client();
  client->relay = session->relay;
  client->port->SetRelay(session->relay);
  client->port->SetSleeping(false);
  observer_->OnLive({live.session, live.tenant, client->port->request_id()}, live.epoch,
                    NameOf(live.seats.front().worker), client->open.client_name(),
                    client->open.client_version());
  session->relay->SetBill(core_.BillOf(live.session));
  // What was sent there in the epoch before may be lost. The client opens another after Opened.
  EndValues(*session, absl::AbortedError("a new epoch"));
  session->relay->Connect(
      &client->endpoint(),
      {.epoch = planted_.old_epoch ? 1 : live.epoch,
       .resume_token = client->resume_token,
       .worker = NameOf(live.seats.front().worker),
       .price_per_hour = live.price_per_hour,
       .price_class = live.price_class,
       .idle_prices = live.idle_prices,
       .recoverable = live.recoverable,
       .snapshot_ms =
           live.recoverable ? static_cast<uint32_t>(options_.snapshot_ns / 1'000'000) : 0,
       .snapshot_root = live.snapshot_root,
       .snapshot_seq = live.snapshot_seq,
       .max_cost = MaxCostOf(client->open),
       .name = live.name},
      client->open);
}

void CoreDriver::Do(Detach& action) {
  const Session* const session = Find(action.session);
  if (session != nullptr && session->relay != nullptr) session->relay->DropClient(nullptr);
}

void CoreDriver::Do(IdleSoon& action) {
  if (const Client* const client = FindClient(action.conn))
    Notify(*client, proto::Notice::DEVICE_IDLE,
           absl::StrCat("no work for ", action.idle_s, " s: in ", action.left_s,
                        " s the device is given back, and billing pauses; "
                        "the session's state is kept"),
           static_cast<uint64_t>(action.left_s));
}

void CoreDriver::Do(SleepBegins& action) {
  const Client* const client = FindClient(action.conn);
  if (client == nullptr) return;
  client->port->SetSleeping(true);
  if (const Session* const session = Find(action.session);
      session != nullptr && session->relay != nullptr)
    session->relay->DropClient(nullptr);
  observer_->OnSleep({action.session, client->identity.tenant, client->port->request_id()},
                    action.idle_s);
  Notify(*client, proto::Notice::DEVICE_RELEASED,
         absl::StrCat("no work for ", action.idle_s, " s: the device was given back and ",
                      action.parked_per_hour == MicroUsd{}
                          ? "nothing is billed"
                          : absl::StrCat("only the session's state is billed, ",
                                         ToString(action.parked_per_hour), " an hour"),
                      "; the next work takes one again"),
         0);
}

void CoreDriver::ClientActs(ConnId conn) {
  std::lock_guard lock(mutex_);
  if (!planted_.never_wakes) Tell(gateway::ClientActs{conn});
}

// How the arrays of the parent's last snapshot lie on its devices: they lie so on the fork's, too.
absl::Status CoreDriver::CopyGroup(const ShareSnapshot& share, std::string& state,
                                   std::shared_ptr<GroupRuns>& runs) {
  const Session* const parent = Find(share.parent);
  proto::GroupState known;
  if (parent == nullptr || parent->group_state.empty() ||
      !known.ParseFromString(parent->group_state) ||
      !ResumeRuns(share.tenant, share.devices, known, runs))
    return absl::FailedPreconditionError(
        "how the arrays of the session's last snapshot lie on its devices is not known, so no "
        "other session can begin with it; try again behind the next snapshot");
  state = parent->group_state;
  return absl::OkStatus();
}

// What it has is protected before its session is there.
void CoreDriver::Do(ShareSnapshot& action) {
  absl::Status known;
  std::string state;
  std::shared_ptr<GroupRuns> runs;
  if (action.devices > 1) known = CopyGroup(action, state, runs);
  host_->PostFor(action.tenant, [this, share = action, known, state = std::move(state),
                                 runs = std::move(runs)] {
    absl::Status status = known;
    const auto parts = PartsOfRoot(share.root, share.devices);
    if (!parts) status.Update(absl::DataLossError("a snapshot's name is damaged"));
    if (status.ok())
      status = ErrorIfThrown(
          "sharing a snapshot",
          [&] { return blobs_->RestoreSnapshot(share.tenant, share.session, *parts); },
          share.tenant.value);
    std::lock_guard lock(mutex_);
    if (status.ok() && share.devices > 1) {
      Session& session = Entry(share.session);
      session.runs = runs;
      session.group_state = state;
    }
    Tell(SnapshotShared{share.conn, status});
    if (!status.ok() || core_.Has(share.session)) return;
    // Its client has gone meanwhile.
    sessions_.erase(share.session);
    host_->Post([blobs = blobs_, session = share.session] { blobs->EndSession(session); });
  });
}

void CoreDriver::Do(RequestSnapshot& action) {
  const Session* const session = Find(action.session);
  if (session != nullptr && session->relay != nullptr && !planted_.asks_no_snapshot)
    session->relay->RequestSnapshot();
}

void CoreDriver::Do(Stored& action) {
  observer_->OnStored({action.session, action.tenant, ""}, action.is_saved);
}

void CoreDriver::Do(Queued& action) {
  if (const Client* const client = FindClient(action.conn)) {
    if (action.is_first)
      observer_->OnQueued({{}, client->identity.tenant, client->port->request_id()},
                          action.before);
    Notify(*client, proto::Notice::QUEUED, TextOf(action.reason), action.before,
           action.expected_s);
  }
}

void CoreDriver::Do(Moving& action) {
  if (const Client* const client = FindClient(action.conn)) {
    observer_->OnMoving({{}, client->identity.tenant, client->port->request_id()}, action.text);
    Notify(*client, proto::Notice::MOVING, action.text, 0);
  }
}

void CoreDriver::Notify(const Client& client, int kind, const std::string& text, uint64_t count,
                        std::optional<int64_t> expected_s) {
  proto::ServerFrame frame;
  if (client.relay != nullptr) frame.set_epoch(client.relay->epoch());
  proto::Notice& notice = *frame.add_items()->mutable_notice();
  notice.set_kind(static_cast<proto::Notice::Kind>(kind));
  notice.set_count(count);
  notice.set_text(text);
  if (expected_s.has_value()) notice.set_expected_s(static_cast<uint32_t>(*expected_s));
  client.endpoint().Send(std::move(frame));
}

// The bill is shown when the ledger has it, so that `outboard usage` a moment later agrees.
void CoreDriver::Do(EndClient& action) {
  writes_->ThenOrAtOnce([this, action] {
    std::lock_guard lock(mutex_);
    const Client* const client = FindClient(action.conn);
    if (client == nullptr) return;
    const std::shared_ptr<Relay>& relay = client->relay;
    if (!action.why.ok())
      observer_->OnClientEnded({action.session.value_or(SessionId{}), client->identity.tenant,
                                client->port->request_id()},
                               action.why);
    const auto head = heads_ != nullptr ? heads_->Of(client->identity.tenant) : nullptr;
    Relay::SendEnd(client->endpoint(), action.why, action.bill, relay ? relay->epoch() : 0,
                   relay ? relay->done_seq() : 0, action.is_kept, head.get());
  });
}

void CoreDriver::Do(TakeHold& action) {
  const SessionId session = action.request.lease.session;
  holds_asked_.emplace(session, action.number);
  writes_->Hold(std::move(action.request),
                [this, session, number = action.number](HoldAnswer answer) {
                  std::lock_guard lock(mutex_);
                  holds_asked_.erase({session, number});
                  // Who enters the session with it does not send again what is done.
                  if (const Session* const entry = Find(session)) TellProgress(session, *entry);
                  Tell(HoldAnswered{session, number, std::move(answer)});
                });
}

void CoreDriver::Do(gateway::EndHold& action) { writes_->EndHold(action.lease); }

absl::Status CoreDriver::GivenUp() {
  return absl::UnavailableError("the gateway met a bug of its own, and starts anew");
}

absl::Status CoreDriver::WriteTrouble() const {
  if (has_given_up_) return GivenUp();
  const absl::Status trouble = writes_->trouble();
  if (trouble.ok()) return trouble;
  if (absl::IsDataLoss(trouble))  // what is wrong is for its operator
    return absl::UnavailableError(
        "the gateway's ledger does not verify: it opens no sessions until its operator has looked");
  return absl::UnavailableError(
      absl::StrCat("the gateway cannot write its ledger and accepts no new sessions until it can: ",
                   trouble.message()));
}

// Sessions that had begun before the trouble was known, and wait for their hold or first row.
void CoreDriver::RefuseWhatCannotBeWritten() {
  if (beginning_.empty() && holds_asked_.empty()) return;
  const absl::Status trouble = WriteTrouble();
  if (trouble.ok()) return;
  for (const ConnId conn : std::exchange(beginning_, {})) Tell(ClientClosed{conn, trouble});
  std::erase_if(holds_asked_, [this](const auto& asked) {
    return !core_.AwaitsHold(asked.first, asked.second);
  });
  for (const auto& [id, number] : std::exchange(holds_asked_, {}))
    Tell(HoldAnswered{id, number, {0, trouble}});
}

void CoreDriver::Do(Forget& action) {
  if (being_stopped_.has_value() && being_stopped_->first == action.session)
    being_stopped_->second = action.bill;
  if (Session* const session = Find(action.session)) {
    DropRelay(*session);
    // Not as if it broke: why the session ended comes on its own stream, when the ledger has it.
    EndValues(*session, absl::AbortedError("the session has ended"));
    sessions_.erase(action.session);
  }
  if (action.goes_on) return;
  host_->Post([blobs = blobs_, session = action.session] { blobs->EndSession(session); });
}

void CoreDriver::Do(WriteSession& action) {
  const WallTime now = host_->WallNow();
  Session& session = Entry(action.session);
  if (!session.opened_at.has_value()) session.opened_at = now;
  SessionRow row;
  row.session = action.session;
  row.tenant = action.tenant;
  row.epoch = action.epoch;
  if (const Worker* const worker = action.worker ? FindWorker(*action.worker) : nullptr)
    row.worker = absl::StrCat(worker->name, "@", worker->identity);
  row.resume_hash = BytesOf(action.resume_hash);
  if (session.attach_hash.has_value()) row.attach_hash = BytesOf(*session.attach_hash);
  row.devices = action.devices;
  row.recoverable = action.recoverable;
  row.snapshot_root = action.snapshot_root;
  row.snapshot_seq = action.snapshot_seq;
  row.price_per_hour = action.price_per_hour;
  row.name = action.name;
  row.price_class = action.price_class;
  row.idle_prices = action.idle_prices;
  if (action.devices > 1) row.group_state = session.group_state;
  row.opened_at = *session.opened_at;
  row.state = action.state;
  if (row.state == SessionRowState::kClosed || row.state == SessionRowState::kLost) {
    row.closed_at = now;
    observer_->OnEnded({action.session, action.tenant, ""},
                       /*lost=*/row.state == SessionRowState::kLost);
  }
  writes_->Write(std::move(row));
  row_queued_of_ = action.session;
}

}  // namespace outboard::gateway
