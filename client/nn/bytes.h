// Bytes of which ranges are tensors: a file's, or those of a tensor of u8. What file formats are
// read through, whatever the format.
//
// Ranges of a file are not read when a tensor is made of them: they go to the cloud when something
// needs them, those of one step together, and not at all where the cloud has them
// (client/files/file_index.h remembers what a file consists of). The file must not change while its
// tensors are in use. Ranges of a tensor are computed where it lives; one that is itself a file's,
// and was not sent yet, is as good as the file. Offsets and sizes are in bytes. Copies are one; any
// thread may read.
//
// Errors, thrown as Error: NOT_FOUND, PERMISSION_DENIED, UNKNOWN   the file (named)
//                          INVALID_ARGUMENT  no regular file; a tensor that is not of u8 with one
//                                            axis
//                          OUT_OF_RANGE      a range that is not inside
//                          DATA_LOSS         the file became shorter
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::nn {

class Bytes {
 public:
  struct Range {
    DType dtype = DType::kU8;
    Dims dims;
    uint64_t offset = 0;
  };

  static Bytes OfFile(const std::string& path, At at = At::current());
  static Bytes OfTensor(const Tensor& tensor, At at = At::current());

  uint64_t size() const;
  // Waits where it is a tensor's. At most `size` of them, as many as there are from `offset` on.
  std::string Read(uint64_t offset, uint64_t size, At at = At::current()) const;
  // In the order of `ranges`. What is asked for together is looked up together.
  std::vector<Tensor> Tensors(std::span<const Range> ranges, At at = At::current()) const;
  // "weights.gguf", or "the tensor": for messages.
  const std::string& name() const;

  struct Source;

 private:
  explicit Bytes(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  std::shared_ptr<const Source> source_;
};

}  // namespace outboard::nn
