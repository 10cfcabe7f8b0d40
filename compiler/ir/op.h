// The operations. One node type and one list of operations serve from the user's tensors down to
// kernels; `Level` defines where an operation is legal. The numeric value of an Op is its code on
// the wire and never changes.
//
// Sources and arguments, by operation (dims, axes and the like are in `arg`; see uop.h for symbolic
// dimensions):
//
//   PARAM      arg: slot, dims...        an input of the graph, or of the FUNCTION around it
//   BUFFER     arg: name, dims...        an input named by a number that the client chose; PARAM on
//                                        the wire
//   CONST      arg: bits                 scalar; integers as int64, floats as the bits of the equal
//                                        double
//   VAR        arg: slot, min, max       scalar i64 bound at run time, min <= value <= max
//   IOTA       arg: n                    0, 1 ... n-1 along one axis, of an integer type
//   RESHAPE    (x) dims...   EXPAND (x) dims...   PERMUTE (x) axes...   FLIP (x) axes...
//   PAD        (x) lo, hi per dimension: zeros around    SHRINK (x) begin, end per dimension
//   REDUCE     (x) op, axes...           a reduced axis stays, of length 1; op is ADD, MUL or MAX
//   CAST, BITCAST (x)                    to the node's dtype; BITCAST between equal widths
//   CONTIGUOUS (x)  stored before use    DETACH (x)  has no gradient
//   ASSIGN     (old, new)                the value of `new`; may be stored over `old`
//   FUNCTION   (body, PARAM 0, PARAM 1 ...)   CALL (function, arguments...)   TUPLE (values...)
//   GETTUPLE   (tuple) index
//   LAYOUT     (x) mesh axis, dim        a hint: cut x there over the devices of a mesh axis; -1 is
//                                        any mesh axis, or no dimension (whole on every device)
//   SINK       (results...)              the root of a graph; arg: up to (copies, tf32, slots): how
//                                        many copies a kernel has (copies.h); 1 if GPUs may round
//                                        operands of sums of products to TF32; SteadySlots
//
// Between the devices of a mesh; made by compiler/shard alone. A collective has a count and a
// stride: its group is the ranks that differ in (rank / stride) % count alone, and a rank's place
// in it is that number. The rank is the VAR of slot limits::kRankSlot.
//   UNSHARD    (x) dim, count, stride    the parts of the group joined along dim, in its order
//   REDUCE_SCATTER (x) op, dim, count, stride    slice (place) of the group's fold, cut along dim
//   ALLREDUCE  (x) op, count, stride     the group's fold: ((x0 op x1) op x2) ...
//   ALLTOALL   (x) cut, join, count, stride    part j along dim `cut` goes to place j; what arrives
//                                        is joined along dim `join`, in the group's order
//   COPY       (x) root, count, stride   the value at place `root`
//
//   GLOBAL     arg: slot, elements       a buffer that is passed to a kernel
//   RANGE      () or (end)  arg: id, extent, kind     a loop counter, i64 in [0, extent); kind is
//                                        RangeKind. With `end`, an i64 scalar of VARs, iterations
//                                        from end on are not needed: they may be run or skipped
//   INDEX      (GLOBAL, i64 element)     an address; LOAD (INDEX) or LOAD (INDEX, gate, otherwise);
//                                        STORE (INDEX, value) or STORE (INDEX, value, gate)
//   STORE      (INDEX, f32 value) 1      each element becomes the sum of the values of all points
//                                        that name it (kernel/row_sums.h); the kernel reads nothing
//                                        that it stores
//   REDUCE_LOOP (value, RANGE...) op     the value folded over its ranges, of kind kReduce
//   EXP2       (f32) 1 or 2              by an NVIDIA GPU's unit: 0 below 2^-126, or (2) subnormal
#pragma once

#include <cstdint>
#include <string_view>

namespace outboard {

enum class Op : uint8_t {
  kParam = 1,
  kBuffer = 2,
  kConst = 3,
  kVar = 4,
  kIota = 5,

  kReshape = 10,
  kPermute = 11,
  kExpand = 12,
  kPad = 13,
  kShrink = 14,
  kFlip = 15,

  kNeg = 20,
  kExp2 = 21,
  kLog2 = 22,
  kSin = 23,
  kSqrt = 24,
  kTrunc = 25,
  kExp = 26,
  kLog = 27,
  kCos = 28,
  kTanh = 29,

  kAdd = 30,
  kMul = 31,
  kFDiv = 32,  // floats
  kIDiv = 33,  // integers, towards zero
  kMod = 34,   // integers, the sign of the dividend
  kMax = 35,
  kCmpLt = 36,
  kCmpNe = 37,
  kCmpEq = 38,
  kAnd = 39,
  kOr = 40,
  kXor = 41,
  kShl = 42,
  kShr = 43,
  kThreefry = 44,  // u64 counter, u64 key: Threefry-2x32, 20 rounds

  kWhere = 50,
  kMulAcc = 51,  // a * b + c of f32 or f64, rounded once; kernels only

  kCast = 60,
  kBitcast = 61,
  kReduce = 62,
  kContiguous = 63,
  kDetach = 64,
  kAssign = 65,

  kFunction = 70,
  kCall = 71,
  kTuple = 72,
  kGetTuple = 73,

  // 80 to 83 had other arguments once and are not used again.
  kLayout = 84,
  kUnshard = 85,
  kReduceScatter = 86,
  kAllReduce = 87,
  kAllToAll = 88,
  kCopy = 89,

  kSink = 90,

  kGlobal = 100,
  kRange = 101,
  kIndex = 102,
  kLoad = 103,
  kStore = 104,
  kReduceLoop = 105,
};
inline constexpr int kOpCodeMax = 128;  // one past the largest code

enum class RangeKind : int64_t {
  kOutput = 0,    // in any order, by any thread
  kReduce = 1,    // of a REDUCE_LOOP
  kSequence = 2,  // inside of the outputs, in order: each iteration may read what earlier ones
                  // have stored
};

// The levels at which an operation is legal. Operations of kBoth (arithmetic, CONST, SINK) mean the
// same at either. The device level is the tensor level with collectives and the rank.
enum class Level : uint8_t { kNone = 0, kTensor = 1, kKernel = 2, kBoth = 3, kDevice = 4 };

struct OpInfo {
  std::string_view name;  // "" for an unused code
  Level level = Level::kNone;
  int8_t min_sources = 0;  // before the sources of symbolic dimensions
  int8_t max_sources = 0;  // -1: variadic
  bool has_dims = false;   // `arg` (or its tail) is a list of dimensions, which may be symbolic
};

// Returns the information on a code; its name is empty if the code is unused.
const OpInfo& InfoOf(Op op);
inline std::string_view Name(Op op) { return InfoOf(op).name; }

bool IsUnary(Op op);    // NEG ... TANH
bool IsBinary(Op op);   // ADD ... THREEFRY
bool IsTernary(Op op);  // WHERE, MULACC
// Returns whether `op` may occur in a graph of `level`.
bool IsLegalAt(Op op, Level level);
inline bool IsAlu(Op op) { return IsUnary(op) || IsBinary(op) || IsTernary(op); }
bool IsTranscendental(Op op);  // unary and not exact (docs/semantics.md)
inline bool IsCompare(Op op) { return op == Op::kCmpLt || op == Op::kCmpNe || op == Op::kCmpEq; }
bool IsMovement(Op op);  // RESHAPE ... FLIP
bool IsCollective(Op op);  // UNSHARD ... COPY: needs a partner
bool IsCommutative(Op op);
// Returns whether `op` may be the operation of a REDUCE, ALLREDUCE, REDUCE_SCATTER or REDUCE_LOOP.
inline bool IsReducer(Op op) { return op == Op::kAdd || op == Op::kMul || op == Op::kMax; }

}  // namespace outboard
