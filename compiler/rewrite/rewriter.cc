#include "compiler/rewrite/rewriter.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/fold.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;
using Wide = __int128;

constexpr int64_t kMatchesPerNodeMax = 50;
constexpr int64_t kUncountedMatchesMax =
    1000;  // graphs of up to 20 nodes may have this many anyway
// Rules make few nodes each; none is run where the Graph could run out in the middle of one.
constexpr int64_t kSpareNodes = 4096;
constexpr int kVariantsMax = 16;

std::atomic<int64_t> total_visits, total_matches, total_nanoseconds;

bool IsPureNumber(const UOp* constant, const PatternNode& p) {
  if (p.kind == Kind::kFloatBits) return IsFloat(constant->dtype) && constant->arg[0] == p.number;
  if (IsFloat(constant->dtype))
    return constant->arg[0] == std::bit_cast<int64_t>(static_cast<double>(p.number));
  return constant->int_value() == WrapTo(constant->dtype, p.number) &&
         (!IsBool(constant->dtype) || p.number == 0 || p.number == 1);
}

// ---- matching -----------------------------------------------------------------------------------

bool MatchAt(const Pattern& pattern, int at, const UOp* node, Match& match) {
  const PatternNode& p = pattern.nodes[at];
  const auto bind = [&] {
    const UOp*& bound = match.bound[p.name];
    if (bound == nullptr) bound = node;
    return bound == node;
  };
  switch (p.kind) {
    case Kind::kAny: return true;
    case Kind::kAnyConst: return ConstantOf(node) != nullptr;
    case Kind::kName: return bind();
    case Kind::kConstName: {
      const UOp* const constant = ConstantOf(node);
      return constant != nullptr && IsIntOrBool(constant->dtype) && bind();
    }
    case Kind::kInt:
    case Kind::kFloatBits: {
      const UOp* const constant = ConstantOf(node);
      return constant != nullptr && IsPureNumber(constant, p);
    }
    case Kind::kOp:
      if (node->op != p.op) return false;
      if (p.source_count == 0) return true;  // whatever its sources
      if (static_cast<size_t>(p.source_count) != node->src.size()) return false;
      for (int i = 0; i < p.source_count; ++i)
        if (!MatchAt(pattern, p.source[i], node->src[i], match)) return false;
      return true;
    default: return false;
  }
}

// ---- conditions ---------------------------------------------------------------------------------

const UOp* FirstBound(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  if (p.name >= 0) return match.bound[p.name];
  for (int i = 0; i < p.source_count; ++i)
    if (const UOp* found = FirstBound(pattern, p.source[i], match)) return found;
  return nullptr;
}

// The least and greatest value of an expression in exact integers, and whether every step stayed
// within `dtype`.
struct Reach {
  Wide min = 0, max = 0;
  bool fits = true;
};

Reach ReachOf(const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  Reach r;
  if (p.name >= 0) {
    r.min = match.bound[p.name]->vmin;
    r.max = match.bound[p.name]->vmax;
  } else if (p.kind == Kind::kInt) {
    r.min = r.max = p.number;
  } else {
    const Reach a = ReachOf(pattern, p.source[0], match, dtype);
    const Reach b = p.source_count > 1 ? ReachOf(pattern, p.source[1], match, dtype) : Reach{};
    r.fits = a.fits && b.fits;
    if (!r.fits) return r;  // so that nothing below overflows: every operand is within 64 bits
    if (p.op == Op::kNeg) {
      r.min = -a.max;
      r.max = -a.min;
    } else if (p.op == Op::kAdd) {
      r.min = a.min + b.min;
      r.max = a.max + b.max;
    } else if (p.op == Op::kMul) {
      const auto [least, most] =
          std::minmax({a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max});
      r.min = least;
      r.max = most;
    } else {
      r.fits = false;
    }
  }
  r.fits = r.fits && r.min >= IntMin(dtype) && r.max <= IntMax(dtype);
  return r;
}

// The value of a condition, or of an expression over constants in one: exact for anything that fits
// 64 bits.
Wide Evaluate(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  const auto value = [&](int i) { return Evaluate(pattern, p.source[i], match); };
  const auto node = [&] { return FirstBound(pattern, p.source[0], match); };
  switch (p.kind) {
    case Kind::kConstName: return ConstantOf(match.bound[p.name])->int_value();
    case Kind::kInt: return p.number;
    case Kind::kIsInt: return IsInt(node()->dtype);
    case Kind::kIsSigned: return IsSigned(node()->dtype);
    case Kind::kIsBool: return IsBool(node()->dtype);
    case Kind::kIsFloat: return IsFloat(node()->dtype);
    case Kind::kIsScalar: return node()->shape.empty();
    case Kind::kNotNegative: return node()->vmin >= 0 && !IsFloat(node()->dtype);
    case Kind::kLow: return node()->vmin;
    case Kind::kHigh: return node()->vmax;
    case Kind::kFits: return ReachOf(pattern, p.source[0], match, node()->dtype).fits;
    case Kind::kDivides: {
      const Wide divisor = value(0);
      return divisor != 0 && value(1) % divisor == 0;
    }
    case Kind::kBoth: return value(0) && value(1);
    case Kind::kEither: return value(0) || value(1);
    case Kind::kNot: return !value(0);
    case Kind::kOp:
      switch (p.op) {
        case Op::kNeg: return -value(0);
        case Op::kAdd: return value(0) + value(1);
        case Op::kMul: return value(0) * value(1);
        case Op::kIDiv: return value(1) == 0 ? Wide{0} : value(0) / value(1);
        case Op::kMod: return value(1) == 0 ? value(0) : value(0) % value(1);
        case Op::kCmpLt: return value(0) < value(1);
        case Op::kCmpEq: return value(0) == value(1);
        case Op::kCmpNe: return value(0) != value(1);
        default: break;
      }
      [[fallthrough]];
    default: OB_CHECK(false && "this cannot stand in a condition");
  }
}

// ---- results ------------------------------------------------------------------------------------

int64_t FoldAt(const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  if (p.kind == Kind::kInt) return WrapTo(dtype, p.number);
  if (p.kind == Kind::kConstName) return ConstantOf(match.bound[p.name])->int_value();
  OB_CHECK(p.kind == Kind::kOp);
  const int64_t a = FoldAt(pattern, p.source[0], match, dtype);
  const int64_t b = p.source_count > 1 ? FoldAt(pattern, p.source[1], match, dtype) : 0;
  const auto folded = FoldInt(p.op, dtype, a, b);
  OB_CHECK(folded.has_value());
  return *folded;
}

// `dtype` is the type that the place asks for; kVoid where the place leaves it open.
const UOp* BuildAt(Graph& graph, const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  const auto constant = [&](const UOp* scalar) { return Full(graph, scalar, match.root->shape); };
  switch (p.kind) {
    case Kind::kName:
    case Kind::kConstName: return match.bound[p.name];
    case Kind::kInt: return constant(ConstOf(graph, dtype, static_cast<double>(p.number)));
    case Kind::kFloatBits:
      return constant(ConstFloat(graph, dtype, std::bit_cast<double>(p.number)));
    case Kind::kFold:
      return constant(ConstInt(graph, dtype, FoldAt(pattern, p.source[0], match, dtype)));
    default: break;
  }
  OB_CHECK(p.kind == Kind::kOp);
  // A comparison's sources have the type of what they are made of.
  DType wanted = dtype;
  if (IsCompare(p.op)) wanted = FirstBound(pattern, at, match)->dtype;
  std::array<const UOp*, 3> src;
  for (int i = 0; i < p.source_count; ++i) {
    const bool gate = (p.op == Op::kWhere && i == 0) || (p.op == Op::kLoad && i == 1);
    src[i] = BuildAt(graph, pattern, p.source[i], match, gate ? DType::kBool : wanted);
  }
  return graph.MakeChecked(p.op, p.op == Op::kCast ? dtype : DType::kVoid,
                           Sources(src.data(), p.source_count));
}

// Every way to write a pattern with the operands of its commutative operations swapped. Constants
// stand on the right in canonical graphs, but not in those that come in, so they are swapped too.
std::vector<Pattern> Variants(const Pattern& pattern) {
  std::vector<Pattern> variants = {pattern};
  for (int i = 0; i < pattern.size; ++i) {
    const PatternNode& p = pattern.nodes[i];
    if (p.kind != Kind::kOp || p.source_count != 2 || !IsCommutative(p.op)) continue;
    const PatternNode &left = pattern.nodes[p.source[0]], &right = pattern.nodes[p.source[1]];
    // any + any, constant + constant, x + x: the same either way.
    if (left.kind == right.kind && left.kind != Kind::kOp && left.name == right.name) continue;
    const size_t count = variants.size();
    OB_CHECK(2 * count <= kVariantsMax);
    for (size_t v = 0; v < count; ++v) {
      variants.push_back(variants[v]);
      std::swap(variants.back().nodes[i].source[0], variants.back().nodes[i].source[1]);
    }
  }
  return variants;
}

}  // namespace

// ---- the index ----------------------------------------------------------------------------------

Matcher::Matcher(std::initializer_list<std::span<const Rule>> tables) {
  group_of_.fill(-1);
  class_of_.fill(0);
  uint8_t classes = 1;
  for (const auto& table : tables)
    for (const Rule& rule : table)
      for (const Pattern& match : Variants(rule.match)) {
        int16_t& group = group_of_[static_cast<size_t>(match.root().op)];
        if (group < 0) {
          group = static_cast<int16_t>(groups_.size());
          groups_.emplace_back();
        }
        groups_[group].entries.push_back({match, &rule});
        for (int i = 0; i < match.root().source_count; ++i) {
          const PatternNode& source = match.nodes[match.root().source[i]];
          if (source.kind == Kind::kAny || source.kind == Kind::kName) continue;
          const Op op = source.kind == Kind::kOp ? source.op : Op::kConst;
          uint8_t& c = class_of_[static_cast<size_t>(op)];
          if (c == 0) c = classes++;
        }
      }
  for (Group& group : groups_) {
    OB_CHECK(group.entries.size() <= 64);
    for (size_t i = 0; i < 3; ++i) group.possible[i].assign(classes, 0);
    for (size_t e = 0; e < group.entries.size(); ++e) {
      const Pattern& match = group.entries[e].match;
      for (int i = 0; i < 3; ++i) {
        uint8_t only = 0;  // the one class that can match; 0: all of them
        if (i < match.root().source_count) {
          const PatternNode& source = match.nodes[match.root().source[i]];
          if (source.kind != Kind::kAny && source.kind != Kind::kName)
            only =
                class_of_[static_cast<size_t>(source.kind == Kind::kOp ? source.op : Op::kConst)];
        }
        for (uint8_t c = 0; c < classes; ++c)
          if (only == 0 || only == c) group.possible[i][c] |= uint64_t{1} << e;
      }
    }
  }
}

const UOp* Matcher::Apply(Graph& graph, const UOp* node, const Rule** fired) const {
  const int16_t index = group_of_[static_cast<size_t>(node->op)];
  if (index < 0) return nullptr;
  const Group& group = groups_[index];
  uint64_t candidates = ~uint64_t{0} >> (64 - group.entries.size());
  const size_t looked_at = std::min<size_t>(node->src.size(), 3);
  for (size_t i = 0; i < looked_at; ++i)
    candidates &= group.possible[i][class_of_[static_cast<size_t>(MatchedOp(node->src[i]))]];
  for (; candidates != 0; candidates &= candidates - 1) {
    const Entry& entry = group.entries[std::countr_zero(candidates)];
    Match match;
    match.root = node;
    const Rule& rule = *entry.rule;
    if (!MatchAt(entry.match, entry.match.size - 1, node, match)) continue;
    if (rule.condition.size > 0 && !Evaluate(rule.condition, rule.condition.size - 1, match))
      continue;
    const UOp* const result =
        rule.function != nullptr
            ? rule.function(graph, match)
            : BuildAt(graph, rule.result, rule.result.size - 1, match, node->dtype);
    // Equal shapes of symbolic dimensions may be spelled differently; such a result would not fit
    // in.
    if (result == nullptr || result == node || result->dtype != node->dtype ||
        result->shape != node->shape)
      continue;
    if (fired != nullptr) *fired = &rule;
    return result;
  }
  return nullptr;
}

// ---- the walk -----------------------------------------------------------------------------------

namespace {

// What became of each node, by UOp::index, for one walk. Rewrites of a few nodes in a large graph
// are frequent, so the table is kept by its thread and forgotten by counting walks, not by clearing
// it.
class Memo {
 public:
  enum class State { kUnknown, kWaiting, kFinal };

  void Begin() { ++walk_; }
  State StateOf(const UOp* node) const {
    if (node->index >= entries_.size() || entries_[node->index].walk != walk_)
      return State::kUnknown;
    return entries_[node->index].final == nullptr ? State::kWaiting : State::kFinal;
  }
  // Requires kFinal.
  const UOp* FinalOf(const UOp* node) const { return entries_[node->index].final; }
  // nullptr: waiting.
  void Set(const UOp* node, const UOp* final) {
    if (node->index >= entries_.size()) entries_.resize(node->index + node->index / 2 + 1024);
    entries_[node->index] = {walk_, final};
  }

 private:
  struct Entry {
    uint64_t walk = 0;
    const UOp* final = nullptr;
  };
  std::vector<Entry> entries_;
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
  Memo* operator->() const { return memo_; }

 private:
  static thread_local std::vector<std::unique_ptr<Memo>> memos_;
  static thread_local size_t depth_;
  Memo* memo_;
};
thread_local std::vector<std::unique_ptr<Memo>> MemoLease::memos_;
thread_local size_t MemoLease::depth_ = 0;

class Walk {
 public:
  Walk(Graph& graph, const Matcher& matcher, RewriteStats* stats)
      : graph_(graph), matcher_(matcher), stats_(stats) {}

  const UOp* Run(const UOp* root) {
    root_ = root;
    if (const UOp* final = Known(root)) return final;
    Push(root);
    while (!stack_.empty()) Step();
    return memo_->FinalOf(root);
  }

  int64_t visits() const { return visits_; }
  int64_t matches() const { return matches_; }

 private:
  struct Frame {
    const UOp* node;
    const UOp* rebuilt = nullptr;  // over rewritten sources
    const UOp* became = nullptr;   // by a rule; this frame waits for what that becomes
    int next_source = 0;
    int own_sources = 0;
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
    while (frame.next_source < frame.own_sources) {
      const UOp* const source = frame.node->src[frame.next_source];
      if (Known(source) == nullptr && !Waiting(source)) return Push(source);
      ++frame.next_source;
    }
    frame.rebuilt = Rebuild(frame);
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
    bool changed = false;
    for (int i = 0; i < frame.own_sources; ++i) {
      const UOp* const made = Known(src[i]);
      if (made == nullptr || made == src[i]) continue;
      src[i] = made;
      changed = true;
    }
    if (!changed) return frame.node;
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
    if (next != nullptr) {
      ++matches_;
      if (stats_ != nullptr) ++stats_->matches_of[fired->name];
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
    if (stats_ != nullptr) stats_->stopped = true;
  }

  Graph& graph_;
  const Matcher& matcher_;
  RewriteStats* stats_;
  const UOp* root_ = nullptr;
  MemoLease memo_;
  absl::InlinedVector<Frame, 32> stack_;
  int64_t visits_ = 0;
  int64_t matches_ = 0;
  int64_t matches_max_ = kUncountedMatchesMax;
};

}  // namespace

const UOp* Rewrite(Graph& graph, const UOp* root, const Matcher& matcher, RewriteStats* stats) {
  const auto start = std::chrono::steady_clock::now();
  Walk walk(graph, matcher, stats);
  const UOp* const result = walk.Run(root);
  if (stats != nullptr) {
    stats->visits += walk.visits();
    stats->matches += walk.matches();
  }
  total_visits.fetch_add(walk.visits(), std::memory_order_relaxed);
  total_matches.fetch_add(walk.matches(), std::memory_order_relaxed);
  total_nanoseconds.fetch_add(
      (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1),
      std::memory_order_relaxed);
  return result;
}

RewriteTotals TotalsOfRewrites() { return {total_visits, total_matches, total_nanoseconds}; }

}  // namespace outboard
