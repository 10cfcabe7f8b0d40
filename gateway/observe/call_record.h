// The record of one call: its request id, and how it ended. Counts the call and its duration, and
// writes one event of the log when it ends: at level debug where it went well, else at a level that
// fits the code. A stream has one too, which ends with the stream.
//
// The id is the caller's own (metadata "x-request-id": 8 to 64 letters, digits, '-', '_', '.'), so
// that it is found in the logs of a proxy and of the caller, else 32 random hex digits. It goes
// back in the trailing metadata under the same name.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "gateway/base/thrown.h"
#include "gateway/core/events.h"
#include "telemetry/metric.h"
#include "wire/status.h"

namespace outboard::gateway {

inline constexpr char kRequestIdHeader[] = "x-request-id";

// The id of a call that presents `given`, which may be anything.
std::string RequestIdOf(std::string_view given);

// Threads: one at a time.
class CallRecord {
 public:
  // Adds the id to the call's trailing metadata: before anything is sent.
  CallRecord(telemetry::CallMethod method, grpc::CallbackServerContext& context);

  const std::string& request_id() const { return request_id_; }
  // Where the caller is, if the connection does not say: it came through a proxy.
  void SetPeer(std::string peer) { peer_ = std::move(peer); }
  void SetAccount(TenantId account) { account_ = account.value; }
  void SetSession(SessionId session) { session_ = session; }
  // With what the call answers: OK, or any error (NOT_FOUND ...). Only the first counts.
  void End(const absl::Status& status);

 private:
  void WriteEvent(const absl::Status& status, double seconds) const;

  const telemetry::CallMethod method_;
  const std::string request_id_;
  std::string peer_;
  const std::chrono::steady_clock::time_point begin_;
  std::optional<int64_t> account_;
  std::optional<SessionId> session_;
  bool ended_ = false;
};

// Ends the record, and returns what ends the call. Where there is no memory for what the status
// says, it is an error whose text takes none.
inline grpc::Status EndCall(CallRecord& record, const absl::Status& status) noexcept {
  grpc::Status answer(grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory");
  const auto caught = [](const auto& work) {
    ErrorIfThrown("the end of a call", [&] {
      work();
      return absl::OkStatus();
    }).IgnoreError();
  };
  caught([&] { record.End(status); });
  caught([&] { answer = wire::ToGrpc(status); });
  return answer;
}

// Ends a call that has one answer: its record, then the call.
inline std::function<void(const absl::Status&)> Finisher(grpc::ServerUnaryReactor* reactor,
                                                         std::shared_ptr<CallRecord> record) {
  return [reactor, record = std::move(record)](const absl::Status& status) {
    reactor->Finish(EndCall(*record, status));
  };
}

}  // namespace outboard::gateway
