// Products of bf16 (matrix_unit_opts.h) and kernels with panels (panel_opts.h) have choosers of
// their own. For all others: first the range to vectorise, the one that costs least over all parts
// of the kernel. Then, for the part with the most work, the register tile: how much of two output
// ranges (and how many vectors) is held in registers at once, so that loaded values are reused. An
// operand that is read many times, and is large or whose lanes are not adjacent in memory, is
// copied in blocks that stay in a cache. Last, tasks.
#include "compiler/optimize/heuristics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/access_profile.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/cost.h"
#include "compiler/optimize/flatten.h"
#include "compiler/optimize/limits.h"
#include "compiler/optimize/loop_cost.h"
#include "compiler/optimize/loop_order.h"
#include "compiler/optimize/operands/matrix_unit_opts.h"
#include "compiler/optimize/operands/panel_opts.h"
#include "compiler/optimize/operands/staging.h"
#include "compiler/optimize/register_tile.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/optimize/threads/thread_opts.h"

namespace outboard::codegen {
namespace {

using optimize::RegisterTile;

constexpr double kCodeMax = 1600;  // operations written out in one tile, so that LLVM stays quick

// Copies. An operand whose lanes are neighbours and that stays in the second cache is read from
// where it is. Of one that is copied, as much at once as stays there (copy_bytes_max_), half of it
// where tiles are not larger.
constexpr double kCopyReuseLeast = 64;           // reads of each element
constexpr double kCopyRowBytesLeast = 512;       // between steps of a reduction: no line is reused
constexpr int64_t kCopyRowsWanted = 256;         // that use a copy, so that it costs little
constexpr int64_t kCopyPickedRowsWanted = 1024;  // where it is made element by element
constexpr int64_t kCopyRowsLeast = 64;
constexpr int64_t kCopyTasksWanted = 32;
constexpr int64_t kFarRowsWanted = 48;  // of an operand of rows, copied at once: three cache lines

class Chooser {
 public:
  Chooser(const LoopNest& kernel, const Target& target, double code_price)
      : kernel_(kernel),
        target_(target),
        costs_(target.costs),
        code_price_(code_price),
        copy_bytes_max_(static_cast<double>(
            std::min(optimize::ReusedBytesMax(target), limits::kLocalBytesMax / 2))),
        loop_cost_(kernel, target) {}

  std::vector<Opt> Run() {
    FindMain();
    if (CopyUnpacked()) return opts_;
    if (const std::optional<RangeSet> rows = RowsInPlace(kernel_)) {
      copyable_.clear();  // no copies, no other order of loops
      ChooseTiles();
      if (*rows != 0) ChooseTasks();
      return opts_;
    }
    ChooseTiles();
    if (CopyOperands()) return opts_;
    // The tiles counted on copies that cannot be made for them: again, by what loads cost where
    // they are.
    copyable_.clear();
    ChooseTiles();
    if (!CopyFarRows()) ChooseTasks();
    return opts_;
  }

  // The range in the lanes of the reduction with most points; -1 where there is none, or it has
  // nothing in its lanes.
  int LanesOfMain() const {
    double most = 0;
    int lanes = -1;
    for (size_t g = 0; g < kernel_.groups.size(); ++g) {
      if (body(g).points <= most) continue;
      most = body(g).points;
      lanes = group_lanes_[g] >= 0                ? group_lanes_[g]
              : In(body(g).ranges, output_lanes_) ? output_lanes_
                                                  : -1;
    }
    return lanes;
  }

 private:
  void ChooseTiles() {
    opts_.clear();
    counts_.assign(kernel_.output_count, 1);
    tile_rows_ = 0;
    ChooseLanes();
    if (output_lanes_ >= 0) Add(OptKind::kVector, output_lanes_, LanesFor(output_lanes_));
    ChooseTile();
    int axis = kernel_.output_count;
    for (size_t g = 0; g < kernel_.groups.size(); ++g) {
      PlanGroup(g, axis);
      axis += static_cast<int>(kernel_.groups[g].ranges.size());
    }
  }

  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  void Add(OptKind kind, int64_t axis, int64_t amount) { opts_.push_back({kind, axis, amount}); }
  // Values of a range, or vectors of the one in lanes.
  int64_t VectorsOf(int range) const {
    const int64_t lanes = range == output_lanes_ ? LanesFor(range) : 1;
    return (Extent(range) + lanes - 1) / lanes;
  }
  // Keeps `count` values, or vectors, of an output range in registers.
  void Upcast(int range, int64_t count) {
    counts_[range] = std::min(count, VectorsOf(range));
    if (counts_[range] > 1) Add(OptKind::kUpcast, range, counts_[range]);
  }
  static bool In(RangeSet set, int range) { return range >= 0 && (set >> range & 1); }
  const Body& body(size_t group) const { return loop_cost_.bodies()[group]; }
  const Body& stores() const { return loop_cost_.bodies().back(); }
  int LanesFor(int range) const { return loop_cost_.LanesFor(range); }
  double Points(RangeSet ranges) const { return loop_cost_.Points(ranges); }
  int64_t ConstantStride(const Access& access, int v) {
    return loop_cost_.ConstantStride(access, v);
  }
  int64_t WholeRows(int v) const { return loop_cost_.WholeRows(v); }

  double AccessCost(const Access& access, int v) {
    return Copied(access, v) ? loop_cost_.CopiedAccessCost(access, v)
                             : loop_cost_.AccessCost(access, v);
  }

  // ---- copies of operands

  // Copies what the main reduction unpacks, where many rows read it; false where it does not, or
  // other values have to be computed where their place is.
  bool CopyUnpacked() {
    if (main_ == kernel_.groups.size() || RowsInPlace(kernel_) || UnpackedOf(kernel_).empty())
      return false;
    const size_t loads = copyable_.size();
    std::vector<Body> before = loop_cost_.CountUnpackedAsAccesses();
    for (const Access& access : body(main_).accesses)
      if (access.operations > 0 && PaysToCopy(access)) copyable_.push_back(access.node);
    if (copyable_.size() > loads) ChooseTiles();
    if (copyable_.size() > loads && CopyOperands()) return true;
    loop_cost_.Restore(std::move(before));
    copyable_.resize(loads);
    return false;
  }

  // The reduction with the most work; groups.size() where there is none.
  void FindMain() {
    main_ = kernel_.groups.size();
    double most = 0;
    for (size_t g = 0; g < kernel_.groups.size(); ++g)
      if (const double work = body(g).points * static_cast<double>(body(g).ops.size());
          work > most && !kernel_.IsNested(kernel_.groups[g]))
        most = work, main_ = g;
    if (main_ == kernel_.groups.size()) return;
    for (const Access& access : body(main_).accesses)
      if (PaysToCopy(access)) copyable_.push_back(access.node);
  }

  // Bytes of what a vector, or one value, of output ranges needs for the whole reduction.
  double ColumnBytes(const Access& access) const {
    return Points(access.deps & ~kernel_.OutputSet()) * std::max(4, ByteWidth(access.node->dtype));
  }

  bool PaysToCopy(const Access& access) {
    if (access.store || !CanStage(kernel_, access.node).ok()) return false;
    const auto elements =
        static_cast<double>(kernel_.slot_elements[GlobalOfAccess(access.index).slot()]);
    // A window would be copied once for each place that it is seen from.
    if (access.operations == 0 && Points(access.deps) > elements) return false;
    if (Points(kernel_.OutputSet() & ~access.deps) < kCopyReuseLeast) return false;
    return ColumnBytes(access) * loop_cost_.lanes() <= copy_bytes_max_;
  }

  // Whether the load is copied where `v` is in lanes: where what is next in memory is not what is
  // read next.
  bool Copied(const Access& access, int v) {
    if (v < 0 || v >= kernel_.output_count || !In(access.deps, v)) return false;
    if (std::find(copyable_.begin(), copyable_.end(), access.node) == copyable_.end()) return false;
    if (access.operations > 0 || ConstantStride(access, v) != 1) return true;
    const double bytes = ByteWidth(access.node->dtype);
    if (Points(access.deps) * bytes <= copy_bytes_max_) return false;
    const int inner = kernel_.groups[main_].ranges.back();
    return In(access.deps, inner) &&
           std::abs(static_cast<double>(ConstantStride(access, inner))) * bytes >=
               kCopyRowBytesLeast;
  }

  // Bytes of the copies for `vectors` vectors of `v`, the least that are made at once.
  double CopyBytes(int v, int64_t vectors) {
    double column = 0;
    for (const Access& access : body(main_).accesses)
      if (Copied(access, v)) column += ColumnBytes(access);
    return column * static_cast<double>(vectors * LanesFor(v));
  }

  // The first range of which blocks are handed out: one that no copy depends on; -1 where there is
  // none.
  int BlockedRows(RangeSet deps) const {
    for (int i = 0; i < kernel_.parallel_count; ++i)
      if (!In(deps, i) && Extent(i) > 1) return i;
    return -1;
  }

  // Blocks, tasks and copies for the tile; false where nothing is to be copied.
  bool CopyOperands() {
    const int v = output_lanes_;
    if (v < 0 || tile_rows_ == 0) return false;
    std::vector<const Access*> copied;
    double column = 0;
    RangeSet deps = 0;
    bool picked = false;
    for (const Access& access : body(main_).accesses)
      if (Copied(access, v)) {
        copied.push_back(&access);
        column += ColumnBytes(access);
        deps |= access.deps;
        picked = picked || (ConstantStride(access, v) != 1 &&
                            SquaresAlong(kernel_, access.node, LanesFor(v)) < 0);
      }
    if (copied.empty() || (deps & tile_rows_) != 0) return false;
    const int r = BlockedRows(deps);
    if (r < 0) return false;
    const auto blocks = [&](int range, int64_t size) { return (Extent(range) + size - 1) / size; };
    const double tasks = Points(deps & kernel_.OutputSet() & ~(RangeSet{1} << v));
    const double row = Points(kernel_.OutputSet() & ~deps) / static_cast<double>(Extent(r));
    const auto rows_for = [&](int64_t wanted) {
      const auto size = static_cast<int64_t>(std::ceil(static_cast<double>(wanted) / row));
      return (size + counts_[r] - 1) / counts_[r] * counts_[r];
    };
    const int64_t width = counts_[v] * LanesFor(v);
    if (CopyBytes(v, counts_[v]) > copy_bytes_max_) return false;
    int64_t rows = (Extent(r) + counts_[r] - 1) / counts_[r] * counts_[r],
            columns =
                std::max<int64_t>(1, static_cast<int64_t>(copy_bytes_max_ / 2 / column) / width) *
                width;
    const auto few = [&] {
      return tasks * static_cast<double>(blocks(r, rows) * blocks(v, columns)) < kCopyTasksWanted;
    };
    // More tasks by fewer rows that share a copy, down to where the copy is felt; then by copies of
    // fewer columns.
    const auto halve_rows = [&](int64_t least) {
      while (few() && rows > least)
        rows = std::max(least, (rows / 2 + counts_[r] - 1) / counts_[r] * counts_[r]);
    };
    halve_rows(rows_for(picked ? kCopyPickedRowsWanted : kCopyRowsWanted));
    while (few() && columns > width) columns = std::max<int64_t>(1, columns / width / 2) * width;
    halve_rows(rows_for(kCopyRowsLeast));

    const int64_t level = AddLoopsAroundCopies(kernel_, deps, {{v, columns}, {r, rows}}, v, opts_);
    const std::vector<const UOp*> loads = CopyableOf(kernel_);
    for (const Access* access : copied)
      Add(OptKind::kLocal, std::find(loads.begin(), loads.end(), access->node) - loads.begin(),
          level);
    return true;
  }

  // Whether the steps of the main reduction are so far from each other in memory that the lines
  // which they touch share a few sets of the second cache, and drive each other out: a stride of
  // 4 KiB leaves one line of that many bytes a place.
  bool IsFar(const Access& access) {
    const int inner = kernel_.groups[main_].ranges.back();
    if (!In(access.deps, inner)) return false;
    const auto stride = static_cast<uint64_t>(std::abs(ConstantStride(access, inner)) *
                                              ByteWidth(access.node->dtype));
    const uint64_t apart = stride & -stride;
    return apart >= kCopyRowBytesLeast &&
           Points(access.deps & ~kernel_.OutputSet()) * static_cast<double>(apart) >
               static_cast<double>(optimize::ReusedBytesMax(target_));
  }

  // Copies operands of rows whose steps are far apart, for a block of rows at a time; false where
  // there is none. Each line is then read once, by the copy.
  bool CopyFarRows() {
    const int v = output_lanes_;
    if (main_ == kernel_.groups.size() || !In(body(main_).ranges, v)) return false;
    const RangeSet outputs = kernel_.OutputSet();
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    std::vector<Opt> copies;
    int r = -1;
    double column = 0;
    for (const Access& access : body(main_).accesses) {
      const RangeSet rows = access.deps & outputs;
      if (access.store || std::popcount(rows) != 1 || !In(tile_rows_, std::countr_zero(rows)) ||
          !IsFar(access) || !CanStage(kernel_, access.node).ok())
        continue;
      const int range = std::countr_zero(rows);
      // Tiles that read a row again.
      const double reuse = Points(outputs & ~rows) / static_cast<double>(counts_[v] * LanesFor(v));
      if (reuse < 2 || (r >= 0 && range != r)) continue;
      r = range;
      column += ColumnBytes(access);
      copies.push_back({OptKind::kLocal,
                        std::find(loads.begin(), loads.end(), access.node) - loads.begin(), 1});
    }
    // A task is a block of rows, in which no group may be computed for all of them.
    if (r < 0 || std::any_of(kernel_.groups.begin(), kernel_.groups.end(),
                             [&](const ReduceGroup& group) { return !In(group.deps, r); }))
      return false;
    int64_t rows = kFarRowsWanted / counts_[r] * counts_[r];
    const auto halve = [&] { rows = std::max(counts_[r], rows / 2 / counts_[r] * counts_[r]); };
    if (rows >= Extent(r)) return false;
    while (rows > counts_[r] && column * static_cast<double>(rows) > copy_bytes_max_ / 2) halve();
    if (column * static_cast<double>(rows) > copy_bytes_max_) return false;
    if ((Extent(r) + rows - 1) / rows < kCopyTasksWanted / 2) halve();
    Add(OptKind::kBlock, r, rows);
    Add(OptKind::kThread, 0, 1);
    opts_.insert(opts_.end(), copies.begin(), copies.end());
    return true;
  }

  // Instructions of a body with `v` in lanes (-1: none).
  double BodyCost(const Body& b, int v) {
    double steps = b.points, lanes = 1;
    if (In(b.ranges, v)) {
      lanes = LanesFor(v);
      steps *= std::ceil(static_cast<double>(Extent(v)) / lanes) / static_cast<double>(Extent(v));
    } else {
      v = -1;
    }
    double cost = static_cast<double>(b.ops.size());
    for (const Access& access : b.accesses) cost += AccessCost(access, v);
    for (const RangeSet deps : b.slow_ops) cost += costs_.library_call * (In(deps, v) ? lanes : 1);
    return steps * cost;
  }

  // A group with one of its own ranges in lanes pays for folding them, once a result.
  double GroupCost(size_t g, int v) {
    double cost = BodyCost(body(g), v);
    if (v >= kernel_.output_count) {
      double results = static_cast<double>(kernel_.groups[g].nodes.size());
      for (int i = 0; i < kernel_.output_count; ++i)
        if (In(kernel_.groups[g].deps, i)) results *= static_cast<double>(Extent(i));
      cost += results * 2 * std::log2(LanesFor(v));
    }
    return cost;
  }

  int BestOwnRange(size_t g) {
    int best = -1;
    if (kernel_.IsNested(kernel_.groups[g])) return best;
    double least = GroupCost(g, -1);
    for (const int range : kernel_.groups[g].ranges) {
      if (Extent(range) < 2) continue;
      const double cost = GroupCost(g, range);
      if (cost < least) least = cost, best = range;
    }
    return best;
  }

  void ChooseLanes() {
    group_lanes_.assign(kernel_.groups.size(), -1);
    double least = 0;
    for (int v = -1; v < kernel_.parallel_count; ++v) {
      if (v >= 0 && Extent(v) < 2) continue;
      double cost = BodyCost(stores(), v);
      std::vector<int> own(kernel_.groups.size(), -1);
      for (size_t g = 0; g < own.size(); ++g) {
        if (!In(kernel_.groups[g].deps, v)) own[g] = BestOwnRange(g);
        cost += GroupCost(g, In(kernel_.groups[g].deps, v) ? v : own[g]);
      }
      if (v == -1 || cost < least) {
        least = cost;
        output_lanes_ = v;
        group_lanes_ = own;
      }
    }
  }

  // ---- the register tile

  double Copies(RangeSet deps, const RegisterTile& t) { return t.Copies(deps, output_lanes_); }

  // The vectors of a tile that are in different places: steps of a few elements stay in the same
  // cache lines.
  double Streams(const Access& access, const RegisterTile& t) {
    double streams = In(access.deps, output_lanes_) ? static_cast<double>(t.vectors) : 1;
    for (const auto& [range, count] : {std::make_pair(t.a, t.ta), std::make_pair(t.b, t.tb)}) {
      if (!In(access.deps, range)) continue;
      const int64_t stride = std::abs(ConstantStride(access, range));
      if (stride == 0 || stride * count > loop_cost_.lanes()) streams *= static_cast<double>(count);
    }
    return streams;
  }

  // Sets `cost`, the instructions for each result of a step of the main reduction, negative where
  // the registers do not suffice; and `code`.
  void SetCost(const Body& b, size_t nodes, int v, RegisterTile& t) {
    t.cost = -1;
    const double results = Copies(b.ranges, t);
    double loads = 0, ops = 0, held = 1e9;
    for (const Access& access : b.accesses) {
      const double copies = Copies(access.deps, t);
      loads += copies * AccessCost(access, v);
      if (In(access.deps, v) && !Copied(access, v)) loads += costs_.stream * Streams(access, t);
      if (access.gated) loads += costs_.gate * Copies(kernel_.DepsOf(access.node->src[1]), t);
      held = std::min(held, copies);
    }
    for (const RangeSet deps : b.ops) ops += Copies(deps, t);
    for (const RangeSet deps : b.slow_ops) ops += Copies(deps, t) * costs_.library_call;
    const double registers =
        results * static_cast<double>(nodes) + (b.accesses.empty() ? 0 : held) + 1;
    if (registers > target_.vector_registers - 3) return;
    const Body& last = stores();
    const double code =
        loads + ops +
        Copies(last.ranges, t) * static_cast<double>(last.ops.size() + last.accesses.size());
    if (results > 1 && code > kCodeMax) return;
    t.cost = (loads + ops) / results;
    t.code = code;
    if (t.a >= 0) t.AddRest(Extent(t.a), t.ta, code);
    if (t.b >= 0) t.AddRest(Extent(t.b), t.tb, code);
    if (output_lanes_ >= 0) t.AddRest(VectorsOf(output_lanes_), t.vectors, code);
  }

  void ChooseTile() {
    if (main_ == kernel_.groups.size()) {
      PlanElementwise();
      return;
    }
    const Body& b = body(main_);
    const size_t nodes = kernel_.groups[main_].nodes.size();
    const int v = In(b.ranges, output_lanes_) ? output_lanes_ : group_lanes_[main_];
    int64_t vectors_max = 1, vectors_min = 1;
    if (In(b.ranges, output_lanes_)) {
      vectors_min = std::max<int64_t>(1, WholeRows(output_lanes_));
      vectors_max = std::max(vectors_min, std::min<int64_t>(4, VectorsOf(output_lanes_)));
    }
    // `fastest` as if LLVM took no time. It decides how sums are divided, so that their bits do not
    // depend on that time; and copies, which are made for its tile.
    RegisterTile best, fastest;
    best.cost = fastest.cost = 1e300;
    const double steps = b.points / (In(b.ranges, v) ? LanesFor(v) : 1);
    const int outputs = kernel_.parallel_count;
    const auto tiled = [&](int r) {
      return r != output_lanes_ && In(b.ranges, r) && Extent(r) > 1;
    };
    const auto counts = [&](int r) { return std::min<int64_t>(Extent(r), 12); };
    // Inner ranges first, for what lies close together; a little more than nothing has to be gained
    // for a second one, which is more code.
    const auto consider = [&](const RegisterTile& choice) {
      for (int64_t vectors = vectors_min; vectors <= vectors_max; vectors += vectors_min) {
        // A long reduction is copied for fewer vectors at a time.
        if (vectors > vectors_min && CopyBytes(output_lanes_, vectors) > copy_bytes_max_) break;
        RegisterTile t = choice;
        t.vectors = vectors;
        SetCost(b, nodes, v, t);
        if (t.cost < 0) continue;
        if (t.cost < fastest.cost * 0.99) fastest = t;
        t.cost += code_price_ * t.code / steps;
        if (t.cost < best.cost * 0.99) best = t;
      }
    };
    consider({});
    for (int a = outputs; a-- > 0;)
      for (int64_t ta = 2; tiled(a) && ta <= counts(a); ++ta) consider({a, -1, ta});
    for (int c = outputs; c-- > 0;)
      for (int a = c; tiled(c) && a-- > 0;)
        for (int64_t ta = 2; tiled(a) && ta <= counts(a); ++ta)
          for (int64_t tc = 2; tc <= counts(c); ++tc) consider({a, c, ta, tc});
    if (fastest.cost > 1e299) best = fastest = {.vectors = vectors_min};
    if (!copyable_.empty()) best = fastest;
    if (output_lanes_ >= 0 && !In(b.ranges, output_lanes_)) {
      fastest.vectors = 2;
      best.vectors = SideBySide(2);
    }
    for (const int range : {best.a, best.b})
      if (range >= 0) tile_rows_ |= RangeSet{1} << range;
    for (const int range : {best.a, best.b, output_lanes_})
      if (range >= 0) Upcast(range, best.CountIn(range, output_lanes_));
    fastest_ = fastest;
  }

  // How many vectors of the stores, at most `most`.
  int64_t SideBySide(int64_t most) const {
    const Body& b = stores();
    auto size = static_cast<double>(b.ops.size() + b.accesses.size() + 8 * b.slow_ops.size());
    if (kernel_.groups.empty())
      for (const UOp* const node : kernel_.nodes)
        if (node->op == Op::kThreefry) size += costs_.threefry;
    return optimize::VectorsSideBySide(most, size, b.points / LanesFor(output_lanes_), code_price_);
  }

  // Nothing to keep: a few vectors at a time, fewer where there is much to compute. fastest_ is not
  // set: every group that PlanGroup divides has its fold, which is work, so there is none.
  void PlanElementwise() {
    if (output_lanes_ < 0) return;
    // A gather along the lanes reads whole cache lines for one element each; where another range
    // walks along those lines, some steps of it are taken together.
    for (const Access& access : stores().accesses) {
      if (access.store ||
          AccessCost(access, output_lanes_) < costs_.load_per_lane * LanesFor(output_lanes_))
        continue;
      for (const auto& [term, coefficient] : loop_cost_.FormOf(access.index->src[1]).terms) {
        if (coefficient != 1 || term->op != Op::kRange || stores().ops.size() > 16) continue;
        const int range = kernel_.IndexOf(term);
        if (range == output_lanes_ || range >= kernel_.parallel_count) continue;
        Upcast(range, SideBySide(16));
        return;
      }
    }
    const size_t size = stores().ops.size() + 8 * stores().slow_ops.size();
    const int64_t rows = std::max<int64_t>(1, WholeRows(output_lanes_));
    const int64_t wanted = size <= 16 ? 4 : size <= 48 ? 2 : 1;
    Upcast(output_lanes_, rows * SideBySide(std::max<int64_t>(1, wanted / rows)));
  }

  // ---- reductions

  // `axis`: that of the group's first range.
  void PlanGroup(size_t g, int axis) {
    const ReduceGroup& group = kernel_.groups[g];
    if (kernel_.IsNested(group)) return;
    auto results = static_cast<int64_t>(group.nodes.size());
    for (int i = 0; i < kernel_.output_count; ++i)
      if (In(group.deps, i)) results *= std::min(fastest_.CountIn(i, output_lanes_), VectorsOf(i));
    const int own = group_lanes_[g], inner = own >= 0 ? own : group.ranges.back();
    axis += static_cast<int>(std::find(group.ranges.begin(), group.ranges.end(), inner) -
                             group.ranges.begin());
    const int64_t lanes = own >= 0 ? LanesFor(inner) : 1;
    if (own >= 0) Add(OptKind::kVector, axis, lanes);
    // Steps of the innermost loop at once: enough independent sums to hide latency, or a short loop
    // whole.
    const int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(costs_.latency_ops) / results);
    const int64_t size =
        results * static_cast<int64_t>(body(g).ops.size() + body(g).accesses.size());
    const int64_t all = (Extent(inner) + lanes - 1) / lanes;
    int64_t steps = all;
    // A short loop that is not written out whole ends in a branch that is not foreseen.
    if (steps > 12 || size * steps > (steps <= 8 ? 600 : 400))
      steps = std::min(steps, std::max<int64_t>(wanted, size < 64 ? 2 : 1));
    if (own >= 0)
      if (const int64_t rows = WholeRows(own); rows > 1) steps = std::min(rows, all);
    if (steps > 1) Add(OptKind::kUnroll, axis, steps);
    if (const int64_t partials = std::min(wanted, steps); partials > 1)
      Add(OptKind::kGroup, axis, partials);
  }

  // ---- tasks

  void ChooseTasks() {
    // A group is computed once a task, so loops that it does not depend on may not be handed out,
    // unless before its own.
    int most = kernel_.parallel_count, count = 0;
    for (const ReduceGroup& group : kernel_.groups)
      if (const RangeSet deps = group.deps & kernel_.OutputSet(); deps != 0)
        most = std::min(most, static_cast<int>(std::bit_width(deps)));
    for (int64_t tasks = 1; count < most && (count == 0 || tasks < costs_.tasks_wanted); ++count) {
      const int64_t step = counts_[count] * (count == output_lanes_ ? LanesFor(count) : 1);
      tasks *= (Extent(count) + step - 1) / step;
    }
    if (count > 0) Add(OptKind::kThread, 0, count);
  }

  const LoopNest& kernel_;
  const Target& target_;
  const CostTable& costs_;
  const double code_price_;
  const double copy_bytes_max_;
  optimize::LoopCost loop_cost_;
  int output_lanes_ = -1;             // the output range in lanes
  std::vector<int> group_lanes_;      // by group: its own range in lanes
  size_t main_ = 0;                   // the reduction with the most work
  std::vector<const UOp*> copyable_;  // loads of it
  RangeSet tile_rows_ = 0;            // the output ranges of the tile that are not in lanes
  std::vector<int64_t> counts_;       // by output range: values or vectors in the register tile
  RegisterTile fastest_;              // the tile that would be best if LLVM took no time
  std::vector<Opt> opts_;
};

}  // namespace

std::vector<Opt> HeuristicOpts(const LoopNest& kernel, const Target& target, double code_price) {
  if (kernel.empty) return {};
  if (target.block_threads > 1) return ThreadOpts(kernel, target);
  if (RowsInPlace(kernel)) return Chooser(kernel, target, code_price).Run();
  if (const auto opts = TensorCoreOpts(kernel, target)) return *opts;
  if (std::vector<Opt> opts = PanelOpts(kernel, target); !opts.empty()) return opts;
  Chooser chooser(kernel, target, code_price);
  std::vector<Opt> opts = chooser.Run();
  const int inner = chooser.LanesOfMain();
  Graph graph;
  const UOp* const flat = inner < 1 ? nullptr : FlattenRows(graph, kernel, inner, target);
  if (flat == nullptr) return opts;
  const absl::StatusOr<LoopNest> flattened = AnalyzeKernel(flat);
  if (!flattened.ok()) return opts;
  opts = Chooser(*flattened, target, code_price).Run();
  int64_t axis = 0;
  for (const std::vector<Axis> axes = AxesOf(kernel); axes[axis].range != inner;) ++axis;
  opts.insert(opts.begin(), {OptKind::kFlatten, axis, 0});
  return opts;
}

}  // namespace outboard::codegen
