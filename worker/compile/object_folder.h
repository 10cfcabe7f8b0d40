// Files of objects, named by their keys, which processes share and leave at any moment.
//
// A file holds its key and a checksum of its contents; one that is damaged, of another key or of
// another format is as good as absent and is removed. Files appear whole (written aside, then
// renamed). Failures of the disk are silent: they cost time, nothing else.
//
// Whoever reads such a folder executes its contents: it belongs to one account
// (worker/kernels/account_kernels.h), and supervisors alone read and write it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outboard::worker {

// Of one account's files.
inline constexpr int64_t kObjectCacheBytesMax = int64_t{512} << 20;

struct ObjectFolderOptions {
  std::string folder;                        // made if it is not there, for this user only
  int64_t bytes_max = kObjectCacheBytesMax;  // of all files; the least recently used go first
  std::function<void(int64_t bytes)> on_stored = {};  // of each file that was written
};

// Threads: one.
class ObjectFolder {
 public:
  explicit ObjectFolder(ObjectFolderOptions options);

  // Keys are SHA-256, 32 bytes. nullopt: absent.
  std::optional<std::string> Load(const std::string& key);
  void Store(const std::string& key, std::string_view contents);
  // Removes an object whose contents are not what they should be.
  void Remove(const std::string& key);
  // Call when some were stored.
  void TrimIfGrown();

 private:
  std::string PathOf(const std::string& key) const;
  void MakeFolder();
  void Trim();

  const ObjectFolderOptions options_;
  int64_t stored_bytes_ = 0;  // since the last Trim
};

// Removes the least recently used objects of all of these folders together, if they have more than
// `bytes_max`, until they have three quarters of that; and what processes that died were writing.
// Returns the bytes that are left. Others may use the folders meanwhile.
int64_t TrimObjects(std::span<const std::string> folders, int64_t bytes_max);

}  // namespace outboard::worker
