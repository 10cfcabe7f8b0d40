#include "wire/frame_scan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "wire/limits.h"

namespace outboard::wire {

namespace {

using google::protobuf::internal::WireFormatLite;

// The number of the frame's items; none: it is no frame. Groups, which protobuf has given up, are
// not looked into, so nothing here is deeper than one level.
std::optional<size_t> CountItems(grpc::ByteBuffer& buffer) {
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok()) return std::nullopt;
  google::protobuf::io::CodedInputStream in(&reader);
  size_t items = 0;
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t ignored;
    uint32_t bytes;
    bool good = false;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT: good = in.ReadVarint64(&ignored); break;
      case WireFormatLite::WIRETYPE_FIXED64: good = in.Skip(8); break;
      case WireFormatLite::WIRETYPE_FIXED32: good = in.Skip(4); break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        good = in.ReadVarint32(&bytes) && bytes <= kMessageBytesMax &&
               in.Skip(static_cast<int>(bytes));
        break;
      default: break;
    }
    if (!good) return std::nullopt;
    if (WireFormatLite::GetTagFieldNumber(tag) == proto::ClientFrame::kItemsFieldNumber) ++items;
  }
  return in.ConsumedEntireMessage() ? std::optional<size_t>(items) : std::nullopt;
}

}  // namespace

absl::StatusOr<proto::ClientFrame> ParseFrame(grpc::ByteBuffer& buffer, size_t bytes_max) {
  if (buffer.Length() > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a frame of ", buffer.Length(), " bytes; limit ", bytes_max));
  }
  const std::optional<size_t> items = CountItems(buffer);
  if (items.value_or(0) > kFrameItemsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a frame of ", *items, " items; limit ", kFrameItemsMax));
  }
  proto::ClientFrame frame;
  if (!items.has_value() ||
      !grpc::SerializationTraits<proto::ClientFrame>::Deserialize(&buffer, &frame).ok())
    return absl::InvalidArgumentError("the message is no frame of a session");
  return frame;
}

}  // namespace outboard::wire
