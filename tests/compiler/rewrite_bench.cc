// How fast the rewriter is: on index expressions as reshapes make them, fresh and canonical, and
// while training steps are scheduled (the figures of scripts/bench).
#include <chrono>
#include <cstdio>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "tests/bench/rewrite_figures.h"

namespace outboard {
namespace {

constexpr int kExpressions = 400;
constexpr int kRepeats = 50;

// A place in a tensor of three dimensions, taken apart and put together: 28 nodes.
const UOp* Place(Graph& g, int i) {
  const auto range = [&](int64_t id, int64_t extent) {
    return g.MakeChecked(Op::kRange, DType::kI64, {}, {3 * i + id, extent, 0});
  };
  const auto with = [&](Op op, const UOp* a, int64_t b) { return Alu(g, op, a, ConstIndex(g, b)); };
  const UOp* const rows = Add(g, with(Op::kMul, range(0, 10), 20), range(1, 20));
  const UOp* const flat = Add(g, with(Op::kMul, rows, 5), range(2, 5));
  const UOp* const high = with(Op::kMul, with(Op::kIDiv, flat, 100), 100);
  const UOp* const middle = with(Op::kMul, with(Op::kMod, with(Op::kIDiv, flat, 5), 20), 5);
  return Add(g, Add(g, high, middle), with(Op::kMod, flat, 5));
}

void Measure(const char* what, Graph& g, const std::vector<const UOp*>& roots) {
  RewriteStats stats;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i)
    for (const UOp* root : roots) Simplify(g, root, i == 0 ? &stats : nullptr);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kRepeats;
  std::printf(
      "%-10s %7.2f us an expression  %6.2f M visits/s  %7.2f M attempts/s  (%lld visits, %lld "
      "matches, %lld attempts)\n",
      what, 1e6 * seconds / static_cast<double>(roots.size()),
      1e-6 * static_cast<double>(stats.visits) / seconds,
      1e-6 * static_cast<double>(stats.attempts) / seconds, static_cast<long long>(stats.visits),
      static_cast<long long>(stats.matches), static_cast<long long>(stats.attempts));
}

void Run() {
  Graph g;
  std::vector<const UOp*> fresh, canonical;
  for (int i = 0; i < kExpressions; ++i) fresh.push_back(Place(g, i));
  for (const UOp* root : fresh) canonical.push_back(Simplify(g, root));
  Measure("fresh", g, fresh);
  Measure("canonical", g, canonical);
  Measure("shared", g, {Sink(g, fresh)});
}

}  // namespace
}  // namespace outboard

int main() {
  outboard::Run();
  outboard::bench::RewriteFigures();
}
