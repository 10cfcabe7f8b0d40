// Arithmetic on single constants, as docs/semantics.md defines it: for rules that fold, and for
// dimensions whose variables are bound. Threads: pure. Errors: none; nullopt if nothing is folded.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/dtype.h"
#include "compiler/ir/op.h"

namespace outboard {

// op(a, b) on integers or bools of `dtype`, the type of the sources; u64 by its bits. Unary
// operations ignore `b`. nullopt if the operation is not defined on integers, or is THREEFRY, which
// code generation decomposes.
std::optional<int64_t> FoldInt(Op op, DType dtype, int64_t a, int64_t b);

// op(a, b) on floats of `dtype`, rounded to it. nullopt for comparisons, and for EXP2, LOG2 and
// SIN, whose last bits differ between machines: a graph must fold to the same bits everywhere.
std::optional<double> FoldFloat(Op op, DType dtype, double a, double b);
// Evaluates a comparison of floats.
bool FoldFloatCompare(Op op, double a, double b);

// CAST of a constant. Values are given and returned as a CONST's argument: int64_t, or the bits of
// a double. nullopt for the casts that backends may round twice.
std::optional<int64_t> FoldCast(DType from, DType to, int64_t bits);

}  // namespace outboard
