// One run of one launch: blocks, warps and groups of lanes, and how they take turns.
//
// Invariants:
//  1. The groups of a warp have disjoint masks; their union is `live`.
//  2. Two groups that can run are never at the same instruction: they are one group.
//  3. A group that waits is changed only by the event it waits for (Wake... functions).
//  4. The clock of a warp grows whenever others may learn of its accesses (Release).
//
// An access is ordered before another if the second's warp has learnt of the first's clock: by a
// barrier, an mbarrier, a fence with an atomic access, or the warp's own barrier. Clocks are kept
// by warp, not by lane: a release by one lane counts for its whole warp, towards other warps.
// Within a warp only warp-wide barriers order lanes.
#pragma once

#include <deque>
#include <functional>
#include <random>
#include <unordered_map>

#include "tests/gpu/ptx/machine.h"

namespace outboard::ptx {

// Generic addresses of the windows; global memory is everything else.
inline constexpr uint64_t kSharedWindow = uint64_t{0x70} << 40;
inline constexpr uint64_t kLocalWindow = uint64_t{0x71} << 40;
inline constexpr uint64_t kParamWindow = uint64_t{0x72} << 40;
inline constexpr uint64_t kWindowMask = uint64_t{0xff} << 40;
// Addresses of shared::cluster: (rank + 1) << 24 | offset; below, a block means itself.
inline constexpr int kClusterShift = 24;
// 227 KiB, what sm_90 gives a block, and the KiB below kSharedBase.
inline constexpr uint32_t kSharedBytesMax = 228 * 1024;

inline constexpr uint32_t kAtomicBit = 1u << 11;
inline constexpr uint32_t kThreadMask = kAtomicBit - 1;
inline constexpr uint32_t kEngineThread = 1024;   // copies by cp.async.bulk
inline constexpr uint32_t kProductThread = 1025;  // + warpgroup: wgmma's reads of shared memory
inline constexpr int kSlots = 41;                 // 32 warps, the engine, 8 warpgroups
inline constexpr int SlotOf(uint32_t thread) {
  return thread < kEngineThread ? static_cast<int>(thread / 32)
                                : 32 + static_cast<int>(thread - kEngineThread);
}

// What a warp knows of the clocks of its block, and of others'.
struct Clocks {
  using Array = std::array<uint32_t, kSlots>;
  Array own = {};
  std::map<uint32_t, Array> foreign;
  bool prerequisites = false;  // what the launch depends on is done (griddepcontrol.wait)

  void Merge(const Clocks& other) {
    prerequisites = prerequisites || other.prerequisites;
    for (int i = 0; i < kSlots; ++i) own[i] = std::max(own[i], other.own[i]);
    for (const auto& [block, array] : other.foreign) MergeForeign(block, array);
  }
  void MergeForeign(uint32_t block, const Array& array) {
    Array& mine = foreign[block];
    for (int i = 0; i < kSlots; ++i) mine[i] = std::max(mine[i], array[i]);
  }
};
// `from`, as block `from_block` sees it, into what block `into_block` knows.
void MergeAs(Clocks* into, uint32_t into_block, const Clocks& from, uint32_t from_block);

// Clocks as a block published them.
struct Published {
  uint32_t block = 0;
  Clocks clocks;
  bool any = false;
};

enum class Wait : uint8_t {
  kNone,
  kLanes,
  kBarrier,
  kMbarrier,
  kCluster,
  kWarpgroup,
  kRegisters,
  kCopies
};

struct Group {
  uint32_t mask = 0;
  int32_t pc = 0;
  Wait wait = Wait::kNone;
  uint64_t phase = 0;  // of the mbarrier or cluster barrier it waits for
  uint64_t address = 0;
  uint32_t extra = 0;
};

struct Block;
struct BulkCopy;

// A copy by cp.async: its bytes are in flight until its thread has waited for it.
struct ThreadCopy {
  uint32_t target = 0;  // shared memory
  uint64_t source = 0;
  uint8_t bytes = 0, read_bytes = 0;
  bool landed = false;
};

// Groups of copies by lane, made when a lane has one: most kernels have none.
template <class T>
class LaneQueues {
 public:
  std::deque<std::vector<T>>& operator[](int lane) {
    if (queues_.empty()) queues_.resize(32);
    return queues_[static_cast<size_t>(lane)];
  }

 private:
  std::vector<std::deque<std::vector<T>>> queues_;
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  uint32_t live = 0;     // lanes that have not left
  uint32_t existed = 0;  // lanes that the block has
  std::vector<Group> groups;
  std::unique_ptr<uint64_t[]> rows;
  std::vector<uint8_t> local, local_state;
  Clocks clocks;
  uint32_t awaited = 0;     // lanes that have run griddepcontrol.wait
  uint32_t sync_clock = 0;  // accesses of this warp before it are ordered for all its lanes
  Clocks fenced;            // what the last fence made visible
  bool has_fence = false;
  Published acquired;  // by relaxed reads: becomes known at the next fence
  // fence.proxy.async: clocks of writes that the asynchronous proxy sees.
  std::array<uint32_t, 32> lane_proxy_clock = {};
  Clocks proxy_clocks;
  // cp.async: per lane, groups that are committed, and the open one last.
  LaneQueues<ThreadCopy> copies;
  bool has_copies = false;
  uint64_t cluster_phase = 0;  // that its last arrival belongs to
  // Stores by cp.async.bulk: per lane, committed groups, and the open one last.
  LaneQueues<std::shared_ptr<BulkCopy>> bulk;
  // wgmma: by row, the group that still writes (accumulators) or reads it (A in registers), and
  // whether it was written since the last wgmma.fence. Empty where the kernel has no wgmma.
  std::vector<uint64_t> pending_write, pending_read;
  std::vector<uint8_t> unfenced;
  int registers = 0;                      // of a thread, once setmaxnreg has asked; 0 before
  std::vector<uint32_t> register_clocks;  // the warp's at each setmaxnreg
  bool spun = false;                      // looked at a barrier in vain in this turn
  uint64_t inexact = 0;                   // MachineOptions
  uint64_t turn_limit = 0;

  uint64_t* row(int index) { return rows.get() + static_cast<size_t>(index) * 32; }
  int slot() const { return index; }
  uint32_t clock() const { return clocks.own[index]; }
};

struct NamedBarrier {
  uint32_t expected = 0;
  uint32_t arrived = 0;
  Clocks clocks;
  bool open = false;
  uint32_t generation = 0;
  uint32_t reduced = 0;  // bar.red
  bool all = true, any = false;
  int line = 0;
  std::vector<std::pair<Warp*, uint32_t>> waiting;
};

struct TransactionBarrier {
  uint32_t expected = 0;  // arrivals of a phase
  uint32_t pending = 0;
  int64_t transactions = 0;  // bytes
  uint64_t phase = 0;
  Clocks current;       // of those that have arrived in this phase
  Clocks completed;     // of the completed phases
  bool fenced = false;  // its initialisation is visible to the asynchronous proxy
};

// A copy by cp.async.bulk that has been issued and has not landed.
struct BulkCopy {
  Block* issuer = nullptr;
  std::vector<Block*> targets;  // of a load
  uint32_t clock = 0;           // the engine's
  bool landed = false;
  std::function<void()> land;
};

// A warp's quarter of a product by wgmma, not computed yet.
struct PendingProduct {
  uint64_t group = 0;
  std::function<void()> compute;
};
// What four warps do together. Group n of each of them is group n of the warpgroup.
struct Warpgroup {
  std::deque<PendingProduct> pending;
  std::array<uint64_t, 4> committed = {};
  std::vector<const Instruction*> register_changes;  // by setmaxnreg, in the order of its warps
};

struct Cluster {
  std::vector<Block*> blocks;
  uint32_t arrived_warps = 0;
  uint64_t phase = 0;
  std::map<uint32_t, Clocks::Array> current, completed;
};

struct Block {
  uint32_t id = 0;
  std::array<uint32_t, 3> position = {};
  int threads = 0;
  uint32_t rank = 0;  // in its cluster
  Cluster* cluster = nullptr;
  std::unique_ptr<Region> shared;
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<NamedBarrier, 16> barriers;
  std::map<uint32_t, TransactionBarrier> mbarriers;
  std::array<Warpgroup, 8> warpgroups;
  uint32_t engine_clock = 0;
  int registers_free = 0;  // the pool of setmaxnreg
  int live_warps = 0;
};

// A place in memory that an access means.
struct Place {
  Region* region = nullptr;  // nullptr: parameters or local memory, at `raw`
  uint64_t offset = 0;
  uint8_t* raw = nullptr;
  uint8_t* raw_state = nullptr;
  Space space = Space::kGlobal;
  Block* owner = nullptr;  // of shared memory
};

class Execution {
 public:
  Execution(Machine* machine, const LoadedModule& module, const Function& function,
            const LaunchConfig& config, int run);
  absl::Status Run();
  // By atomic accesses: results of two runs may differ.
  bool depends_on_order() const { return depends_on_order_; }
  uint32_t clock_end() const { return clock_end_; }

 private:
  // machine.cc: what earlier blocks have left in shared memory and registers
  void TakeShared(Region* shared) const;
  void TakeRegisters(Warp* warp) const;
  void LeaveLeftovers(const Block& block);

  // turns.cc: blocks, turns
  void StartBlocks();
  std::unique_ptr<Block> NewBlock(uint32_t id, Cluster* cluster, uint32_t rank);
  void FillRows(Warp* warp);
  bool TakeTurn(Warp* warp);  // false: nothing of the warp can run
  int PickGroup(Warp* warp);
  void RunGroup(Warp* warp, int group);
  bool Settle(Warp* warp,
              Group* group);  // after a step with several groups: false if another's turn
  void MergeGroups(Warp* warp);
  void Branch(Warp* warp, Group* group, const Instruction& in, uint32_t taken);
  void LeaveLanes(Warp* warp, Group* group, uint32_t lanes);
  void ReportStuck();
  void RemoveDone();
  void EndClocks(const Block& block);  // the next run's come after them
  void FinishCopies(Block* block);     // bulk.cc: what is still in flight when a block has left
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  void Step(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  // Splits off the lanes whose guard is false, so that `group` is at a collective instruction as a
  // whole.
  void SplitGuard(Warp* warp, Group** group, uint32_t mask);

  // scalar.cc, convert.cc
  void Scalar(Warp* warp, const Instruction& in, uint32_t mask);
  void Convert(Warp* warp, const Instruction& in, uint32_t mask);
  void ConvertPair(Warp* warp, const Instruction& in, uint32_t mask);

  // dependent.cc
  void WaitForPrerequisites(Warp* warp, const Instruction& in, uint32_t mask);
  // A copy to the cache, of an allocation's bytes; nothing that a launch may do before it waits.
  void CheckBulkPrefetch(Warp* warp, const Instruction& in, uint32_t mask);
  bool CheckPrerequisites(Warp* warp, int lane, const Instruction& in, Space space,
                          uint64_t address);
  void CheckAnyWaited(Warp* warp, const Instruction& in);

  // access.cc
  bool Resolve(Warp* warp, int lane, const Instruction& in, Space space, uint64_t address,
               uint64_t bytes, uint64_t align, Place* place);
  void Load(Warp* warp, const Instruction& in, uint32_t mask);
  void Store(Warp* warp, const Instruction& in, uint32_t mask);
  void AtomicAccess(Warp* warp, const Instruction& in, uint32_t mask);
  void Fence(Warp* warp);
  void ProxyFence(Warp* warp, const Instruction& in, uint32_t mask);
  void CountGlobal(const uint64_t* addresses, uint32_t mask, int bytes);
  void CountShared(const uint64_t* addresses, uint32_t mask, int bytes);
  struct Actor {
    Warp* warp = nullptr;
    int lane = 0;
    uint32_t thread = 0;  // who is recorded
    uint32_t clock = 0;
    bool atomic = false;
    bool asynchronous = false;  // through the asynchronous proxy
  };
  Actor LaneActor(Warp* warp, int lane, bool atomic = false) const {
    return {warp,          lane,   static_cast<uint32_t>(warp->index * 32 + lane),
            warp->clock(), atomic, false};
  }
  void CheckRead(const Actor& actor, const Instruction& in, const Place& place, uint64_t bytes);
  void CheckWrite(const Actor& actor, const Instruction& in, const Place& place, uint64_t bytes);
  bool Ordered(const Actor& actor, uint32_t who, uint32_t clock) const;
  void ReadBytes(const Actor& actor, const Instruction& in, const Place& place, void* to,
                 uint64_t bytes);
  void WriteBytes(const Actor& actor, const Instruction& in, const Place& place, const void* from,
                  uint64_t bytes);
  void AcquireFrom(Warp* warp, uint64_t key, bool at_once);
  void ReleaseTo(Warp* warp, uint64_t key, bool with_current);
  static uint64_t KeyOf(const Place& place);
  void CheckLeftShared(const Cluster& cluster);

  // lanes.cc: the warp and the block. Collectives return false if the group has to wait.
  bool HaveLanes(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  void Shuffle(Warp* warp, const Instruction& in, uint32_t mask);
  void Vote(Warp* warp, const Instruction& in, uint32_t mask);
  void Match(Warp* warp, const Instruction& in, uint32_t mask);
  void Redux(Warp* warp, const Instruction& in, uint32_t mask);
  bool WarpBarrier(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  void BlockBarrier(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  void CompleteBarrier(Block* block, NamedBarrier* barrier);
  void ClusterArrive(Warp* warp, const Instruction& in);
  bool ClusterWait(Warp* warp, Group* group);
  void Release(Warp* warp) { ++warp->clocks.own[warp->index]; }
  void WarpSynced(Warp* warp) {
    Release(warp);
    warp->sync_clock = warp->clock();
  }

  // async.cc
  void CopyAsync(Warp* warp, const Instruction& in, uint32_t mask);
  void CopyCommit(Warp* warp, uint32_t mask);
  void CopyWait(Warp* warp, const Instruction& in, uint32_t mask);
  void LandThreadCopy(Warp* warp, int lane, ThreadCopy* copy, const Instruction& in);

  // wgmma.cc: setmaxnreg
  bool SetRegisters(Warp* warp, Group* group, const Instruction& in);  // false: it has to wait
  int RegistersAtEntry() const;
  bool InStep(Warp* warp, const Instruction& in);
  void CheckRegisters(Warp* warp, const Instruction& in);
  void NotByAll(Warp* warp, const Instruction& in);

  // mbarriers.cc
  bool Mbarrier(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  TransactionBarrier* FindMbarrier(Warp* warp, int lane, const Instruction& in, uint64_t address,
                                   Place* place);
  bool MbarrierWait(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  void CompletePhase(Block* block, uint32_t offset, TransactionBarrier* barrier);
  void CompleteTransaction(Block* block, uint32_t offset, const BulkCopy& copy, uint64_t bytes);

  // bulk.cc
  bool Bulk(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  void BulkLane(Warp* warp, int lane, const Instruction& in);
  void Land(const std::shared_ptr<BulkCopy>& copy);
  bool DeliverOne();  // lands one bulk copy; false if none is in flight

  // matrix.cc, wgmma.cc
  void LoadMatrix(Warp* warp, const Instruction& in, uint32_t mask);
  void StoreMatrix(Warp* warp, const Instruction& in, uint32_t mask);
  void Mma(Warp* warp, const Instruction& in);
  bool Wgmma(Warp* warp, Group* group, const Instruction& in, uint32_t mask);
  void IssueProduct(Warp* warp, const Instruction& in);
  bool WaitProducts(Warp* warp, Group* group, const Instruction& in);
  void CheckPendingRows(Warp* warp, const Instruction& in);
  bool GatherTile(Warp* warp, const Instruction& in, uint64_t descriptor, Type type, int first_row,
                  int rows, int k, bool transposed, std::vector<uint32_t>* addresses);

  void Tell(ReportKind kind, const Instruction& in, Warp* warp, int lane, Space space,
            uint64_t address, std::string detail, int64_t other_who = -1);

  bool late() const { return run_ % 2 == 1; }
  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  Machine* machine_;
  DeviceMemory* memory_;
  const LoadedModule& module_;
  const Function& function_;
  const LaunchConfig& config_;
  std::array<uint32_t, 3> cluster_shape_ = {1, 1, 1};
  int run_;
  bool counting_;
  std::mt19937_64 random_;
  absl::Status status_;
  uint32_t clock_base_;
  uint32_t clock_end_;
  uint32_t next_block_ = 0, block_count_ = 0;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<std::unique_ptr<Block>> blocks_;
  uint64_t warp_instructions_ = 0;
  uint64_t slept_ns_ = 0;  // by nanosleep, of all warps
  uint64_t progress_ = 0;
  bool depends_on_order_ = false;
  bool any_waited_ = false;  // by griddepcontrol.wait
  std::unordered_map<uint64_t, std::map<uint32_t, Clocks::Array>> sync_places_;
  uint64_t told_ = 0;
  std::vector<std::shared_ptr<BulkCopy>> in_flight_;
  uint64_t spins_ = 0;  // turns in a row in which warps only looked at barriers
};

}  // namespace outboard::ptx
