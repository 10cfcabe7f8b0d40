#include "compiler/search/tiles.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "compiler/divide_up.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;

// Rounds of blocks over the multiprocessors, by the results of a block.
double CostOf(int64_t blocks, int64_t results, const Target& target) {
  return static_cast<double>(DivideUp(blocks, std::max<int64_t>(1, target.multiprocessors)) *
                             results);
}

class Tiles {
 public:
  Tiles(const codegen::LoopNest& kernel, const Opt& from, const Target& target)
      : kernel_(kernel), from_(from), target_(target) {}

  std::vector<Neighbour> Run() {
    if (from_.kind == OptKind::kMma) Mma();
    if (from_.kind == OptKind::kWgmma) Wgmma();
    if (from_.kind == OptKind::kOnline) Online();
    return std::move(found_);
  }

 private:
  void Add(int64_t amount, double cost) {
    const Opt opt{from_.kind, from_.axis, amount};
    const auto same = [&](const Neighbour& other) { return other.opts[0] == opt; };
    if (opt == from_ || std::any_of(found_.begin(), found_.end(), same)) return;
    found_.push_back({{opt}, cost});
  }

  void Mma() {
    using codegen::MmaTile;
    const MmaTile tile = codegen::MmaTileOf(from_.amount);
    const auto offer = [&](MmaTile other) {
      const std::vector<Opt> opts{{OptKind::kMma, from_.axis, codegen::MmaAmount(other)}};
      const auto plan = codegen::PlanMma(kernel_, target_, &opts);
      if (!plan.ok() || !*plan || (*plan)->tile != other) return;
      const codegen::MmaProduct& product = (*plan)->product;
      const int64_t blocks = product.batches * DivideUp(product.rows.count, other.rows) *
                             DivideUp(product.columns.count, other.columns);
      Add(opts[0].amount, CostOf(blocks, other.rows * other.columns, target_));
    };
    using Number = int64_t MmaTile::*;
    constexpr Number kSizes[] = {&MmaTile::rows, &MmaTile::columns, &MmaTile::steps,
                                 &MmaTile::warps_down, &MmaTile::warps_across};
    const auto changed = [](MmaTile other, Number more, Number less) {
      if (more != nullptr) other.*more *= 2;
      if (less != nullptr) other.*less /= 2;
      return other;
    };
    for (const Number size : kSizes) {
      offer(changed(tile, size, nullptr));
      offer(changed(tile, nullptr, size));
    }
    for (const auto& [a, b] : {std::pair(&MmaTile::rows, &MmaTile::columns),
                               std::pair(&MmaTile::warps_down, &MmaTile::warps_across),
                               std::pair(&MmaTile::rows, &MmaTile::steps),
                               std::pair(&MmaTile::columns, &MmaTile::steps)}) {
      offer(changed(tile, a, b));
      offer(changed(tile, b, a));
    }
    for (const int64_t more : {1, -1}) {
      MmaTile other = tile;
      other.stages += more;
      offer(other);
    }
    const std::vector<Opt> list{from_};
    const auto now = codegen::PlanMma(kernel_, target_, &list);
    if (!now.ok() || !*now) return;
    const int64_t order =
        codegen::OrderOf(tile, DivideUp((*now)->product.rows.count, tile.rows));
    for (const int64_t next : {order * 2, order / 2}) {
      MmaTile other = tile;
      other.order = next;
      if (next > 0) offer(other);
    }
  }

  void Wgmma() {
    const program::HopperTile tile = program::WgmmaTileOf(from_.amount, target_);
    const auto offer = [&](const program::HopperTile& other) {
      constexpr int64_t kDigitMax = 9, kOrderMax = 99;  // of an amount
      if (other.stages < 1 || other.stages > kDigitMax || other.order < 1 ||
          other.order > kOrderMax || other.columns < 1)
        return;
      const std::vector<Opt> opts{{OptKind::kWgmma, from_.axis, program::WgmmaAmount(other)}};
      const auto plan = program::PlanHopper(kernel_, target_, &opts, std::nullopt);
      if (!plan.ok() || !*plan) return;
      const program::HopperShape& shape = (*plan)->shape;
      const int64_t blocks = shape.batches() * DivideUp(shape.m, other.rows) *
                             DivideUp(shape.n, other.columns) * other.split;
      Add(opts[0].amount, CostOf(blocks, other.rows * other.columns / other.split, target_));
    };
    program::HopperTile other = tile;
    // A ring has 2, 4 or 8 stages. One that fills the memory has wider ones only if it has fewer.
    for (const int64_t stages : {tile.stages, tile.stages * 2, tile.stages / 2})
      for (const int64_t columns : {64, 128, 192, 256}) {
        const bool trades = stages > tile.stages ? columns < tile.columns : columns > tile.columns;
        if (stages != tile.stages && columns != tile.columns && !trades) continue;
        other = tile;
        other.stages = stages;
        other.columns = columns;
        offer(other);
      }
    for (const int64_t count : {1, 2, 4}) {
      other = tile;
      other.cluster = count;
      offer(other);
      other = tile;
      other.split = count;
      other.cluster = 1;
      other.persistent_blocks = 0;
      offer(other);
    }
    for (const int64_t order : {tile.order * 2, tile.order / 2}) {
      other = tile;
      other.order = order;
      offer(other);
    }
    other = tile;
    other.persistent_blocks =
        tile.persistent_blocks > 0 ? 0 : std::max<int64_t>(1, target_.multiprocessors);
    offer(other);
  }

  void Online() {
    const program::OnlineTile tile = program::OnlineTileOf(from_.amount);
    const auto offer = [&](const program::OnlineTile& other) {
      const std::vector<Opt> opts{{OptKind::kOnline, from_.axis, program::OnlineAmount(other)}};
      const auto plan = program::PlanOnline(kernel_, target_, &opts);
      if (!plan.ok() || !*plan || (*plan)->tile != other) return;
      Add(opts[0].amount, CostOf((*plan)->batches * DivideUp((*plan)->row_count, other.rows()),
                                 other.rows(), target_));
    };
    const auto with = [&](auto change) {
      program::OnlineTile other = tile;
      change(other);
      offer(other);
    };
    for (const int64_t warps : {tile.warps * 2, tile.warps / 2})
      with([&](auto& other) { other.warps = warps; });
    for (const int64_t steps : {tile.steps * 2, tile.steps / 2})
      with([&](auto& other) { other.steps = steps; });
    with([](auto& other) { other.fragments = 3 - other.fragments; });
    // By warpgroups there are 2 or 4 stages, otherwise 1 or 2.
    with([](auto& other) { other.stages = (other.groups ? 6 : 3) - other.stages; });
    with([](auto& other) { other.groups = !other.groups; });
  }

  const codegen::LoopNest& kernel_;
  const Opt from_;
  const Target& target_;
  std::vector<Neighbour> found_;
};

}  // namespace

bool IsTile(const std::vector<Opt>& opts) {
  if (opts.size() != 1) return false;
  const OptKind kind = opts[0].kind;
  return kind == OptKind::kMma || kind == OptKind::kWgmma || kind == OptKind::kOnline;
}

std::vector<Neighbour> TileNeighbours(const codegen::LoopNest& kernel, const Opt& tile,
                                      const Target& target) {
  return Tiles(kernel, tile, target).Run();
}

}  // namespace outboard::search
