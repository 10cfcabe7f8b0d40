// Any bytes as a graph: refused, or canonical, verified, printable, differentiable and, if it is
// small, interpreted.
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "compiler/gradient/gradient.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/random_graph.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/seeds.h"

using namespace outboard;

namespace {

// Every way back from a result to an input: errors are fine, broken promises of ours end the
// process.
void Differentiate(Graph& graph, const UOp* root) {
  std::vector<const UOp*> wrt;
  for (const UOp* param : ParamsOf(root))
    if (IsFloat(param->dtype)) wrt.push_back(param);
  for (const UOp* result : root->src) {
    if (!IsFloat(result->dtype)) continue;
    const auto gradients = Gradient(graph, result, result, wrt);
    if (!gradients.ok() || gradients->empty()) continue;
    for (size_t i = 0; i < wrt.size(); ++i)
      OB_CHECK((*gradients)[i]->dtype == wrt[i]->dtype && (*gradients)[i]->shape == wrt[i]->shape);
  }
}

// On zeros and with each VAR at its least: errors are fine, results have the size that they claim.
void Evaluate(const UOp* root) {
  constexpr int64_t kParamElementsMax = 4096;
  const InterpretOptions small{.work_max = 1 << 16, .bytes_max = 1 << 20, .stored_elements = 256};
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(root)) {
    HostTensor tensor{param->dtype, {}, {}};
    int64_t elements = 1;
    for (const Dim& dim : param->shape) {
      OB_CHECK(dim.min() >= 0);
      tensor.dims.push_back(dim.min());
      if (dim.min() > kParamElementsMax || (elements *= dim.min()) > kParamElementsMax) return;
    }
    tensor.bytes.resize(elements * ByteWidth(param->dtype));
    params.push_back(std::move(tensor));
  }
  std::vector<Binding> bindings;
  for (const UOp* var : VarsOf(root)) bindings.push_back({VarOf(var).slot(), VarOf(var).min()});
  const auto results = Interpret(root, params, bindings, small);
  if (!results.ok()) return;
  OB_CHECK(results->size() == root->src.size());
  for (const HostTensor& result : *results)
    OB_CHECK(static_cast<int64_t>(result.bytes.size()) ==
             result.ElementCount() * ByteWidth(result.dtype));
}

void CheckBytes(std::string_view bytes) {
  for (const Level level : {Level::kTensor, Level::kKernel}) {
    Graph graph;
    const auto root = DecodeGraph(graph, bytes, level);
    if (!root.ok()) continue;
    OB_CHECK(ValueOrDie(EncodeGraph(*root)).bytes == bytes);
    GraphToString(*root);
    if (level != Level::kTensor) continue;
    Differentiate(graph, *root);
    Evaluate(*root);
  }
}

// Bytes as a list of nodes to make, which gets past the decoder more often than mutated encodings
// do: op, type, counts, then sources from the end of the list and small arguments. What is refused
// is left out.
const UOp* MakeGraph(Graph& graph, test::ByteSource bytes) {
  static constexpr int64_t kLarge[] = {kSymbolicDim,      INT64_MAX,        INT64_MIN + 1,
                                       int64_t{1} << 31,  int64_t{1} << 62, 0x3ff0000000000000,
                                       0x7ff8000000000000};
  std::vector<const UOp*> nodes, results;
  while (!bytes.empty() && nodes.size() < 200) {
    const auto op = static_cast<Op>(bytes.Byte() % kOpCodeMax);
    const auto dtype = static_cast<DType>(bytes.Byte() % kDTypeCount);
    const uint8_t counts = bytes.Byte();
    std::vector<const UOp*> src;
    std::vector<int64_t> arg;
    for (int i = 0; i < counts % 5 && !nodes.empty(); ++i)
      src.push_back(nodes[nodes.size() - 1 - bytes.Byte() % nodes.size()]);
    for (int i = 0; i < counts / 5 % 8; ++i) {
      const uint8_t value = bytes.Byte();
      arg.push_back(value < 200   ? value % 40
                    : value < 220 ? 200 - value
                                  : kLarge[value % std::size(kLarge)]);
    }
    auto made = graph.Make(op, dtype, src, arg);
    if (!made.ok()) made = graph.Make(op, DType::kVoid, src, arg);
    if (!made.ok()) continue;
    nodes.push_back(*made);
    if ((*made)->dtype != DType::kVoid) results.push_back(*made);
  }
  if (results.size() > 3) results.erase(results.begin(), results.end() - 3);
  return results.empty() ? nullptr : Sink(graph, results);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  std::vector<std::string> seeds;
  for (uint64_t seed = 1; seed <= 100; ++seed)
    seeds.push_back(ValueOrDie(EncodeGraph(test::MakeRandomCase(seed).sink)).bytes);
  test::WriteSeeds(*argc, *argv, seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckBytes(bytes);
  Graph graph;
  const UOp* const root = MakeGraph(graph, test::ByteSource(bytes));
  if (root == nullptr) return 0;
  GraphToString(root);
  Differentiate(graph, root);
  const auto encoded = EncodeGraph(root);
  if (VerifyGraph(root, Level::kTensor).ok()) {
    OB_CHECK(encoded.ok());
    Graph other;
    OB_CHECK_OK(DecodeGraph(other, encoded->bytes).status());
  }
  if (encoded.ok()) CheckBytes(encoded->bytes);
  return 0;
}
