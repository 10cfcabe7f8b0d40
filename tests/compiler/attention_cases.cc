#include "tests/compiler/attention_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/program/online/plan.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/ptx_assembler.h"

namespace outboard::test {
namespace {

// So that scores, and values, of integers are no larger than those of floats.
constexpr double kSmall = 1.0 / 64;

// A matrix of `rows`, of int8 with a scale for each.
Tensor Scaled(const Dims& dims, const Dims& of_scale, DType dtype) {
  return (Input(dims, DType::kI8).cast(DType::kF32) * kSmall * Input(of_scale, DType::kF32))
      .cast(dtype);
}

// A matrix of keys or values as it lies in memory: [heads][keys][width], or transposed.
Tensor StepsOf(const AttentionProgram& c) {
  const Dims dims = c.transposed ? Dims{c.heads, c.width, c.keys} : Dims{c.heads, c.keys, c.width},
             of_scale = c.transposed ? Dims{c.heads, 1, c.keys} : Dims{c.heads, c.keys, 1};
  const auto from_zero = [&] { return Input(dims, DType::kU8).cast(DType::kF32) - 128; };
  switch (c.form) {
    case KeysForm::kAsTheyAre: return Input(dims, c.of_keys);
    case KeysForm::kScaledInF32: return Scaled(dims, of_scale, c.of_keys);
    case KeysForm::kScaledIn16:
      return Input(dims, DType::kI8).cast(c.of_keys) * kSmall * Input(of_scale, c.of_keys);
    case KeysForm::kByBlocks: {
      const Tensor blocks =
          Input({c.heads, c.keys, c.width / 32, 32}, DType::kI8).cast(DType::kF32) *
          Input({c.heads, c.keys, c.width / 32, 1}, DType::kF32);
      return (blocks * kSmall).reshape(dims).cast(c.of_keys);
    }
    case KeysForm::kFromZero:
      return (from_zero() * kSmall * Input(of_scale, DType::kF32)).cast(c.of_keys);
    case KeysForm::kFromZeroAlone: return from_zero().cast(c.of_keys);
    case KeysForm::kScaledAfter:
    case KeysForm::kScaledWeights: return Input(dims, DType::kI8).cast(c.of_keys);
  }
  return {};
}

}  // namespace

RecordedResults RecordResults(Graph& graph, const std::function<std::vector<Tensor>()>& program) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  realize(program());
  const RecordedResults recorded{ValueOrDie(DecodeGraph(graph, *session->last.graph)),
                                 session->last.bindings};
  SetSession(nullptr);
  return recorded;
}

Tensor Input(const Dims& dims, DType dtype) { return Tensor::zeros(dims, dtype).state_(); }

Tensor AttentionOf(const AttentionProgram& c, const Tensor& q, const SymInt& n) {
  const bool ends = c.least >= 0;
  const auto steps = [&] {
    Tensor matrix = StepsOf(c);
    if (ends) matrix = matrix.slice(c.transposed ? 2 : 1, 0, n);
    return c.transposed ? matrix.transpose() : matrix;
  };
  const auto scale = [&] {
    Tensor of_keys = Input({c.heads, 1, c.keys}, DType::kF32);
    if (ends) of_keys = of_keys.slice(2, 0, n);
    return of_keys * kSmall;
  };
  const Tensor k = steps(), v = steps();
  Tensor scores = q.matmul(k.transpose(), DType::kF32) *
                  (1 / std::sqrt(static_cast<double>(c.width)));
  if (c.form == KeysForm::kScaledAfter || c.form == KeysForm::kScaledWeights)
    scores = scores * scale();
  if (c.form == KeysForm::kFromZeroAlone) scores = scores * kSmall;
  if (c.causal)
    scores = (Tensor::arange(n) > Tensor::arange(c.queries).reshape({c.queries, 1}) + n - c.queries)
                 .where(-std::numeric_limits<double>::infinity(), scores);
  Tensor weights = scores.softmax();
  if (c.form == KeysForm::kScaledWeights) weights = weights * scale();
  return weights.cast(c.dtype).matmul(v, DType::kF32);
}

RecordedResults RecordCase(Graph& graph, const AttentionProgram& c, int64_t length) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    const SymInt n = Variable("n", std::max<int64_t>(c.least, 0), c.keys).bind(length);
    const Dims dims = {c.heads, c.queries, c.width};
    return {AttentionOf(c,
                        c.packed_queries ? Scaled(dims, {c.heads, c.queries, 1}, c.dtype)
                                         : Input(dims, c.dtype),
                        n)};
  });
}

void CheckCase(const AttentionProgram& c, std::initializer_list<int64_t> lengths, size_t launches,
               const char* arch) {
  SCOPED_TRACE(testing::Message() << c.heads << " heads, " << c.queries << " queries, " << c.keys
                                  << " keys, width " << c.width << ", form "
                                  << static_cast<int>(c.form)
                                  << (c.transposed ? ", transposed" : "")
                                  << (c.packed_queries ? ", packed queries " : " ") << arch);
  Graph graph;
  const RecordedResults recorded = RecordCase(graph, c, c.keys);
  const GpuSchedule gpu(recorded.sink, arch);
  if (launches > 0) {
    EXPECT_EQ(gpu.compiled().size(), launches) << gpu.ToString();
  }
  EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
  EXPECT_FALSE(Stores(gpu, c.heads * c.keys * c.width)) << "unpacked steps\n" << gpu.ToString();
  EXPECT_TRUE(gpu.ScoresAreByUnits()) << gpu.ToString();
  ExpectNoSpills(gpu, arch);
  const double tolerance = c.dtype == DType::kF32 ? 0x1p-14 : kAttentionTolerance;
  for (const int64_t length : lengths) {
    SCOPED_TRACE(testing::Message() << length << " bound");
    Graph own;
    const RecordedResults bound = RecordCase(own, c, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, tolerance);
    if (testing::Test::HasFailure()) return;
  }
}

void ExpectNoSpills(const GpuSchedule& gpu, const char* arch) {
  const std::string ptxas = FindPtxas();
  for (const CompiledKernel& kernel : gpu.compiled()) {
    if (ptxas.empty()) break;
    const auto assembled = AssembleKernel(ptxas, kernel.object, arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->stack_bytes + assembled->spill_bytes, 0) << kernel.symbol;
  }
}

bool Stores(const GpuSchedule& gpu, int64_t elements) {
  return std::any_of(gpu.schedule().buffers.begin(), gpu.schedule().buffers.end(),
                     [&](const schedule::ScheduledBuffer& buffer) {
                       return buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary &&
                              buffer.elements == elements;
                     });
}

std::vector<size_t> ProductsOfScores(const schedule::Schedule& schedule, const std::string& arch) {
  std::vector<size_t> products;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const codegen::LoopNest nest = ValueOrDie(codegen::AnalyzeKernel(kernel.ast));
    if (codegen::PanelsOf(nest, /*ends=*/true).empty()) continue;
    const auto plan =
        ValueOrDie(program::PlanOnline(nest, CudaTarget(arch, 132), /*opts=*/nullptr));
    products.push_back(0);
    if (!plan) continue;
    for (size_t pass = 0; pass < plan->passes.size(); ++pass)
      products.back() += plan->passes[pass].scores.size() + plan->ProductsOf(pass).size();
  }
  std::sort(products.begin(), products.end());
  return products;
}

std::vector<HostTensor> Widened(const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> wide;
  for (const HostTensor& input : inputs)
    wide.push_back(IsFloat(input.dtype) ? Floats(DType::kF64, input.dims, FloatsOf(input)) : input);
  return wide;
}

double LargestDifference(const HostTensor& a, const HostTensor& exact) {
  const std::vector<double> x = FloatsOf(a), y = FloatsOf(exact);
  double most = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::isnan(x[i]), std::isnan(y[i])) << i;
    if (std::isnan(x[i]) || std::isnan(y[i])) continue;
    most = std::max(most, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return largest == 0 ? most : most / largest;
}

}  // namespace outboard::test
