#include "tests/compiler/shard_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/reference/interpret_group.h"
#include "tests/compiler/error_bounds.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

using shard::Layout;
using shard::Mesh;

// Every element of a part that exists and that another rank has as well has the same bytes there.
std::string ReplicaProblem(const Mesh& mesh, const Layout& layout, const HostTensor& whole,
                           absl::Span<const HostTensor> parts) {
  const std::vector<HostTensor> again = shard::CutTensor(mesh, layout, whole);
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    // Padding has no meaning: cut the part's own elements out of it by joining it with zeros.
    std::vector<HostTensor> alone = again;
    alone[rank] = parts[rank];
    for (int64_t other = 0; other < mesh.ranks(); ++other)
      if (SliceOf(mesh, layout, whole.dims, other).begin ==
          SliceOf(mesh, layout, whole.dims, rank).begin)
        alone[other] = parts[rank];
    if (JoinTensor(mesh, layout, whole.dims, alone) != whole)
      return absl::StrCat("rank ", rank, " has other bytes than its replicas");
  }
  return "";
}

}  // namespace

std::string ShardDisagreement(Graph& graph, const UOp* sink, const Mesh& mesh,
                              absl::Span<const Layout> layouts, const shard::ShardOptions& options,
                              std::span<const HostTensor> params, std::span<const Binding> bindings,
                              shard::ShardedGraph* out, double relative_error) {
  absl::StatusOr<shard::ShardedGraph> sharded = ShardGraph(graph, sink, mesh, layouts, options);
  if (!sharded.ok()) return absl::StrCat("sharding: ", sharded.status().ToString());
  if (out != nullptr) *out = *sharded;
  const absl::StatusOr<EncodedGraph> encoded = EncodeGraph(sharded->sink);
  if (!encoded.ok()) return absl::StrCat("encoding: ", encoded.status().ToString());
  Graph again;
  const absl::StatusOr<const UOp*> decoded = DecodeGraph(again, encoded->bytes, Level::kDevice);
  if (!decoded.ok()) return absl::StrCat("decoding: ", decoded.status().ToString());

  const absl::StatusOr<std::vector<HostTensor>> expected = Interpret(sink, params, bindings);
  if (!expected.ok()) return absl::StrCat("interpreter: ", expected.status().ToString());
  std::vector<std::vector<HostTensor>> by_rank(mesh.ranks());
  for (size_t slot = 0; slot < params.size(); ++slot) {
    const std::vector<HostTensor> parts =
        shard::CutTensor(mesh, slot < layouts.size() ? layouts[slot] : Layout{}, params[slot]);
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) by_rank[rank].push_back(parts[rank]);
  }
  const absl::StatusOr<std::vector<std::vector<HostTensor>>> results =
      InterpretGroup(*decoded, mesh.sizes, by_rank, bindings);
  if (!results.ok()) return absl::StrCat("group: ", results.status().ToString());

  const std::vector<ErrorInfo> tolerances = InfosOfResults(sink, params);
  for (size_t i = 0; i < expected->size(); ++i) {
    const Layout& layout = sharded->results[i];
    std::vector<HostTensor> parts;
    for (const std::vector<HostTensor>& of_rank : *results) {
      if (of_rank[i].dims != LocalDims(mesh, layout, (*expected)[i].dims))
        return absl::StrCat("shape: result ", i, " is not stored as ", ToString(layout));
      parts.push_back(of_rank[i]);
    }
    const HostTensor whole = JoinTensor(mesh, layout, (*expected)[i].dims, parts);
    if (std::string problem = ReplicaProblem(mesh, layout, whole, parts); !problem.empty())
      return absl::StrCat("replica: result ", i, " (", ToString(layout), "): ", problem);
    ErrorInfo tolerance = tolerances[i];
    if (relative_error > 0 && IsFloat(whole.dtype)) {
      double most = 1e-3;
      for (const double x : FloatsOf((*expected)[i])) most = std::max(most, std::abs(x));
      tolerance = {.magnitude = most, .error = relative_error * most};
    }
    const std::string difference = Difference((*expected)[i], whole, tolerance);
    if (!difference.empty())
      return absl::StrCat("value: result ", i, " (", ToString(layout), "): ", difference);
  }
  return "";
}

}  // namespace outboard::test
