#include "worker/receipts/lease_counter.h"

#include <algorithm>
#include <utility>

#include "telemetry/log.h"
#include "wire/proof/receipt.h"
#include "wire/tls/private_file.h"

namespace outboard::worker {
namespace {

// Of one LeaseChange: no worker has more.
constexpr int kDevicesMax = 1024;
// Far more than the devices of a worker: what is beyond is no gateway's of ours.
constexpr size_t kRunningMax = 4096;

uint64_t MsOf(std::chrono::steady_clock::duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(time).count()));
}

}  // namespace

absl::StatusOr<signing::SigningKey> OpenReceiptKey(const std::string& identity_file,
                                                 const std::string& identity) {
  const absl::StatusOr<std::string> kept = tls::ReadFile(identity_file, /*is_secret=*/true);
  if (!kept.ok() || *kept != identity) return signing::SigningKey::Make();
  return signing::SigningKey::Open(identity_file + ".receipt-key");
}

void LeaseCounter::AddTo(proto::Register& entry) const {
  entry.set_receipt_key(key_.public_key());
}

std::vector<proto::WorkerEvent> LeaseCounter::On(const proto::GatewayCommand& command,
                                                 Clock::time_point now) {
  absl::MutexLock lock(&mutex_);
  std::vector<proto::WorkerEvent> events;
  if (command.has_welcome()) {
    // The gateway has ended them, or is another; a session that goes on has a lease anew.
    while (!running_.empty()) End(running_.begin(), now);
    for (Ended& ended : ended_) ended.beat = 0;  // beats count from 1 again
  } else if (command.has_heartbeat_ack()) {
    std::erase_if(ended_, [&](const Ended& ended) {
      return ended.beat != 0 && ended.beat <= command.heartbeat_ack().beat();
    });
  } else if (command.has_lease_change()) {
    const proto::LeaseChange& change = command.lease_change();
    if (change.devices_size() != change.places_size() || change.devices_size() > kDevicesMax)
      return events;
    if (!change.ends()) {
      Begin(change, now);
      return events;
    }
    for (const uint32_t place : change.places()) {
      const auto lease = running_.find({change.session_id(), change.grant(), place});
      if (lease == running_.end()) continue;
      End(lease, now);
      *events.emplace_back().mutable_receipt() = ended_.back().receipt;
    }
  }
  return events;
}

void LeaseCounter::Begin(const proto::LeaseChange& change, Clock::time_point now) {
  for (int i = 0; i < change.devices_size(); ++i) {
    if (running_.size() >= kRunningMax) {
      telemetry::LogWarning("lease_not_counted", {{"leases", running_.size()}});
      return;
    }
    const auto [lease, is_new] = running_.try_emplace(
        Key{change.session_id(), change.grant(), change.places(i)},
        Lease{change.devices(i), now, {}});
    const auto works = works_.find({change.session_id(), change.devices(i)});
    if (is_new && works != works_.end() && works->second) lease->second.busy_since = now;
  }
}

void LeaseCounter::End(std::map<Key, Lease>::iterator lease, Clock::time_point now) {
  if (ended_.size() >= static_cast<size_t>(signing::kReceiptsMax)) {
    telemetry::LogWarning("receipt_dropped", {{"waiting", ended_.size()}});
    ended_.erase(ended_.begin());
  }
  ended_.push_back({ReceiptOf(lease->first, lease->second, now)});
  running_.erase(lease);
}

proto::Receipt LeaseCounter::ReceiptOf(const Key& key, Lease& lease, Clock::time_point now) {
  proto::Receipt receipt;
  receipt.set_session_id(key.session);
  receipt.set_grant(key.grant);
  receipt.set_device(key.place);
  receipt.set_number(++lease.number);
  const auto with = [now](Clock::duration sum, const std::optional<Clock::time_point>& since) {
    return MsOf(sum + (since.has_value() ? now - *since : Clock::duration()));
  };
  receipt.set_usable_ms(with(lease.usable, lease.usable_since));
  receipt.set_busy_ms(std::min(receipt.usable_ms(), with(lease.busy, lease.busy_since)));
  receipt.set_physical_device(signing::PhysicalDevice(key_.public_key(), lease.device));
  sign_(key_, receipt);
  return receipt;
}

void LeaseCounter::AddTo(proto::Heartbeat& beat, Clock::time_point now) {
  absl::MutexLock lock(&mutex_);
  for (auto& [key, lease] : running_) *beat.add_receipts() = ReceiptOf(key, lease, now);
  for (Ended& ended : ended_) {
    if (beat.receipts_size() >= signing::kReceiptsMax) return;  // the next beat has them
    *beat.add_receipts() = ended.receipt;
    if (ended.beat == 0) ended.beat = beat.beat();
  }
}

void LeaseCounter::Works(const std::string& session, uint32_t device, bool works,
                         Clock::time_point now) {
  absl::MutexLock lock(&mutex_);
  works_[{session, device}] = works;
  for (auto& [key, lease] : running_) {
    if (key.session != session || lease.device != device) continue;
    if (works && !lease.busy_since.has_value() && lease.usable_since.has_value())
      lease.busy_since = now;
    if (!works && lease.busy_since.has_value())
      lease.busy += now - *std::exchange(lease.busy_since, std::nullopt);
  }
}

void LeaseCounter::Gone(const std::string& session, uint32_t device, Clock::time_point now) {
  Works(session, device, false, now);
  absl::MutexLock lock(&mutex_);
  works_.erase({session, device});
  for (auto& [key, lease] : running_)
    if (key.session == session && lease.device == device && lease.usable_since.has_value())
      lease.usable += now - *std::exchange(lease.usable_since, std::nullopt);
}

}  // namespace outboard::worker
