// Bytes whose ranges are tensors: those of a file, or of a u8 tensor. All file formats are read
// through it.
//
// Making a tensor of a file's range does not read it: its bytes are sent to the cloud when
// something needs them, those of one step together, and not at all if the cloud has them
// (client/files/file_index.h remembers the hashes of a file). The file must not change while its
// tensors are in use. Ranges of a tensor are computed where it lives; a tensor that is itself a
// file's range and was not sent yet is treated like the file. Offsets and sizes are in bytes.
// Copies share one object; any thread may read.
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
  // Returns at most `size` bytes from `offset`, fewer at the end. Waits if they are a tensor's.
  std::string Read(uint64_t offset, uint64_t size, At at = At::current()) const;
  // Returns one tensor per range. Ranges of one call are looked up together.
  std::vector<Tensor> Tensors(std::span<const Range> ranges, At at = At::current()) const;
  // Returns "weights.gguf", or "the tensor": for messages.
  const std::string& name() const;

  struct Source;

 private:
  explicit Bytes(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  std::shared_ptr<const Source> source_;
};

}  // namespace outboard::nn
