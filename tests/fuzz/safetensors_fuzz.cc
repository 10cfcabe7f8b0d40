// Headers of safetensors files from anywhere: whatever is read lies within the file, and written
// again it is read the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "client/files/safetensors_header.h"

namespace outboard::files {
namespace {

void Try(std::string_view first, uint64_t file_bytes) {
  const auto needed = SafetensorsHeaderBytes(first, file_bytes);
  if (!needed.ok() || *needed > first.size()) return;
  const auto header = ParseSafetensorsHeader(first, file_bytes);
  if (!header.ok()) return;
  uint64_t end = 0;
  for (const SafetensorsArray& array : header->arrays) {
    OB_CHECK(array.offset >= end &&
             array.offset + array.size_bytes <= file_bytes - header->header_bytes);
    end = array.offset + array.size_bytes;
  }
  const std::string written = WriteSafetensorsHeader(*header);
  const auto again = ParseSafetensorsHeader(written, written.size() + end);
  OB_CHECK_OK(again.status());
  OB_CHECK(again->arrays.size() == header->arrays.size());
  for (size_t i = 0; i < again->arrays.size(); ++i) {
    OB_CHECK(again->arrays[i].name == header->arrays[i].name);
    OB_CHECK(again->arrays[i].dtype == header->arrays[i].dtype);
    OB_CHECK(again->arrays[i].dims == header->arrays[i].dims);
  }
}

}  // namespace
}  // namespace outboard::files

// The first two bytes say how much longer the file is than what is given of it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view first(reinterpret_cast<const char*>(data) + 2, size - 2);
  outboard::files::Try(first, first.size() + data[0] + 256u * data[1]);
  return 0;
}
