// Copies to shared memory that go on while their thread does (cp.async; PTX ISA, chapter 9.7), and
// where a swizzle puts elements.
#include <algorithm>
#include <bit>
#include <vector>

#include "absl/types/span.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Instruction;

// In pieces as large as their alignment allows. cp.async takes 4, 8 or 16 bytes; what is smaller is
// a load and a store, which may arrive before the others.
void PtxPrinter::Copy(ValueId n) {
  const Instruction& i = at(n);
  constexpr int64_t kAsyncBytesLeast = 4;
  const int width = ByteWidth(at(i.src[0]).dtype);
  for (int64_t k = 0; k < i.imm[0];) {
    const auto lane = static_cast<int>(k);
    int64_t aligned =
        std::min(AlignOf(i.src[0], i.src[1], lane), AlignOf(i.src[2], i.src[3], lane));
    if (i.imm[1] == 1) {  // both indices are multiples of the count
      const int64_t least = (i.imm[0] | k) * width;
      aligned = std::max(aligned, least & -least);
    }
    int64_t bytes = kAccessBytesMax;
    while (bytes > aligned || bytes > (i.imm[0] - k) * width) bytes /= 2;
    if (bytes >= kAsyncBytesLeast) {
      CopyAsynchronously(n, lane, bytes);
      k += bytes / width;
    } else {
      CopyAtOnce(n, lane);
      ++k;
    }
  }
}

// Sixteen bytes bypass the first cache: other warps read them from shared memory. With a mask, the
// instruction's last operand is how many bytes it reads, all or none; the rest becomes zeros.
void PtxPrinter::CopyAsynchronously(ValueId n, int lane, int64_t bytes) {
  const Instruction& i = at(n);
  const Address to =
      i.imm[2] != 0 ? SwizzledTarget(n, lane) : AccessAddress(i.src[0], i.src[1], lane);
  const Address from = AddressOf(i.src[2], i.src[3], lane);
  const char* const op = bytes == kAccessBytesMax ? "cp.async.cg" : "cp.async.ca";
  if (i.src.size() < 5) return text_.Line(op, ".shared.global ", to, ", ", from, ", ", bytes);
  const PtxOperand read = Select(Lane(i.src[4], 0), Integer(bytes), Integer(0));
  text_.Line(op, ".shared.global ", to, ", ", from, ", ", bytes, ", ", read);
}

// One element of fewer than four bytes.
void PtxPrinter::CopyAtOnce(ValueId n, int lane) {
  const Instruction& i = at(n);
  const ValueId buffer = i.src[2];
  const int bits = 8 * ByteWidth(at(buffer).dtype);
  const bool is_read_only = !written_[static_cast<size_t>(at(buffer).imm[0])];
  const Address to =
      i.imm[2] != 0 ? SwizzledTarget(n, lane) : AccessAddress(i.src[0], i.src[1], lane);
  const Address from = AddressOf(buffer, i.src[3], lane);
  const PtxOperand value = text_.New(Width::k32);
  PtxOperand condition;
  if (i.src.size() == 5) {
    condition = InRegister(Lane(i.src[4], 0));
    text_.Move(value, Integer(0));
  }
  text_.GuardedLine(condition, "ld.global", is_read_only ? ".nc" : "", ".u", bits, " ", value, ", ",
                    from);
  text_.Line("st.shared.b", bits, " ", to, ", ", value);
}

void PtxPrinter::Await(ValueId n) {
  if (at(n).code == Code::kCommit) return text_.Line("cp.async.commit_group");
  text_.Line("cp.async.wait_group ", std::min<int64_t>(at(n).imm[0], INT32_MAX));
}

// Bits 4 to 6 of a byte's place are mixed with bits 7 to 9; memories begin at a multiple of 1,024
// where anything but threads reads them. So what of an index is whole patterns (1,024 bytes) is
// added behind the swizzle, and what stays within a row of one (128 bytes) and meets no bit of the
// rest is mixed in by XOR: addresses of one row are then one instruction from each other, and what
// comes from outside of a loop can be computed there. Parts are taken in the order of the program,
// those of outer loops first.
Address PtxPrinter::SwizzledAddress(ValueId memory, ValueId index, int lane) {
  const int64_t width = ByteWidth(at(memory).dtype);
  const Address address = BaseOf(memory);
  const PtxOperand base = InRegister(address.base);
  if (at(index).lanes > 1)
    return {Plus(Swizzled(Scaled(Low(index, lane), width)), base), address.offset};
  const SwizzledPlace of = SwizzledPlaceOf(memory, index, lane);
  const int64_t offset = address.offset + of.patterns;
  PtxOperand place = PlaceInPattern(of), whole = Integer(0);
  for (const ValueId part : of.parts.whole) whole = Plus(whole, Low(part, 0));
  whole = Plus(base, Scaled(whole, width));
  if (!of.is_aligned) return {Plus(Mixed(place, Integer(of.within)), whole), offset};
  place = Plus(place, whole);
  for (const ValueId piece : absl::MakeConstSpan(of.parts.pieces).subspan(of.pieces_before))
    place = Mixed(place, Scaled(Low(piece, 0), width));
  return {Mixed(place, Integer(of.within)), offset};
}

PtxPrinter::SwizzledPlace PtxPrinter::SwizzledPlaceOf(ValueId memory, ValueId index,
                                                      int lane) const {
  constexpr int64_t kPattern = program::kSwizzleAlign, kRow = 128;
  const int64_t width = ByteWidth(at(memory).dtype);
  SwizzledPlace place{.parts = PartsOf(index, width), .width = width};
  SwizzledParts& parts = place.parts;
  const int64_t constant = parts.constant + lane * width;
  const int64_t rest = constant & (kPattern - 1);
  place.patterns = constant - rest;
  // The bits that the parts within a row may have.
  int64_t bits = rest & (kRow - 1);
  bool meet = false;
  for (const ValueId part : parts.pieces) {
    const ValueBounds& bounds = bounds_[static_cast<size_t>(part)];
    const int64_t low = divisors_[static_cast<size_t>(part)] * width;
    if (bounds.min < 0 || bounds.max >= kRow / width) {
      meet = true;
      break;
    }
    const auto last = static_cast<uint64_t>(bounds.max * width);
    const auto all = static_cast<int64_t>(std::bit_ceil(last + 1) - 1) & ~(low - 1);
    meet = meet || (bits & all) != 0;
    bits |= all;
  }
  if (meet) {
    parts.rows.insert(parts.rows.end(), parts.pieces.begin(), parts.pieces.end());
    parts.pieces.clear();
  }
  place.within = meet ? 0 : rest & (kRow - 1);
  place.rows = rest - place.within;
  place.is_aligned =
      has_block_memory_ && (BaseOf(memory).offset + place.patterns) % kRow == 0;
  const auto behind = place.is_aligned && !parts.whole.empty()
                          ? std::ranges::upper_bound(parts.pieces, parts.whole.front())
                          : parts.pieces.end();
  place.pieces_before = static_cast<size_t>(behind - parts.pieces.begin());
  return place;
}

// What of it does not change in an open scope is known in that.
PtxOperand PtxPrinter::PlaceInPattern(const SwizzledPlace& of) {
  const auto pieces = absl::MakeConstSpan(of.parts.pieces).first(of.pieces_before);
  std::vector<int64_t> key = {of.width, of.rows, static_cast<int64_t>(of.parts.rows.size())};
  key.insert(key.end(), of.parts.rows.begin(), of.parts.rows.end());
  key.insert(key.end(), pieces.begin(), pieces.end());
  if (const auto known = places_.find(key); known != places_.end()) return known->second;
  PtxOperand rows = Integer(0);
  for (const ValueId part : of.parts.rows) rows = Plus(rows, Low(part, 0));
  PtxOperand place = Swizzled(Plus(Scaled(rows, of.width), Integer(of.rows)));
  for (const ValueId piece : pieces) place = Mixed(place, Scaled(Low(piece, 0), of.width));
  places_[key] = place;
  known_places_.push_back(std::move(key));
  return place;
}

// Of matrices that a loop of warpgroups loads: places that do not change in it. The assembler would
// compute them in each pass.
void PtxPrinter::PlaceBeforeLoop(ValueId loop) {
  if (warpgroup_.IsNone()) return;
  int depth = 0;
  for (ValueId n = loop;; ++n) {
    const Instruction& i = at(n);
    if (i.code == Code::kLoop) ++depth;
    if (i.code == Code::kEnd && --depth == 0) return;
    if (i.code != Code::kLdmatrix || i.imm[0] != 2 || at(i.src[1]).lanes > 1 || !IsUsed(n))
      continue;
    const SwizzledPlace place = SwizzledPlaceOf(i.src[0], i.src[1], 0);
    const auto is_outside = [&](ValueId part) {
      return part < loop && !values_[static_cast<size_t>(part)].empty();
    };
    const auto pieces = absl::MakeConstSpan(place.parts.pieces).first(place.pieces_before);
    if (std::ranges::all_of(place.parts.rows, is_outside) &&
        std::ranges::all_of(pieces, is_outside))
      PlaceInPattern(place);
  }
}

PtxPrinter::SwizzledParts PtxPrinter::PartsOf(ValueId index, int64_t width) const {
  constexpr int64_t kRow = 128;
  SwizzledParts parts;
  for (const ValueId term : TermsOf(index, SumsOf::kAllLoops)) {
    const int64_t bytes = divisors_[static_cast<size_t>(term)] * width;
    if (at(term).code == Code::kConst) {
      parts.constant += at(term).imm[0] * width;
    } else if (bytes % program::kSwizzleAlign == 0) {
      parts.whole.push_back(term);
    } else {
      (bytes % kRow == 0 ? parts.rows : parts.pieces).push_back(term);
    }
  }
  return parts;
}

Address PtxPrinter::SwizzledTarget(ValueId copy, int lane) {
  return SwizzledAddress(at(copy).src[0], at(copy).src[1], lane);
}

PtxOperand PtxPrinter::Swizzled(const PtxOperand& place) {
  constexpr int kShift = 3;
  constexpr int64_t kMixed = 0x70;
  if (place.IsConstant()) {
    const auto bits = static_cast<int64_t>(place.bits);
    return Integer(bits ^ (bits >> kShift & kMixed));
  }
  const PtxOperand row = text_.Value("shr.u32", Width::k32, {place, Integer(kShift)});
  return Mixed(place, text_.Value("and.b32", Width::k32, {row, Integer(kMixed)}));
}

PtxOperand PtxPrinter::Plus(const PtxOperand& a, const PtxOperand& b) {
  if (a.IsConstant() && b.IsConstant())
    return Integer(static_cast<int32_t>(static_cast<uint32_t>(a.bits + b.bits)));
  if (a.IsConstant()) return Plus(b, a);
  if (b == Integer(0)) return a;
  return text_.Value("add.s32", Width::k32, {a, b});
}

PtxOperand PtxPrinter::Mixed(const PtxOperand& a, const PtxOperand& b) {
  if (a.IsConstant() && b.IsConstant()) return Integer(static_cast<int64_t>(a.bits ^ b.bits));
  if (a.IsConstant()) return Mixed(b, a);
  if (b == Integer(0)) return a;
  return text_.Value("xor.b32", Width::k32, {a, b});
}

PtxOperand PtxPrinter::Scaled(const PtxOperand& number, int64_t factor) {
  if (number.IsConstant())
    return Integer(static_cast<int32_t>(number.bits * static_cast<uint64_t>(factor)));
  if (factor == 1) return number;
  return text_.Value("mul.lo.s32", Width::k32, {number, Integer(factor)});
}

}  // namespace outboard::render
