#include "compiler/reference/interpret_group.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/reference/graph_run.h"
#include "compiler/reference/position_map.h"
#include "compiler/reference/value.h"

namespace outboard {
namespace {

using reference::Budget;
using reference::LaneBlock;
using reference::RetainedValue;
using reference::Value;
using reference::ValueRef;

absl::Status AtRank(const absl::Status& status, size_t rank) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
}

// The type that a fold is computed in.
DType FoldType(DType dtype) {
  return IsFloat(dtype) && ByteWidth(dtype) < ByteWidth(DType::kF32) ? DType::kF32 : dtype;
}

double FoldFloat(Op op, DType dtype, double a, double b) {
  if (op == Op::kMax) return reference::MaxFloat(a, b);
  return RoundTo(dtype, op == Op::kAdd ? a + b : a * b);
}

int64_t FoldInt(Op op, DType dtype, int64_t a, int64_t b) {
  if (op == Op::kMax) return reference::MaxInt(dtype, a, b);
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return WrapTo(dtype, static_cast<int64_t>(op == Op::kAdd ? x + y : x * y));
}

// One element of a result: it is that of one member of the group, or the fold of all at a position.
struct Origin {
  int64_t member = 0;
  int64_t position = 0;
};

// What a collective gives the rank at `place` of a group, whose values have the dimensions `dims`.
class Exchange {
 public:
  Exchange(const UOp* node, std::vector<int64_t> dims, int64_t place)
      : node_(node),
        count_(CollectiveOf(node).count()),
        place_(place),
        from_(dims),
        to_(std::move(dims)),
        strides_(reference::StridesOf(from_)) {
    switch (node->op) {
      case Op::kUnshard: to_[UnshardOf(node).dim()] *= count_; break;
      case Op::kReduceScatter: to_[ReduceScatterOf(node).dim()] /= count_; break;
      case Op::kAllToAll:
        to_[AllToAllOf(node).cut_dim()] /= count_;
        to_[AllToAllOf(node).join_dim()] *= count_;
        break;
      default: break;
    }
  }

  const std::vector<int64_t>& dims() const { return to_; }
  bool folds() const { return node_->op == Op::kAllReduce || node_->op == Op::kReduceScatter; }
  Op fold() const {
    return node_->op == Op::kAllReduce ? AllReduceOf(node_).op() : ReduceScatterOf(node_).op();
  }

  // Where the element at `index` of the result comes from.
  Origin OriginOf(std::vector<int64_t> index) const {
    int64_t member = 0;
    switch (node_->op) {
      case Op::kUnshard: {
        int64_t& i = index[UnshardOf(node_).dim()];
        const int64_t part = from_[UnshardOf(node_).dim()];
        member = i / part;
        i %= part;
        break;
      }
      case Op::kReduceScatter: {
        const int64_t dim = ReduceScatterOf(node_).dim();
        index[dim] += place_ * to_[dim];
        break;
      }
      case Op::kAllToAll: {
        const int64_t cut = AllToAllOf(node_).cut_dim(), join = AllToAllOf(node_).join_dim();
        const int64_t part = from_[cut] / count_;  // along `cut`, of what one rank sends another
        const int64_t joined = cut == join ? part : from_[join];
        member = index[join] / joined;
        index[join] %= joined;
        index[cut] += place_ * part;
        break;
      }
      case Op::kCopy: member = CopyOf(node_).root(); break;
      default: break;
    }
    int64_t position = 0;
    for (size_t i = 0; i < index.size(); ++i) position += index[i] * strides_[i];
    return {member, position};
  }

 private:
  const UOp* node_;
  int64_t count_, place_;
  std::vector<int64_t> from_, to_, strides_;
};

// The next index in row-major order.
void Advance(std::span<const int64_t> dims, std::vector<int64_t>& index) {
  for (size_t i = dims.size(); i-- > 0;) {
    if (++index[i] < dims[i]) return;
    index[i] = 0;
  }
}

// The elements of a value in memory.
LaneBlock ElementsOf(const Value& value) {
  LaneBlock all, tile;
  const int64_t count = value.count();
  all.Resize(value.dtype, count);
  std::vector<int64_t> positions;
  for (int64_t begin = 0; begin < count; begin += reference_limits::kTile) {
    positions.clear();
    for (int64_t i = begin; i < std::min(count, begin + reference_limits::kTile); ++i)
      positions.push_back(i);
    reference::Pull(value, positions, tile);
    std::copy(tile.f.begin(), tile.f.end(), all.f.begin() + (tile.f.empty() ? 0 : begin));
    std::copy(tile.i.begin(), tile.i.end(), all.i.begin() + (tile.i.empty() ? 0 : begin));
  }
  return all;
}

// The value of the collective `node` for the rank at `place`, from those of its group.
absl::StatusOr<ValueRef> Exchanged(const UOp* node, const std::vector<const LaneBlock*>& group,
                                   const std::vector<int64_t>& dims, int64_t place,
                                   Budget& budget) {
  const Exchange exchange(node, dims, place);
  auto value = std::make_shared<Value>();
  value->node = node;
  value->dtype = node->dtype;
  value->dims = exchange.dims();
  const int64_t count = value->count();
  const auto members = static_cast<int64_t>(group.size());
  OB_RETURN_IF_ERROR(budget.Work(node, count, exchange.folds() ? members : 1));
  OB_ASSIGN_OR_RETURN(std::shared_ptr<RetainedValue> kept, MakeKept(*value, budget));
  LaneBlock& out = kept->elements;
  const DType wide = FoldType(node->dtype);
  std::vector<int64_t> index(dims.size());
  for (int64_t i = 0; i < count; ++i, Advance(exchange.dims(), index)) {
    const auto [member, position] = exchange.OriginOf(index);
    const LaneBlock& first = *group[member];
    if (IsFloat(node->dtype)) {
      out.f[i] = first.f[position];
      if (!exchange.folds()) continue;
      for (int64_t m = 1; m < members; ++m)
        out.f[i] = FoldFloat(exchange.fold(), wide, out.f[i], group[m]->f[position]);
      out.f[i] = RoundTo(node->dtype, out.f[i]);
    } else {
      out.i[i] = first.i[position];
      if (!exchange.folds()) continue;
      for (int64_t m = 1; m < members; ++m)
        out.i[i] = FoldInt(exchange.fold(), node->dtype, out.i[i], group[m]->i[position]);
    }
  }
  value->kept = std::move(kept);
  return value;
}

// Whether (count, stride) is an axis of the mesh, or some that follow each other.
bool IsGroupOf(std::span<const int64_t> mesh, int64_t count, int64_t stride) {
  int64_t inner = 1;
  for (size_t last = mesh.size(); last-- > 0; inner *= mesh[last]) {
    if (inner != stride) continue;
    int64_t product = 1;
    for (size_t axis = last + 1; axis-- > 0;)
      if ((product *= mesh[axis]) == count) return true;
  }
  return count == 1;
}

class GroupRun {
 public:
  GroupRun(std::span<const int64_t> mesh, int64_t ranks,
           std::span<const std::vector<HostTensor>> params, std::span<const Binding> bindings,
           const InterpretOptions& options)
      : mesh_(mesh), budget_(options.work_max, options.bytes_max), bindings_(ranks) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      bindings_[rank].assign(bindings.begin(), bindings.end());
      bindings_[rank].push_back({limits::kRankSlot, rank});
      ranks_.emplace_back(params[rank], bindings_[rank], options.stored_elements, &plans_,
                          &budget_);
    }
  }

  absl::StatusOr<std::vector<std::vector<HostTensor>>> Results(const UOp* sink) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      OB_RETURN_IF_ERROR(AtRank(ranks_[rank].Begin(sink), rank));
    while (true) {
      const UOp* collective = nullptr;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const absl::StatusOr<const UOp*> at = ranks_[rank].Advance();
        if (!at.ok()) return AtRank(at.status(), rank);
        OB_CHECK(rank == 0 || *at == collective);  // nothing in a graph depends on data
        collective = *at;
      }
      if (collective == nullptr) break;
      OB_RETURN_IF_ERROR(Meet(collective));
    }
    std::vector<std::vector<HostTensor>> results;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      absl::StatusOr<std::vector<HostTensor>> mine = ranks_[rank].Results();
      if (!mine.ok()) return AtRank(mine.status(), rank);
      results.push_back(*std::move(mine));
    }
    return results;
  }

 private:
  // Evaluates one collective for all ranks.
  absl::Status Meet(const UOp* node) {
    const CollectiveOf group(node);
    if (!IsGroupOf(mesh_, group.count(), group.stride()))
      return absl::InvalidArgumentError(
          absl::StrCat(NodeToString(node), ": a group of ", group.count(), " ranks with stride ",
                       group.stride(), " is no axis of the mesh ", absl::StrJoin(mesh_, "x")));
    std::vector<ValueRef> sources;
    std::vector<LaneBlock> elements;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      absl::StatusOr<ValueRef> source = ranks_[rank].CollectiveSource();
      if (!source.ok()) return AtRank(source.status(), rank);
      if (rank > 0 && (*source)->dims != sources[0]->dims)
        return absl::InvalidArgumentError(absl::StrCat(
            NodeToString(node), ": rank ", rank, " has [", absl::StrJoin((*source)->dims, ", "),
            "], rank 0 has [", absl::StrJoin(sources[0]->dims, ", "), "]"));
      sources.push_back(*std::move(source));
      elements.push_back(ElementsOf(*sources.back()));
    }
    const std::vector<int64_t> dims = sources[0]->dims;
    const auto ranks = static_cast<int64_t>(ranks_.size());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t place = rank / group.stride() % group.count();
      std::vector<const LaneBlock*> members;
      for (int64_t m = 0; m < group.count(); ++m)
        members.push_back(&elements[rank + (m - place) * group.stride()]);
      OB_ASSIGN_OR_RETURN(ValueRef value, Exchanged(node, members, dims, place, budget_));
      ranks_[rank].FinishCollective(std::move(value));
    }
    return absl::OkStatus();
  }

  std::span<const int64_t> mesh_;
  reference::WalkPlans plans_;
  Budget budget_;  // before all that gives back to it
  std::vector<std::vector<Binding>> bindings_;
  std::vector<reference::GraphRun> ranks_;
};

// The number of ranks of a mesh.
absl::StatusOr<int64_t> RanksOf(std::span<const int64_t> mesh) {
  int64_t ranks = 1;
  for (const int64_t size : mesh) {
    if (size < 1 || size > limits::kRanksMax / ranks)
      return absl::InvalidArgumentError(absl::StrCat("a mesh of ", absl::StrJoin(mesh, "x"),
                                                     " ranks; the limit is ", limits::kRanksMax));
    ranks *= size;
  }
  return ranks;
}

// Evaluates the collective that `run` stands at.
absl::Status MeetElsewhere(const UOp* node, int64_t rank, const GroupGather& gather,
                           reference::GraphRun& run, Budget& budget) {
  const CollectiveOf group(node);
  OB_ASSIGN_OR_RETURN(const ValueRef source, run.CollectiveSource());
  OB_ASSIGN_OR_RETURN(const HostTensor mine, ToHost(*source, budget));
  OB_ASSIGN_OR_RETURN(const std::vector<HostTensor> all, gather(node, mine));
  OB_CHECK(static_cast<int64_t>(all.size()) == group.count());
  std::vector<LaneBlock> elements;
  for (size_t place = 0; place < all.size(); ++place) {
    if (all[place].dims != mine.dims || all[place].bytes.size() != mine.bytes.size())
      return absl::InvalidArgumentError(absl::StrCat(
          NodeToString(node), ": place ", place, " has [", absl::StrJoin(all[place].dims, ", "),
          "], rank ", rank, " has [", absl::StrJoin(mine.dims, ", "), "]"));
    Value value;
    value.node = node;
    value.dtype = node->dtype;
    value.dims = mine.dims;
    value.host = &all[place];
    elements.push_back(ElementsOf(value));
  }
  std::vector<const LaneBlock*> members;
  for (const LaneBlock& member : elements) members.push_back(&member);
  OB_ASSIGN_OR_RETURN(ValueRef value, Exchanged(node, members, mine.dims,
                                                rank / group.stride() % group.count(), budget));
  run.FinishCollective(std::move(value));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<HostTensor>> InterpretRank(const UOp* sink, int64_t rank,
                                                      std::span<const HostTensor> params,
                                                      std::span<const Binding> bindings,
                                                      const GroupGather& gather,
                                                      const InterpretOptions& options) {
  if (sink->op != Op::kSink)
    return absl::InvalidArgumentError("the root of a graph must be a SINK");
  std::vector<Binding> bound(bindings.begin(), bindings.end());
  bound.push_back({limits::kRankSlot, rank});
  reference::WalkPlans plans;
  Budget budget(options.work_max, options.bytes_max);
  reference::GraphRun run(params, bound, options.stored_elements, &plans, &budget);
  OB_RETURN_IF_ERROR(run.Begin(sink));
  while (true) {
    OB_ASSIGN_OR_RETURN(const UOp* collective, run.Advance());
    if (collective == nullptr) return run.Results();
    OB_RETURN_IF_ERROR(MeetElsewhere(collective, rank, gather, run, budget));
  }
}

absl::StatusOr<std::vector<std::vector<HostTensor>>> InterpretGroup(
    const UOp* sink, std::span<const int64_t> mesh, std::span<const std::vector<HostTensor>> params,
    std::span<const Binding> bindings, const InterpretOptions& options) {
  if (sink->op != Op::kSink)
    return absl::InvalidArgumentError("the root of a graph must be a SINK");
  OB_ASSIGN_OR_RETURN(const int64_t ranks, RanksOf(mesh));
  if (static_cast<int64_t>(params.size()) != ranks)
    return absl::InvalidArgumentError(
        absl::StrCat("inputs of ", params.size(), " ranks for a mesh of ", ranks));
  return GroupRun(mesh, ranks, params, bindings, options).Results(sink);
}

}  // namespace outboard
