// Errors of the library as exceptions of Python: the classes of outboard/errors.py, by code.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "client/tensor/error.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// Never freed: the interpreter's end comes before ours.
nb::handle classes_by_code, class_of_others, class_of_index, class_of_check;

void Raise(const Error& error) {
  const std::string code = absl::StatusCodeToString(error.status().code());
  const nb::object kind = error.mistake() == Mistake::kIndex ? nb::borrow(class_of_index)
                          : error.mistake() == Mistake::kCheck
                              ? nb::borrow(class_of_check)
                              : classes_by_code.attr("get")(code, class_of_others);
  const nb::object exception = kind(error.what());
  exception.attr("code") = code;
  exception.attr("filename") = error.location().file_name();
  exception.attr("lineno") = error.location().line();
  PyErr_SetObject(kind.ptr(), exception.ptr());
}

}  // namespace

void BindErrors(nb::module_& module) {
  module.def(
      "set_error_classes",
      [](const nb::dict& by_code, const nb::object& others, const nb::object& index,
         const nb::object& check) {
        classes_by_code = by_code.inc_ref();
        class_of_others = others.inc_ref();
        class_of_index = index.inc_ref();
        class_of_check = check.inc_ref();
      },
      "by_code"_a, "others"_a, "index"_a, "check"_a,
      "Before anything can fail: what is raised for each code's name, and for the mistakes of "
      "arguments that have a class of their own.");
  module.def(
      "refuse", [](const std::string& why) { ThrowInvalid(Here(), why, Mistake::kCheck); }, "why"_a,
      "Raises CheckFailed for the line of the program.");
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      if (absl::IsCancelled(error.status()) && RaiseInterruption()) return;
      Raise(error);
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError,
                      "an argument is of another type than this function takes: a Tensor, or a "
                      "sequence of them");
    }
  });
}

}  // namespace outboard::python
