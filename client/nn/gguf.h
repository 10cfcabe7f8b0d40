// Loads models from GGUF files: the metadata, and the tensors.
//
// Loading reads only the header. A tensor of a quantised type (client/nn/ggml.h) is f32 and lazy:
// its packed bytes are sent to the cloud when something needs it, and are expanded there. Realise
// it so that this happens only once. To load a model that is split into several files
// (general.split of llama.cpp) pass the first, "NAME-00001-of-00003.gguf". Threads: as Tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/files/gguf_header.h"
#include "client/nn/bytes.h"
#include "client/nn/state.h"

namespace outboard::nn {

struct Gguf {
  std::vector<std::pair<std::string, blobs::GgufValue>> metadata;  // of the first file
  StateDict tensors;                                               // in the file's order
};

// Throws Error: those of bytes.h; INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED as
// client/files/gguf_header.h, and INVALID_ARGUMENT for a part that is not the first, or parts that
// do not belong together.
Gguf load_gguf(const std::string& path, At at = At::current());
// Loads a file whose bytes are a tensor. One part of several is INVALID_ARGUMENT, because the
// location of the others is unknown.
Gguf load_gguf(const Bytes& bytes, At at = At::current());

}  // namespace outboard::nn
