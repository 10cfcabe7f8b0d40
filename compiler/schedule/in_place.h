// Writes results over donated inputs, and large temporaries over others.
//
// A Run may donate inputs: no later item reads them (old weights of an optimiser, a cache before
// its update). A result of the same size can be written into such memory once every kernel that
// reads the input has run. One kernel may read and write it if it loads only the element that it
// stores: all loads of an element precede its stores.
//
// A temporary is written over another one of the same size by the same rule. Its kernel may also
// load the row that it stores, if it does so in reductions before the first store of the row: the
// gradient of a cross-entropy is written over the logits. A later kernel that reads few elements of
// what is written over (a loss, at the labels) gets them from a small kernel before it
// (in_place/pick.h).
//
// Obstacles, and what happens:
//   - a later kernel still reads the input: the writer, and all that depends on it, moves after
//     that kernel; if that kernel depends on the writer, the result gets memory of its own;
//   - the writer also reads other elements of the input (permuted, windowed, gathered, reduced) or
//     computes an element more than once: memory of its own;
//   - threads of a GPU may divide a sum, each step of which reads the input: one of them would
//     store what others still read, and a kernel in which they may not adds in another order:
//     memory of its own, so that a Run has the same bits whether an input is donated or not;
//   - two results want one input: the first in the SINK gets it;
//   - a dimension made of VARs, a gated store, or a move past more kernels than pays off: memory of
//     its own.
// Whether another holder of the input exists is known only at run time; the engine checks that
// (worker/engine/engine.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/collective/cut.h"
#include "compiler/schedule/fuse_kernels.h"

namespace outboard::schedule {

// Maps a result to the PARAM whose memory it takes, and a temporary to another one, whose memory is
// its own.
using WrittenOver = absl::flat_hash_map<const UOp*, const UOp*>;

// The value whose memory holds `node`.
inline const UOp* MemoryOf(const WrittenOver& over, const UOp* node) {
  const auto other = over.find(node);
  return other == over.end() ? node : other->second;
}

// Decides for each of `results`, in order. May reorder `kernels`; their order is valid before and
// after. A kernel that reads an input and overwrites it has one GLOBAL for both. `donated` are
// PARAM slots, without those that a transfer sends. A kernel that waits for a transfer comes after
// those in `sent` in any order. `divided_sums`: threads of the target may divide a sum.
// Deterministic.
WrittenOver WriteInPlace(Graph& graph, std::vector<FusedKernel>& kernels,
                         std::span<const UOp* const> results, std::span<const int64_t> donated,
                         bool divided_sums, const SentBefore& sent = {});

// Returns `over` with those temporaries of at least `bytes_least` bytes that are written over
// others, neither of which is in `fixed` (results, what transfers send and receive). May reorder
// `kernels`, which WriteInPlace has left, and add small ones; bits stay what they are.
// Deterministic. Does nothing where `graph` is close to its limit of nodes. `walked`, where asked
// for: how many buffers and nodes of kernels were looked at.
WrittenOver WriteTemporariesInPlace(Graph& graph, std::vector<FusedKernel>& kernels,
                                    const absl::flat_hash_set<const UOp*>& fixed,
                                    int64_t bytes_least, const WrittenOver& over, bool divided_sums,
                                    const SentBefore& sent = {}, int64_t* walked = nullptr);

}  // namespace outboard::schedule
