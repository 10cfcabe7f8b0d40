#include "compiler/optimize/loop_order.h"

#include <utility>

namespace outboard::codegen {

void AddSwaps(std::vector<Loop> loops, const std::vector<Loop>& wanted, std::vector<Opt>& opts) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    size_t at = i;
    while (loops[at].range != wanted[i].range || loops[at].block != wanted[i].block) ++at;
    for (; at > i; --at) {
      opts.push_back({OptKind::kSwap, static_cast<int64_t>(at) - 1, static_cast<int64_t>(at)});
      std::swap(loops[at - 1], loops[at]);
    }
  }
}

}  // namespace outboard::codegen
