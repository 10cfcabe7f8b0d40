// Arrays whose elements lie where they would in a longer one: how kernels see inputs and results
// with dimensions of VARs (compiler/schedule/padded_dims.h).
#pragma once

#include <cstdint>
#include <vector>

namespace outboard::worker {

// Copies the elements of a row-major array of `dims` to their places among `rooms`, which are
// nowhere less; what lies between is left as it is.
void ScatterToPadded(const char* dense, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& padded_dims, int element_bytes, char* spread);

// The other way.
void GatherFromPadded(const char* spread, const std::vector<int64_t>& dims,
                      const std::vector<int64_t>& padded_dims, int element_bytes, char* dense);

}  // namespace outboard::worker
