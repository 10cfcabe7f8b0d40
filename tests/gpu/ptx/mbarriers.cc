// mbarriers: barriers in shared memory that count arrivals and bytes.
//
//   init -> [pending arrivals, outstanding bytes] -> CompletePhase when both are zero -> the
//       next phase
//
// Arrivals and landed copies release, successful waits acquire.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {
namespace {
constexpr uint32_t kArrivalsMax = (1u << 20) - 1;
constexpr int64_t kBytesMax = (1 << 20) - 1;
}  // namespace

void MergeAs(Clocks* into, uint32_t into_block, const Clocks& from, uint32_t from_block) {
  if (into_block == from_block) return into->Merge(from);
  into->MergeForeign(from_block, from.own);
  for (const auto& [block, array] : from.foreign) {
    if (block != into_block) {
      into->MergeForeign(block, array);
      continue;
    }
    for (int i = 0; i < kSlots; ++i) into->own[i] = std::max(into->own[i], array[i]);
  }
}

TransactionBarrier* Execution::FindMbarrier(Warp* warp, int lane, const Instruction& in,
                                            uint64_t address, Place* place) {
  const Space space = in.op == Op::kBulkLoad || in.op == Op::kTensorLoad ? Space::kCluster
                      : in.space == Space::kGeneric                      ? Space::kGeneric
                                                                         : in.space;
  if (!Resolve(warp, lane, in, space, address, 8, 8, place)) return nullptr;
  if (place->owner == nullptr) {
    Tell(ReportKind::kMisuse, in, warp, lane, space, address, "an mbarrier lies in shared memory");
    return nullptr;
  }
  // Its initialisation is an ordinary write, which has to be ordered before its use.
  CheckRead(LaneActor(warp, lane, true), in, *place, 8);
  if (!status_.ok()) return nullptr;
  const auto it = place->owner->mbarriers.find(static_cast<uint32_t>(place->offset));
  if (it != place->owner->mbarriers.end()) return &it->second;
  Tell(ReportKind::kMisuse, in, warp, lane, Space::kShared, address,
       "there is no initialised mbarrier");
  return nullptr;
}

bool Execution::Mbarrier(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  if (in.op == Op::kMbarWait) return MbarrierWait(warp, group, in, mask);
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t address =
        (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
    Place place;
    if (in.op == Op::kMbarInit) {
      if (!Resolve(warp, lane, in, in.space, address, 8, 8, &place)) return false;
      const uint32_t count = static_cast<uint32_t>(warp->row(in.b)[lane]);
      if (count == 0 || count > kArrivalsMax || place.owner == nullptr) {
        Tell(ReportKind::kMisuse, in, warp, lane, Space::kShared, address,
             absl::StrCat("an mbarrier for ", count, " arrivals"));
        return false;
      }
      CheckWrite(LaneActor(warp, lane), in, place, 8);
      if (!status_.ok()) return false;
      TransactionBarrier barrier;
      barrier.expected = barrier.pending = count;
      place.owner->mbarriers[static_cast<uint32_t>(place.offset)] = barrier;
      continue;
    }
    TransactionBarrier* barrier = FindMbarrier(warp, lane, in, address, &place);
    if (barrier == nullptr) return false;
    const uint32_t offset = static_cast<uint32_t>(place.offset);
    if (in.op == Op::kMbarInval) {
      place.owner->mbarriers.erase(offset);
      continue;
    }
    const auto misuse = [&](std::string what) {
      Tell(ReportKind::kMisuse, in, warp, lane, Space::kShared, address, std::move(what));
      return false;
    };
    if (in.c >= 0) {
      barrier->transactions += static_cast<uint32_t>(warp->row(in.c)[lane]);
      if (barrier->transactions > kBytesMax)
        return misuse("more than 2^20 - 1 bytes are outstanding");
      if (in.op == Op::kMbarExpect) continue;
    }
    uint32_t arrivals = in.b >= 0 ? static_cast<uint32_t>(warp->row(in.b)[lane]) : 1;
    if (in.op == Op::kCpMbarArrive) {
      // The thread's copies come first. They land now: whoever does not wait for this barrier is
      // not ordered with them.
      auto& groups = warp->copies[lane];
      for (auto& copies : groups) {
        for (ThreadCopy& copy : copies) {
          LandThreadCopy(warp, lane, &copy, in);
          warp->block->shared->Written(copy.target, copy.bytes, warp->clock());
        }
        copies.clear();
      }
      if (in.mode == 0) ++barrier->pending;
    }
    if (arrivals == 0 || arrivals > barrier->pending)
      return misuse(absl::StrCat(arrivals, " arrivals, ", barrier->pending, " are pending"));
    if (in.d >= 0) warp->row(in.d)[lane] = barrier->phase;
    MergeAs(&barrier->current, place.owner->id, warp->clocks, warp->block->id);
    barrier->pending -= arrivals;
    if (barrier->pending == 0 && barrier->transactions == 0)
      CompletePhase(place.owner, offset, barrier);
  }
  Release(warp);
  return true;
}

void Execution::CompletePhase(Block* block, uint32_t offset, TransactionBarrier* barrier) {
  ++barrier->phase;
  barrier->pending = barrier->expected;
  barrier->completed = barrier->current;
  for (const auto& warp : block->warps)
    for (Group& group : warp->groups)
      if (group.wait == Wait::kMbarrier && group.address == offset) group.wait = Wait::kNone;
}

void Execution::CompleteTransaction(Block* block, uint32_t offset, const BulkCopy& copy,
                                    uint64_t bytes) {
  const auto it = block->mbarriers.find(offset);
  if (it == block->mbarriers.end()) return;  // reported when it was issued, or invalidated since
  TransactionBarrier& barrier = it->second;
  barrier.transactions -= static_cast<int64_t>(bytes);
  Clocks engine;
  engine.own[SlotOf(kEngineThread)] = copy.clock;
  MergeAs(&barrier.current, block->id, engine, copy.issuer->id);
  if (barrier.pending == 0 && barrier.transactions == 0) CompletePhase(block, offset, &barrier);
}

bool Execution::MbarrierWait(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  uint64_t results[32] = {};
  uint32_t done = 0;
  uint64_t common = ~uint64_t{0};
  bool same = true;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t address =
        (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
    Place place;
    const TransactionBarrier* barrier = FindMbarrier(warp, lane, in, address, &place);
    if (barrier == nullptr) return false;
    const uint64_t operand = warp->row(in.b)[lane];
    const bool complete =
        in.flags & kFlagParity ? (barrier->phase & 1) != (operand & 1) : barrier->phase > operand;
    results[lane] = complete;
    if (complete) {
      done |= 1u << lane;
      MergeAs(&warp->clocks, warp->block->id, barrier->completed, place.owner->id);
    }
    if (common == ~uint64_t{0}) common = place.offset;
    same &= common == place.offset;
  }
  if (done == 0 && same && !(in.flags & kFlagLateFalse)) {
    // try_wait may give up at any time: later runs do so now and then.
    if (run_ == 0 || Random(2) == 0) {
      group->wait = Wait::kMbarrier;
      group->address = common;
      return false;
    }
  }
  for (uint32_t m = mask; m != 0; m &= m - 1)
    warp->row(in.d)[std::countr_zero(m)] = results[std::countr_zero(m)];
  if (done != mask) {
    // Others have to move before another look says more.
    warp->spun = true;
    warp->turn_limit = std::min(warp->turn_limit, warp_instructions_ + 4);
  }
  return true;
}

}  // namespace outboard::ptx
