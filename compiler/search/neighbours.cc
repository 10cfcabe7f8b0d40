#include "compiler/search/neighbours.h"

#include <algorithm>
#include <span>

#include "compiler/codegen/apply.h"
#include "compiler/codegen/kernel.h"
#include "compiler/ir/check.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;

// Amounts worth trying: those that fill registers (up to 14 rows of two vectors) and divide often.
constexpr int64_t kUpcasts[] = {2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 24, 32};
constexpr int64_t kUnrolls[] = {2, 4, 8, 16};
constexpr int64_t kPartials[] = {2, 3, 4, 6, 8};
constexpr int64_t kBlocks[] = {16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048};

std::span<const int64_t> LadderOf(OptKind kind) {
  switch (kind) {
    case OptKind::kUpcast: return kUpcasts;
    case OptKind::kUnroll: return kUnrolls;
    case OptKind::kGroup: return kPartials;
    case OptKind::kBlock: return kBlocks;
    default: return {};
  }
}

// The next amount on the ladder, above or below; 0 where there is none.
int64_t Next(OptKind kind, int64_t amount, bool up) {
  if (kind == OptKind::kVector) return up ? amount * 2 : amount / 2;
  if (kind == OptKind::kThread || kind == OptKind::kLocal) return up ? amount + 1 : amount - 1;
  const std::span<const int64_t> ladder = LadderOf(kind);
  if (up) {
    const auto above = std::upper_bound(ladder.begin(), ladder.end(), amount);
    return above == ladder.end() ? 0 : *above;
  }
  const auto least = std::lower_bound(ladder.begin(), ladder.end(), amount);
  return least == ladder.begin() ? 0 : *(least - 1);
}

class Walk {
 public:
  Walk(const UOp* kernel, const Opts& opts, const codegen::Machine& machine)
      : kernel_(kernel), opts_(opts), machine_(machine) {}

  absl::StatusOr<std::vector<Opts>> Run() {
    OB_ASSIGN_OR_RETURN(const codegen::Kernel analysed, codegen::AnalyzeKernel(kernel_));
    axes_ = static_cast<int64_t>(codegen::AxesOf(analysed).size());
    outputs_ = analysed.output_count;
    loads_ = static_cast<int64_t>(codegen::LoadsOf(analysed).size());
    Change();
    Trade();
    Extend();
    Drop();
    return std::move(found_);
  }

 private:
  void Change() {
    for (size_t i = 0; i < opts_.size(); ++i)
      for (const bool up : {true, false}) {
        Opts next = opts_;
        next[i].amount = Next(opts_[i].kind, opts_[i].amount, up);
        if (next[i].amount != 0 || opts_[i].kind == OptKind::kLocal) Consider(std::move(next));
      }
  }
  // A register tile is a product: one side grows, another shrinks.
  void Trade() {
    for (size_t i = 0; i < opts_.size(); ++i)
      for (size_t j = 0; j < opts_.size(); ++j) {
        if (i == j || opts_[i].kind != OptKind::kUpcast || opts_[j].kind != OptKind::kUpcast)
          continue;
        Opts next = opts_;
        next[i].amount = Next(OptKind::kUpcast, opts_[i].amount, true);
        next[j].amount = Next(OptKind::kUpcast, opts_[j].amount, false);
        if (next[i].amount == 0) continue;
        if (next[j].amount == 0) next.erase(next.begin() + static_cast<int64_t>(j));
        Consider(std::move(next));
      }
  }
  void Extend() {
    for (int64_t axis = 0; axis < axes_; ++axis) {
      const bool output = axis < outputs_;
      Add({OptKind::kVector, axis, machine_.vector_bytes / 4});
      for (const int64_t amount : {2, 4, 8})
        Add({output ? OptKind::kUpcast : OptKind::kUnroll, axis, amount});
      if (!output) Add({OptKind::kGroup, axis, 4});
      if (output)
        for (const int64_t size : {64, 256}) Add({OptKind::kBlock, axis, size});
      Add({OptKind::kFlatten, axis, 0});
    }
    for (int64_t a = 0; a < outputs_; ++a) Add({OptKind::kSwap, a, a + 1});
    for (const int64_t count : {1, 2}) Add({OptKind::kThread, 0, count});
    for (int64_t load = 0; load < loads_; ++load)
      for (int64_t level = 0; level <= outputs_; ++level) Add({OptKind::kLocal, load, level});
  }
  void Drop() {
    for (size_t i = 0; i < opts_.size(); ++i) {
      Opts next = opts_;
      next.erase(next.begin() + static_cast<int64_t>(i));
      Consider(std::move(next));
    }
  }

  void Add(const Opt& opt) {
    for (const Opt& other : opts_)
      if (other.kind == opt.kind && other.axis == opt.axis) return;
    Opts next = opts_;
    next.insert(std::upper_bound(next.begin(), next.end(), opt,
                                 [](const Opt& a, const Opt& b) { return a.kind < b.kind; }),
                opt);
    Consider(std::move(next));
  }

  // A block is a whole number of tiles: it follows when its tile changes.
  static void FitBlocks(Opts& opts) {
    for (Opt& block : opts) {
      if (block.kind != OptKind::kBlock) continue;
      int64_t step = 1;
      for (const Opt& opt : opts)
        if (opt.axis == block.axis &&
            (opt.kind == OptKind::kVector || opt.kind == OptKind::kUpcast))
          step *= opt.amount;
      block.amount = std::max<int64_t>(1, (block.amount + step / 2) / step) * step;
    }
  }

  void Consider(Opts next) {
    FitBlocks(next);
    if (next == opts_ || std::find(found_.begin(), found_.end(), next) != found_.end()) return;
    absl::StatusOr<codegen::Kernel> fresh = codegen::AnalyzeKernel(kernel_);
    if (fresh.ok() && codegen::ApplyOpts(*std::move(fresh), next, machine_).ok())
      found_.push_back(std::move(next));
  }

  const UOp* kernel_;
  const Opts& opts_;
  const codegen::Machine& machine_;
  int64_t axes_ = 0, outputs_ = 0, loads_ = 0;
  std::vector<Opts> found_;
};

}  // namespace

absl::StatusOr<std::vector<Opts>> Neighbours(const UOp* kernel, const Opts& opts,
                                             const codegen::Machine& machine) {
  return Walk(kernel, opts, machine).Run();
}

}  // namespace outboard::search
