#include "client/ops/elementwise/float_functions.h"

namespace outboard::internal {

const UOp* Over(const NodeBuilder& rec, const UOp* a, const UOp* b) {
  return rec.Alu(Op::kFDiv, a, b);
}
const UOp* Less(const NodeBuilder& rec, const UOp* a, const UOp* b) {
  return rec.Alu(Op::kCmpLt, a, b);
}
const UOp* IsBelow(const NodeBuilder& rec, const UOp* a, double b) {
  return Less(rec, a, rec.FullLike(a, b));
}
const UOp* Plus(const NodeBuilder& rec, const UOp* a, double b) {
  return rec.Add(a, rec.FullLike(a, b));
}
const UOp* Neg(const NodeBuilder& rec, const UOp* a) { return rec.Alu(Op::kNeg, a); }

const UOp* Relu(const NodeBuilder& rec, const UOp* x) {
  return rec.Alu(Op::kMax, x, rec.FullLike(x, 0));
}

// By exponentials of -|x|: none overflows.
const UOp* Sigmoid(const NodeBuilder& rec, const UOp* x) {
  const UOp* const one = rec.FullLike(x, 1);
  const UOp* const negative = IsBelow(rec, x, 0);
  const UOp* const e = rec.Alu(Op::kExp, rec.Where(negative, x, Neg(rec, x)));
  return Over(rec, rec.Where(negative, e, one), rec.Add(one, e));
}

// max(x, 0) + log(1 + e) with e = exp(-|x|) overflows nowhere. Both sides of each choice meet at 0
// with the slopes of the whole, so its gradient is right there too.
const UOp* Softplus(const NodeBuilder& rec, const UOp* x) {
  const UOp *const zero = rec.FullLike(x, 0), *const one = rec.FullLike(x, 1);
  const UOp* const negative = Less(rec, x, zero);
  const UOp* const e = rec.Alu(Op::kExp, rec.Where(negative, x, Neg(rec, x)));
  const UOp* const sum = rec.Add(one, e);
  const UOp* const lost = rec.Sub(e, rec.Sub(sum, one));  // what the sum has rounded away
  return rec.Add(rec.Where(negative, zero, x), rec.Add(rec.Alu(Op::kLog, sum), lost));
}

const UOp* ExponentialBelowZero(const NodeBuilder& rec, const UOp* x, double alpha, double width) {
  const UOp* const negative = IsBelow(rec, x, 0);
  const UOp* const low = rec.Where(negative, x, rec.FullLike(x, 0));
  const UOp* const e = rec.Alu(Op::kExp, width == 1 ? low : rec.Scale(low, 1 / width));
  return rec.Where(negative, rec.Scale(Plus(rec, e, -1), alpha), x);
}

const UOp* Log1p(const NodeBuilder& rec, const UOp* x) {
  const UOp* const sum = Plus(rec, x, 1);
  const UOp* const same = rec.Alu(Op::kCmpEq, sum, x);  // also of infinity, whose difference is NaN
  const UOp* const lost = rec.Where(same, rec.FullLike(x, 0), rec.Sub(x, Plus(rec, sum, -1)));
  return rec.Add(rec.Alu(Op::kLog, sum), Over(rec, lost, sum));
}

}  // namespace outboard::internal
