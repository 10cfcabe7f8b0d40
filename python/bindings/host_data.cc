#include "python/bindings/host_data.h"

#include <nanobind/ndarray.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/nn/files.h"
#include "client/ops/elementwise/promote.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rules/fold.h"
#include "wire/limits.h"

namespace outboard::python {
namespace nb = nanobind;
namespace {

std::atomic<DType> default_int = DType::kI32;

// ---- lists --------------------------------------------------------------------------------------

// Depth first, row-major: the shape by the first elements, and every number.
class Rectangle {
 public:
  explicit Rectangle(nb::handle data) {
    for (nb::handle level = data; IsList(level);) {
      dims_.push_back(static_cast<int64_t>(nb::len(level)));
      if (dims_.size() > static_cast<size_t>(limits::kRankMax))
        throw nb::value_error("lists are nested too deeply");
      if (dims_.back() == 0) break;
      level = PySequence_Fast_GET_ITEM(level.ptr(), 0);
    }
    Collect(data, 0);
  }

  const Dims& dims() const { return dims_; }
  DType dtype() const {
    return floats_ || numbers_.empty() ? DefaultFloat() : ints_ ? DefaultInt() : DType::kBool;
  }
  std::string BytesAs(DType dtype) const {
    std::string bytes(numbers_.size() * ByteWidth(dtype), '\0');
    char* out = bytes.data();
    for (const Number& number : numbers_) {
      if (IsFloat(dtype))
        StoreFloat(dtype, number.of_float, out);
      else  // of floats as cast() does
        StoreInt(dtype,
                 number.is_float || IsBool(dtype)
                     ? *FoldCast(DType::kF64, dtype, std::bit_cast<int64_t>(number.of_float))
                     : number.of_int,
                 out);
      out += ByteWidth(dtype);
    }
    return bytes;
  }

 private:
  struct Number {
    double of_float;
    int64_t of_int;  // unless it is a float
    bool is_float = false;
  };

  void Collect(nb::handle data, size_t depth) {
    if (depth == dims_.size()) return Add(data);
    if (!IsList(data) || static_cast<int64_t>(nb::len(data)) != dims_[depth])
      throw nb::value_error("inhomogeneous shape: lists of one depth differ in their lengths");
    PyObject* const* const items = PySequence_Fast_ITEMS(data.ptr());
    for (int64_t i = 0; i < dims_[depth]; ++i) Collect(items[i], depth + 1);
  }

  void AddFloat(double value) {
    floats_ = true;
    numbers_.push_back({value, 0, true});
  }

  void Add(nb::handle data) {
    PyObject* const object = data.ptr();
    if (PyBool_Check(object)) {
      numbers_.push_back({object == Py_True ? 1.0 : 0.0, object == Py_True});
    } else if (PyFloat_Check(object)) {
      AddFloat(PyFloat_AS_DOUBLE(object));
    } else if (PyIndex_Check(object)) {
      const nb::object index = nb::steal(PyNumber_Index(object));
      if (!index.is_valid()) throw nb::python_error();
      ints_ = true;
      int overflow = 0;
      int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
      if (overflow != 0) value = static_cast<int64_t>(PyLong_AsUnsignedLongLong(index.ptr()));
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      numbers_.push_back({PyFloat_AsDouble(index.ptr()), value});
    } else {
      const double value = PyFloat_AsDouble(object);
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      AddFloat(value);
    }
  }

  Dims dims_;
  std::vector<Number> numbers_;
  bool ints_ = false, floats_ = false;
};

Tensor TensorOfBytes(std::string_view bytes, DType dtype) {
  if (bytes.size() % ByteWidth(dtype) != 0)
    ThrowInvalid(
        absl::StrCat(bytes.size(), " bytes are no whole number of elements of ", ByteWidth(dtype)));
  return Tensor::from_bytes(dtype, {static_cast<int64_t>(bytes.size()) / ByteWidth(dtype)}, bytes);
}

Tensor TensorOfFile(const std::string& path, DType dtype) {
  const nn::Bytes bytes = nn::Bytes::OfFile(path);
  const auto count = static_cast<int64_t>(bytes.size()) / ByteWidth(dtype);
  return bytes.Tensors(std::array{nn::Bytes::Range{dtype, {count}, 0}})[0];
}

// ---- arrays -------------------------------------------------------------------------------------

std::optional<DType> DTypeOfArray(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const int bytes = type.bits / 8;
  if (type.lanes != 1) return std::nullopt;
  constexpr std::array kSigned = {DType::kI8, DType::kI16, DType::kI32, DType::kI64};
  constexpr std::array kUnsigned = {DType::kU8, DType::kU16, DType::kU32, DType::kU64};
  const int log = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
  switch (static_cast<Code>(type.code)) {
    case Code::Bool: return DType::kBool;
    case Code::Int: return kSigned[log];
    case Code::UInt: return kUnsigned[log];
    case Code::Bfloat: return DType::kBF16;
    case Code::Float:
      return bytes == 2   ? std::optional(DType::kF16)
             : bytes == 4 ? std::optional(DType::kF32)
             : bytes == 8 ? std::optional(DType::kF64)
                          : std::nullopt;
    default: return std::nullopt;
  }
}

// Lets go of a Python object from any thread.
std::shared_ptr<PyObject> Kept(nb::handle object) {
  Py_INCREF(object.ptr());
  return {object.ptr(), [](PyObject* kept) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire gil;
            Py_DECREF(kept);
          }};
}

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

Tensor TensorOfArray(nb::handle owner, const Array& array) {
  const std::optional<DType> dtype = DTypeOfArray(array.dtype());
  if (!dtype) throw nb::type_error("an array of elements that tensors here do not have");
  Dims dims;
  for (size_t i = 0; i < array.ndim(); ++i) dims.push_back(static_cast<int64_t>(array.shape(i)));
  const std::string_view bytes(static_cast<const char*>(array.data()), array.nbytes());
  if (bytes.size() <= wire::kPieceBytesMax) return Tensor::from_bytes(*dtype, dims, bytes);
  wire::BlobSource source = wire::SourceOf(bytes);
  source.read = [kept = Kept(owner), array, read = std::move(source.read)](
                    uint64_t offset, std::span<char> out) { return read(offset, out); };
  return Tensor::from_blob(*dtype, dims, std::move(source), {});
}

// ---- lists from values --------------------------------------------------------------------------

nb::object NumberAt(const HostTensor& host, int64_t i) {
  if (IsBool(host.dtype)) return nb::bool_(ElementAt<int64_t>(host, i) != 0);
  if (IsFloat(host.dtype)) return nb::float_(ElementAt<double>(host, i));
  const int64_t value = ElementAt<int64_t>(host, i);
  return host.dtype == DType::kU64 ? nb::object(nb::int_(static_cast<uint64_t>(value)))
                                   : nb::object(nb::int_(value));
}

nb::object ListOf(const HostTensor& host, size_t axis, int64_t& next) {
  if (axis == host.dims.size()) return NumberAt(host, next++);
  nb::list list;
  for (int64_t i = 0; i < host.dims[axis]; ++i) list.append(ListOf(host, axis + 1, next));
  return list;
}

}  // namespace

DType DefaultInt() { return default_int.load(std::memory_order_relaxed); }

void SetDefaultInt(DType dtype) { default_int.store(dtype, std::memory_order_relaxed); }

DType DTypeOfNumber(const Operand& number) {
  switch (number.arg->kind()) {
    case Arg::Kind::kBool: return DType::kBool;
    case Arg::Kind::kFloat: return DefaultFloat();
    case Arg::Kind::kTensor: throw nb::type_error("a number, not a Tensor");
    default: return DefaultInt();
  }
}

Tensor FullOf(const SymShape& sizes, const Arg& number, DType dtype) {
  if (number.kind() == Arg::Kind::kInt && IsInt(dtype)) {  // a double would round it
    const internal::NodeBuilder rec;
    const UOp* const scalar = internal::NodeOfArg(rec, number, dtype);
    return Tensor::FromNode(rec, rec.Full(scalar, rec.ShapeOf(sizes)));
  }
  const double value = number.float_value();
  if (IsBool(dtype)) return Tensor::full(sizes, value != 0, dtype);
  return Tensor::full(sizes, IsFloat(dtype) ? value : std::trunc(value), dtype);
}

Tensor Arange(double begin, double end, double step, DType dtype) {
  if (step == 0) ThrowInvalid("arange: a step of 0");
  if (!std::isfinite(begin) || !std::isfinite(end) || !std::isfinite(step))
    ThrowInvalid(absl::StrCat("arange: ", begin, " to ", end, " by ", step));
  const double count = std::max(0.0, std::ceil((end - begin) / step));
  if (!(count <= static_cast<double>(limits::kDimMax)))
    ThrowInvalid(absl::StrCat("arange: ", begin, " to ", end, " by ", step,
                              " is over the limit of ", limits::kDimMax, " elements"));
  const Tensor i = Tensor::arange(static_cast<int64_t>(count), DType::kI64).cast(DType::kF64);
  return (Arg(i * step) + begin).cast(dtype);
}

std::string PathOf(nb::handle path) {
  const nb::object mode = nb::module_::import_("os").attr("stat")(path).attr("st_mode");
  if (S_ISDIR(nb::cast<mode_t>(mode))) {
    const nb::object kind = nb::module_::import_("outboard.errors").attr("IsADirectory");
    PyErr_Format(kind.ptr(), "%S is a folder, not a file", path.ptr());
    throw nb::python_error();
  }
  const nb::object text = nb::steal(PyOS_FSPath(path.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  if (PyBytes_Check(text.ptr())) return nb::cast<nb::bytes>(text).c_str();
  return nb::cast<std::string>(text);
}

Tensor TensorOf(nb::handle data, std::optional<DType> dtype) {
  const auto as_asked = [&](Tensor tensor) {
    return dtype && *dtype != tensor.dtype() ? tensor.cast(*dtype) : tensor;
  };
  if (nb::isinstance<Tensor>(data)) return as_asked(nb::cast<Tensor>(data));
  if (data.is_none()) return Tensor::full({}, 0, dtype.value_or(DefaultFloat()));
  if (PyBytes_Check(data.ptr()))
    return TensorOfBytes(
        {PyBytes_AS_STRING(data.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(data.ptr()))},
        dtype.value_or(DType::kU8));
  if (IsList(data) || (dtype == DType::kU64 && IsWideInt(data))) {
    const Rectangle rectangle(data);
    const DType type = dtype.value_or(rectangle.dtype());
    return Tensor::from_bytes(type, rectangle.dims(), rectangle.BytesAs(type));
  }
  if (nb::hasattr(data, "__fspath__"))
    return TensorOfFile(PathOf(data), dtype.value_or(DType::kU8));
  if (nb::ndarray_check(data)) return as_asked(TensorOfArray(data, nb::cast<Array>(data)));
  Operand number;
  if (OperandFrom(data, number)) return FullOf({}, number, dtype.value_or(DTypeOfNumber(number)));
  const nb::str shown = nb::repr(data);
  throw std::runtime_error(absl::StrCat("can't create Tensor from ", shown.c_str(), " with type ",
                                        Py_TYPE(data.ptr())->tp_name));
}

HostTensor ToHost(const Tensor& tensor) { return tensor.to_host(); }

nb::object ToList(const HostTensor& host) {
  int64_t next = 0;
  return ListOf(host, 0, next);
}

nb::object ToList(const Tensor& tensor) { return ToList(ToHost(tensor)); }

}  // namespace outboard::python
