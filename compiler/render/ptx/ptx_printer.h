// The state of printing one program as PTX, for NVIDIA's GPUs. Programs are nearly PTX: each of
// their instructions is one of PTX's, or a few. The driver's assembler does the rest: it allocates
// registers, schedules, merges equal values, hoists and drops what nobody reads.
//
// Values in registers: bool is a predicate; integers of up to 32 bits are a register of 32 bits
// that holds the number, extended by its sign; an i64 whose bounds fit in 32 bits is one, too
// (indices.cc); f32 and f64 are as such, and every smaller float is the f32 of the same value: it
// is widened when loaded, each operation is done in f32 and rounded back. Threads have no vectors:
// a value of several lanes is as many registers.
//
// A private memory is one register for each element; an index that is no constant selects among
// them. A thread's stack is memory behind all caches, and is not used.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/program/passes/accesses.h"
#include "compiler/program/program.h"
#include "compiler/render/launch_shape.h"
#include "compiler/render/ptx/ptx_text.h"
#include "compiler/render/value_bounds.h"
#include "compiler/target.h"

namespace outboard::render {

class PtxPrinter {
 public:
  PtxPrinter(const program::Program& program, const Target& target, const GridShape& grid);

  // Returns the kernel `symbol` as text. Errors: UNIMPLEMENTED, as GpuRenderer::Render.
  absl::StatusOr<std::string> Run(const std::string& symbol);

 private:
  using ValueId = program::ValueId;
  using Instruction = program::Instruction;
  using Values = absl::InlinedVector<PtxOperand, 2>;  // one for each lane, or one that all have
  using Elements = std::vector<PtxOperand>;           // registers of a private memory

  // ---- the kernel (ptx_printer.cc)
  absl::Status CheckUnits() const;  // of the processor; errors: UNIMPLEMENTED
  std::string Directives() const;  // of blocks and registers, before the body
  void OpenMemories();
  // Loads parameters and the addresses of shared memory. Behind the branch of FindLeaving, if there
  // is one: blocks that leave need none of it.
  void PrintPrologue();
  ValueId FindLeaving() const;
  void LeaveBehindGrid();  // blocks of a grid in rows that the program does not have
  void NumberWarpgroups();
  void Print(ValueId n);
  void PrintMoved(ValueId place);
  void PrintValue(ValueId n);
  bool IsPrinted(ValueId n) const { return !values_[static_cast<size_t>(n)].empty(); }
  Values Compute(ValueId n);
  PtxOperand Special(ValueId n);
  const Instruction& at(ValueId n) const { return program_.code[static_cast<size_t>(n)]; }

  // ---- parameters (parameters.cc)
  std::string Parameters() const;  // their declarations
  void LoadParameters();           // sets buffers_ and maps_
  void LoadParametersOfCopy();

  // ---- values
  // The value of a lane: of an i64 always 64 bits.
  PtxOperand Lane(ValueId n, int lane);
  // The lower 32 bits of an integer.
  PtxOperand Low(ValueId n, int lane);
  // As it was computed: an i64 that IsSmall has 32 bits.
  const PtxOperand& AsPrinted(ValueId n, int lane) const {
    const Values& lanes = values_[static_cast<size_t>(n)];
    return lanes[lanes.size() == 1 ? 0 : static_cast<size_t>(lane)];
  }
  DType PrintedType(ValueId n) const { return IsSmall(n) ? DType::kI32 : at(n).dtype; }
  static Width WidthOf(DType dtype);  // of the register of a value
  // The same in a register, for instructions that take no constant there.
  PtxOperand InRegister(const PtxOperand& operand);

  // ---- arithmetic (alu.cc), which means what docs/semantics.md says. `type` is that of the
  // operands, of the last one for WHERE
  Values Arithmetic(ValueId n);
  PtxOperand Alu(Op op, DType type, absl::Span<const PtxOperand> args);
  PtxOperand Shift(Op op, const PtxOperand& a, const PtxOperand& b, DType type);
  PtxOperand Max(const PtxOperand& a, const PtxOperand& b, DType type);
  PtxOperand Compare(Op op, const PtxOperand& a, const PtxOperand& b, DType type);
  PtxOperand Logic(Op op, const PtxOperand& a, const PtxOperand& b);  // of bools
  PtxOperand Select(const PtxOperand& condition, const PtxOperand& a, const PtxOperand& b);
  PtxOperand Threefry(const PtxOperand& counter, const PtxOperand& key);
  PtxOperand Wrapped(const PtxOperand& value, DType type);  // of an integer of 8 or 16 bits

  // ---- quotients of integers (divide_integers.cc)
  PtxOperand Divide(Op op, const PtxOperand& a, const PtxOperand& b, DType type,
                    const ValueBounds& of_a, const ValueBounds& of_b);
  // What is known of a dividend: its sign bit is 0, it has none, or it may be negative.
  enum class ConstantDivision { kNotNegative, kUnsigned, kSigned };
  PtxOperand DivideByConstant(Op op, const PtxOperand& a, uint64_t divisor, Width width,
                              ConstantDivision kind);

  // ---- quotients of floats of up to 32 bits (divide_floats.cc)
  bool IsQuotient(ValueId n) const;
  static bool IsInverseByUnit(const program::Instruction& i) {
    return i.code == program::Code::kAlu && i.op == Op::kFDiv &&
           i.imm[0] == static_cast<int64_t>(program::Precision::kByUnit);
  }
  std::vector<ValueId> QuotientsWith(ValueId n) const;  // that are printed together
  void PrintQuotients(absl::Span<const ValueId> all);
  // Of a divisor b: y near 1 / b. Of f32 it is NaN where it says nothing; of f64 there is -b, too.
  struct Reciprocal {
    PtxOperand y, negated;
  };
  // Of floats smaller than f32: in f32, to be rounded to the type.
  PtxOperand DivideSmall(const PtxOperand& a, const PtxOperand& b, DType type);
  // One quotient, of any numbers there are, by way of f64; writes it to `quotient`.
  Reciprocal InvertByF64(const PtxOperand& divisor);
  void DivideByF64(const PtxOperand& dividend, const Reciprocal& by, const PtxOperand& quotient);
  void FindDivisors();               // that several numbers have; after FindUses
  void FindReciprocals(ValueId n);  // of those that are lanes of a value that was just printed
  // The value, and the lane of it, that a lane of `n` is.
  std::pair<ValueId, int> OriginOf(ValueId n, int lane) const;

  // ---- conversions (convert.cc)
  PtxOperand Const(DType dtype, int64_t bits);  // as of Op::kConst
  PtxOperand Cast(const PtxOperand& value, DType from, DType to);
  PtxOperand Bitcast(const PtxOperand& value, DType from, DType to);
  // From and to the bits that lie in memory, which are the low ones of a register of 32 bits, or
  // all of one of 64. What is above them is 0 before, and anything after.
  PtxOperand FromMemory(const PtxOperand& bits, DType dtype);
  PtxOperand ToMemory(const PtxOperand& value, DType dtype);
  PtxOperand Round(const PtxOperand& value, DType dtype);
  PtxOperand RoundBFloat(const PtxOperand& value);
  // What was rounded to the type to make `value`; none: not known.
  PtxOperand Unrounded(const PtxOperand& value, DType dtype) const;
  // Two numbers as they lie in a word, the first one in its lower half.
  PtxOperand HalvesOf(PtxOperand low, PtxOperand high, DType dtype);
  PtxOperand NarrowToOdd(const PtxOperand& value);
  PtxOperand PackFp8(const PtxOperand& value, DType dtype);
  PtxOperand UnpackFp8(const PtxOperand& bits, DType dtype);
  Values BitcastLanes(ValueId n);

  // ---- indices of 32 bits (indices.cc)
  bool IsSmall(ValueId n) const;  // an i64 that fits in 32 bits, and is printed so
  bool IsComputedSmall(ValueId n) const;
  bool MayBeNegative(ValueId n) const { return bounds_[static_cast<size_t>(n)].min < 0; }
  PtxOperand SmallArithmetic(ValueId n, int lane);

  // ---- addresses of elements (addresses.cc)
  Address ElementAddress(ValueId memory, ValueId index);
  Address NearAddress(ValueId memory, ValueId index, Address address);
  // Those that several branches use which follow each other; after FindUses.
  void FindSharedAddresses();
  void ShareAddresses(ValueId branch);  // where it is the first of them
  int LoopsAround(ValueId value) const;
  // What is added to make an index, as far as its innermost loop computes it or all of it, in the
  // program's order: the index alone where that takes more than kTermStepsMax steps.
  enum class SumsOf { kInnermostLoop, kAllLoops };
  std::vector<ValueId> TermsOf(ValueId index, SumsOf sums) const;
  // A sum whose addends are sums again, of which some are added more than once, has more terms than
  // it has instructions: up to 2^n.
  static constexpr int kTermStepsMax = 64;
  struct TermSum {
    bool fits = false, is_signed = false;  // in 32 bits
  };
  TermSum SumOf(absl::Span<const ValueId> terms) const;

  // ---- what is fetched before the launches in front of this one are done (prefetch.cc)
  void AskForSteady();
  bool ReadsWhole(int64_t slot) const;  // each element of the buffer, as far as bounds tell

  // ---- memory (memory.cc)
  bool IsPrivate(ValueId memory) const { return privates_.contains(memory); }
  // Of an element: `lane` elements behind the index if that is a scalar.
  Address AddressOf(ValueId memory, ValueId index, int lane = 0);
  // The same for a load or store. A register of 32 bits does not hold what lies before the block's
  // memory, so no such address begins there, even if an offset leads back.
  Address AccessAddress(ValueId memory, ValueId index, int lane = 0);
  Address BaseOf(ValueId memory) const;
  // The address `index` elements of `bytes` bytes each after `base`.
  Address Behind(const Address& base, const PtxOperand& index, int64_t bytes, bool is_signed);
  PtxOperand Plain(
      const Address& address);  // in a register, for instructions that add nothing to it
  PtxOperand Index(ValueId index, int lane);
  // A power of two that divides the address, up to kAccessBytesMax.
  int64_t AlignOf(ValueId memory, ValueId index, int lane) const;
  static constexpr int kAccessBytesMax = 16;
  // Of the lanes from `begin` on that lie next to each other and are aligned so: how many one
  // access may have, up to `end`.
  int Together(ValueId memory, ValueId index, int begin, int end) const;
  Values Load(ValueId n);
  void Store(ValueId n);
  void LoadLanes(ValueId load, int begin, int end, const PtxOperand& condition, Values& out);
  void StoreLanes(const Instruction& store, int begin, int end, const PtxOperand& condition);
  PtxOperand Unpacked(const PtxOperand& word, int k, DType dtype);
  PtxOperand PackedWord(ValueId value, int lane, int count, DType dtype);
  // Lanes whose masks are one value are accessed together; calls `body` with their range. The
  // condition is none where all are on.
  void Guarded(ValueId mask, int lanes,
               absl::FunctionRef<void(int begin, int end, const PtxOperand& condition)> body);

  // ---- private memory (private_memory.cc)
  Values LoadPrivate(ValueId n);
  void StorePrivate(ValueId n);
  void FindChanges();
  // Whether nobody writes what the load has read until its value was used for the last time.
  bool StaysUntilUsed(ValueId load, int64_t element) const;
  void CompareIndex(const PtxOperand& predicate, const PtxOperand& index, int64_t element);

  // ---- who uses what (uses.cc)
  // The values that printing an instruction reads.
  absl::InlinedVector<ValueId, 4> SourcesOf(ValueId n) const;
  void FindUses();
  bool IsUsed(ValueId n) const;  // by what is printed
  // An index and the constants that it adds to it.
  std::pair<ValueId, int64_t> WithoutConstants(ValueId index) const {
    return program::WithoutConstants(program_, index);
  }
  // The product that a sum may take in as it is, so that both are rounded once; -1: none.
  ValueId ProductIn(ValueId sum) const;
  // Of x + 3 < 10, where all of it fits in 32 bits: x and 7. The number -1: another value.
  std::pair<ValueId, int64_t> BelowConstant(ValueId n) const;
  // A condition of which bounds say what it is.
  bool IsDecided(ValueId n) const;
  // The comparison x < limit of an AND that also says -1 < x: as unsigned numbers it says both. -1:
  // another value.
  ValueId RangeIn(ValueId both) const;
  // Of x < c ? c : x and c < x ? c : x, of f32 and a constant that is not 0: the number and the
  // constant, which MAX or MIN is of. What is no number goes through both.
  struct ClampParts {
    ValueId number = -1, limit = -1;  // -1: another value
    bool is_below = false;            // the limit is a least number
  };
  ClampParts ClampIn(ValueId where) const;

  // ---- values that are computed twice (again.cc)
  void FindComputedAgain();  // after FindUses
  void ComputeAgain(ValueId end);

  // ---- loops and branches (scopes.cc)
  void OpenLoop(ValueId n);
  void CloseLoop();
  void OpenIf(const PtxOperand& condition);
  void CloseIf();
  void CloseScope();  // and forgets the addresses that were found in it
  // Whether the assembler must not unroll it.
  bool IsKeptRolled(ValueId loop) const;

  // ---- matrix units and what warps exchange (matrix.cc)
  PtxOperand Packed(ValueId n, int lane);  // lanes from this one on that fill 32 bits
  Values MatrixProduct(ValueId n);
  Values LoadMatrices(ValueId n);
  Values NarrowToPairs(ValueId n);
  bool IsOfPairs(ValueId n) const;  // a sum or product of bf16, two in one instruction
  Values ArithmeticOfPairs(ValueId n);
  Values Shuffle(ValueId n);
  // Which packed values something takes lane by lane; after OpenMemories.
  void FindTakenApart();
  Values TakenApart(ValueId n, Values registers);

  // ---- asynchronous copies and swizzled memory (copies.cc)
  void Copy(ValueId n);
  void Await(ValueId n);
  // The place that a swizzle gives the element of STORE's or LDMATRIX's index.
  Address SwizzledAddress(ValueId memory, ValueId index, int lane);
  // The same of a COPY's first element and `lane` more.
  Address SwizzledTarget(ValueId copy, int lane);
  void CopyAsynchronously(ValueId copy, int lane, int64_t bytes);
  void CopyAtOnce(ValueId copy, int lane);
  struct SwizzledParts {
    int64_t constant = 0;                      // in bytes
    std::vector<ValueId> whole, rows, pieces;  // multiples of a pattern, of a row, and others
  };
  SwizzledParts PartsOf(ValueId index, int64_t width) const;  // of TermsOf
  // In bytes: whole patterns are added behind the swizzle, rows before it, and what stays within a
  // row is mixed in. `pieces` of the parts are empty if they are among the rows.
  struct SwizzledPlace {
    SwizzledParts parts;
    int64_t width = 1;  // of an element
    int64_t patterns = 0, rows = 0, within = 0;
    // Whether what is mixed in may be mixed with the address: it begins at a row. Pieces that the
    // program has computed before the whole patterns are mixed in before these are added.
    bool is_aligned = false;
    size_t pieces_before = 0;
  };
  SwizzledPlace SwizzledPlaceOf(ValueId memory, ValueId index, int lane) const;
  // The swizzled place of rows, with the pieces before the whole patterns mixed in.
  PtxOperand PlaceInPattern(const SwizzledPlace& place);
  void PlaceBeforeLoop(ValueId loop);
  PtxOperand Swizzled(const PtxOperand& place);
  // Of 32 bits; constants are folded.
  PtxOperand Plus(const PtxOperand& a, const PtxOperand& b);
  PtxOperand Mixed(const PtxOperand& a, const PtxOperand& b);
  PtxOperand Scaled(const PtxOperand& number, int64_t factor);

  // ---- sm_90a (boxes.cc, warpgroups.cc)
  void PrintHopper(ValueId n);
  void PrintBarrier(ValueId n);
  void BoxCopy(ValueId n);
  PtxOperand ClusterAddress(const Address& own, ValueId rank);
  Values LoadOfCluster(ValueId n);
  void GroupProduct(ValueId n);
  PtxOperand MatrixDescriptor(ValueId memory, ValueId index, int64_t leading);
  bool IsWarpgroup(ValueId value) const;  // the number of the thread's
  bool IsAccumulator(ValueId value) const;  // of WGMMA
  PtxOperand NotAccumulator(const PtxOperand& value);

  const program::Program& program_;
  const Target& target_;
  const GridShape grid_;
  const std::vector<ValueBounds> bounds_;
  const std::vector<int64_t> divisors_;
  const bool divides_registers_;  // among its warpgroups (MAXREGISTERS)

  PtxText text_;
  std::string shared_;               // declarations of memory of the block
  std::vector<std::pair<PtxOperand, std::string>> shared_names_;  // of addresses in registers
  bool has_block_memory_ = false;    // in one piece, whose size the launch sets
  std::vector<PtxOperand> buffers_;  // addresses by slot
  std::vector<bool> written_;        // buffers, by slot
  ValueId leaving_ = -1;             // FindLeaving
  PtxOperand block_;                 // its number, of 64 bits, in a grid of several rows
  PtxOperand warpgroup_, group_barrier_;  // of the thread, where a program has warpgroups: numbers
  PtxOperand vars_;                  // the address of the VARs
  std::vector<PtxOperand> maps_;     // addresses by number
  std::vector<Values> values_;       // by instruction
  // By register, of numbers that were rounded to a smaller type: that, and what they were before.
  absl::flat_hash_map<uint64_t, std::pair<DType, PtxOperand>> unrounded_;
  absl::flat_hash_map<ValueId, Address> shared_bases_;  // of memory of the block
  absl::flat_hash_map<ValueId, Elements> privates_;
  absl::flat_hash_set<ValueId> accumulators_;    // of these, those of WGMMA
  absl::flat_hash_map<ValueId, Values> packed_;  // of LDMATRIX, casts to bf16 and f16
  std::vector<bool> taken_apart_;  // by value: something takes its lanes, packed ones included

  bool divides_by_f64_ = false;  // every quotient of f32, without a branch
  absl::flat_hash_map<std::pair<ValueId, int>, Reciprocal> reciprocals_;  // by value and lane

  // Addresses that open scopes have computed, by memory, index without its constants, and bytes
  // added to that.
  using AddressKey = std::tuple<ValueId, ValueId, int64_t>;
  absl::flat_hash_map<AddressKey, Address> addresses_;
  std::vector<AddressKey> known_addresses_;
  absl::flat_hash_map<ValueId, std::vector<ValueId>> shared_addresses_;  // accesses, by IF
  // Places in swizzled patterns that open scopes have computed, by PlaceInPattern's operands.
  absl::flat_hash_map<std::vector<int64_t>, PtxOperand> places_;
  std::vector<std::vector<int64_t>> known_places_;

  struct Scope {
    int begin = 0, end = 0;     // labels; 0: a loop of one pass
    PtxOperand counter, limit;  // of a loop
    size_t known = 0, known_places = 0;  // of known_addresses_, known_places_
  };
  std::vector<Scope> scopes_;
  std::vector<ValueId> loops_;  // that are open

  struct Change {
    ValueId at = 0;
    int64_t first = 0, last = 0;  // elements
  };
  absl::flat_hash_map<ValueId, std::vector<Change>> changes_;  // of private memories, in order
  // Values that are printed later than where they are: by IF, at its begin, and behind a loop, by
  // its END or by the WGWAIT that follows it. And which these are.
  absl::flat_hash_map<ValueId, std::vector<ValueId>> moved_to_;
  std::vector<bool> is_moved_;
  // Values that are computed again behind a loop, by its END, in order.
  absl::flat_hash_map<ValueId, std::vector<ValueId>> again_;
  bool is_short_of_registers_ = false;  // so that values are computed again
  std::vector<ValueId> last_uses_;  // of values, loops counted whole; -1: none
};

}  // namespace outboard::render
