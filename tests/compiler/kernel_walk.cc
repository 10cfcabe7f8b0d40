// The walk is most of what tests of kernels take, so that a node's value is kept until a counter
// that it depends on changes, and the rounds of a plain reduction ask no node whether it did.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/reference/alu.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

using reference::LaneBlock;

// A float in `f`, an integer or a bool in `i`.
struct Value {
  double f = 0;
  int64_t i = 0;
};

class Walker {
 public:
  Walker(const UOp* sink, Buffers& buffers) : buffers_(buffers) {
    const std::vector<const UOp*> order = PostOrder(sink);
    for (const UOp* node : order)
      if (node->op == Op::kStore) stored_.push_back(GlobalOfAccess(node).slot());
    for (const UOp* node : order) Add(node);
    for (const UOp* store : sink->src)
      stores_.push_back({places_.at(store->src[0]), places_.at(store->src[1]),
                         store->src.size() == 3 ? places_.at(store->src[2]) : -1,
                         SumsPoints(store)});
    std::sort(ranges_.begin(), ranges_.end(), [this](int a, int b) {  // sequences inside
      return HasSmallerId(nodes_[a].uop, nodes_[b].uop);
    });
  }

  absl::Status Run() {
    std::vector<Value> values(stores_.size());
    Loop(ranges_, 0, ranges_.size(), [&] {
      for (size_t i = 0; i < stores_.size(); ++i) values[i] = Eval(stores_[i].value);
      for (size_t i = 0; i < stores_.size(); ++i) {
        if (stores_[i].gate >= 0 && Eval(stores_[i].gate).i == 0) continue;
        char* const at = At(nodes_[stores_[i].index]);
        if (at == nullptr) continue;
        const DType dtype = nodes_[stores_[i].index].dtype;
        if (stores_[i].sums) values[i].f = sums_[at] += values[i].f;
        IsFloat(dtype) ? StoreFloat(dtype, values[i].f, at) : StoreInt(dtype, values[i].i, at);
      }
      Change(kStores);
    });
    return status_;
  }

 private:
  // What a value depends on: a bit per RANGE, by its `counter`, and whether it reads what the
  // kernel stores to.
  static constexpr int kStores = 63;

  struct Node {
    const UOp* uop;
    Op op;
    DType dtype, of;  // `of`: of the first source
    int src[3] = {-1, -1, -1};
    std::vector<int> ranges;  // of a REDUCE_LOOP
    uint64_t depends = 0;
    int counter = -1;  // of a RANGE
    int group = 0;
    uint64_t version = 0;  // the group's, when `value` was computed; 0: none
    Value value;
    int64_t slot = -1, elements = 0;  // of an INDEX: where it reads or writes
    int width = 0;
    std::vector<int> steps;  // of a REDUCE_LOOP: see StepsOf
  };
  // The nodes that depend on the same counters.
  struct Group {
    uint64_t depends;
    uint64_t version = 1;
  };
  struct Store {
    int index, value, gate;
    bool sums;  // over the points of one place
  };

  void Add(const UOp* uop) {
    Node node{.uop = uop,
              .op = uop->op,
              .dtype = uop->dtype,
              .of = uop->src.empty() ? DType::kVoid : uop->src[0]->dtype};
    const int place = static_cast<int>(nodes_.size());
    for (size_t i = 0; i < uop->src.size(); ++i) {
      const int source = places_.at(uop->src[i]);
      if (uop->op == Op::kReduceLoop && i > 0) {
        node.ranges.push_back(source);
        continue;
      }
      if (uop->op != Op::kSink) node.src[i] = source;
      if (uop->op != Op::kRange) node.depends |= nodes_[source].depends;
    }
    for (const int range : node.ranges) node.depends &= ~nodes_[range].depends;
    if (uop->op == Op::kLoad &&
        std::find(stored_.begin(), stored_.end(), GlobalOfAccess(uop).slot()) != stored_.end())
      node.depends |= uint64_t{1} << kStores;
    if (uop->op == Op::kRange) {
      node.counter = counters_++;
      OB_CHECK(node.counter < kStores);
      node.depends = uint64_t{1} << node.counter;
      if (!IsRange(uop, RangeKind::kReduce)) ranges_.push_back(place);
    }
    const auto same = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
      return group.depends == node.depends;
    });
    node.group = static_cast<int>(same - groups_.begin());
    if (same == groups_.end()) groups_.push_back({node.depends});
    if (uop->op == Op::kIndex) {
      const GlobalOf global(uop->src[0]);
      node.slot = global.slot();
      node.elements = global.elements();
      node.width = ByteWidth(uop->dtype);
    }
    if (!node.ranges.empty()) node.steps = StepsOf(node);
    places_[uop] = place;
    nodes_.push_back(std::move(node));
  }

  // What each round of a reduction's last range computes, sources first. Empty where the values
  // have a say in it (a WHERE or a gate leaves a source out) and where there is a loop inside.
  std::vector<int> StepsOf(const Node& reduction) const {
    const uint64_t range = nodes_[reduction.ranges.back()].depends;
    std::vector<bool> is_seen(nodes_.size());
    std::vector<int> open = {reduction.src[0]}, steps;
    while (!open.empty()) {
      const int place = open.back();
      open.pop_back();
      if (is_seen[place]) continue;
      is_seen[place] = true;
      const Node& node = nodes_[place];
      const bool changes = (node.depends & range) != 0;
      const bool is_gated = node.op == Op::kLoad && node.src[1] >= 0;
      if (node.op == Op::kReduceLoop || (changes && (node.op == Op::kWhere || is_gated))) return {};
      for (const int source : node.src)
        if (source >= 0) open.push_back(source);
      if (changes && node.op != Op::kRange && node.op != Op::kIndex) steps.push_back(place);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  void Change(int bit) {
    for (Group& group : groups_) group.version += group.depends >> bit & 1;
  }
  void Count(Node& range, int64_t count) {
    range.value.i = count;
    Change(range.counter);
  }

  template <typename Body>
  void Loop(const std::vector<int>& ranges, size_t level, size_t levels, const Body& body) {
    if (level == levels) return body();
    // A reduction inside may have the same range: the terms of a softmax need the sum of all.
    Node& range = nodes_[ranges[level]];
    const int64_t before = range.value.i, extent = RangeOf(range.uop).extent();
    for (int64_t i = 0; i < extent; ++i) {
      Count(range, i);
      Loop(ranges, level + 1, levels, body);
    }
    Count(range, before);
  }

  template <bool kIsStep = false>
  char* At(const Node& index) {
    const int64_t element = Source<kIsStep>(index.src[1]).i;
    if (element < 0 || element >= index.elements) {
      status_ = absl::OutOfRangeError(absl::StrCat("slot ", index.slot, " element ", element));
      return nullptr;
    }
    return buffers_[index.slot].data() + element * index.width;
  }

  // By value: what is evaluated next may run a loop that changes it.
  Value Eval(int place) {
    Node& node = nodes_[place];
    if (node.op == Op::kRange) return node.value;
    if (node.version != groups_[node.group].version) {
      const Value value = Compute(node);
      node.value = value;
      node.version = groups_[node.group].version;  // after loops inside, which set counters back
    }
    return node.value;
  }

  // Of a step its sources are known: steps before it, and what does not change in the loop.
  template <bool kIsStep>
  Value Source(int place) {
    return kIsStep ? nodes_[place].value : Eval(place);
  }

  static Value OfInt(int64_t value) { return {.i = value}; }
  static Value OfFloat(double value) { return {.f = value}; }

  template <bool kIsStep = false>
  Value Compute(const Node& node) {
    const auto source = [&](int i) { return Source<kIsStep>(node.src[i]); };
    // What kernels are mostly made of, without the reference's vectors, which would be nearly all
    // of the time.
    const bool index = node.of == DType::kI64, f32 = node.of == DType::kF32;
    switch (node.op) {
      case Op::kConst:
        return IsFloat(node.dtype) ? OfFloat(node.uop->float_value())
                                   : OfInt(node.uop->int_value());
      case Op::kVar: return OfInt(VarOf(node.uop).max());  // the largest is as good as any
      case Op::kAdd:
      case Op::kMul: {
        if (!index && !f32) break;
        const Value a = source(0), b = source(1);
        const auto x = static_cast<uint64_t>(a.i), y = static_cast<uint64_t>(b.i);
        if (index) return OfInt(static_cast<int64_t>(node.op == Op::kAdd ? x + y : x * y));
        return OfFloat(static_cast<float>(node.op == Op::kAdd ? a.f + b.f : a.f * b.f));
      }
      case Op::kCmpLt: {
        if (!index) break;
        const int64_t a = source(0).i;
        return OfInt(a < source(1).i);
      }
      case Op::kAnd: {
        if (!IsBool(node.dtype)) break;
        const int64_t a = source(0).i;
        return OfInt(a & source(1).i);
      }
      case Op::kLoad: {
        if (node.src[1] >= 0 && source(1).i == 0) return source(2);
        const char* const at = At<kIsStep>(nodes_[node.src[0]]);
        if (node.dtype == DType::kF32) {
          float value = 0;
          if (at != nullptr) std::memcpy(&value, at, sizeof value);
          return OfFloat(value);
        }
        if (IsFloat(node.dtype)) return OfFloat(at ? LoadFloat(node.dtype, at) : 0);
        return OfInt(at ? LoadInt(node.dtype, at) : 0);
      }
      case Op::kWhere: return source(0).i ? source(1) : source(2);
      case Op::kCast:
        if (node.dtype == DType::kF32 && IsFloat(node.of))
          return OfFloat(static_cast<float>(source(0).f));
        break;
      case Op::kMulAcc: {
        const Value a = source(0), b = source(1), c = source(2);
        if (node.dtype == DType::kF64) return OfFloat(std::fma(a.f, b.f, c.f));
        return OfFloat(std::fma(static_cast<float>(a.f), static_cast<float>(b.f),
                                static_cast<float>(c.f)));
      }
      case Op::kReduceLoop: return Fold(node);
      default: break;
    }
    return ByReference(node, source(0), node.src[1] >= 0 ? source(1) : Value());
  }

  Value ByReference(const Node& node, const Value& a, const Value& b) {
    const auto set = [&](LaneBlock& lane, const Value& value) {
      lane.Resize(node.of, 1);
      IsFloat(node.of) ? void(lane.f[0] = value.f) : void(lane.i[0] = value.i);
    };
    set(a_, a);
    set(b_, b);
    switch (node.op) {
      case Op::kCast: reference::CastTile(node.of, node.dtype, a_, out_); break;
      case Op::kBitcast: reference::BitcastTile(node.of, node.dtype, a_, out_); break;
      default: reference::AluTile(node.op, node.of, a_, b_, out_);
    }
    return IsFloat(node.dtype) ? OfFloat(out_.f[0]) : OfInt(out_.i[0]);
  }

  // Calls `take` with each term of a reduction.
  template <typename Take>
  void Rounds(const Node& node, const Take& take) {
    Node& range = nodes_[node.ranges.back()];
    const int64_t extent = RangeOf(range.uop).extent();
    if (node.steps.empty() || extent == 0) {
      Loop(node.ranges, 0, node.ranges.size(), [&] { take(Eval(node.src[0])); });
      return;
    }
    Loop(node.ranges, 0, node.ranges.size() - 1, [&] {
      const int64_t before = range.value.i;
      Count(range, 0);
      take(Eval(node.src[0]));  // computes what the steps read, too
      for (range.value.i = 1; range.value.i < extent; ++range.value.i) {
        for (const int step : node.steps) nodes_[step].value = Compute<true>(nodes_[step]);
        take(nodes_[node.src[0]].value);
      }
      for (const int step : node.steps) nodes_[step].version = 0;
      Count(range, before);
    });
  }

  Value Fold(const Node& node) {
    const Op op = ReduceOf(node.uop).op();
    if (IsFloat(node.dtype)) {
      double total = op == Op::kMax ? -INFINITY : op == Op::kMul;
      Rounds(node, [&](const Value& term) {
        const double value = term.f;
        total = op == Op::kMax   ? reference::MaxFloat(total, value)
                : op == Op::kMul ? total * value
                                 : total + value;
      });
      return OfFloat(RoundTo(node.dtype, total));
    }
    int64_t total = op == Op::kMax ? IntMin(node.dtype) : op == Op::kMul;
    Rounds(node, [&](const Value& term) {
      const auto value = static_cast<uint64_t>(term.i), before = static_cast<uint64_t>(total);
      total = op == Op::kMax
                  ? reference::MaxInt(node.dtype, total, static_cast<int64_t>(value))
                  : WrapTo(node.dtype,
                           static_cast<int64_t>(op == Op::kMul ? before * value : before + value));
    });
    return OfInt(total);
  }

  Buffers& buffers_;
  std::vector<int64_t> stored_;  // slots
  std::vector<Node> nodes_;      // sources first
  absl::flat_hash_map<const UOp*, int> places_;
  std::vector<int> ranges_;  // that are not reduced
  int counters_ = 0;
  std::vector<Group> groups_;
  std::vector<Store> stores_;
  absl::flat_hash_map<const char*, double> sums_;  // of points so far, by their place
  LaneBlock a_, b_, out_;
  absl::Status status_;
};

}  // namespace

absl::Status WalkKernel(const UOp* sink, Buffers& buffers) { return Walker(sink, buffers).Run(); }

}  // namespace outboard::test
