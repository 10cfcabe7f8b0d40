// Models in GGUF files: what the file says of the model, and its tensors.
//
// Only the header is read when a file is loaded. A tensor of a quantised type (client/nn/ggml.h) is
// f32 and lazy: its packed bytes go to the cloud when something needs it, and are expanded there.
// Realise it to have that done once. A model that is split into several files (general.split of
// llama.cpp) is loaded by the first, "NAME-00001-of-00003.gguf". Threads: as Tensors.
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
// gguf_header.h, and INVALID_ARGUMENT for a part that is not the first, or parts that do not fit
// together.
Gguf load_gguf(const std::string& path, At at = At::current());
// The file's bytes as a tensor. A part of several is INVALID_ARGUMENT: where the others are is not
// known.
Gguf load_gguf(const Bytes& bytes, At at = At::current());

}  // namespace outboard::nn
