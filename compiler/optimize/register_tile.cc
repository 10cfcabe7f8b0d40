#include "compiler/optimize/register_tile.h"

namespace outboard::optimize {
namespace {

constexpr double kCodeForRest = 1000;  // that are worth as much as all of a tile's work

// What a vector saves at most that is computed beside another: its share of the loop, and a quarter
// of the time in which each operation waits for the one before. Most of that a processor fills with
// the next vector by itself.
constexpr double kLoop = 2, kWaiting = 0.25;

bool In(codegen::RangeSet set, int range) { return range >= 0 && (set >> range & 1); }

}  // namespace

int64_t RegisterTile::CountIn(int range, int lanes) const {
  if (range == a) return ta;
  if (range == b) return tb;
  return range == lanes ? vectors : 1;
}

double RegisterTile::Copies(codegen::RangeSet deps, int lanes) const {
  double copies = 1;
  if (In(deps, a)) copies *= static_cast<double>(ta);
  if (In(deps, b)) copies *= static_cast<double>(tb);
  if (In(deps, lanes)) copies *= static_cast<double>(vectors);
  return copies;
}

void RegisterTile::AddRest(int64_t extent, int64_t count, double size) {
  if (extent % count == 0) return;
  const double rest = size / kCodeForRest;  // squared: LLVM's time grows faster than the length
  cost *= (1 + rest * rest) * static_cast<double>((extent + count - 1) / count * count) /
          static_cast<double>(extent);
  code *= 2;
}

int64_t VectorsSideBySide(int64_t most, double size, double vectors, double code_price) {
  int64_t count = most;
  while (count > 1 &&
         vectors * (kLoop + kWaiting * size) < code_price * size * static_cast<double>(count - 1))
    count /= 2;
  return count;
}

}  // namespace outboard::optimize
