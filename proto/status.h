// gRPC's status and Abseil's have the same codes; messages are cut so that they fit into trailers.
#ifndef OUTBOARD_PROTO_STATUS_H_
#define OUTBOARD_PROTO_STATUS_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace outboard::wire {

inline constexpr size_t kStatusMessageBytesMax =
    2048;  // gRPC's default limit on all metadata is 8 KiB

// A code off the wire may be any number: what is none of gRPC's reads as UNKNOWN, and never as OK
// by accident.
inline absl::StatusCode CodeFromWire(uint32_t code) {
  return code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(CodeFromWire(static_cast<uint32_t>(status.error_code())),
                      status.error_message());
}

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message().data(), status.message().size());
  if (message.size() > kStatusMessageBytesMax) message.resize(kStatusMessageBytesMax);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

inline absl::Status MakeStatus(absl::StatusCode code, const std::string& message) {
  return absl::Status(code, message);
}

}  // namespace outboard::wire

#endif  // OUTBOARD_PROTO_STATUS_H_
