// Which inputs of a step are state, and which of its results take their places in the next step.
//
// A Run that repeats its graph says which result it carries to which input. Elsewhere a client does
// not say what replaces what, only which inputs end with the Run (are donated): state that a Run
// leaves in place, as weights that are only read, nothing replaces. A result that is computed from
// a donated input element by element, as an optimizer computes weights and moments, replaces it.
// Of several such inputs the nearest is meant that nothing else replaces. Results of another kind
// replace what is left of their type and shape, in order. A wrong guess costs time and no value.
// Threads: pure.
#pragma once

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/mesh.h"
#include "compiler/shard/shard.h"

namespace outboard::shard {

struct StepState {
  static constexpr int kNothing = -1;

  std::vector<const UOp*> params;  // the inputs, by slot
  std::vector<bool> is_state;      // by slot
  std::vector<bool> is_donated;    // by slot: the Run ends it
  std::vector<int> replaced;       // by result: the slot of the state that it replaces, or kNothing

  bool has_state() const {
    return std::find(is_state.begin(), is_state.end(), true) != is_state.end();
  }
  // How the inputs of the next step lie where results of this one, which found them at `params`,
  // lie as `results` says. Both may be shorter: the rest is whole.
  std::vector<Layout> LayoutsAfter(absl::Span<const Layout> params,
                                   absl::Span<const Layout> results) const;
};

// By ShardOptions::state, donated and carried_to, with what these say of missing slots and results.
StepState StateOf(const UOp* sink, const ShardOptions& options);

}  // namespace outboard::shard
