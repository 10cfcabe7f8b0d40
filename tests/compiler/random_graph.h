// Random tensor graphs of every operation, with inputs on which correct engines agree.
//
// A case is well-conditioned by construction: error_bounds.h bounds the difference of two engines
// at each node while the case is built, and a node that would amplify it without bound (a
// comparison of inexact values, say) is not made. Infinities, NaNs and the ends of the ranges occur
// where arithmetic is exact.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

struct RandomCase {
  std::unique_ptr<Graph> graph;
  const UOp* sink = nullptr;  // verified; PARAM slots in canonical order
  std::vector<HostTensor> params;
  std::vector<Binding> bindings;
};

// Equal seeds give equal cases, on every machine.
RandomCase MakeRandomCase(uint64_t seed);

// The case of a graph whose inputs are BUFFERs, by handle.
RandomCase CaseOfBuffers(const UOp* sink, const std::map<uint64_t, HostTensor>& tensors,
                         std::vector<Binding> bindings);

// Returns the defect of a case; "" if there is none.
using CaseCheck = std::function<std::string(const RandomCase&)>;

// Returns a smaller case for which the result of `check` starts with the same word: with fewer
// results, or nodes replaced by their values as new inputs or by their sources.
RandomCase Shrink(RandomCase failing, const CaseCheck& check);

// Everything that is needed to make the case a test: the graph, its encoding in hex, inputs and
// bindings.
std::string Describe(const RandomCase& c);

}  // namespace outboard::test
