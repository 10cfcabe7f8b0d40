#include "gateway/groups/graph_sharder.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/sharding.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "telemetry/counters.h"
#include "wire/merkle.h"

namespace outboard::gateway {

namespace {

// What an entry takes beside its encoding.
constexpr size_t kEntryBytes = 512, kLayoutBytes = 64;

// A result whose dimensions have VARs has another shape at each Run: it stays whole, and nobody
// asks for its dims.
std::vector<int64_t> DimsOf(const UOp* result) {
  std::vector<int64_t> dims;
  for (const Dim& dim : result->shape) {
    if (!dim.is_const()) return {};
    dims.push_back(dim.value());
  }
  return dims;
}

bool HasVar(const UOp* result) {
  return std::any_of(result->shape.begin(), result->shape.end(),
                     [](const Dim& dim) { return !dim.is_const(); });
}

absl::StatusOr<WrittenGraph> WriteFor(const GraphUse& use, std::string_view bytes) {
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* const sink, DecodeGraph(graph, bytes, Level::kTensor));
  shard::ShardOptions options{.spread = use.spread,
                              .state = use.state,
                              .results = use.results,
                              .speeds = use.speeds,
                              .memory = use.memory,
                              .donated = use.donated,
                              .carried_to = use.carried_to};
  options.results.resize(sink->src.size());
  for (size_t i = 0; i < sink->src.size(); ++i)
    if (HasVar(sink->src[i])) options.results[i] = shard::Layout{};
  OB_ASSIGN_OR_RETURN(const shard::ShardedGraph sharded,
                      shard::ShardGraph(graph, sink, use.mesh, use.inputs, options));
  OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(sharded.sink));
  WrittenGraph written;
  written.id = encoded.id.ToBytes();
  written.is_clients = written.id == use.graph_id;
  written.bytes = std::move(encoded.bytes);
  for (size_t i = 0; i < sink->src.size(); ++i) {
    const UOp* const result = sink->src[i];
    const double bytes = shard::LeastLocalBytes(
        shard::ShardingOf(use.mesh, sharded.results[i], result->shape), result);
    written.results.push_back(
        {result->dtype, DimsOf(result), sharded.results[i], static_cast<int64_t>(bytes)});
  }
  written.gathers = sharded.report.surprises();
  std::stable_sort(written.gathers.begin(), written.gathers.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (written.gathers.size() > kGathersTold) {
    written.gathers_untold = written.gathers.size() - kGathersTold;
    written.gathers.resize(kGathersTold);
  }
  return written;
}

absl::StatusOr<WrittenGraph> WriteGather(const shard::Mesh& mesh,
                                         const WrittenGraph::Result& stored) {
  Graph graph;
  Shape shape;
  for (const int64_t dim : stored.dims) shape.push_back(Dim(dim));
  OB_ASSIGN_OR_RETURN(const UOp* const sink,
                      shard::GatherGraph(graph, stored.dtype, shape, mesh, stored.layout));
  OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(sink));
  return WrittenGraph{.id = encoded.id.ToBytes(), .bytes = std::move(encoded.bytes)};
}

// A Run of what cannot be written fails by this name, with that status.
std::string NameOfRefused(const GraphUse& use, const absl::Status& why) {
  std::string name = absl::StrCat("refused ", use.graph_id, " on ", shard::ToString(use.mesh), " ",
                                  std::string(shard::Name(use.spread)));
  for (const shard::Layout& layout : use.inputs)
    absl::StrAppend(&name, ";", shard::ToString(layout));
  for (const bool is_state : use.state) name += is_state ? '1' : '0';
  for (const std::optional<shard::Layout>& layout : use.results)
    absl::StrAppend(&name, ";", layout ? shard::ToString(*layout) : "any");
  absl::StrAppend(&name, ";", why.ToString());
  return std::string(wire::AsBytes(Sha256(name)));
}

size_t BytesOf(const GraphUse& use, const WrittenGraph& written) {
  return written.bytes.size() + use.graph_id.size() + kEntryBytes +
         kLayoutBytes * (use.inputs.size() + use.results.size() + written.results.size());
}

}  // namespace

GraphSharder::GraphSharder() : GraphSharder(WriteFor, WriteGather) {}

std::shared_ptr<const WrittenGraph> GraphSharder::Find(TenantId tenant, const GraphUse& use) {
  std::lock_guard lock(mutex_);
  const auto kept = kept_.find(tenant);
  if (kept == kept_.end()) return nullptr;
  const auto found = kept->second.by_use.find(use);
  return found == kept->second.by_use.end() ? nullptr : found->second;
}

std::shared_ptr<const WrittenGraph> GraphSharder::Write(TenantId tenant, const GraphUse& use,
                                                        std::string_view bytes) {
  // It is a client's: what it throws ends this graph alone.
  return Keep(tenant, use,
              ErrorIfThrown(
                  "dividing the graph", [&] { return writer_(use, bytes); }, tenant.value));
}

std::shared_ptr<const WrittenGraph> GraphSharder::Gather(TenantId tenant, const shard::Mesh& mesh,
                                                         const WrittenGraph::Result& stored) {
  const GraphUse use{.graph_id = absl::StrCat("gather ", static_cast<int>(stored.dtype), " of ",
                                              absl::StrJoin(stored.dims, ",")),
                     .mesh = mesh,
                     .inputs = {stored.layout}};
  if (auto found = Find(tenant, use); found != nullptr) return found;
  return Keep(tenant, use,
              ErrorIfThrown(
                  "gathering an array", [&] { return gatherer_(mesh, stored); }, tenant.value));
}

std::shared_ptr<const WrittenGraph> GraphSharder::Keep(TenantId tenant, const GraphUse& use,
                                                       absl::StatusOr<WrittenGraph> written) {
  const bool is_thrown = IsThrown(written.status());
  if (is_thrown) telemetry::CountRefused(telemetry::Refusal::kFault);
  auto entry = std::make_shared<const WrittenGraph>(
      written.ok()
          ? *std::move(written)
          : WrittenGraph{.status = written.status(),
                         .id = NameOfRefused(use, written.status()),
                         .is_passing = is_thrown && absl::IsResourceExhausted(written.status()),
                         .refused = FailedNodeOf(written.status())});
  if (entry->is_passing) return entry;
  std::lock_guard lock(mutex_);
  Kept& kept = kept_[tenant];
  const auto [at, is_new] = kept.by_use.try_emplace(use, entry);
  if (!is_new) return at->second;  // another session was quicker
  absl::Cleanup forget = [&, at = at] { kept.by_use.erase(at); };
  kept.order.push_back(&at->first);
  std::move(forget).Cancel();
  const size_t bytes = BytesOf(use, *entry);
  kept.bytes += bytes;
  bytes_ += bytes;
  while (bytes_ > kWrittenGraphsBytesMax) DropOldest();
  return entry;
}

void GraphSharder::DropOldest() {
  const auto most = std::max_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
    return a.second.bytes < b.second.bytes;
  });
  Kept& kept = most->second;
  const auto oldest = kept.by_use.find(*kept.order.front());
  const size_t bytes = BytesOf(oldest->first, *oldest->second);
  kept.bytes -= bytes;
  bytes_ -= bytes;
  kept.order.pop_front();
  kept.by_use.erase(oldest);
  if (kept.order.empty()) kept_.erase(most);
}

}  // namespace outboard::gateway
