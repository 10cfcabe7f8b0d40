// An open safetensors file: its header, and the location of its arrays.
//
// Threads: any. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED  as
// safetensors_header.h
//                       DATA_LOSS  the file became shorter
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/files/open_file.h"
#include "client/files/safetensors_header.h"

namespace outboard::blobs {

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const OpenFile& file);

// Of the arrays, in the header's order.
std::vector<FileRange> RangesOf(const SafetensorsHeader& header);

}  // namespace outboard::blobs
