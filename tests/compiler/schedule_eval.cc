#include "tests/compiler/schedule_eval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/rewrite/bind.h"

namespace outboard::test {
namespace {

// A scalar of any type: floats in `f`, rounded to their type; integers and bool in `i`, wrapped.
struct Value {
  double f = 0;
  int64_t i = 0;
};

uint64_t Threefry(uint64_t counter, uint64_t key) {
  // Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); 20 rounds.
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32_t k[3] = {
      static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32),
      static_cast<uint32_t>(key) ^ static_cast<uint32_t>(key >> 32) ^ 0x1BD11BDA};
  uint32_t x0 = static_cast<uint32_t>(counter) + k[0],
           x1 = static_cast<uint32_t>(counter >> 32) + k[1];
  for (int round = 0; round < 20; ++round) {
    x0 += x1;
    x1 = std::rotl(x1, kRotations[round % 8]) ^ x0;
    if (round % 4 == 3) {
      const int s = round / 4 + 1;
      x0 += k[s % 3];
      x1 += k[(s + 1) % 3] + s;
    }
  }
  return static_cast<uint64_t>(x1) << 32 | x0;
}

// Some seconds. Sums in sums in sums are computed again for each step of the outer ones.
constexpr int64_t kWalkStepsMax = int64_t{1} << 26;

class Evaluator {
 public:
  Evaluator(const UOp* ast, std::vector<std::string*> buffers, std::span<const Binding> bindings)
      : buffers_(std::move(buffers)) {
    Number(ast, bindings);
  }

  absl::Status Run() {
    std::vector<int> ranges;
    for (int place = 0; place < std::ssize(nodes_); ++place)
      if (nodes_[place].op == Op::kRange && !IsRange(nodes_[place].uop, RangeKind::kReduce))
        ranges.push_back(place);
    std::sort(ranges.begin(), ranges.end(),
              [this](int x, int y) { return HasSmallerId(nodes_[x].uop, nodes_[y].uop); });
    std::vector<Value> values(stores_.size());
    Loop(ranges, [&] {
      point_ = ++now_;
      // All values before any store: a kernel reads what was there before it.
      for (size_t s = 0; s < stores_.size(); ++s) values[s] = Eval(stores_[s].value);
      for (size_t s = 0; s < stores_.size() && status_.ok(); ++s) {
        const Store& store = stores_[s];
        if (store.gate >= 0 && !Eval(store.gate).i) continue;
        char* const at = Place(nodes_[store.index]);
        if (at == nullptr) return;
        if (store.sums) values[s].f = sums_[at] += values[s].f;
        const DType dtype = nodes_[store.index].dtype;
        IsFloat(dtype) ? StoreFloat(dtype, values[s].f, at) : StoreInt(dtype, values[s].i, at);
      }
    });
    return status_;
  }

 private:
  // A value that several nodes use is kept until a counter that it depends on moves, or the point
  // is another: without that, walking takes exponential time. A reduction is kept also for other
  // points: a kernel computes it once for all that it does not depend on, which matters where it
  // stores over what the reduction has read. The steps of a sequence may read what others stored.
  struct Node {
    const UOp* uop;
    Op op;
    DType dtype, of;  // `of`: of the first source
    int src[3] = {-1, -1, -1};
    std::vector<int> ranges;  // of a REDUCE_LOOP
    bool is_kept = false;
    std::vector<int> counters;  // RANGEs that it depends on
    uint64_t made = 0;          // when `value` was, by now_; 0: never
    Value value;                // of a RANGE its counter; of a CONST and a VAR what it always is
    uint64_t moved = 0;         // of a RANGE: when its counter did last, by now_
    int64_t slot = -1, elements = 0, width = 0;  // of an INDEX: where it reads or writes
  };
  struct Store {
    int index, value, gate;
    bool sums;  // over the points of one place
  };

  void Number(const UOp* ast, std::span<const Binding> bindings) {
    const std::vector<const UOp*> order = PostOrder(ast);
    absl::flat_hash_map<const UOp*, int> places;
    std::vector<absl::flat_hash_set<int>> counters(order.size());
    std::vector<int> users(order.size());
    for (const UOp* uop : order) {
      const int place = static_cast<int>(nodes_.size());
      places[uop] = place;
      Node node{.uop = uop,
                .op = uop->op,
                .dtype = uop->dtype,
                .of = uop->src.empty() ? DType::kVoid : uop->src[0]->dtype};
      absl::flat_hash_set<int>& mine = counters[place];
      if (node.op == Op::kRange) mine.insert(place);
      sequences_ |= IsRange(uop, RangeKind::kSequence);
      for (size_t i = 0; i < uop->src.size(); ++i) {
        const int source = places.at(uop->src[i]);
        ++users[source];
        mine.insert(counters[source].begin(), counters[source].end());
        if (node.op == Op::kReduceLoop && i > 0)
          node.ranges.push_back(source);
        else if (node.op != Op::kSink)
          node.src[i] = source;
      }
      for (const int range : node.ranges) mine.erase(range);
      if (node.op == Op::kConst)
        node.value =
            IsFloat(uop->dtype) ? Value{uop->float_value(), 0} : Value{0, uop->int_value()};
      if (node.op == Op::kVar) node.value = {0, BoundTo(VarOf(uop).slot(), bindings)};
      if (node.op == Op::kIndex) {
        const GlobalOf global(uop->src[0]);
        node.slot = global.slot();
        node.elements = global.elements();
        node.width = ByteWidth(uop->dtype);
      }
      nodes_.push_back(std::move(node));
    }
    for (int place = 0; place < std::ssize(nodes_); ++place) {
      Node& node = nodes_[place];
      node.is_kept = (users[place] > 1 && !node.uop->src.empty()) || node.op == Op::kReduceLoop;
      if (node.is_kept) node.counters.assign(counters[place].begin(), counters[place].end());
    }
    for (const UOp* store : ast->src)
      stores_.push_back({places.at(store->src[0]), places.at(store->src[1]),
                         store->src.size() == 3 ? places.at(store->src[2]) : -1,
                         SumsPoints(store)});
  }

  static int64_t BoundTo(int64_t slot, std::span<const Binding> bindings) {
    for (const Binding& binding : bindings)
      if (binding.slot == slot) return binding.value;
    OB_CHECK(false && "a VAR is bound");
    return 0;
  }

  Value Eval(int place) {
    Node& node = nodes_[place];
    if (!node.is_kept || node.op == Op::kRange) return Compute(node);
    const auto moved = [&](int range) { return nodes_[range].moved > node.made; };
    const bool stays = node.op == Op::kReduceLoop && !sequences_;
    const uint64_t since = stays ? 1 : point_;
    if (node.made < since || absl::c_any_of(node.counters, moved)) {
      const Value value = Compute(node);  // may move counters, but none of this node's
      node.value = value;
      node.made = ++now_;
    }
    return node.value;
  }

  void Set(Node& range, int64_t value) {
    range.value.i = value;
    range.moved = ++now_;
  }

  template <typename Body>
  void Loop(const std::vector<int>& ranges, const Body& body) {
    for (const int range : ranges) {
      if (LengthOf(nodes_[range]) == 0) return;
      Set(nodes_[range], 0);
    }
    while (status_.ok()) {
      body();
      size_t i = ranges.size();
      while (i > 0 && Last(nodes_[ranges[i - 1]])) Set(nodes_[ranges[--i]], 0);
      if (i == 0) return;
      Node& range = nodes_[ranges[i - 1]];
      Set(range, range.value.i + 1);
    }
  }

  bool Last(const Node& range) { return range.value.i + 1 == LengthOf(range); }

  int64_t LengthOf(const Node& range) {
    const int64_t extent = RangeOf(range.uop).extent();
    if (range.src[0] < 0) return extent;
    const int64_t end = Eval(range.src[0]).i;
    if (end < 0 || end > extent)
      status_ = absl::OutOfRangeError(absl::StrCat("the end ", end, " of a range of ", extent));
    return std::clamp<int64_t>(end, 0, extent);
  }

  char* Place(const Node& index) {
    const int64_t element = Eval(index.src[1]).i;
    if (element < 0 || element >= index.elements) {
      status_ = absl::OutOfRangeError(absl::StrCat("element ", element, " of slot ", index.slot,
                                                   ", which has ", index.elements));
      return nullptr;
    }
    return buffers_[index.slot]->data() + element * index.width;
  }

  Value Read(const Node& index) {
    const char* const at = Place(index);
    if (at == nullptr) return {};
    return IsFloat(index.dtype) ? Value{LoadFloat(index.dtype, at), 0}
                                : Value{0, LoadInt(index.dtype, at)};
  }

  Value Compute(const Node& node) {
    if (++steps_ > kWalkStepsMax) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("a kernel's walk takes over ", kWalkStepsMax, " steps"));
      return {};
    }
    switch (node.op) {
      case Op::kConst:
      case Op::kRange:
      case Op::kVar: return node.value;
      case Op::kLoad:
        if (node.src[2] >= 0 && !Eval(node.src[1]).i) return Eval(node.src[2]);
        return Read(nodes_[node.src[0]]);
      case Op::kReduceLoop: return Fold(node);
      case Op::kWhere: return Eval(node.src[0]).i ? Eval(node.src[1]) : Eval(node.src[2]);
      case Op::kCast: return Convert(Eval(node.src[0]), node.of, node.dtype);
      case Op::kBitcast: {
        char bytes[8] = {};
        const Value v = Eval(node.src[0]);
        IsFloat(node.of) ? StoreFloat(node.of, v.f, bytes) : StoreInt(node.of, v.i, bytes);
        return IsFloat(node.dtype) ? Value{LoadFloat(node.dtype, bytes), 0}
                                   : Value{0, LoadInt(node.dtype, bytes)};
      }
      default: break;
    }
    const Value a = Eval(node.src[0]);
    const Value b = node.src[1] >= 0 ? Eval(node.src[1]) : Value{};
    if (IsFloat(node.of)) return FloatAlu(node.uop, a.f, b.f);
    return {0, WrapTo(node.dtype, IntAlu(node.uop, a.i, b.i))};
  }

  Value Fold(const Node& node) {
    const Op op = ReduceOf(node.uop).op();
    const bool is_float = IsFloat(node.dtype);
    // Sums of narrow floats are kept wider, as docs/semantics.md allows.
    Value sum = {op == Op::kMul   ? 1.0
                 : op == Op::kMax ? -std::numeric_limits<double>::infinity()
                                  : 0.0,
                 op == Op::kMul   ? 1
                 : op == Op::kMax ? IntMin(node.dtype)
                                  : 0};
    // Its ranges may be those of a loop around it, which goes on where it was.
    absl::InlinedVector<int64_t, 4> before;
    for (const int range : node.ranges) before.push_back(nodes_[range].value.i);
    Loop(node.ranges, [&] {
      const Value v = Eval(node.src[0]);
      if (is_float)
        sum.f = op == Op::kAdd ? sum.f + v.f : op == Op::kMul ? sum.f * v.f : MaxOf(sum.f, v.f);
      else if (op == Op::kMax)
        sum.i = Less(node.dtype, sum.i, v.i) ? v.i : sum.i;
      else
        sum.i = WrapTo(
            node.dtype,
            static_cast<int64_t>(op == Op::kAdd
                                     ? static_cast<uint64_t>(sum.i) + static_cast<uint64_t>(v.i)
                                     : static_cast<uint64_t>(sum.i) * static_cast<uint64_t>(v.i)));
    });
    for (size_t i = 0; i < before.size(); ++i) Set(nodes_[node.ranges[i]], before[i]);
    if (is_float) sum.f = RoundTo(node.dtype, sum.f);
    return sum;
  }

  static double MaxOf(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return NAN;
    return a == b && std::signbit(a) ? b : std::max(a, b);  // +0 over -0
  }

  static bool Less(DType dtype, int64_t a, int64_t b) {
    return dtype == DType::kU64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
  }

  static Value Convert(Value v, DType from, DType to) {
    if (IsFloat(from)) {
      if (IsFloat(to)) return {RoundTo(to, v.f), 0};
      if (IsBool(to)) return {0, v.f != 0};
      if (std::isnan(v.f)) return {0, 0};
      if (to == DType::kU64)
        return {0, v.f <= 0 ? 0
                   : v.f >= 18446744073709551616.0
                       ? -1
                       : static_cast<int64_t>(static_cast<uint64_t>(v.f))};
      if (v.f <= static_cast<double>(IntMin(to))) return {0, IntMin(to)};
      if (v.f >= static_cast<double>(IntMax(to))) return {0, IntMax(to)};
      return {0, static_cast<int64_t>(v.f)};
    }
    if (!IsFloat(to)) return {0, WrapTo(to, v.i)};
    if (to == DType::kF32)
      return {from == DType::kU64 ? static_cast<float>(static_cast<uint64_t>(v.i))
                                  : static_cast<float>(v.i),
              0};
    return {RoundTo(to, from == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(v.i))
                                            : static_cast<double>(v.i)),
            0};
  }

  static Value FloatAlu(const UOp* node, double a, double b) {
    double r = 0;
    switch (node->op) {
      case Op::kCmpLt: return {0, a < b};
      case Op::kCmpNe: return {0, a != b};
      case Op::kCmpEq: return {0, a == b};
      case Op::kNeg: r = -a; break;
      case Op::kExp2: r = std::exp2(a); break;
      case Op::kLog2: r = std::log2(a); break;
      case Op::kSin: r = std::sin(a); break;
      case Op::kSqrt: r = std::sqrt(a); break;
      case Op::kTrunc: r = std::trunc(a); break;
      case Op::kExp: r = std::exp(a); break;
      case Op::kLog: r = std::log(a); break;
      case Op::kCos: r = std::cos(a); break;
      case Op::kTanh: r = std::tanh(a); break;
      case Op::kAdd: r = a + b; break;
      case Op::kMul: r = a * b; break;
      case Op::kFDiv: r = a / b; break;
      case Op::kMax: r = MaxOf(a, b); break;
      default: OB_CHECK(false);
    }
    return {RoundTo(node->dtype, r), 0};
  }

  static int64_t IntAlu(const UOp* node, int64_t a, int64_t b) {
    const DType t = node->src[0]->dtype;
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    const auto bits = static_cast<uint64_t>(8 * ByteWidth(t));
    switch (node->op) {
      case Op::kNeg: return static_cast<int64_t>(0 - ua);
      case Op::kAdd: return static_cast<int64_t>(ua + ub);
      case Op::kMul: return static_cast<int64_t>(ua * ub);
      case Op::kIDiv:
        if (b == 0) return 0;
        if (t == DType::kU64) return static_cast<int64_t>(ua / ub);
        return b == -1 ? static_cast<int64_t>(0 - ua) : a / b;
      case Op::kMod:
        if (b == 0) return a;
        if (t == DType::kU64) return static_cast<int64_t>(ua % ub);
        return b == -1 ? 0 : a % b;
      case Op::kMax: return Less(t, a, b) ? b : a;
      case Op::kCmpLt: return Less(t, a, b);
      case Op::kCmpNe: return a != b;
      case Op::kCmpEq: return a == b;
      case Op::kAnd: return a & b;
      case Op::kOr: return a | b;
      case Op::kXor: return a ^ b;
      case Op::kShl: return ub >= bits ? 0 : static_cast<int64_t>(ua << ub);
      case Op::kShr:
        if (ub >= bits) return IsSigned(t) && a < 0 ? -1 : 0;
        return t == DType::kU64 ? static_cast<int64_t>(ua >> ub) : a >> ub;
      case Op::kThreefry: return static_cast<int64_t>(Threefry(ua, ub));
      default: OB_CHECK(false);
    }
    return 0;
  }

  std::vector<std::string*> buffers_;
  std::vector<Node> nodes_;  // sources first
  std::vector<Store> stores_;
  absl::flat_hash_map<const char*, double> sums_;  // of points so far, by their place
  bool sequences_ = false;
  int64_t steps_ = 0;
  uint64_t now_ = 1, point_ = 1;  // point_: when this one began
  absl::Status status_;
};

// Element by element, where `tensor` is row-major and `memory` has a room for each dimension.
void CopyRooms(HostTensor& tensor, std::string& memory, const std::vector<int64_t>& padded_dims,
               bool to_memory) {
  const int width = ByteWidth(tensor.dtype);
  for (int64_t element = 0; element < tensor.ElementCount(); ++element) {
    int64_t place = 0, stride = 1, left = element;
    for (size_t i = padded_dims.size(); i-- > 0;) {
      place += left % tensor.dims[i] * stride;
      left /= tensor.dims[i];
      stride *= padded_dims[i];
    }
    char *const dense = tensor.bytes.data() + element * width, *const room =
                                                                   memory.data() + place * width;
    std::copy_n(to_memory ? dense : room, width, to_memory ? room : dense);
  }
}

}  // namespace

absl::StatusOr<std::vector<HostTensor>> EvaluateSchedule(const schedule::Schedule& schedule,
                                                         const UOp* sink,
                                                         std::span<const HostTensor> params,
                                                         std::span<const Binding> bindings) {
  using Kind = schedule::ScheduledBuffer::Kind;
  std::vector<HostTensor> results;
  for (const UOp* result : sink->src) {
    OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(result->shape, bindings));
    HostTensor tensor{result->dtype, std::move(dims), {}};
    tensor.bytes.assign(tensor.ElementCount() * ByteWidth(result->dtype), '\0');
    results.push_back(std::move(tensor));
  }
  // Temporaries get memory of their own here, filled with what no kernel should read.
  std::vector<std::string> memory(schedule.buffers.size());
  std::vector<std::string*> buffers;
  std::vector<HostTensor> inputs(params.begin(), params.end());
  const auto result_memory = [&](int64_t result) {
    const int over = schedule.over[result];
    return over == schedule::kNoInput ? &results[result].bytes : &inputs[over].bytes;
  };
  for (size_t i = 0; i < schedule.buffers.size(); ++i) {
    const schedule::ScheduledBuffer& buffer = schedule.buffers[i];
    memory[i].assign(buffer.bytes(), '\x7f');
    if (!buffer.padded_dims.empty() && buffer.kind == Kind::kInput)
      CopyRooms(inputs[buffer.index], memory[i], buffer.padded_dims, /*to_memory=*/true);
    buffers.push_back(!buffer.padded_dims.empty()    ? &memory[i]
                      : buffer.kind == Kind::kInput  ? &inputs[buffer.index].bytes
                      : buffer.kind == Kind::kOutput ? result_memory(buffer.index)
                                                     : &memory[i]);
  }
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    std::vector<std::string*> slots;
    for (const int b : schedule.kernels[k].buffers) slots.push_back(buffers[b]);
    const absl::Status status = Evaluator(schedule.kernels[k].ast, slots, bindings).Run();
    if (!status.ok())
      return absl::Status(status.code(), absl::StrCat("kernel ", k, ": ", status.message()));
  }
  for (size_t i = 0; i < schedule.buffers.size(); ++i)
    if (const schedule::ScheduledBuffer& buffer = schedule.buffers[i];
        !buffer.padded_dims.empty() && buffer.kind == Kind::kOutput)
      CopyRooms(results[buffer.index], memory[i], buffer.padded_dims, /*to_memory=*/false);
  for (size_t i = 0; i < results.size(); ++i) results[i].bytes = std::string(*result_memory(i));
  return results;
}

}  // namespace outboard::test
