// Quotients of floats of up to 32 bits. First of f32, by a divisor that several numbers have.
// `div.rn.f32` computes the reciprocal for each of them and calls a function for rare numbers,
// across which no register of it lives (docs/decisions/202-division.md).
//
// Once for each divisor b: y near 1 / b, by the unit and a Newton step. It is checked, not trusted:
// y stays only if |1 - b y| < 2^-24, which the residual says exactly, and becomes NaN otherwise: of
// a zero, an infinity, a NaN, and of numbers whose reciprocal is not normal.
//
// For each dividend a: q = a y, r = a - b q, q' = q + r y, each rounded once. With e = b y - 1, q
// is within 1.5 units in the last place (ulp) of a / b, since |e| < 2^-24 and one is rounded; what
// is rounded to q' would be a / b + (a / b - q) e. Let B < 2^24 be the digits of b. The second term
// is less than 3 / B half ulps, and r, which is less than 1.5 B in its last digit, is rounded by
// one such digit at most, which makes another 2 / B. An a / b is k / B half ulps from the middle of
// two floats, k an integer other than 0, so that only k up to 4 might be rounded to another number
// than a / b is; that none is has been tried for all of them (tests/compiler/
// float_division_proof_test.cc). So q' is a / b, correctly rounded (after Markstein, "Computation
// of elementary functions on the IBM RISC System/6000 processor", 1990; "Handbook of Floating-Point
// Arithmetic", on division with an FMA).
//
// That holds where r has no digit below the smallest subnormal number, 2^-149. Its last digit is
// worth 2^(exponents of b and q - 46), so their sum must be -103 or more: y is asked to be below
// 2^32, and q' to be at least 2^-69. An infinity, a NaN or an overflow of q makes q' NaN, which is
// not either.
//
// A zero a makes q a zero with the sign of a / b, and r +0. Adding to q may take its sign away: of
// -0 by a positive number +0 would be left. So q' is given the sign of q, which a / b has as well
// wherever q' is used. A zero is fast, then, where r is no NaN.
//
// All others take a branch, where f64 holds every f32 as a normal number and no quotient leaves its
// range. There y is within 2^-28 after a Newton step if the unit's is within 2^-14 (it has 20
// digits), and q' = q + r y is a / b within 2^-55 before it is rounded to f64, as r is exact. The
// second rounding, to f32, does no harm, whether the result is normal, subnormal or too large: an
// a / b that is not the middle of two floats is 2^-49 or more away from it, in parts of itself, and
// one that is (of subnormal numbers alone) has 24 digits and is q', exactly. Where 1 / b is 0,
// infinite or NaN, q = a y is what IEEE 754 says without a step; and if r is 0 or NaN, q stays,
// with its sign.
//
// A kernel of sm_90a with very many quotients in its text takes the way through f64 for all of
// them, without a branch: NVIDIA's assembler takes time for each branch beside many live registers,
// tens of seconds for an optimiser's 384 quotients beside the 128 sums of a thread.
//
// Of smaller floats no quotient needs a branch, nor f64: a / b is far from the middle of two of
// them, and the unit is exact enough (docs/decisions/216-epilogues.md).
//
// bf16: with y near 1 / b by the unit, within 2^-22, a y is within 2^-21 of a / b, and may be cut
// off after 20 digits. Digits A and B are below 2^8, so that a / b, of [1, 2) 2^e, is 2^-8 / B and
// more in units of 2^e from a middle, which has 9 digits: more than 2^-16. A normal quotient is no
// middle itself, as B times an odd number of 9 digits has more than 8. A subnormal quotient may be:
// then it is cut off to exactly that, since a y is within 2.5 steps of 2^-149 of it, eight of them
// are added, and what is below 16 is cut off; one that is not is 64 steps away (2^-134 / B, or
// 1 / A of itself). No number is too large or small on the way: a and b are multiplied by 2^8 where
// b is below 2^-64, and by 2^-2 elsewhere, exactly, which makes b and y normal; a y is infinite
// where a / b is. Zeros and infinities are those of a y, but that eight steps have its sign.
//
// f16 and floats of 8 bits: all numbers and quotients are normal f32. With q = a y within 2^-21,
// r = a - b q is exact, and q + r y is within 2^-43 before it is rounded to f32; that has more than
// twice as many digits as f16 and two more, so that rounding it again does no harm. Where r is no
// number (b is 0 or infinite, q infinite), or 0, q is the quotient, with its sign.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Instruction;
using program::ValueId;

namespace {

// From how many quotients on a reciprocal pays: it takes 7 instructions of a GPU, and then 8 to 9
// each, in place of the 10 of `div.rn.f32` and its call.
constexpr int64_t kQuotientsLeast = 4;
// How many quotients share a branch, and how many instructions may lie between the first and the
// last of them. More would keep more dividends in registers until the branch, and spill.
constexpr int kTogether = 2;
constexpr ValueId kLookAhead = 4096;

// Measured (docs/measurements/2026-11-29-division.md): threads that hold a row in 128 registers or
// fewer have none to spare, nor have products of f32 by matrix units, in three parts each.
bool HasRegistersToSpare(const program::Program& program) {
  constexpr int64_t kFew = 128;
  return kCudaRegisters / program.Extent(program::Grid::kThread) > kFew &&
         std::ranges::none_of(program.code, [&](const Instruction& i) {
           return i.code == Code::kMma &&
                  program.code[static_cast<size_t>(i.src[0])].dtype == DType::kF32;
         });
}

// Likewise: one warp with all sums of a tile has none for reciprocals that live through its loop.
bool IsWarpWithProducts(const program::Program& program) {
  constexpr int64_t kWarpThreads = 32;
  return program.Extent(program::Grid::kThread) <= kWarpThreads &&
         std::ranges::any_of(program.code,
                             [](const Instruction& i) { return i.code == Code::kMma; });
}

// Quotients of a program's text above which none has a branch, where f64 is fast enough.
constexpr int64_t kBranchedMost = 128;

constexpr double kResidualMost = 0x1p-24, kReciprocalMost = 0x1p32, kQuotientLeast = 0x1p-69;

}  // namespace

bool PtxPrinter::IsQuotient(ValueId n) const {
  const Instruction& i = at(n);
  return i.code == Code::kAlu && i.op == Op::kFDiv && i.dtype == DType::kF32 &&
         !IsInverseByUnit(i);
}

std::pair<ValueId, int> PtxPrinter::OriginOf(ValueId n, int lane) const {
  for (;;) {
    const Instruction& i = at(n);
    if (i.code == Code::kLanes) {
      n = i.src[i.src.size() == 1 ? 0 : static_cast<size_t>(lane)];
      lane = 0;
    } else if (i.code == Code::kLane) {
      n = i.src[0];
      lane = static_cast<int>(i.imm[0]);
    } else {
      return {n, at(n).lanes == 1 ? 0 : lane};
    }
  }
}

// A quotient in a loop that the divisor is outside of counts once for each pass.
void PtxPrinter::FindDivisors() {
  if (!HasRegistersToSpare(program_)) return;
  int64_t quotients = 0;
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n)
    if (IsQuotient(n) && IsUsed(n)) quotients += at(n).lanes;
  // The f64 units of sm_90 have half the rate of those of f32; other GPUs that run a target's code
  // may have a 64th.
  divides_by_f64_ = target_.arch == "sm_90a" && quotients > kBranchedMost;
  const bool only_in_loops = IsWarpWithProducts(program_);
  absl::flat_hash_map<std::pair<ValueId, int>, int64_t> counts;
  std::vector<ValueId> open;  // loops
  for (ValueId n = 0; n < static_cast<ValueId>(program_.code.size()); ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kLoop) open.push_back(n);
    if (i.code == Code::kEnd) open.pop_back();
    if (!IsQuotient(n) || !IsUsed(n)) continue;
    for (int lane = 0; lane < i.lanes; ++lane) {
      const auto divisor = OriginOf(i.src[1], lane);
      if (at(divisor.first).code == Code::kConst) continue;
      if (only_in_loops && (open.empty() || divisor.first < open.front())) continue;
      int64_t passes = 1;
      for (auto loop = std::ranges::upper_bound(open, divisor.first);
           loop != open.end() && passes < kQuotientsLeast; ++loop)
        passes *= std::clamp<int64_t>(at(*loop).imm[0], 1, kQuotientsLeast);
      int64_t& count = counts[divisor];
      count = std::min(count + passes, kQuotientsLeast);
      if (count == kQuotientsLeast) reciprocals_.try_emplace(divisor);
    }
  }
}

void PtxPrinter::FindReciprocals(ValueId n) {
  for (int lane = 0; lane < at(n).lanes; ++lane) {
    const auto found = reciprocals_.find({n, lane});
    if (found == reciprocals_.end()) continue;
    const PtxOperand b = InRegister(AsPrinted(n, lane));
    if (divides_by_f64_) {
      found->second = InvertByF64(b);
      continue;
    }
    const auto f32 = [&](const char* op, std::initializer_list<PtxOperand> args) {
      return text_.Value(op, Width::k32, args);
    };
    const PtxOperand one = Float(1);
    const PtxOperand negated = f32("neg.f32", {b});
    const PtxOperand by_unit = f32("rcp.approx.ftz.f32", {b});
    const PtxOperand error = f32("fma.rn.f32", {negated, by_unit, one});
    const PtxOperand refined = f32("fma.rn.f32", {error, by_unit, by_unit});
    const PtxOperand residual = f32("abs.f32", {f32("fma.rn.f32", {negated, refined, one})});
    const PtxOperand is_near =
        text_.Value("setp.lt.f32", Width::kPred, {residual, Float(kResidualMost)});
    const PtxOperand is_good =
        text_.Value("setp.lt.and.f32", Width::kPred,
                    {f32("abs.f32", {refined}), Float(kReciprocalMost), is_near});
    found->second.y = f32("selp.b32", {refined, Float(NAN), is_good});
  }
}

// With `n`, those behind it in its scope that divide by the same number, and whose dividends are
// there already: they share its branch, and what they need of the divisor has no register longer.
std::vector<ValueId> PtxPrinter::QuotientsWith(ValueId n) const {
  std::vector<ValueId> all = {n};
  const auto divisor = OriginOf(at(n).src[1], 0);
  if (!reciprocals_.contains(divisor)) return all;
  int lanes = at(n).lanes;
  const auto end = std::min(static_cast<ValueId>(program_.code.size()), n + kLookAhead);
  for (ValueId m = n + 1; m < end && lanes < kTogether; ++m) {
    const Instruction& i = at(m);
    if (i.code == Code::kLoop || i.code == Code::kEnd || i.code == Code::kIf ||
        i.code == Code::kEndIf)
      break;
    if (!IsQuotient(m) || !IsUsed(m) || is_moved_[static_cast<size_t>(m)] || IsPrinted(m) ||
        !IsPrinted(i.src[0]) || !IsPrinted(i.src[1]) || OriginOf(i.src[1], 0) != divisor)
      continue;
    all.push_back(m);
    lanes += i.lanes;
  }
  return all;
}

void PtxPrinter::PrintQuotients(absl::Span<const ValueId> all) {
  struct Pending {
    ValueId n;
    size_t lane;
    PtxOperand dividend, divisor, quotient;
  };
  absl::InlinedVector<Pending, kTogether> pending;
  PtxOperand all_fast;
  const auto branch = [&] {
    if (pending.empty()) return;
    const int end = text_.NewLabel();
    text_.JumpIf(all_fast, end);
    for (const Pending& each : pending)
      DivideByF64(each.dividend, InvertByF64(each.divisor), each.quotient);
    text_.PutLabel(end);
    for (const Pending& each : pending)
      values_[static_cast<size_t>(each.n)][each.lane] = each.quotient;
    pending.clear();
    all_fast = {};
  };
  for (const ValueId n : all) {
    const Instruction& i = at(n);
    Values& out = values_[static_cast<size_t>(n)];
    out.clear();
    for (int lane = 0; lane < i.lanes; ++lane) {
      PtxOperand a = Lane(i.src[0], lane), b = Lane(i.src[1], lane);
      const auto found = reciprocals_.find(OriginOf(i.src[1], lane));
      if (divides_by_f64_) {
        const PtxOperand quotient = text_.New(Width::k32), dividend = InRegister(a);
        const Reciprocal by =
            found == reciprocals_.end() ? InvertByF64(InRegister(b)) : found->second;
        OB_CHECK(!by.y.IsNone());
        DivideByF64(dividend, by, quotient);
        out.push_back(quotient);
        continue;
      }
      if (found == reciprocals_.end()) {
        out.push_back(Alu(Op::kFDiv, i.dtype, {a, b}));
        continue;
      }
      const auto f32 = [&](const char* op, std::initializer_list<PtxOperand> args) {
        return text_.Value(op, Width::k32, args);
      };
      const PtxOperand& y = found->second.y;
      OB_CHECK(!y.IsNone());
      a = InRegister(a);
      b = InRegister(b);
      const PtxOperand q = f32("mul.rn.f32", {a, y});
      const PtxOperand r = f32("fma.rn.f32", {f32("neg.f32", {b}), q, a});
      const PtxOperand sign = f32("and.b32", {q, Integer(IntMin(DType::kI32))});
      const PtxOperand quotient = f32("or.b32", {f32("fma.rn.f32", {r, y, q}), sign});
      const PtxOperand is_zero = text_.Value(
          "setp.eq.s32", Width::kPred,
          {f32("and.b32", {f32("or.b32", {a, r}), Integer(IntMax(DType::kI32))}), Integer(0)});
      const PtxOperand is_fast =
          text_.Value("setp.ge.or.f32", Width::kPred,
                      {f32("abs.f32", {quotient}), Float(kQuotientLeast), is_zero});
      all_fast = all_fast.IsNone() ? is_fast : Logic(Op::kAnd, all_fast, is_fast);
      pending.push_back({n, out.size(), a, b, quotient});
      out.push_back(quotient);
      if (pending.size() == kTogether) branch();
    }
  }
  branch();
}

PtxOperand PtxPrinter::DivideSmall(const PtxOperand& a, const PtxOperand& b, DType type) {
  const auto f32 = [&](const char* op, std::initializer_list<PtxOperand> args) {
    return text_.Value(op, Width::k32, args);
  };
  const auto number = [](const PtxOperand& of) {
    return std::bit_cast<float>(static_cast<uint32_t>(of.bits));
  };
  const auto reciprocal = [&](const PtxOperand& of) {
    return of.IsConstant() ? Float(1 / number(of)) : f32("rcp.approx.ftz.f32", {of});
  };
  if (type != DType::kBF16) {
    const PtxOperand y = reciprocal(b), q = f32("mul.rn.f32", {a, y});
    const PtxOperand r = f32("fma.rn.f32", {f32("neg.f32", {b}), q, a});
    const PtxOperand is_inexact = text_.Value("setp.ne.f32", Width::kPred, {r, Float(0)});
    text_.Set("fma.rn.f32", q, {r, y, q}, is_inexact);
    return q;
  }
  constexpr double kSmall = 0x1p-64, kEnlarged = 0x1p8, kReduced = 0x1p-2;
  constexpr int kSteps = 8, kCutOff = ~15;
  PtxOperand scale, scaled;
  if (b.IsConstant()) {
    scale = Float(std::fabs(number(b)) < kSmall ? kEnlarged : kReduced);
    scaled = Float(number(b) * number(scale));
  } else {
    const PtxOperand is_small =
        text_.Value("setp.lt.f32", Width::kPred, {f32("abs.f32", {b}), Float(kSmall)});
    scale = f32("selp.b32", {Float(kEnlarged), Float(kReduced), is_small});
    scaled = f32("mul.rn.f32", {b, scale});
  }
  const PtxOperand sign =
      f32("and.b32", {f32("xor.b32", {Bits(a), Bits(b)}), Integer(IntMin(DType::kI32))});
  const PtxOperand steps = f32("or.b32", {sign, Integer(kSteps)});
  const PtxOperand q =
      f32("fma.rn.f32", {f32("mul.rn.f32", {a, scale}), reciprocal(scaled), steps});
  return f32("and.b32", {q, Integer(kCutOff)});
}

PtxPrinter::Reciprocal PtxPrinter::InvertByF64(const PtxOperand& divisor) {
  const auto f64 = [&](const char* op, std::initializer_list<PtxOperand> args) {
    return text_.Value(op, Width::k64, args);
  };
  const PtxOperand b = f64("cvt.f64.f32", {divisor}), negated = f64("neg.f64", {b});
  const PtxOperand y = f64("rcp.approx.ftz.f64", {b});
  const PtxOperand error = f64("fma.rn.f64", {negated, y, Float(1, Width::k64)});
  const PtxOperand is_number = text_.Value("setp.num.f64", Width::kPred, {error, error});
  text_.Set("fma.rn.f64", y, {error, y, y}, is_number);
  return {.y = y, .negated = negated};
}

void PtxPrinter::DivideByF64(const PtxOperand& dividend, const Reciprocal& by,
                             const PtxOperand& quotient) {
  const auto f64 = [&](const char* op, std::initializer_list<PtxOperand> args) {
    return text_.Value(op, Width::k64, args);
  };
  const PtxOperand a = f64("cvt.f64.f32", {dividend}), q = f64("mul.rn.f64", {a, by.y});
  const PtxOperand r = f64("fma.rn.f64", {by.negated, q, a});
  const PtxOperand is_inexact =
      text_.Value("setp.ne.f64", Width::kPred, {r, Float(0, Width::k64)});
  text_.Set("fma.rn.f64", q, {r, by.y, q}, is_inexact);
  text_.Set("cvt.rn.f32.f64", quotient, {q});
}

}  // namespace outboard::render
