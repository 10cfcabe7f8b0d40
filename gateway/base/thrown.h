// The border between what clients send and code that takes an exception for impossible: the
// standard library throws where memory ends, and hash tables where a key that must be there is not.
// What is thrown there becomes the error of one graph, or of one session; past it, it would end the
// gateway, which all accounts share. Threads: any.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace outboard::gateway {

// What `work` returns: a Status, or a StatusOr. `what`: that it is about, such as "dividing the graph".
// Errors: those of `work`
//         RESOURCE_EXHAUSTED  it needs more memory than there is
//         INTERNAL            it threw anything else of the standard library
template <typename Work>
auto ErrorIfThrown(absl::string_view what, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, " needs more memory than there is"));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(what, " met a bug of the service: ", e.what()));
  }
}

}  // namespace outboard::gateway
