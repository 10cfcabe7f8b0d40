#include "client/files/safetensors_file.h"

#include <string>

#include "base/check.h"

namespace outboard::blobs {

namespace {

constexpr uint64_t kFirstBytes = 64 << 10;  // most headers are shorter: one read

}  // namespace

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const OpenFile& file) {
  OB_ASSIGN_OR_RETURN(std::string head, file.Head(kFirstBytes));
  OB_ASSIGN_OR_RETURN(const uint64_t bytes, SafetensorsHeaderBytes(head, file.size_bytes()));
  if (bytes > head.size()) {
    OB_ASSIGN_OR_RETURN(head, file.Head(bytes));
  }
  return ParseSafetensorsHeader(head, file.size_bytes());
}

std::vector<FileRange> RangesOf(const SafetensorsHeader& header) {
  std::vector<FileRange> ranges;
  for (const SafetensorsArray& array : header.arrays)
    ranges.push_back({header.header_bytes + array.offset, array.size_bytes});
  return ranges;
}

}  // namespace outboard::blobs
