// Attention of few queries, as of a decoded token, by many blocks of a GPU and without its scores:
//
//   for each part i of P                    keys i, i + P, i + 2 P ... below their number n
//     m[i] = max x                          scores, -infinity beyond n
//     s[i] = sum of exp(x - m[i])
//     o[i] = sum of exp(x - m[i]) v         one kernel (program/online), which stores these three
//   M = max m[i]
//   sum of exp(m[i] - M) o[i]  /  sum of exp(m[i] - M) s[i]      another one, parts in their order
//
// (flash-decoding; the recurrence is that of Milakov and Gimelshein, arXiv 1805.02867.) The number
// of parts follows from the largest n and the class of the device, so a VAR n changes neither
// kernels nor the order of terms. Parts take turns, so that all have about as many keys whatever is
// bound; one without keys has m = -infinity and does not count.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// Returns `sink` with the sums over keys of such attention divided; itself where there is none, and
// for targets other than NVIDIA's GPUs. Requires a prepared graph (prepare.h). Errors:
// RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<const UOp*> DivideKeys(Graph& graph, const UOp* sink, const Target& target);

}  // namespace outboard::schedule
