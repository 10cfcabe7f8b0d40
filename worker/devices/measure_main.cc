#include "worker/devices/measure_main.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <future>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/cores.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "runtime/device.h"
#include "runtime/devices.h"
#include "worker/compile/compile_process.h"
#include "worker/devices/device_rates.h"
#include "worker/devices/join_test.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"
#include "worker/executor/executor_main.h"

namespace outboard::worker {

namespace {

using Clock = std::chrono::steady_clock;

// The best of so many, and of so long: others may use the machine, the first is cold, and it takes
// a system some time to give each thread a processor of its own.
constexpr int kRuns = 6;
constexpr double kRunsS = 0.15;
// Of the bandwidth beside a test, which is logged and compared with nothing.
constexpr int kRunsBesideTest = 2;
// A size is large enough once it takes so long: then starting it does not count.
constexpr double kLongEnoughS = 0.004;

constexpr int64_t kProductMin = 1024, kProductMax = 8192;
constexpr int64_t kArrayMin = int64_t{1} << 24, kArrayMax = int64_t{1} << 28;  // floats
constexpr int64_t kRow = 4096;
// Smaller, as each page of it is cleared when it is first touched, and the figure is only logged.
constexpr int64_t kArrayBesideTest = int64_t{1} << 22;

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

// Seconds of the fastest of so many runs, and of so long, on arrays of zeros of these dimensions.
absl::StatusOr<double> Fastest(Engine& engine, const UOp* sink, int inputs,
                               const std::vector<int64_t>& dims, int runs, double at_least_s) {
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  std::vector<DeviceArrayPtr> arrays;
  for (int i = 0; i < inputs; ++i) {
    OB_ASSIGN_OR_RETURN(std::shared_ptr<DeviceArray> array, engine.NewArray(DType::kF32, dims));
    OB_RETURN_IF_ERROR(engine.device().Fill(array->address(), 0, array->bytes()));
    arrays.push_back(std::move(array));
  }
  double fastest = 1e9, all = 0;
  for (int i = 0; i < runs || all < at_least_s; ++i) {
    const Clock::time_point begin = Clock::now();
    OB_RETURN_IF_ERROR(engine.Execute(encoded.id, sink, arrays, {}).status());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    fastest = std::min(fastest, seconds);
    all += seconds;
  }
  return fastest;
}

// The memory of a machine is tested while the kernels of the products are compiled, which is most
// of the time that they take. The engine's device is one thread's, so that memory is had by another
// of the same kind; a GPU is tested alone.
absl::Status Test(const std::string& kind, Engine& engine) {
  if (!engine.device().properties().is_processor) return TestDevice(engine);
  OB_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Device> device, runtime::MakeDevice(kind, {}));
  const std::unique_ptr<Engine> memory = MakeReferenceEngine(std::move(device));
  std::future<absl::Status> tested =
      std::async(std::launch::async, [&memory] { return TestMemory(*memory); });
  const absl::Status products = TestProducts(engine);
  const absl::Status of_memory = tested.get();
  return products.ok() ? of_memory : products;
}

// Alone after a test there is time for a bandwidth at most: a machine that is emulated takes
// minutes for the rest.
absl::StatusOr<proto::DeviceRates> Measure(bool test, bool rates_too) {
  const std::string kind = ExecutorOptionsFromEnvironment().device;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Device> device, runtime::MakeDevice(kind, {}));
  CompileProcess compiler({.target = TargetOfDevice(device->properties())});
  const std::unique_ptr<Engine> engine = MakeCompiledEngine(&compiler, std::move(device), {});
  if (test) OB_RETURN_IF_ERROR(Test(kind, *engine));
  proto::DeviceRates rates;
  for (int64_t n = kProductMin; rates_too && n <= kProductMax; n *= 2) {
    Graph g;
    OB_ASSIGN_OR_RETURN(const double seconds,
                        Fastest(*engine, Product(g, n), 2, {n, n}, kRuns, kRunsS));
    const auto side = static_cast<double>(n);
    rates.set_gflops(std::max(rates.gflops(), 2 * side * side * side / seconds / 1e9));
    if (seconds > kLongEnoughS) break;
  }
  const int runs = rates_too ? kRuns : kRunsBesideTest;
  for (int64_t n = rates_too ? kArrayMin : kArrayBesideTest; n <= kArrayMax; n *= 4) {
    Graph g;
    OB_ASSIGN_OR_RETURN(const double seconds,
                        Fastest(*engine, RowSums(g, n), 1, {n / kRow, kRow}, runs,
                                rates_too ? kRunsS : 0));
    const double bytes = static_cast<double>(n) * sizeof(float);
    rates.set_memory_gb_per_s(std::max(rates.memory_gb_per_s(), bytes / seconds / 1e9));
    if (!rates_too || seconds > kLongEnoughS) break;
  }
  return rates;
}

}  // namespace

int MeasureMain(const std::string& cores, const std::string& what) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<int> numbers;
  for (const absl::string_view text : absl::StrSplit(cores, ',', absl::SkipEmpty())) {
    int core = -1;
    if (absl::SimpleAtoi(text, &core)) numbers.push_back(core);
  }
  if (!numbers.empty()) {
    const cpu_set_t set = CoreMask(numbers);
    if (sched_setaffinity(0, sizeof set, &set) != 0) std::perror("outboard: sched_setaffinity");
  }
  const absl::StatusOr<proto::DeviceRates> rates =
      Measure(/*test=*/!what.empty(), /*rates_too=*/what != kTestAlone);
  if (absl::IsFailedPrecondition(rates.status())) {
    std::fputs(FaultLine(std::string(rates.status().message())).c_str(), stdout);
    return kExitFaulty;
  }
  if (!rates.ok()) {
    std::fprintf(stderr, "outboard: the device cannot be measured: %s\n",
                 std::string(rates.status().message()).c_str());
    return 1;
  }
  std::fputs(RatesLine(*rates).c_str(), stdout);
  return 0;
}

}  // namespace outboard::worker
