#include "compiler/program/interpret_lanes.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compiler/program/program.h"
#include "compiler/reference/alu.h"

namespace outboard::program {
namespace {

// ---- everything, slowly
void Into(reference::LaneBlock& block, DType dtype, const int64_t* values, int lanes) {
  block.Resize(dtype, lanes);
  for (int lane = 0; lane < lanes; ++lane)
    IsFloat(dtype) ? void(block.f[lane] = AsFloat(values[lane]))
                   : void(block.i[lane] = values[lane]);
}

void From(const reference::LaneBlock& block, DType dtype, int64_t* values, int lanes) {
  for (int lane = 0; lane < lanes; ++lane)
    values[lane] = IsFloat(dtype) ? AsBits(block.f[lane]) : block.i[lane];
}

struct Scratch {
  reference::LaneBlock a, b, out;
};
Scratch& ScratchOfThread() {
  thread_local Scratch scratch;
  return scratch;
}

void ByReference(const LaneOp& what, const int64_t* a, const int64_t* b, const int64_t*,
                 int64_t* out) {
  Scratch& scratch = ScratchOfThread();
  Into(scratch.a, what.operand, a, what.lanes);
  if (!IsUnary(what.op)) Into(scratch.b, what.operand, b, what.lanes);
  reference::AluTile(what.op, what.operand, scratch.a, scratch.b, scratch.out);
  From(scratch.out, what.result, out, what.lanes);
}

// ---- what is common
struct NotRounded {
  static double Of(DType, double value) { return value; }
};
struct ToF32 {
  static double Of(DType, double value) { return static_cast<float>(value); }
};
struct ToSmall {
  static double Of(DType dtype, double value) { return RoundTo(dtype, value); }
};
struct NotWrapped {
  static int64_t Of(DType, uint64_t value) { return static_cast<int64_t>(value); }
};
struct Wrapped {
  static int64_t Of(DType dtype, uint64_t value) {
    return WrapTo(dtype, static_cast<int64_t>(value));
  }
};

template <typename F>
void EachLane(int lanes, F compute) {
  if (lanes == 1) return compute(0);
  for (int lane = 0; lane < lanes; ++lane) compute(lane);
}

template <auto kCompute, typename Round>
void Floats(const LaneOp& what, const int64_t* a, const int64_t* b, const int64_t*, int64_t* out) {
  EachLane(what.lanes, [&](int lane) {
    out[lane] = AsBits(Round::Of(what.result, kCompute(AsFloat(a[lane]), AsFloat(b[lane]))));
  });
}

template <auto kCompute>
void FloatsCompared(const LaneOp& what, const int64_t* a, const int64_t* b, const int64_t*,
                    int64_t* out) {
  EachLane(what.lanes, [&](int lane) { out[lane] = kCompute(AsFloat(a[lane]), AsFloat(b[lane])); });
}

template <auto kCompute, typename Wrap>
void Integers(const LaneOp& what, const int64_t* a, const int64_t* b, const int64_t*,
              int64_t* out) {
  EachLane(what.lanes, [&](int lane) {
    out[lane] = Wrap::Of(what.result, static_cast<uint64_t>(kCompute(a[lane], b[lane])));
  });
}

void Select(const LaneOp& what, const int64_t* a, const int64_t* b, const int64_t* c,
            int64_t* out) {
  EachLane(what.lanes, [&](int lane) { out[lane] = a[lane] != 0 ? b[lane] : c[lane]; });
}

void MulAcc(const LaneOp& what, const int64_t* a, const int64_t* b, const int64_t* c,
            int64_t* out) {
  EachLane(what.lanes, [&](int lane) {
    if (what.operand == DType::kF32)
      out[lane] = AsBits(std::fma(static_cast<float>(AsFloat(a[lane])),
                                  static_cast<float>(AsFloat(b[lane])),
                                  static_cast<float>(AsFloat(c[lane]))));
    else
      out[lane] = AsBits(std::fma(AsFloat(a[lane]), AsFloat(b[lane]), AsFloat(c[lane])));
  });
}

template <auto kCompute>
LaneFunction FloatFunction(DType dtype) {
  if (dtype == DType::kF32) return &Floats<kCompute, ToF32>;
  return dtype == DType::kF64 ? &Floats<kCompute, NotRounded> : &Floats<kCompute, ToSmall>;
}

template <auto kCompute>
LaneFunction IntegerFunction(DType dtype) {
  return ByteWidth(dtype) == 8 ? &Integers<kCompute, NotWrapped> : &Integers<kCompute, Wrapped>;
}

LaneFunction FloatFunctionOf(Op op, DType dtype) {
  switch (op) {
    case Op::kAdd: return FloatFunction<[](double x, double y) { return x + y; }>(dtype);
    case Op::kMul: return FloatFunction<[](double x, double y) { return x * y; }>(dtype);
    case Op::kFDiv: return FloatFunction<[](double x, double y) { return x / y; }>(dtype);
    case Op::kMax:
      return FloatFunction<[](double x, double y) { return reference::MaxFloat(x, y); }>(dtype);
    case Op::kCmpLt: return &FloatsCompared<[](double x, double y) { return x < y; }>;
    case Op::kCmpNe: return &FloatsCompared<[](double x, double y) { return x != y; }>;
    case Op::kCmpEq: return &FloatsCompared<[](double x, double y) { return x == y; }>;
    default: return &ByReference;
  }
}

uint64_t U(int64_t x) { return static_cast<uint64_t>(x); }

LaneFunction IntegerFunctionOf(Op op, DType dtype) {
  const bool ordered = dtype != DType::kU64;  // by int64_t
  switch (op) {
    case Op::kAdd: return IntegerFunction<[](int64_t x, int64_t y) { return U(x) + U(y); }>(dtype);
    case Op::kMul: return IntegerFunction<[](int64_t x, int64_t y) { return U(x) * U(y); }>(dtype);
    case Op::kAnd: return &Integers<[](int64_t x, int64_t y) { return x & y; }, NotWrapped>;
    case Op::kOr: return &Integers<[](int64_t x, int64_t y) { return x | y; }, NotWrapped>;
    case Op::kXor: return &Integers<[](int64_t x, int64_t y) { return x ^ y; }, NotWrapped>;
    case Op::kCmpNe: return &Integers<[](int64_t x, int64_t y) { return x != y; }, NotWrapped>;
    case Op::kCmpEq: return &Integers<[](int64_t x, int64_t y) { return x == y; }, NotWrapped>;
    case Op::kCmpLt:
      if (!ordered) return &ByReference;
      return &Integers<[](int64_t x, int64_t y) { return x < y; }, NotWrapped>;
    case Op::kMax:
      if (!ordered) return &ByReference;
      return &Integers<[](int64_t x, int64_t y) { return x < y ? y : x; }, NotWrapped>;
    case Op::kIDiv:  // a division by -1 of the lowest value would trap
      if (dtype != DType::kI64) return &ByReference;
      return &Integers<[](int64_t x, int64_t y) {
        if (y == 0) return int64_t{0};
        return y == -1 ? static_cast<int64_t>(-U(x)) : x / y;
      },
                       NotWrapped>;
    case Op::kMod:
      if (dtype != DType::kI64) return &ByReference;
      return &Integers<[](int64_t x, int64_t y) {
        if (y == 0) return x;
        return y == -1 ? int64_t{0} : x % y;
      },
                       NotWrapped>;
    default: return &ByReference;
  }
}

template <typename T>
void LoadAs(const char* bytes, int lanes, int64_t* out) {
  EachLane(lanes, [&](int lane) {
    T value;
    std::memcpy(&value, bytes + sizeof(T) * lane, sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      out[lane] = AsBits(value);
    } else {
      out[lane] = static_cast<int64_t>(value);
    }
  });
}

template <typename T>
void StoreAs(const int64_t* in, int lanes, char* bytes) {
  EachLane(lanes, [&](int lane) {
    T value;
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(AsFloat(in[lane]));
    } else {
      value = static_cast<T>(in[lane]);
    }
    std::memcpy(bytes + sizeof(T) * lane, &value, sizeof(T));
  });
}

}  // namespace

LaneFunction FunctionOf(Op op, DType operand) {
  if (op == Op::kWhere) return &Select;
  if (op == Op::kMulAcc) return &MulAcc;
  return IsFloat(operand) ? FloatFunctionOf(op, operand) : IntegerFunctionOf(op, operand);
}

void CastLanes(DType from, DType to, const int64_t* in, int lanes, int64_t* out) {
  if (IsFloat(from) && IsFloat(to))
    return EachLane(lanes, [&](int lane) { out[lane] = AsBits(RoundTo(to, AsFloat(in[lane]))); });
  if (!IsFloat(from) && !IsFloat(to))
    return EachLane(lanes, [&](int lane) { out[lane] = WrapTo(to, in[lane]); });
  if (IsFloat(to) && ByteWidth(from) <= 4)  // the integer is a double
    return EachLane(
        lanes, [&](int lane) { out[lane] = AsBits(RoundTo(to, static_cast<double>(in[lane]))); });
  Scratch& scratch = ScratchOfThread();
  Into(scratch.a, from, in, lanes);
  reference::CastTile(from, to, scratch.a, scratch.out);
  From(scratch.out, to, out, lanes);
}

void BitcastLanes(DType from, DType to, const int64_t* in, int lanes, int64_t* out) {
  char bytes[kLanesMax * 8];
  const int size = lanes * ByteWidth(from);
  OB_CHECK(size <= static_cast<int>(sizeof(bytes)) && size % ByteWidth(to) == 0);
  StoreLanes(from, in, lanes, bytes);
  LoadLanes(to, bytes, size / ByteWidth(to), out);
}

void LoadLanes(DType dtype, const char* bytes, int lanes, int64_t* out) {
  switch (dtype) {
    case DType::kI8: return LoadAs<int8_t>(bytes, lanes, out);
    case DType::kU8: return LoadAs<uint8_t>(bytes, lanes, out);
    case DType::kI16: return LoadAs<int16_t>(bytes, lanes, out);
    case DType::kU16: return LoadAs<uint16_t>(bytes, lanes, out);
    case DType::kI32: return LoadAs<int32_t>(bytes, lanes, out);
    case DType::kU32: return LoadAs<uint32_t>(bytes, lanes, out);
    case DType::kI64:
    case DType::kU64: return LoadAs<int64_t>(bytes, lanes, out);
    case DType::kF32: return LoadAs<float>(bytes, lanes, out);
    case DType::kF64: return LoadAs<double>(bytes, lanes, out);
    default: break;
  }
  const int width = ByteWidth(dtype);
  for (int lane = 0; lane < lanes; ++lane)
    out[lane] = IsFloat(dtype) ? AsBits(LoadFloat(dtype, bytes + lane * width))
                               : LoadInt(dtype, bytes + lane * width);
}

void StoreLanes(DType dtype, const int64_t* in, int lanes, char* bytes) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8: return StoreAs<uint8_t>(in, lanes, bytes);
    case DType::kI16:
    case DType::kU16: return StoreAs<uint16_t>(in, lanes, bytes);
    case DType::kI32:
    case DType::kU32: return StoreAs<uint32_t>(in, lanes, bytes);
    case DType::kI64:
    case DType::kU64: return StoreAs<int64_t>(in, lanes, bytes);
    case DType::kF32: return StoreAs<float>(in, lanes, bytes);
    case DType::kF64: return StoreAs<double>(in, lanes, bytes);
    default: break;
  }
  const int width = ByteWidth(dtype);
  for (int lane = 0; lane < lanes; ++lane)
    IsFloat(dtype) ? StoreFloat(dtype, AsFloat(in[lane]), bytes + lane * width)
                   : StoreInt(dtype, in[lane], bytes + lane * width);
}

}  // namespace outboard::program
