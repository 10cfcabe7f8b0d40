#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/bf16_products.h"
#include "compiler/program/interpreter.h"

namespace outboard::program {

Interpreter::Interpreter(const Program& program, std::span<std::string> buffers,
                         std::span<const int64_t> vars, const RunOptions& options)
    : program_(program),
      plan_(MakePlan(program)),
      vars_(vars),
      steps_max_(options.steps_max),
      steps_left_(options.steps_max),
      random_(options.seed),
      blocks_(program.Extent(Grid::kBlock)),
      block_threads_(static_cast<int>(program.Extent(Grid::kThread))),
      threads_(program.Extent(Grid::kThread) * program.cluster) {
  OB_CHECK(threads_.size() <= UINT16_MAX);
  registers_.resize(plan_.registers * threads_.size());
  private_bytes_.resize(plan_.private_bytes * threads_.size());
  private_written_.resize(plan_.private_elements * threads_.size());
  shared_bytes_.resize(plan_.shared_bytes * program.cluster);
  shared_written_.resize(plan_.shared_elements * program.cluster);
  shared_shadows_.resize(plan_.shared_elements * program.cluster);
  buffer_shadows_.resize(buffers.size());
  for (const ProgramMemory& memory : plan_.memories)
    if (HasShadows(memory)) {
      std::vector<Shadow>& shadows = buffer_shadows_[memory.slot];
      shadows.resize(std::max<size_t>(shadows.size(), memory.elements));
    }
  if (plan_.hopper) {
    hopper_ = std::make_unique<HopperBlock>(thread_count(), program.cluster, plan_.shared_elements,
                                            plan_.barriers, &random_);
    holds_.resize(plan_.private_elements * threads_.size());
    at_group_.resize(threads_.size() / kWarpgroupThreads);
  }
  for (int t = 0; t < thread_count(); ++t) {
    for (const ProgramMemory& memory : plan_.memories) AddMemory(memory, t, buffers);
    for (const ThreadStep& step : plan_.once) Compute(step, t, RegistersOf(t));
  }
}

RunReport Interpreter::Run() {
  std::vector<int64_t> order(blocks_ / program_.cluster);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  for (const int64_t cluster : order) {
    block_ = cluster * program_.cluster;
    RunBlock();
    if (!outcome_.ok()) break;
  }
  outcome_.steps = steps_max_ - steps_left_;
  return outcome_;
}

bool Interpreter::HasShadows(const ProgramMemory& buffer) const {
  return buffer.kind == ProgramMemory::Kind::kBuffer && buffer.written &&
         blocks_ * thread_count() > 1;
}

void Interpreter::AddMemory(const ProgramMemory& memory, int thread,
                            std::span<std::string> buffers) {
  Memory out{.elements = memory.elements, .dtype = memory.dtype, .width = ByteWidth(memory.dtype)};
  switch (memory.kind) {
    case ProgramMemory::Kind::kBuffer: {
      std::string& buffer = buffers[memory.slot];
      OB_CHECK(static_cast<int64_t>(buffer.size()) >= memory.elements * out.width);
      out.bytes = buffer.data();
      if (HasShadows(memory)) out.shadows = buffer_shadows_[memory.slot].data();
      break;
    }
    case ProgramMemory::Kind::kShared: {
      const int64_t first = memory.first_element + RankOf(thread) * plan_.shared_elements;
      out.bytes = shared_bytes_.data() + memory.first_byte + RankOf(thread) * plan_.shared_bytes;
      out.written = shared_written_.data() + first;
      out.shadows = shared_shadows_.data() + first;
      if (plan_.hopper) out.first = first;
      break;
    }
    case ProgramMemory::Kind::kBarriers:
      out.first = memory.first_element + RankOf(thread) * plan_.barriers;
      break;
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

bool Interpreter::Report(Fault fault, ValueId n, int thread, const std::string& what) {
  if (!outcome_.ok()) return false;
  outcome_.fault = fault;
  outcome_.at = n;
  outcome_.message =
      absl::StrCat(std::string(Name(fault)), " at ", ToString(program_, n), ", block ",
                   block_ + RankOf(thread), ", thread ", thread % block_threads_, ": ", what);
  return false;
}

void Interpreter::NextEpoch() {
  ++epoch_;
  OB_CHECK(epoch_ != 0);
}

void Interpreter::RunBlock() {
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
    const int64_t slice = ready_.size() == 1 ? INT64_MAX : 1 + static_cast<int64_t>(random_() % 8);
    RunThread(thread, slice);
    if (threads_[thread].state == State::kRunning) continue;
    ready_[chosen] = ready_.back();
    ready_.pop_back();
  }
}

void Interpreter::MakeReady(int thread) {
  threads_[thread].state = State::kRunning;
  ready_.push_back(thread);
}

bool Interpreter::AreAt(State state, int first, int count) const {
  return std::all_of(
      threads_.begin() + first, threads_.begin() + first + count,
      [&](const Thread& t) { return t.state == state && t.pc == threads_[first].pc; });
}

// A block's, or a cluster's. Returns false where neither is complete.
bool Interpreter::PassBarriers() {
  const auto pass = [&](int first, int count) {
    if (hopper_ != nullptr) hopper_->SyncThreads(first, count);
    for (int t = first; t < first + count; ++t) GoOn(t);
  };
  if (std::all_of(threads_.begin(), threads_.end(),
                  [](const Thread& t) { return t.state == State::kAtCluster; })) {
    NextEpoch();
    pass(0, thread_count());
    return true;
  }
  bool passed = false;
  for (int first = 0; first < thread_count(); first += block_threads_) {
    if (!AreAt(State::kAtBarrier, first, block_threads_)) continue;
    // What other blocks of a cluster do to buffers is not before what comes now.
    if (program_.cluster == 1) NextEpoch();
    pass(first, block_threads_);
    passed = true;
  }
  return passed;
}

bool Interpreter::PassTogether() {
  if (AreAt(State::kDone, 0, thread_count())) {
    if (hopper_ != nullptr)
      if (const Finding left = hopper_->End(); !left.ok() && !plan_.steps.empty())
        Report(left.fault, plan_.steps.back().at, 0, left.what);
    return false;
  }
  bool passed = false;
  const int warp = std::min(kWarpThreads, block_threads_);
  for (int first = 0; first + warp <= thread_count(); first += warp) {
    if (threads_[first].state != State::kAtMma) continue;
    const ThreadStep& step = plan_.steps[threads_[first].pc];
    const bool amd =
        step.code == Code::kMma && step.imm >= static_cast<int64_t>(MatrixUnit::kWmma);
    const auto unit = static_cast<MatrixUnit>(step.imm);
    const int count = amd ? ThreadsOf(unit) : warp;
    if (first % count != 0 || first + count > thread_count() ||
        !AreAt(State::kAtMma, first, count))
      continue;
    if (step.code == Code::kShuffle) Shuffle(step, first, warp);
    if (amd) {
      std::vector<int64_t*> registers;
      for (int t = first; t < first + count; ++t) registers.push_back(RegistersOf(t));
      MultiplyByAmd(unit, registers, step.src[0], step.src[1], step.src[2], step.out);
    } else if (step.code == Code::kMma) {
      MultiplyMatrices(
          step.what.operand, WarpOf(first), step.src[0],
          step.src[1] + 2 * MmaPacked(step.what.operand) * static_cast<int32_t>(step.imm),
          step.src[2], step.out);
    }
    if (step.code == Code::kWarpSync) hopper_->SyncThreads(first, warp);
    if (step.code == Code::kLdmatrix && !LoadMatrices(step, first)) return false;
    for (int t = first; t < first + count; ++t) GoOn(t);
    passed = true;
  }
  if (passed || PassBarriers()) return true;
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

void Interpreter::GoOn(int thread) {
  ++threads_[thread].pc;
  MakeReady(thread);
}

void Interpreter::Shuffle(const ThreadStep& step, int first, int warp) {
  for (int t = 0; t < warp; ++t)
    RegistersOf(first + t)[step.out] =
        RegistersOf(first + (t ^ static_cast<int>(step.imm)))[step.src[0]];
}

WarpRegisters Interpreter::WarpOf(int first) {
  WarpRegisters warp;
  for (int t = 0; t < kWarpThreads; ++t) warp[t] = RegistersOf(first + t);
  return warp;
}

bool Interpreter::LoadMatrices(const ThreadStep& step, int first) {
  MatrixRows rows;
  for (int t = 0; t < kWarpThreads; ++t) {
    const Memory& memory = MemoryOf(step.src[0], first + t);
    int64_t element = RegistersOf(first + t)[step.src[1]];
    const int count = 16 / ByteWidth(memory.dtype);
    if (element % count != 0)
      return Report(Fault::kMisaligned, step.at, first + t,
                    absl::StrCat("a row begins at element ", element));
    // A swizzle keeps 16 bytes together.
    if (step.imm == 2) element = SwizzledPlace(element, memory.width);
    for (int64_t e = element; e < element + count; ++e)
      if (!MayRead(memory, e, step, first + t) || !MayRead(memory, e, step, first + (t ^ 1)))
        return false;
    LoadLanes(memory.dtype, memory.Address(element), count, rows[t].data());
  }
  DistributeMatrices(step.what.result, rows, step.imm == 1, WarpOf(first), step.out);
  return true;
}

void Interpreter::Compute(const ThreadStep& s, int thread, int64_t* r) {
  int64_t* const out = r + s.out;
  switch (s.code) {
    case Code::kConst: *out = s.imm; break;
    case Code::kVar: *out = vars_[s.imm]; break;
    case Code::kSpecial:
      *out = s.imm == static_cast<int64_t>(Grid::kBlock) ? block_ + RankOf(thread)
                                                         : thread % block_threads_;
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

void Interpreter::RunThread(int thread, int64_t slice) {
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
      case Code::kWarpSync:
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
        if (s.code == Code::kClusterSync) {
          t.state = State::kAtCluster;
          t.pc = pc - 1;
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

std::string_view Name(Fault fault) {
  static constexpr std::string_view kNames[] = {
      "none",       "race",     "uninitialised read", "access out of range", "misaligned",
      "divergence", "too long", "accumulator in use", "missing fence",       "endless wait",
      "misuse"};
  return kNames[static_cast<size_t>(fault)];
}

RunReport Interpret(const Program& program, std::span<std::string> buffers,
                    std::span<const int64_t> vars, const RunOptions& options) {
  return Interpreter(program, buffers, vars, options).Run();
}

}  // namespace outboard::program
