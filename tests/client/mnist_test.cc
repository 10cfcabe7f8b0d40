// The example's training step: one Run, one graph, little time in the client, and it learns.
#include "client/examples/mnist.h"

#include <chrono>

#include "client/lazy/lazy_graph.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using MnistTest = ClientTest;

// Images of two classes, told apart by which half is bright.
void MakeData(int n, Tensor& images, Tensor& labels) {
  std::vector<uint8_t> pixels, classes;
  for (int i = 0; i < n; ++i) {
    for (int p = 0; p < 28 * 28; ++p)
      pixels.push_back(static_cast<uint8_t>((p < 392) == (i % 2 == 0) ? 200 + p % 50 : p % 60));
    classes.push_back(static_cast<uint8_t>(i % 2));
  }
  images = Tensor::from<uint8_t>(pixels, {n, 1, 28, 28});
  labels = Tensor::from<uint8_t>(classes);
}

TEST_F(MnistTest, AStepIsOneRunAndCostsTheClientLittle) {
  session->evaluate = false;
  Tensor images, labels;
  MakeData(20, images, labels);
  examples::MnistTrainer trainer(images, labels, 16);
  trainer.Step();
  Graph graph;
  const UOp* const sink = *DecodeGraph(graph, *session->last.graph);
  const auto schedule = schedule::MakeSchedule(graph, sink, HostTarget());
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  if (getenv("SHOW") != nullptr) std::printf("%s\n", ScheduleToString(*schedule).c_str());
  std::printf("nodes %zu  bytes %zu  inputs %zu  outputs %zu  kernels %zu\n",
              PostOrder(sink).size(), session->last.graph->size(), session->last.inputs.size(),
              session->last.outputs.size(), schedule->kernels.size());
  session->decode = false;
  constexpr int kSteps = 50;
  const size_t graphs = session->graph_count();
  const int64_t runs = session->runs, nodes = internal::LazyGraph::Current()->graph().node_count();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) trainer.Step();
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%.3f ms a step\n", ms / kSteps);
  EXPECT_EQ(session->runs, runs + kSteps);
  EXPECT_EQ(session->graph_count(), graphs);
  EXPECT_LT(internal::LazyGraph::Current()->graph().node_count(), 4 * nodes);
  EXPECT_LT(ms / kSteps, 20) << "ample, for a busy machine";
}

TEST_F(MnistTest, Learns) {
  Tensor images, labels;
  MakeData(4, images, labels);
  examples::MnistTrainer trainer(images, labels, 2, 0.01);
  const double first = trainer.Step().item(), second = trainer.Step().item();
  EXPECT_LT(second, first);
  const int64_t right = trainer.CountRight(images, labels, 2, 1);
  EXPECT_TRUE(right >= 0 && right <= 2);
}

}  // namespace
}  // namespace outboard
