// Loops and branches. A loop's counter is one register, which its end counts up.
#include <algorithm>

#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;

void PtxPrinter::OpenLoop(ValueId n) {
  const Instruction& i = at(n);
  loops_.push_back(n);
  PlaceBeforeLoop(n);
  Scope scope{.known = known_addresses_.size(), .known_places = known_places_.size()};
  if (i.imm[0] == 1 && i.src.empty()) {
    scopes_.push_back(scope);
    values_[static_cast<size_t>(n)] = {Integer(0)};
    return;
  }
  const bool small = IsSmall(n);
  const Width width = small ? Width::k32 : Width::k64;
  const char* const compare = small ? "setp.lt.s32" : "setp.lt.s64";
  scope.counter = text_.New(width);
  scope.limit = Integer(i.imm[0], width);
  if (!i.src.empty()) {
    if (small && IsSmall(i.src[0])) {
      scope.limit = text_.Value("min.s32", width, {AsPrinted(i.src[0], 0), scope.limit});
    } else {
      const auto bound = [&](const char* op, const PtxOperand& limit, int64_t by) {
        return text_.Value(op, Width::k64, {limit, Integer(by, Width::k64)});
      };
      scope.limit = bound("max.s64", bound("min.s64", Lane(i.src[0], 0), i.imm[0]), 0);
      if (small) scope.limit = text_.Value("cvt.u32.u64", Width::k32, {scope.limit});
    }
  }
  scope.begin = text_.NewLabel();
  scope.end = text_.NewLabel();
  text_.Move(scope.counter, Integer(0, width));
  if (!i.src.empty() || i.imm[0] <= 0)
    text_.JumpUnless(text_.Value(compare, Width::kPred, {scope.counter, scope.limit}), scope.end);
  text_.PutLabel(scope.begin);
  if (IsKeptRolled(n)) text_.Pragma("nounroll");
  scopes_.push_back(scope);
  values_[static_cast<size_t>(n)] = {scope.counter};
}

void PtxPrinter::CloseLoop() {
  const Scope scope = scopes_.back();
  CloseScope();
  loops_.pop_back();
  if (scope.begin == 0) return;
  const bool small = scope.counter.width == Width::k32;
  text_.Set(small ? "add.s32" : "add.s64", scope.counter,
            {scope.counter, Integer(1, scope.counter.width)});
  text_.JumpIf(text_.Value(small ? "setp.lt.s32" : "setp.lt.s64", Width::kPred,
                           {scope.counter, scope.limit}),
               scope.begin);
  text_.PutLabel(scope.end);
}

void PtxPrinter::OpenIf(const PtxOperand& condition) {
  const Scope scope{.end = text_.NewLabel(),
                    .known = known_addresses_.size(),
                    .known_places = known_places_.size()};
  if (condition.IsFalse()) text_.Jump(scope.end);
  if (!condition.IsConstant()) text_.JumpUnless(condition, scope.end);
  scopes_.push_back(scope);
}

void PtxPrinter::CloseIf() {
  const int end = scopes_.back().end;
  CloseScope();
  text_.PutLabel(end);
}

void PtxPrinter::CloseScope() {
  while (known_addresses_.size() > scopes_.back().known) {
    addresses_.erase(known_addresses_.back());
    known_addresses_.pop_back();
  }
  while (known_places_.size() > scopes_.back().known_places) {
    places_.erase(known_places_.back());
    known_places_.pop_back();
  }
  scopes_.pop_back();
}

// Where warpgroups divide registers, few are left beside the sums: loads of several passes together
// would spill. Threads that wait for each other in each pass compute a tile in it, which the
// program has unrolled as far as registers allow.
bool PtxPrinter::IsKeptRolled(ValueId loop) const {
  int depth = 0;
  for (auto i = program_.code.begin() + loop; i != program_.code.end(); ++i) {
    if (i->code == Code::kLoop) ++depth;
    if (i->code == Code::kEnd && --depth == 0) return false;
    if (i->code == Code::kBarrier) return true;
    if (divides_registers_ && i->code == Code::kLoad && at(i->src[0]).code == Code::kBuffer)
      return true;
  }
  return false;
}

}  // namespace outboard::render
