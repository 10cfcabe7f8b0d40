#include "worker/kernels/account_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/compile/object_cache.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

// Its lock is that of its folder, and its time the folder's last use.
constexpr char kLockFile[] = "in-use";
// A folder may be removed while it is taken; nobody removes it so often.
constexpr int kTriesMax = 100;
// What may be written beyond a limit before it is kept again, as a part of it.
constexpr int64_t kSlack = 8;
// Steps go first; not the lowest priority, since whoever stops the worker waits for it.
constexpr int kNice = 10;

std::string LockOf(const std::string& folder) { return folder + "/" + kLockFile; }

bool IsStillThere(int fd, const std::string& path) {
  struct stat held {
  }, named{};
  return fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

std::vector<std::string> FoldersIn(const std::string& accounts) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator it(accounts, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone) && !it->is_symlink(gone)) folders.push_back(it->path().string());
  }
  return folders;
}

int64_t BytesIn(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const uintmax_t size = it->file_size(gone);
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// False: somebody holds it.
bool RemoveUnlessHeld(const std::string& folder) {
  const std::string path = LockOf(folder);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  const bool ours = flock(fd, LOCK_EX | LOCK_NB) == 0 && IsStillThere(fd, path);
  std::error_code error;
  if (ours) fs::remove_all(folder, error);
  close(fd);
  return ours && !error;
}

}  // namespace

HeldFolder HeldFolder::Take(const std::string& folder, For what) {
  HeldFolder held;
  const std::string path = LockOf(folder);
  for (int tried = 0; tried < kTriesMax; ++tried) {
    std::error_code error;
    if (fs::create_directories(folder, error)) fs::permissions(folder, fs::perms::owner_all, error);
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno != ENOENT) break;  // whoever opens the files says what is wrong
    if (fd >= 0 && flock(fd, LOCK_SH) == 0 && IsStillThere(fd, path)) {
      if (what == kUse) futimens(fd, nullptr);
      held.fd_ = fd;
      break;
    }
    if (fd >= 0) close(fd);
  }
  return held;
}

HeldFolder::HeldFolder(HeldFolder&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
HeldFolder& HeldFolder::operator=(HeldFolder&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
HeldFolder::~HeldFolder() {
  if (fd_ >= 0) close(fd_);
}

int64_t TrimMeasurements(const std::string& accounts, int64_t bytes_max) {
  struct Folder {
    fs::file_time_type used;
    std::string path;
    int64_t bytes;
  };
  std::vector<Folder> folders;
  int64_t total = 0;
  for (const std::string& path : FoldersIn(accounts)) {
    std::error_code error;
    fs::file_time_type used = fs::last_write_time(LockOf(path), error);
    if (error) used = fs::last_write_time(path, error);  // made before there was a lock
    folders.push_back({used, path, BytesIn(path)});
    total += folders.back().bytes;
  }
  if (total <= bytes_max) return total;
  std::sort(folders.begin(), folders.end(), [](const Folder& a, const Folder& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  for (const Folder& folder : folders) {
    if (total <= bytes_max / 4 * 3) break;
    if (RemoveUnlessHeld(folder.path)) total -= folder.bytes;
  }
  return total;
}

int64_t TrimAccountObjects(const std::string& accounts, int64_t bytes_max) {
  const std::vector<std::string> folders = FoldersIn(accounts);
  const int64_t left = TrimObjects(folders, bytes_max);
  for (const std::string& folder : folders) rmdir(folder.c_str());  // fails where there are files
  return left;
}

class AccountDisk::Impl {
 public:
  explicit Impl(AccountDiskOptions options)
      : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC)), thread_([this] { Main(); }) {}

  ~Impl() {
    stopping_ = true;
    Wake();
    thread_.join();
    close(wake_);
  }

  void StoredObject(int64_t bytes) {
    if ((stored_bytes_ += bytes) > options_.objects_bytes_max / kSlack) Wake();
  }
  void OpenedMeasurements() {
    opened_ = true;
    Wake();
  }

 private:
  void Wake() const { eventfd_write(wake_, 1); }

  void Main() {
    setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
    do {
      if (!options_.measurements.empty() && opened_.exchange(false))
        TrimMeasurements(options_.measurements, options_.measurements_bytes_max);
      if (!options_.objects.empty() && stored_bytes_ > options_.objects_bytes_max / kSlack) {
        stored_bytes_ = 0;
        TrimAccountObjects(options_.objects, options_.objects_bytes_max);
      }
      uint64_t ignored;
      if (!stopping_ && read(wake_, &ignored, sizeof ignored) < 0 && errno != EINTR) return;
    } while (!stopping_);
  }

  const AccountDiskOptions options_;
  std::atomic<bool> stopping_{false}, opened_{true};
  std::atomic<int64_t> stored_bytes_{INT64_MAX / 2};  // since the last time; at the start, unknown
  const int wake_;
  std::thread thread_;
};

AccountDisk::AccountDisk(AccountDiskOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
AccountDisk::~AccountDisk() = default;
void AccountDisk::StoredObject(int64_t bytes) { impl_->StoredObject(bytes); }
void AccountDisk::OpenedMeasurements() { impl_->OpenedMeasurements(); }

}  // namespace outboard::worker
