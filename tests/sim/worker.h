// A worker of the simulation: executor cores on a fake engine, which outlive its connection to the
// gateway for a while and die with their node; what a supervisor does, without processes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/fake_engine.h"
#include "tests/sim/gateway.h"
#include "worker/executor/executor_core.h"

namespace outboard::sim {

class Worker final : public WorkerPort {
 public:
  static constexpr uint32_t kDevices = 2;

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
  // Of its executors, one, if it has any.
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

  // ---- the gateway's commands
  void Welcomed(std::vector<gateway::SessionId> sessions) override {
    std::vector<gateway::SessionId> others;
    for (const auto& [session, executor] : executors_)
      if (std::find(sessions.begin(), sessions.end(), session) == sessions.end())
        others.push_back(session);
    for (const gateway::SessionId& session : others) EndExecutor(session);
    for (const gateway::SessionId& session : sessions)
      if (executors_.contains(session)) Attach(session);
  }
  void Assigned(gateway::SessionId session, uint64_t placement,
                std::vector<uint32_t> devices) override {
    if (!up_) return;
    EndExecutor(session);
    auto executor = std::make_unique<Executor>();
    executor->placement = placement;
    executor->devices = std::move(devices);
    worker::ExecutorOptions options;
    options.planted = {.ack_before_store = planted_ == Planted::kAckBeforeStore,
                       .no_seq_check = planted_ == Planted::kReplayWithoutSeqCheck};
    executor->core = std::make_unique<worker::ExecutorCore>(&executor->engine, options);
    executor->alive = std::make_shared<bool>(true);
    executors_[session] = std::move(executor);
    world_->After(world_->Between(1, 500) * kMs,
                  Alive(session, [this, session] { Attach(session); }));
  }
  void Released(gateway::SessionId session) override { EndExecutor(session); }

 private:
  struct Executor {
    uint64_t placement = 0;
    std::vector<uint32_t> devices;
    FakeEngine engine;
    std::unique_ptr<worker::ExecutorCore> core;  // ends before the engine
    std::shared_ptr<ExecutorConnection> connection;
    std::shared_ptr<bool> alive;
    std::shared_ptr<const worker::PersistRequest> storing;
    ~Executor() { storing.reset(); }
  };

  // `what`, unless the executor has ended by then.
  Call Alive(gateway::SessionId session, Call what) {
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
    control_->SendUp(
        [gateway = gateway_, session, placement] { gateway->SessionEnded(session, placement); });
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
    control_->dialler.on_message = [](const Call& call) { call(); };
    control_->dialler.on_lost = [this, connection = control_.get()] {
      if (control_.get() != connection) return;
      control_.reset();
      const uint64_t joined = joined_;
      world_->After(90 * kSecond, [this, joined] {
        if (joined_ == joined) executors_.clear();  // nobody has come back
      });
      world_->After(500 * kMs, [this] { Join(); });
    };
    std::vector<gateway::HeldExecutor> held;
    for (const auto& [session, executor] : executors_)
      held.push_back({session, executor->devices, executor->placement});
    gateway_->Join(control_, this, node_, kDevices, std::move(held));
    Beat(control_.get());
  }
  void DropControl() {
    const std::shared_ptr<ControlConnection> control = std::exchange(control_, nullptr);
    ++joined_;
    Leave(*control);
  }
  void Beat(const ControlConnection* connection) {
    world_->After(kSecond, [this, connection] {
      if (control_.get() != connection) return;
      std::vector<gateway::SessionId> alive;
      for (const auto& [session, executor] : executors_) alive.push_back(session);
      control_->SendUp(
          [gateway = gateway_, connection, alive] { gateway->Heartbeat(connection, alive); });
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
    if (gateway_->Attach(session, executor.placement, connection)) return;
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

  // What the core wants, after each event.
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

  // The blobs are written; the gateway is asked to keep them, and answers or is not there.
  void Store(gateway::SessionId session) {
    Executor& executor = *executors_.at(session);
    bool kept = false;
    if (control_ != nullptr && !world_->OneIn(10))
      kept = gateway_->Keep(session, executor.placement, *executor.storing);
    if (kept && world_->OneIn(10)) kept = false;  // the answer is lost
    world_->After(world_->Between(1, 300) * kMs, Alive(session, [this, session, kept] {
                    Executor& executor = *executors_.at(session);
                    proto::Stored stored;
                    stored.set_id(executor.storing->id);
                    if (!kept) stored.set_code(14);  // UNAVAILABLE
                    executor.storing.reset();
                    executor.core->OnStored(stored, world_->now_ms(), Sender(executor));
                    Turn(session);
                  }));
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
