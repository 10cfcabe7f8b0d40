// Connects GatewayCore to connections and disk: passes events to the core and carries out the
// actions that it returns. The gateway's process runs the driver with gRPC and sockets, the
// simulator with virtual connections; it owns no thread, clock or file (host.h), and reaches peers
// only through endpoints (endpoints.h).
//
// Threads: any. One mutex guards the core and the entries of sessions, clients and workers; actions
// are carried out under it, in order, and never wait: disk work goes to the WriteQueue and to
// DriverHost::Post. Lock order: driver, relay, endpoint. In a single-threaded program no method
// blocks except the two Await methods.
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
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/shard/shard.h"
#include "gateway/core/core.h"
#include "gateway/data_path/endpoints.h"
#include "gateway/groups/link_table.h"
#include "gateway/ledger/device_time.h"
#include "gateway/proof/heads.h"
#include "telemetry/metric.h"

namespace outboard::proto {
class Device;
class GroupState;
class Heartbeat;
class LinkMeasured;
class Open;
class Receipt;
class Register;
class DeviceOut;
class SessionEnded;
}  // namespace outboard::proto

namespace outboard::gateway {

class Allowance;
class BlobUses;
class ClientAuth;
class ClientPort;
class DriverHost;
class DriverObserver;
class GraphAdmission;
class WorkerQuarantine;
struct SetAsideWorker;
class GraphBytes;
class GraphSharder;
class GroupRuns;
class Relay;
class WriteQueue;
struct Identity;
struct PriceList;
struct SessionRow;
struct Usage;
struct TakenOver;

// From a session's stream whose key is good to its Open. A program on a busy machine, or behind a
// thin line, takes seconds to send 1 MiB. The silent streams of an account count among its
// kStreamsPerAccountMax.
inline constexpr int64_t kOpenMs = 20'000;
// Of the time between two ticks no more than this counts as a client's silence: the rest is the
// gateway's own, which did not run and may have the message in a socket.
inline constexpr int64_t kSilenceOfTickMs = 400;

// Planted bugs that the simulator must find (tests/sim); never set elsewhere.
struct DriverPlanted {
  bool old_epoch = false;            // a resumed session continues in its first epoch
  bool live_before_written = false;  // announces an epoch to the client before it is on disk
  bool kept_before_written = false;  // confirms a snapshot before the session's row names it
  bool asks_no_snapshot = false;     // a parked session's executor is not asked for a snapshot
  bool never_wakes = false;          // does not hear what a client sends while its session sleeps
  bool bill_replay = false;          // does not say what was done before an executor was lost
  bool wall_clock = false;           // tells the core the time of the wall clock
  bool never_idle = false;           // says that every session has work under way
  bool old_placement = false;        // takes a replaced executor's end for its successor's
};

class CoreDriver {
 public:
  // All arguments outlive the driver, and none of them calls it once its destructor has begun.
  CoreDriver(const CoreOptions& options, DriverHost* host, WriteQueue* writes, BlobUses* blobs,
             ClientAuth* auth, DriverPlanted planted = {});
  ~CoreDriver();

  // Tells `observer`, which outlives the driver, of sessions and workers. Call first.
  void SetObserver(DriverObserver* observer) { observer_ = observer; }

  // Every reply that reports a cost carries the account's last head of `heads`, which outlives the
  // driver. Call before any connection; without it none does.
  void SetHeads(const LedgerHeads* heads) { heads_ = heads; }

  // Reads who is set aside, and writes there who will be; `quarantine` outlives the driver. Call
  // before any worker can join. Without it they are remembered as long as the process lives.
  // Errors: those of WorkerQuarantine::Read: a liar would be let in without that list
  absl::Status SetQuarantine(WorkerQuarantine* quarantine);

  // ---- prices (core_driver_leases.cc)
  // From now on devices are of the classes of this list, and cost what it says; without one they
  // cost CoreOptions::price_per_hour. Call first before any worker can join, and again whenever
  // there is another list: sessions keep the price that they have.
  // Errors: FAILED_PRECONDITION  it lacks a class that a device or a session is of; the list from
  //                              before stays
  absl::Status SetPrices(std::shared_ptr<const PriceList> prices);
  std::shared_ptr<const PriceList> prices() const;  // null: there is none
  // Whether a worker with these devices may join; true: once it has measured them.
  // Errors: FAILED_PRECONDITION  a device is of no class, or falls short of its class; says which
  absl::StatusOr<bool> CheckJoin(const proto::Register& reg) const;
  // The same of a machine of this account's own, which nobody promises anything of.
  // Errors: RESOURCE_EXHAUSTED  the account has kOwnWorkersMax
  absl::Status CheckOwnJoin(TenantId owner) const;
  void OnJoinRefused(const std::string& name, const absl::Status& why);

  // ---- nodes (core_driver_leases.cc), by the serial numbers that their certificates prove
  std::set<std::string> NodesHere() const;  // that have joined
  // Each returns whether the node is here.
  bool DrainNode(const std::string& serial);
  bool RestartNode(const std::string& serial, const std::string& why);
  bool SetNodeAside(const std::string& serial, const std::string& why);

  // Called before any connection, with the state that the previous gateway process left. Restore:
  // sessions that continue once their worker joins, with their cost so far. Remember: sessions
  // whose executors ended with that process.
  void Restore(const TakenOver& taken, const Usage& past);
  void Remember(const SessionRow& lost);
  // What accounts used of late, in device-seconds (Ledger::RecentUse): who waits keeps its share
  // over a restart.
  void RememberUse(const std::map<TenantId, double>& used);

  // Call about every kTickMs: checks deadlines and charges leases.
  void OnTick();

  // ---- clients; called through ClientPort
  ConnId AddClient(ClientPort* port);
  void RemoveClient(ConnId conn);
  void ClientAdmitted(ConnId conn);  // its key is good; the next thing is its to say
  void ClientSpoke(ConnId conn);     // its first message is there, and is an Open
  void Open(ConnId conn, const Identity& identity, const proto::Open& open);
  void Close(ConnId conn);
  void Leave(ConnId conn);  // as Close, but its session stays
  // Ends the session with `why`: its client violated the protocol.
  void Fail(ConnId conn, const absl::Status& why);
  // A fault of the gateway's, such as an exception: the session is lost, whoever its client is.
  void FailSession(SessionId session, const absl::Status& why);
  // Ends the client's stream with `why`: its key does not allow it. Its session stays for a resume
  // with another key, and gives its device back when its work is done.
  void Deny(ConnId conn, const absl::Status& why);
  // Ends the client's stream; its session stays for a resume.
  void ClientBroke(ConnId conn);
  void ClientActs(ConnId conn);  // it sent work while its session slept

  // ListSessions: all sessions of an account. StopSession ends one, given by its name or id, and
  // returns its final bill.
  // Errors: NOT_FOUND  the account has no such session
  std::vector<GatewayCore::Listed> ListSessions(TenantId tenant) const;
  absl::StatusOr<std::pair<SessionId, Bill>> StopSession(TenantId tenant,
                                                         const std::string& session);

  // Routes the session's large values to `endpoint`, which replaces any previous one.
  // Errors: NOT_FOUND  no such session of the tenant, or another token
  absl::Status OpenValues(ValuesEndpoint* endpoint, const Identity& identity, SessionId session,
                          Token token);
  void ValuesWritable(SessionId session);
  void CloseValues(ValuesEndpoint* endpoint, SessionId session);

  // ---- workers; called through WorkerPort
  // Sets the socket name that workers get in Welcome. Call before the first worker can join.
  void SetLocalSocket(std::string name) { local_socket_ = std::move(name); }
  // `owner`: whose key it showed, if it is a machine of that account's own. `node_serial`:
  // of one that booted over the network; empty: it is none.
  WorkerId AddWorker(WorkerEndpoint* endpoint, const proto::Register& reg,
                     const Identity* owner = nullptr, const std::string& node_serial = "");
  void RemoveWorker(WorkerId worker);
  // Call before what it says is looked at. False: nothing of it counts any more, its stream is
  // being ended; with RESOURCE_EXHAUSTED where a machine of an account's own said too much.
  bool MaySpeak(WorkerId worker);
  // Ends the worker's stream with RESOURCE_EXHAUSTED where it names more sessions than it was
  // given.
  void OnHeartbeat(WorkerId worker, const proto::Heartbeat& beat);
  // Receipts of a Heartbeat, or the last one of a lease, which is kept with the next tick. Ends the
  // worker's stream with RESOURCE_EXHAUSTED where there are more than its leases need.
  void OnReceipts(WorkerId worker, std::vector<proto::Receipt> receipts, bool is_last);
  void OnDeviceOut(WorkerId worker, const proto::DeviceOut& out);
  void OnLinkMeasured(WorkerId worker, const proto::LinkMeasured& measured);
  void OnDraining(WorkerId worker);
  // The worker's executor of the session has ended. What it still sent on its stream, such as why
  // it failed, is read before the core decides.
  void OnSessionEnded(WorkerId worker, const proto::SessionEnded& ended);

  // ---- executors; called through ExecutorPort
  // Attaches an executor and returns the relay of its session.
  // Errors: PERMISSION_DENIED  the session does not wait for an executor with this token
  absl::StatusOr<std::shared_ptr<Relay>> Attach(SessionId session, Token token,
                                                ExecutorEndpoint* endpoint, uint32_t rank = 0);
  // The stream of `relay`'s executor of this rank has ended.
  void Detached(SessionId session, const Relay* relay, uint32_t rank = 0);
  // Returns the tenant of the executor that holds this attach token.
  // Errors: PERMISSION_DENIED  it is not, or no longer, the session's executor
  //         UNAVAILABLE        it may be, once its worker has joined again
  absl::StatusOr<TenantId> TenantOf(SessionId session, Token token) const;
  // Makes this snapshot the one that a replacement executor starts from; of a session on several
  // devices the parts of all ranks do, together. `done` is called once the session's row names it;
  // of a part of several at once, since only SnapshotDurable, which waits for the row, tells the
  // ranks that they may forget; or with an error:
  //   NOT_FOUND  the session has ended
  //   ABORTED    the caller is no longer its executor; the successor may have started from the
  //              previous snapshot
  //   UNAVAILABLE  the gateway ends (D8), and the row names the previous snapshot
  void KeepSnapshot(SessionId session, Token token, const std::string& root, uint64_t seq,
                    std::function<void(absl::Status)> done, uint32_t rank = 0);
  // The gateway's own disk could not store what the session's executor sent: what it repeats for
  // want of that is free.
  void SnapshotNotKept(SessionId session, Token token);
  // The executors that it has, or is to have; 0: no such session.
  uint32_t ExecutorsOf(SessionId session) const;
  // OK while a Save under this name waits for its answer: a client's key may write names.
  // Errors: NOT_FOUND    no client has asked for it
  //         UNAVAILABLE  no client is connected: nobody knows what it asked for
  //         ABORTED      a client may have, of an earlier gateway: it has to ask again
  absl::Status CheckAskedFor(SessionId session, std::string_view name) const;

  // ---- shutdown
  void Drain();
  // Waits until no session is left, at most `limit`.
  void AwaitEmpty(std::chrono::milliseconds limit);
  void StopAll();

  uint32_t devices_total() const;
  bool AwaitDevices(uint32_t count, std::chrono::milliseconds limit);
  size_t session_count() const;
  Census CountAll() const;
  FleetView Look() const;
  // Checks the numbered invariants of core_driver.cc and of the core; returns "" or a description
  // of the violation.
  std::string CheckInvariants() const;

 private:
  struct Client;
  struct Session;
  struct Worker;

  void Tell(const Event& event);  // under mutex_; does not throw
  void Do(Welcome& action);
  void Do(Assign& action);
  void Do(EndExecutor& action);
  void Do(DropExecutor& action);
  void Do(EndWorker& action);
  void Do(Live& action);
  void Do(Detach& action);
  void Do(IdleSoon& action);
  void Do(SleepBegins& action);
  void Do(ShareSnapshot& action);
  void Do(RequestSnapshot& action);
  void Do(Stored& action);
  void Do(Queued& action);
  void Do(Moving& action);
  void Do(EndClient& action);
  void Do(Post& action);
  void Do(TakeHold& action);
  void Do(EndHold& action);
  void Do(Forget& action);
  void Do(WriteSession& action);
  void Do(BeginLease& action);
  void Do(EndLease& action);
  WallTime WallAt(MonoTime at) const;

  std::vector<std::string> PhysicalDevicesOf(const std::vector<Seat>& seats) const;
  std::vector<std::string> HeldDevicesOf(const std::vector<Seat>& seats) const;
  enum class LeaseChange { kBegins, kEnds };
  void TellWorkers(const LeaseId& lease, const std::vector<Seat>& seats, LeaseChange which);
  void NoteReceipt(WorkerId id, const proto::Receipt& receipt, bool is_good);
  void KeepReceipts();
  void KeepReceiptsInTime();
  bool MaySend(WorkerId id, size_t receipts);  // counts them

  // Of a worker that is known: counts what it did, and sets it aside where that is proof.
  void OnOffence(WorkerId worker, const SessionId& session, telemetry::WorkerOffence kind);
  void TakeOffences();
  void CheckSpoken(WorkerId worker, const SessionId& session);
  // Whether a worker that joins has the session, as it says.
  bool MayClaim(WorkerId worker, const SessionId& session, Token token);
  void ForgetOldSuspicions();
  std::vector<WorkerId> WorkersOfNode(const std::string& serial) const;  // under mutex_
  void SetAside(WorkerId id, const std::string& why);
  void SetAside(const std::string& identity, std::string_view name, const std::string& why);
  void Cut(Worker& worker, const absl::Status& why);
  void BeginAllowances(Worker& worker);
  bool MayName(WorkerId id, size_t sessions);
  void TellAside(const std::string& identity, bool aside);
  void LookAtIdentity(WorkerId id);  // of one that has just joined
  void LookAtQuarantine();

  DeviceSlot SlotOf(const proto::Device& device, bool is_own) const;  // under mutex_
  absl::Status CheckClass(const proto::Open& open) const;  // likewise
  bool ResumeRuns(TenantId tenant, uint32_t devices, const proto::GroupState& state,
                  std::shared_ptr<GroupRuns>& runs);
  void LoseGroup(SessionRow row);
  Client* FindClient(ConnId conn) const;
  Session* Find(const SessionId& session) const;
  Session& Entry(const SessionId& session);
  Worker* FindWorker(WorkerId worker) const;
  std::string NameOf(WorkerId worker) const;
  void Connect(const Live& live);
  static std::optional<int64_t> QueueNsOf(const proto::Open& open);
  static std::optional<MicroUsd> MaxCostOf(const proto::Open& open);  // has been checked
  void BeginRelay(SessionId id, TenantId tenant, size_t ranks, bool replays);
  shard::DeviceSpeeds SpeedsOf(const proto::Register& reg) const;
  void MeasureLinksOf(WorkerId id, const proto::Register& reg);
  void MeasureLinks();  // those that may begin
  shard::DeviceSpeeds SpeedsFor(const Assign& assign, const Worker& first,
                                const shard::Mesh& mesh) const;
  std::shared_ptr<GroupRuns> RunsFor(const Assign& assign, const Worker& worker);
  absl::Status CopyGroup(const ShareSnapshot& share, std::string& state,
                         std::shared_ptr<GroupRuns>& runs);
  static std::string FirstStateOf(const Assign& assign, GroupRuns* runs);
  // Of the executors that begin; the same for all workers of a placement.
  Token TokenOf(const Assign& assign, const Worker& worker);
  void DropRelay(Session& session);
  static void SetValues(Session& session, ValuesEndpoint* endpoint);
  static void EndValues(Session& session, const absl::Status& why);
  absl::Status KeepPart(SessionId id, Session& session, uint32_t rank, const std::string& root,
                        uint64_t seq);
  void TellGone(ExecutorGone gone);
  void TellProgress();
  void TellProgress(SessionId id, const Session& session);
  void TellEnding(SessionId session);  // if there is one
  void TellOverdueEndings();
  void EndTheSilent();
  void Notify(const Client& client, int kind, const std::string& text, uint64_t count,
              std::optional<int64_t> expected_s = {});
  static bool KnowsToken(const Session& session, Token token);
  static absl::Status GivenUp();      // of what is refused after D8
  absl::Status WriteTrouble() const;  // why no session can be opened; OK: it can
  void RefuseWhatCannotBeWritten();
  void CheckKeys();
  void DenyKey(const std::string& key_id, const absl::Status& why);

  DriverHost* const host_;
  WriteQueue* const writes_;
  BlobUses* const blobs_;
  ClientAuth* const auth_;
  const CoreOptions options_;
  const DriverPlanted planted_;
  const std::unique_ptr<GraphAdmission> graph_admission_;
  const std::unique_ptr<GraphBytes> graphs_;
  const std::unique_ptr<GraphSharder> sharder_;
  std::string local_socket_;
  DriverObserver* observer_;  // never null
  const LedgerHeads* heads_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  GatewayCore core_;
  uint64_t next_conn_ = 1, next_worker_ = 1;
  int64_t ticks_ = 0;
  std::optional<MonoTime> last_tick_;
  bool stopping_ = false, has_given_up_ = false;  // D8
  std::map<ConnId, std::unique_ptr<Client>> clients_;
  std::map<WorkerId, std::unique_ptr<Worker>> workers_;
  LinkTable links_;  // between them
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  // Tenants that share what is measured of their kernels, as the last client of each opened.
  std::set<TenantId> sharing_;
  std::set<ConnId> beginning_;  // clients whose session's first row is being written
  std::optional<std::pair<SessionId, Bill>> being_stopped_;  // within StopSession
  std::optional<SessionId> row_queued_of_;                   // within KeepSnapshot: its row is
  std::set<std::pair<SessionId, uint64_t>> holds_asked_;  // each TakeHold without an answer
  DeviceTime device_time_;
  struct Receipts;
  // That are not on disk yet, by who sent them: anybody may send some of any device.
  std::map<std::pair<LeasedDevice, WorkerId>, Receipts> receipts_;
  bool keep_receipts_soon_ = false;  // the last one of a lease is among them
  // What accounts' own machines may send, by account. Outlives their connections: who was cut off
  // comes back at once.
  std::map<TenantId, std::shared_ptr<Allowance>> own_receipts_;
  std::shared_ptr<const PriceList> prices_;
  struct Aside;
  WorkerQuarantine* quarantine_ = nullptr;
  absl::Status quarantine_trouble_;  // of the last time that it was written and read
  std::map<std::string, std::unique_ptr<Aside>> aside_;  // by identity
  // Of a worker's identity: the accounts of which an executor there said what none says, and when
  // it last did.
  using Suspicions = std::map<TenantId, MonoTime>;
  std::map<std::string, Suspicions> suspects_;
  // Resume hashes of sessions that ended with the previous gateway process.
  std::vector<Token> lost_;
};

}  // namespace outboard::gateway
