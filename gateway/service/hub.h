// Where streams, core and disk meet: tells the core what happened and carries out what it decides.
//
// Threads: any. One mutex guards the core and the maps; actions are carried out under it, in order,
// and do nothing that waits: disk work goes to the bookkeeper. Lock order: hub, relay, stream.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/core/core.h"
#include "gateway/service/bookkeeper.h"
#include "gateway/service/gatekeeper.h"
#include "gateway/service/graph_gate.h"
#include "gateway/service/pool.h"
#include "gateway/service/relay.h"
#include "proto/fleet.pb.h"

namespace outboard::gateway {

class ClientStream;
class ControlStream;

class Hub {
 public:
  Hub(const CoreOptions& options, BlobStore* blobs, Gatekeeper* gatekeeper, Bookkeeper* books,
      Pool* pool);
  ~Hub();

  Gatekeeper& gatekeeper() { return *gatekeeper_; }
  Pool& pool() { return *pool_; }

  // ---- clients
  ConnId AddClient(ClientStream* stream);
  void RemoveClient(ConnId conn);
  void Open(ConnId conn, const Identity& identity, const proto::Open& open);
  void Close(ConnId conn);
  // The session ends with `why`: its client broke a rule.
  void Fail(ConnId conn, const absl::Status& why);
  // Ends the client's stream; its session stays for a resume.
  void ClientBroke(ConnId conn);

  // ---- workers
  // Told to workers from now on: before the first can join.
  void SetLocalSocket(std::string name) { local_socket_ = std::move(name); }
  WorkerId AddWorker(ControlStream* stream, const proto::Register& reg);
  void RemoveWorker(WorkerId worker);
  void OnHeartbeat(WorkerId worker, const proto::Heartbeat& beat);
  void OnDraining(WorkerId worker);
  void OnSessionEnded(WorkerId worker, const proto::SessionEnded& ended);
  // The relay of a session that awaits this executor. PERMISSION_DENIED.
  absl::StatusOr<std::shared_ptr<Relay>> Attach(SessionId session, Token token,
                                                ExecutorSide* stream);
  void Detached(SessionId session);
  // Whose session it is, for the worker that serves it. PERMISSION_DENIED.
  absl::StatusOr<TenantId> TenantOf(SessionId session, Token token) const;

  // ---- shutdown
  void Drain();
  // Waits until no session is left, at most so long.
  void AwaitEmpty(std::chrono::milliseconds limit);
  void StopAll();

  uint32_t devices_total() const;
  bool AwaitDevices(uint32_t count, std::chrono::milliseconds limit);
  size_t session_count() const;

 private:
  void Tell(const Event& event);  // under mutex_
  void Do(Assign& action);
  void Do(EndExecutor& action);
  void Do(Live& action);
  void Do(Detach& action);
  void Do(Queued& action);
  void Do(EndClient& action);
  void Do(Post& action);
  void Do(Forget& action);
  void Do(WriteSession& action);
  void Do(WriteLease& action);
  void TickLoop();
  void CheckKeys();
  std::string NameOf(WorkerId worker) const;

  struct Client {
    ClientStream* stream;
    Identity identity;
    proto::Open open;
    std::shared_ptr<Relay> relay;
  };
  struct Worker {
    ControlStream* stream;
    std::string name;
  };

  BlobStore* const blobs_;
  Gatekeeper* const gatekeeper_;
  Bookkeeper* const books_;
  Pool* const pool_;
  GraphGate gate_;
  std::string local_socket_;
  const CoreOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  GatewayCore core_;
  uint64_t next_conn_ = 1, next_worker_ = 1;
  std::map<ConnId, Client> clients_;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, std::shared_ptr<Relay>> relays_;
  std::map<SessionId, WallTime> opened_;  // for the rows
  std::map<SessionId, MonoTime>
      streamless_;  // executors whose stream ended, until their worker says why
  bool stopping_ = false;
  std::thread ticker_;
};

}  // namespace outboard::gateway
