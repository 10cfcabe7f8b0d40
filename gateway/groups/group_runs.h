// The Runs of a session on several devices, as its ranks get them: the layout of every handle, and
// of each Run the graph that was written for the layouts of its inputs (graph_sharder.h). Nobody is
// asked for a layout: every array is a Put, which is whole on all ranks, or a result of a Run whose
// graph was written here.
//
//   Put       defines a whole array; one by blob that would fill a device's memory is cut, and each
//             rank keeps its rows
//   Run       names the written graph; an input or result that is state, fetched or carried into
//             the next repetition is told to who writes it
//   Fetch, Save   of an array that is cut name the graph that makes it whole (Whole in
//             cloud.proto), and Runs for values that they are asked for
//   Release, donated inputs   end a handle
//
// An item is planned once: what it means depends on the items before it, and a client that comes
// back sends again what some ranks have not applied, or others are to apply again behind a
// snapshot. Until that is over, it is remembered what was written for it.
//
// Limits: those of an executor, which ends the session: handles, graphs and their bytes.
// Threads: any. Calls with a frame come in the order of the frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/shard/shard.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/groups/handle_table.h"
#include "gateway/ledger/ids.h"
#include "proto/cloud.pb.h"
#include "proto/groups.pb.h"

namespace outboard::gateway {

class GroupRuns {
 public:
  // `gathers_fetched`: the ranks know Run.whole.
  GroupRuns(TenantId tenant, shard::Mesh mesh, shard::Spread spread, GraphSharder* sharder,
            bool gathers_fetched = true)
      : tenant_(tenant),
        mesh_(std::move(mesh)),
        spread_(spread),
        sharder_(sharder),
        gathers_fetched_(gathers_fetched) {}

  // A graph of the client's that was verified.
  // Errors: RESOURCE_EXHAUSTED  the session has too many
  absl::Status AddGraph(const std::string& id, std::string bytes);
  // One that was refused: Runs of it fail with `why`. The refusal is sent to the ranks in place of
  // a graph, again in each epoch, since executors that are new have not heard of it.
  // Errors: RESOURCE_EXHAUSTED  the session has too many
  absl::Status AddRefused(const std::string& id, absl::Status why);
  enum class Planned {
    kAll,       // of the frame, or as much as there is to plan of it
    kMustWrite  // an item needs a graph that is not written yet, and `may_write` is false
  };
  // Decides what is sent for the items of `frame`, in order. kMustWrite: call it again where to
  // write a graph may take its time.
  // `generation`: that of the client that sent it; of another one than the last nothing is planned.
  // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED: the session ends
  //         INTERNAL  an earlier call threw (GR4): likewise
  absl::StatusOr<Planned> PlanFrame(bool may_write, const proto::ClientFrame& frame,
                                    uint64_t generation = 0);
  // Changes the items, which are planned and are sent now, into those for the ranks, and adds the
  // graphs that they name to `graphs`, unless that happened in this epoch.
  void Rewrite(proto::ClientFrame& frame, std::vector<std::shared_ptr<const WrittenGraph>>& graphs);

  // What a device of the session has, in bytes; 0: not known. The least of several calls counts.
  void LimitMemory(uint64_t bytes);
  // By which choices are predicted. Before the first frame.
  void SetSpeeds(const shard::DeviceSpeeds& speeds) { speeds_ = speeds; }
  // The last item that was rewritten, in any epoch.
  uint64_t sent_seq();
  // A snapshot is asked for of the items up to `seq`: remembers how the arrays lie behind it, for a
  // gateway that is started again. Nothing where later items were sent already, or the arrays are
  // more than a row takes.
  void NoteSnapshot(uint64_t seq);
  // What was noted of it, now that it is the session's snapshot. Forgets what was noted before.
  std::optional<proto::GroupState> TakeNoted(uint64_t seq);
  // That of a session that has run nothing; then of one that goes on behind a snapshot.
  proto::GroupState Describe();
  // Requires that nothing was planned. Errors: DATA_LOSS: `state` has what cannot be.
  absl::Status Resume(const proto::GroupState& state);
  // The client has gone, or another stream takes the place of its own: what it sent and is not
  // rewritten yet is taken back, and what comes of it is not planned. Returns the next generation.
  uint64_t BeginGeneration();
  // Another client goes on behind item `seq`: later ones were never applied. False: it is neither
  // the last item nor that of the session's snapshot, so nobody knows how arrays lie there.
  bool GoOnBehind(uint64_t seq);
  // `kept` is rank 0's: arrays that are cut have the dimensions of the whole.
  void DescribeWhole(proto::Kept& kept);
  void Restart();                   // a new epoch: what was sent may not have arrived
  void Done(uint64_t through_seq);  // no rank is sent the items up to this one again
  struct Original {
    std::string graph_id;                       // the client's
    std::optional<FailedNode> refused;  // of it, where it could not be written
  };
  // The client's graph that the named one was written for, if it was.
  std::optional<Original> OriginalOf(const std::string& graph_id);
  // What the client is to be told of the graphs of the frames since the last call: gathers that no
  // hint asked for, once for each graph in a session.
  std::vector<proto::Notice> TakeNotices();

 private:
  struct Handle {
    // How its parts lie, and of what; null: it is whole.
    std::shared_ptr<const WrittenGraph::Result> cut;
    int64_t bytes = 0;      // that each rank stores
    uint32_t layout = 0;    // as CodeOf has it
    bool is_state = false;  // a Run left it
  };
  // What the graph that is written for a Run depends on, beside the client's graph: whatever UseOf
  // reads of the Run and of the arrays that it names, as one list. A Run of hundreds of arrays is
  // described so in microseconds; to make, hash and compare its GraphUse takes hundreds of them.
  struct RunKey {
    std::vector<uint64_t> words;
    bool operator==(const RunKey&) const = default;
  };
  // A Run of which it is known what was written for it. Holds nothing that the sharder drops.
  struct KnownRun {
    RunKey key;
    std::weak_ptr<const WrittenGraph> written;
  };
  struct ClientGraph {
    using Refused = std::shared_ptr<const WrittenGraph>;
    std::variant<std::string, Refused> what;  // its bytes, or what is sent in its place
    std::vector<KnownRun> known;       // at most kKnownRunsMax
    size_t next_known = 0;             // which of them goes next
  };
  proto::GroupState DescribeSpread() const;
  absl::Status ResumeArray(const proto::GroupArray& array);
  absl::Status ResumeAll(const proto::GroupState& state);
  void KeepToLimit(int64_t bytes);
  absl::Status CheckRoom(size_t bytes) const;
  void TakeBackUnsent();
  void PlanPut(uint64_t seq, const proto::Put& put);
  void NoteGathers(uint64_t seq, const WrittenGraph& written);
  void Define(uint64_t handle, Handle defined);
  void Erase(uint64_t handle);
  // What was written for an item.
  struct Item {
    std::shared_ptr<const WrittenGraph> run;
    std::map<uint32_t, std::shared_ptr<const WrittenGraph>> whole;  // by index
    uint32_t parts = 0;  // of a Put
  };

  // `lock`, of mutex_, is let go of while a graph is written.
  absl::StatusOr<Planned> PlanItems(bool may_write, const proto::ClientFrame& frame,
                                    uint64_t generation, std::unique_lock<std::mutex>& lock);
  absl::StatusOr<Planned> PlanItem(bool may_write, const proto::ClientItem& item,
                                   std::unique_lock<std::mutex>& lock);
  absl::StatusOr<Planned> PlanRun(bool may_write, uint64_t seq, const proto::Run& run,
                                  std::unique_lock<std::mutex>& lock);
  static Handle HandleOf(std::shared_ptr<const WrittenGraph::Result> stored);
  static void Hold(shard::DeviceMemory& memory, const Handle& handle, int64_t times);
  void DescribeRun(const proto::Run& run, RunKey& key) const;
  shard::DeviceMemory MemoryFor(const proto::Run& run) const;
  static std::shared_ptr<const WrittenGraph> FindKnown(const ClientGraph& graph, const RunKey& key);
  void KeepKnown(ClientGraph& graph, const RunKey& key,
                 const std::shared_ptr<const WrittenGraph>& written);
  GraphUse UseOf(const proto::Run& run) const;
  // That it leaves whole, where it is cut.
  void PlanGather(uint32_t index, uint64_t handle, Item& item);

  const TenantId tenant_;
  const shard::Mesh mesh_;
  const shard::Spread spread_;
  GraphSharder* const sharder_;
  const bool gathers_fetched_;

  std::mutex mutex_;
  HandleTable<Handle> handles_;
  shard::DeviceMemory memory_;  // held: by all handles
  shard::DeviceSpeeds speeds_;
  // The client's, by id. None is removed or moved: the bytes of one are read without the lock.
  std::map<std::string, ClientGraph> graphs_;
  RunKey key_;                   // of the Run that is planned
  size_t known_words_ = 0;       // of all KnownRuns
  size_t graph_bytes_ = 0;
  std::unordered_map<std::string, Original> originals_;  // by the id of what was written
  std::map<uint64_t, proto::GroupState> noted_;             // by snapshot, at most kNotedMax
  std::vector<proto::Notice> notices_;
  size_t written_bytes_ = 0;                                 // of those graphs
  std::optional<proto::GroupState> durable_;  // of the session's snapshot, where that is known
  bool is_broken_ = false;  // GR4
  uint64_t generation_ = 0;
  uint64_t planned_seq_ = 0, sent_seq_ = 0;  // the last planned item; of these, rewritten
  std::vector<std::pair<uint64_t, std::optional<Handle>>> unsent_;  // handles, as they were before
  std::map<uint64_t, Item> items_;  // that not all ranks have applied
  std::set<std::string> sent_;      // graphs, in this epoch
};

}  // namespace outboard::gateway
