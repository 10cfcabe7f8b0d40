#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/files/open_file.h"
#include "client/lazy/call_site.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/lazy_graph.h"
#include "client/nn/files.h"
#include "client/nn/little_endian.h"

namespace outboard::nn {

struct Bytes::Source {
  std::string name;
  uint64_t size = 0;
  // One of these:
  std::shared_ptr<files::OpenFile> file;
  wire::BlobSource deferred;  // of a tensor whose bytes have not been sent
  Tensor tensor;
};

namespace {

// The bytes that `range` takes; throws unless they are inside.
files::FileRange PlaceOf(const Bytes::Range& range, const Bytes& bytes) {
  auto size = static_cast<uint64_t>(ByteWidth(range.dtype));
  for (const int64_t dim : range.dims)
    if (dim < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size))
      ThrowInvalid(absl::StrCat(bytes.name(), ": an array is too large"));
  if (range.offset > bytes.size() || size > bytes.size() - range.offset)
    ThrowIfError(absl::OutOfRangeError(
        absl::StrCat(bytes.name(), ": ", size, " bytes at ", range.offset, " of ", bytes.size())));
  return {range.offset, size};
}

wire::BlobSource PartOf(const wire::BlobSource& whole, const files::FileRange& place) {
  return {place.size_bytes,
          [read = whole.read, begin = place.offset](uint64_t offset, std::span<char> out) {
            return read(begin + offset, out);
          }};
}

}  // namespace

Bytes Bytes::OfFile(const std::string& path, At at) {
  auto file = files::OpenFile::Open(path);
  ThrowIfError(file.status(), at);
  auto source = std::make_shared<Source>();
  source->name = path;
  source->size = (*file)->size_bytes();
  source->file = *std::move(file);
  return Bytes(std::move(source));
}

Bytes Bytes::OfTensor(const Tensor& tensor, At at) {
  const CallSite site(at);
  if (tensor.dtype() != DType::kU8 || tensor.rank() != 1)
    ThrowInvalid("a file as a tensor is of u8 and has one axis");
  auto source = std::make_shared<Source>();
  source->name = "the tensor";
  source->size = static_cast<uint64_t>(tensor.numel());
  if (const std::shared_ptr<internal::CloudBuffer>& storage = tensor.value()->storage;
      storage != nullptr && storage->deferred != nullptr)
    source->deferred = storage->deferred->source;
  else
    source->tensor = tensor;
  return Bytes(std::move(source));
}

uint64_t Bytes::size() const { return source_->size; }
const std::string& Bytes::name() const { return source_->name; }

std::string Bytes::Read(uint64_t offset, uint64_t size, At at) const {
  const CallSite site(at);
  offset = std::min(offset, source_->size);
  size = std::min(size, source_->size - offset);
  if (source_->deferred.read != nullptr) {
    std::string read(size, '\0');
    ThrowIfError(source_->deferred.read(offset, read));
    return read;
  }
  if (source_->file == nullptr) {
    const auto begin = static_cast<int64_t>(offset);
    return source_->tensor.slice(0, begin, begin + static_cast<int64_t>(size))
        .to_host(CallSite::Line())
        .bytes;
  }
  absl::StatusOr<std::string> read = source_->file->Read(offset, size);
  ThrowIfError(read.status());
  return *std::move(read);
}

std::vector<Tensor> Bytes::Tensors(std::span<const Range> ranges, At at) const {
  const CallSite site(at);
  std::vector<files::FileRange> places;
  for (const Range& range : ranges) places.push_back(PlaceOf(range, *this));
  std::vector<Tensor> tensors;
  if (source_->deferred.read != nullptr) {
    for (size_t i = 0; i < ranges.size(); ++i)
      tensors.push_back(
          Tensor::from_blob(ranges[i].dtype, ranges[i].dims, PartOf(source_->deferred, places[i])));
    return tensors;
  }
  if (source_->file == nullptr) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      const auto begin = static_cast<int64_t>(places[i].offset);
      const Tensor bytes =
          source_->tensor.slice(0, begin, begin + static_cast<int64_t>(places[i].size_bytes));
      tensors.push_back(FromLittleEndian(bytes, ranges[i].dtype).reshape(ranges[i].dims));
    }
    return tensors;
  }
  std::vector<wire::BlobSource> sources = source_->file->Sources(places);
  for (size_t i = 0; i < ranges.size(); ++i) {
    std::function<void(const wire::BlobName&)> named;
    if (!sources[i].name.has_value()) {
      named = [file = source_->file, place = places[i]](const wire::BlobName& name) {
        file->Found({&place, 1}, {&name, 1});
      };
    }
    tensors.push_back(Tensor::from_blob(ranges[i].dtype, ranges[i].dims, std::move(sources[i]),
                                        std::move(named)));
  }
  return tensors;
}

}  // namespace outboard::nn
