#include "worker/executor/executor_main.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/compile/rewrite_log.h"
#include "worker/devices/device_info.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"
#include "worker/executor/executor_sockets.h"
#include "worker/executor/launch_watchdog.h"
#include "worker/executor/session_loop.h"
#include "worker/kernels/kernel_client.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

constexpr int64_t kStepSecondsMost = 86'400;
constexpr double kLaunchSecondsLeast = 0.01;  // the clock's steps are not far below

constexpr int kBeamMost = 64;

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
  if (const char* const seconds = std::getenv("OUTBOARD_DEVICE_SECONDS"))
    options.device_seconds_max = std::clamp(std::atof(seconds), kLaunchSecondsLeast,
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
  options.only_tries_device = IsSet(kTryDevice);
  options.record_rewrites = !LogFolderFromEnvironment().empty();
  return options;
}

namespace {

void WarnOfDevice(std::string_view line) {
  telemetry::LogWarning("device_slower", {{"message", line}});
}

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "outboard: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// The executor's device, and what its kernels are compiled for.
struct OpenedDevice {
  std::unique_ptr<runtime::Device> device;
  DeviceInfo info;
  Target target;
  CompiledKernel::Form form;
  bool is_processor = false;

  bool runs_host_kernels() const { return form == CompiledKernel::Form::kElfX86; }
  // Of OpenCL's kernels nothing is known that could be tuned.
  bool has_tunable_kernels() const {
    return runs_host_kernels() || form == CompiledKernel::Form::kPtx;
  }
};

// Errors: those of runtime::MakeDevice and Device::Scrub
absl::StatusOr<OpenedDevice> OpenDevice(const ExecutorMainOptions& options) {
  DeviceInfo info = DescribeDevice(options.device);
  int64_t memory = options.memory_bytes_max;
  if (memory <= 0) memory = NeedsDriver() ? 0 : runtime::DefaultMemoryBytesMax();
  OB_ASSIGN_OR_RETURN(
      std::unique_ptr<runtime::Device> device,
      runtime::MakeDevice(options.device, {.memory_bytes_max = memory, .warn = WarnOfDevice}));
  OB_RETURN_IF_ERROR(device->Scrub());  // before anybody's kernel
  const runtime::DeviceProperties properties = device->properties();
  OpenedDevice opened{.device = std::move(device),
                      .info = std::move(info),
                      .target = TargetOfDevice(properties),
                      .form = properties.form,
                      .is_processor = properties.is_processor};
  if (opened.form == CompiledKernel::Form::kPtx)
    opened.info = DescribeGpu(properties);
  else if (!opened.runs_host_kernels())
    opened.info.name = properties.name;
  return opened;
}

// OpenCL's drivers compile, which takes more of the machine than to open a device.
absl::Status TryToCompile(runtime::Device& device) {
  if (device.properties().form != CompiledKernel::Form::kOpenClC) return absl::OkStatus();
  CompiledKernel kernel;
  kernel.object = "__kernel void outboard_trial(__global float* x) { x[get_global_id(0)] = 1.0f; }";
  kernel.symbol = "outboard_trial";
  kernel.form = CompiledKernel::Form::kOpenClC;
  kernel.tasks = kernel.buffer_count = 1;
  return device.Load(kernel).status();
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// As OpenDevice; a driver that does not answer ends the process, since nobody else can be told yet.
absl::StatusOr<OpenedDevice> OpenDeviceInTime(const ExecutorMainOptions& options) {
  if (!NeedsDriver()) return OpenDevice(options);
  const std::chrono::milliseconds bound = Milliseconds(options.device_seconds_max);
  LaunchWatchdog watchdog(
      bound,
      [](const std::string& line) { _exit(Complain(absl::UnavailableError(line), kExitNoDevice)); },
      "OUTBOARD_DEVICE_SECONDS");
  const WatchedWait wait(&watchdog, "the start of the device's driver, with its memory wiped,",
                         bound);
  return OpenDevice(options);
}

// `tunes`: measurements of kernels are looked up and kept. `launch_watch` may be null.
std::unique_ptr<Engine> MakeEngine(const ExecutorMainOptions& options,
                                   std::unique_ptr<runtime::Device> device, KernelClient& kernels,
                                   bool tunes, LaunchWatch* launch_watch) {
  if (options.reference) return MakeReferenceEngine(std::move(device));
  return MakeCompiledEngine(kernels.compiler(), std::move(device),
                            {.debug = options.debug,
                             .store = tunes ? kernels.store() : nullptr,
                             .candidates = kernels.candidates(),
                             .idle_compiler =
                                 options.idle_search ? kernels.idle_compiler() : nullptr,
                             .beam = options.beam,
                             .beam_cold = options.beam_cold,
                             .scores = options.scores,
                             .launch_watch = launch_watch});
}

}  // namespace

int ExecutorMain(const ExecutorMainOptions& options) {
  BeginAsChild();
  ExecutorSockets sockets;   // first: the number of the data socket must be nobody else's
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of that write, no more
  absl::StatusOr<OpenedDevice> opened = OpenDeviceInTime(options);
  if (!opened.ok()) return Complain(opened.status(), kExitNoDevice);
  if (options.only_tries_device) {
    if (absl::Status status = TryToCompile(*opened->device); !status.ok())
      return Complain(status, kExitNoDevice);
    const size_t count = runtime::ListDevices(options.device).size();
    return WriteBytes(kChildSocket, absl::StrCat(count, "\n")).ok() ? 0 : 1;
  }
  proto::ToExecutor command;
  int kernel_socket = -1;
  if (sockets.FirstCommand(command, kernel_socket) != ExecutorSockets::Came::kCommand ||
      !command.has_kernel_socket() || kernel_socket < 0)
    return 0;  // the supervisor has ended
  KernelClient kernels(kernel_socket, opened->target, kDataSocket);
  if (!opened->runs_host_kernels()) opened->device->KeepLinked(kernels.linked());
  std::unique_ptr<RewriteRecorder> log;
  if (options.record_rewrites)
    log =
        MakeRewriteRecorder([&](std::string_view lines) { return kernels.AppendRewrites(lines); });
  const RecordedThread recorded(log.get());

  // Nothing is launched before the session's loop is there to be asked. The session's thread waits
  // for the device while the watchdog speaks, and tells nothing itself.
  std::function<uint64_t()> begun_seq = [] { return uint64_t{0}; };
  std::optional<LaunchWatchdog> launch_watchdog;
  if (!opened->is_processor)
    launch_watchdog.emplace(
        Milliseconds(options.launch_seconds_max),
        [&](const std::string& line) {
          TellDeviceTrouble(sockets, proto::DeviceTrouble::LAUNCH_TOO_LONG, line, begun_seq());
          _exit(kExitLaunchTooLong);
        });
  const bool tunes =
      command.kernel_socket().tunes() && !options.no_opt && opened->has_tunable_kernels();
  const std::unique_ptr<Engine> engine =
      MakeEngine(options, std::move(opened->device), kernels, tunes,
                 launch_watchdog ? &*launch_watchdog : nullptr);
  SessionLoop loop(sockets, *engine, opened->info,
                   {.step_most = std::chrono::seconds(options.step_seconds_max),
                    .uses_idle_time = options.idle_search && tunes && !options.reference,
                    .launch_watchdog = launch_watchdog ? &*launch_watchdog : nullptr});
  begun_seq = [&loop] { return loop.begun_seq(); };
  const absl::Status ended = loop.Serve();
  return ended.ok() ? 0 : Complain(ended, 1);
}

}  // namespace outboard::worker
