// Writes one client's graph as one graph of the device level, which all ranks of a mesh run.
//
// The meaning of a graph does not depend on the mesh: each result, put together as its Layout says,
// is what one device computes. Integers, comparisons and random numbers agree to the bit; float
// sums that are spread over devices add in another order (docs/semantics.md). Lengths that do not
// divide are padded, and reductions over padding are masked.
//
// What is cut. Inputs arrive as the caller says; a whole input costs nothing to cut, since each
// rank takes its slice. With Spread::kData and kAuto an input that is no state is cut along
// dimension 0 over all mesh axes, if its dimension 0 is at least as long as the mesh has ranks:
// this is where a batch is. With kFsdp results that replace state are cut, too, so that the next
// Run receives them cut, and so are all results of a graph that has no state yet: those become it.
// kAuto does so where whole state has no room. LAYOUT nodes come before all of this. Values that a
// rule cannot keep cut are gathered; the report lists each such gather that no hint asked for.
//
// Used by the gateway for each new (graph, mesh, layouts of inputs). Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/mesh.h"

namespace outboard::shard {

// How the work is spread over devices: kData cuts batches and keeps state whole; kFsdp cuts state,
// too, and gathers it where it is read; kTensor cuts weights and keeps what is computed from them
// cut; kAuto lets the cost model decide.
enum class Spread : uint8_t { kAuto, kData, kFsdp, kTensor };

// Reads "auto", "data", "fsdp" or "tensor". Errors: UNIMPLEMENTED for "stages", INVALID_ARGUMENT
// for any other name, which it quotes.
absl::StatusOr<Spread> SpreadFromName(std::string_view name);
std::string_view Name(Spread spread);

// What choices are predicted by. Only ratios matter; the defaults are a processor of a few cores on
// 10 Gbit/s.
struct DeviceSpeeds {
  double operations_per_s = 1e11;
  double link_bytes_per_s = 1e9;
  double collective_s = 100e-6;  // to begin one, whatever its size
  // Of links along these axes of the mesh alone, a bit each, where they are others: devices of one
  // worker, while the rest is between workers.
  uint8_t inner_axes = 0;
  double inner_bytes_per_s = 1e9;
  double inner_collective_s = 100e-6;
  friend bool operator==(const DeviceSpeeds&, const DeviceSpeeds&) = default;
};
// The speeds of a link that was measured, rounded to powers of two so that two measurements of one
// link make one choice; what was not measured (0) or cannot be is as DeviceSpeeds has it.
DeviceSpeeds SpeedsOfLink(double bytes_per_s, double collective_s);
// The operations per second of a device that was measured, rounded and bounded likewise.
double OperationsPerS(double measured);

// The memory that a device of the mesh has for a Run.
struct DeviceMemory {
  int64_t bytes = 0;  // in all; 0: not known, and everything fits
  // Of that, in arrays of the session that the Run does not read. Can be negative where the Run
  // reads one array twice.
  int64_t held_bytes = 0;
  int64_t held_cut_bytes = 0;  // the part of it in arrays that are cut: less on more devices
  friend bool operator==(const DeviceMemory&, const DeviceMemory&) = default;
};

// What the caller knows about a Run beside its graph.
struct ShardOptions {
  Spread spread = Spread::kAuto;
  // By slot: whether an input is state, that is weights and the like, which an earlier Run left and
  // this one replaces or reads again. Anything else is this Run's own, so its dimension 0 may be
  // the batch. The gateway says so of inputs that are results of earlier Runs or are donated.
  // Missing slots: an input is state if a result has its type and shape.
  std::vector<bool> state = {};
  // By result: a layout that it must have. The gateway asks for `whole` where a Run fetches a
  // result, and for the layout of the input that a repetition carries it to. Missing: chosen here.
  std::vector<std::optional<Layout>> results = {};
  DeviceSpeeds speeds = {};
  DeviceMemory memory = {};
  // By slot: whether the Run ends an input, so that its memory is free when it was read. Missing
  // slots: as `state` has them. What replaces state is guessed among those (step_state.h).
  std::vector<bool> donated = {};
  // By result: the slot of the input whose place it takes in the next repetition, where the caller
  // knows; a negative one, or a missing result: it does not.
  std::vector<int> carried_to = {};
};

// One collective of a sharded graph.
struct CollectiveUse {
  Op op;
  int64_t bytes = 0;  // that one rank sends, for every time that it is run
  int64_t count = 0;  // the group
  int64_t stride = 0;
  int64_t node = 0;     // of the client's graph, in PostOrder of its SINK: what needed it
  std::string what;     // that node, printed; of a graph with many, its operation's name
  bool hinted = false;  // a LAYOUT, a layout asked for, or the spread itself wants it
};

// What a sharded graph costs one device.
struct ShardReport {
  std::string choice;                      // "whole", "data: dimension 0 of 128" ...
  std::vector<CollectiveUse> collectives;  // in the order of the graph; bodies of FUNCTIONs once
  double operations = 0;                   // of sums of products, for one Run
  double bytes_sent = 0;                   // for one Run
  double predicted_s = 0;                  // by ShardOptions::speeds
  // Of a Run that finds state as this one leaves it, which is what the choice goes by; infinite
  // where no such Run can be planned.
  double later_s = 0;
  double memory_bytes = 0;                 // that the Run takes at most, estimated (memory.h)
  double kept_bytes = 0;                   // of it, what is there after the Run
  // The gathers among them that no hint asked for: bytes that a better layout would save.
  std::vector<CollectiveUse> surprises() const;
};

struct ShardedGraph {
  const UOp* sink = nullptr;    // of Level::kDevice; PARAM slots are those of the client's graph
  std::vector<Layout> results;  // of each result of `sink`
  ShardReport report;
};

// Writes `sink`, a verified graph of Level::kTensor, for the ranks of `mesh`; `params` has the
// layout of each PARAM by slot (ParamsOf), and may be shorter: the rest is whole. Makes nodes in
// `graph`.
// Errors: INVALID_ARGUMENT    mesh, layouts or hints that do not fit; names the client's node, as
//                             FailedNodeOf (compiler/failed_node.h) does
//         UNIMPLEMENTED       a hint or layout that cuts a dimension with a VAR: node, dimension
//         RESOURCE_EXHAUSTED  a limit of ir/limits.h, named; what the Run leaves has no room on a
//                             device: bytes needed and there, how many devices would do
absl::StatusOr<ShardedGraph> ShardGraph(Graph& graph, const UOp* sink, const Mesh& mesh,
                                        absl::Span<const Layout> params,
                                        const ShardOptions& options = {});

// Makes the graph that a rank runs to read a stored value whole: PARAM 0 has `layout`, the one
// result is whole on every rank. `shape` is that of the whole value. Errors: as ShardGraph.
absl::StatusOr<const UOp*> GatherGraph(Graph& graph, DType dtype, ShapeView shape, const Mesh& mesh,
                                       const Layout& layout);

}  // namespace outboard::shard
