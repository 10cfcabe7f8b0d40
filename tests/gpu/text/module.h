// A module of PTX as the machine runs it: functions of decoded instructions, and data.
//
// Parse() accepts what compiler/render/ptx writes, and what else the tests' own kernels have
// (tests/gpu/checks/instruction_forms.cc lists it all). What it does not know is INVALID_ARGUMENT
// with the name and the line: nothing is skipped.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/gpu/ptx/numbers.h"

namespace outboard::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
  kTf32,
  kE4m3,
  kE5m2,
  kE4m3x2,
  kE5m2x2
};
int BytesOf(Type type);
bool IsSigned(Type type);
bool IsFloat(Type type);

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kCluster, kLocal, kConst, kParam };

enum class Op : uint8_t {
  // Values of one lane.
  kAdd,
  kSub,
  kMul,
  kMad,
  kMul24,
  kMad24,
  kSad,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kFma,
  kPopc,
  kClz,
  kBfind,
  kBrev,
  kBfe,
  kBfi,
  kBmsk,
  kSzext,
  kDp4a,
  kDp2a,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kShf,
  kLop3,
  kPrmt,
  kAddCarry,
  kSubCarry,
  kMadCarry,
  kRcp,
  kSqrt,
  kRsqrt,
  kSin,
  kCos,
  kLg2,
  kEx2,
  kTanh,
  kTestp,
  kCopysign,
  kSetp,
  kSet,
  kSelp,
  kSlct,
  kMov,
  kPack,
  kUnpack,
  kCvt,
  kCvtPair,
  kCvta,
  kIsspacep,
  kFns,
  kClock,
  kMapa,
  kGetctarank,
  // Control.
  kBra,
  kBrx,
  kRet,
  kExit,
  kTrap,
  kCall,
  kNop,
  // Memory.
  kLd,
  kSt,
  kAtom,
  kRed,
  kPrefetch,
  kFence,
  kProxyFence,
  // Lanes of a warp, threads of a block, blocks of a cluster.
  kShfl,
  kVote,
  kMatch,
  kRedux,
  kActivemask,
  kElect,
  kWarpSync,
  kBarSync,
  kBarArrive,
  kBarRed,
  kClusterArrive,
  kClusterWait,
  kSetmaxnreg,
  kGriddep,
  // Copies that run beside the threads.
  kCpAsync,
  kCpCommit,
  kCpWait,
  kCpMbarArrive,
  kMbarInit,
  kMbarInval,
  kMbarArrive,
  kMbarExpect,
  kMbarWait,
  kBulkLoad,
  kBulkStore,
  kTensorLoad,
  kTensorStore,
  kTensorPrefetch,
  kBulkPrefetch,
  kBulkCommit,
  kBulkWait,
  // Matrices.
  kLdmatrix,
  kStmatrix,
  kMma,
  kWgmma,
  kWgmmaFence,
  kWgmmaCommit,
  kWgmmaWait
};
inline constexpr Op kOpLast = Op::kWgmmaWait;

enum class Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};
enum class Logic : uint8_t { kNone, kAnd, kOr, kXor };
enum class Half : uint8_t { kLow, kHigh, kWide };
enum class Atomic : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas, kInc, kDec };
// What an access orders (PTX's .sem).
enum class Order : uint8_t { kWeak, kVolatile, kRelaxed, kAcquire, kRelease, kAcqRel };

// Shape and types of a matrix instruction.
struct MatrixShape {
  int m = 0, n = 0, k = 0;
  Type d = Type::kNone, a = Type::kNone, b = Type::kNone, c = Type::kNone;
  // Registers of each in the list of operands, in this order; 0 for a wgmma's descriptor.
  int d_count = 0, a_count = 0, b_count = 0, c_count = 0;
  bool negate_a = false, negate_b = false, transpose_a = false, transpose_b = false;  // wgmma
};

// One instruction. Operands are rows of the warp's register file: registers, constants and special
// registers alike, so that the machine reads an operand without asking what it is. -1 is "absent".
struct Instruction {
  Op op = Op::kNop;
  Type type = Type::kNone;
  Type from = Type::kNone;  // cvt's source, ld's register, atom's none
  Rounding rounding = Rounding::kNearest;
  Space space = Space::kGeneric;
  Order order = Order::kWeak;
  uint8_t mode = 0;  // Compare, Half, Atomic, or of one instruction's own
  Logic logic = Logic::kNone;
  uint8_t vector = 1;
  bool ftz = false, sat = false, approx = false, negated_c = false, guard_negated = false;
  bool integer_rounding = false;  // cvt.rni and its kind
  bool relu = false, aligned = false, transposed = false, nan = false, has_rounding = false;
  uint8_t flags = 0;
  int32_t guard = -1;
  int32_t d = -1, d2 = -1, a = -1, b = -1, c = -1, e = -1;
  int64_t offset = 0;   // of an address, in bytes
  int32_t target = -1;  // of a branch
  int32_t list = 0;     // operands beyond these: Function::operands[list, list + list_size)
  int32_t list_size = 0;
  int32_t shape = -1;  // Function::shapes
  int32_t line = 0;
};

// Bits of Instruction::flags.
inline constexpr uint8_t kFlagLateFalse = 1;  // mbarrier.test_wait: answers at once
inline constexpr uint8_t kFlagCarryIn = 2;
inline constexpr uint8_t kFlagCarryOut = 4;
inline constexpr uint8_t kFlagMulticast = 8;
inline constexpr uint8_t kFlagExpectTx = 16;
inline constexpr uint8_t kFlagParity = 32;
inline constexpr uint8_t kFlagNoComplete = 64;
inline constexpr uint8_t kFlagRead = 128;  // cp.async.bulk.wait_group.read, cp.async with a size

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kDynamicShared,
  kTotalShared,
  kIsExplicitCluster
};

struct Parameter {
  std::string name;
  int offset = 0;
  int bytes = 0;
};

// A kernel.
struct Function {
  std::string name;
  std::vector<Parameter> parameters;
  int parameter_bytes = 0;
  std::vector<Instruction> code;
  std::vector<int32_t> operands;
  std::vector<MatrixShape> shapes;
  int rows = 0;
  std::vector<std::pair<int, uint64_t>> constants;  // row, value
  std::vector<std::pair<int, Special>> specials;
  std::vector<std::pair<int, std::string>> globals;  // row, name of a .global or .const
  std::vector<uint8_t> product_rows;  // by row: a register of wgmma's; empty without wgmma
  int carry_row = -1;
  int local_bytes = 0;
  int max_threads = 0;               // .maxntid, 0 if absent
  int required_threads = 0;          // .reqntid
  int registers = 0;                 // .maxnreg
  int blocks_min = 0;                // .minnctapersm
  int cluster[3] = {0, 0, 0};        // .reqnctapercluster
  std::map<int, std::string> lines;  // the text of each line that holds an instruction
};

struct GlobalData {
  std::string name;
  int bytes = 0;
  int align = 1;
  bool initialised = false;
  std::vector<uint8_t> data;
};

struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::vector<GlobalData> globals;
  int shared_bytes = 0;    // static shared memory, from kSharedBase
  int dynamic_shared = 0;  // where dynamic shared memory starts
  bool uses_dynamic_shared = false;
  std::string target;  // sm_90a
  int version = 0;     // 80 for 8.0
};

// Shared memory starts here, as on sm_90, so that address 0 is an error.
inline constexpr int kSharedBase = 1024;

absl::StatusOr<std::unique_ptr<Module>> Parse(std::string_view text);

}  // namespace outboard::ptx
