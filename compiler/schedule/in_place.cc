#include "compiler/schedule/in_place.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/gather/row_store.h"
#include "compiler/schedule/in_place/pick.h"
#include "compiler/schedule/in_place/rows.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// A writer is moved past so many kernels at most: what it and the kernels behind it read lives as
// long, and that would soon cost more memory than is saved. It also bounds the search.
constexpr size_t kMoveMax = 256;
// How many buffers and nodes of kernels may be looked at to learn which of them may write over a
// temporary, and again to learn what waits for what before small kernels are added, for all values
// together. A training step of GPT-2 124M takes 8,900. Behind the limit no other temporary is
// written over one, and no kernel is added.
constexpr int64_t kWalkMax = 1 << 20;

int64_t Bytes(const UOp* node) { return ElementCount(node->shape) * ByteWidth(node->dtype); }

// Where the kernel stores to its slot, if it computes each element of it once; else nullptr.
const UOp* PlaceOfEachPoint(const FusedKernel& kernel, int64_t slot) {
  const UOp* place = nullptr;
  int64_t points = 1;
  for (const UOp* store : kernel.ast->src) {
    if (GlobalOfAccess(store).slot() != slot) continue;
    if (place != nullptr || store->src.size() == 3) return nullptr;
    place = store->src[0]->src[1];
  }
  for (const UOp* node : PostOrder(kernel.ast)) {
    if (IsRange(node, RangeKind::kSequence)) return nullptr;
    if (IsRange(node, RangeKind::kOutput)) points *= RangeOf(node).extent();
  }
  // A store makes the whole value: with as many points as elements it makes each once.
  const UOp* const value = kernel.buffers[static_cast<size_t>(slot)];
  return points == PaddedSize(value->shape) ? place : nullptr;
}

// Whether a reduction of the kernel reads the slot for each of its steps.
bool IsReadInASum(const FusedKernel& kernel, int64_t slot) {
  std::vector<const UOp*> bodies;
  for (const UOp* node : PostOrder(kernel.ast))
    if (node->op == Op::kReduceLoop) bodies.push_back(node->src[0]);
  return std::ranges::any_of(PostOrder(bodies), [&](const UOp* node) {
    return node->op == Op::kLoad && GlobalOfAccess(node).slot() == slot;
  });
}

// Whether the kernel may store `result` over `input`, which it reads, as far as it alone is
// concerned: it loads the element that it stores or, with `rows`, the row before. Adds to `walked`
// the nodes of the kernel, where it looks at them.
bool MayUpdate(const FusedKernel& kernel, const UOp* result, const UOp* input, bool rows,
               bool divided_sums, int64_t* walked) {
  if (input->dtype != result->dtype || Bytes(input) != Bytes(result)) return false;
  // A kernel with sums over rows reads nothing that it stores (kernel/row_sums.h).
  if (std::any_of(kernel.ast->src.begin(), kernel.ast->src.end(), SumsPoints)) return false;
  const auto slot_of = [&](const UOp* node) {
    return std::find(kernel.buffers.begin(), kernel.buffers.end(), node) - kernel.buffers.begin();
  };
  const int64_t to = slot_of(result), from = slot_of(input);
  const std::vector<const UOp*> nodes = PostOrder(kernel.ast);
  if (walked != nullptr) *walked += static_cast<int64_t>(nodes.size());
  const UOp* const place = PlaceOfEachPoint(kernel, to);
  if (place == nullptr) return false;
  bool elsewhere = false;
  int64_t room_to = 0, room_from = 0;  // elements of memory, with what lies between rows
  for (const UOp* node : nodes) {
    if (node->op == Op::kGlobal && GlobalOf(node).slot() == to) room_to = GlobalOf(node).elements();
    if (node->op == Op::kGlobal && GlobalOf(node).slot() == from)
      room_from = GlobalOf(node).elements();
    if (node->op != Op::kLoad) continue;
    const int64_t slot = GlobalOfAccess(node).slot();
    if (slot == to) return false;
    elsewhere = elsewhere || (slot == from && node->src[0]->src[1] != place);
  }
  if (room_to != room_from) return false;
  if (elsewhere) return rows && ReadsRowsBefore(kernel.ast, to, from);
  return !divided_sums || !IsReadInASum(kernel, from);
}

class Placer {
 public:
  // `over`: what is decided already, of kernels that have one slot for both.
  Placer(const std::vector<FusedKernel>& kernels, const SentBefore& sent, WrittenOver over,
         bool divided_sums)
      : kernels_(kernels),
        divided_sums_(divided_sums),
        after_(kernels.size()),
        position_(kernels.size()),
        over_(std::move(over)) {
    absl::flat_hash_map<const UOp*, std::vector<size_t>> users, writers;  // by memory
    for (size_t k = 0; k < kernels.size(); ++k) {
      order_.push_back(k);
      position_[k] = k;
      const FusedKernel& kernel = kernels[k];
      for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
        const UOp* const node = kernel.buffers[slot];
        const UOp* const memory = MemoryOf(over_, node);
        const bool writes = slot < static_cast<size_t>(kernel.stores);
        (writes ? writers_ : readers_)[node].push_back(k);
        for (const size_t other : (writes ? users : writers)[memory])
          if (other != k) after_[other].push_back(k);
        users[memory].push_back(k);
        if (writes) writers[memory].push_back(k);
        if (const auto before = sent.find(node); before != sent.end())
          for (const size_t writer : writers_[before->second]) after_[writer].push_back(k);
      }
    }
  }

  void PlaceResults(std::span<const UOp* const> results, std::span<const int64_t> donated) {
    std::vector<const UOp*> inputs;  // donated and read, by slot
    const absl::flat_hash_set<int64_t> slots(donated.begin(), donated.end());
    for (const auto& [node, readers] : readers_)
      if (node->op == Op::kParam && slots.contains(ParamOf(node).slot()) && IsStatic(node->shape))
        inputs.push_back(node);
    std::sort(inputs.begin(), inputs.end(),
              [](const UOp* a, const UOp* b) { return ParamOf(a).slot() < ParamOf(b).slot(); });
    for (const bool updates : {true, false})  // what an input is read for has it before all others
      for (const UOp* result : results) {
        // Values with dimensions of VARs have places of their own while they are computed.
        // One that a transfer brings is read here, perhaps, and written by no kernel.
        const auto writers = writers_.find(result);
        if (writers == writers_.end() || writers->second.empty()) continue;
        if (over_.contains(result) || !IsStatic(result->shape)) continue;
        for (const UOp* input : inputs) {
          if (taken_.contains(input) || Bytes(input) != Bytes(result)) continue;
          if (!(updates ? Update(result, input, false) : Reuse(result, input))) continue;
          over_.emplace(result, input);
          taken_.insert(input);
          break;
        }
      }
  }

  // Those of `values`, temporaries in the order of their kernels, that the last of their readers
  // writes over.
  void PlaceTemporaries(const std::vector<const UOp*>& values) {
    const absl::flat_hash_set<const UOp*> may(values.begin(), values.end());
    for (const UOp* value : values)
      for (const size_t reader : readers_[value])
        for (int slot = 0; slot < kernels_[reader].stores; ++slot) {
          const UOp* const next = kernels_[reader].buffers[static_cast<size_t>(slot)];
          if (walked_ > kWalkMax) return;
          if (taken_.contains(value) || !may.contains(next) || over_.contains(next)) continue;
          if (!Update(next, value, true)) continue;
          over_.emplace(next, MemoryOf(over_, value));
          taken_.insert(value);
        }
  }

  const std::vector<size_t>& order() const { return order_; }
  const WrittenOver& over() const { return over_; }
  int64_t walked() const { return walked_; }

 private:
  // One kernel reads the input where it writes the result.
  bool Update(const UOp* result, const UOp* input, bool rows) {
    const std::vector<size_t>& writers = writers_.at(result);
    const std::vector<size_t>& readers = readers_.at(input);
    const size_t writer = writers[0];
    walked_ += static_cast<int64_t>(readers.size());
    if (writers.size() != 1 || std::find(readers.begin(), readers.end(), writer) == readers.end())
      return false;
    return MayUpdate(kernels_[writer], result, input, rows, divided_sums_, &walked_) &&
           MoveBehind(writer, readers);
  }

  // All that read the input are done before the result is begun.
  bool Reuse(const UOp* result, const UOp* input) const {
    size_t last = 0, first = SIZE_MAX;
    for (const size_t reader : readers_.at(input)) last = std::max(last, position_[reader]);
    for (const size_t writer : writers_.at(result)) first = std::min(first, position_[writer]);
    return last < first;
  }

  // Moves `writer` behind the other readers, with what waits for it; false where a reader does.
  bool MoveBehind(size_t writer, const std::vector<size_t>& readers) {
    const size_t first = position_[writer];
    size_t last = first;
    for (const size_t reader : readers) last = std::max(last, position_[reader]);
    if (last - first > kMoveMax) return false;
    absl::flat_hash_set<size_t> waits = {writer};
    std::vector<size_t> stack = {writer};
    while (!stack.empty()) {
      const size_t kernel = stack.back();
      stack.pop_back();
      for (const size_t next : after_[kernel])
        if (position_[next] <= last && waits.insert(next).second) stack.push_back(next);
    }
    for (const size_t reader : readers)
      if (reader != writer && waits.contains(reader)) return false;
    const auto begin = order_.begin() + static_cast<int64_t>(first),
               end = order_.begin() + static_cast<int64_t>(last) + 1;
    std::stable_partition(begin, end, [&](size_t kernel) { return !waits.contains(kernel); });
    for (size_t i = first; i <= last; ++i) position_[order_[i]] = i;
    for (const size_t reader : readers)
      if (reader != writer) after_[reader].push_back(writer);
    return true;
  }

  const std::vector<FusedKernel>& kernels_;
  const bool divided_sums_;
  absl::flat_hash_map<const UOp*, std::vector<size_t>> writers_, readers_;  // kernels, by number
  std::vector<std::vector<size_t>> after_;  // kernels that must come after one
  std::vector<size_t> order_, position_;    // numbers by place, places by number
  WrittenOver over_;
  absl::flat_hash_set<const UOp*> taken_;
  int64_t walked_ = 0;
};

// `kernel` with one slot for a result and the input under it.
FusedKernel WithOneSlot(Graph& graph, const FusedKernel& kernel, const WrittenOver& over) {
  FusedKernel out{nullptr, {}, kernel.stores};
  std::vector<int64_t> slots;
  for (const UOp* node : kernel.buffers) {
    auto place = std::find_if(out.buffers.begin(), out.buffers.end(), [&](const UOp* result) {
      return result != node && MemoryOf(over, result) == MemoryOf(over, node);
    });
    if (place == out.buffers.end()) place = out.buffers.insert(place, node);
    slots.push_back(place - out.buffers.begin());
  }
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* node : PostOrder(kernel.ast))
    if (node->op == Op::kGlobal)
      by[node] = graph.MakeChecked(Op::kGlobal, node->dtype, {},
                                   {slots[GlobalOf(node).slot()], GlobalOf(node).elements()});
  out.ast = Substitute(graph, kernel.ast, by);
  if (out.buffers.size() < kernel.buffers.size()) out.ast = StoreChangedRows(graph, out.ast);
  return out;
}

std::vector<FusedKernel> Ordered(Graph& graph, const std::vector<FusedKernel>& kernels,
                                 const Placer& placer) {
  std::vector<FusedKernel> ordered;
  for (const size_t k : placer.order())
    ordered.push_back(WithOneSlot(graph, kernels[k], placer.over()));
  return ordered;
}

// Kernels that read few elements of a value, and wait for the one that could write over it, get
// these from a kernel before that one.
class EarlyPicks {
 public:
  // Changes `kernels`. `may`: the values that may be written over others.
  EarlyPicks(Graph& graph, std::vector<FusedKernel>& kernels,
             const absl::flat_hash_set<const UOp*>& may, bool divided_sums, const SentBefore& sent)
      : graph_(graph), kernels_(kernels), may_(may), divided_sums_(divided_sums), sent_(sent) {
    FindUsers();
  }

  int64_t walked() const { return walked_; }

  // For readers of `value`. Leaves the kernels as they are where that does not help.
  void Make(const UOp* value) {
    const std::vector<size_t> users = users_[value];
    for (auto writer = users.rbegin(); writer != users.rend(); ++writer) {
      if (walked_ > kWalkMax) return;
      if (!MayWriteOver(kernels_[*writer], value)) continue;
      const std::vector<size_t> later(writer.base(), users.end());
      if (!later.empty()) MakeBefore(*writer, value, later);
      return;
    }
  }

 private:
  void FindUsers() {
    users_.clear();
    last_maker_.clear();
    for (size_t k = 0; k < kernels_.size(); ++k)
      for (size_t slot = 0; slot < kernels_[k].buffers.size(); ++slot) {
        const UOp* const node = kernels_[k].buffers[slot];
        std::vector<size_t>& users = users_[node];
        if (users.empty() || users.back() != k) users.push_back(k);
        if (slot < static_cast<size_t>(kernels_[k].stores)) last_maker_[node] = k;
        ++walked_;
      }
  }

  bool MayWriteOver(const FusedKernel& writer, const UOp* value) {
    walked_ += writer.stores;
    return std::any_of(writer.buffers.begin(), writer.buffers.begin() + writer.stores,
                       [&](const UOp* next) {
                         return next != value && may_.contains(next) &&
                                MayUpdate(writer, next, value, true, divided_sums_, &walked_);
                       });
  }

  // Whether a kernel from `first` on stores the value, or what a transfer that brings it sends.
  bool IsMadeFrom(size_t first, const UOp* node) const {
    const auto is_made = [&](const UOp* made) {
      const auto maker = last_maker_.find(made);
      return maker != last_maker_.end() && maker->second >= first;
    };
    const auto sent = sent_.find(node);
    return is_made(node) || (sent != sent_.end() && is_made(sent->second));
  }

  // Which kernels from `first` to `last` wait for `first`, by what they read and what is sent.
  std::vector<bool> WaitsFor(size_t first, size_t last) {
    std::vector<bool> waits(last - first + 1);
    absl::flat_hash_set<const UOp*> made;
    const auto is_made = [&](const UOp* node) {
      const auto sent = sent_.find(node);
      return made.contains(node) || (sent != sent_.end() && made.contains(sent->second));
    };
    for (size_t k = first; k <= last; ++k) {
      const std::vector<const UOp*>& buffers = kernels_[k].buffers;
      waits[k - first] = k == first || std::any_of(buffers.begin(), buffers.end(), is_made);
      if (waits[k - first]) made.insert(buffers.begin(), buffers.begin() + kernels_[k].stores);
      walked_ += static_cast<int64_t>(buffers.size());
    }
    return waits;
  }

  // For `later` readers of the value.
  void MakeBefore(size_t writer, const UOp* value, const std::vector<size_t>& later) {
    if (walked_ > kWalkMax) return;
    std::vector<FusedKernel> picks;
    std::vector<std::pair<size_t, FusedKernel>> readers;
    const std::vector<bool> waits = WaitsFor(writer, later.back());
    for (const size_t late : later) {
      if (!waits[late - writer]) continue;
      std::optional<Picked> picked = PickElements(graph_, kernels_[late], value);
      if (!picked) return;
      const std::vector<const UOp*>& reads = picked->pick.buffers;
      if (std::any_of(reads.begin(), reads.end(),
                      [&](const UOp* node) { return IsMadeFrom(writer, node); }))
        return;
      if (users_.contains(reads[0])) return;
      for (const FusedKernel& other : picks)
        if (Contains(other.buffers, reads[0])) return;
      picks.push_back(std::move(picked->pick));
      readers.emplace_back(late, std::move(picked->reader));
    }
    if (picks.empty()) return;
    for (auto& [late, reader] : readers) kernels_[late] = std::move(reader);
    kernels_.insert(kernels_.begin() + static_cast<int64_t>(writer), picks.begin(), picks.end());
    FindUsers();
  }

  static bool Contains(const std::vector<const UOp*>& nodes, const UOp* node) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  }

  Graph& graph_;
  std::vector<FusedKernel>& kernels_;
  const absl::flat_hash_set<const UOp*>& may_;
  const bool divided_sums_;
  const SentBefore& sent_;
  absl::flat_hash_map<const UOp*, std::vector<size_t>> users_;  // kernels, by place, ascending
  absl::flat_hash_map<const UOp*, size_t> last_maker_;          // likewise
  int64_t walked_ = 0;
};

// For every kernel once more with other slots, and a few with one LOAD replaced.
constexpr int64_t kCopies = 3;

}  // namespace

WrittenOver WriteInPlace(Graph& graph, std::vector<FusedKernel>& kernels,
                         std::span<const UOp* const> results, std::span<const int64_t> donated,
                         bool divided_sums, const SentBefore& sent) {
  if (donated.empty()) return {};
  Placer placer(kernels, sent, {}, divided_sums);
  placer.PlaceResults(results, donated);
  kernels = Ordered(graph, kernels, placer);
  return placer.over();
}

WrittenOver WriteTemporariesInPlace(Graph& graph, std::vector<FusedKernel>& kernels,
                                    const absl::flat_hash_set<const UOp*>& fixed,
                                    int64_t bytes_least, const WrittenOver& over, bool divided_sums,
                                    const SentBefore& sent, int64_t* walked) {
  std::vector<const UOp*> values;
  absl::flat_hash_set<const UOp*> may;
  int64_t nodes = 0;
  for (const FusedKernel& kernel : kernels) {
    for (int slot = 0; slot < kernel.stores; ++slot) {
      const UOp* const node = kernel.buffers[static_cast<size_t>(slot)];
      if (node->op == Op::kParam || fixed.contains(node) || !IsStatic(node->shape)) continue;
      if (Bytes(node) >= bytes_least && may.insert(node).second) values.push_back(node);
    }
  }
  if (values.size() < 2) return over;
  for (const FusedKernel& kernel : kernels)
    nodes += static_cast<int64_t>(PostOrder(kernel.ast).size());
  if (graph.node_count() + kCopies * nodes > limits::kGraphNodesMax) return over;
  EarlyPicks picks(graph, kernels, may, divided_sums, sent);
  for (const UOp* value : values) picks.Make(value);
  Placer placer(kernels, sent, over, divided_sums);
  placer.PlaceTemporaries(values);
  if (walked != nullptr) *walked = picks.walked() + placer.walked();
  kernels = Ordered(graph, kernels, placer);
  return placer.over();
}

}  // namespace outboard::schedule
