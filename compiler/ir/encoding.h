// The canonical encoding of a graph as bytes, and the id derived from it. This is the form in which
// graphs are sent and stored.
//
// Layout (integers are LEB128 varints, at most 10 bytes; signed ones zigzag):
//   "OBG" version:u8 · node count · six columns, each preceded by its length in bytes:
//   ops (u8) · dtypes (u8) · source counts · sources (index of the node - index of the source, >=
//   1) · argument counts · arguments (zigzag)
// Nodes are in PostOrder of the root, which comes last. There are no duplicates and no unreachable
// nodes, so equal graphs have equal bytes on every machine. Inside a client, BUFFERs become PARAMs
// in the order of first use.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard {

inline constexpr uint8_t kGraphEncodingVersion = 1;

// SHA-256 of a graph's canonical bytes.
struct GraphId {
  std::array<uint8_t, 32> bytes{};

  friend bool operator==(const GraphId&, const GraphId&) = default;
  friend auto operator<=>(const GraphId&, const GraphId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GraphId& id) {
    return H::combine(std::move(h), id.bytes);
  }
  std::string ToHex() const;
  std::string ToBytes() const { return std::string(bytes.begin(), bytes.end()); }
};

// Makes an id of 32 bytes. Errors: INVALID_ARGUMENT for any other length.
absl::StatusOr<GraphId> GraphIdFromBytes(std::string_view bytes);
GraphId IdOfEncoding(std::string_view encoding);

struct EncodedGraph {
  std::string bytes;
  GraphId id;
  std::vector<uint64_t>
      buffers;  // the BUFFER name of PARAM slot i; empty if the graph has no BUFFER
};

// Encodes the graph under `root`.
// Errors: INVALID_ARGUMENT    both BUFFERs and outer PARAMs
//         RESOURCE_EXHAUSTED  over limits::kGraphNodesMax nodes or kGraphBytesMax bytes
absl::StatusOr<EncodedGraph> EncodeGraph(const UOp* root);

// Decodes into `graph` through Graph::Make, verifies (VerifyGraph) at `level` and checks that the
// bytes are canonical. Never reads past `bytes`, and allocates in proportion to them.
// Errors: INVALID_ARGUMENT    malformed, not canonical, or a rule of spec.h broken; names the node
//         RESOURCE_EXHAUSTED  a limit, named
absl::StatusOr<const UOp*> DecodeGraph(Graph& graph, std::string_view bytes,
                                       Level level = Level::kTensor);

}  // namespace outboard
