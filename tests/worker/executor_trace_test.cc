// What a traced session's Dones say, and that another's say nothing.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/support/client_items.h"
#include "tests/support/device.h"
#include "wire/limits.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/trace.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

using test::Item;

// What two Runs of a graph are answered with; the clock says 1, 2, 3 ... ns.
std::vector<proto::Done> DonesOfTwoRuns(bool traced) {
  InProcessCompiler compiler({.target = test::DeviceTarget()});
  const auto engine = MakeCompiledEngine(&compiler, test::MakeDevice(0, 1), {});
  uint64_t ns = 0;
  ExecutorOptions options;
  options.now_ns = [&ns] { return ++ns; };
  ExecutorCore core(engine.get(), options);
  Graph g;
  const UOp* const x = Param(g, 0, DType::kU8, {4});
  const EncodedGraph graph = *EncodeGraph(Sink(g, {Add(g, x, x)}));
  proto::ClientItem open;
  open.mutable_open()->set_trace(traced);
  std::vector<proto::Done> dones;
  const std::vector<std::vector<proto::ClientItem>> frames = {
      {open},
      {Item::Put(1, 1, "abcd"), Item::Graph(graph.id.ToBytes(), graph.bytes),
       Item::Run(2, graph.id.ToBytes(), 1, 2)},
      {Item::Run(3, graph.id.ToBytes(), 2, 3)},
  };
  for (const auto& items : frames) {
    proto::ClientFrame frame;
    frame.set_epoch(1);
    for (const proto::ClientItem& item : items) *frame.add_items() = item;
    for (const proto::ServerFrame& answer : core.On(std::move(frame)))
      for (const proto::ServerItem& item : answer.items()) {
        EXPECT_FALSE(item.has_failed()) << item.failed().message();
        if (item.has_done()) dones.push_back(item.done());
      }
  }
  return dones;
}

const proto::Span* Find(const std::vector<proto::Done>& dones, const std::string& name,
                        uint64_t seq) {
  for (const proto::Done& done : dones)
    for (const proto::Span& span : done.spans())
      if (span.seq() == seq && span.name().rfind(name, 0) == 0) return &span;
  return nullptr;
}

uint64_t End(const proto::Span& span) { return span.begin_ns() + span.duration_ns(); }

TEST(ExecutorTrace, KernelsLieWithinTheirRun) {
  const std::vector<proto::Done> dones = DonesOfTwoRuns(true);
  for (const uint64_t seq : {2, 3}) {
    const proto::Span* const run = Find(dones, "run", seq);
    const proto::Span* const kernel = Find(dones, "kernel 4", seq);
    ASSERT_TRUE(run != nullptr && kernel != nullptr) << seq;
    EXPECT_EQ(run->where(), proto::Span::EXECUTOR);
    EXPECT_GT(kernel->begin_ns(), run->begin_ns());
    EXPECT_LT(End(*kernel), End(*run));
    EXPECT_NE(kernel->detail().find("GFLOP/s"), std::string::npos);
  }
  // What happens once.
  const proto::Span* const plan = Find(dones, "plan", 2);
  const proto::Span* const compile = Find(dones, "compile", 2);
  ASSERT_TRUE(plan != nullptr && compile != nullptr);
  EXPECT_GT(compile->begin_ns(), plan->begin_ns());
  EXPECT_LT(End(*compile), End(*plan));
  EXPECT_EQ(compile->detail(), "1 of 1 kernels");
  EXPECT_EQ(Find(dones, "plan", 3), nullptr);
  EXPECT_NE(Find(dones, "put", 1), nullptr);
  EXPECT_NE(Find(dones, "read graph", 0), nullptr);
}

TEST(ExecutorTrace, ADoneSaysWhatCameBeforeItAndWhenItWent) {
  uint64_t passages = 0, last_sent_ns = 0;
  for (const proto::Done& done : DonesOfTwoRuns(true)) {
    if (done.values_size() > 0) continue;  // those go before
    ASSERT_EQ(done.passages_size(), 1);
    const proto::Passage& passage = done.passages(0);
    EXPECT_EQ(passage.seq(), done.through_seq());
    EXPECT_LT(passage.received_ns(), passage.sent_ns());
    EXPECT_GT(passage.received_ns(), last_sent_ns);
    last_sent_ns = passage.sent_ns();
    ++passages;
  }
  EXPECT_EQ(passages, 2u);
}

TEST(ExecutorTrace, NobodyIsToldWhoDidNotAsk) {
  for (const proto::Done& done : DonesOfTwoRuns(false)) {
    EXPECT_EQ(done.spans_size(), 0);
    EXPECT_EQ(done.passages_size(), 0);
    EXPECT_EQ(done.spans_dropped(), 0u);
  }
}

TEST(ExecutorTrace, IsBoundedAndSaysWhatIsMissing) {
  ExecutorTrace trace([] { return uint64_t{1}; });
  EXPECT_FALSE(trace.wants_done());
  for (size_t i = 0; i < ExecutorTrace::kSpansMax + 7; ++i)
    trace.AddKernel(std::string(5000, 'x'), std::string(5000, 'y'), 1, 0, 0);
  EXPECT_TRUE(trace.wants_done());
  proto::Done done;
  trace.Take(done);
  EXPECT_EQ(done.spans_size(), static_cast<int>(ExecutorTrace::kSpansMax));
  EXPECT_EQ(done.spans_dropped(), 7u);
  EXPECT_LT(done.ByteSizeLong(), wire::kFrameBytesMax);
  proto::Done next;
  trace.Take(next);
  EXPECT_EQ(next.spans_size(), 0);
  EXPECT_EQ(next.spans_dropped(), 0u);
}

}  // namespace
}  // namespace outboard::worker
