// What may exist: one line a rule. Numbers in brackets are cases of the hostile suite.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"

namespace outboard {
namespace {

using absl::StatusCode;
using Made = absl::StatusOr<const UOp*>;

constexpr DType kVoid = DType::kVoid, kBool = DType::kBool, kI8 = DType::kI8, kI32 = DType::kI32,
                kI64 = DType::kI64, kU64 = DType::kU64, kF16 = DType::kF16, kF32 = DType::kF32;
constexpr StatusCode kOk = StatusCode::kOk, kBad = StatusCode::kInvalidArgument;
constexpr int64_t kAddCode = static_cast<int64_t>(Op::kAdd);

// The nodes that rules are tried on.
struct Sample {
  Graph& g;
  const UOp* x = Param(g, 0, kF32, {2, 3});
  const UOp* h = Param(g, 1, kF16, {2, 3});
  const UOp* i = Param(g, 2, kI32, {2, 3});
  const UOp* b = Param(g, 3, kBool, {2, 3});
  const UOp* y = Param(g, 4, kF32, {3, 2});
  const UOp* one = Param(g, 5, kF32, {2, 1});
  const UOp* l = Param(g, 6, kI64, {});
  const UOp* s = Param(g, 7, kF32, {});
  const UOp* n = Var(g, 0, 1, 9);

  Made Make(Op op, Sources src, absl::Span<const int64_t> arg = {}, DType dtype = kVoid) const {
    return g.Make(op, dtype, src, arg);
  }
  const UOp* Node(Op op, Sources src, absl::Span<const int64_t> arg = {}) const {
    return g.MakeChecked(op, kVoid, src, arg);
  }
  const UOp* Square() const { return Node(Op::kFunction, {Mul(g, s, s), Param(g, 0, kF32, {})}); }
};

struct Case {
  const char* name;
  StatusCode code;
  const char* field;  // what the message must name; "" for none
  std::function<Made(const Sample&)> make;
};

#define MAKE(...) [](const Sample& t) -> Made { return t.Make(__VA_ARGS__); }

const Case kCases[] = {
    // Shapes [39-54]
    {"rank 16", kOk, "",
     [](const Sample& t) { return t.Make(Op::kParam, {}, std::vector<int64_t>(17, 1), kF32); }},
    {"rank 17", kBad, "rank 17",
     [](const Sample& t) { return t.Make(Op::kParam, {}, std::vector<int64_t>(18, 1), kF32); }},
    {"too many arguments", kBad, "arguments",
     [](const Sample& t) { return t.Make(Op::kParam, {}, std::vector<int64_t>(limits::kArgsMax + 1,
       1), kF32); }},
    {"negative dim", kBad, "dimension 0", MAKE(Op::kParam, {}, {0, -1}, kF32)},
    {"zero dim", kOk, "", MAKE(Op::kParam, {}, {0, 0, 5}, kF32)},
    {"dim over 2^31", kBad, "dimension 1", MAKE(Op::kParam, {}, {0, 1, int64_t{1} << 31}, kI8)},
    {"product of 2^63", kBad, "2^62",
     MAKE(Op::kExpand, {t.Node(Op::kReshape, {t.s}, {1, 1, 1})}, {1 << 21, 1 << 21, 1 << 21})},
    {"product wraps to small", kBad, "2^62",
     MAKE(Op::kExpand, {t.Node(Op::kReshape, {t.s}, {1, 1, 1, 1})}, {1 << 30, 1 << 30, 1 << 30,
       1 << 30})},
    {"zeros do not hide a product", kBad, "2^62",
     MAKE(Op::kExpand, {t.Node(Op::kReshape, {t.s}, {1, 1, 1, 1})}, {0, 1 << 30, 1 << 30,
       1 << 30})},
    {"stored bytes", kBad, "stored bytes", MAKE(Op::kParam, {}, {0, 1 << 20, 1 << 20}, kF32)},
    {"reshape", kOk, "", MAKE(Op::kReshape, {t.x}, {3, 2})},
    {"reshape, other count", kBad, "RESHAPE", MAKE(Op::kReshape, {t.x}, {7})},
    {"reshape, a product past 128 bits", kBad, "dimension 0",
     MAKE(Op::kReshape, {t.x}, {INT64_MIN + 1, INT64_MIN + 1, INT64_MAX, 3})},
    {"reshape, negative twice", kBad, "RESHAPE", MAKE(Op::kReshape, {t.x}, {-2, -3})},
    {"permute", kOk, "", MAKE(Op::kPermute, {t.x}, {1, 0})},
    {"permute, axis twice", kBad, "axis 0", MAKE(Op::kPermute, {t.x}, {0, 0})},
    {"permute, axis out of range", kBad, "axis 2", MAKE(Op::kPermute, {t.x}, {0, 2})},
    {"permute, too few axes", kBad, "PERMUTE", MAKE(Op::kPermute, {t.x}, {0})},
    {"expand", kOk, "", MAKE(Op::kExpand, {t.one}, {2, 5})},
    {"expand from 2", kBad, "dimension 0", MAKE(Op::kExpand, {t.one}, {4, 5})},
    {"expand, other rank", kBad, "EXPAND", MAKE(Op::kExpand, {t.one}, {2, 5, 1})},
    {"expand to 0", kOk, "", MAKE(Op::kExpand, {t.one}, {2, 0})},
    {"pad", kOk, "", MAKE(Op::kPad, {t.x}, {1, 0, 0, 2})},
    {"pad, negative", kBad, "dimension 1", MAKE(Op::kPad, {t.x}, {0, 0, -1, 0})},
    {"pad, odd count", kBad, "PAD", MAKE(Op::kPad, {t.x}, {1, 0, 0})},
    {"pad, overflow", kBad, "overflow", MAKE(Op::kPad, {t.x}, {INT64_MAX, 1, 0, 0})},
    {"pad, too wide", kBad, "dimension 0", MAKE(Op::kPad, {t.x}, {limits::kDimMax, 0, 0, 0})},
    {"shrink", kOk, "", MAKE(Op::kShrink, {t.x}, {0, 1, 1, 3})},
    {"shrink to nothing", kOk, "", MAKE(Op::kShrink, {t.x}, {1, 1, 0, 3})},
    {"shrink, begin > end", kBad, "dimension 1", MAKE(Op::kShrink, {t.x}, {0, 2, 2, 1})},
    {"shrink, end > length", kBad, "dimension 0", MAKE(Op::kShrink, {t.x}, {0, 3, 0, 3})},
    {"shrink, negative", kBad, "dimension 0", MAKE(Op::kShrink, {t.x}, {-1, 2, 0, 3})},
    {"flip, axis 99", kBad, "axis 99", MAKE(Op::kFlip, {t.x}, {99})},
    {"flip, axis -1", kBad, "axis -1", MAKE(Op::kFlip, {t.x}, {-1})},
    {"flip, axis twice", kBad, "axis 1", MAKE(Op::kFlip, {t.x}, {1, 1})},
    {"shapes of an ADD", kBad, "[3, 2]", MAKE(Op::kAdd, {t.x, t.y})},
    {"no broadcasting", kBad, "[2, 1]", MAKE(Op::kAdd, {t.x, t.one})},
    {"shapes of a WHERE", kBad, "WHERE", MAKE(Op::kWhere, {t.b, t.y, t.y})},
    {"reduce", kOk, "", MAKE(Op::kReduce, {t.x}, {kAddCode, 0, 1})},
    {"reduce, axis twice", kBad, "axis 0", MAKE(Op::kReduce, {t.x}, {kAddCode, 0, 0})},
    {"reduce, axis out of range", kBad, "axis 2", MAKE(Op::kReduce, {t.x}, {kAddCode, 2})},
    {"reduce, axes descend", kBad, "ascend", MAKE(Op::kReduce, {t.x}, {kAddCode, 1, 0})},
    {"reduce by SIN", kBad, "ADD, MUL or MAX",
     MAKE(Op::kReduce, {t.x}, {static_cast<int64_t>(Op::kSin), 0})},
    {"reduce by nothing", kBad, "operation", MAKE(Op::kReduce, {t.x}, {})},
    {"reduce by code -1", kBad, "ADD, MUL or MAX", MAKE(Op::kReduce, {t.x}, {-1, 0})},
    {"reduce by code 2^40", kBad, "ADD, MUL or MAX",
     MAKE(Op::kReduce, {t.x}, {int64_t{1} << 40, 0})},
    {"reduce of bool", kBad, "bool", MAKE(Op::kReduce, {t.b}, {kAddCode, 0})},
    // Symbolic dimensions [53]
    {"symbolic", kOk, "", MAKE(Op::kParam, {t.n}, {0, kSymbolicDim}, kF32)},
    {"symbolic without a source", kBad, "sources", MAKE(Op::kParam, {}, {0, kSymbolicDim}, kF32)},
    {"symbolic, a source too many", kBad, "sources",
     MAKE(Op::kParam, {t.n, t.n}, {0, kSymbolicDim}, kF32)},
    {"symbolic, a number", kBad, "number",
     MAKE(Op::kParam, {ConstIndex(t.g, 3)}, {0, kSymbolicDim}, kF32)},
    {"symbolic, a float", kBad, "i64", MAKE(Op::kParam, {t.s}, {0, kSymbolicDim}, kF32)},
    {"symbolic, can be negative", kBad, "negative",
     MAKE(Op::kParam, {Alu(t.g, Op::kNeg, t.n)}, {0, kSymbolicDim}, kF32)},
    {"symbolic, without bounds", kBad, "data", MAKE(Op::kParam, {t.l}, {0, kSymbolicDim}, kF32)},
    {"symbolic, of data with bounds", kBad, "data",
     MAKE(Op::kReshape, {t.s, Add(t.g, ConstIndex(t.g, 1), Alu(t.g, Op::kMod, Alu(t.g, Op::kMax,
       t.l, ConstIndex(t.g, 0)), ConstIndex(t.g, 1)))}, {kSymbolicDim})},
    {"symbolic slot", kBad, "slot", MAKE(Op::kParam, {t.n}, {kSymbolicDim}, kF32)},
    {"VAR, empty range", kBad, "range", MAKE(Op::kVar, {}, {0, 3, 2})},
    {"VAR, range too wide", kBad, "range", MAKE(Op::kVar, {}, {0, 0, INT64_MAX})},
    {"VAR, slot", kBad, "slot", MAKE(Op::kVar, {}, {limits::kRankSlot + 1, 0, 1})},
    {"VAR, rank", kOk, "", MAKE(Op::kVar, {}, {limits::kRankSlot, 0, 5})},
    {"VAR, rank from 1", kBad, "rank", MAKE(Op::kVar, {}, {limits::kRankSlot, 1, 5})},
    {"VAR, too many ranks", kBad, "rank",
     MAKE(Op::kVar, {}, {limits::kRankSlot, 0, limits::kRanksMax})},
    {"VAR of f32", kBad, "i64", MAKE(Op::kVar, {}, {0, 0, 1}, kF32)},
    {"RANGE to an end", kOk, "", MAKE(Op::kRange, {t.n}, {0, 9, 0})},
    {"RANGE to an end of data", kBad, "VARs", MAKE(Op::kRange, {t.l}, {0, 9, 0})},
    {"RANGE to two ends", kBad, "sources", MAKE(Op::kRange, {t.n, t.n}, {0, 9, 0})},
    // Leaves
    {"PARAM, slot -1", kBad, "slot -1", MAKE(Op::kParam, {}, {-1}, kF32)},
    {"PARAM, slot too large", kBad, "slot", MAKE(Op::kParam, {}, {limits::kParamSlotMax}, kF32)},
    {"PARAM of no type", kBad, "type", MAKE(Op::kParam, {}, {0})},
    {"PARAM of no slot", kBad, "slot", MAKE(Op::kParam, {}, {}, kF32)},
    {"IOTA", kOk, "", MAKE(Op::kIota, {}, {128}, kI8)},
    {"IOTA, too long for its type", kBad, "129", MAKE(Op::kIota, {}, {129}, kI8)},
    {"IOTA, negative", kBad, "negative", MAKE(Op::kIota, {}, {-1}, kI8)},
    {"IOTA of floats", kBad, "f32", MAKE(Op::kIota, {}, {4}, kF32)},
    {"IOTA of two", kBad, "IOTA", MAKE(Op::kIota, {}, {4, 4}, kI32)},
    // Types and constants [55-64]
    {"types of an ADD", kBad, "f16", MAKE(Op::kAdd, {t.x, t.h})},
    {"ADD of bool", kBad, "bool", MAKE(Op::kAdd, {t.b, t.b})},
    {"AND of floats", kBad, "f32", MAKE(Op::kAnd, {t.x, t.x})},
    {"AND of bool", kOk, "", MAKE(Op::kAnd, {t.b, t.b})},
    {"SHL of floats", kBad, "f32", MAKE(Op::kShl, {t.x, t.x})},
    {"SHL of bool", kBad, "bool", MAKE(Op::kShl, {t.b, t.b})},
    {"IDIV of floats", kBad, "f32", MAKE(Op::kIDiv, {t.x, t.x})},
    {"FDIV of integers", kBad, "i32", MAKE(Op::kFDiv, {t.i, t.i})},
    {"EXP2 of integers", kBad, "i32", MAKE(Op::kExp2, {t.i})},
    {"EXP of integers", kBad, "i32", MAKE(Op::kExp, {t.i})},
    {"EXP2 by a unit", kOk, "", MAKE(Op::kExp2, {t.x}, {1})},
    {"EXP2 by a unit, subnormal too", kOk, "", MAKE(Op::kExp2, {t.x}, {2})},
    {"EXP2 by another unit", kBad, "by a unit", MAKE(Op::kExp2, {t.x}, {3})},
    {"EXP2 of f16 by a unit", kBad, "by a unit", MAKE(Op::kExp2, {t.h}, {1})},
    {"EXP by a unit", kBad, "no arguments", MAKE(Op::kExp, {t.x}, {1})},
    {"TANH of bool", kBad, "bool", MAKE(Op::kTanh, {t.b})},
    {"NEG of bool", kBad, "bool", MAKE(Op::kNeg, {t.b})},
    {"THREEFRY of i32", kBad, "u64", MAKE(Op::kThreefry, {t.i, t.i})},
    {"MULACC of f32", kOk, "", MAKE(Op::kMulAcc, {t.x, t.x, t.x})},
    {"MULACC of f16, which would be rounded twice", kBad, "not f16",
     MAKE(Op::kMulAcc, {t.h, t.h, t.h})},
    {"MULACC of i32", kBad, "not i32", MAKE(Op::kMulAcc, {t.i, t.i, t.i})},
    {"WHERE by integers", kBad, "bool", MAKE(Op::kWhere, {t.i, t.x, t.x})},
    {"WHERE of two types", kBad, "f16", MAKE(Op::kWhere, {t.b, t.x, t.h})},
    {"a comparison is bool", kBad, "bool", MAKE(Op::kCmpLt, {t.x, t.x}, {}, kF32)},
    {"another type than inferred", kBad, "f32", MAKE(Op::kAdd, {t.x, t.x}, {}, kF16)},
    {"type code 16", kBad, "16", MAKE(Op::kCast, {t.x}, {}, static_cast<DType>(16))},
    {"CAST to void", kBad, "CAST", MAKE(Op::kCast, {t.x}, {})},
    {"CAST of a tuple", kBad, "CAST", MAKE(Op::kCast, {t.Node(Op::kTuple, {t.x})}, {}, kF32)},
    {"BITCAST, other width", kBad, "width", MAKE(Op::kBitcast, {t.x}, {}, kF16)},
    {"BITCAST of bool", kBad, "bool", MAKE(Op::kBitcast, {t.b}, {}, kI8)},
    {"BITCAST", kOk, "", MAKE(Op::kBitcast, {t.x}, {}, kI32)},
    {"CONST 128 of i8", kBad, "128", MAKE(Op::kConst, {}, {128}, kI8)},
    {"CONST -1 of bool", kBad, "-1", MAKE(Op::kConst, {}, {-1}, kBool)},
    {"CONST of any u64", kOk, "", MAKE(Op::kConst, {}, {-1}, kU64)},
    {"CONST of no type", kBad, "type", MAKE(Op::kConst, {}, {0})},
    {"CONST of two values", kBad, "one value", MAKE(Op::kConst, {}, {0, 0}, kI8)},
    {"CONST 0.1 of f32", kBad, "f32", MAKE(Op::kConst, {}, {std::bit_cast<int64_t>(0.1)}, kF32)},
    {"CONST inf", kOk, "", MAKE(Op::kConst, {}, {std::bit_cast<int64_t>(HUGE_VAL)}, kF32)},
    {"CONST inf of f8e4m3", kBad, "f8e4m3",
     MAKE(Op::kConst, {}, {std::bit_cast<int64_t>(HUGE_VAL)}, DType::kF8E4M3)},
    {"CONST NaN", kOk, "", MAKE(Op::kConst, {}, {0x7ff8000000000000}, kF32)},
    {"CONST NaN, another", kBad, "NaN", MAKE(Op::kConst, {}, {0x7ff8000000000001}, kF32)},
    {"CONST denormal", kOk, "", MAKE(Op::kConst, {}, {std::bit_cast<int64_t>(0x1p-149)}, kF32)},
    // Arguments where none are taken
    {"NEG with an argument", kBad, "NEG", MAKE(Op::kNeg, {t.x}, {0})},
    {"CAST with an argument", kBad, "CAST", MAKE(Op::kCast, {t.x}, {0}, kF16)},
    {"SINK in no copies", kBad, "SINK", MAKE(Op::kSink, {t.x}, {0})},
    {"SINK in one copy, said", kBad, "SINK", MAKE(Op::kSink, {t.x}, {1})},
    {"SINK in two copies", kOk, "", MAKE(Op::kSink, {t.x}, {2})},
    {"SINK in 513 copies", kBad, "SINK", MAKE(Op::kSink, {t.x}, {513})},
    {"SINK with two arguments", kBad, "SINK", MAKE(Op::kSink, {t.x}, {2, 2})},
    {"TUPLE with an argument", kBad, "TUPLE", MAKE(Op::kTuple, {t.x}, {0})},
    // Functions [32]
    {"FUNCTION", kOk, "", [](const Sample& t) -> Made {
       const UOp* const p = Param(t.g, 0, kF32, {});
       return t.Make(Op::kFunction, {Mul(t.g, p, p), p});
     }},
    {"FUNCTION, a free PARAM", kBad, "slot 7", MAKE(Op::kFunction, {Mul(t.g, t.s, t.s)})},
    {"FUNCTION, parameters out of order", kBad, "source 1", MAKE(Op::kFunction, {t.s, t.s})},
    {"FUNCTION, no PARAM", kBad, "source 1",
     MAKE(Op::kFunction, {ConstIndex(t.g, 1), ConstIndex(t.g, 1)})},
    {"FUNCTION, another PARAM of the slot", kBad, "slot 0",
     MAKE(Op::kFunction, {t.x, Param(t.g, 0, kF32, {})})},
    {"FUNCTION of a BUFFER", kBad, "BUFFER", MAKE(Op::kFunction, {BufferNode(t.g, 1, kF32, {})})},
    {"FUNCTION of a FUNCTION", kBad, "body",
     MAKE(Op::kFunction, {t.Node(Op::kFunction, {ConstIndex(t.g, 1)})})},
    {"FUNCTION of a SINK", kBad, "body", MAKE(Op::kFunction, {Sink(t.g, {ConstIndex(t.g, 1)})})},
    {"CALL of a value", kBad, "FUNCTION", MAKE(Op::kCall, {t.x})},
    {"CALL, too few", kBad, "arguments", [](const Sample& t) {
       const UOp* const p = Param(t.g, 0, kF32, {});
       return t.Make(Op::kCall, {t.Node(Op::kFunction, {p, p})});
     }},
    {"CALL, another type", kBad, "argument 0", [](const Sample& t) {
       const UOp* const p = Param(t.g, 0, kF32, {});
       return t.Make(Op::kCall, {t.Node(Op::kFunction, {p, p}), t.l});
     }},
    {"CALL, another shape", kBad, "argument 0", [](const Sample& t) {
       const UOp* const p = Param(t.g, 0, kF32, {});
       return t.Make(Op::kCall, {t.Node(Op::kFunction, {p, p}), t.x});
     }},
    {"TUPLE of a TUPLE", kBad, "values", MAKE(Op::kTuple, {t.Node(Op::kTuple, {t.x})})},
    {"GETTUPLE", kOk, "", MAKE(Op::kGetTuple, {t.Node(Op::kTuple, {t.x, t.i})}, {1})},
    {"GETTUPLE, index 2 of 2", kBad, "index",
     MAKE(Op::kGetTuple, {t.Node(Op::kTuple, {t.x, t.i})}, {2})},
    {"GETTUPLE, index -1", kBad, "index",
     MAKE(Op::kGetTuple, {t.Node(Op::kTuple, {t.x, t.i})}, {-1})},
    {"GETTUPLE of a value", kBad, "tuple", MAKE(Op::kGetTuple, {t.x}, {0})},
    {"ASSIGN, other shape", kBad, "ASSIGN", MAKE(Op::kAssign, {t.x, t.y})},
    {"DETACH of a tuple", kBad, "DETACH", MAKE(Op::kDetach, {t.Node(Op::kTuple, {t.x})})},
    // Devices
    {"LAYOUT", kOk, "", MAKE(Op::kLayout, {t.x}, {0, 1})},
    {"LAYOUT, whole on any axis", kOk, "", MAKE(Op::kLayout, {t.x}, {-1, -1})},
    {"LAYOUT, dimension 2", kBad, "dimension 2", MAKE(Op::kLayout, {t.x}, {0, 2})},
    {"LAYOUT, mesh axis -2", kBad, "mesh axis -2", MAKE(Op::kLayout, {t.x}, {-2, 0})},
    {"LAYOUT, mesh axis of too many", kBad, "mesh axis",
     MAKE(Op::kLayout, {t.x}, {limits::kMeshAxesMax, 0})},
    {"LAYOUT, no dimension given", kBad, "mesh axis and a dimension",
     MAKE(Op::kLayout, {t.x}, {0})},
    {"code 80 has been given up", kBad, "unknown", MAKE(static_cast<Op>(80), {t.x}, {0, 1})},
    {"UNSHARD", kOk, "", MAKE(Op::kUnshard, {t.x}, {1, 3, 2})},
    {"UNSHARD, too long", kBad, "dimension 0",
     MAKE(Op::kUnshard, {Param(t.g, 0, kF32, {1 << 24})}, {0, 1024, 1})},
    {"UNSHARD, dimension 2", kBad, "dimension 2", MAKE(Op::kUnshard, {t.x}, {2, 2, 1})},
    {"UNSHARD, no group", kBad, "3 numbers", MAKE(Op::kUnshard, {t.x}, {1})},
    {"UNSHARD, of none", kBad, "0 ranks", MAKE(Op::kUnshard, {t.x}, {1, 0, 1})},
    {"UNSHARD, of a symbolic dimension", kBad, "fixed",
     MAKE(Op::kUnshard, {Param(t.g, 0, kF32, {Dim(Var(t.g, 0, 1, 4))})}, {0, 2, 1})},
    {"REDUCE_SCATTER", kOk, "", MAKE(Op::kReduceScatter, {t.x}, {kAddCode, 0, 2, 1})},
    {"REDUCE_SCATTER, does not divide", kBad, "dimension 1",
     MAKE(Op::kReduceScatter, {t.x}, {kAddCode, 1, 2, 1})},
    {"REDUCE_SCATTER by SIN", kBad, "ADD, MUL or MAX",
     MAKE(Op::kReduceScatter, {t.x}, {static_cast<int64_t>(Op::kSin), 0, 2, 1})},
    {"ALLREDUCE", kOk, "", MAKE(Op::kAllReduce, {t.x}, {kAddCode, 2, 3})},
    {"ALLREDUCE by SIN", kBad, "ADD, MUL or MAX",
     MAKE(Op::kAllReduce, {t.x}, {static_cast<int64_t>(Op::kSin), 1, 1})},
    {"ALLREDUCE, stride 0", kBad, "stride 0", MAKE(Op::kAllReduce, {t.x}, {kAddCode, 2, 0})},
    {"ALLTOALL", kOk, "", MAKE(Op::kAllToAll, {t.x}, {0, 1, 2, 1})},
    {"ALLTOALL in place", kOk, "", MAKE(Op::kAllToAll, {t.x}, {0, 0, 2, 1})},
    {"ALLTOALL, does not divide", kBad, "dimension 1", MAKE(Op::kAllToAll, {t.x}, {1, 0, 2, 1})},
    {"COPY", kOk, "", MAKE(Op::kCopy, {t.x}, {1, 2, 1})},
    {"COPY, root 2 of 2", kBad, "root", MAKE(Op::kCopy, {t.x}, {2, 2, 1})},
    {"COPY, root -1", kBad, "root", MAKE(Op::kCopy, {t.x}, {-1, 2, 1})},
};

TEST(Spec, Table) {
  for (const Case& c : kCases) {
    Graph g;
    const Made made = c.make(Sample{g});
    EXPECT_EQ(made.status().code(), c.code) << c.name << ": " << made.status();
    EXPECT_NE(std::string(made.status().message()).find(c.field), std::string::npos)
        << c.name << ": " << made.status();
  }
}

TEST(Spec, EveryArity) {  // [27]
  for (int code = 0; code < 256; ++code) {
    const OpInfo& info = InfoOf(static_cast<Op>(code));
    Graph g;
    const UOp* const s = Param(g, 0, kF32, {});
    const auto made = [&](int64_t count) {
      const std::vector<const UOp*> sources(count, s);
      return g.Make(static_cast<Op>(code), kF32, sources, {}).status().code();
    };
    if (info.level == Level::kNone) {
      EXPECT_EQ(made(0), kBad) << code;
      continue;
    }
    if (info.min_sources > 0) {
      EXPECT_EQ(made(info.min_sources - 1), kBad) << info.name;
    }
    const int64_t most = info.max_sources < 0 ? limits::kVariadicSourcesMax : info.max_sources;
    EXPECT_EQ(made(most + 1), kBad) << info.name;
  }
}

TEST(Spec, EveryOperationRefusesATuple) {
  for (int code = 0; code < kOpCodeMax; ++code) {
    const Op op = static_cast<Op>(code);
    if (InfoOf(op).level == Level::kNone || op == Op::kFunction || op == Op::kGetTuple) continue;
    Graph g;
    const UOp* const tuple = g.MakeChecked(Op::kTuple, kVoid, {Param(g, 0, kF32, {})});
    for (int count = 1; count <= 3; ++count)
      for (const std::vector<int64_t>& arg : {std::vector<int64_t>{}, {0}, {kAddCode}, {0, 1}})
        EXPECT_FALSE(g.Make(op, kVoid, std::vector<const UOp*>(count, tuple), arg).ok())
            << InfoOf(op).name;
  }
}

struct GraphCase {
  const char* name;
  StatusCode code;
  std::function<const UOp*(Graph&)> root;
};

TEST(Spec, WholeGraphs) {
  const GraphCase cases[] = {
      {"a sink", kOk, [](Graph& g) { return Sink(g, {Param(g, 0, kF32, {})}); }},
      {"copies of a tensor graph", kBad,
       [](Graph& g) { return g.MakeChecked(Op::kSink, kVoid, {Param(g, 0, kF32, {})}, {2}); }},
      {"no sink", kBad, [](Graph& g) { return Param(g, 0, kF32, {}); }},
      {"a BUFFER", kBad, [](Graph& g) { return Sink(g, {BufferNode(g, 0, kF32, {})}); }},
      {"slot 1 first", kBad,
       [](Graph& g) {
         return Sink(g, {Param(g, 1, kF32, {}), Param(g, 0, kF32, {})});
       }},
      {"slot 0 missing", kBad, [](Graph& g) { return Sink(g, {Param(g, 1, kF32, {})}); }},
      {"slot 0 twice", kBad,
       [](Graph& g) {
         return Sink(g, {Param(g, 0, kF32, {}), Param(g, 0, kF32, {1})});
       }},
      {"a function's slots are its own", kOk,
       [](Graph& g) {
         const UOp *const p = Param(g, 0, kF32, {}), *const q = Param(g, 1, kF32, {});
         const UOp* const second = g.MakeChecked(Op::kFunction, kVoid, {q, p, q});
         return Sink(g, {g.MakeChecked(Op::kCall, kVoid, {second, p, p})});
       }},
      {"VAR with two ranges", kBad,
       [](Graph& g) { return Sink(g, {Add(g, Var(g, 0, 0, 3), Var(g, 0, 0, 4))}); }},
      {"two VARs", kOk,
       [](Graph& g) { return Sink(g, {Add(g, Var(g, 0, 0, 3), Var(g, 1, 0, 4))}); }},
      {"a COPY between devices", kBad,
       [](Graph& g) {
         return Sink(g, {g.MakeChecked(Op::kCopy, kVoid, {Param(g, 0, kF32, {})}, {1, 2, 1})});
       }},
      {"an ALLREDUCE of one", kBad,
       [](Graph& g) {
         return Sink(g, {g.MakeChecked(Op::kAllReduce, kVoid, {Param(g, 0, kF32, {4})},
                                       {kAddCode, 1, 1})});
       }},
      {"the rank", kBad, [](Graph& g) { return Sink(g, {Var(g, limits::kRankSlot, 0, 1)}); }},
      {"a power by a unit", kBad,
       [](Graph& g) {
         const UOp* const x = Param(g, 0, kF32, {2});
         return Sink(g, {g.MakeChecked(Op::kExp2, kVoid, {x}, {1})});
       }},
      {"a LAYOUT", kOk,
       [](Graph& g) {
         return Sink(g, {g.MakeChecked(Op::kLayout, kVoid, {Param(g, 0, kF32, {4})}, {0, 0})});
       }},
      {"a GLOBAL", kBad,
       [](Graph& g) {
         return Sink(g, {g.MakeChecked(Op::kGlobal, kF32, {}, {0, 4})});
       }},
      {"a RANGE", kBad,
       [](Graph& g) {
         return Sink(g, {g.MakeChecked(Op::kRange, kVoid, {}, {0, 4, 0})});
       }},
      {"a MULACC", kBad,
       [](Graph& g) {
         const UOp* const p = Param(g, 0, kF32, {});
         return Sink(g, {Alu(g, Op::kMulAcc, p, p, p)});
       }},
  };
  for (const GraphCase& c : cases) {
    Graph g;
    EXPECT_EQ(VerifyGraph(c.root(g), Level::kTensor).code(), c.code) << c.name;
  }
}

TEST(Spec, TheDeviceLevelIsTheTensorLevelWithCollectivesAndTheRank) {
  Graph g;
  const UOp* const rank = Var(g, limits::kRankSlot, 0, 1);
  const UOp* const x = Param(g, 0, kF32, {4});
  const UOp* const begin = Mul(g, rank, ConstIndex(g, 2));
  const UOp* const part = Shrink(g, x, {Dim(begin), Dim(Add(g, begin, ConstIndex(g, 2)))});
  ASSERT_EQ(part->shape[0], Dim(2));
  const UOp* const root = Sink(g, {g.MakeChecked(Op::kUnshard, kVoid, {part}, {0, 2, 1})});
  EXPECT_EQ(VerifyGraph(root, Level::kDevice).code(), kOk);
  const absl::Status refused = VerifyGraph(root, Level::kTensor);
  EXPECT_EQ(refused.code(), kBad);
  EXPECT_NE(refused.message().find("node "), absl::string_view::npos) << refused;
  EXPECT_EQ(VerifyGraph(root, Level::kKernel).code(), kBad);
  EXPECT_EQ(VerifyGraph(Sink(g, {g.MakeChecked(Op::kGlobal, kF32, {}, {0, 4})}), Level::kDevice)
                .code(),
            kBad);
}

// Each by itself: a client's graph has none of them.
TEST(Spec, ATensorGraphHasNoOperationOfDevicesAndNoRank) {
  Graph g;
  const UOp* const rank = Var(g, limits::kRankSlot, 0, 1);
  const UOp* const x = Param(g, 0, kF32, {4});
  constexpr auto kSum = static_cast<int64_t>(Op::kAdd);
  const std::vector<std::pair<const char*, const UOp*>> cases = {
      {"rank", Add(g, x, Expand(g, Reshape(g, Cast(g, rank, kF32), {1}), {4}))},
      {"UNSHARD", g.MakeChecked(Op::kUnshard, kVoid, {x}, {0, 2, 1})},
      {"REDUCE_SCATTER", g.MakeChecked(Op::kReduceScatter, kVoid, {x}, {kSum, 0, 2, 1})},
      {"ALLTOALL", g.MakeChecked(Op::kAllToAll, kVoid, {x}, {0, 0, 2, 1})},
      {"ALLREDUCE", g.MakeChecked(Op::kAllReduce, kVoid, {x}, {kSum, 2, 1})},
      {"COPY", g.MakeChecked(Op::kCopy, kVoid, {x}, {0, 2, 1})}};
  for (const auto& [name, node] : cases) {
    const UOp* const root = Sink(g, {node});
    EXPECT_EQ(VerifyGraph(root, Level::kDevice).code(), kOk) << name;
    const absl::Status refused = VerifyGraph(root, Level::kTensor);
    EXPECT_EQ(refused.code(), kBad) << name;
    EXPECT_NE(refused.message().find("node "), absl::string_view::npos) << refused;
    EXPECT_NE(refused.message().find(name), absl::string_view::npos) << refused;
  }
}

TEST(Spec, ParamsAndVars) {
  Graph g;
  const UOp *const p = Param(g, 0, kF32, {Dim(Var(g, 5, 1, 4))}), *const q = Param(g, 1, kF32, {});
  const UOp* const f = g.MakeChecked(
      Op::kFunction, kVoid,
      {Param(g, 0, kI8, {Dim(Var(g, 2, 1, 4))}), Param(g, 0, kI8, {Dim(Var(g, 2, 1, 4))})});
  const UOp* const call = g.MakeChecked(
      Op::kCall, kVoid, {f, Cast(g, Expand(g, Reshape(g, q, {1}), {Dim(Var(g, 2, 1, 4))}), kI8)});
  const UOp* const root = Sink(g, {p, call});
  ASSERT_TRUE(VerifyGraph(root, Level::kTensor).ok());
  EXPECT_EQ(ParamsOf(root), (std::vector<const UOp*>{p, q}));
  EXPECT_EQ(VarsOf(root), (std::vector<const UOp*>{Var(g, 2, 1, 4), Var(g, 5, 1, 4)}));
}

}  // namespace
}  // namespace outboard
