#include <bit>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/ops/index/index.h"
#include "client/ops/window/sliding.h"

namespace outboard {

using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

// Which elements of a flat mask are true, one after the other.
struct Chosen {
  NodeExpr places;    // i32 [size]; what is beyond the last one is out of range
  NodeExpr is_there;  // bool [size]
};

// The place of the k-th true element is the count of places up to which at most k are true. Those
// counts rise, so a bisection finds it: log2(n) look-ups for each.
Chosen ChosenBy(const NodeBuilder& rec, const Tensor& mask, int64_t size) {
  if (size < 0) rec.Invalid(absl::StrCat("a size of ", size));
  const int64_t n = mask.numel();
  const NodeExpr k = Iota(rec, DType::kI32, {Dim(size)}, 0);
  NodeExpr count = k.Full(0);
  if (n == 0) return {count, {rec, rec.Full(rec.ConstInt(DType::kBool, 0), k->shape)}};
  const NodeExpr upto = ExprOf(rec, mask.cast(DType::kI32).cumsum(0)).Contiguous();
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0;
       step /= 2) {
    const NodeExpr next = count + static_cast<double>(step);
    const NodeExpr trues = internal::Gather(upto, 0, next - next.Full(1));
    const NodeExpr goes_on = (next < static_cast<double>(n + 1)) & !(k < trues);
    count = Where(goes_on, next, count);
  }
  return {count, count < static_cast<double>(n)};
}

// Throws unless it is of bool.
Tensor MaskFor(const Tensor& x, const Tensor& mask) {
  if (!IsBool(mask.dtype()))
    ThrowInvalid(absl::StrCat("a mask must be of bool, not ", std::string(Name(mask.dtype()))));
  return mask.expand(x.shape()).flatten();
}

int64_t CountTrue(const Tensor& flat) {
  return flat.cast(DType::kI64).sum().item<int64_t>(CallSite::Line());
}

Tensor Taken(const Tensor& x, const Tensor& mask, int64_t size, double fill) {
  const NodeBuilder rec;
  const auto& [places, is_there] = ChosenBy(rec, mask, size);
  const NodeExpr taken = internal::Gather(ExprOf(rec, x.flatten()), 0, places);
  return TensorOf(fill == 0 ? taken : Where(is_there, taken, fill));
}

Tensor Coordinates(const Tensor& x, const Tensor& mask, int64_t size, double fill) {
  const NodeBuilder rec;
  const Dims dims = x.shape();
  if (dims.empty()) return Tensor::zeros({size, 0}, DType::kI32);
  const auto& [places, is_there] = ChosenBy(rec, mask, size);
  std::vector<Tensor> columns;
  int64_t below = 1;
  for (const int64_t dim : dims) below *= dim;
  for (const int64_t dim : dims) {
    if (below == 0)
      return Tensor::full({size, static_cast<int64_t>(dims.size())}, fill, DType::kI32);
    below /= dim;
    const NodeExpr column = IDiv(places, static_cast<double>(below)) % static_cast<double>(dim);
    columns.push_back(TensorOf(Where(is_there, column, fill)));
  }
  return Tensor::stack(columns, 1);
}

Tensor NotZero(const Tensor& x) { return x.flatten().cast(DType::kBool); }

}  // namespace

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Arg& value) {
  const CallSite site(value.at());
  return mask.where(value, x);
}

Tensor masked_select(const Tensor& x, const Tensor& mask, At at) {
  const CallSite site(at);
  const Tensor flat = MaskFor(x, mask);
  return Taken(x, flat, CountTrue(flat), 0);
}

Tensor masked_select(const Tensor& x, const Tensor& mask, int64_t size, double fill, At at) {
  const CallSite site(at);
  return Taken(x, MaskFor(x, mask), size, fill);
}

Tensor nonzero(const Tensor& x, At at) {
  const CallSite site(at);
  const Tensor flat = NotZero(x);
  return Coordinates(x, flat, CountTrue(flat), 0);
}

Tensor nonzero(const Tensor& x, int64_t size, double fill, At at) {
  const CallSite site(at);
  return Coordinates(x, NotZero(x), size, fill);
}

}  // namespace outboard
