// Passes frames between an executor's data socket and a Fleet.Attach stream, with one thread per
// direction, until either side ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/fleet.grpc.pb.h"

namespace outboard::worker {

// For a gateway to read what an executor wrote before its end: it stops reading where its client
// does not read.
inline constexpr std::chrono::milliseconds kGatewayReadsMs{5000};

class GrpcAttach {
 public:
  // Takes ownership of `fd`.
  GrpcAttach(proto::Fleet::Stub& fleet, const proto::Assign& assign, uint32_t rank,
             const std::string& fleet_secret, int fd,
             std::chrono::milliseconds gateway_reads = kGatewayReadsMs);
  ~GrpcAttach();  // breaks both sides
  GrpcAttach(const GrpcAttach&) = delete;
  GrpcAttach& operator=(const GrpcAttach&) = delete;

  // Call after the other end of the socket has closed; forwards the frames it wrote before that.
  // Returns when the gateway has read them and ended the call, and at the latest after
  // `gateway_reads`, when it cancels that.
  void Finish();
  void Cancel() { context_.TryCancel(); }  // any thread

 private:
  void Up();
  void Down();

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::ServerFrame, proto::ClientFrame>> stream_;
  const int fd_;
  const std::chrono::milliseconds gateway_reads_;
  std::promise<void> up_ended_, call_ended_;  // the latter by either side
  std::thread up_, down_;
};

// Returns the gRPC metadata that authorises a worker to act for a session.
std::vector<std::pair<std::string, std::string>> SessionMetadata(const proto::Assign& assign,
                                                                 uint32_t rank,
                                                                 const std::string& fleet_secret);

}  // namespace outboard::worker
