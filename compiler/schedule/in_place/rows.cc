#include "compiler/schedule/in_place/rows.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/rewrite/rules/linear.h"

namespace outboard::schedule {
namespace {

using Ranges = absl::flat_hash_set<const UOp*>;

// The open loops that each node depends on.
absl::flat_hash_map<const UOp*, Ranges> RangesOf(const UOp* ast) {
  absl::flat_hash_map<const UOp*, Ranges> of;
  for (const UOp* node : PostOrder(ast)) {
    Ranges mine;
    if (node->op == Op::kRange) mine.insert(node);
    const bool loop = node->op == Op::kReduceLoop;
    for (size_t i = 0; i < (loop ? 1 : node->src.size()); ++i) {
      const Ranges& theirs = of.at(node->src[i]);
      mine.insert(theirs.begin(), theirs.end());
    }
    if (loop)
      for (size_t i = 1; i < node->src.size(); ++i) mine.erase(node->src[i]);
    of[node] = std::move(mine);
  }
  return of;
}

// What an access adds to the place of its row: constant .. constant + length - 1.
struct Part {
  std::vector<std::pair<const UOp*, int64_t>> rows;  // ranges of `rows` with their steps
  int64_t constant = 0;
  __int128 length = 1;
};

// nullopt where the place is no sum of ranges, each times a positive number.
std::optional<Part> PartOf(const UOp* place, const Ranges& rows) {
  const LinearSum sum = LinearOf(place);
  Part part{{}, sum.constant};
  for (const auto& [term, step] : sum.terms) {
    if (term->op != Op::kRange || step <= 0) return std::nullopt;
    if (rows.contains(term)) {
      part.rows.emplace_back(term, step);
    } else {
      part.length += static_cast<__int128>(step) * (RangeOf(term).extent() - 1);
    }
  }
  std::sort(part.rows.begin(), part.rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second, RangeOf(a.first).id()) < std::pair(b.second, RangeOf(b.first).id());
  });
  return part;
}

// Whether parts of `length` elements at the places of different rows do not overlap.
bool Apart(const Part& part, __int128 length) {
  for (const auto& [range, step] : part.rows) {
    if (step < length) return false;
    length += static_cast<__int128>(step) * (RangeOf(range).extent() - 1);
  }
  return true;
}

}  // namespace

bool ReadsRowsBefore(const UOp* ast, int64_t to, int64_t from) {
  const UOp* store = nullptr;
  for (const UOp* other : ast->src)
    if (GlobalOfAccess(other).slot() == to) store = other;
  if (store == nullptr) return false;
  const absl::flat_hash_map<const UOp*, Ranges> ranges = RangesOf(ast);
  const std::vector<const UOp*> value = PostOrder(store->src[1]);
  const absl::flat_hash_set<const UOp*> in_value(value.begin(), value.end());

  std::vector<const UOp*> outputs;
  const Ranges* rows = nullptr;
  for (const UOp* node : PostOrder(ast)) {
    if (IsRange(node, RangeKind::kSequence)) return false;
    if (IsRange(node, RangeKind::kOutput)) outputs.push_back(node);
    if (node->op != Op::kReduceLoop) continue;
    if (!in_value.contains(node)) return false;
    if (rows == nullptr) rows = &ranges.at(node);
    if (ranges.at(node) != *rows) return false;
  }
  if (rows == nullptr || rows->empty() || rows->size() >= outputs.size()) return false;
  std::sort(outputs.begin(), outputs.end(), HasSmallerId);
  for (size_t i = 0; i < rows->size(); ++i)
    if (!rows->contains(outputs[i])) return false;

  const UOp* const place = store->src[0]->src[1];
  const std::optional<Part> stored = PartOf(place, *rows);
  if (!stored || stored->rows.size() != rows->size()) return false;
  __int128 length = stored->length;
  for (const UOp* node : PostOrder(ast)) {
    if (node->op != Op::kLoad || GlobalOfAccess(node).slot() != from) continue;
    if (!in_value.contains(node)) return false;
    const UOp* const at = node->src[0]->src[1];
    if (at == place) continue;
    const std::optional<Part> loaded = PartOf(at, *rows);
    if (!loaded || loaded->rows != stored->rows || loaded->constant != stored->constant)
      return false;
    // What depends on no loop of a reduction could be read while the row is being stored.
    bool reduced = false;
    for (const UOp* range : ranges.at(at)) {
      if (rows->contains(range)) continue;
      if (!IsRange(range, RangeKind::kReduce)) return false;
      reduced = true;
    }
    if (!reduced) return false;
    length = std::max(length, loaded->length);
  }
  return Apart(*stored, length);
}

}  // namespace outboard::schedule
