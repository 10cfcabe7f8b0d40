// Converts between gRPC's status and Abseil's, which have the same codes; messages are truncated to
// fit into trailers. Unknown codes become UNKNOWN: status_code.h.
//
// gRPC ends calls by itself too, with words of its own ("Socket closed", "Received http2 header
// with status: 404") or with none. Users do not see those: a status of ours is marked in its
// details, and FromGrpc says what one without the mark means.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "wire/status_code.h"

namespace outboard::wire {

inline constexpr size_t kStatusMessageBytesMax =
    2048;  // gRPC's default limit on all metadata is 8 KiB
inline constexpr char kStatusMark[] = "outboard";
// The same mark for a call that is refused before it reaches a service: gRPC then sends no details.
// At the start of the message.
inline constexpr char kRefusalMark[] = "outboard: ";

// What a status of `code` says that gRPC made, for a call to a gateway.
inline std::string WordsForGrpc(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "the connection to the gateway was lost, or a proxy before it does not reach it";
    case absl::StatusCode::kDeadlineExceeded: return "the gateway did not answer in time";
    case absl::StatusCode::kCancelled: return "the call to the gateway was cancelled";
    case absl::StatusCode::kResourceExhausted:
      return "a message to or from the gateway is larger than one of the two allows, or a proxy "
             "refuses more calls";
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return absl::StrCat("the call to the gateway failed (", absl::StatusCodeToString(code),
                          "); its log may say why, or what answers is a proxy");
    default:
      return absl::StrCat(
          "what answers is no gateway, one of another version, or a proxy that refuses the call (",
          absl::StatusCodeToString(code), ")");
  }
}

// True for codes that gRPC gives to calls by itself
// (https://grpc.github.io/grpc/core/md_doc_statuscodes.html, and those of HTTP answers).
inline bool IsOfGrpc(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss: return false;
    default: return true;
  }
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = CodeFromWire(static_cast<uint32_t>(status.error_code()));
  // It ends on somebody's terminal.
  const std::string message = PrintableLines(status.error_message());
  if (code == absl::StatusCode::kUnauthenticated && message.starts_with(kRefusalMark))
    return absl::Status(code, message.substr(sizeof kRefusalMark - 1));
  if (status.error_details() != kStatusMark && IsOfGrpc(code))
    return absl::Status(code, WordsForGrpc(code));
  return absl::Status(code, message);
}

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message().data(), status.message().size());
  if (message.size() > kStatusMessageBytesMax) message.resize(kStatusMessageBytesMax);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message, kStatusMark);
}

}  // namespace outboard::wire
