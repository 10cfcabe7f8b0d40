// From tensors that are asked for to one Run: which lazy values belong to it, and what comes before
// it and after it. The Run itself is made by a Realization (realization.h).
// Errors are thrown as outboard::Error. Threads: each has its own lazy values.
#pragma once

#include <memory>
#include <vector>

#include "client/lazy/lazy_graph.h"
#include "client/tensor/error.h"
#include "compiler/ir/uop.h"

namespace outboard::internal {

// See realize() in client/tensor/tensor.h. Values that are realised already are only fetched. With
// `keep_pins` no buffer is donated, so that nodes without a TensorState stay valid: for a realize
// in the middle of an operation.
void RealizeValues(std::vector<std::shared_ptr<TensorState>> values,
                   const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at,
                   bool keep_pins = false);

// Returns the lazy ones of `values`, `fetch`, the pending assigns and new state, each once, in this
// order.
std::vector<std::shared_ptr<TensorState>> LazyValues(
    std::vector<std::shared_ptr<TensorState>> values,
    const std::vector<std::shared_ptr<TensorState>>& fetch);

// Returns the node of `state` in `lazy_graph`, which may be older than the current one. Realises
// state before its first use.
const UOp* NodeOfValue(const std::shared_ptr<TensorState>& state,
                       const std::shared_ptr<LazyGraph>& lazy_graph, const At& at);

}  // namespace outboard::internal
