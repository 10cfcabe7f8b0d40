#include "client/lazy/narrow.h"

#include <algorithm>
#include <vector>

#include "client/lazy/sym_expression.h"
#include "compiler/ir/dims.h"

namespace outboard::internal {
namespace {

bool HoldsNow(const Ascending& wanted) {
  return wanted.low.value() >= 0 && wanted.low.value() <= wanted.high.value();
}

absl::StatusOr<bool> IsProved(Graph& graph, const Dim& low, const Dim& high) {
  if (low.min() < 0 || high.min() < 0) return false;
  return AtMost(graph, low, high);
}

// The ranges of the variables in question, and whether what is wanted holds for all of them. Proofs
// are made in graphs of their own.
class Box {
 public:
  Box(const NodeBuilder& build, std::span<const Ascending> wanted)
      : build_(build), wanted_(wanted) {
    for (const Ascending& pair : wanted)
      for (const SymInt* size : {&pair.low, &pair.high})
        for (const BoundVariable& bound : VariablesIn(*size)) {
          const auto same = [&](const BoundVariable& b) { return b.variable == bound.variable; };
          if (std::any_of(bound_.begin(), bound_.end(), same)) continue;
          bound_.push_back(bound);
          ranges_.push_back(build.lazy_graph()->RangeOf(bound));
        }
  }

  // Narrows one variable, as little as possible, or as many as are needed. Requires that all that
  // is wanted holds for the values.
  void Shrink() {
    const std::vector<RangedVariable> whole = ranges_;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      ToValue(i);
      if (Fits()) return Widen(i, whole[i]);
      ranges_ = whole;
    }
    for (size_t i = 0; i < ranges_.size(); ++i) ToValue(i);
    for (size_t i = 0; i < ranges_.size(); ++i) Widen(i, whole[i]);
  }

  bool Fits() const {
    Graph graph;
    const auto dim = [&](const SymInt& size) {
      absl::StatusOr<Dim> made = DimIn(graph, size, [&](const BoundVariable& bound) {
        size_t slot = 0;
        while (bound_[slot].variable != bound.variable) ++slot;
        return graph.Make(Op::kVar, DType::kI64, {},
                          {static_cast<int64_t>(slot), ranges_[slot].least, ranges_[slot].most});
      });
      ThrowIfError(made.status(), build_.at());
      return *made;
    };
    return std::all_of(wanted_.begin(), wanted_.end(), [&](const Ascending& pair) {
      const absl::StatusOr<bool> proved = IsProved(graph, dim(pair.low), dim(pair.high));
      ThrowIfError(proved.status(), build_.at());
      return *proved;
    });
  }

  const std::vector<RangedVariable>& ranges() const { return ranges_; }

 private:
  void ToValue(size_t i) { ranges_[i].least = ranges_[i].most = bound_[i].value; }

  // The farthest value between `fitting` and `to` for which it still fits: bounds only get tighter
  // with smaller ranges, so that a bisection finds it.
  void Extend(int64_t& end, int64_t to) {
    const int64_t fitting = end;
    end = to;
    if (Fits()) return;
    int64_t good = fitting, bad = to;
    while (std::abs(bad - good) > 1) {
      end = good + (bad - good) / 2;
      (Fits() ? good : bad) = end;
    }
    end = good;
  }

  void Widen(size_t i, const RangedVariable& whole) {
    Extend(ranges_[i].least, whole.least);
    Extend(ranges_[i].most, whole.most);
  }

  const NodeBuilder& build_;
  const std::span<const Ascending> wanted_;
  std::vector<BoundVariable> bound_;
  std::vector<RangedVariable> ranges_;
};

}  // namespace

bool NarrowToFit(const NodeBuilder& build, std::span<const Ascending> wanted) {
  if (!std::all_of(wanted.begin(), wanted.end(), HoldsNow)) return false;
  const bool is_proved = std::all_of(wanted.begin(), wanted.end(), [&](const Ascending& pair) {
    if (pair.low.is_number() && pair.high.is_number()) return true;
    const absl::StatusOr<bool> proved =
        IsProved(build.graph(), build.DimOf(pair.low), build.DimOf(pair.high));
    ThrowIfError(proved.status(), build.at());
    return *proved;
  });
  if (is_proved) return true;
  Box box(build, wanted);
  const std::vector<RangedVariable> before = box.ranges();
  box.Shrink();
  if (!box.Fits()) return true;  // nor is it proved for the values alone: the operation refuses it
  for (size_t i = 0; i < before.size(); ++i)
    if (box.ranges()[i] != before[i]) build.lazy_graph()->Narrow(box.ranges()[i], build.at());
  return true;
}

}  // namespace outboard::internal
