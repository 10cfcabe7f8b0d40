// The graphs that a session's Runs name: each arrives in pieces, is decoded and verified once, and
// retained until the session ends.
//
// Limits: kGraphsMax graphs, kGraphBytesOfSessionMax bytes of encodings; a program has dozens.
// Decoded they take some ten times that. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"
#include "proto/cloud.pb.h"

namespace outboard::worker {

inline constexpr size_t kGraphsMax = 4096;
inline constexpr uint64_t kGraphBytesOfSessionMax = uint64_t{256} << 20;

struct KnownGraph {
  absl::Status status;  // why it cannot be run
  Graph graph;
  const UOp* sink = nullptr;
  GraphId id;
};

class GraphTable {
 public:
  GraphTable();
  ~GraphTable();

  // Returns true if `piece` was the last of its graph, which is then known, possibly with an error
  // status. Pieces of a graph that is known already are ignored.
  // Errors: INVALID_ARGUMENT    a piece that does not follow the last
  //         RESOURCE_EXHAUSTED  over a limit, named
  absl::StatusOr<bool> Add(const proto::Graph& piece);
  // Returns nullptr if the graph has not arrived completely.
  const KnownGraph* Find(const std::string& id) const;
  // Discards a partially received graph when its stream closes.
  void DropIncomplete();

 private:
  struct Entry;

  absl::flat_hash_map<std::string, std::unique_ptr<Entry>> graphs_;
  uint64_t bytes_ = 0;  // received
};

}  // namespace outboard::worker
