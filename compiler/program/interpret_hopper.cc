#include "compiler/program/interpret_hopper.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kRegistersOfThread = 240;  // at most, where warpgroups share
constexpr int64_t kRegistersStep = 8;

Finding Race(std::string what) { return {Fault::kRace, std::move(what)}; }
Finding Misuse(std::string what) { return {Fault::kMisuse, std::move(what)}; }

template <class Clock, class Choose>
void Merge(Clock& into, const Clock& from, Choose choose) {
  for (size_t a = 0; a < into.known.size(); ++a)
    into.known[a] = choose(into.known[a], from.known[a]);
  for (size_t t = 0; t < into.proxied.size(); ++t)
    into.proxied[t] = choose(into.proxied[t], from.proxied[t]);
}
constexpr auto kLater = [](uint32_t x, uint32_t y) { return std::max(x, y); };
constexpr auto kEarlier = [](uint32_t x, uint32_t y) { return std::min(x, y); };

}  // namespace

std::vector<BoxElement> ElementsOfBox(const MappedTensor& map, std::span<const int64_t> start) {
  std::vector<BoxElement> elements;
  elements.reserve(static_cast<size_t>(map.box_elements()));
  std::vector<int64_t> at(map.dims.size(), 0);
  for (int64_t place = 0; place < map.box_elements(); ++place) {
    BoxElement element{place, 0};
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t index = start[d] + at[d];
      if (index < 0 || index >= map.dims[d]) element.byte = -1;
      if (element.byte >= 0)
        element.byte += index * (d == 0 ? map.element_bytes() : map.strides[d - 1]);
    }
    elements.push_back(element);
    for (size_t d = 0; d < at.size() && ++at[d] == map.box[d]; ++d) at[d] = 0;
  }
  return elements;
}

// A matrix unit adds the products of one instruction before it rounds.
void AddGroupProducts(const GroupOperands& operands, int thread, std::span<float> accumulators) {
  for (size_t e = 0; e < accumulators.size(); ++e) {
    const MatrixPlace p = WgmmaElement(thread, static_cast<int>(e));
    double sum = operands.alone ? 0 : accumulators[e];
    for (int k = 0; k < operands.depth; ++k)
      sum += operands.a[static_cast<size_t>(p.row * operands.depth + k)] *
             operands.b[static_cast<size_t>(p.column * operands.depth + k)];
    accumulators[e] = static_cast<float>(sum);
  }
}

HopperBlock::HopperBlock(int threads, int64_t blocks, int64_t shared_elements, int64_t barriers,
                         std::mt19937_64* random)
    : threads_(threads),
      random_(*random),
      shadows_(static_cast<size_t>(blocks * shared_elements)),
      barriers_(static_cast<size_t>(blocks * barriers)),
      groups_(static_cast<size_t>(threads / kWarpgroupThreads)),
      registers_free_(static_cast<size_t>(blocks)) {
  actors_ = static_cast<size_t>(2 * threads) + barriers_.size() + groups_.size() + 1;
}

void HopperBlock::Begin() {
  for (AccessShadow& shadow : shadows_) {
    shadow.writer = -1;
    shadow.reads.clear();
  }
  std::fill(barriers_.begin(), barriers_.end(), PhaseBarrier{});
  std::fill(groups_.begin(), groups_.end(), GroupState{});
  const auto threads = static_cast<size_t>(threads_);
  clocks_.assign(threads, std::make_shared<const Clock>(NewClock()));
  own_.assign(threads, 1);
  own_proxied_.assign(threads, 0);
  stores_committed_.assign(threads, 0);
  stores_begun_.assign(threads, 0);
  late_.clear();
  woken_.clear();
  // As the assembler divides them among equal threads.
  const int64_t of_block = threads_ / static_cast<int64_t>(registers_free_.size());
  const int64_t each =
      std::min(kRegistersOfThread, kCudaRegisters / of_block / kRegistersStep * kRegistersStep);
  for (GroupState& group : groups_) group.registers = each;
  std::fill(registers_free_.begin(), registers_free_.end(), 0);
}

Finding HopperBlock::End() const {
  if (!late_.empty()) return Race("the block ends while a copy of its memory is under way");
  for (int t = 0; t < threads_; ++t)
    if (KnownTo(t).Of(StoresOf(t)) < stores_committed_[t] + (stores_begun_[t] > 0 ? 1 : 0))
      return Race(absl::StrCat("thread ", t, " ends before its BOXSTOREs are waited for"));
  for (const GroupState& group : groups_)
    if (!group.late.empty() || group.done < group.committed)
      return Race("a warpgroup ends before its products are waited for");
  return {};
}

std::string HopperBlock::NameOf(int32_t actor) const {
  if (actor < threads_) return absl::StrCat("thread ", actor);
  if (actor < 2 * threads_) return absl::StrCat("a BOXSTORE of thread ", actor - threads_);
  if (actor == CopyUnderWay()) return "a COPY that its thread has not waited for";
  const int64_t rest = actor - 2 * threads_;
  const auto barriers = static_cast<int64_t>(barriers_.size());
  return rest < barriers ? absl::StrCat("a copy on barrier ", rest)
                         : absl::StrCat("a product of warpgroup ", rest - barriers);
}

// ---- shared memory

Finding HopperBlock::CheckRead(const Knowledge& known, bool by_proxy, int32_t actor, Count count,
                               AccessShadow& shadow) const {
  const int32_t writer = shadow.writer;
  if (writer < 0 && by_proxy) return {Fault::kUninitialised, "was never written"};
  if (writer >= 0) {
    if (known.Of(writer) < shadow.written)
      return Race(absl::StrCat("is read, and nothing orders that after ", NameOf(writer),
                               ", which writes it"));
    if (by_proxy && writer < threads_ && known.Proxied(writer) < shadow.written)
      return {Fault::kMissingFence,
              absl::StrCat("is stored by ", NameOf(writer), " without a PROXYFENCE since")};
  }
  // All threads of a cluster may read one element.
  const auto at = std::lower_bound(shadow.reads.begin(), shadow.reads.end(), actor,
                                   [](const auto& read, int32_t of) { return read.first < of; });
  if (at != shadow.reads.end() && at->first == actor)
    at->second = count;
  else
    shadow.reads.insert(at, {actor, count});
  return {};
}

Finding HopperBlock::CheckWrite(const Knowledge& known, int32_t actor, Count count,
                                AccessShadow& shadow) const {
  if (shadow.writer >= 0 && known.Of(shadow.writer) < shadow.written)
    return Race(absl::StrCat("is written, and nothing orders that after ", NameOf(shadow.writer),
                             ", which writes it, too"));
  for (const auto& [reader, read] : shadow.reads)
    if (known.Of(reader) < read)
      return Race(absl::StrCat("is written, and nothing orders that after ", NameOf(reader),
                               ", which reads it"));
  shadow.writer = actor;
  shadow.written = count;
  shadow.reads.clear();
  return {};
}

Finding HopperBlock::Read(int thread, int64_t element) {
  return CheckRead(KnownTo(thread), /*by_proxy=*/false, thread, own_[thread], shadows_[element]);
}

Finding HopperBlock::Write(int thread, int64_t element) {
  return CheckWrite(KnownTo(thread), thread, own_[thread], shadows_[element]);
}

Finding HopperBlock::BeginThreadCopy(int thread, int64_t element) {
  return CheckWrite(KnownTo(thread), CopyUnderWay(), /*count=*/1, shadows_[element]);
}

void HopperBlock::EndThreadCopy(int thread, int64_t element) {
  AccessShadow& shadow = shadows_[element];
  if (shadow.writer != CopyUnderWay()) return;
  shadow.writer = thread;
  shadow.written = own_[thread];
}

void HopperBlock::ProxyFence(int thread) { own_proxied_[thread] = own_[thread]; }

void HopperBlock::SyncThreads(int first, int count) {
  const auto all = std::make_shared<Clock>(*clocks_[first]);
  for (int t = first + 1; t < first + count; ++t)
    if (clocks_[t] != clocks_[t - 1]) Merge(*all, *clocks_[t], kLater);
  for (int t = first; t < first + count; ++t) {
    all->known[t] = own_[t]++;
    all->proxied[t] = own_proxied_[t];
    clocks_[t] = all;
  }
}

void HopperBlock::Learn(int first, int threads, int32_t actor, Count count) {
  SharedClock before, after;
  for (int t = first; t < first + threads; ++t) {
    if (clocks_[t]->known[actor] >= count) continue;
    if (clocks_[t] != before) {
      before = clocks_[t];
      const auto more = std::make_shared<Clock>(*before);
      more->known[actor] = count;
      after = more;
    }
    clocks_[t] = after;
  }
}

// ---- barriers

Finding HopperBlock::Init(int thread, int64_t barrier, int64_t arrivals) {
  PhaseBarrier& b = barriers_[barrier];
  if (b.expected != 0) return Misuse(absl::StrCat("barrier ", barrier, " is made twice"));
  b.expected = b.pending = arrivals;
  b.maker = thread;
  b.made = own_[thread];
  b.current = NewClock();
  b.completed = b.current;
  return {};
}

Finding HopperBlock::Use(int thread, int64_t barrier) {
  const PhaseBarrier& b = barriers_[barrier];
  if (b.expected == 0)
    return {Fault::kUninitialised, absl::StrCat("barrier ", barrier, " is not made")};
  if (KnownTo(thread).Of(b.maker) < b.made)
    return Race(absl::StrCat("nothing orders the use of barrier ", barrier, " after its MBINIT"));
  return {};
}

Finding HopperBlock::Expect(int thread, int64_t barrier, int64_t bytes) {
  if (Finding found = Use(thread, barrier); !found.ok()) return found;
  barriers_[barrier].bytes += bytes;
  return Arrive(thread, barrier);
}

Finding HopperBlock::Arrive(int thread, int64_t barrier) {
  if (Finding found = Use(thread, barrier); !found.ok()) return found;
  PhaseBarrier& b = barriers_[barrier];
  if (b.pending == 0)
    return Misuse(
        absl::StrCat("barrier ", barrier, " got more than ", b.expected, " arrivals in one phase"));
  --b.pending;
  if (clocks_[thread] != b.arrived) Merge(b.current, *clocks_[thread], kLater);
  b.arrived = clocks_[thread];
  b.current.known[thread] = own_[thread]++;
  b.current.proxied[thread] = own_proxied_[thread];
  CompleteIfDue(barrier);
  return {};
}

void HopperBlock::CompleteIfDue(int64_t barrier) {
  PhaseBarrier& b = barriers_[barrier];
  if (b.pending != 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.expected;
  b.current.known[static_cast<size_t>(CopiesOf(barrier))] = static_cast<Count>(b.phase);
  b.completed = b.current;
  b.before_wait = b.after_wait = nullptr;
  woken_.insert(woken_.end(), b.waiting.begin(), b.waiting.end());
  b.waiting.clear();
}

Finding HopperBlock::Wait(int thread, int64_t barrier, int64_t parity, bool* passed) {
  if (Finding found = Use(thread, barrier); !found.ok()) return found;
  PhaseBarrier& b = barriers_[barrier];
  *passed = (b.phase & 1) != (parity & 1);
  if (!*passed) {
    b.waiting.push_back(thread);
    return {};
  }
  if (clocks_[thread] != b.before_wait) {
    b.before_wait = clocks_[thread];
    const auto more = std::make_shared<Clock>(*b.before_wait);
    Merge(*more, b.completed, kLater);
    b.after_wait = more;
  }
  clocks_[thread] = b.after_wait;
  return {};
}

// ---- copies

Finding HopperBlock::BeginLoad(int thread, std::span<const int64_t> elements, int64_t barrier,
                               int64_t bytes, std::function<void()> move) {
  if (Finding found = Use(thread, barrier); !found.ok()) return found;
  const auto count = static_cast<Count>(barriers_[barrier].phase + 1);
  for (const int64_t element : elements)
    if (Finding found = CheckWrite(KnownTo(thread), CopiesOf(barrier), count, shadows_[element]);
        !found.ok())
      return found;
  late_.push_back({barrier, bytes, thread, 0, std::move(move)});
  if (random_() % 2 == 0) {
    const LateCopy now = std::move(late_.back());
    late_.pop_back();
    Land(now);
  }
  return {};
}

Finding HopperBlock::BeginStore(int thread, std::span<const int64_t> elements,
                                std::function<void()> move) {
  const auto count = static_cast<Count>(stores_committed_[thread] + 1);
  for (const int64_t element : elements)
    if (Finding found =
            CheckRead(KnownTo(thread), /*by_proxy=*/true, StoresOf(thread), count,
                      shadows_[element]);
        !found.ok())
      return found;
  ++stores_begun_[thread];
  if (random_() % 2 == 0)
    move();
  else
    late_.push_back({-1, 0, thread, stores_committed_[thread] + 1, std::move(move)});
  return {};
}

void HopperBlock::CommitStores(int thread) {
  ++stores_committed_[thread];
  stores_begun_[thread] = 0;
}

void HopperBlock::WaitStores(int thread, int64_t but) {
  const int64_t done = stores_committed_[thread] - but;
  if (done <= 0) return;
  std::deque<LateCopy> left;
  for (LateCopy& copy : late_) {
    if (copy.barrier < 0 && copy.thread == thread && copy.group <= done)
      Land(copy);
    else
      left.push_back(std::move(copy));
  }
  late_ = std::move(left);
  Learn(thread, 1, StoresOf(thread), static_cast<Count>(done));
}

void HopperBlock::Land(const LateCopy& copy) {
  copy.move();
  if (copy.barrier < 0) return;
  barriers_[copy.barrier].bytes -= copy.bytes;
  CompleteIfDue(copy.barrier);
}

bool HopperBlock::DeliverOne() {
  if (late_.empty()) return false;
  const size_t chosen = random_() % late_.size();
  const LateCopy copy = std::move(late_[chosen]);
  late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(chosen));
  Land(copy);
  return true;
}

// ---- warpgroups

HopperBlock::Clock HopperBlock::KnownToAll(int group) const {
  const int first = group * kWarpgroupThreads, end = first + kWarpgroupThreads;
  Clock known = *clocks_[first];
  std::vector<std::pair<int, int>> runs = {{first, first}};  // of threads that share a clock
  for (int t = first + 1; t < end; ++t) {
    if (clocks_[t] != clocks_[t - 1]) {
      Merge(known, *clocks_[t], kEarlier);
      runs.emplace_back(t, t);
    }
    runs.back().second = t;
  }
  // A thread's own count in a clock that it has alone may be an old one.
  for (int t = first; t < end; ++t) {
    known.known[t] = own_[t];
    known.proxied[t] = own_proxied_[t];
    for (const auto& [from, to] : runs) {
      if (from == t && to == t) continue;
      known.known[t] = std::min(known.known[t], clocks_[from]->known[t]);
      known.proxied[t] = std::min(known.proxied[t], clocks_[from]->proxied[t]);
    }
  }
  return known;
}

Finding HopperBlock::BeginProduct(int group, std::span<const int64_t> elements,
                                  std::function<void()> compute) {
  const Clock known = KnownToAll(group);
  const Knowledge all{known, -1, 0, 0};
  const auto count = static_cast<Count>(OpenGroup(group));
  for (const int64_t element : elements)
    if (Finding found =
            CheckRead(all, /*by_proxy=*/true, ProductsOf(group), count, shadows_[element]);
        !found.ok())
      return found;
  // In order: a product adds to the sums of the one before.
  std::deque<OpenProduct>& late = groups_[group].late;
  if (late.empty() && random_() % 2 == 0)
    compute();
  else
    late.push_back({OpenGroup(group), std::move(compute)});
  return {};
}

void HopperBlock::CommitProducts(int group) { ++groups_[group].committed; }

void HopperBlock::WaitProducts(int group, int64_t but) {
  GroupState& state = groups_[group];
  state.done = std::max(state.done, state.committed - but);
  while (!state.late.empty() && state.late.front().group <= state.done) {
    state.late.front().compute();
    state.late.pop_front();
  }
  Learn(group * kWarpgroupThreads, kWarpgroupThreads, ProductsOf(group),
        static_cast<Count>(state.done));
}

Finding HopperBlock::SetRegisters(int group, int64_t registers, bool raises, bool* passed) {
  GroupState& state = groups_[group];
  if (raises ? registers < state.registers : registers > state.registers)
    return Misuse(absl::StrCat("the warpgroup's threads have ", state.registers, " registers"));
  const int64_t more = (registers - state.registers) * kWarpgroupThreads;
  int64_t& free =
      registers_free_[static_cast<size_t>(group) * registers_free_.size() / groups_.size()];
  *passed = more <= free;
  if (!*passed) return {};
  free -= more;
  state.registers = registers;
  return {};
}

}  // namespace outboard::program
