// Opens the blob store: counts what is on the disk, verifies or removes what a crash left
// incomplete. After it the index and the files agree.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/hex.h"
#include "gateway/blobs/blob_store.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {

namespace fs = std::filesystem;
using State = BlobIndex::ChunkState;

constexpr std::string_view kOfSession = ".session";

struct File {
  std::string path, name;
  uint64_t size_bytes = 0;
  int64_t time_ms = 0;
};

absl::Status NotRead(const char* what, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat("blob store: ", what, ": ", error.message()));
}

// Lists the files in `folder`; removes anything else there. UNAVAILABLE: the listing is incomplete,
// and a file that is not listed would count as lost.
absl::StatusOr<std::vector<File>> FilesIn(const std::string& folder) {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat info;
    const std::string path = at->path().string();
    if (lstat(path.c_str(), &info) != 0)
      return NotRead("stat", std::error_code(errno, std::generic_category()));
    if (!S_ISREG(info.st_mode)) {
      std::error_code ignored;
      fs::remove_all(path, ignored);
      continue;
    }
    files.push_back({path, at->path().filename().string(), static_cast<uint64_t>(info.st_size),
                     int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000});
  }
  if (error) return NotRead("list", error);
  return files;
}

absl::StatusOr<std::string> ReadFile(Disk& disk, const File& file) {
  auto fd = disk.Open(file.path);
  if (!fd.ok()) return fd.status();
  std::string bytes(file.size_bytes, '\0');
  const auto got = disk.Read(*fd, bytes);
  close(*fd);
  if (!got.ok()) return got.status();
  bytes.resize(*got);
  return bytes;
}

// Parses "<size> <count>\n", then the hashes. False if the bytes are not the list of `root`.
bool ParseList(const std::string& text, const wire::Hash& root, BlobIndex::Blob& blob) {
  const size_t line = text.find('\n');
  if (line == std::string::npos) return false;
  uint64_t count = 0;
  const char* const end = text.data() + line;
  const auto size = std::from_chars(text.data(), end, blob.size_bytes);
  if (size.ec != std::errc() || size.ptr == end || *size.ptr != ' ') return false;
  const auto counted = std::from_chars(size.ptr + 1, end, count);
  if (counted.ec != std::errc() || counted.ptr != end || count > wire::kBlobChunksMax) return false;
  if (text.size() != line + 1 + count * sizeof(wire::Hash)) return false;
  blob.chunks.resize(count);
  for (size_t i = 0; i < count; ++i)
    std::copy_n(text.data() + line + 1 + i * sizeof(wire::Hash), sizeof(wire::Hash),
                blob.chunks[i].begin());
  return wire::MerkleRoot(blob.chunks, blob.size_bytes) == root;
}

}  // namespace

absl::Status BlobStore::Scan() {
  std::error_code error;
  fs::create_directories(fs::path(folder_).parent_path(), error);
  if (auto made = disk_.MakeFolder(folder_); !made.ok()) return made.status();
  fs::permissions(folder_, fs::perms::owner_all, error);
  fs::remove_all(folder_ + "/tmp", error);
  if (auto made = disk_.MakeFolder(folder_ + "/tmp"); !made.ok()) return made.status();
  std::vector<int64_t> tenants;
  error.clear();
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t id = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (bad == std::errc() && rest == name.data() + name.size()) tenants.push_back(id);
  }
  if (error) return NotRead("list", error);
  for (const int64_t id : tenants) {
    const TenantId tenant{id};
    if (absl::Status status = MakeTenant(tenant); !status.ok()) return status;
    if (absl::Status status = ScanChunks(tenant); !status.ok()) return status;
    if (absl::Status status = ScanRoots(tenant); !status.ok()) return status;
    for (const char* part : {"/chunks", "/roots"}) {
      if (absl::Status status = disk_.Sync(TenantFolder(tenant) + part); !status.ok())
        return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BlobStore::ScanChunks(TenantId tenant) {
  const auto fresh = FilesIn(TenantFolder(tenant) + "/fresh");
  if (!fresh.ok()) return fresh.status();
  for (const File& file : *fresh) {
    wire::Hash hash;
    bool good = FromHex(file.name, hash) && file.size_bytes > 0 &&
                file.size_bytes <= wire::kBlobChunkBytes;
    if (good) {
      const auto bytes = ReadFile(disk_, file);
      if (!bytes.ok()) return bytes.status();
      good = wire::HashChunk(*bytes) == hash;
    }
    if (!good) {
      disk_.Remove(file.path).IgnoreError();
      continue;
    }
    absl::Status status = disk_.Sync(file.path);
    if (status.ok()) status = disk_.Rename(file.path, ChunkPath(tenant, hash, State::kDurable));
    if (!status.ok()) return status;
  }
  const auto durable = FilesIn(TenantFolder(tenant) + "/chunks");
  if (!durable.ok()) return durable.status();
  for (const File& file : *durable) {
    wire::Hash hash;
    if (!FromHex(file.name, hash) || file.size_bytes == 0 ||
        file.size_bytes > wire::kBlobChunkBytes) {
      disk_.Remove(file.path).IgnoreError();
      continue;
    }
    index_.AddChunk(tenant, hash, static_cast<uint32_t>(file.size_bytes), State::kDurable,
                    file.time_ms);
  }
  return absl::OkStatus();
}

absl::Status BlobStore::ScanRoots(TenantId tenant) {
  const auto lists = FilesIn(TenantFolder(tenant) + "/roots");
  if (!lists.ok()) return lists.status();
  for (const File& file : *lists) {
    std::string_view name = file.name;
    BlobIndex::Blob blob{.durable = true, .used_ms = file.time_ms};
    if (name.ends_with(kOfSession)) {
      name.remove_suffix(kOfSession.size());
      blob.origin = BlobOrigin::kSession;
    }
    wire::Hash root;
    bool whole = FromHex(name, root);
    if (whole) {
      const auto text = ReadFile(disk_, file);
      if (!text.ok()) return text.status();
      whole = ParseList(*text, root, blob);
    }
    for (size_t i = 0; whole && i < blob.chunks.size(); ++i) {
      const BlobIndex::Chunk* chunk = index_.FindChunk(tenant, blob.chunks[i]);
      const uint64_t expected =
          std::min<uint64_t>(wire::kBlobChunkBytes, blob.size_bytes - i * wire::kBlobChunkBytes);
      whole = chunk != nullptr && chunk->size_bytes == expected;
    }
    if (!whole || index_.FindBlob(tenant, root) != nullptr) {
      disk_.Remove(file.path).IgnoreError();
      continue;
    }
    if (absl::Status status = disk_.Sync(file.path); !status.ok()) return status;
    index_.AddBlob(tenant, root, std::move(blob));
  }
  return absl::OkStatus();
}

}  // namespace outboard::gateway
