#include "compiler/schedule/fuse_kernels.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/recorder.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/collective/kernel_order.h"
#include "compiler/schedule/fuse/draft.h"
#include "compiler/schedule/fuse/loops.h"
#include "compiler/schedule/fuse/makers.h"
#include "compiler/schedule/fuse/row_sums.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// Rows are handed out to threads. With fewer than CostTable::tasks_wanted, loops inside of a row
// would have to be; in a kernel of few points it does not matter.
constexpr double kFewPoints = 65536;
// A GPU's block adds one row and has so much of it in the registers of its threads (256, 32 numbers
// each): what is made of the row, without loops of its own, is not worth a launch.
constexpr double kRowOfBlock = 8192;

// What a kernel may store, well within what code generation takes (compiler/optimize/limits.h): the
// time to compile one grows faster than its size.
constexpr size_t kStoresMax = 64;

// A kernel is written anew for the numbers of its slots, twice, for those of its loops, for its
// simplification, and for results that are written over inputs.
constexpr int64_t kCopies = 5;

class Merger {
 public:
  Merger(Graph& graph, const absl::flat_hash_set<const UOp*>& results, const Target& target,
         const SentBefore& sent, const ComputesSums& computes_sums)
      : graph_(graph),
        results_(results),
        costs_(target.costs),
        buffers_max_(target.kind == TargetKind::kCuda ? limits::kKernelBuffersMax : INT64_MAX),
        row_of_block_(target.kind == TargetKind::kCuda ? kRowOfBlock : 0),
        sent_(sent),
        computes_sums_(computes_sums),
        makers_(sent) {}

  absl::StatusOr<std::vector<FusedKernel>> Run(const std::vector<LoweredKernel>& kernels) {
    std::vector<Draft> guests;
    for (const LoweredKernel& kernel : kernels) {
      const int64_t nodes = CountNodes(kernel);
      reserved_ += kCopies * nodes;
      if (graph_.node_count() + reserved_ > limits::kGraphNodesMax)
        return absl::ResourceExhaustedError(absl::StrCat("the graph and its ", kernels.size(),
                                                         " kernels need over ",
                                                         limits::kGraphNodesMax, " nodes"));
      guests.push_back(MakeDraft(kernel));
      guests.back().nodes = nodes;
      guests.back().size = SizeOf(kernel);
      for (const UOp* node : guests.back().reads) ++readers_[node];
    }
    if (!sent_.empty()) guests = SendersFirst(std::move(guests));
    for (Draft& guest : guests) {
      if (computes_sums_ != nullptr) DivideRowSums(guest);
      if (FuseIntoAny(guest)) continue;
      makers_.Set(guest.stores[0].node, drafts_.size());
      drafts_.push_back(std::move(guest));
    }
    std::vector<FusedKernel> merged;
    std::vector<KernelNeeds> needs;
    for (const Draft& draft : drafts_) needs.push_back(makers_.NeedsOf(draft));
    const std::vector<size_t> order = OrderKernels(needs);
    FindNeeded(order);
    for (const size_t i : order) {
      if (!IsNeeded(drafts_[i])) continue;
      merged.push_back(Finish(drafts_[i]));
      if (drafts_[i].then != nullptr)
        merged.push_back(WithSlots(drafts_[i].then, {drafts_[i].stores[0].node}));
    }
    return merged;
  }

 private:
  // As they came, what a transfer brings to a kernel may be made by a later one.
  std::vector<Draft> SendersFirst(std::vector<Draft> guests) const {
    Makers makers(sent_);
    for (size_t i = 0; i < guests.size(); ++i) makers.Set(guests[i].stores[0].node, i);
    std::vector<KernelNeeds> needs;
    for (const Draft& guest : guests) needs.push_back(makers.NeedsOf(guest));
    std::vector<Draft> ordered;
    for (const size_t i : OrderKernels(needs)) ordered.push_back(std::move(guests[i]));
    return ordered;
  }

  double SizeOf(const LoweredKernel& kernel) const {
    double size = 0;
    for (const UOp* node : PostOrder(kernel.ast))
      size += optimize::OpSize(node->op, node->dtype, costs_);
    return size;
  }

  static int64_t CountNodes(const LoweredKernel& kernel) {
    std::vector<const UOp*> roots = {kernel.ast};
    if (kernel.then != nullptr) roots.push_back(kernel.then);
    return static_cast<int64_t>(PostOrder(roots).size());
  }

  Draft MakeDraft(const LoweredKernel& kernel) {
    Draft draft;
    const auto slot_of = [&](const UOp* global) {
      const UOp* const node = kernel.buffers[GlobalOf(global).slot()];
      if (GlobalOf(global).slot() > 0) draft.reads.insert(node);
      const auto [slot, fresh] = slot_of_.emplace(node, node_of_.size());
      if (fresh) {
        node_of_.push_back(node);
        elements_of_.push_back(GlobalOf(global).elements());
      }
      return slot->second;
    };
    const UOp* const ast = WithGlobals(kernel.ast, slot_of);
    if (kernel.then != nullptr) draft.then = WithGlobals(kernel.then, slot_of);
    const UOp* const store = ast->src[0];
    draft.stores = {{kernel.buffers[0], store->src[0]->src[1], store->src[1]}};
    double loaded = 0, steps = 1;
    for (const UOp* node : PostOrder(ast)) {
      if (IsRange(node, RangeKind::kOutput)) draft.ranges.push_back(node);
      if (IsRange(node, RangeKind::kReduce)) {
        steps *= static_cast<double>(RangeOf(node).extent());
        ++draft.loops;
      }
      if (node->op == Op::kLoad)
        loaded = std::max(loaded, static_cast<double>(GlobalOfAccess(node).elements()));
      draft.has_loop |= node->op == Op::kReduceLoop;
    }
    std::sort(draft.ranges.begin(), draft.ranges.end(), HasSmallerId);
    if (draft.has_loop) draft.rows = draft.ranges.size();
    draft.scores = !ScoreLoops({draft.stores[0].value}).empty();
    draft.streams = !draft.has_loop || Points(draft.ranges) * steps <= loaded;
    return draft;
  }

  template <typename SlotOf>
  const UOp* WithGlobals(const UOp* root, const SlotOf& slot_of) {
    Replacements by;
    for (const UOp* node : PostOrder(root))
      if (node->op == Op::kGlobal)
        by[node] =
            graph_.MakeChecked(Op::kGlobal, node->dtype, {},
                               {static_cast<int64_t>(slot_of(node)), GlobalOf(node).elements()});
    return Substitute(graph_, root, by);
  }

  // Into the last kernel that the guest reads from, else one after it, else one before it. Not into
  // one that makes something for another kernel the guest reads from, nor for a transfer to the
  // guest: each would wait for the other.
  bool FuseIntoAny(const Draft& guest) {
    const std::vector<size_t> awaited = makers_.AwaitedBy(guest);
    const std::vector<bool> before = makers_.MadeBefore(guest, drafts_);
    const size_t first = awaited.empty() ? 0 : *std::max_element(awaited.begin(), awaited.end());
    for (size_t n = 0; n < drafts_.size(); ++n) {
      const size_t i = (first + n) % drafts_.size();
      if (before[i] || !Fuse(drafts_[i], guest)) continue;
      makers_.Set(guest.stores[0].node, i);
      return true;
    }
    return false;
  }

  // The guest's sums over rows of products, divided (fuse/row_sums.h).
  void DivideRowSums(Draft& guest) {
    if (guest.then != nullptr || guest.scores) return;
    for (const UOp* node : PostOrder(guest.stores[0].value)) {
      if (node->op != Op::kReduceLoop) continue;
      for (const UOp* load : PostOrder(node->src[0]))
        if (load->op == Op::kLoad && DivideRowSumOf(guest, node, GlobalOfAccess(load).slot()))
          break;
    }
  }

  bool DivideRowSumOf(Draft& guest, const UOp* sum, int64_t slot) {
    const UOp* const rows = node_of_[slot];
    const std::optional<size_t> maker = makers_.Of(rows);
    if (!maker.has_value() || !IsStatic(rows->shape)) return false;
    const Draft& host = drafts_[*maker];
    const auto stored = std::find_if(host.stores.begin(), host.stores.end(),
                                     [&](const DraftStore& s) { return s.node == rows; });
    if (!host.has_loop || host.streams || stored == host.stores.end()) return false;
    // Also a division that fails has made nodes.
    const int64_t before = graph_.node_count();
    if (before + reserved_ + 2 * kCopies * (host.nodes + guest.nodes) > limits::kGraphNodesMax)
      return false;
    const auto divided =
        DivideRowSum(graph_, sum, slot, stored->place, host.ranges, fresh_range_);
    if (!divided || divided->elements > PaddedSize(rows->shape)) return false;
    Draft part;
    part.ranges = host.ranges;
    for (const UOp* node : PostOrder(divided->value))
      if (node->op == Op::kLoad) part.reads.insert(node_of_[GlobalOfAccess(node).slot()]);
    if (makers_.MadeBefore(part, drafts_)[*maker]) return false;
    // The name of the sums: a value of so many, which no other kernel makes.
    const UOp* name = Cast(
        graph_,
        Shrink(graph_, Reshape(graph_, rows, {Dim(PaddedSize(rows->shape))}),
               {Dim(0), Dim(divided->elements)}),
        DType::kF32);
    do name = graph_.MakeChecked(Op::kContiguous, DType::kVoid, {name});
    while (slot_of_.contains(name));
    slot_of_.emplace(name, node_of_.size());
    node_of_.push_back(name);
    elements_of_.push_back(PaddedSize(name->shape));
    part.stores = {{name, divided->place, divided->value, /*sums=*/true}};
    part.nodes = guest.nodes;
    part.size = guest.size;
    const auto readers = readers_;
    for (const UOp* node : part.reads) ++readers_[node];
    Draft fused = host;
    if (!Fuse(fused, part) || !computes_sums_(SumsOf(fused, rows))) {
      readers_ = readers;
      return false;
    }
    drafts_[*maker] = std::move(fused);
    makers_.Set(name, *maker);
    Read(guest, sum, name, *divided);
    reserved_ += kCopies * (graph_.node_count() - before);
    return true;
  }

  // The kernel with what is stored for `rows` and the sums alone; one of scores as a whole, which
  // has one plan for all.
  const UOp* SumsOf(const Draft& draft, const UOp* rows) {
    Draft part = draft;
    std::erase_if(part.stores, [&](const DraftStore& s) {
      return !draft.scores && !s.sums && s.node != rows;
    });
    const auto needed = needed_;
    for (const DraftStore& stored : part.stores) needed_.insert(stored.node);
    const UOp* const ast = Finish(part).ast;
    needed_ = needed;
    return ast;
  }

  // Lets the guest add the sums that are stored as `name` in the place of `sum`.
  void Read(Draft& guest, const UOp* sum, const UOp* name, const DividedSum& divided) {
    const UOp* const global =
        graph_.MakeChecked(Op::kGlobal, DType::kF32, {},
                           {static_cast<int64_t>(slot_of_.at(name)), divided.elements});
    const UOp* const place =
        graph_.MakeChecked(Op::kIndex, DType::kVoid, {global, divided.read_at});
    std::vector<const UOp*> src = {graph_.MakeChecked(Op::kLoad, DType::kVoid, {place})};
    src.insert(src.end(), divided.ranges.begin(), divided.ranges.end());
    const UOp* const whole = graph_.MakeChecked(Op::kReduceLoop, DType::kVoid, src,
                                                {static_cast<int64_t>(Op::kAdd)});
    guest.stores[0].value = Substitute(
        graph_, guest.stores[0].value, {{sum, Cast(graph_, whole, sum->dtype)}});
    absl::flat_hash_set<const UOp*> reads;
    for (const UOp* node : PostOrder(guest.stores[0].value))
      if (node->op == Op::kLoad) reads.insert(node_of_[GlobalOfAccess(node).slot()]);
    for (const UOp* node : guest.reads) readers_[node] -= reads.contains(node) ? 0 : 1;
    ++readers_[name];
    guest.reads = std::move(reads);
    guest.renumber = true;
  }

  // Adds the guest's store to the host, if that may and should be.
  bool Fuse(Draft& host, const Draft& guest) {
    if (const auto ordered = WithOrderOf(graph_, host, guest)) return Fuse(host, *ordered);
    const bool same = host.ranges == guest.ranges;
    if (host.then != nullptr || guest.then != nullptr) return false;
    if (host.stores.size() == kStoresMax) return false;
    if (host.loops + guest.loops > optimize::kKernelLoopsMax) return false;
    if (host.size + guest.size > optimize::kKernelSizeMax) return false;
    if (!same && !StartsWith(host.ranges, guest.ranges) && !StartsWith(guest.ranges, host.ranges))
      return false;
    const auto& [fewer, more_ranges] =
        std::minmax(host.ranges, guest.ranges,
                    [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (MayBeEmptyBehind(more_ranges, fewer.size())) return false;
    const bool reads_host = std::any_of(host.stores.begin(), host.stores.end(), [&](const auto& s) {
      return guest.reads.contains(s.node);
    });
    const bool shares =
        reads_host || std::any_of(guest.reads.begin(), guest.reads.end(),
                                  [&](const UOp* node) { return host.reads.contains(node); });
    const bool single = host.ranges.empty() && guest.ranges.empty();  // numbers: the fewer kernels
    if ((!shares && !single) || (!same && !reads_host)) return false;
    if (BuffersOfBoth(host, guest) > buffers_max_) return false;
    // Also a fusion that fails has made nodes; what is reserved is for kernels as they are without
    // it.
    const int64_t more = kCopies * (host.nodes + guest.nodes);
    if (graph_.node_count() + reserved_ + more > limits::kGraphNodesMax) return false;
    const int64_t before = graph_.node_count();
    const bool plain = same && !guest.has_loop;
    const bool scores =
        host.scores && guest.scores && (reads_host || (same && SharesTwo(host, guest)));
    if (!plain && !scores && !(host.streams && guest.streams)) return false;
    if (!same && !RowsSuffice(host, guest)) return false;

    bool again = false;
    Replacements by;
    const UOp* value = guest.stores[0].value;
    if (guest.has_loop) value = WithLoopIds(graph_, value, fresh_range_);
    for (const UOp* node : PostOrder(value)) {
      if (node->op != Op::kLoad) continue;
      const UOp* const read = node_of_[GlobalOfAccess(node).slot()];
      const auto stored = std::find_if(host.stores.begin(), host.stores.end(),
                                       [&](const DraftStore& s) { return s.node == read; });
      if (stored == host.stores.end()) continue;
      const UOp* taken = stored->value;
      if (stored->place != node->src[0]->src[1]) {
        const auto moved = MatchPlace(stored->place, node->src[0]->src[1]);
        if (!moved) return false;
        // A softmax's exponential and quotient just are worth it.
        const auto cost = CostAgain(taken, *moved, costs_);
        if (!cost || *cost > optimize::RecomputeForKernel(costs_)) return false;
        taken = Substitute(graph_, taken, *moved);
        again = true;
      }
      if (node->src.size() == 3) {
        const UOp* const gate = Substitute(graph_, node->src[1], by);
        taken = Where(graph_, gate, taken, Substitute(graph_, node->src[2], by));
      }
      by[node] = taken;
    }
    if (again && (plain ? !host.streams : !RowsSuffice(host, guest))) return false;
    value = Substitute(graph_, value, by);
    if (guest.has_loop) {
      bool all = true;
      value = WithLoopsOf(graph_, host, value, all);
      if (!reads_host && !all) return false;
      if (scores) value = WithScoreLoopsOf(graph_, host, value);
      if (scores && !reads_host && !SharesScore(graph_, host, value)) return false;
      host.renumber = true;
    }
    host.stores.push_back(guest.stores[0]);
    host.stores.back().value = value;
    if (host.ranges.size() < guest.ranges.size()) host.ranges = guest.ranges;
    for (const DraftStore& stored : host.stores)
      if (guest.reads.contains(stored.node)) --readers_.at(stored.node);
    host.reads.insert(guest.reads.begin(), guest.reads.end());
    host.has_loop |= guest.has_loop;
    host.loops += guest.loops;
    const int64_t made = graph_.node_count() - before;  // that the host did not have
    host.nodes += guest.nodes + made;
    host.size += guest.size;
    reserved_ += kCopies * made;
    host.streams &= guest.streams;
    host.scores |= guest.scores;
    host.rows = std::min(host.rows, guest.rows);
    return true;
  }

  // At most: a value that one stores and another reads is counted twice.
  static int64_t BuffersOfBoth(const Draft& host, const Draft& guest) {
    auto buffers = static_cast<int64_t>(host.stores.size() + guest.stores.size() +
                                        host.reads.size());
    for (const UOp* node : guest.reads) buffers += !host.reads.contains(node);
    return buffers;
  }

  // Whether there are rows enough for threads, where inner ranges are not to be split.
  bool RowsSuffice(const Draft& host, const Draft& guest) const {
    const Draft& rows = host.ranges.size() < guest.ranges.size() ? host : guest;
    const Draft& all = &rows == &host ? guest : host;
    if (rows.ranges.empty())
      return rows.has_loop && !all.has_loop && all.ranges.size() == 1 &&
             Points(all.ranges) <= row_of_block_;
    if (std::min(rows.rows, all.rows) == 0) return false;  // a block's row is not one of many
    if (Points(rows.ranges) < costs_.tasks_wanted && Points(all.ranges) > kFewPoints) return false;
    if (std::min(rows.rows, all.rows) <= rows.ranges.size()) return true;
    // Without a reduction nothing keeps the inner ranges in one task, and each would store the
    // row's value: fine if nobody needs it stored.
    return std::none_of(rows.stores.begin(), rows.stores.end(), [&](const DraftStore& stored) {
      const auto readers = readers_.find(stored.node);
      const int outside = (readers == readers_.end() ? 0 : readers->second) -
                          (guest.reads.contains(stored.node) ? 1 : 0);
      return results_.contains(stored.node) || outside > 0;
    });
  }

  // Which values must be in memory, now that all is fused: results, and what a needed kernel reads
  // that another one makes. A load may have been simplified away since the value was chosen.
  void FindNeeded(const std::vector<size_t>& order) {
    needed_ = results_;
    for (size_t n = order.size(); n-- > 0;) {
      const Draft& draft = drafts_[order[n]];
      if (!IsNeeded(draft)) continue;
      for (const UOp* node : draft.reads)
        if (const auto maker = makers_.Of(node); maker.has_value() && *maker != order[n])
          needed_.insert(node);
    }
  }

  bool IsNeeded(const Draft& draft) const {
    return std::any_of(draft.stores.begin(), draft.stores.end(),
                       [&](const DraftStore& stored) { return needed_.contains(stored.node); });
  }

  // Numbers the slots: what is stored first, then what is read, in the order of use.
  FusedKernel Finish(const Draft& draft) {
    std::vector<const UOp*> stores, stored_nodes, values;
    for (const DraftStore& stored : draft.stores) {
      values.push_back(stored.node);
      if (!needed_.contains(stored.node)) continue;
      stored_nodes.push_back(stored.node);
      const size_t slot = slot_of_.at(stored.node);
      const UOp* const global =
          graph_.MakeChecked(Op::kGlobal, stored.node->dtype, {},
                             {static_cast<int64_t>(slot), elements_of_[slot]});
      const UOp* const place = graph_.MakeChecked(Op::kIndex, DType::kVoid, {global, stored.place});
      std::vector<int64_t> arg;
      if (stored.sums) arg.push_back(1);
      stores.push_back(graph_.MakeChecked(Op::kStore, DType::kVoid, {place, stored.value}, arg));
    }
    const UOp* sink = Sink(graph_, stores);
    RecordedPass pass("merge", values, sink);
    auto first_loop = static_cast<int64_t>(draft.ranges.size());
    if (draft.renumber) sink = WithLoopIds(graph_, sink, first_loop);
    FusedKernel kernel = WithSlots(sink, std::move(stored_nodes));
    pass.Made(kernel.ast);
    return kernel;
  }

  // `sink` over slots of its own, those of `buffers`, which it stores, first.
  FusedKernel WithSlots(const UOp* sink, std::vector<const UOp*> buffers) {
    FusedKernel kernel;
    kernel.stores = static_cast<int>(buffers.size());
    kernel.buffers = std::move(buffers);
    sink = WithGlobals(sink, [&](const UOp* global) {
      const UOp* const buffer = node_of_[GlobalOf(global).slot()];
      auto place = std::find(kernel.buffers.begin(), kernel.buffers.end(), buffer);
      if (place == kernel.buffers.end()) place = kernel.buffers.insert(place, buffer);
      return place - kernel.buffers.begin();
    });
    kernel.ast = Simplify(graph_, sink);
    return kernel;
  }

  Graph& graph_;
  const absl::flat_hash_set<const UOp*>& results_;
  const CostTable& costs_;
  const int64_t buffers_max_;  // of one kernel
  const double row_of_block_;  // the longest row that a kernel of one row is fused with
  const SentBefore& sent_;
  const ComputesSums& computes_sums_;
  std::vector<Draft> drafts_;
  absl::flat_hash_set<const UOp*> needed_;           // in memory
  Makers makers_;
  absl::flat_hash_map<const UOp*, int> readers_;  // kernels that read it and are not fused with it
  absl::flat_hash_map<const UOp*, size_t> slot_of_;
  std::vector<const UOp*> node_of_;   // by slot
  std::vector<int64_t> elements_of_;  // by slot: of its memory
  int64_t fresh_range_ = 1 << 20;
  int64_t reserved_ = 0;  // nodes, to finish what there is
};

}  // namespace

absl::StatusOr<std::vector<FusedKernel>> FuseKernels(Graph& graph,
                                                     std::vector<LoweredKernel> kernels,
                                                     const absl::flat_hash_set<const UOp*>& results,
                                                     const Target& target, const SentBefore& sent,
                                                     const ComputesSums& computes_sums) {
  return Merger(graph, results, target, sent, computes_sums).Run(kernels);
}

void AllowTf32(Graph& graph, std::vector<FusedKernel>& kernels) {
  for (FusedKernel& kernel : kernels)
    if (SumsProductsOfF32(kernel.ast)) kernel.ast = WithTf32(graph, kernel.ast);
}

}  // namespace outboard::schedule
