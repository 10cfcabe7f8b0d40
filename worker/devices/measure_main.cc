#include "worker/devices/measure_main.h"

#include <sched.h>
#include <sys/prctl.h>

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
#include "runtime/device.h"
#include "runtime/devices.h"
#include "worker/compile/compile_process.h"
#include "worker/devices/device_rates.h"
#include "worker/devices/join_test.h"
#include "worker/devices/reached_rates.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"
#include "worker/executor/executor_main.h"

namespace outboard::worker {
namespace {

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
  return ReachedRates(*engine, rates_too ? RateSizes() : kSizesBesideTest);
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
