// One session's data path: passes frames between the client's stream and the executor's, and
// inspects as little of them as possible.
//
// Towards the executor: graphs are held until GraphAdmission has verified them, a Put by blob
// passes if the tenant has the blob, frames of another epoch are dropped. Towards the client: what
// only the gateway knows it fills in (names and price in Opened, the bill in Done, the worker in
// Failed), what an executor must not say it clears or bounds. Values and all else pass unchanged.
//
// A session on several devices has an executor for each rank. All ranks get the same items in the
// same order, and none is waited for; where workers have collectives, Runs name graphs that were
// written for the ranks and sent before (gateway/groups/). Answers are merged there, too.
//
// Threads: each side's frames come one at a time; both sides and the driver may call at once. Lock
// order: driver, relay, endpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/admission/graph_admission.h"
#include "gateway/admission/graph_bytes.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/core/events.h"
#include "gateway/data_path/endpoints.h"
#include "gateway/data_path/observer.h"
#include "gateway/data_path/relay_trace.h"
#include "gateway/groups/group_runs.h"
#include "gateway/groups/group_snapshots.h"
#include "gateway/groups/rank_answers.h"
#include "gateway/proof/heads.h"
#include "proto/cloud.pb.h"
#include "telemetry/metric.h"

namespace outboard::gateway {

// The parameters of an epoch, for the executor's Open and the client's Opened.
struct EpochStart {
  uint64_t epoch = 0;
  Token resume_token;
  std::string worker;  // for people
  MicroUsd price_per_hour;  // of each device
  std::string price_class = {};  // empty: there is no price file
  IdlePrices idle_prices = {};
  bool recoverable = false;
  uint32_t snapshot_ms = 0;
  std::string snapshot_root;
  uint64_t snapshot_seq = 0;  // of its last item
  std::optional<MicroUsd> max_cost = {};  // that the session is held to
  std::string name = {};                  // the session's
};

class Relay {
 public:
  // `clock`: of traces, and of the time that a device can have worked. `observer` may be null.
  // `ranks`: the session's executors.
  Relay(SessionId session, TenantId tenant, BlobUses* blobs, GraphAdmission* admission,
        RelayTrace::Clock clock = MonoNow, DriverObserver* observer = nullptr, uint32_t ranks = 1);

  // ---- the driver
  // Of all relays; before any frame. Without it graphs are not counted.
  void CountGraphs(GraphBytes* graphs) { graphs_ = graphs; }
  // Of a session on several devices, before any frame: writes its graphs for its ranks. Without it
  // every rank gets the client's graphs, and computes all of them.
  void SetRuns(std::shared_ptr<GroupRuns> runs) { runs_ = std::move(runs); }
  // Before any frame: whose signed head every Done carries. Without it none does.
  void SetHeads(const LedgerHeads* heads) { heads_ = heads; }
  void SetExecutor(ExecutorEndpoint* executor, uint32_t rank = 0);
  // Begins an epoch: sends Open to the executor, whose Opened goes to `client`.
  void Connect(ClientEndpoint* client, const EpochStart& start, const proto::Open& open);
  // Disconnect the argument if it is the current one; nullptr: the current one.
  void DropClient(ClientEndpoint* client);
  void DropExecutor(ExecutorEndpoint* executor);
  void RequestSnapshot();  // of the executor, whatever its epoch; of several once they can
  // Of a session on several devices. What has become of a snapshot that its ranks were told to
  // take: a rank has kept its part; all parts are kept, and the session's row says so.
  void PartKept(uint32_t rank, uint64_t seq);
  void SnapshotDurable(uint64_t seq);
  void CheckSnapshot();  // at every tick: tells the ranks to take one, if it is due
  void EndExecutor();      // closes its stream, or those of all ranks
  bool has_executor(uint32_t rank = 0) const;
  uint32_t ranks() const { return static_cast<uint32_t>(executors_.size()); }
  // Routes large values to `values`; nullptr: to the client's stream, like all others.
  void SetValues(ValuesEndpoint* values);
  void SetBill(const Bill& bill);
  // The kernels that the session's Runs have used since its last snapshot, for a relay that
  // replaces this one. `replays`: the executor is new and must be sent the kernel uses; otherwise
  // it has it already.
  using KernelUses =
      std::map<std::pair<uint64_t, std::string>, proto::KernelUse>;  // by seq and kernel
  using KernelUsesOfRanks = std::vector<KernelUses>;  // by rank; empty: of none
  KernelUsesOfRanks TakeKernelUses();
  void GiveKernelUses(KernelUsesOfRanks kernel_uses, bool replays);
  // Sends the last Done and, unless `why` is OK, a Failed; then ends the client's stream.
  // `head`: as every Done has it; null: none.
  static void SendEnd(ClientEndpoint& client, const absl::Status& why, const Bill& bill,
                      uint64_t epoch, uint64_t through_seq, bool is_kept = false,
                      const proto::LedgerHead* head = nullptr);
  bool busy() const { return sent_seq_ > done_seq_; }
  bool awaits_saved() const;  // the answer of a Save
  bool awaits_saved(std::string_view name) const;
  bool has_open_client() const;  // a client is connected, and has had the answer to its Open
  // The executor has items of this client that an earlier gateway passed on: it does not send them
  // again, and what it awaits of them is not known here.
  bool has_unseen_items() const;
  bool is_opening() const;    // the client has not had the answer to its Open
  bool has_opened() const;    // it has had, in the epoch of the last Connect
  bool is_streaming() const;  // the executor waits until its client has taken what was sent
  uint64_t done_seq() const { return done_seq_; }
  uint64_t epoch() const;
  TenantId tenant() const { return tenant_; }
  SessionId session() const { return session_; }
  // With which the executor ended the session, or a fault of the gateway (R9) does; OK: none.
  absl::Status failure() const;
  // What its executor did since the last call that an honest one does not; the last of it.
  std::optional<telemetry::WorkerOffence> TakeOffence();

  // ---- the client's stream
  // True if FromClient would verify, hash or read the disk: then it must not run on gRPC's threads.
  static bool IsHeavy(const proto::ClientFrame& frame);
  // Likewise, where a graph is to be written for the ranks first.
  // Errors: as of FromClient, which is not called then: what was planned is not planned twice.
  absl::StatusOr<bool> MustWrite(ClientEndpoint* client, const proto::ClientFrame& frame);
  // Passes a frame to the executor. An error ends the session (INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED, and those of BlobUses). Sets `pause` if reading must stop until the relay
  // calls ResumeReading.
  absl::Status FromClient(ClientEndpoint* client, proto::ClientFrame frame, bool& pause);
  // ---- the executor's stream
  void FromExecutor(ExecutorEndpoint* executor, proto::ServerFrame frame, bool& pause);
  // ---- called when that side may be sent more, after AskWritable
  void ExecutorWritable(ExecutorEndpoint* executor);
  void ClientWritable();

 private:
  // ---- of FromClient (relay_from_client.cc)
  bool IsCurrent(const ClientEndpoint* client, uint64_t epoch) const;  // under mutex_
  absl::StatusOr<std::optional<proto::ClientFrame>> CheckItems(ClientEndpoint* client,
                                                               proto::ClientFrame frame);
  absl::StatusOr<bool> PrepareRuns(ClientEndpoint* client, uint64_t epoch,
                                   const proto::ClientFrame& frame);
  void RewriteForRanks(proto::ClientFrame& frame);  // under mutex_
  void NoteSaves(const proto::ClientFrame& frame);  // under mutex_
  absl::Status OnGraph(ClientEndpoint* client, proto::Graph& graph, proto::ClientFrame& out);
  struct ReceivedGraph {
    std::string bytes;
    GraphBytes::Held held;
  };
  absl::StatusOr<std::optional<ReceivedGraph>> AddPiece(ClientEndpoint* client,
                                                        const proto::Graph& piece);
  void DropGraph();
  absl::Status CheckBlob(const proto::ClientItem& item, uint64_t behind_seq);
  void ResumeClient();
  void ResumeExecutors();
  bool has_all() const;  // executors
  class BreaksIfThrown;
  void Break() noexcept;  // under mutex_
  void SendWritten(const std::vector<std::shared_ptr<const WrittenGraph>>& graphs);
  void SendToAll(proto::ClientFrame frame);
  struct RankStream;
  RankStream* Find(const ExecutorEndpoint* executor);
  bool Merge(RankStream& from, proto::ServerFrame& frame);
  // ---- of FromExecutor
  void OnDone(RankStream& from, proto::Done& done, uint64_t came_ns);
  void OnFailed(proto::Failed& failed);
  void NameClientsNode(proto::Failed& failed);
  void OnOpened(proto::Opened& opened);
  void NoteKernelUses(RankStream& rank,
                      const google::protobuf::RepeatedPtrField<proto::KernelUse>& kernel_uses);
  void ForgetKernelUses(uint64_t durable_seq);
  void AskForSnapshotIfDue();
  bool HaveParted() const;
  bool MayEnter();
  void NoteDone(const proto::ServerFrame& frame);
  void FillDone(proto::Done& done);  // with what the gateway knows
  void SendLarge(proto::Done& done);
  void NoteDevice(const proto::Opened& opened);
  uint64_t BelievedDeviceUs(uint64_t device_us);
  void NoteDeviceTime(uint64_t device_us);

  const SessionId session_;
  const TenantId tenant_;
  BlobUses* const blobs_;
  GraphAdmission* const admission_;
  GraphBytes* graphs_ = nullptr;
  const LedgerHeads* heads_ = nullptr;
  DriverObserver* const observer_;
  std::atomic<uint64_t> sent_seq_{0}, done_seq_{0};
  const RelayTrace::Clock clock_;
  RelayTrace trace_;

  mutable std::mutex mutex_;
  struct RankStream {
    ExecutorEndpoint* endpoint = nullptr;
    bool paused = false;  // what it sends is not read
    bool full = false;    // it says when it is writable again
    KernelUses kernel_uses = {};  // since the last snapshot
    size_t kernel_uses_bytes = 0;
    // Of another endpoint, which has that rank now.
    void Replace(ExecutorEndpoint* by) { endpoint = by, paused = full = false; }
  };
  ClientEndpoint* client_ = nullptr;
  std::vector<RankStream> executors_;    // by rank
  std::unique_ptr<RankAnswers> answers_;  // null: there is one rank
  std::shared_ptr<GroupRuns> runs_;       // null: all ranks get what the client sends
  SnapshotAsks asks_;                     // of several ranks
  ValuesEndpoint* values_ = nullptr;
  bool client_paused_ = false;
  EpochStart start_;
  Bill bill_;
  absl::Status failure_;
  bool is_broken_ = false;  // R9
  std::string graph_id_, graph_bytes_;  // partially received from client_
  GraphBytes::Held graph_held_;         // of graph_bytes_
  size_t device_class_ = 0;             // label of telemetry::Metric::kDeviceTime
  std::optional<uint64_t> device_us_;   // that were counted; none: it is not known yet
  uint64_t believed_from_us_ = 0;       // the device time that was known at believed_since_
  MonoTime believed_since_;
  std::map<uint64_t, std::string> saves_;  // names, by items whose answer has not come
  bool opened_ = false;  // the executor has answered this epoch's Open
  std::optional<telemetry::WorkerOffence> offence_;
  bool replays_ = false;  // the executor is new and has not been sent the kernel uses
  bool is_fresh_ = false;  // this epoch began with new executors
  bool is_entered_ = false;  // likewise, by a client that did not send what came before
  bool has_unseen_ = false;
  uint64_t generation_ = 0;  // of runs_, in which the client of this epoch sends
};

// R9, of what holds the lock.
class Relay::BreaksIfThrown {
 public:
  explicit BreaksIfThrown(Relay& relay) : relay_(relay) {}
  ~BreaksIfThrown() {
    if (std::uncaught_exceptions() > before_) relay_.Break();
  }

 private:
  Relay& relay_;
  const int before_ = std::uncaught_exceptions();
};

}  // namespace outboard::gateway
