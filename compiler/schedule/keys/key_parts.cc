#include "compiler/schedule/keys/key_parts.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// With more queries for a key blocks have enough to do without parts: a tile of the online kernel.
constexpr int64_t kRowsMax = 64;
// A part has a few of the online kernel's times, and joining is a loop over parts.
constexpr int64_t kPartKeysMin = 64, kPartsMax = 64;
// Blocks that a multiprocessor takes, as an estimate: of one warp (34 KiB for heads of 64), which
// has the rows of the matrix unit, or of several.
constexpr int64_t kRowsOfWarp = 16, kBlocksOfOneWarp = 4, kBlocksOfWarps = 2;
constexpr int64_t kColumnsMin = 8;
constexpr int kWalkNodesMax = 64;  // of a factor, in search of its weights

struct Softmax {
  const UOp* scores = nullptr;       // x
  const UOp* exponential = nullptr;  // exp(x - max x)
  int64_t axis = 0;                  // of the keys
};

// The reduction whose results are repeated along its axis, in their order; else the node itself.
const UOp* RepeatedOf(const UOp* node) {
  if (node->op != Op::kExpand) return node;
  const UOp* reduce = node->src[0];
  while (reduce->op == Op::kReshape) reduce = reduce->src[0];
  return reduce->shape == node->src[0]->shape ? reduce : node;
}

bool IsReduceOver(const UOp* node, Op op, const UOp* of, int64_t axis) {
  return node->op == Op::kReduce && ReduceOf(node).op() == op && node->src[0] == of &&
         ReduceOf(node).axes().size() == 1 && ReduceOf(node).axes()[0] == axis;
}

// exp(x - max x) / the sum of that, of f32.
std::optional<Softmax> SoftmaxOf(const UOp* weights) {
  if (weights->op != Op::kFDiv || weights->dtype != DType::kF32) return std::nullopt;
  const UOp *const exponential = weights->src[0], *const sum = RepeatedOf(weights->src[1]);
  if (exponential->op != Op::kExp || sum->op != Op::kReduce || ReduceOf(sum).axes().size() != 1)
    return std::nullopt;
  const int64_t axis = ReduceOf(sum).axes()[0];
  const UOp* const difference = exponential->src[0];
  if (!IsReduceOver(sum, Op::kAdd, exponential, axis) || difference->op != Op::kAdd)
    return std::nullopt;
  for (const int side : {0, 1}) {
    const UOp *const x = difference->src[side], *minus = difference->src[1 - side];
    if (minus->op != Op::kNeg) continue;
    if (IsReduceOver(RepeatedOf(minus->src[0]), Op::kMax, x, axis))
      return Softmax{x, exponential, axis};
  }
  return std::nullopt;
}

// Weights of a softmax, as they become a factor of a product: what each is made of, down to them,
// the factor itself included; empty where it is made of none. Between are movements, casts, and
// products with other factors, as with the scales of values.
std::vector<const UOp*> DownToWeights(const UOp* factor) {
  std::vector<const UOp*> down, others;  // others: the second operands of products, and their depth
  std::vector<size_t> depths;
  for (int nodes = 0; nodes < kWalkNodesMax; ++nodes) {
    down.push_back(factor);
    if (SoftmaxOf(factor)) return down;
    if (IsMovement(factor->op) || factor->op == Op::kCast) {
      factor = factor->src[0];
    } else if (factor->op == Op::kMul) {
      others.push_back(factor->src[1]);
      depths.push_back(down.size());
      factor = factor->src[0];
    } else if (!others.empty()) {
      factor = others.back();
      down.resize(depths.back());
      others.pop_back();
      depths.pop_back();
    } else {
      break;
    }
  }
  return {};
}

// The one dimension that is `keys`; -1: there is none, or several.
int64_t PlaceOf(ShapeView shape, const Dim& keys) {
  int64_t place = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != keys) continue;
    if (place >= 0) return -1;
    place = static_cast<int64_t>(i);
  }
  return place;
}

// Whether the dimension that is `keys` has as many elements before it in what a RESHAPE makes as in
// its source: then it is the same one.
bool KeepsPlace(const UOp* reshape, const Dim& keys) {
  const auto before = [&](ShapeView shape) {
    DimFactors all;
    for (const Dim& dim : shape.subspan(0, PlaceOf(shape, keys))) {
      const DimFactors factors = FactorsOf(dim);
      all.number *= factors.number;
      all.expressions.insert(all.expressions.end(), factors.expressions.begin(),
                             factors.expressions.end());
    }
    std::sort(all.expressions.begin(), all.expressions.end());
    return std::pair(all.number, all.expressions);
  };
  return before(reshape->src[0]->shape) == before(reshape->shape);
}

// What attention of few queries is made of: the sum over `axis` of weights times values.
struct FewQueries {
  const UOp* sum = nullptr;
  int64_t axis = 0;
  Softmax softmax;
  const UOp* weights = nullptr;
  std::vector<const UOp*> chain;  // from the weights, without them, to the product's factor
  const UOp* values = nullptr;    // the other factor
  Dim keys;
  int64_t parts = 1, length = 1;  // of a part
};

class Divider {
 public:
  Divider(Graph& graph, const Target& target) : g_(graph), target_(target) {}

  std::optional<FewQueries> Find(const UOp* sum) const {
    if (sum->op != Op::kReduce || ReduceOf(sum).op() != Op::kAdd || sum->dtype != DType::kF32 ||
        ReduceOf(sum).axes().size() != 1 || sum->src[0]->op != Op::kMul)
      return std::nullopt;
    const UOp* const product = sum->src[0];
    for (const int side : {0, 1}) {
      FewQueries few{.sum = sum, .axis = ReduceOf(sum).axes()[0]};
      const std::vector<const UOp*> down = DownToWeights(product->src[side]);
      if (down.empty()) continue;
      few.weights = down.back();
      few.chain.assign(down.rbegin() + 1, down.rend());
      few.softmax = *SoftmaxOf(few.weights);
      few.values = product->src[1 - side];
      few.keys = few.weights->shape[few.softmax.axis];
      if (few.keys != product->shape[few.axis] || !CanReplay(few)) continue;
      if (HasParts(few)) return few;
    }
    return std::nullopt;
  }

  // Sets what is stored of the parts' maxima.
  absl::StatusOr<const UOp*> Divide(const FewQueries& few, const UOp** maxima) {
    OB_ASSIGN_OR_RETURN(const UOp* const x, ScoresInParts(few));
    const int64_t inside = few.softmax.axis, part = inside + 1;  // axes of x
    const UOp* const max = Reduce(g_, Op::kMax, x, {inside});
    const UOp* const e = Exp(x, max);
    const UOp* const sum = Reduce(g_, Op::kAdd, e, {inside});
    const Shape both = {Dim(few.length), Dim(few.parts)};
    OB_ASSIGN_OR_RETURN(const UOp* const values, ValuesInParts(few));
    OB_ASSIGN_OR_RETURN(const UOp* const weights, Weighted(few, e, both));
    const UOp* const out = Reduce(g_, Op::kAdd, Mul(g_, weights, values), {few.axis});
    const UOp *const of_max = Stored(max), *const of_sum = Stored(sum),
                     *const of_out = StoredByRows(few, out);
    *maxima = of_max;
    const UOp* const greatest = Reduce(g_, Op::kMax, of_max, {part});
    const UOp* const factor = Exp(of_max, greatest);
    const UOp* const none =
        Alu(g_, Op::kCmpEq, of_max,
            Full(g_, ConstFloat(g_, DType::kF32, -std::numeric_limits<double>::infinity()),
                 of_max->shape));
    const auto joined = [&](const UOp* values_of_parts, const UOp* hidden, const UOp* by,
                            int64_t axis) {
      const UOp* const zero = Full(g_, ConstFloat(g_, DType::kF32, 0), values_of_parts->shape);
      return Reduce(g_, Op::kAdd, Where(g_, hidden, zero, Mul(g_, values_of_parts, by)), {axis});
    };
    // Movements alone: factors are not rounded, or scaled, as weights are.
    const Shape one = {Dim(1), Dim(few.parts)};
    const auto beside = [&](const UOp* of_rows) {
      return Expand(g_, Moved(few, of_rows, one), of_out->shape);
    };
    const UOp* const total = joined(of_sum, none, factor, part);
    const UOp* const result = joined(of_out, beside(none), beside(factor), few.axis + 1);
    const UOp* const divided_by =
        Expand(g_, Moved(few, total, {Dim(1), Dim(1)}), result->shape);
    const UOp* quotient = Alu(g_, Op::kFDiv, result, divided_by);
    if (few.keys.min() < 1) {  // a sum of no keys is 0, which 0 / 0 is not
      const UOp* const some = Alu(g_, Op::kCmpLt, ConstIndex(g_, 0), ValueOf(g_, few.keys));
      quotient = Where(g_, Full(g_, some, quotient->shape), quotient,
                       Full(g_, ConstFloat(g_, DType::kF32, 0), quotient->shape));
    }
    return Reshape(g_, Stored(quotient), few.sum->shape);
  }

 private:
  // Dimensions of VARs are told from others; a number of keys may be that of something else, too.
  static bool CanReplay(const FewQueries& few) {
    if (PlaceOf(few.weights->shape, few.keys) != few.softmax.axis ||
        PlaceOf(few.sum->src[0]->shape, few.keys) != few.axis ||
        few.sum->src[0]->rank() >= limits::kRankMax ||
        static_cast<size_t>(few.weights->rank()) >= limits::kRankMax)
      return false;
    // Exponentials are divided when they are summed. What is rounded before that has to round them
    // as it would round weights: no integers, no floats of 8 bits; and of a product with what is
    // no weight yet nothing with the range of f16.
    bool is_scaled = false;
    for (const UOp* node : few.chain) {
      is_scaled = is_scaled || node->op == Op::kMul;
      if (node->dtype != DType::kF32 && node->dtype != DType::kBF16 &&
          (node->dtype != DType::kF16 || is_scaled))
        return false;
      if (node->op != Op::kCast && node->op != Op::kReshape && node->op != Op::kExpand &&
          node->op != Op::kPermute && node->op != Op::kMul)
        return false;
      if (node->rank() >= limits::kRankMax || PlaceOf(node->shape, few.keys) < 0) return false;
      if (node->op == Op::kReshape && !KeepsPlace(node, few.keys)) return false;
    }
    return true;
  }

  bool HasParts(FewQueries& few) const {
    const int64_t keys = few.keys.max(), terms = PaddedSize(few.sum->src[0]->shape);
    const int64_t of_values = ValueElements(few);
    if (keys < 2 * kPartKeysMin || keys > limits::kDimMax - kPartsMax || of_values == 0 ||
        terms > limits::kVirtualElementsMax / 4)
      return false;
    const int64_t of_weights = PaddedSize(few.weights->shape);
    const int64_t columns = terms / std::max<int64_t>(1, of_weights);
    if (columns < kColumnsMin || terms > kRowsMax * of_values) return false;
    const int64_t blocks = std::max<int64_t>(1, of_values / (keys * columns));
    const int64_t together = terms > kRowsOfWarp * of_values ? kBlocksOfWarps : kBlocksOfOneWarp;
    few.parts =
        std::min({target_.multiprocessors * together / blocks, keys / kPartKeysMin, kPartsMax});
    few.length = (keys + few.parts - 1) / std::max<int64_t>(1, few.parts);
    return few.parts > 1;
  }

  // Of the values, without what repeats them for each row.
  static int64_t ValueElements(const FewQueries& few) {
    const UOp* node = few.values;
    int64_t least = PaddedSize(node->shape);
    for (; IsMovement(node->op) || node->op == Op::kCast; node = node->src[0])
      if (node->op == Op::kExpand) least = std::min(least, PaddedSize(node->src[0]->shape));
    return least;
  }

  Shape With(ShapeView shape, const Dim& keys, const Shape& by) const {
    Shape dims(shape.begin(), shape.end());
    const int64_t place = PlaceOf(shape, keys);
    dims.erase(dims.begin() + place);
    dims.insert(dims.begin() + place, by.begin(), by.end());
    return dims;
  }

  // What the chain makes of exponentials, whose two dimensions `by` are in the place of the keys.
  absl::StatusOr<const UOp*> Weighted(const FewQueries& few, const UOp* weights, const Shape& by) {
    const UOp* before = few.weights;
    for (const UOp* node : few.chain) {
      if (node->op == Op::kCast) {
        weights = Cast(g_, weights, node->dtype);
      } else if (node->op == Op::kMul) {
        const UOp* const factor = node->src[node->src[0] == before ? 1 : 0];
        OB_ASSIGN_OR_RETURN(const UOp* const in_parts,
                            InParts(few, factor, PlaceOf(factor->shape, few.keys)));
        weights = Mul(g_, weights, in_parts);
      } else {
        weights = Moved(few, node, weights, by);
      }
      before = node;
    }
    return weights;
  }

  // What the movements of the chain make of `base`, or that of this `node`.
  const UOp* Moved(const FewQueries& few, const UOp* base, const Shape& by) {
    for (const UOp* node : few.chain)
      if (IsMovement(node->op)) base = Moved(few, node, base, by);
    return base;
  }
  const UOp* Moved(const FewQueries& few, const UOp* node, const UOp* base, const Shape& by) {
    if (node->op == Op::kReshape) return Reshape(g_, base, With(node->shape, few.keys, by));
    if (node->op == Op::kExpand) return Expand(g_, base, With(node->shape, few.keys, by));
    const int64_t place = PlaceOf(node->src[0]->shape, few.keys);
    std::vector<int64_t> axes;
    for (const int64_t axis : node->arg) {
      axes.push_back(axis + (axis > place));
      if (axis == place) axes.push_back(axis + 1);
    }
    return Permute(g_, base, axes);
  }

  // x, filled up and divided along an axis into [length, parts].
  absl::StatusOr<const UOp*> InParts(const FewQueries& few, const UOp* x, int64_t axis) {
    OB_ASSIGN_OR_RETURN(const Dim more,
                        SubtractDims(g_, Dim(few.parts * few.length), x->shape[axis]));
    if (more != Dim(0)) {
      Shape sides(2 * x->rank(), Dim(0));
      sides[2 * axis + 1] = more;
      x = Pad(g_, x, sides);
    }
    Shape dims(x->shape.begin(), x->shape.end());
    dims[axis] = Dim(few.length);
    dims.insert(dims.begin() + axis + 1, Dim(few.parts));
    return Reshape(g_, x, dims);
  }

  absl::StatusOr<const UOp*> ScoresInParts(const FewQueries& few) {
    OB_ASSIGN_OR_RETURN(const UOp* const x, InParts(few, few.softmax.scores, few.softmax.axis));
    if (few.keys == Dim(few.parts * few.length)) return x;
    Shape dims(x->shape.size(), Dim(1));
    dims[few.softmax.axis] = Dim(few.length);
    dims[few.softmax.axis + 1] = Dim(few.parts);
    const UOp* const key = Reshape(g_, Iota(g_, DType::kI64, Dim(few.parts * few.length)), dims);
    const UOp* const below = Alu(g_, Op::kCmpLt, key, Full(g_, ValueOf(g_, few.keys), key->shape));
    return Where(
        g_, Expand(g_, below, x->shape), x,
        Full(g_, ConstFloat(g_, DType::kF32, -std::numeric_limits<double>::infinity()), x->shape));
  }

  // Zeros are added where values are loaded, below what widens them.
  absl::StatusOr<const UOp*> ValuesInParts(const FewQueries& few) {
    const UOp* values = few.values;
    std::vector<DType> casts;
    for (; values->op == Op::kCast; values = values->src[0])
      casts.insert(casts.begin(), values->dtype);
    OB_ASSIGN_OR_RETURN(values, InParts(few, values, few.axis));
    for (const DType type : casts) values = Cast(g_, values, type);
    return values;
  }

  const UOp* Exp(const UOp* x, const UOp* max) {
    return Alu(g_, Op::kExp, Add(g_, x, Expand(g_, Alu(g_, Op::kNeg, max), x->shape)));
  }

  const UOp* Stored(const UOp* x) { return g_.MakeChecked(Op::kContiguous, DType::kVoid, {x}); }

  // With columns side by side: those axes that the weights have not.
  const UOp* StoredByRows(const FewQueries& few, const UOp* out) {
    const auto last = std::find_if(few.chain.rbegin(), few.chain.rend(), [](const UOp* node) {
      return node->op != Op::kCast && node->op != Op::kMul;
    });
    const UOp* const repeated = last == few.chain.rend() ? nullptr : *last;
    const auto is_column = [&](int64_t axis) {
      const int64_t before = axis - (axis > few.axis);  // without the axis of parts
      return repeated != nullptr && repeated->op == Op::kExpand && axis != few.axis + 1 &&
             repeated->shape[before] != repeated->src[0]->shape[before];
    };
    std::vector<int64_t> order, back;
    for (const bool columns : {false, true})
      for (int64_t i = 0; i < out->rank(); ++i)
        if (is_column(i) == columns) order.push_back(i);
    for (int64_t i = 0; i < out->rank(); ++i)
      back.push_back(std::find(order.begin(), order.end(), i) - order.begin());
    return Permute(g_, Stored(Permute(g_, out, order)), back);
  }

  Graph& g_;
  const Target& target_;
};

}  // namespace

const UOp* ScoresOf(const DividedKeys& divided) {
  const UOp* const maxima = divided.maxima;
  const UOp* const reduce = maxima->op == Op::kContiguous ? maxima->src[0] : maxima;
  return reduce->op == Op::kReduce ? reduce->src[0] : nullptr;
}

absl::flat_hash_set<const UOp*> ScoresOfParts(const std::vector<DividedKeys>& all) {
  absl::flat_hash_set<const UOp*> scores;
  for (const DividedKeys& divided : all)
    if (const UOp* const of_parts = ScoresOf(divided)) scores.insert(of_parts);
  return scores;
}

absl::StatusOr<const UOp*> WithMaxima(Graph& graph, const UOp* sink,
                                      const std::vector<DividedKeys>& divided) {
  if (divided.empty()) return sink;
  std::vector<const UOp*> results(sink->src.begin(), sink->src.end());
  for (const DividedKeys& keys : divided) results.push_back(keys.maxima);
  if (std::ssize(results) > limits::kVariadicSourcesMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the graph has over ", limits::kVariadicSourcesMax, " results and maxima of parts"));
  return graph.WithSources(sink, results);
}

absl::StatusOr<const UOp*> TakeMaxima(Graph& graph, const UOp* sink, size_t results,
                                      std::vector<DividedKeys>& divided) {
  if (divided.empty()) return sink;
  for (size_t i = 0; i < divided.size(); ++i) divided[i].maxima = sink->src[results + i];
  return graph.WithSources(sink, sink->src.subspan(0, results));
}

absl::StatusOr<KeysInParts> DivideKeys(Graph& graph, const UOp* sink, const Target& target,
                                       const absl::flat_hash_set<const UOp*>& whole) {
  KeysInParts parts{.sink = sink};
  if (target.kind != TargetKind::kCuda) return parts;
  Divider divider(graph, target);
  absl::flat_hash_map<const UOp*, const UOp*> made;
  const std::vector<const UOp*> order = PostOrder(sink);
  absl::flat_hash_map<const UOp*, int> users;
  for (const UOp* node : order)
    for (const UOp* s : node->src) ++users[s];
  // Gradients read the weights, too: then the whole of them is computed again elsewhere.
  const auto is_read_once = [&](const UOp* sum) {
    if (sum->op != Op::kReduce || sum->src[0]->op != Op::kMul) return false;
    const auto is_shared = [&](const UOp* node) { return users.at(node) > 1; };
    return std::none_of(sum->src[0]->src.begin(), sum->src[0]->src.end(), [&](const UOp* factor) {
      const std::vector<const UOp*> down = DownToWeights(factor);
      return std::any_of(down.begin(), down.end(), is_shared);
    });
  };
  for (const UOp* node : order) {
    const UOp*& now = made[node] = WithSourcesBecome(graph, node, made);
    if (whole.contains(node) || !is_read_once(node)) continue;
    if (const auto few = divider.Find(now)) {
      DividedKeys divided{.sum = node};
      OB_ASSIGN_OR_RETURN(now, divider.Divide(*few, &divided.maxima));
      parts.divided.push_back(divided);
    }
  }
  parts.sink = made.at(sink);
  return parts;
}

}  // namespace outboard::schedule
