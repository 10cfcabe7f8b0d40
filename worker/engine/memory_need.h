// What a Run takes of the device's memory, added up before it begins, so that one that has no room
// fails before anything is launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/dtype.h"
#include "runtime/device.h"

namespace outboard::worker {

class MemoryNeed {
 public:
  // The array of this result. `dims` stay as they are until CheckOn.
  void Add(size_t result, DType dtype, std::span<const int64_t> dims, int64_t bytes);
  // Of the kernels, together.
  void AddTemporaries(int64_t bytes);

  int64_t bytes() const { return bytes_; }

  // OK if the device has that much beside what is in use.
  // Errors: RESOURCE_EXHAUSTED  the need, what is free, and the largest arrays
  absl::Status CheckOn(const runtime::Device& device) const;

 private:
  struct Array {
    size_t result;
    DType dtype;
    std::span<const int64_t> dims;
    int64_t bytes;
  };
  std::vector<Array> arrays_;
  int64_t bytes_ = 0, temporaries_ = 0;
};

}  // namespace outboard::worker
