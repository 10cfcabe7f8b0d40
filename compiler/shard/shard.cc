#include "compiler/shard/shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/spec/walks.h"
#include "compiler/shard/choose.h"
#include "compiler/shard/lower.h"

namespace outboard::shard {
namespace {

// An axis of a mesh that no device shares work over is no axis; a value is cut by each axis once.
absl::Status CheckValue(const Mesh& mesh, const Layout& layout, const UOp* sink, const UOp* value,
                        absl::string_view what) {
  const absl::Status fits = CheckLayout(mesh, layout, value->shape);
  if (fits.ok()) return fits;
  return AboutNode(absl::Status(fits.code(),
                                absl::StrCat(NodeToString(value), what, fits.message())),
                   sink, value);
}

}  // namespace

absl::StatusOr<Spread> SpreadFromName(std::string_view name) {
  for (const Spread spread : {Spread::kAuto, Spread::kData, Spread::kFsdp, Spread::kTensor})
    if (Name(spread) == name) return spread;
  if (name == "stages")
    return absl::UnimplementedError(
        "spread \"stages\": pipeline stages are not there; use auto, data, fsdp or tensor");
  return absl::InvalidArgumentError(absl::StrCat("spread \"", std::string(name.substr(0, 32)),
                                                 "\" is not one of auto, data, fsdp, tensor"));
}

std::string_view Name(Spread spread) {
  switch (spread) {
    case Spread::kAuto: return "auto";
    case Spread::kData: return "data";
    case Spread::kFsdp: return "fsdp";
    default: return "tensor";
  }
}

namespace {

double ToPowerOfTwo(double x) { return std::exp2(std::round(std::log2(x))); }

}  // namespace

DeviceSpeeds SpeedsOfLink(double bytes_per_s, double collective_s) {
  DeviceSpeeds speeds;
  if (bytes_per_s >= 1e5 && bytes_per_s <= 1e13)
    speeds.link_bytes_per_s = ToPowerOfTwo(bytes_per_s);
  if (collective_s >= 1e-7 && collective_s <= 1) speeds.collective_s = ToPowerOfTwo(collective_s);
  return speeds;
}

double OperationsPerS(double measured) {
  if (!(measured >= 1e8 && measured <= 1e17)) return DeviceSpeeds().operations_per_s;
  return ToPowerOfTwo(measured);
}

std::vector<CollectiveUse> ShardReport::surprises() const {
  std::vector<CollectiveUse> found;
  for (const CollectiveUse& use : collectives)
    if (!use.hinted && use.op == Op::kUnshard) found.push_back(use);
  return found;
}

absl::StatusOr<ShardedGraph> ShardGraph(Graph& graph, const UOp* sink, const Mesh& mesh,
                                        absl::Span<const Layout> params,
                                        const ShardOptions& options) {
  OB_RETURN_IF_ERROR(CheckMesh(mesh));
  const std::vector<const UOp*> inputs = ParamsOf(sink);
  for (size_t slot = 0; slot < std::min(params.size(), inputs.size()); ++slot)
    OB_RETURN_IF_ERROR(CheckValue(mesh, params[slot], sink, inputs[slot], " is stored: "));
  for (size_t i = 0; i < std::min(options.results.size(), sink->src.size()); ++i)
    if (options.results[i])
      OB_RETURN_IF_ERROR(CheckValue(mesh, *options.results[i], sink, sink->src[i], " is wanted: "));

  // What is written of a graph that had few steps to be checked with has no more.
  const spec::LimitedWalks limited(graph);
  GraphNodes nodes;
  OB_ASSIGN_OR_RETURN(SpreadChoice choice, Choose(mesh, sink, nodes, params, options));
  RankWriter writer(&graph, mesh, sink);
  ShardedGraph sharded;
  OB_ASSIGN_OR_RETURN(sharded.sink, writer.Run(*choice.plan));
  sharded.results = std::move(choice.results);
  sharded.report = {.choice = choice.candidate.name,
                    .collectives = std::move(writer.uses()),
                    .operations = writer.work().operations,
                    .bytes_sent = writer.work().bytes_sent,
                    .predicted_s = choice.prediction.seconds,
                    .later_s = choice.later.seconds,
                    .memory_bytes = choice.prediction.memory_bytes,
                    .kept_bytes = choice.prediction.kept_bytes};
  OB_RETURN_IF_ERROR(VerifyGraph(sharded.sink, Level::kDevice));
  return sharded;
}

absl::StatusOr<const UOp*> GatherGraph(Graph& graph, DType dtype, ShapeView shape, const Mesh& mesh,
                                       const Layout& layout) {
  OB_RETURN_IF_ERROR(CheckMesh(mesh));
  OB_RETURN_IF_ERROR(CheckLayout(mesh, layout, shape));
  const UOp* const sink = Sink(graph, {Param(graph, 0, dtype, shape)});
  ShardOptions whole;
  whole.results = {Layout{}};
  OB_ASSIGN_OR_RETURN(const ShardedGraph sharded,
                      ShardGraph(graph, sink, mesh, absl::MakeConstSpan(&layout, 1), whole));
  return sharded.sink;
}

}  // namespace outboard::shard
