// Random pictures and labels, for figures that do not depend on what is learnt.
#pragma once

#include <utility>
#include <vector>

#include "compiler/ir/host_tensor.h"
#include "tests/support/random_bytes.h"

namespace outboard::bench {

// Of u8, each less than `below`; the same in every run.
inline HostTensor RandomTensor(std::vector<int64_t> dims, int below) {
  HostTensor tensor{DType::kU8, std::move(dims), {}};
  tensor.bytes = test::RandomBytesBelow(tensor.ElementCount(), below);
  return tensor;
}

}  // namespace outboard::bench
