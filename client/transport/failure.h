// Where a computation failed: what a status of Session::Await says beside its code and message, so
// that a client which knows the program can name the line.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace outboard::transport {

// An item and a node of it; what the node was on the user's side is the client's to know.
struct Failure {
  uint64_t seq = 0;              // of the item that failed first
  std::optional<uint32_t> node;  // of its graph, in the canonical order

  friend bool operator==(const Failure&, const Failure&) = default;
};

// `status` with the place; its code and message stay: an INVALID_ARGUMENT is one still, OK is OK.
absl::Status WithFailure(absl::Status status, const Failure& failure);
// nullopt for a status without one.
std::optional<Failure> FailureOf(const absl::Status& status);

}  // namespace outboard::transport
