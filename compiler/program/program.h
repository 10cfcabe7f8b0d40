// Programs: the instructions of one kernel, for one thread of one block. This is the last form
// before text, and the one that is checked (spec.h), interpreted (interpret.h) and proved to stay
// within its buffers (compiler/proof/program_range.h), so the checks apply to the code that runs.
//
// A program is a list of instructions. An instruction that has a value is named by its number in
// the list; its sources come before it, in a scope that is still open. A value is a scalar
// (`lanes` is 1), a vector, or a memory (`lanes` is 0). All values are of ir/dtype.h's types, and
// arithmetic means what docs/semantics.md says: nothing traps and nothing is undefined.
//
//   CONST    imm: bits                 a scalar, `bits` as of Op::kConst
//   VAR      imm: slot, min, max       an i64 bound at launch
//   SPECIAL  imm: Grid, extent         the block's or the thread's number, an i64 in [0, extent)
//   BUFFER   imm: slot, elements       a memory that the kernel is given
//   ALLOC    imm: Space, elements      an uninitialised memory: of the thread, new each time the
//                                      instruction runs; or of the block (outside of all scopes)
//                                      A tile is 16 rows of 16 elements of four bytes, outside of
//                                      all scopes, for TILE instructions alone; at most eight
//   LOOP     (limit?) imm: extent, How, lanes   the counter, an i64: 0 ... min(extent, limit) - 1
//   END      (loop)
//   IF       (condition) imm: rarely   ENDIF (if)
//                                      rarely (1): most often the condition does not hold, and what
//                                      is computed for what is in it is not computed before it
//   ALU      op, (sources) imm: Precision   one of Op's operations, in every lane
//   CAST     (x)
//   BITCAST  (x)                       the same bytes; the number of lanes may differ
//   LANES    (x) or (x0, x1 ...)       a vector: x in all lanes, or one scalar for each
//   LANE     (vector) imm: lane        one of its scalars
//   LOAD     (memory, index) or (memory, index, mask, otherwise) imm: again
//   STORE    (memory, index, value) or (memory, index, value, mask) imm: swizzled
//                                      elements: a scalar i64 index and several lanes mean
//                                      consecutive ones, a vector index one for each lane. A lane
//                                      whose mask is false touches nothing. Swizzled (1): memory of
//                                      the block of whole patterns; e means SwizzledPlace of e.
//                                      Loads of buffers that differ in `again` are not merged
//   BARRIER                            every thread of the block gets here before any continues,
//                                      and sees all earlier stores of the others
//   COPY     (shared, index, buffer, index, mask?) imm: elements, aligned, swizzled   begins a copy
//                                      of consecutive elements, which goes on while the thread
//                                      does. Where the mask is false it writes zeros and reads
//                                      nothing. Aligned (1): both indices are multiples of the
//                                      count. Swizzled (1): as of STORE; aligned, within 16 bytes
//   COMMIT                             the thread's copies since the last COMMIT form a group
//   WAIT     imm: n                    until all of the thread's groups but the last n have arrived
//   SHUFFLE  (x) imm: bit              the x of the thread whose number differs in this bit, 1 to
//                                      16: by all threads of a warp together
//   MMA      (a, b, c) imm: half       c + a * b of matrices of 16 x k and k x 8, by 32 threads
//                                      together; see MmaElement for which thread has what. k is 16
//                                      for bf16 and f16, 8 for f32: of these the unit reads the
//                                      first 19 bits (TF32), as if the others were 0. A b of twice
//                                      as many lanes is two matrices side by side, of which `half`
//                                      is used. How sums are rounded: interpret_matrix.h
//                                      With imm a MatrixUnit of AMD's: of matrices of 16 x 16 and
//                                      16 x 16, of bf16 and f16, by ThreadsOf(unit) threads; see
//                                      AmdElement
//   LDMATRIX (shared, index) imm: 0, transposed (1) or swizzled (2)   four matrices of 8 rows of 16
//                                      bytes, by 32 threads together. A thread's index, of 16 bytes
//                                      each, is that of row t % 8 of matrix t / 8 (swizzled: as of
//                                      STORE). Its value is, of each matrix, the four bytes of row
//                                      t / 4 that are number t % 4; transposed, of types of 16 bits
//                                      alone: of column t / 4, from row 2 (t % 4) on
//   DOT      (c, a, b)                 c, of f32, + a.low * b.low + a.high * b.high in every lane:
//                                      a and b are of u32, two of bf16 each. Of processors alone
//   TILEZERO (tile)                    sets all its elements to 0. TILE... are of processors alone
//   TILELOAD, TILESTORE (tile, memory, index) imm: stride   its 16 rows from or to consecutive
//                                      elements of a private memory, `stride` elements apart
//   TILEDOT  (c, a, b)                 tiles: adds to c[i][j], of f32, the products of a[i][k] and
//                                      b[k][j], of u32, for k = 0 ... 15. How both are rounded
//                                      is what the processor does: bf16_products.h
//
// For NVIDIA's sm_90a alone. A warpgroup is 128 consecutive threads from a multiple of 128 on; all
// of them reach an instruction of warpgroups (WG..., MAXREGISTERS) together, with equal indices.
// Barriers are a memory of the block (Space::kBarriers) that MB instructions and BOXLOAD use alone.
//
//   MAP      (buffer) imm: number      Program::maps[number], a view of the buffer
//   MBINIT   (barriers, index) imm: n  makes a barrier. Each of its phases, numbered from 0, ends
//                                      when n threads have arrived and all expected bytes have come
//   MBEXPECT (barriers, index) imm: bytes   the phase also ends only when these bytes were
//                                      copied; then MBARRIVE
//   MBARRIVE (barriers, index, rank?)  the thread arrives; what it did is seen by those who wait.
//                                      With a rank: at the barrier of that block of the cluster
//   MBWAIT   (barriers, index, parity) until the last phase of that parity is over: at first a
//                                      wait for parity 1 goes on at once, one for 0 does not
//   BOXLOAD  (shared, index, barriers, index, map, coordinates ...) imm: ranks   begins a copy of
//                                      the map's box from these coordinates on, innermost first, to
//                                      consecutive elements (swizzled: to SwizzledPlace of them).
//                                      Its bytes count for the barrier's phase. Ranks, unless it
//                                      is 0: a bit for each block of the cluster that gets the box,
//                                      in its own memory and with its own barrier
//   BOXSTORE (shared, index, map, coordinates ...)   begins a copy the other way
//   BOXCOMMIT                          the thread's BOXSTOREs since the last one form a group
//   BOXWAIT  imm: n, read              until all of the thread's groups but the last n are done;
//                                      read (1): until their shared memory may be written again
//   PROXYFENCE                         copies of boxes and WGMMAs, which the thread or who waits
//                                      for it begins later, see its stores to shared memory
//   WARPSYNC                           a BARRIER for the threads of a warp
//   CLUSTERSYNC                        a BARRIER for all threads of the cluster's blocks, whose
//                                      warpgroups may stand at different CLUSTERSYNCs
//   CLUSTERLOAD (shared, index, rank)  consecutive elements of that block's memory
//   WGFENCE  (registers ...)           before the first WGMMA, and after any other access to its
//                                      accumulators or to an a in registers
//   WGMMA    (accumulators, a, index, b, index) imm: n, a's leading, b's leading, alone
//                                      begins accumulators += a * b, 64 x k by k x n, where k are
//                                      32 bytes (WgmmaDepth); alone (1): accumulators = a * b.
//                                      These are private memory of n / 2 f32; WgmmaElement says
//                                      which thread has what. a and b are swizzled in shared memory
//                                      (WgmmaPlace), of bf16, f16, an 8-bit float, or f32 (TF32: 19
//                                      bits count); leading distances of 16 bits alone. Or a is in
//                                      registers: four u32, the bits of one f32 or two numbers of
//                                      16 bits each, of b's type (WgmmaOfA)
//   WGCOMMIT                           the warpgroup's WGMMAs since the last one form a group
//   WGWAIT   (registers ...) imm: n    until all groups but the last n are done. Registers that are
//                                      listed may then be used, unless the last n use them
//   WGSYNC                             a BARRIER for the warpgroup's threads
//   MAXREGISTERS imm: n, raises        from here on each of the warpgroup's threads may have n
//                                      registers; raising waits until others have lowered theirs
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/op.h"
#include "compiler/matrix_unit.h"

namespace outboard::program {

// As listed above. Those of sm_90a come last, from kMap on, of warpgroups from kWgFence on.
enum class Code : uint8_t {
  kConst,
  kVar,
  kSpecial,
  kBuffer,
  kAlloc,
  kLoop,
  kEnd,
  kIf,
  kEndIf,
  kAlu,
  kCast,
  kBitcast,
  kLanes,
  kLane,
  kLoad,
  kStore,
  kBarrier,
  kCopy,
  kCommit,
  kWait,
  kShuffle,
  kMma,
  kLdmatrix,
  kDot,
  kTileZero,
  kTileLoad,
  kTileStore,
  kTileDot,
  kMap,
  kMbInit,
  kMbExpect,
  kMbArrive,
  kMbWait,
  kBoxLoad,
  kBoxStore,
  kBoxCommit,
  kBoxWait,
  kProxyFence,
  kWarpSync,
  kClusterSync,
  kClusterLoad,
  kWgFence,
  kWgmma,
  kWgCommit,
  kWgWait,
  kWgSync,
  kMaxRegisters,
};
std::string_view Name(Code code);

enum class Grid : int64_t { kBlock = 0, kThread = 1 };
enum class Space : int64_t { kPrivate = 0, kShared = 1, kTile = 2, kBarriers = 3 };
// How exact the result of an ALU of floats is. kEach: each operation is rounded by itself.
// kWithProduct, of an ADD: a product that it adds need not be rounded before, so that a device may
// compute both in one instruction (a reduction's sums). kByUnit, of f32 alone, is by the unit of an
// NVIDIA GPU: an EXP2, within 2^-22 of the value, and 0 below 2^-126 (with imm 1: within 2^-21,
// subnormal numbers included); or an FDIV of 1, within 2^-23, where what is below 2^-126, the
// divisor or the result, counts as 0.
enum class Precision : int64_t { kEach = 0, kWithProduct = 1, kByUnit = 2 };
// How a loop is to be run. After expansion only kPlain remains.
enum class How : int64_t { kPlain = 0, kUnroll = 1, kVector = 2 };

inline constexpr int kLanesMax = 64;
inline constexpr int64_t kTileSide = 16;
inline constexpr int kTilesMax = 8;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWgmmaRows = 64;
inline constexpr int kWgmmaDepthBytes = 32;
inline constexpr int kWgmmaColumnsMax = 256;
inline constexpr int kWgmmaRegistersOfA = 4;  // where a is in registers
// Eight rows of 128 bytes: the pattern of a swizzle repeats, so its memory is aligned to it.
inline constexpr int64_t kSwizzleAlign = 1024;

using ValueId = int32_t;

struct Instruction {
  Code code = Code::kConst;
  Op op = Op::kAdd;            // of an ALU
  DType dtype = DType::kVoid;  // of the value, or of a memory's elements
  int lanes = 1;
  absl::InlinedVector<ValueId, 4> src;
  std::array<int64_t, 4> imm = {};

  bool operator==(const Instruction&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Instruction& i) {
    // Most have no third and fourth number; the others are few.
    const uint64_t kind = uint64_t{static_cast<uint8_t>(i.code)} << 48 |
                          uint64_t{static_cast<uint8_t>(i.op)} << 40 |
                          uint64_t{static_cast<uint8_t>(i.dtype)} << 32 |
                          static_cast<uint32_t>(i.lanes);
    return H::combine(std::move(h), kind, i.src, i.imm[0], i.imm[1]);
  }
};

bool HasValue(Code code);
// Returns whether an instruction depends on its sources alone and has no side effects.
bool IsPure(Code code);
// Returns whether it is an instruction for sm_90a; those of clusters are for sm_90, too.
inline bool IsHopper(Code code) { return code >= Code::kMap; }
inline bool IsOfCluster(Code code) {
  return code == Code::kClusterSync || code == Code::kClusterLoad;
}
// Returns whether all threads of a warpgroup run it together.
inline bool IsOfWarpgroup(Code code) { return code >= Code::kWgFence; }
// The private memories whose elements an instruction may change, but for STORE.
absl::Span<const ValueId> ChangedMemories(const Instruction& instruction);

struct Program {
  std::vector<Instruction> code;
  int buffer_count = 0;            // one past the largest slot
  std::vector<MappedTensor> maps;  // by the number of MAP
  int copies = 1;                  // each over buffers of its own (compiler/copies.h)
  int64_t steady = 0;              // buffers that nobody writes, a bit for each slot (SteadySlots)
  // So many blocks that follow each other run together, and reach each other's shared memory: a
  // cluster, of sm_90. A block's rank is its number modulo this. Divides the number of blocks.
  int64_t cluster = 1;

  // The extent of the SPECIAL of this axis; 1 if there is none.
  int64_t Extent(Grid axis) const;
  int64_t shared_bytes() const;
  // Where the memory of an ALLOC of the block begins in that of all of them, in bytes.
  int64_t SharedOffset(ValueId alloc) const;
  // The first instruction that is not the same for all blocks, or the outermost scope that it is
  // in; the number of instructions if there is none. What comes before it may be run once for
  // several.
  ValueId FirstOfBlocks() const;
  bool reads_vars() const;

  bool operator==(const Program&) const = default;
};

// One line per instruction, indented by scopes: "%7 = ADD i64 %3 %6".
std::string ToString(const Program& program);
std::string ToString(const Program& program, ValueId number);

// Numbers of a type that lie in one register of 32 bits of MMA's a or b, and how far its k goes.
inline int MmaPacked(DType dtype) { return 4 / ByteWidth(dtype); }
inline int MmaDepth(DType dtype) { return 8 * MmaPacked(dtype); }
// The row and column of the element that thread `thread` of 32 holds in lane `lane` of an operand
// of MMA, as PTX's m16n8k16 (two packed numbers a register) and m16n8k8 (one): a has four
// registers, b two, c four sums.
struct MatrixPlace {
  int row = 0;
  int column = 0;
};
// The operand for MmaElement.
enum class MmaOperand { kA, kB, kC };
MatrixPlace MmaElement(MmaOperand operand, int packed, int thread, int lane);
// The same of AMD's units, by the instruction sets of RDNA 3 (WMMA) and CDNA 3 (MFMA): what a
// thread holds of a and b are consecutive steps.
MatrixPlace AmdElement(MatrixUnit unit, MmaOperand operand, int thread, int lane);
// The lanes of a and b, and of c.
constexpr int AmdOperandLanes(MatrixUnit unit) { return unit == MatrixUnit::kWmma ? 16 : 4; }
constexpr int AmdSumLanes(MatrixUnit unit) { return unit == MatrixUnit::kWmma ? 8 : 4; }
// The row and column of the sum that thread `thread` of 128 holds in element `element` of the
// accumulators of WGMMA, as PTX's wgmma.m64nNkK.
MatrixPlace WgmmaElement(int thread, int element);
// The row and k of number `element` that thread `thread` of 128 holds in the registers of an a, of
// elements of `width` bytes: register `element * width / 4`, the lowest bits first.
MatrixPlace WgmmaOfA(int thread, int element, int width);
// The k of a WGMMA of operands whose elements have `width` bytes.
constexpr int WgmmaDepth(int width) { return kWgmmaDepthBytes / width; }
// Where element `row`, `k` of an operand of WGMMA is, from the operand's first one and before the
// swizzle, in elements of `width` bytes. `leading` 0: each row has 128 consecutive bytes, of which
// the operand takes 32. Otherwise (16 bits alone) 64 rows are consecutive, the next k follows, and
// the next 64 rows are `leading` elements away.
int64_t WgmmaPlace(int64_t leading, int row, int k, int width);
// The place of an element of `width` bytes in memory with a swizzle of 128 bytes.
int64_t SwizzledPlace(int64_t element, int width);

// Builds a program by appending instructions. Equal pure instructions of open scopes are merged, so
// are equal loads of private memory with no store to it between them, and arithmetic on i64 and
// bool constants is folded, so that passes can emit simple, redundant code.
class ProgramBuilder {
 public:
  ValueId Add(Instruction instruction);

  ValueId Const(DType dtype, double value);
  ValueId Int(int64_t value);  // an i64
  ValueId Alu(Op op, DType dtype, std::initializer_list<ValueId> src);
  ValueId Plus(ValueId a, ValueId b) { return Alu(Op::kAdd, DType::kI64, {a, b}); }
  ValueId Times(ValueId a, int64_t b) { return Alu(Op::kMul, DType::kI64, {a, Int(b)}); }
  ValueId Divide(ValueId a, int64_t b) { return Alu(Op::kIDiv, DType::kI64, {a, Int(b)}); }
  ValueId Modulo(ValueId a, int64_t b) { return Alu(Op::kMod, DType::kI64, {a, Int(b)}); }
  ValueId Negated(ValueId a) { return Times(a, -1); }
  ValueId Max(ValueId a, ValueId b) { return Alu(Op::kMax, DType::kI64, {a, b}); }
  ValueId Min(ValueId a, ValueId b) { return Negated(Max(Negated(a), Negated(b))); }
  ValueId Less(ValueId a, ValueId b) { return Alu(Op::kCmpLt, DType::kBool, {a, b}); }
  // The conjunction of conditions, of which -1 is one that is true.
  ValueId And(ValueId a, ValueId b) {
    if (a < 0 || b < 0 || a == b) return a < 0 ? b : a;
    return Alu(Op::kAnd, DType::kBool, {a, b});
  }
  ValueId Cast(ValueId x, DType dtype);
  ValueId Splat(ValueId x, int lanes);  // x itself if it has that many lanes
  ValueId Special(Grid axis, int64_t extent);
  ValueId Buffer(DType dtype, int64_t slot, int64_t elements);
  ValueId Alloc(Space space, DType dtype, int64_t elements);
  ValueId Load(ValueId memory, ValueId index);
  void Store(ValueId memory, ValueId index, ValueId value);
  ValueId Loop(int64_t extent, How how = How::kPlain, int64_t lanes = 1, ValueId limit = -1);
  void End(ValueId loop);
  ValueId If(ValueId condition);
  ValueId IfRarely(ValueId condition);
  void EndIf(ValueId branch);
  void Barrier();
  ValueId Map(ValueId buffer, MappedTensor map);
  // An instruction without a value, for sm_90a.
  void Do(Code code, absl::Span<const ValueId> src = {}, std::array<int64_t, 4> imm = {}) {
    Instruction instruction{.code = code, .imm = imm};
    instruction.src.assign(src.begin(), src.end());
    Add(std::move(instruction));
  }

  const Instruction& at(ValueId value) const { return program_.code[value]; }
  // Buffers that the whole program only reads, by slot: equal loads of them are one value too.
  void SetReadOnly(std::vector<bool> slots) { read_only_ = std::move(slots); }
  // What a program has beside its instructions, and MAPs that are added by their number.
  void SetAround(const Program& program) {
    program_.maps = program.maps;
    program_.cluster = program.cluster;
  }
  void SetCluster(int64_t blocks) { program_.cluster = blocks; }
  bool IsReadOnly(ValueId memory) const;
  // Returns whether `value` is a CONST of an integer type or bool, and sets `number` to it.
  bool IsConst(ValueId value, int64_t* number) const;
  int depth() const { return static_cast<int>(scopes_.size()); }
  Program Take(int buffer_count);

 private:
  ValueId Folded(const Instruction& alu);  // -1: not foldable
  ValueId FoldedLanes(const Instruction& alu);
  void Close();
  bool IsPrivate(ValueId memory) const;
  void Forget(ValueId memory);  // the loads of private memory, or of all if -1

  Program program_;
  std::vector<bool> read_only_;
  absl::flat_hash_map<Instruction, ValueId> known_;
  std::vector<std::vector<Instruction>> scopes_;  // by open scope: its known instructions
  std::vector<Instruction> own_loads_;            // known ones of private memory
};

}  // namespace outboard::program
