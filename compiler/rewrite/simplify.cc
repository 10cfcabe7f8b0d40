#include "compiler/rewrite/simplify.h"

#include "compiler/rewrite/rules/rules.h"

namespace outboard {

const Matcher& SimplifyMatcher() {
  // Never destroyed, so that threads may use it until the process ends.
  static const Matcher& matcher =
      *new Matcher({rules::Value(), rules::Logic(), rules::Sum(), rules::Division(),
                    rules::Compare(), rules::Tensor()});
  return matcher;
}

const UOp* Simplify(Graph& graph, const UOp* root, RewriteStats* stats) {
  return Rewrite(graph, root, SimplifyMatcher(), stats);
}

}  // namespace outboard
