// The line of the user's program to which an operation is attributed: the nodes that it records
// (client/session/core/failure.h) and its errors.
//
//   Tensor layernorm(const Tensor& x, const Axes& axes, double eps, At at) {
//     const CallSite site(at);
//     const Tensor y = x - x.mean(axes, true);
//     return y * (y.square().mean(axes, true) + eps).rsqrt();
//   }
//
// A public function takes its caller's line as its last parameter (`At at = At::current()` in the
// header) and opens a CallSite with it (a NodeBuilder contains one). Public functions called inside
// take lines too, by default those of this library; an open CallSite has precedence over them. So
// function bodies are written like user code and pass no lines on.
//
// Invariants
//   1. A thread has at most one open line: that of its outermost CallSite. Nested ones are inert.
//   2. It ends with the scope that opened it, also by an exception.
//   3. No CallSite is open while a function of the user's runs (the step of a Jit or of repeat()),
//      so that the lines in it are its own.
//
// Costs: a thread-local flag, compared and set, and a line copied; no lock, no allocation.
// Threads: a CallSite belongs to the thread that made it. Errors: none of its own.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/tensor/at.h"
#include "client/tensor/error.h"

namespace outboard {

class CallSite {
 public:
  explicit CallSite(const At& at) : is_outermost_(!is_open_) {
    if (!is_outermost_) return;
    open_line_ = at;
    is_open_ = true;
  }
  ~CallSite() {
    if (is_outermost_) is_open_ = false;
  }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  // Returns the open line; `at` if none is open.
  static const At& Or(const At& at) { return is_open_ ? open_line_ : at; }
  // Returns the open line; an unknown one (":0") if none is open.
  static At Line() { return Or(At()); }

 private:
  static inline constinit thread_local At open_line_;
  static inline constinit thread_local bool is_open_ = false;

  const bool is_outermost_;
};

// With the open line: throws Error with INVALID_ARGUMENT; throws Error unless `status` is OK.
[[noreturn]] void ThrowInvalid(const std::string& message, Mistake mistake = Mistake::kArgument);
void ThrowIfError(const absl::Status& status);

}  // namespace outboard
