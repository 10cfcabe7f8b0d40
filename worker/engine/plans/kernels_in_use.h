// The kernels of an engine's execution plans: tracks the version and the cost of each, and replaces
// a kernel by a better version between two Runs. Plans share KernelInUse objects, so a replacement
// is the change of one pointer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/sha256.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/compile/kernel_id.h"
#include "worker/session/kernel_use_log.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

struct KernelInUse : std::enable_shared_from_this<KernelInUse> {
  // The first kTimedRuns launches are timed; the cost of a launch is the least of these times.
  static constexpr uint64_t kTimedRuns = 4;

  KernelId id;
  KernelSource source;  // of the current version
  std::string name;     // for people
  std::shared_ptr<const runtime::DeviceKernel> loaded;
  uint64_t runs = 0;
  double least_us = 0;

  bool timed() const { return runs < kTimedRuns; }
  // Records one more launch; `us` is used only if timed() was true.
  void Ran(double us);

 private:
  friend class KernelsInUse;
  uint64_t told_runs_ = 0;              // runs that TellCosts has reported
  TuningKey tuning_key_;                // computed on first use
  std::optional<std::string> refused_;  // Opts that did not compile
  bool searched_ = false;               // to the end, or in vain
};

// A number of kernels and their versions, by which the ranks of a group compare what they have.
class VersionsNumber {
 public:
  void Add(const KernelId& kernel, const std::optional<std::string>& opts);
  uint64_t Finish();

 private:
  Sha256Hasher hasher_;
};

// Another version of a kernel, loaded and not in use.
struct ReadyKernel {
  std::shared_ptr<KernelInUse> kernel;
  std::optional<std::string> opts;
  std::unique_ptr<runtime::DeviceKernel> loaded;
};

// Threads: one, the device's.
class KernelsInUse {
 public:
  // `store` and `idle_compiler` may be nullptr: then no costs are reported, or no versions
  // replaced, in idle time. CANCELLED from `idle_compiler` means that a Run has preempted it. All
  // outlive this. `hardware` is the hardware class of measured times (TuningKey).
  KernelsInUse(runtime::Device* device, TuningStore* store, KernelCompiler* idle_compiler,
               std::string hardware)
      : device_(device),
        store_(store),
        idle_compiler_(idle_compiler),
        hardware_(std::move(hardware)) {}

  // Returns the kernel if some plan holds it, else nullptr.
  std::shared_ptr<KernelInUse> Find(const KernelId& id) const;
  // Records a kernel that was loaded, and its version.
  std::shared_ptr<KernelInUse> Add(const KernelId& id, KernelSource source, std::string name,
                                   std::unique_ptr<runtime::DeviceKernel> loaded);

  // As in engine.h. Pin compiles with `compiler` if the kernel is in use in another version.
  std::vector<KernelVersion> TakeVersions();
  void Pin(const KernelVersion& version, KernelCompiler* compiler);
  // In a group: pins it for plans that are made from now on. What is in use stays (NotAsPinned).
  void PinForPlans(const KernelVersion& version) { pinned_[version.kernel] = version.opts; }
  // Returns the Opts that a replay requires (inner nullopt: the heuristic's); outer nullopt: none
  // required.
  std::optional<std::optional<std::string>> PinnedOpts(const KernelId& id) const;
  void TellCosts(const std::function<bool()>& preempted);
  void UseBetter(const std::function<bool()>& preempted);

  // The ranks of a group change together: one finds better versions, all make them ready, and where
  // all could, all use them.
  //
  // Better versions that the store has of these kernels, of those that nobody has pinned.
  std::vector<KernelVersion> FindBetter(const std::vector<std::shared_ptr<KernelInUse>>& kernels);
  // The pinned versions of those of `kernels` that are in use in another one, in order.
  std::vector<KernelVersion> NotAsPinned(std::span<const KernelId> kernels) const;
  // Compiles and loads these versions, of kernels in use, and changes nothing yet.
  // Errors: NOT_FOUND  one is not in use; those of the compiler and the device
  absl::StatusOr<std::vector<ReadyKernel>> MakeReady(const std::vector<KernelVersion>& versions,
                                                     KernelCompiler* compiler);
  void Use(std::vector<ReadyKernel> ready);
  // They are not found again.
  void Refuse(const std::vector<KernelVersion>& versions);

  // Calls `search` with the kernel that has cost most of those that were not searched for in this
  // process; true from it: nothing is left to find. False: there is none.
  using Searcher = std::function<absl::StatusOr<bool>(const UOp* kernel, const std::string& name,
                                                      const TuningKey& key)>;
  bool SearchCostliest(const Searcher& search);

 private:
  std::vector<std::shared_ptr<KernelInUse>> All();
  absl::Status FindTuningKey(KernelInUse& kernel, Demand* demand);
  // Those of `kernels` that the store knows better Opts of, with these.
  using Better = std::vector<std::pair<std::shared_ptr<KernelInUse>, std::string>>;
  Better BetterOf(const std::vector<std::shared_ptr<KernelInUse>>& kernels,
                  const std::function<bool()>& preempted);
  void Replace(ReadyKernel ready);
  // Returns false if the kernel was not replaced.
  bool Switch(KernelInUse& kernel, const absl::StatusOr<CompiledKernel>& compiled,
              std::optional<std::string> opts);

  runtime::Device* const device_;
  TuningStore* const store_;
  KernelCompiler* const idle_compiler_;
  const std::string hardware_;
  absl::flat_hash_map<KernelId, std::weak_ptr<KernelInUse>> by_id_;  // looked up, never iterated
  std::vector<std::weak_ptr<KernelInUse>> in_order_;                // of creation
  absl::flat_hash_map<KernelId, std::optional<std::string>> pinned_;
  std::vector<KernelVersion> versions_;
};

}  // namespace outboard::worker
