#include "worker/tuning_key.h"

#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/rewrite/bind.h"

namespace outboard::worker {

absl::StatusOr<EncodedGraph> CanonicalKernel(const UOp* kernel) {
  Graph graph;
  kernel = AtLargest(graph, kernel);
  absl::flat_hash_map<const UOp*, const UOp*> abstracted;
  std::map<DType, int> constants;
  for (const UOp* node : PostOrder(kernel)) {
    std::vector<const UOp*> src;
    for (const UOp* s : node->src) src.push_back(abstracted.at(s));
    if (node->is_const() && IsFloat(node->dtype)) {
      abstracted[node] = ConstFloat(graph, node->dtype, ++constants[node->dtype]);
    } else {
      OB_ASSIGN_OR_RETURN(abstracted[node], graph.WithSources(node, src));
    }
  }
  return EncodeGraph(abstracted.at(kernel));
}

}  // namespace outboard::worker
