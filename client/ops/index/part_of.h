// Links a Tensor that is a view of another one, the whole: an assign to the view is written to the
// whole, and what is written to the whole later shows in the view. Owned by the view's TensorState;
// keeps the whole alive until the view is realised and nobody else has the whole.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "client/lazy/lazy_graph.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

struct PartOf {
  using Read = std::function<Tensor(const Tensor& whole)>;
  using Write = std::function<Tensor(const Tensor& whole, const Tensor& value)>;

  Tensor whole;
  Read read;                     // the view
  Write with;                    // the whole with another value of the view
  std::vector<Index> indices;    // of whole[indices], without tensors
  const UOp* written = nullptr;  // the node of the whole after the last assign to the view
  uint64_t writes = 0;           // of the whole, of which the view knows

  // Whether nobody but this view, and views that this one is of, has the whole.
  bool IsOnlyReader() const;
};

// Whether others may wait for what is written to it; what is lazy and nothing else is just
// replaced.
bool Lasts(const TensorState& value);

// Computes the view anew if its whole was written to since.
void FollowWhole(TensorState& value);

// Returns read(x), as a view of x if that lasts. `with` undoes it.
template <typename ReadOf, typename WriteOf>
Tensor ViewOf(const Tensor& x, ReadOf read, WriteOf with) {
  Tensor y = read(x);
  if (y.value() == x.value() || !Lasts(*x.value())) return y;
  y.value()->part = std::make_shared<PartOf>(
      PartOf{x, std::move(read), std::move(with), {}, nullptr, x.value()->writes});
  return y;
}

}  // namespace outboard::internal
