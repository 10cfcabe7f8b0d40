// Attention of one decoded token, as a program writes it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/binding.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

// As it was recorded.
struct DecodedGraph {
  const UOp* sink;
  std::vector<Binding> bindings;
};

// One query for each of `group` times `heads` heads, of which a group shares keys and values.
struct Decoded {
  int64_t heads = 4, group = 1, keys = 1024, width = 64;
  DType dtype = DType::kBF16;
  int64_t length = 0;        // if > 0: a VAR bound to so many
  int64_t length_least = 1;  // that the VAR may be; with 0 there is one whatever the length
  bool mask = false;

  DecodedGraph Record(Graph& graph) const;
};

// Small numbers for all inputs, the same each time.
std::vector<HostTensor> RandomFloats(const UOp* sink);

}  // namespace outboard::test
