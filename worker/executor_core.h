// A session's state and the meaning of its items (proto/cloud.proto), without I/O: frames in,
// frames out. The engine it is given does the computing, in the calling thread. Here is the order of
// items, epochs and answers; what the items mean to the state is session_state.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "worker/engine.h"
#include "worker/frame_writer.h"
#include "worker/graph_table.h"
#include "worker/session_state.h"
#include "worker/trace.h"
#include "worker/unacknowledged.h"

namespace outboard::worker {

struct ExecutorOptions {
  std::string device_name;     // for people
  std::string hardware_class;  // what tuning is shared by
  // Replay: the plan_log() of the session whose Runs these are.
  std::vector<PlanLogEntry> follow;
  Trace::NowNs now_ns;  // for traces that clients ask for; empty: they get none
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

  // After Close, or an error of the session: nothing more is accepted.
  bool ended() const { return ended_; }
  // Of any thread: a watchdog looks whether it moves.
  uint64_t applied_seq() const { return applied_seq_; }
  // The kernels in use, and since when (plan_log.h).
  const std::vector<PlanLogEntry>& plan_log() const { return state_.plan_log().entries(); }

 private:
  void Handle(proto::ClientItem item);
  void OnOpen(const proto::Open& open, uint64_t epoch);
  void OnGraph(const proto::Graph& piece);
  void OnClose();
  void OnSequenced(proto::ClientItem item);
  void Drain();
  bool TryApply(const proto::ClientItem& item);  // false: waits for a graph
  void EndSession(const absl::Status& status);
  // Sends it, and again after a reconnection, until it is acknowledged.
  void Keep(uint64_t seq, Kept kept);
  void SendKept(uint64_t seq, const Kept& kept);
  void SendValue(uint64_t seq, const Kept& kept);
  void SendDone();
  proto::Done* DoneHeader(proto::ServerItem& item) const;
  void TraceFrame(const proto::ClientFrame& frame);

  Engine* const engine_;
  const ExecutorOptions options_;
  bool open_ = false;
  bool ended_ = false;
  uint64_t epoch_ = 0;
  std::atomic<uint64_t> applied_seq_ = 0;
  uint64_t told_seq_ = 0;  // the last Done.through_seq
  SessionState state_;
  GraphTable graphs_;
  Unacknowledged unacknowledged_;
  std::deque<proto::ClientItem> waiting_;  // for a graph
  uint64_t waiting_bytes_ = 0;             // of Puts that came since waiting_ was last empty
  std::string needed_;                     // the graph asked for
  FrameWriter out_;
  std::unique_ptr<Trace> trace_;  // where Open asked for it
};

}  // namespace outboard::worker
