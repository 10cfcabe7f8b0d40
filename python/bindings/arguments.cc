#include "python/bindings/arguments.h"

#include <nanobind/ndarray.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "python/bindings/expression.h"

namespace outboard::python {
namespace nb = nanobind;
namespace {

struct Int {
  int64_t value;
  bool is_wide;  // no int64: the value is none
};

// NumPy's numbers are none of Python's, but tell what they are.
std::optional<Int> AnyIntOf(nb::handle object) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr()) || nb::isinstance<Tensor>(object))
    return std::nullopt;
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    return std::nullopt;
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  return Int{value, overflow != 0};
}

std::optional<int64_t> IntOf(nb::handle object) {
  const std::optional<Int> number = AnyIntOf(object);
  return number && !number->is_wide ? std::optional(number->value) : std::nullopt;
}

// Of an array, of NumPy or another library, that has no axes: Python's number, or null.
nb::object NumberOfArray(nb::handle array) {
  nb::object number;
  const nb::object axes = nb::steal(PyObject_GetAttrString(array.ptr(), "ndim"));
  if (axes.is_valid() && PyLong_Check(axes.ptr()) && PyLong_AsLong(axes.ptr()) == 0)
    number = nb::steal(PyObject_CallMethod(array.ptr(), "item", nullptr));
  PyErr_Clear();
  return number;
}

}  // namespace

void DeviceArgument::Check(nb::handle device) {
  if (!PyUnicode_Check(device.ptr())) return;
  const char* const name = PyUnicode_AsUTF8(device.ptr());
  if (name == nullptr) throw nb::python_error();
  if (!absl::StartsWithIgnoreCase(name, "disk:")) return;
  PyErr_SetString(PyExc_NotImplementedError,
                  "device='disk:...': a tensor is not a file here; Tensor(pathlib.Path(...)) reads "
                  "one, numpy().tofile(...) and nn.state.safe_save write one");
  throw nb::python_error();
}

const Arg& OperandArg::operator*() const {
  if (arg_) return *arg_;
  if (!why_unbound_.empty()) throw nb::value_error(why_unbound_.c_str());
  PyErr_SetString(PyExc_OverflowError,
                  "an int beyond int64: write it as a float, or make a Tensor of uint64 of it");
  throw nb::python_error();
}

bool IsWideInt(nb::handle object) {
  const std::optional<Int> number = AnyIntOf(object);
  return number && number->is_wide;
}

std::optional<SymInt> SizeOf(nb::handle object) {
  if (const std::string why = WhyUnbound(object); !why.empty()) throw nb::value_error(why.c_str());
  if (const std::optional<int64_t> number = IntOf(object)) return SymInt(*number);
  if (nb::isinstance<SymInt>(object)) return nb::cast<SymInt>(object);
  return std::nullopt;
}

std::optional<Dims> IntsOf(nb::handle object) {
  if (const std::optional<int64_t> number = IntOf(object)) return Dims{*number};
  if (!IsList(object)) return std::nullopt;
  Dims numbers;
  for (const nb::handle item : object) {
    const std::optional<int64_t> number = IntOf(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

bool IsList(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

nb::object ItemsOf(const nb::args& args) {
  return args.size() == 1 && IsList(args[0]) ? nb::borrow(args[0]) : nb::borrow(args);
}

std::pair<SymInt, SymInt> PairOf(nb::handle object) {
  if (PySequence_Check(object.ptr()) && nb::len(object) == 2) {
    const std::optional<SymInt> first = SizeOf(object[0]), second = SizeOf(object[1]);
    if (first && second) return {*first, *second};
  }
  throw nb::type_error("a pair of ints or None for each axis");
}

SymShape SizesOf(const nb::args& args) {
  SymShape sizes;
  for (const nb::handle item : ItemsOf(args)) {
    const std::optional<SymInt> size = SizeOf(item);
    if (!size)
      throw nb::type_error(
          (std::string("a shape has ints, not ") + Py_TYPE(item.ptr())->tp_name).c_str());
    sizes.push_back(*size);
  }
  return sizes;
}

Dims DimsOf(const nb::args& args) {
  Dims dims;
  for (const SymInt& size : SizesOf(args)) {
    if (!size.is_number()) throw nb::type_error("a size of a Variable where only numbers will do");
    dims.push_back(size.value());
  }
  return dims;
}

SymShape SizesOfTensor(const Tensor& tensor) {
  SymShape sizes;
  for (int axis = 0; axis < tensor.rank(); ++axis) sizes.push_back(tensor.size(axis));
  return sizes;
}

nb::tuple ShapeTuple(const Tensor& tensor) {
  const int rank = tensor.rank();
  nb::list sizes;
  for (int axis = 0; axis < rank; ++axis) {
    const SymInt size = tensor.size(axis);
    size.is_number() ? sizes.append(size.value()) : sizes.append(size);
  }
  return nb::tuple(sizes);
}

bool OperandFrom(nb::handle object, Operand& operand) {
  if (nb::isinstance<Tensor>(object)) {
    operand.arg.emplace(*nb::inst_ptr<Tensor>(object), At());
  } else if (PyBool_Check(object.ptr())) {
    operand.arg.emplace(object.ptr() == Py_True, At());
  } else if (PyFloat_Check(object.ptr())) {
    operand.arg.emplace(PyFloat_AS_DOUBLE(object.ptr()), At());
  } else if (std::string why = WhyUnbound(object); !why.empty()) {
    operand = {};
    operand.arg.SetUnbound(std::move(why));
  } else if (const std::optional<SymInt> size = SizeOf(object)) {
    size->is_number() ? operand.arg.emplace(size->value(), At()) : operand.arg.emplace(*size, At());
  } else if (IsWideInt(object)) {
    operand = {};
  } else if (nb::ndarray_check(object)) {
    const nb::object number = NumberOfArray(object);
    if (!number.is_valid() || nb::ndarray_check(number)) return false;
    return OperandFrom(number, operand);
  } else if (PyNumber_Check(object.ptr()) && !PyComplex_Check(object.ptr()) &&
             Py_TYPE(object.ptr())->tp_as_number->nb_float != nullptr) {
    const double value = PyFloat_AsDouble(object.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    operand.arg.emplace(value, At());
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

std::optional<DType> DTypeArgument::given() const {
  if (!unknown.has_value()) return dtype;
  constexpr size_t kShown = 40;
  throw nb::type_error(absl::StrCat("dtype '", unknown->substr(0, kShown),
                                    "' is not known; outboard.dtypes has them all, such as "
                                    "'float32', 'bfloat16' and 'int64'")
                           .c_str());
}

bool DTypeFrom(nb::handle object, DTypeArgument& dtype) {
  dtype = {};
  if (object.is_none()) return true;
  if (PyUnicode_Check(object.ptr())) {
    const char* const name = PyUnicode_AsUTF8(object.ptr());
    PyErr_Clear();
    if (name == nullptr) return false;
    dtype.dtype = DTypeOfName(name);
    if (!dtype.dtype.has_value()) dtype.unknown = name;
    return true;
  }
  DType value = DType::kVoid;
  // A number would be cast to the dtype that happens to be stored as it.
  if (!nb::isinstance<DType>(object) || !nb::try_cast(object, value)) return false;
  dtype.dtype = value;
  return true;
}

}  // namespace outboard::python
