// x[...] in the forms that C++ has.
#include <deque>

#include "client/python/bindings/arguments.h"
#include "client/python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

std::optional<int64_t> Bound(nb::handle object) {
  if (object.is_none()) return std::nullopt;
  const std::optional<Dims> number = IntsOf(object);
  if (!number || number->size() != 1) throw nb::type_error("a slice has ints");
  return number->front();
}

Index IndexOf(nb::handle object, const At& at) {
  if (object.is_none()) return {kNewAxis, at};
  if (object.ptr() == Py_Ellipsis) return {kEllipsis, at};
  if (nb::isinstance<Tensor>(object)) return {*nb::inst_ptr<Tensor>(object), at};
  if (PySlice_Check(object.ptr())) {
    const Slice slice{Bound(object.attr("start")), Bound(object.attr("stop")),
                      Bound(object.attr("step")).value_or(1)};
    return {slice, at};
  }
  const std::optional<Size> size = SizeOf(object);
  if (!size || !size->is_number())
    throw nb::type_error((std::string("no index: ") + Py_TYPE(object.ptr())->tp_name).c_str());
  return {size->value(), at};
}

}  // namespace

void BindIndexing(nb::module_&, TensorClass& tensor) {
  tensor
      .def("__getitem__",
           [](const Tensor& x, nb::handle index) {
             const At at = Here();
             std::vector<Index> indices;
             if (PyTuple_Check(index.ptr()))
               for (const nb::handle item : index) indices.push_back(IndexOf(item, at));
             else
               indices.push_back(IndexOf(index, at));
             return x[indices];
           })
      .def(
          "gather",
          [](const Tensor& x, int64_t dim, const Tensor& index) {
            return x.gather(dim, index, Here());
          },
          "dim"_a, "index"_a);
}

}  // namespace outboard::python
