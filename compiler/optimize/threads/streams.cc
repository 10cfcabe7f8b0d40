#include "compiler/optimize/threads/streams.h"

#include <algorithm>

namespace outboard::codegen {
namespace {

bool In(RangeSet set, int range) { return set >> range & 1; }

}  // namespace

int RangeAlongMemory(const LoopNest& kernel, optimize::LoopCost& cost, const Body& body) {
  int best = -1;
  double most = 0;
  for (int r = 0; r < static_cast<int>(kernel.ranges.size()); ++r) {
    if (!In(body.ranges, r) || kernel.ranges[static_cast<size_t>(r)].extent < 2) continue;
    double count = 0;
    for (const Access& access : body.accesses)
      if (In(access.deps, r) && cost.ConstantStride(access, r) == 1)
        count += cost.Points(access.deps) * (access.store ? 1.5 : 1);
    if (count >= most && count > 0) most = count, best = r;
  }
  return best;
}

int WidestOfStreams(const LoopNest& kernel, optimize::LoopCost& cost) {
  int widest = 1;
  const auto of_streams = [&](auto use) {
    for (const Body& body : cost.bodies())
      for (const Access& access : body.accesses)
        for (int r = 0; r < static_cast<int>(kernel.ranges.size()); ++r)
          if (In(access.deps, r) && cost.ConstantStride(access, r) == 1) use(access);
  };
  double most = 0;
  of_streams([&](const Access& access) { most = std::max(most, cost.Points(access.deps)); });
  of_streams([&](const Access& access) {
    if (2 * cost.Points(access.deps) >= most)
      widest = std::max(widest, ByteWidth(access.index->src[0]->dtype));
  });
  return widest;
}

}  // namespace outboard::codegen
