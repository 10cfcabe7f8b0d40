#include "client/session/link/bulk.h"

#include "client/session/link/grpc_link.h"
#include "client/session/waiting.h"

namespace outboard::session {

namespace {

// Each has a window of its own (kWindowBytes of the gateway): together they fill a link far away.
constexpr int kConnections = 8;

}  // namespace

wire::BlobConnections MakeBulkConnections(const std::string& target, const std::string& key,
                                          const Protection& protection) {
  wire::BlobConnections connections;
  // MakeChannel gives each its own TCP connection: a channel's subchannels are not shared.
  for (int i = 0; i < kConnections; ++i)
    connections.channels.push_back(MakeChannel(target, protection));
  if (!key.empty()) connections.metadata = {{"authorization", "Bearer " + key}};
  return connections;
}

const wire::BlobConnections& Bulk::Connections() {
  std::call_once(once_, [this] { connections_ = MakeBulkConnections(target_, key_, protection_); });
  return connections_;
}

wire::TransferOptions Bulk::Options() const {
  return {.cancelled = &cancelled_, .check = &Waiting::Check, .retry_for = retry_for_};
}

absl::StatusOr<wire::Uploaded> Bulk::Upload(std::span<const wire::BlobSource> sources) {
  auto uploaded = wire::UploadBlobs(Connections(), sources, Options());
  if (uploaded.ok()) bytes_up_ += uploaded->wire_bytes;
  return uploaded;
}

}  // namespace outboard::session
