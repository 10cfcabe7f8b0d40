// Errors of the library as exceptions of Python: outboard.Error, and a child of it for each code, which is also what a
// Python program expects there (ValueError, ConnectionError ...).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>

#include "client/python/bindings/bindings.h"
#include "client/tensor/error.h"

namespace outboard::python {
namespace nb = nanobind;
namespace {

struct Kind {
  absl::StatusCode code;
  const char* name;
  PyObject** base;  // besides Error
  const char* doc;
};

const std::array kKinds = {
    Kind{absl::StatusCode::kInvalidArgument, "InvalidArgument", &PyExc_ValueError,
         "Shapes, types or arguments that do not fit."},
    Kind{absl::StatusCode::kOutOfRange, "OutOfRange", &PyExc_IndexError,
         "An index or axis that is not there."},
    Kind{absl::StatusCode::kNotFound, "NotFound", &PyExc_LookupError,
         "A name that the store does not have."},
    Kind{absl::StatusCode::kPermissionDenied, "PermissionDenied", &PyExc_PermissionError,
         "The key may not do this."},
    Kind{absl::StatusCode::kUnauthenticated, "Unauthenticated", &PyExc_PermissionError,
         "No key, or a wrong or revoked one."},
    Kind{absl::StatusCode::kResourceExhausted, "ResourceExhausted", &PyExc_MemoryError,
         "No device is free, or a limit was hit; the message names it."},
    Kind{absl::StatusCode::kUnavailable, "Unavailable", &PyExc_ConnectionError,
         "Nobody answers, or the worker was lost."},
    Kind{absl::StatusCode::kDeadlineExceeded, "DeadlineExceeded", &PyExc_TimeoutError,
         "A step took longer than its worker allows."},
    Kind{absl::StatusCode::kUnimplemented, "Unimplemented", &PyExc_NotImplementedError,
         "The other side does not know how to do this."},
};
// By code; the last for all others. Never freed: the interpreter's end comes before ours.
std::array<PyObject*, kKinds.size() + 1> classes;

PyObject* ClassOf(absl::StatusCode code) {
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (kKinds[i].code == code) return classes[i];
  return classes.back();
}

void Raise(const Error& error) {
  const nb::object exception = nb::borrow(ClassOf(error.status().code()))(error.what());
  exception.attr("code") = absl::StatusCodeToString(error.status().code());
  exception.attr("filename") = error.location().file_name();
  exception.attr("lineno") = error.location().line();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

}  // namespace

void BindErrors(nb::module_& module) {
  // OSError, which some have as a base too, would show its own fields instead of the message.
  nb::dict members;
  members["__str__"] = nb::handle(PyExc_BaseException).attr("__str__");
  classes.back() = PyErr_NewExceptionWithDoc(
      "outboard.Error", "What the library raises; `code`, `filename` and `lineno` say more.",
      PyExc_RuntimeError, members.ptr());
  module.attr("Error") = nb::borrow(classes.back());
  for (size_t i = 0; i < kKinds.size(); ++i) {
    const nb::tuple bases = nb::make_tuple(nb::borrow(classes.back()), nb::borrow(*kKinds[i].base));
    classes[i] = PyErr_NewExceptionWithDoc((std::string("outboard.") + kKinds[i].name).c_str(),
                                           kKinds[i].doc, bases.ptr(), nullptr);
    if (classes[i] == nullptr) throw nb::python_error();
    module.attr(kKinds[i].name) = nb::borrow(classes[i]);
  }
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      if (absl::IsCancelled(error.status()) && RaiseInterruption()) return;
      Raise(error);
    }
  });
}

}  // namespace outboard::python
