#include "client/files/file_index.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "wire/limits.h"

namespace outboard::files {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "outboard files 1";  // 16 bytes
constexpr uint64_t kIndexBytesMax = uint64_t{64} << 20;
constexpr size_t kFilesMax = 4096;  // that are known; beyond that the oldest are forgotten

void Append(std::string& text, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) text.push_back(static_cast<char>(value >> shift));
}

// Numbers and hashes one after the other; `good` until one is missing.
struct Reader {
  std::string_view rest;
  bool good = true;
  uint64_t Number() {
    const std::string_view bytes = Bytes(8);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
    return value;
  }
  std::string_view Bytes(size_t count) {
    if (rest.size() < count) {
      good = false;
      return {};
    }
    const std::string_view bytes = rest.substr(0, count);
    rest.remove_prefix(count);
    return bytes;
  }
};

void Append(std::string& text, const FileStamp& stamp) {
  for (uint64_t value :
       {stamp.device, stamp.inode, stamp.size_bytes, static_cast<uint64_t>(stamp.modified_ns),
        static_cast<uint64_t>(stamp.changed_ns)})
    Append(text, value);
}

int64_t Ns(const timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

// Whether it has the form of this index's own: "<device>-<inode>", or with ".<pid>.<n>" while it is
// written. The folder may be the user's, with other files.
bool IsOwn(std::string_view name) {
  const auto skip = [&name](std::string_view digits) {
    const size_t count = std::min(name.find_first_not_of(digits), name.size());
    name.remove_prefix(count);
    return count > 0;
  };
  const auto skip_one = [&name](char c) {
    const bool is_there = name.starts_with(c);
    name.remove_prefix(is_there ? 1 : 0);
    return is_there;
  };
  constexpr std::string_view kHex = "0123456789abcdef", kDecimal = "0123456789";
  if (!skip(kHex) || !skip_one('-') || !skip(kHex)) return false;
  if (name.empty()) return true;
  return skip_one('.') && skip(kDecimal) && skip_one('.') && skip(kDecimal) && name.empty();
}

void ForgetOldest(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (IsOwn(entry.path().filename().string()))
      files.emplace_back(entry.last_write_time(error), entry.path());
  if (files.size() <= kFilesMax) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - kFilesMax / 2; ++i) fs::remove(files[i].second, error);
}

}  // namespace

int64_t WallNowNs() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

absl::StatusOr<FileStamp> StampOf(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0)
    return absl::UnknownError(absl::StrCat("cannot stat the file: ", strerror(errno)));
  return FileStamp{info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size), Ns(info.st_mtim),
                   Ns(info.st_ctim)};
}

FileIndex FileIndex::Default() {
  if (const char* const folder = std::getenv("OUTBOARD_FILE_INDEX")) return FileIndex(folder);
  const std::string caches = CacheFolder();
  return FileIndex(caches.empty() ? "" : absl::StrCat(caches, "/files"));
}

std::string FileIndex::PathOf(const FileStamp& stamp) const {
  return absl::StrCat(folder_, "/", absl::Hex(stamp.device), "-", absl::Hex(stamp.inode));
}

std::vector<FileIndex::Known> FileIndex::Read(const FileStamp& stamp) const {
  std::vector<Known> known;
  if (folder_.empty()) return known;
  const std::string path = PathOf(stamp);
  std::error_code absent;
  const uintmax_t size = fs::file_size(path, absent);
  if (absent || size > kIndexBytesMax || size < wire::kHashBytes) return known;
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) return known;
  const std::string_view body(text.data(), text.size() - wire::kHashBytes);
  if (wire::AsBytes(Sha256(body)) != std::string_view(text).substr(body.size())) return known;
  std::string head(kMagic);
  Append(head, stamp);
  Reader reader{body};
  if (reader.Bytes(head.size()) != head) return known;
  while (reader.good && !reader.rest.empty()) {
    Known entry;
    entry.range.offset = reader.Number();
    entry.range.size_bytes = reader.Number();
    const uint64_t chunks = reader.Number();
    const std::string_view hashes =
        chunks <= wire::kBlobChunksMax ? reader.Bytes(chunks * wire::kHashBytes) : "";
    if (!reader.good || hashes.size() != chunks * wire::kHashBytes) return {};
    entry.name.chunks.resize(chunks);
    for (size_t i = 0; i < chunks; ++i)
      std::memcpy(entry.name.chunks[i].data(), hashes.data() + i * wire::kHashBytes,
                  wire::kHashBytes);
    entry.name.root = wire::MerkleRoot(entry.name.chunks, entry.range.size_bytes);
    known.push_back(std::move(entry));
  }
  return reader.good ? known : std::vector<Known>{};
}

std::vector<std::optional<wire::BlobName>> FileIndex::Find(
    const FileStamp& stamp, std::span<const FileRange> ranges) const {
  std::map<FileRange, wire::BlobName> known;
  for (Known& entry : Read(stamp)) known[entry.range] = std::move(entry.name);
  std::vector<std::optional<wire::BlobName>> names;
  for (const FileRange& range : ranges) {
    const auto found = known.find(range);
    names.push_back(found != known.end() ? std::optional(found->second) : std::nullopt);
  }
  return names;
}

void FileIndex::Keep(const FileStamp& stamp, std::span<const FileRange> ranges,
                     std::span<const wire::BlobName> names, int64_t now_ns) const {
  const int64_t latest = std::max(stamp.modified_ns, stamp.changed_ns);
  if (folder_.empty() || now_ns - latest < kFreshMs * 1'000'000) return;
  std::map<FileRange, wire::BlobName> known;
  for (Known& entry : Read(stamp)) known[entry.range] = std::move(entry.name);
  for (size_t i = 0; i < ranges.size(); ++i) known[ranges[i]] = names[i];
  std::string text(kMagic);
  Append(text, stamp);
  for (const auto& [range, name] : known) {
    Append(text, range.offset);
    Append(text, range.size_bytes);
    Append(text, name.chunks.size());
    for (const wire::Hash& chunk : name.chunks) text += wire::AsBytes(chunk);
  }
  text += wire::AsBytes(Sha256(text));
  std::error_code error;
  fs::create_directories(folder_, error);
  static std::atomic<uint64_t> next{0};
  const std::string temporary = absl::StrCat(PathOf(stamp), ".", getpid(), ".", next++);
  std::ofstream file(temporary, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file.good())
    fs::rename(temporary, PathOf(stamp), error);
  else
    fs::remove(temporary, error);
  ForgetOldest(folder_);
}

}  // namespace outboard::files
