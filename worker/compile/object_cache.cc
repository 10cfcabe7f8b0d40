#include "worker/compile/object_cache.h"

#include <sys/stat.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "compiler/ir/encoding.h"
#include "telemetry/counters.h"
#include "worker/compile/box_messages.h"

namespace outboard::worker {
namespace {

std::string KeyOf(const std::string& compiler, const KernelSource& kernel) {
  const std::string opts = kernel.opts.has_value() ? "opts " + *kernel.opts : "heuristic";
  return IdOfEncoding(
             absl::StrCat(compiler.size(), ":", compiler, opts.size(), ":", opts, kernel.encoding))
      .ToBytes();
}

}  // namespace

ObjectCache::ObjectCache(KernelCompiler* inner, ObjectCacheOptions options)
    : inner_(inner),
      compiler_(std::move(options.compiler)),
      folder_({std::move(options.folder), options.bytes_max, std::move(options.on_stored)}) {}

std::vector<absl::StatusOr<CompiledKernel>> ObjectCache::Compile(
    std::span<const KernelSource> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(),
                                                      absl::InternalError("not compiled"));
  std::vector<std::string> keys;
  std::vector<KernelSource> missing;
  std::vector<size_t> places;
  for (size_t i = 0; i < kernels.size(); ++i) {
    keys.push_back(KeyOf(compiler_, kernels[i]));
    CompiledKernel kernel;
    if (Load(keys[i], &kernel)) {
      ++hits_;
      results[i] = std::move(kernel);
    } else {
      places.push_back(i);
      missing.push_back(kernels[i]);
    }
  }
  telemetry::CountAs(telemetry::Metric::kObjectCache, telemetry::Lookup::kHit,
                     kernels.size() - missing.size());
  telemetry::CountAs(telemetry::Metric::kObjectCache, telemetry::Lookup::kMiss, missing.size());
  if (missing.empty()) return results;
  std::vector<absl::StatusOr<CompiledKernel>> compiled = inner_->Compile(missing);
  for (size_t i = 0; i < places.size(); ++i) {
    if (compiled[i].ok())
      folder_.Store(keys[places[i]], ToResult(*compiled[i]).SerializeAsString());
    results[places[i]] = std::move(compiled[i]);
  }
  folder_.TrimIfGrown();
  return results;
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
