// Operations on two operands beside those of Tensor itself, with Python's meaning where C++ has
// another: `floor_div` and `floor_mod` are its // and %.
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

// Integers stay integers and wrap, where the exponent is a number it must not be negative then; an
// element of a tensor that is gives what rounds towards zero: 0, or 1 and -1 of 1 and -1. Floats: a
// negative number to a power that is no integer is NaN.
Tensor pow(const Arg& base, const Arg& exponent);

// |a| with the sign of b, also that of a zero; a itself of a type without signs.
Tensor copysign(const Arg& a, const Arg& b);
// log(exp(a) + exp(b)), of floats.
Tensor logaddexp(const Arg& a, const Arg& b);
// start + (end - start) * weight; integers become f32 where the weight is of floats. u8 stays u8,
// rounded, where the weight is a tensor, as for pictures.
Tensor lerp(const Tensor& start, const Arg& end, const Arg& weight);
// low where x is below it, high where x is above. One of them may be missing.
Tensor clamp(const Tensor& x, const std::optional<Arg>& low, const std::optional<Arg>& high,
             At at = At::current());

// Whether |a - b| <= atol + rtol * |b|; infinities where they are equal. NaN is close to NaN only
// if asked for.
Tensor isclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
// Whether all are, in one element.
Tensor allclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8,
                bool equal_nan = false);
// Infinities of one sign, or of both.
Tensor isinf(const Tensor& x, bool detect_positive, bool detect_negative, At at = At::current());

// The other value of each bit; of bool the other truth value.
Tensor bitwise_not(const Tensor& x, At at = At::current());
// One step of the random numbers' generator (docs/semantics.md), of u64.
Tensor threefry(const Arg& counter, const Arg& key);

}  // namespace outboard
