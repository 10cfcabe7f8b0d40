#include "compiler/schedule/materialize/by_bytes.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/cost.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// Operations that a GPU computes in the time of one byte of memory: 6.25 and 8.75 by NVIDIA's data
// sheets of A100 and H100.
constexpr double kOperationsOfByte = 6.25;
// Below, a kernel's time is not that of its bytes.
constexpr double kBytesMin = 1 << 16;
// What is gained has to be so much of the value's bytes.
constexpr double kGainMin = 0.125;
// Of one value: what is computed between it and what is stored, and what is looked at above it and
// in each of its readers.
constexpr size_t kInsideMax = 64, kAboveMax = 256, kKernelMax = 512;

double Elements(const UOp* node) { return static_cast<double>(PaddedSize(node->shape)); }
double Bytes(const UOp* node) { return Elements(node) * ByteWidth(node->dtype); }

bool IsElementwise(const UOp* node) { return IsAlu(node->op) || node->op == Op::kCast; }

// A value of a kernel, with the way to its elements from those that the kernel stores: equal ways
// lead to the same ones.
using Place = std::pair<const UOp*, uint64_t>;
using Places = absl::flat_hash_set<Place>;

uint64_t WayBelow(const UOp* node, uint64_t way) {
  // RESHAPE leaves elements in their order.
  if (IsElementwise(node) || node->op == Op::kReshape || node->op == Op::kContiguous) return way;
  return (std::rotl(way, 5) ^ (node->index + 1)) * 0x9E37'79B9'7F4A'7C15;
}

class Chooser {
 public:
  Chooser(const StoredValues& values, const CostTable& costs, int64_t& steps_left)
      : values_(values), costs_(costs), steps_left_(steps_left), stored_(values.stored) {
    for (const UOp* node : values.order)
      for (const UOp* s : node->src) users_[s].push_back(node);
  }

  ByBytes Run() {
    ByBytes chosen;
    for (const UOp* node : values_.order) {
      if (!IsElementwise(node) || Bytes(node) < kBytesMin || values_.fixed.contains(node) ||
          values_.seen.contains(node))
        continue;
      const double saved = SavedIfStored(node);
      if (steps_left_ <= 0) break;  // the walks for this value did not end
      if (saved > 0 && stored_.insert(node).second) chosen.store.insert(node);
      if (saved < 0) {
        stored_.erase(node);
        chosen.compute.insert(node);
      }
    }
    return chosen;
  }

 private:
  bool IsLoaded(const UOp* node) const {
    return node->op == Op::kParam || (stored_.contains(node) && !values_.seen.contains(node));
  }

  // Bytes that are moved less where `node` is stored; negative: more. 0 where that cannot be said,
  // or is about the same.
  double SavedIfStored(const UOp* node) {
    const std::optional<Made> made = MadeOf(node);
    if (!made) return 0;
    const std::vector<const UOp*> readers = ReadersOf(node);
    if (readers.size() < 2) return 0;
    // What the readers read for it alone, and the first one of them.
    double most = 0, all = 0;
    for (const UOp* reader : readers) {
      const std::optional<double> more = ReadForIt(reader, node);
      if (!more) return 0;
      all += *more;
      most = std::max(most, *more);
    }
    // Where it is stored, one of the readers does so, or what makes a part of it: a store, and a
    // load by each of the others.
    const double bytes = Bytes(node), storing = static_cast<double>(readers.size()) * bytes;
    const double computing = all + static_cast<double>(readers.size() - 1) * Elements(node) *
                                       made->work / kOperationsOfByte;
    if (computing < storing - kGainMin * bytes) return computing - storing;
    // Else a kernel more does: it reads that part, and the first reader loads, too.
    const double gain_min = made->of_stored ? kGainMin * bytes : 2 * bytes;
    if (all - most > storing + gain_min) return all - most - storing;
    return 0;
  }

  struct Made {
    double work = 0;         // operations for an element
    bool of_stored = false;  // of another array of its size that a kernel stores
  };

  // nullopt unless all that is computed between `node` and what is loaded is so element by element,
  // of the same elements or of fewer.
  std::optional<Made> MadeOf(const UOp* node) {
    Made made;
    absl::flat_hash_set<const UOp*> known = {node};
    std::vector<const UOp*> open = {node};
    while (!open.empty()) {
      const UOp* const inside = open.back();
      open.pop_back();
      const bool broadcast = inside->op == Op::kReshape || inside->op == Op::kExpand;
      if (!broadcast && !IsElementwise(inside)) return std::nullopt;
      // Costs are those of f32; functions of f64 have hundreds of operations, at half the rate.
      if (!broadcast && inside->dtype == DType::kF64) return std::nullopt;
      if (!broadcast) made.work += optimize::OpCost(inside->op, costs_);
      for (const UOp* s : inside->src) {
        if (!TakeStep()) return std::nullopt;
        if (s->is_const() || !known.insert(s).second) continue;
        if (IsLoaded(s)) {
          made.of_stored |= s->op != Op::kParam && Elements(s) == Elements(node);
          continue;
        }
        if (known.size() > kInsideMax) return std::nullopt;
        open.push_back(s);
      }
    }
    return made;
  }

  // The stored values that are computed with `node`; none where they are too many.
  std::vector<const UOp*> ReadersOf(const UOp* node) {
    std::vector<const UOp*> readers, open = {node};
    absl::flat_hash_set<const UOp*> known = {node};
    while (!open.empty()) {
      const UOp* const inside = open.back();
      open.pop_back();
      const auto users = users_.find(inside);
      if (users == users_.end()) continue;
      for (const UOp* user : users->second) {
        if (!TakeStep()) return {};
        if (user->op == Op::kSink || !known.insert(user).second) continue;
        if (known.size() > kAboveMax) return {};
        if (stored_.contains(user)) readers.push_back(user);
        if (!IsLoaded(user)) open.push_back(user);
        if (readers.size() > kReadersByBytesMax) return {};
      }
    }
    return readers;
  }

  // Bytes that the kernel of `reader` reads only in order to compute `node`. nullopt where it does
  // not read each element of it once, in one order.
  std::optional<double> ReadForIt(const UOp* reader, const UOp* node) {
    struct Step {
      const UOp* value;
      uint64_t way;
      double times;  // computed, all elements together; -1 behind a gather
    };
    Places known, loaded;
    std::optional<Place> at;
    std::vector<Step> open = {{reader, 0, Elements(reader)}};
    while (!open.empty()) {
      const Step step = open.back();
      open.pop_back();
      const uint64_t way = WayBelow(step.value, step.way);
      double times = step.times;
      if (step.value->op == Op::kReduce)
        times = values_.gathers(step.value)
                    ? -1
                    : times * Elements(step.value->src[0]) / Elements(step.value);
      for (const UOp* s : step.value->src) {
        if (!TakeStep()) return std::nullopt;
        if (s->is_const() || !known.insert({s, way}).second) continue;
        if (known.size() > kKernelMax) return std::nullopt;
        if (s == node) {
          if (at || times != Elements(node)) return std::nullopt;
          at = {node, way};
        } else if (IsLoaded(s)) {
          loaded.insert({s, way});
        } else {
          open.push_back({s, way, times});
        }
      }
    }
    if (!at) return std::nullopt;
    double bytes = 0;
    std::vector<Place> below = {*at};
    Places passed;
    while (!below.empty()) {
      const auto [value, way] = below.back();
      below.pop_back();
      for (const UOp* s : value->src) {
        if (!TakeStep()) return std::nullopt;
        const Place place = {s, WayBelow(value, way)};
        if (s->is_const() || !passed.insert(place).second) continue;
        if (!IsLoaded(s))
          below.push_back(place);
        else if (loaded.insert(place).second)
          bytes += Bytes(s);
      }
    }
    return bytes;
  }

  // Each look of a walk at a source or a user is a step.
  bool TakeStep() { return --steps_left_ > 0; }

  const StoredValues& values_;
  const CostTable& costs_;
  int64_t& steps_left_;
  absl::flat_hash_set<const UOp*> stored_;
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> users_;
};

}  // namespace

ByBytes ChooseByBytes(const StoredValues& values, const CostTable& costs, int64_t& steps_left) {
  if (steps_left <= 0) return {};
  return Chooser(values, costs, steps_left).Run();
}

}  // namespace outboard::schedule
