#include "worker/node/core_sets.h"

#include <cstddef>

namespace outboard::worker {

std::vector<std::vector<int>> DivideCores(const std::vector<int>& cores, int devices) {
  const size_t count = static_cast<size_t>(devices);
  std::vector<std::vector<int>> sets(count);
  for (size_t i = 0; i < count; ++i) {
    if (count > cores.size()) {
      sets[i] = {cores[i % cores.size()]};
      continue;
    }
    // In one piece: neighbours share caches.
    const size_t begin = i * cores.size() / count, end = (i + 1) * cores.size() / count;
    sets[i].assign(cores.begin() + static_cast<std::ptrdiff_t>(begin),
                   cores.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return sets;
}

}  // namespace outboard::worker
