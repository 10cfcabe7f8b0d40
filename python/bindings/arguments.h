// Converts Python arguments for the C++ library: numbers or tensors as operands, axes, shapes,
// types. Each is a type of its own with a nanobind caster, so that a binding looks like its Python
// signature.
//
//   tensor.def("sum", [](const Tensor& x, const AxisArgument& axis, bool keepdim) { ... }, "axis"_a
//   = nb::none(), ...)
//
// If a caster fails, Python raises TypeError with the available signatures.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/tensor/tensor.h"
#include "python/bindings/here.h"

namespace outboard::python {

// An Arg, an int that no Arg can represent, or a Variable that is not bound: reading these raises
// OverflowError or ValueError. (A caster cannot raise, and if it rejected the int, Python would
// compute `t == 2**64` as for types that do not compare: False.)
class OperandArg {
 public:
  template <typename... Args>
  void emplace(Args&&... args) {
    arg_.emplace(std::forward<Args>(args)...);
  }
  void SetUnbound(std::string why) { why_unbound_ = std::move(why); }
  const Arg& operator*() const;
  const Arg* operator->() const { return &**this; }

 private:
  std::optional<Arg> arg_;
  std::string why_unbound_;
};

// A Tensor, a Python or NumPy number, or a size of a bound Variable; of the open line. Holds a
// reference to its Tensor: use it for parameters only.
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

// A dtype, its name, or None: the operation's default.
struct DTypeArgument {
  std::optional<DType> dtype;
  std::optional<std::string> unknown;  // a text that is no dtype's name

  // Raises TypeError for an unknown name; a caster may not do that.
  std::optional<DType> given() const;
  DType value_or(DType by_default) const { return given().value_or(by_default); }
};

// A device, which is taken so that a tinygrad program runs unchanged: the session chooses.
// Raises NotImplementedError for a file ("disk:PATH"), which would be neither read nor written.
struct DeviceArgument {
  static void Check(nanobind::handle device);
};

bool IsList(nanobind::handle object);  // or a tuple
// The items of f(2, 3), f((2, 3)) and f([2, 3]).
nanobind::object ItemsOf(const nanobind::args& args);
// Returns the two sizes of a pair; raises TypeError if it is not a pair.
std::pair<SymInt, SymInt> PairOf(nanobind::handle object);
// Returns the shape in f(2, 3), f((2, 3)) and f([2, 3]). Raises TypeError.
SymShape SizesOf(const nanobind::args& args);
Dims DimsOf(const nanobind::args& args);  // of numbers only
// Returns an int or a size of a bound Variable; nullopt if it is neither. Raises ValueError for a
// Variable that is not bound.
std::optional<SymInt> SizeOf(nanobind::handle object);
// Returns the ints of a sequence, or of one int; nullopt if there is anything else.
std::optional<Dims> IntsOf(nanobind::handle object);
// Returns the sizes of a tensor, also those of Variables.
SymShape SizesOfTensor(const Tensor& tensor);
// Returns a shape as Python's: a tuple of ints and sizes of Variables.
nanobind::tuple ShapeTuple(const Tensor& tensor);

// True for a Python or NumPy int that does not fit int64_t.
bool IsWideInt(nanobind::handle object);

// By tinygrad's names: "float32", "int" ...
std::optional<DType> DTypeOfName(std::string_view name);
const char* PythonName(DType dtype);  // the one that DTypeOfName knows, such as "bfloat16"

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

// Takes everything; the check may raise, which a caster may not do before the call.
template <>
struct type_caster<outboard::python::DeviceArgument> {
  static constexpr auto Name = const_name("object");
  using Value = outboard::python::DeviceArgument;
  template <typename>
  using Cast = Value;
  template <typename>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle given, uint8_t, cleanup_list*) noexcept {
    object = given;
    return true;
  }
  operator Value() const {
    Value::Check(object);
    return {};
  }
  handle object;
};

}  // namespace nanobind::detail
