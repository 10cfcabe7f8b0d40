#include "tests/bench/shard_figures.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/shard/shard.h"
#include "tests/bench/report.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

using shard::Layout;
using shard::Mesh;
using shard::Spread;

constexpr int kRepeats = 7;

struct Step {
  std::string bytes;
  shard::ShardOptions options;

  Step(const std::string& name, Spread spread) {
    Graph graph;
    std::vector<int64_t> donated;
    for (const test::Program& program : test::Programs()) {
      if (program.name != name) continue;
      const UOp* const sink = test::RecordProgram(graph, program, test::Size::kReal, &donated);
      bytes = ValueOrDie(EncodeGraph(sink)).bytes;
      options.state.resize(ParamsOf(sink).size());
    }
    OB_CHECK(!bytes.empty());
    for (const int64_t slot : donated) options.state[slot] = true;
    options.spread = spread;
    options.results = {Layout{}};  // the loss is fetched
  }
};

// As the gateway does it: from the bytes that a client sent to those that the ranks get.
double RewriteMs(const Step& step, const Mesh& mesh) {
  std::vector<double> ms;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Graph graph;
    const UOp* const sink = ValueOrDie(DecodeGraph(graph, step.bytes));
    const auto sharded = ValueOrDie(ShardGraph(graph, sink, mesh, {}, step.options));
    ValueOrDie(EncodeGraph(sharded.sink));
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  return Quantile(ms, 0.5);
}

double StateRatio(const Step& step, const Mesh& mesh) {
  Graph graph;
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, step.bytes));
  const auto sharded = ValueOrDie(ShardGraph(graph, sink, mesh, {}, step.options));
  double stored = 0, whole = 0;
  for (size_t i = 1; i < sink->src.size(); ++i) {  // after the loss: all that a step leaves
    const std::vector<int64_t> dims = StaticDims(sink->src[i]->shape);
    const auto bytes_of = [&](const std::vector<int64_t>& of) {
      double bytes = ByteWidth(sink->src[i]->dtype);
      for (const int64_t dim : of) bytes *= static_cast<double>(dim);
      return bytes;
    };
    stored += bytes_of(LocalDims(mesh, sharded.results[i], dims));
    whole += bytes_of(dims);
  }
  return stored / whole;
}

double Operations(const Step& step, const Mesh& mesh) {
  Graph graph;
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, step.bytes));
  return ValueOrDie(ShardGraph(graph, sink, mesh, {}, step.options)).report.operations;
}

}  // namespace

void ShardFigures() {
  const char* const gpt = "gpt_step_12_layers";
  Report("shard_rewrite_ms_gpt", RewriteMs(Step(gpt, Spread::kAuto), Mesh{{8}}), "ms", "",
         "an unknown graph of 12 layers for 8 devices, spread auto, with decoding and encoding");
  Report("fsdp_state_ratio_8", StateRatio(Step(gpt, Spread::kFsdp), Mesh{{8}}), "ratio", "",
         "bytes of state that a device of 8 stores over those of one alone");
  const Step tensor(gpt, Spread::kTensor);
  Report("tp2_flops_ratio", Operations(tensor, Mesh{{2}}) / Operations(tensor, Mesh{{1}}), "ratio",
         "", "operations of a device of 2, weights cut, over those of one alone; counted");
}

}  // namespace outboard::bench
