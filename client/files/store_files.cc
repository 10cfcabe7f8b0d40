#include "client/files/store_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/files/open_file.h"
#include "client/files/safetensors_header.h"
#include "wire/blobs/download.h"
#include "wire/blobs/upload.h"

namespace outboard::files {

namespace {

constexpr uint64_t kFirstBytes = 64 << 10;  // most headers are shorter: one read

// Errors: those of client/files/safetensors_header.h; DATA_LOSS  the file became shorter
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const OpenFile& file) {
  OB_ASSIGN_OR_RETURN(std::string head, file.Head(kFirstBytes));
  OB_ASSIGN_OR_RETURN(const uint64_t bytes, SafetensorsHeaderBytes(head, file.size_bytes()));
  if (bytes > head.size()) {
    OB_ASSIGN_OR_RETURN(head, file.Head(bytes));
  }
  return ParseSafetensorsHeader(head, file.size_bytes());
}

// Of the arrays, in the header's order.
std::vector<FileRange> RangesOf(const SafetensorsHeader& header) {
  std::vector<FileRange> ranges;
  for (const SafetensorsArray& array : header.arrays)
    ranges.push_back({header.header_bytes + array.offset, array.size_bytes});
  return ranges;
}

// Of a list, which travels in one message.
constexpr size_t kEntriesMax = 8192;
constexpr size_t kEntryNameBytesMax = 255;
constexpr size_t kNamesBytesMax = 400 << 10;  // with the metadata
constexpr std::string_view kSuffix = ".safetensors";

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  // Some file systems say only then that there was no room.
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

absl::Status InTheWay(const std::string& path) {
  return absl::AlreadyExistsError(absl::StrCat(path, " is there already; --force replaces it"));
}

// Sets errno where it fails: EEXIST where a file is in the way that may not be replaced.
bool Rename(const std::string& from, const std::string& to, bool replace) {
  if (replace) return rename(from.c_str(), to.c_str()) == 0;
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // Not every file system can (NFS, FUSE). A second name is refused where there is one already.
  return link(from.c_str(), to.c_str()) == 0 && unlink(from.c_str()) == 0;
}

absl::Status FileError(const char* what, const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot ", what, " ", path, ": ", strerror(errno)));
}

// The header, where the file is pushed array by array; else why it is not.
absl::StatusOr<SafetensorsHeader> HeaderToPush(const OpenFile& file) {
  OB_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadSafetensorsHeader(file));
  if (header.arrays.size() > kEntriesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("it has ", header.arrays.size(), " arrays; limit ", kEntriesMax));
  size_t name_bytes = header.metadata.size();
  for (const SafetensorsArray& array : header.arrays) {
    const bool plain = !array.name.empty() && array.name.size() <= kEntryNameBytesMax &&
                       std::none_of(array.name.begin(), array.name.end(),
                                    [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (!plain)
      return absl::InvalidArgumentError(absl::StrCat("an array's name is empty, longer than ",
                                                     kEntryNameBytesMax,
                                                     " bytes, or has control characters"));
    name_bytes += array.name.size();
  }
  if (name_bytes > kNamesBytesMax)
    return absl::ResourceExhaustedError(absl::StrCat("its metadata and its arrays' names have ",
                                                     name_bytes, " bytes; limit ", kNamesBytesMax));
  return header;
}

std::string BaseName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string Text(const wire::Hash& hash) { return std::string(wire::AsBytes(hash)); }

absl::StatusOr<wire::Hash> ToHash(const std::string& bytes) {
  const std::optional<wire::Hash> hash = wire::HashFromBytes(bytes);
  if (!hash) return absl::DataLossError("the manifest names a blob without a hash");
  return *hash;
}

// What a file consists of, before its blobs' chunks are known.
struct FileContents {
  std::string first;                                   // bytes that no blob has
  std::vector<std::pair<wire::Hash, uint64_t>> blobs;  // roots and offsets
  uint64_t size_bytes = 0;
};

// Arrays of a list in the order and at the offsets of a header.
absl::Status Place(const proto::Checkpoint& list, const SafetensorsHeader& header,
                   FileContents& layout) {
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
absl::StatusOr<FileContents> ContentsOf(const proto::Checkpoint& list) {
  SafetensorsHeader header;
  uint64_t offset = 0;
  for (const proto::Checkpoint::Entry& entry : list.entries()) {
    if (entry.dtype() == 0 || entry.dtype() >= kDTypeCount)
      return absl::DataLossError("the manifest has an array without a dtype");
    header.arrays.push_back({entry.name(), static_cast<DType>(entry.dtype()),
                             std::vector<int64_t>(entry.dims().begin(), entry.dims().end()), offset,
                             entry.size_bytes()});
    offset += entry.size_bytes();
  }
  header.metadata = list.metadata();
  FileContents layout{.first = WriteSafetensorsHeader(header)};
  header.header_bytes = layout.first.size();
  layout.size_bytes = header.header_bytes + offset;
  OB_RETURN_IF_ERROR(Place(list, header, layout));
  return layout;
}

}  // namespace

absl::StatusOr<Pushed> PushFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& path, std::string name,
                                const wire::TransferOptions& options, const FileIndex& index) {
  const absl::StatusOr<std::shared_ptr<OpenFile>> file = OpenFile::Open(path, index);
  if (!file.ok()) return absl::InvalidArgumentError(file.status().message());
  const uint64_t size_bytes = (*file)->size_bytes();
  if (name.empty()) name = BaseName(path);

  absl::StatusOr<SafetensorsHeader> header = absl::NotFoundError("");
  Pushed pushed{.name = name, .size_bytes = size_bytes};
  std::vector<FileRange> ranges;
  if (path.ends_with(kSuffix)) {
    header = HeaderToPush(**file);
    if (!header.ok()) pushed.whole_because = std::string(header.status().message());
  }
  if (header.ok()) {
    ranges = RangesOf(*header);
    ranges.push_back({0, header->header_bytes});
    pushed.arrays = static_cast<int>(header->arrays.size());
  } else {
    ranges.push_back({0, size_bytes});
  }
  const std::vector<wire::BlobSource> sources = (*file)->Sources(ranges);
  OB_ASSIGN_OR_RETURN(const wire::Uploaded uploaded,
                      wire::UploadBlobs(connections, sources, options));
  (*file)->Found(ranges, uploaded.names);
  pushed.sent_bytes = uploaded.sent_bytes;

  proto::Checkpoint list;
  if (header.ok()) {
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
  return pushed;
}

absl::StatusOr<Pulled> PullFile(const StoreClient& store, const wire::BlobConnections& connections,
                                const std::string& name, PullTo to,
                                const wire::TransferOptions& options) {
  OB_ASSIGN_OR_RETURN(const proto::StoreGetReply got, store.Get(name));
  std::string& path = to.path;
  const proto::Checkpoint& list = got.checkpoint();
  const bool is_file = !list.file_name().empty() && list.entries_size() == 1;
  // Whatever the list says, the file lands in this folder.
  if (path.empty()) {
    path = BaseName(is_file ? list.file_name() : name);
    if (path.empty() || path.starts_with('.'))
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", path,
          "\" is the name of a hidden file or of none: say with --output where it goes"));
    if (!is_file && !path.ends_with(kSuffix)) path += kSuffix;
  }
  if (!to.replace && faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
    return InTheWay(path);

  const std::string part = path + ".part";
  const bool fresh = access(part.c_str(), F_OK) != 0;
  File file(open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.fd() < 0) return FileError("write", part);
  Pulled pulled{.path = path};
  FileContents layout;
  if (is_file) {
    OB_ASSIGN_OR_RETURN(const wire::Hash root, ToHash(list.entries(0).blob_root()));
    layout.blobs.emplace_back(root, 0);
    layout.size_bytes = list.entries(0).size_bytes();
  } else if (!list.header_root().empty()) {
    // The header says where the arrays lie, so it comes first.
    OB_ASSIGN_OR_RETURN(const wire::Hash root, ToHash(list.header_root()));
    OB_ASSIGN_OR_RETURN(const wire::ChunkList blob, wire::ListBlob(connections, root, options));
    const wire::FilePart at_front{blob, 0};
    uint64_t file_bytes = blob.size_bytes;
    for (const proto::Checkpoint::Entry& entry : list.entries()) file_bytes += entry.size_bytes();
    OB_RETURN_IF_ERROR(wire::DownloadParts(connections, std::span(&at_front, 1), file_bytes,
                                           file.fd(), fresh, {.cancelled = options.cancelled})
                           .status());
    std::string first(blob.size_bytes, '\0');
    OB_RETURN_IF_ERROR(wire::SourceOf(file.fd(), 0, blob.size_bytes).read(0, first));
    OB_ASSIGN_OR_RETURN(const SafetensorsHeader header, ParseSafetensorsHeader(first, file_bytes));
    layout.size_bytes = file_bytes;
    OB_RETURN_IF_ERROR(Place(list, header, layout));
  } else {
    OB_ASSIGN_OR_RETURN(layout, ContentsOf(list));
  }

  std::vector<wire::Hash> roots;
  for (const auto& [root, offset] : layout.blobs) roots.push_back(root);
  OB_ASSIGN_OR_RETURN(std::vector<wire::ChunkList> blobs,
                      wire::ListBlobs(connections, roots, options));
  std::vector<wire::FilePart> parts;
  for (size_t i = 0; i < blobs.size(); ++i)
    parts.push_back({std::move(blobs[i]), layout.blobs[i].second});
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t end = i + 1 < parts.size() ? parts[i + 1].offset : layout.size_bytes;
    if (parts[i].offset + parts[i].blob.size_bytes != end)
      return absl::DataLossError("a blob's size differs from the manifest's entry");
  }
  OB_ASSIGN_OR_RETURN(
      const wire::Downloaded downloaded,
      wire::DownloadParts(connections, parts, layout.size_bytes, file.fd(), fresh, options));
  if (pwrite(file.fd(), layout.first.data(), layout.first.size(), 0) !=
      static_cast<ssize_t>(layout.first.size()))
    return FileError("write", part);
  if (!file.Close()) return FileError("write", part);
  // One that came while this was on its way stays as well.
  if (!Rename(part, path, to.replace))
    return errno == EEXIST ? InTheWay(path) : FileError("name", path);
  pulled.size_bytes = layout.size_bytes;
  pulled.received_bytes = downloaded.received_bytes;
  pulled.kept_bytes = downloaded.kept_bytes;
  return pulled;
}

}  // namespace outboard::files
