#include "compiler/schedule/in_place/pick.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

constexpr int64_t kPartPicked = 64;

using Replacements = absl::flat_hash_map<const UOp*, const UOp*>;

// `ast` over the buffers of `kernel`, which may have one more, without those that it does not use.
FusedKernel WithUsedSlots(Graph& graph, const UOp* ast, const std::vector<const UOp*>& buffers,
                          int stores) {
  std::vector<int64_t> slots(buffers.size(), -1);
  for (int i = 0; i < stores; ++i) slots[static_cast<size_t>(i)] = i;
  FusedKernel out{nullptr, {buffers.begin(), buffers.begin() + stores}, stores};
  Replacements by;
  for (const UOp* node : PostOrder(ast)) {
    if (node->op != Op::kGlobal) continue;
    const GlobalOf global(node);
    int64_t& slot = slots[static_cast<size_t>(global.slot())];
    if (slot < 0) {
      slot = static_cast<int64_t>(out.buffers.size());
      out.buffers.push_back(buffers[static_cast<size_t>(global.slot())]);
    }
    by[node] = graph.MakeChecked(Op::kGlobal, node->dtype, {}, {slot, global.elements()});
  }
  out.ast = Simplify(graph, Substitute(graph, ast, by));
  return out;
}

const UOp* Place(Graph& graph, DType dtype, int64_t slot, int64_t elements, const UOp* at) {
  const UOp* const global = graph.MakeChecked(Op::kGlobal, dtype, {}, {slot, elements});
  return graph.MakeChecked(Op::kIndex, DType::kVoid, {global, at});
}

}  // namespace

std::optional<Picked> PickElements(Graph& graph, const FusedKernel& reader, const UOp* value) {
  const auto from = static_cast<int64_t>(
      std::find(reader.buffers.begin(), reader.buffers.end(), value) - reader.buffers.begin());
  if (from < reader.stores || from == static_cast<int64_t>(reader.buffers.size()))
    return std::nullopt;
  const UOp* load = nullptr;
  for (const UOp* node : PostOrder(reader.ast)) {
    if (node->op != Op::kLoad || GlobalOfAccess(node).slot() != from) continue;
    if (load != nullptr) return std::nullopt;
    load = node;
  }
  if (load == nullptr) return std::nullopt;
  std::vector<const UOp*> ranges;
  for (const UOp* node : PostOrder(load)) {
    if (node->op == Op::kReduceLoop || IsRange(node, RangeKind::kSequence)) return std::nullopt;
    if (node->op == Op::kVar) return std::nullopt;
    if (node->op == Op::kRange) ranges.push_back(node);
    // What it stores itself it may have changed by then.
    if (node->op == Op::kLoad && GlobalOfAccess(node).slot() < reader.stores) return std::nullopt;
  }
  if (ranges.empty() || !IsStatic(value->shape)) return std::nullopt;
  std::sort(ranges.begin(), ranges.end(), [](const UOp* a, const UOp* b) {
    return std::pair(RangeOf(a).kind(), RangeOf(a).id()) <
           std::pair(RangeOf(b).kind(), RangeOf(b).id());
  });
  const int64_t elements = ElementCount(value->shape);
  int64_t count = 1;
  for (const UOp* range : ranges) {
    const int64_t extent = RangeOf(range).extent();
    if (extent < 1 || count > elements / extent / kPartPicked) return std::nullopt;
    count *= extent;
  }

  // Where an element is stored, by the ranges as the reader has them, and as the new kernel does.
  Replacements as_output;
  const UOp *read_at = ConstInt(graph, DType::kI64, 0), *stored_at = read_at;
  int64_t step = count, id = 0;
  for (const UOp* range : ranges) {
    const int64_t extent = RangeOf(range).extent();
    step /= extent;
    const UOp* const output =
        graph.MakeChecked(Op::kRange, DType::kI64, {},
                          {id++, extent, static_cast<int64_t>(RangeKind::kOutput)});
    as_output[range] = output;
    const UOp* const by = ConstInt(graph, DType::kI64, step);
    read_at = Add(graph, read_at, Mul(graph, range, by));
    stored_at = Add(graph, stored_at, Mul(graph, output, by));
  }

  // The name of the elements: a value of so many, which no other kernel makes.
  const UOp* const flat = Reshape(graph, value, {Dim(elements)});
  const UOp* name = graph.MakeChecked(Op::kContiguous, DType::kVoid,
                                      {Shrink(graph, flat, {Dim(0), Dim(count)})});
  name = graph.MakeChecked(Op::kContiguous, DType::kVoid, {name});

  Picked out;
  std::vector<const UOp*> buffers = reader.buffers;
  const auto slot = static_cast<int64_t>(buffers.size());
  const UOp* const store = graph.MakeChecked(
      Op::kStore, DType::kVoid, {Place(graph, value->dtype, slot, count, stored_at),
                                 Substitute(graph, load, as_output)});
  buffers.push_back(name);
  // Its only store first.
  std::vector<const UOp*> pick_buffers = {name};
  pick_buffers.insert(pick_buffers.end(), reader.buffers.begin(), reader.buffers.end());
  Replacements shifted;
  for (const UOp* node : PostOrder(store))
    if (node->op == Op::kGlobal) {
      const GlobalOf global(node);
      shifted[node] = graph.MakeChecked(
          Op::kGlobal, node->dtype, {},
          {global.slot() == slot ? 0 : global.slot() + 1, global.elements()});
    }
  const UOp* const pick = Sink(graph, {Substitute(graph, store, shifted)});
  out.pick = WithUsedSlots(graph, pick, pick_buffers, 1);

  const UOp* const taken = graph.MakeChecked(
      Op::kLoad, DType::kVoid, {Place(graph, value->dtype, slot, count, read_at)});
  out.reader = WithUsedSlots(graph, Substitute(graph, reader.ast, {{load, taken}}), buffers,
                             reader.stores);
  return out;
}

}  // namespace outboard::schedule
