// Parts of tensors that fit for some values of a variable only.
//
//   x is [10, 4]; start has the range 0..10 and is bound to 3: x[start:start+1] fits for 0..9.
//
// A graph is valid for all values of its VARs, which the compiler relies on
// (docs/decisions/018-rooms-for-variables.md, 056-ranges-that-fit.md). So what this thread records
// from now on has `start` with the range 0..9, if it is bound to one of these values; bound to
// another it has the whole range. Lazy tensors change with it, so that a size has one expression.
// It ends with the realize that leaves no lazy tensor of the variable. The range depends on the
// tensors only, if one variable alone can be narrowed; else on the values of the variables too.
//
// Threads: those of NodeBuilder.
#pragma once

#include <span>

#include "client/lazy/node_builder.h"

namespace outboard::internal {

// What has to hold for all values of the variables: 0 <= low <= high.
struct Ascending {
  SymInt low, high;
};

// Narrows variables in so far that `wanted` is proved for all of their values. Returns false, and
// does nothing, if some of it does not hold for the values that they are bound to.
//
// Nodes that the caller has are of the ranges before: take them from their tensors again, as
// Settled() does. Throws Error as NodeBuilder::DimOf.
bool NarrowToFit(const NodeBuilder& build, std::span<const Ascending> wanted);

// Returns make(), which calls NarrowToFit before or after it takes nodes; makes it again if that
// has narrowed a variable.
template <typename Make>
auto Settled(const NodeBuilder& build, const Make& make) {
  for (;;) {
    const int64_t before = build.lazy_graph()->narrowing_count();
    auto made = make();
    if (build.lazy_graph()->narrowing_count() == before) return made;
  }
}

}  // namespace outboard::internal
