#include "compiler/program/interpret.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/bf16_products.h"
#include "compiler/program/interpret_hopper.h"
#include "compiler/program/interpret_lanes.h"
#include "compiler/program/interpret_matrix.h"
#include "compiler/program/interpret_plan.h"

namespace outboard::program {
namespace {

// Who has touched an element. What happens between two barriers is an epoch; epochs are numbered
// through all blocks, so that one before the block's first is another block's. 0: nobody.
struct Shadow {
  uint32_t write_epoch = 0, read_epoch = 0;
  uint16_t write_thread = 0, read_thread = 0;
  bool many_readers = false, many_reading_blocks = false;
  bool arriving = false;  // a copy is on its way
};

// A memory as one thread sees it.
struct Memory {
  char* bytes = nullptr;
  int64_t elements = 0;
  DType dtype = DType::kVoid;
  int width = 0;
  Shadow* shadows = nullptr;  // null: nobody else can write or nobody else can access it
  // By element: the generation that wrote it. Each ALLOC begins a new one, in which nothing is
  // written. Null: all of it is.
  uint32_t* written = nullptr;
  uint32_t generation = 1;
  // Of sm_90a: the first element's number among those of the block, -1 unless it is shared; whether
  // a product holds an element of private memory, and whether it was stored to since the last
  // WGFENCE.
  int64_t first = -1;
  uint8_t* holds = nullptr;

  char* Address(int64_t element) const { return bytes + element * width; }
};

// One that a thread has begun.
struct Copy {
  const ThreadStep* step;
  int64_t to, from;
  bool zeros;  // its mask is false
  bool arrived;
};

enum class State { kRunning, kAtBarrier, kAtMma, kAtGroup, kAtWait, kDone };

// What Memory::holds says of an element.
constexpr uint8_t kFree = 0, kUnfenced = 1, kHeld = 2;

struct Thread {
  int32_t pc = 0;
  State state = State::kRunning;
  std::vector<Copy> begun;                // since the last COMMIT
  std::vector<std::vector<Copy>> groups;  // oldest first
};

class Interpreter {
 public:
  Interpreter(const Program& program, std::span<std::string> buffers, std::span<const int64_t> vars,
              const RunOptions& options)
      : program_(program),
        plan_(MakePlan(program)),
        vars_(vars),
        steps_max_(options.steps_max),
        steps_left_(options.steps_max),
        random_(options.seed),
        blocks_(program.Extent(Grid::kBlock)),
        threads_(program.Extent(Grid::kThread)) {
    OB_CHECK(threads_.size() <= UINT16_MAX);
    registers_.resize(plan_.registers * threads_.size());
    private_bytes_.resize(plan_.private_bytes * threads_.size());
    private_written_.resize(plan_.private_elements * threads_.size());
    shared_bytes_.resize(plan_.shared_bytes);
    shared_written_.resize(plan_.shared_elements);
    shared_shadows_.resize(plan_.shared_elements);
    buffer_shadows_.resize(buffers.size());
    for (const ProgramMemory& memory : plan_.memories)
      if (HasShadows(memory)) {
        std::vector<Shadow>& shadows = buffer_shadows_[memory.slot];
        shadows.resize(std::max<size_t>(shadows.size(), memory.elements));
      }
    if (plan_.hopper) {
      hopper_ = std::make_unique<HopperBlock>(thread_count(), plan_.shared_elements, plan_.barriers,
                                              &random_);
      holds_.resize(plan_.private_elements * threads_.size());
      at_group_.resize(threads_.size() / kWarpgroupThreads);
    }
    for (int t = 0; t < thread_count(); ++t) {
      for (const ProgramMemory& memory : plan_.memories) AddMemory(memory, t, buffers);
      for (const ThreadStep& step : plan_.once) Compute(step, t, RegistersOf(t));
    }
  }

  RunReport Run() {
    std::vector<int64_t> order(blocks_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t block : order) {
      block_ = block;
      RunBlock();
      if (!outcome_.ok()) break;
    }
    outcome_.steps = steps_max_ - steps_left_;
    return outcome_;
  }

 private:
  int thread_count() const { return static_cast<int>(threads_.size()); }
  int64_t* RegistersOf(int thread) { return registers_.data() + plan_.registers * thread; }
  Memory& MemoryOf(int32_t number, int thread) {
    return memories_[plan_.memories.size() * thread + number];
  }

  // Without a write, or with a single thread, there is no race.
  bool HasShadows(const ProgramMemory& buffer) const {
    return buffer.kind == ProgramMemory::Kind::kBuffer && buffer.written &&
           blocks_ * thread_count() > 1;
  }

  void AddMemory(const ProgramMemory& memory, int thread, std::span<std::string> buffers) {
    Memory out{
        .elements = memory.elements, .dtype = memory.dtype, .width = ByteWidth(memory.dtype)};
    switch (memory.kind) {
      case ProgramMemory::Kind::kBuffer: {
        std::string& buffer = buffers[memory.slot];
        OB_CHECK(static_cast<int64_t>(buffer.size()) >= memory.elements * out.width);
        out.bytes = buffer.data();
        if (HasShadows(memory)) out.shadows = buffer_shadows_[memory.slot].data();
        break;
      }
      case ProgramMemory::Kind::kShared:
        out.bytes = shared_bytes_.data() + memory.first_byte;
        out.written = shared_written_.data() + memory.first_element;
        out.shadows = shared_shadows_.data() + memory.first_element;
        if (plan_.hopper) out.first = memory.first_element;
        break;
      case ProgramMemory::Kind::kBarriers: out.first = memory.first_element; break;
      case ProgramMemory::Kind::kPrivate:
        out.bytes = private_bytes_.data() + plan_.private_bytes * thread + memory.first_byte;
        out.written =
            private_written_.data() + plan_.private_elements * thread + memory.first_element;
        if (plan_.hopper)
          out.holds = holds_.data() + plan_.private_elements * thread + memory.first_element;
        break;
    }
    memories_.push_back(out);
  }

  // Returns false, for returning it.
  bool Report(Fault fault, ValueId n, int thread, const std::string& what) {
    if (!outcome_.ok()) return false;
    outcome_.fault = fault;
    outcome_.at = n;
    outcome_.message = absl::StrCat(std::string(Name(fault)), " at ", ToString(program_, n),
                                    ", block ", block_, ", thread ", thread, ": ", what);
    return false;
  }

  // ---- the order of threads
  void NextEpoch() {
    ++epoch_;
    OB_CHECK(epoch_ != 0);
  }

  void RunBlock() {
    NextEpoch();
    first_epoch_ = epoch_;
    std::fill(shared_written_.begin(), shared_written_.end(), 0);
    std::fill(shared_shadows_.begin(), shared_shadows_.end(), Shadow{});
    ready_.clear();
    if (hopper_ != nullptr) {
      hopper_->Begin();
      std::fill(holds_.begin(), holds_.end(), kFree);
      std::fill(at_group_.begin(), at_group_.end(), 0);
      held_by_.clear();
    }
    for (int t = 0; t < thread_count(); ++t) {
      threads_[t].pc = 0;
      threads_[t].begun.clear();
      threads_[t].groups.clear();
      MakeReady(t);
    }
    while (outcome_.ok()) {
      if (hopper_ != nullptr && (ready_.empty() || random_() % 4 == 0) && AdvanceHopper()) continue;
      if (ready_.empty()) {
        if (!PassTogether()) return;
        continue;
      }
      const size_t chosen = ready_.size() == 1 ? 0 : random_() % ready_.size();
      const int thread = ready_[chosen];
      // In steps that others may observe. Long enough not to be slow, short enough to overtake in
      // the middle of things.
      const int64_t slice =
          ready_.size() == 1 ? INT64_MAX : 1 + static_cast<int64_t>(random_() % 8);
      RunThread(thread, slice);
      if (threads_[thread].state == State::kRunning) continue;
      ready_[chosen] = ready_.back();
      ready_.pop_back();
    }
  }

  void MakeReady(int thread) {
    threads_[thread].state = State::kRunning;
    ready_.push_back(thread);
  }

  // Nobody can go on alone. Returns false where the block is done, or stuck.
  bool PassTogether() {
    const auto all = [&](State state) {
      return std::all_of(threads_.begin(), threads_.end(), [&](const Thread& t) {
        return t.state == state && t.pc == threads_[0].pc;
      });
    };
    if (all(State::kDone)) {
      if (hopper_ != nullptr)
        if (const Finding left = hopper_->End(); !left.ok() && !plan_.steps.empty())
          Report(left.fault, plan_.steps.back().at, 0, left.what);
      return false;
    }
    bool passed = false;
    const int warp = std::min(kMmaThreads, thread_count());
    for (int first = 0; first + warp <= thread_count(); first += warp) {
      bool together = true;
      for (int t = first; t < first + warp; ++t)
        together =
            together && threads_[t].state == State::kAtMma && threads_[t].pc == threads_[first].pc;
      if (!together) continue;
      const ThreadStep& step = plan_.steps[threads_[first].pc];
      if (step.code == Code::kShuffle) Shuffle(step, first, warp);
      if (step.code == Code::kMma)
        MultiplyMatrices(WarpOf(first), step.src[0],
                         step.src[1] + 4 * static_cast<int32_t>(step.imm), step.src[2], step.out);
      if (step.code == Code::kLdmatrix && !LoadMatrices(step, first)) return false;
      for (int t = first; t < first + warp; ++t) GoOn(t);
      passed = true;
    }
    if (passed) return true;
    if (!all(State::kAtBarrier)) {
      for (int t = 0; t < thread_count(); ++t)
        if (threads_[t].state == State::kAtWait)
          return Report(Fault::kEndlessWait, plan_.steps[threads_[t].pc].at, t,
                        "no thread and no copy can end the barrier's phase");
      for (int t = 0; t < thread_count(); ++t)
        if (threads_[t].state != State::kDone)
          return Report(Fault::kDivergence, plan_.steps[threads_[t].pc].at, t,
                        "not all threads come here");
      return false;
    }
    NextEpoch();
    if (hopper_ != nullptr) hopper_->JoinThreads(0, thread_count());
    for (int t = 0; t < thread_count(); ++t) GoOn(t);
    return true;
  }

  void GoOn(int thread) {
    ++threads_[thread].pc;
    MakeReady(thread);
  }

  void Shuffle(const ThreadStep& step, int first, int warp) {
    for (int t = 0; t < warp; ++t)
      RegistersOf(first + t)[step.out] =
          RegistersOf(first + (t ^ static_cast<int>(step.imm)))[step.src[0]];
  }

  WarpRegisters WarpOf(int first) {
    WarpRegisters warp;
    for (int t = 0; t < kMmaThreads; ++t) warp[t] = RegistersOf(first + t);
    return warp;
  }

  // LDMATRIX. Its threads read for each other, so that a thread's own store must be behind a
  // barrier, too: a row counts as read by two of them.
  bool LoadMatrices(const ThreadStep& step, int first) {
    MatrixRows rows;
    for (int t = 0; t < kMmaThreads; ++t) {
      const Memory& memory = MemoryOf(step.src[0], first + t);
      const int64_t element = RegistersOf(first + t)[step.src[1]];
      if (element % 8 != 0)
        return Report(Fault::kMisaligned, step.at, first + t,
                      absl::StrCat("a row begins at element ", element));
      for (int64_t e = element; e < element + 8; ++e)
        if (!MayRead(memory, e, step, first + t) || !MayRead(memory, e, step, first + (t ^ 1)))
          return false;
      LoadLanes(memory.dtype, memory.Address(element), 8, rows[t].data());
    }
    DistributeMatrices(rows, step.imm == 1, WarpOf(first), step.out);
    return true;
  }

  // ---- who has touched what
  bool InRange(const Memory& memory, int64_t element, const ThreadStep& step, int thread) {
    if (element >= 0 && element < memory.elements) return true;
    return Report(Fault::kOutOfRange, step.at, thread,
                  absl::StrCat("element ", element, " of ", memory.elements));
  }

  bool Race(const ThreadStep& step, int thread, int64_t element, std::string_view what) {
    return Report(Fault::kRace, step.at, thread,
                  absl::StrCat("element ", element, " ", std::string(what)));
  }

  // These return false where a fault was reported.
  bool Fine(const Finding& found, const ThreadStep& step, int thread, int64_t element) {
    if (found.ok()) return true;
    return Report(found.fault, step.at, thread,
                  element < 0 ? found.what : absl::StrCat("element ", element, " ", found.what));
  }

  bool TouchToRead(const Memory& memory, int64_t element, const ThreadStep& step, int thread) {
    if (memory.first >= 0)
      return Fine(hopper_->Read(thread, memory.first + element), step, thread, element);
    if (memory.holds != nullptr && memory.holds[element] == kHeld)
      return Report(Fault::kAccumulator, step.at, thread,
                    absl::StrCat("element ", element, " is read before its product is done"));
    if (memory.shadows == nullptr) return true;
    Shadow& by = memory.shadows[element];
    if (by.arriving) return Race(step, thread, element, "is read before its copy is waited for");
    if (by.write_epoch != 0 && by.write_epoch < first_epoch_)
      return Race(step, thread, element, "is written by another block");
    if (by.write_epoch == epoch_ && by.write_thread != thread)
      return Race(step, thread, element, "is written by another thread, with no barrier between");
    if (by.read_epoch != 0 && by.read_epoch < first_epoch_) by.many_reading_blocks = true;
    by.many_readers = by.read_epoch == epoch_ && (by.many_readers || by.read_thread != thread);
    by.read_thread = static_cast<uint16_t>(thread);
    by.read_epoch = epoch_;
    return true;
  }

  bool TouchToWrite(const Memory& memory, int64_t element, const ThreadStep& step, int thread) {
    if (memory.first >= 0)
      return Fine(hopper_->Write(thread, memory.first + element), step, thread, element);
    if (memory.holds != nullptr) {
      if (memory.holds[element] == kHeld)
        return Report(Fault::kAccumulator, step.at, thread,
                      absl::StrCat("element ", element, " is written before its product is done"));
      memory.holds[element] = kUnfenced;
    }
    if (memory.shadows == nullptr) return true;
    Shadow& by = memory.shadows[element];
    if (by.arriving)
      return Race(step, thread, element, "is written while a copy is on its way there");
    if (by.write_epoch != 0 && by.write_epoch < first_epoch_)
      return Race(step, thread, element, "is written by two blocks");
    if (by.write_epoch == epoch_ && by.write_thread != thread)
      return Race(step, thread, element, "is written by two threads, with no barrier between");
    if (by.read_epoch != 0 && (by.many_reading_blocks || by.read_epoch < first_epoch_))
      return Race(step, thread, element, "is read by another block");
    if (by.read_epoch == epoch_ && (by.many_readers || by.read_thread != thread))
      return Race(step, thread, element, "is read by another thread, with no barrier between");
    by.write_thread = static_cast<uint16_t>(thread);
    by.write_epoch = epoch_;
    return true;
  }

  bool MayRead(const Memory& memory, int64_t element, const ThreadStep& step, int thread) {
    if (!InRange(memory, element, step, thread)) return false;
    if (!TouchToRead(memory, element, step, thread)) return false;
    if (memory.written == nullptr || memory.written[element] == memory.generation) return true;
    return Report(Fault::kUninitialised, step.at, thread,
                  absl::StrCat("element ", element, " was never written"));
  }

  bool MayWrite(const Memory& memory, int64_t element, const ThreadStep& step, int thread) {
    if (!InRange(memory, element, step, thread)) return false;
    if (!TouchToWrite(memory, element, step, thread)) return false;
    if (memory.written != nullptr) memory.written[element] = memory.generation;
    return true;
  }

  bool Load(const ThreadStep& step, int thread, int64_t* r) {
    const Memory& memory = MemoryOf(step.src[0], thread);
    const int lanes = step.what.lanes;
    int64_t* const out = r + step.out;
    if (!step.masked && !step.vector_index) {
      const int64_t first = r[step.src[1]];
      if (memory.shadows == nullptr && memory.written == nullptr) {
        if (first < 0 || first > memory.elements - lanes)
          return InRange(memory, first < 0 ? first : std::max(first, memory.elements), step,
                         thread);
      } else {
        for (int lane = 0; lane < lanes; ++lane)
          if (!MayRead(memory, first + lane, step, thread)) return false;
      }
      LoadLanes(memory.dtype, memory.Address(first), lanes, out);
      return true;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      if (step.masked && r[step.src[2] + lane] == 0) {
        out[lane] = r[step.src[3] + lane];
        continue;
      }
      const int64_t element = step.vector_index ? r[step.src[1] + lane] : r[step.src[1]] + lane;
      if (!MayRead(memory, element, step, thread)) return false;
      LoadLanes(memory.dtype, memory.Address(element), 1, out + lane);
    }
    return true;
  }

  bool Store(const ThreadStep& step, int thread, const int64_t* r) {
    const Memory& memory = MemoryOf(step.src[0], thread);
    const int lanes = step.what.lanes;
    const int64_t* const values = r + step.src[2];
    if (!step.masked && !step.vector_index) {
      const int64_t first = r[step.src[1]];
      for (int lane = 0; lane < lanes; ++lane)
        if (!MayWrite(memory, first + lane, step, thread)) return false;
      StoreLanes(memory.dtype, values, lanes, memory.Address(first));
      return true;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      if (step.masked && r[step.src[3] + lane] == 0) continue;
      const int64_t element = step.vector_index ? r[step.src[1] + lane] : r[step.src[1]] + lane;
      if (!MayWrite(memory, element, step, thread)) return false;
      StoreLanes(memory.dtype, values + lane, 1, memory.Address(element));
    }
    return true;
  }

  // ---- copies
  void Move(const Copy& copy, int thread) {
    const Memory &to = MemoryOf(copy.step->src[0], thread),
                 &from = MemoryOf(copy.step->src[2], thread);
    if (copy.zeros) {
      std::fill_n(to.Address(copy.to), copy.step->imm * to.width, 0);
    } else {
      std::copy_n(from.Address(copy.from), copy.step->imm * to.width, to.Address(copy.to));
    }
  }

  bool Begin(const ThreadStep& step, int thread, const int64_t* r) {
    const Memory &to = MemoryOf(step.src[0], thread), &from = MemoryOf(step.src[2], thread);
    const bool zeros = step.masked && r[step.src[4]] == 0;
    const Copy copy{&step, r[step.src[1]], r[step.src[3]], zeros, random_() % 2 == 0};
    if (step.aligned && (copy.to % step.imm != 0 || (!zeros && copy.from % step.imm != 0)))
      return Report(Fault::kMisaligned, step.at, thread,
                    absl::StrCat(step.imm, " elements from ", copy.from, " to ", copy.to));
    for (int64_t e = 0; e < step.imm; ++e) {
      if (!InRange(to, copy.to + e, step, thread) || !TouchToWrite(to, copy.to + e, step, thread))
        return false;
      if (!zeros && (!InRange(from, copy.from + e, step, thread) ||
                     !TouchToRead(from, copy.from + e, step, thread)))
        return false;
      to.shadows[copy.to + e].arriving = true;
    }
    if (copy.arrived) Move(copy, thread);
    threads_[thread].begun.push_back(copy);
    return true;
  }

  void Wait(int64_t but, int thread) {
    Thread& t = threads_[thread];
    while (static_cast<int64_t>(t.groups.size()) > but) {
      for (const Copy& copy : t.groups.front()) {
        if (!copy.arrived) Move(copy, thread);
        const Memory& to = MemoryOf(copy.step->src[0], thread);
        for (int64_t e = copy.to; e < copy.to + copy.step->imm; ++e) {
          Shadow& by = to.shadows[e];
          by.arriving = false;
          by.write_thread = static_cast<uint16_t>(thread);
          by.write_epoch = epoch_;
          to.written[e] = to.generation;
        }
      }
      t.groups.erase(t.groups.begin());
    }
  }

  // ---- tiles
  using Tile = std::array<int64_t, kTileSide * kTileSide>;

  bool ReadTile(const Memory& tile, const ThreadStep& step, int thread, Tile& out) {
    for (int64_t e = 0; e < static_cast<int64_t>(out.size()); ++e)
      if (!MayRead(tile, e, step, thread)) return false;
    LoadLanes(tile.dtype, tile.bytes, static_cast<int>(out.size()), out.data());
    return true;
  }

  void WriteTile(const Memory& tile, const Tile& values) {
    std::fill_n(tile.written, values.size(), tile.generation);
    StoreLanes(tile.dtype, values.data(), static_cast<int>(values.size()), tile.bytes);
  }

  // TILELOAD and TILESTORE.
  bool MoveTile(const ThreadStep& step, int thread, const int64_t* r) {
    const bool stores = step.code == Code::kTileStore;
    const Memory &tile = MemoryOf(step.src[0], thread), &memory = MemoryOf(step.src[1], thread);
    Tile values{};
    if (stores && !ReadTile(tile, step, thread, values)) return false;
    for (int row = 0; row < kTileSide; ++row) {
      const int64_t first = r[step.src[2]] + row * step.imm;
      for (int column = 0; column < kTileSide; ++column)
        if (!(stores ? MayWrite(memory, first + column, step, thread)
                     : MayRead(memory, first + column, step, thread)))
          return false;
      int64_t* const elements = &values[row * kTileSide];
      if (stores) {
        StoreLanes(memory.dtype, elements, kTileSide, memory.Address(first));
      } else {
        LoadLanes(memory.dtype, memory.Address(first), kTileSide, elements);
      }
    }
    if (!stores) WriteTile(tile, values);
    return true;
  }

  bool TileDot(const ThreadStep& step, int thread) {
    Tile c, a, b;
    if (!ReadTile(MemoryOf(step.src[0], thread), step, thread, c) ||
        !ReadTile(MemoryOf(step.src[1], thread), step, thread, a) ||
        !ReadTile(MemoryOf(step.src[2], thread), step, thread, b))
      return false;
    std::array<float, kTileSide * kTileSide> sums;
    std::array<uint32_t, kTileSide * kTileSide> left, right;
    for (size_t e = 0; e < sums.size(); ++e) {
      sums[e] = static_cast<float>(AsFloat(c[e]));
      left[e] = static_cast<uint32_t>(a[e]);
      right[e] = static_cast<uint32_t>(b[e]);
    }
    AddTileProducts(sums.data(), left.data(), right.data());
    for (size_t e = 0; e < sums.size(); ++e) c[e] = AsBits(sums[e]);
    WriteTile(MemoryOf(step.src[0], thread), c);
    return true;
  }

  // ---- sm_90a
  const Instruction& InstructionOf(const ThreadStep& step) const { return program_.code[step.at]; }
  int32_t SourceOf(const ThreadStep& step, size_t source) const {
    return plan_.lane_places[step.src[0] + source];
  }

  // What no thread can do alone, and what happens beside them. Returns false where nothing can.
  bool AdvanceHopper() {
    bool advanced = false;
    for (size_t g = 0; g < at_group_.size() && outcome_.ok(); ++g)
      if (at_group_[g] == kWarpgroupThreads) advanced = PassGroup(static_cast<int>(g)) || advanced;
    if (!advanced) advanced = hopper_->DeliverOne();
    WakeWaiting();
    return advanced && outcome_.ok();
  }

  void WakeWaiting() {
    for (const int t : hopper_->TakeWoken()) MakeReady(t);
  }

  // A step of one thread.
  bool HopperStep(const ThreadStep& step, int thread, const int64_t* r) {
    const auto value = [&](size_t source) { return r[SourceOf(step, source)]; };
    int64_t barrier = 0;
    if (step.code >= Code::kBarrierInit && step.code <= Code::kBoxLoad) {
      const size_t at = step.code == Code::kBoxLoad ? 2 : 0;
      const Memory& barriers = MemoryOf(SourceOf(step, at), thread);
      if (!InRange(barriers, value(at + 1), step, thread)) return false;
      barrier = barriers.first + value(at + 1);
    }
    Finding found;
    bool passed = true;
    switch (step.code) {
      case Code::kBarrierInit: found = hopper_->Init(thread, barrier, step.imm); break;
      case Code::kBarrierExpect: found = hopper_->Expect(thread, barrier, step.imm); break;
      case Code::kBarrierArrive: found = hopper_->Arrive(thread, barrier); break;
      case Code::kBarrierWait: found = hopper_->Wait(thread, barrier, value(2), &passed); break;
      case Code::kBoxLoad:
      case Code::kBoxStore: return BeginBox(step, thread, r, barrier);
      case Code::kBoxCommit: hopper_->CommitStores(thread); break;
      case Code::kBoxWait: hopper_->WaitStores(thread, step.imm); break;
      case Code::kProxyFence: hopper_->ProxyFence(thread); break;
      default: OB_CHECK(false && "no such instruction");
    }
    if (!passed) threads_[thread].state = State::kAtWait;
    WakeWaiting();
    return Fine(found, step, thread, -1);
  }

  bool BeginBox(const ThreadStep& step, int thread, const int64_t* r, int64_t barrier) {
    const bool loads = step.code == Code::kBoxLoad;
    const size_t at = loads ? 4 : 2;
    const Instruction& i = InstructionOf(step);
    const MappedTensor& map = program_.maps[program_.code[i.src[at]].imm[0]];
    const Memory &shared = MemoryOf(SourceOf(step, 0), thread),
                 &buffer = MemoryOf(SourceOf(step, at), thread);
    const int64_t first = r[SourceOf(step, 1)];
    const int64_t align = (map.swizzled ? kSwizzleAlign : MappedTensor::kSwizzleBytes);
    if (first * shared.width % align != 0)
      return Report(Fault::kMisuse, step.at, thread,
                    absl::StrCat("a box at element ", first, ", no multiple of ", align, " bytes"));
    std::vector<int64_t> start;
    for (size_t s = at + 1; s < i.src.size(); ++s) start.push_back(r[SourceOf(step, s)]);
    std::vector<BoxElement> elements = ElementsOfBox(map, start);
    std::vector<int64_t> numbers;  // among those of the block
    for (BoxElement& element : elements) {
      element.place += first;
      if (map.swizzled) element.place = SwizzledPlace(element.place, shared.width);
      if (!InRange(shared, element.place, step, thread)) return false;
      numbers.push_back(shared.first + element.place);
      if (element.byte < 0) continue;
      const int64_t there = element.byte / shared.width;
      if (!(loads ? TouchToRead(buffer, there, step, thread)
                  : TouchToWrite(buffer, there, step, thread)))
        return false;
    }
    auto move = [shared, buffer, loads, elements = std::move(elements)] {
      for (const BoxElement& element : elements) {
        char* const here = shared.Address(element.place);
        if (loads) shared.written[element.place] = shared.generation;
        if (element.byte < 0) {
          if (loads) std::fill_n(here, shared.width, '\0');
        } else if (loads) {
          std::copy_n(buffer.bytes + element.byte, shared.width, here);
        } else {
          std::copy_n(here, shared.width, buffer.bytes + element.byte);
        }
      }
    };
    const Finding found =
        loads ? hopper_->BeginLoad(thread, numbers, barrier, map.box_elements() * shared.width,
                                   std::move(move))
              : hopper_->BeginStore(thread, numbers, std::move(move));
    WakeWaiting();
    return Fine(found, step, thread, -1);
  }

  // A step of all threads of a warpgroup. Returns false where they have to wait.
  bool PassGroup(int group) {
    const int first = group * kWarpgroupThreads;
    const ThreadStep& step = plan_.steps[threads_[first].pc];
    for (int t = first; t < first + kWarpgroupThreads; ++t)
      if (threads_[t].pc != threads_[first].pc)
        return Report(Fault::kDivergence, step.at, t, "threads of the warpgroup are elsewhere");
    bool passed = true, fine = true;
    switch (step.code) {
      case Code::kGroupMma: fine = MultiplyGroup(step, group); break;
      case Code::kGroupCommit: hopper_->CommitProducts(group); break;
      case Code::kGroupSync: hopper_->JoinThreads(first, kWarpgroupThreads); break;
      case Code::kGroupFence:
        ForAccumulators(step, group, [](int32_t, const Memory& memory, int64_t e) {
          if (memory.holds[e] == kUnfenced) memory.holds[e] = kFree;
        });
        break;
      case Code::kGroupWait:
        hopper_->WaitProducts(group, step.imm);
        ForAccumulators(step, group, [&](int32_t number, const Memory& memory, int64_t e) {
          if (held_by_[{group, number}] <= hopper_->DoneGroup(group) && memory.holds[e] == kHeld)
            memory.holds[e] = kFree;
        });
        break;
      default: {
        const Finding found =
            hopper_->SetRegisters(group, step.imm, InstructionOf(step).imm[1] != 0, &passed);
        fine = Fine(found, step, first, -1);
        break;
      }
    }
    if (!passed || !fine) return false;
    at_group_[group] = 0;
    for (int t = first; t < first + kWarpgroupThreads; ++t) GoOn(t);
    return true;
  }

  template <class Visit>
  void ForAccumulators(const ThreadStep& step, int group, const Visit& visit) {
    for (size_t s = 0; s < step.source_count; ++s)
      for (int t = group * kWarpgroupThreads; t < (group + 1) * kWarpgroupThreads; ++t) {
        const Memory& memory = MemoryOf(SourceOf(step, s), t);
        for (int64_t e = 0; e < memory.elements; ++e) visit(SourceOf(step, s), memory, e);
      }
  }

  bool MultiplyGroup(const ThreadStep& step, int group) {
    const Instruction& i = InstructionOf(step);
    const int first = group * kWarpgroupThreads;
    const int64_t* const r = RegistersOf(first);
    std::vector<int64_t> numbers;
    std::array<std::vector<int64_t>, 2> places;
    for (int side = 0; side < 2; ++side) {
      const size_t source = side == 0 ? 1 : 3;
      const Memory& memory = MemoryOf(SourceOf(step, source), first);
      const int64_t begin = r[SourceOf(step, source + 1)], leading = i.imm[1 + side];
      for (int t = first; t < first + kWarpgroupThreads; ++t)
        if (RegistersOf(t)[SourceOf(step, source + 1)] != begin)
          return Report(Fault::kDivergence, step.at, t, "threads have other operands");
      // Within the first of eight rows, or at the beginning of a pattern.
      const int64_t off = (begin * memory.width) % kSwizzleAlign;
      if (leading == 0 ? off >= MappedTensor::kSwizzleBytes || off % 32 != 0 : off != 0)
        return Report(Fault::kMisuse, step.at, first,
                      absl::StrCat("an operand at element ", begin));
      const int rows = side == 0 ? kWgmmaRows : static_cast<int>(i.imm[0]);
      for (int row = 0; row < rows; ++row)
        for (int k = 0; k < kWgmmaDepth; ++k) {
          const int64_t place = SwizzledPlace(begin + WgmmaPlace(leading, row, k), memory.width);
          if (!InRange(memory, place, step, first)) return false;
          places[side].push_back(place);
          numbers.push_back(memory.first + place);
        }
    }
    const int32_t sums = SourceOf(step, 0);
    for (int t = first; t < first + kWarpgroupThreads; ++t) {
      const Memory& memory = MemoryOf(sums, t);
      for (int64_t e = 0; e < memory.elements; ++e) {
        if (memory.written[e] != memory.generation)
          return Report(Fault::kUninitialised, step.at, t,
                        absl::StrCat("accumulator ", e, " was never written"));
        if (memory.holds[e] == kUnfenced)
          return Report(Fault::kAccumulator, step.at, t,
                        absl::StrCat("accumulator ", e, " was stored with no WGFENCE since"));
        memory.holds[e] = kHeld;
      }
    }
    held_by_[{group, sums}] = hopper_->OpenGroup(group);
    return Fine(hopper_->BeginProduct(group, numbers,
                                      [this, &step, first, places = std::move(places)] {
                                        ComputeGroup(step, first, places);
                                      }),
                step, first, -1);
  }

  void ComputeGroup(const ThreadStep& step, int first,
                    const std::array<std::vector<int64_t>, 2>& places) {
    GroupOperands operands;
    for (int side = 0; side < 2; ++side) {
      const Memory& memory = MemoryOf(SourceOf(step, side == 0 ? 1 : 3), first);
      std::vector<double>& numbers = side == 0 ? operands.a : operands.b;
      for (const int64_t place : places[side]) {
        int64_t lane = 0;
        LoadLanes(memory.dtype, memory.Address(place), 1, &lane);
        numbers.push_back(AsFloat(lane));
      }
    }
    for (int t = 0; t < kWarpgroupThreads; ++t) {
      const Memory& memory = MemoryOf(SourceOf(step, 0), first + t);
      AddGroupProducts(
          operands, t,
          {reinterpret_cast<float*>(memory.bytes), static_cast<size_t>(memory.elements)});
    }
  }

  // ---- steps
  // The pure ones.
  void Compute(const ThreadStep& s, int thread, int64_t* r) {
    int64_t* const out = r + s.out;
    switch (s.code) {
      case Code::kConst: *out = s.imm; break;
      case Code::kVar: *out = vars_[s.imm]; break;
      case Code::kSpecial:
        *out = s.imm == static_cast<int64_t>(Grid::kBlock) ? block_ : thread;
        break;
      case Code::kAlu: s.function(s.what, r + s.src[0], r + s.src[1], r + s.src[2], out); break;
      case Code::kCast:
        CastLanes(s.what.operand, s.what.result, r + s.src[0], s.what.lanes, out);
        break;
      case Code::kBitcast:
        BitcastLanes(s.what.operand, s.what.result, r + s.src[0], s.what.lanes, out);
        break;
      case Code::kLanes:
        for (int lane = 0; lane < s.what.lanes; ++lane)
          out[lane] = r[plan_.lane_places[s.src[0] + lane]];
        break;
      case Code::kLane: *out = r[s.src[0] + s.imm]; break;
      case Code::kDot:
        for (int lane = 0; lane < s.what.lanes; ++lane)
          out[lane] = AsBits(AddPairProducts(static_cast<float>(AsFloat(r[s.src[0] + lane])),
                                             static_cast<uint32_t>(r[s.src[1] + lane]),
                                             static_cast<uint32_t>(r[s.src[2] + lane])));
        break;
      default: OB_CHECK(false && "no such instruction");
    }
  }

  // Runs a thread until it has made `slice` steps that are visible to others, cannot go on alone,
  // or has a fault.
  void RunThread(int thread, int64_t slice) {
    Thread& t = threads_[thread];
    int64_t* const r = RegistersOf(thread);
    const ThreadStep* const steps = plan_.steps.data();
    const auto count = static_cast<int32_t>(plan_.steps.size());
    int32_t pc = t.pc;
    bool fine = true;
    while (pc < count) {
      const ThreadStep& s = steps[pc];
      if (--steps_left_ < 0) {
        Report(Fault::kTooLong, s.at, thread, "over the limit of steps");
        return;
      }
      ++pc;
      switch (s.code) {
        case Code::kAlloc: OB_CHECK(++MemoryOf(s.src[0], thread).generation != 0); break;
        case Code::kLoop: {
          const int64_t limit = s.source_count == 0 ? s.imm : std::min(s.imm, r[s.src[0]]);
          r[s.out] = 0;
          r[s.out + 1] = limit;
          if (limit <= 0) pc = s.jump;
          break;
        }
        case Code::kEnd:
          if (++r[s.out] < r[s.out + 1]) pc = s.jump;
          break;
        case Code::kIf:
          if (r[s.src[0]] == 0) pc = s.jump;
          break;
        case Code::kLoad: fine = Load(s, thread, r); break;
        case Code::kStore: fine = Store(s, thread, r); break;
        case Code::kBarrier:
        case Code::kShuffle:
        case Code::kMma:
        case Code::kLdmatrix:
          t.state = s.code == Code::kBarrier ? State::kAtBarrier : State::kAtMma;
          t.pc = pc - 1;
          return;
        case Code::kCopy: fine = Begin(s, thread, r); break;
        case Code::kCommit: t.groups.push_back(std::exchange(t.begun, {})); break;
        case Code::kWait: Wait(s.imm, thread); break;
        case Code::kTileZero: WriteTile(MemoryOf(s.src[0], thread), {}); break;
        case Code::kTileLoad:
        case Code::kTileStore: fine = MoveTile(s, thread, r); break;
        case Code::kTileDot: fine = TileDot(s, thread); break;
        default:
          if (!IsHopper(s.code)) {
            Compute(s, thread, r);
            break;
          }
          if (IsOfWarpgroup(s.code)) {
            t.state = State::kAtGroup;
            t.pc = pc - 1;
            ++at_group_[thread / kWarpgroupThreads];
            return;
          }
          fine = HopperStep(s, thread, r);
          if (t.state == State::kAtWait) {
            t.pc = pc - 1;
            return;
          }
          break;
      }
      if (!fine) return;
      if (s.visible && --slice == 0) {
        t.pc = pc;
        return;
      }
    }
    t.pc = pc;
    t.state = State::kDone;
  }

  const Program& program_;
  const Plan plan_;
  std::span<const int64_t> vars_;
  int64_t steps_max_, steps_left_;
  std::mt19937_64 random_;
  int64_t blocks_ = 1, block_ = 0;
  uint32_t epoch_ = 0, first_epoch_ = 0;
  std::vector<Thread> threads_;
  std::vector<int> ready_;  // threads that can go on
  std::vector<int64_t> registers_;
  std::vector<Memory> memories_;  // by thread and number
  std::vector<char> private_bytes_, shared_bytes_;
  std::vector<uint32_t> private_written_, shared_written_;
  std::vector<Shadow> shared_shadows_;
  std::vector<std::vector<Shadow>> buffer_shadows_;  // by slot
  // Of sm_90a; null where the program has nothing of it.
  std::unique_ptr<HopperBlock> hopper_;
  std::vector<uint8_t> holds_;  // as private_written_
  std::vector<int> at_group_;   // by warpgroup: threads that wait for the others of it
  std::map<std::pair<int, int32_t>, int64_t> held_by_;  // by warpgroup and memory: last group
  RunReport outcome_;
};

}  // namespace

std::string_view Name(Fault fault) {
  static constexpr std::string_view kNames[] = {
      "none",         "race",       "uninitialised read", "access out of range",
      "misaligned",   "divergence", "too long",           "accumulator in use",
      "missing fence", "endless wait", "misuse"};
  return kNames[static_cast<size_t>(fault)];
}

RunReport Interpret(const Program& program, std::span<std::string> buffers,
                    std::span<const int64_t> vars, const RunOptions& options) {
  return Interpreter(program, buffers, vars, options).Run();
}

}  // namespace outboard::program
