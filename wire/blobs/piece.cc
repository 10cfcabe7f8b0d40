#include "wire/blobs/piece.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"

namespace outboard::wire {

namespace {

// Tags of BlobPiece's fields: number << 3 | type (0: varint, 2: bytes).
constexpr uint8_t kChunkTag = 1 << 3 | 2, kChunkBytesTag = 2 << 3, kOffsetTag = 3 << 3,
                  kDataTag = 4 << 3 | 2;
// The largest head: the hash, two numbers, the last tag and a length, each number at most five
// bytes.
constexpr size_t kHeadBytesMax = 2 + kHashBytes + 2 * 6 + 6;

class HeadWriter {
 public:
  void Byte(uint8_t byte) { bytes_[size_++] = byte; }
  void Varint(uint32_t value) {
    for (; value >= 0x80; value >>= 7) Byte(static_cast<uint8_t>(value | 0x80));
    Byte(static_cast<uint8_t>(value));
  }
  void Bytes(const Hash& hash) {
    std::memcpy(bytes_.data() + size_, hash.data(), hash.size());
    size_ += hash.size();
  }
  grpc::Slice ToSlice() const { return grpc::Slice(bytes_.data(), size_); }

 private:
  std::array<uint8_t, kHeadBytesMax> bytes_{};
  size_t size_ = 0;
};

// Parses the head as this file writes it. All other forms of a BlobPiece (other orders, unknown
// fields, longer numbers) are left to protobuf.
class HeadReader {
 public:
  explicit HeadReader(const std::vector<grpc::Slice>& slices) {
    for (const grpc::Slice& slice : slices) {
      const size_t count = std::min(slice.size(), bytes_.size() - size_);
      std::memcpy(bytes_.data() + size_, slice.begin(), count);
      size_ += count;
    }
  }
  bool Tag(uint8_t tag) {
    if (at_ == size_ || bytes_[at_] != tag) return false;
    ++at_;
    return true;
  }
  bool Varint(uint32_t& value) {
    uint64_t read = 0;
    for (int shift = 0; shift < 35 && at_ < size_; shift += 7) {
      const uint8_t byte = bytes_[at_++];
      read |= uint64_t{byte & 0x7fu} << shift;
      if (byte >= 0x80) continue;
      value = static_cast<uint32_t>(read);
      return read <= UINT32_MAX;
    }
    return false;
  }
  bool Bytes(Hash& hash) {
    if (size_ - at_ < hash.size()) return false;
    std::memcpy(hash.data(), bytes_.data() + at_, hash.size());
    at_ += hash.size();
    return true;
  }
  size_t at() const { return at_; }

 private:
  std::array<uint8_t, kHeadBytesMax> bytes_{};
  size_t size_ = 0, at_ = 0;
};

bool ReadHead(const std::vector<grpc::Slice>& slices, size_t total, BlobPieceView& piece,
              size_t& head_bytes) {
  HeadReader head(slices);
  uint32_t length = 0;
  if (!head.Tag(kChunkTag) || !head.Varint(length) || length != kHashBytes ||
      !head.Bytes(piece.chunk))
    return false;
  if (!head.Tag(kChunkBytesTag) || !head.Varint(piece.chunk_bytes)) return false;
  if (head.Tag(kOffsetTag) && !head.Varint(piece.offset)) return false;
  if (!head.Tag(kDataTag) || !head.Varint(length)) return false;
  head_bytes = head.at();
  piece.data_bytes = length;
  return head_bytes + length == total;
}

absl::StatusOr<BlobPieceView> ParseWithProtobuf(grpc::ByteBuffer buffer) {
  proto::BlobPiece message;
  grpc::ProtoBufferReader reader(&buffer);
  if (!message.ParseFromZeroCopyStream(&reader))
    return absl::InvalidArgumentError("the message is not a piece of a blob");
  BlobPieceView piece;
  const std::optional<Hash> chunk = HashFromBytes(message.chunk());
  if (!chunk) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk's hash of ", message.chunk().size(),
                                                   " bytes; it has ", piece.chunk.size()));
  }
  piece.chunk = *chunk;
  piece.chunk_bytes = message.chunk_bytes();
  piece.offset = message.offset();
  piece.data.emplace_back(message.data());
  piece.data_bytes = message.data().size();
  return piece;
}

}  // namespace

grpc::ByteBuffer EncodeBlobPiece(const Hash& chunk, uint32_t chunk_bytes, uint32_t offset,
                                 grpc::Slice data) {
  HeadWriter head;
  head.Byte(kChunkTag);
  head.Varint(kHashBytes);
  head.Bytes(chunk);
  head.Byte(kChunkBytesTag);
  head.Varint(chunk_bytes);
  if (offset != 0) {
    head.Byte(kOffsetTag);
    head.Varint(offset);
  }
  head.Byte(kDataTag);
  head.Varint(static_cast<uint32_t>(data.size()));
  const grpc::Slice slices[] = {head.ToSlice(), std::move(data)};
  return grpc::ByteBuffer(slices, 2);
}

absl::StatusOr<BlobPieceView> DecodeBlobPiece(const grpc::ByteBuffer& buffer) {
  BlobPieceView piece;
  std::vector<grpc::Slice> slices;
  size_t skip = 0;
  if (!buffer.Dump(&slices).ok())
    return absl::InvalidArgumentError("a piece of a blob could not be parsed");
  if (!ReadHead(slices, buffer.Length(), piece, skip)) return ParseWithProtobuf(buffer);
  for (grpc::Slice& slice : slices) {
    const size_t from = std::min(skip, slice.size());
    skip -= from;
    if (from == 0) {
      piece.data.push_back(std::move(slice));
    } else if (from < slice.size()) {
      piece.data.push_back(slice.sub(from, slice.size()));
    }
  }
  return piece;
}

grpc::Slice SliceOf(std::shared_ptr<const void> owner, const char* begin, size_t size) {
  using Owner = std::shared_ptr<const void>;
  // gRPC never writes into a slice passed to it.
  return grpc::Slice(
      const_cast<char*>(begin), size, [](void* held) { delete static_cast<Owner*>(held); },
      new Owner(std::move(owner)));
}

}  // namespace outboard::wire
