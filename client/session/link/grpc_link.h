// A Link over one gRPC stream to a gateway: frames out, frames in, and the end of the stream told
// once. Knows nothing of what the frames say.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/link/link.h"

namespace outboard::transport {

// The one place where a channel gets its credentials. They are insecure wherever the target is:
// nothing that is sent, the key included, is encrypted. From afar a tunnel or a proxy does that.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& target);

// A channel with our limits, not yet connected.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target);

// Waits until the channel is connected: gRPC connects lazily and would let the first call hang.
// Where the connection is refused it gives up after a second already.
// Errors: UNAVAILABLE naming the target; what a hook of waiting.h says.
absl::Status WaitConnected(grpc::Channel& channel, const std::string& target,
                           std::chrono::milliseconds timeout);

// `key` may be empty (a private serve asks for none).
std::unique_ptr<Link> MakeGrpcLink(std::shared_ptr<grpc::Channel> channel, const std::string& key);

}  // namespace outboard::transport
