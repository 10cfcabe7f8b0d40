// Maps the position of an element in a view (RESHAPE, PERMUTE, PAD ...) to its position in the
// source of the view.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outboard::reference {

// Row-major strides of `dims`.
std::vector<int64_t> StridesOf(std::span<const int64_t> dims);

// Computes base + sum of coordinate * stride, for the coordinates of a row-major position in
// `dims`.
class PositionMap {
 public:
  PositionMap(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t base);

  // out[k] = the image of positions[k]. Runs of equal or consecutive positions cost an increment,
  // others one division per dimension.
  void Apply(std::span<const int64_t> positions, int64_t* out) const;

 private:
  // Simplified: dimensions of length 1 are dropped, and adjacent ones are merged if their strides
  // allow.
  std::vector<int64_t> dims_;
  std::vector<int64_t> strides_;
  int64_t base_;
};

// Maps a position in a padded view to its position in the source, or -1 in the padding.
class PadMap {
 public:
  PadMap(std::span<const int64_t> source_dims, std::span<const int64_t> lo_hi);
  int64_t operator()(int64_t position) const;

 private:
  std::vector<int64_t> dims_, low_, source_dims_, source_strides_;
};

}  // namespace outboard::reference
