// Weights in safetensors files.
//
// A file is not read when it is loaded, only its header: the bytes of a tensor go to the cloud when
// something needs them, those of one step together, and not at all where the cloud has them. What a
// file consists of is remembered (client/files/file_index.h), so that the next program does not
// even read it. The file must not change while its tensors are in use. Threads: as Tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/nn/bytes.h"
#include "client/nn/state.h"

namespace outboard::nn {

// The tensors of the file, in the order in which they lie there. Throws Error:
//   NOT_FOUND, PERMISSION_DENIED, UNKNOWN        the file (named)
//   INVALID_ARGUMENT, RESOURCE_EXHAUSTED         not a safetensors file; says what is wrong
//   UNIMPLEMENTED                                a dtype that tensors here do not have
StateDict load_safetensors(const std::string& path, At at = At::current());

// Of a file's bytes, wherever they are.
StateDict load_safetensors(const Bytes& bytes, At at = At::current());

// Fetches the values, together, and writes them; the file is replaced at once when all of it is
// written. `metadata` are texts by name, which other readers find under __metadata__.
// Throws Error: those of the values; UNKNOWN           the file cannot be written (named)
//                                    INVALID_ARGUMENT  a name twice, or a tensor named __metadata__
void save_safetensors(const StateDict& state, const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& metadata = {},
                      At at = At::current());

}  // namespace outboard::nn
