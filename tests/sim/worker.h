// A simulated worker: executor cores on a fake engine, one for each device of a session, which
// outlive their connection to the gateway for a while and die with their node; a supervisor without
// processes.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/base/token.h"
#include "runtime/collective/loopback.h"
#include "tests/sim/fake_engine.h"
#include "tests/sim/gateway.h"
#include "tests/sim/receipt_writer.h"
#include "wire/version.h"
#include "worker/executor/executor_core.h"

namespace outboard::sim {

class Worker {
 public:
  // A session that is parked has to go once all devices have others.
  static constexpr uint64_t kDeviceBytes = 1000, kExecutorBytes = 600;

  Worker(World* world, Gateway* gateway, std::string node, uint32_t devices, Planted planted)
      : world_(world),
        gateway_(gateway),
        node_(std::move(node)),
        devices_(devices),
        planted_(planted) {}

  // It writes receipts. Call first.
  void CountLeases(Lie lie) {
    receipts_.emplace(world_, &gateway_->receipts(), node_, lie);
  }
  void Start() {
    up_ = true;
    if (receipts_.has_value()) receipts_->Restart();
    Join();
  }
  void Crash() {
    world_->ExecutorTrace(node_, " crashes");
    world_->Count("lost");
    up_ = false;
    executors_.clear();
    if (control_ != nullptr) DropControl();
  }
  bool up() const { return up_; }
  // What its executor of the session has applied, after its placement; none: it has none.
  std::optional<std::pair<uint64_t, uint64_t>> Applied(gateway::SessionId session) const {
    const auto found = executors_.find({session, 0});
    if (found == executors_.end()) return std::nullopt;
    return std::pair(found->second->placement, found->second->core->applied_seq());
  }
  // Stops one of its executors, if there are any. The others of its session have no partner then,
  // and end when the gateway says so, or their supervisor: whose word of them comes late.
  void CrashExecutor() {
    if (executors_.empty()) return;
    auto executor = executors_.begin();
    if (devices_ > 2) std::advance(executor, world_->Draw() % executors_.size());
    world_->ExecutorTrace(node_, ": an executor crashes");
    world_->Count("lost");
    const Key key = executor->first;
    const uint64_t placement = executor->second->placement;
    TellEnded(key, placement);
    const std::vector<Key> keys = KeysOf(key.first);
    if (keys.size() == 1) return EndSession(key.first);
    executor->second->engine.group()->Abort(absl::UnavailableError("its process has ended"));
    EndExecutor(key);
    world_->After(world_->Between(0, 3000) * kMs, [this, keys, placement] {
      for (const Key& other : keys)
        if (const auto at = executors_.find(other);
            at != executors_.end() && at->second->placement == placement)
          EndExecutor(other);
    });
    for (const Key& other : keys)
      if (other != key)
        world_->After(world_->Between(1, 8000) * kMs, [this, other, placement, joined = joined_] {
          if (joined == joined_)
            TellEnded(other, placement, absl::InternalError("it has lost its partner"));
        });
  }
  void CutControl() {
    world_->ExecutorTrace(node_, ": the connection to the gateway breaks");
    world_->Count("lost");
    if (control_ != nullptr) control_->Break();
    for (auto& [key, executor] : executors_)
      if (executor->connection != nullptr) executor->connection->Break();
  }

 private:
  using Key = std::pair<gateway::SessionId, uint32_t>;  // with its rank

  // ---- the gateway's commands
  void OnCommand(const proto::GatewayCommand& command) {
    if (receipts_.has_value())
      for (proto::WorkerEvent& event : receipts_->On(command)) control_->SendUp(std::move(event));
    if (command.has_welcome()) OnWelcome(command.welcome());
    if (command.has_assign()) OnAssign(command.assign());
    if (command.has_release())
      EndSession(*gateway::SessionId::FromBytes(command.release().session_id()));
  }
  void OnWelcome(const proto::Welcome& welcome) {
    std::set<gateway::SessionId> others;
    for (const auto& [key, executor] : executors_) others.insert(key.first);
    for (const std::string& bytes : welcome.sessions())
      others.erase(*gateway::SessionId::FromBytes(bytes));
    for (const gateway::SessionId& session : others) EndSession(session);
    for (const std::string& bytes : welcome.sessions())
      for (const Key& key : KeysOf(*gateway::SessionId::FromBytes(bytes)))
        if (executors_.contains(key)) Attach(key);
  }
  void OnAssign(const proto::Assign& assign) {
    if (!up_) return;
    const gateway::SessionId session = *gateway::SessionId::FromBytes(assign.session_id());
    EndSession(session);
    const auto ranks = static_cast<uint32_t>(assign.devices_size());
    for (uint32_t rank = 0; rank < ranks; ++rank) Begin(assign, {session, rank});
    if (ranks == 1) return;
    auto group = collective::MakeLoopback({ranks});
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      FakeEngine& engine = executors_.at({session, rank})->engine;
      engine.JoinGroup(std::move(group[rank]));
      engine.rank = rank;
      engine.on_result = [this, bytes = assign.session_id(), rank](const std::string& value) {
        if (!gateway_->expected().Has(bytes, rank, value))
          world_->Broken("rank ", rank, " computes what it was not asked for");
      };
    }
  }
  void Begin(const proto::Assign& assign, Key key) {
    auto executor = std::make_unique<Executor>();
    executor->token = *gateway::TokenFromBytes(assign.attach_token());
    executor->placement = assign.placement();
    executor->first_rank = assign.group().first_rank();
    executor->devices = {assign.devices().begin(), assign.devices().end()};
    worker::ExecutorOptions options;
    options.planted = {.ack_before_store = planted_ == Planted::kAckBeforeStore,
                       .no_seq_check = planted_ == Planted::kReplayWithoutSeqCheck,
                       .snapshot_late = planted_ == Planted::kSnapshotsDiffer,
                       .goes_on_alone = planted_ == Planted::kFailedRankGoesOn};
    executor->core = std::make_unique<worker::ExecutorCore>(&executor->engine, options);
    executor->core->SetRank(key.second);
    executor->alive = std::make_shared<bool>(true);
    if (receipts_.has_value())
      receipts_->Works(key.first.Bytes(), executor->devices[key.second - executor->first_rank]);
    executors_[key] = std::move(executor);
    world_->After(world_->Between(1, 500) * kMs, Alive(key, [this, key] { Attach(key); }));
  }

  struct Executor {
    gateway::Token token;
    uint64_t placement = 0;
    uint32_t first_rank = 0;  // of this worker's
    std::vector<uint32_t> devices;
    FakeEngine engine;
    std::unique_ptr<worker::ExecutorCore> core;  // ends before the engine
    std::shared_ptr<ExecutorConnection> connection;
    std::shared_ptr<bool> alive;
    std::shared_ptr<const worker::PersistRequest> storing;
    ~Executor() { storing.reset(); }
  };

  // Runs `what` unless the executor has ended by then.
  std::function<void()> Alive(Key key, std::function<void()> what) {
    return [alive = std::weak_ptr<bool>(executors_.at(key)->alive), what = std::move(what)] {
      if (!alive.expired()) what();
    };
  }

  std::vector<Key> KeysOf(gateway::SessionId session) const {
    std::vector<Key> keys;
    for (auto at = executors_.lower_bound({session, 0});
         at != executors_.end() && at->first.first == session; ++at)
      keys.push_back(at->first);
    return keys;
  }
  void EndSession(gateway::SessionId session) {
    for (const Key& key : KeysOf(session)) EndExecutor(key);
  }
  void EndExecutor(Key key) {
    const auto executor = executors_.find(key);
    if (executor->second->connection != nullptr) Leave(*executor->second->connection);
    if (receipts_.has_value())
      receipts_->Gone(key.first.Bytes(), executor->second->devices[
                                             key.second - executor->second->first_rank]);
    executors_.erase(executor);
  }
  template <typename Any>
  static void Leave(Any& connection) {
    connection.dialler.open = false;
    connection.Break();
  }
  void TellEnded(Key key, uint64_t placement,
                 const absl::Status& why = absl::UnavailableError("the executor ended")) {
    if (control_ == nullptr) return;
    proto::WorkerEvent event;
    proto::SessionEnded& ended = *event.mutable_session_ended();
    ended.set_session_id(key.first.Bytes());
    ended.set_rank(key.second);
    ended.set_code(static_cast<uint32_t>(why.code()));
    ended.set_message(std::string(why.message()));
    ended.set_placement(placement);
    control_->SendUp(std::move(event));
  }

  // ---- the control stream
  void Join() {
    if (!up_ || control_ != nullptr) return;
    if (!gateway_->up()) {
      world_->After(500 * kMs, [this] { Join(); });
      return;
    }
    ++joined_;
    control_ = std::make_shared<ControlConnection>(world_);
    control_->dialler.on_message = [this](const proto::GatewayCommand& command) {
      OnCommand(command);
    };
    control_->dialler.on_lost = [this, connection = control_.get()] {
      if (control_.get() != connection) return;
      control_.reset();
      const uint64_t joined = joined_;
      world_->After(90 * kSecond, [this, joined] {
        while (joined_ == joined && !executors_.empty())  // the worker has not rejoined
          EndExecutor(executors_.begin()->first);
      });
      world_->After(500 * kMs, [this] { Join(); });
    };
    beat_ = 0;
    gateway_->Accept(control_);
    control_->SendUp(Register());
    Beat(joined_);
  }
  proto::WorkerEvent Register() const {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_identity((node_ + std::string(32, '.')).substr(0, 32));
    reg.set_name(node_);
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *reg.mutable_graph_schema());
    reg.set_serves_groups(true);
    reg.set_groups_recover(true);
    if (receipts_.has_value()) receipts_->AddTo(reg);
    for (uint32_t i = 0; i < devices_; ++i) {
      proto::Device& device = *reg.add_devices();
      device.set_hardware_class("simulated");
      device.set_memory_bytes(kDeviceBytes);
    }
    for (const auto& [key, executor] : executors_) {
      if (key.second != executor->first_rank) continue;
      proto::HeldSession& held = *reg.add_sessions();
      held.set_session_id(key.first.Bytes());
      held.set_attach_token(gateway::BytesOf(executor->token));
      *held.mutable_devices() = {executor->devices.begin(), executor->devices.end()};
      held.set_placement(executor->placement);
    }
    return event;
  }
  void DropControl() {
    const std::shared_ptr<ControlConnection> control = std::exchange(control_, nullptr);
    ++joined_;
    Leave(*control);
  }
  void Beat(uint64_t joined) {
    world_->After(kSecond, [this, joined] {
      if (control_ == nullptr || joined_ != joined) return;
      proto::WorkerEvent event;
      event.mutable_heartbeat();
      for (const auto& [key, executor] : executors_) {
        if (key.second != executor->first_rank) continue;
        event.mutable_heartbeat()->add_sessions(key.first.Bytes());
        event.mutable_heartbeat()->add_memory_bytes(kExecutorBytes);
      }
      event.mutable_heartbeat()->set_beat(++beat_);
      if (receipts_.has_value()) receipts_->AddTo(*event.mutable_heartbeat());
      control_->SendUp(std::move(event));
      Beat(joined);
    });
  }

  // ---- executors
  void Attach(Key key) {
    Executor& executor = *executors_.at(key);
    if (executor.connection != nullptr) Leave(*std::exchange(executor.connection, nullptr));
    if (!gateway_->up() || control_ == nullptr) return;
    auto connection = std::make_shared<ExecutorConnection>(world_);
    executor.connection = connection;
    connection->Duplicate(30);
    connection->dialler.on_message = Frames(key);
    if (gateway_->Attach(key.first, executor.token, key.second, connection)) return;
    TellEnded(key, executor.placement);
    EndSession(key.first);
  }
  std::function<void(proto::ClientFrame)> Frames(Key key) {
    return [this, key,
            alive = std::weak_ptr<bool>(executors_.at(key)->alive)](proto::ClientFrame frame) {
      if (alive.expired()) return;
      Executor& executor = *executors_.at(key);
      executor.core->On(std::move(frame), Sender(executor));
      Turn(key);
    };
  }
  static worker::ExecutorCore::SendFrame Sender(Executor& executor) {
    return [&executor](proto::ServerFrame frame) {
      if (executor.connection != nullptr) executor.connection->SendUp(std::move(frame));
    };
  }

  // The actions that the core requests after each event.
  void Turn(Key key) {
    Executor& executor = *executors_.at(key);
    for (const worker::BlobWant& want : executor.core->TakeBlobWants())
      world_->After(world_->Between(1, 300) * kMs, Alive(key, [this, key, want] {
                      Executor& executor = *executors_.at(key);
                      executor.core->OnBlob(want.key,
                                            gateway_->blobs().Read(want, executor.engine),
                                            Sender(executor));
                      Turn(key);
                    }));
    if (executor.storing == nullptr)
      if ((executor.storing = executor.core->TakeStore(world_->now_ms())) != nullptr)
        world_->After(world_->Between(1, 1500) * kMs,
                      Alive(key, [this, key] { Store(key); }));
    if (const std::optional<int64_t> wake = executor.core->wake_ms())
      world_->After(std::max<int64_t>(kMs, *wake * kMs - world_->now()),
                    Alive(key, [this, key] {
                      if (executors_.at(key)->storing == nullptr) Turn(key);
                    }));
  }

  // The blobs are written; asks the gateway to retain them. The gateway answers, answers too late,
  // or is down.
  void Store(Key key) {
    Executor& executor = *executors_.at(key);
    const auto request = executor.storing;
    const auto answered = std::make_shared<bool>(false);
    const auto answer = [this, key, id = request->id, answered](const absl::Status& kept) {
      const bool lost = world_->OneIn(10);
      if (std::exchange(*answered, true)) return;
      world_->After(world_->Between(1, 300) * kMs,
                    Alive(key, [this, key, id, ok = kept.ok() && !lost] {
                      Stored(key, id, ok);
                    }));
    };
    world_->After(5 * kSecond, Alive(key, [answer] { answer(absl::UnavailableError("")); }));
    if (control_ == nullptr || !gateway_->up() || world_->OneIn(10))
      return answer(absl::UnavailableError("not there"));
    const std::weak_ptr<bool> alive = executor.alive;
    gateway_->Keep(key.first, executor.token, key.second, *request,
                   [alive, answer](const absl::Status& kept) {
                     if (!alive.expired()) answer(kept);
                   });
  }
  void Stored(Key key, uint64_t id, bool kept) {
    Executor& executor = *executors_.at(key);
    proto::Stored stored;
    stored.set_id(id);
    if (!kept) stored.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    executor.storing.reset();
    executor.core->OnStored(stored, world_->now_ms(), Sender(executor));
    Turn(key);
  }

  World* const world_;
  Gateway* const gateway_;
  const std::string node_;
  const uint32_t devices_;
  const Planted planted_;
  bool up_ = false;
  uint64_t joined_ = 0, beat_ = 0;
  std::optional<ReceiptWriter> receipts_;
  std::shared_ptr<ControlConnection> control_;
  std::map<Key, std::unique_ptr<Executor>> executors_;
};

}  // namespace outboard::sim
