#include "cli/node/served_files.h"

#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/node/image_store.h"
#include "telemetry/log.h"

namespace outboard::cli {
namespace {

// Differs once one of the files is written, replaced, added or removed.
std::string StampOf(const std::vector<std::string>& paths) {
  std::string stamp;
  for (const std::string& path : paths) {
    struct stat of {};
    if (stat(path.c_str(), &of) != 0) of = {};
    absl::StrAppend(&stamp, of.st_ino, ":", of.st_size, ":", of.st_mtim.tv_sec, ".",
                    of.st_mtim.tv_nsec, ":", of.st_ctim.tv_sec, ".", of.st_ctim.tv_nsec, " ");
  }
  return stamp;
}

}  // namespace

const BootImage* ServedImages::Find(const std::string& digest) {
  const std::vector<std::string> paths = StoredImageFiles(data_folder_, digest);
  struct stat of {};
  if (paths.empty() || stat(paths.front().c_str(), &of) != 0) {
    telemetry::LogWarning("image_not_read", {{"image", digest}, {"message", "it is not there"}});
    checked_.erase(digest);
    return nullptr;
  }
  std::string stamp = StampOf(paths);
  Checked& known = checked_[digest];
  if (known.stamp == stamp) return known.image ? &*known.image : nullptr;
  ++checks_;
  auto image = ReadStoredImage(data_folder_, digest);
  known = {.stamp = std::move(stamp), .image = std::nullopt};
  if (image.ok()) {
    known.image = *std::move(image);
    return &*known.image;
  }
  telemetry::LogWarning("image_not_read",
                        {{"image", digest}, {"message", image.status().message()}});
  return nullptr;
}

ServedDrivers::ServedDrivers(std::string data_folder)
    : data_folder_(std::move(data_folder)),
      thread_([this](const std::stop_token& stop) { ReadAll(stop); }) {}

std::optional<BootFile> ServedDrivers::Find(const std::string& digest) {
  const std::string name = "sha256:" + digest;
  const std::vector<std::string> paths = StoredDriverFiles(data_folder_, name);
  struct stat of {};
  std::lock_guard lock(mutex_);
  if (paths.empty() || stat(paths.front().c_str(), &of) != 0) {
    checked_.erase(digest);
    return std::nullopt;
  }
  std::string stamp = StampOf(paths);
  Checked& known = checked_[digest];
  if (known.stamp == stamp) return known.file;
  ++checks_;
  auto file = FindStoredDriver(data_folder_, name);
  known = {.stamp = std::move(stamp), .file = std::nullopt};
  if (file.ok()) {
    known.file = *std::move(file);
    to_read_.push_back(digest);
    wake_.notify_one();
  } else {
    telemetry::LogWarning("driver_not_served", {{"message", file.status().message()}});
  }
  return known.file;
}

void ServedDrivers::ReadAll(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return !to_read_.empty(); })) {
    const std::string digest = std::move(to_read_.front());
    to_read_.pop_front();
    const Checked checked = checked_[digest];
    if (!checked.file.has_value()) continue;
    lock.unlock();
    const auto read = ReadBootFile(checked.file->path, stop);
    lock.lock();
    if (stop.stop_requested()) return;
    ++reads_;
    if (read.ok() && read->digest == digest) continue;
    const std::string found =
        read.ok() ? "found sha256:" + read->digest : std::string(read.status().message());
    telemetry::LogWarning("driver_not_served",
                          {{"message", absl::StrCat(checked.file->path, ": expected sha256:",
                                                    digest, ", ", found)}});
    if (Checked& now = checked_[digest]; now.stamp == checked.stamp) now.file.reset();
  }
}

}  // namespace outboard::cli
