#include "gateway/blobs/manifest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/ir/dtype.h"
#include "gateway/blobs/limits.h"

namespace outboard::gateway {

namespace {

constexpr size_t kEntryNameBytesMax = 255;
constexpr int kRankMax = 16;

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
}

absl::Status Invalid(int index, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("entry ", index, ": ", std::string(what)));
}

wire::Hash ToHash(std::string_view bytes) {
  wire::Hash hash{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), hash.size()), hash.begin());
  return hash;
}

// True if an array of `dims` and dtype has the given size in bytes; no product may exceed 64 bits.
bool IsSizeOf(const proto::Checkpoint::Entry& entry) {
  uint64_t bytes = static_cast<uint64_t>(ByteWidth(static_cast<DType>(entry.dtype())));
  for (const uint64_t dim : entry.dims()) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return false;
  }
  return bytes == entry.size_bytes();
}

absl::Status CheckFileName(std::string_view name) {
  if (name.size() <= kEntryNameBytesMax && IsPrintable(name) &&
      name.find('/') == std::string_view::npos && name != "." && name != "..")
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a file's name must be at most 255 printable bytes without a slash");
}

}  // namespace

absl::Status CheckCheckpoint(const proto::Checkpoint& checkpoint) {
  if (checkpoint.entries_size() > kCheckpointEntriesMax ||
      checkpoint.ByteSizeLong() > kCheckpointBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        checkpoint.entries_size(), " entries of ", checkpoint.ByteSizeLong(),
        " bytes in their list; limits ", kCheckpointEntriesMax, " and ", kCheckpointBytesMax));
  }
  const bool is_file = !checkpoint.file_name().empty();
  if (absl::Status status = CheckFileName(checkpoint.file_name()); !status.ok()) return status;
  if (is_file && checkpoint.entries_size() != 1)
    return absl::InvalidArgumentError("a plain file must have exactly one entry");
  const size_t header = checkpoint.header_root().size();
  if (header != 0 && header != sizeof(wire::Hash))
    return absl::InvalidArgumentError("a header's root must have 32 bytes");
  for (int i = 0; i < checkpoint.entries_size(); ++i) {
    const proto::Checkpoint::Entry& entry = checkpoint.entries(i);
    if (entry.name().size() > kEntryNameBytesMax || !IsPrintable(entry.name()) ||
        (entry.name().empty() && !is_file))
      return Invalid(i, "its name is 1 to 255 bytes without control characters");
    if (i > 0 && checkpoint.entries(i - 1).name() >= entry.name())
      return Invalid(i, "names rise from entry to entry");
    if (entry.blob_root().size() != sizeof(wire::Hash)) return Invalid(i, "a root is 32 bytes");
    if (is_file) continue;
    if (entry.dtype() == 0 || entry.dtype() >= kDTypeCount) return Invalid(i, "no such dtype");
    if (entry.dims_size() > kRankMax) return Invalid(i, "more than 16 dimensions");
    if (!IsSizeOf(entry)) return Invalid(i, "its bytes are not those of its dtype and dimensions");
  }
  return absl::OkStatus();
}

std::string ManifestBytes(const proto::Checkpoint& checkpoint) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  checkpoint.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::StatusOr<proto::Checkpoint> ReadManifest(std::string_view bytes) {
  proto::Checkpoint checkpoint;
  if (bytes.size() > kCheckpointBytesMax ||
      !checkpoint.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::DataLossError("what is stored under the name is not a list of entries");
  return checkpoint;
}

std::vector<NamedBlob> BlobsOf(const proto::Checkpoint& checkpoint) {
  std::map<wire::Hash, uint64_t> sizes;
  for (const proto::Checkpoint::Entry& entry : checkpoint.entries())
    sizes[ToHash(entry.blob_root())] = entry.size_bytes();
  if (!checkpoint.header_root().empty())
    sizes[ToHash(checkpoint.header_root())] = checkpoint.header_bytes();
  std::vector<NamedBlob> blobs;
  for (const auto& [root, size_bytes] : sizes) blobs.push_back({root, size_bytes});
  return blobs;
}

absl::StatusOr<std::vector<wire::Hash>> RootsOfSnapshot(std::string_view bytes) {
  using google::protobuf::internal::WireFormatLite;
  using Snapshot = proto::SessionSnapshot;
  const auto tag_of = [](int field) {
    return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  };
  const absl::Status none = absl::DataLossError("the stored snapshot is malformed");
  if (bytes.size() > kSnapshotBytesMax) return none;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  std::set<wire::Hash> roots;
  const auto add = [&roots](const auto& entry) {
    const std::string& root = entry.blob_root();
    if (!root.empty()) roots.insert(ToHash(root));  // empty: a poisoned handle, or a failure
    return root.empty() || root.size() == sizeof(wire::Hash);
  };
  // Decodes one entry at a time: all of them as one message could take a hundred times their bytes.
  while (const uint32_t tag = in.ReadTag()) {
    const bool is_held = tag == tag_of(Snapshot::kHeldFieldNumber);
    if (!is_held && tag != tag_of(Snapshot::kUnacknowledgedFieldNumber)) {
      if (!WireFormatLite::SkipField(&in, tag)) return none;
      continue;
    }
    uint32_t size = 0;
    if (!in.ReadVarint32(&size) || size > kSnapshotEntryBytesMax) return none;
    const std::string_view entry = bytes.substr(static_cast<size_t>(in.CurrentPosition()), size);
    if (!in.Skip(static_cast<int>(size))) return none;
    Snapshot::Held held;
    Snapshot::Unacknowledged answer;
    const int entry_bytes = static_cast<int>(entry.size());
    const bool good = is_held ? held.ParseFromArray(entry.data(), entry_bytes) && add(held)
                              : answer.ParseFromArray(entry.data(), entry_bytes) && add(answer);
    if (!good) return none;
  }
  if (!in.ConsumedEntireMessage()) return none;
  return std::vector<wire::Hash>(roots.begin(), roots.end());
}

}  // namespace outboard::gateway
