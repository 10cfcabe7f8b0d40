// One parameter of a sweep, as `-p` has it: a list of values, or a range to draw from.
//
//   lr=1e-4..1e-2:log      a range; :log draws its logarithm evenly
//   lr=1e-4..1e-2:log:5    the same; in a grid, five points of it, ends included
//   layers=2..6            whole numbers, because both ends are
//   bs=64,128              a list; values are texts
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::cli {

class SweptParameter {
 public:
  // Errors: INVALID_ARGUMENT  names the parameter and what is wrong with it
  static absl::StatusOr<SweptParameter> Parse(const std::string& text);

  const std::string& name() const { return name_; }
  bool is_range() const { return choices_.empty(); }
  // Its values in a grid: the list, or the points of the range. Empty: a range without a number of
  // points.
  std::vector<std::string> GridValues() const;
  // The value at `u`, in [0, 1): an entry of the list, or a number of the range.
  std::string ValueAt(double u) const;

 private:
  std::string NumberAt(double u) const;

  std::string name_;
  std::vector<std::string> choices_;
  double low_ = 0, high_ = 0;
  bool log_ = false, whole_ = false;
  int points_ = 0;
};

}  // namespace outboard::cli
