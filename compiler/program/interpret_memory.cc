// Who touches which element, and copies that are on their way.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/bf16_products.h"
#include "compiler/program/interpreter.h"

namespace outboard::program {

bool Interpreter::InRange(const Memory& memory, int64_t element, const ThreadStep& step,
                          int thread) {
  if (element >= 0 && element < memory.elements) return true;
  return Report(Fault::kOutOfRange, step.at, thread,
                absl::StrCat("element ", element, " of ", memory.elements));
}

bool Interpreter::Race(const ThreadStep& step, int thread, int64_t element, std::string_view what) {
  return Report(Fault::kRace, step.at, thread,
                absl::StrCat("element ", element, " ", std::string(what)));
}

bool Interpreter::Fine(const Finding& found, const ThreadStep& step, int thread, int64_t element) {
  if (found.ok()) return true;
  return Report(found.fault, step.at, thread,
                element < 0 ? found.what : absl::StrCat("element ", element, " ", found.what));
}

bool Interpreter::TouchToRead(const Memory& memory, int64_t element, const ThreadStep& step,
                              int thread) {
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

bool Interpreter::TouchToWrite(const Memory& memory, int64_t element, const ThreadStep& step,
                               int thread) {
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

bool Interpreter::MayRead(const Memory& memory, int64_t element, const ThreadStep& step,
                          int thread) {
  if (!InRange(memory, element, step, thread)) return false;
  if (!TouchToRead(memory, element, step, thread)) return false;
  if (memory.written == nullptr || memory.written[element] == memory.generation) return true;
  return Report(Fault::kUninitialised, step.at, thread,
                absl::StrCat("element ", element, " was never written"));
}

bool Interpreter::MayWrite(const Memory& memory, int64_t element, const ThreadStep& step,
                           int thread) {
  if (!InRange(memory, element, step, thread)) return false;
  if (!TouchToWrite(memory, element, step, thread)) return false;
  if (memory.written != nullptr) memory.written[element] = memory.generation;
  return true;
}

bool Interpreter::Load(const ThreadStep& step, int thread, int64_t* r) {
  const Memory& memory = MemoryOf(step.src[0], thread);
  const int lanes = step.what.lanes;
  int64_t* const out = r + step.out;
  if (!step.masked && !step.vector_index) {
    const int64_t first = r[step.src[1]];
    if (memory.shadows == nullptr && memory.written == nullptr) {
      if (first < 0 || first > memory.elements - lanes)
        return InRange(memory, first < 0 ? first : std::max(first, memory.elements), step, thread);
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

bool Interpreter::Store(const ThreadStep& step, int thread, const int64_t* r) {
  const Memory& memory = MemoryOf(step.src[0], thread);
  const int lanes = step.what.lanes;
  const int64_t* const values = r + step.src[2];
  const bool swizzled = step.imm != 0;
  if (!step.masked && !step.vector_index && !swizzled) {
    const int64_t first = r[step.src[1]];
    for (int lane = 0; lane < lanes; ++lane)
      if (!MayWrite(memory, first + lane, step, thread)) return false;
    StoreLanes(memory.dtype, values, lanes, memory.Address(first));
    return true;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    if (step.masked && r[step.src[3] + lane] == 0) continue;
    int64_t element = step.vector_index ? r[step.src[1] + lane] : r[step.src[1]] + lane;
    if (swizzled) element = SwizzledPlace(element, memory.width);
    if (!MayWrite(memory, element, step, thread)) return false;
    StoreLanes(memory.dtype, values + lane, 1, memory.Address(element));
  }
  return true;
}

void Interpreter::Move(const Copy& copy, int thread) {
  const Memory &to = MemoryOf(copy.step->src[0], thread),
               &from = MemoryOf(copy.step->src[2], thread);
  if (copy.zeros) {
    std::fill_n(to.Address(copy.to), copy.step->imm * to.width, 0);
  } else {
    std::copy_n(from.Address(copy.from), copy.step->imm * to.width, to.Address(copy.to));
  }
}

bool Interpreter::Begin(const ThreadStep& step, int thread, const int64_t* r) {
  const Memory &to = MemoryOf(step.src[0], thread), &from = MemoryOf(step.src[2], thread);
  const bool zeros = step.masked && r[step.src[4]] == 0;
  Copy copy{&step, r[step.src[1]], r[step.src[3]], zeros, random_() % 2 == 0};
  if (step.aligned && (copy.to % step.imm != 0 || (!zeros && copy.from % step.imm != 0)))
    return Report(Fault::kMisaligned, step.at, thread,
                  absl::StrCat(step.imm, " elements from ", copy.from, " to ", copy.to));
  if (step.swizzled) copy.to = SwizzledPlace(copy.to, to.width);  // which keeps 16 bytes together
  const bool by_clocks = to.first >= 0;
  for (int64_t e = 0; e < step.imm; ++e) {
    if (!InRange(to, copy.to + e, step, thread)) return false;
    if (by_clocks
            ? !Fine(hopper_->BeginThreadCopy(thread, to.first + copy.to + e), step, thread,
                    copy.to + e)
            : !TouchToWrite(to, copy.to + e, step, thread))
      return false;
    if (!zeros && (!InRange(from, copy.from + e, step, thread) ||
                   !TouchToRead(from, copy.from + e, step, thread)))
      return false;
    if (!by_clocks) to.shadows[copy.to + e].arriving = true;
  }
  if (copy.arrived) Move(copy, thread);
  threads_[thread].begun.push_back(copy);
  return true;
}

void Interpreter::Wait(int64_t but, int thread) {
  Thread& t = threads_[thread];
  while (static_cast<int64_t>(t.groups.size()) > but) {
    for (const Copy& copy : t.groups.front()) {
      if (!copy.arrived) Move(copy, thread);
      const Memory& to = MemoryOf(copy.step->src[0], thread);
      for (int64_t e = copy.to; e < copy.to + copy.step->imm; ++e) {
        to.written[e] = to.generation;
        if (to.first >= 0) {
          hopper_->EndThreadCopy(thread, to.first + e);
          continue;
        }
        Shadow& by = to.shadows[e];
        by.arriving = false;
        by.write_thread = static_cast<uint16_t>(thread);
        by.write_epoch = epoch_;
      }
    }
    t.groups.erase(t.groups.begin());
  }
}

bool Interpreter::ReadTile(const Memory& tile, const ThreadStep& step, int thread, Tile& out) {
  for (int64_t e = 0; e < static_cast<int64_t>(out.size()); ++e)
    if (!MayRead(tile, e, step, thread)) return false;
  LoadLanes(tile.dtype, tile.bytes, static_cast<int>(out.size()), out.data());
  return true;
}

void Interpreter::WriteTile(const Memory& tile, const Tile& values) {
  std::fill_n(tile.written, values.size(), tile.generation);
  StoreLanes(tile.dtype, values.data(), static_cast<int>(values.size()), tile.bytes);
}

bool Interpreter::MoveTile(const ThreadStep& step, int thread, const int64_t* r) {
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

bool Interpreter::TileDot(const ThreadStep& step, int thread) {
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

}  // namespace outboard::program
