// A gateway with one worker that behaves and one that may not; what is noticed of them, and who is
// set aside.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gateway/accounts/worker_quarantine.h"
#include "gateway/data_path/observer.h"
#include "tests/gateway/core_driver_world.h"

namespace outboard::gateway {

class Quarantine final : public WorkerQuarantine {
 public:
  absl::Status Add(const SetAsideWorker& worker) override {
    if (!trouble.ok()) return trouble;
    rows.push_back(worker);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SetAsideWorker>> Read() override { return rows; }
  std::vector<SetAsideWorker> rows;
  absl::Status trouble;
};

class Watcher final : public DriverObserver {
 public:
  void OnWorkerOffence(const ObservedSession&, std::string_view, std::string_view kind) override {
    offences.emplace_back(kind);
  }
  void OnWorkerSetAside(std::string_view name, std::string_view, std::string_view) override {
    set_aside.emplace_back(name);
  }
  void OnWorkerLifted(std::string_view, std::string_view) override { ++lifted; }
  void OnQuarantineTrouble(const absl::Status& why) override { troubles.push_back(why); }
  void OnDeviceOut(std::string_view, uint32_t device, std::string_view) override {
    devices_out.push_back(device);
  }
  std::vector<std::string> offences, set_aside;
  std::vector<uint32_t> devices_out;
  int lifted = 0;
  std::vector<absl::Status> troubles;
};

class LyingWorkerTest : public CoreDriverTest {
 protected:
  LyingWorkerTest() {
    driver_.SetObserver(&watcher_);
    EXPECT_TRUE(driver_.SetQuarantine(&quarantine_).ok());
  }
  void Beat(WorkerPort& port, const std::string& session) {
    proto::WorkerEvent event;
    event.mutable_heartbeat()->set_beat(1);
    event.mutable_heartbeat()->add_sessions(session);
    port.OnEvent(event);
  }
  void OpenLive() {
    Open();
    ASSERT_TRUE(Attach(executor_port_, *worker_.assign()).ok());
    RunAll(writes_.jobs);
  }
  // What the executor of this port says, of epoch 1.
  static void Say(ExecutorPort& port, const proto::ServerItem& item, uint64_t epoch = 1) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = item;
    port.OnFrame(std::move(frame));
  }
  static proto::ServerItem Opened() {
    proto::ServerItem item;
    item.mutable_opened();
    return item;
  }
  static proto::ServerItem DoneOf(uint64_t seq, uint64_t device_us = 0) {
    proto::ServerItem item;
    item.mutable_done()->set_through_seq(seq);
    item.mutable_done()->set_device_time_us(device_us);
    return item;
  }

  Watcher watcher_;
  Quarantine quarantine_;
  WorkerEnd rogue_;
  WorkerPort rogue_port_{&driver_, &rogue_};
};

}  // namespace outboard::gateway
