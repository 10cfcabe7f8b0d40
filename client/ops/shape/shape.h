// Movements beyond Tensor's methods: axes by name, padding modes, diagonals, grids and sliding
// windows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Splits, reorders and merges axes by name.
//
// rearrange(x, "batch (rows width) -> rows batch width", {{"width", 4}}) is a reshape, a permute
// and a reshape, in the notation of einops. "..." stands for the axes that have no name, "1" and
// "()" for one of length 1. In each parenthesis on the left one length may be left open.
// Errors: INVALID_ARGUMENT for names that are not the same on both sides, parentheses that do not
//         match, lengths that do not come out even; the message quotes the formula.

Tensor rearrange(const Tensor& x, std::string_view formula,
                 const std::map<std::string, int64_t>& sizes = {}, At at = At::current());

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

// The padding: a number, the elements mirrored at the edge (which is not repeated), the edge's
// element, or the elements of the opposite end.
enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

// {before, after} per axis; symbolic sizes for kConstant only. The value promotes like an operand:
// a fraction makes integers f32.
Tensor pad(const Tensor& x, const SymIntPairs& sides, PadMode mode, const Arg& value = 0,
           At at = At::current());

// Makes and reads diagonals of matrices. For the elements on one side of them see Tensor::triu and
// tril.
//
// Gradient: to the places that were taken; they only move elements, of every type.
// Errors:   INVALID_ARGUMENT where ranks and axes are not as below.

// [n] -> [n, n], zeros beside the diagonal.
Tensor diag(const Tensor& x, At at = At::current());

// Returns x without the axes a and b, and with their diagonal as the last axis: the elements x[..,
// i, .., i + offset, ..]. Empty if the offset is outside of the matrix.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t a = 0, int64_t b = 1,
                At at = At::current());

// Grids, repetitions and sliding windows over tensors.
//
// They only move elements, of every type; the gradient of what is read several times adds up.
// Errors: INVALID_ARGUMENT where ranks, axes and sizes are not as below.

// Takes k tensors with one axis (a scalar counts as length 1); returns k tensors whose shape is all
// their lengths: in result i the elements of tensor i run along axis i. "xy" exchanges the first
// two axes.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& parts, std::string_view indexing = "ij",
                             At at = At::current());

// Repeats each element `times` times in a row, along `axis`; or in the flattened tensor.
Tensor repeat_interleave(const Tensor& x, int64_t times, std::optional<int64_t> axis = {},
                         At at = At::current());

// Returns windows of `size` elements, the first at 0, the next `step` further, as many as fit:
// `axis` has one position per window, and a last axis of length `size` is added.
Tensor unfold(const Tensor& x, int64_t axis, int64_t size, int64_t step, At at = At::current());

}  // namespace outboard
