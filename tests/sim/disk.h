// The data that survives a crash of the gateway: the rows of sessions and leases, as SessionRows
// stores them, and the books. Writes arrive late and in order (SimulatedWrites); those that a
// crash overtakes are lost.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/data_path/host.h"
#include "tests/sim/books.h"
#include "tests/sim/host.h"
#include "tests/sim/keys.h"
#include "tests/sim/planted.h"
#include "tests/sim/receipts.h"
#include "tests/sim/world.h"

namespace outboard::sim {

class Disk {
 public:
  Disk(World* world, KeyRing* keys) : books(world), receipts(world), keys(keys), world_(world) {}

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
    last_keys_[row.lease.session] = row.key_id;
  }

  // The rows that a starting gateway takes over.
  std::vector<gateway::TakenOver> Live() const {
    std::vector<gateway::TakenOver> live;
    for (const auto& [session, row] : rows_) {
      if (row.closed_at.has_value()) continue;
      const auto grants = grants_.find(session);
      const auto key = last_keys_.find(session);
      live.push_back({row, grants == grants_.end() ? 0 : grants->second,
                      key == last_keys_.end() ? "" : key->second});
    }
    return live;
  }

  Books books;
  Receipts receipts;
  KeyRing* const keys;
  uint64_t turn = 0;  // of gateways (gateway/accounts/folder_turn.h)

 private:
  World* const world_;
  std::map<gateway::SessionId, gateway::SessionRow> rows_;
  std::map<gateway::SessionId, uint64_t> grants_;
  std::map<gateway::SessionId, std::string> last_keys_;  // of its last lease
};

// Belongs to one gateway process and ends with it.
class SimulatedWrites final : public gateway::WriteQueue {
 public:
  SimulatedWrites(World* world, SimulatedHost* host, Disk* disk, Planted planted)
      : world_(world), host_(host), disk_(disk), planted_(planted), turn_(disk->turn) {}

  std::function<void()> on_replaced;  // called when a write finds the turn over

  void Hold(gateway::HoldRequest request, std::function<void(gateway::HoldAnswer)> then) override {
    AddWrite([disk = disk_, request = std::move(request), then = std::move(then),
              planted = planted_, alive = std::weak_ptr<bool>(alive_)] {
      gateway::HoldAnswer answer = disk->books.Hold(request);
      if (planted == Planted::kWrongLimit && absl::IsResourceExhausted(answer.why))
        answer.why = absl::FailedPreconditionError("the account's credit is used up");
      if (planted == Planted::kAnyKeyTakesOver && request.is_tentative)
        answer = {.funded_ms = request.to_ms, .why = absl::OkStatus()};
      if (!alive.expired()) then(answer);
    });
  }
  void EndHold(gateway::LeaseId lease) override {
    if (planted_ == Planted::kForgetVoid && world_->OneIn(20)) return;
    AddWrite([disk = disk_, lease] { disk->books.EndHold(lease); });
  }
  void Post(std::vector<gateway::Charge> charges, Refused) override {
    for (gateway::Charge& charge : charges) {
      if (planted_ == Planted::kPostTwice && world_->OneIn(20)) {
        const int64_t more_ms = charge.to_ms - charge.from_ms;
        charge.to_ms += more_ms;
        charge.amount.value *= 2;
      }
      if (IsOver()) continue;  // it will not arrive
      disk_->books.Charged(charge);
      disk_->keys->Charged(charge);
      disk_->receipts.Charged(charge, turn_);
    }
    AddWrite([disk = disk_, charges = std::move(charges)] { disk->books.Post(charges); });
  }
  void Write(gateway::SessionRow row) override {
    AddWrite([disk = disk_, row = std::move(row)] { disk->Put(row); });
  }
  void Grant(gateway::LeaseRow row) override {
    if (!IsOver()) {
      disk_->books.LeaseBegins(row);
      disk_->receipts.LeaseBegins(row, turn_);
    }
    AddWrite([disk = disk_, row = std::move(row)] {
      disk->receipts.Name(row);
      disk->Grant(row);
    });
  }
  void EndLease(gateway::LeaseId lease, gateway::LeaseEnd why) override {
    if (IsOver()) return;
    disk_->books.LeaseEnds(lease, why);
    disk_->receipts.LeaseEnds(lease);
  }
  void KeepReceipts(std::vector<proto::Receipt> receipts, ReceiptRefused refused) override {
    AddWrite([disk = disk_, turn = turn_, planted = planted_, receipts = std::move(receipts),
              refused = std::move(refused), alive = std::weak_ptr<bool>(alive_)] {
      const std::vector<absl::Status> kept = disk->receipts.Keep(receipts, turn);
      for (size_t i = 0; i < kept.size(); ++i)
        if (!kept[i].ok() && !alive.expired() &&
            !(absl::IsAborted(kept[i]) && planted == Planted::kBelievesConflict))
          refused(receipts[i], kept[i]);
    });
  }
  void Cork() override { ++corks_; }
  void Uncork() override {
    OB_CHECK(corks_ > 0);
    if (--corks_ > 0) return;
    for (std::function<void()>& job : std::exchange(corked_, {})) Add(std::move(job));
  }
  void Then(std::function<void(absl::Status)> job) override {
    AddBehind([this, job = std::move(job)] {
      job(IsOver() ? absl::CancelledError("replaced") : absl::OkStatus());
    });
  }
  void ThenOrAtOnce(std::function<void()> job) override { AddBehind(std::move(job)); }
  absl::Status trouble() const override {
    return is_replaced_ ? absl::CancelledError("replaced") : absl::OkStatus();
  }

 private:
  bool IsOver() const { return disk_->turn != turn_ && planted_ != Planted::kTwoWriters; }
  // Its job needs no process, but a crash loses it all the same.
  template <typename Job>
  void AddWrite(Job job) {
    if (planted_ == Planted::kSkipFence) return Add(std::move(job), false);
    Add([this, job = std::move(job)]() mutable {
      if (!IsOver()) return job();
      if (!std::exchange(is_replaced_, true)) on_replaced();
    });
  }
  void AddBehind(std::function<void()> job) {
    corks_ > 0 ? corked_.push_back(std::move(job)) : Add(std::move(job));
  }
  template <typename Job>
  void Add(Job job, bool fence = true) {
    const int64_t takes_ms = world_->OneIn(8) ? world_->Between(0, 3000) : world_->Between(0, 20);
    last_ = std::max(last_, world_->now() + takes_ms * kMs);
    if (fence) return host_->After(last_ - world_->now(), std::move(job));
    world_->After(last_ - world_->now(), std::move(job));
  }

  World* const world_;
  SimulatedHost* const host_;
  Disk* const disk_;
  const Planted planted_;
  const uint64_t turn_;
  bool is_replaced_ = false;
  int64_t last_ = 0;  // completion time of the last write
  int corks_ = 0;
  std::vector<std::function<void()>> corked_;  // those that wait for writes
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace outboard::sim
