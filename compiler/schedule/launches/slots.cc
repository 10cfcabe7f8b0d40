#include "compiler/schedule/launches/slots.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/order.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::schedule {
namespace {

// To number a kernel's slots makes new nodes, and so does sorting its operands afterwards: at most
// so many for each node that it has.
constexpr int64_t kCopies = 4;

struct Numbered {
  const UOp* ast = nullptr;
  std::vector<size_t> slots;  // of the kernel as it was, in the order of the new ones
};

// The kernel with what it reads numbered by what it is: its size, its type, and where it is first
// read. Buffers that agree in all of that keep their order.
Numbered ByContent(Graph& graph, const FusedKernel& kernel, const std::vector<const UOp*>& nodes) {
  std::vector<const UOp*> globals(kernel.buffers.size()), places(kernel.buffers.size());
  for (const UOp* node : nodes) {
    if (node->op != Op::kIndex || node->src[0]->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node->src[0]).slot());
    if (places[slot] != nullptr) continue;
    globals[slot] = node->src[0];
    places[slot] = node->src[1];
  }
  Numbered numbered;
  numbered.slots.resize(kernel.buffers.size());
  std::iota(numbered.slots.begin(), numbered.slots.end(), size_t{0});
  if (std::ranges::count(places, nullptr) > 0) return {};  // not read by place: not known
  std::stable_sort(numbered.slots.begin() + kernel.stores, numbered.slots.end(),
                   [&](size_t a, size_t b) {
                     const auto key = [&](size_t slot) {
                       return std::pair(GlobalOf(globals[slot]).elements(), globals[slot]->dtype);
                     };
                     if (key(a) != key(b)) return key(a) < key(b);
                     return CompareStructure(places[a], places[b]) < 0;
                   });
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (size_t slot = 0; slot < numbered.slots.size(); ++slot) {
    const UOp* const global = globals[numbered.slots[slot]];
    by[global] =
        graph.MakeChecked(Op::kGlobal, global->dtype, {},
                          {static_cast<int64_t>(slot), GlobalOf(global).elements()});
  }
  numbered.ast = Simplify(graph, Substitute(graph, kernel.ast, by));
  return numbered;
}

}  // namespace

void NumberSlotsAlike(Graph& graph, std::vector<FusedKernel>& kernels) {
  absl::flat_hash_map<const UOp*, Numbered> firsts;  // as they were, by the graph of ByContent
  absl::flat_hash_map<const UOp*, Numbered> known;   // equal kernels are numbered once
  for (FusedKernel& kernel : kernels) {
    auto numbered = known.find(kernel.ast);
    if (numbered == known.end()) {
      const std::vector<const UOp*> nodes = PostOrder(kernel.ast);
      if (graph.node_count() + kCopies * static_cast<int64_t>(nodes.size()) >
          limits::kGraphNodesMax)
        return;
      numbered = known.emplace(kernel.ast, ByContent(graph, kernel, nodes)).first;
    }
    const auto& [ast, slots] = numbered->second;
    if (ast == nullptr) continue;
    const auto [first, fresh] = firsts.emplace(ast, Numbered{kernel.ast, slots});
    if (fresh || first->second.ast == kernel.ast) continue;
    std::vector<const UOp*> buffers(kernel.buffers.size());
    for (size_t slot = 0; slot < slots.size(); ++slot)
      buffers[first->second.slots[slot]] = kernel.buffers[slots[slot]];
    kernel.ast = first->second.ast;
    kernel.buffers = std::move(buffers);
  }
}

}  // namespace outboard::schedule
