// The arguments of a session's calls: plain values, validated when they become items
// (client/session/core/outgoing_items.h, which names the errors: INVALID_ARGUMENT and others).
//
// Handles are 64-bit names that the client makes (Session::NewHandle) and never reuses. Indices
// count from 0. A field that has a namesake in the message of proto/cloud.proto means
// the same.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/binding.h"
#include "compiler/ir/dtype.h"

namespace outboard::session {

using GraphId = std::array<uint8_t, 32>;  // SHA-256 of the canonical encoding

// An output of one repetition is an input of the next.
struct Carry {
  uint32_t output = 0;  // index into outputs
  uint32_t input = 0;   // index into inputs
};

// A VAR that increases by `stride` per repetition.
struct Cursor {
  uint32_t slot = 0;  // of a VAR that has a Binding: its value in repetition 0
  int64_t stride = 0;
};

// The program lines of a Run, for its error messages, which may come much later. Threads:
// immutable.
class RunOrigin {
 public:
  virtual ~RunOrigin() = default;
  // Returns the line that sent the Run: "train.py:12".
  virtual std::string SentAt() const = 0;
  // Returns the line that wrote a node of its graph, by its index in the canonical order. The index
  // comes from the cloud: empty if there is no such node.
  virtual std::string WrittenAt(uint32_t node) const = 0;
};

// A kept array (KeepEntry) whose value is an output of the Run from now on.
struct Rekept {
  uint64_t id = 0;
  uint32_t output = 0;  // index into outputs
};

struct RunRequest {
  GraphId graph_id{};
  std::shared_ptr<const std::string> graph;  // the canonical encoding; sent once per session
  std::vector<uint64_t> inputs;              // handles, in the order of the PARAM slots
  std::vector<uint64_t> outputs;  // new handles (NewHandle), in the order of the SINK's sources
  std::vector<uint32_t> donate;   // indices into inputs; those handles end with this Run
  std::vector<uint32_t> fetch;    // indices into outputs to be sent back; Await (seq, index)
  std::vector<Binding> bindings;  // of every VAR
  uint32_t repeat = 1;            // times; the three fields below require repeat > 1
  std::vector<Carry> carry;
  std::vector<uint32_t> stack;  // indices into outputs: one array of all repetitions
  std::optional<Cursor> cursor;
  std::vector<Rekept> rekept;  // ids of another session, or of a Keep before the last, are ignored
  std::shared_ptr<const RunOrigin> origin;  // not sent; nullptr: failures name no line
};

// One array of a checkpoint.
struct SaveEntry {
  std::string name;
  uint64_t handle = 0;
};

// An array with a name by which another client of the session finds it.
struct KeepEntry {
  std::string name;
  uint64_t id = 0;  // unique in the process, not 0: RunRequest::rekept names it
  uint64_t handle = 0;
};

// An array that had a name when this client entered the session.
struct KeptArray {
  std::string name;
  uint64_t handle = 0;
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;
  absl::Status status;  // why there is no array: its computation failed
};

// An array stored under a name, in the form that PutBlob takes.
struct StoredArray {
  std::string name;
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;
  uint64_t total_bytes = 0;
  std::string root;  // 32 bytes
};

// The result of a Save.
struct Saved {
  uint64_t total_bytes = 0;  // of its arrays
  uint64_t sent_bytes = 0;   // bytes of those that were not stored already
};

}  // namespace outboard::session
