#include "compiler/ir/op.h"

#include <array>

namespace outboard {
namespace {

constexpr auto kTable = [] {
  std::array<OpInfo, kOpCodeMax> t{};
  const auto set = [&](Op op, OpInfo info) { t[static_cast<size_t>(op)] = info; };
  using enum Level;
  set(Op::kParam, {"PARAM", kTensor, 0, 0, true});
  set(Op::kBuffer, {"BUFFER", kTensor, 0, 0, true});
  set(Op::kConst, {"CONST", kBoth, 0, 0});
  set(Op::kVar, {"VAR", kBoth, 0, 0});
  set(Op::kIota, {"IOTA", kTensor, 0, 0, true});
  set(Op::kReshape, {"RESHAPE", kTensor, 1, 1, true});
  set(Op::kPermute, {"PERMUTE", kTensor, 1, 1});
  set(Op::kExpand, {"EXPAND", kTensor, 1, 1, true});
  set(Op::kPad, {"PAD", kTensor, 1, 1, true});
  set(Op::kShrink, {"SHRINK", kTensor, 1, 1, true});
  set(Op::kFlip, {"FLIP", kTensor, 1, 1});
  set(Op::kNeg, {"NEG", kBoth, 1, 1});
  set(Op::kExp2, {"EXP2", kBoth, 1, 1});
  set(Op::kLog2, {"LOG2", kBoth, 1, 1});
  set(Op::kSin, {"SIN", kBoth, 1, 1});
  set(Op::kSqrt, {"SQRT", kBoth, 1, 1});
  set(Op::kTrunc, {"TRUNC", kBoth, 1, 1});
  set(Op::kExp, {"EXP", kBoth, 1, 1});
  set(Op::kLog, {"LOG", kBoth, 1, 1});
  set(Op::kCos, {"COS", kBoth, 1, 1});
  set(Op::kTanh, {"TANH", kBoth, 1, 1});
  set(Op::kAdd, {"ADD", kBoth, 2, 2});
  set(Op::kMul, {"MUL", kBoth, 2, 2});
  set(Op::kFDiv, {"FDIV", kBoth, 2, 2});
  set(Op::kIDiv, {"IDIV", kBoth, 2, 2});
  set(Op::kMod, {"MOD", kBoth, 2, 2});
  set(Op::kMax, {"MAX", kBoth, 2, 2});
  set(Op::kCmpLt, {"CMPLT", kBoth, 2, 2});
  set(Op::kCmpNe, {"CMPNE", kBoth, 2, 2});
  set(Op::kCmpEq, {"CMPEQ", kBoth, 2, 2});
  set(Op::kAnd, {"AND", kBoth, 2, 2});
  set(Op::kOr, {"OR", kBoth, 2, 2});
  set(Op::kXor, {"XOR", kBoth, 2, 2});
  set(Op::kShl, {"SHL", kBoth, 2, 2});
  set(Op::kShr, {"SHR", kBoth, 2, 2});
  set(Op::kThreefry, {"THREEFRY", kBoth, 2, 2});
  set(Op::kWhere, {"WHERE", kBoth, 3, 3});
  set(Op::kMulAcc, {"MULACC", kKernel, 3, 3});
  set(Op::kCast, {"CAST", kBoth, 1, 1});
  set(Op::kBitcast, {"BITCAST", kBoth, 1, 1});
  set(Op::kReduce, {"REDUCE", kTensor, 1, 1});
  set(Op::kContiguous, {"CONTIGUOUS", kTensor, 1, 1});
  set(Op::kDetach, {"DETACH", kTensor, 1, 1});
  set(Op::kAssign, {"ASSIGN", kTensor, 2, 2});
  set(Op::kFunction, {"FUNCTION", kTensor, 1, -1});
  set(Op::kCall, {"CALL", kTensor, 1, -1});
  set(Op::kTuple, {"TUPLE", kTensor, 1, -1});
  set(Op::kGetTuple, {"GETTUPLE", kTensor, 1, 1});
  set(Op::kLayout, {"LAYOUT", kTensor, 1, 1});
  set(Op::kUnshard, {"UNSHARD", kDevice, 1, 1});
  set(Op::kReduceScatter, {"REDUCE_SCATTER", kDevice, 1, 1});
  set(Op::kAllReduce, {"ALLREDUCE", kDevice, 1, 1});
  set(Op::kAllToAll, {"ALLTOALL", kDevice, 1, 1});
  set(Op::kCopy, {"COPY", kDevice, 1, 1});
  set(Op::kSink, {"SINK", kBoth, 1, -1});
  set(Op::kGlobal, {"GLOBAL", kKernel, 0, 0});
  set(Op::kRange, {"RANGE", kKernel, 0, 1});
  set(Op::kIndex, {"INDEX", kKernel, 2, 2});
  set(Op::kLoad, {"LOAD", kKernel, 1, 3});
  set(Op::kStore, {"STORE", kKernel, 2, 3});
  set(Op::kReduceLoop, {"REDUCE_LOOP", kKernel, 2, -1});
  return t;
}();

bool Between(Op op, Op first, Op last) { return op >= first && op <= last; }

}  // namespace

const OpInfo& InfoOf(Op op) {
  static constexpr OpInfo kUnused{};
  const auto code = static_cast<size_t>(op);
  return code < kTable.size() ? kTable[code] : kUnused;
}

bool IsUnary(Op op) { return Between(op, Op::kNeg, Op::kTanh); }
bool IsBinary(Op op) { return Between(op, Op::kAdd, Op::kThreefry); }
bool IsTernary(Op op) { return Between(op, Op::kWhere, Op::kMulAcc); }
bool IsTranscendental(Op op) {
  return IsUnary(op) && op != Op::kNeg && op != Op::kSqrt && op != Op::kTrunc;
}
bool IsMovement(Op op) { return Between(op, Op::kReshape, Op::kFlip); }
bool IsCollective(Op op) { return Between(op, Op::kUnshard, Op::kCopy); }

bool IsLegalAt(Op op, Level level) {
  const int at = static_cast<int>(level);
  const int tensor = level == Level::kDevice ? static_cast<int>(Level::kTensor) : 0;
  return (static_cast<int>(InfoOf(op).level) & (at | tensor)) != 0;
}

bool IsCommutative(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kMax:
    case Op::kCmpNe:
    case Op::kCmpEq:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor: return true;
    default: return false;
  }
}

}  // namespace outboard
