// Runs tensor graphs on every engine there is and compares.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "tests/compiler/error_bounds.h"

namespace outboard::test {

using Results = std::vector<HostTensor>;

struct Engine {
  std::string name;
  std::function<absl::StatusOr<Results>(const UOp* sink, std::span<const HostTensor> params,
                                        std::span<const Binding> bindings)>
      run;
};

// The interpreter first; then the compiler's stages, as far as they are built in. A new engine is a
// line in harness.cc.
const std::vector<Engine>& Engines();

// Schedules that Disagreement skipped because walking them would take minutes (schedule_eval.h);
// the compiler's engines run them all the same.
extern int64_t walks_given_up;

// Returns "" if every engine gives the interpreter's `expected` within the tolerances of
// docs/semantics.md, else the engine and the difference.
std::string Disagreement(const UOp* sink, std::span<const HostTensor> params,
                         std::span<const Binding> bindings, const Results& expected);

// Returns the interpreter's results; fails the test if another engine's differ.
Results ExpectSame(const UOp* sink, std::span<const HostTensor> params = {},
                   std::span<const Binding> bindings = {});

// Fails the test for each engine whose only result is not `expected`, up to `error` per element
// (relative beyond 1).
void ExpectValue(const UOp* result, std::span<const HostTensor> params, const HostTensor& expected,
                 double error = 0, std::span<const Binding> bindings = {});

HostTensor Ints(DType dtype, std::vector<int64_t> dims, const std::vector<int64_t>& values);
HostTensor Floats(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values);
std::vector<int64_t> IntsOf(const HostTensor& tensor);
std::vector<double> FloatsOf(const HostTensor& tensor);

// Floats for all inputs of a program, in their order: element after element is what `next` returns.
std::vector<HostTensor> FloatParams(const UOp* sink, const std::function<double()>& next);

}  // namespace outboard::test
