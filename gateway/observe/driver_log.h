// The log of sessions and workers: a DriverObserver that writes one event per call
// (docs/logs.md lists them). Errors are named by their codes: RESOURCE_EXHAUSTED.
#pragma once

#include "gateway/data_path/observer.h"

namespace outboard::gateway {

// Threads: any. The log's queue is bounded, and nothing waits for it.
class DriverLog final : public DriverObserver {
 public:
  void OnLive(const ObservedSession& session, uint64_t epoch, std::string_view worker,
              std::string_view client_name, std::string_view client_version) override;
  void OnQueued(const ObservedSession& session, uint64_t ahead) override;
  void OnSleep(const ObservedSession& session, int64_t idle_s) override;
  void OnMoving(const ObservedSession& session, std::string_view why) override;
  void OnStored(const ObservedSession& session, bool is_saved) override;
  void OnEnded(const ObservedSession& session, bool lost) override;
  void OnClientEnded(const ObservedSession& session, const absl::Status& why) override;
  void OnRunFailed(const ObservedSession& session, uint64_t seq, std::string_view op,
                   absl::StatusCode code) override;
  void OnWorkerJoined(std::string_view name, uint64_t devices, uint64_t sessions) override;
  void OnSameIdentity(std::string_view name, std::string_view address, std::string_view other,
                      std::string_view other_address) override;
  void OnWorkerRefused(std::string_view name, const absl::Status& why) override;
  void OnWorkerLeft(std::string_view name, std::string_view why) override;
  void OnWorkerOffence(const ObservedSession& session, std::string_view name,
                       std::string_view kind) override;
  void OnWorkerSetAside(std::string_view name, std::string_view identity,
                        std::string_view why) override;
  void OnDeviceOut(std::string_view name, uint32_t device, std::string_view why) override;
  void OnWorkerLifted(std::string_view name, std::string_view identity) override;
  void OnQuarantineTrouble(const absl::Status& why) override;
};

}  // namespace outboard::gateway
