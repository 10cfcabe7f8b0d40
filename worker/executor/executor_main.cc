#include "worker/executor/executor_main.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/compile/rewrite_log.h"
#include "worker/devices/device_info.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/executor_sockets.h"
#include "worker/executor/launch_watchdog.h"
#include "worker/executor/step_watchdog.h"
#include "worker/executor/supervisor_client.h"
#include "worker/groups/group_sockets.h"
#include "worker/kernels/kernel_client.h"
#include "worker/process/child_process.h"
#include "worker/process/message_limits.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

constexpr int64_t kStepSecondsMost = 86'400;
constexpr double kLaunchSecondsLeast = 0.01;  // the clock's steps are not far below

constexpr int kBeamMost = 64;

// Longer than between two steps of most programs; shorter than what the worker waits before it
// searches (idle_searcher.h), which begins with the costs that are told then.
constexpr std::chrono::milliseconds kQuiet{500};
// In the store, for what the search has found meanwhile.
constexpr std::chrono::milliseconds kLookAgain{2000};

}  // namespace

ExecutorMainOptions ExecutorOptionsFromEnvironment() {
  ExecutorMainOptions options;
  options.reference = IsSet("REF");
  if (const char* const device = std::getenv("OUTBOARD_DEVICE"); device != nullptr && *device != 0)
    options.device = device;
  if (const char* const debug = std::getenv("DEBUG")) options.debug = std::atoi(debug);
  if (const char* const seconds = std::getenv("OUTBOARD_STEP_SECONDS"))
    options.step_seconds_max = std::clamp<int64_t>(std::atoll(seconds), 1, kStepSecondsMost);
  if (const char* const seconds = std::getenv("OUTBOARD_LAUNCH_SECONDS"))
    options.launch_seconds_max = std::clamp(std::atof(seconds), kLaunchSecondsLeast,
                                            static_cast<double>(kStepSecondsMost));
  if (const char* const beam = std::getenv("BEAM"))
    options.beam = std::clamp(std::atoi(beam), 0, kBeamMost);
  options.beam_cold = IsSet("BEAM_COLD");
  options.idle_search = IsSet("OUTBOARD_IDLE_SEARCH");
  options.no_opt = IsSet("NOOPT");
  // Plain loops would compute scores again for every element of a result.
  if (options.no_opt) options.scores = schedule::ScorePolicy::kKeep;
  if (const char* const flash = std::getenv("FLASH"); flash != nullptr && *flash != 0)
    options.scores =
        IsSet("FLASH") ? schedule::ScorePolicy::kRecompute : schedule::ScorePolicy::kKeep;
  options.record_rewrites = !LogFolderFromEnvironment().empty();
  return options;
}

static void WarnOfDevice(std::string_view line) {
  telemetry::LogWarning("device_slower", {{"message", line}});
}

int ExecutorMain(const ExecutorMainOptions& options) {
  BeginAsChild();
  ExecutorSockets sockets;   // first: the number of the data socket must be nobody else's
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of that write, no more
  DeviceInfo device = DescribeDevice(options.device);
  int64_t memory = options.memory_bytes_max;
  if (memory <= 0) memory = NeedsDriver() ? 0 : runtime::DefaultMemoryBytesMax();
  std::unique_ptr<Engine> engine;
  absl::StatusOr<std::unique_ptr<runtime::Device>> made =
      runtime::MakeDevice(options.device, {.memory_bytes_max = memory, .warn = WarnOfDevice});
  absl::Status usable = made.status();
  if (usable.ok()) usable = (*made)->Scrub();  // before anybody's kernel
  if (!usable.ok()) {
    std::fprintf(stderr, "outboard: %s\n", std::string(usable.message()).c_str());
    return kExitNoDevice;
  }
  const runtime::DeviceProperties properties = (*made)->properties();
  const Target target = TargetOfDevice(properties);
  const bool host_kernels = properties.form == CompiledKernel::Form::kElfX86;
  if (properties.form == CompiledKernel::Form::kPtx)
    device = DescribeGpu(properties);
  else if (!host_kernels)
    device.name = properties.name;
  proto::ToExecutor command;
  int kernel_socket = -1;
  if (sockets.FirstCommand(command, kernel_socket) != ExecutorSockets::Came::kCommand ||
      !command.has_kernel_socket() || kernel_socket < 0)
    return 0;  // the supervisor has ended
  KernelClient kernels(kernel_socket, target, kDataSocket);
  std::unique_ptr<RewriteRecorder> log;
  if (options.record_rewrites)
    log =
        MakeRewriteRecorder([&](std::string_view lines) { return kernels.AppendRewrites(lines); });
  const RecordedThread recorded(log.get());
  if (!host_kernels) (*made)->KeepLinked(kernels.linked());
  const auto tell_trouble = [&sockets](proto::DeviceTrouble::Kind kind, std::string_view line,
                                       uint64_t seq) {
    std::fprintf(stderr, "outboard: %.*s\n", static_cast<int>(line.size()), line.data());
    proto::FromExecutor event;
    event.mutable_trouble()->set_kind(kind);
    event.mutable_trouble()->set_message(std::string(line.substr(0, kTroubleTextBytesMax)));
    event.mutable_trouble()->set_seq(seq);
    sockets.Tell(event);
  };
  // The session's thread waits for the device then, and tells nothing itself.
  std::function<uint64_t()> begun_seq = [] { return uint64_t{0}; };
  std::optional<LaunchWatchdog> launch_watchdog;
  if (!properties.is_processor)
    launch_watchdog.emplace(
        std::chrono::milliseconds(static_cast<int64_t>(options.launch_seconds_max * 1e3)),
        [&](const std::string& line) {
          tell_trouble(proto::DeviceTrouble::LAUNCH_TOO_LONG, line, begun_seq());
          _exit(kExitLaunchTooLong);
        });
  // Of OpenCL's kernels nothing is known that could be tuned.
  const bool tunes = command.kernel_socket().tunes() && !options.no_opt &&
                     (host_kernels || properties.form == CompiledKernel::Form::kPtx);
  if (options.reference) {
    engine = MakeReferenceEngine(*std::move(made));
  } else {
    engine = MakeCompiledEngine(kernels.compiler(), *std::move(made),
                                {.debug = options.debug,
                                 .store = tunes ? kernels.store() : nullptr,
                                 .candidates = kernels.candidates(),
                                 .idle_compiler =
                                     options.idle_search ? kernels.idle_compiler() : nullptr,
                                 .beam = options.beam,
                                 .beam_cold = options.beam_cold,
                                 .scores = options.scores,
                                 .launch_watch = launch_watchdog ? &*launch_watchdog : nullptr});
  }
  const auto now_ns = [] {
    return static_cast<uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  };
  SupervisorClient requests([&sockets](const proto::FromExecutor& event) { sockets.Tell(event); });
  ExecutorCore core(engine.get(), {.device_name = device.name,
                                   .hardware_class = device.hardware_class,
                                   .let_go = [&requests] { requests.LetGo(); },
                                   .now_ns = now_ns});
  begun_seq = [&core] { return core.begun_seq(); };  // nothing is launched before
  StepWatchdog watchdog(std::chrono::seconds(options.step_seconds_max),
                        [&core] { return core.progress(); });
  const ExecutorCore::SendFrame send = [&](const proto::ServerFrame& answer) {
    // Before anybody hears of a step that failed with its device: it may succeed elsewhere.
    if (const absl::Status health = engine->device().health(); !health.ok()) {
      tell_trouble(runtime::IsMemoryFault(health) ? proto::DeviceTrouble::MEMORY_FAULT
                                                  : proto::DeviceTrouble::LOST,
                   std::string(health.message()), core.lost_seq());
      _exit(kExitDeviceLost);  // what its driver would do at exit may not end
    }
    // A client that is slow to read is not a slow step; and what is sent between two frames is
    // none.
    const bool working = watchdog.Working(false);
    sockets.Send(answer);
    watchdog.Working(working);
  };
  const auto preempted = [&sockets] { return sockets.Knocked(std::chrono::milliseconds(0)); };
  bool uses_idle_time = options.idle_search && tunes && !options.reference;
  bool tells_costs = uses_idle_time;
  enum { kWorking, kQuietNow, kLookingAgain } pace = kQuietNow;
  const auto tell_activity = [&sockets](bool working) {
    proto::FromExecutor event;
    event.mutable_activity()->set_working(working);
    sockets.Tell(event);
  };
  const auto works = [&] {
    if (std::exchange(pace, kWorking) != kWorking) tell_activity(true);
    watchdog.Working(true);
  };
  GroupSockets group;
  proto::ClientFrame frame;
  while (!core.ended()) {
    std::optional<std::chrono::milliseconds> patience;
    if (pace == kWorking) patience = kQuiet;
    if (pace == kLookingAgain) patience = kLookAgain;
    const std::optional<std::chrono::milliseconds> turn = requests.patience(core);
    const bool turn_first = turn && (!patience || *turn < *patience);
    int passed = -1;
    const ExecutorSockets::Came came =
        sockets.Next(frame, command, passed, turn_first ? turn : patience);
    if (came == ExecutorSockets::Came::kEnd) break;  // the supervisor has let go
    if (came == ExecutorSockets::Came::kFrame) {
      works();
      core.On(std::move(frame), send);
      watchdog.Working(false);
      frame.Clear();
    } else if (came == ExecutorSockets::Came::kCommand) {
      if (command.has_begin() && command.begin().memory_bytes_max() > 0)
        engine->LimitMemory(static_cast<int64_t>(command.begin().memory_bytes_max()));
      if (command.has_group_socket()) group.Take(command.group_socket(), std::exchange(passed, -1));
      if (command.has_begin()) core.SetRank(command.begin().rank());
      if (const absl::Status joined = group.Join(command.begin(), *engine); !joined.ok()) {
        std::fprintf(stderr, "outboard: %s\n", std::string(joined.message()).c_str());
        return 1;
      }
      // Ranks change to other kernels together, in a Run (worker/engine/compiled_engine.cc), as
      // rank 0 says. So its costs are those that a search is told of.
      if (command.begin().mesh_size() > 0) {
        tells_costs = uses_idle_time && command.begin().rank() == 0;
        uses_idle_time = false;
      }
      for (const proto::RefusedItem& item : command.begin().refused())
        core.Refuse(item.seq(),
                    absl::Status(static_cast<absl::StatusCode>(item.code()), item.message()));
      // Runs may have waited for the blob.
      command.has_blob_here() ? works() : static_cast<void>(watchdog.Working(true));
      requests.OnCommand(command, passed, core, *engine, send);
      watchdog.Working(false);
    } else if (!turn_first) {
      if (pace == kWorking) {
        tell_activity(false);
        if (tells_costs) engine->TellCosts(preempted);
      }
      pace = uses_idle_time ? kLookingAgain : kQuietNow;
      if (uses_idle_time) engine->UseBetterKernels(preempted);
      if (uses_idle_time) engine->SearchForBetterKernels(preempted);
    }
    requests.Turn(core, send);
  }
  // The session is over; what its kernels have cost is for those that come after it.
  if (tells_costs) engine->TellCosts([] { return false; });
  requests.TellCounts();
  return 0;
}

}  // namespace outboard::worker
