// A simulated gateway: the CoreDriver, relays and ports of production, with endpoints that are
// simulated connections. All decisions and forwarding are production code; this file provides only
// the process, disk and network.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "gateway/base/limits.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/observer.h"
#include "gateway/data_path/ports.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "tests/sim/connection.h"
#include "tests/sim/disk.h"
#include "tests/sim/host.h"
#include "tests/sim/inbox.h"
#include "tests/sim/keys.h"
#include "tests/sim/no_blobs.h"
#include "tests/sim/planted.h"
#include "tests/sim/told_clients.h"
#include "tests/support/memory_store.h"

namespace outboard::sim {

struct ToClient {
  proto::ServerFrame frame;
  std::optional<absl::Status> end;  // of the stream, after the frame
};
using ClientConnection = Connection<proto::ClientFrame, ToClient>;
using ExecutorConnection = Connection<proto::ServerFrame, proto::ClientFrame>;
using ControlConnection = Connection<proto::WorkerEvent, proto::GatewayCommand>;

// What each rank of the sessions on several devices is to compute, in whatever order, as often as
// it has to.
class ExpectedResults {
 public:
  void Add(const std::string& session, uint32_t rank, const std::string& value) {
    values_[{session, rank}].insert(value);
  }
  bool Has(const std::string& session, uint32_t rank, const std::string& value) const {
    const auto found = values_.find({session, rank});
    return found != values_.end() && found->second.contains(value);
  }

 private:
  std::map<std::pair<std::string, uint32_t>, std::set<std::string>> values_;
};

class Gateway {
 public:
  Gateway(World* world, Planted planted)
      : world_(world), planted_(planted), keys_(world), disk_(world, &keys_) {}

  bool up() const { return process_ != nullptr; }
  void Start() {
    ++starts_;
    ++disk_.turn;
    disk_.receipts.GatewayStarts(disk_.turn);
    process_ = std::make_unique<Process>(this);
    disk_.books.EndAllHolds();
    told_.GatewayStarts(starts_);
    for (const gateway::TakenOver& taken : disk_.Live()) {
      if (taken.row.devices > 1) world_->Count("group taken over");
      process_->driver.Restore(taken, disk_.books.UsageOf(taken.row.session));
    }
    Tick(process_.get());
  }
  void Crash() {
    world_->ExecutorTrace("gateway crashes");
    world_->Count("gateway lost");
    End(process_);
    told_.RepeatNothing();
  }
  // It stands still, and another one begins on its data; then it goes on, until it finds its turn
  // over, or for a while.
  void Replace() {
    world_->ExecutorTrace("gateway stands still, and another one starts");
    world_->Count("gateway replaced");
    if (before_ != nullptr) End(before_);
    before_ = std::move(process_);
    told_.RepeatNothing();
    before_->replaced = true;
    before_->host.Pause();
    for (const auto& side : before_->clients) side->connection->Break();
    for (const auto& side : before_->workers) side->connection->Break();
    for (const auto& side : before_->executors) side->connection->Break();
    Start();
    const auto still_there = [this, number = starts_](auto what) {
      return [this, number, what] {
        if (before_ != nullptr && before_->number + 1 == number) what();
      };
    };
    world_->After(world_->Between(10, 10'000) * kMs,
                  still_there([this] { before_->host.Resume(); }));
    world_->After(30 * kSecond, still_there([this] { End(before_); }));
  }

  // ---- the operator
  void Revoke(const std::string& key) { keys_.Revoke(key); }

  // The program of the session has died, and its next one repeats nothing.
  void ClientDied(const std::string& session) { told_.EndReplay(session); }

  // ---- connecting
  void Accept(const std::shared_ptr<ClientConnection>& connection, const std::string& key) {
    auto side = std::make_shared<ClientSide>(this, process_.get(), connection, key);
    process_->clients.push_back(side);
    side->Begin();
  }
  void Accept(const std::shared_ptr<ControlConnection>& connection) {
    auto side = std::make_shared<WorkerSide>(this, process_.get(), connection);
    process_->workers.push_back(side);
    side->Begin();
  }
  // True if the executor belongs to the session.
  bool Attach(gateway::SessionId session, gateway::Token token, uint32_t rank,
              const std::shared_ptr<ExecutorConnection>& connection) {
    auto side = std::make_shared<ExecutorSide>(this, process_.get(), connection);
    if (!side->Begin(session, token, rank)) return false;
    process_->executors.push_back(side);
    return true;
  }
  // Fleet.Keep: calls `done` with OK when it is on disk; never, if the gateway crashes.
  void Keep(gateway::SessionId session, gateway::Token token, uint32_t rank,
            const worker::PersistRequest& request, std::function<void(absl::Status)> done) {
    const absl::StatusOr<gateway::TenantId> tenant = process_->driver.TenantOf(session, token);
    if (!tenant.ok()) return done(tenant.status());
    const std::string root = blobs_.Keep(request);
    world_->Count("snapshot kept");
    if (!request.checkpoint) {
      kept_[session] = std::max(kept_[session], request.seq);
      return process_->driver.KeepSnapshot(session, token, root, request.seq, std::move(done),
                                           rank);
    }
    checkpoints_[request.name] = root;
    done(absl::OkStatus());
  }
  const test::MemoryStore& blobs() const { return blobs_; }
  Books& books() { return disk_.books; }
  Receipts& receipts() { return disk_.receipts; }
  ExpectedResults& expected() { return expected_; }
  // Returns the bytes of the checkpoint saved under `name`.
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

  // Calls it for each session that is put away for its worker's memory.
  std::function<void(gateway::SessionId, bool is_saved)> on_stored;
  // The last item of the snapshots that its executors wanted kept.
  uint64_t KeptSeq(gateway::SessionId session) const {
    return kept_.contains(session) ? kept_.at(session) : 0;
  }
  // The last that an executor was assigned to.
  uint64_t LastPlacement(gateway::SessionId session) const {
    return assigned_.contains(session) ? assigned_.at(session) : 0;
  }
  // True if its executor was asked for a snapshot long enough ago, or could not be asked. Several
  // are asked again and again, and not before their client has opened all of them.
  bool HadTimeToSave(gateway::SessionId session) const {
    const auto& executors = process_->executors;
    const auto executor = std::find_if(executors.rbegin(), executors.rend(),
                                       [&](const auto& side) { return side->session == session; });
    const bool is_group = std::ranges::any_of(executors, [&](const auto& side) {
      return side->session == session && side->rank > 0;
    });
    return executor == executors.rend() || is_group ||
           ((*executor)->asked && world_->now() - *(*executor)->asked > kSavesWithin);
  }

  std::string CheckInvariants() const { return up() ? process_->driver.CheckInvariants() : ""; }

 private:
  struct Process;

  // The far end of a client's connection.
  class ClientSide final : public gateway::ClientEndpoint,
                           public std::enable_shared_from_this<ClientSide> {
   public:
    ClientSide(Gateway* gateway, Process* process, std::shared_ptr<ClientConnection> connection,
               const std::string& key)
        : connection(std::move(connection)),
          gateway_(gateway),
          process_(process),
          host_(&process->host),
          key_(key),
          port_(&process->driver, host_, &process->auth, this, {.key = key}) {}
    void Begin() {
      inbox_.take = [this](proto::ClientFrame frame) {
        return ended_ || port_.OnFrame(std::move(frame));
      };
      connection->acceptor.on_message = [self = weak_from_this()](proto::ClientFrame frame) {
        const auto alive = self.lock();
        if (alive == nullptr) return;
        alive->host_->Enter([alive, frame = std::move(frame)]() mutable {
          alive->inbox_.OnMessage(std::move(frame));
        });
      };
      connection->acceptor.on_lost = [self = weak_from_this()] {
        const auto alive = self.lock();
        if (alive == nullptr) return;
        alive->host_->Enter([alive] {
          if (!alive->process_->replaced) alive->gateway_->told_.EndReplay(alive->session_);
          alive->port_.OnReadEnd();
        });
      };
      inbox_.Pause();
      port_.Begin();
    }
    void Send(proto::ServerFrame frame) override {
      if (ended_ || process_->replaced) return;
      gateway_->told_.Look(frame, session_, connection->dialler.open);
      for (const proto::ServerItem& item : frame.items())
        if (item.has_opened()) {
          const gateway::SessionId session = *gateway::SessionId::FromBytes(session_);
          gateway_->keys_.Opens(session, key_);
          gateway_->books().Opens(session, KeyIdOf(key_));
        }
      connection->SendDown({std::move(frame), std::nullopt});
    }
    void End(absl::Status why) override {
      if (std::exchange(ended_, true)) return;
      if (!process_->replaced) gateway_->told_.EndReplay(session_);
      if (!process_->replaced && absl::IsAborted(why) && !session_.empty() &&
          connection->dialler.open)
        gateway_->books().ThrownOut(*gateway::SessionId::FromBytes(session_), KeyIdOf(key_));
      connection->SendDown({{}, std::move(why)});
      connection->acceptor.open = false;
      Unhold();
    }
    void SendLast(proto::ServerFrame frame, absl::Status why) override {
      Send(std::move(frame));
      End(std::move(why));
    }
    bool AskWritable() override {
      return Inbox<proto::ClientFrame>::AskWritable(
          host_, writable_asked_, weak_from_this(),
          [](ClientSide& self) { self.port_.OnWritable(); });
    }
    void ResumeReading() override { inbox_.Resume(host_, weak_from_this()); }
    bool Hold() override {
      if (holds_ == 0) return false;
      ++holds_;
      return true;
    }
    void Unhold() override {
      if (--holds_ > 0) return;
      host_->After(gateway_->world_->Between(0, 5) * kMs, [self = shared_from_this()] {
        self->port_.OnGone();
        std::erase(self->process_->clients, self);
      });
    }

    const std::shared_ptr<ClientConnection> connection;

   private:
    Gateway* const gateway_;
    Process* const process_;
    SimulatedHost* const host_;
    const std::string key_;
    gateway::ClientPort port_;
    Inbox<proto::ClientFrame> inbox_;
    std::string session_;  // since Opened
    int holds_ = 1;        // one until End
    bool ended_ = false, writable_asked_ = false;
  };

  class ExecutorSide final : public gateway::ExecutorEndpoint,
                             public std::enable_shared_from_this<ExecutorSide> {
   public:
    ExecutorSide(Gateway* gateway, Process* process,
                 std::shared_ptr<ExecutorConnection> connection)
        : connection(std::move(connection)),
          gateway_(gateway),
          process_(process),
          host_(&process->host),
          port_(&process->driver, this) {}
    bool Begin(gateway::SessionId of, gateway::Token token, uint32_t of_rank) {
      session = of;
      rank = of_rank;
      if (!port_.Attach(session, token, rank).ok()) return false;
      inbox_.take = [this](proto::ServerFrame frame) { return port_.OnFrame(std::move(frame)); };
      connection->acceptor.on_message = [self = weak_from_this()](proto::ServerFrame frame) {
        const auto alive = self.lock();
        if (alive == nullptr) return;
        alive->host_->Enter([alive, frame = std::move(frame)]() mutable {
          alive->inbox_.OnMessage(std::move(frame));
        });
      };
      connection->acceptor.on_lost = [self = weak_from_this()] {
        if (const auto alive = self.lock()) alive->host_->Enter([alive] { alive->Gone(); });
      };
      return true;
    }
    void Send(proto::ClientFrame frame) override {
      if (ended_ || process_->replaced) return;
      for (const proto::ClientItem& item : frame.items())
        if (item.has_open())
          gateway_->world_->Count(frame.epoch() == 1 ? "opened" : "resumed");
        else if (item.has_take_snapshot())
          asked = gateway_->world_->now();
        else if (item.seq() > 0)
          gateway_->keys_.Runs(session);
      connection->SendDown(std::move(frame));
    }
    void End(absl::Status) override {
      if (std::exchange(ended_, true)) return;
      connection->acceptor.open = false;
      host_->After(gateway_->world_->Between(0, 5) * kMs,
                   [self = shared_from_this()] { self->Gone(); });
    }
    bool AskWritable() override {
      return Inbox<proto::ServerFrame>::AskWritable(
          host_, writable_asked_, weak_from_this(),
          [](ExecutorSide& self) { self.port_.OnWritable(); });
    }
    void ResumeReading() override { inbox_.Resume(host_, weak_from_this()); }

    const std::shared_ptr<ExecutorConnection> connection;
    gateway::SessionId session;
    std::optional<int64_t> asked;  // for a snapshot, the last time
    uint32_t rank = 0;

   private:
    void Gone() {
      const auto self = shared_from_this();
      port_.Leave();
      std::erase(process_->executors, self);
    }

    Gateway* const gateway_;
    Process* const process_;
    SimulatedHost* const host_;
    gateway::ExecutorPort port_;
    Inbox<proto::ServerFrame> inbox_;
    bool ended_ = false, writable_asked_ = false;
  };

  class WorkerSide final : public gateway::WorkerEndpoint,
                           public std::enable_shared_from_this<WorkerSide> {
   public:
    WorkerSide(Gateway* gateway, Process* process,
               std::shared_ptr<ControlConnection> connection)
        : connection(std::move(connection)),
          gateway_(gateway),
          process_(process),
          port_(&process->driver, this) {}
    void Begin() {
      connection->acceptor.on_message = [self = weak_from_this()](proto::WorkerEvent event) {
        if (const auto alive = self.lock())
          alive->process_->host.Enter(
              [alive, event = std::move(event)] { alive->port_.OnEvent(event); });
      };
      connection->acceptor.on_lost = [self = weak_from_this()] {
        if (const auto alive = self.lock())
          alive->process_->host.Enter([alive] { alive->Gone(); });
      };
    }
    void Send(proto::GatewayCommand command) override {
      if (command.has_assign())
        gateway_->assigned_[*gateway::SessionId::FromBytes(command.assign().session_id())] =
            command.assign().placement();
      connection->SendDown(std::move(command));
    }
    void End(absl::Status) override {
      if (!std::exchange(connection->acceptor.open, false)) return;
      connection->Break();
      process_->host.After(gateway_->world_->Between(0, 5) * kMs,
                                     [self = shared_from_this()] { self->Gone(); });
    }

    const std::shared_ptr<ControlConnection> connection;

   private:
    void Gone() {
      const auto self = shared_from_this();
      port_.OnGone();
      std::erase(process_->workers, self);
    }

    Gateway* const gateway_;
    Process* const process_;
    gateway::WorkerPort port_;
  };

  // Everything that ends with a crash.
  struct Process {
    explicit Process(Gateway* gateway)
        : number(gateway->starts_),
          host(gateway->world_),
          observer(gateway, this),
          writes(gateway->world_, &host, &gateway->disk_, gateway->planted_),
          auth(&host, &gateway->keys_, gateway->planted_),
          driver(Options(gateway->disk_.books.price_per_hour()), &host, &writes, &blobs, &auth,
                 PlantedIn(gateway->planted_)) {
      host.has_stand_in = std::bind_front(&Receipts::HasStandIn, &gateway->disk_.receipts);
      driver.SetObserver(&observer);
      OB_CHECK_OK(driver.SetQuarantine(&gateway->disk_.receipts));
      writes.on_replaced = [gateway, this] {
        gateway->world_->After(kMs, [gateway, number = number] {
          const auto& before = gateway->before_;
          if (before != nullptr && before->number == number) gateway->End(gateway->before_);
        });
      };
    }

    struct Observer final : gateway::DriverObserver {
      Observer(Gateway* of, const Process* process) : gateway(of), process(process) {}
      void OnStored(const gateway::ObservedSession& session, bool is_saved) override {
        if (gateway->on_stored && !process->replaced)
          gateway->on_stored(session.session, is_saved);
      }
      void OnWorkerOffence(const gateway::ObservedSession&, std::string_view name,
                           std::string_view kind) override {
        gateway->receipts().Offence(name, kind);
      }
      void OnWorkerSetAside(std::string_view name, std::string_view,
                            std::string_view why) override {
        gateway->receipts().SetAside(name, why);
      }
      Gateway* const gateway;
      const Process* const process;
    };

    const uint64_t number;
    bool replaced = false;  // another one has begun; nobody hears it any more
    SimulatedHost host;
    Observer observer;
    SimulatedWrites writes;
    NoBlobs blobs;
    KeyDoor auth;
    gateway::CoreDriver driver;
    // In order of arrival.
    std::vector<std::shared_ptr<ClientSide>> clients;
    std::vector<std::shared_ptr<ExecutorSide>> executors;
    std::vector<std::shared_ptr<WorkerSide>> workers;
  };

  static gateway::CoreOptions Options(gateway::MicroUsd price_per_hour) {
    gateway::CoreOptions options;
    options.price_per_hour = price_per_hour;
    options.hold_ms = 6000;  // renewed often
    options.stop_lead_ns = kSecond;
    options.snapshot_ns = 2 * kSecond;
    options.idle_ns = kSecond;
    options.sleep_ns = 2 * kSecond;
    options.sleep_lead_ns = kSecond;
    options.snapshot_wait_ns = kSavesWithin;
    options.sessions_per_tenant_max = 200;
    options.moves_max = options.starts_max = 1000;  // this world has many faults on purpose
    options.queue_ns = options.move_ns = options.orphan_ns = 300 * kSecond;
    return options;
  }
  static gateway::DriverPlanted PlantedIn(Planted planted) {
    return {.old_epoch = planted == Planted::kOldEpoch,
            .live_before_written = planted == Planted::kLiveBeforeWritten,
            .kept_before_written = planted == Planted::kKeptBeforeWritten,
            .asks_no_snapshot = planted == Planted::kAsksNoSnapshot,
            .never_wakes = planted == Planted::kNeverWakes,
            .bill_replay = planted == Planted::kBillReplay,
            .wall_clock = planted == Planted::kWallClock,
            .never_idle = planted == Planted::kNeverIdle,
            .old_placement = planted == Planted::kOldPlacement};
  }

  template <typename Any>
  static void Die(Any& connection) {
    connection.acceptor.open = false;
    connection.Break();
  }

  static void End(std::unique_ptr<Process>& process) {
    for (const auto& side : process->clients) Die(*side->connection);
    for (const auto& side : process->workers) Die(*side->connection);
    for (const auto& side : process->executors) Die(*side->connection);
    process.reset();
  }

  static void Tick(Process* process) {
    process->host.After(gateway::kTickMs * kMs, [process] {
      process->driver.OnTick();
      Tick(process);
    });
  }

  static constexpr int64_t kSavesWithin = 5 * kSecond;

  World* const world_;
  const Planted planted_;
  std::unique_ptr<Process> process_, before_;  // null after a crash; or not replaced
  uint64_t starts_ = 0;
  std::map<gateway::SessionId, uint64_t> kept_, assigned_;
  // State that survives a crash.
  KeyRing keys_;
  Disk disk_;
  ToldClients told_{world_, &disk_.books};
  std::map<std::string, std::string> checkpoints_;  // roots by name
  ExpectedResults expected_;
  test::MemoryStore blobs_{test::BlobNames::kInOrder};
};

}  // namespace outboard::sim
