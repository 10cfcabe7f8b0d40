// A Link over one gRPC stream to a gateway. Sends and receives frames and reports the end of the
// stream once. Does not interpret frames.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/link/link.h"
#include "client/session/protection.h"

namespace grpc {
class Channel;
class ChannelCredentials;
}  // namespace grpc

namespace outboard::session {

// The only place that chooses a channel's credentials: TLS for whatever is not on this machine,
// unless `protection` says otherwise.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& target,
                                                                const Protection& protection);

// Returns a channel with our limits, not yet connected.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const Protection& protection = {});

// Waits until the channel is connected: gRPC connects lazily and would block in the first call.
// Gives up after one second if the connection is refused.
// Errors: UNAVAILABLE naming the target; the status of a hook of client/session/waiting.h.
absl::Status WaitConnected(grpc::Channel& channel, const std::string& target,
                           std::chrono::milliseconds timeout);

// `key` may be empty (a private worker requires none).
std::unique_ptr<Link> MakeGrpcLink(std::shared_ptr<grpc::Channel> channel, const std::string& key);

}  // namespace outboard::session
