// The search for better versions of an engine's kernels on the engine's own device, while its
// session is quiet. A processor has a process of its own for that (worker/tuning/search_main.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "worker/engine/compiled_engine.h"
#include "worker/engine/plans/kernels_in_use.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {

// Threads: one, the device's.
class IdleSearch {
 public:
  // Does nothing without a store or a compiler for idle time, and on a processor. All pointers
  // outlive it.
  IdleSearch(const CompiledEngineOptions& options, runtime::Device* device, const Target& target) {
    constexpr int64_t kBytesMax = int64_t{1} << 30;  // of one kernel's buffers, beside the arrays
    if (options.store == nullptr || options.idle_compiler == nullptr ||
        device->properties().is_processor)
      return;
    device_ = device;
    tuner_.emplace(options.store, options.idle_compiler, device,
                   TunerOptions{.width = kIdleSearchWidth,
                                .memory_bytes_max = kBytesMax,
                                .report = options.debug >= 1,
                                .target = target,
                                .batch = 1,
                                .cold_caches = options.beam_cold,
                                .watch = options.launch_watch});
  }

  // As Engine::SearchForBetterKernels; nothing may be queued on the device.
  void Search(KernelsInUse& kernels, const std::function<bool()>& preempted) {
    if (!tuner_.has_value()) return;
    const auto search = [&](const UOp* kernel, const std::string& name, const TuningKey& key) {
      return tuner_->SearchUntil(kernel, name, key, preempted);
    };
    while (!preempted() && device_->health().ok() && kernels.SearchCostliest(search)) {
    }
  }

 private:
  runtime::Device* device_ = nullptr;
  std::optional<Tuner> tuner_;
};

}  // namespace outboard::worker
