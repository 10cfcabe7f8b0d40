#include "compiler/optimize/threads/row_copy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/rewrite/rules/linear.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kPieceBytes = 16;  // of the widest copy of a thread
constexpr int64_t kPieceBytesLeast = 4;

absl::Status Illegal(const char* why) { return absl::InvalidArgumentError(why); }

// A place as the sum of output ranges and of something between `min` and `max`.
struct RowPlace {
  std::vector<std::pair<int, int64_t>> rows;
  __int128 min = 0, max = 0;
};

absl::StatusOr<RowPlace> PlaceOf(const LoopNest& kernel, const UOp* index) {
  const LinearSum sum = LinearOf(index);
  LinearSum inside{.constant = sum.constant, .terms = {}, .dtype = sum.dtype};
  RowPlace place;
  for (const auto& [term, coefficient] : sum.terms) {
    const RangeSet deps = kernel.DepsOf(term);
    if (deps == 0) return Illegal("rows start at a place that is known at launch alone");
    if ((deps & kernel.OutputSet()) == 0) {
      inside.terms.emplace_back(term, coefficient);
    } else if (term->op == Op::kRange && coefficient > 0) {
      place.rows.emplace_back(kernel.IndexOf(term), coefficient);
    } else {
      return Illegal("no sum of rows and of places in them");
    }
  }
  std::sort(place.rows.begin(), place.rows.end());
  const WideBounds bounds = BoundsOfSum(inside);
  place.min = bounds.min;
  place.max = bounds.max;
  return place;
}

const Tile* TileOfBlock(const LoopPlan& plan, int range) {
  for (int i = 0; i < plan.task_loops; ++i)
    if (plan.loops[static_cast<size_t>(i)].range == range &&
        plan.loops[static_cast<size_t>(i)].block == 0)
      return &plan.tiles[static_cast<size_t>(range)];
  return nullptr;
}

}  // namespace

absl::StatusOr<RowLayout> LayOutRows(const LoopNest& kernel, const LoopPlan& plan, int64_t slot) {
  if (plan.task_loops == 0) return Illegal("there is one block");
  const int64_t all = kernel.slot_elements[static_cast<size_t>(slot)];
  const int width = ByteWidth(kernel.slot_dtypes[static_cast<size_t>(slot)]);
  for (const UOp* store : kernel.stores)
    if (GlobalOfAccess(store).slot() == slot) return Illegal("the kernel stores where it loads");
  RowLayout out;
  __int128 min = all, max = -1;
  bool some = false;
  for (const UOp* node : kernel.nodes) {
    if (node->op != Op::kLoad || GlobalOfAccess(node).slot() != slot) continue;
    OB_ASSIGN_OR_RETURN(RowPlace place, PlaceOf(kernel, node->src[0]->src[1]));
    if (some && place.rows != out.rows) return Illegal("two loads have other rows");
    out.rows = std::move(place.rows);
    min = std::min(min, place.min);
    max = std::max(max, place.max);
    some = true;
  }
  if (!some || min < 0 || max >= all) return Illegal("places in rows without bounds");
  out.piece = std::max<int64_t>(1, kPieceBytes / width);
  const auto divides = [&](int64_t number) { out.piece = std::gcd(out.piece, number); };
  divides(all);
  __int128 last = 0;  // the greatest place of a block's first row
  for (const auto& [range, coefficient] : out.rows) {
    const Tile* const tile = TileOfBlock(plan, range);
    if (tile == nullptr) return Illegal("a block has all of a range that rows lie along");
    // Its blocks would begin earlier, and not all with a piece of a copy.
    if (tile->align > 1) return Illegal("rows along an aligned axis");
    divides(coefficient * tile->step);
    max += static_cast<__int128>(coefficient) * (tile->step - 1);
    last += static_cast<__int128>(coefficient) * tile->step * (tile->blocks() - 1);
  }
  if (out.piece * width < kPieceBytesLeast) return Illegal("rows that are not aligned");
  if (max >= all) return Illegal("a block has more rows than there are");
  out.first = static_cast<int64_t>(min) / out.piece * out.piece;
  out.elements = DivideUp(static_cast<int64_t>(max) + 1 - out.first, out.piece) * out.piece;
  out.may_end = last + out.first + out.elements > all;
  return out;
}

bool ReadByNumbers(const LoopNest& kernel, const UOp* load) {
  constexpr int64_t kNarrow = 2;
  if (ByteWidth(load->dtype) > kNarrow) return false;
  const LinearSum sum = LinearOf(load->src[0]->src[1]);
  double span = 1, points = 1;
  bool quotients = false;
  RangeSet reduced = 0;
  for (const auto& [term, coefficient] : sum.terms) {
    const RangeSet deps = kernel.DepsOf(term);
    if ((deps & kernel.OutputSet()) != 0) continue;
    reduced |= deps;
    quotients |= term->op != Op::kRange;
    span += std::abs(static_cast<double>(coefficient)) * static_cast<double>(term->vmax);
  }
  for (; reduced != 0; reduced &= reduced - 1)
    points *= static_cast<double>(kernel.ranges[std::countr_zero(reduced)].extent);
  // Of numbers that share what they read, as halves of bytes do, fewer are there.
  constexpr double kBetween = 1.25;
  return quotients && span <= kBetween * points;
}

}  // namespace outboard::codegen
