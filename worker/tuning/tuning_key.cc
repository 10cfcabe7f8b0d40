#include "worker/tuning/tuning_key.h"

#include <cmath>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/bind.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {
namespace {

// Code is made for what a 0 does (a load that is skipped), and of infinity and NaN come other
// numbers than of any other constant. Of all others code depends on the sign, and on whether a
// product by them is larger: exponentials of online kernels do
// (compiler/program/online/exponential.h; that a factor may also be too small there is left out).
bool IsAnyNumber(const UOp* node) {
  return node->is_const() && IsFloat(node->dtype) && node->float_value() != 0 &&
         std::isfinite(node->float_value());
}

// The number that stands for `value`, of the same sign and on the same side of 1; others for other
// `number`, which is at least 1.
double Representative(double value, int number) {
  return std::copysign(std::abs(value) <= 1 ? 1.0 / number : number + 1.0, value);
}

bool IsZero(const UOp* constant) {
  return IsFloat(constant->dtype) ? constant->float_value() == 0 : constant->int_value() == 0;
}

bool IsStrideOf(Op user) { return user == Op::kMul || user == Op::kIDiv || user == Op::kMod; }

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
      abstracted[node] = ConstFloat(graph, node->dtype,
                                    Representative(node->float_value(), ++constants[node->dtype]));
    } else {
      OB_ASSIGN_OR_RETURN(abstracted[node], graph.WithSources(node, src));
    }
  }
  return EncodeGraph(abstracted.at(kernel));
}

bool IsShareable(const UOp* kernel) {
  const std::vector<const UOp*> nodes = PostOrder(kernel);
  // Nodes whose values are computed with, not only elements addressed.
  absl::flat_hash_set<const UOp*> values{kernel};
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {  // users first
    if (!values.contains(*node) || (*node)->op == Op::kRange) continue;
    const size_t sources = (*node)->op == Op::kIndex ? 1 : (*node)->src.size();
    for (size_t i = 0; i < sources; ++i) values.insert((*node)->src[i]);
  }
  for (const UOp* node : nodes) {
    if (node->op == Op::kRange) continue;  // its extent is a shape's
    for (const UOp* source : node->src)
      if (source->is_const() && !IsZero(source) && (values.contains(node) || !IsStrideOf(node->op)))
        return false;
  }
  return true;
}

bool IsShareableForm(std::string_view canonical, std::string_view kernel) {
  if (canonical.empty() || canonical.size() > kDemandBytesMax ||
      IdOfEncoding(canonical).ToBytes() != kernel)
    return false;
  Graph graph;
  const absl::StatusOr<const UOp*> sink = DecodeGraph(graph, canonical, Level::kKernel);
  if (!sink.ok() || !IsShareable(*sink)) return false;
  const absl::StatusOr<EncodedGraph> again = CanonicalKernel(*sink);
  return again.ok() && again->bytes == canonical;
}

}  // namespace outboard::worker
