// A session's state and the meaning of its items (proto/cloud.proto), without I/O: frames in,
// frames out. The engine it is given does the computing, in the calling thread. Here is the order
// of items, epochs and answers; what the items mean to the state is session_state.h.
#pragma once

#include <atomic>
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
#include "worker/executor/frame_writer.h"
#include "worker/session/answer_log.h"
#include "worker/session/blob_inbox.h"
#include "worker/session/graph_table.h"
#include "worker/session/persist_request.h"
#include "worker/session/restoration.h"
#include "worker/session/session_state.h"
#include "worker/session/snapshot_schedule.h"

namespace outboard::worker {

// Mistakes for the simulator to find (tests/sim); never set elsewhere.
struct PlantedBugs {
  bool ack_before_store = false;  // durable is told when a snapshot is begun
  bool no_seq_check = false;      // what was applied is applied again
};

struct ExecutorOptions {
  std::string device_name;     // for people
  std::string hardware_class;  // what tuning is shared by
  // Replay: the plan_log() of the session whose Runs these are.
  std::vector<KernelUseRecord> follow;
  PlantedBugs planted;
  // Waits until whoever was given a PersistRequest has let go of it: called when memory is short.
  std::function<void()> let_go;
  ExecutorTrace::NowNs now_ns;  // for traces that clients ask for; empty: they get none
};

class ExecutorCore {
 public:
  ExecutorCore(Engine* engine, ExecutorOptions options);
  ~ExecutorCore();

  // Applies a frame. Answers are handed to `send` as they fill up, each at most
  // wire::kFrameBytesMax, so that values of any size need no memory beside their own.
  using SendFrame = FrameWriter::SendFrame;
  void On(proto::ClientFrame frame, const SendFrame& send);
  // All answers together.
  std::vector<proto::ServerFrame> On(proto::ClientFrame frame);

  // ---- blobs, after On or OnBlob
  // What to get; each is answered by one OnBlob, with the bytes, verified, or why they are not
  // there.
  std::vector<BlobWant> TakeBlobWants() { return inbox_.TakeWants(); }
  void OnBlob(const std::string& root, absl::StatusOr<runtime::DeviceBuffer> contents,
              const SendFrame& send);

  // ---- what is to be stored, after On or OnBlob, and at wake_ms(). Times: of one monotonic clock.
  // One at a time: nullptr until OnStored has answered the last. The last reference is let go of in
  // this thread.
  std::shared_ptr<const PersistRequest> TakeStore(int64_t now_ms);
  void OnStored(const proto::Stored& stored, int64_t now_ms, const SendFrame& send);
  // When there may be something to take that is not there now; nullopt: not before an event.
  std::optional<int64_t> wake_ms() const;

  // After Close, or an error of the session: nothing more is accepted.
  bool ended() const { return ended_; }
  // Of any thread.
  uint64_t applied_seq() const { return applied_seq_; }
  // Items and repetitions; of any thread: a watchdog looks whether it moves.
  uint64_t progress() const { return applied_seq_ + state_.repetitions(); }
  // The kernels in use, and since when (plan_log.h).
  const std::vector<KernelUseRecord>& plan_log() const { return state_.plan_log().entries(); }

 private:
  void Handle(proto::ClientItem item);
  void OnOpen(const proto::Open& open, uint64_t epoch);
  void SendOpened();
  absl::Status FollowPlan();
  void KnowPlan();
  absl::Status Restored();
  void OnGraph(const proto::Graph& piece);
  void OnClose();
  void OnSequenced(proto::ClientItem item);
  void Drain();
  bool TryApply(const proto::ClientItem& item);  // false: waits
  void EndSession(const absl::Status& status);
  void ApplySave(uint64_t seq, const proto::Save& save);
  void AnswerSave(SaveAnswer answer);
  // Sends it, and again after a reconnection, until it is acknowledged.
  void Retain(uint64_t seq, Answer kept);
  void SendKept(uint64_t seq, const Answer& kept);
  void SendValue(uint64_t seq, const Answer& kept);
  void SendDone();
  // What every Done says. Plan entries that the client does not have go with it, or before it, so
  // that no value is there whose kernels are not known.
  proto::Done* DoneHeader(proto::ServerItem& item);
  void AddPlan(proto::Done& done);
  void FinishAnswers();
  uint64_t MemoryBytesMax() const { return static_cast<uint64_t>(engine_->memory_bytes_max()); }
  void TraceFrame(const proto::ClientFrame& frame);

  Engine* const engine_;
  const ExecutorOptions options_;
  bool open_ = false;
  bool ended_ = false;
  proto::Open opened_by_;  // the last Open
  uint64_t epoch_ = 0;
  std::atomic<uint64_t> applied_seq_ = 0;
  uint64_t told_seq_ = 0;  // the last Done.through_seq
  SessionState state_;
  GraphTable graphs_;
  AnswerLog unacknowledged_;
  uint64_t received_seq_ = 0;  // answers up to here are with the client
  BlobInbox inbox_;
  std::unique_ptr<Restoration> restoration_;  // while it is under way
  uint64_t restored_us_ = 0, restored_kernels_ = 0;
  SnapshotSchedule schedule_;
  std::deque<std::shared_ptr<PersistRequest>> saves_;  // not taken yet
  uint64_t next_store_ = 1;
  // The one that was taken and is not answered; its arrays are only the adapter's.
  struct Storing {
    uint64_t id, seq, total_bytes;
    bool checkpoint;
  };
  std::optional<Storing> storing_;
  size_t plan_told_ = 0;  // of the plan log
  std::set<std::pair<uint64_t, std::string>>
      plan_known_;                         // by the client, as it opened: seq, kernel
  std::deque<proto::ClientItem> waiting_;  // for a graph or a blob
  uint64_t waiting_bytes_ = 0;             // of Puts that came since waiting_ was last empty
  std::string needed_;                     // the graph asked for
  std::string needed_blob_;                // or the blob
  FrameWriter out_;
  std::unique_ptr<ExecutorTrace> trace_;  // where Open asked for it
};

}  // namespace outboard::worker
