// Values that are computed from packed weights and read more than once, before a product: kernels
// compute them again only where that takes little work (compiler/schedule/materialize.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

using Program = std::function<std::vector<Tensor>()>;

struct Counts {
  size_t kernels = 0;
  int64_t nodes_most = 0;  // of one kernel
  int64_t sines = 0;       // of all kernels
};

Counts CountsOf(const Program& program, const Target& target) {
  Graph recorded, graph;
  const auto schedule =
      ValueOrDie(schedule::MakeSchedule(graph, RecordResults(recorded, program).sink, target));
  Counts counts{.kernels = schedule.kernels.size()};
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const std::vector<const UOp*> nodes = PostOrder(kernel.ast);
    counts.nodes_most = std::max<int64_t>(counts.nodes_most, std::ssize(nodes));
    counts.sines +=
        std::count_if(nodes.begin(), nodes.end(), [](const UOp* n) { return n->op == Op::kSin; });
  }
  return counts;
}

void ExpectComputed(const Program& program) {
  Graph graph;
  const UOp* const sink = RecordResults(graph, program).sink;
  ExpectSame(sink, SmallInputs(sink));
}

Tensor Bytes(int64_t rows, int64_t columns) {
  return Input({rows, columns}, DType::kU8).cast(DType::kF32) * (1.0 / 256);
}

Tensor Sines(Tensor x, int count) {
  for (int i = 0; i < count; ++i) x = (x * 0.5).sin();
  return x;
}

// Rows times weights whose rows of `columns` are Hadamard transforms, by sums and differences of
// neighbours: each value of a stage is read at four places.
std::vector<Tensor> HadamardProduct(int64_t rows, int64_t columns, int stages) {
  Tensor x = Bytes(columns, columns);
  for (int64_t half = 1; stages > 0; --stages, half *= 2) {
    const Tensor pairs = x.reshape({columns, columns / (2 * half), 2, half});
    const Tensor a = pairs.slice(2, 0, 1), b = pairs.slice(2, 1, 2);
    x = Tensor::cat({a + b, a - b}, 2).reshape({columns, columns});
  }
  return {Input({rows, columns}, DType::kF32).matmul(x.transpose())};
}

TEST(SharedFactors, HadamardTransformOfPackedWeights_KernelsStaySmall) {
  const auto of = [](int stages) {
    return CountsOf([=] { return HadamardProduct(64, 512, stages); }, TestTarget());
  };
  const Counts few = of(5), many = of(9);
  EXPECT_LE(few.kernels, 6u);
  EXPECT_LE(many.kernels, 10u);
  EXPECT_LE(few.nodes_most, 200);
  EXPECT_LE(many.nodes_most, few.nodes_most + 20) << "a stage at a time";
  ExpectComputed([] { return HadamardProduct(64, 16, 4); });
}

// x + shifted x, some times over.
TEST(SharedFactors, SumsOfShiftedWeights_KernelsStaySmall) {
  const auto program = [](int64_t rows, int64_t columns, int steps) -> std::vector<Tensor> {
    Tensor x = Bytes(columns, columns);
    for (int64_t i = 0; i < steps; ++i)
      x = (x + x.slice(0, i + 1, columns).pad({{0, i + 1}, {0, 0}})) * 0.5 + 1;
    return {Input({rows, columns}, DType::kF32).matmul(x)};
  };
  const Counts counts = CountsOf([&] { return program(256, 512, 11); }, TestTarget());
  EXPECT_LE(counts.kernels, 12u);
  EXPECT_LE(counts.nodes_most, 400);
  ExpectComputed([&] { return program(64, 12, 5); });
}

TEST(SharedFactors, ValueOfSeveralProducts_IsComputedOnce) {
  const auto program = [](int64_t rows, int64_t columns, int products) {
    const Tensor z = Sines(Bytes(columns, columns), 4);
    std::vector<Tensor> results;
    for (int i = 0; i < products; ++i)
      results.push_back(Input({rows, columns}, DType::kF32)
                            .matmul((z * Input({1, columns}, DType::kF32)).transpose()));
    return results;
  };
  const Counts counts = CountsOf([&] { return program(200, 512, 8); }, TestTarget());
  EXPECT_EQ(counts.kernels, 9u);
  EXPECT_EQ(counts.sines, 4);
  ExpectComputed([&] { return program(16, 12, 3); });
}

TEST(SharedFactors, MovedValuesOfOneProduct_AreComputedOnce) {
  const auto program = [](int64_t rows, int64_t columns) -> std::vector<Tensor> {
    const Tensor z = Sines(Bytes(columns, columns), 4);
    return {Input({rows, columns}, DType::kF32)
                .matmul((z + z.flip({0}) + z.flip({1}) + z.transpose()).transpose())};
  };
  const Counts counts = CountsOf([&] { return program(200, 512); }, TestTarget());
  EXPECT_EQ(counts.kernels, 2u);
  EXPECT_EQ(counts.sines, 4);
  ExpectComputed([&] { return program(16, 12); });
}

// At one place, too, if it is much: a panel of weights is unpacked for each tile of rows.
TEST(SharedFactors, OperationsOfOneFactor_ComputeOnlyLittleAgain) {
  const auto program = [](int64_t rows, int64_t columns, int sines) -> std::vector<Tensor> {
    const Tensor z = Sines(Bytes(columns, columns), sines);
    return {Input({rows, columns}, DType::kF32).matmul((z * (z + 1)).transpose())};
  };
  EXPECT_EQ(CountsOf([&] { return program(200, 512, 0); }, TestTarget()).kernels, 1u);
  EXPECT_EQ(CountsOf([&] { return program(200, 512, 4); }, TestTarget()).kernels, 2u);
  EXPECT_EQ(CountsOf([&] { return program(1, 512, 4); }, TestTarget()).kernels, 1u) << "one row";
  ExpectComputed([&] { return program(16, 12, 2); });
}

// Of a GPU's products: the numbers that some bytes of each row are, shifted and added. The product
// reads a slice of them.
TEST(SharedFactors, ScalesThatAreSumsOfManyOthers_KernelsStaySmall) {
  const auto program = [](int64_t all, int64_t terms, int steps) -> std::vector<Tensor> {
    const Tensor weights = Input({all, terms}, DType::kU8);
    Tensor scale = weights.slice(1, 0, 1).cast(DType::kF32) * 0.01;
    for (int64_t i = 0, by = 1; i < steps; ++i, by *= 2)
      scale = (scale + scale.slice(0, by, all).pad({{0, by}, {0, 0}})) * 0.5;
    return {Input({2, terms}, DType::kF32)
                .matmul((weights.cast(DType::kF32) * scale).slice(0, 0, 32).transpose())};
  };
  const Counts counts = CountsOf([&] { return program(16384, 512, 9); },
                                 CudaTarget("sm_90", /*multiprocessors=*/132));
  EXPECT_LE(counts.kernels, 10u);
  EXPECT_LE(counts.nodes_most, 300);
  ExpectComputed([&] { return program(64, 8, 4); });
}

}  // namespace
}  // namespace outboard::test
