// cp.async.bulk and TMA: copies by an engine that belongs to no warp.
//
// A copy acts with its issuer's knowledge: what its issuer is ordered with, it is. It lands at once
// in early runs; in late ones when nothing else can move, or when its group is waited for. Until
// then its bytes are in flight.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"
#include "tests/gpu/ptx/tensor_map.h"

namespace outboard::ptx {
namespace {

// Bits 4 to 6 are mixed with bits 7 to 9, as far as the span of the swizzle goes.
uint32_t Swizzled(uint32_t address, int swizzle) {
  const uint32_t bits = swizzle == 0 ? 0 : (1u << swizzle) - 1;
  return address ^ ((address >> 7 & bits) << 4);
}

// A piece that is contiguous on both sides; without a source it is filled.
struct Piece {
  uint32_t shared = 0;
  uint64_t global = 0;
  uint32_t bytes = 0;
  bool inside = true;
};

// The 16-byte pieces of a box of a tensor, in the order of shared memory; elements may be outside
// one by one.
void BoxPieces(const TensorMap& map, const int32_t* start, uint32_t shared,
               std::vector<Piece>* pieces) {
  uint64_t rows = 1;
  for (int i = 1; i < map.rank; ++i) rows *= map.box[i];
  uint32_t at = shared;
  for (uint64_t row = 0; row < rows; ++row) {
    uint64_t rest = row;
    uint64_t address = map.address;
    bool inside = true;
    for (int i = 1; i < map.rank; ++i) {
      const int64_t index = start[i] + static_cast<int64_t>(rest % map.box[i]);
      rest /= map.box[i];
      inside &= index >= 0 && index < static_cast<int64_t>(map.dims[i]);
      address += static_cast<uint64_t>(index) * map.strides[i - 1];
    }
    for (int x = 0; x < map.box[0]; ++x, at += map.element_bytes) {
      const int64_t index = int64_t{start[0]} + x;
      const bool here = inside && index >= 0 && index < static_cast<int64_t>(map.dims[0]);
      const Piece piece = {Swizzled(at, map.swizzle),
                           address + static_cast<uint64_t>(index) * map.element_bytes,
                           map.element_bytes, here};
      // Elements side by side make one piece, up to the 16 bytes that a swizzle keeps together.
      if (x > 0) {
        Piece& last = pieces->back();
        if (last.inside == here && last.bytes < 16 && last.shared + last.bytes == piece.shared &&
            piece.shared % 16 != 0) {
          last.bytes += piece.bytes;
          continue;
        }
      }
      pieces->push_back(piece);
    }
  }
}

}  // namespace

bool Execution::Bulk(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    auto& groups = warp->bulk[lane];
    if (in.op == Op::kBulkCommit) {
      if (groups.empty()) groups.emplace_back();
      groups.emplace_back();
    } else if (in.op == Op::kBulkWait) {
      while (groups.size() > static_cast<size_t>(in.offset) + 1) {
        for (const auto& copy : groups.front()) {
          Land(copy);
          uint32_t& known = warp->clocks.own[SlotOf(kEngineThread)];
          known = std::max(known, copy->clock);
        }
        groups.pop_front();
      }
    } else {
      BulkLane(warp, lane, in);
      if (!status_.ok()) return false;
    }
  }
  return true;
}

// What it brings nearer is memory's, whoever writes it, so it needs no order with anything.
void Execution::CheckBulkPrefetch(Warp* warp, const Instruction& in, uint32_t mask) {
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t first =
        (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
    const uint64_t bytes = static_cast<uint32_t>(warp->row(in.d2)[lane]);
    const auto tell = [&](ReportKind kind, std::string what) {
      Tell(kind, in, warp, lane, Space::kGlobal, first, std::move(what));
    };
    if (bytes == 0 || bytes % 16 != 0)
      return tell(ReportKind::kMisuse, absl::StrCat(bytes, " bytes is no multiple of 16"));
    if (first % 16 != 0) return tell(ReportKind::kMisaligned, "must be a multiple of 16");
    if (memory_->Find(first, bytes) == nullptr)
      return tell(ReportKind::kOutOfBounds,
                  absl::StrCat(bytes, " bytes from here on are not of one allocation"));
  }
}

void Execution::BulkLane(Warp* warp, int lane, const Instruction& in) {
  const bool tensor = in.op == Op::kTensorLoad || in.op == Op::kTensorStore;
  const bool load = in.op == Op::kTensorLoad || in.op == Op::kBulkLoad;
  const uint64_t first = (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
  const auto misuse = [&](uint64_t address, std::string what) {
    Tell(ReportKind::kMisuse, in, warp, lane, Space::kGeneric, address, std::move(what));
  };

  // Both sides, as pieces relative to shared memory of any block.
  std::vector<Piece> pieces;
  uint64_t total = 0;
  Place shared;
  uint8_t fill = 0;
  if (tensor) {
    TensorMap map;
    Place place;
    const uint64_t at = warp->row(in.b)[lane];
    if (!Resolve(warp, lane, in, Space::kGeneric, at, sizeof(map), 64, &place)) return;
    std::memcpy(&map, place.raw != nullptr ? place.raw : place.region->data.data() + place.offset,
                sizeof(map));
    if (map.magic != TensorMap::kMagic) return misuse(at, "there is no tensor map at this address");
    if (map.rank != in.mode)
      return misuse(at, absl::StrCat("the tensor map has ", map.rank, " dimensions"));
    for (int i = 0; i < map.rank; ++i)
      if (map.element_strides[i] != 1)
        return Fail(absl::UnimplementedError("tensor maps with element strides are not known"));
    if (map.nan_fill != 0)
      return Fail(absl::UnimplementedError("tensor maps that fill with NaN are not known"));
    total = map.element_bytes;
    for (int i = 0; i < map.rank; ++i) total *= map.box[i];
    // A swizzled box starts at a multiple of its pattern, or the pattern depends on where it lies.
    if (!Resolve(warp, lane, in, load ? Space::kCluster : Space::kShared, first, total, 128,
                 &shared))
      return;
    int32_t start[5] = {};
    for (int i = 0; i < map.rank; ++i)
      start[i] = static_cast<int32_t>(warp->row(function_.operands[in.list + i])[lane]);
    BoxPieces(map, start, static_cast<uint32_t>(shared.offset), &pieces);
  } else {
    total = static_cast<uint32_t>(warp->row(in.d2)[lane]);
    if (total == 0 || total % 16 != 0)
      return misuse(first, absl::StrCat(total, " bytes is no multiple of 16"));
    const uint64_t second = warp->row(in.b)[lane];
    if (!Resolve(warp, lane, in, load ? Space::kCluster : Space::kShared, load ? first : second,
                 total, 16, &shared))
      return;
    pieces.push_back({static_cast<uint32_t>(shared.offset), load ? second : first,
                      static_cast<uint32_t>(total), true});
  }

  auto copy = std::make_shared<BulkCopy>();
  copy->issuer = warp->block;
  copy->clock = ++warp->block->engine_clock;
  Actor engine = LaneActor(warp, lane);
  engine.thread = kEngineThread;
  engine.clock = copy->clock;
  engine.asynchronous = true;

  uint32_t barrier_offset = 0;
  if (load) {
    Place barrier_place;
    TransactionBarrier* barrier =
        FindMbarrier(warp, lane, in, warp->row(in.c)[lane], &barrier_place);
    if (barrier == nullptr) return;
    if (barrier_place.owner != shared.owner)
      return misuse(first, "target and mbarrier are of different blocks");
    if (!barrier->fenced)
      return Tell(
          ReportKind::kProxyFence, in, warp, lane, Space::kShared, barrier_place.offset,
          "no fence.mbarrier_init or fence.proxy.async since the mbarrier's initialisation");
    barrier_offset = static_cast<uint32_t>(barrier_place.offset);
    if (in.flags & kFlagMulticast) {
      const uint32_t blocks = static_cast<uint32_t>(warp->row(in.e)[lane]);
      const auto& cluster = warp->block->cluster->blocks;
      for (size_t rank = 0; rank < cluster.size(); ++rank)
        if (blocks >> rank & 1) {
          if (cluster[rank]->live_warps == 0)
            return misuse(first, "multicasts to a block that has left");
          // Each of them counts bytes at an mbarrier of its own.
          Place its = barrier_place;
          its.owner = cluster[rank];
          its.region = its.owner->shared.get();
          if (!its.owner->mbarriers.contains(barrier_offset))
            return misuse(first, absl::StrCat("multicasts to block ", rank,
                                              " of the cluster, which has no initialised mbarrier "
                                              "at this place"));
          CheckRead(LaneActor(warp, lane, true), in, its, 8);
          if (!status_.ok()) return;
          copy->targets.push_back(its.owner);
        }
      if (blocks >> cluster.size() != 0)
        return misuse(first, "multicasts to a block that the cluster does not have");
    } else {
      copy->targets.push_back(shared.owner);
    }
  }

  for (const Piece& piece : pieces) {
    Place global;
    if (piece.inside) {
      const uint64_t align = tensor ? 1 : 16;
      if (!Resolve(warp, lane, in, Space::kGlobal, piece.global, piece.bytes, align, &global))
        return;
      if (load) CheckRead(engine, in, global, piece.bytes);
    }
    if (!status_.ok()) return;
    if (load) {
      for (Block* block : copy->targets) {
        Place target = shared;
        target.region = block->shared.get();
        target.owner = block;
        target.offset = piece.shared;
        CheckWrite(engine, in, target, piece.bytes);
        if (!status_.ok()) return;
        std::memset(target.region->state.data() + target.offset, kInFlight, piece.bytes);
      }
    } else {
      Place source = shared;
      source.offset = piece.shared;
      CheckRead(engine, in, source, piece.bytes);
      if (status_.ok() && piece.inside) {
        CheckWrite(engine, in, global, piece.bytes);
        if (status_.ok())
          std::memset(global.region->state.data() + global.offset, kInFlight, piece.bytes);
      }
      if (!status_.ok()) return;
    }
  }

  Block* const own = warp->block;
  BulkCopy* const self = copy.get();
  copy->land = [this, self, own, pieces = std::move(pieces), load, total, fill, barrier_offset] {
    for (const Piece& piece : pieces) {
      Region* global = piece.inside ? memory_->Find(piece.global, piece.bytes) : nullptr;
      uint8_t* there =
          global != nullptr ? global->data.data() + (piece.global - global->base) : nullptr;
      if (!load) {
        if (there == nullptr) continue;
        std::memcpy(there, own->shared->data.data() + piece.shared, piece.bytes);
        std::memset(global->state.data() + (piece.global - global->base), kWritten, piece.bytes);
        continue;
      }
      for (Block* block : self->targets) {
        uint8_t* here = block->shared->data.data() + piece.shared;
        if (there != nullptr)
          std::memcpy(here, there, piece.bytes);
        else
          std::memset(here, fill, piece.bytes);
        std::memset(block->shared->state.data() + piece.shared, kWritten, piece.bytes);
      }
    }
    if (load)
      for (Block* block : self->targets) CompleteTransaction(block, barrier_offset, *self, total);
  };
  if (!load) {
    auto& groups = warp->bulk[lane];
    if (groups.empty()) groups.emplace_back();
    groups.back().push_back(copy);
  }
  if (run_ == 0)
    Land(copy);
  else
    in_flight_.push_back(copy);
  if (counting_)
    machine_->counters_.global_sectors += (total + 31) / 32,
        machine_->counters_.global_bytes += total;
}

void Execution::Land(const std::shared_ptr<BulkCopy>& copy) {
  if (copy->landed) return;
  copy->landed = true;
  copy->land();
  in_flight_.erase(std::remove(in_flight_.begin(), in_flight_.end(), copy), in_flight_.end());
}

bool Execution::DeliverOne() {
  if (in_flight_.empty()) return false;
  // The last one first, then any: copies have no order among each other.
  const size_t picked =
      run_ == 1 ? in_flight_.size() - 1 : Random(static_cast<uint32_t>(in_flight_.size()));
  const std::shared_ptr<BulkCopy> copy = in_flight_[picked];
  Land(copy);
  return true;
}

void Execution::FinishCopies(Block* block) {
  for (const auto& copy : in_flight_) {
    const bool target =
        std::find(copy->targets.begin(), copy->targets.end(), block) != copy->targets.end();
    if (copy->landed || (copy->issuer != block && !target)) continue;
    return Tell(ReportKind::kInFlight, function_.code.back(), block->warps[0].get(), 0,
                Space::kShared, 0,
                "the block leaves while a copy from or to its shared memory is in flight");
  }
  for (size_t first = 0; first + 4 <= block->warps.size(); first += 4) {
    const Warpgroup& warpgroup = block->warpgroups[first / 4];
    const auto [least, most] =
        std::minmax_element(warpgroup.committed.begin(), warpgroup.committed.end());
    if (*least == *most) continue;
    return Tell(ReportKind::kDivergence, function_.code.back(), block->warps[first].get(), 0,
                Space::kGeneric, 0,
                "the warps of a warpgroup have issued different numbers of groups of products");
  }
}

}  // namespace outboard::ptx
