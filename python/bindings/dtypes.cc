// The types of elements, as outboard.DType; outboard.dtypes (dtypes.py) gives them tinygrad's
// names.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/ops/elementwise/promote.h"
#include "compiler/ir/dtype.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

namespace {

struct Named {
  const char* name;
  DType dtype;
};

constexpr Named kNames[] = {
    {"bool", DType::kBool},      {"int8", DType::kI8},        {"uint8", DType::kU8},
    {"int16", DType::kI16},      {"uint16", DType::kU16},     {"int32", DType::kI32},
    {"uint32", DType::kU32},     {"int64", DType::kI64},      {"uint64", DType::kU64},
    {"fp8e4m3", DType::kF8E4M3}, {"fp8e5m2", DType::kF8E5M2}, {"float16", DType::kF16},
    {"bfloat16", DType::kBF16},  {"float32", DType::kF32},    {"float64", DType::kF64},
};
constexpr Named kAliases[] = {
    {"char", DType::kI8},  {"uchar", DType::kU8},  {"short", DType::kI16},  {"ushort", DType::kU16},
    {"int", DType::kI32},  {"uint", DType::kU32},  {"long", DType::kI64},   {"ulong", DType::kU64},
    {"half", DType::kF16}, {"float", DType::kF32}, {"double", DType::kF64},
};

// As tinygrad prints a dtype: by its last name.
std::string Repr(DType dtype) {
  for (const Named& alias : kAliases)
    if (alias.dtype == dtype) return absl::StrCat("dtypes.", alias.name);
  return absl::StrCat("dtypes.", PythonName(dtype));
}

nb::object Least(DType dtype) {
  if (IsFloat(dtype)) return nb::float_(-std::numeric_limits<double>::infinity());
  if (IsBool(dtype)) return nb::bool_(false);
  return nb::int_(IntMin(dtype));
}

nb::object Greatest(DType dtype) {
  if (IsFloat(dtype)) return nb::float_(std::numeric_limits<double>::infinity());
  if (IsBool(dtype)) return nb::bool_(true);
  if (dtype == DType::kU64) return nb::int_(std::numeric_limits<uint64_t>::max());
  return nb::int_(IntMax(dtype));
}

}  // namespace

std::optional<DType> DTypeOfName(std::string_view name) {
  for (const Named& named : kNames)
    if (name == named.name) return named.dtype;
  for (const Named& alias : kAliases)
    if (name == alias.name) return alias.dtype;
  return std::nullopt;
}

const char* PythonName(DType dtype) {
  for (const Named& named : kNames)
    if (named.dtype == dtype) return named.name;
  return "void";
}

void BindDTypes(nb::module_& module) {
  nb::enum_<DType> dtype(module, "DType", "The type of a tensor's elements.");
  for (const Named& named : kNames) dtype.value(named.name, named.dtype);
  dtype.def("__repr__", &Repr)
      .def("__str__", &Repr)
      .def_prop_ro("itemsize", [](DType self) { return ByteWidth(self); })
      .def_prop_ro("bitsize", [](DType self) { return IsBool(self) ? 1 : 8 * ByteWidth(self); })
      .def_prop_ro("min", &Least)
      .def_prop_ro("max", &Greatest);
  module.def("default_float", &DefaultFloat);
  module.def("set_default_float", &SetDefaultFloat);
  module.def("default_int", &DefaultInt);
  module.def("set_default_int", &SetDefaultInt);
  module.def("promote", &Promote, "a"_a, "b"_a);
}

}  // namespace outboard::python
