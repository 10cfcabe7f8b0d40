// A worker's call of Fleet.Join: events to the gateway, commands from it. It ends where the gateway
// takes the call and then says nothing: until Welcome nothing else would notice that, since a lease
// begins with it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "proto/fleet.grpc.pb.h"

namespace outboard::worker {

class JoinCall {
 public:
  // `answers_within`: the longest that a Read lasts before there was a Welcome. What the worker
  // does between two Reads, such as a measurement, is not part of it.
  JoinCall(const std::string& fleet_secret, std::chrono::milliseconds answers_within);
  ~JoinCall();  // ends the call
  JoinCall(const JoinCall&) = delete;
  JoinCall& operator=(const JoinCall&) = delete;

  void Begin(proto::Fleet::Stub& fleet);        // waits for a connection
  void Write(const proto::WorkerEvent& event);  // after Begin; one at a time
  bool Read(proto::GatewayCommand* command);    // after Begin; false: the call has ended
  absl::Status Finish();                        // after that; UNAVAILABLE: no answer in time
  void Cancel() { context_.TryCancel(); }       // any thread, also before Begin

 private:
  class Watch;

  const std::chrono::milliseconds answers_within_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::WorkerEvent, proto::GatewayCommand>> stream_;
  std::unique_ptr<Watch> watch_;  // null: there was a Welcome
  bool was_late_ = false;
};

}  // namespace outboard::worker
