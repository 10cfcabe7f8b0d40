#include "client/ops/index/masks.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/ops/window/windows.h"

namespace outboard {

using internal::NodeBuilder;

namespace {

// Which elements of a flat mask are true, one after the other.
struct Chosen {
  const UOp* places;    // i32 [size]; what is beyond the last one is out of range
  const UOp* is_there;  // bool [size]
};

// The place of the k-th true element is the count of places up to which at most k are true. Those
// counts rise, so a bisection finds it: log2(n) look-ups for each.
Chosen ChosenBy(const NodeBuilder& rec, const Tensor& mask, int64_t size) {
  if (size < 0) rec.Invalid(absl::StrCat("a size of ", size));
  const int64_t n = mask.numel(rec.at());
  const UOp* const k = rec.IotaAlong(DType::kI32, {Dim(size)}, 0);
  const auto number = [&](int64_t value) { return rec.FullLike(k, static_cast<double>(value)); };
  if (n == 0) return {number(0), rec.Full(rec.ConstInt(DType::kBool, 0), k->shape)};
  const UOp* const upto =
      rec.Alu(Op::kContiguous, mask.cast(DType::kI32, rec.at()).cumsum(0, rec.at()).NodeIn(rec));
  const UOp* count = number(0);
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0;
       step /= 2) {
    const UOp* const next = rec.Add(count, number(step));
    const UOp* const trues = internal::Gather(rec, upto, 0, rec.Sub(next, number(1)));
    const UOp* const goes_on = rec.Alu(Op::kAnd, rec.Alu(Op::kCmpLt, next, number(n + 1)),
                                       rec.Not(rec.Alu(Op::kCmpLt, k, trues)));
    count = rec.Where(goes_on, next, count);
  }
  return {count, rec.Alu(Op::kCmpLt, count, number(n))};
}

Tensor Flat(const Tensor& x, const At& at) { return x.flatten(0, -1, at); }

// Throws unless it is of bool.
Tensor MaskFor(const Tensor& x, const Tensor& mask, const At& at) {
  if (!IsBool(mask.dtype(at)))
    ThrowInvalid(at,
                 absl::StrCat("a mask must be of bool, not ", std::string(Name(mask.dtype(at)))));
  return Flat(mask.expand(x.shape(at), at), at);
}

int64_t CountTrue(const Tensor& flat, const At& at) {
  return flat.cast(DType::kI64, at).sum({}, false, at).item<int64_t>(at);
}

Tensor Taken(const Tensor& x, const Tensor& mask, int64_t size, double fill, const At& at) {
  const NodeBuilder rec(at);
  const Chosen chosen = ChosenBy(rec, mask, size);
  const UOp* const taken = internal::Gather(rec, Flat(x, at).NodeIn(rec), 0, chosen.places);
  if (fill == 0) return Tensor::FromNode(rec, taken);
  return Tensor::FromNode(rec, rec.Where(chosen.is_there, taken, rec.FullLike(taken, fill)));
}

Tensor Coordinates(const Tensor& x, const Tensor& mask, int64_t size, double fill, const At& at) {
  const NodeBuilder rec(at);
  const Dims dims = x.shape(at);
  if (dims.empty()) return Tensor::zeros({size, 0}, DType::kI32, at);
  const Chosen chosen = ChosenBy(rec, mask, size);
  const auto number = [&](double value) { return rec.FullLike(chosen.places, value); };
  std::vector<Tensor> columns;
  int64_t below = 1;
  for (const int64_t dim : dims) below *= dim;
  for (const int64_t dim : dims) {
    if (below == 0)
      return Tensor::full({size, static_cast<int64_t>(dims.size())}, fill, DType::kI32, at);
    below /= dim;
    const UOp* const rows = rec.Alu(Op::kIDiv, chosen.places, number(static_cast<double>(below)));
    const UOp* const column = rec.Alu(Op::kMod, rows, number(static_cast<double>(dim)));
    columns.push_back(Tensor::FromNode(rec, rec.Where(chosen.is_there, column, number(fill))));
  }
  return Tensor::stack(columns, 1, at);
}

Tensor NotZero(const Tensor& x, const At& at) { return Flat(x, at).cast(DType::kBool, at); }

}  // namespace

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Arg& value) {
  return mask.where(value, Arg(x, value.at()));
}

Tensor masked_select(const Tensor& x, const Tensor& mask, At at) {
  const Tensor flat = MaskFor(x, mask, at);
  return Taken(x, flat, CountTrue(flat, at), 0, at);
}

Tensor masked_select(const Tensor& x, const Tensor& mask, int64_t size, double fill, At at) {
  return Taken(x, MaskFor(x, mask, at), size, fill, at);
}

Tensor nonzero(const Tensor& x, At at) {
  const Tensor flat = NotZero(x, at);
  return Coordinates(x, flat, CountTrue(flat, at), 0, at);
}

Tensor nonzero(const Tensor& x, int64_t size, double fill, At at) {
  return Coordinates(x, NotZero(x, at), size, fill, at);
}

}  // namespace outboard
