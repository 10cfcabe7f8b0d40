#include "gateway/observe/call_record.h"

#include <algorithm>

#include "gateway/base/clock.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"

namespace outboard::gateway {
namespace {

using telemetry::CallMethod;
using telemetry::LogLevel;
using telemetry::Metric;
using telemetry::Refusal;

constexpr size_t kRequestIdBytesMin = 8, kRequestIdBytesMax = 64;

bool IsIdCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '_' || c == '.';
}

std::string_view GivenId(const grpc::CallbackServerContext& context) {
  const auto given = context.client_metadata().find(kRequestIdHeader);
  if (given == context.client_metadata().end()) return "";
  return {given->second.data(), given->second.size()};
}

bool IsStream(CallMethod method) {
  switch (method) {
    case CallMethod::kSession:
    case CallMethod::kValues:
    case CallMethod::kJoin:
    case CallMethod::kAttach:
    case CallMethod::kUpload:
    case CallMethod::kDownload: return true;
    default: return false;
  }
}

// Ours to look at, the caller's to look at, or as usual.
LogLevel LevelOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled: return LogLevel::kDebug;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnknown: return LogLevel::kError;
    default: return LogLevel::kInfo;
  }
}

// Of errors that are not counted where they are found.
void CountReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument: return CountRefused(Refusal::kInvalid);
    case absl::StatusCode::kNotFound: return CountRefused(Refusal::kNotFound);
    default: break;
  }
}

}  // namespace

std::string RequestIdOf(std::string_view given) {
  if (given.size() >= kRequestIdBytesMin && given.size() <= kRequestIdBytesMax &&
      std::all_of(given.begin(), given.end(), IsIdCharacter))
    return std::string(given);
  return Draw<SessionId>().Hex();
}

CallRecord::CallRecord(CallMethod method, grpc::CallbackServerContext& context)
    : method_(method),
      request_id_(RequestIdOf(GivenId(context))),
      peer_(context.peer()),
      begin_(std::chrono::steady_clock::now()) {
  context.AddTrailingMetadata(kRequestIdHeader, request_id_);
}

void CallRecord::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  const auto ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
  const auto method = static_cast<size_t>(method_);
  CountAt(Metric::kCalls,
          method * telemetry::kCodes + static_cast<size_t>(status.raw_code()) % telemetry::kCodes);
  if (!IsStream(method_)) {
    ObserveNs(Metric::kCallTime, ns, method);
    CountReason(status.code());
  }
  WriteEvent(status, static_cast<double>(ns) * 1e-9);
}

void CallRecord::WriteEvent(const absl::Status& status, double seconds) const {
  const absl::string_view message = status.message();
  LogAt(LevelOf(status.code()), "call_ended",
        {{"method", NameOf(method_)},
         {"code", telemetry::NameOfCode(status.raw_code())},
         {"seconds", seconds},
         {"request", request_id_},
         {"account", account_},
         {"session", session_ ? session_->Hex() : std::string()},
         {"peer", peer_},
         {"message", message}});
}

}  // namespace outboard::gateway
