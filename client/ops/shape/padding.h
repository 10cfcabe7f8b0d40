// Padding with more than a constant: with what lies at the other side of an edge, with the edge
// itself, or with the other end.
//
//   constant   0 0 | a b c | 0 0        replicate  a a | a b c | c c
//   reflect    c b | a b c | b a        circular   b c | a b c | a b
//
// A negative side cuts as much off: before the padding of the other sides, but for reflect and
// replicate after it.
// Errors: INVALID_ARGUMENT for another count of pairs, a cut of more than there is, a reflection of
// as much as there is or more, and an end that is repeated more than once.
// Threads: as Tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// A number, the elements mirrored at the edge (which is not repeated), the edge's element, or those
// of the other end.
enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

// {before, after} for each axis; only kConstant takes sizes of variables. The value promotes as an
// operand does: a fraction makes integers f32.
Tensor pad(const Tensor& x, const SymIntPairs& sides, PadMode mode, const Arg& value = 0,
           At at = At::current());

}  // namespace outboard
