#include "worker/compile/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "compiler/ir/encoding.h"
#include "telemetry/counters.h"
#include "worker/compile/box_messages.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "OBOBJ1\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kHashBytes = 32;
constexpr size_t kHeaderBytes =
    kMagicBytes + 2 * kHashBytes;  // magic, key, checksum of what follows
constexpr uintmax_t kFileBytesMax = uintmax_t{64} << 20;

std::string Sha256(const std::string& bytes) { return IdOfEncoding(bytes).ToBytes(); }

std::string KeyOf(const std::string& compiler, const KernelSource& kernel) {
  const std::string opts = kernel.opts.has_value() ? "opts " + *kernel.opts : "heuristic";
  return Sha256(
      absl::StrCat(compiler.size(), ":", compiler, opts.size(), ":", opts, kernel.encoding));
}

}  // namespace

ObjectCache::ObjectCache(KernelCompiler* inner, ObjectCacheOptions options)
    : inner_(inner), options_(std::move(options)) {
  MakeFolder();
  Trim();
}

void ObjectCache::MakeFolder() {
  std::error_code ignored;
  if (fs::create_directories(options_.folder, ignored))
    fs::permissions(options_.folder, fs::perms::owner_all, ignored);
}

std::vector<absl::StatusOr<CompiledKernel>> ObjectCache::Compile(
    std::span<const KernelSource> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(),
                                                      absl::InternalError("not compiled"));
  std::vector<std::string> keys;
  std::vector<KernelSource> missing;
  std::vector<size_t> places;
  for (size_t i = 0; i < kernels.size(); ++i) {
    keys.push_back(KeyOf(options_.compiler, kernels[i]));
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
    if (compiled[i].ok()) Store(keys[places[i]], *compiled[i]);
    results[places[i]] = std::move(compiled[i]);
  }
  if (stored_bytes_ > options_.bytes_max / 8) Trim();
  return results;
}

std::string ObjectCache::PathOf(const std::string& key) const {
  return (fs::path(options_.folder) / (GraphIdFromBytes(key)->ToHex() + ".obj")).string();
}

bool ObjectCache::Load(const std::string& key, CompiledKernel* kernel) {
  const std::string path = PathOf(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  std::string bytes;
  if (!error && size >= kHeaderBytes && size <= kFileBytesMax)
    bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  proto::CompileResult result;
  const bool good = bytes.size() >= kHeaderBytes && bytes.compare(0, kMagicBytes, kMagic) == 0 &&
                    bytes.compare(kMagicBytes, kHashBytes, key) == 0 &&
                    bytes.compare(kMagicBytes + kHashBytes, kHashBytes,
                                  Sha256(bytes.substr(kHeaderBytes))) == 0 &&
                    result.ParseFromArray(bytes.data() + kHeaderBytes,
                                          static_cast<int>(bytes.size() - kHeaderBytes)) &&
                    result.code() == 0;
  if (!good) {
    fs::remove(path, error);
    return false;
  }
  *kernel = *FromResult(std::move(result));
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  return true;
}

void ObjectCache::Store(const std::string& key, const CompiledKernel& kernel) {
  static std::atomic<uint64_t> next{0};  // several caches of a process may share a folder
  MakeFolder();                          // an empty one may have been removed
  const std::string payload = ToResult(kernel).SerializeAsString();
  const std::string temporary =
      (fs::path(options_.folder) / absl::StrCat("new-", getpid(), "-", next++, ".tmp")).string();
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << kMagic << key << Sha256(payload) << payload;
    file.close();
    std::error_code ignored;
    if (!file) {
      fs::remove(temporary, ignored);
      return;
    }
  }
  std::error_code error;
  fs::rename(temporary, PathOf(key),
             error);  // without a sync: a file torn by a power cut fails its checksum
  if (error) fs::remove(temporary, error);
  const auto bytes = static_cast<int64_t>(kHeaderBytes + payload.size());
  stored_bytes_ += bytes;
  if (options_.on_stored) options_.on_stored(bytes);
}

void ObjectCache::Trim() {
  stored_bytes_ = 0;
  TrimObjects({&options_.folder, 1}, options_.bytes_max);
}

int64_t TrimObjects(std::span<const std::string> folders, int64_t bytes_max) {
  struct File {
    fs::file_time_type used;
    std::string path;
    int64_t bytes;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const std::string& folder : folders) {
    error.clear();
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      std::error_code gone;
      const auto bytes = static_cast<int64_t>(it->file_size(gone));
      const auto used = it->last_write_time(gone);
      if (gone) continue;
      const std::string path = it->path().string();
      // What a process that died was writing.
      if (path.ends_with(".tmp") && now - used > std::chrono::hours(1)) fs::remove(path, gone);
      if (!path.ends_with(".obj")) continue;
      files.push_back({used, path, bytes});
      total += bytes;
    }
  }
  if (total <= bytes_max) return total;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  for (const File& file : files) {
    if (total <= bytes_max / 4 * 3) break;
    fs::remove(file.path, error);
    total -= file.bytes;
  }
  return total;
}

std::string CompilerIdentity(const std::string& path, const Target& target) {
  struct stat info = {};
  stat(path.c_str(), &info);
  return absl::StrCat("size ", info.st_size, " time ", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec, " noopt ", IsSet("NOOPT") ? 1 : 0, "\n",
                      target.Fingerprint(), "\n", target.arch, " ", target.features, "\n");
}

}  // namespace outboard::worker
