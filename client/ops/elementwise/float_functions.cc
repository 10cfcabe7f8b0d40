#include "client/ops/elementwise/float_functions.h"

namespace outboard::internal {

NodeExpr Relu(const NodeExpr& x) { return Max(x, 0); }

// By exponentials of -|x|: none overflows.
NodeExpr Sigmoid(const NodeExpr& x) {
  const NodeExpr negative = x < 0;
  const NodeExpr e = Exp(Where(negative, x, -x));
  return Where(negative, e, 1) / (1 + e);
}

// max(x, 0) + log(1 + e) with e = exp(-|x|) overflows nowhere. Both sides of each choice meet at 0
// with the slopes of the whole, so its gradient is right there too.
NodeExpr Softplus(const NodeExpr& x) {
  const NodeExpr negative = x < 0;
  const NodeExpr e = Exp(Where(negative, x, -x));
  const NodeExpr sum = 1 + e;
  const NodeExpr lost = e - (sum - x.Full(1));  // what the sum has rounded away
  return Where(negative, 0, x) + (Log(sum) + lost);
}

NodeExpr ExponentialBelowZero(const NodeExpr& x, double alpha, double width) {
  const NodeExpr negative = x < 0;
  const NodeExpr low = Where(negative, x, 0);
  const NodeExpr e = Exp(width == 1 ? low : low * (1 / width));
  return Where(negative, (e - 1) * alpha, x);
}

// What 1 + x rounds away is given back, to the first order, as fdlibm does (s_log1p.c, Sun
// Microsystems, 1993).
NodeExpr Log1p(const NodeExpr& x) {
  const NodeExpr sum = x + 1;
  const NodeExpr same = sum == x;  // also of infinity, whose difference is NaN
  const NodeExpr lost = Where(same, 0, x - (sum - 1));
  return Log(sum) + lost / sum;
}

NodeExpr Floor(const NodeExpr& x) {
  const NodeExpr t = Trunc(x);
  return Where(x < t, t - 1, t);
}

NodeExpr IsOdd(const NodeExpr& x) {
  const NodeExpr half = x * 0.5;
  return half != Trunc(half);
}

}  // namespace outboard::internal
