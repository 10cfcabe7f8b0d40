// Instructions in which lanes of a warp, threads of a block or blocks of a cluster meet.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

// Whether all lanes that the instruction needs are in the group; if not, the group waits for them.
bool Execution::HaveLanes(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  uint32_t needed = warp->live;
  if (!in.aligned && in.op != Op::kClusterArrive && in.op != Op::kClusterWait && in.e >= 0) {
    needed = 0;
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const int lane = std::countr_zero(m);
      const uint32_t members = static_cast<uint32_t>(warp->row(in.e)[lane]);
      if (!(members >> lane & 1)) {
        Tell(ReportKind::kMisuse, in, warp, lane, Space::kGeneric, 0,
             absl::StrCat("the lane is not in its own membermask ", members));
        return false;
      }
      needed |= members;
    }
    needed &= warp->live;
  }
  if ((mask & needed) == needed) return true;
  group->wait = Wait::kLanes;
  return false;
}

void Execution::Shuffle(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t *a = warp->row(in.a), *b = warp->row(in.b), *c = warp->row(in.c), *e = warp->row(in.e);
  uint64_t result[32];
  bool valid[32] = {};
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const int bval = static_cast<int>(b[lane] & 31), cval = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31);
    const int max_lane = (lane & segment) | (cval & ~segment);
    const int min_lane = lane & segment;
    int j = lane;
    bool in_range = false;
    switch (in.mode) {
      case 0: j = lane - bval; in_range = j >= max_lane; break;
      case 1: j = lane + bval; in_range = j <= max_lane; break;
      case 2: j = lane ^ bval; in_range = j <= max_lane; break;
      default: j = min_lane | (bval & ~segment); in_range = j <= max_lane; break;
    }
    if (!in_range) j = lane;
    if (!(mask >> j & 1) || !(static_cast<uint32_t>(e[lane]) >> j & 1))
      return Tell(ReportKind::kDivergence, in, warp, lane, Space::kGeneric, 0,
                  absl::StrCat("reads lane ", j, ", which does not take part"));
    result[lane] = static_cast<uint32_t>(a[j]);
    valid[lane] = in_range;
  }
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    warp->row(in.d)[lane] = result[lane];
    if (in.d2 >= 0) warp->row(in.d2)[lane] = valid[lane];
  }
}

void Execution::Vote(Warp* warp, const Instruction& in, uint32_t mask) {
  uint32_t set = 0;
  uint32_t members[32];
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    members[lane] = static_cast<uint32_t>(warp->row(in.e)[lane]) & mask;
    if (in.op == Op::kVote) set |= static_cast<uint32_t>(warp->row(in.a)[lane] & 1) << lane;
  }
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint32_t among = set & members[lane];
    uint64_t result = 0;
    if (in.op == Op::kElect) {
      const int leader = std::countr_zero(members[lane]);
      if (in.d2 >= 0) warp->row(in.d2)[lane] = leader == lane;
      result = static_cast<uint64_t>(leader);
    } else {
      switch (in.mode) {
        case 0: result = among == members[lane]; break;
        case 1: result = among != 0; break;
        case 2: result = among == 0 || among == members[lane]; break;
        default: result = among; break;
      }
    }
    warp->row(in.d)[lane] = result;
  }
}

void Execution::Match(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t bits = in.type == Type::kB64 ? ~uint64_t{0} : 0xffffffff;
  uint64_t values[32];
  for (int lane = 0; lane < 32; ++lane) values[lane] = warp->row(in.a)[lane] & bits;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint32_t members = static_cast<uint32_t>(warp->row(in.e)[lane]) & mask;
    uint32_t same = 0;
    for (int other = 0; other < 32; ++other)
      if (members >> other & 1 && values[other] == values[lane]) same |= 1u << other;
    const bool all = same == members;
    warp->row(in.d)[lane] = in.mode == 0 ? same : all ? members : 0;
    if (in.d2 >= 0) warp->row(in.d2)[lane] = all;
  }
}

void Execution::Redux(Warp* warp, const Instruction& in, uint32_t mask) {
  uint64_t values[32];
  for (int lane = 0; lane < 32; ++lane) values[lane] = static_cast<uint32_t>(warp->row(in.a)[lane]);
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint32_t members = static_cast<uint32_t>(warp->row(in.e)[lane]) & mask;
    bool first = true;
    uint32_t r = 0;
    for (int other = 0; other < 32; ++other) {
      if (!(members >> other & 1)) continue;
      const uint32_t v = static_cast<uint32_t>(values[other]);
      const bool less = in.type == Type::kS32 ? static_cast<int32_t>(v) < static_cast<int32_t>(r) : v < r;
      if (std::exchange(first, false)) {
        r = v;
        continue;
      }
      switch (in.mode) {
        case 0: r += v; break;
        case 1: r = less ? v : r; break;
        case 2: r = less ? r : v; break;
        case 3: r &= v; break;
        case 4: r |= v; break;
        default: r ^= v; break;
      }
    }
    warp->row(in.d)[lane] = r;
  }
}

// bar.warp.sync: lanes may wait at different instructions.
bool Execution::WarpBarrier(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  uint32_t needed = 0, here = 0;
  group->wait = Wait::kLanes;
  for (const Group& other : warp->groups) {
    if (other.wait != Wait::kLanes || other.mask == 0) continue;
    const Instruction& at = function_.code[other.pc];
    if (at.op != Op::kWarpSync) continue;
    here |= other.mask;
  }
  for (uint32_t m = mask; m != 0; m &= m - 1)
    needed |= static_cast<uint32_t>(warp->row(in.e)[std::countr_zero(m)]);
  needed &= warp->live;
  if ((here & needed) != needed) return false;
  for (Group& other : warp->groups) {
    if (&other == group || other.wait != Wait::kLanes || other.mask == 0) continue;
    if (function_.code[other.pc].op != Op::kWarpSync || !(other.mask & needed)) continue;
    other.wait = Wait::kNone;
    ++other.pc;
  }
  group->wait = Wait::kNone;
  WarpSynced(warp);
  return true;
}

void Execution::BlockBarrier(Warp* warp, Group* group, const Instruction& in, uint32_t mask) {
  Block* block = warp->block;
  const int lane = std::countr_zero(mask);
  const uint32_t id = static_cast<uint32_t>(warp->row(in.a)[lane]);
  const auto misuse = [&](std::string what) { Tell(ReportKind::kMisuse, in, warp, lane, Space::kGeneric, 0, std::move(what)); };
  if (id > 15) return misuse(absl::StrCat("there is no barrier ", id));
  uint32_t expected = static_cast<uint32_t>(block->threads);
  uint32_t arriving = static_cast<uint32_t>(std::popcount(mask));
  if (in.b >= 0) {
    expected = static_cast<uint32_t>(warp->row(in.b)[lane]);
    if (expected == 0 || expected % 32 != 0) return misuse(absl::StrCat(expected, " threads is no multiple of 32"));
    if (in.aligned && warp->live == warp->existed) arriving = 32;
  }
  NamedBarrier& barrier = block->barriers[id];
  if (barrier.open && barrier.expected != expected)
    return misuse(absl::StrCat("barrier ", id, " is in use for ", barrier.expected, " threads, not ", expected));
  if (!barrier.open) {
    barrier.open = true;
    barrier.expected = expected;
    barrier.arrived = 0;
    barrier.clocks = {};
    barrier.reduced = 0;
    barrier.all = true;
    barrier.any = false;
  }
  barrier.arrived += arriving;
  barrier.clocks.Merge(warp->clocks);
  if (in.op == Op::kBarRed) {
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const bool set = warp->row(in.c)[std::countr_zero(m)] & 1;
      barrier.reduced += set;
      barrier.all &= set;
      barrier.any |= set;
    }
  }
  if (in.op == Op::kBarArrive) {
    Release(warp);
    ++group->pc;
  } else {
    group->wait = Wait::kBarrier;
    group->extra = id;
    barrier.waiting.push_back({warp, mask});
  }
  if (barrier.arrived > barrier.expected) return misuse(absl::StrCat("more than ", expected, " threads arrive"));
  if (barrier.arrived == barrier.expected) CompleteBarrier(block, &barrier);
}

void Execution::CompleteBarrier(Block* block, NamedBarrier* barrier) {
  for (const auto& [warp, mask] : barrier->waiting) {
    for (Group& group : warp->groups) {
      if (group.wait != Wait::kBarrier || group.mask != mask) continue;
      const Instruction& in = function_.code[group.pc];
      if (in.op == Op::kBarRed) {
        const uint64_t result = in.mode == 0 ? barrier->reduced : in.mode == 1 ? barrier->all : barrier->any;
        for (uint32_t m = mask; m != 0; m &= m - 1) warp->row(in.d)[std::countr_zero(m)] = result;
      }
      group.wait = Wait::kNone;
      ++group.pc;
    }
    const uint32_t clock = warp->clock();
    warp->clocks.Merge(barrier->clocks);
    warp->clocks.own[warp->index] = clock;
    WarpSynced(warp);
  }
  barrier->waiting.clear();
  barrier->open = false;
}

void Execution::ClusterArrive(Warp* warp, const Instruction& in) {
  Cluster* cluster = warp->block->cluster;
  if (in.order != Order::kRelaxed) {
    Clocks::Array& mine = cluster->current[warp->block->id];
    for (int i = 0; i < kSlots; ++i) mine[i] = std::max(mine[i], warp->clocks.own[i]);
    for (const auto& [block, array] : warp->clocks.foreign) {
      Clocks::Array& other = cluster->current[block];
      for (int i = 0; i < kSlots; ++i) other[i] = std::max(other[i], array[i]);
    }
    WarpSynced(warp);
  }
  warp->cluster_phase = cluster->phase + 1;
  uint32_t all = 0;
  for (const Block* block : cluster->blocks) all += static_cast<uint32_t>(block->warps.size());
  if (++cluster->arrived_warps < all) return;
  cluster->arrived_warps = 0;
  ++cluster->phase;
  cluster->completed = cluster->current;
  for (Block* block : cluster->blocks)
    for (const auto& other : block->warps)
      for (Group& group : other->groups)
        if (group.wait == Wait::kCluster) group.wait = Wait::kNone;
}

bool Execution::ClusterWait(Warp* warp, Group* group) {
  Cluster* cluster = warp->block->cluster;
  if (cluster->phase < warp->cluster_phase) {
    group->wait = Wait::kCluster;
    return false;
  }
  const uint32_t clock = warp->clock();
  for (const auto& [block, array] : cluster->completed) {
    if (block != warp->block->id) {
      warp->clocks.MergeForeign(block, array);
      continue;
    }
    for (int i = 0; i < kSlots; ++i) warp->clocks.own[i] = std::max(warp->clocks.own[i], array[i]);
  }
  warp->clocks.own[warp->index] = clock;
  return true;
}

}  // namespace outboard::ptx
