// The data that survives a crash of the gateway: the rows of sessions and leases, as SessionRows
// stores them, and the charges. Writes arrive late and in order (SimulatedWrites); those that a
// crash overtakes are lost.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/accounts/session_rows.h"
#include "gateway/data_path/host.h"
#include "gateway/ledger/usage.h"
#include "tests/sim/world.h"

namespace outboard::sim {

class Disk {
 public:
  explicit Disk(World* world) : world_(world) {}

  void Put(const gateway::SessionRow& row) {
    const auto [known, is_new] = rows_.try_emplace(row.session, row);
    if (is_new) return;
    if (known->second.epoch > row.epoch) world_->Broken("a row's epoch goes back");
    if (known->second.closed_at.has_value()) world_->Broken("a row of a session that has ended");
    known->second = row;
  }
  void Grant(const gateway::LeaseRow& row) {
    if (row.lease.grant != ++grants_[row.lease.session])
      world_->Broken("lease ", row.lease.grant, " after lease ", grants_[row.lease.session] - 1);
  }
  // A millisecond is charged once or not at all (L3 of gateway/ledger/ledger.h).
  void Post(const std::vector<gateway::Charge>& charges) {
    for (const gateway::Charge& charge : charges) {
      int64_t& charged_ms = charged_ms_[charge.device];
      if (charge.from_ms != charged_ms)
        world_->Broken("milliseconds from ", charge.from_ms, " are charged after ", charged_ms);
      charged_ms = charge.to_ms;
      gateway::Usage& usage = usage_[charge.device.lease.session];
      usage.device_ms += charge.to_ms - charge.from_ms;
      usage.amount.value += charge.amount.value;
    }
  }

  // The rows that a starting gateway takes over.
  std::vector<gateway::TakenOver> Live() const {
    std::vector<gateway::TakenOver> live;
    for (const auto& [session, row] : rows_) {
      if (row.closed_at.has_value()) continue;
      const auto grants = grants_.find(session);
      live.push_back({row, grants == grants_.end() ? 0 : grants->second});
    }
    return live;
  }
  gateway::Usage UsageOf(const gateway::SessionId& session) const {
    const auto usage = usage_.find(session);
    return usage == usage_.end() ? gateway::Usage{} : usage->second;
  }

 private:
  World* const world_;
  std::map<gateway::SessionId, gateway::SessionRow> rows_;
  std::map<gateway::SessionId, uint64_t> grants_;
  std::map<gateway::LeasedDevice, int64_t> charged_ms_;
  std::map<gateway::SessionId, gateway::Usage> usage_;
};

// Belongs to one gateway process and ends with it.
class SimulatedWrites final : public gateway::WriteQueue {
 public:
  SimulatedWrites(World* world, Disk* disk) : world_(world), disk_(disk) {}

  void Hold(gateway::HoldRequest request,
            std::function<void(gateway::HoldAnswer)> then) override {
    Add([request = std::move(request), then = std::move(then)] {
      then({request.to_ms, absl::OkStatus()});
    });
  }
  void EndHold(gateway::LeaseId) override {}
  void Post(std::vector<gateway::Charge> charges, Refused) override {
    Add([disk = disk_, charges = std::move(charges)] { disk->Post(charges); });
  }
  void Write(gateway::SessionRow row) override {
    Add([disk = disk_, row = std::move(row)] { disk->Put(row); });
  }
  void Grant(gateway::LeaseRow row) override {
    Add([disk = disk_, row = std::move(row)] { disk->Grant(row); });
  }
  void EndLease(gateway::LeaseId, std::string) override {}
  void Then(std::function<void(absl::Status)> job) override {
    Add([job = std::move(job)] { job(absl::OkStatus()); });
  }
  void ThenOrAtOnce(std::function<void()> job) override { Add(std::move(job)); }
  absl::Status trouble() const override { return absl::OkStatus(); }

 private:
  void Add(std::function<void()> job) {
    const int64_t takes_ms = world_->OneIn(8) ? world_->Between(0, 3000) : world_->Between(0, 20);
    last_ = std::max(last_, world_->now() + takes_ms * kMs);
    world_->After(last_ - world_->now(),
                  [alive = std::weak_ptr<bool>(alive_), job = std::move(job)] {
                    if (!alive.expired()) job();
                  });
  }

  World* const world_;
  Disk* const disk_;
  int64_t last_ = 0;  // completion time of the last write
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace outboard::sim
