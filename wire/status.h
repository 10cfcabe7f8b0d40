// Converts between gRPC's status and Abseil's, which have the same codes; messages are truncated to
// fit into trailers. Unknown codes become UNKNOWN: status_code.h.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "wire/status_code.h"

namespace outboard::wire {

inline constexpr size_t kStatusMessageBytesMax =
    2048;  // gRPC's default limit on all metadata is 8 KiB

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

}  // namespace outboard::wire
