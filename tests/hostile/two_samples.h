// Whether two samples of times may come from one distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace outboard::test {

// The statistic of Kolmogorov and Smirnov: the largest distance of the two distributions, 0 to 1.
// Neither sample may be empty.
inline double DistanceOf(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double most = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double at = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= at) ++i;
    while (j < b.size() && b[j] <= at) ++j;
    most = std::max(most, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                   static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return most;
}

// What the distance of two samples of one distribution exceeds with this probability, for large
// samples of equal size.
inline double DistanceBound(size_t samples, double probability) {
  return std::sqrt(-std::log(probability / 2) / static_cast<double>(samples));
}

}  // namespace outboard::test
