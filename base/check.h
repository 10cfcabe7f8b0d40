// Checks and Status macros. OB_CHECK ends the process on a bug of our own, in release builds too.
// Errors that input can cause are an absl::Status instead, most often INVALID_ARGUMENT (a rule is
// broken) or RESOURCE_EXHAUSTED (a limit is hit).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what,
                                     const char* detail = "") {
  std::fprintf(stderr, "%s:%d: check failed: %s %s\n", file, line, what, detail);
  std::abort();
}
}  // namespace outboard::internal

#define OB_CHECK(condition)                                                              \
  do {                                                                                   \
    if (!(condition)) ::outboard::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (0)

#define OB_CHECK_OK(expression)                                                          \
  do {                                                                                   \
    const absl::Status ob_check_status = (expression);                                   \
    if (!ob_check_status.ok())                                                           \
      ::outboard::internal::CheckFailed(__FILE__, __LINE__, #expression,                 \
                                        std::string(ob_check_status.message()).c_str()); \
  } while (0)

#define OB_RETURN_IF_ERROR(expression)     \
  do {                                     \
    absl::Status ob_status = (expression); \
    if (!ob_status.ok()) return ob_status; \
  } while (0)

#define OB_CONCAT_INNER(a, b) a##b
#define OB_CONCAT(a, b) OB_CONCAT_INNER(a, b)

// OB_ASSIGN_OR_RETURN(auto value, Compute()) declares the value, or returns the Status from the
// calling function.
#define OB_ASSIGN_OR_RETURN(declaration, expression) \
  OB_ASSIGN_OR_RETURN_INNER(OB_CONCAT(ob_statusor_, __LINE__), declaration, expression)
#define OB_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                      \
  if (!temporary.ok()) return std::move(temporary).status();          \
  declaration = std::move(temporary).value()

namespace outboard {
// Returns the value of a computation that can fail only by a bug of our own.
template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok())
    internal::CheckFailed("", 0, "ValueOrDie", std::string(value.status().message()).c_str());
  return *std::move(value);
}
}  // namespace outboard
