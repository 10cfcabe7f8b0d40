#include "compiler/search/neighbours.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/loop_cost.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/search/tiles.h"
#include "compiler/starting_opts.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;
using Opts = std::vector<Opt>;

// Values of an axis that are written out at once.
int64_t StepOf(const Opts& opts, int64_t axis) {
  int64_t step = 1;
  for (const Opt& opt : opts)
    if (opt.axis == axis && (opt.kind == OptKind::kVector || opt.kind == OptKind::kUpcast))
      step *= opt.amount;
  return step;
}

// Rounds blocks to whole tiles, and sorts kinds as apply.h wants them; the order inside of a kind
// stays. Of blocks of threads the order says how values are nested.
Opts Repaired(Opts opts, const Target& target) {
  if (target.block_threads > 1) return opts;
  std::stable_sort(opts.begin(), opts.end(),
                   [](const Opt& a, const Opt& b) { return a.kind < b.kind; });
  for (Opt& opt : opts) {
    if (opt.kind != OptKind::kBlock) continue;
    const int64_t step = StepOf(opts, opt.axis);
    opt.amount = std::max<int64_t>(1, (opt.amount + step / 2) / step) * step;
  }
  return opts;
}

class Moves {
 public:
  Moves(const UOp* sink, const Opts& opts, const Target& target)
      : sink_(sink), opts_(opts), target_(target) {
    seen_.insert(codegen::OptsToString(Repaired(opts, target)));
    seen_.insert(codegen::OptsToString(opts));
  }

  std::vector<Neighbour> Run() {
    if (target_.block_threads > 1 && IsTile(opts_)) {
      const absl::StatusOr<const UOp*> guarded = GuardedKernel(graph_, sink_, target_);
      if (!guarded.ok()) return {};
      const auto kernel = codegen::AnalyzeKernel(*guarded);
      return kernel.ok() ? TileNeighbours(*kernel, opts_[0], target_) : std::vector<Neighbour>();
    }
    const absl::StatusOr<const UOp*> plain = PlainKernel(graph_, sink_, target_);
    if (!plain.ok()) return {};
    plain_ = *plain;
    auto planned = Apply(opts_);
    if (!planned.ok()) return {};
    const codegen::LoopNest& kernel = planned->kernel;
    axes_ = static_cast<int64_t>(codegen::AxesOf(kernel).size());
    outputs_ = kernel.output_count;
    if (target_.block_threads > 1) {
      ThreadMoves(codegen::LoadsOf(kernel));
      return std::move(found_);
    }
    RegisterTiles();
    for (size_t i = 0; i < opts_.size(); ++i) Amounts(i);
    Additions(static_cast<int64_t>(codegen::CopyableOf(kernel).size()),
              static_cast<int64_t>(planned->plan.loops.size()));
    for (size_t i = 0; i < opts_.size(); ++i) {
      Opts fewer = opts_;
      fewer.erase(fewer.begin() + static_cast<int64_t>(i));
      Offer(std::move(fewer));
    }
    return std::move(found_);
  }

 private:
  absl::StatusOr<codegen::PlannedKernel> Apply(const Opts& opts) const {
    OB_ASSIGN_OR_RETURN(codegen::LoopNest kernel, codegen::AnalyzeKernel(plain_));
    return codegen::ApplyOpts(std::move(kernel), opts, target_);
  }

  void Offer(Opts opts) {
    opts = Repaired(std::move(opts), target_);
    if (!seen_.insert(codegen::OptsToString(opts)).second) return;
    const auto planned = Apply(opts);
    if (!planned.ok()) return;
    const double cost = target_.block_threads > 1
                            ? ThreadCost(planned->plan)
                            : optimize::LoopCost(planned->kernel, target_).PlanCost(planned->plan);
    found_.push_back({std::move(opts), cost});
  }

  // Rounds of blocks, by the values that a thread computes in one.
  double ThreadCost(const codegen::LoopPlan& plan) const {
    constexpr double kResidentThreads = 1024;  // of a multiprocessor
    const double together =
        std::max(1.0, static_cast<double>(target_.multiprocessors) * kResidentThreads /
                          static_cast<double>(plan.task_threads()));
    double values = 1;
    for (const codegen::Tile& tile : plan.tiles)
      values *= static_cast<double>(tile.main.size()) * tile.lanes();
    double work = values;
    for (const codegen::GroupPlan& group : plan.groups) {
      double steps = values;
      bool again = false;  // what does not stay in registers comes from memory for each reduction
      for (const codegen::Tile& tile : group.loops) {
        steps *= static_cast<double>(tile.blocks()) *
                 static_cast<double>(std::max(tile.main.size(), tile.rest.size())) * tile.lanes();
        again = again || tile.blocks() > 1;
      }
      constexpr double kReadAgain = 4;
      work += steps * (again && plan.groups.size() > 1 ? kReadAgain : 1);
    }
    return std::ceil(static_cast<double>(plan.tasks()) / together) * work;
  }

  // Of blocks of threads: other amounts, Opts that change places, go away or come.
  void ThreadMoves(const std::vector<const UOp*>& loads) {
    for (size_t i = 0; i < opts_.size(); ++i) {
      if (opts_[i].kind == OptKind::kGrid || opts_[i].kind == OptKind::kLocal ||
          opts_[i].kind == OptKind::kAlign || opts_[i].kind == OptKind::kKeep)
        continue;
      OfferAmount(i, opts_[i].amount * 2);
      OfferAmount(i, opts_[i].amount / 2);
    }
    for (size_t i = 0; i + 1 < opts_.size(); ++i) {
      Opts changed = opts_;
      std::swap(changed[i], changed[i + 1]);
      Offer(std::move(changed));
    }
    // Twice as many threads along one axis, and half as many along another.
    for (size_t i = 0; i < opts_.size(); ++i)
      for (size_t k = 0; k < opts_.size(); ++k) {
        const auto threads = [&](const Opt& opt) {
          return opt.kind == OptKind::kLane || opt.kind == OptKind::kWarp;
        };
        if (i == k || !threads(opts_[i]) || !threads(opts_[k]) || opts_[k].amount < 4) continue;
        Opts changed = opts_;
        changed[i].amount *= 2;
        changed[k].amount /= 2;
        Offer(std::move(changed));
      }
    for (size_t i = 0; i < opts_.size(); ++i) {
      Opts fewer = opts_;
      fewer.erase(fewer.begin() + static_cast<int64_t>(i));
      Offer(std::move(fewer));
    }
    const auto add = [&](Opt opt) {
      Opts more = opts_;
      more.push_back(opt);
      Offer(std::move(more));
    };
    for (int64_t axis = 0; axis < axes_; ++axis) {
      const bool output = axis < outputs_;
      for (const int64_t count : {2, 4}) {
        add({output ? OptKind::kUpcast : OptKind::kUnroll, axis, count});
        if (!output) add({OptKind::kGroup, axis, count});
        if (output) add({OptKind::kWarp, axis, count});
      }
      for (const int64_t count : {8, 32})
        add({output ? OptKind::kLane : OptKind::kShare, axis, count});
    }
    for (size_t load = 0; load < loads.size(); ++load)
      add({OptKind::kLocal, static_cast<int64_t>(load), 0});
    for (int64_t count = 1; count <= outputs_; ++count) add({OptKind::kGrid, 0, count});
    Vectors();
    Alignments();
    KeptRows(loads);
    Clusters();
  }

  static bool IsOfThreads(const Opt& opt) {
    return opt.kind == OptKind::kLane || opt.kind == OptKind::kWarp || opt.kind == OptKind::kShare;
  }
  // The Opt that writes out what a thread has of the axis, or the end.
  static Opts::iterator RepeatOf(Opts& opts, int64_t axis) {
    return std::find_if(opts.begin(), opts.end(), [&](const Opt& opt) {
      return opt.axis == axis && (opt.kind == OptKind::kUpcast || opt.kind == OptKind::kUnroll);
    });
  }

  // A vector of an axis, inside of all that the axis has: of as many values as before or, where
  // these are written out, in the place of some of them.
  void Vectors() {
    for (int64_t axis = 0; axis < axes_; ++axis)
      for (const int64_t lanes : {2, 4, 8, 16}) {
        Opts more = opts_;
        const auto first = std::find_if(more.begin(), more.end(), [](const Opt& opt) {
          return opt.kind != OptKind::kFlatten && opt.kind != OptKind::kCluster;
        });
        more.insert(first, {OptKind::kVector, axis, lanes});
        Offer(more);
        const auto repeat = RepeatOf(more, axis);
        if (repeat == more.end() || repeat->amount % lanes != 0) continue;
        repeat->amount /= lanes;
        if (repeat->amount == 1) more.erase(repeat);
        Offer(std::move(more));
      }
  }

  // Threads of an axis that begin at a sector, behind those that divide it, with as much written
  // out as before, or once more for what begins earlier. The same for all axes that threads divide:
  // those along a row go together.
  void Alignments() {
    for (const int64_t count : {4, 8, 16})
      for (const int64_t repeated : {0, 1})
        for (int64_t axis = 0; axis <= axes_; ++axis) {
          Opts changed = opts_;
          for (int64_t each = 0; each < axes_; ++each)
            if (axis == axes_ || axis == each) AddAlign(changed, each, count, repeated);
          Offer(std::move(changed));
        }
  }
  static void AddAlign(Opts& opts, int64_t axis, int64_t count, int64_t repeated) {
    const auto last = std::find_if(opts.rbegin(), opts.rend(), [&](const Opt& opt) {
      return opt.axis == axis && IsOfThreads(opt);
    });
    if (last == opts.rend()) return;
    opts.insert(last.base(), {OptKind::kAlign, axis, count});
    if (const auto repeat = RepeatOf(opts, axis); repeat != opts.end()) repeat->amount += repeated;
  }

  // A row that threads keep, or all of those that they keep with other registers.
  void KeptRows(const std::vector<const UOp*>& loads) {
    constexpr size_t kRowsMax = 8;
    absl::flat_hash_set<int64_t> slots;  // an Opt keeps what all loads of its slot read
    const auto is_keep = [](const Opt& opt) { return opt.kind == OptKind::kKeep; };
    const auto kept = std::find_if(opts_.begin(), opts_.end(), is_keep);
    for (size_t load = 0; load < loads.size() && slots.size() < kRowsMax; ++load) {
      if (!slots.insert(GlobalOfAccess(loads[load]).slot()).second) continue;
      for (const int64_t count : {1, 2, 4, 8, 16}) {
        if (kept != opts_.end() && kept->amount != count) continue;
        Opts more = opts_;
        more.push_back({OptKind::kKeep, static_cast<int64_t>(load), count});
        Offer(std::move(more));
      }
    }
    if (kept == opts_.end()) return;
    for (const int64_t count :
         {kept->amount / 2, kept->amount - 1, kept->amount + 1, kept->amount * 2}) {
      Opts changed = opts_;
      for (Opt& opt : changed)
        if (is_keep(opt)) opt.amount = count;
      Offer(std::move(changed));
    }
  }

  // Twice as many blocks for a task, and half as many: with all threads that divide its reductions,
  // and the ranges of its outputs that other warps have; or with the threads as they are.
  void Clusters() {
    const auto by = [&](int64_t factor, bool threads_too) {
      Opts changed = opts_;
      if (changed.empty() || changed[0].kind != OptKind::kCluster)
        changed.insert(changed.begin(), {OptKind::kCluster, 0, 1});
      const auto scale = [&](Opt& opt) {
        opt.amount = factor > 0 ? opt.amount * factor : opt.amount / -factor;
      };
      for (Opt& opt : changed)
        if (opt.kind == OptKind::kCluster ||
            (threads_too && (opt.kind == OptKind::kShare || opt.kind == OptKind::kWarp)))
          scale(opt);
      if (changed[0].amount == 1) changed.erase(changed.begin());
      Offer(std::move(changed));
    };
    if (target_.cluster_blocks_max() == 1) return;
    for (const bool threads_too : {true, false})
      for (const int64_t factor : {2, -2}) by(factor, threads_too);
  }

  void OfferAmount(size_t place, int64_t amount) {
    if (amount < 1) return;
    Opts changed = opts_;
    changed[place].amount = amount;
    Offer(std::move(changed));
  }

  void Amounts(size_t i) {
    const int64_t amount = opts_[i].amount;
    switch (opts_[i].kind) {
      case OptKind::kVector:
      case OptKind::kUnroll:
      case OptKind::kGroup:
      case OptKind::kBlock:
        OfferAmount(i, amount * 2);
        OfferAmount(i, amount / 2);
        break;
      case OptKind::kUpcast:
        for (const int64_t other : {amount - 2, amount - 1, amount + 1, amount + 2, amount * 2})
          OfferAmount(i, other);
        break;
      case OptKind::kThread:
      case OptKind::kLocal:  // level 0 comes from taking the copy away and adding it again
        OfferAmount(i, amount - 1);
        OfferAmount(i, amount + 1);
        break;
      case OptKind::kFlatten:
      case OptKind::kOnline:
      case OptKind::kPanel:
      case OptKind::kMma:
      case OptKind::kWgmma:
      case OptKind::kCpuMatrixUnit:
      case OptKind::kSwap:
      case OptKind::kCluster:
      case OptKind::kAlign:
      case OptKind::kKeep:
      case OptKind::kGrid: break;
      case OptKind::kLane:
      case OptKind::kWarp:
      case OptKind::kShare:
        OfferAmount(i, amount * 2);
        OfferAmount(i, amount / 2);
        break;
    }
  }

  // Of two output ranges at once: between half of the registers and all of them.
  void RegisterTiles() {
    for (size_t i = 0; i < opts_.size(); ++i)
      for (size_t k = i + 1; k < opts_.size(); ++k) {
        if (opts_[i].kind != OptKind::kUpcast || opts_[k].kind != OptKind::kUpcast) continue;
        for (const int64_t a : {2, 3, 4, 6, 8, 10, 12, 14})
          for (const int64_t b : {2, 3, 4, 6, 8, 10, 12, 14}) {
            if (a * b * 2 < target_.vector_registers || a * b + 2 > target_.vector_registers)
              continue;
            Opts changed = opts_;
            changed[i].amount = a;
            changed[k].amount = b;
            Offer(std::move(changed));
          }
      }
  }

  void Additions(int64_t loads, int64_t loops) {
    const auto add = [&](Opt opt) {
      Opts more = opts_;
      more.push_back(opt);
      Offer(std::move(more));
    };
    for (int64_t axis = 0; axis < axes_; ++axis) {
      for (int64_t lanes = target_.vector_bytes / 4; lanes >= 4; lanes /= 2)
        add({OptKind::kVector, axis, lanes});
      for (const int64_t count : {2, 4}) {
        add({axis < outputs_ ? OptKind::kUpcast : OptKind::kUnroll, axis, count});
        if (axis >= outputs_) add({OptKind::kGroup, axis, count});
      }
      for (int64_t rows = 0; axis >= outputs_ && rows < outputs_; ++rows)
        add({OptKind::kCpuMatrixUnit, axis, rows});
      if (axis < outputs_)
        for (const int64_t size : {64, 256}) add({OptKind::kBlock, axis, size});
    }
    for (int64_t loop = 0; loop + 1 < loops; ++loop) add({OptKind::kSwap, loop, loop + 1});
    for (int64_t count = 1; count <= std::min<int64_t>(loops, 3); ++count)
      add({OptKind::kThread, 0, count});
    for (int64_t load = 0; load < loads; ++load)
      for (int64_t level = 0; level <= loops; ++level) add({OptKind::kLocal, load, level});
  }

  Graph graph_;  // of plain_
  const UOp* const sink_;
  const UOp* plain_ = nullptr;
  const Opts& opts_;
  const Target& target_;
  int64_t axes_ = 0, outputs_ = 0;
  absl::flat_hash_set<std::string> seen_;  // looked up, never walked
  std::vector<Neighbour> found_;
};

}  // namespace

std::vector<Neighbour> Neighbours(const UOp* sink, const Opts& opts, const Target& target) {
  return Moves(sink, opts, target).Run();
}

}  // namespace outboard::search
