// What is of sm_90a: barriers with phases, boxes, and what a warpgroup does together.
#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/interpreter.h"

namespace outboard::program {
namespace {

// As the matrix unit reads an f32.
double CutToTf32(double x) {
  constexpr uint32_t kIgnored = 0x1fff;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(x)) & ~kIgnored);
}

}  // namespace

bool Interpreter::AdvanceHopper() {
  bool advanced = false;
  for (size_t g = 0; g < at_group_.size() && outcome_.ok(); ++g)
    if (at_group_[g] == kWarpgroupThreads) advanced = PassGroup(static_cast<int>(g)) || advanced;
  if (!advanced) advanced = hopper_->DeliverOne();
  WakeWaiting();
  return advanced && outcome_.ok();
}

bool Interpreter::IsThere(int64_t rank, const ThreadStep& step, int thread) {
  if (rank < 0 || rank >= program_.cluster)
    return Report(Fault::kOutOfRange, step.at, thread,
                  absl::StrCat("block ", rank, " of a cluster of ", program_.cluster));
  for (int t = 0; t < block_threads_; ++t)
    if (threads_[InBlock(t, rank)].state != State::kDone) return true;
  return Report(Fault::kMisuse, step.at, thread, absl::StrCat("block ", rank, " has ended"));
}

bool Interpreter::LoadOfCluster(const ThreadStep& step, int thread, int64_t* r) {
  const int64_t rank = r[SourceOf(step, 2)], first = r[SourceOf(step, 1)];
  if (!IsThere(rank, step, thread)) return false;
  if (first % step.what.lanes != 0)
    return Report(Fault::kMisaligned, step.at, thread,
                  absl::StrCat(int{step.what.lanes}, " elements from ", first));
  const Memory& memory = MemoryOf(SourceOf(step, 0), InBlock(thread, rank));
  for (int lane = 0; lane < step.what.lanes; ++lane)
    if (!MayRead(memory, first + lane, step, thread)) return false;
  LoadLanes(memory.dtype, memory.Address(first), step.what.lanes, r + step.out);
  return true;
}

bool Interpreter::HopperStep(const ThreadStep& step, int thread, int64_t* r) {
  const auto value = [&](size_t source) { return r[SourceOf(step, source)]; };
  int64_t barrier = 0;
  if (step.code >= Code::kMbInit && step.code <= Code::kBoxLoad) {
    const size_t at = step.code == Code::kBoxLoad ? 2 : 0;
    const Memory& barriers = MemoryOf(SourceOf(step, at), thread);
    if (!InRange(barriers, value(at + 1), step, thread)) return false;
    barrier = barriers.first + value(at + 1);
    if (step.code == Code::kMbArrive && step.source_count == 3) {
      if (!IsThere(value(2), step, thread)) return false;
      barrier += (value(2) - RankOf(thread)) * plan_.barriers;
    }
  }
  Finding found;
  bool passed = true;
  switch (step.code) {
    case Code::kMbInit: found = hopper_->Init(thread, barrier, step.imm); break;
    case Code::kMbExpect: found = hopper_->Expect(thread, barrier, step.imm); break;
    case Code::kMbArrive: found = hopper_->Arrive(thread, barrier); break;
    case Code::kMbWait: found = hopper_->Wait(thread, barrier, value(2), &passed); break;
    case Code::kBoxLoad:
    case Code::kBoxStore: return BeginBox(step, thread, r, barrier);
    case Code::kBoxCommit: hopper_->CommitStores(thread); break;
    case Code::kBoxWait: hopper_->WaitStores(thread, step.imm); break;
    case Code::kProxyFence: hopper_->ProxyFence(thread); break;
    case Code::kClusterLoad: return LoadOfCluster(step, thread, r);
    default: OB_CHECK(false && "no such instruction");
  }
  if (!passed) threads_[thread].state = State::kAtWait;
  WakeWaiting();
  return Fine(found, step, thread, -1);
}

bool Interpreter::BeginBox(const ThreadStep& step, int thread, const int64_t* r, int64_t barrier) {
  const bool loads = step.code == Code::kBoxLoad;
  if (!loads || step.imm == 0) return BeginBoxIn(RankOf(thread), step, thread, r, barrier);
  for (int64_t rank = 0; step.imm >> rank != 0; ++rank)
    if (step.imm >> rank & 1)
      if (!IsThere(rank, step, thread) ||
          !BeginBoxIn(rank, step, thread, r, barrier + (rank - RankOf(thread)) * plan_.barriers))
        return false;
  return true;
}

bool Interpreter::BeginBoxIn(int64_t rank, const ThreadStep& step, int thread, const int64_t* r,
                             int64_t barrier) {
  const bool loads = step.code == Code::kBoxLoad;
  const size_t at = loads ? 4 : 2;
  const Instruction& i = InstructionOf(step);
  const MappedTensor& map = program_.maps[program_.code[i.src[at]].imm[0]];
  const Memory &shared = MemoryOf(SourceOf(step, 0), InBlock(thread, rank)),
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
  const Finding found = loads
                            ? hopper_->BeginLoad(thread, numbers, barrier,
                                                 map.box_elements() * shared.width, std::move(move))
                            : hopper_->BeginStore(thread, numbers, std::move(move));
  WakeWaiting();
  return Fine(found, step, thread, -1);
}

bool Interpreter::PassGroup(int group) {
  const int first = group * kWarpgroupThreads;
  const ThreadStep& step = plan_.steps[threads_[first].pc];
  for (int t = first; t < first + kWarpgroupThreads; ++t)
    if (threads_[t].pc != threads_[first].pc)
      return Report(Fault::kDivergence, step.at, t, "threads of the warpgroup are elsewhere");
  bool passed = true, fine = true;
  switch (step.code) {
    case Code::kWgmma: fine = MultiplyGroup(step, group); break;
    case Code::kWgCommit: hopper_->CommitProducts(group); break;
    case Code::kWgSync: hopper_->SyncThreads(first, kWarpgroupThreads); break;
    case Code::kWgFence:
      ForAccumulators(step, group, [](int32_t, const Memory& memory, int64_t e) {
        if (memory.holds[e] == kUnfenced) memory.holds[e] = kFree;
      });
      break;
    case Code::kWgWait:
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
void Interpreter::ForAccumulators(const ThreadStep& step, int group, const Visit& visit) {
  for (size_t s = 0; s < step.source_count; ++s)
    for (int t = group * kWarpgroupThreads; t < (group + 1) * kWarpgroupThreads; ++t) {
      const Memory& memory = MemoryOf(SourceOf(step, s), t);
      for (int64_t e = 0; e < memory.elements; ++e) visit(SourceOf(step, s), memory, e);
    }
}

bool Interpreter::MultiplyGroup(const ThreadStep& step, int group) {
  const Instruction& i = InstructionOf(step);
  const int first = group * kWarpgroupThreads;
  const int64_t* const r = RegistersOf(first);
  std::vector<int64_t> numbers;
  std::array<std::vector<int64_t>, 2> places;
  const bool registers = MemoryOf(SourceOf(step, 1), first).first < 0;
  if (registers && !HoldOperand(step, group)) return false;
  for (int side = registers ? 1 : 0; side < 2; ++side) {
    const size_t source = side == 0 ? 1 : 3;
    const Memory& memory = MemoryOf(SourceOf(step, source), first);
    const int64_t begin = r[SourceOf(step, source + 1)], leading = i.imm[1 + side];
    for (int t = first; t < first + kWarpgroupThreads; ++t)
      if (RegistersOf(t)[SourceOf(step, source + 1)] != begin)
        return Report(Fault::kDivergence, step.at, t, "threads have other operands");
    // Within the first of eight rows, or at the beginning of a pattern.
    const int64_t off = (begin * memory.width) % kSwizzleAlign;
    if (leading == 0 ? off >= MappedTensor::kSwizzleBytes || off % 32 != 0 : off != 0)
      return Report(Fault::kMisuse, step.at, first, absl::StrCat("an operand at element ", begin));
    const int rows = side == 0 ? kWgmmaRows : static_cast<int>(i.imm[0]);
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < WgmmaDepth(memory.width); ++k) {
        const int64_t place =
            SwizzledPlace(begin + WgmmaPlace(leading, row, k, memory.width), memory.width);
        if (!InRange(memory, place, step, first)) return false;
        places[side].push_back(place);
        numbers.push_back(memory.first + place);
      }
  }
  const int32_t sums = SourceOf(step, 0);
  for (int t = first; t < first + kWarpgroupThreads; ++t) {
    const Memory& memory = MemoryOf(sums, t);
    for (int64_t e = 0; e < memory.elements; ++e) {
      if (i.imm[3] != 0)  // what was there is not read
        memory.written[e] = memory.generation;
      else if (memory.written[e] != memory.generation)
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

// The registers of a. They belong to the products of the open group, as accumulators do.
bool Interpreter::HoldOperand(const ThreadStep& step, int group) {
  const int first = group * kWarpgroupThreads;
  const int32_t number = SourceOf(step, 1);
  for (int t = first; t < first + kWarpgroupThreads; ++t) {
    const Memory& memory = MemoryOf(number, t);
    const int64_t begin = RegistersOf(t)[SourceOf(step, 2)];
    for (int64_t e = begin; e < begin + kWgmmaRegistersOfA; ++e) {
      if (memory.written[e] != memory.generation)
        return Report(Fault::kUninitialised, step.at, t,
                      absl::StrCat("register ", e, " of an operand was never written"));
      if (memory.holds[e] == kUnfenced)
        return Report(
            Fault::kAccumulator, step.at, t,
            absl::StrCat("register ", e, " of an operand was stored with no WGFENCE since"));
      memory.holds[e] = kHeld;
    }
  }
  held_by_[{group, number}] = hopper_->OpenGroup(group);
  return true;
}

std::vector<double> Interpreter::NumbersInRegisters(const ThreadStep& step, int first) {
  const Memory& b = MemoryOf(SourceOf(step, 3), first);
  const int width = b.width, depth = WgmmaDepth(width);
  std::vector<double> numbers(static_cast<size_t>(kWgmmaRows * depth));
  for (int t = 0; t < kWarpgroupThreads; ++t) {
    const Memory& memory = MemoryOf(SourceOf(step, 1), first + t);
    const char* const bytes = memory.Address(RegistersOf(first + t)[SourceOf(step, 2)]);
    for (int e = 0; e < kWgmmaRegistersOfA * 4 / width; ++e) {
      const MatrixPlace place = WgmmaOfA(t, e, width);
      int64_t lane = 0;
      LoadLanes(b.dtype, bytes + e * width, 1, &lane);
      const double number = AsFloat(lane);
      numbers[static_cast<size_t>(place.row * depth + place.column)] =
          b.dtype == DType::kF32 ? CutToTf32(number) : number;
    }
  }
  return numbers;
}

void Interpreter::ComputeGroup(const ThreadStep& step, int first,
                               const std::array<std::vector<int64_t>, 2>& places) {
  GroupOperands operands{.alone = InstructionOf(step).imm[3] != 0};
  for (int side = 0; side < 2; ++side) {
    const Memory& memory = MemoryOf(SourceOf(step, side == 0 ? 1 : 3), first);
    std::vector<double>& numbers = side == 0 ? operands.a : operands.b;
    operands.depth = WgmmaDepth(memory.width);
    if (memory.first < 0) numbers = NumbersInRegisters(step, first);
    for (const int64_t place : places[side]) {
      int64_t lane = 0;
      LoadLanes(memory.dtype, memory.Address(place), 1, &lane);
      numbers.push_back(memory.dtype == DType::kF32 ? CutToTf32(AsFloat(lane)) : AsFloat(lane));
    }
  }
  for (int t = 0; t < kWarpgroupThreads; ++t) {
    const Memory& memory = MemoryOf(SourceOf(step, 0), first + t);
    AddGroupProducts(
        operands, t,
        {reinterpret_cast<float*>(memory.bytes), static_cast<size_t>(memory.elements)});
  }
}

}  // namespace outboard::program
