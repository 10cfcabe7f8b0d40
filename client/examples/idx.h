// Data sets as IDX files, gzipped or not, the form of MNIST and its relatives: a header of
// big-endian numbers, then u8 elements.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"

namespace outboard::examples {

inline constexpr int64_t kIdxBytesMax = int64_t{1} << 30;  // of one unpacked file

// The tensor in the file, of u8.
// Errors: NOT_FOUND           the file cannot be opened (names it)
//         INVALID_ARGUMENT    no IDX file of u8, or of another length than its header says
//         RESOURCE_EXHAUSTED  over kIdxBytesMax
absl::StatusOr<HostTensor> ReadIdx(const std::string& path);

struct Images {
  HostTensor train_images, train_labels, test_images, test_labels;  // images [n, 1, h, w]
};

// The four files of a folder: {train,t10k}-{images-idx3,labels-idx1}-ubyte, or these with .gz.
absl::StatusOr<Images> ReadImages(const std::string& folder);

}  // namespace outboard::examples
