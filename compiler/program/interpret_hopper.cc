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

template <class Counts>
void Merge(Counts& into, const Counts& from) {
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

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
  std::fill(shadows_.begin(), shadows_.end(), AccessShadow{});
  std::fill(barriers_.begin(), barriers_.end(), PhaseBarrier{});
  std::fill(groups_.begin(), groups_.end(), GroupState{});
  const auto threads = static_cast<size_t>(threads_);
  known_.assign(threads * actors_, 0);
  proxied_.assign(threads * threads, 0);
  for (int t = 0; t < threads_; ++t) Known(t)[t] = 1;
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
    if (known_[static_cast<size_t>(t) * actors_ + static_cast<size_t>(StoresOf(t))] <
        stores_committed_[t] + (stores_begun_[t] > 0 ? 1 : 0))
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

// `proxied`, unless it is null: up to where each thread's stores are visible to a reader that is no
// thread.
Finding HopperBlock::CheckRead(const Count* known, const Count* proxied, int32_t actor, Count count,
                               AccessShadow& shadow) const {
  const int32_t writer = shadow.writer;
  if (writer < 0 && proxied != nullptr) return {Fault::kUninitialised, "was never written"};
  if (writer >= 0) {
    if (known[writer] < shadow.written)
      return Race(absl::StrCat("is read, and nothing orders that after ", NameOf(writer),
                               ", which writes it"));
    if (proxied != nullptr && writer < threads_ && proxied[writer] < shadow.written)
      return {Fault::kMissingFence,
              absl::StrCat("is stored by ", NameOf(writer), " without a PROXYFENCE since")};
  }
  for (auto& [reader, read] : shadow.reads) {
    if (reader != actor) continue;
    read = count;
    return {};
  }
  shadow.reads.push_back({actor, count});
  return {};
}

Finding HopperBlock::CheckWrite(const Count* known, int32_t actor, Count count,
                                AccessShadow& shadow) const {
  if (shadow.writer >= 0 && known[shadow.writer] < shadow.written)
    return Race(absl::StrCat("is written, and nothing orders that after ", NameOf(shadow.writer),
                             ", which writes it, too"));
  for (const auto& [reader, read] : shadow.reads)
    if (known[reader] < read)
      return Race(absl::StrCat("is written, and nothing orders that after ", NameOf(reader),
                               ", which reads it"));
  shadow.writer = actor;
  shadow.written = count;
  shadow.reads.clear();
  return {};
}

Finding HopperBlock::Read(int thread, int64_t element) {
  const Count* const known = Known(thread);
  return CheckRead(known, nullptr, thread, known[thread], shadows_[element]);
}

Finding HopperBlock::Write(int thread, int64_t element) {
  const Count* const known = Known(thread);
  return CheckWrite(known, thread, known[thread], shadows_[element]);
}

Finding HopperBlock::BeginThreadCopy(int thread, int64_t element) {
  return CheckWrite(Known(thread), CopyUnderWay(), /*count=*/1, shadows_[element]);
}

void HopperBlock::EndThreadCopy(int thread, int64_t element) {
  AccessShadow& shadow = shadows_[element];
  if (shadow.writer != CopyUnderWay()) return;
  shadow.writer = thread;
  shadow.written = Known(thread)[thread];
}

void HopperBlock::ProxyFence(int thread) { Proxied(thread)[thread] = Known(thread)[thread]; }

void HopperBlock::SyncThreads(int first, int count) {
  std::vector<Count> all(actors_, 0), proxied(static_cast<size_t>(threads_), 0);
  for (int t = first; t < first + count; ++t) {
    for (size_t a = 0; a < actors_; ++a) all[a] = std::max(all[a], Known(t)[a]);
    for (size_t a = 0; a < proxied.size(); ++a) proxied[a] = std::max(proxied[a], Proxied(t)[a]);
  }
  for (int t = first; t < first + count; ++t) {
    std::copy(all.begin(), all.end(), Known(t));
    std::copy(proxied.begin(), proxied.end(), Proxied(t));
    ++Known(t)[t];
  }
}

// ---- barriers

Finding HopperBlock::Init(int thread, int64_t barrier, int64_t arrivals) {
  PhaseBarrier& b = barriers_[barrier];
  if (b.expected != 0) return Misuse(absl::StrCat("barrier ", barrier, " is made twice"));
  b.expected = b.pending = arrivals;
  b.maker = thread;
  b.made = Known(thread)[thread];
  b.current.assign(actors_, 0);
  b.completed = b.current;
  b.current_proxied.assign(static_cast<size_t>(threads_), 0);
  b.completed_proxied = b.current_proxied;
  return {};
}

Finding HopperBlock::Use(int thread, int64_t barrier) {
  const PhaseBarrier& b = barriers_[barrier];
  if (b.expected == 0)
    return {Fault::kUninitialised, absl::StrCat("barrier ", barrier, " is not made")};
  if (Known(thread)[b.maker] < b.made)
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
  for (size_t a = 0; a < actors_; ++a) b.current[a] = std::max(b.current[a], Known(thread)[a]);
  for (size_t a = 0; a < b.current_proxied.size(); ++a)
    b.current_proxied[a] = std::max(b.current_proxied[a], Proxied(thread)[a]);
  ++Known(thread)[thread];
  CompleteIfDue(barrier);
  return {};
}

void HopperBlock::CompleteIfDue(int64_t barrier) {
  PhaseBarrier& b = barriers_[barrier];
  if (b.pending != 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.expected;
  b.current[static_cast<size_t>(CopiesOf(barrier))] = static_cast<Count>(b.phase);
  b.completed = b.current;
  b.completed_proxied = b.current_proxied;
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
  for (size_t a = 0; a < actors_; ++a)
    Known(thread)[a] = std::max(Known(thread)[a], b.completed[a]);
  for (size_t a = 0; a < b.completed_proxied.size(); ++a)
    Proxied(thread)[a] = std::max(Proxied(thread)[a], b.completed_proxied[a]);
  return {};
}

// ---- copies

Finding HopperBlock::BeginLoad(int thread, std::span<const int64_t> elements, int64_t barrier,
                               int64_t bytes, std::function<void()> move) {
  if (Finding found = Use(thread, barrier); !found.ok()) return found;
  const auto count = static_cast<Count>(barriers_[barrier].phase + 1);
  for (const int64_t element : elements)
    if (Finding found = CheckWrite(Known(thread), CopiesOf(barrier), count, shadows_[element]);
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
            CheckRead(Known(thread), Proxied(thread), StoresOf(thread), count, shadows_[element]);
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
  Count& known = Known(thread)[StoresOf(thread)];
  known = std::max(known, static_cast<Count>(done));
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

Finding HopperBlock::BeginProduct(int group, std::span<const int64_t> elements,
                                  std::function<void()> compute) {
  // What all of its threads know.
  const int first = group * kWarpgroupThreads;
  std::vector<Count> known(Known(first), Known(first) + actors_);
  std::vector<Count> proxied(Proxied(first), Proxied(first) + threads_);
  for (int t = first + 1; t < first + kWarpgroupThreads; ++t) {
    for (size_t a = 0; a < actors_; ++a) known[a] = std::min(known[a], Known(t)[a]);
    for (size_t a = 0; a < proxied.size(); ++a) proxied[a] = std::min(proxied[a], Proxied(t)[a]);
  }
  const auto count = static_cast<Count>(OpenGroup(group));
  for (const int64_t element : elements)
    if (Finding found =
            CheckRead(known.data(), proxied.data(), ProductsOf(group), count, shadows_[element]);
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
  const int first = group * kWarpgroupThreads;
  for (int t = first; t < first + kWarpgroupThreads; ++t) {
    Count& known = Known(t)[ProductsOf(group)];
    known = std::max(known, static_cast<Count>(state.done));
  }
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
