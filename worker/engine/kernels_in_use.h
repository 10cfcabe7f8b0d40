// The kernels of an engine's plans: in which version each runs, what it costs, and how a better
// version is put in its place between two Runs. Plans hold kernels, so that a switch is one
// pointer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/session/kernel_use_log.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

struct KernelInUse {
  // The first launches are timed; what a kernel costs is the least of these for each launch.
  static constexpr uint64_t kTimedRuns = 4;

  GraphId id;
  KernelSource source;  // its version: what was compiled
  std::string name;     // for people
  std::shared_ptr<const runtime::DeviceKernel> program;
  uint64_t runs = 0;
  double least_us = 0;

  bool timed() const { return runs < kTimedRuns; }
  // Of one more launch; `us` counts where timed() was true.
  void Ran(double us);

 private:
  friend class KernelsInUse;
  uint64_t told_runs_ = 0;              // TellCosts
  std::string tuning_id_;               // 32 bytes, once it was needed
  std::optional<std::string> refused_;  // Opts that did not compile
};

// Threads: one, the device's.
class KernelsInUse {
 public:
  // `store` may be nullptr, and `idle_compiler` too: then nothing is told, or switched, in idle
  // time. CANCELLED of `idle_compiler` means that somebody waits. All outlive this.
  // `hardware` is what times are valid for (TuningKey).
  KernelsInUse(runtime::Device* device, TuningStore* store, KernelCompiler* idle_compiler,
               std::string hardware)
      : device_(device),
        store_(store),
        idle_compiler_(idle_compiler),
        hardware_(std::move(hardware)) {}

  // One that some plan holds; nullptr where none does.
  std::shared_ptr<KernelInUse> Find(const GraphId& id) const;
  // Loads it and takes note of its version.
  // Errors: as runtime::Device::Load
  absl::StatusOr<std::shared_ptr<KernelInUse>> Add(const GraphId& id, KernelSource source,
                                                   std::string name,
                                                   const CompiledKernel& compiled);

  // As engine.h says. Pin compiles with `compiler` where the kernel is in use in another version.
  std::vector<KernelVersion> TakeVersions() { return std::exchange(versions_, {}); }
  void Pin(const KernelVersion& version, KernelCompiler* compiler);
  // The version that a replay wants, if it wants one; of it the Opts.
  std::optional<std::optional<std::string>> PinnedOpts(const GraphId& id) const;
  void TellCosts(const std::function<bool()>& preempted);
  void UseBetter(const std::function<bool()>& preempted);

 private:
  std::vector<std::shared_ptr<KernelInUse>> All();
  absl::Status FindTuningId(KernelInUse& kernel, Demand* demand);
  // False where nothing was switched.
  bool Switch(KernelInUse& kernel, const absl::StatusOr<CompiledKernel>& compiled,
              std::optional<std::string> opts);

  runtime::Device* const device_;
  TuningStore* const store_;
  KernelCompiler* const idle_compiler_;
  const std::string hardware_;
  absl::flat_hash_map<GraphId, std::weak_ptr<KernelInUse>> by_id_;  // looked up, never walked
  std::vector<std::weak_ptr<KernelInUse>> in_order_;                // of making
  absl::flat_hash_map<GraphId, std::optional<std::string>> pinned_;
  std::vector<KernelVersion> versions_;
};

}  // namespace outboard::worker
