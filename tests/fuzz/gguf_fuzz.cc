// Headers of GGUF files from anywhere: whatever is read lies within the file, each array alone, and
// more of the same file never changes what was read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.h"
#include "client/files/gguf_header.h"
#include "tests/client/gguf_writer.h"
#include "tests/fuzz/seeds.h"

namespace outboard::files {
namespace {

// To the bit: a NaN is the same as itself.
bool Same(const GgufValue& a, const GgufValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* const x = std::get_if<double>(&a))
    return std::memcmp(x, &std::get<double>(b), sizeof(double)) == 0;
  if (const auto* const x = std::get_if<std::vector<double>>(&a)) {
    const auto& y = std::get<std::vector<double>>(b);
    return x->size() == y.size() &&
           (x->empty() || std::memcmp(x->data(), y.data(), x->size() * sizeof(double)) == 0);
  }
  return a == b;
}

bool SameMetadata(const GgufHeader& a, const GgufHeader& b) {
  return std::equal(
      a.metadata.begin(), a.metadata.end(), b.metadata.begin(), b.metadata.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && Same(x.second, y.second); });
}

void Try(std::string_view first, uint64_t file_bytes) {
  const auto header = ParseGgufHeader(first, file_bytes);
  if (!header.ok()) return;
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const GgufArray& array : header->arrays) {
    int64_t elements = 1;
    for (const int64_t dim : array.dims) elements *= dim;
    OB_CHECK(static_cast<uint64_t>(elements / array.layout->block_elements *
                                   array.layout->block_bytes) == array.size_bytes);
    if (array.size_bytes > 0) places.emplace_back(array.offset, array.size_bytes);
  }
  std::sort(places.begin(), places.end());
  uint64_t end = 0;
  for (const auto& [offset, size] : places) {
    OB_CHECK(offset >= end && size <= file_bytes && offset <= file_bytes - size);
    end = offset + size;
  }
  for (size_t n = 0; n < first.size(); n += 1 + first.size() / 8) {
    const auto shorter = ParseGgufHeader(first.substr(0, n), file_bytes);
    OB_CHECK(shorter.ok() ? SameMetadata(*shorter, *header) : absl::IsOutOfRange(shorter.status()));
  }
}

}  // namespace
}  // namespace outboard::files

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  outboard::test::Gguf file;
  file.Alignment(64).Text("name", "x").Texts("tokens", {"a", ""}).Value("flag", 7, uint8_t{1});
  file.List("scores", 6, std::vector<float>{1, 2}).Value("count", 10, ~uint64_t{0});
  file.Array("w", {32, 2}, 2, std::string(36, 'w')).Array("s", {}, 0, "1234");
  const std::string bytes = file.Write();
  const std::string without_arrays = bytes.substr(0, bytes.size() - 128);
  outboard::test::WriteSeeds(
      *argc, *argv,
      {std::string("\0\0", 2) + bytes, "\x80" + std::string(1, '\0') + without_arrays});
  return 0;
}

// The first two bytes say how much longer the file is than what is given of it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view first(reinterpret_cast<const char*>(data) + 2, size - 2);
  outboard::files::Try(first, first.size() + data[0] + 256u * data[1]);
  return 0;
}
