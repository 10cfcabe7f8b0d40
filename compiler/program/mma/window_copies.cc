// Of StagedOperand what is of windows whose taps are in slots (compiler/optimize/operands/
// mma_window.h).
//
// A thread copies one window at a time, its taps two by two or one by one. Threads side by side
// have the same tap of other windows, whose slots are a multiple of 8 bytes apart: as they are in
// memory, 32 of them would store to every fourth bank. So the words of 4 bytes of each chunk of 16
// are rotated, by the chunk's number in its line: a word is at (word + chunk) % 4. The order of
// steps is free, if both operands have the same; rows and columns are turned back when they are
// stored.
#include <utility>
#include <vector>

#include "compiler/divide_up.h"
#include "compiler/program/mma/staged_operand.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {
namespace {

constexpr int64_t kWords = 4;  // of a chunk

}  // namespace

bool StagedOperand::Clear() {
  const codegen::MmaWindow& window = product_.window;
  if (!of_->by_windows || window.taps == window.slots) return false;
  const int64_t chunks = StagesOf(tile_, *addend_) * lines_ * length_ / chunk_;
  const ValueId round = b_.Loop(DivideUp(chunks, tile_.threads()));
  point_.OpenScope();
  const ValueId chunk = b_.Plus(b_.Times(round, tile_.threads()), thread_);
  const ValueId branch =
      chunks % tile_.threads() == 0 ? ValueId{-1} : b_.If(b_.Less(chunk, b_.Int(chunks)));
  const ValueId element = b_.Loop(chunk_, How::kVector, static_cast<int>(chunk_));
  b_.Store(memory_, b_.Plus(b_.Times(chunk, chunk_), element), b_.Const(product_.dtype, 0));
  b_.End(element);
  if (branch >= 0) b_.EndIf(branch);
  point_.CloseScope();
  b_.End(round);
  return true;
}

ValueId StagedOperand::OpenSlots(ValueId index) {
  const std::vector<int>& ranges = side_.ranges;
  const codegen::MmaWindow& window = product_.window;
  const int64_t in_word = chunk_ / kWords;
  const ValueId chunk = b_.Divide(index, chunk_), in_chunk = b_.Modulo(index, chunk_);
  const int64_t chunks = tile_size_ / chunk_;  // of a line
  const ValueId rotated = chunks % kWords == 0 ? chunk : b_.Modulo(chunk, chunks);
  const ValueId word =
      b_.Modulo(b_.Plus(b_.Divide(in_chunk, in_word), b_.Times(rotated, kWords - 1)), kWords);
  const ValueId in_order = b_.Plus(b_.Times(chunk, chunk_),
                                   b_.Plus(b_.Times(word, in_word), b_.Modulo(in_chunk, in_word)));
  ranges_.OpenAll({ranges.begin(), ranges.end() - 1}, b_.Divide(in_order, window.slots));
  const ValueId tap = b_.Plus(b_.Modulo(in_order, window.slots), b_.Int(-window.front));
  ranges_.Open(window.range, tap);
  // Of the outermost range, so that the proof of range sees it.
  const int outermost = ranges.front();
  ValueId inside = ranges.size() == 1 ? b_.Less(in_order, b_.Int(side_.count))
                                      : b_.Less(ranges_[outermost].value,
                                                b_.Int(point_.kernel().ranges[outermost].extent));
  if (window.front > 0) inside = b_.And(inside, b_.Less(b_.Int(-1), tap));
  if (window.front + window.taps < window.slots)
    inside = b_.And(inside, b_.Less(tap, b_.Int(window.taps)));
  return inside;
}

ValueId StagedOperand::SlotIn(const Piece& piece, ValueId stage, int64_t slot) {
  const int64_t in_word = chunk_ / kWords;
  // The slot's element in its line, apart from whole words that depend on the thread.
  const ValueId first = b_.Plus(piece.column, b_.Int(slot / in_word * in_word));
  const ValueId chunk = b_.Divide(first, chunk_);
  const ValueId word =
      b_.Modulo(b_.Plus(b_.Divide(b_.Modulo(first, chunk_), in_word), chunk), kWords);
  const ValueId element = ElementOf(stage, piece.line, b_.Modulo(piece.line, 8), chunk);
  return b_.Plus(b_.Plus(element, b_.Times(word, in_word)), b_.Int(slot % in_word));
}

void StagedOperand::CopySingles() {
  for (Instruction& copy : single_copies_) b_.Add(std::move(copy));
  single_copies_.clear();
}

void StagedOperand::CopyWindow(const Piece& piece, ValueId stage, ValueId inside) {
  const codegen::MmaWindow& window = product_.window;
  const UOp* const load = of_->value;
  std::vector<const UOp*> of_window, of_taps;  // conditions
  const auto depends = [&](const UOp* node) {
    return (point_.kernel().DepsOf(node) >> window.range & 1) != 0;
  };
  if (load->src.size() == 3)
    for (const UOp* gate : ConjunctsOf(load->src[1]))
      (depends(gate) ? of_taps : of_window).push_back(gate);
  const ValueId whole = b_.And(inside, point_.Gate(of_window));
  for (int64_t tap = 0, count = 1; tap < window.taps; tap += count) {
    const int64_t slot = tap + window.front;
    count = of_->pairs && slot % 2 == 0 && tap + 1 < window.taps ? 2 : 1;
    ValueId mask = whole;
    for (const UOp* gate : of_taps) {
      // Both taps of a pair are inside, or neither is. An upper bound is asked of the second one,
      // so that the proof of range sees it, and the assembler no second comparison.
      const bool of_last = count > 1 && depends(gate->src[0]);
      point_.OpenScope();
      ranges_.Open(window.range, b_.Int(of_last ? tap + 1 : tap));
      mask = b_.And(mask, point_.Emit(gate));
      ranges_.Close(window.range);
      point_.CloseScope();
    }
    point_.OpenScope();
    ranges_.Open(window.range, b_.Int(tap));
    Instruction copy{.code = Code::kCopy, .imm = {count, count > 1 ? 1 : 0, 0}};
    copy.src = {memory_, SlotIn(piece, stage, slot), point_.BufferOf(load),
                point_.Emit(load->src[0]->src[1])};
    if (mask >= 0) copy.src.push_back(mask);
    // What is under way begins together: the assembler puts instructions between it and LOADs.
    if (count > 1)
      b_.Add(std::move(copy));
    else
      single_copies_.push_back(std::move(copy));
    ranges_.Close(window.range);
    point_.CloseScope();
  }
}

}  // namespace outboard::program
