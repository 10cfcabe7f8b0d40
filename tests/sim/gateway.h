// A gateway of the simulation: the core that decides, and around it what hub and relay do: routes
// between clients and executors that frames of another epoch, or of another end than the present
// ones, do not pass; rows on a disk that a crash leaves, everything else gone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gateway/core/core.h"
#include "proto/cloud.pb.h"
#include "tests/sim/connection.h"
#include "tests/sim/planted.h"
#include "tests/support/memory_store.h"

namespace outboard::sim {

struct ToClient {
  proto::ServerFrame frame;
  std::optional<absl::Status> end;  // of the stream, after the frame
};
using Call =
    std::function<void()>;  // a message of the control stream: what it makes the other end do
using ClientConnection = Connection<proto::ClientFrame, ToClient>;
using ExecutorConnection = Connection<proto::ServerFrame, proto::ClientFrame>;
using ControlConnection = Connection<Call, Call>;

// The worker's end of what a gateway commands.
class WorkerPort {
 public:
  virtual ~WorkerPort() = default;
  virtual void Welcomed(std::vector<gateway::SessionId> sessions) = 0;
  virtual void Assigned(gateway::SessionId session, uint64_t placement,
                        std::vector<uint32_t> devices) = 0;
  virtual void Released(gateway::SessionId session) = 0;
};

class Gateway {
 public:
  Gateway(World* world, Planted planted) : world_(world), planted_(planted) {}

  bool up() const { return core_.has_value(); }
  void Start() {
    core_.emplace(Options());
    ++generation_;
    for (const auto& [session, row] : rows_) Restore(session, row);
    Tick(generation_);
  }
  void Crash() {
    world_->ExecutorTrace("gateway crashes");
    core_.reset();
    for (auto& [id, client] : clients_) Die(*client.connection);
    for (auto& [id, worker] : workers_) Die(*worker.connection);
    for (auto& [id, route] : routes_)
      if (route.executor != nullptr) Die(*route.executor);
    clients_.clear();
    workers_.clear();
    routes_.clear();
    attach_.clear();
  }

  // ---- clients
  void Accept(const std::shared_ptr<ClientConnection>& connection) {
    const gateway::ConnId conn{next_conn_++};
    clients_[conn] = {connection, {}, std::nullopt};
    connection->acceptor.on_message = [this, conn, generation = generation_](auto frame) {
      if (generation == generation_ && up()) FromClient(conn, std::move(frame));
    };
    connection->acceptor.on_lost = [this, conn, generation = generation_] {
      if (generation != generation_ || !up() || clients_.erase(conn) == 0) return;
      Tell(gateway::ClientGone{conn});
    };
  }

  // ---- workers
  void Join(const std::shared_ptr<ControlConnection>& connection, WorkerPort* port,
            const std::string& node, uint32_t devices, std::vector<gateway::HeldExecutor> held) {
    const gateway::WorkerId id{next_worker_++};
    workers_[id] = {connection, port};
    nodes_[id] = node;
    connection->acceptor.on_message = [this, generation = generation_](const Call& call) {
      if (generation == generation_ && up()) call();
    };
    connection->acceptor.on_lost = [this, id, generation = generation_] {
      if (generation != generation_ || !up() || workers_.erase(id) == 0) return;
      Tell(gateway::WorkerGone{id});
    };
    std::erase_if(held, [&](const gateway::HeldExecutor& executor) {
      const auto attach = attach_.find(executor.session);
      return attach == attach_.end() || attach->second != executor.placement;
    });
    Tell(gateway::WorkerJoined{id, absl::StrCat(node, "#", id.value), devices, node,
                               std::move(held)});
  }
  void Heartbeat(const ControlConnection* connection, std::vector<gateway::SessionId> alive) {
    for (const auto& [id, worker] : workers_)
      if (worker.connection.get() == connection)
        return Tell(gateway::WorkerHeartbeat{id, std::move(alive)});
  }
  void SessionEnded(gateway::SessionId session, uint64_t placement) {
    Tell(gateway::ExecutorGone{session, absl::UnavailableError("the executor ended"), true,
                               placement});
  }
  // Whether the executor is the session's.
  bool Attach(gateway::SessionId session, uint64_t placement,
              const std::shared_ptr<ExecutorConnection>& connection) {
    if (!IsExecutor(session, placement) || !core_->Awaits(session)) return false;
    routes_[session].executor = connection;
    connection->acceptor.on_message = [this, session, connection = connection.get(),
                                       generation = generation_](auto frame) {
      if (generation == generation_ && up()) FromExecutor(session, connection, std::move(frame));
    };
    connection->acceptor.on_lost = [this, session, connection = connection.get(),
                                    generation = generation_] {
      if (generation != generation_ || !up()) return;
      const auto route = routes_.find(session);
      if (route != routes_.end() && route->second.executor.get() == connection)
        route->second.executor.reset();
    };
    Tell(gateway::ExecutorAttached{session, Wall()});
    return true;
  }
  // Fleet.Keep: true when it is on disk.
  bool Keep(gateway::SessionId session, uint64_t placement, const worker::PersistRequest& request) {
    if (!IsExecutor(session, placement) || !core_->Has(session)) return false;
    const std::string root = blobs_.Keep(request);
    world_->Count("snapshot kept");
    if (request.checkpoint) checkpoints_[request.name] = root;
    if (!request.checkpoint) Tell(gateway::SnapshotKept{session, root, request.seq});
    return true;
  }
  const test::MemoryStore& blobs() const { return blobs_; }
  // The bytes of what was saved under `name`.
  std::map<std::string, std::string> Checkpoint(const std::string& name) const {
    std::map<std::string, std::string> values;
    const auto root = checkpoints_.find(name);
    if (root == checkpoints_.end()) return values;
    proto::Checkpoint checkpoint;
    checkpoint.ParseFromString(*blobs_.Find(root->second));
    for (const proto::Checkpoint::Entry& entry : checkpoint.entries())
      values[entry.name()] = *blobs_.Find(entry.blob_root());
    return values;
  }

  std::string CheckInvariants() const { return up() ? core_->CheckInvariants() : ""; }

 private:
  struct Client {
    std::shared_ptr<ClientConnection> connection;
    proto::Open open;
    std::optional<gateway::SessionId> session;  // since Live
    std::string token;
  };
  struct Fleet {
    std::shared_ptr<ControlConnection> connection;
    WorkerPort* port;
  };
  struct Route {
    gateway::ConnId conn;
    std::shared_ptr<ClientConnection> client;
    std::shared_ptr<ExecutorConnection> executor;
    uint64_t epoch = 0;
    std::string token;
    bool recoverable = false;
    uint64_t sent_seq = 0, done_seq = 0;
  };
  struct Row {
    gateway::WriteSession session;
    std::string node;
    uint64_t placement = 0;
    uint64_t grant = 0;
  };

  static gateway::CoreOptions Options() {
    gateway::CoreOptions options;
    options.snapshot_ns = kSnapshotNs;
    options.moves_max = 1000;  // the world is bad on purpose
    options.queue_ns = options.move_ns = options.orphan_ns = 300 * kSecond;
    return options;
  }
  static constexpr int64_t kSnapshotNs = 2 * kSecond;

  template <typename Any>
  static void Die(Any& connection) {
    connection.acceptor.open = false;
    connection.Break();
  }
  gateway::WallTime Wall() const { return {}; }
  static std::optional<gateway::Token> TokenOf(const std::string& bytes) {
    const auto id = gateway::SessionId::FromBytes(bytes);
    if (!id) return std::nullopt;
    return gateway::Token{id->hi, id->lo};
  }
  bool IsExecutor(gateway::SessionId session, uint64_t placement) const {
    const auto attach = attach_.find(session);
    return up() && attach != attach_.end() && attach->second == placement;
  }

  void Tell(const gateway::Event& event) {
    if (!up()) return;
    for (gateway::Action& action : core_->On(event, {world_->now()}))
      std::visit([this](auto& a) { Do(a); }, action);
  }

  void Tick(uint64_t generation) {
    world_->After(500 * kMs, [this, generation] {
      if (!up() || generation != generation_) return;
      for (const auto& [session, route] : routes_)
        Tell(gateway::Progress{session, route.sent_seq > route.done_seq});
      Tell(gateway::Tick{});
      Tick(generation);
    });
  }

  void Restore(gateway::SessionId session, const Row& row) {
    attach_[session] = row.placement;
    gateway::SessionRestored event;
    event.session = session;
    event.tenant = row.session.tenant;
    event.resume_hash = row.session.resume_hash;
    event.epoch = row.session.epoch;
    event.grant = row.grant;
    event.node = row.node;
    event.had_client = row.session.state == gateway::SessionRowState::kOpen;
    event.recoverable = row.session.recoverable;
    event.snapshot_root = row.session.snapshot_root;
    event.snapshot_seq = row.session.snapshot_seq;
    Tell(event);
  }

  // ---- frames
  void FromClient(gateway::ConnId conn, proto::ClientFrame frame) {
    const auto client = clients_.find(conn);
    if (client == clients_.end()) return;
    for (const proto::ClientItem& item : frame.items()) {
      if (item.has_open()) return Open(conn, client->second, item.open());
      if (item.has_close()) {
        clients_.at(conn).session.reset();
        return Tell(gateway::ClientClosed{conn, absl::OkStatus()});
      }
    }
    if (!client->second.session) return;
    const auto found = routes_.find(*client->second.session);
    if (found == routes_.end()) return;
    Route& route = found->second;
    if (route.conn != conn || frame.epoch() != route.epoch || route.executor == nullptr) return;
    for (const proto::ClientItem& item : frame.items())
      route.sent_seq = std::max(route.sent_seq, item.seq());
    route.executor->SendDown(std::move(frame));
  }

  void Open(gateway::ConnId conn, Client& client, const proto::Open& open) {
    client.open = open;
    client.token = open.resume_token();
    const bool resumes = !client.token.empty();
    if (!resumes) client.token = gateway::SessionId{world_->Draw(), world_->Draw()}.Bytes();
    const gateway::Token hash = *TokenOf(client.token);
    const gateway::TenantId tenant{1};
    if (resumes) return Tell(gateway::ClientResume{conn, tenant, hash, Wall()});
    Tell(gateway::ClientOpen{conn, tenant, 1, {world_->Draw(), world_->Draw()}, hash, Wall()});
  }

  void FromExecutor(gateway::SessionId session, const ExecutorConnection* connection,
                    proto::ServerFrame frame) {
    const auto found = routes_.find(session);
    if (found == routes_.end() || found->second.executor.get() != connection) return;
    Route& route = found->second;
    if (frame.epoch() != route.epoch) return;
    for (proto::ServerItem& item : *frame.mutable_items()) {
      if (item.has_opened()) {
        const uint64_t applied = item.opened().applied_seq();
        if (applied < done_[session])
          world_->Count(applied > 0 ? "from a snapshot" : "from the start");
        item.mutable_opened()->set_session_id(session.Bytes());
        item.mutable_opened()->set_resume_token(route.token);
        item.mutable_opened()->set_recoverable(route.recoverable);
      }
      if (item.has_done()) {
        route.done_seq = std::max(route.done_seq, item.done().through_seq());
        done_[session] = route.done_seq;
      }
      if (item.has_failed() && item.failed().seq() == 0)
        world_->Broken("the executor ends the session: ", item.failed().message());
    }
    if (route.client != nullptr) route.client->SendDown({std::move(frame), std::nullopt});
  }

  // ---- actions
  void Do(gateway::Welcome& action) {
    const auto worker = workers_.find(action.worker);
    if (worker == workers_.end()) return;
    std::vector<gateway::SessionId> sessions;
    for (const gateway::HeldExecutor& held : action.sessions) {
      sessions.push_back(held.session);
      routes_[held.session] = {};
    }
    worker->second.connection->SendDown(
        [port = worker->second.port, sessions] { port->Welcomed(sessions); });
  }
  void Do(gateway::Assign& action) {
    attach_[action.session] = action.placement;
    routes_[action.session] = {};
    const auto worker = workers_.find(action.worker);
    if (worker == workers_.end()) return;
    worker->second.connection->SendDown([port = worker->second.port, action] {
      port->Assigned(action.session, action.placement, action.devices);
    });
  }
  void Do(gateway::EndExecutor& action) {
    const auto worker = workers_.find(action.worker);
    if (worker == workers_.end()) return;
    worker->second.connection->SendDown(
        [port = worker->second.port, session = action.session] { port->Released(session); });
  }
  void Do(gateway::DropExecutor& action) { routes_.erase(action.session); }
  void Do(gateway::EndWorker& action) {
    const auto worker = workers_.find(action.worker);
    if (worker == workers_.end()) return;
    worker->second.connection->acceptor.open = false;
    worker->second.connection->Break();
    workers_.erase(worker);
  }
  void Do(gateway::Live& action) {
    const auto client = clients_.find(action.conn);
    const auto found = routes_.find(action.session);
    if (client == clients_.end() || found == routes_.end()) return;
    client->second.session = action.session;
    Route& route = found->second;
    route.conn = action.conn;
    route.client = client->second.connection;
    route.epoch = planted_ == Planted::kOldEpoch ? 1 : action.epoch;
    route.token = client->second.token;
    route.recoverable = action.recoverable;
    if (route.executor == nullptr) return;  // it has just gone; the core will hear of it
    proto::ClientFrame frame;
    frame.set_epoch(route.epoch);
    proto::Open& open = *frame.add_items()->mutable_open();
    open = client->second.open;
    open.clear_resume_token();
    open.set_session_id(action.session.Bytes());
    open.set_snapshot_ms(action.recoverable ? kSnapshotNs / kMs : 0);
    open.set_snapshot_root(action.snapshot_root);
    world_->Count(action.epoch == 1 ? "opened" : "resumed");
    route.executor->SendDown(std::move(frame));
  }
  void Do(gateway::Detach& action) {
    const auto route = routes_.find(action.session);
    if (route != routes_.end()) route->second.client.reset();
  }
  void Do(gateway::EndClient& action) {
    const auto client = clients_.find(action.conn);
    if (client == clients_.end()) return;
    client->second.connection->SendDown({{}, action.why});
    client->second.connection->acceptor.open = false;
    clients_.erase(client);
  }
  void Do(gateway::Forget& action) {
    routes_.erase(action.session);
    attach_.erase(action.session);
    rows_.erase(action.session);
  }
  void Do(gateway::WriteSession& action) {
    Row& row = rows_[action.session];
    row.session = action;
    row.placement = attach_[action.session];
    if (action.worker) row.node = nodes_[*action.worker];
    if (action.state == gateway::SessionRowState::kClosed ||
        action.state == gateway::SessionRowState::kLost)
      rows_.erase(action.session);
  }
  void Do(gateway::WriteLease& action) {
    const auto row = rows_.find(action.lease.session);
    if (row != rows_.end()) row->second.grant = action.lease.grant;
  }
  void Do(gateway::Queued&) {}
  void Do(gateway::Moving&) {}
  void Do(gateway::Post&) {}

  World* const world_;
  const Planted planted_;
  std::optional<gateway::GatewayCore> core_;
  uint64_t generation_ = 0;  // of the process
  uint64_t next_conn_ = 1, next_worker_ = 1;
  std::map<gateway::ConnId, Client> clients_;
  std::map<gateway::WorkerId, Fleet> workers_;
  std::map<gateway::SessionId, Route> routes_;
  std::map<gateway::SessionId, uint64_t> attach_;  // the placement whose executor may attach
  std::map<gateway::SessionId, uint64_t> done_;    // for counts: what clients were told
  // On disk.
  std::map<gateway::SessionId, Row> rows_;
  std::map<gateway::WorkerId, std::string> nodes_;
  std::map<std::string, std::string> checkpoints_;  // roots by name
  test::MemoryStore blobs_;
};

}  // namespace outboard::sim
