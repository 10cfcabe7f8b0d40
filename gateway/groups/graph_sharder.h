// Writes clients' graphs for the ranks of a mesh (compiler/shard/shard.h), once for each set of
// layouts, and keeps what it has written for all sessions. By tenant, as verdicts are
// (graph_admission.h): the time of an answer does not tell what another tenant has sent.
//
// Limit: kWrittenGraphsBytesMax of encodings; the oldest goes of the tenant that has the most.
// Threads: any. Write takes as long as the graph is large; Find does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/failed_node.h"
#include "compiler/ir/dtype.h"
#include "compiler/shard/shard.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

// What a graph is written for.
struct GraphUse {
  std::string graph_id;  // the client's
  shard::Mesh mesh;
  shard::Spread spread = shard::Spread::kAuto;
  std::vector<shard::Layout> inputs;
  std::vector<bool> state;                            // ShardOptions::state
  std::vector<std::optional<shard::Layout>> results;  // ShardOptions::results
  std::vector<bool> donated;                          // ShardOptions::donated
  std::vector<int> carried_to;                        // ShardOptions::carried_to
  shard::DeviceMemory memory;                         // ShardOptions::memory
  shard::DeviceSpeeds speeds;                         // ShardOptions::speeds

  friend bool operator==(const GraphUse&, const GraphUse&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GraphUse& use) {
    for (const std::optional<shard::Layout>& layout : use.results)
      h = H::combine(std::move(h), layout.has_value(), layout.value_or(shard::Layout{}));
    return H::combine(std::move(h), use.graph_id, use.mesh.sizes, use.spread, use.inputs,
                      use.state, use.memory.held_bytes);
  }
};

struct WrittenGraph {
  // Why it cannot be written: INVALID_ARGUMENT, UNIMPLEMENTED or RESOURCE_EXHAUSTED of ShardGraph.
  // Then `id` is a name for that.
  absl::Status status;
  std::string id, bytes;
  // Memory was short when it was to be written, for whatever reason: the next use tries again.
  bool is_passing = false;
  // Nothing was to be written: it is the client's graph, with its id.
  bool is_clients = false;
  struct Result {
    DType dtype = DType::kVoid;
    std::vector<int64_t> dims;  // of the whole; empty where one has a VAR, which is never cut
    shard::Layout layout;
    int64_t bytes = 0;  // that each rank stores; where a VAR says how long it is, at least
  };
  std::vector<Result> results;
  std::optional<FailedNode> refused;  // of the client's graph: what `status` is about
  // Gathers that no hint asked for, the largest first, at most kGathersTold.
  std::vector<shard::CollectiveUse> gathers;
  size_t gathers_untold = 0;  // more of them
};

class GraphSharder {
 public:
  // How a client's graph is written, and one that makes an array whole; a test has its own.
  using Writer =
      std::function<absl::StatusOr<WrittenGraph>(const GraphUse& use, std::string_view bytes)>;
  using Gatherer = std::function<absl::StatusOr<WrittenGraph>(const shard::Mesh& mesh,
                                                              const WrittenGraph::Result& stored)>;
  GraphSharder();
  GraphSharder(Writer writer, Gatherer gatherer)
      : writer_(std::move(writer)), gatherer_(std::move(gatherer)) {}

  // nullptr: it is to be written first.
  std::shared_ptr<const WrittenGraph> Find(TenantId tenant, const GraphUse& use);
  // `bytes`: the client's graph, which has been verified. What writing it throws is its error: kept
  // as any other, but for a lack of memory, which passes (WrittenGraph::is_passing).
  std::shared_ptr<const WrittenGraph> Write(TenantId tenant, const GraphUse& use,
                                            std::string_view bytes);
  // The graph with which the ranks make a whole array of their parts. Its errors are as those of
  // Write.
  std::shared_ptr<const WrittenGraph> Gather(TenantId tenant, const shard::Mesh& mesh,
                                             const WrittenGraph::Result& stored);

 private:
  struct Kept {
    std::unordered_map<GraphUse, std::shared_ptr<const WrittenGraph>, absl::Hash<GraphUse>> by_use;
    std::deque<const GraphUse*> order;  // the keys, oldest first
    size_t bytes = 0;
  };
  std::shared_ptr<const WrittenGraph> Keep(TenantId tenant, const GraphUse& use,
                                           absl::StatusOr<WrittenGraph> written);
  void DropOldest();  // requires mutex_

  const Writer writer_;
  const Gatherer gatherer_;
  std::mutex mutex_;
  std::map<TenantId, Kept> kept_;
  size_t bytes_ = 0;  // of all tenants
};

}  // namespace outboard::gateway
