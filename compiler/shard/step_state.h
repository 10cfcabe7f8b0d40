// Which inputs of a step are state, and which of its results take their places in the next step.
//
// A client does not say what replaces what: a result that is computed from an input element by
// element, as an optimizer computes weights and moments, replaces it. Of several such inputs the
// nearest is meant that nothing else replaces. Results of another kind replace what is left of
// their type and shape, in order. A wrong guess costs time and no value. Threads: pure.
#pragma once

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/mesh.h"

namespace outboard::shard {

struct StepState {
  static constexpr int kNothing = -1;

  std::vector<const UOp*> params;  // the inputs, by slot
  std::vector<bool> is_state;      // by slot
  std::vector<int> replaced;       // by result: the slot of the state that it replaces, or kNothing

  bool has_state() const {
    return std::find(is_state.begin(), is_state.end(), true) != is_state.end();
  }
  // How the inputs of the next step lie where results of this one, which found them at `params`,
  // lie as `results` says. Both may be shorter: the rest is whole.
  std::vector<Layout> LayoutsAfter(absl::Span<const Layout> params,
                                   absl::Span<const Layout> results) const;
};

// `is_state`: by slot, as ShardOptions::state; missing slots are state if a result has their type
// and shape.
StepState StateOf(const UOp* sink, std::vector<bool> is_state);

}  // namespace outboard::shard
