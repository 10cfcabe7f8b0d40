#include "compiler/reference/position_map.h"

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

void PositionMap::Apply(std::span<const int64_t> positions, int64_t* out) const {
  const size_t rank = dims_.size();
  int64_t coordinates[64] = {};
  int64_t previous = 0, image = base_;  // of position 0
  for (size_t k = 0; k < positions.size(); ++k) {
    const int64_t position = positions[k];
    if (position == previous + 1) {
      for (size_t i = rank; i-- > 0;) {
        image += strides_[i];
        if (++coordinates[i] < dims_[i]) break;
        image -= strides_[i] * dims_[i];
        coordinates[i] = 0;
      }
    } else if (position != previous) {
      image = base_;
      int64_t rest = position;
      for (size_t i = rank; i-- > 0;) {
        coordinates[i] = rest % dims_[i];
        rest /= dims_[i];
        image += coordinates[i] * strides_[i];
      }
    }
    previous = position;
    out[k] = image;
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
