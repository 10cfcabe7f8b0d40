// From the kernels of a schedule to the launches of a plan: which are launched together, over which
// buffers, and which result of the graph each of them is needed for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/schedule.h"
#include "runtime/device.h"
#include "worker/compile/kernel_id.h"

namespace outboard::worker {

inline constexpr int kNoResult = -1;

// `status`, RESOURCE_EXHAUSTED for example, about that result of the graph, which the user's line
// is found by. kNoResult, or an OK status: as it is.
absl::Status AboutResult(const absl::Status& status, const UOp* sink, int result);

// For each of Schedule::buffers the first result that is in it or that is computed from it.
std::vector<int> ResultsOf(const schedule::Schedule& schedule);

// A launch of a plan: the kernel `first` of its schedule and those behind it that are one launch
// with it (compiler/copies.h).
struct WantedKernel {
  size_t first = 0;
  int copies = 1;
  KernelId id;           // of the kernel in so many copies
  bool refused = false;  // nobody compiles it, or the device does not take it
};

// How a kernel is made that some device does not take as it was chosen. The ranks of a group make
// the same kernels, so what one of them cannot make is made simpler on all. Each step is simpler
// than those before it.
enum class Simpler : uint8_t {
  kCompilersOpts = 1,  // with the Opts that the compiler chooses
  kPlainLoops = 2,     // with no Opts
  kInHalves = 3,       // one that is in several copies: two launches of half as many
};
// A kernel, and how it is made.
struct SimplerKernel {
  KernelId kernel;
  Simpler how = Simpler::kCompilersOpts;
};
using SimplerKernels = absl::flat_hash_map<KernelId, Simpler>;  // looked up, never walked

std::vector<WantedKernel> WantedBy(const schedule::Schedule& schedule);

// Those that were refused become two launches of half as many copies; these may be refused, too.
std::vector<WantedKernel> InHalves(const std::vector<WantedKernel>& wanted);

// Places in Schedule::buffers: those of each copy, one after the other, as many as `kernel`, which
// was compiled for it, has slots.
std::vector<int> BuffersOf(const schedule::Schedule& schedule, const WantedKernel& one,
                           const runtime::DeviceKernel& kernel);

// A kernel's step becomes that of the launch which it begins; steps inside of a launch go.
void NumberByLaunch(const std::vector<WantedKernel>& wanted,
                    std::vector<schedule::ScheduledStep>& steps);

}  // namespace outboard::worker
