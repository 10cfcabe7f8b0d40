// A command's connection to a gateway, protected as CLOUD_FINGERPRINT and its like say
// (client/session/protection.h).
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::cli {

// Errors: INVALID_ARGUMENT  a variable; UNAVAILABLE  nobody answers, or it is not to be trusted
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectWithEnvironment(const std::string& target);

}  // namespace outboard::cli
