#include "client/nn/safetensors.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/blobs/safetensors_file.h"

namespace outboard::nn {

StateDict load_safetensors(const std::string& path, At at) {
  auto file = blobs::OpenFile::Open(path);
  ThrowIfError(file.status(), at);
  const absl::StatusOr<blobs::SafetensorsHeader> header = blobs::ReadSafetensorsHeader(**file);
  if (!header.ok()) {
    ThrowIfError(
        absl::Status(header.status().code(), absl::StrCat(path, ": ", header.status().message())),
        at);
  }
  const std::vector<blobs::FileRange> ranges = blobs::RangesOf(*header);
  std::vector<wire::BlobSource> sources = (*file)->Sources(ranges);
  StateDict state;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const blobs::SafetensorsArray& array = header->arrays[i];
    std::function<void(const wire::BlobName&)> named;
    if (!sources[i].name.has_value()) {
      named = [file = *file, range = ranges[i]](const wire::BlobName& name) {
        file->Found({&range, 1}, {&name, 1});
      };
    }
    state.emplace_back(array.name, Tensor::from_blob(array.dtype, array.dims, std::move(sources[i]),
                                                     std::move(named), at));
  }
  return state;
}

void save_safetensors(const StateDict& state, const std::string& path, At at) {
  blobs::SafetensorsHeader header;
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : state) {
    blobs::SafetensorsArray array;
    array.name = name;
    array.dtype = tensor.dtype(at);
    array.dims = tensor.shape(at);
    uint64_t bytes = ByteWidth(array.dtype);
    for (int64_t dim : array.dims) bytes *= static_cast<uint64_t>(dim);
    array.size_bytes = bytes;
    header.arrays.push_back(std::move(array));
    tensors.push_back(tensor);
  }
  std::vector<TensorFuture> values = fetch(tensors, at);
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".part");
  std::ofstream file(temporary, std::ios::binary);
  const std::string head = blobs::WriteSafetensorsHeader(header);
  file.write(head.data(), static_cast<std::streamsize>(head.size()));
  for (TensorFuture& future : values) {
    const HostTensor value = future.to_host(at);
    file.write(value.bytes.data(), static_cast<std::streamsize>(value.bytes.size()));
  }
  file.close();
  if (!file.good() || std::rename(temporary.c_str(), path.c_str()) != 0) {
    unlink(temporary.c_str());
    ThrowIfError(absl::UnknownError(absl::StrCat("cannot write ", path)), at);
  }
}

}  // namespace outboard::nn
