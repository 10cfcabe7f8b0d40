#include "compiler/kernel/row_sums.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::codegen {
namespace {

absl::Status Otherwise(const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("kernel: a store of sums, of which ", why));
}

int64_t BlocksOf(int64_t rows) { return (rows + kSumRows - 1) / kSumRows; }

bool IsPlainOutput(const UOp* node) {
  return IsRange(node, RangeKind::kOutput) && node->src.empty();
}

// A term of a place, and how many values it has.
struct Digit {
  const UOp* node = nullptr;
  int64_t coefficient = 0, extent = 0;
};
bool IsLarger(const Digit& a, const Digit& b) { return a.coefficient > b.coefficient; }

// The ranges of a dense number, outermost first; none if it is no such number.
std::vector<Digit> DigitsOf(const UOp* number) {
  const LinearSum sum = LinearOf(number);
  std::vector<Digit> digits;
  for (const auto& [term, coefficient] : sum.terms) {
    if (!IsPlainOutput(term)) return {};
    digits.push_back({term, coefficient, RangeOf(term).extent()});
  }
  std::sort(digits.begin(), digits.end(), IsLarger);
  int64_t below = 1;
  for (size_t i = digits.size(); i-- > 0; below *= digits[i].extent)
    if (digits[i].coefficient != below) return {};
  return sum.constant == 0 ? digits : std::vector<Digit>{};
}

bool IsBlock(const UOp* node) {
  return node->op == Op::kIDiv && node->src[1]->IsIntConst(kSumRows);
}

const UOp* BlockIn(const UOp* place) {
  for (const auto& [term, coefficient] : LinearOf(place).terms)
    if (IsBlock(term)) return term;
  return nullptr;
}

std::vector<const UOp*> OutputsOf(const UOp* sink) {
  std::vector<const UOp*> outputs;
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kRange && !IsRange(node, RangeKind::kReduce)) outputs.push_back(node);
  return outputs;
}

bool ReadsWhatItStores(const UOp* sink) {
  std::set<int64_t> stored;
  for (const UOp* store : sink->src) stored.insert(GlobalOfAccess(store).slot());
  const std::vector<const UOp*> nodes = PostOrder(sink);
  return std::any_of(nodes.begin(), nodes.end(), [&](const UOp* node) {
    return node->op == Op::kLoad && stored.contains(GlobalOfAccess(node).slot());
  });
}

// The kernel with all of its nodes in `g`, where equal nodes are one.
const UOp* Copied(Graph& g, const UOp* sink) {
  absl::flat_hash_map<const UOp*, const UOp*> made;
  for (const UOp* node : PostOrder(sink)) {
    std::vector<const UOp*> src;
    for (const UOp* source : node->src) src.push_back(made.at(source));
    made[node] = g.MakeChecked(node->op, node->dtype, src, node->arg);
  }
  return made.at(sink);
}

// A store of sums as a plain one, of a reduction over the block's rows. The block's first row makes
// it; the others have a gate.
absl::StatusOr<const UOp*> AsReduction(Graph& g, const UOp* store,
                                  const std::vector<const UOp*>& outputs, int64_t& next_id) {
  OB_RETURN_IF_ERROR(SummedRows(store, outputs).status());
  const UOp* const place = store->src[0]->src[1];
  const UOp* const row = BlockIn(place)->src[0];
  const std::vector<Digit> digits = DigitsOf(row);
  const int64_t rows = digits[0].coefficient * digits[0].extent;
  const auto range = [&](int64_t extent) {
    return g.MakeChecked(Op::kRange, DType::kI64, {},
                         {next_id++, extent, static_cast<int64_t>(RangeKind::kReduce)});
  };
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* node : PostOrder(store->src[1]))
    if (IsRange(node, RangeKind::kReduce))
      by[node] = g.MakeChecked(Op::kRange, DType::kI64, node->src,
                               {next_id++, RangeOf(node).extent(),
                                static_cast<int64_t>(RangeKind::kReduce)});
  const UOp* const step = range(kSumRows);
  const UOp* at = Add(g, row, step);
  const UOp* beyond = nullptr;
  if (rows % kSumRows != 0) {  // the last row stands for those beyond
    beyond = Alu(g, Op::kCmpLt, ConstIndex(g, rows - 1), at);
    at = Where(g, beyond, ConstIndex(g, rows - 1), at);
  }
  for (const Digit& digit : digits) {
    const UOp* const number = Alu(g, Op::kIDiv, at, ConstIndex(g, digit.coefficient));
    by[digit.node] = Alu(g, Op::kMod, number, ConstIndex(g, digit.extent));
  }
  const UOp* value = Substitute(g, store->src[1], by);
  // This way round no lowering makes a branch around the reductions in it.
  if (beyond != nullptr) value = Where(g, beyond, ConstOf(g, value->dtype, 0), value);
  const UOp* const sum = g.MakeChecked(Op::kReduceLoop, DType::kVoid, {Simplify(g, value), step},
                                       {static_cast<int64_t>(Op::kAdd)});
  // As it is: simplified, a row's number would no longer be that of ranges that can be merged.
  const UOp* const first =
      Alu(g, Op::kCmpEq, Alu(g, Op::kMod, row, ConstIndex(g, kSumRows)), ConstIndex(g, 0));
  return g.MakeChecked(Op::kStore, DType::kVoid, {store->src[0], sum, first});
}

}  // namespace

const UOp* BlockOfWhole(const UOp* store) {
  const UOp* const block = BlockIn(store->src[0]->src[1]);
  if (block == nullptr || !IsPlainOutput(block->src[0])) return nullptr;
  return RangeOf(block->src[0]).extent() % kSumRows == 0 ? block : nullptr;
}

bool HasRowSums(const UOp* sink) {
  return std::any_of(sink->src.begin(), sink->src.end(), SumsPoints);
}

absl::Status CheckRowSums(const UOp* sink) {
  if (HasRowSums(sink) && ReadsWhatItStores(sink))
    return Otherwise("the kernel reads what it stores");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const UOp*>> SummedRows(const UOp* store,
                                                   const std::vector<const UOp*>& outputs) {
  const UOp* const place = store->src[0]->src[1];
  const UOp* const block = BlockIn(place);
  if (block == nullptr) return Otherwise("no range is divided into blocks");
  const std::vector<Digit> digits = DigitsOf(block->src[0]);
  if (digits.empty()) return Otherwise("the rows are no dense number of ranges");
  std::vector<const UOp*> rows, named;
  for (const Digit& digit : digits) rows.push_back(digit.node);
  named = rows;
  std::vector<Digit> parts;
  for (const auto& [term, coefficient] : LinearOf(place).terms) {
    if (term == block) {
      parts.push_back({term, coefficient, BlocksOf(digits[0].coefficient * digits[0].extent)});
      continue;
    }
    if (!IsPlainOutput(term)) return Otherwise("the place is no sum of ranges and blocks");
    if (std::find(named.begin(), named.end(), term) != named.end())
      return Otherwise("a range is divided and is not");
    named.push_back(term);
    parts.push_back({term, coefficient, RangeOf(term).extent()});
  }
  std::sort(parts.begin(), parts.end(), IsLarger);
  int64_t below = 1;  // from here on coefficients tell elements apart
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i].coefficient < below) return Otherwise("two blocks may have one element");
    below = parts[i].coefficient * parts[i].extent;
  }
  for (const UOp* output : outputs)
    if (RangeOf(output).extent() != 1 &&
        std::find(named.begin(), named.end(), output) == named.end())
      return Otherwise("an output range is not in the place");
  return rows;
}

absl::StatusOr<const UOp*> WithoutRowSums(Graph& graph, const UOp* sink) {
  if (!HasRowSums(sink)) return sink;
  sink = Copied(graph, sink);
  const std::vector<const UOp*> outputs = OutputsOf(sink);
  int64_t next_id = 0;
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kRange) next_id = std::max(next_id, RangeOf(node).id() + 1);
  std::vector<const UOp*> stores;
  for (const UOp* store : sink->src) {
    if (SumsPoints(store)) {
      OB_ASSIGN_OR_RETURN(store, AsReduction(graph, store, outputs, next_id));
    }
    stores.push_back(store);
  }
  return graph.MakeChecked(Op::kSink, DType::kVoid, stores, sink->arg);
}

}  // namespace outboard::codegen
