#include "compiler/render/opencl_c.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "base/check.h"

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

// Floats of few bits, by the bits of their mantissa and the bias of their exponent: as
// docs/semantics.md, CAST. `shift` is from the sign of a float to theirs, `over` the number that
// what is too large becomes. Numbers below the normal ones are rounded by adding one whose last
// place is their step.
constexpr char kPrelude[] = R"(#ifndef OUTBOARD_PRELUDE
#define OUTBOARD_PRELUDE
#pragma OPENCL FP_CONTRACT OFF
inline uint ob_pack(float value, uint m, uint bias, uint shift, uint over, uint nan) {
  const uint bits = as_uint(value), magnitude = bits & 0x7fffffffu, cut = 23u - m;
  const uint sign = (bits >> shift) & (0x80000000u >> shift);
  const uint rounded = magnitude + ((magnitude >> cut) & 1u) + ((1u << (cut - 1u)) - 1u);
  const uint normal = (rounded >> cut) - ((127u - bias) << m);
  const uint magic = (128u - bias + cut) << 23;
  const uint small = as_uint(as_float(magnitude) + as_float(magic)) - magic;
  const uint finite = magnitude < ((128u - bias) << 23) ? small : normal;
  return magnitude > 0x7f800000u ? nan : sign | (finite > over ? over : finite);
}
inline float ob_unpack(uint bits, uint m, uint bias, uint shift, uint inf, uint nan) {
  const uint sign = (bits << shift) & 0x80000000u, magnitude = bits & (0x7fffffffu >> shift);
  const uint normal = (magnitude << (23u - m)) + ((127u - bias) << 23);
  const uint small = as_uint((float)magnitude * as_float((128u - bias - m) << 23));
  uint out = magnitude < (1u << m) ? small : normal;
  if (magnitude == inf) out = 0x7f800000u;
  if (magnitude >= nan) out = 0x7fc00000u;
  return as_float(out | sign);
}
inline uint ob_pack_f8e4m3(float x) { return ob_pack(x, 3u, 7u, 24u, 0x7eu, 0x7fu); }
inline uint ob_pack_f8e5m2(float x) { return ob_pack(x, 2u, 15u, 24u, 0x7cu, 0x7eu); }
inline uint ob_pack_f16(float x) { return ob_pack(x, 10u, 15u, 16u, 0x7c00u, 0x7e00u); }
inline uint ob_pack_bf16(float x) {
  const uint bits = as_uint(x);
  return x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
inline float ob_unpack_f8e4m3(uint x) { return ob_unpack(x, 3u, 7u, 24u, 0x100u, 0x7fu); }
inline float ob_unpack_f8e5m2(uint x) { return ob_unpack(x, 2u, 15u, 24u, 0x7cu, 0x7du); }
inline float ob_unpack_f16(uint x) { return ob_unpack(x, 10u, 15u, 16u, 0x7c00u, 0x7c01u); }
inline float ob_unpack_bf16(uint x) { return as_float(x << 16); }
inline float ob_maxf(float a, float b) {
  if (a != a || b != b) return a + b;
  return a == b ? as_float(as_uint(a) & as_uint(b)) : a < b ? b : a;
}
inline ulong ob_threefry(ulong counter, ulong key) {
  const uint rotations[8] = {13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u};
  uint keys[3] = {(uint)key, (uint)(key >> 32), 0u};
  keys[2] = keys[0] ^ keys[1] ^ 0x1BD11BDAu;
  uint x0 = (uint)counter + keys[0], x1 = (uint)(counter >> 32) + keys[1];
  for (uint i = 0; i < 20u; ++i) {
    x0 += x1;
    x1 = rotate(x1, rotations[i % 8u]) ^ x0;
    if (i % 4u == 3u) {
      const uint s = i / 4u + 1u;
      x0 += keys[s % 3u];
      x1 += keys[(s + 1u) % 3u] + s;
    }
  }
  return ((ulong)x1 << 32) | (ulong)x0;
}
#endif
)";

// The same of fp64. ob_odd is the float towards which a double is cut, its last bit set where
// anything was cut off: rounding that to a smaller type is rounding the double once.
constexpr char kPrelude64[] = R"(#ifndef OUTBOARD_PRELUDE_64
#define OUTBOARD_PRELUDE_64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
inline double ob_max(double a, double b) {
  if (a != a || b != b) return a + b;
  return a == b ? as_double(as_ulong(a) & as_ulong(b)) : a < b ? b : a;
}
inline float ob_odd(double x) {
  const float nearest = (float)x;
  const double back = (double)nearest;
  if (back == x || x != x) return nearest;
  const uint bits = as_uint(nearest) - (fabs(back) > fabs(x) ? 1u : 0u);
  return as_float(bits | 1u);
}
#endif
)";

std::string NameOf(auto x) { return std::string(Name(x)); }
bool IsSmall(DType t) { return IsFloat(t) && t != DType::kF32 && t != DType::kF64; }

// The type of a variable that holds a value of the type.
const char* TypeName(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kI8: return "char";
    case DType::kU8: return "uchar";
    case DType::kI16: return "short";
    case DType::kU16: return "ushort";
    case DType::kI32: return "int";
    case DType::kU32: return "uint";
    case DType::kI64: return "long";
    case DType::kU64: return "ulong";
    case DType::kF64: return "double";
    default: return "float";
  }
}

const char* UnsignedOf(int bytes) {
  return bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : "ulong";
}

// The type of an element in memory that is visible to others.
const char* MemoryName(DType dtype) {
  return IsBool(dtype) || IsSmall(dtype) ? UnsignedOf(ByteWidth(dtype)) : TypeName(dtype);
}

class Printer {
 public:
  Printer(const Program& program, const OpenClDevice& device)
      : program_(program), device_(device) {}

  absl::StatusOr<std::string> Run(const std::string& symbol) {
    bool doubles = false;
    for (size_t n = 0; n < program_.code.size(); ++n) {
      const Instruction& i = at(static_cast<ValueId>(n));
      if (i.lanes > 1) return NoFormFor(StrCat("vectors of ", i.lanes, " ", NameOf(i.dtype)));
      if (i.code == Code::kMma) return NoFormFor(StrCat("matrix units of ", NameOf(i.dtype)));
      if (i.code >= Code::kDot) return NoFormFor(std::string(Name(i.code)));
      if (IsTranscendental(i.op) && i.code == Code::kAlu && i.dtype != DType::kF64)
        return NoFormFor(StrCat(NameOf(i.op), " of ", NameOf(i.dtype)));
      doubles = doubles || i.dtype == DType::kF64;
      Print(static_cast<ValueId>(n), i);
    }
    if (doubles && !device_.fp64) return NoFormFor("f64");
    std::string head = kPrelude;
    if (device_.fp64) head += kPrelude64;
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
  absl::Status NoFormFor(const std::string& what) const {
    return absl::UnimplementedError(StrCat("device ", device_.name, " has no form for ", what));
  }

  static std::string V(ValueId n) { return StrCat("v", n); }

  void Line(const std::string& text) {
    absl::StrAppend(&body_, std::string(2 * depth_, ' '), text, "\n");
  }
  void Define(ValueId n, const std::string& value) {
    Line(Substitute("const $0 v$1 = $2;", TypeName(at(n).dtype), n, value));
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

  // A value rounded to a small float's type.
  static std::string Rounded(DType dtype, const std::string& value) {
    if (!IsSmall(dtype)) return value;
    return Substitute("ob_unpack_$0(ob_pack_$0($1))", NameOf(dtype), value);
  }

  std::string FromMemory(DType dtype, const std::string& element) const {
    if (IsBool(dtype)) return StrCat("(", element, " != 0)");
    if (IsSmall(dtype)) return Substitute("ob_unpack_$0((uint)$1)", NameOf(dtype), element);
    return element;
  }
  std::string ToMemory(DType dtype, const std::string& value) const {
    if (IsBool(dtype)) return StrCat("(uchar)", value);
    if (IsSmall(dtype))
      return Substitute("($0)ob_pack_$1($2)", MemoryName(dtype), NameOf(dtype), value);
    return value;
  }
  bool IsPrivate(ValueId memory) const {
    return at(memory).code == Code::kAlloc &&
           at(memory).imm[0] == static_cast<int64_t>(Space::kPrivate);
  }

  void Print(ValueId n, const Instruction& i) {
    switch (i.code) {
      case Code::kConst: Define(n, Literal(i.dtype, i.imm[0])); break;
      case Code::kVar: Define(n, StrCat("vars[", i.imm[0], "]")); break;
      case Code::kSpecial:
        Define(n, i.imm[0] == static_cast<int64_t>(Grid::kBlock) ? "(long)get_group_id(0)"
                                                                 : "(long)get_local_id(0)");
        break;
      case Code::kBuffer:
        Line(Substitute("__global $0* v$1 = (__global $0*)b$2;", MemoryName(i.dtype), n, i.imm[0]));
        break;
      case Code::kAlloc:
        Line(IsPrivate(n) ? Substitute("$0 v$1[$2];", TypeName(i.dtype), n, i.imm[1])
                          : Substitute("__local $0 v$1[$2];", MemoryName(i.dtype), n, i.imm[1]));
        break;
      case Code::kLoop: {
        const std::string end = i.src.empty() ? StrCat(i.imm[0], "l")
                                              : Substitute("min($0l, $1)", i.imm[0], V(i.src[0]));
        Line(Substitute("for (long v$0 = 0; v$0 < $1; ++v$0) {", n, end));
        ++depth_;
        break;
      }
      case Code::kIf:
        Line(Substitute("if ($0) {", V(i.src[0])));
        ++depth_;
        break;
      case Code::kEnd:
      case Code::kEndIf:
        --depth_;
        Line("}");
        break;
      case Code::kAlu:
        Define(n, Rounds(i.op) ? Rounded(i.dtype, Arithmetic(i)) : Arithmetic(i));
        break;
      case Code::kCast: Define(n, Cast(at(i.src[0]).dtype, i.dtype, V(i.src[0]))); break;
      case Code::kBitcast: Define(n, Bitcast(at(i.src[0]).dtype, i.dtype, V(i.src[0]))); break;
      case Code::kLanes:
      case Code::kLane: Define(n, V(i.src[0])); break;
      case Code::kLoad: {
        const std::string element = Substitute("v$0[v$1]", i.src[0], i.src[1]);
        const std::string value = IsPrivate(i.src[0]) ? element : FromMemory(i.dtype, element);
        Define(n,
               i.src.size() == 2 ? value : Substitute("v$0 ? $1 : v$2", i.src[2], value, i.src[3]));
        break;
      }
      case Code::kStore: {
        const std::string value =
            IsPrivate(i.src[0]) ? V(i.src[2]) : ToMemory(at(i.src[0]).dtype, V(i.src[2]));
        Line(StrCat(i.src.size() == 4 ? Substitute("if (v$0) ", i.src[3]) : "",
                    Substitute("v$0[v$1] = $2;", i.src[0], i.src[1], value)));
        break;
      }
      case Code::kBarrier: Line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"); break;
      case Code::kCopy:  // one that arrives at once
        Line(Substitute("for (long k = 0; k < $0; ++k) v$1[v$2 + k] = v$3[v$4 + k];", i.imm[0],
                        i.src[0], i.src[1], i.src[2], i.src[3]));
        break;
      case Code::kCommit:
      case Code::kWait:
      case Code::kMma:
      case Code::kDot:
      case Code::kTileZero:
      case Code::kTileLoad:
      case Code::kTileStore:
      case Code::kTileDot: break;  // refused before
    }
  }

  // Whether what is printed may have more digits than its type.
  static bool Rounds(Op op) {
    switch (op) {
      case Op::kAdd:
      case Op::kMul:
      case Op::kFDiv:
      case Op::kSqrt:
      case Op::kMulAcc: return true;
      default: return false;
    }
  }

  std::string Arithmetic(const Instruction& i) const {
    const DType type = at(i.src[i.op == Op::kWhere ? 1 : 0]).dtype;
    const std::string a = V(i.src[0]), b = i.src.size() > 1 ? V(i.src[1]) : "",
                      c = i.src.size() > 2 ? V(i.src[2]) : "";
    const auto compare = [&](const char* op) { return StrCat("(", a, " ", op, " ", b, ")"); };
    switch (i.op) {
      case Op::kWhere: return Substitute("$0 ? $1 : $2", a, b, c);
      case Op::kCmpLt: return compare("<");
      case Op::kCmpNe: return compare("!=");
      case Op::kCmpEq: return compare("==");
      default: return IsFloat(type) ? OfFloats(i.op, type, a, b, c) : OfIntegers(i, type, a, b, c);
    }
  }

  static std::string OfFloats(Op op, DType type, const std::string& a, const std::string& b,
                              const std::string& c) {
    switch (op) {
      case Op::kNeg: return StrCat("-", a);
      case Op::kAdd: return Substitute("$0 + $1", a, b);
      case Op::kMul: return Substitute("$0 * $1", a, b);
      case Op::kFDiv: return Substitute("$0 / $1", a, b);
      case Op::kMax: return Substitute("ob_max$0($1, $2)", type == DType::kF64 ? "" : "f", a, b);
      case Op::kMulAcc: return Substitute("fma($0, $1, $2)", a, b, c);
      case Op::kSqrt: return StrCat("sqrt(", a, ")");
      case Op::kTrunc: return StrCat("trunc(", a, ")");
      case Op::kExp: return StrCat("exp(", a, ")");
      case Op::kExp2: return StrCat("exp2(", a, ")");
      case Op::kLog: return StrCat("log(", a, ")");
      case Op::kLog2: return StrCat("log2(", a, ")");
      case Op::kSin: return StrCat("sin(", a, ")");
      case Op::kCos: return StrCat("cos(", a, ")");
      case Op::kTanh: return StrCat("tanh(", a, ")");
      default: OB_CHECK(false && "no arithmetic of floats"); return "";
    }
  }

  std::string OfIntegers(const Instruction& i, DType type, const std::string& a,
                         const std::string& b, const std::string& c) const {
    const char* const name = TypeName(type);
    // Where arithmetic wraps: shorter types would be computed as signed ones.
    const char* const wide = ByteWidth(type) == 8 ? "ulong" : "uint";
    const auto wraps = [&](const char* format, const std::string& x, const std::string& y,
                           const std::string& z = "") {
      return Substitute("($0)(", name) + Substitute(format, wide, x, y, z) + ")";
    };
    const int bits = 8 * ByteWidth(type);
    const std::string amount = Substitute("($0)$1", UnsignedOf(ByteWidth(type)), b);
    switch (i.op) {
      case Op::kNeg: return wraps("($0)0 - ($0)$1", a, "");
      case Op::kAdd:
        return IsBool(type) ? Substitute("$0 || $1", a, b) : wraps("($0)$1 + ($0)$2", a, b);
      case Op::kMul:
        return IsBool(type) ? Substitute("$0 && $1", a, b) : wraps("($0)$1 * ($0)$2", a, b);
      case Op::kMulAcc: return wraps("($0)$1 * ($0)$2 + ($0)$3", a, b, c);
      case Op::kIDiv:
      case Op::kMod: return Quotient(i, type, a, b);
      case Op::kMax: return Substitute("$0 < $1 ? $1 : $0", a, b);
      case Op::kAnd: return Substitute("($0)($1 & $2)", name, a, b);
      case Op::kOr: return Substitute("($0)($1 | $2)", name, a, b);
      case Op::kXor: return Substitute("($0)($1 ^ $2)", name, a, b);
      case Op::kShl:
        return Substitute("$0 >= $1 ? ($2)0 : ($2)(($3)$4 << $5)", amount, bits, name, wide, a, b);
      case Op::kShr:
        return Substitute("($0)($1 >> ($2 >= $3 ? $4 : $5))", name, a, amount, bits,
                          IsSigned(type) ? StrCat("(", name, ")", bits - 1) : b, b) +
               (IsSigned(type) ? "" : Substitute(" * ($0)($1 < $2)", name, amount, bits));
      case Op::kThreefry: return Substitute("ob_threefry($0, $1)", a, b);
      default: OB_CHECK(false && "no arithmetic of integers"); return "";
    }
  }

  std::string Quotient(const Instruction& i, DType type, const std::string& a,
                       const std::string& b) const {
    const bool divides = i.op == Op::kIDiv;
    const char* const name = TypeName(type);
    const Instruction& divisor = at(i.src[1]);
    const std::string plain = Substitute("($0)($1 $2 $3)", name, a, divides ? "/" : "%", b);
    if (divisor.code == Code::kConst && divisor.imm[0] > 0) return plain;
    const std::string by_zero = divides ? StrCat("(", name, ")0") : a;
    if (!IsSigned(type)) return Substitute("$0 == 0 ? $1 : $2", b, by_zero, plain);
    const char* const wide = ByteWidth(type) == 8 ? "ulong" : "uint";
    const std::string by_minus_one =
        divides ? Substitute("($0)(($1)0 - ($1)$2)", name, wide, a) : StrCat("(", name, ")0");
    return Substitute("$0 == 0 ? $1 : $0 == -1 ? $2 : $3", b, by_zero, by_minus_one, plain);
  }

  std::string Cast(DType from, DType to, const std::string& x) const {
    if (from == to) return x;
    if (IsBool(to)) return StrCat("(", x, " != 0)");
    if (!IsFloat(to))
      return IsFloat(from) ? Saturated(from, to, x) : Substitute("($0)$1", TypeName(to), x);
    if (!IsSmall(to)) return Substitute("($0)$1", TypeName(to), x);
    if (from == DType::kF64) return Rounded(to, StrCat("ob_odd(", x, ")"));
    if (IsInt(from) && ByteWidth(from) > 2 && device_.fp64)
      return Rounded(to, Substitute("ob_odd((double)$0)", x));
    return Rounded(to, StrCat("(float)", x));
  }

  // Towards zero; beyond the range its nearest end; 0 for a NaN.
  static std::string Saturated(DType from, DType to, const std::string& x) {
    const int bits = 8 * ByteWidth(to) - IsSigned(to);
    const char* const real = from == DType::kF64 ? "double" : "float";
    const auto power = [&](int exponent) {  // 2^exponent, exact in either type
      return Substitute("($0)as_float(0x$1u)", real, absl::Hex((127u + exponent) << 23));
    };
    const std::string least = IsSigned(to) ? StrCat("-", power(bits)) : StrCat("(", real, ")0");
    const std::string most =
        to == DType::kU64 ? "(ulong)0xfffffffffffffffful" : Literal(to, IntMax(to));
    return Substitute("$0 != $0 ? ($1)0 : $0 <= $2 ? $3 : $0 >= $4 ? $5 : ($1)$0", x, TypeName(to),
                      least, Literal(to, IntMin(to)), power(bits), most);
  }

  std::string Bitcast(DType from, DType to, const std::string& x) const {
    if (from == to) return x;
    const char* const bits = UnsignedOf(ByteWidth(from));
    const std::string raw = IsSmall(from) ? Substitute("($0)ob_pack_$1($2)", bits, NameOf(from), x)
                                          : Substitute("as_$0($1)", bits, x);
    return IsSmall(to) ? Substitute("ob_unpack_$0((uint)$1)", NameOf(to), raw)
                       : Substitute("as_$0($1)", TypeName(to), raw);
  }

  const Program& program_;
  const OpenClDevice& device_;
  std::string body_;
  int depth_ = 1;
};

}  // namespace

absl::StatusOr<CompiledKernel> RenderOpenClC(const Program& program, const std::string& symbol,
                                             const OpenClDevice& device) {
  CompiledKernel out;
  out.form = CompiledKernel::Form::kOpenClC;
  out.symbol = symbol;
  out.buffer_count = program.buffer_count;
  out.blocks[0] = program.Extent(Grid::kBlock);
  out.threads[0] = program.Extent(Grid::kThread);
  out.shared_bytes = program.shared_bytes();
  out.reads_vars = program.reads_vars();
  out.tasks = program.code.empty() ? 0 : out.blocks[0];
  if (out.threads[0] > device.threads_max || out.shared_bytes > device.shared_bytes_max)
    return absl::ResourceExhaustedError(StrCat("device ", device.name,
                                               " has no room for blocks of ", out.threads[0],
                                               " threads with ", out.shared_bytes, " bytes"));
  OB_ASSIGN_OR_RETURN(out.object, Printer(program, device).Run(symbol));
  return out;
}

}  // namespace outboard::render
