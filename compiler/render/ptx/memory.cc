// Accesses to buffers and to memory of the block.
//
// An access of up to 16 bytes is one instruction if its address is a multiple of its size. That is
// known of buffers (runtime/limits.h, kBufferAlignment) and of the block's memory; what divides an
// index is known from its arithmetic. An access with a mask is an instruction with a guard. The
// registers of a load are first set to the value that it has where the mask is false.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;

// ---- addresses

Address PtxPrinter::BaseOf(ValueId memory) const {
  const Instruction& i = at(memory);
  if (i.code == Code::kBuffer) return {buffers_[static_cast<size_t>(i.imm[0])], 0};
  return shared_bases_.at(memory);
}

PtxOperand PtxPrinter::Index(ValueId index, int lane) {
  PtxOperand element = AsPrinted(index, lane);
  if (at(index).lanes > 1 || lane == 0) return element;
  if (!element.IsConstant())
    return Alu(Op::kAdd, PrintedType(index), {{element, Integer(lane, element.width)}});
  element.bits += static_cast<uint64_t>(lane);
  return element;
}

Address PtxPrinter::Behind(const Address& base, const PtxOperand& index, int64_t bytes,
                           bool is_signed) {
  if (index.IsConstant())
    return {base.base, base.offset + static_cast<int64_t>(index.bits) * bytes};
  const PtxOperand first = InRegister(base.base);
  const PtxOperand width = Integer(bytes);
  if (first.width == Width::k32) {
    const PtxOperand low =
        index.width == Width::k64 ? Cast(index, DType::kU64, DType::kU32) : index;
    return {text_.Value("mad.lo.s32", Width::k32, {low, width, first}), base.offset};
  }
  // A product and a sum: of MAD the assembler makes more instructions (sm_90, ptxas 13.0).
  const PtxOperand place =
      index.width == Width::k64
          ? text_.Value("mul.lo.s64", Width::k64, {index, Integer(bytes, Width::k64)})
          : text_.Value(is_signed ? "mul.wide.s32" : "mul.wide.u32", Width::k64, {index, width});
  return {text_.Value("add.s64", Width::k64, {first, place}), base.offset};
}

// Constants that an index adds are in the instruction: accesses that differ by them share what is
// before.
Address PtxPrinter::AddressOf(ValueId memory, ValueId index, int lane) {
  const int64_t width = ByteWidth(at(memory).dtype);
  if (at(index).lanes > 1)
    return Behind(BaseOf(memory), AsPrinted(index, lane), width, MayBeNegative(index));
  const auto [first, constant] = WithoutConstants(index);
  Address address = ElementAddress(memory, first);
  address.offset += (constant + lane) * width;
  return NearAddress(memory, first, address);
}

Address PtxPrinter::AccessAddress(ValueId memory, ValueId index, int lane) {
  const Address address = AddressOf(memory, index, lane);
  const bool begins_within =
      at(memory).code == Code::kBuffer || !MayBeNegative(WithoutConstants(index).first);
  return begins_within ? address : Address{Plain(address), 0};
}

PtxOperand PtxPrinter::Plain(const Address& address) {
  if (address.offset == 0) return InRegister(address.base);
  const Width width = address.base.width;
  return text_.Value(width == Width::k64 ? "add.s64" : "add.s32", width,
                     {InRegister(address.base), Integer(address.offset, width)});
}

int64_t PtxPrinter::AlignOf(ValueId memory, ValueId index, int lane) const {
  const int width = ByteWidth(at(memory).dtype);
  if (at(index).lanes > 1) return width;
  const int64_t of_lane = lane == 0 ? kDivisorMax : lane & -lane;
  return std::min<int64_t>(width * std::min(divisors_[static_cast<size_t>(index)], of_lane),
                           kAccessBytesMax);
}

int PtxPrinter::Together(ValueId memory, ValueId index, int begin, int end) const {
  if (at(index).lanes > 1) return 1;
  const int width = ByteWidth(at(memory).dtype);
  int count = std::max(1, static_cast<int>(AlignOf(memory, index, begin)) / width);
  while (count > end - begin) count /= 2;
  return count;
}

// ---- loads and stores

void PtxPrinter::Guarded(ValueId mask, int lanes,
                         absl::FunctionRef<void(int, int, const PtxOperand&)> body) {
  for (int begin = 0; begin < lanes;) {
    const PtxOperand condition = mask < 0 ? PtxOperand() : Lane(mask, begin);
    int end = begin + 1;
    while (end < lanes && (mask < 0 || Lane(mask, end) == condition)) ++end;
    body(begin, end, condition.IsTrue() ? PtxOperand() : condition);
    begin = end;
  }
}

PtxPrinter::Values PtxPrinter::Load(ValueId n) {
  const Instruction& i = at(n);
  Values out;
  Guarded(i.src.size() == 4 ? i.src[2] : -1, i.lanes,
          [&](int begin, int end, const PtxOperand& condition) {
            if (!condition.IsFalse()) return LoadLanes(n, begin, end, condition, out);
            for (int lane = begin; lane < end; ++lane) out.push_back(Lane(i.src[3], lane));
          });
  return out;
}

void PtxPrinter::LoadLanes(ValueId load, int begin, int end, const PtxOperand& condition,
                           Values& out) {
  const Instruction& i = at(load);
  const ValueId memory = i.src[0], index = i.src[1];
  const DType dtype = at(memory).dtype;
  const int width = ByteWidth(dtype);
  const bool is_buffer = at(memory).code == Code::kBuffer;
  // The assembler merges equal loads of what it is told that nobody writes.
  const bool merges =
      is_buffer && !written_[static_cast<size_t>(at(memory).imm[0])] && i.imm[0] == 0;
  const char* const space = merges ? "ld.global.nc." : is_buffer ? "ld.global." : "ld.shared.";
  for (int lane = begin; lane < end;) {
    const int count = Together(memory, index, lane, end);
    const Address address = AccessAddress(memory, index, lane);
    const int words = std::max(1, count * width / (width == 8 ? 8 : kWordBytes));
    Values loaded;
    for (int word = 0; word < words; ++word) {
      loaded.push_back(text_.New(width == 8 ? Width::k64 : Width::k32));
      if (condition.IsNone()) continue;
      const int each = count / words, first = lane + word * each;
      // What is loaded alone is extended to a number; together with others it is bits.
      const PtxOperand otherwise = each == 1 && IsInt(dtype)
                                       ? Lane(i.src[3], first)
                                       : PackedWord(i.src[3], first, each, dtype);
      text_.Move(loaded.back(), otherwise);
    }
    std::string type;
    if (count == 1 && width < kWordBytes) {
      // The number, extended; of floats its bits.
      type = absl::StrCat(IsSigned(dtype) ? "s" : "u", 8 * width);
    } else {
      const int bits = width == 8 ? 64 : 8 * std::min(kWordBytes, count * width);
      type = absl::StrCat(words == 1 ? "" : absl::StrCat("v", words, "."), bits < 32 ? "u" : "b",
                          bits);
    }
    text_.GuardedLine(condition, space, type, " ", words == 1 ? Joined(loaded[0]) : ListOf(loaded),
                      ", ", address);
    for (int k = 0; k < count; ++k) {
      const PtxOperand& word = loaded[static_cast<size_t>(k * words / count)];
      const int each = count / words;
      if (each > 1) {
        out.push_back(Unpacked(word, k % each, dtype));
      } else {
        out.push_back(IsInt(dtype) ? word : FromMemory(word, dtype));
      }
    }
    lane += count;
  }
}

// The value of element `k` of a word, or of what is smaller than one.
PtxOperand PtxPrinter::Unpacked(const PtxOperand& word, int k, DType dtype) {
  const int bits = 8 * ByteWidth(dtype);
  if (dtype == DType::kBF16)
    return k == 0 ? text_.Value("shl.b32", Width::k32, {word, Integer(bits)})
                  : text_.Value("and.b32", Width::k32, {word, Integer(-0x10000)});
  const PtxOperand element = text_.Value(IsSigned(dtype) ? "bfe.s32" : "bfe.u32", Width::k32,
                                         {word, Integer(bits * k), Integer(bits)});
  return IsInt(dtype) ? element : FromMemory(element, dtype);
}

// Lanes of a value from `lane` on, as they lie together in a register.
PtxOperand PtxPrinter::PackedWord(ValueId value, int lane, int count, DType dtype) {
  const int width = ByteWidth(dtype);
  if (width >= kWordBytes) return Lane(value, lane);
  const int packed = kWordBytes / width, place = lane % packed;
  if (const auto known = packed_.find(value); known != packed_.end() && place + count <= packed) {
    const PtxOperand& word = known->second[static_cast<size_t>(lane / packed)];
    if (place == 0) return word;
    return text_.Value("shr.u32", Width::k32, {word, Integer(8 * width * place)});
  }
  if (count == 1) return ToMemory(Lane(value, lane), dtype);
  const bool constant = [&] {
    for (int k = 0; k < count; ++k)
      if (!Lane(value, lane + k).IsConstant()) return false;
    return true;
  }();
  if (count == 2 && !constant) {
    const PtxOperand low = Lane(value, lane), high = Lane(value, lane + 1);
    if (IsFloatOf16(dtype)) return HalvesOf(low, high, dtype);
  }
  if (constant) {
    uint64_t all = 0;
    for (int k = 0; k < count; ++k) {
      const int bits = 8 * width;
      all |= (ToMemory(Lane(value, lane + k), dtype).bits & ((uint64_t{1} << bits) - 1))
             << (bits * k);
    }
    return Integer(static_cast<int32_t>(all));
  }
  PtxOperand word = ToMemory(Lane(value, lane), dtype);
  for (int k = 1; k < count; ++k)
    word = text_.Value(
        "bfi.b32", Width::k32,
        {ToMemory(Lane(value, lane + k), dtype), word, Integer(8 * width * k), Integer(8 * width)});
  return word;
}

void PtxPrinter::Store(ValueId n) {
  const Instruction& i = at(n);
  Guarded(i.src.size() == 4 ? i.src[3] : -1, at(i.src[2]).lanes,
          [&](int begin, int end, const PtxOperand& condition) {
            if (!condition.IsFalse()) StoreLanes(i, begin, end, condition);
          });
}

void PtxPrinter::StoreLanes(const Instruction& store, int begin, int end,
                            const PtxOperand& condition) {
  const ValueId memory = store.src[0], index = store.src[1], value = store.src[2];
  const bool swizzled = store.imm[0] != 0;
  const DType dtype = at(memory).dtype;
  const int width = ByteWidth(dtype);
  const char* const space = at(memory).code == Code::kBuffer ? "st.global." : "st.shared.";
  for (int lane = begin; lane < end;) {
    // Of swizzled memory, too: threads with a row each meet no bank twice then. A swizzle moves
    // pieces of 16 bytes, which no access crosses.
    const int count = Together(memory, index, lane, end);
    const int words = std::max(1, count * width / (width == 8 ? 8 : kWordBytes));
    const int each = count / words;
    Values stored;
    for (int word = 0; word < words; ++word)
      stored.push_back(PackedWord(value, lane + word * each, each, dtype));
    const int bits = width == 8 ? 64 : 8 * std::min(kWordBytes, count * width);
    const Address address =
        swizzled ? SwizzledAddress(memory, index, lane) : AccessAddress(memory, index, lane);
    text_.GuardedLine(condition, space, words == 1 ? "" : absl::StrCat("v", words, "."),
                      bits < 32 ? "u" : "b", bits, " ", address, ", ",
                      words == 1 ? Joined(stored[0]) : ListOf(stored));
    lane += count;
  }
}

}  // namespace outboard::render
