#include "client/blobs/store_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/blobs/safetensors_header.h"
#include "compiler/ir/check.h"
#include "proto/blob_download.h"
#include "proto/blob_upload.h"

namespace outboard::blobs {

namespace {

constexpr size_t kEntriesMax = 8192;        // in a list that travels in one message
constexpr size_t kEntryNameBytesMax = 100;  // on average, for the same reason
constexpr std::string_view kSuffix = ".safetensors";

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status FileError(const char* what, const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot ", what, " ", path, ": ", strerror(errno)));
}

absl::StatusOr<std::string> ReadFirst(int fd, uint64_t count, const std::string& path) {
  std::string bytes(count, '\0');
  for (size_t at = 0; at < count;) {
    const ssize_t got = pread(fd, bytes.data() + at, count - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return FileError("read", path);
    at += static_cast<size_t>(got);
  }
  return bytes;
}

// The header, where the file is pushed array by array.
std::optional<SafetensorsHeader> HeaderOf(int fd, uint64_t file_bytes, const std::string& path) {
  if (!path.ends_with(kSuffix)) return std::nullopt;
  auto first = ReadFirst(fd, std::min<uint64_t>(8, file_bytes), path);
  if (!first.ok()) return std::nullopt;
  const auto header_bytes = SafetensorsHeaderBytes(*first, file_bytes);
  if (!header_bytes.ok()) return std::nullopt;
  first = ReadFirst(fd, *header_bytes, path);
  if (!first.ok()) return std::nullopt;
  auto header = ParseSafetensorsHeader(*first, file_bytes);
  if (!header.ok() || header->arrays.size() > kEntriesMax) return std::nullopt;
  size_t name_bytes = header->metadata.size();
  for (const SafetensorsArray& array : header->arrays) {
    const bool plain = !array.name.empty() && array.name.size() <= 255 &&
                       std::none_of(array.name.begin(), array.name.end(),
                                    [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (!plain) return std::nullopt;
    name_bytes += array.name.size();
  }
  if (name_bytes > kEntriesMax * kEntryNameBytesMax / 2) return std::nullopt;
  return *std::move(header);
}

std::string BaseName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string Text(const wire::Hash& hash) { return std::string(wire::AsBytes(hash)); }

absl::StatusOr<wire::Hash> ToHash(const std::string& bytes) {
  wire::Hash hash{};
  if (bytes.size() != hash.size())
    return absl::DataLossError("the list names a blob without a hash");
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

// What a file consists of, before its blobs' chunks are known.
struct Layout {
  std::string first;                                   // bytes that no blob has
  std::vector<std::pair<wire::Hash, uint64_t>> blobs;  // roots and offsets
  uint64_t size_bytes = 0;
};

// Arrays of a list in the order and at the offsets of a header.
absl::Status Place(const proto::Checkpoint& list, const SafetensorsHeader& header, Layout& layout) {
  for (const SafetensorsArray& array : header.arrays) {
    const auto entry = std::lower_bound(
        list.entries().begin(), list.entries().end(), array.name,
        [](const proto::Checkpoint::Entry& e, const std::string& name) { return e.name() < name; });
    if (entry == list.entries().end() || entry->name() != array.name ||
        entry->size_bytes() != array.size_bytes)
      return absl::DataLossError("the header does not fit the arrays that are stored with it");
    OB_ASSIGN_OR_RETURN(const wire::Hash root, ToHash(entry->blob_root()));
    if (array.size_bytes > 0) layout.blobs.emplace_back(root, header.header_bytes + array.offset);
  }
  return absl::OkStatus();
}

// A checkpoint becomes a file whose arrays are in the order of their names.
absl::StatusOr<Layout> LayoutOf(const proto::Checkpoint& list) {
  SafetensorsHeader header;
  uint64_t offset = 0;
  for (const proto::Checkpoint::Entry& entry : list.entries()) {
    if (entry.dtype() == 0 || entry.dtype() >= kDTypeCount)
      return absl::DataLossError("the list has an array without a dtype");
    header.arrays.push_back({entry.name(), static_cast<DType>(entry.dtype()),
                             std::vector<int64_t>(entry.dims().begin(), entry.dims().end()), offset,
                             entry.size_bytes()});
    offset += entry.size_bytes();
  }
  header.metadata = list.metadata();
  Layout layout{.first = WriteSafetensorsHeader(header)};
  header.header_bytes = layout.first.size();
  layout.size_bytes = header.header_bytes + offset;
  OB_RETURN_IF_ERROR(Place(list, header, layout));
  return layout;
}

}  // namespace

absl::StatusOr<Pushed> PushFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& path, std::string name,
                                const wire::TransferOptions& options) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0) return FileError("open", path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is no file"));
  const auto size_bytes = static_cast<uint64_t>(info.st_size);
  if (name.empty()) name = BaseName(path);

  const std::optional<SafetensorsHeader> header = HeaderOf(file.fd(), size_bytes, path);
  std::vector<wire::BlobSource> sources;
  if (header.has_value()) {
    for (const SafetensorsArray& array : header->arrays) {
      sources.push_back(
          wire::SourceOf(file.fd(), header->header_bytes + array.offset, array.size_bytes));
    }
    sources.push_back(wire::SourceOf(file.fd(), 0, header->header_bytes));
  } else {
    sources.push_back(wire::SourceOf(file.fd(), 0, size_bytes));
  }
  OB_ASSIGN_OR_RETURN(const wire::Uploaded uploaded,
                      wire::UploadBlobs(connections, sources, options));

  proto::Checkpoint list;
  if (header.has_value()) {
    for (size_t i = 0; i < header->arrays.size(); ++i) {
      const SafetensorsArray& array = header->arrays[i];
      proto::Checkpoint::Entry& entry = *list.add_entries();
      entry.set_name(array.name);
      entry.set_dtype(static_cast<uint32_t>(array.dtype));
      entry.mutable_dims()->Add(array.dims.begin(), array.dims.end());
      entry.set_size_bytes(array.size_bytes);
      entry.set_blob_root(Text(uploaded.names[i].root));
    }
    std::sort(list.mutable_entries()->begin(), list.mutable_entries()->end(),
              [](const auto& a, const auto& b) { return a.name() < b.name(); });
    list.set_metadata(header->metadata);
    list.set_header_root(Text(uploaded.names.back().root));
    list.set_header_bytes(header->header_bytes);
  } else {
    list.set_file_name(BaseName(path));
    list.add_entries()->set_size_bytes(size_bytes);
    list.mutable_entries(0)->set_blob_root(Text(uploaded.names[0].root));
  }
  OB_RETURN_IF_ERROR(store.Set(name, list).status());
  return Pushed{std::move(name), size_bytes, uploaded.sent_bytes,
                header.has_value() ? static_cast<int>(header->arrays.size()) : 0};
}

absl::StatusOr<Pulled> PullFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& name, std::string path,
                                const wire::TransferOptions& options) {
  OB_ASSIGN_OR_RETURN(const proto::StoreGetReply got, store.Get(name));
  const proto::Checkpoint& list = got.checkpoint();
  const bool is_file = !list.file_name().empty() && list.entries_size() == 1;
  // Whatever the list says, the file lands in this folder.
  if (path.empty()) path = BaseName(is_file ? list.file_name() : name);
  if (!is_file && !path.ends_with(kSuffix) && path == BaseName(name)) path += kSuffix;

  const std::string part = path + ".part";
  const bool fresh = access(part.c_str(), F_OK) != 0;
  const File file(open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.fd() < 0) return FileError("write", part);
  Pulled pulled{.path = path};
  Layout layout;
  if (is_file) {
    OB_ASSIGN_OR_RETURN(const wire::Hash root, ToHash(list.entries(0).blob_root()));
    layout.blobs.emplace_back(root, 0);
    layout.size_bytes = list.entries(0).size_bytes();
  } else if (!list.header_root().empty()) {
    // The header says where the arrays lie, so it comes first.
    OB_ASSIGN_OR_RETURN(const wire::Hash root, ToHash(list.header_root()));
    OB_ASSIGN_OR_RETURN(const wire::BlobIndex blob, wire::ListBlob(connections, root, options));
    const wire::FilePart at_front{blob, 0};
    uint64_t file_bytes = blob.size_bytes;
    for (const proto::Checkpoint::Entry& entry : list.entries()) file_bytes += entry.size_bytes();
    OB_RETURN_IF_ERROR(wire::DownloadParts(connections, std::span(&at_front, 1), file_bytes,
                                           file.fd(), fresh, {.cancelled = options.cancelled})
                           .status());
    OB_ASSIGN_OR_RETURN(const std::string first, ReadFirst(file.fd(), blob.size_bytes, part));
    OB_ASSIGN_OR_RETURN(const SafetensorsHeader header, ParseSafetensorsHeader(first, file_bytes));
    layout.size_bytes = file_bytes;
    OB_RETURN_IF_ERROR(Place(list, header, layout));
  } else {
    OB_ASSIGN_OR_RETURN(layout, LayoutOf(list));
  }

  std::vector<wire::Hash> roots;
  for (const auto& [root, offset] : layout.blobs) roots.push_back(root);
  OB_ASSIGN_OR_RETURN(std::vector<wire::BlobIndex> blobs,
                      wire::ListBlobs(connections, roots, options));
  std::vector<wire::FilePart> parts;
  for (size_t i = 0; i < blobs.size(); ++i)
    parts.push_back({std::move(blobs[i]), layout.blobs[i].second});
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t end = i + 1 < parts.size() ? parts[i + 1].offset : layout.size_bytes;
    if (parts[i].offset + parts[i].blob.size_bytes != end)
      return absl::DataLossError("a blob has another size than the list says");
  }
  OB_ASSIGN_OR_RETURN(
      const wire::Downloaded downloaded,
      wire::DownloadParts(connections, parts, layout.size_bytes, file.fd(), fresh, options));
  if (pwrite(file.fd(), layout.first.data(), layout.first.size(), 0) !=
      static_cast<ssize_t>(layout.first.size()))
    return FileError("write", part);
  if (rename(part.c_str(), path.c_str()) != 0) return FileError("name", path);
  pulled.size_bytes = layout.size_bytes;
  pulled.received_bytes = downloaded.received_bytes;
  pulled.kept_bytes = downloaded.kept_bytes;
  return pulled;
}

}  // namespace outboard::blobs
