// Reads and writes weights in files: safetensors and GGUF, from a path or from the bytes that a
// tensor holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/files/gguf_header.h"
#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard::nn {

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

// Loads and saves weights in safetensors files.
//
// Loading reads only the header: the bytes of a tensor are sent to the cloud when something needs
// them, those of one step together, and not at all if the cloud has them. The hashes of a file are
// remembered (client/files/file_index.h), so that the next program need not read it. The file must
// not change while its tensors are in use. Threads: as Tensors.

// Returns the tensors of the file, in file order. Throws Error:
//   NOT_FOUND, PERMISSION_DENIED, UNKNOWN        the file (named)
//   INVALID_ARGUMENT, RESOURCE_EXHAUSTED         not a safetensors file; says what is wrong
//   UNIMPLEMENTED                                a dtype that tensors here do not have
StateDict load_safetensors(const std::string& path, At at = At::current());

// Loads a file whose bytes are a tensor, or from any other source.
StateDict load_safetensors(const Bytes& bytes, At at = At::current());

// Fetches the values in one request and writes the file, replacing an old one atomically.
// `metadata` are texts by name, stored under __metadata__.
// Throws Error: those of the values; UNKNOWN           the file cannot be written (named)
//                                    INVALID_ARGUMENT  a name twice, or a tensor named __metadata__
void save_safetensors(const StateDict& state, const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& metadata = {},
                      At at = At::current());

// Loads models from GGUF files: the metadata, and the tensors.
//
// Loading reads only the header. A tensor of a quantised type (client/nn/ggml.h) is f32 and lazy:
// its packed bytes are sent to the cloud when something needs it, and are expanded there. Realise
// it so that this happens only once. To load a model that is split into several files
// (general.split of llama.cpp) pass the first, "NAME-00001-of-00003.gguf". Threads: as Tensors.

struct Gguf {
  std::vector<std::pair<std::string, files::GgufValue>> metadata;  // of the first file
  StateDict tensors;                                               // in the file's order
};

// Throws Error: those of Bytes; INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED as
// client/files/gguf_header.h, and INVALID_ARGUMENT for a part that is not the first, or parts that
// do not belong together.
Gguf load_gguf(const std::string& path, At at = At::current());
// Loads a file whose bytes are a tensor. One part of several is INVALID_ARGUMENT, because the
// location of the others is unknown.
Gguf load_gguf(const Bytes& bytes, At at = At::current());

}  // namespace outboard::nn
