// What a program asks of a session: plain values, checked when they become items (items.h).
//
// Handles are 64-bit names that the client makes (Session::NewHandle) and never reuses. Indices
// count from 0. The meaning of every field is that of the message of the same name in
// proto/cloud.proto.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/binding.h"

namespace outboard::transport {

using GraphHash = std::array<uint8_t, 32>;  // SHA-256 of the canonical encoding

// An output of one repetition is an input of the next.
struct Carry {
  uint32_t output = 0;  // index into outputs
  uint32_t input = 0;   // index into inputs
};

// A VAR that rises from repetition to repetition.
struct Cursor {
  uint32_t slot = 0;  // of a VAR that has a Binding, its value in repetition 0
  int64_t stride = 0;
};

struct RunRequest {
  GraphHash graph_id{};
  std::shared_ptr<const std::string> graph;  // the canonical encoding; sent once a session
  std::vector<uint64_t> inputs;              // handles, in the order of the PARAM slots
  std::vector<uint64_t> outputs;  // new handles (NewHandle), in the order of the SINK's sources
  std::vector<uint32_t> donate;   // indices into inputs; those handles end with this Run
  std::vector<uint32_t> fetch;    // indices into outputs to be sent back; Await (seq, index)
  std::vector<Binding> bindings;  // of every VAR
  uint32_t repeat = 1;            // times; the three below are of repeat > 1 only
  std::vector<Carry> carry;
  std::vector<uint32_t> stack;  // indices into outputs: one array of all repetitions
  std::optional<Cursor> cursor;
};

struct Value {
  uint32_t dtype = 0;  // the dtype's code in the graph encoding
  std::vector<int64_t> dims;
  std::string bytes;  // little-endian, row-major
};

// One array of a checkpoint.
struct SaveEntry {
  std::string name;
  uint64_t handle = 0;
};

// An array that is stored under a name, as PutBlob takes it.
struct StoredArray {
  std::string name;
  uint32_t dtype = 0;  // the dtype's code in the graph encoding
  std::vector<int64_t> dims;
  uint64_t total_bytes = 0;
  std::string root;  // 32 bytes
};

// What a Save came to.
struct Saved {
  uint64_t total_bytes = 0;  // of its arrays
  uint64_t sent_bytes = 0;   // of them, what was not stored already
};

}  // namespace outboard::transport
