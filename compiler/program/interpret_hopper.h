// What a block of threads on sm_90a has beside memory and registers, for the interpreter of
// programs: barriers with phases, copies of boxes and products of matrices under way, and who knows
// of whose accesses.
//
// Accesses are ordered by vector clocks. An actor is a thread; the copies that end on one barrier;
// the BOXSTOREs of one thread; the products of one warpgroup; or all COPYs that are under way.
// Actors count: a thread its releases, copies the phases of their barrier, stores and products
// their groups. A thread knows for each actor up to which count its accesses come before its own.
// A race is found in any order of threads.
//
// After a barrier all of its threads know the same, so that they share one clock, which nobody
// changes any more: a thread that learns more gets another. A thread's own counts are kept apart.
//
// Copies and products happen when they begin or as late as something waits for them; a seed
// chooses.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "compiler/program/interpret.h"
#include "compiler/program/program.h"

namespace outboard::program {

// A rule that was broken, or none.
struct Finding {
  Fault fault = Fault::kNone;
  std::string what;
  bool ok() const { return fault == Fault::kNone; }
};

// An element of a box: its place in shared memory before the swizzle, from the box's first one, and
// its first byte in the buffer, -1 outside of the view.
struct BoxElement {
  int64_t place = 0;
  int64_t byte = -1;
};
std::vector<BoxElement> ElementsOfBox(const MappedTensor& map, std::span<const int64_t> start);

// The numbers of one WGMMA: rows of `depth` of a (64) and of b (its columns).
struct GroupOperands {
  int depth = 0;
  bool alone = false;  // nothing is added to
  std::vector<double> a, b;
};
// Adds the products that a thread of the warpgroup has to its accumulators.
void AddGroupProducts(const GroupOperands& operands, int thread, std::span<float> accumulators);

class HopperBlock {
 public:
  // Of a cluster: all of its blocks, with so many elements and barriers each.
  HopperBlock(int threads, int64_t blocks, int64_t shared_elements, int64_t barriers,
              std::mt19937_64* random);

  // Begins another block.
  void Begin();
  // What the block leaves undone when all of its threads have ended.
  Finding End() const;

  // ---- shared memory, by the number of the element among all of the block's
  Finding Read(int thread, int64_t element);
  Finding Write(int thread, int64_t element);
  void ProxyFence(int thread);
  void SyncThreads(int first, int count);  // BARRIER and WGSYNC
  // Of COPY. Until its thread has waited for it, nothing comes after its write; from then on it is
  // a store of the thread.
  Finding BeginThreadCopy(int thread, int64_t element);
  void EndThreadCopy(int thread, int64_t element);

  // ---- barriers, by number among all of the block's
  Finding Init(int thread, int64_t barrier, int64_t arrivals);
  Finding Expect(int thread, int64_t barrier, int64_t bytes);
  Finding Arrive(int thread, int64_t barrier);
  // Sets `passed`; where it is false, the thread is in woken() when it may try again.
  Finding Wait(int thread, int64_t barrier, int64_t parity, bool* passed);
  std::vector<int> TakeWoken() { return std::exchange(woken_, {}); }

  // ---- copies. `move` copies the bytes.
  Finding BeginLoad(int thread, std::span<const int64_t> elements, int64_t barrier, int64_t bytes,
                    std::function<void()> move);
  Finding BeginStore(int thread, std::span<const int64_t> elements, std::function<void()> move);
  void CommitStores(int thread);
  void WaitStores(int thread, int64_t but);
  // Lets one late copy happen. Returns false where there is none.
  bool DeliverOne();

  // ---- warpgroups
  Finding BeginProduct(int group, std::span<const int64_t> elements, std::function<void()> compute);
  void CommitProducts(int group);
  void WaitProducts(int group, int64_t but);
  int64_t OpenGroup(int group) const { return groups_[group].committed + 1; }
  int64_t DoneGroup(int group) const { return groups_[group].done; }
  // Returns whether the warpgroup may go on, and errors of its number.
  Finding SetRegisters(int group, int64_t registers, bool raises, bool* passed);

 private:
  using Count = uint32_t;
  struct AccessShadow {
    int32_t writer = -1;
    Count written = 0;
    absl::InlinedVector<std::pair<int32_t, Count>, 2> reads;  // by actor, ascending
  };
  // What threads know of others. A thread's own counts are in own_ and own_proxied_; what its clock
  // has of them may be old.
  struct Clock {
    std::vector<Count> known;    // by actor
    std::vector<Count> proxied;  // by thread: up to which count the asynchronous proxy sees stores
  };
  using SharedClock = std::shared_ptr<const Clock>;
  // What somebody knows: a clock, but for a thread's own counts.
  struct Knowledge {
    const Clock& clock;
    int self;  // -1: no thread
    Count own, own_proxied;
    Count Of(int32_t actor) const { return actor == self ? own : clock.known[actor]; }
    Count Proxied(int32_t thread) const {
      return thread == self ? own_proxied : clock.proxied[thread];
    }
  };
  struct PhaseBarrier {
    int64_t expected = 0;  // 0: not made
    int64_t pending = 0, bytes = 0, phase = 0;
    int maker = 0;
    Count made = 0;
    Clock current, completed;  // of who arrives in this phase, and up to the last one
    // Of the last thread that arrived; and of the last one that passed, before it did and since:
    // that of the next one is mostly the same.
    SharedClock arrived, before_wait, after_wait;
    std::vector<int> waiting;
  };
  struct LateCopy {
    int64_t barrier;  // -1: a store of `thread`
    int64_t bytes;
    int thread;
    int64_t group;
    std::function<void()> move;
  };
  struct OpenProduct {
    int64_t group;
    std::function<void()> compute;
  };
  struct GroupState {
    int64_t committed = 0, done = 0, registers = 0;
    std::deque<OpenProduct> late;
  };

  int StoresOf(int thread) const { return threads_ + thread; }
  int CopiesOf(int64_t barrier) const { return 2 * threads_ + static_cast<int>(barrier); }
  // One for all: what is on its way comes before nothing, so that nobody knows of it.
  int CopyUnderWay() const { return static_cast<int>(actors_) - 1; }
  int ProductsOf(int group) const {
    return 2 * threads_ + static_cast<int>(barriers_.size()) + group;
  }
  Knowledge KnownTo(int thread) const {
    return {*clocks_[thread], thread, own_[thread], own_proxied_[thread]};
  }
  Clock NewClock() const {
    return {std::vector<Count>(actors_), std::vector<Count>(static_cast<size_t>(threads_))};
  }
  // What every thread of a warpgroup knows.
  Clock KnownToAll(int group) const;
  // From now on these threads know of `actor` up to `count`.
  void Learn(int first, int threads, int32_t actor, Count count);
  std::string NameOf(int32_t actor) const;
  // `by_proxy`: the reader is no thread, which sees only what the asynchronous proxy sees.
  Finding CheckRead(const Knowledge& known, bool by_proxy, int32_t actor, Count count,
                    AccessShadow& shadow) const;
  Finding CheckWrite(const Knowledge& known, int32_t actor, Count count,
                     AccessShadow& shadow) const;
  Finding Use(int thread, int64_t barrier);
  void CompleteIfDue(int64_t barrier);
  void Land(const LateCopy& copy);

  const int threads_;
  size_t actors_ = 0;
  std::mt19937_64& random_;
  std::vector<AccessShadow> shadows_;
  std::vector<PhaseBarrier> barriers_;
  std::vector<SharedClock> clocks_;       // by thread
  std::vector<Count> own_, own_proxied_;  // by thread: of itself
  std::vector<int64_t> stores_committed_, stores_begun_;  // by thread; begun: in the open group
  std::vector<GroupState> groups_;
  std::deque<LateCopy> late_;
  std::vector<int> woken_;
  std::vector<int64_t> registers_free_;  // by block
};

}  // namespace outboard::program
