#include "worker/compile/object_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/sha256.h"
#include "compiler/ir/encoding.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "OBOBJ1\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kHashBytes = 32;
constexpr size_t kHeaderBytes =
    kMagicBytes + 2 * kHashBytes;  // magic, key, checksum of what follows
constexpr uintmax_t kFileBytesMax = uintmax_t{64} << 20;

std::string ChecksumOf(std::string_view bytes) {
  const Sha256Digest digest = Sha256(bytes);
  return {digest.begin(), digest.end()};
}

}  // namespace

ObjectFolder::ObjectFolder(ObjectFolderOptions options) : options_(std::move(options)) {
  MakeFolder();
  Trim();
}

void ObjectFolder::MakeFolder() {
  std::error_code ignored;
  if (fs::create_directories(options_.folder, ignored))
    fs::permissions(options_.folder, fs::perms::owner_all, ignored);
}

std::string ObjectFolder::PathOf(const std::string& key) const {
  return (fs::path(options_.folder) / (GraphIdFromBytes(key)->ToHex() + ".obj")).string();
}

std::optional<std::string> ObjectFolder::Load(const std::string& key) {
  const std::string path = PathOf(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  std::string bytes;
  if (!error && size >= kHeaderBytes && size <= kFileBytesMax)
    bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  const bool good = bytes.size() >= kHeaderBytes && bytes.compare(0, kMagicBytes, kMagic) == 0 &&
                    bytes.compare(kMagicBytes, kHashBytes, key) == 0 &&
                    bytes.compare(kMagicBytes + kHashBytes, kHashBytes,
                                  ChecksumOf(std::string_view(bytes).substr(kHeaderBytes))) == 0;
  if (!good) {
    Remove(key);
    return std::nullopt;
  }
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  return bytes.substr(kHeaderBytes);
}

void ObjectFolder::Remove(const std::string& key) {
  std::error_code ignored;
  fs::remove(PathOf(key), ignored);
}

void ObjectFolder::Store(const std::string& key, std::string_view contents) {
  static std::atomic<uint64_t> next{0};  // several of a process may share a folder
  MakeFolder();                          // an empty one may have been removed
  PassFailpoint("objects.store.begin");
  const std::string temporary =
      (fs::path(options_.folder) / absl::StrCat("new-", getpid(), "-", next++, ".tmp")).string();
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << kMagic << key << ChecksumOf(contents) << contents;
    file.close();
    std::error_code ignored;
    if (!file) {
      fs::remove(temporary, ignored);
      return;
    }
  }
  PassFailpoint("objects.store.written");
  std::error_code error;
  fs::rename(temporary, PathOf(key),
             error);  // without a sync: a file torn by a power cut fails its checksum
  if (error) fs::remove(temporary, error);
  PassFailpoint("objects.store.done");
  const auto bytes = static_cast<int64_t>(kHeaderBytes + contents.size());
  stored_bytes_ += bytes;
  if (options_.on_stored) options_.on_stored(bytes);
}

void ObjectFolder::TrimIfGrown() {
  if (stored_bytes_ > options_.bytes_max / 8) Trim();
}

void ObjectFolder::Trim() {
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

}  // namespace outboard::worker
