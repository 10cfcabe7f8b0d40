#include "gateway/service/hub.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/service/clock.h"
#include "gateway/service/limits.h"
#include "gateway/service/log.h"
#include "gateway/service/streams.h"
#include "proto/limits.h"
#include "proto/status_code.h"
#include "proto/version.h"

namespace outboard::gateway {

Hub::Hub(const CoreOptions& options, BlobStore* blobs, Gatekeeper* gatekeeper, Bookkeeper* books,
         Pool* pool)
    : blobs_(blobs),
      gatekeeper_(gatekeeper),
      books_(books),
      pool_(pool),
      options_(options),
      core_(options),
      ticker_([this] { TickLoop(); }) {}

Hub::~Hub() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  ticker_.join();
}

void Hub::Tell(const Event& event) {
  for (Action& action : core_.On(event, MonoNow())) {
    std::visit([this](auto& a) { Do(a); }, action);
  }
  changed_.notify_all();
}

// ---- clients ------------------------------------------------------------------------------------

ConnId Hub::AddClient(ClientStream* stream) {
  std::lock_guard lock(mutex_);
  ConnId conn{next_conn_++};
  clients_[conn] = {stream, {}, {}, nullptr};
  return conn;
}

void Hub::RemoveClient(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientGone{conn});
  // Held until here: a relay that still knew the stream would use it after its end.
  if (auto it = clients_.find(conn); it != clients_.end()) {
    if (it->second.relay != nullptr) it->second.relay->DropClient(it->second.stream);
    clients_.erase(it);
  }
}

void Hub::ClientBroke(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientGone{conn});
}

void Hub::Open(ConnId conn, const Identity& identity, const proto::Open& open) {
  std::lock_guard lock(mutex_);
  auto it = clients_.find(conn);
  if (it == clients_.end()) return;
  it->second.identity = identity;
  it->second.open = open;
  auto refuse = [&](const absl::Status& why) { Relay::SendEnd(*it->second.stream, why, {}, 0, 0); };
  const auto protocol = wire::AgreeOn(open.protocol(), wire::kProtocolOfClients,
                                      "the client speaks protocol", "this gateway");
  if (!protocol.ok()) return refuse(protocol.status());
  const auto schema = wire::AgreeOn(open.graph_schema(), wire::kGraphSchemas,
                                    "the client writes graph schema", "this gateway reads");
  if (!schema.ok()) return refuse(schema.status());
  // The executor takes the newest of what it is offered.
  wire::SetRange({*protocol, *protocol}, *it->second.open.mutable_protocol());
  if (open.resume_token().empty()) {
    // What cannot be written cannot be billed; sessions that run go on, and are posted later.
    if (absl::Status trouble = books_->trouble(); !trouble.ok()) {
      return refuse(absl::UnavailableError(absl::StrCat(
          "the gateway cannot write its books and takes no new sessions until it can: ",
          trouble.message())));
    }
    Tell(ClientOpen{conn, identity.tenant, std::max(1u, open.devices()), Draw<SessionId>(),
                    Draw<Token>(), Draw<Token>(), WallNow()});
    return;
  }
  auto token = SessionId::FromBytes(open.resume_token());
  if (!token) return refuse(absl::InvalidArgumentError("a resume token has 16 bytes"));
  Tell(ClientResume{conn, identity.tenant, Token{token->hi, token->lo}, WallNow()});
}

void Hub::Close(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientClosed{conn, absl::OkStatus()});
}

void Hub::Fail(ConnId conn, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Tell(ClientClosed{conn, why});
}

// ---- workers ------------------------------------------------------------------------------------

WorkerId Hub::AddWorker(ControlStream* stream, const proto::Register& reg) {
  std::lock_guard lock(mutex_);
  WorkerId id{next_worker_++};
  std::string name = reg.name().substr(0, 80);
  workers_[id] = {stream, absl::StrCat(name, "#", id.value)};
  proto::GatewayCommand command;
  proto::Welcome& welcome = *command.mutable_welcome();
  welcome.set_worker_id(id.value);
  welcome.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat_ns / 1'000'000));
  welcome.set_lease_ttl_ms(static_cast<uint32_t>(options_.lease_ttl_ns / 1'000'000));
  welcome.set_protocol(std::min(reg.protocol().max(), wire::kProtocolVersion));
  welcome.set_local_socket(local_socket_);
  stream->Send(std::move(command));
  Tell(WorkerJoined{id, workers_[id].name, static_cast<uint32_t>(reg.devices_size())});
  return id;
}

void Hub::RemoveWorker(WorkerId worker) {
  std::lock_guard lock(mutex_);
  if (workers_.erase(worker) == 0) return;
  Tell(WorkerGone{worker});
}

void Hub::OnHeartbeat(WorkerId worker, const proto::Heartbeat& beat) {
  std::lock_guard lock(mutex_);
  std::vector<SessionId> alive;
  for (const std::string& bytes : beat.sessions()) {
    if (auto id = SessionId::FromBytes(bytes)) alive.push_back(*id);
  }
  Tell(WorkerHeartbeat{worker, alive});
  for (const SessionId& id : alive) {
    if (auto it = relays_.find(id); it != relays_.end()) it->second->SetBill(core_.BillOf(id));
  }
}

void Hub::OnDraining(WorkerId worker) {
  std::lock_guard lock(mutex_);
  Tell(WorkerDraining{worker});
}

void Hub::OnSessionEnded(WorkerId worker, const proto::SessionEnded& ended) {
  std::lock_guard lock(mutex_);
  auto id = SessionId::FromBytes(ended.session_id());
  if (!id) return;
  streamless_.erase(*id);
  absl::Status why(wire::CodeFromWire(ended.code()), ended.message());
  Tell(ExecutorGone{*id, why});
}

absl::StatusOr<std::shared_ptr<Relay>> Hub::Attach(SessionId session, Token token,
                                                   ExecutorSide* stream) {
  std::lock_guard lock(mutex_);
  auto it = relays_.find(session);
  if (it == relays_.end() || !core_.CheckAttach(session, token)) {
    return absl::PermissionDeniedError("no executor of this session is awaited");
  }
  std::shared_ptr<Relay> relay = it->second;
  relay->SetExecutor(stream);
  Tell(ExecutorAttached{session, WallNow()});
  return relay;
}

void Hub::Detached(SessionId session) {
  std::lock_guard lock(mutex_);
  if (relays_.contains(session)) streamless_.emplace(session, MonoNow());
}

absl::StatusOr<TenantId> Hub::TenantOf(SessionId session, Token token) const {
  std::lock_guard lock(mutex_);
  if (auto tenant = core_.TenantOf(session, token); tenant.has_value()) return *tenant;
  return absl::PermissionDeniedError("no worker serves this session with this token");
}

// ---- actions ------------------------------------------------------------------------------------

void Hub::Do(Assign& action) {
  auto it = workers_.find(action.worker);
  if (it == workers_.end()) return;
  // The relay is there before the worker can know the session.
  relays_[action.session] = std::make_shared<Relay>(action.session, action.tenant,
                                                    options_.price_per_hour, blobs_, &gate_);
  proto::GatewayCommand command;
  proto::Assign& assign = *command.mutable_assign();
  assign.set_session_id(action.session.Bytes());
  assign.set_attach_token(SessionId{action.attach_token.hi, action.attach_token.lo}.Bytes());
  assign.set_lease_id(action.grant);
  for (uint32_t device : action.devices) assign.add_devices(device);
  assign.set_memory_bytes_max(options_.memory_bytes_max);
  it->second.stream->Send(std::move(command));
}

void Hub::Do(EndExecutor& action) {
  auto it = workers_.find(action.worker);
  if (it == workers_.end()) return;
  proto::GatewayCommand command;
  command.mutable_release()->set_session_id(action.session.Bytes());
  it->second.stream->Send(std::move(command));
}

void Hub::Do(Live& action) {
  auto client = clients_.find(action.conn);
  auto relay = relays_.find(action.session);
  if (client == clients_.end() || relay == relays_.end()) return;
  client->second.relay = relay->second;
  client->second.stream->SetRelay(relay->second);
  relay->second->Connect(client->second.stream, action, client->second.open);
}

void Hub::Do(Detach& action) {
  if (auto it = relays_.find(action.session); it != relays_.end()) it->second->DropClient(nullptr);
}

void Hub::Do(Queued& action) {
  auto it = clients_.find(action.conn);
  if (it == clients_.end()) return;
  proto::ServerFrame frame;
  proto::Notice& notice = *frame.add_items()->mutable_notice();
  notice.set_kind(proto::Notice::QUEUED);
  notice.set_count(action.before);
  notice.set_text("waiting for a device");
  it->second.stream->Send(std::move(frame));
}

// The bill is shown when the books have it, so that `outboard usage` a moment later agrees.
void Hub::Do(EndClient& action) {
  books_->Then([this, action] {
    std::lock_guard lock(mutex_);
    auto it = clients_.find(action.conn);
    if (it == clients_.end()) return;
    const std::shared_ptr<Relay>& relay = it->second.relay;
    absl::Status why = action.why;
    // An executor that ended its session has said why, and better than how its process ended.
    if (!why.ok() && relay != nullptr && !relay->failure().ok()) why = relay->failure();
    Relay::SendEnd(*it->second.stream, why, action.bill, relay ? relay->epoch() : 0,
                   relay ? relay->done_seq() : 0);
  });
}

void Hub::Do(Post& action) { books_->Post(std::move(action.charges)); }

void Hub::Do(Forget& action) {
  if (auto it = relays_.find(action.session); it != relays_.end()) {
    it->second->EndExecutor();
    it->second->DropClient(nullptr);
    relays_.erase(it);
  }
  streamless_.erase(action.session);
  opened_.erase(action.session);
}

void Hub::Do(WriteSession& action) {
  WallTime now = WallNow();
  SessionRow row;
  row.session = action.session;
  row.tenant = action.tenant;
  row.epoch = action.epoch;
  row.worker = NameOf(action.worker);
  row.opened_at = opened_.emplace(action.session, now).first->second;
  switch (action.state) {
    case RowState::kOpen: row.state = SessionState::kOpen; break;
    case RowState::kDetached: row.state = SessionState::kDetached; break;
    case RowState::kClosed: row.state = SessionState::kClosed; break;
    case RowState::kLost: row.state = SessionState::kLost; break;
  }
  if (row.state == SessionState::kClosed || row.state == SessionState::kLost) row.closed_at = now;
  books_->Write(std::move(row));
}

void Hub::Do(WriteLease& action) {
  if (!action.end.empty()) return books_->EndLease(action.lease, action.end);
  LeaseRow row;
  row.lease = action.lease;
  row.tenant = action.tenant;
  row.devices = action.devices;
  row.worker = NameOf(action.worker);
  row.granted_at = WallNow();
  books_->Grant(std::move(row));
}

std::string Hub::NameOf(WorkerId worker) const {
  auto it = workers_.find(worker);
  return it == workers_.end() ? "" : it->second.name;
}

// ---- time ---------------------------------------------------------------------------------------

void Hub::TickLoop() {
  int64_t ticks = 0;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    auto next = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTickMs);
    changed_.wait_until(lock, next,
                        [&] { return stopping_ || std::chrono::steady_clock::now() >= next; });
    if (stopping_) return;
    for (const auto& [id, relay] : relays_) Tell(Progress{id, relay->busy()});
    std::vector<SessionId> silent;
    for (const auto& [id, since] : streamless_) {
      if (MonoNow().ns - since.ns > kExecutorWordMs * 1'000'000) silent.push_back(id);
    }
    for (const SessionId& id : silent) {
      streamless_.erase(id);
      Tell(ExecutorGone{id, absl::UnavailableError("the executor's stream ended")});
    }
    Tell(Tick{});
    if (++ticks % kKeyCheckTicks == 0) CheckKeys();
  }
}

void Hub::CheckKeys() {
  std::vector<std::pair<ConnId, std::string>> keys;
  for (const auto& [conn, client] : clients_) {
    if (!client.identity.key_id.empty()) keys.emplace_back(conn, client.identity.key_id);
  }
  if (keys.empty()) return;
  pool_->Post([this, keys = std::move(keys)] {
    for (const auto& [conn, key_id] : keys) {
      absl::Status status = gatekeeper_->Check(key_id);
      if (!absl::IsUnauthenticated(status)) continue;
      std::lock_guard lock(mutex_);
      Tell(ClientClosed{conn, status});
    }
  });
}

// ---- shutdown -----------------------------------------------------------------------------------

void Hub::Drain() {
  std::lock_guard lock(mutex_);
  core_.Drain();
  for (auto& [conn, client] : clients_) {
    proto::ServerFrame frame;
    if (client.relay != nullptr) frame.set_epoch(client.relay->epoch());
    proto::Notice& notice = *frame.add_items()->mutable_notice();
    notice.set_kind(proto::Notice::DRAINING);
    notice.set_text("the gateway stops soon");
    client.stream->Send(std::move(frame));
  }
}

void Hub::AwaitEmpty(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return core_.session_count() == 0; });
}

void Hub::StopAll() {
  std::lock_guard lock(mutex_);
  Tell(gateway::StopAll{});
  // After the commands that end their executors; a worker then looks for another gateway.
  for (auto& [id, worker] : workers_) {
    worker.stream->End(absl::UnavailableError("the gateway is stopping"));
  }
}

uint32_t Hub::devices_total() const {
  std::lock_guard lock(mutex_);
  return core_.devices_total();
}
bool Hub::AwaitDevices(uint32_t count, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return core_.devices_total() >= count; });
}
size_t Hub::session_count() const {
  std::lock_guard lock(mutex_);
  return core_.session_count();
}

}  // namespace outboard::gateway
