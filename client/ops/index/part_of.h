// Links a Tensor that is part of another one to the whole: an assign to the part is written to the
// whole at the same indices (client/lazy/items.h). Owned by the part's TensorState; keeps the whole
// alive.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::internal {

struct PartOf {
  Tensor whole;
  std::vector<Index> indices;    // without tensors
  const UOp* written = nullptr;  // the node of the whole after the last assign to the part
};

}  // namespace outboard::internal
