// Looks at an encoded message of a process that may be hostile before it is parsed: an empty
// submessage is 2 bytes on the wire and up to 54 times as many in memory, so a message of too many
// is refused unread. ParseFrame (frame_scan.h) does the same for frames in gRPC's buffers.
//
// Threads: any; no state.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace outboard::wire {

// Counts the fields of a message of this type, at every depth: each occurrence of a field, known or
// not, and each byte of a packed one, which is an element at the most. Walks no deeper than `type`
// does, which must not contain itself.
// Errors: RESOURCE_EXHAUSTED  there are more than `fields_max`
//         INVALID_ARGUMENT    the bytes are no such message
absl::Status CheckFieldCount(std::string_view bytes, const google::protobuf::Descriptor& type,
                             size_t fields_max);

}  // namespace outboard::wire
