#include "compiler/ir/encoding.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/spec/walks.h"

namespace outboard {
namespace {

constexpr std::string_view kMagic = "OBG";
constexpr int kColumns = 6;

void PutVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

uint64_t ZigZag(int64_t v) {
  return static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63);
}
int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1); }

// Reads from a view and remembers the first failure.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint8_t Byte() {
    if (bytes_.empty()) return Fail();
    const auto byte = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }

  // Refuses what has a shorter spelling, so that every number has one.
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Byte();
      if (failed_) return 0;
      if ((shift == 63 && byte > 1) || (byte == 0 && shift > 0)) return Fail();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return Fail();
  }

  std::string_view Take(uint64_t count) {
    if (count > bytes_.size()) {
      Fail();
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  bool failed() const { return failed_; }
  bool empty() const { return bytes_.empty(); }

 private:
  uint8_t Fail() {
    failed_ = true;
    bytes_ = {};
    return 0;
  }

  std::string_view bytes_;
  bool failed_ = false;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("graph encoding: ", what));
}

// A PARAM that stands for a BUFFER may equal one of a FUNCTION; interned in a graph of their own
// they are one node.
absl::StatusOr<const UOp*> WithParams(Graph& graph, const std::vector<const UOp*>& nodes,
                                      const absl::flat_hash_map<uint64_t, int64_t>& slot_of) {
  absl::flat_hash_map<const UOp*, const UOp*> made;
  for (const UOp* node : nodes) {
    std::vector<const UOp*> src;
    for (const UOp* source : node->src) src.push_back(made.at(source));
    std::vector<int64_t> arg(node->arg.begin(), node->arg.end());
    const bool buffer = node->op == Op::kBuffer;
    if (buffer) arg[0] = slot_of.at(static_cast<uint64_t>(arg[0]));
    OB_ASSIGN_OR_RETURN(made[node],
                        graph.Make(buffer ? Op::kParam : node->op, node->dtype, src, arg));
  }
  return made.at(nodes.back());
}

}  // namespace

std::string GraphId::ToHex() const { return absl::BytesToHexString(ToBytes()); }

absl::StatusOr<GraphId> GraphIdFromBytes(std::string_view bytes) {
  GraphId id;
  if (bytes.size() != id.bytes.size())
    return absl::InvalidArgumentError(absl::StrCat("a graph id has 32 bytes, not ", bytes.size()));
  std::memcpy(id.bytes.data(), bytes.data(), bytes.size());
  return id;
}

GraphId IdOfEncoding(std::string_view encoding) {
  return GraphId{Sha256(encoding)};
}

absl::StatusOr<EncodedGraph> EncodeGraph(const UOp* root) {
  const std::vector<const UOp*> nodes = PostOrder(root);
  if (static_cast<int64_t>(nodes.size()) > limits::kGraphNodesMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        "a graph of ", nodes.size(), " nodes is over the limit of ", limits::kGraphNodesMax));

  EncodedGraph encoded;
  bool has_outer_param = false;
  // PARAMs of functions are no inputs of the graph: only what is reached outside of bodies counts.
  for (const UOp* node : PostOrder(root, /*into_functions=*/false)) {
    if (node->op == Op::kBuffer) encoded.buffers.push_back(static_cast<uint64_t>(node->arg[0]));
    has_outer_param |= node->op == Op::kParam;
  }
  if (has_outer_param && !encoded.buffers.empty())
    return absl::InvalidArgumentError("a graph reads both BUFFERs and PARAMs");
  absl::flat_hash_map<uint64_t, int64_t> slot_of;
  for (size_t i = 0; i < encoded.buffers.size(); ++i)
    if (!slot_of.emplace(encoded.buffers[i], i).second)
      return absl::InvalidArgumentError("two BUFFERs of one name differ in type or shape");
  const bool has_function = std::any_of(nodes.begin(), nodes.end(),
                                        [](const UOp* node) { return node->op == Op::kFunction; });
  if (has_function && !encoded.buffers.empty()) {
    Graph graph;
    OB_ASSIGN_OR_RETURN(const UOp* copy, WithParams(graph, nodes, slot_of));
    OB_ASSIGN_OR_RETURN(EncodedGraph of_copy, EncodeGraph(copy));
    of_copy.buffers = std::move(encoded.buffers);
    return of_copy;
  }

  std::string columns[kColumns];
  auto& [ops, dtypes, source_counts, sources, arg_counts, args] = columns;
  absl::flat_hash_map<const UOp*, uint64_t> place;
  place.reserve(nodes.size());
  for (const UOp* node : nodes) {
    const bool buffer = node->op == Op::kBuffer;
    const uint64_t here = place.size();
    place.emplace(node, here);
    ops.push_back(static_cast<char>(buffer ? Op::kParam : node->op));
    dtypes.push_back(static_cast<char>(node->dtype));
    PutVarint(source_counts, node->src.size());
    for (const UOp* source : node->src) PutVarint(sources, here - place.at(source));
    PutVarint(arg_counts, node->arg.size());
    for (size_t i = 0; i < node->arg.size(); ++i) {
      const bool slot = buffer && i == 0;
      PutVarint(args,
                ZigZag(slot ? slot_of.at(static_cast<uint64_t>(node->arg[0])) : node->arg[i]));
    }
  }

  encoded.bytes = kMagic;
  encoded.bytes.push_back(static_cast<char>(kGraphEncodingVersion));
  PutVarint(encoded.bytes, nodes.size());
  for (const std::string& column : columns) {
    PutVarint(encoded.bytes, column.size());
    encoded.bytes += column;
  }
  if (static_cast<int64_t>(encoded.bytes.size()) > limits::kGraphBytesMax)
    return absl::ResourceExhaustedError(absl::StrCat("a graph of ", encoded.bytes.size(),
                                                     " bytes is over the limit of ",
                                                     limits::kGraphBytesMax));
  encoded.id = IdOfEncoding(encoded.bytes);
  return encoded;
}

absl::StatusOr<const UOp*> DecodeGraph(Graph& graph, std::string_view bytes, Level level) {
  if (static_cast<int64_t>(bytes.size()) > limits::kGraphBytesMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        "a graph of ", bytes.size(), " bytes is over the limit of ", limits::kGraphBytesMax));
  Reader reader(bytes);
  if (reader.Take(kMagic.size()) != kMagic) return Malformed("does not start with its mark");
  if (const uint8_t version = reader.Byte(); version != kGraphEncodingVersion)
    return Malformed(absl::StrCat("version ", static_cast<int>(version),
                                  " is not supported; this is version ",
                                  static_cast<int>(kGraphEncodingVersion)));
  const uint64_t count = reader.Varint();
  if (count > static_cast<uint64_t>(limits::kGraphNodesMax))
    return absl::ResourceExhaustedError(
        absl::StrCat("a graph of ", count, " nodes is over the limit of ", limits::kGraphNodesMax));
  std::string_view column[kColumns];
  for (std::string_view& c : column) c = reader.Take(reader.Varint());
  if (reader.failed()) return Malformed("is cut short");
  if (!reader.empty()) return Malformed("has bytes after its end");
  if (count == 0) return Malformed("has no nodes");
  if (column[0].size() != count || column[1].size() != count)
    return Malformed("columns differ in length");

  const spec::LimitedWalks limited(graph);
  Reader source_counts(column[2]), sources(column[3]), arg_counts(column[4]), args(column[5]);
  std::vector<const UOp*> nodes;
  nodes.reserve(count);  // at most the bytes seen: one op byte a node
  std::vector<const UOp*> src;
  std::vector<int64_t> arg;
  for (uint64_t i = 0; i < count; ++i) {
    const auto broken = [&](absl::string_view what) {
      return Malformed(absl::StrCat("node ", i, ": ", what));
    };
    src.clear();
    arg.clear();
    const uint64_t source_count = source_counts.Varint();
    if (source_count > static_cast<uint64_t>(limits::kVariadicSourcesMax))
      return broken("too many sources");
    for (uint64_t j = 0; j < source_count; ++j) {
      const uint64_t distance = sources.Varint();
      if (distance == 0 || distance > i) return broken("a source is not an earlier node");
      src.push_back(nodes[i - distance]);
    }
    const uint64_t arg_count = arg_counts.Varint();
    if (arg_count > static_cast<uint64_t>(limits::kArgsMax)) return broken("too many arguments");
    for (uint64_t j = 0; j < arg_count; ++j) arg.push_back(UnZigZag(args.Varint()));
    if (source_counts.failed() || sources.failed() || arg_counts.failed() || args.failed())
      return broken("is cut short");
    const auto op = static_cast<Op>(static_cast<uint8_t>(column[0][i]));
    const auto dtype = static_cast<DType>(static_cast<uint8_t>(column[1][i]));
    absl::StatusOr<const UOp*> node = graph.Make(op, dtype, src, arg);
    if (!node.ok())
      return absl::Status(node.status().code(),
                          absl::StrCat("node ", i, ": ", node.status().message()));
    if ((*node)->dtype != dtype) return broken("its type is not the one it has");
    nodes.push_back(*node);
  }
  if (!source_counts.empty() || !sources.empty() || !arg_counts.empty() || !args.empty())
    return Malformed("columns have entries left over");

  const UOp* const root = nodes.back();
  // Order, duplicates and unreachable nodes in one comparison.
  if (PostOrder(root) != nodes)
    return Malformed("is not canonical: order, duplicate or unreachable node");
  OB_RETURN_IF_ERROR(VerifyGraph(root, level));
  return root;
}

}  // namespace outboard
