#include "compiler/schedule/gather/scatter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/gather/gather.h"
#include "compiler/schedule/guard.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

constexpr double kComparisonsMin =
    4096;  // of places with rows; below, one kernel is better than two

// Of a GPU's thread, in cycles: to look at a row's index; and until a sum of another row is loaded
// from memory, added to and stored.
constexpr double kLookCycles = 3;
constexpr double kAddCycles = 1000;
// Threads of a multiprocessor: those whose instructions it begins in one cycle, and those it holds.
constexpr double kIssuedThreads = 128;
constexpr double kHeldThreads = 2048;

// The loops of a REDUCE: its results in any order, what it sums in sequence.
struct Loops {
  std::vector<const UOp*> index;  // one i64 a dimension of the source
  std::vector<const UOp*> outputs, sequences;
};

Loops LoopsOf(Graph& g, const UOp* reduce) {
  const UOp& x = *reduce->src[0];
  Loops loops;
  loops.index.resize(x.rank());
  int64_t next = 0;
  for (const bool summed : {false, true})  // outputs have the first ids
    for (int i = 0; i < x.rank(); ++i) {
      const bool is_summed = ReduceOf(reduce).reduces(i);
      if (is_summed != summed) continue;
      const int64_t extent = x.shape[i].value();
      const RangeKind kind = summed ? RangeKind::kSequence : RangeKind::kOutput;
      loops.index[i] = extent == 1 ? ConstIndex(g, 0)
                                   : g.MakeChecked(Op::kRange, DType::kI64, {},
                                                   {next++, extent, static_cast<int64_t>(kind)});
      if (extent > 1) (summed ? loops.sequences : loops.outputs).push_back(loops.index[i]);
    }
  return loops;
}

// What is added, where and when.
struct Row {
  Solution place;  // of the output range that is gone
  const UOp* value = nullptr;
  const UOp* gate = nullptr;  // nullptr for always
};

std::optional<Row> FindRow(Graph& g, const UOp* term, const Loops& loops) {
  Row row;
  std::vector<const UOp*> gates;
  while (term->op == Op::kWhere && IsZero(term->src[2])) {
    AppendConditions(term->src[0], gates);
    term = term->src[1];
  }
  row.value = term;
  for (size_t i = 0; i < gates.size() && row.place.range == nullptr; ++i) {
    if (gates[i]->op != Op::kCmpEq) continue;
    const auto solution = SolveEquality(g, gates[i]->src[0], gates[i]->src[1], loops.outputs);
    if (!solution) continue;
    row.place = *solution;
    gates.erase(gates.begin() + static_cast<int64_t>(i));
  }
  if (row.place.range == nullptr) return std::nullopt;
  if (row.place.guard != nullptr) AppendConditions(row.place.guard, gates);
  for (const UOp* gate : gates) row.gate = AndGuards(g, row.gate, gate);

  // Nothing else may depend on the place; each step must count; no loops inside.
  std::vector<const UOp*> parts = {row.place.value, row.value};
  if (row.gate != nullptr) parts.push_back(row.gate);
  std::vector<bool> used(loops.sequences.size());
  for (const UOp* part : parts)
    for (const UOp* node : PostOrder(part)) {
      if (node == row.place.range || node->op == Op::kReduceLoop) return std::nullopt;
      for (size_t i = 0; i < used.size(); ++i) used[i] = used[i] || node == loops.sequences[i];
    }
  if (std::find(used.begin(), used.end(), false) != used.end()) return std::nullopt;
  return row;
}

double Points(const std::vector<const UOp*>& ranges) {
  double points = 1;
  for (const UOp* range : ranges) points *= static_cast<double>(RangeOf(range).extent());
  return points;
}

int64_t PartsOf(const Target& target, DType dtype, const Row& row, const Loops& loops) {
  const int64_t places = RangeOf(row.place.range).extent();
  // Where elements of a place lie side by side, a thread has as many as an access of 16 bytes.
  int64_t of_thread = loops.outputs.back() == row.place.range ? 1 : 16 / ByteWidth(dtype);
  while (RangeOf(loops.outputs.back()).extent() % of_thread != 0) of_thread /= 2;
  const double threads = Points(loops.outputs) / static_cast<double>(places * of_thread);
  return ScatterParts(target, places, threads, Points(loops.sequences));
}

// Whether the place is one of the part's, which is a loop where that of the places was. Neighbours
// are of different parts: low indices are often frequent ones. nullptr for always.
const UOp* InPart(Graph& g, const Row& row, int64_t parts) {
  if (parts < 2) return nullptr;
  const UOp* const part =
      g.MakeChecked(Op::kRange, DType::kI64, {},
                    {RangeOf(row.place.range).id(), parts,
                     static_cast<int64_t>(RangeKind::kOutput)});
  return Alu(g, Op::kCmpEq, Alu(g, Op::kAnd, row.place.value, ConstIndex(g, parts - 1)), part);
}

}  // namespace

absl::StatusOr<int64_t> ScatterPlaces(Graph& graph, const UOp* reduce) {
  const DType dtype = reduce->dtype;
  if (ReduceOf(reduce).op() != Op::kAdd || reduce->src[0]->op != Op::kWhere || IsBool(dtype) ||
      (IsFloat(dtype) && ByteWidth(dtype) < 4) || !IsStatic(reduce->src[0]->shape))
    return 0;
  const Loops loops = LoopsOf(graph, reduce);
  OB_ASSIGN_OR_RETURN(const UOp* term, IndexExpression(graph, reduce->src[0], loops.index));
  const auto row = FindRow(graph, Simplify(graph, term), loops);
  if (!row) return 0;
  const int64_t places = RangeOf(row->place.range).extent();
  const double comparisons = static_cast<double>(places) * Points(loops.sequences);
  return comparisons < kComparisonsMin ? 0 : places;
}

int64_t ScatterParts(const Target& target, int64_t places, double threads, double rows) {
  if (target.block_threads == 1 || target.multiprocessors == 0) return 1;
  // Looking takes rows * kLookCycles * max(1, parts / issued) cycles, adding rows / parts *
  // kAddCycles, while the multiprocessors hold all threads at once.
  const auto multiprocessors = static_cast<double>(target.multiprocessors);
  const double issued = multiprocessors * kIssuedThreads / threads;
  const double held = multiprocessors * kHeldThreads / threads;
  const double best = std::max(issued, std::sqrt(kAddCycles / kLookCycles * issued));
  const auto floor = [](double n) { return std::bit_floor(static_cast<uint64_t>(n)); };
  // The next power of two, below or above; where there are fewer places, some parts have none.
  const uint64_t parts = std::min({floor(best * std::numbers::sqrt2), floor(held), floor(rows),
                                   std::bit_ceil(static_cast<uint64_t>(places))});
  return std::max<int64_t>(1, static_cast<int64_t>(parts));
}

absl::StatusOr<std::optional<LoweredKernel>> LowerScatter(
    Graph& graph, const UOp* reduce, const Target& target,
    const absl::flat_hash_set<const UOp*>& stored, const RowPitches& pitches) {
  const Loops loops = LoopsOf(graph, reduce);
  LoweredKernel kernel;
  kernel.buffers = {reduce};
  OB_ASSIGN_OR_RETURN(const UOp* term,
                      LowerAt(graph, reduce->src[0], loops.index, stored, pitches, kernel.buffers));
  auto row = FindRow(graph, Simplify(graph, term), loops);
  if (!row) return std::nullopt;

  std::vector<const UOp*> place, index;
  for (int i = 0; i < reduce->rank(); ++i) {
    const bool summed = ReduceOf(reduce).reduces(i);
    place.push_back(summed ? ConstIndex(graph, 0) : loops.index[i]);
    index.push_back(place[i] == row->place.range ? row->place.value : place[i]);
  }
  const UOp* const global =
      graph.MakeChecked(Op::kGlobal, reduce->dtype, {}, {0, ElementCount(reduce->shape)});
  const auto at = [&](const std::vector<const UOp*>& where) {
    return graph.MakeChecked(Op::kIndex, DType::kVoid,
                             {global, OffsetOf(graph, where, reduce->shape)});
  };
  const UOp* const zero = ConstOf(graph, reduce->dtype, 0);
  const UOp* const store = graph.MakeChecked(Op::kStore, DType::kVoid, {at(place), zero});
  kernel.ast = Simplify(graph, Sink(graph, {store}));

  const int64_t parts = PartsOf(target, reduce->dtype, *row, loops);
  row->gate = AndGuards(graph, InPart(graph, *row, parts), row->gate);
  std::vector<const UOp*> load = {at(index)}, add = {at(index), nullptr};
  if (row->gate != nullptr) load.insert(load.end(), {row->gate, zero});
  add[1] = Add(graph, graph.MakeChecked(Op::kLoad, DType::kVoid, load), row->value);
  if (row->gate != nullptr) add.push_back(row->gate);
  kernel.then = Simplify(graph, Sink(graph, {graph.MakeChecked(Op::kStore, DType::kVoid, add)}));
  return kernel;
}

}  // namespace outboard::schedule
