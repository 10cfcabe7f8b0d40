#include "worker/engine/plans/kernels_in_use.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/optimize/opt.h"
#include "compiler/search/neighbours.h"
#include "worker/tuning/tuning_key.h"

namespace outboard::worker {
namespace {

// A switch changes bits, and what two searches measure differs by as much.
constexpr double kLeastGain = 1.02;

// The Opts that are worth a switch from `opts`; nullopt: none.
std::optional<std::string> BetterThan(const std::optional<std::string>& opts,
                                      const Tuning& tuning) {
  const search::Trial* const best = tuning.best();
  if (best == nullptr) return std::nullopt;
  // The first trial is of the heuristic's Opts.
  const search::Trial* now = opts.has_value() ? nullptr : &tuning.trials[0];
  for (const search::Trial& trial : tuning.trials)
    if (opts.has_value() && codegen::OptsToString(trial.opts) == *opts) now = &trial;
  if (now == nullptr) return std::nullopt;  // as good as the best, for all that is known
  if (now->works() &&
      static_cast<double>(best->time_ns) * kLeastGain > static_cast<double>(now->time_ns))
    return std::nullopt;
  return codegen::OptsToString(best->opts);
}

}  // namespace

void KernelInUse::Ran(double us) {
  if (timed()) least_us = runs == 0 ? us : std::min(least_us, us);
  ++runs;
}

void VersionsNumber::Add(const KernelId& kernel, const std::optional<std::string>& opts) {
  hasher_.Update(kernel.ToBytes());
  hasher_.Update(opts.value_or("chosen"));
  hasher_.Update(";");
}

uint64_t VersionsNumber::Finish() {
  const Sha256Digest digest = hasher_.Finish();
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

std::shared_ptr<KernelInUse> KernelsInUse::Find(const KernelId& id) const {
  const auto known = by_id_.find(id);
  return known == by_id_.end() ? nullptr : known->second.lock();
}

std::shared_ptr<KernelInUse> KernelsInUse::Add(const KernelId& id, KernelSource source,
                                               std::string name,
                                               std::unique_ptr<runtime::DeviceKernel> loaded) {
  auto kernel = std::make_shared<KernelInUse>();
  kernel->id = id;
  kernel->source = std::move(source);
  kernel->name = std::move(name);
  kernel->loaded = std::move(loaded);
  // Those of plans that have gone are dropped when they are half of the list.
  if (in_order_.size() > 2 * All().size() + 64) {
    std::erase_if(in_order_, [](const auto& other) { return other.expired(); });
    absl::erase_if(by_id_, [](const auto& entry) { return entry.second.expired(); });
  }
  by_id_[id] = kernel;
  in_order_.push_back(kernel);
  versions_.push_back({id, kernel->source.opts});
  return kernel;
}

std::vector<std::shared_ptr<KernelInUse>> KernelsInUse::All() {
  std::vector<std::shared_ptr<KernelInUse>> all;
  for (const std::weak_ptr<KernelInUse>& weak : in_order_)
    if (auto kernel = weak.lock(); kernel != nullptr) all.push_back(std::move(kernel));
  return all;
}

void KernelsInUse::Pin(const KernelVersion& version, KernelCompiler* compiler) {
  pinned_[version.kernel] = version.opts;
  const std::shared_ptr<KernelInUse> kernel = Find(version.kernel);
  if (kernel == nullptr || kernel->source.opts == version.opts) return;
  const KernelSource source{kernel->source.encoding, version.opts};
  Switch(*kernel, compiler->Compile({&source, 1})[0], version.opts);
}

std::optional<std::optional<std::string>> KernelsInUse::PinnedOpts(const KernelId& id) const {
  const auto pinned = pinned_.find(id);
  if (pinned == pinned_.end()) return std::nullopt;
  return pinned->second;
}

bool KernelsInUse::Switch(KernelInUse& kernel, const absl::StatusOr<CompiledKernel>& compiled,
                          std::optional<std::string> opts) {
  if (!compiled.ok()) return false;
  absl::StatusOr<std::unique_ptr<runtime::DeviceKernel>> loaded = device_->Load(*compiled);
  if (!loaded.ok()) return false;
  Replace({kernel.shared_from_this(), std::move(opts), *std::move(loaded)});
  return true;
}

void KernelsInUse::Replace(ReadyKernel ready) {
  KernelInUse& kernel = *ready.kernel;
  kernel.loaded = std::move(ready.loaded);
  kernel.source.opts = std::move(ready.opts);
  kernel.runs = kernel.told_runs_ = 0;  // timed anew
  versions_.push_back({kernel.id, kernel.source.opts});
}

// The last of each kernel: a plan that was given up may have left an earlier one.
std::vector<KernelVersion> KernelsInUse::TakeVersions() {
  std::vector<KernelVersion> taken = std::exchange(versions_, {}), last;
  absl::flat_hash_set<KernelId> seen;
  for (auto at = taken.rbegin(); at != taken.rend(); ++at)
    if (seen.insert(at->kernel).second) last.push_back(std::move(*at));
  std::ranges::reverse(last);
  return last;
}

absl::Status KernelsInUse::FindTuningKey(KernelInUse& kernel, Demand* demand) {
  if (!kernel.tuning_key_.kernel.empty() && demand == nullptr) return absl::OkStatus();
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* const sink,
                      DecodeGraph(graph, kernel.source.encoding, Level::kKernel));
  OB_ASSIGN_OR_RETURN(EncodedGraph canonical, CanonicalKernel(sink));
  kernel.tuning_key_ = {canonical.id.ToBytes(), search::kSpaceVersion, hardware_};
  if (demand != nullptr) demand->encoding = std::move(canonical.bytes);
  return absl::OkStatus();
}

void KernelsInUse::TellCosts(const std::function<bool()>& preempted) {
  if (store_ == nullptr) return;
  std::vector<Demand> demands;
  std::vector<std::pair<std::shared_ptr<KernelInUse>, uint64_t>> told;
  for (const std::shared_ptr<KernelInUse>& kernel : All()) {
    if (preempted()) return;
    if (kernel->runs == kernel->told_runs_) continue;
    Demand demand{.name = kernel->name};
    told.emplace_back(kernel, kernel->runs);
    if (!FindTuningKey(*kernel, &demand).ok()) continue;
    demand.key = kernel->tuning_key_;
    demand.cost_us = static_cast<int64_t>(kernel->least_us *
                                          static_cast<double>(kernel->runs - kernel->told_runs_));
    demands.push_back(std::move(demand));
  }
  if (told.empty() || preempted()) return;
  store_->AddCosts(demands).IgnoreError();  // a worker goes on without its store
  for (auto& [kernel, runs] : told) kernel->told_runs_ = runs;
}

bool KernelsInUse::SearchCostliest(const Searcher& search) {
  std::shared_ptr<KernelInUse> costliest;
  double most_us = 0;
  for (const std::shared_ptr<KernelInUse>& kernel : All()) {
    const double us = kernel->least_us * static_cast<double>(kernel->runs);
    if (kernel->searched_ || pinned_.contains(kernel->id) || us <= most_us) continue;
    costliest = kernel;
    most_us = us;
  }
  if (costliest == nullptr) return false;
  Demand demand;
  Graph graph;
  costliest->searched_ = true;
  if (!FindTuningKey(*costliest, &demand).ok()) return true;
  // As it is measured elsewhere: constants do not matter.
  const absl::StatusOr<const UOp*> kernel = DecodeGraph(graph, demand.encoding, Level::kKernel);
  if (!kernel.ok()) return true;
  TuningKey key = costliest->tuning_key_;
  key.canonical = std::move(demand.encoding);
  const absl::StatusOr<bool> finished = search(*kernel, costliest->name, key);
  costliest->searched_ = !finished.ok() || *finished;
  return true;
}

KernelsInUse::Better KernelsInUse::BetterOf(
    const std::vector<std::shared_ptr<KernelInUse>>& kernels,
    const std::function<bool()>& preempted) {
  if (store_ == nullptr || idle_compiler_ == nullptr) return {};
  std::vector<std::shared_ptr<KernelInUse>> asked;
  std::vector<TuningKey> keys;
  for (const std::shared_ptr<KernelInUse>& kernel : kernels) {
    if (preempted()) return {};
    if (pinned_.contains(kernel->id) || !FindTuningKey(*kernel, nullptr).ok()) continue;
    asked.push_back(kernel);
    keys.push_back(kernel->tuning_key_);
  }
  Better better;
  const absl::StatusOr<std::vector<std::optional<Tuning>>> known = store_->FindAll(keys);
  for (size_t i = 0; known.ok() && i < asked.size(); ++i) {
    if (!(*known)[i].has_value()) continue;
    std::optional<std::string> opts = BetterThan(asked[i]->source.opts, *(*known)[i]);
    if (opts.has_value() && opts != asked[i]->source.opts && opts != asked[i]->refused_)
      better.emplace_back(asked[i], *std::move(opts));
  }
  return better;
}

void KernelsInUse::UseBetter(const std::function<bool()>& preempted) {
  for (auto& [kernel, opts] : BetterOf(All(), preempted)) {
    if (preempted()) return;
    const KernelSource source{kernel->source.encoding, opts};
    const absl::StatusOr<CompiledKernel> compiled =
        std::move(idle_compiler_->Compile({&source, 1})[0]);
    if (absl::IsCancelled(compiled.status())) return;
    if (!Switch(*kernel, compiled, opts)) kernel->refused_ = opts;
  }
}

std::vector<KernelVersion> KernelsInUse::FindBetter(
    const std::vector<std::shared_ptr<KernelInUse>>& kernels) {
  std::vector<KernelVersion> versions;
  for (auto& [kernel, opts] : BetterOf(kernels, [] { return false; }))
    versions.push_back({kernel->id, std::move(opts)});
  return versions;
}

std::vector<KernelVersion> KernelsInUse::NotAsPinned(std::span<const KernelId> kernels) const {
  std::vector<KernelVersion> versions;
  absl::flat_hash_set<KernelId> seen;
  for (const KernelId& id : kernels) {
    const std::shared_ptr<KernelInUse> kernel = Find(id);
    const auto pinned = pinned_.find(id);
    if (kernel == nullptr || pinned == pinned_.end() || !seen.insert(id).second) continue;
    if (kernel->source.opts != pinned->second) versions.push_back({id, pinned->second});
  }
  return versions;
}

absl::StatusOr<std::vector<ReadyKernel>> KernelsInUse::MakeReady(
    const std::vector<KernelVersion>& versions, KernelCompiler* compiler) {
  std::vector<ReadyKernel> ready;
  std::vector<KernelSource> sources;
  for (const KernelVersion& version : versions) {
    std::shared_ptr<KernelInUse> kernel = Find(version.kernel);
    if (kernel == nullptr) return absl::NotFoundError("the kernel is not in use");
    sources.push_back({kernel->source.encoding, version.opts});
    ready.push_back({std::move(kernel), version.opts, nullptr});
  }
  const std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler->Compile(sources);
  for (size_t i = 0; i < ready.size(); ++i) {
    OB_RETURN_IF_ERROR(compiled[i].status());
    OB_ASSIGN_OR_RETURN(ready[i].loaded, device_->Load(*compiled[i]));
  }
  return ready;
}

void KernelsInUse::Use(std::vector<ReadyKernel> ready) {
  for (ReadyKernel& one : ready) Replace(std::move(one));
}

void KernelsInUse::Refuse(const std::vector<KernelVersion>& versions) {
  for (const KernelVersion& version : versions)
    if (const std::shared_ptr<KernelInUse> kernel = Find(version.kernel); kernel != nullptr)
      kernel->refused_ = version.opts;
}

}  // namespace outboard::worker
