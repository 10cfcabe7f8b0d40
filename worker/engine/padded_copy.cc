#include "worker/engine/padded_copy.h"

#include <cstring>

#include "base/check.h"

namespace outboard::worker {
namespace {

// Calls copy(byte in the dense array, byte among the padded_dims, bytes) for each run of elements
// that lie side by side in both.
template <typename Copy>
void ForEachRun(const std::vector<int64_t>& dims, const std::vector<int64_t>& padded_dims,
                int element_bytes, const Copy& copy) {
  OB_CHECK(dims.size() == padded_dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    OB_CHECK(dims[i] <= padded_dims[i]);
    if (dims[i] == 0) return;
  }
  size_t outer = dims.size();  // the axes before this one are walked
  int64_t run = element_bytes;
  while (outer > 0) {
    run *= dims[--outer];
    if (dims[outer] != padded_dims[outer]) break;
  }
  std::vector<int64_t> index(outer);
  for (int64_t dense = 0;; dense += run) {
    int64_t place = 0;
    for (size_t i = 0; i < padded_dims.size(); ++i)
      place = place * padded_dims[i] + (i < outer ? index[i] : 0);
    copy(dense, place * element_bytes, run);
    size_t axis = outer;
    while (axis > 0 && ++index[axis - 1] == dims[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace

void ScatterToPadded(const char* dense, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& padded_dims, int element_bytes, char* spread) {
  ForEachRun(dims, padded_dims, element_bytes, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(spread + to, dense + from, bytes);
  });
}

void GatherFromPadded(const char* spread, const std::vector<int64_t>& dims,
                      const std::vector<int64_t>& padded_dims, int element_bytes, char* dense) {
  ForEachRun(dims, padded_dims, element_bytes, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(dense + to, spread + from, bytes);
  });
}

}  // namespace outboard::worker
