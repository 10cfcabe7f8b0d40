// Lets a late reader of few elements go, so that what it reads can be written over before: a small
// kernel stores these elements apart, and the reader takes them from there.
#pragma once

#include <optional>

#include "compiler/ir/uop.h"
#include "compiler/schedule/fuse_kernels.h"

namespace outboard::schedule {

struct Picked {
  FusedKernel pick;    // stores the elements; reads `value`
  FusedKernel reader;  // reads them instead of `value`
};

// Divides a kernel that loads few elements of `value` by one LOAD, at places that it finds in other
// buffers: a loss, which reads the logits at the labels. nullopt where it reads more of them than a
// 64th of all, by several LOADs, or at places that a reduction computes. The bits are the same.
std::optional<Picked> PickElements(Graph& graph, const FusedKernel& reader, const UOp* value);

}  // namespace outboard::schedule
