#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/lazy/call_site.h"
#include "client/nn/files.h"
#include "client/nn/ggml.h"

namespace outboard::nn {
namespace {

constexpr uint64_t kFirstBytes =
    1 << 20;  // most headers without a vocabulary; else more and more is read
constexpr int64_t kPartsMax = 99999;  // five digits of a name

files::GgufHeader ReadHeader(const Bytes& bytes) {
  for (uint64_t wanted = kFirstBytes;; wanted *= 2) {
    absl::StatusOr<files::GgufHeader> header =
        files::ParseGgufHeader(bytes.Read(0, wanted), bytes.size());
    if (header.ok()) return *std::move(header);
    if (!absl::IsOutOfRange(header.status()))
      ThrowIfError(absl::Status(header.status().code(),
                                absl::StrCat(bytes.name(), ": ", header.status().message())));
  }
}

StateDict TensorsOf(const files::GgufHeader& header, const Bytes& bytes) {
  std::vector<Bytes::Range> ranges;
  for (const files::GgufArray& array : header.arrays) {
    if (array.layout->plain != DType::kVoid) {
      ranges.push_back({array.layout->plain, array.dims, array.offset});
    } else {
      const int64_t block_bytes = array.layout->block_bytes;
      ranges.push_back({DType::kU8,
                        {static_cast<int64_t>(array.size_bytes) / block_bytes, block_bytes},
                        array.offset});
    }
  }
  std::vector<Tensor> tensors = bytes.Tensors(ranges);
  StateDict state;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const files::GgufArray& array = header.arrays[i];
    if (array.layout->plain == DType::kVoid)
      tensors[i] = dequantize(tensors[i], array.layout->type).reshape(array.dims);
    state.emplace_back(array.name, std::move(tensors[i]));
  }
  return state;
}

int64_t NumberOr(const files::GgufHeader& header, const std::string& name, int64_t otherwise) {
  for (const auto& [key, value] : header.metadata)
    if (const auto* number = std::get_if<int64_t>(&value); key == name && number != nullptr)
      return *number;
  return otherwise;
}

// "x-00001-of-00003.gguf" -> "x"; throws for another name.
std::string StemOf(const std::string& path, int64_t parts) {
  const std::string ending = absl::StrFormat("-%05d-of-%05d.gguf", 1, parts);
  if (!path.ends_with(ending))
    ThrowInvalid(absl::StrCat(path, ": the first of ", parts, " parts is named NAME", ending));
  return path.substr(0, path.size() - ending.size());
}

}  // namespace

Gguf load_gguf(const std::string& path, At at) {
  const CallSite site(at);
  const Bytes first = Bytes::OfFile(path);
  files::GgufHeader header = ReadHeader(first);
  const int64_t parts = NumberOr(header, "split.count", 1);
  Gguf gguf{{}, TensorsOf(header, first)};
  if (parts > 1) {
    if (parts > kPartsMax || NumberOr(header, "split.no", 0) != 0)
      ThrowInvalid(absl::StrCat(path, ": is not the first part of a model"));
    const std::string stem = StemOf(path, parts);
    std::set<std::string> names;
    for (const auto& [name, tensor] : gguf.tensors) names.insert(name);
    for (int64_t i = 1; i < parts; ++i) {
      const Bytes bytes =
          Bytes::OfFile(absl::StrFormat("%s-%05d-of-%05d.gguf", stem, i + 1, parts));
      const files::GgufHeader part = ReadHeader(bytes);
      if (NumberOr(part, "split.no", -1) != i || NumberOr(part, "split.count", -1) != parts)
        ThrowInvalid(absl::StrCat(bytes.name(), ": is not part ", i + 1, " of ", parts));
      for (auto& entry : TensorsOf(part, bytes)) {
        if (!names.insert(entry.first).second)
          ThrowInvalid(absl::StrCat(bytes.name(), ": ", entry.first, " is in another part too"));
        gguf.tensors.push_back(std::move(entry));
      }
    }
  }
  gguf.metadata = std::move(header.metadata);
  return gguf;
}

Gguf load_gguf(const Bytes& bytes, At at) {
  const CallSite site(at);
  files::GgufHeader header = ReadHeader(bytes);
  if (NumberOr(header, "split.count", 1) > 1)
    ThrowInvalid(absl::StrCat(bytes.name(), ": is a part of a model; load it by its path"));
  Gguf gguf{{}, TensorsOf(header, bytes)};
  gguf.metadata = std::move(header.metadata);
  return gguf;
}

}  // namespace outboard::nn
