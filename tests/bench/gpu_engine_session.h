// A session of this process on the CUDA device that is there: a worker's engine, with neither
// gateway nor worker, that can be told to search.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/support/executor_link.h"
#include "tests/support/temp_folder.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::bench {

// Of a program in a session: whole steps, the device's work and the host's.
struct SessionTimes {
  double seconds = 0;  // after BEAM, where kernels were searched
  double seconds_nobeam = 0;
  size_t searched = 0;  // kernels
};

// Programs run in it (SetSession) from Open until it goes. Threads: one.
class GpuEngineSession {
 public:
  // Errors: those of the device and the session
  static absl::StatusOr<std::unique_ptr<GpuEngineSession>> Open();
  ~GpuEngineSession();

  const runtime::DeviceProperties& properties() const { return properties_; }

  // Graphs that were scheduled and compiled so far.
  uint64_t plans_made();

  // BEAM of the kernels that have taken most time so far, one to its end after the other, until the
  // seconds are over; later steps use what was found. Others stay as the compiler chooses. Returns
  // how many kernels were tried in more than one way.
  // Errors: those of the session before it; those of the store; those of the device, which is of no
  // use then
  absl::StatusOr<size_t> Search(double seconds);
  // Searches and measures again. Where that fails, `times` are as before, and stderr says why.
  void SearchAndMeasure(const std::string& name, double seconds, SessionTimes& times,
                        const std::function<absl::StatusOr<double>()>& measure);

 private:
  GpuEngineSession() = default;

  runtime::DeviceProperties properties_;
  const test::TempFolder folder_;
  std::unique_ptr<worker::TuningFile> store_;
  std::optional<worker::InProcessCompiler> compiler_;
  runtime::Device* device_ = nullptr;   // the engine's
  worker::Engine* engine_ = nullptr;    // the link's
  test::ExecutorLink* link_ = nullptr;  // the session's
};

}  // namespace outboard::bench
