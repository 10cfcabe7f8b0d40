// Stores products of matrices apart from each other where there is a matrix unit: on GPUs, and on
// processors with tiles. The unit computes a kernel with one sum of products, and GPUs one with
// several that are added in f32. With two that are rounded, scaled or multiplied before they meet,
// as in x @ W + (x @ A) @ B of bf16, a kernel would be computed by plain threads. Then all but the
// largest are stored by kernels of their own, and the kernel that is left loads them: what it does
// after its product is an epilogue, which the unit's plans take. Of many sums that meet one by one,
// the results so far are stored instead, of which two are in memory at a time.
//
// Whether a matrix unit computes a kernel is asked of the compiler, before and after. A kernel that
// it computes as it is stays whole, and so does one that would gain too little: by an estimate, the
// multiplications that matrix units then compute against the bytes that are stored and loaded, and
// against the launches.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/materialize.h"
#include "compiler/target.h"

namespace outboard::schedule {

// The most nodes of all kernels that are asked about for one schedule, each kernel once. A training
// step of GPT-2 124M has some thousands in such kernels.
inline constexpr int64_t kAskedNodesMax = int64_t{1} << 19;

// Asks whether a matrix unit of the target computes a kernel, once for each. Threads: one.
class MatrixUnitKernels {
 public:
  // Of `uses_matrix_unit`, which may be null: then nothing is asked. `tf32`: whether products of
  // f32 may be rounded to TF32.
  MatrixUnitKernels(std::function<bool(const UOp* kernel)> uses_matrix_unit, bool tf32)
      : uses_matrix_unit_(std::move(uses_matrix_unit)), tf32_(tf32) {}

  bool AreAsked() const { return uses_matrix_unit_ != nullptr && nodes_left_ > 0; }
  // False once kAskedNodesMax nodes have been asked about.
  bool Computes(Graph& graph, const UOp* ast);

 private:
  std::function<bool(const UOp*)> uses_matrix_unit_;
  bool tf32_;
  absl::flat_hash_map<const UOp*, bool> known_;
  int64_t nodes_left_ = kAskedNodesMax;
};

// Adds what is stored to `choice`, and its kernels to `kernels`, which are those of `choice.kept`
// in their order. Stores none of `never`, and leaves kernels that compute one as they are.
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::Status StoreProductsApart(Graph& graph, Choice& choice, std::vector<LoweredKernel>& kernels,
                                const absl::flat_hash_set<const UOp*>& never, const Target& target,
                                MatrixUnitKernels& units);

}  // namespace outboard::schedule
