// Training steps as users write them, on several devices: how the work is shared, what is sent, and
// that small ones compute what one device does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "tests/compiler/random_values.h"
#include "tests/compiler/schedule_programs.h"
#include "tests/compiler/shard_check.h"

namespace outboard::test {
namespace {

using shard::Layout;
using shard::Mesh;
using shard::Spread;

const Program& ProgramNamed(const std::string& name) {
  for (const Program& program : Programs())
    if (program.name == name) return program;
  OB_CHECK(false && "no such program");
}

// A recorded step with what the gateway knows of it.
struct Recorded {
  Graph graph;
  const UOp* sink;
  shard::ShardOptions options;

  Recorded(const std::string& name, Size size, Spread spread) {
    std::vector<int64_t> donated;
    sink = RecordProgram(graph, ProgramNamed(name), size, &donated);
    options.spread = spread;
    options.state.resize(ParamsOf(sink).size());
    for (const int64_t slot : donated) options.state[slot] = true;
    options.results = {Layout{}};  // the loss is fetched
  }

  shard::ShardedGraph On(const Mesh& mesh, absl::Span<const Layout> layouts = {}) {
    auto sharded = ShardGraph(graph, sink, mesh, layouts, options);
    OB_CHECK_OK(sharded.status());
    return *std::move(sharded);
  }

  // The layouts of the inputs of a next step: those of the results that replace them.
  std::vector<Layout> Next(const shard::ShardedGraph& sharded) const {
    std::vector<Layout> layouts;
    for (const UOp* param : ParamsOf(sink)) {
      layouts.emplace_back();
      if (!options.state[ParamOf(param).slot()]) continue;
      for (size_t i = 0; i < sink->src.size(); ++i)
        if (sink->src[i]->dtype == param->dtype && sink->src[i]->shape == param->shape)
          layouts.back() = sharded.results[i];
    }
    return layouts;
  }
};

void Show(const std::string& what, const shard::ShardedGraph& sharded) {
  std::printf("%s: %s; %.3g operations, %.3g bytes, %zu collectives, %.3g s\n", what.c_str(),
              sharded.report.choice.c_str(), sharded.report.operations, sharded.report.bytes_sent,
              sharded.report.collectives.size(), sharded.report.predicted_s);
  if (std::getenv("OUTBOARD_SHOW") == nullptr) return;
  for (const shard::CollectiveUse& use : sharded.report.collectives)
    std::printf("    %s %lld bytes, node %lld: %s%s\n", std::string(Name(use.op)).c_str(),
                static_cast<long long>(use.bytes), static_cast<long long>(use.node),
                use.what.c_str(), use.hinted ? "" : " (no hint)");
}

TEST(ShardPrograms, ADataParallelStepSharesItsWork) {
  for (const char* name : {"mnist_step", "gpt_step_1_layer", "gpt_step_12_layers"}) {
    Recorded step(name, Size::kReal, Spread::kData);
    const double alone = step.On(Mesh{{1}}).report.operations;
    for (const int64_t devices : {2, 4}) {
      const shard::ShardedGraph sharded = step.On(Mesh{{devices}});
      Show(absl::StrCat(name, " on ", devices), sharded);
      EXPECT_LT(sharded.report.operations, 1.1 * alone / static_cast<double>(devices)) << name;
      EXPECT_TRUE(sharded.report.surprises().empty()) << name;
      // Each gradient is added once: what is sent is no more than twice the state that is trained.
      double trained = 0;
      for (const UOp* param : ParamsOf(step.sink))
        if (step.options.state[ParamOf(param).slot()])
          trained += static_cast<double>(ElementCount(param->shape)) * ByteWidth(param->dtype);
      EXPECT_LT(sharded.report.bytes_sent, trained) << name;  // a third of it are weights
    }
  }
}

}  // namespace
}  // namespace outboard::test
