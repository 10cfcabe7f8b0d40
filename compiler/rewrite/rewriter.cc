#include "compiler/rewrite/rewriter.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/recorder.h"

namespace outboard {
namespace {

constexpr int64_t kMatchesPerNodeMax = 50;
// Graphs of up to 20 nodes may have this many anyway, and are not counted.
constexpr int64_t kUncountedMatchesMax = 1000;
// Rules make few nodes each; none is run where the Graph could run out in the middle of one.
constexpr int64_t kSpareNodes = 4096;

thread_local RewriteTotals totals;
thread_local bool counts_attempts = false;

// What became of each node, for one walk. Rewrites of a few nodes in a large graph are frequent, so
// the table, by UOp::index, is kept by its thread and forgotten by counting walks, not by clearing
// it. Under a node of one graph may be nodes of another, whose indices are taken: these are in a
// map.
class Memo {
 public:
  enum class State { kUnknown, kWaiting, kFinal };

  void Begin() {
    ++walk_;
    others_.clear();
  }
  State StateOf(const UOp* node) const {
    if (node->index >= entries_.size()) return State::kUnknown;
    const Entry& entry = entries_[node->index];
    if (entry.walk != walk_) return State::kUnknown;
    if (entry.node == node) return entry.final == nullptr ? State::kWaiting : State::kFinal;
    const auto other = others_.find(node);
    if (other == others_.end()) return State::kUnknown;
    return other->second == nullptr ? State::kWaiting : State::kFinal;
  }
  // Requires kFinal.
  const UOp* FinalOf(const UOp* node) const {
    const Entry& entry = entries_[node->index];
    return entry.node == node ? entry.final : others_.at(node);
  }
  // nullptr: waiting.
  void Set(const UOp* node, const UOp* final) {
    if (node->index >= entries_.size()) entries_.resize(node->index + node->index / 2 + 1024);
    Entry& entry = entries_[node->index];
    if (entry.walk == walk_ && entry.node != node)
      others_[node] = final;
    else
      entry = {walk_, node, final};
  }

 private:
  struct Entry {
    uint64_t walk = 0;
    const UOp* node = nullptr;
    const UOp* final = nullptr;
  };
  std::vector<Entry> entries_;
  absl::flat_hash_map<const UOp*, const UOp*> others_;
  uint64_t walk_ = 0;
};

// A rule's function may rewrite in turn, so walks nest; each has a Memo of its own.
class MemoLease {
 public:
  MemoLease() {
    if (depth_ == memos_.size()) memos_.push_back(std::make_unique<Memo>());
    memo_ = memos_[depth_++].get();
    memo_->Begin();
  }
  ~MemoLease() { --depth_; }
  MemoLease(const MemoLease&) = delete;
  MemoLease& operator=(const MemoLease&) = delete;
  Memo* memo() const { return memo_; }

 private:
  static thread_local std::vector<std::unique_ptr<Memo>> memos_;
  static thread_local size_t depth_;
  Memo* memo_;
};
thread_local std::vector<std::unique_ptr<Memo>> MemoLease::memos_;
thread_local size_t MemoLease::depth_ = 0;

}  // namespace

struct RewritesTogether::Shared {
  const Graph* graph;
  const Matcher* matcher;
  Shared* before;  // of this thread
  MemoLease lease;
  bool is_used = false;  // by a walk that goes on
};

namespace {

thread_local RewritesTogether::Shared* innermost = nullptr;

class Walk {
 public:
  // `memo`: may know nodes from walks before.
  Walk(Graph& graph, const Matcher& matcher, RewriteStats* stats, Memo* memo)
      : graph_(graph),
        matcher_(matcher),
        stats_(stats),
        counts_attempts_(stats != nullptr || counts_attempts),
        memo_(memo) {}

  const UOp* Run(const UOp* root) {
    root_ = root;
    if (const UOp* final = Known(root)) return final;
    Push(root);
    while (!stack_.empty()) Step();
    return memo_->FinalOf(root);
  }

  int64_t visits() const { return visits_; }
  int64_t matches() const { return matches_; }
  int64_t attempts() const { return attempts_; }
  bool stopped() const { return stopped_; }

 private:
  struct Frame {
    const UOp* node;
    const UOp* rebuilt = nullptr;  // over rewritten sources
    const UOp* became = nullptr;   // by a rule; this frame waits for what that becomes
    int next_source = 0;
    int own_sources = 0;
    bool changed = false;  // a source was rewritten
  };

  // What `node` becomes in the end, where that is known; nullptr where it is not.
  const UOp* Known(const UOp* node) const {
    if (node->src.empty() && !matcher_.HasRulesFor(node->op)) return node;
    return memo_->StateOf(node) == Memo::State::kFinal ? memo_->FinalOf(node) : nullptr;
  }

  void Push(const UOp* node) {
    memo_->Set(node, nullptr);
    stack_.push_back({.node = node, .own_sources = node->own_sources()});
  }
  bool Waiting(const UOp* node) const { return memo_->StateOf(node) == Memo::State::kWaiting; }

  void Finish(const UOp* final) {
    const Frame frame = stack_.back();
    stack_.pop_back();
    memo_->Set(frame.node, final);
    if (frame.rebuilt != nullptr && frame.rebuilt != frame.node) memo_->Set(frame.rebuilt, final);
    if (final != frame.node) memo_->Set(final, final);
  }

  void Step() {
    Frame& frame = stack_.back();
    if (frame.became != nullptr) return Finish(Known(frame.became));
    for (; frame.next_source < frame.own_sources; ++frame.next_source) {
      const UOp* const source = frame.node->src[frame.next_source];
      const UOp* const final = Known(source);
      if (final == source) continue;
      if (final != nullptr)
        frame.changed = true;
      else if (!Waiting(source))
        return Push(source);
    }
    frame.rebuilt = frame.changed ? Rebuild(frame) : frame.node;
    if (frame.rebuilt != frame.node) {
      if (const UOp* final = Known(frame.rebuilt)) return Finish(final);
    }
    const UOp* const next = Apply(frame.rebuilt);
    if (next == nullptr) return Finish(frame.rebuilt);
    if (const UOp* final = Known(next)) return Finish(final);
    if (Waiting(next)) {  // the rules go round in a circle
      Stop();
      return Finish(frame.rebuilt);
    }
    frame.became = next;
    Push(next);
  }

  const UOp* Rebuild(const Frame& frame) {
    absl::InlinedVector<const UOp*, 4> src(frame.node->src.begin(), frame.node->src.end());
    for (int i = 0; i < frame.own_sources; ++i)
      if (const UOp* const final = Known(src[i])) src[i] = final;  // else it waits for this one
    const UOp* const made = WithSourcesOrNull(graph_, frame.node, src);
    if (made != nullptr) return made;
    Stop();
    return frame.node;
  }

  const UOp* Apply(const UOp* node) {
    if (!matcher_.HasRulesFor(node->op)) return nullptr;
    if (matches_ >= matches_max_) RaiseLimit();
    if (matches_ >= matches_max_ || graph_.node_count() + kSpareNodes > limits::kGraphNodesMax) {
      Stop();
      return nullptr;
    }
    ++visits_;
    const Rule* fired = nullptr;
    const UOp* const next = matcher_.Apply(graph_, node, &fired);
    if (counts_attempts_) attempts_ += matcher_.CountAttempts(node, fired);
    if (next != nullptr) {
      ++matches_;
      if (stats_ != nullptr) ++stats_->matches_of[fired->name];
      if (recorder_ != nullptr) recorder_->Applied(fired->name, node, next);
    }
    return next;
  }

  // The input is counted only where it matters.
  void RaiseLimit() {
    if (matches_max_ == kUncountedMatchesMax)
      matches_max_ = std::max(kUncountedMatchesMax + 1,
                              kMatchesPerNodeMax * static_cast<int64_t>(PostOrder(root_).size()));
  }

  void Stop() {
    stopped_ = true;
    if (stats_ != nullptr) stats_->stopped = true;
  }

  Graph& graph_;
  const Matcher& matcher_;
  RewriteStats* stats_;
  RewriteRecorder* const recorder_ = ThreadRecorder();
  const bool counts_attempts_;
  const UOp* root_ = nullptr;
  Memo* const memo_;
  bool stopped_ = false;
  absl::InlinedVector<Frame, 32> stack_;
  int64_t visits_ = 0;
  int64_t matches_ = 0;
  int64_t attempts_ = 0;
  int64_t matches_max_ = kUncountedMatchesMax;
};

}  // namespace

const UOp* Rewrite(Graph& graph, const UOp* root, const Matcher& matcher, RewriteStats* stats) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<RecordedPass> pass;  // a rewrite outside of all passes is recorded as one
  if (ThreadRecorder() != nullptr && !RecordedPass::IsInside())
    pass.emplace("rewrite", Sources{}, root);
  RewritesTogether::Shared* const shared =
      innermost != nullptr && innermost->graph == &graph && innermost->matcher == &matcher &&
              !innermost->is_used
          ? innermost
          : nullptr;
  std::optional<MemoLease> own;
  if (shared == nullptr) own.emplace();
  Walk walk(graph, matcher, stats, shared != nullptr ? shared->lease.memo() : own->memo());
  if (shared != nullptr) shared->is_used = true;
  const UOp* const result = walk.Run(root);
  if (shared != nullptr) {
    shared->is_used = false;
    // What it left may be no fixed point: the next walk looks again.
    if (walk.stopped()) shared->lease.memo()->Begin();
  }
  if (pass) pass->Made(result);
  if (stats != nullptr) {
    stats->visits += walk.visits();
    stats->matches += walk.matches();
    stats->attempts += walk.attempts();
  }
  totals.visits += walk.visits();
  totals.matches += walk.matches();
  totals.attempts += walk.attempts();
  totals.nanoseconds += (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  return result;
}

RewritesTogether::RewritesTogether(const Graph& graph, const Matcher& matcher)
    : shared_(new Shared{.graph = &graph, .matcher = &matcher, .before = innermost, .lease = {}}) {
  innermost = shared_.get();
}
RewritesTogether::~RewritesTogether() { innermost = shared_->before; }

RewriteTotals TotalsOfRewrites() { return totals; }
void CountAttempts(bool on) { counts_attempts = on; }

}  // namespace outboard
