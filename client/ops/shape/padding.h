// Padding with more than a constant: with what lies at the other side of an edge, with the edge
// itself, or with the other end.
//
//   constant   0 0 | a b c | 0 0        replicate  a a | a b c | c c
//   reflect    c b | a b c | b a        circular   b c | a b c | a b
//
// A negative side removes elements: before the other sides are padded, but for reflect and
// replicate afterwards.
// Errors: INVALID_ARGUMENT for a wrong number of pairs, removing more elements than there are,
// reflecting as many elements as there are or more, and circular padding longer than the axis.
// Threads: as Tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// The padding: a number, the elements mirrored at the edge (which is not repeated), the edge's
// element, or the elements of the opposite end.
enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

// {before, after} per axis; symbolic sizes for kConstant only. The value promotes like an operand:
// a fraction makes integers f32.
Tensor pad(const Tensor& x, const SymIntPairs& sides, PadMode mode, const Arg& value = 0,
           At at = At::current());

}  // namespace outboard
