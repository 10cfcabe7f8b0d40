#include "compiler/shard/lower.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec/walks.h"
#include "compiler/shard/products.h"
#include "compiler/shard/rules.h"

namespace outboard::shard {
namespace {

// More than one step makes, or walks: a RESHAPE, say, of which up to two movements a dimension are
// made on the way, each over sixteen dimensions. (The sums of dimensions in them are the client's,
// and exist.)
constexpr int64_t kNodesOfAStep = 4096, kWalksOfAStep = 1 << 15;

// Stands for every value where only the cost is counted.
const UOp* const kNoValue = nullptr;

// The number that a fold by `op` leaves as it is.
const UOp* IdentityOf(Graph& g, Op op, DType dtype) {
  if (op == Op::kAdd) return ConstOf(g, dtype, 0);
  if (op == Op::kMul) return ConstOf(g, dtype, 1);
  if (!IsFloat(dtype)) return ConstInt(g, dtype, dtype == DType::kU64 ? 0 : IntMin(dtype));
  // e4m3 has no infinity.
  return ConstFloat(g, dtype,
                    dtype == DType::kF8E4M3 ? -448 : -std::numeric_limits<double>::infinity());
}

// `x` where it exists, elsewhere what a fold by `op` leaves as it is. Of a sum of `products` the
// factors are masked, not the product: what a device stores past the end may be NaN, and a sum of
// products stays one for matrix units, which load zeros.
const UOp* Masked(Graph& g, Op op, const UOp* exists, const UOp* x, bool products) {
  const auto where_exists = [&](const UOp* value) {
    return Where(g, exists, value, Full(g, IdentityOf(g, op, value->dtype), value->shape));
  };
  const bool is_cast = x->op == Op::kCast && x->src[0]->op == Op::kMul;
  const UOp* const product = is_cast ? x->src[0] : x;
  if (!products || op != Op::kAdd || product->op != Op::kMul) return where_exists(x);
  const UOp* const masked = Mul(g, where_exists(product->src[0]), where_exists(product->src[1]));
  return is_cast ? Cast(g, masked, x->dtype) : masked;
}

}  // namespace

RankWriter::RankWriter(Graph* graph, const Mesh& mesh, const UOp* sink,
                       const std::vector<bool>* donated, const DeviceSpeeds& speeds)
    : graph_(graph), mesh_(mesh), donated_(donated), speeds_(speeds) {
  if (graph == nullptr) return;
  for (const UOp* node : PostOrder(sink)) number_.emplace(node, number_.size());
}

const RankWriter::Made* RankWriter::Frame::Find(int place, const Sharding& p) const {
  for (int i = first_made[place]; i >= 0; i = made[i].next)
    if (made[i].p == p) return &made[i];
  return nullptr;
}

void RankWriter::Frame::Add(const Key& key, const UOp* value, int traced) {
  made.push_back({key.p, value, traced, first_made[key.place]});
  first_made[key.place] = static_cast<int>(made.size()) - 1;
}

bool RankWriter::Recomputes(Frame& frame, int place, const Sharding& p,
                            std::vector<Sharding>& wants) const {
  const UOp* const node = frame.node(place);
  const NodePlan& plan = frame.plan->plans[place];
  if (p.partial != 0 || plan.raw.partial != 0 || node->op == Op::kContiguous ||
      node->op == Op::kLayout || node->op == Op::kAssign)
    return false;
  switch (FlowOf(node->op)) {
    case DimFlow::kNone:
    case DimFlow::kLeaf:
    case DimFlow::kReduce: return false;
    default: break;
  }
  const SourceShardings homes = frame.plan->HomesOfSources(place);
  if (!Demand(mesh_, node, p, homes, wants)) return false;
  // A device's part of a whole value; everything under it is whole as well, or is moved there.
  if (plan.home.is_whole())
    return std::all_of(homes.begin(), homes.end(), [](const auto* h) { return h->is_whole(); });
  // Moved before it grows: a weight before it is broadcast.
  return homes.size() == 1 && homes[0]->partial == 0 &&
         LocalBytes(wants[0], node->src[0]) <= LocalBytes(p, node);
}

absl::StatusOr<const UOp*> RankWriter::Get(Frame& frame, int place, const Sharding& p) {
  std::vector<Key> open = {{place, p}};
  std::vector<Key> needs;
  while (!open.empty()) {
    const Key key = open.back();
    if (frame.Find(key.place, key.p) != nullptr) {
      open.pop_back();
      continue;
    }
    needs.clear();
    bool done = false;
    OB_RETURN_IF_ERROR(Step(frame, key, needs, done));
    if (done) {
      open.pop_back();
    } else {
      // The first source first, so that nodes are made in the order of the client's graph.
      open.insert(open.end(), needs.rbegin(), needs.rend());
    }
  }
  return frame.Find(place, p)->value;
}

absl::Status RankWriter::CheckRoom(int64_t more_nodes) const {
  if (graph_ == nullptr) return absl::OkStatus();
  if (graph_->node_count() + more_nodes + kNodesOfAStep > limits::kGraphNodesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("the graph and what of it is written for devices need over ",
                     limits::kGraphNodesMax, " nodes"));
  if (graph_->walk_budget >= kWalksOfAStep) return absl::OkStatus();
  return spec::TakeSteps(*graph_, kWalksOfAStep, "what is written for devices");
}

absl::Status RankWriter::Step(Frame& frame, const Key& key, std::vector<Key>& needs, bool& done) {
  OB_RETURN_IF_ERROR(CheckRoom());
  const auto& [place, p] = key;
  const UOp* const node = frame.node(place);
  const NodePlan& plan = frame.plan->plans[place];
  std::vector<Sharding>& wants = wants_;
  const bool raw = p == plan.raw;
  if (!raw && (p == plan.home || !Recomputes(frame, place, p, wants))) {
    // Moved: from where its users find it, or from where its operation leaves it.
    const Sharding& from = p == plan.home ? plan.raw : plan.home;
    const Made* const found = frame.Find(place, from);
    if (found == nullptr) {
      needs.push_back({place, from});
      return absl::OkStatus();
    }
    const AxisSet moved = from.cut_axes();
    const bool hinted = node->op == Op::kLayout || frame.asked.contains(key) ||
                        (moved != 0 && (moved & ~plan.home.soft) == 0);
    const int64_t before = work_.collectives;
    OB_ASSIGN_OR_RETURN(const UOp* const value,
                        Convert(node, found->value, from, p, hinted, frame.is_late(place)));
    frame.Add(key, value, Note(frame, key, {found->memory}, work_.collectives != before));
    done = true;
    return absl::OkStatus();
  }
  const absl::Span<const int> places = frame.plan->frame->SourcesOf(place);
  if (raw) {
    wants.clear();
    if (node->op == Op::kLayout) {
      wants.push_back(p);
    } else if (node->op == Op::kCall) {
      const FramePlan* const body = frame.plan->bodies.at(place);
      for (size_t i = 1; i < places.size(); ++i)
        wants.push_back(body == nullptr ? WholeSharding(frame.node(places[i])->rank())
                                        : body->params[i - 1]);
    } else if (node->op == Op::kTuple) {
      wants = *frame.plan->tuples.at(place);
    } else if (FlowOf(node->op) != DimFlow::kNone && FlowOf(node->op) != DimFlow::kLeaf) {
      OB_CHECK(Demand(mesh_, node, p, frame.plan->HomesOfSources(place), wants));
    }
  }
  const int first = node->op == Op::kCall ? 1 : 0;
  std::vector<const UOp*>& sources = sources_;
  sources.clear();
  std::vector<int> from;
  if (node->op == Op::kGetTuple) wants.assign(1, Sharding());
  for (size_t i = 0; i < wants.size(); ++i) {
    const Made* const found = frame.Find(places[i + first], wants[i]);
    if (found == nullptr) {
      needs.push_back({places[i + first], wants[i]});
    } else {
      sources.push_back(found->value);
      if (graph_ == nullptr) from.push_back(found->memory);
    }
  }
  if (!needs.empty()) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const UOp* const value, Build(frame, place, p, wants, sources));
  frame.Add(key, value, Note(frame, key, std::move(from), /*moved=*/false));
  done = true;
  return absl::OkStatus();
}

int RankWriter::Note(Frame& frame, const Key& made, std::vector<int> sources, bool moved) {
  if (graph_ != nullptr) return 0;
  const auto& [place, p] = made;
  const UOp* const node = frame.node(place);
  const auto bytes_of = [](const UOp* value, const Sharding& at) {
    const bool wide = at.partial != 0 && AddsInF32(value->dtype);
    return LocalBytes(at, value) * (wide ? 4.0 / ByteWidth(value->dtype) : 1);
  };
  if (node->op == Op::kParam && sources.empty()) {
    const auto slot = static_cast<size_t>(ParamOf(node).slot());
    const bool donated = donated_ != nullptr && slot < donated_->size() && (*donated_)[slot];
    return frame.is_body ? frame.memory.Add({})
                         : frame.memory.AddInput({bytes_of(node, p), LeastLocalBytes(p, node)},
                                                 donated);
  }
  MemoryTrace::Value value{.sources = std::move(sources)};
  if (moved) {
    value.bytes = bytes_of(node, p);
  } else if (node->op == Op::kCall) {
    if (const FramePlan* body = frame.plan->bodies.at(place); body != nullptr) {
      const Body& of = bodies_.at(body);
      value.bytes = of.result_bytes;
      value.within = std::max(0.0, of.work.peak_bytes - of.result_bytes);
    } else if (node->dtype != DType::kVoid) {
      value.bytes = bytes_of(node, p);
    }
  } else if ((node->op == Op::kReduce && frame.plan->frame->is_stored[place]) ||
             node->op == Op::kContiguous || node->op == Op::kAssign) {
    value.bytes = bytes_of(node, p);
  }
  return frame.memory.Add(std::move(value));
}

void RankWriter::NoteResult(Frame& frame, int place, const Sharding& p) {
  if (graph_ != nullptr) return;
  const UOp* const node = frame.node(place);
  const int value = frame.Find(place, p)->memory;
  if (node->dtype != DType::kVoid)
    return frame.memory.Keep(value, {LocalBytes(p, node), LeastLocalBytes(p, node)});
  const double bytes = frame.memory.stored_bytes(value);  // of a call that gives a tuple
  frame.memory.Keep(value, {bytes, bytes});
}

absl::StatusOr<const UOp*> RankWriter::BuildReduce(const Frame& frame, int place,
                                                   const Sharding& out, const Sharding& in,
                                                   const UOp* x) {
  const UOp* const node = frame.node(place);
  const bool is_gather = frame.plan->frame->is_gather[place];
  const ReduceOf reduce(node);
  const bool write = graph_ != nullptr;
  if (!is_gather)
    work_.operations += 2 * LocalBytes(in, node->src[0]) / ByteWidth(node->src[0]->dtype);
  AxisSet summed = 0;
  for (int dim = 0; dim < node->rank(); ++dim) {
    const DimCut& cut = in.dims[dim];
    if (!reduce.reduces(dim) || cut.axes == 0) continue;
    summed |= cut.axes;
    const int64_t length = node->src[0]->shape[dim].value();
    if (!write || PartsOf(mesh_, cut.axes) * cut.chunk == length) continue;
    // What is past the end of the dimension counts as nothing.
    Graph& g = *graph_;
    const UOp* const begin = Mul(g, PlaceIn(cut.axes), ConstIndex(g, cut.chunk));
    const Shape run = {Dim(cut.chunk)};
    const UOp* const index = Add(g, Iota(g, DType::kI64, cut.chunk), Full(g, begin, run));
    const UOp* exists = Alu(g, Op::kCmpLt, index, Full(g, ConstIndex(g, length), run));
    Shape ones(x->rank(), Dim(1));
    ones[dim] = Dim(cut.chunk);
    exists = Expand(g, Reshape(g, exists, ones), x->shape);
    x = Masked(g, reduce.op(), exists, x, !is_gather);
  }
  std::vector<int64_t> axes(reduce.axes().begin(), reduce.axes().end());
  const UOp* value = kNoValue;
  if (write) {
    if (out.partial != 0 && AddsInF32(node->dtype)) x = Cast(*graph_, x, DType::kF32);
    value = Reduce(*graph_, reduce.op(), x, axes);
  }
  if (reduce.op() == Op::kAdd || summed == 0) return value;
  at_ = node;
  hinted_ = true;
  for (const auto& group : GroupsOfAxes(summed)) {
    OB_ASSIGN_OR_RETURN(value, Emit(Op::kAllReduce, value, {static_cast<int64_t>(reduce.op())},
                                    group, LocalBytes(out, node), frame.is_late(place)));
  }
  return value;
}

absl::StatusOr<const UOp*> RankWriter::BuildCall(Frame& frame, int place,
                                                 const std::vector<const UOp*>& arguments) {
  const FramePlan* const plan = frame.plan->bodies.at(place);
  const UOp* const function = frame.node(place)->src[0];
  std::vector<const UOp*> src = {function};
  src.insert(src.end(), arguments.begin(), arguments.end());
  if (plan == nullptr)
    return graph_ == nullptr ? kNoValue : graph_->Make(Op::kCall, DType::kVoid, src);
  auto known = bodies_.find(plan);
  if (known == bodies_.end()) {
    const ShardWork before = std::exchange(work_, {});
    Frame inner(plan, /*body=*/true);
    Body body;
    OB_ASSIGN_OR_RETURN(const UOp* const root, WriteRoot(inner));
    body.work = std::exchange(work_, before);
    body.work.peak_bytes = inner.memory.peak_bytes();
    body.result_bytes = inner.memory.kept_bytes();
    if (graph_ != nullptr) {
      OB_RETURN_IF_ERROR(CheckRoom(std::ssize(function->src)));
      std::vector<const UOp*> parts = {root};
      for (size_t i = 1; i < function->src.size(); ++i)
        parts.push_back(Param(*graph_, static_cast<int64_t>(i) - 1, function->src[i]->dtype,
                              LocalShape(plan->params[i - 1], function->src[i]->shape)));
      OB_ASSIGN_OR_RETURN(body.function, graph_->Make(Op::kFunction, DType::kVoid, parts));
    }
    known = bodies_.emplace(plan, body).first;
  }
  const Body& body = known->second;
  work_.operations += body.work.operations;
  work_.bytes_sent += body.work.bytes_sent;
  work_.collectives += body.work.collectives;
  work_.transfer_s += body.work.transfer_s;
  if (frame.is_late(place)) work_.late_s += body.work.late_s;
  if (graph_ == nullptr) return kNoValue;
  src[0] = body.function;
  return graph_->Make(Op::kCall, DType::kVoid, src);
}

absl::StatusOr<const UOp*> RankWriter::Build(Frame& frame, int place, const Sharding& out,
                                             const std::vector<Sharding>& wants,
                                             const std::vector<const UOp*>& sources) {
  const UOp* const node = frame.node(place);
  if (node->op == Op::kReduce) return BuildReduce(frame, place, out, wants[0], sources[0]);
  if (node->op == Op::kCall) return BuildCall(frame, place, sources);
  if (graph_ == nullptr) return kNoValue;
  Graph& g = *graph_;
  const Shape local = LocalShape(out, node->shape);
  switch (node->op) {
    case Op::kConst:
    case Op::kVar: return node;
    case Op::kParam: return Param(g, ParamOf(node).slot(), node->dtype, local);
    case Op::kLayout: return sources[0];
    case Op::kTuple: return g.Make(Op::kTuple, DType::kVoid, sources);
    case Op::kGetTuple:
      return g.Make(Op::kGetTuple, DType::kVoid, sources, {GetTupleOf(node).index()});
    case Op::kIota: {
      const DimCut& cut = out.dims[0];
      if (cut.axes == 0) return node;
      const UOp* const begin = Mul(g, PlaceIn(cut.axes), ConstIndex(g, cut.chunk));
      return Add(g, Iota(g, node->dtype, cut.chunk), Full(g, Cast(g, begin, node->dtype), local));
    }
    case Op::kCast: return Cast(g, sources[0], node->dtype);
    case Op::kBitcast: return Bitcast(g, sources[0], node->dtype);
    case Op::kReshape: return Reshape(g, sources[0], local);
    case Op::kExpand: return Expand(g, sources[0], local);
    case Op::kPermute: return Permute(g, sources[0], PermuteOf(node).axes());
    case Op::kFlip: return Flip(g, sources[0], FlipOf(node).axes());
    case Op::kPad: {
      Shape lo_hi;
      for (int i = 0; i < node->rank(); ++i) {
        lo_hi.push_back(PadOf(node).low(i));
        lo_hi.push_back(PadOf(node).high(i));
      }
      return Pad(g, sources[0], lo_hi);  // 0 and 0 where it is cut
    }
    case Op::kShrink: {
      Shape begin_end;
      for (int i = 0; i < node->rank(); ++i) {
        const bool cut = out.dims[i].axes != 0;
        begin_end.push_back(cut ? Dim(0) : ShrinkOf(node).begin(i));
        begin_end.push_back(cut ? local[i] : ShrinkOf(node).end(i));
      }
      return Shrink(g, sources[0], begin_end);
    }
    default: return g.Make(node->op, DType::kVoid, sources);
  }
}

absl::StatusOr<const UOp*> RankWriter::WriteRoot(Frame& frame) {
  const int place = static_cast<int>(frame.plan->plans.size()) - 1;
  const UOp* const root = frame.node(place);
  if (root->op != Op::kTuple) {
    const Sharding p = root->dtype == DType::kVoid ? Sharding() : frame.plan->results[0];
    OB_ASSIGN_OR_RETURN(const UOp* const value, Get(frame, place, p));
    NoteResult(frame, place, p);
    return value;
  }
  std::vector<const UOp*> values;
  const absl::Span<const int> sources = frame.plan->frame->SourcesOf(place);
  for (size_t i = 0; i < sources.size(); ++i) {
    OB_ASSIGN_OR_RETURN(const UOp* const value, Get(frame, sources[i], frame.plan->results[i]));
    values.push_back(value);
    NoteResult(frame, sources[i], frame.plan->results[i]);
  }
  return graph_ == nullptr ? kNoValue : graph_->Make(Op::kTuple, DType::kVoid, values);
}

absl::StatusOr<const UOp*> RankWriter::Run(const FramePlan& plan) {
  Frame frame(&plan, /*body=*/false);
  const int place = static_cast<int>(plan.plans.size()) - 1;
  const UOp* const sink = frame.node(place);
  const absl::Span<const int> sources = plan.frame->SourcesOf(place);
  std::vector<const UOp*> results;
  for (size_t i = 0; i < sources.size(); ++i) frame.asked.insert({sources[i], plan.results[i]});
  for (size_t i = 0; i < sources.size(); ++i) {
    OB_ASSIGN_OR_RETURN(const UOp* const value, Get(frame, sources[i], plan.results[i]));
    results.push_back(value);
    NoteResult(frame, sources[i], plan.results[i]);
  }
  work_.peak_bytes = frame.memory.peak_bytes();
  work_.kept_bytes = frame.memory.kept_bytes();
  return graph_ == nullptr ? kNoValue : graph_->Make(Op::kSink, DType::kVoid, results, sink->arg);
}

}  // namespace outboard::shard
