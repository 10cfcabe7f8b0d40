// What the driver and its relays tell about sessions and workers, for a log. They decide nothing by
// it, and go on at once: an observer must not wait, nor call back.
//
// Threads: any, under the locks of the driver and of a relay. Names come from clients and workers:
// an observer escapes them.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

struct ObservedSession {
  SessionId session;
  TenantId tenant;
  std::string_view request;  // id of the call that its client made; empty: none
};

class DriverObserver {
 public:
  virtual ~DriverObserver() = default;
  virtual void OnLive(const ObservedSession&, uint64_t epoch, std::string_view worker,
                      std::string_view client_name, std::string_view client_version) {}
  virtual void OnQueued(const ObservedSession&, uint64_t ahead) {}
  // Its client is connected and has had no work for so long: it has no device until there is some.
  virtual void OnSleep(const ObservedSession&, int64_t idle_s) {}
  virtual void OnMoving(const ObservedSession&, std::string_view why) {}
  // Put away for the memory of its worker (G13 of gateway/core/core.cc).
  virtual void OnStored(const ObservedSession&, bool is_saved) {}
  virtual void OnEnded(const ObservedSession&, bool lost) {}
  // The stream of a client was ended with an error, one of EndClient (events.h: RESOURCE_EXHAUSTED,
  // UNAVAILABLE ...); it may have had no session (value 0).
  virtual void OnClientEnded(const ObservedSession&, const absl::Status& why) {}
  virtual void OnRunFailed(const ObservedSession&, uint64_t seq, std::string_view op,
                           absl::StatusCode code) {}
  virtual void OnWorkerJoined(std::string_view name, uint64_t devices, uint64_t sessions) {}
  // Another that is connected from another host shows the same identity: a copy of its file, say.
  // Both count as one machine.
  virtual void OnSameIdentity(std::string_view name, std::string_view address,
                              std::string_view other, std::string_view other_address) {}
  virtual void OnWorkerRefused(std::string_view name, const absl::Status& why) {}
  virtual void OnWorkerLeft(std::string_view name, std::string_view why) {}
  // It did what an honest worker does not: `kind` as in telemetry::NameOf(WorkerOffence).
  virtual void OnWorkerOffence(const ObservedSession&, std::string_view name,
                               std::string_view kind) {}
  virtual void OnWorkerSetAside(std::string_view name, std::string_view identity,
                                std::string_view why) {}
  // One of its devices gets no session any more; `why` is the worker's.
  virtual void OnDeviceOut(std::string_view name, uint32_t device, std::string_view why) {}
  virtual void OnWorkerLifted(std::string_view name, std::string_view identity) {}
  // Who is set aside cannot be written or read: a restart would forget it, and nobody is lifted. It
  // is tried again; once for each reason.
  virtual void OnQuarantineTrouble(const absl::Status& why) {}
};

}  // namespace outboard::gateway
