// What a kernel asks for before the launches in front of it are done: weights, which are then in
// the second cache when it may begin.
//
// Its first blocks ask together for the beginning of each such buffer, as far as the cache has room
// for it beside what the launches before use; all blocks begin with about that. Nothing depends on
// it: a copy to the cache that another launch writes to is the memory's, too. Every address is
// within its buffer.
#include <algorithm>

#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Grid;

namespace {

// A launch of a few microseconds leaves room for so much at 4.8 TB/s; the cache has 50 MB.
constexpr int64_t kBytesMax = 16 << 20;
constexpr int64_t kBytesMin = 1 << 20;  // as of the schedule's marks (launches/steady.cc)
constexpr int64_t kPieceAlign = 128;    // a line of the cache; the instruction wants 16
// Blocks that are surely there at once have so many threads on a multiprocessor.
constexpr int64_t kThreadsAtOnce = 1024;

// Codes whose values depend on the block, the thread and counters alone, given their sources.
bool IsOfPlace(const program::Instruction& i) {
  switch (i.code) {
    case Code::kConst:
    case Code::kSpecial:
    case Code::kLoop:
    case Code::kAlu:
    case Code::kCast:
    case Code::kLanes:
    case Code::kLane: return true;
    default: return false;
  }
}

}  // namespace

// Each access of it counts as all that its loops and threads may read. What is read at places that
// values say, as rows of an embedding, is few of it.
bool PtxPrinter::ReadsWhole(int64_t slot) const {
  const auto count = program_.code.size();
  std::vector<bool> of_place(count);
  std::vector<double> times = {static_cast<double>(program_.Extent(Grid::kBlock)) *
                               static_cast<double>(program_.Extent(Grid::kThread))};
  double read = 0, elements = 0;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (ValueId n = 0; n < static_cast<ValueId>(count); ++n) {
    const Instruction& i = at(n);
    of_place[static_cast<size_t>(n)] =
        IsOfPlace(i) && std::ranges::all_of(i.src, [&](ValueId s) {
          return of_place[static_cast<size_t>(s)];
        });
    if (i.code == Code::kLoop) times.push_back(times.back() * static_cast<double>(i.imm[0]));
    if (i.code == Code::kEnd) times.pop_back();
    const bool copies = i.code == Code::kCopy;
    if (i.code != Code::kLoad && !copies) continue;
    const ValueId memory = i.src[copies ? 2 : 0], index = i.src[copies ? 3 : 1];
    if (at(memory).code != Code::kBuffer || at(memory).imm[0] != slot) continue;
    if (!of_place[static_cast<size_t>(index)]) return false;
    const int64_t lanes = copies ? i.imm[0] : i.lanes;
    const auto& bounds = bounds_[static_cast<size_t>(index)];
    elements = static_cast<double>(at(memory).imm[1]);
    read += times.back() * static_cast<double>(lanes);
    first = std::min(first, bounds.min);
    last = std::max(last, bounds.max + (at(index).lanes > 1 ? 1 : lanes) - 1);
  }
  return read >= elements && first <= 0 && static_cast<double>(last) >= elements - 1;
}

void PtxPrinter::AskForSteady() {
  if (program_.steady == 0 || program_.copies > 1 || grid_.rows > 1) return;
  const int64_t threads = program_.Extent(Grid::kThread);
  const int64_t blocks =
      std::min(program_.Extent(Grid::kBlock), std::max<int64_t>(1, target_.multiprocessors) *
                                                  std::max<int64_t>(1, kThreadsAtOnce / threads));
  int64_t left = kBytesMax;
  PtxOperand block, thread;
  for (const Instruction& i : program_.code) {
    constexpr int64_t kSlotsMax = 63;  // bits of the mark
    if (i.code != Code::kBuffer || i.imm[0] >= kSlotsMax ||
        (program_.steady >> i.imm[0] & 1) == 0)
      continue;
    const int64_t bytes = std::min(i.imm[1] * ByteWidth(i.dtype), left);
    if (bytes < kBytesMin || !ReadsWhole(i.imm[0])) continue;
    left -= bytes;
    const int64_t piece = (bytes / blocks + kPieceAlign - 1) / kPieceAlign * kPieceAlign;
    if (block.IsNone()) {
      block = text_.New(Width::k32);
      thread = text_.New(Width::k32);
      text_.Line("mov.u32 ", block, ", %ctaid.x");
      text_.Line("mov.u32 ", thread, ", %tid.x");
    }
    const PtxOperand has_piece =
        text_.Value("setp.lt.u32", Width::kPred, {block, Integer(bytes / piece)});
    const PtxOperand asks = text_.New(Width::kPred);
    text_.Line("setp.eq.and.u32 ", asks, ", ", thread, ", 0, ", has_piece);
    const PtxOperand buffer = text_.New(Width::k64);
    text_.Line("ld.param.b64 ", buffer, ", [buffer", i.imm[0], "]");
    const PtxOperand first =
        text_.Value("mad.wide.u32", Width::k64, {block, Integer(piece), buffer});
    text_.GuardedLine(asks, "cp.async.bulk.prefetch.L2.global ", Address{first, 0}, ", ", piece);
  }
}

}  // namespace outboard::render
