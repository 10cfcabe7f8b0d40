// Which elementwise values a GPU stores (compiler/schedule/materialize/by_bytes.h): what a kernel
// computes from what it reads anyway is not stored, and a sum that many kernels read is added once.
// Schedules, and their results on the PTX machine against the reference interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dtype.h"
#include "compiler/schedule/materialize/by_bytes.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"

namespace outboard::test {
namespace {

using Kind = schedule::ScheduledBuffer::Kind;
using Results = std::vector<Tensor>;

// 72 KiB: values of fewer than 64 stay as they are.
constexpr int64_t kRows = 96, kSteps = 32, kColumns = 192;
constexpr double kTolerance = 0x1p-12;

Tensor Matrix(int64_t rows, int64_t columns) { return Input({rows, columns}, DType::kF32); }
// Of [kRows, kColumns]: each with operands of its own, in a kernel of its own.
Tensor Product() {
  return Matrix(kRows, kSteps).matmul(Matrix(kSteps, kColumns)) * (1.0 / kSteps);
}

schedule::Schedule OnProcessor(Graph& graph, const UOp* sink) {
  return ValueOrDie(schedule::MakeSchedule(graph, sink, Target{}));
}

// Temporaries of kRows times kColumns.
int64_t Arrays(const schedule::Schedule& schedule) {
  return std::count_if(schedule.buffers.begin(), schedule.buffers.end(), [](const auto& buffer) {
    return buffer.kind == Kind::kTemporary && buffer.elements == kRows * kColumns;
  });
}

// Kernels that read an input of so many elements.
int64_t Readers(const schedule::Schedule& schedule, int64_t elements) {
  return std::count_if(schedule.kernels.begin(), schedule.kernels.end(), [&](const auto& kernel) {
    return std::any_of(kernel.buffers.begin(), kernel.buffers.end(), [&](int b) {
      return schedule.buffers[b].kind == Kind::kInput && schedule.buffers[b].elements == elements;
    });
  });
}

int64_t ReadersOfMatrix(const schedule::Schedule& schedule) {
  return Readers(schedule, kRows * kColumns);
}

struct Case {
  std::function<Results()> program;
  std::function<int64_t(const schedule::Schedule&)> count;
  int64_t on_gpu = 0, on_processor = 0;
};

void Check(const Case& c) {
  Graph graph, own;
  const RecordedResults recorded = RecordResults(graph, c.program);
  const schedule::Schedule processor = OnProcessor(own, recorded.sink);
  EXPECT_EQ(c.count(processor), c.on_processor) << ScheduleToString(processor);
  for (const char* const arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(arch);
    const GpuSchedule gpu(recorded.sink, arch);
    EXPECT_EQ(c.count(gpu.schedule()), c.on_gpu) << gpu.ToString();
    gpu.ExpectAsInterpreted(recorded.sink, recorded.bindings, kTolerance);
    ExpectNoSpills(gpu, arch);
  }
}

TEST(StoredByBytes, AGeluAndItsGradient_ReadTheArgumentAlone) {
  // The argument, the result and its gradient; on processors the tanh, too.
  Check({[] {
           const Tensor x = Matrix(kRows, kSteps), up = Matrix(kSteps, kColumns),
                        down = Matrix(kColumns, kSteps);
           const Tensor y = (x.matmul(up) * (1.0 / kSteps)).gelu().matmul(down);
           Results results = {y};
           for (const Tensor& gradient : y.gradient({x, up, down}, Matrix(kRows, kSteps)))
             results.push_back(gradient);
           return results;
         },
         Arrays, 3, 4});
}

// A function of an argument that both its readers read.
Results ReadTwice(const std::function<Tensor(const Tensor&)>& function) {
  const Tensor argument = Product(), value = function(argument);
  return {(argument + value).matmul(Matrix(kColumns, kSteps)), Product() * value + argument};
}

TEST(StoredByBytes, AFunctionOfWhatIsRead_IsComputedWhereThatIsFasterThanMemory) {
  Check({[] { return ReadTwice([](const Tensor& x) { return x.tanh(); }); }, Arrays, 2, 3});
  Check({[] { return ReadTwice([](const Tensor& x) { return x.sin().sin(); }); }, Arrays, 3, 3});
}

// The choice alone, of graphs from strangers: it ends, with what was chosen until then.
TEST(StoredByBytes, WalksEndWhereStepsAreSpent) {
  Graph g;
  const UOp *const x = Param(g, 0, DType::kF32, Shape{kRows, kColumns}),
            *const first = g.MakeChecked(Op::kTanh, DType::kVoid, {x}),
            *const second = g.MakeChecked(Op::kSqrt, DType::kVoid, {x});
  std::vector<const UOp*> results;
  for (const UOp* value : {first, second}) {
    results.push_back(Add(g, x, value));
    results.push_back(Mul(g, x, value));
  }
  const std::vector<const UOp*> order = PostOrder(Sink(g, results));
  absl::flat_hash_set<const UOp*> fixed(results.begin(), results.end()), stored = fixed;
  stored.insert({first, second});
  const Target target = CudaTarget("sm_90a", 132);
  const auto chosen = [&](int64_t steps) {
    return schedule::ChooseByBytes({order, stored, fixed, {}, [](const UOp*) { return false; }},
                                   target.costs, steps)
        .compute.size();
  };
  EXPECT_EQ(chosen(schedule::kStepsByBytesMax), 2u);
  size_t before = 0;
  bool one = false;
  for (int64_t steps = 0; before < 2; ++steps) {
    ASSERT_LT(steps, 100);
    const size_t now = chosen(steps);
    EXPECT_GE(now, before) << steps;
    one |= now == 1;
    before = now;
  }
  EXPECT_TRUE(one);
  EXPECT_EQ(chosen(1), 0u);
}

// A sum of an input and of a product that is less its mean, with so many readers.
Results SumOfTwo(int readers) {
  const Tensor residual = Matrix(kRows, kColumns), product = Product();
  const Tensor sum = residual + (product - product.mean({1}, true));
  Results results;
  for (int i = 0; i < readers; ++i) results.push_back(Product() * sum);
  return results;
}

TEST(StoredByBytes, ASumThatManyRead_IsAddedOnce) {
  Check({[] { return SumOfTwo(2); }, ReadersOfMatrix, 2, 2});
  Check({[] { return SumOfTwo(4); }, ReadersOfMatrix, 1, 4});
}

TEST(StoredByBytes, ASumOfInputs_HasNoKernelOfItsOwnForFewReaders) {
  const auto of_inputs = [](int readers) {
    const Tensor sum = Matrix(kRows, kColumns) + Matrix(kRows, kColumns);
    Results results;
    for (int i = 0; i < readers; ++i) results.push_back(Product() * sum);
    return results;
  };
  Check({[&] { return of_inputs(3); }, ReadersOfMatrix, 3, 3});
  Check({[&] { return of_inputs(6); }, ReadersOfMatrix, 1, 6});
}

TEST(StoredByBytes, WhatIsGathered_IsNotGatheredAgain) {
  constexpr int64_t kTokens = 512;
  Check({[] {
           const Tensor positions = Matrix(kRows, kColumns),
                        embedded = Matrix(kTokens, kColumns).take(Input({kRows}, DType::kI32)),
                        value = (embedded + positions).tanh();
           return Results{Product() * value, Product() * value + positions};
         },
         [](const schedule::Schedule& schedule) { return Readers(schedule, kTokens * kColumns); },
         1, 1});
}

}  // namespace
}  // namespace outboard::test
