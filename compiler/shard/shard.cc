#include "compiler/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::shard {
namespace {

// The whole value of `part`, which lies on `mesh` as `layout` says; `shape` is that of the whole.
// Axes are joined from the fastest to the slowest, so that parts of parts come in order.
const UOp* Gather(Graph& g, const UOp* part, ShapeView shape, const Mesh& mesh,
                  const Layout& layout) {
  const UOp* value = part;
  for (int axis = mesh.axes() - 1; axis >= 0; --axis)
    if (layout.at(axis) != Layout::kWhole && mesh.sizes[axis] > 1)
      value = g.MakeChecked(Op::kUnshard, DType::kVoid, {value},
                            {layout.at(axis), mesh.sizes[axis], mesh.stride(axis)});
  Shape begin_end;
  for (const Dim& dim : shape) {
    begin_end.push_back(0);
    begin_end.push_back(dim);
  }
  return Shrink(g, value, begin_end);  // the padding
}

// The part of a whole value that the device which runs it stores.
const UOp* Cut(Graph& g, const UOp* whole, const Mesh& mesh, const Layout& layout) {
  if (layout.is_whole()) return whole;
  const UOp* const rank = Var(g, limits::kRankSlot, 0, mesh.ranks() - 1);
  Shape pad, begin_end;
  for (int dim = 0; dim < whole->rank(); ++dim) {
    const int64_t parts = PartsOf(mesh, layout, dim);
    if (parts == 1) {
      pad.insert(pad.end(), {Dim(0), Dim(0)});
      begin_end.insert(begin_end.end(), {Dim(0), whole->shape[dim]});
      continue;
    }
    const int64_t length = whole->shape[dim].value(), local = (length + parts - 1) / parts;
    pad.insert(pad.end(), {Dim(0), Dim(local * parts - length)});
    const UOp* part = nullptr;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      if (layout.at(axis) != dim || mesh.sizes[axis] == 1) continue;
      const UOp* at = rank;
      if (mesh.stride(axis) > 1) at = Alu(g, Op::kIDiv, at, ConstIndex(g, mesh.stride(axis)));
      if (mesh.stride(axis) * mesh.sizes[axis] < mesh.ranks())
        at = Alu(g, Op::kMod, at, ConstIndex(g, mesh.sizes[axis]));
      part = part == nullptr ? at : Add(g, Mul(g, part, ConstIndex(g, mesh.sizes[axis])), at);
    }
    const UOp* const begin = Mul(g, part, ConstIndex(g, local));
    begin_end.insert(begin_end.end(), {Dim(begin), Dim(Add(g, begin, ConstIndex(g, local)))});
  }
  return Shrink(g, Pad(g, whole, pad), begin_end);
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
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* param : ParamsOf(sink)) {
    const int64_t slot = ParamOf(param).slot();
    if (slot >= static_cast<int64_t>(params.size()) || params[slot].is_whole()) continue;
    if (absl::Status fits = CheckLayout(mesh, params[slot], param->shape); !fits.ok())
      return absl::Status(fits.code(),
                          absl::StrCat(NodeToString(param), " is stored: ", fits.message()));
    const UOp* const part =
        Param(graph, slot, param->dtype, LocalShape(mesh, params[slot], param->shape));
    by[param] = Gather(graph, part, param->shape, mesh, params[slot]);
  }
  const UOp* const whole = Substitute(graph, sink, by);
  ShardedGraph sharded;
  std::vector<const UOp*> results;
  for (size_t i = 0; i < whole->src.size(); ++i) {
    Layout layout;
    if (i < options.results.size() && options.results[i]) layout = *options.results[i];
    if (absl::Status fits = CheckLayout(mesh, layout, sink->src[i]->shape); !fits.ok())
      return absl::Status(fits.code(), absl::StrCat("result ", i, " (", NodeToString(sink->src[i]),
                                                    ") is wanted: ", fits.message()));
    results.push_back(Cut(graph, whole->src[i], mesh, layout));
    sharded.results.push_back(std::move(layout));
  }
  sharded.sink = Sink(graph, results);
  OB_RETURN_IF_ERROR(VerifyGraph(sharded.sink, Level::kDevice));
  return sharded;
}

absl::StatusOr<const UOp*> GatherGraph(Graph& graph, DType dtype, ShapeView shape, const Mesh& mesh,
                                       const Layout& layout) {
  OB_RETURN_IF_ERROR(CheckMesh(mesh));
  OB_RETURN_IF_ERROR(CheckLayout(mesh, layout, shape));
  const UOp* const part = Param(graph, 0, dtype, LocalShape(mesh, layout, shape));
  return Sink(graph, {Gather(graph, part, shape, mesh, layout)});
}

}  // namespace outboard::shard
