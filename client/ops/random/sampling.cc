#include "client/ops/random/sampling.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "client/ops/index/sorting.h"

namespace outboard {
namespace {

// How many of the running shares lie at or below a number of [0, 1): the last share is 1, above all
// of them.
Tensor WithReplacement(const Tensor& weights, int64_t samples, const At& at) {
  const int64_t rows = weights.shape(0, at), n = weights.shape(1, at);
  const Tensor running = weights.cumsum(1, at);
  const Tensor shares = Arg(running, at) / Arg(running.slice(1, n - 1, n, at), at);
  const Tensor drawn = Tensor::rand({rows, samples, 1}, DType::kF32, at);
  const Tensor passed = Arg(drawn, at) >= Arg(shares.unsqueeze(1, at), at);
  return passed.sum(2, false, at);
}

// The largest log(u) / weight, u of (0, 1]. What has no weight comes last.
Tensor WithoutReplacement(const Tensor& weights, int64_t samples, const At& at) {
  const Tensor u = Arg(1, at) - Arg(Tensor::rand(weights.shape(at), DType::kF32, at), at);
  const Tensor key = Arg(u.log(at), at) / Arg(weights, at);
  const Tensor possible = Arg(weights, at) > Arg(0, at);
  const double never = -std::numeric_limits<double>::infinity();
  return topk(possible.where({key, at}, {never, at}), samples, 1, true, at).indices;
}

}  // namespace

Tensor randperm(int64_t n, DType dtype, At at) {
  return argsort(Tensor::rand({n}, DType::kF32, at), 0, false, at).cast(dtype, at);
}

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, At at) {
  const int rank = weights.rank(at);
  if (rank < 1 || rank > 2)
    ThrowInvalid(at, absl::StrCat("multinomial: weights of rank ", rank, ", not 1 or 2"));
  const int64_t n = weights.shape(-1, at);
  if (samples < 1 || (!replacement && samples > n))
    ThrowInvalid(at, absl::StrCat("multinomial: ", samples, " samples of ", n));
  const Tensor table = (rank == 1 ? weights.unsqueeze(0, at) : weights).cast(DType::kF32, at);
  const Tensor places = replacement || samples == 1 ? WithReplacement(table, samples, at)
                                                    : WithoutReplacement(table, samples, at);
  return rank == 1 ? places.squeeze(0, at) : places;
}

}  // namespace outboard
