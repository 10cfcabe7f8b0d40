// How a window moves along the axes that it slides over: options of convolutions (convolution.h)
// and pools (pooling.h) over any number of axes, as one number for all axes or one per axis.
//
//   {.stride = 2}                       every second place, along every axis
//   {.stride = {2, 1}}                  every second row, every column
//   {.padding = {1, 0}}                 a row of zeros above and one below
//   {.padding = {{0, 1}, {2, 2}}}       a row below, two columns on either side
//
// A count that is neither one nor that of the axes is INVALID_ARGUMENT of the function that takes
// it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace outboard {

// One number for all axes of a window, or one for each, from the first to the last.
struct PerAxis : std::vector<int64_t> {
  PerAxis() = default;
  PerAxis(int64_t all) : std::vector<int64_t>{all} {}                                  // NOLINT
  PerAxis(std::initializer_list<int64_t> numbers) : std::vector<int64_t>(numbers) {}   // NOLINT
  PerAxis(std::vector<int64_t> numbers) : std::vector<int64_t>(std::move(numbers)) {}  // NOLINT
};

// Zeros before and after each axis: one number for all sides, one for each axis, or {before, after}
// of each axis. A negative number cuts as much off.
struct Padding : std::vector<std::pair<int64_t, int64_t>> {
  using Side = std::pair<int64_t, int64_t>;

  Padding(int64_t all = 0) : std::vector<Side>{{all, all}} {}                // NOLINT
  Padding(std::initializer_list<int64_t> both) : Padding(PerAxis(both)) {}   // NOLINT
  Padding(std::initializer_list<Side> sides) : std::vector<Side>(sides) {}   // NOLINT
  Padding(std::vector<Side> sides) : std::vector<Side>(std::move(sides)) {}  // NOLINT
  Padding(const PerAxis& both) {                                             // NOLINT
    for (const int64_t number : both) emplace_back(number, number);
  }
};

}  // namespace outboard
