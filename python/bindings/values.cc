// What a tensor is, and its value, for which these wait.
#include <nanobind/ndarray.h>

#include "absl/strings/str_cat.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

nb::dlpack::dtype ArrayTypeOf(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const Code code = IsBool(dtype)           ? Code::Bool
                    : dtype == DType::kBF16 ? Code::Bfloat
                    : IsFloat(dtype)        ? Code::Float
                    : IsUnsigned(dtype)     ? Code::UInt
                                            : Code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * ByteWidth(dtype)), 1};
}

// The bytes that came are the array's own: nothing is copied.
template <typename Framework>
nb::object ArrayOf(HostTensor host) {
  auto* const kept = new HostTensor(std::move(host));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<HostTensor*>(p); });
  const std::vector<size_t> shape(kept->dims.begin(), kept->dims.end());
  return nb::cast(nb::ndarray<Framework>(kept->bytes.data(), shape.size(), shape.data(), owner,
                                         nullptr, ArrayTypeOf(kept->dtype)));
}

bool InNumpy(DType dtype) {
  return dtype != DType::kBF16 && dtype != DType::kF8E4M3 && dtype != DType::kF8E5M2;
}

nb::object ToNumpy(const Tensor& x) {
  const DType dtype = x.dtype();
  return ArrayOf<nb::numpy>(ToHost(InNumpy(dtype) ? x : x.cast(DType::kF32)));
}

std::string Repr(const Tensor& x) {
  if (x.empty()) return "<Tensor, empty>";
  return absl::StrCat("<Tensor ", nb::repr(ShapeTuple(x)).c_str(), " ",
                      PythonName(x.dtype()), x.realized() ? "" : ", not computed yet", ">");
}

// Of a notebook: as repr, in a table.
std::string ReprHtml(const Tensor& x) {
  if (x.empty()) return "<table><tr><td>Tensor, empty</td></tr></table>";
  const auto row = [](const char* name, const std::string& value) {
    return absl::StrCat("<tr><th style='text-align:left'>", name,
                        "</th><td style='text-align:left'>", value, "</td></tr>");
  };
  return absl::StrCat("<table>", row("Tensor", nb::repr(ShapeTuple(x)).c_str()),
                      row("dtype", PythonName(x.dtype())),
                      row("state", x.realized() ? "computed" : "not computed yet"), "</table>");
}

}  // namespace

void BindValues(nb::module_&, TensorClass& tensor) {
  tensor.def_prop_ro("shape", [](const Tensor& x) { return ShapeTuple(x); })
      .def_prop_ro("dtype", [](const Tensor& x) { return x.dtype(); })
      .def_prop_ro(
          "device",
          [](const Tensor&) {
            return nb::cast<std::string>(
                nb::module_::import_("outboard.device").attr("Device").attr("DEFAULT"));
          },
          "The kind of the session's devices, such as \"CPU\".")
      .def_prop_ro("ndim", [](const Tensor& x) { return x.rank(); })
      .def(
          "size",
          [](const Tensor& x, std::optional<int64_t> dim) -> nb::object {
            if (!dim) return ShapeTuple(x);
            const SymInt size = x.size(*dim);
            return size.is_number() ? nb::cast(size.value()) : nb::cast(size);
          },
          "dim"_a = nb::none(), "The shape, or one of its dimensions.")
      .def("numel", [](const Tensor& x) { return x.numel(); }, "The number of elements.")
      .def("__len__",
           [](const Tensor& x) {
             if (x.rank() == 0) throw nb::type_error("len() of a 0-d tensor");
             return x.shape(0);
           })
      .def("__bool__",
           [](const Tensor&) -> bool { throw nb::type_error("__bool__ on Tensor is not defined"); })
      .def("__repr__", &Repr)
      .def("_repr_html_", &ReprHtml)
      .def(
          "realize",
          [](Tensor& x, const nb::args& others) -> Tensor& {
            std::vector<Tensor> all = {x};
            for (const nb::handle other : others) all.push_back(nb::cast<Tensor>(other));
            outboard::realize(all, {});
            return x;
          },
          nb::rv_policy::none,
          "Sends what these need to be computed, as one message; does not wait for values.")
      .def("numpy", &ToNumpy, "Waits. bfloat16 and fp8 come as float32.")
      .def(
          "tolist", [](const Tensor& x) { return ToList(x); },
          "Waits. A number where there are no axes.")
      .def(
          "item",
          [](const Tensor& x) {
            if (x.numel() != 1)
              ThrowInvalid(absl::StrCat("item: of one element, not ", x.numel()), Mistake::kCheck);
            HostTensor host = ToHost(x);
            host.dims.clear();
            return ToList(host);
          },
          "Waits. The one element as a number of Python.")
      .def(
          "data",
          [](const Tensor& x) {
            return nb::module_::import_("builtins").attr("memoryview")(ToNumpy(x));
          },
          "Waits. The value as a memoryview of the tensor's shape.")
      .def(
          "__dlpack__",
          [](const Tensor& x, const nb::kwargs& options) {
            return ArrayOf<nb::array_api>(ToHost(x)).attr("__dlpack__")(**options);
          },
          "Waits. A copy of the value in this process's memory.")
      .def("__dlpack_device__", [](const Tensor&) {
        return nb::make_tuple(static_cast<int>(nb::device::cpu::value), 0);
      });
}

}  // namespace outboard::python
