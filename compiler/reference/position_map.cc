#include "compiler/reference/position_map.h"

#include <algorithm>

namespace outboard::reference {

std::vector<int64_t> StridesOf(std::span<const int64_t> dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

PositionMap::PositionMap(std::span<const int64_t> dims, std::span<const int64_t> strides,
                         int64_t base)
    : base_(base) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (!dims_.empty() && strides_.back() == strides[i] * dims[i]) {
      dims_.back() *= dims[i];
      strides_.back() = strides[i];
    } else {
      dims_.push_back(dims[i]);
      strides_.push_back(strides[i]);
    }
  }
}

// Positions mostly ascend: each is reached from the one before, and those that follow each other
// along the last axis in one go.
void PositionMap::Apply(std::span<const int64_t> positions, int64_t* out) const {
  const size_t rank = dims_.size();
  if (rank == 0) {
    std::fill_n(out, positions.size(), base_);
    return;
  }
  int64_t coordinates[64] = {};
  int64_t previous = 0, image = base_;  // of position 0
  const int64_t last_dim = dims_.back(), last_stride = strides_.back();
  int64_t& last = coordinates[rank - 1];
  for (size_t k = 0; k < positions.size();) {
    const int64_t position = positions[k];
    int64_t rest = position - previous;  // to be added, at first to the last coordinate
    if (rest < 0) {
      std::fill_n(coordinates, rank, 0);
      image = base_;
      rest = position;
    }
    for (size_t i = rank; rest != 0 && i-- > 0;) {
      int64_t coordinate = coordinates[i] + rest;
      rest = 0;
      if (coordinate >= dims_[i]) {
        rest = coordinate < 2 * dims_[i] ? 1 : coordinate / dims_[i];
        coordinate -= rest * dims_[i];
      }
      image += (coordinate - coordinates[i]) * strides_[i];
      coordinates[i] = coordinate;
    }
    const size_t most = std::min<size_t>(positions.size() - k, last_dim - last);
    size_t run = 1;
    out[k] = image;
    for (; run < most && positions[k + run] == position + static_cast<int64_t>(run); ++run)
      out[k + run] = image + static_cast<int64_t>(run) * last_stride;
    const auto more = static_cast<int64_t>(run) - 1;
    last += more;
    image += more * last_stride;
    previous = position + more;
    k += run;
  }
}

PadMap::PadMap(std::span<const int64_t> source_dims, std::span<const int64_t> lo_hi)
    : source_dims_(source_dims.begin(), source_dims.end()),
      source_strides_(StridesOf(source_dims)) {
  for (size_t i = 0; i < source_dims.size(); ++i) {
    low_.push_back(lo_hi[2 * i]);
    dims_.push_back(source_dims[i] + lo_hi[2 * i] + lo_hi[2 * i + 1]);
  }
}

int64_t PadMap::operator()(int64_t position) const {
  int64_t inside = 0;
  for (size_t i = dims_.size(); i-- > 0;) {
    const int64_t coordinate = position % dims_[i] - low_[i];
    position /= dims_[i];
    if (coordinate < 0 || coordinate >= source_dims_[i]) return -1;
    inside += coordinate * source_strides_[i];
  }
  return inside;
}

}  // namespace outboard::reference
