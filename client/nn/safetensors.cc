#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/files/safetensors_header.h"
#include "client/lazy/call_site.h"
#include "client/nn/files.h"

namespace outboard::nn {
namespace {

constexpr uint64_t kFirstBytes = 64 << 10;  // most headers are shorter: one read

absl::StatusOr<files::SafetensorsHeader> ReadHeader(const Bytes& bytes) {
  std::string head = bytes.Read(0, kFirstBytes);
  const absl::StatusOr<uint64_t> needed = files::SafetensorsHeaderBytes(head, bytes.size());
  if (!needed.ok()) return needed.status();
  if (*needed > head.size()) head = bytes.Read(0, *needed);
  return files::ParseSafetensorsHeader(head, bytes.size());
}

}  // namespace

StateDict load_safetensors(const std::string& path, At at) {
  const CallSite site(at);
  return load_safetensors(Bytes::OfFile(path));
}

StateDict load_safetensors(const Bytes& bytes, At at) {
  const CallSite site(at);
  const absl::StatusOr<files::SafetensorsHeader> header = ReadHeader(bytes);
  if (!header.ok()) {
    ThrowIfError(absl::Status(header.status().code(),
                              absl::StrCat(bytes.name(), ": ", header.status().message())));
  }
  std::vector<Bytes::Range> ranges;
  for (const files::SafetensorsArray& array : header->arrays)
    ranges.push_back({array.dtype, array.dims, header->header_bytes + array.offset});
  std::vector<Tensor> tensors = bytes.Tensors(ranges);
  StateDict state;
  for (size_t i = 0; i < tensors.size(); ++i)
    state.emplace_back(header->arrays[i].name, std::move(tensors[i]));
  return state;
}

void save_safetensors(const StateDict& state, const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& metadata, At at) {
  const CallSite site(at);
  files::SafetensorsHeader header;
  if (!metadata.empty()) header.metadata = files::WriteSafetensorsMetadata(metadata);
  std::vector<Tensor> tensors;
  std::set<std::string> names = {files::kSafetensorsMetadataName};
  for (const auto& [name, tensor] : state) {
    if (!names.insert(name).second)
      ThrowInvalid(absl::StrCat("safetensors: ", name, " is the name of something else too"));
    files::SafetensorsArray array;
    array.name = name;
    array.dtype = tensor.dtype();
    array.dims = tensor.shape();
    uint64_t bytes = ByteWidth(array.dtype);
    for (int64_t dim : array.dims) bytes *= static_cast<uint64_t>(dim);
    array.size_bytes = bytes;
    header.arrays.push_back(std::move(array));
    tensors.push_back(tensor);
  }
  std::vector<TensorFuture> values = fetch(tensors, CallSite::Line());
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".part");
  std::ofstream file(temporary, std::ios::binary);
  const std::string head = files::WriteSafetensorsHeader(header);
  file.write(head.data(), static_cast<std::streamsize>(head.size()));
  for (TensorFuture& future : values) {
    const HostTensor value = future.to_host(CallSite::Line());
    file.write(value.bytes.data(), static_cast<std::streamsize>(value.bytes.size()));
  }
  file.close();
  if (!file.good() || std::rename(temporary.c_str(), path.c_str()) != 0) {
    unlink(temporary.c_str());
    ThrowIfError(absl::UnknownError(absl::StrCat("cannot write ", path)));
  }
}

}  // namespace outboard::nn
