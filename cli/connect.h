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

// The gateway of `gateway`, as --gateway says, else of CLOUD_HOST, else on this machine; and the
// key in CLOUD_KEY.
struct UserGateway {
  std::string target, key;
  std::shared_ptr<grpc::Channel> channel;
};
// Errors: the same; INVALID_ARGUMENT  no address, or no key that could be one
absl::StatusOr<UserGateway> ConnectToGateway(const std::string& gateway);

}  // namespace outboard::cli
