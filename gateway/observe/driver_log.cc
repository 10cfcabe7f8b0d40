#include "gateway/observe/driver_log.h"

#include "telemetry/log.h"
#include "telemetry/metric.h"

namespace outboard::gateway {

using telemetry::LogDebug;
using telemetry::LogInfo;
using telemetry::LogWarning;

void DriverLog::OnLive(const ObservedSession& session, uint64_t epoch, std::string_view worker,
                       std::string_view client_name, std::string_view client_version) {
  LogInfo("session_live", {{"session", session.session.Hex()},
                           {"account", session.tenant.value},
                           {"request", session.request},
                           {"epoch", epoch},
                           {"worker", worker},
                           {"client", client_name},
                           {"client_version", client_version}});
}

void DriverLog::OnQueued(const ObservedSession& session, uint64_t ahead) {
  LogInfo("session_queued",
          {{"account", session.tenant.value}, {"request", session.request}, {"ahead", ahead}});
}

void DriverLog::OnMoving(const ObservedSession& session, std::string_view why) {
  LogWarning("session_moving",
             {{"account", session.tenant.value}, {"request", session.request}, {"why", why}});
}

void DriverLog::OnSleep(const ObservedSession& session, int64_t idle_s) {
  LogInfo("session_sleeps", {{"session", session.session.Hex()},
                            {"account", session.tenant.value},
                            {"request", session.request},
                            {"idle_s", idle_s}});
}

void DriverLog::OnStored(const ObservedSession& session, bool is_saved) {
  LogInfo(
      "session_stored",
      {{"session", session.session.Hex()}, {"account", session.tenant.value}, {"saved", is_saved}});
}

void DriverLog::OnEnded(const ObservedSession& session, bool lost) {
  LogInfo("session_ended",
          {{"session", session.session.Hex()}, {"account", session.tenant.value}, {"lost", lost}});
}

void DriverLog::OnClientEnded(const ObservedSession& session, const absl::Status& why) {
  const absl::string_view message = why.message();
  LogInfo("client_refused",
          {{"session", session.session == SessionId{} ? std::string() : session.session.Hex()},
           {"account", session.tenant.value},
           {"request", session.request},
           {"code", telemetry::NameOfCode(why.raw_code())},
           {"message", message}});
}

// Only the op: the message may show a tenant's numbers.
void DriverLog::OnRunFailed(const ObservedSession& session, uint64_t seq, std::string_view op,
                            absl::StatusCode code) {
  LogDebug("step_failed", {{"session", session.session.Hex()},
                           {"step", seq},
                           {"account", session.tenant.value},
                           {"op", op},
                           {"code", telemetry::NameOfCode(static_cast<int>(code))}});
}

void DriverLog::OnWorkerJoined(std::string_view name, uint64_t devices, uint64_t sessions) {
  LogInfo("worker_joined", {{"worker", name}, {"devices", devices}, {"sessions", sessions}});
}

void DriverLog::OnSameIdentity(std::string_view name, std::string_view address,
                               std::string_view other, std::string_view other_address) {
  LogWarning("worker_identity_shared", {{"worker", name},
                                        {"address", address},
                                        {"other", other},
                                        {"other_address", other_address}});
}

void DriverLog::OnWorkerRefused(std::string_view name, const absl::Status& why) {
  LogWarning("worker_refused", {{"worker", name}, {"why", why.ToString()}});
}

void DriverLog::OnWorkerLeft(std::string_view name, std::string_view why) {
  LogWarning("worker_lost", {{"worker", name}, {"why", why}});
}

void DriverLog::OnWorkerOffence(const ObservedSession& session, std::string_view name,
                                std::string_view kind) {
  LogWarning("worker_offence", {{"worker", name},
                                {"kind", kind},
                                {"session", session.session.Hex()},
                                {"account", session.tenant.value}});
}

void DriverLog::OnWorkerSetAside(std::string_view name, std::string_view identity,
                                 std::string_view why) {
  telemetry::LogError("worker_set_aside", {{"worker", name}, {"identity", identity}, {"why", why}});
}

void DriverLog::OnDeviceOut(std::string_view name, uint32_t device, std::string_view why) {
  telemetry::LogError("device_out_of_service",
                      {{"worker", name}, {"device", device}, {"why", why}});
}

void DriverLog::OnWorkerLifted(std::string_view name, std::string_view identity) {
  LogInfo("worker_lifted", {{"worker", name}, {"identity", identity}});
}

void DriverLog::OnQuarantineTrouble(const absl::Status& why) {
  const absl::string_view message = why.message();
  telemetry::LogError("quarantine_not_written", {{"message", message}});
}

}  // namespace outboard::gateway
