// Binary operations that are not methods of Tensor, with Python's semantics where C++ differs:
// `floor_div` and `floor_mod` are Python's // and %.
//
// Shapes: broadcast from the right. Types: promoted as by `a + b`. Errors: INVALID_ARGUMENT for
// types that do not fit, and for a negative power of integers. Threads: as tensor.h.
#pragma once

#include <optional>

#include "client/tensor/tensor.h"

namespace outboard {

// The quotient rounded down. Of integers x / 0 is 0.
Tensor floor_div(const Arg& a, const Arg& b);
// a - floor_div(a, b) * b, which has the sign of b. Of integers x % 0 is x.
Tensor floor_mod(const Arg& a, const Arg& b);
// The quotient rounded towards zero, as idiv, and of floats too.
Tensor trunc_div(const Arg& a, const Arg& b);
// a - trunc_div(a, b) * b, which has the sign of a.
Tensor fmod(const Arg& a, const Arg& b);

// Integers stay integers and wrap. A negative exponent of integers: an error if it is a number; as
// an element of a tensor it gives the result rounded towards zero, which is 0, or 1 and -1 for
// bases 1 and -1. Floats: a negative base with an exponent that is not whole gives NaN.
Tensor pow(const Arg& base, const Arg& exponent);

// Returns |a| with the sign of b, also that of a zero; a itself for unsigned types.
Tensor copysign(const Arg& a, const Arg& b);
// log(exp(a) + exp(b)), of floats.
Tensor logaddexp(const Arg& a, const Arg& b);
// Returns start + (end - start) * weight; integers become f32 if the weight is of floats. u8 stays
// u8, rounded, if the weight is a tensor, as for pictures.
Tensor lerp(const Tensor& start, const Arg& end, const Arg& weight);
// low where x is below it, high where x is above. One of them may be missing.
Tensor clamp(const Tensor& x, const std::optional<Arg>& low, const std::optional<Arg>& high,
             At at = At::current());

// True where |a - b| <= atol + rtol * |b|; infinities where they are equal. NaN is close to NaN
// only if requested.
Tensor isclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
// True if all elements are close; one element.
Tensor allclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8,
                bool equal_nan = false);
// True at infinities of one sign, or of both.
Tensor isinf(const Tensor& x, bool detect_positive, bool detect_negative, At at = At::current());

// Inverts every bit; for bool the truth value.
Tensor bitwise_not(const Tensor& x, At at = At::current());
// One step of the random numbers' generator (docs/semantics.md), of u64.
Tensor threefry(const Arg& counter, const Arg& key);

}  // namespace outboard
