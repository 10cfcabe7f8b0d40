// A worker's supervisor: joins a gateway, starts an executor for each session that is assigned to
// it, and connects the two.
//
//   gateway --Join------> commands  (assign, release)    one control stream, dialled again when
//                                                        it breaks; executors stay meanwhile
//           <--events---            (register, heartbeat, session ended)
//   gateway <--frames---> executor                       one a session (session_relay.h)
//
// One executor is kept started ahead, with its compile box warm, so that a session opens at once.
// Executors end with this process, whatever ends it.
#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace outboard::worker {

struct SupervisorOptions {
  std::shared_ptr<grpc::Channel> gateway;
  // More connections to it, for blobs; empty: `gateway` serves.
  std::vector<std::shared_ptr<grpc::Channel>> bulk = {};
  std::string name;         // for people; empty: the host's name
  std::string fleet_token;  // sent as "authorization: Bearer ..." if not empty
  std::vector<std::string>
      executor;  // command line of an executor; empty: this program with "executor"
  // Command line of a search process (search_main.h), for idle time; empty: nothing is searched.
  std::vector<std::string> search;
  int devices = 1;  // sessions at a time
  // Of one session; an Assign may say less. 0: runtime::DefaultMemoryBytesMax, divided by devices.
  int64_t memory_bytes_max = 0;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();

  // Works until Stop: joins, and joins again with growing pauses when the gateway goes away. The
  // calling thread is the one that starts executors and must stay: they end with it. Errors:
  // UNAUTHENTICATED, FAILED_PRECONDITION  the gateway refuses this worker for good
  absl::Status Run();

  // Any thread. Takes no new session, ends the executors, and lets Run return.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
