#include "compiler/program/interpret_plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace outboard::program {
namespace {

constexpr int64_t kTileElements = kTileSide * kTileSide;

class Maker {
 public:
  explicit Maker(const Program& program) : program_(program) {}

  Plan Make() {
    const auto count = static_cast<ValueId>(program_.code.size());
    partner_.assign(count, -1);
    memory_.assign(count, -1);
    fixed_.assign(count, false);
    for (ValueId n = 0; n < count; ++n) {
      const Instruction& i = at(n);
      fixed_[n] = IsFixed(i);
      if (i.code == Code::kBuffer || i.code == Code::kAlloc) AddMemory(n);
      if (i.code == Code::kMap) memory_[n] = memory_[i.src[0]];
      plan_.hopper = plan_.hopper || IsHopper(i.code);
      if (i.code == Code::kEnd || i.code == Code::kEndIf) {
        partner_[n] = i.src[0];
        partner_[i.src[0]] = n;
      }
      NoteAccess(i);
    }
    for (ProgramMemory& memory : plan_.memories) {
      memory.read = Has(read_, memory.slot);
      memory.written = Has(written_, memory.slot);
    }
    AssignPlaces();

    std::vector<int32_t> first_step(count + 1);  // at or after an instruction
    for (ValueId n = 0; n < count; ++n) {
      const Instruction& i = at(n);
      first_step[n] = static_cast<int32_t>(plan_.steps.size());
      if (i.code == Code::kEndIf || i.code == Code::kBuffer || i.code == Code::kMap || IsShared(i))
        continue;
      (fixed_[n] ? plan_.once : plan_.steps).push_back(MakeStep(n));
    }
    first_step[count] = static_cast<int32_t>(plan_.steps.size());
    for (ThreadStep& step : plan_.steps)
      if (step.code == Code::kEnd || step.code == Code::kLoop || step.code == Code::kIf)
        step.jump = first_step[partner_[step.at] + 1];
    return std::move(plan_);
  }

 private:
  const Instruction& at(ValueId n) const { return program_.code[n]; }
  static bool IsShared(const Instruction& i) {
    return i.code == Code::kAlloc && (i.imm[0] == static_cast<int64_t>(Space::kShared) ||
                                      i.imm[0] == static_cast<int64_t>(Space::kBarriers));
  }
  static bool Has(const std::vector<bool>& slots, int64_t slot) {
    return slot < static_cast<int64_t>(slots.size()) && slots[slot];
  }

  void AddMemory(ValueId n) {
    const Instruction& i = at(n);
    ProgramMemory memory{.dtype = i.dtype, .elements = i.imm[1]};
    memory_[n] = static_cast<int32_t>(plan_.memories.size());
    if (i.code == Code::kBuffer) {
      memory.slot = i.imm[0];
    } else if (i.imm[0] == static_cast<int64_t>(Space::kBarriers)) {
      memory.kind = ProgramMemory::Kind::kBarriers;
      memory.first_element = plan_.barriers;
      plan_.barriers += memory.elements;
    } else {
      const bool shared = IsShared(i);
      if (i.imm[0] == static_cast<int64_t>(Space::kTile))
        memory.elements = std::max(memory.elements, kTileElements);
      memory.kind = shared ? ProgramMemory::Kind::kShared : ProgramMemory::Kind::kPrivate;
      int64_t& bytes = shared ? plan_.shared_bytes : plan_.private_bytes;
      int64_t& elements = shared ? plan_.shared_elements : plan_.private_elements;
      memory.first_byte = bytes;
      memory.first_element = elements;
      bytes += (memory.elements * ByteWidth(i.dtype) + 7) / 8 * 8;
      elements += memory.elements;
    }
    plan_.memories.push_back(memory);
  }

  void NoteAccess(const Instruction& i) {
    const auto note = [&](ValueId memory, std::vector<bool>& slots) {
      if (at(memory).code != Code::kBuffer) return;
      const auto slot = static_cast<size_t>(at(memory).imm[0]);
      if (slots.size() <= slot) slots.resize(slot + 1);
      slots[slot] = true;
    };
    if (i.code == Code::kLoad) note(i.src[0], read_);
    if (i.code == Code::kStore) note(i.src[0], written_);
    if (i.code == Code::kCopy) note(i.src[2], read_);
    if (i.code == Code::kBoxLoad) note(at(i.src[4]).src[0], read_);
    if (i.code == Code::kBoxStore) note(at(i.src[2]).src[0], written_);
  }

  // Whether the value is the same each time that a thread gets there, in every block.
  bool IsFixed(const Instruction& i) const {
    if (i.code == Code::kSpecial) return i.imm[0] == static_cast<int64_t>(Grid::kThread);
    if (!IsPure(i.code) || i.code == Code::kBuffer || i.code == Code::kMap) return false;
    return std::all_of(i.src.begin(), i.src.end(), [&](ValueId s) { return fixed_[s]; });
  }

  // The last instruction that may read each value: its last user, or the end of the outermost loop
  // around this that does not contain the value.
  std::vector<ValueId> LastUses() const {
    const auto count = static_cast<ValueId>(program_.code.size());
    std::vector<ValueId> last(count), loops;
    for (ValueId n = 0; n < count; ++n) {
      const Instruction& i = at(n);
      last[n] = i.code == Code::kLoop ? partner_[n] : n;
      if (i.code == Code::kEnd) loops.pop_back();
      for (const ValueId s : i.src) {
        const auto around = std::upper_bound(loops.begin(), loops.end(), s);
        last[s] = std::max(last[s], around == loops.end() ? n : partner_[*around]);
      }
      if (i.code == Code::kLoop) loops.push_back(n);
    }
    return last;
  }

  // Values that are not needed at the same time may share a place, so that those of a long program
  // stay in the processor's cache. A value has no place in common with its sources.
  void AssignPlaces() {
    const auto count = static_cast<ValueId>(program_.code.size());
    const std::vector<ValueId> last = LastUses();
    std::vector<std::vector<ValueId>> ending(count);
    absl::flat_hash_map<int, std::vector<int32_t>> unused;  // by size
    const auto size = [&](ValueId n) { return at(n).code == Code::kLoop ? 2 : at(n).lanes; };
    place_.assign(count, 0);
    for (ValueId n = 0; n < count; ++n) {
      if (HasValue(at(n).code) && size(n) > 0) {
        std::vector<int32_t>& places = unused[size(n)];
        if (places.empty() || fixed_[n]) {
          place_[n] = static_cast<int32_t>(plan_.registers);
          plan_.registers += size(n);
        } else {
          place_[n] = places.back();
          places.pop_back();
        }
        if (!fixed_[n]) ending[last[n]].push_back(n);
      }
      for (const ValueId v : ending[n]) unused[size(v)].push_back(place_[v]);
    }
  }

  bool IsVisible(ValueId memory) const {
    const ProgramMemory& m = plan_.memories[memory_[memory]];
    return m.kind == ProgramMemory::Kind::kShared ||
           (m.kind == ProgramMemory::Kind::kBuffer && m.read && m.written);
  }

  ThreadStep MakeStep(ValueId n) {
    const Instruction& i = at(n);
    ThreadStep step{
        .code = i.code,
        .what = {.op = i.op, .result = i.dtype, .lanes = static_cast<uint8_t>(i.lanes)}};
    step.at = n;
    step.out = place_[n];
    step.imm = i.imm[0];
    step.source_count = static_cast<uint8_t>(i.src.size());
    if (i.code == Code::kLanes) {
      step.src[0] = static_cast<int32_t>(plan_.lane_places.size());
      for (int lane = 0; lane < i.lanes; ++lane)
        plan_.lane_places.push_back(place_[i.src[i.src.size() == 1 ? 0 : lane]]);
      return step;
    }
    if (IsHopper(i.code)) {
      step.visible = true;
      step.src[0] = static_cast<int32_t>(plan_.lane_places.size());
      for (const ValueId s : i.src)
        plan_.lane_places.push_back(memory_[s] >= 0 ? memory_[s] : place_[s]);
      return step;
    }
    OB_CHECK(i.src.size() <= 5);
    for (size_t s = 0; s < i.src.size(); ++s)
      step.src[s] = memory_[i.src[s]] >= 0 ? memory_[i.src[s]] : place_[i.src[s]];
    switch (i.code) {
      case Code::kAlloc: step.src[0] = memory_[n]; break;
      case Code::kAlu:
        step.what.operand = at(i.src[i.op == Op::kWhere ? 1 : 0]).dtype;
        step.function = FunctionOf(i.op, step.what.operand);
        break;
      case Code::kCast:
      case Code::kMma: step.what.operand = at(i.src[0]).dtype; break;
      case Code::kBitcast:
        step.what.operand = at(i.src[0]).dtype;
        step.what.lanes = static_cast<uint8_t>(at(i.src[0]).lanes);
        break;
      case Code::kLoad:
      case Code::kStore:
        step.vector_index = at(i.src[1]).lanes == i.lanes;
        step.masked = i.src.size() == 4;
        step.visible = IsVisible(i.src[0]);
        break;
      case Code::kEnd: step.out = place_[i.src[0]]; break;
      case Code::kCopy:
        step.aligned = i.imm[1] == 1;
        step.swizzled = i.imm[2] == 1;
        step.masked = i.src.size() == 5;
        step.visible = true;
        break;
      case Code::kCommit:
      case Code::kWait: step.visible = true; break;
      default: break;
    }
    // Of one lane: consecutive elements, or one for each, are the same.
    if (i.lanes == 1) step.vector_index = false;
    return step;
  }

  const Program& program_;
  Plan plan_;
  std::vector<int32_t> place_, memory_;  // by instruction
  std::vector<ValueId> partner_;         // of what opens a scope and what closes it
  std::vector<bool> fixed_;
  std::vector<bool> read_, written_;  // by slot
};

}  // namespace

Plan MakePlan(const Program& program) { return Maker(program).Make(); }

}  // namespace outboard::program
