#include "worker/devices/reached_rates.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "runtime/device.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongEnoughS = 0.004;
constexpr int64_t kRow = 4096;

// f32[n, n] times f32[n, n].
const UOp* Product(Graph& g, int64_t n) {
  const UOp* const a =
      Expand(g, Reshape(g, Param(g, 0, DType::kF32, {n, n}), {n, n, 1}), {n, n, n});
  const UOp* const b =
      Expand(g, Reshape(g, Param(g, 1, DType::kF32, {n, n}), {1, n, n}), {n, n, n});
  return Sink(g, {Reshape(g, Reduce(g, Op::kAdd, Mul(g, a, b), {1}), {n, n})});
}

// Sums of the rows of f32[n / kRow, kRow]: reads all of it and writes almost nothing. A result as
// large as the array would add what a processor reads of a line before it writes to it, and the
// system's time to find fresh pages.
const UOp* RowSums(Graph& g, int64_t n) {
  return Sink(g, {Reduce(g, Op::kAdd, Param(g, 0, DType::kF32, {n / kRow, kRow}), {1})});
}

// Seconds of the fastest run, on arrays of zeros of these dimensions.
absl::StatusOr<double> Fastest(Engine& engine, const UOp* sink, int inputs,
                               const std::vector<int64_t>& dims, const RateSizes& sizes) {
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  std::vector<DeviceArrayPtr> arrays;
  for (int i = 0; i < inputs; ++i) {
    OB_ASSIGN_OR_RETURN(std::shared_ptr<DeviceArray> array, engine.NewArray(DType::kF32, dims));
    OB_RETURN_IF_ERROR(engine.device().Fill(array->address(), 0, array->bytes()));
    arrays.push_back(std::move(array));
  }
  double fastest = 1e9, all = 0;
  for (int i = 0; i < sizes.runs || all < sizes.runs_s; ++i) {
    const Clock::time_point begin = Clock::now();
    OB_RETURN_IF_ERROR(engine.Execute(encoded.id, sink, arrays, {}).status());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    fastest = std::min(fastest, seconds);
    all += seconds;
  }
  return fastest;
}

}  // namespace

absl::StatusOr<proto::DeviceRates> ReachedRates(Engine& engine, const RateSizes& sizes) {
  proto::DeviceRates rates;
  for (int64_t n = sizes.product_min; n <= sizes.product_max; n *= 2) {
    Graph g;
    OB_ASSIGN_OR_RETURN(const double seconds,
                        Fastest(engine, Product(g, n), 2, {n, n}, sizes));
    const auto side = static_cast<double>(n);
    rates.set_gflops(std::max(rates.gflops(), 2 * side * side * side / seconds / 1e9));
    if (seconds > kLongEnoughS) break;
  }
  for (int64_t n = sizes.array_min; n <= sizes.array_max; n *= 4) {
    Graph g;
    OB_ASSIGN_OR_RETURN(const double seconds,
                        Fastest(engine, RowSums(g, n), 1, {n / kRow, kRow}, sizes));
    const double bytes = static_cast<double>(n) * sizeof(float);
    rates.set_memory_gb_per_s(std::max(rates.memory_gb_per_s(), bytes / seconds / 1e9));
    if (seconds > kLongEnoughS) break;
  }
  return rates;
}

}  // namespace outboard::worker
