#include "client/python/bindings/arguments.h"

#include <nanobind/ndarray.h>

namespace outboard::python {
namespace nb = nanobind;
namespace {

// NumPy's numbers are none of Python's, but tell what they are.
std::optional<int64_t> IntOf(nb::handle object) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr()) || nb::isinstance<Tensor>(object))
    return std::nullopt;
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  int overflow = 0;
  const int64_t value =
      number.is_valid() ? PyLong_AsLongLongAndOverflow(number.ptr(), &overflow) : 0;
  if (!number.is_valid() || overflow != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  return value;
}

void FillSizes(nb::handle items, Sizes& sizes) {
  for (const nb::handle item : items) {
    const std::optional<Size> size = SizeOf(item);
    if (!size)
      throw nb::type_error(
          (std::string("a shape has ints, not ") + Py_TYPE(item.ptr())->tp_name).c_str());
    sizes.push_back(*size);
  }
}

}  // namespace

std::optional<Size> SizeOf(nb::handle object) {
  if (const std::optional<int64_t> number = IntOf(object)) return Size(*number);
  if (nb::isinstance<Size>(object)) return nb::cast<Size>(object);
  return std::nullopt;
}

std::optional<Dims> IntsOf(nb::handle object) {
  if (const std::optional<int64_t> number = IntOf(object)) return Dims{*number};
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) return std::nullopt;
  Dims numbers;
  for (const nb::handle item : object) {
    const std::optional<int64_t> number = IntOf(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

Sizes SizesOf(const nb::args& args) {
  Sizes sizes;
  if (args.size() == 1 && (PyTuple_Check(args[0].ptr()) || PyList_Check(args[0].ptr())))
    FillSizes(args[0], sizes);
  else
    FillSizes(args, sizes);
  return sizes;
}

Dims DimsOf(const nb::args& args) {
  Dims dims;
  for (const Size& size : SizesOf(args)) {
    if (!size.is_number()) throw nb::type_error("a size of a Variable where only numbers will do");
    dims.push_back(size.value());
  }
  return dims;
}

nb::tuple ShapeTuple(const Tensor& tensor, const At& at) {
  const int rank = tensor.rank(at);
  nb::list sizes;
  for (int axis = 0; axis < rank; ++axis) {
    const Size size = tensor.size(axis, at);
    size.is_number() ? sizes.append(size.value()) : sizes.append(size);
  }
  return nb::tuple(sizes);
}

bool OperandFrom(nb::handle object, Operand& operand) {
  if (nb::isinstance<Tensor>(object)) {
    operand.arg.emplace(*nb::inst_ptr<Tensor>(object), Here());
  } else if (PyBool_Check(object.ptr())) {
    operand.arg.emplace(object.ptr() == Py_True, Here());
  } else if (PyFloat_Check(object.ptr())) {
    operand.arg.emplace(PyFloat_AS_DOUBLE(object.ptr()), Here());
  } else if (const std::optional<Size> size = SizeOf(object)) {
    size->is_number() ? operand.arg.emplace(size->value(), Here())
                      : operand.arg.emplace(*size, Here());
  } else if (PyNumber_Check(object.ptr()) && !PyComplex_Check(object.ptr()) &&
             Py_TYPE(object.ptr())->tp_as_number->nb_float != nullptr &&
             !nb::ndarray_check(object)) {
    const double value = PyFloat_AsDouble(object.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    operand.arg.emplace(value, Here());
  } else {
    return false;
  }
  return true;
}

bool AxesFrom(nb::handle object, AxisArgument& axes) {
  axes = {};
  if (object.is_none()) return true;
  const std::optional<Dims> numbers = IntsOf(object);
  if (!numbers) return false;
  axes.axes = Axes(*numbers);
  axes.given = true;
  return true;
}

bool DTypeFrom(nb::handle object, DTypeArgument& dtype) {
  dtype = {};
  if (object.is_none()) return true;
  if (PyUnicode_Check(object.ptr())) {
    const char* const name = PyUnicode_AsUTF8(object.ptr());
    if (name != nullptr) dtype.dtype = DTypeOfName(name);
    PyErr_Clear();
    return dtype.dtype.has_value();
  }
  DType value = DType::kVoid;
  if (!nb::try_cast(object, value)) return false;
  dtype.dtype = value;
  return true;
}

}  // namespace outboard::python
