// Sums of many reductions, such as the norm of the gradients of all parameters: a kernel has no
// more loops than code generation takes (compiler/schedule/materialize.h). On every engine against
// the interpreter, and on the PTX machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/optimize/cost.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/schedule_check.h"

namespace outboard::test {
namespace {

using Nodes = std::vector<const UOp*>;

// `count` inputs of `shape`.
Nodes Inputs(Graph& g, int64_t count, const Shape& shape) {
  Nodes inputs;
  for (int64_t i = 0; i < count; ++i) inputs.push_back(Param(g, i, DType::kF32, shape));
  return inputs;
}

const UOp* SquaresOf(Graph& g, const UOp* x) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < x->rank(); ++i) axes.push_back(i);
  return Reshape(g, Reduce(g, Op::kAdd, Mul(g, x, x), axes), {});
}

Nodes SquaresOf(Graph& g, const Nodes& inputs) {
  Nodes sums;
  for (const UOp* x : inputs) sums.push_back(SquaresOf(g, x));
  return sums;
}

const UOp* ChainOf(Graph& g, const Nodes& terms) {
  const UOp* sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = Add(g, sum, terms[i]);
  return sum;
}

const UOp* TreeOf(Graph& g, Nodes terms) {
  while (terms.size() > 1) {
    for (size_t i = 0; i < terms.size() / 2; ++i)
      terms[i] = Add(g, terms[2 * i], terms[2 * i + 1]);
    if (terms.size() % 2 == 1) terms[terms.size() / 2] = terms.back();
    terms.resize((terms.size() + 1) / 2);
  }
  return terms[0];
}

int64_t MostLoops(const schedule::Schedule& schedule) {
  int64_t most = 0;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const Nodes nodes = PostOrder(kernel.ast);
    most = std::max<int64_t>(most, std::count_if(nodes.begin(), nodes.end(), [](const UOp* node) {
                               return IsRange(node, RangeKind::kReduce);
                             }));
  }
  return most;
}

// `kernels`: at most, of a GPU's schedule.
void Check(const UOp* sink, size_t kernels) {
  ExpectAsInterpreted(sink, 1e-4);
  if (testing::Test::HasFailure()) return;
  const GpuSchedule gpu(sink, "sm_80");
  EXPECT_LE(MostLoops(gpu.schedule()), optimize::kKernelLoopsMax);
  EXPECT_LE(gpu.compiled().size(), kernels) << gpu.ToString();
  gpu.ExpectAsInterpreted(sink, {}, 1e-5);
}

TEST(ManySums, AChain) {
  Graph g;
  Check(Sink(g, {ChainOf(g, SquaresOf(g, Inputs(g, 65, {100})))}), 4);
}

TEST(ManySums, ATree) {
  Graph g;
  Check(Sink(g, {TreeOf(g, SquaresOf(g, Inputs(g, 65, {100})))}), 4);
}

TEST(ManySums, OfSeveralAxesEach) {
  Graph g;
  // Loops over transposed axes do not become one.
  Nodes sums;
  const Nodes inputs = Inputs(g, 40, {6, 10});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const UOp* const x = inputs[i];
    const UOp* const other = inputs[(i + 1) % inputs.size()];
    const UOp* const turned = Reshape(g, Permute(g, other, {1, 0}), x->shape);
    sums.push_back(Reduce(g, Op::kAdd, Mul(g, x, turned), {0, 1}));
  }
  Check(Sink(g, {ChainOf(g, sums)}), 6);
}

TEST(ManySums, OfRows) {
  Graph g;
  Nodes sums;
  for (const UOp* x : Inputs(g, 70, {20, 30})) sums.push_back(Reduce(g, Op::kAdd, x, {1}));
  Check(Sink(g, {ChainOf(g, sums)}), 4);
}

// Large ones are in parts before they are added.
TEST(ManySums, OfWhatIsSplit) {
  Graph g;
  Nodes sums = SquaresOf(g, Inputs(g, 66, {1 << 19}));
  for (const Target& target : {TestTarget(), CudaTarget("sm_80", 108)}) {
    Graph own;
    const schedule::Schedule schedule =
        ValueOrDie(schedule::MakeSchedule(own, Sink(g, {ChainOf(g, sums)}), target));
    EXPECT_LE(MostLoops(schedule), optimize::kKernelLoopsMax);
  }
}

// All gradients are scaled by one number, which all of them decide.
TEST(ManySums, AClipOfGradients) {
  Graph g;
  Nodes gradients;
  for (int64_t i = 0; i < 100; ++i)
    gradients.push_back(
        Param(g, i, DType::kF32, i % 3 == 0 ? Shape{Dim(4), Dim(5 + i)} : Shape{Dim(7 + i)}));
  const auto number = [&](double value) { return ConstFloat(g, DType::kF32, value); };
  const UOp* const norm = Alu(g, Op::kSqrt, ChainOf(g, SquaresOf(g, gradients)));
  const UOp* const ratio =
      Alu(g, Op::kFDiv, number(2), Add(g, norm, number(1e-6)));
  const UOp* const scale = Where(g, Alu(g, Op::kCmpLt, ratio, number(1)), ratio, number(1));
  Nodes clipped;
  for (const UOp* x : gradients)
    clipped.push_back(
        Mul(g, x, Expand(g, Reshape(g, scale, Shape(x->rank(), Dim(1))), x->shape)));
  Check(Sink(g, clipped), 106);
}

}  // namespace
}  // namespace outboard::test
