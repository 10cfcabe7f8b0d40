#include "gateway/data_path/hub.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gateway/base/clock.h"
#include "gateway/base/limits.h"
#include "base/log.h"
#include "gateway/base/token.h"
#include "gateway/data_path/streams.h"
#include "gateway/data_path/values_sender.h"
#include "wire/limits.h"
#include "wire/status_code.h"
#include "wire/version.h"

namespace outboard::gateway {

namespace {
constexpr uint32_t kRecoverySinceProtocol = 2;
}  // namespace

Hub::Hub(const CoreOptions& options, BlobStore* blobs, BlobRetention* catalogue,
         Authenticator* gatekeeper, LedgerWriter* books, WorkQueue* pool)
    : blobs_(blobs),
      catalogue_(catalogue),
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

void Hub::Restore(const TakenOver& taken, const SessionUsage& past) {
  const SessionRow& row = taken.row;
  std::lock_guard lock(mutex_);
  opened_[row.session] = row.opened_at;
  if (auto hash = TokenFromBytes(row.attach_hash)) attach_hashes_[row.session] = *hash;
  SessionRestored event;
  event.session = row.session;
  event.tenant = row.tenant;
  event.resume_hash = TokenFromBytes(row.resume_hash).value_or(Draw<Token>());
  event.epoch = row.epoch;
  event.grant = taken.last_grant;
  event.placement = static_cast<uint64_t>(WallNow().unix_ms);  // they count from 1, and not so fast
  event.devices = row.devices;
  event.node = row.worker.substr(0, row.worker.rfind('#'));
  event.had_client = row.state == SessionRowState::kOpen;
  event.recoverable = row.recoverable;
  event.snapshot_root = row.snapshot_root;
  event.snapshot_seq = row.snapshot_seq;
  event.past_amount = past.amount;
  event.past_seconds = past.device_seconds;
  event.wall = row.opened_at;
  Tell(event);
}

void Hub::Remember(const SessionRow& lost) {
  std::lock_guard lock(mutex_);
  if (auto hash = TokenFromBytes(lost.resume_hash)) lost_.push_back(*hash);
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
  clients_[conn] = {stream, {}, {}, {}, nullptr};
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
    if (absl::Status trouble = BooksTrouble(); !trouble.ok()) return refuse(trouble);
    it->second.resume_token = Draw<Token>();
    Tell(ClientOpen{conn, identity.tenant, std::max(1u, open.devices()), Draw<SessionId>(),
                    HashOf(it->second.resume_token), WallNow(),
                    /*recovers=*/*protocol >= kRecoverySinceProtocol});
    return;
  }
  const auto token = TokenFromBytes(open.resume_token());
  if (!token) return refuse(absl::InvalidArgumentError("a resume token has 16 bytes"));
  const Token hash = HashOf(*token);
  if (std::find(lost_.begin(), lost_.end(), hash) != lost_.end()) {
    return refuse(absl::NotFoundError(
        "the session ended with the process that served it, which was started again"));
  }
  it->second.resume_token = *token;
  Tell(ClientResume{conn, identity.tenant, hash, WallNow()});
}

void Hub::Close(ConnId conn) {
  std::lock_guard lock(mutex_);
  Tell(ClientClosed{conn, absl::OkStatus()});
}

void Hub::Fail(ConnId conn, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Tell(ClientClosed{conn, why});
}

absl::Status Hub::OpenValues(ValuesSender* stream, TenantId tenant, SessionId session,
                             Token token) {
  std::lock_guard lock(mutex_);
  if (!core_.IsTheClients(session, tenant, HashOf(token)))
    return absl::NotFoundError("no such session");
  SetValues(session, stream);
  return absl::OkStatus();
}

void Hub::CloseValues(ValuesSender* stream, SessionId session) {
  std::lock_guard lock(mutex_);
  const auto it = values_.find(session);
  if (it != values_.end() && it->second == stream) SetValues(session, nullptr);
}

void Hub::ValuesDrained(SessionId session) {
  std::shared_ptr<Relay> relay;
  {
    std::lock_guard lock(mutex_);
    if (auto it = relays_.find(session); it != relays_.end()) relay = it->second;
  }
  if (relay != nullptr) relay->ClientDrained();
}

void Hub::SetValues(SessionId session, ValuesSender* stream) {
  auto& values = values_[session];
  if (values != nullptr && stream != nullptr) values->End(absl::AbortedError("opened anew"));
  values = stream;
  if (auto it = relays_.find(session); it != relays_.end()) it->second->SetValues(stream);
  if (stream == nullptr) values_.erase(session);
}

void Hub::EndValues(SessionId session, const absl::Status& why) {
  const auto it = values_.find(session);
  if (it == values_.end()) return;
  it->second->End(why);
  SetValues(session, nullptr);
}

// ---- workers ------------------------------------------------------------------------------------

WorkerId Hub::AddWorker(ControlStream* stream, const proto::Register& reg) {
  std::lock_guard lock(mutex_);
  WorkerId id{next_worker_++};
  std::string name = reg.name().substr(0, kWorkerNameBytesMax);
  for (char& c : name)  // shown to people, and sent on as text
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  workers_[id] = {stream, absl::StrCat(name, "#", id.value),
                  std::min(reg.protocol().max(), wire::kProtocolVersion)};
  WorkerJoined event{id, workers_[id].name, static_cast<uint32_t>(reg.devices_size()), name, {}};
  for (const proto::HeldSession& held : reg.sessions()) {
    const auto session = SessionId::FromBytes(held.session_id());
    const auto token = TokenFromBytes(held.attach_token());
    if (!session || !token) continue;
    const auto hash = attach_hashes_.find(*session);
    if (hash == attach_hashes_.end() || !(hash->second == HashOf(*token))) continue;
    event.held.push_back(
        {*session, {held.devices().begin(), held.devices().end()}, held.placement()});
  }
  Tell(event);
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
  TellGone(*id, absl::Status(wire::CodeFromWire(ended.code()), ended.message()), ended.placement(),
           worker);
}

// An executor that ended its session has said why, and better than how its process ended.
void Hub::TellGone(SessionId session, absl::Status why, uint64_t placement,
                   std::optional<WorkerId> worker) {
  if (auto it = relays_.find(session); it != relays_.end() && !it->second->failure().ok())
    return Tell(ExecutorGone{session, it->second->failure(), /*crashed=*/false, placement, worker});
  const bool crashed = why.ok() || absl::IsUnavailable(why);
  Tell(ExecutorGone{session, std::move(why), crashed, placement, worker});
}

absl::StatusOr<std::shared_ptr<Relay>> Hub::Attach(SessionId session, Token token,
                                                   ExecutorSide* stream) {
  std::lock_guard lock(mutex_);
  if (!IsExecutor(session, token) || !core_.Awaits(session)) {
    return absl::PermissionDeniedError("no executor of this session is awaited");
  }
  std::shared_ptr<Relay> relay = relays_.at(session);
  relay->SetExecutor(stream);
  Tell(ExecutorAttached{session, WallNow()});
  return relay;
}

void Hub::Detached(SessionId session, const Relay* relay) {
  std::lock_guard lock(mutex_);
  const auto it = relays_.find(session);
  if (it != relays_.end() && it->second.get() == relay) streamless_.emplace(session, MonoNow());
}

bool Hub::IsExecutor(SessionId session, Token token) const {
  return relays_.contains(session) && KnowsToken(session, token);
}

bool Hub::KnowsToken(SessionId session, Token token) const {
  const auto hash = attach_hashes_.find(session);
  return hash != attach_hashes_.end() && hash->second == HashOf(token);
}

absl::StatusOr<TenantId> Hub::TenantOf(SessionId session, Token token) const {
  std::lock_guard lock(mutex_);
  if (!KnowsToken(session, token))
    return absl::PermissionDeniedError("this is not the session's executor");
  // Started again a moment ago, or this worker is away: it asks once more, whoever it is by then.
  const auto relay = relays_.find(session);
  if (relay == relays_.end())
    return absl::UnavailableError("the session's worker has not joined this gateway yet");
  return relay->second->tenant();
}

void Hub::KeepSnapshot(SessionId session, Token token, const std::string& root, uint64_t seq,
                       std::function<void(absl::Status)> done) {
  absl::Status refused;
  {
    std::lock_guard lock(mutex_);
    if (!core_.Has(session)) {
      refused = absl::NotFoundError("the session has ended");
    } else if (!IsExecutor(session, token) || !core_.MayKeep(session, seq)) {
      refused = absl::AbortedError("the session has gone on elsewhere, or from a later snapshot");
    } else {
      Tell(SnapshotKept{session, root, seq});
      books_->Then(std::move(done));
      return;
    }
  }
  done(std::move(refused));
}

// ---- actions ------------------------------------------------------------------------------------

std::shared_ptr<Relay> Hub::NewRelay(SessionId session, TenantId tenant) {
  catalogue_->BeginSession(tenant, session);
  return std::make_shared<Relay>(session, tenant, options_.price_per_hour, blobs_, catalogue_,
                                 &gate_);
}

// Their executors attach again, each to a relay of its own.
void Hub::Do(Welcome& action) {
  auto it = workers_.find(action.worker);
  if (it == workers_.end()) return;
  proto::GatewayCommand command;
  proto::Welcome& welcome = *command.mutable_welcome();
  welcome.set_worker_id(action.worker.value);
  welcome.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat_ns / 1'000'000));
  welcome.set_lease_ttl_ms(static_cast<uint32_t>(options_.lease_ttl_ns / 1'000'000));
  welcome.set_protocol(it->second.protocol);
  welcome.set_local_socket(local_socket_);
  for (size_t i = 0; i < action.sessions.size(); ++i) {
    const SessionId id = action.sessions[i].session;
    welcome.add_sessions(id.Bytes());
    auto& relay = relays_[id];
    relay = NewRelay(id, action.tenants[i]);
    if (auto plan = plans_.extract(id); !plan.empty())
      relay->GivePlan(std::move(plan.mapped()), /*replays=*/false);
  }
  it->second.stream->Send(std::move(command));
}

void Hub::Do(Assign& action) {
  auto it = workers_.find(action.worker);
  if (it == workers_.end()) return;
  const auto token = Draw<Token>();
  attach_hashes_[action.session] = HashOf(token);
  // The relay is there before the worker can know the session.
  auto& relay = relays_[action.session];
  relay = NewRelay(action.session, action.tenant);
  if (auto plan = plans_.extract(action.session); !plan.empty())
    relay->GivePlan(std::move(plan.mapped()), /*replays=*/true);
  proto::GatewayCommand command;
  proto::Assign& assign = *command.mutable_assign();
  assign.set_session_id(action.session.Bytes());
  assign.set_attach_token(BytesOf(token));
  assign.set_placement(action.placement);
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

void Hub::Do(DropExecutor& action) { DropRelay(action.session); }

void Hub::DropRelay(SessionId session) {
  streamless_.erase(session);
  const auto it = relays_.find(session);
  if (it == relays_.end()) return;
  it->second->EndExecutor();
  it->second->DropClient(nullptr);
  it->second->SetValues(nullptr);
  plans_[session] = it->second->TakePlan();
  relays_.erase(it);
}

void Hub::Do(EndWorker& action) {
  if (auto it = workers_.find(action.worker); it != workers_.end())
    it->second.stream->End(std::move(action.why));
}

// An epoch begins when its row is on disk: a gateway that is started again begins none twice.
void Hub::Do(Live& action) {
  if (action.epoch == 1) beginning_.insert(action.conn);
  books_->Then([this, live = action](const absl::Status& written) {
    std::lock_guard lock(mutex_);
    beginning_.erase(live.conn);
    if (written.ok() && core_.IsLive(live.session, live.conn, live.epoch)) Connect(live);
  });
}

void Hub::Connect(const Live& live) {
  auto client = clients_.find(live.conn);
  auto relay = relays_.find(live.session);
  if (client == clients_.end() || relay == relays_.end()) return;
  client->second.relay = relay->second;
  client->second.stream->SetRelay(relay->second);
  relay->second->SetBill(core_.BillOf(live.session));
  // What was sent there in the epoch before may be lost. The client opens another after Opened.
  EndValues(live.session, absl::AbortedError("a new epoch"));
  relay->second->Connect(
      client->second.stream,
      {.epoch = live.epoch,
       .resume_token = client->second.resume_token,
       .worker = NameOf(live.worker),
       .recoverable = live.recoverable,
       .snapshot_ms =
           live.recoverable ? static_cast<uint32_t>(options_.snapshot_ns / 1'000'000) : 0,
       .snapshot_root = live.snapshot_root},
      client->second.open);
}

void Hub::Do(Detach& action) {
  if (auto it = relays_.find(action.session); it != relays_.end()) it->second->DropClient(nullptr);
}

void Hub::Do(Queued& action) {
  Notify(action.conn, proto::Notice::QUEUED, "waiting for a device", action.before);
}

void Hub::Do(Moving& action) { Notify(action.conn, proto::Notice::MOVING, action.text, 0); }

void Hub::Notify(ConnId conn, proto::Notice::Kind kind, const std::string& text, uint64_t count) {
  auto it = clients_.find(conn);
  if (it == clients_.end()) return;
  proto::ServerFrame frame;
  if (it->second.relay != nullptr) frame.set_epoch(it->second.relay->epoch());
  proto::Notice& notice = *frame.add_items()->mutable_notice();
  notice.set_kind(kind);
  notice.set_count(count);
  notice.set_text(text);
  it->second.stream->Send(std::move(frame));
}

// The bill is shown when the books have it, so that `outboard usage` a moment later agrees.
void Hub::Do(EndClient& action) {
  books_->ThenOrAtOnce([this, action] {
    std::lock_guard lock(mutex_);
    auto it = clients_.find(action.conn);
    if (it == clients_.end()) return;
    const std::shared_ptr<Relay>& relay = it->second.relay;
    Relay::SendEnd(*it->second.stream, action.why, action.bill, relay ? relay->epoch() : 0,
                   relay ? relay->done_seq() : 0);
  });
}

void Hub::Do(Post& action) { books_->Post(std::move(action.charges)); }

void Hub::Do(Forget& action) {
  DropRelay(action.session);
  plans_.erase(action.session);
  opened_.erase(action.session);
  attach_hashes_.erase(action.session);
  // Not as if it broke: why the session ended comes on its own stream, when the books have it.
  EndValues(action.session, absl::AbortedError("the session has ended"));
  pool_->Post([this, session = action.session] { catalogue_->EndSession(session); });
}

void Hub::Do(WriteSession& action) {
  WallTime now = WallNow();
  SessionRow row;
  row.session = action.session;
  row.tenant = action.tenant;
  row.epoch = action.epoch;
  if (action.worker.has_value()) row.worker = NameOf(*action.worker);
  row.resume_hash = BytesOf(action.resume_hash);
  if (auto it = attach_hashes_.find(action.session); it != attach_hashes_.end())
    row.attach_hash = BytesOf(it->second);
  row.devices = action.devices;
  row.recoverable = action.recoverable;
  row.snapshot_root = action.snapshot_root;
  row.snapshot_seq = action.snapshot_seq;
  row.opened_at = opened_.emplace(action.session, now).first->second;
  row.state = action.state;
  if (row.state == SessionRowState::kClosed || row.state == SessionRowState::kLost)
    row.closed_at = now;
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
    for (const auto& [id, relay] : relays_) Tell(SessionProgress{id, relay->busy()});
    std::vector<SessionId> silent;
    for (const auto& [id, since] : streamless_) {
      if (MonoNow().ns - since.ns > kExecutorWordMs * 1'000'000) silent.push_back(id);
    }
    for (const SessionId& id : silent) {
      streamless_.erase(id);
      TellGone(id, absl::UnavailableError("the executor's stream ended"), /*placement=*/0, {});
    }
    RefuseWhatCannotBeWritten();
    Tell(Tick{});
    if (++ticks % kKeyCheckTicks == 0) CheckKeys();
  }
}

absl::Status Hub::BooksTrouble() const {
  const absl::Status trouble = books_->trouble();
  if (trouble.ok()) return trouble;
  return absl::UnavailableError(
      absl::StrCat("the gateway cannot write its books and takes no new sessions until it can: ",
                   trouble.message()));
}

// Sessions that had begun before the trouble was known, and wait for their first row.
void Hub::RefuseWhatCannotBeWritten() {
  if (beginning_.empty()) return;
  const absl::Status trouble = BooksTrouble();
  if (trouble.ok()) return;
  for (const ConnId conn : std::exchange(beginning_, {})) Tell(ClientClosed{conn, trouble});
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
  for (const auto& [conn, client] : clients_)
    Notify(conn, proto::Notice::DRAINING, "the gateway stops soon", 0);
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
