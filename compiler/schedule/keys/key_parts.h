// Attention of few queries, as of a decoded token, by many blocks of a GPU and without its scores:
//
//   for each part i of P                    keys i, i + P, i + 2 P ... below their number n
//     m[i] = max x                          scores, -infinity beyond n
//     s[i] = sum of exp(x - m[i])
//     o[i] = sum of exp(x - m[i]) v         one kernel (program/online), which stores these three
//   M = max m[i]
//   sum of exp(m[i] - M) o[i]  /  sum of exp(m[i] - M) s[i]      another one, parts in their order
//
// Weights may be scaled and rounded on their way to the product with v. (Flash-decoding; the
// recurrence is that of Milakov and Gimelshein, arXiv 1805.02867.) The number of parts follows from
// the largest n and the class of the device, so a VAR n changes neither kernels nor the order of
// terms. Parts take turns, so that all have about as many keys whatever is bound; one without keys
// has m = -infinity and does not count. Of no keys at all the sum is 0.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

// A sum over keys that was divided, and what is stored of its parts' maxima.
struct DividedKeys {
  const UOp* sum = nullptr;  // of the graph before
  const UOp* maxima = nullptr;
};

// Returns the scores that `divided.maxima` are the maxima of; nullptr if a later pass has made
// something else of the maximum.
const UOp* ScoresOf(const DividedKeys& divided);
absl::flat_hash_set<const UOp*> ScoresOfParts(const std::vector<DividedKeys>& all);

// Returns `sink` with the maxima as further results, so that what a pass makes of them is known.
// Errors: RESOURCE_EXHAUSTED  a node has not so many sources
absl::StatusOr<const UOp*> WithMaxima(Graph& graph, const UOp* sink,
                                      const std::vector<DividedKeys>& divided);
// The other way round: reads the maxima behind the first `results` of `sink`, and returns it
// without them.
absl::StatusOr<const UOp*> TakeMaxima(Graph& graph, const UOp* sink, size_t results,
                                      std::vector<DividedKeys>& divided);

// A graph, and which of its sums were divided.
struct KeysInParts {
  const UOp* sink = nullptr;
  std::vector<DividedKeys> divided;
};

// Returns `sink` with the sums over keys of such attention divided, but for those of `whole`;
// itself where there is none, and for targets other than NVIDIA's GPUs. Requires a prepared graph
// (prepare.h). Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<KeysInParts> DivideKeys(Graph& graph, const UOp* sink, const Target& target,
                                       const absl::flat_hash_set<const UOp*>& whole = {});

}  // namespace outboard::schedule
