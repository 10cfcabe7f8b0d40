#include "compiler/schedule/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/limits.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/gather/one_hot.h"
#include "compiler/schedule/gather/scatter.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

constexpr int64_t kPartialsMax = 1024;    // of one result: joining them is one task
constexpr double kElementsMin = 1 << 19;  // below, a second kernel costs more than it saves

// A sum of products whose operands do not stay in the second cache reads them from beyond it once
// for each tile of its results. In parts that do stay there, it reads them once.
constexpr double kPartsLeast = 2;
constexpr double kReuseLeast = 64;  // products that an element is in

struct Cut {
  int64_t axis = 0;
  int64_t parts = 1;   // of the axis
  int64_t length = 1;  // of each; the last one may be longer than what is left
  // Part i has the terms i, i + parts, i + 2 parts and so on: then all parts of a dimension made of
  // VARs have about as many, whatever is bound.
  bool take_turns = false;
};

// The outermost reduced axis that has a divisor of the right size; else, since zeros can be added
// to a sum, one that is filled up. No parts where there is neither.
Cut FindCut(const UOp* reduce, int64_t parts_min) {
  const UOp& x = *reduce->src[0];
  for (const int64_t axis : ReduceOf(reduce).axes()) {
    const int64_t extent = x.shape[axis].value();
    for (int64_t parts = parts_min; parts <= std::min(extent, kPartialsMax); ++parts)
      if (extent % parts == 0) return {axis, parts, extent / parts};
  }
  if (ReduceOf(reduce).op() != Op::kAdd) return {};
  for (const int64_t axis : ReduceOf(reduce).axes())
    if (const int64_t extent = x.shape[axis].value();
        extent >= 16 * parts_min && extent <= limits::kDimMax - parts_min)
      return {axis, parts_min, (extent + parts_min - 1) / parts_min};
  return {};
}

// What is multiplied: `node` without movements and windows.
const UOp* OperandOf(const UOp* node) {
  for (;;) {
    if (IsMovement(node->op))
      node = node->src[0];
    else if (node->op == Op::kReduce && node->src[0]->op == Op::kWhere)
      node = node->src[0]->src[1];
    else
      return node;
  }
}

// The same without casts between them.
const UOp* UncastOperandOf(const UOp* node) {
  node = OperandOf(node);
  while (node->op == Op::kCast) node = OperandOf(node->src[0]);
  return node;
}

// How many numbers of its operand a factor reads: a slice's, and those of a window once.
int64_t NumbersOf(const UOp* side) {
  int64_t numbers = PaddedSize(side->shape);
  for (const UOp* node = side;;) {
    if (IsMovement(node->op) || node->op == Op::kCast)
      node = node->src[0];
    else if (node->op == Op::kReduce && node->src[0]->op == Op::kWhere)
      node = node->src[0]->src[1];
    else
      return numbers;
    numbers = std::min(numbers, PaddedSize(node->shape));
  }
}

// Parts for a sum of products over more than a cache holds; 1 for any other.
int64_t PartsForCache(const UOp* reduce, const Target& target) {
  const UOp* product = reduce->src[0];
  while (IsMovement(product->op)) product = product->src[0];
  if (ReduceOf(reduce).op() != Op::kAdd || product->op != Op::kMul) return 1;
  double bytes = 0, elements = 0;
  for (const UOp* side : product->src) {
    const UOp* const operand = OperandOf(side);
    const auto count = static_cast<double>(PaddedSize(operand->shape));
    elements += count;
    bytes += count * ByteWidth(operand->dtype);
  }
  const auto results = static_cast<double>(ElementCount(reduce->shape)),
             products = static_cast<double>(ElementCount(reduce->src[0]->shape));
  const auto part_bytes = static_cast<double>(optimize::ReusedBytesMax(target));
  if (bytes < kPartsLeast * part_bytes || products / elements < kReuseLeast) return 1;
  const double parts = std::ceil(bytes / part_bytes);
  // Partial results are written and read once.
  if (results * parts * ByteWidth(reduce->dtype) > bytes / 4) return 1;
  return static_cast<int64_t>(std::min<double>(parts, kPartialsMax));
}

// ---- Blocks of a GPU, which a sum has by its results. Where its values lie in memory is decided
// later, so this goes by the shape:
//
//   a product of matrices   a block has a tile of 64 x 64 results
//   over rows               the reduced axes are the last: a block's threads divide one row
//   over columns            any other: a block has 32 results, next to each other in memory, and
//                           its warps divide their sums

// A product with few tiles leaves most multiprocessors idle, unless its sums are divided.
// Estimates, from the time of a tile's steps on an H100 (0.1 us for 32) and of one more kernel
// (3 us): fewer steps are not worth it.
constexpr int64_t kTileResults = 64 * 64;
constexpr int64_t kStepsMin = 2048, kPartStepsMin = 512;
// An inner axis is divided where that makes at least 4 / 3 as many parts.
bool AreManyMore(int64_t parts, int64_t than) { return 3 * parts >= 4 * than; }
constexpr int64_t kInnerRunMin = 16;  // steps of its parts
// Each number of a matrix is in the products of so many rows or columns of the other one. With
// fewer no matrix unit computes it (operands/mma_tile.cc).
constexpr int64_t kSideMin = 8;

// What hides the latency of memory, 15 KiB under way for each multiprocessor (0.6 us at 3.35 TB/s,
// for 132 of them), is four loads of 2 to 4 bytes by each thread of 8 blocks of 256, which is as
// many as it has room for. With two blocks each the time is near enough to that of one more kernel.
// A part has two rounds of such loads of its block's threads over columns, and one of loads of 16
// bytes over rows.
constexpr int64_t kBlockColumns = 32;
constexpr int64_t kBlocksWanted = 8, kBlocksLeast = 2;  // of a multiprocessor
constexpr int64_t kPartColumnTermsMin = 64, kPartRowTermsMin = 4096;

constexpr int64_t kWalkNodesMax = 64;  // of an operand

// What elementwise operations make of others: the first node that `is`, at most kWalkNodesMax away.
struct Found {
  const UOp* node = nullptr;
  bool complete = true;  // false: there are more nodes than were looked at
};
template <typename Is>
Found FindIn(const UOp* operand, const Is& is, size_t nodes_max = kWalkNodesMax) {
  std::vector<const UOp*> open = {operand};
  absl::flat_hash_set<const UOp*> seen = {operand};
  for (size_t i = 0; i < open.size() && i < nodes_max; ++i) {
    const UOp* const node = open[i];
    if (is(node)) return {node};
    if (!IsAlu(node->op) && !IsMovement(node->op) && node->op != Op::kCast) continue;
    for (const UOp* src : node->src)
      if (seen.insert(src).second) open.push_back(src);
  }
  return {nullptr, open.size() <= nodes_max};
}

bool IsExponential(const UOp* node) { return node->op == Op::kExp || node->op == Op::kExp2; }

// True unless it is known not to be: attention keeps its sums together. Gradients are long
// expressions.
constexpr size_t kLongWalkNodesMax = 512;
bool MayBeSoftmax(const UOp* operand) {
  const Found found = FindIn(operand, IsExponential, kLongWalkNodesMax);
  return found.node != nullptr || !found.complete;
}

// The weights of a softmax: exponentials of scores less their maximum. A gate has no maximum.
bool IsSoftmax(const UOp* operand) {
  const UOp* const exponential = FindIn(operand, IsExponential).node;
  const auto is_maximum = [](const UOp* node) {
    return node->op == Op::kReduce && ReduceOf(node).op() == Op::kMax;
  };
  return exponential != nullptr && FindIn(exponential->src[0], is_maximum).node != nullptr;
}

// Whether a block adds a row of memory, as far as the shape tells: the reduced axes are the last.
bool IsOverRows(const UOp* reduce) {
  const ReduceOf view(reduce);
  return view.axes().front() ==
         reduce->src[0]->rank() - static_cast<int64_t>(view.axes().size());
}

// What a sum adds, if that is products of matrices in f32; else nullptr.
const UOp* ProductOfMatrices(const UOp* reduce) {
  const UOp* product = reduce->src[0];
  while (IsMovement(product->op) || product->op == Op::kCast) product = product->src[0];
  if (ReduceOf(reduce).op() != Op::kAdd || !IsFloat(reduce->dtype) || product->op != Op::kMul ||
      product->dtype != DType::kF32)
    return nullptr;
  // A window's numbers are in several rows or columns of a step.
  const auto products = static_cast<double>(ElementCount(reduce->src[0]->shape));
  for (const UOp* side : product->src)
    if (products < static_cast<double>(kSideMin * NumbersOf(side))) return nullptr;
  return product;
}

// The parts of a product of matrices whose tiles do not fill a GPU: whole ones, so that no part
// needs a mask. Of the outermost axis that has some, which leaves the longest runs of memory; of an
// inner one that has many more where there are no boxes, which copy such runs.
Cut CutForTiles(const UOp* reduce, const UOp* product, const Target& target) {
  const int64_t results = ElementCount(reduce->shape);
  const int64_t steps = ElementCount(reduce->src[0]->shape) / results;
  const int64_t tiles = DivideUp(results, kTileResults);
  if (steps < kStepsMin || 2 * tiles > target.multiprocessors) return {};
  double operand_bytes = 0;
  for (const UOp* side : product->src) {
    const UOp* const operand = UncastOperandOf(side);
    if (MayBeSoftmax(operand)) return {};
    operand_bytes += static_cast<double>(NumbersOf(side) * ByteWidth(operand->dtype));
  }
  const int64_t wanted = std::min(target.multiprocessors / tiles, steps / kPartStepsMin);
  // Partial results are written and read once.
  const auto most = static_cast<int64_t>(operand_bytes / (2.0 * 4 * static_cast<double>(results)));
  const bool copies_boxes = target.arch == "sm_90a";
  Cut best;
  for (const int64_t axis : ReduceOf(reduce).axes()) {
    if (copies_boxes && best.parts > 1) break;
    const int64_t extent = reduce->src[0]->shape[axis].value();
    // Shorter runs of the operands' memory would cost more than idle multiprocessors.
    const int64_t run_min = best.parts > 1 ? kInnerRunMin : 1;
    int64_t parts = std::min({wanted, most, extent / run_min, kPartialsMax});
    while (parts > 1 && extent % parts != 0) --parts;
    if (parts > 1 && AreManyMore(parts, best.parts)) best = {axis, parts, extent / parts};
  }
  return best;
}

// At most so many parts of an axis: whole ones of any, if there are a quarter as many; else of an
// axis that is filled up with zeros.
Cut CutAtMost(const UOp* reduce, int64_t parts_max) {
  const UOp& x = *reduce->src[0];
  Cut whole, filled;
  for (const int64_t axis : ReduceOf(reduce).axes()) {
    const int64_t extent = x.shape[axis].value();
    int64_t parts = std::min(parts_max, extent);
    while (parts > whole.parts && extent % parts != 0) --parts;
    if (parts > whole.parts) whole = {axis, parts, extent / parts};
    parts = std::min(parts_max, extent / 16);
    if (parts > filled.parts && extent <= limits::kDimMax - parts)
      filled = {axis, parts, DivideUp(extent, parts)};
  }
  const bool may_fill = ReduceOf(reduce).op() == Op::kAdd;
  return may_fill && filled.parts > 4 * whole.parts ? filled : whole;
}

// The parts of any other reduction whose blocks do not fill a GPU. `together`: as many like it are
// one launch.
Cut CutForBlocks(const UOp* reduce, const Target& target, int64_t together) {
  constexpr int64_t kFewRows = 32;
  const bool over_rows = IsOverRows(reduce);
  const int64_t results = ElementCount(reduce->shape);
  const int64_t terms = ElementCount(reduce->src[0]->shape) / results;
  const bool may_be_scores = over_rows && ReduceOf(reduce).op() == Op::kMax;
  if (results >= kFewRows && (may_be_scores || MayBeSoftmax(reduce->src[0]))) return {};
  const int64_t blocks = over_rows ? results : DivideUp(results, kBlockColumns);
  if (together * blocks >= kBlocksLeast * target.multiprocessors) return {};
  return CutAtMost(reduce, std::min({kBlocksWanted * target.multiprocessors / blocks,
                                     terms / (over_rows ? kPartRowTermsMin : kPartColumnTermsMin),
                                     kPartialsMax}));
}

// Reductions over many elements of known shapes.
bool IsLarge(const UOp* node) {
  return node->op == Op::kReduce && !ReduceOf(node).axes().empty() &&
         IsStatic(node->src[0]->shape) &&
         static_cast<double>(ElementCount(node->src[0]->shape)) >= kElementsMin;
}

// How many reductions have the shape of a large one that no other large one waits for, such as the
// gradient of a bias, which each layer has: their kernels are one launch (launches/).
class ReductionsTogether {
 public:
  // Of no nodes: each is a launch of its own.
  explicit ReductionsTogether(const std::vector<const UOp*>& order) {
    for (size_t i = order.size(); i-- > 0;) {
      const UOp* const node = order[i];
      if (IsLarge(node) && !awaited_.contains(node)) ++counts_[KeyOf(node)];
      if (IsLarge(node) || awaited_.contains(node))
        awaited_.insert(node->src.begin(), node->src.end());
    }
  }
  int64_t CountOf(const UOp* node) const {
    if (awaited_.contains(node) || counts_.empty()) return 1;
    return counts_.at(KeyOf(node));
  }

 private:
  static std::vector<int64_t> KeyOf(const UOp* node) {
    const ReduceOf reduce(node);
    std::vector<int64_t> key = {static_cast<int64_t>(node->dtype),
                                static_cast<int64_t>(reduce.op())};
    key.insert(key.end(), reduce.axes().begin(), reduce.axes().end());
    key.push_back(-1);
    for (const Dim& dim : node->src[0]->shape) key.push_back(dim.value());
    return key;
  }

  absl::flat_hash_set<const UOp*> awaited_;  // by a large reduction
  std::map<std::vector<int64_t>, int64_t> counts_;
};

// The sum with inputs in the place of its operands, as its kernel reads it if they are in memory;
// nullptr where one of them may be computed in it.
const UOp* SumOfInputs(Graph& g, const UOp* reduce) {
  const UOp* product = reduce->src[0];
  while (IsMovement(product->op) || product->op == Op::kCast) product = product->src[0];
  absl::flat_hash_map<const UOp*, const UOp*> inputs;
  for (const UOp* side : product->src) {
    const UOp* const operand = UncastOperandOf(side);
    if (IsAlu(operand->op) || operand->is_const() || operand->op == Op::kIota) return nullptr;
    const auto [place, fresh] = inputs.try_emplace(operand, nullptr);
    // Of the last slots: what a window's condition reads has others.
    if (fresh)
      place->second = Param(g, limits::kParamSlotMax - static_cast<int64_t>(inputs.size()),
                            operand->dtype, operand->shape);
  }
  return Substitute(g, reduce, inputs);
}

// Whether the kernel of a sum of products divides it nearly as far as `cut` does. As an estimate, a
// second kernel (3 us) takes the time of so many steps.
constexpr int64_t kKernelSteps = 1024;
bool IsDividedByItsKernel(Graph& g, const UOp* reduce, const Cut& cut,
                          const PartsOfSum& parts_of_sum) {
  if (parts_of_sum == nullptr) return false;
  const UOp* const sum = SumOfInputs(g, reduce);
  if (sum == nullptr) return false;
  const int64_t parts = parts_of_sum(sum);
  const int64_t steps = ElementCount(reduce->src[0]->shape) / ElementCount(reduce->shape);
  return parts > 1 && steps / parts - steps / cut.parts <= kKernelSteps;
}

// A decoded token's attention has one row of weights for each head, or a few where heads share
// their values. A block then has the columns of a warp's lanes, and its warps divide the keys:
// there are fewer blocks than multiprocessors, each with all keys. Estimates: 8 warps, each with
// four loads under way that take 0.6 us, read 512 keys in 10 us; one more kernel takes 3 us.
constexpr int64_t kKeysMin = 512, kPartKeysMin = 64;
constexpr int64_t kRowsMax = 8;

// Parts of a sum over keys that so many rows of weights have, with `results` results and `terms`
// products: those that fill a GPU; of a processor as many as make tasks for any number of threads.
// There a row is a task, and of parts a few in registers at once.
constexpr int64_t kPartsOfTask = 4;
int64_t PartsOfKeys(const Target& target, int64_t keys, int64_t rows, int64_t results,
                    int64_t terms) {
  if (target.kind == TargetKind::kCuda)
    return target.multiprocessors / ((results + kBlockColumns - 1) / kBlockColumns);
  const auto wanted = static_cast<int64_t>(target.costs.tasks_wanted);
  if (rows >= wanted / 2 || static_cast<double>(terms) < kElementsMin) return 1;
  const int64_t parts = (kPartsOfTask * wanted + rows - 1) / rows;
  // Whole ones, if there are: then what computes the weights stays one kernel.
  for (int64_t more = parts; more < 2 * parts; ++more)
    if (keys % more == 0) return more;
  return parts;
}

// The parts of the sum over keys of weights times values, for so few rows that their blocks do not
// fill a GPU, or do not keep a processor's threads busy; also of keys that a VAR counts. No parts
// for any other sum.
Cut CutForKeys(const UOp* reduce, const Target& target,
               const absl::flat_hash_set<const UOp*>& scores_of_parts) {
  if ((target.kind != TargetKind::kCuda && target.kind != TargetKind::kCpu) ||
      ReduceOf(reduce).op() != Op::kAdd || !IsFloat(reduce->dtype) ||
      ReduceOf(reduce).axes().size() != 1)
    return {};
  const UOp* product = reduce->src[0];
  for (int64_t i = 0; i < kWalkNodesMax && (IsMovement(product->op) || product->op == Op::kCast);
       ++i)
    product = product->src[0];
  if (product->op != Op::kMul || product->dtype != DType::kF32) return {};
  const int64_t axis = ReduceOf(reduce).axes()[0];
  const int64_t keys = PaddedSize(reduce->src[0]->shape[axis]);
  const int64_t results = PaddedSize(reduce->shape), terms = PaddedSize(reduce->src[0]->shape);
  if (keys < kKeysMin || results == 0 || terms > limits::kVirtualElementsMax / 2) return {};
  for (const int side : {0, 1}) {
    if (!IsSoftmax(product->src[side])) continue;
    const UOp* const exponential = FindIn(product->src[side], IsExponential).node;
    const auto is_of_part = [&](const UOp* node) { return scores_of_parts.contains(node); };
    if (FindIn(exponential->src[0], is_of_part).node != nullptr) continue;
    const UOp* const weights = UncastOperandOf(product->src[side]);
    const UOp* const values = UncastOperandOf(product->src[1 - side]);
    // Each weight is of many columns, each value of few rows. Without columns a block has a result
    // of its own, and rows fill the device.
    if (terms < kSideMin * PaddedSize(weights->shape) ||
        terms > kRowsMax * PaddedSize(values->shape))
      continue;
    const int64_t rows = std::max<int64_t>(1, PaddedSize(weights->shape) / keys);
    const int64_t parts = std::min({PartsOfKeys(target, keys, rows, results, terms),
                                    keys / kPartKeysMin, kPartialsMax});
    if (parts < 2 || keys > limits::kDimMax - parts) return {};
    // On a processor a task reads a run of memory; there are enough of them where few keys are
    // bound.
    return {axis, parts, (keys + parts - 1) / parts,
            /*take_turns=*/target.kind == TargetKind::kCuda};
  }
  return {};
}

// The maxima of a decoded token's scores and the sums of their exponentials are one block's for
// each head, which reads a KiB at a time, four of them under way: 32,768 scores take 20 us, and a
// kernel more takes 3 us.
constexpr int64_t kRowMin = 32768, kPartRowMin = 2048;

// The parts of a maximum, or of a sum of exponentials, over rows so few and long. No parts for any
// other reduction: rows of a length of VARs, or that no number of parts divides, stay whole, since
// a maximum cannot be filled up with zeros.
Cut CutForRows(const UOp* reduce, const Target& target) {
  const UOp& x = *reduce->src[0];
  const ReduceOf view(reduce);
  if (target.kind != TargetKind::kCuda || !IsFloat(reduce->dtype) || view.axes().size() != 1 ||
      !IsStatic(x.shape) || (view.op() != Op::kMax && view.op() != Op::kAdd))
    return {};
  if (view.op() == Op::kAdd && !IsExponential(UncastOperandOf(&x))) return {};
  const int64_t axis = view.axes()[0], length = x.shape[axis].value();
  const int64_t results = ElementCount(reduce->shape);
  // With more rows for each head matrix units compute the whole of it (program/online).
  const bool few_rows = axis == 0 || x.shape[axis - 1].value() <= kRowsMax;
  if (length < kRowMin || results == 0 || !few_rows) return {};
  for (int64_t parts = std::min({target.multiprocessors / results, length / kPartRowMin,
                                 kPartialsMax});
       parts > 1; --parts)
    if (length % parts == 0) return {axis, parts, length / parts};
  return {};
}

absl::StatusOr<const UOp*> Split(Graph& g, const UOp* reduce, const Cut& cut) {
  const UOp* x = reduce->src[0];
  const Op op = ReduceOf(reduce).op();
  if (IsFloat(x->dtype) && ByteWidth(x->dtype) < 4) x = Cast(g, x, DType::kF32);
  OB_ASSIGN_OR_RETURN(const Dim more,
                      SubtractDims(g, Dim(cut.parts * cut.length), x->shape[cut.axis]));
  if (more != Dim(0)) {
    Shape sides(2 * x->rank(), Dim(0));
    sides[2 * cut.axis + 1] = more;
    x = Pad(g, x, sides);
  }
  Shape dims(x->shape.begin(), x->shape.end());
  dims[cut.axis] = Dim(cut.take_turns ? cut.parts : cut.length);
  dims.insert(dims.begin() + cut.axis, Dim(cut.take_turns ? cut.length : cut.parts));
  std::vector<int64_t> inside;  // every reduced axis, in its part; the parts are left
  for (const int64_t axis : ReduceOf(reduce).axes())
    inside.push_back(axis + (cut.take_turns ? axis > cut.axis : axis >= cut.axis));
  const UOp* const partial =
      g.MakeChecked(Op::kContiguous, DType::kVoid, {Reduce(g, op, Reshape(g, x, dims), inside)});
  const UOp* const whole = Reduce(g, op, partial, {cut.axis + cut.take_turns});
  return Cast(g, Reshape(g, whole, reduce->shape), reduce->dtype);
}

}  // namespace

absl::StatusOr<const UOp*> SplitReductions(Graph& graph, const UOp* sink, const Target& target,
                                           const PartsOfSum& parts_of_sum,
                                           const absl::flat_hash_set<const UOp*>& scores_of_parts,
                                           bool shares_launches) {
  // Partial results are wanted for as many tasks; threads that half of them keep busy are enough.
  const auto results_wanted = static_cast<int64_t>(target.costs.tasks_wanted);
  absl::flat_hash_map<const UOp*, const UOp*> made;
  absl::flat_hash_set<const UOp*> parts_now;  // as they are made
  const std::vector<const UOp*> order = PostOrder(sink);
  const bool gpu = target.kind == TargetKind::kCuda && target.multiprocessors > 0;
  const ReductionsTogether together(gpu && shares_launches ? order : std::vector<const UOp*>{});
  for (const UOp* node : order) {
    const UOp*& now = made[node] = WithSourcesBecome(graph, node, made);
    if (scores_of_parts.contains(node)) parts_now.insert(now);
    if (node->op != Op::kReduce || ReduceOf(node).axes().empty()) continue;
    if (const Cut cut = CutForKeys(now, target, parts_now);
        cut.parts > 1 && node->src[0]->rank() < limits::kRankMax) {
      OB_ASSIGN_OR_RETURN(now, Split(graph, now, cut));
      continue;
    }
    if (const Cut cut = CutForRows(now, target);
        cut.parts > 1 && node->src[0]->rank() < limits::kRankMax) {
      OB_ASSIGN_OR_RETURN(now, Split(graph, now, cut));
      continue;
    }
    const int64_t results = PaddedSize(node->shape);
    if (!IsLarge(node) || results == 0) continue;
    const auto elements = static_cast<double>(ElementCount(node->src[0]->shape));
    // An axis more, and a few elements, must be within what a graph may have.
    if (node->src[0]->rank() == limits::kRankMax || elements > limits::kVirtualElementsMax / 2)
      continue;
    const bool has_few_results = !gpu && results < results_wanted / 2;
    const UOp* const product = gpu ? ProductOfMatrices(now) : nullptr;
    const int64_t parts = has_few_results ? (results_wanted + results - 1) / results
                                          : PartsForCache(now, target);
    Cut cut = parts > 1 ? FindCut(now, parts) : Cut{};
    if (gpu && cut.parts == 1 && product != nullptr) {
      cut = CutForTiles(now, product, target);
    } else if (gpu && cut.parts == 1) {
      cut = CutForBlocks(now, target, together.CountOf(node));
      if (cut.parts == 1) continue;
      // What is added at places that data say has parts of its own (gather/scatter.h).
      OB_ASSIGN_OR_RETURN(const int64_t places, ScatterPlaces(graph, now));
      if (places > 0) continue;
    }
    if (cut.parts == 1) continue;
    const bool of_product = product != nullptr || (!has_few_results && parts > 1);
    if (of_product && IsDividedByItsKernel(graph, now, cut, parts_of_sum)) continue;
    OB_ASSIGN_OR_RETURN(const OneHot one_hot, FindOneHot(graph, now));
    if (one_hot.loops_left * static_cast<double>(results) < kElementsMin) continue;
    OB_ASSIGN_OR_RETURN(now, Split(graph, now, cut));
  }
  return made.at(sink);
}

}  // namespace outboard::schedule
