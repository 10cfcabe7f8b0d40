#include "tests/compiler/schedule_eval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
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
      : ast_(ast), buffers_(std::move(buffers)), bindings_(bindings) {
    FindShared();
  }

  absl::Status Run() {
    std::vector<const UOp*> ranges;
    for (const UOp* node : PostOrder(ast_))
      if (node->op == Op::kRange && !IsRange(node, RangeKind::kReduce)) ranges.push_back(node);
    std::sort(ranges.begin(), ranges.end(), HasSmallerId);
    Loop(ranges, [&] {
      point_ = ++now_;
      // All values before any store: a kernel reads what was there before it.
      std::vector<Value> values;
      for (const UOp* store : ast_->src) values.push_back(Eval(store->src[1]));
      for (size_t s = 0; s < values.size() && status_.ok(); ++s) {
        const UOp& place = *ast_->src[s]->src[0];
        if (ast_->src[s]->src.size() == 3 && !Eval(ast_->src[s]->src[2]).i) continue;
        char* const at = Place(place);
        if (at == nullptr) return;
        if (SumsPoints(ast_->src[s])) values[s].f += sums_[at];
        if (SumsPoints(ast_->src[s])) sums_[at] = values[s].f;
        IsFloat(place.dtype) ? StoreFloat(place.dtype, values[s].f, at)
                             : StoreInt(place.dtype, values[s].i, at);
      }
    });
    return status_;
  }

 private:
  // A value that several nodes use is kept until a counter that it depends on moves, or the point
  // is another: without that, walking takes exponential time. A reduction is kept also for other
  // points: a kernel computes it once for all that it does not depend on, which matters where it
  // stores over what the reduction has read. The steps of a sequence may read what others stored.
  struct Shared {
    std::vector<const UOp*> counters;
    uint64_t made = 0;  // by now_; 0: never
    Value value;
  };

  void FindShared() {
    absl::flat_hash_map<const UOp*, int> users;
    absl::flat_hash_map<const UOp*, absl::flat_hash_set<const UOp*>> counters;
    for (const UOp* node : PostOrder(ast_)) {
      absl::flat_hash_set<const UOp*>& mine = counters[node];
      if (node->op == Op::kRange) mine.insert(node);
      sequences_ |= IsRange(node, RangeKind::kSequence);
      for (const UOp* s : node->src) {
        ++users[s];
        mine.insert(counters.at(s).begin(), counters.at(s).end());
      }
      if (node->op == Op::kReduceLoop)
        for (size_t i = 1; i < node->src.size(); ++i) mine.erase(node->src[i]);
    }
    for (const auto& [node, count] : users)
      if ((count > 1 && !node->src.empty()) || node->op == Op::kReduceLoop)
        shared_[node].counters.assign(counters.at(node).begin(), counters.at(node).end());
  }

  Value Eval(const UOp* node) {
    const auto found = shared_.find(node);
    if (found == shared_.end()) return Compute(node);
    const auto moved = [&](const UOp* range) { return moved_[range] > found->second.made; };
    const bool stays = node->op == Op::kReduceLoop && !sequences_;
    const uint64_t since = stays ? 1 : point_;
    if (found->second.made < since || absl::c_any_of(found->second.counters, moved)) {
      const Value value = Compute(node);  // may move counters, but none of this node's
      found->second.value = value;
      found->second.made = ++now_;
    }
    return found->second.value;
  }

  void Set(const UOp* range, int64_t value) {
    counters_[range] = value;
    moved_[range] = ++now_;
  }

  template <typename Body>
  void Loop(const std::vector<const UOp*>& ranges, const Body& body) {
    for (const UOp* range : ranges) {
      if (LengthOf(range) == 0) return;
      Set(range, 0);
    }
    while (status_.ok()) {
      body();
      size_t i = ranges.size();
      while (i > 0 && counters_.at(ranges[i - 1]) + 1 == LengthOf(ranges[i - 1]))
        Set(ranges[--i], 0);
      if (i == 0) return;
      Set(ranges[i - 1], counters_.at(ranges[i - 1]) + 1);
    }
  }

  int64_t LengthOf(const UOp* range) {
    if (range->src.empty()) return RangeOf(range).extent();
    const int64_t end = Eval(range->src[0]).i;
    if (end < 0 || end > RangeOf(range).extent())
      status_ = absl::OutOfRangeError(
          absl::StrCat("the end ", end, " of a range of ", RangeOf(range).extent()));
    return std::clamp<int64_t>(end, 0, RangeOf(range).extent());
  }

  char* Place(const UOp& index) {
    const GlobalOf global(index.src[0]);
    const int64_t element = Eval(index.src[1]).i;
    if (element < 0 || element >= global.elements()) {
      status_ = absl::OutOfRangeError(absl::StrCat("element ", element, " of slot ", global.slot(),
                                                   ", which has ", global.elements()));
      return nullptr;
    }
    return buffers_[global.slot()]->data() + element * ByteWidth(index.dtype);
  }

  Value Read(const UOp& index) {
    const char* const at = Place(index);
    if (at == nullptr) return {};
    return IsFloat(index.dtype) ? Value{LoadFloat(index.dtype, at), 0}
                                : Value{0, LoadInt(index.dtype, at)};
  }

  Value Compute(const UOp* node) {
    if (++steps_ > kWalkStepsMax) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("a kernel's walk takes over ", kWalkStepsMax, " steps"));
      return {};
    }
    const DType t = node->dtype;
    switch (node->op) {
      case Op::kConst:
        return IsFloat(t) ? Value{node->float_value(), 0} : Value{0, node->int_value()};
      case Op::kRange: return {0, counters_.at(node)};
      case Op::kVar:
        for (const Binding& binding : bindings_)
          if (binding.slot == VarOf(node).slot()) return {0, binding.value};
        OB_CHECK(false && "a VAR is bound");
        return {};
      case Op::kLoad:
        if (node->src.size() == 3 && !Eval(node->src[1]).i) return Eval(node->src[2]);
        return Read(*node->src[0]);
      case Op::kReduceLoop: return Fold(node);
      case Op::kWhere: return Eval(node->src[0]).i ? Eval(node->src[1]) : Eval(node->src[2]);
      case Op::kCast: return Convert(Eval(node->src[0]), node->src[0]->dtype, t);
      case Op::kBitcast: {
        char bytes[8] = {};
        const DType from = node->src[0]->dtype;
        const Value v = Eval(node->src[0]);
        IsFloat(from) ? StoreFloat(from, v.f, bytes) : StoreInt(from, v.i, bytes);
        return IsFloat(t) ? Value{LoadFloat(t, bytes), 0} : Value{0, LoadInt(t, bytes)};
      }
      default: break;
    }
    const Value a = Eval(node->src[0]);
    const Value b = node->src.size() > 1 ? Eval(node->src[1]) : Value{};
    if (IsFloat(node->src[0]->dtype)) return FloatAlu(node, a.f, b.f);
    return {0, WrapTo(t, IntAlu(node, a.i, b.i))};
  }

  Value Fold(const UOp* node) {
    const Op op = ReduceOf(node).op();
    const bool is_float = IsFloat(node->dtype);
    // Sums of narrow floats are kept wider, as docs/semantics.md allows.
    Value sum = {op == Op::kMul   ? 1.0
                 : op == Op::kMax ? -std::numeric_limits<double>::infinity()
                                  : 0.0,
                 op == Op::kMul   ? 1
                 : op == Op::kMax ? IntMin(node->dtype)
                                  : 0};
    // Its ranges may be those of a loop around it, which goes on where it was.
    const std::vector<const UOp*> ranges(node->src.begin() + 1, node->src.end());
    std::vector<int64_t> before;
    for (const UOp* range : ranges) before.push_back(counters_[range]);
    Loop(ranges, [&] {
      const Value v = Eval(node->src[0]);
      if (is_float)
        sum.f = op == Op::kAdd ? sum.f + v.f : op == Op::kMul ? sum.f * v.f : MaxOf(sum.f, v.f);
      else if (op == Op::kMax)
        sum.i = Less(node->dtype, sum.i, v.i) ? v.i : sum.i;
      else
        sum.i = WrapTo(
            node->dtype,
            static_cast<int64_t>(op == Op::kAdd
                                     ? static_cast<uint64_t>(sum.i) + static_cast<uint64_t>(v.i)
                                     : static_cast<uint64_t>(sum.i) * static_cast<uint64_t>(v.i)));
    });
    for (size_t i = 0; i < ranges.size(); ++i) Set(ranges[i], before[i]);
    if (is_float) sum.f = RoundTo(node->dtype, sum.f);
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

  const UOp* ast_;
  std::vector<std::string*> buffers_;
  std::span<const Binding> bindings_;
  absl::flat_hash_map<const UOp*, int64_t> counters_;
  absl::flat_hash_map<const UOp*, uint64_t> moved_;  // when each counter did last, by now_
  absl::flat_hash_map<const UOp*, Shared> shared_;
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
