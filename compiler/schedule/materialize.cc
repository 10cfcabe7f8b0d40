#include "compiler/schedule/materialize.h"

#include <algorithm>
#include <bit>

#include "absl/algorithm/container.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/gather/one_hot.h"
#include "compiler/schedule/gather/scatter.h"
#include "compiler/schedule/materialize/by_bytes.h"
#include "compiler/schedule/materialize/long_kernels.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// Thresholds, tried on a convolutional network's training step
// (docs/decisions/010-what-is-kept.md).
constexpr double kJoinedSumRepeats =
    4;  // an inner sum may be computed this often per element to join an outer one
constexpr double kCostMax = 1000;  // sums of costs count shared parts twice; this keeps them finite

// What is stored, or no longer is, changes which bytes others move.
constexpr int kRoundsByBytes = 4;

// What encloses a value in the kernel that computes it.
enum class Enclosing {
  kNothing,  // nothing but elementwise work up to a store
  kSum,      // a sum it can join: only movements and one-hot sums between
  kLoop,     // some other loop
};

// How often an element is computed, by where: in the kernel of a value that is stored, at the
// places that movements and loops lead to. Operations on one element share it.
struct Places {
  absl::btree_map<uint64_t, double> counts;
  bool joined = false;  // several became one (kPlacesMax), here or above

  bool is_one() const { return counts.size() == 1 && !joined; }
};

// Of what is picked from packed weights (FindParts): the array has so many times its bytes, and
// with so little work it is picked for each of the weights.
constexpr double kPickedFrom = 8, kPickedWorkMax = 8;
// A GPU computes so much in the time of a byte of its memory (an H100 some 8.6 operations, of f32
// or integers), and a thread picks once for so many weights that lie side by side.
constexpr double kWorkOfAByte = 8, kWeightsOfAPick = 4;
// The bytes are those of the whole array, of which a product may read little. So no more work than
// this is picked (a scale of six bits is 18 operations).
constexpr double kPickedWorkOnGpusMax = 64;
// Up to so much work a value that several operations of one factor read is computed where the
// factor is (the code that picks a level is 9 operations at most): a factor is unpacked more than
// once, for other rows, and more is cheaper loaded.
constexpr double kSharedWorkMax = 32;
constexpr size_t kPlacesMax = 32;  // more become one, with the sum of their counts

// The place that `node` leads to from `place`. By numbers that are the same in every process: the
// order in which counts are added is.
uint64_t PlaceBelow(uint64_t place, const UOp* node) {
  return (std::rotl(place, 5) ^ (node->index + 1)) * 0x9E37'79B9'7F4A'7C15;
}

struct Use {
  double readings = 0;  // by how many operations a value is read, all kernels together
  Places computed;
  int users = 0;  // through movements
  Enclosing enclosing = Enclosing::kNothing;

  double times_computed() const {
    double times = 0;
    for (const auto& [place, count] : computed.counts) times += count;
    return times;
  }
};

double Elements(const UOp* node) { return static_cast<double>(PaddedSize(node->shape)); }

class Chooser {
 public:
  Chooser(Graph& graph, const UOp* sink, const Target& target,
          const absl::flat_hash_set<const UOp*>& never)
      : graph_(graph),
        sink_(sink),
        target_(target),
        costs_(target.costs),
        buffers_max_(target.kind == TargetKind::kCuda ? limits::kKernelBuffersMax : INT64_MAX),
        rows_of_unpacked_(optimize::RowsOfUnpacked(target)),
        copies_unpacked_(target.kind == TargetKind::kCpu),
        picks_(target.kind == TargetKind::kCuda || target.kind == TargetKind::kAmd),
        order_(PostOrder(sink)),
        never_(never) {}

  absl::StatusOr<Choice> Run() {
    order_.pop_back();  // the SINK
    for (const UOp* node : order_) {
      if (node->op == Op::kReduce) {
        OB_ASSIGN_OR_RETURN(one_hot_[node], FindOneHot(graph_, node));
        if (one_hot_[node].where != nullptr || one_hot_[node].loops_left <= 1) continue;
        OB_ASSIGN_OR_RETURN(const int64_t places, ScatterPlaces(graph_, node));
        if (places > 0) places_[node] = static_cast<double>(places);
      }
    }
    FindConditions();
    CountUsers();
    for (const UOp* node : order_) made_of_[node] = MadeOf(node);
    FindFactors();
    FindParts();
    // What a value costs depends on what is kept below it, which is decided after it: the second
    // walk knows the first one's answer.
    for (int walk = 0; walk < 2; ++walk) {
      for (const UOp* node : order_) {
        work_[node] = Cost(node);
        cost_[node] = stored_.contains(node) && !seen_.contains(node) ? 1 : work_[node];
      }
      for (const UOp* node : order_) holds_reduce_[node] = HoldsReduce(node);
      Walk();
    }
    if (picks_) ChangeByBytes();
    int64_t steps_left = kKernelSizeStepsMax;
    SplitLongKernels({order_, costs_, buffers_max_, [&](const UOp* sum) { return IsLoop(sum); },
                      [&](const UOp* value) {
                        return !seen_.contains(value) && !never_.contains(value);
                      }},
                     stored_, steps_left);
    Choice choice;
    for (const UOp* node : order_) {
      if (!stored_.contains(node)) continue;
      if (!seen_.contains(node)) choice.read_again.insert(node);
      if (node->op == Op::kParam || Elements(node) == 0) continue;
      choice.kept.push_back(node);
      if (places_.contains(node)) choice.scattered.insert(node);
    }
    return choice;
  }

 private:
  bool IsLoop(const UOp* node) const {
    return node->op == Op::kReduce && one_hot_.at(node).loops_left > 1;
  }

  // What of the conditions of one-hot sums must be seen where the sum is: comparisons, and the
  // arithmetic that positions go through on the way there. What is data alone is as good loaded,
  // and so is what a CONTIGUOUS asks to be stored (the indices that sorting ends with are computed
  // from positions by hundreds of exchanges).
  void FindConditions() {
    absl::flat_hash_map<const UOp*, bool> has_position;
    for (const UOp* node : order_) {
      bool& has = has_position[node];
      has = node->op == Op::kIota;
      const bool arithmetic = IsMovement(node->op) || node->op == Op::kCast ||
                              (IsAlu(node->op) && node->op != Op::kThreefry);
      if (!arithmetic || IsFloat(node->dtype)) continue;
      for (const UOp* s : node->src) has = has || has_position.at(s);
    }
    std::vector<const UOp*> stack;
    for (const UOp* node : order_) {
      if (node->op == Op::kReduce && one_hot_.at(node).where != nullptr)
        stack.push_back(one_hot_.at(node).where->src[0]);
      else if (places_.contains(node))
        stack.push_back(node->src[0]->src[0]);
    }
    while (!stack.empty()) {
      const UOp* const node = stack.back();
      stack.pop_back();
      if (!has_position.at(node) || !seen_.insert(node).second) continue;
      stack.insert(stack.end(), node->src.begin(), node->src.end());
    }
  }

  void Walk() {
    stored_.clear();
    uses_.clear();
    for (const UOp* result : sink_->src) stored_.insert(result);
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) Visit(*node);
  }

  // Stores and computes other elementwise values where a GPU moves fewer bytes then. What others
  // cost stays as it was: beside a value that is now computed a neighbour would be stored.
  void ChangeByBytes() {
    const auto gathers = [&](const UOp* sum) {
      return one_hot_.at(sum).where != nullptr || places_.contains(sum);
    };
    int64_t steps_left = kStepsByBytesMax;
    for (int round = 0; round < kRoundsByBytes; ++round) {
      const ByBytes more =
          ChooseByBytes({order_, stored_, FixedValues(), seen_, gathers}, costs_, steps_left);
      if (more.store.empty() && more.compute.empty()) return;
      by_bytes_.store.insert(more.store.begin(), more.store.end());
      by_bytes_.compute.insert(more.compute.begin(), more.compute.end());
      Walk();
    }
  }

  // What is stored or computed for another reason than its cost.
  absl::flat_hash_set<const UOp*> FixedValues() const {
    absl::flat_hash_set<const UOp*> fixed = never_;
    fixed.insert(sink_->src.begin(), sink_->src.end());
    fixed.insert(by_bytes_.store.begin(), by_bytes_.store.end());
    fixed.insert(by_bytes_.compute.begin(), by_bytes_.compute.end());
    return fixed;
  }

  // Rough operations an element, loads counted, down to what is certainly loaded.
  double Cost(const UOp* node) {
    switch (node->op) {
      case Op::kConst:
      case Op::kIota: return 0;
      case Op::kParam: return 1;
      case Op::kReduce:
        if (const UOp* where = one_hot_.at(node).where)
          return std::min(cost_.at(where->src[0]) + cost_.at(where->src[1]), kCostMax);
        return 1;
      default: break;
    }
    double cost = 0;
    for (const UOp* s : node->src) cost += cost_.at(s);
    if (IsAlu(node->op) || node->op == Op::kCast)
      cost +=
          node->op != Op::kThreefry && IsIndexWork(node) ? 0 : optimize::OpCost(node->op, costs_);
    return std::min(cost, kCostMax);
  }

  // Arithmetic on positions alone turns into index arithmetic.
  bool IsIndexWork(const UOp* node) const {
    if (IsFloat(node->dtype)) return false;
    return std::all_of(node->src.begin(), node->src.end(),
                       [&](const UOp* s) { return cost_.at(s) == 0; });
  }

  // A window, or another one-hot sum by position alone: index arithmetic, like a movement.
  bool IsWindow(const UOp* node) const {
    if (node->op != Op::kReduce) return false;
    const OneHot& one_hot = one_hot_.at(node);
    return one_hot.where != nullptr && one_hot.loops_left <= 1 &&
           cost_.at(one_hot.where->src[0]) == 0;
  }

  // One instruction, and memory would hold the same numbers in more bytes. (An operand of bf16 must
  // be seen as such: compiler/optimize/operands/cpu_matrix_unit.h.)
  static bool IsWidening(const UOp* node) {
    if (node->op != Op::kCast || node->dtype != DType::kF32) return false;
    return IsFloatOf16(node->src[0]->dtype);
  }

  // Finds the factors of sums of products that are unpacked (not through windows), and the values
  // that they are computed from.
  void FindFactors() {
    std::vector<const UOp*> open;
    FindFactorsOfScores();
    for (const UOp* node : order_) {
      if (node->op != Op::kReduce || ReduceOf(node).op() != Op::kAdd || !IsFloat(node->dtype))
        continue;
      const auto behind = [](const UOp* x) {
        while (x->op == Op::kReshape || x->op == Op::kPermute || x->op == Op::kExpand)
          x = x->src[0];
        return x;
      };
      const UOp* product = behind(node->src[0]);
      while (product->op == Op::kCast) product = behind(product->src[0]);
      if (product->op != Op::kMul) continue;
      for (const UOp* side : product->src) open.push_back(behind(side));
    }
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (!IsUnpacked(node) || !factors_.insert(node).second) continue;
      open.insert(open.end(), node->src.begin(), node->src.end());
    }
    // Several operations of one factor may read a value (the code that picks a level, say), and
    // nothing but factors.
    absl::flat_hash_set<const UOp*> read_elsewhere(sink_->src.begin(), sink_->src.end());
    for (const UOp* node : order_)
      if (!factors_.contains(node)) read_elsewhere.insert(node->src.begin(), node->src.end());
    for (const UOp* node : factors_)
      if (!read_elsewhere.contains(node)) inner_factors_.insert(node);
  }

  // What is picked from packed weights, and has fewer bytes than they have: the scale of a block.
  struct Part {
    double weights = 0;  // that are computed from it
    double bytes = 0;    // of the array
    bool inner = false;  // only other parts read it
  };

  // Finds what some few bytes of packed weights say. A kernel of its own would read all of the
  // array once more, since each sector has some scale; the threads that unpack the weights have
  // read it.
  void FindParts() {
    if (!picks_ && !copies_unpacked_) return;
    absl::flat_hash_map<const UOp*, double> weights;  // elements of what is unpacked by the node
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const UOp* const node = *it;
      double of = weights[node];
      if (!IsMovement(node->op) && IsUnpacked(node)) of = std::max(of, Elements(node));
      if (of == 0) continue;
      double bytes = 0;
      for (const UOp* param : made_of_.at(node).params)
        bytes += Elements(param) * ByteWidth(param->dtype);
      if (bytes > Elements(node) * ByteWidth(node->dtype)) parts_[node] = {of, bytes, true};
      // What is made of fewer arrays is no part of these weights: of a product with something else.
      for (const UOp* s : node->src)
        if (made_of_.at(s).params.size() == made_of_.at(node).params.size()) {
          double& below = weights[s];
          below = std::max(below, of);
        }
    }
    const auto read = [&](const UOp* node) {
      if (const auto part = parts_.find(node); part != parts_.end()) part->second.inner = false;
    };
    for (const UOp* result : sink_->src) read(result);
    for (const UOp* node : order_)
      if (!parts_.contains(node)) absl::c_for_each(node->src, read);
  }

  // Whether what unpacks the weights picks the value, too, instead of a kernel of its own: little
  // work for each tile of rows, or on a GPU less than the bytes cost that this kernel would move.
  // (Processors pick the six bits of a scale one by one: that costs far more than the kernel.)
  bool IsPicked(const UOp* node, const Use& use) const {
    const auto found = parts_.find(node);
    if (found == parts_.end() || (use.users != 1 && !(picks_ && found->second.inner))) return false;
    const Part& part = found->second;
    const double bytes = Elements(node) * ByteWidth(node->dtype), work = work_.at(node);
    if (part.bytes >= kPickedFrom * bytes && work <= kPickedWorkMax &&
        use.times_computed() <= rows_of_unpacked_ * part.weights)
      return true;
    return picks_ && work <= kPickedWorkOnGpusMax &&
           use.times_computed() / kWeightsOfAPick * work <= kWorkOfAByte * (part.bytes + 2 * bytes);
  }

  void CountUsers() {
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const UOp* const node = *it;
      const int users = IsMovement(node->op) ? std::max(1, users_[node]) : 1;
      for (const UOp* s : node->src) users_[s] += users;
    }
    for (const UOp* result : sink_->src) ++users_[result];
  }

  // The same of scores on GPUs, which are not kept, with the number of terms of their product.
  void FindFactorsOfScores() {
    if (target_.kind != TargetKind::kCuda) return;
    absl::flat_hash_set<const UOp*> seen;  // what many scores read is looked through once
    for (const UOp* node : order_) {
      if (node->op != Op::kReduce || !never_.contains(node) || node->src[0]->op != Op::kMul)
        continue;
      const double terms = Elements(node->src[0]);
      std::vector<const UOp*> open(node->src[0]->src.begin(), node->src[0]->src.end());
      while (!open.empty()) {
        const UOp* const factor = open.back();
        open.pop_back();
        if (!seen.insert(factor).second) continue;
        if (!IsMovement(factor->op) && !IsWidening(factor) &&
            (!IsUnpacked(factor) || !terms_of_scores_.emplace(factor, terms).second))
          continue;
        open.insert(open.end(), factor->src.begin(), factor->src.end());
      }
    }
  }

  // Whether computing an element of `node` runs a loop that its sources do not keep.
  bool HoldsReduce(const UOp* node) const {
    if (node->op == Op::kParam) return false;
    if (IsLoop(node)) return true;
    const auto unkept = [&](const UOp* s) { return holds_reduce_.at(s) && users_.at(s) == 1; };
    if (node->op == Op::kReduce && one_hot_.at(node).where != nullptr)
      return unkept(one_hot_.at(node).where->src[1]);
    return std::any_of(node->src.begin(), node->src.end(),
                       [&](const UOp* s) { return unkept(s) && Elements(node) <= Elements(s); });
  }

  bool ShouldStore(const UOp* node, const Use& use) const {
    const double elements = Elements(node);
    if (never_.contains(node)) return false;
    if (elements == 0 || node->op == Op::kParam || node->is_const() || node->op == Op::kIota)
      return false;
    if (node->op == Op::kContiguous || places_.contains(node)) return true;
    if (by_bytes_.store.contains(node)) return true;
    if (by_bytes_.compute.contains(node) && use.times_computed() <= kReadersByBytesMax * elements)
      return false;
    const double repeats = use.readings / elements;
    if (IsLoop(node)) {
      if (use.users > 1 || use.enclosing == Enclosing::kLoop) return true;
      if (use.enclosing == Enclosing::kSum)
        return ReduceOf(node).op() != Op::kAdd || repeats > kJoinedSumRepeats;
      return repeats > 1;
    }
    if (IsMovement(node->op) || IsWindow(node) || IsWidening(node))
      return false;  // its source decides
    if (holds_reduce_.at(node)) {
      if (use.users > 1 || repeats > 1) return true;
      // Elementwise work between two loops cannot join them.
      if (use.enclosing != Enclosing::kNothing) return true;
    }
    if (IsPicked(node, use)) return false;
    // The kernel unpacks a factor of its products once for each panel of it that it copies. What is
    // read at several places, or by several products, is computed again for each of them, twice as
    // often with each step of a chain: that is decided by cost.
    const bool is_shared_here =
        inner_factors_.contains(node) && use.computed.is_one() && work_.at(node) <= kSharedWorkMax;
    if (copies_unpacked_ && factors_.contains(node) && (use.users == 1 || is_shared_here))
      return false;
    double times = use.times_computed() / elements;
    if (IsUnpacked(node)) {
      times /= rows_of_unpacked_;
      // Scores are computed once by their kernel, whatever reads them.
      if (const auto found = terms_of_scores_.find(node);
          found != terms_of_scores_.end() && use.users == 1)
        times = found->second / elements / rows_of_unpacked_;
    }
    return (times - 1) * (work_.at(node) - 1) >
           optimize::RecomputeForMemory(costs_);  // one load is needed either way
  }

  // The inputs that a value is made of element by element, by their indices; `few` is false where
  // there are more than kInputsMax, or where another value is read, too.
  struct Inputs {
    bool few = true;
    absl::InlinedVector<const UOp*, 4> params;
  };
  static constexpr size_t kInputsMax = 4;

  Inputs MadeOf(const UOp* node) const {
    if (node->op == Op::kParam) return {true, {node}};
    if (node->op == Op::kReduce || node->op == Op::kContiguous) return {false, {}};
    Inputs all;
    for (const UOp* s : node->src) {
      const Inputs& of = made_of_.at(s);
      all.few = all.few && of.few;
      if (!all.few) return {false, {}};
      for (const UOp* param : of.params)
        if (!absl::c_linear_search(all.params, param)) all.params.push_back(param);
    }
    if (all.params.size() > kInputsMax) return {false, {}};
    return all;
  }

  // Weights of 8 or 4 bits as numbers, for example: memory would hold the value in more bytes than
  // the inputs that it is made of.
  bool IsUnpacked(const UOp* node) const {
    const Inputs& of = made_of_.at(node);
    if (!of.few || of.params.empty()) return false;
    double bytes = 0;
    for (const UOp* param : of.params) bytes += Elements(param) * ByteWidth(param->dtype);
    return bytes < Elements(node) * ByteWidth(node->dtype);
  }

  void Read(const UOp* source, double readings, const Places& computed, Enclosing enclosing,
            int users) {
    Use& use = uses_[source];
    use.readings += readings;
    for (const auto& [place, count] : computed.counts) {
      double& known = use.computed.counts[place];
      known = std::max(known, count);
    }
    use.computed.joined = use.computed.joined || computed.joined;
    if (use.computed.counts.size() > kPlacesMax)
      use.computed = {{{PlaceBelow(0, source), use.times_computed()}}, /*joined=*/true};
    use.users += users;
    use.enclosing = std::max(use.enclosing, enclosing);
  }

  // Where the sources of a movement or a loop are computed, each element `times` times.
  static Places PlacesBelow(const UOp* node, const Use& use, double times) {
    Places below{.joined = use.computed.joined};
    for (const auto& [place, count] : use.computed.counts)
      below.counts[PlaceBelow(place, node)] = count * times;
    return below;
  }

  void Visit(const UOp* node) {
    Use use = std::move(uses_[node]);
    const bool result = stored_.contains(node);
    if (!result && use.users == 0) return;  // skipped: the WHERE of a one-hot sum, say
    if (seen_.contains(node)) {
      if (result) {
        use.readings += Elements(node);
        use.computed.counts[PlaceBelow(0, node)] = Elements(node);
        ++use.users;
      }
    } else if (result || ShouldStore(node, use)) {
      stored_.insert(node);
      use = {Elements(node), {{{PlaceBelow(0, node), Elements(node)}}}, 1, Enclosing::kNothing};
    }
    if (use.users == 0 || Elements(node) == 0) return;
    if (IsMovement(node->op) || node->op == Op::kContiguous) {
      Read(node->src[0], use.readings, PlacesBelow(node, use, 1), use.enclosing, use.users);
    } else if (node->op == Op::kReduce) {
      const OneHot& one_hot = one_hot_.at(node);
      const Enclosing inside = one_hot.loops_left > 1 ? Enclosing::kSum : use.enclosing;
      const bool sum = ReduceOf(node).op() == Op::kAdd;
      const auto places = places_.find(node);
      const double repeated = one_hot.loops_left / (places == places_.end() ? 1 : places->second);
      const double times = std::max(1.0, repeated), readings = use.readings * times;
      const Places computed = PlacesBelow(node, use, times);
      if (one_hot.where != nullptr) {
        Read(one_hot.where->src[1], readings, computed, inside, use.users);
        Read(one_hot.where->src[0], readings, computed, Enclosing::kLoop, 1);
      } else {
        Read(node->src[0], readings, computed, sum ? Enclosing::kSum : Enclosing::kLoop, 1);
      }
    } else {
      const Enclosing inside =
          use.enclosing == Enclosing::kNothing ? Enclosing::kNothing : Enclosing::kLoop;
      absl::flat_hash_set<const UOp*> seen;
      for (const UOp* s : node->src)
        if (seen.insert(s).second) Read(s, use.readings, use.computed, inside, 1);
    }
  }

  Graph& graph_;
  const UOp* sink_;
  const Target& target_;
  const CostTable& costs_;
  const int64_t buffers_max_;  // of one kernel, with the one that it stores
  const double rows_of_unpacked_;
  const bool copies_unpacked_, picks_;
  std::vector<const UOp*> order_;
  const absl::flat_hash_set<const UOp*>& never_;
  absl::flat_hash_map<const UOp*, OneHot> one_hot_;
  absl::flat_hash_map<const UOp*, double> places_;  // of sums that are scattered
  absl::flat_hash_map<const UOp*, double> work_;  // to compute an element, from what is kept below
  absl::flat_hash_map<const UOp*, double>
      cost_;  // to read an element: the same, or 1 where it is kept
  absl::flat_hash_map<const UOp*, int> users_;
  absl::flat_hash_map<const UOp*, bool> holds_reduce_;
  absl::flat_hash_map<const UOp*, Inputs> made_of_;
  absl::flat_hash_set<const UOp*> factors_;
  absl::flat_hash_set<const UOp*> inner_factors_;  // which only factors read
  absl::flat_hash_map<const UOp*, double> terms_of_scores_;
  absl::flat_hash_map<const UOp*, Part> parts_;
  absl::flat_hash_map<const UOp*, Use> uses_;
  absl::flat_hash_set<const UOp*> stored_;
  ByBytes by_bytes_;
  absl::flat_hash_set<const UOp*> seen_;  // of conditions: never loaded
};

}  // namespace

absl::StatusOr<Choice> ChooseMaterialized(Graph& graph, const UOp* sink, const Target& target,
                                          const absl::flat_hash_set<const UOp*>& never) {
  return Chooser(graph, sink, target, never).Run();
}

}  // namespace outboard::schedule
