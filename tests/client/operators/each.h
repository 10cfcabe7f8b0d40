// Rows of functions of one number, for operators that work element by element; and the numbers at
// their ends. `units`: how many units in the last place of the result's type a value may be off.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/client/operators/table.h"

namespace outboard::operators {

using Function = std::function<double(double)>;
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A row for f of every element.
Row Each(const std::string& name, const std::string& form, Types types, Yields yields,
         Operand operand, std::function<Tensor(const Tensor&)> make, Function f, double units = 4,
         Gradient gradient = Gradient::kYes);

// Of floats; integers become f32 first.
Row OfFloats(const std::string& name, const std::string& form, Operand operand,
             std::function<Tensor(const Tensor&)> make, Function f, double units = 4);

}  // namespace outboard::operators
