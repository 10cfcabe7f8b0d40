#include "compiler/schedule/layout.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

using Axes = uint32_t;  // a set, by bit

// The axis of a row-major value that a step of `coefficient` elements moves along.
int AxisOf(ShapeView dims, int64_t coefficient) {
  int64_t stride = 1;
  for (int axis = static_cast<int>(dims.size()); axis-- > 0;) {
    const int64_t next = stride * PaddedSize(dims[axis]);
    if (PaddedSize(dims[axis]) > 1 && std::abs(coefficient) < next) return axis;
    stride = next;
  }
  return 0;
}

// Whether the range of a sum walks through windows that slide by `stride` and overlap.
bool Slides(ShapeView dims, const UOp* range, int64_t step, int64_t stride) {
  if (!IsRange(range, RangeKind::kReduce) || AxisOf(dims, step) != AxisOf(dims, stride))
    return false;
  return std::abs(stride) % std::abs(step) == 0 &&
         RangeOf(range).extent() * std::abs(step) > std::abs(stride);
}

// What windows are numbered by: ranges, or quotients as well (the gradient of strided ones).
enum class WindowNumbers { kRanges, kQuotients };

// The axes along which windows slide.
Axes WindowedAxes(ShapeView dims, const UOp* place,
                  WindowNumbers numbers = WindowNumbers::kRanges) {
  const auto is_number = [&](const UOp* term) {
    return term->op == Op::kRange ||
           (numbers == WindowNumbers::kQuotients && term->op == Op::kIDiv);
  };
  Axes windowed = 0;
  const LinearSum sum = LinearOf(place);
  for (const auto& [window, stride] : sum.terms)
    for (const auto& [range, step] : sum.terms)
      if (window != range && is_number(window) && Slides(dims, range, step, stride))
        windowed |= Axes{1} << AxisOf(dims, step);
  return windowed;
}

std::vector<int64_t> LongAxes(ShapeView dims) {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis)
    if (dims[axis] != Dim(1)) axes.push_back(axis);
  return axes;
}

std::vector<int64_t> OrderWithLast(size_t rank, int64_t last) {
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < static_cast<int64_t>(rank); ++axis)
    if (axis != last) order.push_back(axis);
  order.push_back(last);
  return order;
}

// The last axis that is not windowed goes behind those that are; empty where it is there already.
std::vector<int64_t> OrderFor(ShapeView dims, Axes windowed, int64_t channels_min) {
  if (windowed == 0) return {};
  int64_t channels = static_cast<int64_t>(dims.size()) - 1;
  while (channels > 0 && ((windowed >> channels & 1) != 0 || dims[channels] == Dim(1))) --channels;
  if (channels == 0 || PaddedSize(dims[channels]) < channels_min || windowed >> channels == 0)
    return {};
  return OrderWithLast(dims.size(), channels);
}

struct Place {
  const UOp* value;
  const UOp* index;
};

// What a kernel stores and loads of temporaries, and where.
std::vector<Place> PlacesIn(const LoweredKernel& kernel,
                            const absl::flat_hash_set<const UOp*>& temporaries) {
  std::vector<Place> places;
  for (const UOp* node : PostOrder(kernel.ast)) {
    if (node->op != Op::kIndex || node->src[0]->op != Op::kGlobal) continue;
    const UOp* const value = kernel.buffers[GlobalOfAccess(node).slot()];
    if (temporaries.contains(value)) places.push_back({value, node->src[1]});
  }
  return places;
}

// The range that moves along an axis, alone; nullptr where there is none.
const UOp* RangeAlong(const Place& place, int64_t axis) {
  const UOp* range = nullptr;
  for (const auto& [term, coefficient] : LinearOf(place.index).terms) {
    if (AxisOf(place.value->shape, coefficient) != axis) continue;
    if (range != nullptr || term->op != Op::kRange) return nullptr;
    range = term;
  }
  return range;
}

// By axis.
std::vector<const UOp*> RangesAlong(const Place& place) {
  std::vector<const UOp*> ranges;
  for (size_t axis = 0; axis < place.value->shape.size(); ++axis)
    ranges.push_back(RangeAlong(place, static_cast<int64_t>(axis)));
  return ranges;
}

// The range that moves along an axis, alone, if it is of this kind.
const UOp* RangeAlong(const Place& place, int64_t axis, RangeKind kind) {
  const UOp* const range = RangeAlong(place, axis);
  return range != nullptr && IsRange(range, kind) ? range : nullptr;
}

// The order that lays `to` out as `order` does `from` in one kernel: the same range walks along the
// last axis. Axes of extent 1 do not count. Empty where the shapes have nothing to do with each
// other.
std::vector<int64_t> SameOrder(const Place& from, const std::vector<int64_t>& order,
                               const Place& to) {
  const std::vector<int64_t> axes = LongAxes(from.value->shape), others = LongAxes(to.value->shape);
  const auto last = std::ranges::find(axes, order.back());
  if (axes.size() != others.size() || last == axes.end()) return {};
  const int64_t other = others[last - axes.begin()];
  const UOp* const range = RangeAlong(from, *last, RangeKind::kOutput);
  if (range == nullptr || range != RangeAlong(to, other)) return {};
  return OrderWithLast(to.value->shape.size(), other);
}

// As SameOrder, in a product of matrices, where the last axis of `from` is one of the other factor:
// the same ranges walk along all axes but that, which is another one of `to`. Channels that are
// summed over go last beside the channels of the result, and those beside these.
std::vector<int64_t> OrderBesideOtherChannels(const Place& from, const std::vector<int64_t>& order,
                                              const Place& to, int64_t channels_min) {
  const std::vector<int64_t> axes = LongAxes(from.value->shape), others = LongAxes(to.value->shape);
  const auto last = std::ranges::find(axes, order.back());
  if (axes.size() != others.size() || axes.size() < 3 || last == axes.end()) return {};
  const int64_t channels = others[last - axes.begin()];
  if (channels == others.back() || PaddedSize(to.value->shape[channels]) < channels_min) return {};
  for (size_t i = 0; i < axes.size(); ++i) {
    const UOp* const range = RangeAlong(to, others[i]);
    if (range == nullptr || (others[i] != channels && range != RangeAlong(from, axes[i])))
      return {};
  }
  return OrderWithLast(to.value->shape.size(), channels);
}

// The operation that reads a value; nullptr where several do.
using OnlyUsers = absl::flat_hash_map<const UOp*, const UOp*>;
OnlyUsers FindOnlyUsers(const UOp* sink) {
  OnlyUsers users;
  for (const UOp* node : PostOrder(sink))
    for (const UOp* s : node->src)
      if (const auto [known, fresh] = users.emplace(s, node); !fresh && known->second != node)
        known->second = nullptr;
  return users;
}

// The axis of `value` that is the last one where its only user reads it, behind transpositions and
// axes of extent 1 that come or go; -1 where it has none.
int64_t LastAxisRead(const UOp* value, const OnlyUsers& users) {
  std::vector<int64_t> axes = LongAxes(value->shape);  // of `value`, for each long one of `node`
  for (const UOp* node = value;;) {
    const auto found = users.find(node);
    const UOp* const user = found == users.end() ? nullptr : found->second;
    if (user == nullptr || (user->op != Op::kPermute && user->op != Op::kReshape)) break;
    const std::vector<int64_t> before = LongAxes(node->shape), after = LongAxes(user->shape);
    if (before.size() != after.size()) break;
    std::vector<int64_t> now;
    for (size_t i = 0; i < after.size(); ++i) {
      if (user->op == Op::kReshape) {
        if (node->shape[before[i]] != user->shape[after[i]]) break;
        now.push_back(axes[i]);
      } else {
        const auto place = std::ranges::find(before, PermuteOf(user).axes()[after[i]]);
        now.push_back(axes[place - before.begin()]);
      }
    }
    if (now.size() != after.size()) break;
    axes = std::move(now);
    node = user;
  }
  return axes.empty() ? -1 : axes.back();
}

// Sums on GPUs that are read transposed lie as they are read.
void LayOutAsRead(const UOp* sink, const absl::flat_hash_set<const UOp*>& temporaries,
                  const std::vector<const UOp*>& kept, Layouts& layouts) {
  const OnlyUsers users = FindOnlyUsers(sink);
  for (const UOp* value : kept) {
    if (value->op != Op::kReduce || !temporaries.contains(value) || layouts.contains(value) ||
        !IsStatic(value->shape))
      continue;
    const int64_t last = LastAxisRead(value, users);
    if (last >= 0 && last != LongAxes(value->shape).back())
      layouts[value] = OrderWithLast(value->shape.size(), last);
  }
}

bool IsStaticOf16Bits(const UOp* value) {
  return IsFloatOf16(value->dtype) && IsStatic(value->shape);
}

// A product of matrices, which kernels of a GPU compute.
struct ProductKernel {
  std::vector<Place> places;
  double multiplications = 1;

  explicit ProductKernel(const LoweredKernel& kernel, std::vector<Place> of)
      : places(std::move(of)) {
    for (const UOp* node : PostOrder(kernel.ast))
      if (node->op == Op::kRange)
        multiplications *= static_cast<double>(RangeOf(node).extent());
  }
};

// Inputs of 16 bits on GPUs that a product reads through windows that overlap go, as a copy, with
// their channels last: each element is read for several windows and by several tiles, and one by
// one where rows of the image lie together. A copy is a launch and two passes over the input.
void LayOutImages(const std::vector<ProductKernel>& kernels, Layouts& layouts) {
  constexpr int64_t kChannelsMin = 8;  // fewer are no 16 bytes, and are read one by one either way
  // About what takes as long as a launch.
  constexpr double kMultiplicationsMin = 1 << 29;
  // Multiplications for each element of the whole input, of which the kernel may read a slice.
  constexpr double kUsesMin = 128;
  for (const ProductKernel& kernel : kernels)
    for (const auto& [value, index] : kernel.places) {
      const auto elements = static_cast<double>(PaddedSize(value->shape));
      if (value->op != Op::kParam || !IsStaticOf16Bits(value) ||
          kernel.multiplications < std::max(kMultiplicationsMin, kUsesMin * elements))
        continue;
      const Axes windowed = WindowedAxes(value->shape, index, WindowNumbers::kQuotients);
      std::vector<int64_t> order = OrderFor(value->shape, windowed, kChannelsMin);
      if (!order.empty()) layouts.emplace(value, std::move(order));
    }
}

// Weights of 16 bits on GPUs, which a sum reads beside a value whose channels lie last: the same
// channels go last in a copy of them. Matrix units take steps that follow each other in both.
// Weights that have more elements than the other value are not worth a copy, unless many tiles read
// them one by one: taps, which are summed over, lie together.
void LayOutWeights(const std::vector<ProductKernel>& kernels, Layouts& layouts) {
  constexpr double kUsesMin = 1024;  // eight tiles of 128 rows
  Layouts found;
  for (const ProductKernel& kernel : kernels)
    for (const Place& from : kernel.places) {
      const auto known = layouts.find(from.value);
      if (known == layouts.end()) continue;
      const UOp* const channels = RangeAlong(from, known->second.back(), RangeKind::kReduce);
      if (channels == nullptr) continue;
      for (const Place& to : kernel.places) {
        const UOp* const weights = to.value;
        if (weights->op != Op::kParam || !IsStaticOf16Bits(weights) || found.contains(weights) ||
            layouts.contains(weights))
          continue;
        const std::vector<int64_t> axes = LongAxes(weights->shape);
        const int64_t elements = PaddedSize(weights->shape);
        const bool is_larger = elements > PaddedSize(from.value->shape);
        if (is_larger && (kernel.multiplications < kUsesMin * static_cast<double>(elements) ||
                          RangeAlong(to, axes.back(), RangeKind::kReduce) == nullptr))
          continue;
        for (const int64_t axis : axes)
          if (axis != axes.back() && RangeAlong(to, axis, RangeKind::kReduce) == channels)
            found[weights] = OrderWithLast(weights->shape.size(), axis);
      }
    }
  layouts.insert(found.begin(), found.end());
}

// What is materialised and may lie in any way: no results, and nothing that rows are added to.
absl::flat_hash_set<const UOp*> TemporariesOf(const UOp* sink, const Choice& choice) {
  absl::flat_hash_set<const UOp*> temporaries(choice.kept.begin(), choice.kept.end());
  for (const UOp* result : sink->src) temporaries.erase(result);
  for (const UOp* scattered : choice.scattered) temporaries.erase(scattered);
  return temporaries;
}

// Whether the kernel sums products of two values.
bool MultipliesMatrices(const LoweredKernel& kernel) {
  const std::vector<const UOp*> nodes = PostOrder(kernel.ast);
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const UOp* node) { return ProductSummed(node) != nullptr; });
}

std::vector<int64_t> Inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

// Whether the node reads by way of a copy where its source does: a copy goes on through movements
// and casts, as far as an EXPAND, which every product has and which reads it.
bool PassesCopyOn(const UOp* node, const Choice& choice) {
  return (IsMovement(node->op) || node->op == Op::kCast) && !choice.read_again.contains(node);
}

// The inputs of which ApplyLayouts would make a copy.
absl::flat_hash_set<const UOp*> InputsToCopy(const UOp* sink, const Choice& choice) {
  absl::flat_hash_set<const UOp*> inputs;
  absl::flat_hash_map<const UOp*, const UOp*> input_of;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op == Op::kParam) input_of[node] = node;
    if (!PassesCopyOn(node, choice)) continue;
    const auto found = input_of.find(node->src[0]);
    if (found == input_of.end()) continue;
    const UOp* const input = found->second;
    if (node->op == Op::kExpand)
      inputs.insert(input);
    else
      input_of[node] = input;
  }
  return inputs;
}

// Temporaries that follow those that have an order, and others that follow these. Each value is
// followed once, in the kernels that have it.
class Followers {
 public:
  // `places`: of temporaries, by kernel.
  Followers(const std::vector<std::vector<Place>>& places,
            const std::vector<ProductKernel>& products,
            const absl::flat_hash_set<const UOp*>& temporaries, int64_t channels_min,
            Layouts& layouts)
      : temporaries_(temporaries), channels_min_(channels_min), layouts_(layouts) {
    for (const std::vector<Place>& kernel : places) Add(kernel, kernels_);
    for (const ProductKernel& kernel : products) Add(kernel.places, products_);
  }

  // First all that lie beside each other, then in products those with other channels. Returns how
  // many pairs of places were looked at.
  int64_t Run() {
    for (size_t beside = 0, others = 0; others < values_.size(); ++others) {
      for (; beside < values_.size(); ++beside) Follow(values_[beside], kernels_, SameOrder);
      Follow(values_[others], products_,
             [&](const Place& from, const std::vector<int64_t>& order, const Place& to) {
               return IsStaticOf16Bits(to.value)
                          ? OrderBesideOtherChannels(from, order, to, channels_min_)
                          : std::vector<int64_t>();
             });
    }
    return compared_;
  }

 private:
  // Of a whole graph; behind them nothing follows any more. ResNet-50's step looks at 8,300.
  static constexpr int64_t kPairsMax = 1 << 20;

  // A place, and all places of its kernel.
  struct Use {
    Place from;
    const std::vector<Place>* kernel;
  };
  using Uses = absl::flat_hash_map<const UOp*, std::vector<Use>>;

  void Add(const std::vector<Place>& kernel, Uses& uses) {
    for (const Place& place : kernel) {
      uses[place.value].push_back({place, &kernel});
      if (layouts_.contains(place.value) && known_.insert(place.value).second)
        values_.push_back(place.value);
    }
  }

  template <typename OrderOf>
  void Follow(const UOp* value, const Uses& uses, const OrderOf& order_of) {
    const auto found = uses.find(value);
    if (found == uses.end()) return;
    const std::vector<int64_t> known = layouts_.at(value);
    const std::vector<Place>* kernel_before = nullptr;
    absl::flat_hash_set<std::vector<const UOp*>> ranges;
    for (const auto& [from, kernel] : found->second) {
      if (kernel != kernel_before) ranges.clear();
      kernel_before = kernel;
      // What follows depends on these alone: a value that is read at many places is compared once.
      if (!ranges.insert(RangesAlong(from)).second) continue;
      for (const Place& to : *kernel) {
        if (++compared_ > kPairsMax) return;
        if (!temporaries_.contains(to.value) || layouts_.contains(to.value)) continue;
        std::vector<int64_t> order = order_of(from, known, to);
        if (order.empty()) continue;
        layouts_.emplace(to.value, std::move(order));
        values_.push_back(to.value);
      }
    }
  }

  const absl::flat_hash_set<const UOp*>& temporaries_;
  const int64_t channels_min_;
  Layouts& layouts_;
  Uses kernels_, products_;
  std::vector<const UOp*> values_;  // that have an order, in the order in which they got it
  absl::flat_hash_set<const UOp*> known_;
  int64_t compared_ = 0;
};

}  // namespace

Layouts ChooseLayouts(const UOp* sink, const Choice& choice,
                      const std::vector<LoweredKernel>& kernels, const Target& target,
                      int64_t* compared) {
  const absl::flat_hash_set<const UOp*> temporaries = TemporariesOf(sink, choice);
  absl::flat_hash_set<const UOp*> read = InputsToCopy(sink, choice);
  read.insert(choice.kept.begin(), choice.kept.end());

  const bool gpu = target.kind == TargetKind::kCuda;
  const int64_t channels_min = optimize::LanesMin(target);
  std::vector<std::vector<Place>> places;
  std::vector<ProductKernel> products;  // on GPUs
  absl::flat_hash_map<const UOp*, Axes> windowed;
  for (const LoweredKernel& kernel : kernels) {
    places.push_back(PlacesIn(kernel, temporaries));
    for (const auto& [value, index] : places.back())
      windowed[value] |= WindowedAxes(value->shape, index);
    if (!gpu || !MultipliesMatrices(kernel)) continue;
    products.emplace_back(kernel, PlacesIn(kernel, read));
    for (const auto& [value, index] : places.back())
      if (IsStaticOf16Bits(value))
        windowed[value] |= WindowedAxes(value->shape, index, WindowNumbers::kQuotients);
  }
  Layouts layouts;
  for (const auto& [value, axes] : windowed)
    if (std::vector<int64_t> order = OrderFor(value->shape, axes, channels_min); !order.empty())
      layouts[value] = std::move(order);
  LayOutImages(products, layouts);
  const int64_t pairs = Followers(places, products, temporaries, channels_min, layouts).Run();
  if (compared != nullptr) *compared = pairs;
  if (gpu) {
    LayOutWeights(products, layouts);
    LayOutAsRead(sink, temporaries, choice.kept, layouts);
  }
  return layouts;
}

RowPitches ChoosePitches(const UOp* sink, const Choice& choice,
                         const std::vector<LoweredKernel>& kernels, const Target& target) {
  constexpr int64_t kTogetherBytes = 16;  // of a copy, and what strides of boxes are multiples of
  constexpr int64_t kLineBytes = 128;     // of the caches
  constexpr int64_t kRowBytesMin = 1024;  // at most an eighth more memory
  RowPitches pitches;
  if (target.kind != TargetKind::kCuda) return pitches;
  const absl::flat_hash_set<const UOp*> temporaries = TemporariesOf(sink, choice);
  for (const LoweredKernel& kernel : kernels) {
    if (!MultipliesMatrices(kernel)) continue;
    for (const UOp* value : kernel.buffers) {
      if (!temporaries.contains(value) || !IsStatic(value->shape)) continue;
      const int last = LastLongDim(value->shape);
      if (last < 0) continue;
      const int64_t width = ByteWidth(value->dtype), row = value->shape[last].value() * width;
      const bool one_row = value->shape[last].value() == PaddedSize(value->shape);
      if (one_row || row < kRowBytesMin || row % kTogetherBytes == 0) continue;
      pitches[value] = DivideUp(row, kLineBytes) * kLineBytes / width;
    }
  }
  return pitches;
}

LaidOut ApplyLayouts(Graph& graph, const UOp* sink, const Choice& choice, const Layouts& layouts) {
  absl::flat_hash_map<const UOp*, const UOp*> read, kept;  // how a node is read; what is kept of it
  // Inputs that have copies, and what movements and casts make of them, by way of the copy. Who
  // reads each element once reads the input: an update of weights has nothing of another order, and
  // can be written over them.
  absl::flat_hash_map<const UOp*, const UOp*> copied;
  for (const UOp* node : PostOrder(sink)) {
    const UOp* now = WithSourcesBecome(graph, node, read);
    if (PassesCopyOn(node, choice) && copied.contains(node->src[0])) {
      std::vector<const UOp*> src(now->src.begin(), now->src.end());
      src[0] = copied.at(node->src[0]);
      const UOp* const by_copy = WithSourcesOrNull(graph, now, src);
      if (node->op == Op::kExpand)
        now = by_copy;
      else
        copied[node] = by_copy;
    }
    read[node] = kept[node] = now;
    if (const auto layout = layouts.find(node); layout != layouts.end()) {
      kept[node] = Permute(graph, now, layout->second);
      auto& by_order = node->op == Op::kParam ? copied : read;
      by_order[node] = Permute(graph, kept[node], Inverse(layout->second));
    }
  }
  LaidOut out{read.at(sink), {}};
  const std::vector<const UOp*> nodes = PostOrder(out.sink);
  const absl::flat_hash_set<const UOp*> needed(nodes.begin(), nodes.end());
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kParam && layouts.contains(node) && needed.contains(kept.at(node))) {
      out.choice.kept.push_back(kept.at(node));
      out.choice.read_again.insert(kept.at(node));
    }
  for (const UOp* value : choice.kept) out.choice.kept.push_back(kept.at(value));
  for (const UOp* value : choice.scattered) out.choice.scattered.insert(kept.at(value));
  for (const UOp* value : choice.read_again) out.choice.read_again.insert(kept.at(value));
  return out;
}

}  // namespace outboard::schedule
