// A client of gRPC's for calls that keep to the protocol and not to the rules: it sends what a test
// makes, with a key or without, from an address of loopback of its own.
//
// Each call ends within kCallEndsWithin. What the gateway answers is noted in `Replies`, where the
// last case looks for words that do not belong there.
// Threads: any, one per call.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "wire/status.h"

namespace outboard::test {

// The texts of all answers to hostile calls. Threads: any.
class Replies {
 public:
  absl::Status Note(absl::Status status);
  void Note(std::string text);
  std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

// A channel over one TCP connection from `from` ("127.0.0.2"), which is not made again when it
// breaks; null if it cannot be made.
std::shared_ptr<grpc::Channel> ChannelFrom(const std::string& target, const std::string& from);

class HostileClient {
 public:
  static constexpr std::chrono::seconds kCallEndsWithin{20};

  // `key` empty: none is sent.
  HostileClient(std::shared_ptr<grpc::Channel> channel, std::string key, Replies* replies);

  // Of one call, with the key.
  std::unique_ptr<grpc::ClientContext> Context() const;
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  proto::Cloud::Stub& cloud() { return *cloud_; }
  proto::Blobs::Stub& blobs() { return *blobs_; }

  // One call without streams: Unary(&proto::Store::Stub::List, request, &reply).
  template <typename Stub, typename Request, typename Reply>
  absl::Status Unary(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                     const Request& request, Reply* reply) {
    auto context = Context();
    return Noted((StubOf<Stub>().*method)(context.get(), request, reply));
  }
  // As above, for who looks at the status alone.
  template <typename Stub, typename Request, typename Reply>
  absl::Status Ask(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                   const Request& request) {
    Reply reply;
    return Unary(method, request, &reply);
  }

  // Sends these pieces and no more.
  absl::Status Upload(const std::vector<proto::BlobPiece>& pieces);
  // Uploads and commits `bytes`, at most a chunk of them; returns the root.
  std::string Store(const std::string& bytes);
  // Receives chunks into `bytes`.
  absl::Status Download(const std::vector<std::string>& chunks, std::string* bytes);
  // Sends Open and reads to Opened, then closes the session; or to the end of the stream.
  absl::Status Open(const proto::Open& open);

 private:
  absl::Status Noted(const grpc::Status& status);
  template <typename Stub>
  Stub& StubOf();

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string key_;
  Replies* const replies_;
  const std::unique_ptr<proto::Cloud::Stub> cloud_;
  const std::unique_ptr<proto::Blobs::Stub> blobs_;
  const std::unique_ptr<proto::Store::Stub> store_;
  const std::unique_ptr<proto::Account::Stub> account_;
};

template <>
inline proto::Cloud::Stub& HostileClient::StubOf() {
  return *cloud_;
}
template <>
inline proto::Blobs::Stub& HostileClient::StubOf() {
  return *blobs_;
}
template <>
inline proto::Store::Stub& HostileClient::StubOf() {
  return *store_;
}
template <>
inline proto::Account::Stub& HostileClient::StubOf() {
  return *account_;
}

// An Open that a gateway accepts.
proto::Open GoodOpen();
// A piece of a chunk.
proto::BlobPiece Piece(const std::string& hash, size_t chunk_bytes, size_t offset,
                       const std::string& data);

}  // namespace outboard::test
