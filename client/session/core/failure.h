// The location of a failed computation: the fields that a status of Session::Await carries in
// addition to its code and message, so that a client that knows the program can name the line.
//
// The message contains all of it for people; the fields are for programs. Threads: pure functions.
// Errors: StatusOf and WithFailure keep the code that the cloud reported.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::transport {

// An item and a node of its graph; only the client can map the node to the user's program.
struct Failure {
  uint64_t seq = 0;              // of the item that failed first; 0 once the message names its line
  std::optional<uint32_t> node;  // of its graph, in the canonical order
  std::string op;                // of that node
  std::string worker;            // name of the worker that ran it
  bool retryable = false;        // a retry may succeed

  friend bool operator==(const Failure&, const Failure&) = default;
};

// Returns the cloud's error for an item: its code, and a message that ends with the location: "...
// (node 3, ADD; item 17; worker box-1; the same again may work)".
absl::Status StatusOf(const proto::Failed& failed);

// Returns `status` with `failure` attached. Code and message do not change: an INVALID_ARGUMENT
// remains one, and OK remains OK.
absl::Status WithFailure(absl::Status status, const Failure& failure);
// Returns nullopt for a status without a Failure.
std::optional<Failure> FailureOf(const absl::Status& status);

}  // namespace outboard::transport
