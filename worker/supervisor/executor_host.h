// One executor of a session on a worker, the control socket to it, and its connection to the
// gateway. If the gateway is on this machine, the executor is connected to it directly; otherwise
// two threads of this process pass frames between a gRPC stream and the executor's data socket.
//
//   gateway <------unix socket-------> executor       gateway/streams/local_attach.h
//   gateway <--Attach--> this process <--> executor   on another machine
//
// Frames are not inspected. When the connection to the gateway breaks, the executor keeps its state
// and waits; Attach connects it again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/executor.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "worker/devices/devices_in_service.h"
#include "worker/kernels/kernel_service.h"
#include "worker/process/child_output.h"
#include "worker/process/child_process.h"
#include "worker/receipts/lease_counter.h"
#include "worker/supervisor/blob_cache.h"
#include "worker/supervisor/stored_file.h"
#include "worker/tuning/idle_searcher.h"

namespace outboard::worker {

struct ExecutorHostOptions {
  proto::Assign assign;
  uint32_t rank = 0;  // of the session's executors, on all of its workers
  uint64_t memory_bytes_max = 0;
  std::string fleet_secret;
  BlobCache* blob_cache = nullptr;
  std::vector<std::shared_ptr<grpc::Channel>> bulk;  // to the gateway, for blobs
  IdleSearcher* searcher = nullptr;                  // notified of items; may be nullptr
  LeaseCounter* leases = nullptr;  // notified of when it works; may be nullptr
  // Compiles for the executor; the host tells it the account.
  std::unique_ptr<KernelService> kernels;
  AccountFiles files;
  std::unique_ptr<StoredFile> stored_file;  // null: it can store nothing
  std::unique_ptr<ChildOutput> output;      // of the executor; null: it has this process's
  // Called before on_end if the executor ended because of its device; `words` for people.
  std::function<void(DeviceFailure failure, const std::string& words)> on_device_failure;
  // Called once, from a thread of the host, with how it ended: OK in order, UNAVAILABLE by itself,
  // DEADLINE_EXCEEDED by a step that was too long, INTERNAL with its device.
  std::function<void(absl::Status)> on_end;
};

// Of such a status: has a value if the session's own work may have ended its executor, or its
// device, so that another executor may try once more; which item it was, 0 if that is not known.
std::optional<uint64_t> OneMoreTryOf(const absl::Status& status);

// Threads: any, except Attach and the destructor, which only the owner calls.
class ExecutorHost {
 public:
  ExecutorHost(ExecutorHostOptions options, ChildProcess executor);
  ~ExecutorHost();  // LetGo, then End, and waits for it
  ExecutorHost(const ExecutorHost&) = delete;
  ExecutorHost& operator=(const ExecutorHost&) = delete;

  // Before the first Attach: a socket to the executor of another rank, which this takes over.
  void PassGroupSocket(uint32_t rank, int fd);
  // Connects to the gateway, replacing any previous connection. `local_socket` is the one of
  // Welcome.
  void Attach(proto::Fleet::Stub& fleet, const std::string& local_socket);
  // From now on blobs go by these connections.
  void UseBulk(std::vector<std::shared_ptr<grpc::Channel>> bulk);
  // Tells the executor to end, which takes it a moment: it says what it has counted first.
  void LetGo();
  // Closes the executor's control socket, which ends the executor.
  void End();

  const proto::Assign& assign() const;
  // What the executor's process uses now, without files that it maps; 0: it has ended.
  uint64_t memory_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
