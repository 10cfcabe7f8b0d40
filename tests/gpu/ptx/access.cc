// Loads, stores and atomics: where an address lies, what may be read, and who has to be ordered
// with whom.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

bool Execution::Resolve(Warp* warp, int lane, const Instruction& in, Space space, uint64_t address,
                        uint64_t bytes, uint64_t align, Place* place) {
  if (address % align != 0) {
    Tell(ReportKind::kMisaligned, in, warp, lane, space, address,
         absl::StrCat("must be a multiple of ", align));
    return false;
  }
  const uint64_t window = address & kWindowMask;
  if (space == Space::kGeneric) {
    if (window == kSharedWindow)
      space = Space::kCluster;
    else if (window == kLocalWindow)
      space = Space::kLocal;
    else if (window == kParamWindow)
      space = Space::kParam;
    else
      space = Space::kGlobal;
  } else if (space != Space::kGlobal && space != Space::kConst && window != 0) {
    // A generic address where the space's own is wanted.
    Tell(ReportKind::kOutOfBounds, in, warp, lane, space, address, "a generic address");
    return false;
  }
  uint64_t offset = address & ~kWindowMask;
  place->space = space;
  const auto outside = [&](std::string what) {
    Tell(ReportKind::kOutOfBounds, in, warp, lane, space, address, std::move(what));
    return false;
  };
  switch (space) {
    case Space::kGeneric:
    case Space::kGlobal:
    case Space::kConst: {
      place->space = Space::kGlobal;
      if (!CheckPrerequisites(warp, lane, in, space, address)) return false;
      Region* region = memory_->Find(address, bytes);
      if (region == nullptr) {
        Region* start = memory_->Find(address, 1);
        return outside(start == nullptr
                           ? "belongs to no allocation"
                           : absl::StrCat("ends ", address + bytes - start->base - start->bytes(),
                                          " bytes behind an allocation of ", start->bytes()));
      }
      place->region = region;
      place->offset = address - region->base;
      return true;
    }
    case Space::kShared:
    case Space::kCluster: {
      Block* owner = warp->block;
      const uint64_t rank = offset >> kClusterShift;
      if (rank != 0) {
        if (rank > owner->cluster->blocks.size()) return outside("names no block of the cluster");
        owner = owner->cluster->blocks[rank - 1];
        if (space == Space::kShared && owner != warp->block) return outside("is another block's");
        if (owner->live_warps == 0) return outside("its block has left");
        offset &= (1u << kClusterShift) - 1;
      }
      if (offset < static_cast<uint64_t>(kSharedBase) || offset + bytes > owner->shared->bytes())
        return outside(absl::StrCat("the block's shared memory is ", kSharedBase, " to ",
                                    owner->shared->bytes()));
      place->region = owner->shared.get();
      place->offset = offset;
      place->space = Space::kShared;
      place->owner = owner;
      return true;
    }
    case Space::kLocal:
      if (offset + bytes > static_cast<uint64_t>(function_.local_bytes))
        return outside("behind local memory");
      place->raw = warp->local.data() + static_cast<size_t>(lane) * function_.local_bytes + offset;
      place->raw_state =
          warp->local_state.data() + static_cast<size_t>(lane) * function_.local_bytes + offset;
      return true;
    case Space::kParam:
      if (offset + bytes > config_.parameters.size()) return outside("behind the parameters");
      place->raw = const_cast<uint8_t*>(config_.parameters.data()) + offset;
      return true;
  }
  return false;
}

// Whether the access `who` made at `clock` comes before the actor's.
bool Execution::Ordered(const Actor& actor, uint32_t who, uint32_t clock) const {
  if (clock < clock_base_) return true;
  const Warp& warp = *actor.warp;
  const uint32_t thread = who & kThreadMask;
  const int slot = SlotOf(thread);
  if (who >> 12 == warp.block->id) {
    if (thread < kEngineThread && slot == warp.index) {
      return static_cast<int>(thread % 32) == actor.lane || clock < warp.sync_clock;
    }
    return clock <= warp.clocks.own[slot];
  }
  const auto foreign = warp.clocks.foreign.find(who >> 12);
  return foreign != warp.clocks.foreign.end() && clock <= foreign->second[slot];
}

// When all blocks of a cluster have left: each of them stayed until it knew that the others were
// done with its shared memory. Whether one left too early in this run depends on who was ahead.
void Execution::CheckLeftShared(const Cluster& cluster) {
  if (cluster.blocks.size() == 1) return;
  for (const Block* block : cluster.blocks) {
    Clocks known;
    for (const auto& warp : block->warps) known.Merge(warp->clocks);
    block->shared->ForShadows([&](uint64_t at, const Shadow& shadow) {
      const auto check = [&](uint32_t who, uint32_t clock) {
        if (!status_.ok() || clock < clock_base_ || who >> 12 == block->id) return;
        const auto foreign = known.foreign.find(who >> 12);
        const int slot = SlotOf(who & kThreadMask);
        if (foreign != known.foreign.end() && clock <= foreign->second[slot]) return;
        Tell(ReportKind::kRace, function_.code.back(), block->warps[0].get(), 0, Space::kShared, at,
             "the block leaves, and nothing says that another is done with its shared memory", who);
      };
      check(shadow.write_who, shadow.write_clock);
      check(shadow.read_who, shadow.read_clock);
      check(shadow.other_who, shadow.other_clock);
    });
  }
}

// Whether each of `count` bytes is `value`, eight at a time.
static bool AllAre(uint8_t value, const uint8_t* bytes, uint64_t count) {
  constexpr uint64_t kEach = 0x0101010101010101;
  for (; count >= 8; bytes += 8, count -= 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes, 8);
    if (eight != value * kEach) return false;
  }
  for (; count > 0; ++bytes, --count)
    if (*bytes != value) return false;
  return true;
}

void Execution::CheckRead(const Actor& actor, const Instruction& in, const Place& place,
                          uint64_t bytes) {
  const uint32_t who = actor.warp->block->id << 12 | (actor.atomic ? kAtomicBit : 0) | actor.thread;
  const uint32_t identity = who & ~kAtomicBit;
  const uint64_t end = place.offset + bytes;
  for (uint64_t at = place.offset, covered = 0; at < end; at += covered) {
    Shadow& shadow = *place.region->ShadowAt(at, end - at, &covered);
    const bool all_written = AllAre(kWritten, place.region->state.data() + at, covered);
    for (uint64_t byte = at; !all_written && byte < at + covered; ++byte) {
      const uint8_t state = place.region->state[byte];
      if (state == kWritten) continue;
      return Tell(state == kInFlight ? ReportKind::kInFlight : ReportKind::kNeverWritten, in,
                  actor.warp, actor.lane, place.space, place.region->base + byte,
                  state == kInFlight ? "a copy of these bytes was not waited for"
                                     : "nobody has written these bytes");
    }
    if ((shadow.write_who & ~kAtomicBit) != identity &&
        !(actor.atomic && (shadow.write_who & kAtomicBit)) &&
        !Ordered(actor, shadow.write_who, shadow.write_clock)) {
      const bool engine = (shadow.write_who & kThreadMask) == kEngineThread;
      return Tell(engine ? ReportKind::kInFlight : ReportKind::kRace, in, actor.warp, actor.lane,
                  place.space, place.region->base + at,
                  "read, and a write that nothing orders before it", shadow.write_who);
    }
    if (actor.asynchronous && (shadow.write_who & kThreadMask) < kEngineThread &&
        shadow.write_clock >= clock_base_ && place.space == Space::kShared) {
      // Written by an ordinary store: its writer or the reader must have fenced since.
      const uint32_t thread = shadow.write_who & kThreadMask;
      const uint32_t block = shadow.write_who >> 12;
      bool fenced = false;
      for (const auto& owner : blocks_)
        if (owner->id == block &&
            shadow.write_clock < owner->warps[thread / 32]->lane_proxy_clock[thread % 32])
          fenced = true;
      if (block == actor.warp->block->id &&
          shadow.write_clock <= actor.warp->proxy_clocks.own[SlotOf(thread)])
        fenced = true;
      if (!fenced)
        return Tell(ReportKind::kProxyFence, in, actor.warp, actor.lane, place.space,
                    place.region->base + at, "written by st without fence.proxy.async since",
                    shadow.write_who);
    }
    if ((shadow.read_who & ~kAtomicBit) != identity) {
      if (shadow.read_clock >= clock_base_ && !Ordered(actor, shadow.read_who, shadow.read_clock)) {
        shadow.other_who = shadow.read_who;
        shadow.other_clock = shadow.read_clock;
      }
    }
    shadow.read_who = who;
    shadow.read_clock = actor.clock;
  }
}

void Execution::CheckWrite(const Actor& actor, const Instruction& in, const Place& place,
                           uint64_t bytes) {
  const uint32_t who = actor.warp->block->id << 12 | (actor.atomic ? kAtomicBit : 0) | actor.thread;
  const uint32_t identity = who & ~kAtomicBit;
  if (place.region->logging) place.region->Save(place.offset, bytes);
  const uint64_t end = place.offset + bytes;
  for (uint64_t at = place.offset, covered = 0; at < end; at += covered) {
    Shadow& shadow = *place.region->ShadowAt(at, end - at, &covered);
    for (uint64_t byte = at; byte < at + covered; ++byte)
      if (place.region->state[byte] == kInFlight)
        return Tell(ReportKind::kInFlight, in, actor.warp, actor.lane, place.space,
                    place.region->base + byte, "written while a copy of these bytes is in flight");
    const auto conflicts = [&](uint32_t other, uint32_t clock) {
      return (other & ~kAtomicBit) != identity && !(actor.atomic && (other & kAtomicBit)) &&
             !Ordered(actor, other, clock);
    };
    if (conflicts(shadow.write_who, shadow.write_clock))
      return Tell(ReportKind::kRace, in, actor.warp, actor.lane, place.space,
                  place.region->base + at,
                  "written, and another write that nothing orders before it", shadow.write_who);
    for (const auto& [other, clock] : {std::pair{shadow.read_who, shadow.read_clock},
                                       std::pair{shadow.other_who, shadow.other_clock}}) {
      if (!conflicts(other, clock)) continue;
      const bool product = (other & kThreadMask) >= kProductThread;
      return Tell(product ? ReportKind::kInFlight : ReportKind::kRace, in, actor.warp, actor.lane,
                  place.space, place.region->base + at,
                  "written, and a read that nothing orders before it", other);
    }
    shadow.write_who = who;
    shadow.write_clock = actor.clock;
    std::memset(place.region->state.data() + at, kWritten, covered);
  }
}

void Execution::ReadBytes(const Actor& actor, const Instruction& in, const Place& place, void* to,
                          uint64_t bytes) {
  if (place.raw != nullptr) {
    for (uint64_t i = 0; place.raw_state != nullptr && i < bytes; ++i)
      if (place.raw_state[i] == kUnwritten)
        return Tell(ReportKind::kNeverWritten, in, actor.warp, actor.lane, place.space, 0,
                    "local memory");
    std::memcpy(to, place.raw, bytes);
    return;
  }
  CheckRead(actor, in, place, bytes);
  std::memcpy(to, place.region->data.data() + place.offset, bytes);
}

void Execution::WriteBytes(const Actor& actor, const Instruction& in, const Place& place,
                           const void* from, uint64_t bytes) {
  if (place.raw != nullptr) {
    if (place.space == Space::kParam)
      return Tell(ReportKind::kOutOfBounds, in, actor.warp, actor.lane, place.space, 0,
                  "parameters are read-only");
    std::memcpy(place.raw, from, bytes);
    std::memset(place.raw_state, kWritten, bytes);
    return;
  }
  CheckWrite(actor, in, place, bytes);
  if (!status_.ok()) return;
  std::memcpy(place.region->data.data() + place.offset, from, bytes);
}

void Execution::CountGlobal(const uint64_t* addresses, uint32_t mask, int bytes) {
  uint64_t sectors[64];
  int count = 0;
  Counters& counters = machine_->counters_;
  for (; mask != 0; mask &= mask - 1) {
    const uint64_t address = addresses[std::countr_zero(mask)];
    counters.global_bytes += static_cast<uint64_t>(bytes);
    sectors[count++] = address / 32;
  }
  if (!std::is_sorted(sectors, sectors + count)) std::sort(sectors, sectors + count);
  ++counters.global_accesses;
  counters.global_sectors += static_cast<uint64_t>(std::unique(sectors, sectors + count) - sectors);
}

// Accesses of 8 bytes go in two phases of 16 lanes, those of 16 bytes in four of 8. A phase takes
// as many wavefronts as the busiest bank has different words.
void Execution::CountShared(const uint64_t* addresses, uint32_t mask, int bytes) {
  const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  for (int first = 0; first < 32; first += lanes) {
    uint64_t words[64];
    int count = 0;
    for (int lane = first; lane < first + lanes; ++lane) {
      if (!(mask >> lane & 1)) continue;
      for (int word = 0; word < std::max(1, bytes / 4); ++word)
        words[count++] = addresses[lane] / 4 + word;
    }
    if (count == 0) continue;
    if (!std::is_sorted(words, words + count)) std::sort(words, words + count);
    const int unique = static_cast<int>(std::unique(words, words + count) - words);
    int ways[32] = {}, most = 0;
    for (int i = 0; i < unique; ++i) most = std::max(most, ++ways[words[i] % 32]);
    ++machine_->counters_.shared_accesses;
    machine_->counters_.shared_wavefronts += static_cast<uint64_t>(most);
  }
}

namespace {
uint64_t Extended(Type type, uint64_t bits) {
  switch (type) {
    case Type::kS8: return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(bits)));
    case Type::kS16: return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int16_t>(bits)));
    case Type::kS32: return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(bits)));
    default: return bits;
  }
}
}  // namespace

void Execution::Load(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t* base = in.a >= 0 ? warp->row(in.a) : nullptr;
  const int element = BytesOf(in.type);
  const int bytes = element * in.vector;
  const int32_t* list = function_.operands.data() + in.list;
  const bool atomic = in.order != Order::kWeak;
  uint64_t addresses[32];
  Space space = in.space;
  // A warp's common parameter load: one value for all lanes.
  if (space == Space::kParam && base == nullptr) {
    if (static_cast<uint64_t>(in.offset + bytes) > config_.parameters.size()) {
      Tell(ReportKind::kOutOfBounds, in, warp, 0, space, static_cast<uint64_t>(in.offset),
           "behind the parameters");
      return;
    }
    for (int k = 0; k < in.vector; ++k) {
      uint64_t value = 0;
      std::memcpy(&value, config_.parameters.data() + in.offset + k * element,
                  static_cast<size_t>(element));
      value = Extended(in.type, value);
      uint64_t* d = warp->row(list[k]);
      for (uint32_t m = mask; m != 0; m &= m - 1) d[std::countr_zero(m)] = value;
    }
    return;
  }
  Space found = Space::kParam;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t address = (base != nullptr ? base[lane] : 0) + static_cast<uint64_t>(in.offset);
    addresses[lane] = address;
    Place place;
    if (!Resolve(warp, lane, in, space, address, static_cast<uint64_t>(bytes),
                 static_cast<uint64_t>(bytes), &place))
      return;
    found = place.space;
    uint8_t buffer[32] = {};
    ReadBytes(LaneActor(warp, lane, atomic), in, place, buffer, static_cast<uint64_t>(bytes));
    if (!status_.ok()) return;
    for (int k = 0; k < in.vector; ++k) {
      uint64_t value = 0;
      std::memcpy(&value, buffer + k * element, static_cast<size_t>(element));
      warp->row(list[k])[lane] = Extended(in.type, value);
    }
    if (atomic) AcquireFrom(warp, KeyOf(place), in.order == Order::kAcquire);
  }
  if (!counting_) return;
  if (found == Space::kGlobal) CountGlobal(addresses, mask, bytes);
  if (found == Space::kShared) CountShared(addresses, mask, bytes);
}

void Execution::Store(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t* base = in.a >= 0 ? warp->row(in.a) : nullptr;
  const int element = BytesOf(in.type);
  const int bytes = element * in.vector;
  const int32_t* list = function_.operands.data() + in.list;
  const bool atomic = in.order != Order::kWeak;
  uint64_t addresses[32];
  Space found = Space::kParam;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t address = (base != nullptr ? base[lane] : 0) + static_cast<uint64_t>(in.offset);
    addresses[lane] = address;
    Place place;
    if (!Resolve(warp, lane, in, in.space, address, static_cast<uint64_t>(bytes),
                 static_cast<uint64_t>(bytes), &place))
      return;
    found = place.space;
    uint8_t buffer[32];
    for (int k = 0; k < in.vector; ++k) {
      const uint64_t value = warp->row(list[k])[lane];
      std::memcpy(buffer + k * element, &value, static_cast<size_t>(element));
    }
    WriteBytes(LaneActor(warp, lane, atomic), in, place, buffer, static_cast<uint64_t>(bytes));
    if (!status_.ok()) return;
    if (atomic) {
      depends_on_order_ = true;
      ReleaseTo(warp, KeyOf(place), in.order == Order::kRelease);
    }
  }
  if (!counting_) return;
  if (found == Space::kGlobal) CountGlobal(addresses, mask, bytes);
  if (found == Space::kShared) CountShared(addresses, mask, bytes);
}

// ---- atomics and what they order

uint64_t Execution::KeyOf(const Place& place) {
  if (place.region == nullptr) return 0;
  if (place.owner != nullptr)
    return uint64_t{1} << 63 | uint64_t{place.owner->id} << 32 | place.offset;
  return place.region->base + place.offset;
}

void Execution::AcquireFrom(Warp* warp, uint64_t key, bool at_once) {
  const auto it = sync_places_.find(key);
  if (it == sync_places_.end()) return;
  for (const auto& [block, array] : it->second) {
    Clocks& into = at_once ? warp->clocks : warp->acquired.clocks;
    if (block == warp->block->id) {
      for (int i = 0; i < kSlots; ++i)
        if (!(at_once && i == warp->index)) into.own[i] = std::max(into.own[i], array[i]);
    } else {
      into.MergeForeign(block, array);
    }
  }
  warp->acquired.any |= !at_once;
}

void Execution::ReleaseTo(Warp* warp, uint64_t key, bool with_current) {
  if (!with_current && !warp->has_fence) return;
  const Clocks& from = with_current ? warp->clocks : warp->fenced;
  auto& place = sync_places_[key];
  const auto merge = [&](uint32_t block, const Clocks::Array& array) {
    Clocks::Array& mine = place[block];
    for (int i = 0; i < kSlots; ++i) mine[i] = std::max(mine[i], array[i]);
  };
  merge(warp->block->id, from.own);
  for (const auto& [block, array] : from.foreign) merge(block, array);
  if (with_current) Release(warp);
}

void Execution::Fence(Warp* warp) {
  if (warp->acquired.any) {
    const uint32_t clock = warp->clock();
    warp->clocks.Merge(warp->acquired.clocks);
    warp->clocks.own[warp->index] = clock;
    warp->acquired = {};
  }
  warp->fenced = warp->clocks;
  warp->has_fence = true;
  Release(warp);
}

void Execution::ProxyFence(Warp* warp, const Instruction& in, uint32_t mask) {
  warp->proxy_clocks = warp->clocks;
  Release(warp);
  for (uint32_t m = mask; m != 0; m &= m - 1)
    warp->lane_proxy_clock[std::countr_zero(m)] = warp->clock();
  for (auto& [offset, barrier] : warp->block->mbarriers) barrier.fenced = true;
}

namespace {
uint64_t Applied(const Instruction& in, Type type, uint64_t old, uint64_t b, uint64_t c) {
  const auto atomic = static_cast<Atomic>(in.mode);
  const auto integer = [&](auto zero) -> uint64_t {
    using T = decltype(zero);
    using U = std::make_unsigned_t<T>;
    const T x = static_cast<T>(old), y = static_cast<T>(b);
    switch (atomic) {
      case Atomic::kAdd: return static_cast<U>(static_cast<U>(x) + static_cast<U>(y));
      case Atomic::kMin: return static_cast<U>(std::min(x, y));
      case Atomic::kMax: return static_cast<U>(std::max(x, y));
      case Atomic::kAnd: return static_cast<U>(x & y);
      case Atomic::kOr: return static_cast<U>(x | y);
      case Atomic::kXor: return static_cast<U>(x ^ y);
      case Atomic::kExch: return static_cast<U>(y);
      case Atomic::kCas: return static_cast<U>(x == y ? static_cast<T>(c) : x);
      case Atomic::kInc: return static_cast<U>(static_cast<U>(x) >= static_cast<U>(y) ? 0 : x + 1);
      case Atomic::kDec:
        return static_cast<U>(x == 0 || static_cast<U>(x) > static_cast<U>(y) ? y : x - 1);
    }
    return 0;
  };
  const auto small = [&](FloatFormat format, int shift) -> uint64_t {
    const double x = Decode(static_cast<uint32_t>(old >> shift & 0xffff), format);
    const double y = Decode(static_cast<uint32_t>(b >> shift & 0xffff), format);
    double r = OddAdd(x, y);
    if (atomic == Atomic::kMin) r = std::fmin(x, y);
    if (atomic == Atomic::kMax) r = std::fmax(x, y);
    return uint64_t{Encode(r, format)} << shift;
  };
  switch (type) {
    case Type::kS32: return integer(int32_t{});
    case Type::kU64:
    case Type::kB64: return integer(uint64_t{});
    case Type::kS64: return integer(int64_t{});
    case Type::kB16:
    case Type::kU16: return integer(uint16_t{});
    case Type::kF32:
      return std::bit_cast<uint32_t>(std::bit_cast<float>(static_cast<uint32_t>(old)) +
                                     std::bit_cast<float>(static_cast<uint32_t>(b)));
    case Type::kF64:
      return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
    case Type::kF16: return small(kHalfFormat, 0);
    case Type::kBf16: return small(kBfloatFormat, 0);
    case Type::kF16x2: return small(kHalfFormat, 0) | small(kHalfFormat, 16);
    case Type::kBf16x2: return small(kBfloatFormat, 0) | small(kBfloatFormat, 16);
    default: return integer(uint32_t{});
  }
}
}  // namespace

// Whether memory is the same afterwards in whatever order threads do so. What each of them reads is
// not, but a kernel whose results follow from that gives other bits each time.
static bool AnyOrderGivesTheSame(const Instruction& in) {
  const auto operation = static_cast<Atomic>(in.mode);
  return !IsFloat(in.type) && operation != Atomic::kExch && operation != Atomic::kCas;
}

void Execution::AtomicAccess(Warp* warp, const Instruction& in, uint32_t mask) {
  if (!AnyOrderGivesTheSame(in)) depends_on_order_ = true;
  const uint64_t* base = in.a >= 0 ? warp->row(in.a) : nullptr;
  const uint64_t element = static_cast<uint64_t>(BytesOf(in.type));
  const int32_t* list = function_.operands.data() + in.list;
  uint64_t addresses[32];
  Space found = Space::kParam;
  const bool acquires = in.order == Order::kAcquire || in.order == Order::kAcqRel;
  const bool releases = in.order == Order::kRelease || in.order == Order::kAcqRel;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t address = (base != nullptr ? base[lane] : 0) + static_cast<uint64_t>(in.offset);
    addresses[lane] = address;
    Place place;
    if (!Resolve(warp, lane, in, in.space, address, element * in.vector, element * in.vector,
                 &place))
      return;
    found = place.space;
    for (int k = 0; k < in.vector; ++k) {
      Place part = place;
      part.offset += element * static_cast<uint64_t>(k);
      if (part.raw != nullptr) part.raw += element * static_cast<uint64_t>(k);
      uint64_t old = 0;
      const Actor actor = LaneActor(warp, lane, true);
      ReadBytes(actor, in, part, &old, element);
      if (!status_.ok()) return;
      const uint64_t b = warp->row(in.vector > 1 ? list[k] : in.b)[lane];
      const uint64_t c = in.c >= 0 ? warp->row(in.c)[lane] : 0;
      const uint64_t value = Applied(in, in.type, old, b, c);
      WriteBytes(actor, in, part, &value, element);
      if (!status_.ok()) return;
      if (in.op != Op::kAtom) continue;
      warp->row(in.vector > 1 ? list[in.vector + k] : in.d)[lane] = old;
    }
    const uint64_t key = KeyOf(place);
    AcquireFrom(warp, key, acquires);
    ReleaseTo(warp, key, releases);
  }
  if (!counting_) return;
  if (found == Space::kGlobal) CountGlobal(addresses, mask, static_cast<int>(element) * in.vector);
  if (found == Space::kShared) CountShared(addresses, mask, static_cast<int>(element) * in.vector);
}

}  // namespace outboard::ptx
