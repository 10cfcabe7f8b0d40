// A tensor in this process's memory: the input and output type of the reference interpreter, the
// executor and the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/binding.h"
#include "compiler/ir/dtype.h"

namespace outboard {

// Row-major and contiguous; bytes.size() == ElementCount() * ByteWidth(dtype).
struct HostTensor {
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;
  std::string bytes;

  int64_t ElementCount() const {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    return count;
  }
  friend bool operator==(const HostTensor&, const HostTensor&) = default;
};

}  // namespace outboard
