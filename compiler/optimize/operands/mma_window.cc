#include "compiler/optimize/operands/mma_window.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kTapsMin = 3, kSlotsMax = 8, kChunkBytes = 16;
// All other steps, rows or columns of a window, as channels and lines: with more of them a copy of
// the image with channels last takes less time.
constexpr int64_t kOthersMax = 64;

bool DependsOn(const LoopNest& kernel, const UOp* node, int range) {
  return kernel.DepsOf(node) >> range & 1;
}

class Padder {
 public:
  Padder(const LoopNest& kernel, const MmaProduct& product) : kernel_(kernel), product_(product) {}

  // The product with windows in slots.
  std::optional<MmaProduct> Run() {
    const bool is_narrow = IsFloatOf16(product_.dtype);
    if (!is_narrow && product_.parts != MmaParts::kRounded) return std::nullopt;
    if (product_.addends.size() != 1 || product_.adds_rows) return std::nullopt;
    for (const auto& range : kernel_.ranges)
      if (range.end() != nullptr) return std::nullopt;
    if (!product_.addends[0].rows.copied || !product_.addends[0].columns.copied)
      return std::nullopt;
    // Weights may lie side by side along the taps, too: an image of which pairs are copied decides.
    for (const bool needs_pairs : {true, false})
      for (const bool is_rows : {true, false})
        if (Pad(is_rows, needs_pairs)) return std::move(product_);
    return std::nullopt;
  }

 private:
  // Whether windows of the rows' operand, or of the columns', are put in slots.
  bool Pad(bool is_rows, bool needs_pairs) {
    MmaAddend& addend = product_.addends[0];
    const MmaFactor& image = is_rows ? addend.rows : addend.columns;
    const MmaFactor& other = is_rows ? addend.columns : addend.rows;
    MmaSide& side = is_rows ? product_.rows : product_.columns;
    const std::vector<int>& ranges = image.across ? side.ranges : addend.reduced;
    int64_t& count = image.across ? side.count : addend.steps;
    const int range = ranges.back();
    if (image.run != 1) return false;
    // In steps the other operand has the same slots: what is copied together of it would be torn
    // apart.
    if (!image.across && (other.across || other.run != 1)) return false;
    if (count / kernel_.ranges[range].extent > kOthersMax) return false;
    const std::optional<MmaWindow> window = WindowOf(image, range);
    if (!window || (needs_pairs && !pairs_)) return false;
    // Where a window is several chunks, its results' places are not shown to be in range.
    if (image.across && window->slots * ByteWidth(product_.dtype) > kChunkBytes) return false;
    product_.window = *window;
    count = count / window->taps * window->slots;
    product_.steps = addend.steps;
    for (MmaFactor* factor : {&addend.rows, &addend.columns}) {
      const bool is_image = factor == &image;
      if (!is_image && image.across) continue;
      factor->by_windows = true;
      factor->pairs = is_image && pairs_;
      factor->run = window->slots;
    }
    return true;
  }

  // The window whose taps the range is, if it has few slots and the image's elements lie along it.
  // Sets pairs_.
  std::optional<MmaWindow> WindowOf(const MmaFactor& image, int range) {
    const UOp* const node = kernel_.ranges[range].node;
    const int64_t taps = kernel_.ranges[range].extent;
    const auto slots = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(taps)));
    const Affine& index = forms_.Of(image.value->src[0]->src[1]);
    if (taps < kTapsMin || slots > kSlotsMax || index.CoefficientOf(node) != 1) return std::nullopt;
    // Two taps may be copied together where the first one is at an even place.
    const auto front = static_cast<int64_t>(index.constant & 1);
    pairs_ = IsFloatOf16(product_.dtype) && front + taps <= slots && IsEvenBeside(index, range) &&
             GatesArePairs(image.value, range, front);
    return MmaWindow{.range = range, .taps = taps, .slots = slots, .front = pairs_ ? front : 0};
  }

  // Whether all terms but the range itself, at most once, are even, and none depends on it.
  bool IsEvenBeside(const Affine& form, int range) {
    return std::ranges::all_of(form.terms, [&](const auto& term) {
      return (term.first == kernel_.ranges[range].node && term.second == 1) ||
             (term.second % 2 == 0 && !DependsOn(kernel_, term.first, range));
    });
  }

  // Whether the gate of the load is the same for both taps of each pair: it compares a tap, and
  // what else is even, with a number of such parity that no bound lies between the two.
  bool GatesArePairs(const UOp* load, int range, int64_t front) {
    if (load->src.size() < 3) return true;
    for (const UOp* gate : ConjunctsOf(load->src[1])) {
      if (!DependsOn(kernel_, gate, range)) continue;
      const std::optional<bool> upper = IsUpperBound(gate, range);
      if (!upper) return false;
      const Affine less = forms_.Of(gate->src[0]), more = forms_.Of(gate->src[1]);
      if (!IsEvenBeside(less, range) || !IsEvenBeside(more, range)) return false;
      // An upper bound lies between where it is the second tap, a lower one where it is the first.
      const uint64_t bound = *upper ? more.constant - less.constant : less.constant - more.constant;
      const uint64_t between = static_cast<uint64_t>(front) + (*upper ? 1 : 0);
      if ((bound - between) % 2 == 0) return false;
    }
    return true;
  }
  // Of the range, by a gate tap + ... < ... or the other way round; nullopt: neither.
  std::optional<bool> IsUpperBound(const UOp* gate, int range) {
    if (gate->op != Op::kCmpLt || gate->src[0]->dtype != DType::kI64) return std::nullopt;
    const UOp* const node = kernel_.ranges[range].node;
    const uint64_t less = forms_.Of(gate->src[0]).CoefficientOf(node),
                   more = forms_.Of(gate->src[1]).CoefficientOf(node);
    if (less == 1 && more == 0) return true;
    return less == 0 && more == 1 ? std::optional<bool>(false) : std::nullopt;
  }

  const LoopNest& kernel_;
  MmaProduct product_;
  AffineForms forms_;
  bool pairs_ = false;
};

}  // namespace

bool PadWindows(const LoopNest& kernel, MmaPlan& plan) {
  if (plan.unit != MatrixUnit::kMma) return false;
  std::optional<MmaProduct> product = Padder(kernel, plan.product).Run();
  if (!product || !TileSharesCopies(*product, plan.tile)) return false;
  // With slots there may be other numbers of tiles (CheckMmaTile).
  if (plan.tile.order > 0 &&
      DivideUp(product->rows.count, plan.tile.rows) % plan.tile.order != 0)
    return false;
  plan.product = *std::move(product);
  return true;
}

}  // namespace outboard::codegen
