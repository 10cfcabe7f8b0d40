// Loops marked kUnroll, written out.
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"

namespace outboard::program {
namespace {

class Unroller : Copier {
 public:
  using Copier::Copier;
  using Copier::Take;

  // Depth: the loops around each other.
  void Run(ValueId begin, ValueId end) {
    for (ValueId n = begin; n < end; ++n) {
      if (IsLoop(at(n), How::kUnroll)) {
        const ValueId inside = n + 1, last = ends_[n];
        WriteOut(n, [&] { Run(inside, last); });
        n = last;
      } else {
        Copy(n);
      }
    }
  }
};

}  // namespace

Program Unroll(const Program& program) {
  Unroller pass(program);
  pass.Run(0, static_cast<ValueId>(program.code.size()));
  return pass.Take();
}

}  // namespace outboard::program
