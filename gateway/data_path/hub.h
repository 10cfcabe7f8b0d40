// Where streams, core and disk meet: tells the core what happened and carries out what it decides.
//
// Threads: any. One mutex guards the core and the maps; actions are carried out under it, in order,
// and do nothing that waits: disk work goes to the bookkeeper and to the pool. What may only be
// said when it is on the disk (Live, KeepSnapshot's `done`) the bookkeeper's thread says later;
// Live looks then whether it still holds. Lock order: hub, relay, stream.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/work_queue.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/core/core.h"
#include "gateway/data_path/graph_admission.h"
#include "gateway/data_path/relay.h"
#include "gateway/server/authenticator.h"
#include "gateway/server/ledger_writer.h"
#include "proto/fleet.pb.h"

namespace outboard::gateway {

class ClientStream;
class ValuesSender;
class ControlStream;

class Hub {
 public:
  Hub(const CoreOptions& options, BlobStore* blobs, BlobRetention* catalogue,
      Authenticator* gatekeeper, LedgerWriter* books, WorkQueue* pool);
  ~Hub();

  // Before anybody can connect: what the gateway before this one left. Sessions that go on once
  // their worker joins, each with what it has cost; and those whose executors ended with it.
  void Restore(const TakenOver& taken, const SessionUsage& past);
  void Remember(const SessionRow& lost);

  Authenticator& gatekeeper() { return *gatekeeper_; }
  WorkQueue& pool() { return *pool_; }

  // ---- clients
  ConnId AddClient(ClientStream* stream);
  void RemoveClient(ConnId conn);
  void Open(ConnId conn, const Identity& identity, const proto::Open& open);
  void Close(ConnId conn);
  // The session ends with `why`: its client broke a rule.
  void Fail(ConnId conn, const absl::Status& why);
  // Ends the client's stream; its session stays for a resume.
  void ClientBroke(ConnId conn);

  // From now on the session's large values go to `stream`, in the place of any before. NOT_FOUND.
  absl::Status OpenValues(ValuesSender* stream, TenantId tenant, SessionId session, Token token);
  void ValuesDrained(SessionId session);
  void CloseValues(ValuesSender* stream, SessionId session);

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

 private:
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
  void TickLoop();
  void CheckKeys();
  absl::Status BooksTrouble() const;  // why no new session can begin; OK: it can
  void RefuseWhatCannotBeWritten();
  std::string NameOf(WorkerId worker) const;
  void Connect(const Live& live);
  std::shared_ptr<Relay> NewRelay(SessionId session, TenantId tenant);
  void SetValues(SessionId session, ValuesSender* stream);
  void EndValues(SessionId session, const absl::Status& why);
  void DropRelay(SessionId session);
  void TellGone(SessionId session, absl::Status why, uint64_t placement,
                std::optional<WorkerId> worker);
  void Notify(ConnId conn, proto::Notice::Kind kind, const std::string& text, uint64_t count);
  bool IsExecutor(SessionId session, Token token) const;
  bool KnowsToken(SessionId session, Token token) const;  // may be of a worker that is to come back

  struct Client {
    ClientStream* stream;
    Identity identity;
    proto::Open open;
    Token resume_token;
    std::shared_ptr<Relay> relay;
  };
  struct Worker {
    ControlStream* stream;
    std::string name;
    uint32_t protocol;  // chosen
  };

  BlobStore* const blobs_;
  BlobRetention* const catalogue_;
  Authenticator* const gatekeeper_;
  LedgerWriter* const books_;
  WorkQueue* const pool_;
  GraphAdmission gate_;
  std::string local_socket_;
  const CoreOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  GatewayCore core_;
  uint64_t next_conn_ = 1, next_worker_ = 1;
  std::map<ConnId, Client> clients_;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, std::shared_ptr<Relay>> relays_;
  std::map<SessionId, Relay::Plan> plans_;  // of those between two relays
  std::map<SessionId, ValuesSender*> values_;
  std::map<SessionId, Token> attach_hashes_;  // of the last Assign
  std::vector<Token>
      lost_;  // resume hashes of sessions that ended with the gateway before this one
  std::map<SessionId, WallTime> opened_;  // for the rows
  std::map<SessionId, MonoTime>
      streamless_;              // executors whose stream ended, until their worker says why
  std::set<ConnId> beginning_;  // whose session's first row is being written
  bool stopping_ = false;
  std::thread ticker_;
};

}  // namespace outboard::gateway
