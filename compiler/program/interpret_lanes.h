// Arithmetic, loads and stores on the lanes of the interpreter of programs. A lane is eight bytes:
// a float by the bits of the equal double, an integer or bool as an int64_t (u64 by its bits).
// Values are always representable in their type. The results are those of compiler/reference/alu.h,
// which computes whatever is not common enough to be written here.
#pragma once

#include <bit>
#include <cstdint>

#include "compiler/ir/dtype.h"
#include "compiler/ir/op.h"

namespace outboard::program {

inline double AsFloat(int64_t bits) { return std::bit_cast<double>(bits); }
inline int64_t AsBits(double value) { return std::bit_cast<int64_t>(value); }

struct LaneOp {
  Op op = Op::kAdd;
  DType operand = DType::kVoid;  // of the sources, but for the condition of WHERE
  DType result = DType::kVoid;
  uint8_t lanes = 1;
};

// Computes `what.lanes` lanes of `out`. Sources that the operation does not have are ignored; `out`
// overlaps none of them.
using LaneFunction = void (*)(const LaneOp& what, const int64_t* a, const int64_t* b,
                              const int64_t* c, int64_t* out);
LaneFunction FunctionOf(Op op, DType operand);

void CastLanes(DType from, DType to, const int64_t* in, int lanes, int64_t* out);
// `lanes` are those of `in`; `out` has as many bytes.
void BitcastLanes(DType from, DType to, const int64_t* in, int lanes, int64_t* out);

// Consecutive elements at `bytes`.
void LoadLanes(DType dtype, const char* bytes, int lanes, int64_t* out);
void StoreLanes(DType dtype, const int64_t* in, int lanes, char* bytes);

}  // namespace outboard::program
