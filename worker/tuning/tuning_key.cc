#include "worker/tuning/tuning_key.h"

#include <cmath>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/bind.h"

namespace outboard::worker {
namespace {

// Code is made for what a 0 does (a load that is skipped), and of infinity and NaN come other
// numbers than of any other constant.
bool IsAnyNumber(const UOp* node) {
  return node->is_const() && IsFloat(node->dtype) && node->float_value() != 0 &&
         std::isfinite(node->float_value());
}

}  // namespace

absl::StatusOr<EncodedGraph> CanonicalKernel(const UOp* kernel) {
  Graph graph;
  kernel = AtLargest(graph, kernel);
  absl::flat_hash_map<const UOp*, const UOp*> abstracted;
  std::map<DType, int> constants;
  for (const UOp* node : PostOrder(kernel)) {
    std::vector<const UOp*> src;
    for (const UOp* s : node->src) src.push_back(abstracted.at(s));
    if (IsAnyNumber(node)) {
      abstracted[node] = ConstFloat(graph, node->dtype, ++constants[node->dtype]);
    } else {
      OB_ASSIGN_OR_RETURN(abstracted[node], graph.WithSources(node, src));
    }
  }
  return EncodeGraph(abstracted.at(kernel));
}

}  // namespace outboard::worker
