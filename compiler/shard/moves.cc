// Moves values from one sharding to another.
#include <algorithm>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/shard/lower.h"
#include "compiler/shard/rules.h"

namespace outboard::shard {
namespace {

constexpr double kOneMessageBytes = 64 << 10;  // less is not worth a second message

// Whether partial sums that are `bytes` in their own type are added in it: each is rounded, and the
// bytes are half of those in f32. Parts of f16 could be beyond its range where their sum is not;
// sums of 8-bit floats would be off by too much; of small ones, a loss, bytes do not decide the
// time.
bool TravelsNarrow(DType dtype, double bytes) {
  return dtype == DType::kBF16 && bytes >= kOneMessageBytes;
}

Shape BeginEndOf(const UOp* value) {
  Shape begin_end;
  for (const Dim& dim : value->shape) {
    begin_end.push_back(0);
    begin_end.push_back(dim);
  }
  return begin_end;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> RankWriter::GroupsOfAxes(AxisSet axes) const {
  std::vector<std::pair<int64_t, int64_t>> groups;  // count and stride, the slowest first
  bool joined = false;
  for (int axis = 0; axis < mesh_.axes(); ++axis) {
    if (mesh_.sizes[axis] == 1) continue;
    const bool in = axes >> axis & 1;
    if (in && joined) {
      groups.back() = {groups.back().first * mesh_.sizes[axis], mesh_.stride(axis)};
    } else if (in) {
      groups.emplace_back(mesh_.sizes[axis], mesh_.stride(axis));
    }
    joined = in;
  }
  return groups;
}

const UOp* RankWriter::PlaceIn(AxisSet axes) {
  const UOp* const rank = Var(*graph_, limits::kRankSlot, 0, mesh_.ranks() - 1);
  const UOp* place = nullptr;
  for (const auto& [count, stride] : GroupsOfAxes(axes)) {
    const UOp* at = rank;
    if (stride > 1) at = Alu(*graph_, Op::kIDiv, at, ConstIndex(*graph_, stride));
    if (stride * count < mesh_.ranks()) at = Alu(*graph_, Op::kMod, at, ConstIndex(*graph_, count));
    place =
        place == nullptr ? at : Add(*graph_, Mul(*graph_, place, ConstIndex(*graph_, count)), at);
  }
  return place;
}

const UOp* RankWriter::PadTo(const UOp* value, int dim, int64_t length) {
  Shape lo_hi(2 * value->rank(), Dim(0));
  lo_hi[2 * dim + 1] = Dim(length - value->shape[dim].value());
  return Pad(*graph_, value, lo_hi);
}

const UOp* RankWriter::ShrinkTo(const UOp* value, int dim, const Dim& begin, const Dim& end) {
  Shape begin_end = BeginEndOf(value);
  begin_end[2 * dim] = begin;
  begin_end[2 * dim + 1] = end;
  return Shrink(*graph_, value, begin_end);
}

// In full as long as all texts together are few bytes: a client says how long one is, and how many
// there are.
std::string RankWriter::TextOfNode() {
  std::string text(Name(at_->op));
  if (use_text_bytes_ < kUseTextsBytesMax) text = NodeToString(at_).substr(0, kUseTextBytesMax);
  use_text_bytes_ += text.size();
  return text;
}

absl::StatusOr<const UOp*> RankWriter::Emit(Op op, const UOp* value, std::vector<int64_t> arg,
                                            std::pair<int64_t, int64_t> group, double bytes,
                                            bool is_late) {
  const auto [count, stride] = group;
  const double others = static_cast<double>(count - 1);
  switch (op) {                                 // what one device sends
    case Op::kUnshard: bytes *= others; break;  // `bytes` is its own part
    case Op::kAllReduce: bytes *= 2 * others / static_cast<double>(count); break;
    default: bytes *= others / static_cast<double>(count);
  }
  work_.bytes_sent += bytes;
  ++work_.collectives;
  const double seconds = IsAlong(mesh_, speeds_.inner_axes, count, stride)
                             ? bytes / speeds_.inner_bytes_per_s + speeds_.inner_collective_s
                             : bytes / speeds_.link_bytes_per_s + speeds_.collective_s;
  work_.transfer_s += seconds;
  if (is_late) work_.late_s += seconds;
  if (graph_ == nullptr) return static_cast<const UOp*>(nullptr);
  const auto number = number_.find(at_);
  uses_.push_back({.op = op,
                   .bytes = static_cast<int64_t>(bytes),
                   .count = count,
                   .stride = stride,
                   .node = number == number_.end() ? 0 : number->second,
                   .what = TextOfNode(),
                   .hinted = hinted_});
  arg.push_back(count);
  arg.push_back(stride);
  return graph_->Make(op, DType::kVoid, {value}, arg);
}

int RankWriter::ScatterDim(const UOp* node, const Sharding& now, int64_t count) const {
  if (LocalBytes(now, node) < kOneMessageBytes) return -1;
  int best = -1;
  const auto rank_of = [&](int dim) {
    const int64_t length = node->shape[dim].value();
    return std::pair(length % count == 0, length);
  };
  for (int dim = 0; dim < node->rank(); ++dim) {
    if (now.dims[dim].axes != 0 || !node->shape[dim].is_const() ||
        node->shape[dim].value() < count)
      continue;
    if (best < 0 || rank_of(dim) > rank_of(best)) best = dim;
  }
  return best;
}

absl::StatusOr<const UOp*> RankWriter::SumAndNarrow(const UOp* node, const UOp* value,
                                                    Sharding now, int dim,
                                                    std::pair<int64_t, int64_t> group,
                                                    bool is_late) {
  const bool write = graph_ != nullptr;
  const bool hinted = std::exchange(hinted_, true);  // the gather is half of a sum
  const int64_t length = node->shape[dim].value(), count = group.first;
  const int64_t chunk = (length + count - 1) / count;
  now.dims[dim] = {now.partial, count * chunk};
  if (write) value = PadTo(value, dim, count * chunk);
  OB_ASSIGN_OR_RETURN(value, Emit(Op::kReduceScatter, value, {static_cast<int64_t>(Op::kAdd), dim},
                                  group, 4.0 / ByteWidth(node->dtype) * LocalBytes(now, node),
                                  is_late));
  if (write) value = Cast(*graph_, value, node->dtype);
  now.dims[dim].chunk = chunk;
  OB_ASSIGN_OR_RETURN(value, Emit(Op::kUnshard, value, {dim}, group, LocalBytes(now, node),
                                  is_late));
  hinted_ = hinted;
  return write ? ShrinkTo(value, dim, 0, node->shape[dim]) : value;
}

absl::StatusOr<const UOp*> RankWriter::Convert(const UOp* node, const UOp* value,
                                               const Sharding& from, const Sharding& to,
                                               bool hinted, bool is_late) {
  OB_CHECK((to.partial & ~from.partial) == 0);
  at_ = node;
  hinted_ = hinted;
  Moving moving{node, value, from, is_late};
  OB_RETURN_IF_ERROR(SettleSums(moving, to));
  OB_RETURN_IF_ERROR(JoinParts(moving, to));
  CutWhole(moving, to);
  return moving.value;
}

absl::Status RankWriter::SettleSums(Moving& moving, const Sharding& to) {
  const UOp* const node = moving.node;
  const AxisSet from_partial = moving.now.partial, settle = from_partial & ~to.partial;
  const bool write = graph_ != nullptr;
  // Large ones of bf16 travel in that type.
  const bool narrow = settle != 0 && TravelsNarrow(node->dtype, LocalBytes(moving.now, node));
  const double width =
      from_partial != 0 && AddsInF32(node->dtype) && !narrow ? 4.0 / ByteWidth(node->dtype) : 1;
  if (write && narrow) moving.value = Cast(*graph_, moving.value, node->dtype);
  OB_RETURN_IF_ERROR(ScatterSums(moving, to, width));
  if (const AxisSet left = moving.now.partial & ~to.partial; left != 0) {
    const auto groups = GroupsOfAxes(left);
    for (size_t i = 0; i < groups.size(); ++i) {
      const bool is_last = i + 1 == groups.size() && to.partial == 0;
      const int dim = is_last && width > 1 ? ScatterDim(node, moving.now, groups[i].first) : -1;
      OB_ASSIGN_OR_RETURN(
          moving.value,
          dim >= 0 ? SumAndNarrow(node, moving.value, moving.now, dim, groups[i], moving.is_late)
                   : Emit(Op::kAllReduce, moving.value, {static_cast<int64_t>(Op::kAdd)},
                          groups[i], width * LocalBytes(moving.now, node), moving.is_late));
    }
    moving.now.partial &= ~left;
  }
  const AxisSet partial = moving.now.partial;
  if (write && narrow && partial != 0) moving.value = Cast(*graph_, moving.value, DType::kF32);
  if (write && from_partial != 0 && partial == 0)
    moving.value = Cast(*graph_, moving.value, node->dtype);
  return absl::OkStatus();
}

absl::Status RankWriter::ScatterSums(Moving& moving, const Sharding& to, double width) {
  const UOp* const node = moving.node;
  Sharding& now = moving.now;
  const AxisSet settle = now.partial & ~to.partial;
  for (int dim = 0; dim < node->rank() && settle != 0; ++dim) {
    const DimCut& cut = to.dims[dim];
    if (cut.axes == 0 || (cut.axes & ~settle) != 0 || now.dims[dim].axes != 0) continue;
    const int64_t parts = PartsOf(mesh_, cut.axes);
    if (graph_ != nullptr) moving.value = PadTo(moving.value, dim, parts * cut.chunk);
    now.dims[dim] = {cut.axes, parts * cut.chunk};  // its length, until it is scattered
    for (const auto& group : GroupsOfAxes(cut.axes)) {
      OB_ASSIGN_OR_RETURN(moving.value,
                          Emit(Op::kReduceScatter, moving.value,
                               {static_cast<int64_t>(Op::kAdd), dim}, group,
                               width * LocalBytes(now, node), moving.is_late));
      now.dims[dim].chunk /= group.first;
    }
    now.partial &= ~cut.axes;
  }
  return absl::OkStatus();
}

absl::Status RankWriter::JoinParts(Moving& moving, const Sharding& to) {
  const UOp* const node = moving.node;
  Sharding& now = moving.now;
  for (int dim = 0; dim < node->rank(); ++dim) {
    if (now.dims[dim].axes == 0 || now.dims[dim] == to.dims[dim]) continue;
    const DimCut cut = now.dims[dim];
    const auto groups = GroupsOfAxes(cut.axes);
    int other = 0;  // the dimension that is to be cut instead
    while (other < node->rank() &&
           (to.dims[other].axes != cut.axes || now.dims[other].axes != 0 || other == dim))
      ++other;
    if (other < node->rank() && to.dims[dim].axes == 0 && groups.size() == 1) {
      const int64_t padded = to.dims[other].chunk * PartsOf(mesh_, cut.axes);
      if (graph_ != nullptr) moving.value = PadTo(moving.value, other, padded);
      OB_ASSIGN_OR_RETURN(moving.value, Emit(Op::kAllToAll, moving.value, {other, dim}, groups[0],
                                             LocalBytes(now, node), moving.is_late));
      now.dims[other] = to.dims[other];
      now.dims[dim] = {};
    } else {
      for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
        OB_ASSIGN_OR_RETURN(moving.value, Emit(Op::kUnshard, moving.value, {dim}, *group,
                                               LocalBytes(now, node), moving.is_late));
        now.dims[dim].chunk *= group->first;
      }
      now.dims[dim] = {};
    }
    if (graph_ != nullptr) moving.value = ShrinkTo(moving.value, dim, 0, node->shape[dim]);
  }
  return absl::OkStatus();
}

void RankWriter::CutWhole(Moving& moving, const Sharding& to) {
  const UOp* const node = moving.node;
  for (int dim = 0; dim < node->rank(); ++dim) {
    const DimCut& cut = to.dims[dim];
    if (cut.axes == 0 || moving.now.dims[dim] == cut) continue;
    OB_CHECK(moving.now.dims[dim].axes == 0);
    moving.now.dims[dim] = cut;
    if (graph_ == nullptr) continue;
    const UOp* const padded =
        PadTo(moving.value, dim,
              std::max(node->shape[dim].value(), PartsOf(mesh_, cut.axes) * cut.chunk));
    const UOp* const begin = Mul(*graph_, PlaceIn(cut.axes), ConstIndex(*graph_, cut.chunk));
    moving.value =
        ShrinkTo(padded, dim, Dim(begin), Dim(Add(*graph_, begin, ConstIndex(*graph_, cut.chunk))));
  }
}

}  // namespace outboard::shard
