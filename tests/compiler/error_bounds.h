// Bounds how far two correct engines may differ on a graph, by propagating the tolerances of
// docs/semantics.md through its nodes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

// Of all elements of a float value; integers are exact always and use `chaotic` alone.
struct ErrorInfo {
  double magnitude = 0;  // no |element| is larger; infinite where `special`
  double error = 0;      // no two engines differ by more; 0: the same bits, but for NaNs
  bool special = false;  // may hold infinities, NaNs, or numbers near the ends of the range
  bool product = false;  // is a MUL, seen through movements: an ADD may be contracted with it
  bool chaotic = false;  // an inexact value met a jump (TRUNC, a comparison ...): nothing is known
  bool exact() const { return error == 0 && !chaotic; }
};

// Info of an input.
ErrorInfo InfoOfTensor(const HostTensor& tensor);
// Info of `node`, which is neither PARAM, BUFFER, CALL, TUPLE nor GETTUPLE, from that of its own
// sources.
ErrorInfo InfoOfNode(const UOp* node, std::span<const ErrorInfo> sources);
// Infos of whole graphs, each node once.
class InfoTable {
 public:
  // For PARAMs and BUFFERs, before they are met.
  void Set(const UOp* input, const ErrorInfo& info) { known_[input] = {info}; }
  // One info, or as many as a TUPLE, a CALL of one or a SINK has values.
  const std::vector<ErrorInfo>& Of(const UOp* node);

 private:
  absl::flat_hash_map<const UOp*, std::vector<ErrorInfo>> known_;
};

// Of the results of `sink`, params[i] being PARAM slot i.
std::vector<ErrorInfo> InfosOfResults(const UOp* sink, std::span<const HostTensor> params);

// "" where `actual` is `expected` within `info`, else what differs.
std::string Difference(const HostTensor& expected, const HostTensor& actual, const ErrorInfo& info);

}  // namespace outboard::test
