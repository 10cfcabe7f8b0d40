// A session's state and the meaning of its items (proto/cloud.proto), without I/O: frames in,
// frames out. The engine it is given does the computing, in the calling thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "worker/engine.h"

namespace outboard::worker {

struct ExecutorOptions {
  std::string device_name;     // for people
  std::string hardware_class;  // what tuning is shared by
  // Replay: the plan_log() of the session whose Runs these are.
  std::vector<PlanLogEntry> follow;
};

class ExecutorCore {
 public:
  ExecutorCore(Engine* engine, ExecutorOptions options);
  ~ExecutorCore();

  // Applies a frame. Answers are handed to `send` as they fill up, each at most
  // wire::kFrameBytesMax, so that values of any size need no memory beside their own.
  using SendFrame = std::function<void(proto::ServerFrame)>;
  void On(proto::ClientFrame frame, const SendFrame& send);
  // All answers together.
  std::vector<proto::ServerFrame> On(proto::ClientFrame frame);

  // After Close, or an error of the session: nothing more is accepted.
  bool ended() const { return ended_; }
  // Of any thread: a watchdog looks whether it moves.
  uint64_t applied_seq() const { return applied_seq_; }
  // The kernels in use, and since when (plan_log.h).
  const std::vector<PlanLogEntry>& plan_log() const { return plan_log_.entries(); }

 private:
  struct Entry;  // of the handle table: an array, or why there is none
  struct GraphEntry;
  struct PartialPut;
  // What the client has not acknowledged: a value, which shares the array's memory, or a failure.
  struct Kept {
    ArrayPtr array;
    uint32_t index = 0;
    uint64_t handle = 0;
    proto::ServerItem failed;
  };

  void Handle(proto::ClientItem item);
  void OnOpen(const proto::Open& open, uint64_t epoch);
  void OnGraph(const proto::Graph& graph);
  void GraphArrived(const std::string& id);
  void OnAck(const proto::Ack& ack);
  void OnClose();
  void OnSequenced(proto::ClientItem item);
  void Drain();
  bool TryApply(const proto::ClientItem& item);  // false: waits for a graph
  void ApplyRun(uint64_t seq, const proto::Run& run, const GraphEntry& graph);
  void ApplyPut(uint64_t seq, const proto::Put& put);
  void ApplyFetch(uint64_t seq, const proto::Fetch& fetch);

  absl::Status CheckRun(const proto::Run& run) const;
  absl::StatusOr<std::vector<ArrayPtr>> RunGraph(uint64_t seq, const GraphEntry& graph,
                                                 std::vector<ArrayPtr> inputs,
                                                 std::span<const Binding> bindings,
                                                 std::span<const int64_t> donated);
  void Fail(uint64_t seq, uint64_t cause_seq, const absl::Status& status,
            std::vector<uint64_t> handles, std::string_view graph_id = {});
  void EndSession(const absl::Status& status);
  void SendValue(uint64_t seq, const Kept& kept);
  void Send(proto::ServerItem item);
  void Flush();
  // Sends it, and again after a reconnection, until it is acknowledged.
  void Keep(uint64_t seq, Kept kept);
  void SendKept(uint64_t seq, const Kept& kept);
  void Acknowledge(uint64_t through_seq);
  proto::Done* DoneHeader(proto::ServerItem& item) const;

  Engine* engine_;
  ExecutorOptions options_;
  bool open_ = false;
  bool ended_ = false;
  uint64_t epoch_ = 0;
  std::atomic<uint64_t> applied_seq_ = 0;
  uint64_t told_seq_ = 0;  // the last Done.through_seq
  absl::flat_hash_map<uint64_t, Entry> handles_;
  absl::flat_hash_map<std::string, std::unique_ptr<GraphEntry>> graphs_;
  uint64_t graph_bytes_ = 0;  // received
  PlanLog plan_log_;
  size_t followed_ = 0;  // of options_.follow
  std::unique_ptr<PartialPut> put_;
  std::deque<proto::ClientItem> waiting_;  // for a graph
  uint64_t waiting_bytes_ = 0;             // of Puts that came since waiting_ was last empty
  std::string needed_;                     // the graph asked for
  std::multimap<uint64_t, Kept> kept_;
  size_t kept_failed_bytes_ = 0;
  const SendFrame* send_ = nullptr;  // during On
  proto::ServerFrame out_;           // the answer that fills up
  size_t out_bytes_ = 0;
};

}  // namespace outboard::worker
