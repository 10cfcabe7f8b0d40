#include "compiler/render/opencl_c.h"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "base/check.h"
#include "compiler/render/launch_shape.h"

namespace outboard::render {
namespace {

using absl::StrCat;
using absl::Substitute;
using program::Code;
using program::Grid;
using program::Instruction;
using program::Program;
using program::Space;
using program::ValueId;

// Of a program that is one text with others. OB_FMA: where the device has no instruction for it, a
// sum of a product may be rounded twice.
constexpr char kPrelude[] = R"(#ifndef OUTBOARD_PRELUDE
#define OUTBOARD_PRELUDE
#pragma OPENCL FP_CONTRACT OFF
#ifdef FP_FAST_FMAF
#define OB_FMA(a, b, c) fma(a, b, c)
#else
#define OB_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define OB_IOTA2 (long2)(0, 1)
#define OB_IOTA4 (long4)(OB_IOTA2, 2, 3)
#define OB_IOTA8 (long8)(OB_IOTA4, 4, 5, 6, 7)
#define OB_IOTA16 (long16)(OB_IOTA8, OB_IOTA8 + 8)
#define OB_PICK2(p, i) p[i.s0], p[i.s1]
#define OB_PICK4(p, i) OB_PICK2(p, i), p[i.s2], p[i.s3]
#define OB_PICK8(p, i) OB_PICK4(p, i), p[i.s4], p[i.s5], p[i.s6], p[i.s7]
#define OB_PICK16(p, i) OB_PICK8(p, i), p[i.s8], p[i.s9], p[i.sa], p[i.sb], OB_PICK4(p, i.scdef)
#define OB_PUT(p, i, x, m, l) if (m.s##l) p[i.s##l] = x.s##l;
#define OB_PUT2(p, i, x, m) OB_PUT(p, i, x, m, 0) OB_PUT(p, i, x, m, 1)
#define OB_PUT4(p, i, x, m) OB_PUT2(p, i, x, m) OB_PUT(p, i, x, m, 2) OB_PUT(p, i, x, m, 3)
#define OB_PUT8(p, i, x, m) OB_PUT4(p, i.lo, x.lo, m.lo) OB_PUT4(p, i.hi, x.hi, m.hi)
#define OB_PUT16(p, i, x, m) OB_PUT8(p, i.lo, x.lo, m.lo) OB_PUT8(p, i.hi, x.hi, m.hi)
#endif
)";

// What is defined for each number of lanes N, once a text; nothing is N for scalars.
//
// Floats of few bits, by the bits of their mantissa and the bias of their exponent: as
// docs/semantics.md, CAST. `shift` is from the sign of a float to theirs, `over` the number that
// what is too large becomes. Numbers below the normal ones are rounded by adding one whose last
// place is their step.
constexpr char kFunctions[] = R"(
inline uintN ob_packN(floatN value, uint m, uint bias, uint shift, uint over, uint nan) {
  const uint cut = 23u - m, magic = (128u - bias + cut) << 23;
  const uintN bits = as_uintN(value), magnitude = bits & 0x7fffffffu;
  const uintN sign = (bits >> shift) & (0x80000000u >> shift);
  const uintN rounded = magnitude + ((magnitude >> cut) & 1u) + ((1u << (cut - 1u)) - 1u);
  const uintN normal = (rounded >> cut) - ((127u - bias) << m);
  const uintN small = as_uintN(as_floatN(magnitude) + as_float(magic)) - magic;
  const uintN finite = magnitude < ((128u - bias) << 23) ? small : normal;
  const uintN number = sign | (finite > over ? (uintN)(over) : finite);
  return magnitude > 0x7f800000u ? (uintN)(nan) : number;
}
inline floatN ob_unpackN(uintN bits, uint m, uint bias, uint shift, uint inf, uint nan) {
  const uintN sign = (bits << shift) & 0x80000000u, magnitude = bits & (0x7fffffffu >> shift);
  const uintN normal = (magnitude << (23u - m)) + ((127u - bias) << 23);
  const uintN small = as_uintN(convert_floatN(magnitude) * as_float((128u - bias - m) << 23));
  const uintN finite = magnitude < (1u << m) ? small : normal;
  const uintN number = magnitude == inf ? (uintN)(0x7f800000u) : finite;
  return as_floatN(sign | (magnitude >= nan ? (uintN)(0x7fc00000u) : number));
}
inline uintN ob_pack_bf16N(floatN x) {
  const uintN bits = as_uintN(x);
  return x != x ? (uintN)(0x7fc0u) : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
inline floatN ob_unpack_bf16N(uintN x) { return as_floatN(x << 16); }
#define ob_pack_f8e4m3N(x) ob_packN(x, 3u, 7u, 24u, 0x7eu, 0x7fu)
#define ob_pack_f8e5m2N(x) ob_packN(x, 2u, 15u, 24u, 0x7cu, 0x7eu)
#define ob_pack_f16N(x) ob_packN(x, 10u, 15u, 16u, 0x7c00u, 0x7e00u)
#define ob_unpack_f8e4m3N(x) ob_unpackN(x, 3u, 7u, 24u, 0x100u, 0x7fu)
#define ob_unpack_f8e5m2N(x) ob_unpackN(x, 2u, 15u, 24u, 0x7cu, 0x7du)
#define ob_unpack_f16N(x) ob_unpackN(x, 10u, 15u, 16u, 0x7c00u, 0x7c01u)
inline floatN ob_maxfN(floatN a, floatN b) {
  const floatN greater = a == b ? as_floatN(as_uintN(a) & as_uintN(b)) : (a < b ? b : a);
  return (a != a) | (b != b) ? a + b : greater;
}
inline ulongN ob_threefryN(ulongN counter, ulongN key) {
  const uint rotations[8] = {13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u};
  uintN keys[3] = {convert_uintN(key), convert_uintN(key >> 32), (uintN)(0u)};
  keys[2] = keys[0] ^ keys[1] ^ 0x1BD11BDAu;
  uintN x0 = convert_uintN(counter) + keys[0], x1 = convert_uintN(counter >> 32) + keys[1];
  for (uint i = 0; i < 20u; ++i) {
    x0 += x1;
    x1 = rotate(x1, (uintN)(rotations[i % 8u])) ^ x0;
    const uint s = i / 4u + 1u, added = i % 4u == 3u ? 1u : 0u;
    x0 += added * keys[s % 3u];
    x1 += added * (keys[(s + 1u) % 3u] + s);
  }
  return (convert_ulongN(x1) << 32) | convert_ulongN(x0);
}
)";

// The same of fp64. ob_odd is the float towards which a double is cut, its last bit set where
// anything was cut off: rounding that to a smaller type is rounding the double once.
constexpr char kFunctions64[] = R"(
inline doubleN ob_maxN(doubleN a, doubleN b) {
  const doubleN greater = a == b ? as_doubleN(as_ulongN(a) & as_ulongN(b)) : (a < b ? b : a);
  return (a != a) | (b != b) ? a + b : greater;
}
inline floatN ob_oddN(doubleN x) {
  const floatN nearest = convert_floatN(x);
  const doubleN back = convert_doubleN(nearest);
  const uintN bits = as_uintN(nearest) - (convert_uintN(fabs(back) > fabs(x)) & 1u);
  return convert_intN((back == x) | (x != x)) ? nearest : as_floatN(bits | 1u);
}
)";

std::string NameOf(auto x) { return std::string(Name(x)); }
bool IsSmall(DType t) { return IsFloat(t) && t != DType::kF32 && t != DType::kF64; }

const char* UnsignedOf(int bytes) {
  return bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : "ulong";
}
const char* SignedOf(int bytes) { return UnsignedOf(bytes) + 1; }  // without the u
// The type of a scalar that holds a value of the type.
const char* TypeName(DType dtype) {
  if (IsFloat(dtype)) return dtype == DType::kF64 ? "double" : "float";
  if (IsBool(dtype)) return "bool";
  return IsSigned(dtype) ? SignedOf(ByteWidth(dtype)) : UnsignedOf(ByteWidth(dtype));
}

// Of an element in memory. A small float in private memory is not packed.
const char* MemoryName(DType dtype, bool is_private) {
  if (IsSmall(dtype) && is_private) return "float";
  return IsBool(dtype) || IsSmall(dtype) ? UnsignedOf(ByteWidth(dtype)) : TypeName(dtype);
}

// Values of some type and number of lanes. Lanes of bool are chars, 0 or -1, as comparisons of
// chars yield; a condition of a vector is made as wide as what it chooses from.
struct Shape {
  DType dtype;
  int lanes;

  std::string suffix() const { return lanes == 1 ? "" : StrCat(lanes); }
  std::string Vector(const char* scalar) const { return StrCat(scalar, suffix()); }
  std::string type() const { return Vector(lanes > 1 && IsBool(dtype) ? "char" : TypeName(dtype)); }
  int width() const { return IsSmall(dtype) ? 4 : ByteWidth(dtype); }
  std::string unsigned_type() const { return Vector(UnsignedOf(width())); }
  std::string As(const std::string& x) const { return StrCat("as_", type(), "(", x, ")"); }
  std::string Convert(const std::string& x) const {
    return lanes == 1 ? Substitute("($0)$1", type(), x) : Substitute("convert_$0($1)", type(), x);
  }
  // From a comparison of values that are `bytes` wide, to choose between values of this type.
  std::string Choice(const std::string& condition, int bytes) const {
    if (lanes == 1 || bytes == width()) return condition;
    return Substitute("convert_$0($1)", Vector(SignedOf(width())), condition);
  }
};

class Printer {
 public:
  Printer(const Program& program, const Target& device) : program_(program), device_(device) {}

  absl::StatusOr<std::string> Run(const std::string& symbol) {
    const auto count = static_cast<ValueId>(program_.code.size());
    const int64_t tasks = program_.Extent(Grid::kBlock);
    // A block of one thread computes its share of the tasks.
    const bool cuts = program_.Extent(Grid::kThread) == 1 && tasks > 1;
    const ValueId first = cuts ? program_.FirstOfBlocks() : count;
    std::set<int> lanes;
    for (ValueId n = 0; n < count; ++n) {
      if (n == first) {
        Line("const long blocks = get_num_groups(0), block = get_group_id(0);");
        Line(Substitute("const long end = (block + 1) * $0l / blocks;", tasks));
        Open(Substitute("for (long task = block * $0l / blocks; task < end; ++task) {", tasks));
        task_ = "task";
      }
      OB_RETURN_IF_ERROR(Supports(at(n)));
      if (at(n).lanes > 0) lanes.insert(at(n).lanes);
      Print(n, at(n));
    }
    if (first < count) Close();
    std::string head = kPrelude;
    for (const int l : lanes) {
      absl::StrAppend(&head, "#ifndef OUTBOARD_LANES_", l, "\n#define OUTBOARD_LANES_", l);
      for (const char* functions : {kFunctions, device_.fp64 ? kFunctions64 : ""})
        head += absl::StrReplaceAll(functions, {{"N", l == 1 ? "" : StrCat(l)}});
      head += "#endif\n";
    }
    absl::StrAppend(&head, "__kernel __attribute__((reqd_work_group_size(",
                    program_.Extent(Grid::kThread), ", 1, 1)))\nvoid ", symbol, "(");
    for (int slot = 0; slot < program_.buffer_count; ++slot)
      absl::StrAppend(&head, slot == 0 ? "" : ", ", "__global uchar* restrict b", slot);
    if (program_.reads_vars())
      absl::StrAppend(&head, program_.buffer_count == 0 ? "" : ", ", "__global const long* vars");
    return StrCat(head, ") {\n", body_, "}\n");
  }

 private:
  const Instruction& at(ValueId n) const { return program_.code[n]; }
  Shape ShapeOf(ValueId n) const { return {at(n).dtype, at(n).lanes}; }

  absl::Status Supports(const Instruction& i) const {
    const auto none_for = [&](const std::string& what) {
      return absl::UnimplementedError(StrCat("device ", device_.name, " has no form for ", what));
    };
    const std::string type = NameOf(i.dtype);
    if (i.dtype == DType::kF64 && !device_.fp64) return none_for("f64");
    if (i.lanes > 16) return none_for(StrCat("vectors of ", i.lanes, " ", type));
    // All that come behind it are of GPUs or of processors with tiles.
    if (i.code >= Code::kShuffle) return none_for(StrCat(NameOf(i.code), " of ", type));
    if (i.code == Code::kBitcast && at(i.src[0]).lanes != i.lanes)
      return none_for(StrCat("lanes of ", type, " taken apart"));
    if (i.code == Code::kAlu && IsTranscendental(i.op) && i.dtype != DType::kF64)
      return none_for(StrCat(NameOf(i.op), " of ", type));
    return absl::OkStatus();
  }

  static std::string V(ValueId n) { return StrCat("v", n); }

  void Line(const std::string& text) {
    absl::StrAppend(&body_, std::string(2 * depth_, ' '), text, "\n");
  }
  void Open(const std::string& text) {
    Line(text);
    ++depth_;
  }
  void Close() {
    --depth_;
    Line("}");
  }
  void Define(ValueId n, const std::string& value) {
    Line(Substitute("const $0 v$1 = $2;", ShapeOf(n).type(), n, value));
  }

  static std::string Literal(DType dtype, int64_t bits) {
    if (dtype == DType::kF64) return Substitute("as_double(0x$0ul)", absl::Hex(bits));
    if (IsFloat(dtype)) {
      const auto value = static_cast<float>(std::bit_cast<double>(bits));
      return Substitute("as_float(0x$0u)", absl::Hex(std::bit_cast<uint32_t>(value)));
    }
    if (IsBool(dtype)) return bits != 0 ? "true" : "false";
    // The lowest number is no literal, so all of 64 bits that are not small are written by bits.
    if (ByteWidth(dtype) == 8 && (bits < -1'000'000'000'000 || dtype == DType::kU64))
      return Substitute("($0)0x$1ul", TypeName(dtype), absl::Hex(static_cast<uint64_t>(bits)));
    return ByteWidth(dtype) == 8 ? StrCat(bits, "l")
                                 : Substitute("($0)($1l)", TypeName(dtype), bits);
  }

  // ---- small floats and memory
  static std::string Small(const char* function, Shape s, const std::string& x) {
    return Substitute("ob_$0_$1$2($3)", function, NameOf(s.dtype), s.suffix(), x);
  }
  static std::string Rounded(Shape s, const std::string& x) {
    return IsSmall(s.dtype) ? Small("unpack", s, Small("pack", s, x)) : x;
  }

  static std::string FromMemory(Shape s, bool is_private, const std::string& x) {
    if (IsBool(s.dtype)) return StrCat("(", x, " != (uchar)0)");
    if (!IsSmall(s.dtype) || is_private) return x;
    return Small("unpack", s, Shape{DType::kU32, s.lanes}.Convert(x));
  }
  static std::string ToMemory(Shape s, bool is_private, const std::string& x) {
    if (IsBool(s.dtype))
      return s.lanes == 1 ? StrCat("(uchar)", x) : Substitute("as_$0(-$1)", s.Vector("uchar"), x);
    if (!IsSmall(s.dtype) || is_private) return x;
    const DType bits = ByteWidth(s.dtype) == 1 ? DType::kU8 : DType::kU16;
    return Shape{bits, s.lanes}.Convert(Small("pack", s, x));
  }
  bool IsPrivate(ValueId memory) const {
    return at(memory).code == Code::kAlloc &&
           at(memory).imm[0] == static_cast<int64_t>(Space::kPrivate);
  }
  // The indices of all lanes.
  std::string Indices(ValueId index, int lanes) const {
    return at(index).lanes > 1 ? V(index) : Substitute("((long$0)(v$1) + OB_IOTA$0)", lanes, index);
  }

  void Load(ValueId n, const Instruction& i) {
    const Shape s = ShapeOf(n);
    const ValueId memory = i.src[0], index = i.src[1];
    const bool masked = i.src.size() == 4, consecutive = at(index).lanes == 1;
    const bool own = IsPrivate(memory);
    if (s.lanes == 1) {
      const std::string x = FromMemory(s, own, Substitute("v$0[v$1]", memory, index));
      Define(n, masked ? Substitute("v$0 ? $1 : v$2", i.src[2], x, i.src[3]) : x);
      return;
    }
    const std::string raw = s.Vector(MemoryName(s.dtype, own));
    const std::string run = Substitute("vload$0(0, v$1 + v$2)", s.lanes, memory, index);
    if (consecutive && !masked) return Define(n, FromMemory(s, own, run));
    if (masked && at(memory).imm[1] == 0) return Define(n, V(i.src[3]));
    Open(Substitute("$0 v$1; { $2 x;", s.type(), n, raw));
    if (masked && consecutive) Line(Substitute("if (all(v$0)) x = $1; else {", i.src[2], run));
    // Lanes that are off read element 0.
    Line(Substitute("const long$0 k = $1$2;", s.lanes, Indices(index, s.lanes),
                    masked ? Substitute(" & convert_long$0(v$1)", s.lanes, i.src[2]) : ""));
    Line(Substitute("x = ($0)(OB_PICK$1(v$2, k));$3", raw, s.lanes, memory,
                    masked && consecutive ? " }" : ""));
    const std::string x = FromMemory(s, own, "x");
    Line(Substitute(
        "v$0 = $1;", n,
        masked ? Substitute("$0 ? $1 : v$2", s.Choice(V(i.src[2]), 1), x, i.src[3]) : x));
    Close();
  }

  void Store(const Instruction& i) {
    const ValueId memory = i.src[0], index = i.src[1];
    const Shape s = ShapeOf(i.src[2]);
    const bool own = IsPrivate(memory);
    const std::string x = ToMemory(s, own, V(i.src[2]));
    const bool masked = i.src.size() == 4, consecutive = at(index).lanes == 1;
    const std::string mask = masked ? V(i.src[3]) : "";
    if (s.lanes == 1)
      return Line(StrCat(masked ? StrCat("if (", mask, ") ") : "",
                         Substitute("v$0[v$1] = $2;", memory, index, x)));
    const std::string raw = s.Vector(MemoryName(s.dtype, own));
    const std::string run = Substitute("vstore$0(x, 0, v$1 + v$2);", s.lanes, memory, index);
    Open(Substitute("{ const $0 x = $1;", raw, x));
    if (consecutive) Line(masked ? Substitute("if (all($0)) $1 else {", mask, run) : run);
    if (masked || !consecutive) {
      Line(Substitute("const long$0 k = $1; const char$0 m = $2;", s.lanes, Indices(index, s.lanes),
                      masked ? mask : "-1"));
      Line(Substitute("OB_PUT$0(v$1, k, x, m)$2", s.lanes, memory, consecutive ? " }" : ""));
    }
    Close();
  }

  void Print(ValueId n, const Instruction& i) {
    const Shape s{i.dtype, i.lanes};
    switch (i.code) {
      case Code::kConst: Define(n, Literal(i.dtype, i.imm[0])); break;
      case Code::kVar: Define(n, StrCat("vars[", i.imm[0], "]")); break;
      case Code::kSpecial:
        Define(n, i.imm[0] == static_cast<int64_t>(Grid::kBlock) ? task_ : "(long)get_local_id(0)");
        break;
      case Code::kBuffer:
        Line(Substitute("__global $0* v$1 = (__global $0*)b$2;", MemoryName(i.dtype, false), n,
                        i.imm[0]));
        break;
      case Code::kAlloc:
        Line(Substitute("$0 $1 v$2[$3];", IsPrivate(n) ? "__private" : "__local",
                        MemoryName(i.dtype, IsPrivate(n)), n, i.imm[1]));
        break;
      case Code::kLoop: {
        const std::string end = i.src.empty() ? StrCat(i.imm[0], "l")
                                              : Substitute("min($0l, $1)", i.imm[0], V(i.src[0]));
        Open(Substitute("for (long v$0 = 0; v$0 < $1; ++v$0) {", n, end));
        break;
      }
      case Code::kIf: Open(Substitute("if ($0) {", V(i.src[0]))); break;
      case Code::kEnd:
      case Code::kEndIf: Close(); break;
      case Code::kAlu: Define(n, Rounds(i.op) ? Rounded(s, Arithmetic(i)) : Arithmetic(i)); break;
      case Code::kCast: Define(n, Cast(ShapeOf(i.src[0]), s, V(i.src[0]))); break;
      case Code::kBitcast: Define(n, Bitcast(ShapeOf(i.src[0]), s, V(i.src[0]))); break;
      case Code::kLanes: {
        std::vector<std::string> lanes;
        for (const ValueId l : i.src)
          lanes.push_back(IsBool(i.dtype) && i.lanes > 1 ? StrCat("(char)-", V(l)) : V(l));
        Define(n, Substitute("($0)($1)", s.type(), absl::StrJoin(lanes, ", ")));
        break;
      }
      case Code::kLane:
        Define(n, at(i.src[0]).lanes == 1 ? V(i.src[0])
                                          : Substitute("v$0.s$1", i.src[0], absl::Hex(i.imm[0])));
        break;
      case Code::kLoad: Load(n, i); break;
      case Code::kStore: Store(i); break;
      case Code::kBarrier: Line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"); break;
      case Code::kCopy:  // one that arrives at once
        Line(Substitute("for (long k = 0; k < $0; ++k) v$1[v$2 + k] = $5v$3[v$4 + k];", i.imm[0],
                        i.src[0], i.src[1], i.src[2], i.src[3],
                        i.src.size() == 5 ? Substitute("!v$0 ? 0 : ", i.src[4]) : ""));
        break;
      default: break;  // COMMIT and WAIT; the others are refused before
    }
  }

  // ---- arithmetic
  // Whether what is printed may have more digits than its type.
  static bool Rounds(Op op) {
    return op == Op::kAdd || op == Op::kMul || op == Op::kFDiv || op == Op::kSqrt;
  }

  std::string Arithmetic(const Instruction& i) const {
    const Shape s = ShapeOf(i.src[i.op == Op::kWhere ? 1 : 0]);
    const std::string a = V(i.src[0]), b = i.src.size() > 1 ? V(i.src[1]) : "",
                      c = i.src.size() > 2 ? V(i.src[2]) : "";
    const auto compare = [&](const char* op) {
      return Shape{DType::kBool, s.lanes}.Choice(Substitute("($0 $1 $2)", a, op, b), s.width());
    };
    switch (i.op) {
      case Op::kWhere: return Substitute("$0 ? $1 : $2", s.Choice(a, 1), b, c);
      case Op::kCmpLt:
        if (IsBool(s.dtype) && s.lanes > 1) return Substitute("~$0 & $1", a, b);
        return compare("<");
      case Op::kCmpNe: return compare("!=");
      case Op::kCmpEq: return compare("==");
      default: return IsFloat(s.dtype) ? OfFloats(i, s, a, b, c) : OfIntegers(i, s, a, b, c);
    }
  }

  std::string OfFloats(const Instruction& i, Shape s, const std::string& a, const std::string& b,
                       const std::string& c) const {
    switch (i.op) {
      case Op::kNeg: return StrCat("-", a);
      case Op::kAdd:
        // A product that it adds need not be rounded before.
        for (int k = 0; k < 2 && !IsSmall(s.dtype) && i.imm[0] != 0; ++k)
          if (const Instruction& x = at(i.src[k]); x.code == Code::kAlu && x.op == Op::kMul)
            return Substitute("OB_FMA($0, $1, $2)", V(x.src[0]), V(x.src[1]), k == 0 ? b : a);
        return Substitute("$0 + $1", a, b);
      case Op::kMul: return Substitute("$0 * $1", a, b);
      case Op::kFDiv: return Substitute("$0 / $1", a, b);
      case Op::kMax:
        return Substitute("ob_max$0$1($2, $3)", s.dtype == DType::kF64 ? "" : "f", s.suffix(), a,
                          b);
      case Op::kMulAcc: return Substitute("fma($0, $1, $2)", a, b, c);
      default:  // functions of the language, by the same names
        OB_CHECK(IsUnary(i.op));
        return StrCat(absl::AsciiStrToLower(NameOf(i.op)), "(", a, ")");
    }
  }

  // Arithmetic in unsigned types, which wrap; of short scalars, in one that is not made an int.
  static std::string Wrapping(Shape s, const char* format, const std::string& a,
                              const std::string& b, const std::string& c) {
    const std::string scalar = ByteWidth(s.dtype) == 8 ? "(ulong)" : "(uint)";
    const std::string in = s.lanes > 1 ? StrCat("as_", s.unsigned_type()) : scalar;
    const auto of = [&](const std::string& x) { return StrCat(in, "(", x, ")"); };
    const std::string x = Substitute(format, of(a), of(b), of(c));
    return s.lanes > 1 ? s.As(x) : Substitute("($0)($1)", s.type(), x);
  }

  std::string OfIntegers(const Instruction& i, Shape s, const std::string& a, const std::string& b,
                         const std::string& c) const {
    const std::string type = s.type();
    const auto wraps = [&](const char* format) { return Wrapping(s, format, a, b, c); };
    const int bits = 8 * ByteWidth(s.dtype);
    const std::string amount = Substitute("as_$0($1)", s.unsigned_type(), b);
    switch (i.op) {
      case Op::kNeg: return wraps("-$0");
      case Op::kAdd: return IsBool(s.dtype) ? Substitute("$0 | $1", a, b) : wraps("$0 + $1");
      case Op::kMul: return IsBool(s.dtype) ? Substitute("$0 & $1", a, b) : wraps("$0 * $1");
      case Op::kIDiv:
      case Op::kMod: return Quotient(i, s, a, b);
      case Op::kMax: return Substitute("$0 < $1 ? $1 : $0", a, b);
      case Op::kAnd: return Substitute("($0)($1 & $2)", type, a, b);
      case Op::kOr: return Substitute("($0)($1 | $2)", type, a, b);
      case Op::kXor: return Substitute("($0)($1 ^ $2)", type, a, b);
      case Op::kShl:
        return Substitute("$0 >= ($1)($2) ? ($3)(0) : $4", amount, s.unsigned_type(), bits, type,
                          wraps("$0 << $1"));
      case Op::kShr:
        if (IsSigned(s.dtype))
          return Substitute("$0 >> as_$1(min($2, ($3)($4)))", a, type, amount, s.unsigned_type(),
                            bits - 1);
        return Substitute("$0 >= ($1)($2) ? ($1)(0) : ($1)($3 >> $0)", b, type, bits, a);
      case Op::kThreefry: return Substitute("ob_threefry$0($1, $2)", s.suffix(), a, b);
      default: OB_CHECK(false && "no arithmetic of integers"); return "";
    }
  }

  std::string Quotient(const Instruction& i, Shape s, const std::string& a,
                       const std::string& b) const {
    const bool divides = i.op == Op::kIDiv;
    const std::string type = s.type(), zero = Substitute("($0)(0)", type);
    const Instruction* divisor = &at(i.src[1]);
    if (divisor->code == Code::kLanes && divisor->src.size() == 1) divisor = &at(divisor->src[0]);
    const auto by = [&](const std::string& d) {
      return Substitute("($0)($1 $2 $3)", type, a, divides ? "/" : "%", d);
    };
    if (divisor->code == Code::kConst && divisor->imm[0] > 0) return by(b);
    if (s.lanes > 1) {
      // Lane by lane: LLVM 19, which drivers may be made of, takes a division by a vector apart
      // where it must not (AluEmitter::Divide).
      std::vector<std::string> lanes;
      for (int l = 0; l < s.lanes; ++l) {
        const std::string lane = StrCat(".s", absl::Hex(l));
        lanes.push_back(Quotient(i, Shape{s.dtype, 1}, StrCat(a, lane), StrCat(b, lane)));
      }
      return Substitute("($0)($1)", type, absl::StrJoin(lanes, ", "));
    }
    // The divisor may not be 0, nor -1 under the least number.
    const std::string minus_one = Substitute("($0)(-1)", type);
    const std::string bad = IsSigned(s.dtype)
                                ? Substitute("($0 == $1) | ($0 == $2)", b, zero, minus_one)
                                : Substitute("$0 == $1", b, zero);
    const std::string plain = by(Substitute("(($0) ? ($1)(1) : $2)", bad, type, b));
    const std::string by_zero = divides ? zero : a;
    if (!IsSigned(s.dtype)) return Substitute("$0 == $1 ? $2 : $3", b, zero, by_zero, plain);
    const std::string negated = Wrapping(s, "-$0", a, "0", "0");
    return Substitute("$0 == $1 ? $2 : ($0 == $3 ? $4 : $5)", b, zero, by_zero, minus_one,
                      divides ? negated : zero, plain);
  }

  // ---- conversions
  std::string Cast(Shape from, Shape to, const std::string& x) const {
    if (from.dtype == to.dtype) return x;
    if (IsBool(to.dtype))
      return to.Choice(Substitute("($0 != ($1)(0))", x, from.type()), from.width());
    const std::string source = IsBool(from.dtype) && from.lanes > 1 ? StrCat("-", x) : x;
    if (!IsFloat(to.dtype))
      return IsFloat(from.dtype) ? Saturated(from, to, x) : to.Convert(source);
    if (!IsSmall(to.dtype)) return to.Convert(source);
    const std::string odd = Substitute("ob_odd$0", to.suffix());
    if (from.dtype == DType::kF64) return Rounded(to, Substitute("$0($1)", odd, x));
    if (IsInt(from.dtype) && ByteWidth(from.dtype) > 2 && device_.fp64)
      return Rounded(to, Substitute("$0($1)", odd, Shape{DType::kF64, to.lanes}.Convert(x)));
    return Rounded(to, to.Convert(source));
  }

  // Towards zero; beyond the range its nearest end; 0 for a NaN.
  static std::string Saturated(Shape from, Shape to, const std::string& x) {
    const int bits = 8 * ByteWidth(to.dtype) - IsSigned(to.dtype);
    const std::string real = from.type(), type = to.type();
    const auto power = [&](int exponent) {  // 2^exponent, exact in either type
      return Substitute("($0)(as_float(0x$1u))", real, absl::Hex((127u + exponent) << 23));
    };
    const std::string least =
        IsSigned(to.dtype) ? StrCat("-", power(bits)) : Substitute("($0)(0)", real);
    const std::string most =
        to.dtype == DType::kU64 ? "0xfffffffffffffffful" : Literal(to.dtype, IntMax(to.dtype));
    const auto if_so = [&](const std::string& condition) {
      return to.Choice(StrCat("(", condition, ")"), from.width());
    };
    return Substitute("$0 ? ($1)(0) : ($2 ? ($1)($3) : ($4 ? ($1)($5) : $6))",
                      if_so(Substitute("$0 != $0", x)), type, if_so(StrCat(x, " <= ", least)),
                      Literal(to.dtype, IntMin(to.dtype)), if_so(StrCat(x, " >= ", power(bits))),
                      most, to.Convert(x));
  }

  static std::string Bitcast(Shape from, Shape to, const std::string& x) {
    if (from.dtype == to.dtype) return x;
    const std::string bits = ToMemory(from, /*is_private=*/false, x),
                      type = to.Vector(MemoryName(to.dtype, /*is_private=*/false));
    return FromMemory(to, /*is_private=*/false, Substitute("as_$0($1)", type, bits));
  }

  const Program& program_;
  const Target& device_;
  std::string body_;
  std::string task_ = "(long)get_group_id(0)";
  int depth_ = 1;
};

}  // namespace

absl::StatusOr<CompiledKernel> RenderOpenClC(const Program& program, const std::string& symbol,
                                             const Target& device) {
  constexpr int64_t kBlocksPerProcessor = 4;  // of one thread, which share the tasks
  CompiledKernel out = LaunchShapeOf(program, symbol, CompiledKernel::Form::kOpenClC);
  if (out.threads[0] == 1)
    out.blocks[0] = std::min(out.blocks[0], kBlocksPerProcessor * device.threads);
  out.tasks = program.code.empty() ? 0 : out.blocks[0];
  if (out.threads[0] > device.block_threads || out.shared_bytes > device.shared_bytes)
    return absl::ResourceExhaustedError(StrCat("device ", device.name,
                                               " has no room for blocks of ", out.threads[0],
                                               " threads with ", out.shared_bytes, " bytes"));
  OB_ASSIGN_OR_RETURN(out.object, Printer(program, device).Run(symbol));
  return out;
}

}  // namespace outboard::render
