#include "compiler/program/online/plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/optimize/operands/visible.h"
#include "compiler/program/online/ends.h"
#include "compiler/program/online/groups.h"
#include "compiler/proof/in_range.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::program {

using codegen::LoopNest;
using codegen::LoopPlan;
using codegen::Opt;
using codegen::OptKind;
using codegen::RangeSet;
using codegen::ReduceGroup;

namespace {

constexpr int64_t kFragment = 16;
constexpr int64_t kCopyBytes = 16;
constexpr int64_t kWidthMax = 256;  // of a score: more is in no block's memory
constexpr int64_t kUnpackOperationsMax = 32;  // with loads; each is in the code for each piece
constexpr int64_t kPartsMax = 4;    // each computes all scores again
// For addresses, counters, rows' numbers and what an element's expression keeps.
constexpr int64_t kOtherRegisters = 72;
// For two parts of an operand of f32, each, and a sum of products.
constexpr int64_t kSplitRegisters = 72;
constexpr int64_t kGroupsAmount = 10'000'000, kPartsAmount = 100'000'000;

RangeSet Bit(int range) { return RangeSet{1} << range; }

std::vector<int> RangesOf(RangeSet set) {
  std::vector<int> ranges;
  for (; set != 0; set &= set - 1) ranges.push_back(std::countr_zero(set));
  return ranges;
}

bool IsOf8Bits(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

// The number of f32 itself, or what it widens; nullptr for anything else.
const UOp* Unwidened(const UOp* node) {
  if (node->dtype != DType::kF32) return nullptr;
  if (node->op != Op::kCast) return node;
  const DType dtype = node->src[0]->dtype;
  const bool widens = IsFloatOf16(dtype) || IsOf8Bits(dtype);
  return widens ? node->src[0] : nullptr;
}

absl::Status Illegal(const char* why) { return absl::InvalidArgumentError(why); }

class Finder {
 public:
  explicit Finder(LoopNest kernel) : kernel_(plan_.kernel) { plan_.kernel = std::move(kernel); }

  absl::StatusOr<OnlinePlan> Run() {
    const std::vector<const UOp*> panels = codegen::PanelsOf(kernel_, /*ends=*/true);
    if (panels.empty()) return Illegal("no reduction inside of another one");
    plan_.range = codegen::PanelRange(kernel_, panels[0]);
    if (kernel_.parallel_count != kernel_.output_count) return Illegal("a range is a sequence");
    OB_RETURN_IF_ERROR(FindSumsOfScores());
    OB_RETURN_IF_ERROR(CheckEnds());
    OB_RETURN_IF_ERROR(FindSums());
    OB_RETURN_IF_ERROR(CheckRowSums());
    OB_ASSIGN_OR_RETURN(plan_.online,
                        codegen::PhasesOf(kernel_, plan_.range, /*block=*/1, /*rounded=*/true));
    for (const std::vector<size_t>& groups : plan_.online.phases)
      plan_.passes.push_back(PassOf(groups));
    for (const auto* ranges : {&plan_.batch, &plan_.rows, &plan_.columns}) {
      int64_t& count = ranges == &plan_.batch  ? plan_.batches
                       : ranges == &plan_.rows ? plan_.row_count
                                               : plan_.column_count;
      for (const int r : *ranges) count *= Extent(r);
    }
    return std::move(plan_);
  }

 private:
  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  RangeSet Steps() const { return Bit(plan_.range); }

  absl::Status FindSumsOfScores() {
    RangeSet batch = 0, rows = 0;
    std::vector<std::pair<const UOp*, const UOp*>> sides;  // of a score: rows, steps
    for (const ReduceGroup& group : kernel_.groups) {
      if ((group.deps & Steps()) == 0) continue;
      if ((group.deps & ~kernel_.OutputSet()) != Steps()) return Illegal("scores inside of scores");
      for (const UOp* node : group.nodes) {
        const UOp *row = nullptr, *step = nullptr;
        if (ReduceOf(node).op() == Op::kAdd && node->dtype == DType::kF32 &&
            node->src[0]->op == Op::kMul)
          for (const UOp* factor : node->src[0]->src)
            if (const UOp* const value = Unwidened(factor))
              (kernel_.DepsOf(value) & Steps() ? step : row) = value;
        if (row == nullptr || step == nullptr)
          return Illegal("a score is no sum of products of floats of a row and a step");
        batch |= kernel_.DepsOf(step) & kernel_.OutputSet();
        rows |= kernel_.DepsOf(row) & kernel_.OutputSet();
        sides.emplace_back(row, step);
        plan_.scores.push_back({.sum = node});
      }
    }
    OB_RETURN_IF_ERROR(FindType(sides));
    plan_.batch = RangesOf(batch);
    plan_.rows = RangesOf(rows & ~batch);
    plan_.columns = RangesOf(kernel_.OutputSet() & ~rows & ~batch);
    size_t next = 0;
    for (const ReduceGroup& group : kernel_.groups) {
      if ((group.deps & Steps()) == 0) continue;
      for (size_t n = 0; n < group.nodes.size(); ++n, ++next) {
        OnlineScore& score = plan_.scores[next];
        OB_ASSIGN_OR_RETURN(score.rows, Matrix(sides[next].first, true, group.ranges));
        OB_ASSIGN_OR_RETURN(score.steps, Matrix(sides[next].second, false, group.ranges));
        const int64_t terms = plan_.matrices[score.rows].width;
        if (plan_.dtype == DType::kF32 && terms < codegen::kThreeStepsMin)
          return Illegal("a score of f32 has few terms");
      }
    }
    return absl::OkStatus();
  }

  // Of the matrices: what is of 8 bits becomes one of the others' numbers.
  absl::Status FindType(const std::vector<std::pair<const UOp*, const UOp*>>& sides) {
    for (const auto& [row, step] : sides)
      for (const UOp* side : {row, step})
        if (plan_.dtype == DType::kVoid && !IsOf8Bits(side->dtype)) plan_.dtype = side->dtype;
    if (!IsFloat(plan_.dtype) || ByteWidth(plan_.dtype) > 4 || ByteWidth(plan_.dtype) < 2)
      return Illegal("matrices of no type of the matrix unit");
    return absl::OkStatus();
  }

  // Blocks whose rows, or batch, lie beyond an end leave; steps run to theirs.
  absl::Status CheckEnds() const {
    for (const int r : plan_.columns)
      if (kernel_.ranges[r].end() != nullptr) return Illegal("columns end at a VAR");
    return absl::OkStatus();
  }

  absl::Status FindSums() {
    RangeSet of_rows = 0;
    for (const auto* ranges : {&plan_.batch, &plan_.rows})
      for (const int r : *ranges) of_rows |= Bit(r);
    for (const ReduceGroup& group : kernel_.groups) {
      if ((group.deps & Steps()) != 0) continue;
      if (group.ranges != std::vector<int>{plan_.range})
        return Illegal("a reduction over another loop");
      for (const UOp* node : group.nodes) {
        if (node->dtype != DType::kF32) return Illegal("a sum that is not in f32");
        if ((kernel_.DepsOf(node) & ~of_rows) == 0) continue;  // carried for a row
        if (ReduceOf(node).op() != Op::kAdd || node->src[0]->op != Op::kMul)
          return Illegal("a result is no sum of products");
        OnlineProduct product{.sum = node};
        const UOp* matrix = nullptr;
        for (const UOp* factor : node->src[0]->src)
          if (const UOp* const value = Unwidened(factor))
            ((kernel_.DepsOf(value) & ~of_rows & ~Steps()) == 0 ? product.value : matrix) = value;
        if (product.value == nullptr || matrix == nullptr)
          return Illegal("a result is no sum of products of floats of a row and a column");
        if (plan_.dtype == DType::kF32 && Extent(plan_.range) < codegen::kThreeStepsMin)
          return Illegal("a sum of f32 has few terms");
        if (product.value->dtype != plan_.dtype) return Illegal("matrices of two types");
        OB_ASSIGN_OR_RETURN(product.matrix, Matrix(matrix, false, plan_.columns));
        // What lies beyond the end of the steps is not a number, maybe: it is copied one by one
        // where it lies side by side with what counts.
        OnlineMatrix& read = plan_.matrices[product.matrix];
        if (read.across && kernel_.ranges[plan_.range].end() != nullptr) read.run = 1;
        plan_.products.push_back(product);
      }
    }
    return absl::OkStatus();
  }

  // Sums of rows beside the results (compiler/kernel/row_sums.h): of the rows of a fragment, or of
  // several fragments' as a whole.
  absl::Status CheckRowSums() const {
    std::vector<const UOp*> outputs, rows;
    for (int r = 0; r < kernel_.output_count; ++r) outputs.push_back(kernel_.ranges[r].node);
    for (const int r : plan_.rows) rows.push_back(kernel_.ranges[r].node);
    for (const UOp* store : kernel_.stores) {
      if (!SumsPoints(store)) continue;
      OB_ASSIGN_OR_RETURN(std::vector<const UOp*> summed, codegen::SummedRows(store, outputs));
      const size_t both = std::min(summed.size(), rows.size());
      int64_t inner = 1;
      for (size_t i = 0; i < both; ++i) {
        if (summed[summed.size() - 1 - i] != rows[rows.size() - 1 - i])
          return Illegal("a sum beside the results is not of their rows");
        inner *= RangeOf(rows[rows.size() - 1 - i]).extent();
      }
      if (rows.empty() || (summed.size() != rows.size() && inner % kSumRows != 0))
        return Illegal("a block of a sum beside the results has other rows than a fragment");
      int64_t columns = 1;
      for (const int r : plan_.columns) columns *= Extent(r);
      if (columns % 2 != 0) return Illegal("a sum beside an odd number of columns");
    }
    return absl::OkStatus();
  }

  OnlinePass PassOf(const std::vector<size_t>& groups) const {
    OnlinePass pass;
    const auto add = [](std::vector<size_t>& to, size_t number) {
      if (std::find(to.begin(), to.end(), number) == to.end()) to.push_back(number);
    };
    std::vector<const UOp*> stack;
    absl::flat_hash_set<const UOp*> seen;
    for (const size_t g : groups)
      for (const UOp* node : kernel_.groups[g].nodes) {
        stack.push_back(node->src[0]);
        if (const OnlineProduct* const product = plan_.ProductOf(node))
          add(pass.matrices, product->matrix);
      }
    while (!stack.empty()) {
      const UOp* const node = stack.back();
      stack.pop_back();
      if (!seen.insert(node).second) continue;
      if (node->op != Op::kReduceLoop) {
        stack.insert(stack.end(), node->src.begin(), node->src.end());
        continue;
      }
      // Those over the steps are carried.
      for (size_t s = 0; s < plan_.scores.size(); ++s)
        if (plan_.scores[s].sum == node) {
          add(pass.scores, s);
          add(pass.matrices, plan_.scores[s].steps);
        }
    }
    std::sort(pass.scores.begin(), pass.scores.end());
    std::sort(pass.matrices.begin(), pass.matrices.end());
    return pass;
  }

  // The longest run of these: loads with shorter ones are taken apart, by their own alignment.
  int64_t RunAlong(const std::vector<const UOp*>& loads, int range) {
    int64_t run = 1;
    for (const UOp* load : loads) run = std::max(run, RunAlong(load, range));
    return run;
  }

  // How many elements lie side by side along this range, from each multiple on.
  int64_t RunAlong(const UOp* load, int range) {
    const codegen::Affine& index = forms_.Of(load->src[0]->src[1]);
    const UOp* const node = kernel_.ranges[range].node;
    if (index.CoefficientOf(node) != 1) return 1;
    if (load->src.size() == 3 && (kernel_.DepsOf(load->src[1]) & Bit(range))) return 1;
    uint64_t all = index.constant | static_cast<uint64_t>(Extent(range));
    for (const auto& [term, coefficient] : index.terms) {
      if (term == node) continue;
      if (kernel_.DepsOf(term) & Bit(range)) return 1;
      all |= coefficient;
    }
    auto run = kCopyBytes / ByteWidth(load->dtype);
    while (all % static_cast<uint64_t>(run) != 0) run /= 2;
    return run;
  }

  // The loads that a value is unpacked from; none if it is computed by more than a few operations.
  static std::vector<const UOp*> LoadsOf(const UOp* value) {
    // Also where it decides a position or a condition: scores are not there yet.
    for (const UOp* node : PostOrder(value))
      if (node->op == Op::kReduceLoop) return {};
    std::vector<const UOp*> loads;
    int64_t operations = 0;
    std::vector<const UOp*> open = {value};
    absl::flat_hash_set<const UOp*> seen;
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (!seen.insert(node).second) continue;
      if (++operations > kUnpackOperationsMax) return {};
      if (node->op == Op::kLoad)
        loads.push_back(node);
      else if (node->dtype != DType::kI64)  // not what is made of positions
        open.insert(open.end(), node->src.begin(), node->src.end());
    }
    return loads;
  }

  // Returns the number of the matrix that `value` is. One that scores and results read is one.
  absl::StatusOr<size_t> Matrix(const UOp* value, bool of_rows, const std::vector<int>& other) {
    const bool copied = value->op == Op::kLoad && !IsOf8Bits(value->dtype) &&
                        (value->src.size() == 1 || IsZero(value->src[2]));
    const std::vector<const UOp*> loads = LoadsOf(value);
    if (loads.empty()) return Illegal("a matrix is computed, not unpacked");
    RangeSet allowed = 0;
    for (const std::vector<int>* ranges : {&std::as_const(plan_.batch), &other})
      for (const int r : *ranges) allowed |= Bit(r);
    if (of_rows)
      for (const int r : plan_.rows) allowed |= Bit(r);
    else
      allowed |= Steps();
    if (kernel_.DepsOf(value) & ~allowed) return Illegal("a matrix depends on more");
    if (other.empty()) return Illegal("a matrix has one column");
    if (value->dtype != plan_.dtype && !IsOf8Bits(value->dtype))
      return Illegal("matrices of two types");
    OnlineMatrix made{
        .value = value, .load = copied ? value : nullptr, .of_rows = of_rows, .other = other};
    for (const int r : other) made.width *= Extent(r);
    if (made.width > kWidthMax) return Illegal("rows are too wide");
    for (size_t i = 0; i < plan_.matrices.size(); ++i)
      if (IsSame(plan_.matrices[i], made)) return i;
    int64_t along = RunAlong(loads, other.back());
    int64_t own_run = 1;
    if (!of_rows || !plan_.rows.empty())
      own_run = RunAlong(loads, of_rows ? plan_.rows.back() : plan_.range);
    made.across = own_run > along;
    made.run = std::min(std::max(along, own_run), kCopyBytes / ByteWidth(plan_.dtype));
    plan_.matrices.push_back(std::move(made));
    return plan_.matrices.size() - 1;
  }

  bool IsSame(const OnlineMatrix& a, const OnlineMatrix& b) {
    if (a.of_rows != b.of_rows || a.width != b.width) return false;
    if (a.value == b.value) return true;
    if (a.load == nullptr || b.load == nullptr) return false;
    if (a.other.size() != 1 || b.other.size() != 1) return false;
    const UOp* const moved =
        Substitute(*kernel_.graph, b.load->src[0]->src[1],
                   {{kernel_.ranges[b.other[0]].node, kernel_.ranges[a.other[0]].node}});
    const codegen::Affine form = forms_.Of(moved);
    const codegen::Affine& other = forms_.Of(a.load->src[0]->src[1]);
    return a.load->src.size() == 1 && b.load->src.size() == 1 &&
           GlobalOfAccess(a.load).slot() == GlobalOfAccess(b.load).slot() &&
           form.constant == other.constant && form.terms == other.terms;
  }

  OnlinePlan plan_;
  const LoopNest& kernel_;
  codegen::AffineForms forms_;
};

constexpr OnlineTile kCandidates[] = {
    {4, 1, 64, 2}, {4, 1, 32, 2}, {2, 1, 64, 2}, {2, 1, 32, 2}, {4, 1, 16, 2},
    {4, 1, 16, 1}, {2, 1, 16, 2}, {1, 1, 32, 2}, {1, 1, 16, 2}, {1, 1, 16, 1},
};
// With few rows more warps would have none.
constexpr OnlineTile kFewRows = {1, 1, 64, 2};

absl::StatusOr<OnlinePlan> FindIn(Graph& graph, const LoopNest& kernel, int range) {
  OB_ASSIGN_OR_RETURN(LoopNest without, codegen::AnalyzeKernel(codegen::WithoutFactors(
                                            graph, kernel, range, /*rounded=*/true)));
  return Finder(std::move(without)).Run();
}

// By warpgroups, where rows fill a tile.
constexpr OnlineTile kGroupCandidates[] = {{8, 1, 128, 2, true}, {8, 1, 64, 2, true},
                                           {4, 1, 128, 2, true}, {4, 1, 64, 2, true},
                                           {8, 1, 32, 2, true},  {4, 1, 32, 2, true}};

int64_t SharedBytesOf(const OnlinePlan& plan, const OnlineTile& tile) {
  // One number of each warp says whether a guard fails.
  int64_t bytes = plan.visible.guards.empty() ? 0 : tile.warps * ByteWidth(DType::kF32);
  for (const OnlineMatrix& matrix : plan.matrices)
    bytes += OnlinePadded(matrix.width) *
             (matrix.of_rows ? tile.rows() : tile.stages * tile.steps) * ByteWidth(plan.dtype);
  return bytes;
}

// With the sums of all passes: those that are stored before the last one make room for what the
// compiler keeps besides.
int64_t RegistersOf(const OnlinePlan& plan, const OnlineTile& tile) {
  int64_t sums = 0;
  for (const OnlineProduct& product : plan.products)
    sums += OnlinePadded(plan.matrices[product.matrix].width) / 2 / tile.parts;
  const auto scores = static_cast<int64_t>(plan.scores.size());
  const bool splits = plan.dtype == DType::kF32;
  return tile.fragments * (sums + (scores + (splits ? 2 : 1)) * tile.steps / 2) +
         (splits ? kSplitRegisters : 0) + kOtherRegisters;
}

absl::Status CheckOnlineTile(const OnlinePlan& plan, const OnlineTile& tile,
                             const Target& target) {
  const auto is_power = [](int64_t n) { return n > 0 && std::has_single_bit(uint64_t(n)); };
  if (tile.parts < 1 || tile.parts > kPartsMax ||
      (tile.parts > 1 && plan.column_count % (kFragment * tile.parts) != 0))
    return Illegal("ONLINE: parts of columns are up to 4, of a multiple of 16");
  if (plan.dtype == DType::kF32 && !codegen::ThreeProductsPay(target))
    return Illegal("ONLINE: three products of TF32 take more time than threads");
  if (tile.groups) return CheckOnlineGroups(plan, tile, target);
  if (!is_power(tile.warps) || !is_power(tile.fragments) || tile.fragments > 2)
    return Illegal("ONLINE: a block has 1, 2, 4 or 8 warps, and a warp 16 or 32 rows");
  if (tile.steps < kFragment || tile.steps > 128 || tile.steps % kFragment != 0)
    return Illegal("ONLINE: steps are a multiple of 16 up to 128");
  if (tile.stages < 1 || tile.stages > 2) return Illegal("ONLINE: 1 or 2 stages");
  const auto room = [](const char* what, int64_t need, int64_t limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ONLINE: ", need, " ", what, " of a block; the target has ", limit));
  };
  if (tile.threads() > target.block_threads)
    return room("threads", tile.threads(), target.block_threads);
  const int64_t bytes = SharedBytesOf(plan, tile), bytes_max = target.half_of_block_bytes();
  if (bytes > bytes_max) return room("bytes of shared memory", bytes, bytes_max);
  const int64_t registers = RegistersOf(plan, tile);
  if (registers > kCudaThreadRegistersMax)
    return absl::ResourceExhaustedError(absl::StrCat("ONLINE: about ", registers,
                                                     " registers of a thread; the target has ",
                                                     kCudaThreadRegistersMax));
  if (registers * tile.threads() > kCudaRegisters)
    return room("registers", registers * tile.threads(), kCudaRegisters);
  return absl::OkStatus();
}

// The first that fits and has a block for each multiprocessor, else the one with the most blocks.
std::optional<OnlineTile> ChooseTile(const OnlinePlan& plan, const Target& target) {
  std::optional<OnlineTile> best;
  int64_t most = 0;
  const auto is_enough = [&](const OnlineTile& tile) {
    if (!CheckOnlineTile(plan, tile, target).ok()) return false;
    const int64_t blocks = plan.batches * DivideUp(plan.row_count, tile.rows()) * tile.parts;
    if (best && blocks <= most) return false;
    best = tile;
    most = blocks;
    return blocks >= target.multiprocessors;
  };
  const int64_t steps = plan.kernel.ranges[plan.range].extent;
  // In more parts only where fewer have no room: each computes all scores.
  for (int64_t parts = 1; parts <= kPartsMax && !best; ++parts) {
    for (OnlineTile tile : kGroupCandidates) {
      tile.parts = parts;
      if (plan.row_count >= tile.rows() && steps >= tile.steps && is_enough(tile)) return best;
    }
    if (OnlineTile tile = kFewRows; plan.row_count <= tile.rows()) {
      tile.parts = parts;
      if (CheckOnlineTile(plan, tile, target).ok()) return tile;
    }
    for (OnlineTile tile : kCandidates) {
      tile.parts = parts;
      if (is_enough(tile)) return best;
    }
  }
  return best;
}

// What masks leave visible of the steps, for the rows of a tile.
codegen::VisibleSteps VisibleOf(const OnlinePlan& plan) {
  LoopPlan loops = codegen::PlainPlan(plan.kernel);
  for (const UOp* value : codegen::PanelsOf(plan.kernel, /*ends=*/true))
    loops.panels.push_back(
        {value, codegen::PlainTile(plan.range, plan.kernel.ranges[plan.range].extent)});
  loops.online = plan.online;
  codegen::VisibleSteps visible =
      codegen::VisibleStepsOf(plan.kernel, loops, codegen::VarsOfSteps::kMayHide);
  const auto known = [&](const std::vector<codegen::RowForm>& forms) {
    return std::all_of(forms.begin(), forms.end(), [&](const codegen::RowForm& form) {
      return std::all_of(form.terms.begin(), form.terms.end(), [&](const auto& term) {
        return plan.rows.size() == 1 || !std::count(plan.rows.begin(), plan.rows.end(), term.first);
      });
    });
  };
  if (!known(visible.first) || !known(visible.last)) return {};
  // Guards are looked up once for a block: for each step, or for each of its rows.
  RangeSet of_steps = Bit(plan.range), of_rows = 0;
  for (const int r : plan.batch) of_steps |= Bit(r);
  for (const auto* ranges : {&plan.batch, &plan.rows})
    for (const int r : *ranges) of_rows |= Bit(r);
  for (const UOp* guard : visible.guards)
    if (const RangeSet of_guard = plan.RangesIn(guard);
        (of_guard & ~of_steps) != 0 && (of_guard & ~of_rows) != 0)
      return {};
  return visible;
}

}  // namespace

RangeSet OnlinePlan::RangesIn(const UOp* value) const {
  RangeSet ranges = 0;
  for (const UOp* node : PostOrder(value))
    if (node->op == Op::kRange) ranges |= Bit(kernel.IndexOf(node));
  return ranges;
}

const OnlineProduct* OnlinePlan::ProductOf(const UOp* sum) const {
  const auto found = std::find_if(products.begin(), products.end(),
                                  [&](const OnlineProduct& p) { return p.sum == sum; });
  return found == products.end() ? nullptr : &*found;
}

std::vector<const OnlineProduct*> OnlinePlan::ProductsOf(size_t pass) const {
  std::vector<const OnlineProduct*> of_pass;
  for (const size_t g : online.phases[pass])
    for (const UOp* node : kernel.groups[g].nodes)
      if (const OnlineProduct* const product = ProductOf(node)) of_pass.push_back(product);
  return of_pass;
}

size_t OnlinePlan::PassOf(const UOp* store) const {
  // What may lie over an input is stored when nothing reads that input any more.
  const int64_t slot = GlobalOfAccess(store->src[0]).slot();
  for (const UOp* node : kernel.nodes)
    if (node->op == Op::kLoad && GlobalOfAccess(node).slot() == slot)
      return online.phases.size() - 1;
  const std::vector<const UOp*> nodes = PostOrder(store);
  const absl::flat_hash_set<const UOp*> needed(nodes.begin(), nodes.end());
  size_t last = 0;
  for (size_t pass = 0; pass < online.phases.size(); ++pass)
    for (const size_t g : online.phases[pass])
      for (const UOp* node : kernel.groups[g].nodes)
        if (needed.contains(node)) last = pass;
  return last;
}

bool ComputesSumsOfOnline(const UOp* kernel, const Target& target) {
  Graph guards;
  const absl::StatusOr<const UOp*> guarded = proof::GuardUnproved(guards, kernel);
  if (!guarded.ok()) return false;
  const absl::StatusOr<LoopNest> nest = codegen::AnalyzeKernel(*guarded);
  if (!nest.ok()) return false;
  const auto plan = PlanOnline(*nest, target, /*opts=*/nullptr);
  return plan.ok() && plan->has_value();
}

bool ComputesScores(const UOp* kernel, const Target& target) {
  // A REDUCE_LOOP whose ranges are not those that another one above it has.
  absl::flat_hash_set<const UOp*> inside;
  bool nested = false;
  for (const UOp* node : PostOrder(kernel)) {
    bool below = node->op == Op::kReduceLoop;
    for (const UOp* s : node->src) {
      if (!inside.contains(s)) continue;
      below = true;
      nested = nested || node->op == Op::kReduceLoop;
    }
    if (below) inside.insert(node);
  }
  if (!nested) return true;
  Graph guards;
  const absl::StatusOr<const UOp*> guarded = proof::GuardUnproved(guards, kernel);
  if (!guarded.ok()) return false;
  const absl::StatusOr<LoopNest> nest = codegen::AnalyzeKernel(*guarded);
  if (!nest.ok() || codegen::PanelsOf(*nest, /*ends=*/true).empty()) return nest.ok();
  const auto plan = PlanOnline(*nest, target, /*opts=*/nullptr);
  return plan.ok() && plan->has_value();
}

int64_t OnlineAmount(const OnlineTile& tile) {
  return ((tile.warps * 1000 + tile.steps) * 10 + tile.fragments) * 10 + tile.stages +
         (tile.groups ? kGroupsAmount : 0) + (tile.parts - 1) * kPartsAmount;
}

OnlineTile OnlineTileOf(int64_t amount) {
  const int64_t parts = amount / kPartsAmount + 1;
  amount %= kPartsAmount;
  const bool groups = amount >= kGroupsAmount;
  if (groups) amount -= kGroupsAmount;
  return {amount / 100000, amount / 10 % 10, amount / 100 % 1000, amount % 10, groups, parts};
}

absl::StatusOr<std::optional<OnlinePlan>> PlanOnline(const LoopNest& kernel,
                                                     const Target& target,
                                                     const std::vector<Opt>* opts) {
  if (target.kind != TargetKind::kCuda) return std::nullopt;
  const bool asked = opts != nullptr && opts->size() == 1 && (*opts)[0].kind == OptKind::kOnline;
  if (opts != nullptr && !asked) return std::nullopt;
  const auto found = [&]() -> absl::StatusOr<OnlinePlan> {
    const std::vector<const UOp*> panels = codegen::PanelsOf(kernel, /*ends=*/true);
    if (kernel.empty || panels.empty()) return Illegal("ONLINE: no reduction inside of another");
    const int range = codegen::PanelRange(kernel, panels[0]);
    Graph graph;
    const UOp* const without = kernel.ranges[range].end() == nullptr
                                   ? WithoutGatesOfRows(graph, kernel, range)
                                   : WithoutEndOfSteps(graph, kernel, range);
    if (without == nullptr) return FindIn(graph, kernel, range);
    OB_ASSIGN_OR_RETURN(const LoopNest ungated, codegen::AnalyzeKernel(without));
    const std::vector<const UOp*> again = codegen::PanelsOf(ungated, /*ends=*/true);
    if (again.empty()) return Illegal("ONLINE: no reduction inside of another");
    return FindIn(graph, ungated, codegen::PanelRange(ungated, again[0]));
  };
  absl::StatusOr<OnlinePlan> plan = found();
  if (!plan.ok()) {
    if (asked) return plan.status();
    return std::nullopt;
  }
  plan->visible = VisibleOf(*plan);
  if (asked) {
    plan->tile = OnlineTileOf((*opts)[0].amount);
    OB_RETURN_IF_ERROR(CheckOnlineTile(*plan, plan->tile, target));
  } else {
    const std::optional<OnlineTile> tile = ChooseTile(*plan, target);
    if (!tile) return std::nullopt;
    plan->tile = *tile;
  }
  plan->online.block = plan->tile.steps;
  if (plan->visible.range >= 0) plan->visible.multiple = plan->tile.steps;
  return std::optional<OnlinePlan>(*std::move(plan));
}

}  // namespace outboard::program
