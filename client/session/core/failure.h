// Where a computation failed: what a status of Session::Await says beside its code and message, so
// that a client which knows the program can name the line.
//
// The message names all of it for people; the fields are for programs. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::transport {

// An item and a node of it; what the node was on the user's side is the client's to know.
struct Failure {
  uint64_t seq = 0;              // of the item that failed first; 0 once the message names its line
  std::optional<uint32_t> node;  // of its graph, in the canonical order
  std::string op;                // of that node
  std::string worker;            // where it ran, by its name
  bool retryable = false;        // the same again may work

  friend bool operator==(const Failure&, const Failure&) = default;
};

// What the cloud says of an item: its code, and a message that ends with where it was:
// "... (node 3, ADD; item 17; worker box-1; the same again may work)".
absl::Status StatusOf(const proto::Failed& failed);

// `status` with the place; its code and message stay: an INVALID_ARGUMENT is one still, OK is OK.
absl::Status WithFailure(absl::Status status, const Failure& failure);
// nullopt for a status without one.
std::optional<Failure> FailureOf(const absl::Status& status);

}  // namespace outboard::transport
