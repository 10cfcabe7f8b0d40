// By the reduction with the most work:
//
//   none                 threads along the range in which memory is consecutive, in vectors
//   a product of         a tile of results in each thread's registers, operands in the block's
//   matrices             memory; the largest tile of which there is one for each multiprocessor
//   along memory         (sums, norms, softmax over rows) a row is divided among the threads of a
//                        warp or block. What a thread has of it is written out where it fits its
//                        registers, so that a row is read once, and outputs lie in the same
//                        threads; a long one among the threads of a cluster's blocks
//   across memory        (sums over rows) neighbours along memory, warps along the reduction
#include "compiler/optimize/threads/thread_opts.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "compiler/divide_up.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/loop_cost.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/optimize/threads/kept_row.h"
#include "compiler/optimize/threads/long_rows.h"
#include "compiler/optimize/threads/odd_rows.h"
#include "compiler/optimize/threads/row_copy.h"
#include "compiler/optimize/threads/shifted_copy.h"
#include "compiler/optimize/threads/streams.h"
#include "compiler/optimize/threads/thread_counts.h"
#include "compiler/optimize/threads/transposed.h"

namespace outboard::codegen {
namespace {

constexpr double kResidentThreads = 1024;   // of a multiprocessor, that hide latency
constexpr int64_t kRunningValuesMax = 128;  // of a reduction, in a thread's registers
constexpr int64_t kTermsOfThreadLeast = 4;  // of a divided reduction
constexpr int64_t kMatrixTermsLeast = 8;    // of a product whose operands are copied
constexpr int64_t kMatrixStep = 8;          // of these terms at once: 32 bytes of each row
constexpr int64_t kLongRow = 8192;
// Of shorter rows, of those that threads keep, too, too many vectors lie at an edge.
constexpr int64_t kOddRowLeast = 1024, kKeptOddRowLeast = 32768;
constexpr int64_t kKeptOddLanes = 4;  // the last step is few threads', and has registers of all

class ThreadChooser {
 public:
  ThreadChooser(const LoopNest& kernel, const Target& target, const LongRowsMay& long_rows)
      : kernel_(kernel),
        target_(target),
        long_rows_(long_rows),
        plan_(PlainPlan(kernel)),
        planner_(kernel, plan_, target),
        cost_(kernel, target),
        axes_(AxesOf(kernel)),
        widest_(WidestOfStreams(kernel, cost_)) {}

  std::vector<Opt> Run() {
    if (kernel_.output_count > kernel_.parallel_count) return {};
    FindMain();
    if (main_ < 0) {
      Elementwise();
    } else if (!MatrixProduct()) {
      const int along = Along(body(main_));
      if (along >= kernel_.output_count || Points(Deps()) < kThreadsWanted) {
        Rows(along);
      } else {
        Columns(along);
      }
    }
    ShareOthers();
    if (kernel_.output_count > 0)
      Try({OptKind::kGrid, 0, GridLoops()}, [&] { return planner_.Grid(GridLoops()); });
    CopyRows();
    if (kept_vectors_ > 0 && !KeepRows()) return {};
    CopyShifted();
    if (opts_.empty() || plan_.threads.empty() || !planner_.Finish().ok()) return {};
    return std::move(opts_);
  }

 private:
  const Body& body(int group) { return cost_.bodies()[group]; }
  const Body& stores() { return cost_.bodies().back(); }
  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  static bool In(RangeSet set, int range) { return range >= 0 && (set >> range & 1); }
  double Points(RangeSet ranges) const { return cost_.Points(ranges); }
  RangeSet Deps() const { return kernel_.groups[main_].deps & kernel_.OutputSet(); }
  double Multiprocessors() const {
    return static_cast<double>(std::max<int64_t>(target_.multiprocessors, 1));
  }

  // ---- Opts, where they are legal
  template <typename Apply>
  bool Try(Opt opt, Apply apply) {
    if (opt.kind != OptKind::kGrid && opt.amount < 2) return false;
    if (!apply().ok()) return false;
    opts_.push_back(opt);
    return true;
  }
  int64_t AxisOf(int range) const {
    for (size_t i = 0; i < axes_.size(); ++i)
      if (axes_[i].range == range) return static_cast<int64_t>(i);
    return 0;
  }
  int GroupOf(int range) const { return axes_[AxisOf(range)].group; }
  bool Vector(int range, int64_t lanes) {
    return Try({OptKind::kVector, AxisOf(range), lanes},
               [&] { return planner_.Vector(GroupOf(range), range, lanes); });
  }
  bool Repeat(int range, int64_t count) {
    count = std::min(count, StepsOf(range));
    const OptKind kind = GroupOf(range) < 0 ? OptKind::kUpcast : OptKind::kUnroll;
    return Try({kind, AxisOf(range), count},
               [&] { return planner_.Repeat(GroupOf(range), range, count); });
  }
  // In as many threads of the warp as there are left, and of other warps.
  void Threads(int range, int64_t count) {
    const int64_t have = plan_.task_threads();
    const int64_t lanes = std::min(count, std::max<int64_t>(1, kWarpThreads / have));
    if (lanes > 1)
      Try({OptKind::kLane, AxisOf(range), lanes}, [&] { return planner_.Lane(range, lanes); });
    if (const int64_t warps = count / lanes; warps > 1)
      Try({OptKind::kWarp, AxisOf(range), warps}, [&] { return planner_.Warp(range, warps); });
  }
  bool Cluster(int64_t blocks) {
    return Try({OptKind::kCluster, 0, blocks}, [&] { return planner_.Cluster(blocks); });
  }
  bool Share(int range, int64_t count) {
    return Try({OptKind::kShare, AxisOf(range), count},
               [&] { return planner_.Share(GroupOf(range), range, count); });
  }
  bool Align(int range, int64_t count) {
    return Try({OptKind::kAlign, AxisOf(range), count},
               [&] { return planner_.Align(GroupOf(range), range, count); });
  }
  const Tile& TileOf(int range) const {
    const int group = GroupOf(range);
    if (group < 0) return plan_.tiles[range];
    const std::vector<Tile>& loops = plan_.groups[group].loops;
    return *std::find_if(loops.begin(), loops.end(),
                         [&](const Tile& tile) { return tile.range == range; });
  }
  int64_t StepOf(int range) const { return TileOf(range).step; }
  // How many of them there are, with what an aligned one has before the range.
  int64_t StepsOf(int range) const {
    return DivideUp(TileOf(range).span(), StepOf(range));
  }

  // ---- the kernel
  void FindMain() {
    double most = 0;
    for (size_t g = 0; g < kernel_.groups.size(); ++g) {
      const Body& b = body(static_cast<int>(g));
      const double work = b.points * static_cast<double>(b.ops.size() + b.accesses.size() + 1);
      if (work > most && !kernel_.IsNested(kernel_.groups[g])) {
        most = work;
        main_ = static_cast<int>(g);
      }
    }
  }

  int Along(const Body& b) { return RangeAlongMemory(kernel_, cost_, b); }

  // Of vectors along the range: as many as one access may have, and as a thread has registers for
  // running values in each of them.
  int64_t LanesFor(const Body& b, int range, size_t running = 1) {
    int64_t lanes = target_.vector_bytes / widest_;
    const bool is_odd = OddBegin(range).has_value();
    if (is_odd && main_ >= 0) lanes = std::min(lanes, kKeptOddLanes);
    while (lanes > 1 && ((Extent(range) % lanes != 0 && !is_odd) ||
                         lanes * static_cast<int64_t>(running) > kRunningValuesMax))
      lanes /= 2;
    bool consecutive = false;
    for (const Access& access : b.accesses)
      consecutive =
          consecutive || (In(access.deps, range) && cost_.ConstantStride(access, range) == 1);
    return consecutive ? lanes : 1;
  }
  // Of a range that has vectors though its extent is no multiple of the widest: whether rows begin
  // within one.
  std::optional<bool> OddBegin(int range) {
    const int64_t lanes = target_.vector_bytes / widest_, extent = Extent(range);
    const int64_t least = main_ < 0 ? kOddRowLeast : kKeptOddRowLeast;
    if (!long_rows_.are_odd || lanes == 1 || extent % lanes == 0 || extent < least ||
        kernel_.ranges[range].end() != nullptr)
      return std::nullopt;
    const auto [found, is_new] = odd_begins_.try_emplace(extent);
    if (is_new) found->second = BeginWithinVector(kernel_, extent, lanes);
    return found->second;
  }
  int64_t LanesOfGroup(int group, int range) {
    int64_t lanes = LanesFor(body(group), range, kernel_.groups[group].nodes.size());
    if (kernel_.groups.size() > 1) return lanes;
    for (int r = 0; r < kernel_.parallel_count; ++r)
      if (!In(kernel_.groups[group].deps, r) && Extent(r) == Extent(range)) return lanes;
    // A row that is read for one sum alone needs no tile that others have, so what comes from the
    // caches counts, too: a token's row beside packed weights. What does not lie side by side is
    // read number by number, and the more of them a thread has, the farther apart are those that
    // threads read at once.
    constexpr int64_t kApart = 4;
    for (const Access& access : body(group).accesses) {
      if (!In(access.deps, range)) continue;
      const bool consecutive = cost_.ConstantStride(access, range) == 1;
      const int width = ByteWidth(access.index->src[0]->dtype);
      lanes = std::min(lanes, consecutive ? target_.vector_bytes / width : kApart);
    }
    return lanes;
  }

  // The last output ranges, as far as threads are left.
  void FillBlock(int64_t wanted) {
    for (int r = kernel_.parallel_count; r-- > 0;) {
      const int64_t left = wanted / plan_.task_threads();
      if (left < 2) return;
      if (plan_.tiles[r].threads > 1) continue;
      Threads(r, ThreadsFor(DivideUp(Extent(r), StepOf(r)), left));
    }
  }

  int64_t GridLoops() const {
    // A group is computed once a block, so loops that it does not depend on may not be handed out
    // unless they come before its own.
    int most = kernel_.parallel_count;
    for (const ReduceGroup& group : kernel_.groups)
      if (const RangeSet deps = group.deps & kernel_.OutputSet(); deps != 0)
        most = std::min(most, static_cast<int>(std::bit_width(deps)));
    return std::max(most, 1);
  }

  // ---- kinds of kernels
  void Elementwise() {
    int along = Along(stores());
    if (along < 0) along = kernel_.parallel_count - 1;
    if (along < 0 || Transposed(along)) return;
    const int64_t lanes = LanesFor(stores(), along);
    Vector(along, lanes);
    const int64_t steps = DivideUp(Extent(along), StepOf(along));
    const bool is_odd = Extent(along) % lanes != 0;
    // Whole warps leave out what lies beyond an odd row.
    Threads(along, is_odd ? std::min(kThreadsWanted, FloorPower(2 * steps - 1))
                          : ThreadsFor(steps, kThreadsWanted));
    if (is_odd && OddBegin(along) == true) Align(along, SectorValues(stores(), along, lanes));
    FillBlock(kThreadsWanted);
  }

  bool Transposed(int along) {
    const auto parts = ChooseTransposed(kernel_, target_, cost_, along);
    if (!parts) return false;
    for (const RangePart& part : *parts) Repeat(part.range, part.values);
    for (const RangePart& part : *parts) Threads(part.range, part.threads);
    for (const RangePart& part : *parts) Threads(part.range, part.warps);
    return true;
  }

  // Two loads, each of which lacks an output range that the other one has.
  bool MatrixProduct() {
    const Body& b = body(main_);
    if (Points(Deps()) < 1024) return false;
    int rows = -1, columns = -1;
    double most = 0;
    for (int m = 0; m < kernel_.parallel_count; ++m)
      for (int n = 0; n < kernel_.parallel_count; ++n) {
        if (m == n || !In(Deps(), m) || !In(Deps(), n)) continue;
        if (Extent(m) < 8 || Extent(n) < 8) continue;
        bool without_n = false, without_m = false;
        for (const Access& access : b.accesses) {
          without_n = without_n || (In(access.deps, m) && !In(access.deps, n));
          without_m = without_m || (In(access.deps, n) && !In(access.deps, m));
        }
        if (!without_n || !without_m) continue;
        double worth = static_cast<double>(Extent(m)) * static_cast<double>(Extent(n));
        if (n != Along(stores())) worth /= 2;
        if (worth > most) most = worth, rows = m, columns = n;
      }
    if (rows < 0) return false;
    const int inner = plan_.groups[main_].loops.back().range;
    if (Extent(inner) < kMatrixTermsLeast) return false;
    struct Size {
      int64_t m, m_warps, m_more, n_warps, n_more;
      int64_t rows() const { return m * 4 * m_warps * m_more; }
      int64_t columns() const { return 32 * n_warps * n_more; }
    };
    constexpr Size kSizes[] = {
        {4, 4, 2, 2, 2}, {4, 4, 2, 2, 1}, {4, 4, 1, 2, 1}, {4, 2, 1, 2, 1}, {2, 4, 1, 1, 1}};
    const double others =
        Points(Deps()) / static_cast<double>(Extent(rows)) / static_cast<double>(Extent(columns));
    const auto nodes = static_cast<int64_t>(kernel_.groups[main_].nodes.size());
    const Size* size = &kSizes[std::size(kSizes) - 1];
    for (const Size& s : kSizes) {
      const double blocks = others * static_cast<double>(DivideUp(Extent(rows), s.rows()) *
                                                         DivideUp(Extent(columns), s.columns()));
      if (blocks < Multiprocessors() || nodes * s.m * s.m_more * 4 * s.n_more > 64) continue;
      size = &s;
      break;
    }
    if (LanesFor(b, columns) < 4 || !Vector(columns, 4)) Repeat(columns, 4);
    Repeat(rows, size->m);
    // Eight by four threads of a warp read from the block's memory without a conflict.
    Threads(columns, std::min<int64_t>(8, FloorPower(DivideUp(Extent(columns), StepOf(columns)))));
    Threads(rows, std::min(kWarpThreads / plan_.task_threads(),
                           FloorPower(DivideUp(Extent(rows), StepOf(rows)))));
    if (plan_.task_threads() == kWarpThreads) {
      Threads(columns, size->n_warps);
      Threads(rows, size->m_warps);
    }
    Repeat(columns, size->n_more);
    Repeat(rows, size->m_more);
    Repeat(inner, kMatrixStep);
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    for (size_t i = 0; i < loads.size(); ++i) {
      const RangeSet deps = kernel_.DepsOf(loads[i]);
      if (!In(deps, inner) || In(deps, rows) == In(deps, columns)) continue;
      if (planner_.Local(loads[i]).ok())
        opts_.push_back({OptKind::kLocal, static_cast<int64_t>(i), 0});
    }
    return true;
  }

  // Threads along a reduced range, and along an output range that walks through the same memory.
  void Rows(int along) {
    const ReduceGroup& group = kernel_.groups[main_];
    if (along < kernel_.output_count || GroupOf(along) != main_) along = group.ranges.back();
    along_ = along;
    const std::vector<int> across = RangesAcross(kernel_, cost_, body(main_), along);
    const int64_t lanes = across.empty() ? LanesOfGroup(main_, along)
                                         : LanesFor(body(main_), along, group.nodes.size()),
                  align = AlignmentOf(along, lanes);
    const bool is_odd = Extent(along) % lanes != 0;
    const int64_t before = align == 1 ? 0 : is_odd ? align - 1 : align - lanes;
    const int64_t steps = DivideUp(Extent(along) + before, lanes);
    // As many threads for a row as keep it in registers, and as the device has room for.
    const double rows = std::max(Points(Deps()), 1.0);
    int64_t count = std::min<int64_t>(kWarpThreads, ThreadsFor(steps, kWarpThreads));
    while (count < kThreadsWanted && count * 2 <= steps &&
           (steps * lanes > count * kRowValuesMax ||
            (rows * static_cast<double>(count) < Multiprocessors() * kResidentThreads &&
             steps >= count * kTermsOfThreadLeast)))
      count *= 2;
    // More threads, with fewer registers each, where they keep what these do not; and more blocks.
    if (steps * lanes > count * kRowValuesMax) {
      const LongRow row = ChooseLongRow(
          kernel_, target_, cost_.bodies(),
          {.main = main_, .along = along, .lanes = lanes, .align = align, .steps = steps},
          long_rows_);
      if (row.threads > 0 && (row.blocks == 1 || Cluster(row.blocks))) {
        count = row.threads;
        kept_vectors_ = row.in_registers;
      }
    }
    // Few long rows that nobody keeps have multiprocessors for themselves.
    while (plan_.cluster == 1 && kept_vectors_ == 0 && steps * lanes > count * kRowValuesMax &&
           count >= kThreadsWanted && 2 * count <= target_.block_threads_max() &&
           rows * static_cast<double>(count) < Multiprocessors() * kResidentThreads &&
           steps >= 2 * count * kTermsOfThreadLeast)
      count *= 2;
    // Threads of one warp do not wait for each other before they store over what others have read.
    if (RowsInPlace(kernel_)) count = std::max<int64_t>(count, 2 * kWarpThreads);
    // Rows side by side, as a sector has of what lies across; two threads of a warp have each.
    if (!across.empty() && plan_.cluster == 1 && kept_vectors_ == 0) {
      const int64_t side = std::min({kSectorBytes / widest_, int64_t{kWarpThreads} / 2,
                                     FloorPower(Extent(across[0])),
                                     FloorPower(static_cast<int64_t>(rows / Multiprocessors()))});
      if (side > 1 && count >= side) {
        Threads(across[0], side);
        count /= plan_.task_threads();
      }
    }
    int output = -1;
    for (int r = 0; r < kernel_.parallel_count; ++r)
      if (!In(group.deps, r) && Extent(r) == Extent(along)) output = r;
    if (output < 0)
      for (int r = 0; r < kernel_.parallel_count; ++r)
        if (!In(group.deps, r) && (output < 0 || Extent(r) > Extent(output))) output = r;
    const int64_t written_out = kRowValuesMax / lanes;
    // What is stored may be longer than the row that is added: the sums of a few parts, say.
    const bool is_longer = output >= 0 && plan_.cluster == 1 && kept_vectors_ == 0 &&
                           Extent(output) > Extent(along);
    if (is_longer)
      count = std::max(count, ThreadsFor(DivideUp(Extent(output), LanesFor(stores(), output)),
                                         kThreadsWanted));
    if (output >= 0) {
      if (const int64_t stored = LanesFor(stores(), output); stored == lanes || is_longer)
        Vector(output, stored);
      // As the row is read, or it would be read again.
      const bool same = Extent(output) == Extent(along) && StepOf(output) == lanes;
      Threads(output, same && (is_odd || count > kThreadsWanted)
                          ? count
                          : ThreadsFor(DivideUp(Extent(output), StepOf(output)), count));
      if (same) Align(output, align);
    }
    Vector(along, lanes);
    Share(along, std::max(count, plan_.FreeThreads(group)));
    Align(along, align);
    if (StepsOf(along) <= written_out || kept_vectors_ > 0) {
      Repeat(along, StepsOf(along));
    } else {
      Repeat(along, std::min<int64_t>(4, written_out));
    }
    if (output >= 0) {
      const int64_t left = StepsOf(output);
      Repeat(output, left <= written_out || kept_vectors_ > 0 ? left : 1);
    }
    // More rows in a block of few threads.
    if (rows >= Multiprocessors() * static_cast<double>(kThreadsWanted / plan_.task_threads()))
      FillBlock(kThreadsWanted);
  }

  std::vector<int64_t> RowSlots() { return SlotsReadAgain(kernel_, cost_.bodies(), main_, along_); }
  bool KeepRows() {
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    for (const int64_t slot : RowSlots()) {
      const auto load = std::ranges::find_if(
          loads, [&](const UOp* candidate) { return GlobalOfAccess(candidate).slot() == slot; });
      if (load == loads.end() || !Try({OptKind::kKeep, load - loads.begin(), kept_vectors_},
                                      [&] { return planner_.Keep(*load, kept_vectors_); }))
        return false;
    }
    return true;
  }

  // Operands of rows that are aligned, which are not aligned themselves, where there is room.
  void CopyShifted() {
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    int64_t left = LeftForCopies();
    for (size_t i = 0; i < loads.size(); ++i) {
      const auto layout = LayOutShifted(kernel_, plan_, loads[i]);
      if (!layout.ok()) continue;
      const int64_t bytes = layout->elements() * ByteWidth(loads[i]->dtype);
      if (bytes > left || !planner_.Local(loads[i]).ok()) continue;
      opts_.push_back({OptKind::kLocal, static_cast<int64_t>(i), 0});
      left -= bytes;
    }
  }
  // Blocks of fewer threads than there may be leave room for a second one.
  int64_t LeftForCopies() const {
    int64_t left =
        (plan_.block_threads() < target_.block_threads_max() ? target_.half_of_block_bytes()
                                                             : target_.block_bytes_max()) -
        kJoinBytes;
    for (const KeptRow& row : KeptRowsOf(kernel_, plan_))
      left -= BytesInMemory(row, kernel_, plan_);
    return left;
  }

  // How many values of a row lie between the first bytes of two sectors, if rows begin anywhere
  // and vectors are short: warps then read whole sectors. Else 1; with vectors of 16 bytes one
  // sector of 17 is more than needed, of every other row.
  int64_t AlignmentOf(int along, int64_t lanes) {
    if (lanes > 1 && Extent(along) % lanes != 0)
      return OddBegin(along) == true ? SectorValues(body(main_), along, lanes) : 1;
    if (!long_rows_.are_aligned || Extent(along) < kLongRow || Points(Deps()) < 2) return 1;
    const int64_t values = SectorValues(body(main_), along, lanes);
    return lanes * kSectorBytes / values >= 16 || Extent(along) % values == 0 ? 1 : values;
  }
  // Of the narrowest type that lies along the range; of vectors, a whole one at least.
  int64_t SectorValues(const Body& b, int along, int64_t lanes) {
    int narrowest = kSectorBytes;
    for (const Access& access : b.accesses)
      if (In(access.deps, along) && cost_.ConstantStride(access, along) == 1)
        narrowest = std::min(narrowest, ByteWidth(access.index->src[0]->dtype));
    return std::max<int64_t>(kSectorBytes / narrowest, lanes);
  }

  // Rows of which threads read a number at a time (packed weights): in wide pieces, once.
  void CopyRows() {
    // Each block of a cluster would copy what all of them have.
    if (main_ < 0 || plan_.groups[static_cast<size_t>(main_)].shared_by == 1 || plan_.cluster > 1)
      return;
    // Eight blocks of 256 threads leave each other room for so many on any of these devices but
    // sm_89, which runs six of them.
    constexpr int64_t kBytesOfThread = 64;
    int64_t joins = 0;
    for (const auto& [type, elements] : JoinMemory(kernel_, plan_))
      joins += elements * std::max(4, ByteWidth(type));
    int64_t left =
        std::min(kBytesOfThread * plan_.block_threads(), target_.shared_bytes - joins);
    const std::vector<const UOp*> loads = LoadsOf(kernel_);
    for (size_t i = 0; i < loads.size(); ++i) {
      const int64_t slot = GlobalOfAccess(loads[i]).slot();
      if (!ReadByNumbers(kernel_, loads[i])) continue;
      const absl::StatusOr<RowLayout> layout = LayOutRows(kernel_, plan_, slot);
      if (!layout.ok()) continue;
      const int64_t bytes =
          layout->elements * ByteWidth(kernel_.slot_dtypes[static_cast<size_t>(slot)]);
      if (bytes > left) continue;
      if (!Try({OptKind::kLocal, static_cast<int64_t>(i), 2},
               [&] { return planner_.Local(loads[i]); }))
        continue;
      opts_.back().amount = 0;
      left -= bytes;
    }
  }

  // Neighbours have columns next to each other; the rows of few columns are divided.
  void Columns(int along) {
    const ReduceGroup& group = kernel_.groups[main_];
    if (along < 0) along = kernel_.parallel_count - 1;
    double terms = 1;
    for (const int r : group.ranges) terms *= static_cast<double>(Extent(r));
    const double resident = Multiprocessors() * kResidentThreads;
    const bool divide = Points(Deps()) < resident && terms >= 8 * kTermsOfThreadLeast;
    int longest = group.ranges.back();
    for (const int r : group.ranges)
      if (Extent(r) > Extent(longest)) longest = r;
    int64_t lanes = LanesFor(body(main_), along, 4 * group.nodes.size());
    if (divide) {
      // A block has a warp's columns, or those of a sector where these are too few blocks.
      int64_t columns = kWarpThreads;
      while (Points(Deps()) < Multiprocessors() * static_cast<double>(columns) &&
             columns > std::max(lanes, kSectorBytes / widest_))
        columns /= 2;
      const auto rows_most = [&] {
        const int64_t joined = (columns < kWarpThreads ? 2 : 4) * lanes;  // terms, about
        return FloorPower(std::min(Extent(longest), static_cast<int64_t>(terms) / joined));
      };
      while (lanes > 1 && DivideUp(columns, lanes) * rows_most() < kThreadsWanted / 2) lanes /= 2;
      if (lanes > 1 && Vector(along, lanes)) {
        Threads(along, std::min(columns / lanes, FloorPower(StepsOf(along))));
        const double blocks = Points(Deps()) / static_cast<double>(StepOf(along));
        int64_t count = kThreadsWanted;
        while (blocks < Multiprocessors() && kernel_.groups.size() == 1 &&
               2 * count <= target_.block_threads_max())
          count *= 2;
        Share(longest, std::min(rows_most(), count / plan_.task_threads()));
        Repeat(group.ranges.back(), 4);
        return;
      }
    } else {
      while (lanes > 1 && Points(Deps()) < resident * static_cast<double>(lanes)) lanes /= 2;
      Vector(along, lanes);
    }
    Threads(along, ThreadsFor(StepsOf(along), divide ? kWarpThreads : kThreadsWanted));
    FillBlock(divide ? kWarpThreads : kThreadsWanted);
    if (divide && plan_.task_threads() == kWarpThreads)
      Share(longest, std::min(kThreadsWanted / kWarpThreads,
                              FloorPower(Extent(longest) / kTermsOfThreadLeast)) *
                         plan_.FreeThreads(group));
    Repeat(group.ranges.back(), 4);
  }

  // Reductions that all threads would compute alike.
  void ShareOthers() {
    for (size_t g = 0; g < kernel_.groups.size(); ++g) {
      const ReduceGroup& group = kernel_.groups[g];
      if (kernel_.IsNested(group) || plan_.groups[g].shared_by > 1) continue;
      const int64_t free = plan_.FreeThreads(group);
      if (free == 1) continue;
      const int range = group.ranges.back();
      const int64_t lanes = LanesOfGroup(static_cast<int>(g), range);
      if (free * lanes <= 2 * Extent(range)) Vector(range, lanes);
      Share(range, free);
      if (const Tile& row = TileOf(kernel_.groups[main_].ranges.back());
          row.align > 1 && Extent(range) == row.extent)
        Align(range, row.align);
      const std::vector<int64_t> rows = RowSlots();
      const bool kept = kept_vectors_ > 0 && Extent(range) == Extent(along_) &&
                        ReadsAnyOf(group, {rows.begin(), rows.end()});
      const int64_t written_out = kRowValuesMax / std::max<int64_t>(lanes, 1);
      if (kept || StepsOf(range) <= written_out) Repeat(range, StepsOf(range));
    }
  }

  const LoopNest& kernel_;
  const Target& target_;
  const LongRowsMay long_rows_;
  LoopPlan plan_;
  ThreadPlanner planner_;
  optimize::LoopCost cost_;
  const std::vector<Axis> axes_;
  const int widest_;  // of what streams, in bytes
  int main_ = -1;     // the reduction with the most work
  int along_ = -1;    // the range along its rows
  int64_t kept_vectors_ = 0;  // of a row in a thread's registers, where others are in memory
  std::map<int64_t, std::optional<bool>> odd_begins_;  // by extent: see OddBegin
  std::vector<Opt> opts_;
};

}  // namespace

std::vector<Opt> ThreadOpts(const LoopNest& kernel, const Target& target) {
  if (kernel.empty) return {};
  // What blocks of a cluster may not do, or join, and which rows may be kept, is seen at the end.
  std::vector<LongRowsMay> tries = {{}};
  if (target.kind == TargetKind::kCuda) {
    tries.clear();
    for (const int64_t blocks : {target.cluster_blocks_max(), int64_t{1}})
      for (const bool are_odd : {true, false})
        tries.push_back({.cluster_max = blocks,
                         .are_kept = true,
                         .are_aligned = true,
                         .are_odd = are_odd});
    tries.emplace_back();
  }
  std::vector<Opt> opts;
  for (const LongRowsMay& may : tries)
    if (opts.empty()) opts = ThreadChooser(kernel, target, may).Run();
  return opts;
}

}  // namespace outboard::codegen
