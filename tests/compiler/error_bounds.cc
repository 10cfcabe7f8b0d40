#include "tests/compiler/error_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/spec.h"

namespace outboard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();

struct Format {
  double unit;     // half a unit in the last place, relative
  double quantum;  // the smallest subnormal
  double largest;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3: return {0x1p-4, 0x1p-9, 448};
    case DType::kF8E5M2: return {0x1p-3, 0x1p-16, 57344};
    case DType::kF16: return {0x1p-11, 0x1p-24, 65504};
    case DType::kBF16: return {0x1p-8, 0x1p-133, 3.3e38};
    case DType::kF32: return {0x1p-24, 0x1p-149, 3.4e38};
    default: return {0x1p-53, 0x1p-1074, 1.7e308};
  }
}

double AccumulatorUnit(DType dtype) { return dtype == DType::kF64 ? 0x1p-53 : 0x1p-24; }

// Infinite magnitudes occur, and nothing times infinity is still nothing.
double Times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

// Two engines round values that may differ by info.error. Exact values stay exact.
ErrorInfo Rounded(DType dtype, ErrorInfo info) {
  const Format format = FormatOf(dtype);
  if (info.error > 0)
    info.error += 2 * format.unit * (info.magnitude + info.error) + format.quantum;
  // Beyond the range an engine's overflow is another's largest number; inexact values must stay
  // clear of it.
  if (!(info.magnitude + info.error < format.largest / 4)) {
    if (info.error > 0) info.chaotic = true;
    info.special = true;
  }
  if (info.special) info.magnitude = kInfinity;
  if (info.special && info.error > kLeast) info.chaotic = true;
  return info;
}

int64_t ReducedCount(const UOp* node) {
  int64_t count = 1;
  for (const int64_t axis : ReduceOf(node).axes()) count *= node->src[0]->shape[axis].max();
  return count;
}

const UOp* ThroughViews(const UOp* node) {
  while (IsMovement(node->op) || node->op == Op::kContiguous || node->op == Op::kDetach ||
         node->op == Op::kLayout)
    node = node->src[0];
  return node;
}

// REDUCE ADD of WHERE(CMPEQ(IOTA, index), x, 0) with the IOTA along the one reduced axis: at most
// one element counts.
bool IsOneHotSum(const UOp* node) {
  const UOp* const where = node->src[0];
  const auto axes = ReduceOf(node).axes();
  if (where->op != Op::kWhere || where->src[0]->op != Op::kCmpEq || axes.size() != 1) return false;
  if (!IsZero(ThroughViews(where->src[2]))) return false;
  const UOp* const iota = ThroughViews(where->src[0]->src[0]);
  return iota->op == Op::kIota && iota->shape[0] == where->shape[axes[0]];
}

ErrorInfo OfReduce(const UOp* node, const ErrorInfo& x) {
  const auto op = ReduceOf(node).op();
  const auto count = static_cast<double>(ReducedCount(node));
  ErrorInfo info = x;
  info.product = false;
  if (op == Op::kMax) {
    // Lowest value where the axis is empty.
    for (const int64_t axis : ReduceOf(node).axes())
      info.special |= node->src[0]->shape[axis].min() == 0;
    if (info.special) info.magnitude = kInfinity;
    return info;
  }
  if (op == Op::kAdd && IsOneHotSum(node)) {
    info.error = std::max(info.error, kLeast);  // the sign of a zero is free
    return info;
  }
  if (count <= 1 && x.exact() && !x.product) {
    info.error = kLeast;
    info.magnitude = std::max(info.magnitude, 1.0);
    return info;
  }
  if (x.special) {
    info.chaotic = true;
    return info;
  }
  const double unit = AccumulatorUnit(node->dtype);
  if (op == Op::kAdd) {
    info.magnitude = count * x.magnitude;
    info.error = count * x.error + (count + 1) * unit * info.magnitude + kLeast;
  } else {
    const double each = std::max(1.0, x.magnitude + x.error);
    info.magnitude = std::pow(each, count);
    info.error = Times(count * std::pow(each, count - 1), x.error) +
                 2 * (count + 1) * unit * info.magnitude + kLeast;
  }
  return Rounded(node->dtype, info);
}

ErrorInfo OfCast(const UOp* node, const ErrorInfo& x) {
  const DType from = node->src[0]->dtype, to = node->dtype;
  ErrorInfo info;
  info.chaotic = x.chaotic;
  if (!IsFloat(to)) {
    info.chaotic |= IsFloat(from) && !x.exact();
    return info;
  }
  if (!IsFloat(from)) {
    const double low = static_cast<double>(node->src[0]->vmin),
                 high = static_cast<double>(node->src[0]->vmax);
    info.magnitude = from == DType::kU64 ? 0x1p64 : std::max(std::abs(low), std::abs(high));
  } else {
    info = x;
    info.product = false;
  }
  // The exception of docs/semantics.md: through f32.
  const bool narrow = ByteWidth(to) <= 2;
  const bool through = narrow && (from == DType::kF64 || (!IsFloat(from) && ByteWidth(from) >= 4));
  if (to == DType::kF8E4M3 && !info.special && !info.chaotic && info.magnitude > 448) {
    info.magnitude = 448;  // saturates, which brings values no further apart
    if (info.error > 0 || through) info.error += 2 * FormatOf(to).unit * 448;
    return info;
  }
  if (through && info.magnitude > 0) info.error += kLeast;
  if (info.special && through) info.chaotic = true;
  return Rounded(to, info);
}

ErrorInfo OfBinary(const UOp* node, const ErrorInfo& a, const ErrorInfo& b) {
  ErrorInfo info;
  info.special = a.special || b.special;
  info.error = a.error + b.error;
  switch (node->op) {
    case Op::kAdd:
      info.magnitude = a.magnitude + b.magnitude;
      if ((a.product || b.product) && ByteWidth(node->dtype) >= 4) {
        info.error += kLeast;  // rounding differs by contraction
        if (info.special) info.chaotic = true;
      }
      break;
    case Op::kMul:
      info.magnitude = Times(a.magnitude, b.magnitude);
      info.error = Times(a.error, b.magnitude + b.error) + Times(b.error, a.magnitude);
      info.product = true;
      if (a.error > 0 || b.error > 0) {
        info.error = std::max(info.error, kLeast);  // at least the sign of a zero
        if (info.special) info.chaotic = true;
      }
      break;
    case Op::kFDiv: {
      // Only ADD(MUL(y, y), 1) is known to keep away from zero.
      const UOp* const d = node->src[1];
      const bool at_least_one = d->op == Op::kAdd && d->src[0]->op == Op::kMul &&
                                d->src[0]->src[0] == d->src[0]->src[1] &&
                                ThroughViews(d->src[1])->is_const() &&
                                ThroughViews(d->src[1])->float_value() == 1;
      if (!at_least_one) {
        info.special = true;
        if (info.error > 0) info.chaotic = true;
      } else {
        info.magnitude = a.magnitude;
        info.error = a.error + (b.error > 0 ? 2 * (a.magnitude + a.error) * b.error : 0);
        if (b.error >= 0.5) info.chaotic = true;
      }
      break;
    }
    default:  // MAX
      info.magnitude = std::max(a.magnitude, b.magnitude);
      info.error = std::max(a.error, b.error);
      if (info.special) info.magnitude = kInfinity;
      return info;
  }
  return Rounded(node->dtype, info);
}

// EXP, LOG, SIN and their like: `slope` bounds the derivative over the source's range.
ErrorInfo OfTranscendental(const UOp* node, const ErrorInfo& x) {
  const double unit = FormatOf(node->dtype).unit;
  ErrorInfo info;
  double slope = 1;
  const double reach = x.magnitude + x.error;
  switch (node->op) {
    case Op::kExp:
    case Op::kExp2:
      if (x.special || reach > 44) info.chaotic = true;
      info.magnitude = std::exp(std::min(reach, 700.0));
      slope = info.magnitude;
      break;
    case Op::kLog:
    case Op::kLog2: {
      const UOp* const d = node->src[0];  // as for FDIV: at least one
      if (x.special || d->op != Op::kAdd || d->src[0]->op != Op::kMul ||
          d->src[0]->src[0] != d->src[0]->src[1] || !ThroughViews(d->src[1])->is_const() ||
          x.error >= 0.5)
        info.chaotic = true;
      info.magnitude = std::max(1.0, std::log2(std::max(1.0, reach)));
      slope = 3;
      break;
    }
    default:
      if (x.special) info.chaotic = true;
      info.magnitude = 1;
  }
  info.error = slope * x.error + 4 * unit * std::max(1.0, info.magnitude);
  return Rounded(node->dtype, info);
}

ErrorInfo OfSqrt(const UOp* node, const ErrorInfo& x) {
  ErrorInfo info = x;
  info.product = false;
  info.magnitude = std::sqrt(std::max(x.magnitude, 1.0));
  if (x.error == 0) {
    info.special = true;  // a NaN where negative
    info.magnitude = kInfinity;
    return info;
  }
  const UOp* const d = node->src[0];
  if (d->op != Op::kAdd || d->src[0]->op != Op::kMul || d->src[0]->src[0] != d->src[0]->src[1] ||
      !ThroughViews(d->src[1])->is_const() || x.error >= 0.5)
    info.chaotic = true;
  return Rounded(node->dtype, info);
}

}  // namespace

ErrorInfo InfoOfTensor(const HostTensor& tensor) {
  ErrorInfo info;
  if (!IsFloat(tensor.dtype)) return info;
  const int width = ByteWidth(tensor.dtype);
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    const double value = std::abs(LoadFloat(tensor.dtype, tensor.bytes.data() + i * width));
    const bool tame = value == 0 || (value > 1e-3 && value < 1e4);
    info.special |= !tame;
    info.magnitude = std::max(info.magnitude, value);
  }
  if (info.special) info.magnitude = kInfinity;
  return info;
}

ErrorInfo InfoOfNode(const UOp* node, std::span<const ErrorInfo> sources) {
  ErrorInfo info;
  for (const ErrorInfo& source : sources) info.chaotic |= source.chaotic;
  const auto chaotic = [&](ErrorInfo of) {
    of.chaotic |= info.chaotic;
    return of;
  };
  if (node->op == Op::kConst) {
    if (IsFloat(node->dtype)) {
      info.magnitude = std::abs(node->float_value());
      info.special = !(info.magnitude < 1e4) || (info.magnitude > 0 && info.magnitude < 1e-3);
      if (info.special) info.magnitude = kInfinity;
    }
    return info;
  }
  if (sources.empty()) return info;  // VAR, IOTA
  const ErrorInfo& x = sources[0];
  if (IsMovement(node->op) || node->op == Op::kContiguous || node->op == Op::kDetach ||
      node->op == Op::kNeg || node->op == Op::kLayout)
    return chaotic(x);  // a negated product contracts, too
  if (node->op == Op::kAssign) return chaotic(sources[1]);
  if (node->op == Op::kCast) return chaotic(OfCast(node, x));
  if (node->op == Op::kBitcast) {
    // Bits of an inexact or NaN value are free; bits read as a float may be anything.
    if (IsFloat(node->src[0]->dtype)) info.chaotic |= !x.exact() || x.special;
    if (IsFloat(node->dtype)) {
      info.special = true;
      info.magnitude = kInfinity;
    }
    return info;
  }
  if (node->op == Op::kReduce) return IsFloat(node->dtype) ? chaotic(OfReduce(node, x)) : info;
  if (node->op == Op::kWhere) {
    const ErrorInfo &a = sources[1], &b = sources[2];
    info.magnitude = std::max(a.magnitude, b.magnitude);
    info.error = std::max(a.error, b.error);
    info.special = a.special || b.special;
    info.product = a.product || b.product;
    return info;
  }
  const bool floats = IsFloat(node->src[0]->dtype);
  if (!floats) return info;
  if (IsCompare(node->op)) {
    info.chaotic |= !sources[0].exact() || !sources[1].exact();
    return info;
  }
  if (node->op == Op::kTrunc) {
    info = x;
    info.product = false;
    info.chaotic |= !x.exact();
    return info;
  }
  if (node->op == Op::kSqrt) return chaotic(OfSqrt(node, x));
  if (IsUnary(node->op)) return chaotic(OfTranscendental(node, x));
  return chaotic(OfBinary(node, sources[0], sources[1]));
}

const std::vector<ErrorInfo>& InfoTable::Of(const UOp* root) {
  if (const auto found = known_.find(root); found != known_.end()) return found->second;
  for (const UOp* node : PostOrder(root, /*into_functions=*/false)) {
    if (known_.contains(node)) continue;
    std::vector<ErrorInfo> sources;
    if (node->op != Op::kFunction && node->op != Op::kCall && node->op != Op::kGetTuple)
      for (const UOp* source : node->src) sources.push_back(known_.at(source)[0]);
    std::vector<ErrorInfo> infos;
    switch (node->op) {
      case Op::kFunction: break;
      case Op::kTuple:
      case Op::kSink: infos = sources; break;
      case Op::kGetTuple: infos = {known_.at(node->src[0])[GetTupleOf(node).index()]}; break;
      case Op::kCall: {
        InfoTable inside;
        const UOp* const function = node->src[0];
        for (size_t i = 1; i < node->src.size(); ++i)
          inside.Set(function->src[i], known_.at(node->src[i])[0]);
        infos = inside.Of(function->src[0]);
        break;
      }
      default: infos = {InfoOfNode(node, sources)};
    }
    known_[node] = std::move(infos);
  }
  return known_.at(root);
}

std::vector<ErrorInfo> InfosOfResults(const UOp* sink, std::span<const HostTensor> params) {
  InfoTable table;
  for (const UOp* param : ParamsOf(sink))
    table.Set(param, InfoOfTensor(params[ParamOf(param).slot()]));
  return table.Of(sink);
}

std::string Difference(const HostTensor& expected, const HostTensor& actual,
                       const ErrorInfo& info) {
  if (expected.dtype != actual.dtype || expected.dims != actual.dims ||
      expected.bytes.size() != actual.bytes.size())
    return "another type or shape";
  if (info.chaotic) return "";
  const DType dtype = expected.dtype;
  const int width = ByteWidth(dtype);
  for (int64_t i = 0; i < expected.ElementCount(); ++i) {
    const char *const e = expected.bytes.data() + i * width, *const a =
                                                                 actual.bytes.data() + i * width;
    if (std::equal(e, e + width, a)) continue;
    if (!IsFloat(dtype))
      return absl::StrCat("element ", i, " is ", LoadInt(dtype, a), ", not ", LoadInt(dtype, e));
    const double x = LoadFloat(dtype, e), y = LoadFloat(dtype, a);
    if ((std::isnan(x) && std::isnan(y)) ||
        (info.error > 0 && (x == y || std::abs(x - y) <= info.error)))
      continue;
    return absl::StrCat("element ", i, " is ", y, std::signbit(y) ? " (negative)" : "", ", not ", x,
                        std::signbit(x) ? " (negative)" : "", ", tolerance ", info.error);
  }
  return "";
}

}  // namespace outboard::test
