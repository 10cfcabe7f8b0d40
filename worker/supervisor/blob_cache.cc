#include "worker/supervisor/blob_cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/environment.h"

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

// A UUID, as BootId.
bool IsBootId(const std::string& name) {
  if (name.size() != 36) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? name[i] != '-' : !std::isxdigit(static_cast<unsigned char>(name[i]))) return false;
  }
  return true;
}

absl::Status FileError(const std::string& what) {
  const int error = errno;
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

// A folder that nobody else can write to. One that another user has made would be that user's to
// fill.
absl::Status MakeOurs(const std::string& folder) {
  struct stat info {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return FileError(absl::StrCat("cannot make the folder for blobs, ", folder));
  if (lstat(folder.c_str(), &info) != 0)
    return FileError(absl::StrCat("cannot use the folder for blobs, ", folder));
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid())
    return absl::UnavailableError(
        absl::StrCat("the folder for blobs belongs to another user: ", folder));
  return absl::OkStatus();
}

// The open folder with its lock; -1 where it has gone or somebody holds it.
int Lock(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  struct stat held {
  }, named{};
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 &&
      stat(folder.c_str(), &named) == 0 && held.st_ino == named.st_ino)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

wire::Hash NameOf(const std::string& owner, const wire::Hash& root) {
  return Sha256(absl::StrCat("blob of ", owner, "\n", std::string(wire::AsBytes(root))));
}

int OpenToRead(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

constexpr char kOfProcess[] = "process-";

void RemoveFoldersOfTheDead(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(kOfProcess)) continue;
    const int fd = Lock(entry.path());
    if (fd < 0) continue;
    fs::remove_all(entry.path(), error);
    close(fd);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobCache>> BlobCache::Open(const std::string& folder,
                                                           uint64_t bytes_max) {
  const std::string ours = absl::StrCat(folder, "/", BootId());
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);  // MakeOurs says what is wrong
  if (absl::Status status = MakeOurs(folder); !status.ok()) return status;
  if (absl::Status status = MakeOurs(ours); !status.ok()) return status;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (IsBootId(entry.path().filename().string()) && entry.path() != fs::path(ours))
      fs::remove_all(entry.path(), error);
  }
  RemoveFoldersOfTheDead(ours);
  if (bytes_max == 0) {
    const fs::space_info space = fs::space(ours, error);
    bytes_max = error ? uint64_t{1} << 30 : static_cast<uint64_t>(space.available) / 2;
  }
  std::string process;
  int lock = -1;
  while (lock < 0) {  // again where another process took it for a dead one's before it was locked
    process = absl::StrCat(ours, "/", kOfProcess, "XXXXXX");
    if (mkdtemp(process.data()) == nullptr)
      return FileError(absl::StrCat("cannot make a folder for blobs in ", ours));
    lock = Lock(process);
    if (lock < 0 && access(process.c_str(), F_OK) == 0)
      return FileError(absl::StrCat("cannot lock the folder for blobs, ", process));
  }
  return std::unique_ptr<BlobCache>(new BlobCache(ours, process, lock, bytes_max));
}

BlobCache::~BlobCache() {
  std::error_code ignored;
  fs::remove_all(process_folder_, ignored);
  close(lock_);
}

absl::StatusOr<std::unique_ptr<BlobCache>> BlobCache::OpenDefault() {
  std::string folder;
  // It may be a folder that holds other things too.
  if (const char* const named = std::getenv("OUTBOARD_BLOB_CACHE"); named != nullptr && *named != 0)
    folder = absl::StrCat(named, "/outboard-blobs");
  if (folder.empty() && !CacheFolder().empty()) folder = CacheFolder() + "/blobs";
  if (folder.empty()) {
    std::error_code ignored;
    folder = absl::StrCat(fs::temp_directory_path(ignored).string(), "/outboard-blobs-", getuid());
  }
  const char* const bytes = std::getenv("OUTBOARD_BLOB_CACHE_BYTES");
  return Open(folder, bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : 0);
}

std::string BlobCache::PathOf(const wire::Hash& name) const {
  return absl::StrCat(folder_, "/", wire::ToHex(name));
}

absl::StatusOr<int> BlobCache::Get(const std::string& owner, const wire::Hash& root,
                                   uint64_t size_bytes,
                                   const std::function<absl::Status(int fd)>& pull) {
  const wire::Hash name = NameOf(owner, root);
  const std::string path = PathOf(name);
  std::unique_lock lock(mutex_);
  pulled_.wait(lock, [&] { return !pulling_.contains(name); });
  if (const int fd = OpenToRead(path); fd >= 0) {
    futimens(fd, nullptr);  // its time is when it was last used
    return fd;
  }
  if (errno != ENOENT) return FileError("cannot open a blob's file");
  pulling_.insert(name);
  lock.unlock();
  absl::StatusOr<int> pulled = Pull(path, size_bytes, pull);
  lock.lock();
  pulling_.erase(name);
  pulled_.notify_all();
  return pulled;
}

// Opened for the caller before it has the name that others see: from then on it may go any time.
absl::StatusOr<int> BlobCache::Pull(const std::string& path, uint64_t size_bytes,
                                    const std::function<absl::Status(int fd)>& pull) {
  static std::atomic<uint64_t> next{0};
  if (absl::Status status = MakeRoom(size_bytes); !status.ok()) return status;
  const std::string part = absl::StrCat(process_folder_, "/part-", next++);
  // Nobody writes to it after this descriptor is closed.
  const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
  if (fd < 0) return FileError("cannot write a blob");
  absl::Status status = pull(fd);
  if (close(fd) != 0 && status.ok()) status = FileError("cannot write a blob");
  int own = -1;
  if (status.ok() && (own = OpenToRead(part)) < 0) status = FileError("cannot open a blob's file");
  if (status.ok() && rename(part.c_str(), path.c_str()) != 0)
    status = FileError("cannot rename a blob's file");
  if (status.ok()) return own;
  if (own >= 0) close(own);
  unlink(part.c_str());
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
    struct stat info {};
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

}  // namespace outboard::worker
