#include "worker/blob_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "worker/environment.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

// A new one with each start of the machine.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? "unknown-boot" : id;
}

bool IsName(const std::string& name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobCache>> BlobCache::Open(const std::string& folder,
                                                           uint64_t bytes_max) {
  const std::string ours = absl::StrCat(folder, "/", BootId());
  std::error_code error;
  fs::create_directories(ours, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the folder for blobs, ", ours, ": ", error.message()));
  }
  fs::permissions(folder, fs::perms::owner_all, error);
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path() != fs::path(ours)) fs::remove_all(entry.path(), error);
  if (bytes_max == 0) {
    const fs::space_info space = fs::space(ours, error);
    bytes_max = error ? uint64_t{1} << 30 : static_cast<uint64_t>(space.available) / 2;
  }
  std::unique_ptr<BlobCache> cache(new BlobCache(ours, bytes_max));
  for (const auto& entry : fs::directory_iterator(ours, error)) {
    wire::Hash root;
    const std::string name = entry.path().filename().string();
    if (IsName(name) && wire::FromHex(name, root)) cache->news_.push_back(root);
  }
  return cache;
}

absl::StatusOr<std::unique_ptr<BlobCache>> BlobCache::OpenDefault() {
  std::string folder;
  if (const char* const named = std::getenv("OUTBOARD_BLOB_CACHE")) folder = named;
  if (folder.empty() && !CacheFolder().empty()) folder = CacheFolder() + "/blobs";
  if (folder.empty()) {
    std::error_code ignored;
    folder = absl::StrCat(fs::temp_directory_path(ignored).string(), "/outboard-blobs-", getuid());
  }
  const char* const bytes = std::getenv("OUTBOARD_BLOB_CACHE_BYTES");
  return Open(folder, bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : 0);
}

std::string BlobCache::PathOf(const wire::Hash& root) const {
  return absl::StrCat(folder_, "/", wire::ToHex(root));
}

std::string BlobCache::Find(const wire::Hash& root) const {
  std::string path = PathOf(root);
  return access(path.c_str(), R_OK) == 0 ? path : "";
}

absl::StatusOr<std::string> BlobCache::Get(const wire::Hash& root, uint64_t size_bytes,
                                           const std::function<absl::Status(int fd)>& pull) {
  const std::string path = PathOf(root);
  std::unique_lock lock(mutex_);
  pulled_.wait(lock, [&] { return !pulling_.contains(root); });
  // Its time is when it was last used.
  if (utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0) return path;
  pulling_.insert(root);
  lock.unlock();
  absl::Status status = Pull(path, size_bytes, pull);
  lock.lock();
  pulling_.erase(root);
  pulled_.notify_all();
  if (!status.ok()) return status;
  news_.push_back(root);
  return path;
}

absl::Status BlobCache::Pull(const std::string& path, uint64_t size_bytes,
                             const std::function<absl::Status(int fd)>& pull) {
  static std::atomic<uint64_t> next{0};
  if (absl::Status status = MakeRoom(size_bytes); !status.ok()) return status;
  const std::string part = absl::StrCat(folder_, "/part-", getpid(), "-", next++);
  const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot write a blob: ", strerror(errno)));
  absl::Status status = pull(fd);
  if (close(fd) != 0 && status.ok())
    status = absl::UnavailableError(absl::StrCat("cannot write a blob: ", strerror(errno)));
  if (status.ok() && rename(part.c_str(), path.c_str()) != 0)
    status = absl::UnavailableError(absl::StrCat("cannot name a blob: ", strerror(errno)));
  if (!status.ok()) unlink(part.c_str());
  return status;
}

// Other processes may remove files meanwhile; what is gone is no error.
absl::Status BlobCache::MakeRoom(uint64_t size_bytes) {
  if (size_bytes > bytes_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a blob of ", size_bytes, " bytes; this worker keeps at most ", bytes_max_));
  }
  std::vector<std::tuple<int64_t, std::string, uint64_t>> files;  // when used, path, bytes
  uint64_t total = size_bytes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    struct stat info{};
    if (!IsName(entry.path().filename().string()) || stat(entry.path().c_str(), &info) != 0)
      continue;
    total += static_cast<uint64_t>(info.st_size);
    files.emplace_back(info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec,
                       entry.path().string(), static_cast<uint64_t>(info.st_size));
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() && total > bytes_max_; ++i) {
    unlink(std::get<1>(files[i]).c_str());
    total -= std::get<2>(files[i]);
  }
  return absl::OkStatus();
}

std::vector<wire::Hash> BlobCache::TakeNews() {
  std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

}  // namespace outboard::worker
