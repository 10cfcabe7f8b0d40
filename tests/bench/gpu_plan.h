// The kernels of a graph on a GPU, timed by the device's clock, as the compiler chooses them and
// after BEAM.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/optimize/opt.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "runtime/device.h"

namespace outboard::bench {

inline constexpr int kRepeatsLeast = 5;  // that a median is taken of

// A graph as a client sends it.
struct SentProgram {
  const UOp* sink = nullptr;
  std::vector<int64_t> donated = {};  // slots of inputs that results may be written over
};
using GraphMaker = std::function<SentProgram(Graph&)>;

// What a search of a plan's kernels has done.
struct PlanSearch {
  size_t kernels = 0, searched = 0;  // distinct ones; those with a share of the time
  size_t trials = 0;
  bool finished = true;  // each search of these went to its end
};

// Inputs hold random numbers: floats from 0.125 to 1 with all their digits drawn, so that the
// device takes the power that it takes for somebody's data (zeros flatter), and integers that are
// 0. Threads: one.
class GpuPlan {
 public:
  using Opts = std::optional<std::vector<codegen::Opt>>;  // nullopt: the compiler's own choice

  // Scheduled as an engine does it, also in launches of several equal kernels. `opts`: of each
  // launch, for a plan of as many; empty: the compiler's own choice for all.
  // Errors: those of the compiler and the device; INVALID_ARGUMENT  another number of launches
  static absl::StatusOr<std::unique_ptr<GpuPlan>> Make(runtime::Device& device,
                                                       const Target& target,
                                                       const GraphMaker& graph,
                                                       std::span<const Opts> opts = {});

  // BEAM for so many seconds, of the kernels that take most time; the others stay as they are. Each
  // gets a share of the seconds as large as that of its time. Kernels whose buffers are larger than
  // kSearchBytesMax stay, too.
  // Where the times of the kernels take as long as the search may, none is searched.
  // Errors: those of the device, which may be of no use then. Nothing has changed.
  absl::StatusOr<PlanSearch> Search(double seconds, int width);
  // Of each launch, after Search: to make another plan with.
  std::vector<Opts> opts() const;

  // Queues all kernels `times` times over.
  absl::Status Queue(int times = 1);

  // The median time of one run by the device's clock, of `repeats` runs or kRepeatsLeast, after one
  // more.
  absl::StatusOr<double> Seconds(int repeats);

  // Every result of the run that was queued last.
  absl::StatusOr<std::vector<std::string>> Results();
  // The contents of the input in PARAM `slot`.
  absl::StatusOr<std::string> Input(int64_t slot);

 private:
  struct Launch {
    const UOp* ast = nullptr;  // in as many copies as it computes
    Opts opts;
    std::unique_ptr<runtime::DeviceKernel> kernel;
    std::vector<runtime::DeviceAddress> slots;
  };
  struct Place {
    runtime::DeviceAddress address{};
    int64_t bytes = 0;
  };

  GpuPlan(runtime::Device& device, const Target& target) : device_(device), target_(target) {}
  absl::StatusOr<runtime::DeviceAddress> Memory(int64_t bytes);
  absl::Status MakeBuffers(const schedule::Schedule& schedule);
  absl::Status AddLaunches(const schedule::Schedule& schedule, std::span<const Opts> opts);
  absl::Status Load(Launch& launch);
  absl::StatusOr<double> SecondsOf(const Launch& launch);
  absl::StatusOr<std::string> Download(const Place& place);

  runtime::Device& device_;
  const Target target_;
  Graph graph_;
  std::vector<runtime::DeviceBuffer> memory_;
  std::vector<runtime::DeviceAddress> at_;  // of each buffer of the schedule
  std::vector<Place> inputs_, results_;     // by slot, and by index
  std::vector<Launch> launches_;
  std::unique_ptr<runtime::LaunchRecord> record_;
};

// Seconds of ours that PyTorch's are divided by, by the names of torch_gpu.py.
struct DeviceTimes {
  std::string name;
  double seconds = 0;         // after BEAM, where `searched`
  double seconds_nobeam = 0;  // as the compiler chooses
  bool searched = false;
};

// How programs are measured.
struct GpuTrial {
  int repeats = 20;
  double search_seconds = 0;  // of all programs together; 0: without BEAM
  int beam_width = 4;
  // Called when all is measured but what needs a search, which may never end. May be null.
  std::function<void()> before_search = nullptr;
};

// One of several programs that are measured together.
struct GpuProgram {
  std::string name;
  GraphMaker graph;
  double weight = 1;  // its part of the seconds of the search, beside those of the others
  // Called before the search, unless it is null, and with what the search has found.
  std::function<absl::Status(GpuPlan&)> check = nullptr;
};
// Writes to stderr what is known before a search, which may never end.
void TellBeforeSearch(std::span<const DeviceTimes> times);

// Times all programs as the compiler chooses them, then all after BEAM, since a candidate may leave
// the device of no use: what is not searched then keeps the first time, and `searched` says so.
// Plans are kept for the search, since a driver takes as long to link a kernel as we to compile it,
// while they have no more than half of the memory.
// Errors: those of the first times and of the checks before the search
absl::StatusOr<std::vector<DeviceTimes>> MeasurePrograms(runtime::Device& device,
                                                         const Target& target,
                                                         std::span<const GpuProgram> programs,
                                                         const GpuTrial& trial);

// What a copy within the device reads and writes in a second; the median of `repeats`, each of
// eight copies. Errors: those of the device
absl::StatusOr<double> CopiedBytesPerSecond(runtime::Device& device, int64_t bytes, int repeats);

}  // namespace outboard::bench
