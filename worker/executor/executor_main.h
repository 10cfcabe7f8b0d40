// The executor: one session's process. Applies the ClientFrames of its data socket in order and
// answers with ServerFrames (executor_sockets.h), until its supervisor closes the control socket or
// the session ends. Opens no file of a session, and starts no process: what else it needs, its
// supervisor passes to it as descriptors (worker/kernels/kernel_client.h).
#pragma once

#include <cstdint>
#include <string>

#include "compiler/schedule/attention.h"

namespace outboard::worker {

// The exit code of an executor whose device is lost to its process (runtime::Device::health): the
// supervisor says so, and the session goes on elsewhere from its snapshot.
inline constexpr int kExitDeviceLost = 76;
// Of one that cannot have its device from the start.
inline constexpr int kExitNoDevice = 2;

// A variable with which an executor opens its device, lists all that it is shown, writes how many
// these are to its socket, a line, and ends: for worker/supervisor/driver_trial.h.
inline constexpr char kTryDevice[] = "OUTBOARD_TRY_DEVICE";

struct ExecutorMainOptions {
  // 0: what a device with a driver has, else runtime::DefaultMemoryBytesMax; Begin may lower it
  int64_t memory_bytes_max = 0;
  int64_t step_seconds_max = 600;  // OUTBOARD_STEP_SECONDS: a longer step ends it
  // OUTBOARD_LAUNCH_SECONDS: a launch on a GPU that takes longer ends it. The largest products that
  // fit into a GPU's memory take some seconds there.
  double launch_seconds_max = 30;
  // OUTBOARD_DEVICE_SECONDS: a driver that has not begun, or memory that is not wiped, by then ends
  // it. Drivers that nobody else keeps loaded take some seconds.
  double device_seconds_max = 120;
  bool reference = false;          // REF=1
  std::string device = "cpu";      // OUTBOARD_DEVICE (runtime/devices.h)
  int debug = 0;                   // DEBUG
  bool idle_search = false;        // OUTBOARD_IDLE_SEARCH: use results of idle-time searches
  // FLASH: attention without its scores in memory; 1 always, 0 never, else where that is faster
  schedule::ScorePolicy scores = schedule::ScorePolicy::kByCost;
  bool beam_cold = false;        // BEAM_COLD: those searches time kernels with cold caches
  int beam = 0;                  // BEAM: width of searches for Opts within a step; 0: none
  bool no_opt = false;           // NOOPT=1 (also read by the compile process): no tuning
  bool only_tries_device = false;  // kTryDevice
  bool record_rewrites = false;  // VIZ: the supervisor writes them into a file (rewrite_log.h)
};

// Returns the exit code.
int ExecutorMain(const ExecutorMainOptions& options);

// Reads the options from OUTBOARD_DEVICE, REF, DEBUG, BEAM, NOOPT, FLASH, OUTBOARD_IDLE_SEARCH,
// OUTBOARD_DEVICE_SECONDS, OUTBOARD_LAUNCH_SECONDS, OUTBOARD_STEP_SECONDS and VIZ.
ExecutorMainOptions ExecutorOptionsFromEnvironment();

}  // namespace outboard::worker
