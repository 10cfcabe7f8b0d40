#include "tests/bench/shard_figures.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/shard/shard.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/groups/group_runs.h"
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

// Of a Run whose graph is written: what the gateway does of it before it is sent to the ranks.
double LookupUs(const Step& step, const Mesh& mesh) {
  Graph graph;
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, step.bytes));
  gateway::GraphSharder sharder;
  gateway::GroupRuns runs(gateway::TenantId{1}, mesh, step.options.spread, &sharder);
  runs.LimitMemory(uint64_t{16} << 30);
  const std::string id = ValueOrDie(EncodeGraph(sink)).id.ToBytes();
  OB_CHECK_OK(runs.AddGraph(id, step.bytes));
  const std::vector<const UOp*> params = ParamsOf(sink);
  uint64_t seq = 0, handle = 0;
  std::vector<uint64_t> inputs;
  const auto pass = [&](proto::ClientFrame& frame) {
    std::vector<std::shared_ptr<const gateway::WrittenGraph>> written;
    OB_CHECK(ValueOrDie(runs.PlanFrame(/*may_write=*/true, frame)) ==
             gateway::GroupRuns::Planned::kAll);
    runs.Rewrite(frame, written);
    runs.Done(seq);
  };
  for (size_t i = 0; i < step.options.state.size(); ++i) {
    proto::ClientFrame frame;
    frame.add_items()->set_seq(++seq);
    frame.mutable_items(0)->mutable_put()->set_handle(inputs.emplace_back(++handle));
    pass(frame);
  }
  std::vector<double> us;
  for (int i = 0; i < 100; ++i) {
    proto::ClientFrame frame;
    frame.add_items()->set_seq(++seq);
    proto::Run& run = *frame.mutable_items(0)->mutable_run();
    run.set_graph_id(id);
    run.mutable_inputs()->Assign(inputs.begin(), inputs.end());
    std::vector<uint64_t> outputs;
    for (size_t r = 0; r < sink->src.size(); ++r) run.add_outputs(outputs.emplace_back(++handle));
    run.add_fetch(0);
    for (uint32_t slot = 0; slot < inputs.size(); ++slot) {
      if (!step.options.state[slot]) continue;
      run.add_donate(slot);
      // The next step reads what replaces it.
      const UOp* const param = params[slot];
      for (size_t r = 1; r < outputs.size(); ++r)
        if (outputs[r] != 0 && sink->src[r]->dtype == param->dtype &&
            sink->src[r]->shape == param->shape) {
          inputs[slot] = std::exchange(outputs[r], 0);
          break;
        }
    }
    const auto begin = std::chrono::steady_clock::now();
    pass(frame);
    us.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  us.erase(us.begin(), us.begin() + 10);  // those that write
  return Quantile(us, 0.5);
}

}  // namespace

void ShardFigures() {
  const char* const gpt = "gpt_step_12_layers";
  Report("shard_rewrite_ms_gpt", RewriteMs(Step(gpt, Spread::kAuto), Mesh{{8}}), "ms", "",
         "an unknown graph of 12 layers for 8 devices, spread auto, with decoding and encoding");
  Report("shard_lookup_us", LookupUs(Step(gpt, Spread::kAuto), Mesh{{8}}), "us", "",
         "a Run of the same graph, known: layouts of its inputs, look-up, its new name");
  Report("fsdp_state_ratio_8", StateRatio(Step(gpt, Spread::kFsdp), Mesh{{8}}), "ratio", "",
         "bytes of state that a device of 8 stores over those of one alone");
  const Step tensor(gpt, Spread::kTensor);
  Report("tp2_flops_ratio", Operations(tensor, Mesh{{2}}) / Operations(tensor, Mesh{{1}}), "ratio",
         "", "operations of a device of 2, weights cut, over those of one alone; counted");
}

}  // namespace outboard::bench
