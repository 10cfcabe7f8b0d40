// Counts, for each leased device, how long it could be used and how long it computed, and signs
// what it counted: receipts (Receipt in fleet.proto). The gateway counts too, by its own clock; a
// bill is checked against both.
//
//   lease:  LeaseChange --On--> runs --its executor ends (Gone)--> stands still
//           runs | stands still --LeaseChange.ends | a new Welcome--> ended, its last receipt waits
//           ended --HeartbeatAck for a beat with the receipt--> forgotten
//
// Counts are cumulative, so that a receipt which is lost is made up for by the next.
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/fleet.pb.h"
#include "wire/proof/receipt.h"
#include "wire/proof/signing_key.h"

namespace outboard::worker {

// The key that signs receipts, in a file beside the worker's identity
// (worker/supervisor/join/identity.h). A worker with another identity than that of the file, since
// a second one runs here, or since the file cannot be kept, has a key of its own, which ends with
// it: a key is of one worker.
// Errors: DATA_LOSS and others, those of SigningKey::Open
absl::StatusOr<signing::SigningKey> OpenReceiptKey(const std::string& identity_file,
                                                 const std::string& identity);

class LeaseCounter {
 public:
  using Clock = std::chrono::steady_clock;

  // `sign` fills in key and signature; signing::Sign, unless a simulator has another way.
  using Signer = std::function<void(const signing::SigningKey& key, proto::Receipt& receipt)>;
  explicit LeaseCounter(signing::SigningKey key, Signer sign = &signing::Sign)
      : key_(std::move(key)), sign_(std::move(sign)) {}

  void AddTo(proto::Register& entry) const;
  // What the gateway says of leases, and what it has of ours. Returns what it is told at once.
  std::vector<proto::WorkerEvent> On(const proto::GatewayCommand& command,
                                     Clock::time_point now = Clock::now());
  // A receipt for every lease that runs, and those that wait.
  void AddTo(proto::Heartbeat& beat, Clock::time_point now = Clock::now());

  // Of the session's executor on this device: it works, or waits; it has ended.
  void Works(const std::string& session, uint32_t device, bool works,
             Clock::time_point now = Clock::now());
  void Gone(const std::string& session, uint32_t device, Clock::time_point now = Clock::now());

 private:
  struct Key {
    std::string session;
    uint64_t grant = 0;
    uint32_t place = 0;  // of the device within the session
    auto operator<=>(const Key&) const = default;
  };
  struct Lease {
    uint32_t device = 0;
    std::optional<Clock::time_point> usable_since;  // nothing: it stands still
    std::optional<Clock::time_point> busy_since;
    Clock::duration usable{}, busy{};
    uint64_t number = 0;  // of its last receipt
  };
  struct Ended {
    proto::Receipt receipt;
    uint64_t beat = 0;  // the first that had it; 0: none yet
  };
  void Begin(const proto::LeaseChange& change, Clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(std::map<Key, Lease>::iterator lease, Clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  proto::Receipt ReceiptOf(const Key& key, Lease& lease, Clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const signing::SigningKey key_;
  const Signer sign_;
  absl::Mutex mutex_;
  std::map<Key, Lease> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ended> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, uint32_t>, bool> works_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace outboard::worker
