#include "client/examples/idx.h"

#include <zlib.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::examples {
namespace {

// The file's bytes, packed or not.
absl::StatusOr<std::string> Unpack(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string bytes;
  std::error_code ignored;
  if (const auto size = std::filesystem::file_size(path, ignored); size <= kIdxBytesMax)
    bytes.reserve(size);
  std::string piece(1 << 20, '\0');
  while (true) {
    const int count = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (count < 0) return absl::InvalidArgumentError(absl::StrCat(path, " is damaged"));
    if (count == 0) break;
    bytes.append(piece, 0, count);
    if (static_cast<int64_t>(bytes.size()) > kIdxBytesMax)
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " unpacks to more than ", kIdxBytesMax, " bytes"));
  }
  // A file cut short ends like a whole one, but for its status.
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (code != Z_OK && code != Z_STREAM_END)
    return absl::InvalidArgumentError(absl::StrCat(path, " is cut short"));
  return bytes;
}

// As it is where it is there, else with ".gz".
std::string FileIn(const std::string& folder, const std::string& name) {
  const std::string path = absl::StrCat(folder, "/", name);
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : path + ".gz";
}

}  // namespace

absl::StatusOr<HostTensor> ReadIdx(const std::string& path) {
  OB_ASSIGN_OR_RETURN(std::string bytes, Unpack(path));
  const auto byte = [&](size_t i) { return static_cast<int64_t>(static_cast<uint8_t>(bytes[i])); };
  // Two zeros, the type (8: u8), the rank.
  if (bytes.size() < 4 || byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) < 1 ||
      byte(3) > 4 || bytes.size() < static_cast<size_t>(4 + 4 * byte(3)))
    return absl::InvalidArgumentError(absl::StrCat(path, " is no IDX file of u8"));
  HostTensor tensor;
  tensor.dtype = DType::kU8;
  const size_t header = 4 + 4 * byte(3);
  int64_t count = 1;
  for (size_t i = 4; i < header; i += 4) {
    tensor.dims.push_back(byte(i) << 24 | byte(i + 1) << 16 | byte(i + 2) << 8 | byte(i + 3));
    if (__builtin_mul_overflow(count, tensor.dims.back(), &count))
      return absl::InvalidArgumentError(absl::StrCat(path, " says that it has 2^63 elements"));
  }
  if (count != static_cast<int64_t>(bytes.size() - header))
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", bytes.size() - header, " elements, not as many as it says"));
  bytes.erase(0, header);
  tensor.bytes = std::move(bytes);
  return tensor;
}

absl::StatusOr<Images> ReadImages(const std::string& folder) {
  const auto read_pair = [&](const std::string& name, HostTensor& images,
                             HostTensor& labels) -> absl::Status {
    OB_ASSIGN_OR_RETURN(images, ReadIdx(FileIn(folder, name + "-images-idx3-ubyte")));
    OB_ASSIGN_OR_RETURN(labels, ReadIdx(FileIn(folder, name + "-labels-idx1-ubyte")));
    if (images.dims.size() != 3 || labels.dims.size() != 1 || images.dims[0] != labels.dims[0])
      return absl::InvalidArgumentError(
          absl::StrCat("images and labels in ", folder, " do not belong together"));
    images.dims.insert(images.dims.begin() + 1, 1);  // one channel
    return absl::OkStatus();
  };
  Images images;
  OB_RETURN_IF_ERROR(read_pair("train", images.train_images, images.train_labels));
  OB_RETURN_IF_ERROR(read_pair("t10k", images.test_images, images.test_labels));
  return images;
}

}  // namespace outboard::examples
