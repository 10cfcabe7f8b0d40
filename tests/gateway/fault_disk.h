// A disk for the blob store's tests: counts its calls, stops the world before the n-th of them, and
// then loses what was not synced, as a power cut may.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "gateway/blobs/disk.h"

namespace outboard::gateway::test {

class FaultDisk final : public Disk {
 public:
  // What a power cut does to a file whose bytes were not synced. One whose name was not is gone, or
  // has its name from before.
  enum class Loss { kNone, kEmpty, kGarbage };

  // Calls that change something, or wait for the disk; reads are `reads`.
  std::atomic<int> changes = 0;
  int reads = 0;
  std::atomic<int> removed = 0;
  std::function<void()> on_remove;  // before a file goes, with the store's lock held
  // Once, behind a sync of a file under a path with this in it, as if others had called meanwhile;
  // what it returns is how that sync went.
  std::string meanwhile_at;
  std::function<absl::Status()> meanwhile;
  int stop_before = -1;  // change: this one and all later ones do nothing and fail
  absl::Status sync_status, open_status, read_status;  // with which such calls fail
  bool stopped() const { return stop_before >= 0 && changes > stop_before; }

  void CutPower(Loss loss) {
    if (loss == Loss::kNone) return;
    for (const auto& [path, before] : names_) {
      if (before.empty())
        std::filesystem::remove(path);
      else
        std::filesystem::rename(path, before);
    }
    for (const std::string& path : bytes_) {
      std::error_code error;
      const auto size = std::filesystem::file_size(path, error);
      if (error) continue;
      if (loss == Loss::kEmpty) std::filesystem::resize_file(path, 0);
      if (loss == Loss::kGarbage) {
        std::filesystem::resize_file(path, 0);
        std::filesystem::resize_file(path, size);  // zeros where the bytes were
      }
    }
  }

  absl::StatusOr<int> Create(const std::string& path) override {
    if (absl::Status status = Change(); !status.ok()) return status;
    auto fd = Disk::Create(path);
    if (fd.ok()) {
      std::lock_guard lock(mutex_);
      bytes_.insert(path);
      names_[path] = "";
    }
    return fd;
  }
  absl::Status Write(int fd, uint64_t offset, std::string_view bytes) override {
    if (absl::Status status = Change(); !status.ok()) return status;
    return Disk::Write(fd, offset, bytes);
  }
  absl::StatusOr<int> Open(const std::string& path) override {
    ++reads;
    if (!open_status.ok()) return open_status;
    return Disk::Open(path);
  }
  absl::StatusOr<size_t> Read(int fd, std::span<char> out) override {
    if (!read_status.ok()) return read_status;
    return Disk::Read(fd, out);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (absl::Status status = Change(); !status.ok()) return status;
    absl::Status status = Disk::Rename(from, to);
    if (status.ok()) {
      std::lock_guard lock(mutex_);
      if (bytes_.erase(from) > 0) bytes_.insert(to);
      const auto unsynced = names_.extract(from);
      names_[to] = unsynced.empty() ? from : unsynced.mapped();
    }
    return status;
  }
  absl::Status Remove(const std::string& path) override {
    if (absl::Status status = Change(); !status.ok()) return status;
    {
      std::lock_guard lock(mutex_);
      bytes_.erase(path);
      names_.erase(path);
    }
    ++removed;
    if (on_remove) on_remove();
    return Disk::Remove(path);
  }
  absl::Status Sync(const std::string& path) override {
    if (absl::Status status = Change(); !status.ok()) return status;
    if (!sync_status.ok()) return sync_status;
    Forget(path);
    if (meanwhile && path.find(meanwhile_at) != std::string::npos)
      return std::exchange(meanwhile, nullptr)();
    return absl::OkStatus();  // the test's folder needs none
  }
  absl::StatusOr<bool> MakeFolder(const std::string& path) override {
    if (absl::Status status = Change(); !status.ok()) return status;
    return Disk::MakeFolder(path);
  }

 private:
  void Forget(const std::string& path) {  // it is synced
    std::lock_guard lock(mutex_);
    bytes_.erase(path);
    for (auto name = names_.begin(); name != names_.end();)
      name = std::filesystem::path(name->first).parent_path() == path ? names_.erase(name) : ++name;
  }
  absl::Status Change() {
    ++changes;
    return stopped() ? absl::UnavailableError("the world has stopped") : absl::OkStatus();
  }

  std::mutex mutex_;  // of what follows
  // Not synced: files, and names with what they were before, if they were.
  std::set<std::string> bytes_;
  std::map<std::string, std::string> names_;
};

}  // namespace outboard::gateway::test
