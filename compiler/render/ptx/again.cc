// Values that are computed again behind a loop instead of being kept while it runs: indices made of
// the numbers of the thread and of the block, where the loop itself does not use them. The
// assembler does not do that by itself: it spills.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Instruction;
using program::Program;
using program::ValueId;

namespace {

struct OuterLoop {
  ValueId begin = 0, end = 0;
};

// Loops that no other loop is around, in which threads wait for each other, and behind whose scope
// nothing is printed: what is computed again behind them is there for all that follows.
std::vector<OuterLoop> MainLoops(const Program& program) {
  std::vector<OuterLoop> loops;
  std::vector<int> depths;  // branches around their ends
  int open = 0, branches = 0;
  bool waits = false;
  for (size_t n = 0; n < program.code.size(); ++n) {
    const Instruction& i = program.code[n];
    // Behind the branch that the last loops are in.
    while (i.code != Code::kEndIf && !depths.empty() && depths.back() > branches) {
      loops.pop_back();
      depths.pop_back();
    }
    switch (i.code) {
      case Code::kLoop:
        if (open++ == 0) waits = false;
        break;
      case Code::kBarrier: waits = true; break;
      case Code::kEnd:
        if (--open > 0 || !waits) break;
        loops.push_back({i.src[0], static_cast<ValueId>(n)});
        depths.push_back(branches);
        break;
      case Code::kIf: ++branches; break;
      case Code::kEndIf: --branches; break;
      default: break;
    }
  }
  return loops;
}

}  // namespace

// Of each main loop, what is used behind it alone, with all that it is computed from.
void PtxPrinter::FindComputedAgain() {
  const auto count = static_cast<ValueId>(program_.code.size());
  std::vector<ValueId> places(program_.code.size());  // where each is printed
  for (ValueId n = 0; n < count; ++n) places[static_cast<size_t>(n)] = n;
  for (const auto& [place, values] : moved_to_)
    for (const ValueId value : values) places[static_cast<size_t>(value)] = place;
  for (const OuterLoop& loop : MainLoops(program_)) {
    enum class Kind : uint8_t { kOther, kNumber, kComputed };
    std::vector<bool> in_loop(program_.code.size()), behind(program_.code.size());
    for (ValueId n = 0; n < count; ++n) {
      const ValueId place = places[static_cast<size_t>(n)];
      if (place < loop.begin || !IsUsed(n)) continue;
      for (const ValueId source : SourcesOf(n))
        (place < loop.end ? in_loop : behind)[static_cast<size_t>(source)] = true;
    }
    // From the first value to the last one: what its sources are is known then. Nothing is made of
    // what is loaded: a register of private memory may be another number behind the loop.
    std::vector<Kind> kinds(program_.code.size(), Kind::kOther);
    for (ValueId n = 0; n < loop.begin; ++n) {
      const Instruction& i = at(n);
      Kind& kind = kinds[static_cast<size_t>(n)];
      if (i.code == Code::kConst) kind = Kind::kNumber;
      if (i.code == Code::kConst || !IsUsed(n) || i.lanes != 1 || !IsInt(i.dtype) ||
          places[static_cast<size_t>(n)] >= loop.begin)
        continue;
      const auto sources = SourcesOf(n);
      const bool computes =
          i.code == Code::kSpecial ||
          ((i.code == Code::kAlu || i.code == Code::kCast) &&
           std::ranges::all_of(sources, [&](ValueId source) {
             return kinds[static_cast<size_t>(source)] != Kind::kOther;
           }));
      // What the loop uses has a register in it already.
      if (computes) kind = in_loop[static_cast<size_t>(n)] ? Kind::kNumber : Kind::kComputed;
    }
    // And from the last one to the first: what is used behind the loop, and what that is made of.
    std::vector<ValueId>& again = again_[loop.end];
    for (ValueId n = loop.begin - 1; n >= 0; --n) {
      if (!behind[static_cast<size_t>(n)] || kinds[static_cast<size_t>(n)] != Kind::kComputed)
        continue;
      again.push_back(n);
      for (const ValueId source : SourcesOf(n)) behind[static_cast<size_t>(source)] = true;
    }
    std::ranges::reverse(again);
  }
}

void PtxPrinter::ComputeAgain(ValueId end) {
  const auto values = again_.find(end);
  if (values == again_.end()) return;
  for (const ValueId value : values->second) values_[static_cast<size_t>(value)] = Compute(value);
}

}  // namespace outboard::render
