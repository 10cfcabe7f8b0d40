// Frames between a socket and a Fleet.Attach stream, by two threads, until either ends.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/fleet.grpc.pb.h"

namespace outboard::worker {

class GrpcAttach {
 public:
  // `fd` becomes ours.
  GrpcAttach(proto::Fleet::Stub& fleet, const proto::Assign& assign, const std::string& fleet_token,
             int fd);
  ~GrpcAttach();  // breaks both sides
  GrpcAttach(const GrpcAttach&) = delete;
  GrpcAttach& operator=(const GrpcAttach&) = delete;

  // After the other end of the socket has closed: what it had written before is on its way.
  void Finish();
  void Cancel() { context_.TryCancel(); }  // any thread

 private:
  void Up();
  void Down();

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::ServerFrame, proto::ClientFrame>> stream_;
  const int fd_;
  std::thread up_, down_;
};

// What lets a worker act for a session.
std::vector<std::pair<std::string, std::string>> SessionMetadata(const proto::Assign& assign,
                                                                 const std::string& fleet_token);

}  // namespace outboard::worker
