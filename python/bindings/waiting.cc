// How a wait of the library is one of Python's: the GIL is given up for as long as the thread
// sleeps, and signals are looked at meanwhile, so that KeyboardInterrupt (or whatever a handler
// raises) ends it at once.
//
// Bindings need no gil_scoped_release of their own: the library says itself where it waits
// (client/session/waiting.h), and everything else, the recording of graphs above all, is protected
// by the GIL as Python programs expect.
#include "client/session/waiting.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
namespace {

constexpr int kReturnTries = 20'000, kReturnTryUs = 100;  // 2 s

unsigned long main_thread = 0;  // the one in which Python runs handlers of signals

// What a handler raised, until the call that it has stopped returns to Python.
thread_local std::optional<nb::python_error> interruption;

// From the interpreter's end on the library waits as in any other program.
bool HasInterpreter() { return Py_IsInitialized() != 0; }

void* Begin() {
  return HasInterpreter() && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
}

// A daemon thread that wakes while the interpreter ends has nowhere to return to: Python would
// unwind it out of PyEval_RestoreThread through destructors, which ends the program.
std::atomic<unsigned long> ending_thread = 0;  // the one that ends the interpreter, once it does
std::atomic<int> returning = 0;                // threads in PyEval_RestoreThread

void End(void* begun) {
  if (begun == nullptr) return;
  ++returning;  // before it is asked whether the end has begun, as EndWaits does the reverse
  const unsigned long ending = ending_thread;
  if (!HasInterpreter() || (ending != 0 && ending != PyThread_get_thread_ident())) {
    --returning;
    for (;;) pause();
  }
  PyEval_RestoreThread(static_cast<PyThreadState*>(begun));
  --returning;
}

absl::Status Check() {
  if (!HasInterpreter() || PyThread_get_thread_ident() != main_thread) return absl::OkStatus();
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return absl::OkStatus();
  interruption.emplace();  // takes the error that is set
  return absl::CancelledError("interrupted");
}

// For atexit, while this thread may still give the GIL up: those that are about to take it take it,
// and no other one does before the process ends.
void EndWaits() {
  ending_thread = PyThread_get_thread_ident();
  PyThreadState* const mine = PyEval_SaveThread();
  for (int i = 0; returning > 0 && i < kReturnTries; ++i) usleep(kReturnTryUs);
  PyEval_RestoreThread(mine);
}

}  // namespace

bool RaiseInterruption() {
  if (!interruption) return false;
  interruption->restore();
  interruption.reset();
  return true;
}

void BindWaiting(nb::module_& module) {
  main_thread = PyThread_get_thread_ident();
  module.def("end_waits", &EndWaits,
             "At the interpreter's end: from now on threads that wait sleep on.");
  session::SetWaitHooks({.begin = Begin, .end = End, .check = Check});
}

}  // namespace outboard::python
