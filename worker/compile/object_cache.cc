#include "worker/compile/object_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "compiler/ir/encoding.h"
#include "telemetry/counters.h"
#include "worker/compile/compile_messages.h"

namespace outboard::worker {
namespace {

std::string KeyOf(const std::string& compiler, const KernelSource& kernel) {
  const std::string opts = kernel.opts.has_value() ? "opts " + *kernel.opts : "heuristic";
  return IdOfEncoding(
             absl::StrCat(compiler.size(), ":", compiler, opts.size(), ":", opts, kernel.encoding))
      .ToBytes();
}

// Where several caches have one folder, a request has so many kernels at most, or kKernelsPerThread
// for each thread that compiles if that is more; the next ones may be another cache's.
// Of a cache that is alone. A kernel that hangs, or ends the compiler, costs its whole request a
// longer wait, or compiling one by one.
constexpr size_t kAloneAtOnce = 64;
constexpr size_t kCompiledAtOnceMin = 8;
constexpr size_t kKernelsPerThread = 4;  // with fewer a thread does not start (InProcessCompiler)
constexpr std::chrono::milliseconds kLookForStop{20};

// Kernels that some cache of this process compiles now, by folder and key.
class KernelsInFlight {
 public:
  struct Flight {
    bool has_ended = false;
    absl::Status status;
  };
  static KernelsInFlight& OfProcess() {
    static KernelsInFlight& all = *new KernelsInFlight;
    return all;
  }

  // Caches of a folder, from their making to their end.
  void AddCache(const std::string& folder) {
    std::lock_guard lock(mutex_);
    ++caches_[folder];
  }
  void RemoveCache(const std::string& folder) {
    std::lock_guard lock(mutex_);
    const auto found = caches_.find(folder);
    if (--found->second == 0) caches_.erase(found);
  }
  bool IsOnlyCache(const std::string& folder) {
    std::lock_guard lock(mutex_);
    return caches_.at(folder) == 1;
  }

  // True: the caller compiles it, and ends the flight. False: `flight` is that of who does.
  bool Begin(const std::string& name, std::shared_ptr<const Flight>& flight) {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = flights_.try_emplace(name);
    if (is_new) at->second = std::make_shared<Flight>();
    flight = at->second;
    return is_new;
  }
  void End(const std::string& name, const absl::Status& status) {
    std::lock_guard lock(mutex_);
    const auto found = flights_.find(name);
    found->second->status = status;
    found->second->has_ended = true;
    flights_.erase(found);
    ended_.notify_all();
  }
  // Returns nullopt if it has not ended yet.
  std::optional<absl::Status> Await(const Flight& flight, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, most, [&] { return flight.has_ended; })) return std::nullopt;
    return flight.status;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;
  std::map<std::string, int> caches_;
};

}  // namespace

ObjectCache::ObjectCache(KernelCompiler* inner, ObjectCacheOptions options)
    : inner_(inner),
      compiler_(std::move(options.compiler)),
      folder_path_(options.folder),
      is_stopped_(std::move(options.is_stopped)),
      folder_({std::move(options.folder), options.bytes_max, std::move(options.on_stored)}) {
  KernelsInFlight::OfProcess().AddCache(folder_path_);
}

ObjectCache::~ObjectCache() { KernelsInFlight::OfProcess().RemoveCache(folder_path_); }

size_t ObjectCache::KernelsAtOnce() const {
  const int threads = std::max(0, inner_->target().threads);
  const size_t several =
      std::max(kCompiledAtOnceMin, kKernelsPerThread * static_cast<size_t>(threads));
  return KernelsInFlight::OfProcess().IsOnlyCache(folder_path_) ? std::max(kAloneAtOnce, several)
                                                                : several;
}

std::vector<absl::StatusOr<CompiledKernel>> ObjectCache::Compile(
    std::span<const KernelSource> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(),
                                                      absl::InternalError("not compiled"));
  std::vector<std::string> keys;
  std::vector<size_t> missing;
  for (size_t i = 0; i < kernels.size(); ++i) {
    keys.push_back(KeyOf(compiler_, kernels[i]));
    CompiledKernel kernel;
    if (Load(keys[i], &kernel)) {
      ++hits_;
      results[i] = std::move(kernel);
    } else {
      missing.push_back(i);
    }
  }
  telemetry::CountAs(telemetry::Metric::kObjectCache, telemetry::Lookup::kHit,
                     kernels.size() - missing.size());
  telemetry::CountAs(telemetry::Metric::kObjectCache, telemetry::Lookup::kMiss, missing.size());
  if (missing.empty()) return results;
  CompileMissing(kernels, keys, std::move(missing), results);
  folder_.TrimIfGrown();
  return results;
}

void ObjectCache::CompileMissing(std::span<const KernelSource> kernels,
                                 std::span<const std::string> keys, std::vector<size_t> missing,
                                 std::vector<absl::StatusOr<CompiledKernel>>& results) {
  KernelsInFlight& in_flight = KernelsInFlight::OfProcess();
  const auto name_of = [&](size_t i) { return absl::StrCat(folder_path_, "\n", keys[i]); };
  while (!missing.empty()) {
    const size_t at_once = KernelsAtOnce();
    std::vector<size_t> own, left;
    std::shared_ptr<const KernelsInFlight::Flight> others, flight;
    size_t awaited = 0;
    for (const size_t i : missing) {
      if (own.size() == at_once) {
        left.push_back(i);
      } else if (in_flight.Begin(name_of(i), flight)) {
        own.push_back(i);
      } else {
        left.push_back(i);
        if (others == nullptr) awaited = i, others = flight;
      }
    }
    missing = std::move(left);
    std::vector<KernelSource> sources;
    std::vector<size_t> places;
    for (const size_t i : own) {  // another may have stored it since it was looked for
      CompiledKernel kernel;
      if (Load(keys[i], &kernel)) {
        results[i] = std::move(kernel);
        in_flight.End(name_of(i), absl::OkStatus());
      } else {
        places.push_back(i);
        sources.push_back(kernels[i]);
      }
    }
    if (!places.empty()) {
      std::vector<absl::StatusOr<CompiledKernel>> compiled = inner_->Compile(sources);
      compiled.resize(places.size(), absl::InternalError("not compiled"));
      for (size_t j = 0; j < places.size(); ++j) {
        if (compiled[j].ok())
          folder_.Store(keys[places[j]], ToResult(*compiled[j]).SerializeAsString());
        in_flight.End(name_of(places[j]), compiled[j].status());
        results[places[j]] = std::move(compiled[j]);
      }
    }
    if (!own.empty() || missing.empty()) continue;
    const std::optional<absl::Status> ended = in_flight.Await(*others, kLookForStop);
    if (!ended.has_value()) {
      if (is_stopped_ == nullptr || !is_stopped_()) continue;
      for (const size_t i : missing) results[i] = absl::CancelledError("nobody waits for kernels");
      return;
    }
    // What became of the other process is no fault of the kernel.
    if (ended->ok() || absl::IsCancelled(*ended) || absl::IsUnavailable(*ended)) continue;
    results[awaited] = *ended;
    std::erase(missing, awaited);
  }
}

bool ObjectCache::Load(const std::string& key, CompiledKernel* kernel) {
  const std::optional<std::string> bytes = folder_.Load(key);
  if (!bytes.has_value()) return false;
  proto::CompileResult result;
  if (!result.ParseFromString(*bytes) || result.code() != 0) {
    folder_.Remove(key);
    return false;
  }
  *kernel = *FromResult(std::move(result));
  return true;
}

std::string CompilerIdentity(const std::string& path, const Target& target) {
  struct stat info = {};
  stat(path.c_str(), &info);
  return absl::StrCat("size ", info.st_size, " time ", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec, " noopt ", IsSet("NOOPT") ? 1 : 0, "\n",
                      target.Fingerprint(), "\n", target.arch, " ", target.features, "\n");
}

}  // namespace outboard::worker
