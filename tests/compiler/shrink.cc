#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/random_graph.h"

namespace outboard::test {
namespace {

constexpr int kAttemptsMax = 3000;

std::string FirstWord(const std::string& text) { return text.substr(0, text.find(' ')); }

using Replacements = absl::flat_hash_map<const UOp*, const UOp*>;

// Copies graphs of a case into a new Graph, with outer PARAMs as BUFFERs so that slots can be
// renumbered.
class Copier {
 public:
  Copier(const RandomCase& from, Graph& to) : from_(from), to_(to) {}

  std::map<uint64_t, HostTensor> tensors;

  // `node` with some nodes replaced by others of its graph.
  const UOp* Copy(const UOp* root, const Replacements& replace = {}) {
    std::vector<std::pair<const UOp*, bool>> stack = {{root, false}};
    while (!stack.empty()) {
      const auto [node, ready] = stack.back();
      stack.pop_back();
      if (copies_.contains(node)) continue;
      const auto other = replace.find(node);
      if (other != replace.end()) {
        if (!ready) {
          stack.push_back({node, true});
          stack.push_back({other->second, false});
        } else {
          copies_[node] = copies_.at(other->second);
        }
      } else if (!ready) {
        stack.push_back({node, true});
        if (node->op == Op::kFunction) continue;
        for (size_t i = node->src.size(); i-- > 0;) stack.push_back({node->src[i], false});
      } else {
        copies_[node] = CopyNode(node);
      }
    }
    return copies_.at(root);
  }

  const UOp* Input(const HostTensor& tensor) {
    const uint64_t handle = 100000 + tensors.size();
    tensors[handle] = tensor;
    return BufferNode(to_, handle, tensor.dtype, Shape(tensor.dims.begin(), tensor.dims.end()));
  }

  // Writes calls out instead of copying them.
  void InlineCalls() { inline_calls_ = true; }

  // Makes copies of `node` be the input `tensor`.
  void Cut(const UOp* node, const HostTensor& tensor) { copies_[node] = Input(tensor); }

 private:
  const UOp* CopyNode(const UOp* node) {
    if (node->op == Op::kFunction) return inline_calls_ ? nullptr : CopyFunction(node);
    std::vector<const UOp*> sources;
    for (const UOp* source : node->src) sources.push_back(copies_.at(source));
    if (inline_calls_ && (node->op == Op::kCall || node->op == Op::kGetTuple))
      return Inline(node, sources);
    if (node->op != Op::kParam) return to_.MakeChecked(node->op, node->dtype, sources, node->arg);
    std::vector<int64_t> arg(node->arg.begin(), node->arg.end());
    const auto handle = static_cast<uint64_t>(arg[0]);
    tensors[handle] = from_.params[arg[0]];
    return to_.MakeChecked(Op::kBuffer, node->dtype, sources, arg);
  }

  // A CALL by its body, a GETTUPLE by the value. Recurses over the nesting of calls, which the
  // generator bounds.
  const UOp* Inline(const UOp* node, const std::vector<const UOp*>& sources) {
    if (node->op == Op::kGetTuple) return sources[0]->src[GetTupleOf(node).index()];
    const UOp* const function = node->src[0];
    absl::flat_hash_map<const UOp*, const UOp*> inside;
    for (size_t i = 1; i < sources.size(); ++i) inside[function->src[i]] = sources[i];
    for (const UOp* inner : PostOrder(function->src[0], /*into_functions=*/false)) {
      if (inside.contains(inner)) continue;
      std::vector<const UOp*> inner_sources;
      if (inner->op != Op::kFunction)
        for (const UOp* source : inner->src) inner_sources.push_back(inside.at(source));
      if (inner->op == Op::kFunction)
        inside[inner] = nullptr;
      else if (inner->op == Op::kCall || inner->op == Op::kGetTuple)
        inside[inner] = Inline(inner, inner_sources);
      else
        inside[inner] = to_.MakeChecked(inner->op, inner->dtype, inner_sources, inner->arg);
    }
    return inside.at(function->src[0]);
  }

  const UOp* CopyFunction(const UOp* function) {
    absl::flat_hash_map<const UOp*, const UOp*> inside;
    for (const UOp* node : PostOrder(function)) {
      std::vector<const UOp*> sources;
      for (const UOp* source : node->src) sources.push_back(inside.at(source));
      inside[node] = to_.MakeChecked(node->op, node->dtype, sources, node->arg);
    }
    return inside.at(function);
  }

  const RandomCase& from_;
  Graph& to_;
  bool inline_calls_ = false;
  absl::flat_hash_map<const UOp*, const UOp*> copies_;
};

RandomCase WithResults(const RandomCase& c, const std::vector<const UOp*>& results,
                       const Replacements& replace = {}, const UOp* cut = nullptr,
                       const HostTensor* value = nullptr) {
  Graph graph;
  Copier copier(c, graph);
  if (cut != nullptr) copier.Cut(cut, *value);
  std::vector<const UOp*> copies;
  for (const UOp* result : results) copies.push_back(copier.Copy(result, replace));
  return CaseOfBuffers(Sink(graph, copies), copier.tensors, c.bindings);
}

// Values of outer nodes, which become inputs in their stead. Empty where the interpreter refuses.
std::vector<HostTensor> ValuesOf(const RandomCase& c, const std::vector<const UOp*>& nodes) {
  if (nodes.empty()) return {};
  Graph graph;
  const UOp* const sink = graph.MakeChecked(Op::kSink, DType::kVoid, nodes);
  absl::StatusOr<std::vector<HostTensor>> values = Interpret(sink, c.params, c.bindings);
  return values.ok() ? *std::move(values) : std::vector<HostTensor>();
}

RandomCase WithoutCalls(const RandomCase& c) {
  Graph graph;
  Copier copier(c, graph);
  copier.InlineCalls();
  return CaseOfBuffers(copier.Copy(c.sink), copier.tensors, c.bindings);
}

// What shrinking makes less: calls weigh more than anything they could be written out to.
int64_t SizeOf(const RandomCase& c) {
  int64_t size = 0;
  for (const UOp* node : PostOrder(c.sink)) size += node->op == Op::kFunction ? 100000 : 1;
  return size + static_cast<int64_t>(c.sink->src.size());
}

// All cases that are one step smaller, made one after the other until `accept` takes one.
bool TrySmaller(const RandomCase& c, const std::function<bool(RandomCase)>& accept) {
  const std::vector<const UOp*> results(c.sink->src.begin(), c.sink->src.end());
  if (SizeOf(c) >= 100000 && accept(WithoutCalls(c))) return true;
  if (results.size() > 1) {
    for (const UOp* result : results)
      if (accept(WithResults(c, {result}))) return true;
  } else {
    for (const UOp* source : results[0]->src)
      if (source->dtype != DType::kVoid && accept(WithResults(c, {source}))) return true;
  }
  std::vector<const UOp*> nodes;
  for (const UOp* node : PostOrder(c.sink, /*into_functions=*/false))
    if (node->dtype != DType::kVoid && !node->src.empty()) nodes.push_back(node);
  std::reverse(nodes.begin(), nodes.end());
  const std::vector<HostTensor> values = ValuesOf(c, nodes);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool result = std::count(results.begin(), results.end(), nodes[i]);
    if (!result && IsStatic(nodes[i]->shape) &&
        accept(WithResults(c, results, {}, nodes[i], &values[i])))
      return true;
  }
  for (const UOp* node : nodes)
    for (const UOp* source : node->src)
      if (source->dtype == node->dtype && source->shape == node->shape &&
          accept(WithResults(c, results, {{node, source}})))
        return true;
  return false;
}

}  // namespace

RandomCase Shrink(RandomCase failing, const CaseCheck& check) {
  const std::string wanted = FirstWord(check(failing));
  int attempts = 0;
  bool smaller = true;
  while (smaller && attempts < kAttemptsMax) {
    RandomCase next;
    const int64_t now = SizeOf(failing);
    smaller = TrySmaller(failing, [&](RandomCase candidate) {
      if (++attempts > kAttemptsMax || SizeOf(candidate) >= now) return false;
      const std::string message = check(candidate);
      if (message.empty() || FirstWord(message) != wanted) return false;
      next = std::move(candidate);
      return true;
    });
    if (smaller) failing = std::move(next);
  }
  return failing;
}

std::string Describe(const RandomCase& c) {
  std::string text = GraphToString(c.sink);
  for (const Binding& b : c.bindings) absl::StrAppend(&text, "VAR ", b.slot, " = ", b.value, "\n");
  for (size_t i = 0; i < c.params.size(); ++i) {
    const HostTensor& p = c.params[i];
    absl::StrAppend(&text, "PARAM ", i, " ", std::string(Name(p.dtype)), "[",
                    absl::StrJoin(p.dims, ", "), "] = ");
    if (p.ElementCount() > 64)
      text += "(long)";
    else if (IsFloat(p.dtype))
      text += absl::StrJoin(FloatsOf(p), " ");
    else
      text += absl::StrJoin(IntsOf(p), " ");
    text += "\n";
  }
  const absl::StatusOr<EncodedGraph> encoded = EncodeGraph(c.sink);
  if (encoded.ok())
    absl::StrAppend(&text, "encoding ", absl::BytesToHexString(encoded->bytes), "\n");
  return text;
}

}  // namespace outboard::test
