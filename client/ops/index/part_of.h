// What a Tensor that is part of another one knows of it: an assign to the part is written to the
// whole at the same places (items.h). Kept by the part's TensorState; it keeps the whole alive.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::internal {

struct PartOf {
  Tensor whole;
  std::vector<Index> indices;    // without tensors
  const UOp* written = nullptr;  // what the whole became by the last assign to the part
};

}  // namespace outboard::internal
