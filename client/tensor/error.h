// The exception of the Tensor API: a Status and the line of the user's program that caused it.
//
// Codes: INVALID_ARGUMENT     shapes, dtypes or axes that do not fit (thrown at the operation), or
//                             a graph that the cloud rejects (thrown where a value is read)
//        OUT_OF_RANGE         an index outside of its axis; more indices than axes
//        RESOURCE_EXHAUSTED   a limit of compiler/ir/limits.h or of the cloud; the message names it
//        FAILED_PRECONDITION  an empty Tensor, a value of a session that was closed
//        UNAVAILABLE, UNAUTHENTICATED   no gateway, no worker, no key; see client/session/session.h
#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "client/tensor/at.h"

namespace outboard {

// What an INVALID_ARGUMENT is about, for languages that have an exception for each.
enum class Mistake {
  kArgument,
  kIndex,  // an axis that is not there, shapes that do not broadcast: Python's IndexError
  kCheck,  // arguments that do not fit each other, or a range: Python's AssertionError
};

class Error : public std::exception {
 public:
  Error(absl::Status status, At at, Mistake mistake = Mistake::kArgument);

  const absl::Status& status() const { return status_; }
  const At& location() const { return at_; }
  Mistake mistake() const { return mistake_; }
  // "train.cc:12: message [CODE]"
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  absl::Status status_;
  At at_;
  Mistake mistake_;
  std::string what_;
};

// Returns "train.cc:12".
std::string LineOf(const At& at);

// Throws Error with INVALID_ARGUMENT.
[[noreturn]] void ThrowInvalid(const At& at, const std::string& message,
                               Mistake mistake = Mistake::kArgument);
// Throws Error unless `status` is OK.
void ThrowIfError(const absl::Status& status, const At& at);

}  // namespace outboard
