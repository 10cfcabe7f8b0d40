// The border between what clients send and code that takes an exception for impossible: the
// standard library throws where memory ends, and hash tables where a key that must be there is not.
// What is thrown there becomes the error of one graph, of one session or of one call, and a line in
// the log; past it, it would end the gateway, which all accounts share. Threads: any.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "telemetry/log.h"

namespace outboard::gateway {

// Of errors that were exceptions. It stays in this process.
inline constexpr absl::string_view kThrownPayload = "outboard/thrown";

// True of an error of ErrorIfThrown that was an exception: the fault is the service's.
inline bool IsThrown(const absl::Status& status) {
  return status.GetPayload(kThrownPayload).has_value();
}

// Of work that cannot be gone on with, as an earlier part of it threw.
inline absl::Status AfterThrown(absl::string_view what) {
  absl::Status status = absl::InternalError(absl::StrCat(what, " met a bug of the service"));
  status.SetPayload(kThrownPayload, absl::Cord());
  return status;
}

// As ErrorIfThrown of a lack of memory, where there is none to say of what.
inline const absl::Status& NoMemoryAtAll() {
  static const absl::Status* const status = [] {
    auto* const made = new absl::Status(
        absl::ResourceExhaustedError("the service has less memory than it needs"));
    made->SetPayload(kThrownPayload, absl::Cord());
    return made;
  }();
  return *status;
}
inline const absl::Status& kNoMemoryAtAll = NoMemoryAtAll();  // made while there is memory

// Within a catch: logs what is being handled, and returns it as ErrorIfThrown does. Does not throw:
// where there is no memory for a line of the log, there is none.
inline absl::Status ErrorOfThrown(absl::string_view what,
                                  std::optional<int64_t> account = {}) noexcept {
  try {
    absl::Status status = AfterThrown(what);
    std::string message = "an exception of no known type";
    try {
      throw;
    } catch (const std::bad_alloc& e) {
      status =
          absl::ResourceExhaustedError(absl::StrCat(what, " needs more memory than there is"));
      status.SetPayload(kThrownPayload, absl::Cord());
      message = e.what();
    } catch (const std::exception& e) {
      message = e.what();
    } catch (...) {
    }
    telemetry::LogError("exception_caught",
                        {{"account", account}, {"what", what}, {"message", message}});
    return status;
  } catch (...) {
    return kNoMemoryAtAll;
  }
}

// What `work` returns: a Status, or a StatusOr. `what`: that it is about, such as "dividing a
// graph", for the log and for the error's text, which has nothing else of the exception.
// `account`: whose, for the log.
// Errors: those of `work`
//         RESOURCE_EXHAUSTED  it needs more memory than there is (IsThrown)
//         INTERNAL            it threw anything else (IsThrown)
template <typename Work>
auto ErrorIfThrown(absl::string_view what, Work&& work, std::optional<int64_t> account = {})
    -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    return ErrorOfThrown(what, account);
  }
}

}  // namespace outboard::gateway
