// The executor: one session's process. Applies the ClientFrames of its data socket in order and
// answers with ServerFrames (executor_sockets.h), until its supervisor lets go or the session ends.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::worker {

struct ExecutorMainOptions {
  int64_t memory_bytes_max = 0;    // 0: runtime::DefaultMemoryBytesMax; Begin may say less
  int64_t step_seconds_max = 600;  // OUTBOARD_STEP_SECONDS: a step that takes longer ends us
  bool reference = false;          // REF=1
  std::string device = "cpu";      // OUTBOARD_DEVICE (runtime/devices.h)
  int debug = 0;                   // DEBUG
  bool idle_search = false;        // OUTBOARD_IDLE_SEARCH: what is found in idle time is used
  bool flash = false;              // FLASH: attention without its scores in memory
  int beam = 0;                    // BEAM: how wide to search for Opts, on the step's path; 0: not
  bool no_opt = false;             // NOOPT=1, which the compile box obeys: nothing is tuned
  std::string object_cache;        // OUTBOARD_OBJECT_CACHE: a folder for compiled kernels
                                   // (object_cache.h); empty: none
  std::string rewrite_log;         // VIZ: a folder for what rules did (rewrite_log.h); empty: none
};

// Returns the exit code.
int ExecutorMain(const ExecutorMainOptions& options);

// From OUTBOARD_DEVICE, REF, DEBUG, BEAM, NOOPT, OUTBOARD_IDLE_SEARCH, OUTBOARD_OBJECT_CACHE,
// OUTBOARD_STEP_SECONDS and VIZ.
ExecutorMainOptions ExecutorOptionsFromEnvironment();

}  // namespace outboard::worker
