#include "gateway/observe/gateway_figures.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gateway/blobs/blob_store.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/server/ledger_writer.h"

namespace outboard::gateway {
namespace {

using telemetry::Metric;
using telemetry::Samples;

void SampleSessions(const Census& census, Samples& samples) {
  for (size_t state = 0; state < census.by_state.size(); ++state)
    samples.SetAs(Metric::kSessions, state, static_cast<double>(census.by_state[state]));
  samples.Set(Metric::kQueueLength, static_cast<double>(census.queued));
  samples.Largest(Metric::kQueueOldest, census.queue_oldest_s);
  samples.Set(Metric::kWorkers, static_cast<double>(census.workers));
  samples.Set(Metric::kWorkersSetAside, static_cast<double>(census.workers_set_aside));
  samples.SetAs(Metric::kDevices, telemetry::DeviceUse::kBusy, census.devices_busy);
  samples.SetAs(Metric::kDevices, telemetry::DeviceUse::kFree,
                static_cast<double>(census.devices) - census.devices_busy - census.devices_out);
  samples.SetAs(Metric::kDevices, telemetry::DeviceUse::kOutOfService, census.devices_out);
  samples.Largest(Metric::kHeartbeatOldest, census.heartbeat_oldest_s);
  samples.Largest(Metric::kSnapshotOldest, census.snapshot_oldest_s);
}

void SampleAccounts(Metric metric, const std::map<int64_t, double>& values, Samples& samples) {
  for (const auto& [account, value] :
       LargestAccounts(values, telemetry::InfoOf(metric).labels[0].size() - 1))
    samples.SetFor(metric, {account}, value);
}

}  // namespace

std::map<std::string, double> LargestAccounts(const std::map<int64_t, double>& values,
                                              size_t most) {
  std::vector<std::pair<double, int64_t>> ordered;
  for (const auto& [account, value] : values) ordered.push_back({value, account});
  std::sort(ordered.rbegin(), ordered.rend());
  std::map<std::string, double> largest;
  for (size_t i = 0; i < ordered.size(); ++i) {
    const auto& [value, account] = ordered[i];
    largest[i < most ? std::to_string(account) : "other"] += value;
  }
  return largest;
}

GatewayFigures::GatewayFigures(const CoreDriver* driver, const BlobStore* blobs,
                               const LedgerWriter* ledger)
    : driver_(driver),
      blobs_(blobs),
      ledger_(ledger),
      sampled_([this](Samples& samples) { Sample(samples); }) {}

void GatewayFigures::Sample(Samples& samples) const {
  const Census census = driver_->CountAll();
  SampleSessions(census, samples);

  const auto quota = static_cast<double>(blobs_->quota_bytes());
  double stored = 0, guarded = 0, near_quota = 0;
  std::map<int64_t, double> stored_by_account;
  for (const auto& [account, usage] : blobs_->UsageOfAll()) {
    stored += static_cast<double>(usage.used_bytes);
    guarded += static_cast<double>(usage.protected_bytes);
    near_quota += quota > 0 && static_cast<double>(usage.protected_bytes) > 0.9 * quota;
    stored_by_account[account] = static_cast<double>(usage.used_bytes);
  }
  samples.Set(Metric::kBlobStored, stored);
  samples.Set(Metric::kBlobProtected, guarded);
  samples.Largest(Metric::kBlobQuota, quota);
  samples.Set(Metric::kBlobAccounts, static_cast<double>(stored_by_account.size()));
  samples.Set(Metric::kBlobAccountsNearQuota, near_quota);
  if (const auto room = blobs_->Room(); room.ok()) {
    samples.Largest(Metric::kBlobDiskFree, static_cast<double>(room->free_bytes));
    samples.Largest(Metric::kBlobDiskSize, static_cast<double>(room->total_bytes));
  }

  const LedgerWriter::Figures ledger = ledger_->figures();
  samples.Set(Metric::kLedgerQueue, static_cast<double>(ledger.queued));
  samples.Largest(Metric::kLedgerBlocked, ledger.blocked ? 1 : 0);
  samples.Largest(Metric::kLedgerAuditFailed, ledger.audit_failed ? 1 : 0);

  std::map<int64_t, double> sessions, ms, micro_usd;
  for (const auto& [account, count] : census.by_tenant)
    sessions[account] = static_cast<double>(count);
  for (const auto& [account, charged] : ledger.charged) {
    ms[account] = static_cast<double>(charged.device_ms);
    micro_usd[account] = static_cast<double>(charged.amount.value);
  }
  SampleAccounts(Metric::kAccountSessions, sessions, samples);
  SampleAccounts(Metric::kAccountChargedTime, ms, samples);
  SampleAccounts(Metric::kAccountChargedUsd, micro_usd, samples);
  SampleAccounts(Metric::kAccountStored, stored_by_account, samples);
}

}  // namespace outboard::gateway
