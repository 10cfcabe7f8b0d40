// Loads and saves weights in safetensors files.
//
// Loading reads only the header: the bytes of a tensor are sent to the cloud when something needs
// them, those of one step together, and not at all if the cloud has them. The hashes of a file are
// remembered (client/files/file_index.h), so that the next program need not read it. The file must
// not change while its tensors are in use. Threads: as Tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/nn/bytes.h"
#include "client/nn/state.h"

namespace outboard::nn {

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

}  // namespace outboard::nn
