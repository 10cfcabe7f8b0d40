#include "client/ops/random/sampling.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"
#include "client/ops/index/sorting.h"

namespace outboard {
namespace {

// How many of the running shares lie at or below a number of [0, 1): the last share is 1, above all
// of them.
Tensor WithReplacement(const Tensor& weights, int64_t samples) {
  const int64_t rows = weights.shape(0), n = weights.shape(1);
  const Tensor running = weights.cumsum(1);
  const Tensor shares = running / running.slice(1, n - 1, n);
  return (Tensor::rand({rows, samples, 1}) >= shares.unsqueeze(1)).sum(2);
}

// The largest log(u) / weight, u of (0, 1] (Efraimidis and Spirakis, 2006). What has no weight
// comes last.
Tensor WithoutReplacement(const Tensor& weights, int64_t samples) {
  const Tensor key = (1 - Tensor::rand(weights.shape())).log() / weights;
  const double never = -std::numeric_limits<double>::infinity();
  return topk((weights > 0).where(key, never), samples, 1).indices;
}

}  // namespace

Tensor randperm(int64_t n, DType dtype, At at) {
  const CallSite site(at);
  return argsort(Tensor::rand({n}), 0).cast(dtype);
}

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, At at) {
  const CallSite site(at);
  const int rank = weights.rank();
  if (rank < 1 || rank > 2)
    ThrowInvalid(absl::StrCat("multinomial: weights of rank ", rank, ", not 1 or 2"));
  const int64_t n = weights.shape(-1);
  if (samples < 1 || (!replacement && samples > n))
    ThrowInvalid(absl::StrCat("multinomial: ", samples, " samples of ", n));
  const Tensor table = (rank == 1 ? weights.unsqueeze(0) : weights).cast(DType::kF32);
  const Tensor places = replacement || samples == 1 ? WithReplacement(table, samples)
                                                    : WithoutReplacement(table, samples);
  return rank == 1 ? places.squeeze(0) : places;
}

}  // namespace outboard
