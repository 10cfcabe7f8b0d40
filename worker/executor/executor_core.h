// The state machine of a session on a worker (proto/cloud.proto), without I/O: frames in, frames
// out. The engine computes in the calling thread. This class handles the order of items, epochs and
// answers; session_state.h applies items to the state.
//
// Errors: a session ends with INVALID_ARGUMENT (a malformed frame), FAILED_PRECONDITION (a frame
// out of order) or RESOURCE_EXHAUSTED (a limit of wire/limits.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "proto/executor.pb.h"
#include "worker/engine/engine.h"
#include "worker/engine/trace.h"
#include "worker/session/blob_inbox.h"
#include "worker/session/blob_part.h"
#include "worker/session/graph_table.h"
#include "worker/session/persist_request.h"
#include "worker/session/restoration.h"
#include "worker/session/session_state.h"
#include "worker/session/snapshot_schedule.h"
#include "worker/session/unacknowledged_answers.h"

namespace outboard::worker {

// Packs a session's answers into ServerFrames of one epoch, each at most wire::kFrameBytesMax and
// wire::kFrameItemsMax, and sends each as it fills up: a value of any size needs no extra memory.
class FrameWriter {
 public:
  using SendFrame = std::function<void(proto::ServerFrame)>;

  // Sets the receiver of frames; with nullptr, nothing may be written.
  void SetTarget(const SendFrame* send) { send_ = send; }
  // Sets the epoch of later frames. Items written before keep the previous epoch.
  void SetEpoch(uint64_t epoch);
  void Write(proto::ServerItem item);
  void Flush();

 private:
  const SendFrame* send_ = nullptr;
  uint64_t epoch_ = 0;
  proto::ServerFrame frame_;
  size_t bytes_ = 0;
};

// Planted bugs that the simulator must find (tests/sim); never set elsewhere.
struct PlantedBugs {
  bool ack_before_store = false;  // reports a snapshot as durable when it is begun
  bool no_seq_check = false;      // applies items again that were applied before
  bool snapshot_late = false;     // a rank's snapshot has items behind the one that was told
  bool goes_on_alone = false;     // a rank applies items after its group has ended
};

struct ExecutorOptions {
  std::string device_name;     // for people
  std::string hardware_class;  // machines that share tuning results
  // For a replay: the kernel_use_log() of the session that is replayed.
  std::vector<KernelUseRecord> follow;
  PlantedBugs planted;
  // Waits until the holder of a PersistRequest has released it; called when memory is short.
  std::function<void()> let_go;
  // For traces that clients ask for, and for Dones within a frame; empty: there are neither.
  ExecutorTrace::NowNs now_ns;
};

class ExecutorCore {
 public:
  ExecutorCore(Engine* engine, ExecutorOptions options);
  ~ExecutorCore();

  // Applies a frame. Passes answers to `send` as frames fill up, each at most wire::kFrameBytesMax,
  // so that values of any size need no extra memory.
  using SendFrame = FrameWriter::SendFrame;
  void On(proto::ClientFrame frame, const SendFrame& send);
  // As above; returns all answers.
  std::vector<proto::ServerFrame> On(proto::ClientFrame frame);

  // ---- blobs; call after On or OnBlob
  // Returns the blobs to fetch. Each is answered by one OnBlob, with the verified bytes or an
  // error.
  std::vector<BlobWant> TakeBlobWants() { return inbox_.TakeWants(); }
  void OnBlob(const std::string& key, absl::StatusOr<runtime::DeviceBuffer> contents,
              const SendFrame& send);

  // ---- storing; call after On or OnBlob, and at wake_ms(). Times: of one monotonic clock.
  // Returns the next request, one at a time: nullptr until OnStored has answered the last. The last
  // reference must be released in this thread.
  std::shared_ptr<const PersistRequest> TakeStore(int64_t now_ms);
  void OnStored(const proto::Stored& stored, int64_t now_ms, const SendFrame& send);
  // Returns when TakeStore may have a new request; nullopt: not before the next event.
  std::optional<int64_t> wake_ms() const;

  // True after Close, or an error of the session: no more items are accepted.
  bool ended() const { return ended_; }
  // The last applied item. Threads: any.
  uint64_t applied_seq() const { return applied_seq_; }
  // Of a session on several devices: who this executor is among them. All of them apply the same
  // items; rank 0 answers with values, and stores checkpoints. Call before any frame.
  void SetRank(uint32_t rank) { rank_ = rank; }
  // Fails this Run with `why` instead of applying it. Call before its frame.
  void Refuse(uint64_t seq, absl::Status why) { state_.Refuse(seq, std::move(why)); }
  // The item that is being applied; between two, the last. Threads: any.
  uint64_t begun_seq() const { return begun_seq_; }
  // The item in which the device was lost (runtime::Device::health); 0: it is well.
  uint64_t lost_seq() const { return lost_seq_; }
  // Items plus repetitions, for a watchdog that checks for progress. Threads: any.
  uint64_t progress() const { return applied_seq_ + state_.repetitions(); }
  // The kernels in use, and since which Run (worker/session/kernel_use_log.h).
  const std::vector<KernelUseRecord>& kernel_use_log() const {
    return state_.kernel_use_log().entries();
  }

 private:
  void Handle(proto::ClientItem item);  // each of a frame: to one of those below
  void OnOpen(const proto::Open& open, uint64_t epoch);
  void SendOpened();
  absl::Status FollowKernelUses();
  void KnowKernelUses();
  absl::Status Restored();
  void OnGraph(const proto::Graph& piece);
  void OnTakeSnapshot(const proto::TakeSnapshot& told, uint64_t epoch);
  void TakeToldSnapshot();
  void MissToldSnapshot(uint64_t number);
  void FillSnapshot(PersistRequest& request);
  void CarryWaiting();  // into a new epoch: items that wait, of a stream that is replaced
  void OnClose();
  // Items with a number (Run, Put, Fetch ...) wait in waiting_, in order, until what they need is
  // here: OnSequenced adds one, ApplyWaiting applies those that can be, TryApply the first.
  enum class Applied {
    kDone,        // and done with: applied, or the session has ended with it
    kWaits,       // for its graph or its blob; it stays the first
    kGroupEnded,  // in the middle of it: nothing is applied any more
  };
  void OnSequenced(proto::ClientItem item);
  void ApplyWaiting();
  Applied TryApply(const proto::ClientItem& item);
  // Changes the session's state as the item says. nullopt: its graph or its blob is not here.
  std::optional<Outcome> ChangeState(const proto::ClientItem& item);
  std::optional<Outcome> ApplyRun(uint64_t seq, const proto::Run& run);
  std::optional<Outcome> ApplyPut(uint64_t seq, const proto::Put& put);
  // True if the group has ended in the item that was applied last: nothing can follow it.
  bool GroupHasEnded();
  void EndSession(const absl::Status& status);
  void ApplySave(uint64_t seq, const proto::Save& save);
  using Wholes = google::protobuf::RepeatedPtrField<proto::Whole>;
  SessionState::JoinGraphs JoinGraphsOf(const Wholes& wholes) const;
  void AnswerSave(SaveAnswer answer);
  // Sends an answer, and again after each reconnection until it is acknowledged.
  void SendAndRetain(uint64_t seq, Answer answer);
  void SendAnswer(uint64_t seq, const Answer& answer);
  void SendValue(uint64_t seq, const Answer& answer);
  void SendDone();
  // Fills in the fields of every Done. Kernel uses that the client does not have go with it, or
  // before it, so that the client never has a value whose kernels it does not know.
  proto::Done* DoneHeader(proto::ServerItem& item);
  // To a Done or a snapshot: what this executor and those before it have done.
  template <typename Message>
  void AddStats(Message& message) const {
    const EngineStats& stats = engine_->stats();
    message.set_device_time_us(restored_.device_time_us + stats.device_time_us);
    message.set_kernels_launched(restored_.kernels_launched + stats.kernels_launched);
    message.set_operations(restored_.operations + stats.operations);
    message.set_bytes_accessed(restored_.bytes_accessed + stats.bytes_accessed);
  }
  void AddKernelUses(proto::Done& done);
  void BeginAnswers(const SendFrame& send);
  void SendProgress();  // ahead of a Run, if the last Done is long ago
  void FinishAnswers();
  uint64_t MemoryBytesMax() const { return static_cast<uint64_t>(engine_->memory_bytes_max()); }
  void TraceFrame(const proto::ClientFrame& frame);

  Engine* const engine_;
  const ExecutorOptions options_;
  uint32_t rank_ = 0;
  bool partner_left_ = false;  // nothing is applied any more
  bool open_ = false;
  bool ended_ = false;
  proto::Open opened_by_;  // the last Open
  uint64_t epoch_ = 0;
  std::atomic<uint64_t> applied_seq_ = 0;
  std::atomic<uint64_t> begun_seq_ = 0;
  uint64_t lost_seq_ = 0;
  uint64_t done_seq_ = 0;  // the last Done.through_seq
  uint64_t answered_ns_ = 0;   // when a frame's work began, or a Done was sent within it
  SessionState state_;
  GraphTable graphs_;
  UnacknowledgedAnswers unacknowledged_;
  uint64_t received_seq_ = 0;  // the client has all answers up to this one
  BlobInbox inbox_;
  std::unique_ptr<Restoration> restoration_;  // while it is in progress
  EngineStats restored_;                      // of the executors before, up to the snapshot
  SnapshotSchedule schedule_;
  std::deque<std::shared_ptr<PersistRequest>> saves_;  // not taken yet
  // Of a rank of several: the snapshot that it is to take, 0: none; the last number that it was
  // told in this epoch; the last that it has not stored; and one that is taken, and not written
  // yet.
  proto::TakeSnapshot ordered_snapshot_;
  uint64_t last_ordered_number_ = 0, last_missed_number_ = 0;
  bool missed_is_news_ = false;
  std::shared_ptr<PersistRequest> taken_snapshot_;
  uint64_t next_store_ = 1;
  // The request that was taken and not answered yet; only the adapter holds its arrays.
  struct Storing {
    uint64_t id, seq, total_bytes;
    bool checkpoint;
    uint64_t told;   // number of TakeSnapshot; 0: by its own schedule
    uint64_t epoch;  // of that
  };
  std::optional<Storing> storing_;
  size_t kernel_uses_told_ = 0;  // of the kernel use log
  std::set<std::pair<uint64_t, std::string>>
      known_kernel_uses_;                  // by the client, as it opened: seq, kernel
  std::deque<proto::ClientItem> waiting_;  // for a graph or a blob
  uint64_t carried_seq_ = 0;               // those up to here came in an earlier epoch
  bool opens_when_applied_ = false;        // the last Open is answered when none waits
  uint64_t waiting_bytes_ = 0;             // of Puts that came since waiting_ was last empty
  std::string graph_asked_for_;            // its id, or
  std::string blob_asked_for_;             // its key: what the first of waiting_ lacks
  FrameWriter out_;
  std::unique_ptr<ExecutorTrace> trace_;  // if Open asked for it
};

}  // namespace outboard::worker
