// A simulated worker: executor cores on a fake engine, which outlive their connection to the
// gateway for a while and die with their node; a supervisor without processes.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/base/token.h"
#include "tests/sim/fake_engine.h"
#include "tests/sim/gateway.h"
#include "wire/version.h"
#include "worker/executor/executor_core.h"

namespace outboard::sim {

class Worker {
 public:
  static constexpr uint32_t kDevices = 2;
  // A session that is parked has to go once both devices have others.
  static constexpr uint64_t kDeviceBytes = 1000, kExecutorBytes = 600;

  Worker(World* world, Gateway* gateway, std::string node, Planted planted)
      : world_(world), gateway_(gateway), node_(std::move(node)), planted_(planted) {}

  void Start() {
    up_ = true;
    Join();
  }
  void Crash() {
    world_->ExecutorTrace(node_, " crashes");
    up_ = false;
    executors_.clear();
    if (control_ != nullptr) DropControl();
  }
  bool up() const { return up_; }
  // What its executor of the session has applied, after its placement; none: it has none.
  std::optional<std::pair<uint64_t, uint64_t>> Applied(gateway::SessionId session) const {
    const auto found = executors_.find(session);
    if (found == executors_.end()) return std::nullopt;
    return std::pair(found->second->placement, found->second->core->applied_seq());
  }
  // Stops one of its executors, if there are any.
  void CrashExecutor() {
    if (executors_.empty()) return;
    const auto executor = executors_.begin();
    world_->ExecutorTrace(node_, ": an executor crashes");
    TellEnded(executor->first, executor->second->placement);
    EndExecutor(executor->first);
  }
  void CutControl() {
    world_->ExecutorTrace(node_, ": the connection to the gateway breaks");
    if (control_ != nullptr) control_->Break();
    for (auto& [session, executor] : executors_)
      if (executor->connection != nullptr) executor->connection->Break();
  }

 private:
  // ---- the gateway's commands
  void OnCommand(const proto::GatewayCommand& command) {
    if (command.has_welcome()) OnWelcome(command.welcome());
    if (command.has_assign()) OnAssign(command.assign());
    if (command.has_release())
      EndExecutor(*gateway::SessionId::FromBytes(command.release().session_id()));
  }
  void OnWelcome(const proto::Welcome& welcome) {
    std::set<gateway::SessionId> others;
    for (const auto& [session, executor] : executors_) others.insert(session);
    for (const std::string& bytes : welcome.sessions())
      others.erase(*gateway::SessionId::FromBytes(bytes));
    for (const gateway::SessionId& session : others) EndExecutor(session);
    for (const std::string& bytes : welcome.sessions()) {
      const gateway::SessionId session = *gateway::SessionId::FromBytes(bytes);
      if (executors_.contains(session)) Attach(session);
    }
  }
  void OnAssign(const proto::Assign& assign) {
    if (!up_) return;
    const gateway::SessionId session = *gateway::SessionId::FromBytes(assign.session_id());
    EndExecutor(session);
    auto executor = std::make_unique<Executor>();
    executor->token = *gateway::TokenFromBytes(assign.attach_token());
    executor->placement = assign.placement();
    executor->devices = {assign.devices().begin(), assign.devices().end()};
    worker::ExecutorOptions options;
    options.planted = {.ack_before_store = planted_ == Planted::kAckBeforeStore,
                       .no_seq_check = planted_ == Planted::kReplayWithoutSeqCheck};
    executor->core = std::make_unique<worker::ExecutorCore>(&executor->engine, options);
    executor->alive = std::make_shared<bool>(true);
    executors_[session] = std::move(executor);
    world_->After(world_->Between(1, 500) * kMs,
                  Alive(session, [this, session] { Attach(session); }));
  }

  struct Executor {
    gateway::Token token;
    uint64_t placement = 0;
    std::vector<uint32_t> devices;
    FakeEngine engine;
    std::unique_ptr<worker::ExecutorCore> core;  // ends before the engine
    std::shared_ptr<ExecutorConnection> connection;
    std::shared_ptr<bool> alive;
    std::shared_ptr<const worker::PersistRequest> storing;
    ~Executor() { storing.reset(); }
  };

  // Runs `what` unless the executor has ended by then.
  std::function<void()> Alive(gateway::SessionId session, std::function<void()> what) {
    return [alive = std::weak_ptr<bool>(executors_.at(session)->alive), what = std::move(what)] {
      if (!alive.expired()) what();
    };
  }

  void EndExecutor(gateway::SessionId session) {
    const auto found = executors_.find(session);
    if (found == executors_.end()) return;
    if (found->second->connection != nullptr) Leave(*found->second->connection);
    executors_.erase(found);
  }
  template <typename Any>
  static void Leave(Any& connection) {
    connection.dialler.open = false;
    connection.Break();
  }
  void TellEnded(gateway::SessionId session, uint64_t placement) {
    if (control_ == nullptr) return;
    proto::WorkerEvent event;
    proto::SessionEnded& ended = *event.mutable_session_ended();
    ended.set_session_id(session.Bytes());
    ended.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    ended.set_message("the executor ended");
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
        if (joined_ == joined) executors_.clear();  // the worker has not rejoined
      });
      world_->After(500 * kMs, [this] { Join(); });
    };
    gateway_->Accept(control_);
    control_->SendUp(Register());
    Beat(control_.get());
  }
  proto::WorkerEvent Register() const {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_identity((node_ + std::string(32, '.')).substr(0, 32));
    reg.set_name(node_);
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *reg.mutable_graph_schema());
    for (uint32_t i = 0; i < kDevices; ++i) {
      proto::Device& device = *reg.add_devices();
      device.set_hardware_class("simulated");
      device.set_memory_bytes(kDeviceBytes);
    }
    for (const auto& [session, executor] : executors_) {
      proto::HeldSession& held = *reg.add_sessions();
      held.set_session_id(session.Bytes());
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
  void Beat(const ControlConnection* connection) {
    world_->After(kSecond, [this, connection] {
      if (control_.get() != connection) return;
      proto::WorkerEvent event;
      event.mutable_heartbeat();
      for (const auto& [session, executor] : executors_) {
        event.mutable_heartbeat()->add_sessions(session.Bytes());
        event.mutable_heartbeat()->add_memory_bytes(kExecutorBytes);
      }
      control_->SendUp(std::move(event));
      Beat(connection);
    });
  }

  // ---- executors
  void Attach(gateway::SessionId session) {
    Executor& executor = *executors_.at(session);
    if (executor.connection != nullptr) Leave(*std::exchange(executor.connection, nullptr));
    if (!gateway_->up() || control_ == nullptr) return;
    auto connection = std::make_shared<ExecutorConnection>(world_);
    executor.connection = connection;
    connection->Duplicate(30);
    connection->dialler.on_message = Frames(session);
    if (gateway_->Attach(session, executor.token, connection)) return;
    TellEnded(session, executor.placement);
    EndExecutor(session);
  }
  std::function<void(proto::ClientFrame)> Frames(gateway::SessionId session) {
    return [this, session,
            alive = std::weak_ptr<bool>(executors_.at(session)->alive)](proto::ClientFrame frame) {
      if (alive.expired()) return;
      Executor& executor = *executors_.at(session);
      executor.core->On(std::move(frame), Sender(executor));
      Turn(session);
    };
  }
  static worker::ExecutorCore::SendFrame Sender(Executor& executor) {
    return [&executor](proto::ServerFrame frame) {
      if (executor.connection != nullptr) executor.connection->SendUp(std::move(frame));
    };
  }

  // The actions that the core requests after each event.
  void Turn(gateway::SessionId session) {
    Executor& executor = *executors_.at(session);
    for (const worker::BlobWant& want : executor.core->TakeBlobWants())
      world_->After(world_->Between(1, 300) * kMs, Alive(session, [this, session, want] {
                      Executor& executor = *executors_.at(session);
                      executor.core->OnBlob(want.root,
                                            gateway_->blobs().Read(want, executor.engine),
                                            Sender(executor));
                      Turn(session);
                    }));
    if (executor.storing == nullptr)
      if ((executor.storing = executor.core->TakeStore(world_->now_ms())) != nullptr)
        world_->After(world_->Between(1, 1500) * kMs,
                      Alive(session, [this, session] { Store(session); }));
    if (const std::optional<int64_t> wake = executor.core->wake_ms())
      world_->After(std::max<int64_t>(kMs, *wake * kMs - world_->now()),
                    Alive(session, [this, session] {
                      if (executors_.at(session)->storing == nullptr) Turn(session);
                    }));
  }

  // The blobs are written; asks the gateway to retain them. The gateway answers, answers too late,
  // or is down.
  void Store(gateway::SessionId session) {
    Executor& executor = *executors_.at(session);
    const auto request = executor.storing;
    const auto answered = std::make_shared<bool>(false);
    const auto answer = [this, session, id = request->id, answered](const absl::Status& kept) {
      const bool lost = world_->OneIn(10);
      if (std::exchange(*answered, true)) return;
      world_->After(world_->Between(1, 300) * kMs,
                    Alive(session, [this, session, id, ok = kept.ok() && !lost] {
                      Stored(session, id, ok);
                    }));
    };
    world_->After(5 * kSecond, Alive(session, [answer] { answer(absl::UnavailableError("")); }));
    if (control_ == nullptr || !gateway_->up() || world_->OneIn(10))
      return answer(absl::UnavailableError("not there"));
    const std::weak_ptr<bool> alive = executor.alive;
    gateway_->Keep(session, executor.token, *request, [alive, answer](const absl::Status& kept) {
      if (!alive.expired()) answer(kept);
    });
  }
  void Stored(gateway::SessionId session, uint64_t id, bool kept) {
    Executor& executor = *executors_.at(session);
    proto::Stored stored;
    stored.set_id(id);
    if (!kept) stored.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    executor.storing.reset();
    executor.core->OnStored(stored, world_->now_ms(), Sender(executor));
    Turn(session);
  }

  World* const world_;
  Gateway* const gateway_;
  const std::string node_;
  const Planted planted_;
  bool up_ = false;
  uint64_t joined_ = 0;
  std::shared_ptr<ControlConnection> control_;
  std::map<gateway::SessionId, std::unique_ptr<Executor>> executors_;
};

}  // namespace outboard::sim
