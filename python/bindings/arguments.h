// What Python passes, as the C++ library takes it: numbers or tensors as operands, axes, shapes,
// types. Each is a type of its own with a nanobind caster, so that a binding reads like the
// signature it has.
//
//   tensor.def("sum", [](const Tensor& x, const AxisArgument& axis, bool keepdim) { ... }, "axis"_a
//   = nb::none(), ...)
//
// A caster that does not fit lets Python raise TypeError with the signatures there are.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/tensor/tensor.h"
#include "python/bindings/here.h"

namespace outboard::python {

// An Arg, or an int that none can hold: whoever asks for that raises OverflowError. (A caster
// cannot raise, and if it did not fit `t == 2**64` would be Python's answer to things that do not
// compare: False.)
class OperandArg {
 public:
  template <typename... Args>
  void emplace(Args&&... args) {
    arg_.emplace(std::forward<Args>(args)...);
  }
  const Arg& operator*() const;
  const Arg* operator->() const { return &**this; }

 private:
  std::optional<Arg> arg_;
};

// A Tensor, a number of Python or NumPy, or a size of a bound Variable; with the line. Refers to
// its Tensor: for parameters only.
struct Operand {
  OperandArg arg;
  operator const Arg&() const { return *arg; }  // NOLINT
};

// None (all axes, in the C++ library's way), an int, or a sequence of ints.
struct AxisArgument {
  Axes axes;
  bool given = false;
  operator const Axes&() const { return axes; }  // NOLINT
};

// A dtype, its name, or None: then what the operation takes by default.
struct DTypeArgument {
  std::optional<DType> dtype;
  DType value_or(DType by_default) const { return dtype.value_or(by_default); }
};

bool IsList(nanobind::handle object);  // or a tuple
// The items of f(2, 3), f((2, 3)) and f([2, 3]).
nanobind::object ItemsOf(const nanobind::args& args);
// The two sizes of a pair; raises TypeError for what is none.
std::pair<SymInt, SymInt> PairOf(nanobind::handle object);
// What stands for a shape in f(2, 3), f((2, 3)) and f([2, 3]). Raises TypeError.
SymShape SizesOf(const nanobind::args& args);
Dims DimsOf(const nanobind::args& args);  // of numbers only
// An int or a size of a bound Variable; nullopt where it is neither.
std::optional<SymInt> SizeOf(nanobind::handle object);
// The ints of a sequence, or of one int; nullopt where there is something else.
std::optional<Dims> IntsOf(nanobind::handle object);
// A shape as Python has it: a tuple of ints and sizes of Variables.
nanobind::tuple ShapeTuple(const Tensor& tensor, const At& at);

// An int of Python or NumPy that is no int64.
bool IsWideInt(nanobind::handle object);

// By tinygrad's names: "float32", "int" ...
std::optional<DType> DTypeOfName(std::string_view name);

bool OperandFrom(nanobind::handle object, Operand& operand);
bool AxesFrom(nanobind::handle object, AxisArgument& axes);
bool DTypeFrom(nanobind::handle object, DTypeArgument& dtype);

}  // namespace outboard::python

namespace nanobind::detail {

#define OB_ARGUMENT_CASTER(Type, From, Text)                                                  \
  template <>                                                                                 \
  struct type_caster<outboard::python::Type> {                                                \
    NB_TYPE_CASTER(outboard::python::Type, const_name(Text))                                  \
    bool from_python(handle object, uint8_t, cleanup_list*) noexcept {                        \
      return outboard::python::From(object, value);                                           \
    }                                                                                         \
    static handle from_cpp(const outboard::python::Type&, rv_policy, cleanup_list*) = delete; \
  }

OB_ARGUMENT_CASTER(Operand, OperandFrom, "Tensor | float | int | bool");
OB_ARGUMENT_CASTER(AxisArgument, AxesFrom, "int | collections.abc.Sequence[int] | None");
OB_ARGUMENT_CASTER(DTypeArgument, DTypeFrom, "DType | str | None");

#undef OB_ARGUMENT_CASTER

}  // namespace nanobind::detail
