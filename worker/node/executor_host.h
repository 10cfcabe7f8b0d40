// One session on a worker: its executor, the control socket to it, and how its frames get to the
// gateway. A gateway on this machine is connected to the executor itself; otherwise two threads
// here pass the frames between a gRPC stream and the executor's data socket.
//
//   gateway <------unix socket-------> executor       the gateway's local_attach.h
//   gateway <--Attach--> this process <--> executor   from afar
//
// Frames are not looked at. When the way to the gateway breaks the executor keeps its state and
// waits; Attach makes another.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/executor.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "worker/node/blob_cache.h"
#include "worker/process/child_process.h"
#include "worker/tuning/idle_searcher.h"

namespace outboard::worker {

struct ExecutorHostOptions {
  proto::Assign assign;
  uint64_t memory_bytes_max = 0;
  std::string fleet_token;
  BlobCache* blob_cache = nullptr;
  std::vector<std::shared_ptr<grpc::Channel>> bulk;  // to the gateway, for blobs
  IdleSearcher* searcher = nullptr;                  // told when the session works; may be nullptr
  // Called once, from a thread of the relay's: how the session ended.
  std::function<void(absl::Status)> on_end;
};

// Threads: any but for Attach, which is the owner's, as the destructor is.
class ExecutorHost {
 public:
  ExecutorHost(ExecutorHostOptions options, ChildProcess executor);
  ~ExecutorHost();  // End, and waits for it
  ExecutorHost(const ExecutorHost&) = delete;
  ExecutorHost& operator=(const ExecutorHost&) = delete;

  // A way to the gateway, in the place of any before. `local_socket` is Welcome's.
  void Attach(proto::Fleet::Stub& fleet, const std::string& local_socket);
  // Lets go of the executor, which ends.
  void End();

  const proto::Assign& assign() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
