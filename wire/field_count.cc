#include "wire/field_count.h"

#include <google/protobuf/wire_format_lite.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kDepthMax = 16;  // of our own types, of which the deepest has four levels

absl::Status NoMessage() { return absl::InvalidArgumentError("a message could not be parsed"); }

bool TakeVarint(std::string_view& bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// The bytes of one field's value, taken from `bytes`; false: they are not there. Groups, which
// protobuf has given up, are in none of our messages.
bool TakeValue(std::string_view& bytes, uint64_t tag, std::string_view* value) {
  uint64_t length = 0;
  switch (WireFormatLite::GetTagWireType(static_cast<uint32_t>(tag))) {
    case WireFormatLite::WIRETYPE_VARINT: *value = {}; return TakeVarint(bytes, &length);
    case WireFormatLite::WIRETYPE_FIXED64: length = 8; break;
    case WireFormatLite::WIRETYPE_FIXED32: length = 4; break;
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
      if (!TakeVarint(bytes, &length)) return false;
      break;
    default: return false;
  }
  if (length > bytes.size()) return false;
  *value = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return true;
}

struct FieldCount {
  size_t left, most;

  absl::Status Take(size_t fields) {
    if (fields > left)
      return absl::ResourceExhaustedError(absl::StrCat("a message of more than ", most, " fields"));
    left -= fields;
    return absl::OkStatus();
  }

  absl::Status Count(std::string_view bytes, const Descriptor& type, int depth) {
    OB_CHECK(depth < kDepthMax);
    while (!bytes.empty()) {
      OB_RETURN_IF_ERROR(Take(1));
      uint64_t tag;
      std::string_view value;
      if (!TakeVarint(bytes, &tag) || tag > UINT32_MAX || !TakeValue(bytes, tag, &value))
        return NoMessage();
      if (WireFormatLite::GetTagWireType(static_cast<uint32_t>(tag)) !=
          WireFormatLite::WIRETYPE_LENGTH_DELIMITED)
        continue;
      const FieldDescriptor* const field =
          type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(static_cast<uint32_t>(tag)));
      if (field == nullptr) continue;
      if (field->message_type() != nullptr) {
        OB_RETURN_IF_ERROR(Count(value, *field->message_type(), depth + 1));
      } else if (field->is_packable()) {
        OB_RETURN_IF_ERROR(Take(value.size()));
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status CheckFieldCount(std::string_view bytes, const Descriptor& type, size_t fields_max) {
  FieldCount count{fields_max, fields_max};
  return count.Count(bytes, type, 0);
}

}  // namespace outboard::wire
