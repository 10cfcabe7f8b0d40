// Writes a planned graph as a graph of the device level, and counts what it costs.
//
// A value is written once for each sharding that somebody wants it at. Where a value lies
// otherwise than it is wanted, it is either computed again from sources that lie better (movements,
// and cheap work that a device can do for its own part), or moved: a whole value is cut by a SHRINK
// at the rank, parts are joined by UNSHARD or exchanged by ALLTOALL, partial sums are added by
// ALLREDUCE, or by REDUCE_SCATTER where the sum is wanted cut.
//
// Without a graph nothing is written and the cost alone is counted, by which choices are compared.
// Threads: those of the graph.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/memory.h"
#include "compiler/shard/plan.h"
#include "compiler/shard/shard.h"
#include "compiler/shard/sharding.h"

namespace outboard::shard {

// What one device does in a Run of a sharded graph; bodies count as often as they are called.
struct ShardWork {
  double operations = 0;  // of sums and products: multiplications and additions
  double bytes_sent = 0;
  int64_t collectives = 0;
  double transfer_s = 0;  // predicted, of all collectives
  double late_s = 0;      // of those among them that no sum of products waits for
  double peak_bytes = 0;  // of memory (memory.h); 0 where a graph is written
  double kept_bytes = 0;  // of inputs that are not donated, and results
};

// Of the texts of CollectiveUse::what: one, and all of a graph before those that are names alone.
inline constexpr size_t kUseTextBytesMax = 500;
inline constexpr size_t kUseTextsBytesMax = size_t{1} << 20;

class RankWriter {
 public:
  // `graph` is nullptr where the cost alone is wanted. `sink` is the client's graph, whose nodes
  // the report numbers. `donated`: by slot, as ShardOptions has it. `speeds`: of the prediction.
  RankWriter(Graph* graph, const Mesh& mesh, const UOp* sink,
             const std::vector<bool>* donated = nullptr, const DeviceSpeeds& speeds = {});

  // Writes the graph that `frame` plans. Returns its SINK; nullptr without a graph.
  // Errors: RESOURCE_EXHAUSTED as Graph::Make, and where the graph is that near to its limits
  absl::StatusOr<const UOp*> Run(const FramePlan& frame);

  const ShardWork& work() const { return work_; }
  std::vector<CollectiveUse>& uses() { return uses_; }

 private:
  // A node of a frame, by its place, and where it is wanted.
  struct Key {
    int place = 0;
    Sharding p;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.place, key.p);
    }
  };
  struct Made {
    Sharding p;
    const UOp* value;
    int memory;  // its number in Frame::memory, where the cost alone is counted
    int next;    // of those made of the same node, in Frame::made; -1: none
  };
  struct Frame {
    const FramePlan* plan;
    bool is_body = false;
    std::vector<Made> made = {};
    std::vector<int> first_made = {};       // by place; -1: none
    absl::flat_hash_set<Key> asked = {};  // results, which are to lie so
    MemoryTrace memory = {};              // of what is made, where the cost alone is counted

    Frame(const FramePlan* of, bool body)
        : plan(of), is_body(body), first_made(of->plans.size(), -1) {
      made.reserve(of->plans.size() + of->plans.size() / 4);  // most nodes are made once
    }
    const UOp* node(int place) const { return plan->frame->nodes[place]; }
    // Whether no sum of products waits for what this node sends.
    bool is_late(int place) const { return !plan->frame->feeds_product[place]; }
    // nullptr: it is not made yet. Valid until something is.
    const Made* Find(int place, const Sharding& p) const;
    void Add(const Key& key, const UOp* value, int traced);
  };
  struct Body {
    const UOp* function = nullptr;
    ShardWork work;
    double result_bytes = 0;
  };

  // An error if the graph might not have room for the nodes of the next step (`more_nodes` beside
  // the usual ones), or the budget of walks none for their checks. Asked first, since a step makes
  // most of its nodes by calls that end the process when they fail.
  absl::Status CheckRoom(int64_t more_nodes = 0) const;
  absl::StatusOr<const UOp*> WriteRoot(Frame& frame);
  absl::StatusOr<const UOp*> Get(Frame& frame, int place, const Sharding& p);
  absl::Status Step(Frame& frame, const Key& key, std::vector<Key>& needs, bool& done);
  bool Recomputes(Frame& frame, int place, const Sharding& p, std::vector<Sharding>& wants) const;
  // Says what the value takes of the device's memory, and returns its number there. `sources`: the
  // numbers of what it was made of. `moved`: it came from other devices.
  int Note(Frame& frame, const Key& made, std::vector<int> sources, bool moved);
  void NoteResult(Frame& frame, int place, const Sharding& p);
  absl::StatusOr<const UOp*> Build(Frame& frame, int place, const Sharding& out,
                                   const std::vector<Sharding>& wants,
                                   const std::vector<const UOp*>& sources);
  absl::StatusOr<const UOp*> BuildReduce(const Frame& frame, int place, const Sharding& out,
                                         const Sharding& in, const UOp* x);
  absl::StatusOr<const UOp*> BuildCall(Frame& frame, int place,
                                       const std::vector<const UOp*>& arguments);

  // ---- moves.cc
  // Moves `value` from one sharding to another. `is_late`, here and below: of what is sent, as
  // ShardWork::late_s.
  absl::StatusOr<const UOp*> Convert(const UOp* node, const UOp* value, const Sharding& from,
                                     const Sharding& to, bool hinted, bool is_late);
  struct Moving {
    const UOp* node;   // the client's
    const UOp* value;  // as far as it has been moved; nullptr without a graph
    Sharding now;      // how that lies
    bool is_late;
  };
  // Adds the partial sums that are not wanted partial, where they are wanted cut as parts.
  absl::Status SettleSums(Moving& moving, const Sharding& to);
  // Those that are wanted cut. `width`: the bytes that are sent for each of the node's type.
  absl::Status ScatterSums(Moving& moving, const Sharding& to, double width);
  // Joins the parts of what is cut otherwise than it is wanted, or exchanges them.
  absl::Status JoinParts(Moving& moving, const Sharding& to);
  // Cuts what is whole by now, each device its own part.
  void CutWhole(Moving& moving, const Sharding& to);
  // The dimension along which a sum of small floats over `count` devices is scattered, so that it
  // is gathered in its own type; -1: it is too small, or has none.
  int ScatterDim(const UOp* node, const Sharding& now, int64_t count) const;
  // Adds f32 partial sums over `group`, rounds each element once where it is whole, and gathers
  // them in the node's own type: the bits of an ALLREDUCE and a CAST, and 3/4 of its bytes.
  absl::StatusOr<const UOp*> SumAndNarrow(const UOp* node, const UOp* value, Sharding now, int dim,
                                          std::pair<int64_t, int64_t> group, bool is_late);
  std::string TextOfNode();
  absl::StatusOr<const UOp*> Emit(Op op, const UOp* value, std::vector<int64_t> arg,
                                  std::pair<int64_t, int64_t> group, double bytes, bool is_late);
  // A movement of `value` along `dim`: PAD at its end to `length`, or SHRINK to [0, length).
  const UOp* PadTo(const UOp* value, int dim, int64_t length);
  const UOp* ShrinkTo(const UOp* value, int dim, const Dim& begin, const Dim& end);
  const UOp* PlaceIn(AxisSet axes);  // i64: which of the parts that `axes` make is this device's
  std::vector<std::pair<int64_t, int64_t>> GroupsOfAxes(AxisSet axes) const;

  Graph* graph_;
  const Mesh& mesh_;
  ShardWork work_;
  std::vector<CollectiveUse> uses_;
  size_t use_text_bytes_ = 0;  // of uses_
  absl::flat_hash_map<const UOp*, int64_t> number_;  // of the client's nodes
  absl::flat_hash_map<const FramePlan*, Body> bodies_;
  const std::vector<bool>* const donated_;
  const DeviceSpeeds speeds_;
  // Of the step at hand. The steps of a body use them, too: BuildCall has copied what it needs.
  std::vector<Sharding> wants_;
  std::vector<const UOp*> sources_;
  const UOp* at_ = nullptr;  // the client's node that is being written, for the report
  bool hinted_ = false;
};

}  // namespace outboard::shard
