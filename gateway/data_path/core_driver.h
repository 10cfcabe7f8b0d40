// Where connections, core and disk meet: tells GatewayCore what happened and carries out what it
// decides. The gateway's process runs it behind gRPC and sockets, the simulator behind virtual
// connections; it owns no thread, no clock and no file (host.h), and speaks to endpoints only
// (endpoints.h).
//
// Threads: any. One mutex guards the core and the entries of sessions, clients and workers; actions
// are carried out under it, in order, and do nothing that waits: disk work goes to the WriteQueue
// and to DriverHost::Post. Lock order: driver, relay, endpoint. With one thread nothing ever
// blocks, but for the two Await methods.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/core/core.h"
#include "gateway/data_path/endpoints.h"

namespace outboard::proto {
class Heartbeat;
class Open;
class Register;
class SessionEnded;
}  // namespace outboard::proto

namespace outboard::gateway {

class BlobUses;
class ClientAuth;
class ClientPort;
class DriverHost;
class GraphAdmission;
class Relay;
class WriteQueue;
struct Identity;
struct SessionRow;
struct SessionUsage;
struct TakenOver;

// Mistakes for the simulator to find (tests/sim); never set elsewhere.
struct DriverPlanted {
  bool old_epoch = false;            // a session that goes on does so in its first epoch
  bool live_before_written = false;  // a client is told of an epoch that is not on disk yet
  bool kept_before_written = false;  // an executor is told so of a snapshot that no row names yet
};

class CoreDriver {
 public:
  // What it is given outlives it, and calls nothing of it any more when its destructor begins.
  CoreDriver(const CoreOptions& options, DriverHost* host, WriteQueue* writes, BlobUses* blobs,
             ClientAuth* auth, DriverPlanted planted = {});
  ~CoreDriver();

  // Before any connection: what the gateway before this one left. Sessions that go on once their
  // worker joins, each with what it has cost; and those whose executors ended with it.
  void Restore(const TakenOver& taken, const SessionUsage& past);
  void Remember(const SessionRow& lost);

  // Time has passed: every kTickMs or so.
  void OnTick();

  // ---- clients; adapters come by ClientPort
  ConnId AddClient(ClientPort* port);
  void RemoveClient(ConnId conn);
  void Open(ConnId conn, const Identity& identity, const proto::Open& open);
  void Close(ConnId conn);
  // The session ends with `why`: its client broke a rule.
  void Fail(ConnId conn, const absl::Status& why);
  // Ends the client's stream; its session stays for a resume.
  void ClientBroke(ConnId conn);

  // From now on the session's large values go to `endpoint`, in the place of any before. NOT_FOUND.
  absl::Status OpenValues(ValuesEndpoint* endpoint, TenantId tenant, SessionId session,
                          Token token);
  void ValuesDrained(SessionId session);
  void CloseValues(ValuesEndpoint* endpoint, SessionId session);

  // ---- workers; adapters come by WorkerPort
  // Told to workers from now on: before the first can join.
  void SetLocalSocket(std::string name) { local_socket_ = std::move(name); }
  WorkerId AddWorker(WorkerEndpoint* endpoint, const proto::Register& reg);
  void RemoveWorker(WorkerId worker);
  void OnHeartbeat(WorkerId worker, const proto::Heartbeat& beat);
  void OnDraining(WorkerId worker);
  void OnSessionEnded(WorkerId worker, const proto::SessionEnded& ended);

  // ---- executors; adapters come by ExecutorPort
  // The relay of a session that awaits this executor. PERMISSION_DENIED.
  absl::StatusOr<std::shared_ptr<Relay>> Attach(SessionId session, Token token,
                                                ExecutorEndpoint* endpoint);
  // The stream of `relay`'s executor has ended.
  void Detached(SessionId session, const Relay* relay);
  // The tenant for whom the holder of this attach token works. PERMISSION_DENIED: it is not, or not
  // any more, the session's executor. UNAVAILABLE: it may be, once its worker has joined again.
  absl::StatusOr<TenantId> TenantOf(SessionId session, Token token) const;
  // From now on this is where the session begins again. `done` is told when its row says so.
  // NOT_FOUND: the session has ended; ABORTED: this is not its executor any more, whose successor
  // may have begun with the snapshot before.
  void KeepSnapshot(SessionId session, Token token, const std::string& root, uint64_t seq,
                    std::function<void(absl::Status)> done);

  // ---- shutdown
  void Drain();
  // Waits until no session is left, at most so long.
  void AwaitEmpty(std::chrono::milliseconds limit);
  void StopAll();

  uint32_t devices_total() const;
  bool AwaitDevices(uint32_t count, std::chrono::milliseconds limit);
  size_t session_count() const;
  // Checks the numbered invariants of core_driver.cc and of the core; "" or what is broken.
  std::string CheckInvariants() const;

 private:
  struct Client;
  struct Session;
  struct Worker;

  void Tell(const Event& event);  // under mutex_
  void Do(Welcome& action);
  void Do(Assign& action);
  void Do(EndExecutor& action);
  void Do(DropExecutor& action);
  void Do(EndWorker& action);
  void Do(Live& action);
  void Do(Detach& action);
  void Do(Queued& action);
  void Do(Moving& action);
  void Do(EndClient& action);
  void Do(Post& action);
  void Do(Forget& action);
  void Do(WriteSession& action);
  void Do(WriteLease& action);

  Client* FindClient(ConnId conn) const;
  Session* Find(const SessionId& session) const;
  Session& Entry(const SessionId& session);
  Worker* FindWorker(WorkerId worker) const;
  std::string NameOf(WorkerId worker) const;
  void Connect(const Live& live);
  void BeginRelay(SessionId id, TenantId tenant, bool replays);
  void DropRelay(Session& session);
  static void SetValues(Session& session, ValuesEndpoint* endpoint);
  static void EndValues(Session& session, const absl::Status& why);
  void TellGone(SessionId session, absl::Status why, uint64_t placement,
                std::optional<WorkerId> worker);
  void TellSilentExecutors();
  void Notify(const Client& client, int kind, const std::string& text, uint64_t count);
  static bool KnowsToken(const Session& session, Token token);
  absl::Status WriteTrouble() const;  // why no new session can begin; OK: it can
  void RefuseWhatCannotBeWritten();
  void CheckKeys();

  DriverHost* const host_;
  WriteQueue* const writes_;
  BlobUses* const blobs_;
  ClientAuth* const auth_;
  const CoreOptions options_;
  const DriverPlanted planted_;
  const std::unique_ptr<GraphAdmission> gate_;
  std::string local_socket_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  GatewayCore core_;
  uint64_t next_conn_ = 1, next_worker_ = 1;
  int64_t ticks_ = 0;
  std::map<ConnId, std::unique_ptr<Client>> clients_;
  std::map<WorkerId, std::unique_ptr<Worker>> workers_;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  std::set<ConnId> beginning_;  // whose session's first row is being written
  // Resume hashes of sessions that ended with the gateway before this one.
  std::vector<Token> lost_;
};

}  // namespace outboard::gateway
