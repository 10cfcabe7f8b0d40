// Attention in cases that one graph may mix, on an NVIDIA GPU: of two attentions one that no kernel
// computes without its scores, lengths that may be 0, gradients with VARs. Of keys of 8 bits:
// packed_attention_test.cc. All kernels of a schedule on the PTX machine, against the reference
// interpreter; and by every engine of processors, where those differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/dtype.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- of several attentions, one that has no plan

// Keys of another float than queries: no matrix unit takes both.
constexpr AttentionProgram kWithPlan{.heads = 2, .keys = 512};
constexpr AttentionProgram kWithout{.heads = 3, .keys = 500, .of_keys = DType::kF16};
// Prompts, whose scores are more than their matrices.
constexpr AttentionProgram kPromptWithPlan{.heads = 1, .queries = 72, .keys = 140};
constexpr AttentionProgram kPromptWithout{
    .heads = 2, .queries = 72, .keys = 140, .of_keys = DType::kF16};

Tensor AttentionOfInputs(const AttentionProgram& c, const SymInt& n) {
  return AttentionOf(c, Input({c.heads, c.queries, c.width}, c.dtype), n);
}

RecordedResults RecordTwo(Graph& graph, const AttentionProgram& a, const AttentionProgram& b,
                          int64_t length) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    const SymInt n = Variable("n", 1, std::min(a.keys, b.keys)).bind(length);
    return {AttentionOfInputs(a, n), AttentionOfInputs(b, n)};
  });
}

void CheckTwo(const AttentionProgram& a, const AttentionProgram& b,
              std::initializer_list<int64_t> lengths) {
  Graph graph;
  const GpuSchedule gpu(RecordTwo(graph, a, b, 1).sink, "sm_90a");
  EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
  const int64_t keys = std::min(a.keys, b.keys);
  EXPECT_FALSE(Stores(gpu, a.heads * a.queries * keys)) << gpu.ToString();
  EXPECT_TRUE(Stores(gpu, b.heads * b.queries * keys)) << gpu.ToString();
  const GpuSchedule kept(gpu.sink(), "sm_90a", schedule::ScorePolicy::kKeep);
  std::printf("%zu launches, %lld bytes stored; with all scores kept %zu, %lld\n",
              gpu.compiled().size(), static_cast<long long>(gpu.StoredBytes()),
              kept.compiled().size(), static_cast<long long>(kept.StoredBytes()));
  for (const int64_t length : lengths) {
    SCOPED_TRACE(length);
    Graph own;
    const RecordedResults bound = RecordTwo(own, a, b, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kAttentionTolerance);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(AttentionCases, ATokenWithoutAPlan_LeavesAnotherInParts) {
  CheckTwo(kWithPlan, kWithout, {1, 77, 500});
}

TEST(AttentionCases, APromptWithoutAPlan_LeavesAnotherWithoutScores) {
  CheckTwo(kPromptWithPlan, kPromptWithout, {1, 77, 140});
}

TEST(AttentionCases, APromptWithoutAPlan_LeavesATokenInParts) {
  AttentionProgram token = kWithPlan;
  token.keys = kPromptWithout.keys;
  CheckTwo(token, kPromptWithout, {1, 77});
}

// Two attentions of few queries: the keys of one are divided among blocks, those of the other are
// not. The second compiles as it does in a graph of its own: many blocks compute its scores, which
// are stored, and its sum over many keys is divided.
TEST(AttentionCases, ATokenThatIsNotInParts_IsAsItIsAlone) {
  for (const bool few_keys : {true, false}) {
    SCOPED_TRACE(few_keys ? "few keys" : "no softmax");
    const auto other = [&] {
      if (few_keys) return AttentionOfInputs({.heads = 3, .keys = 100, .least = -1}, 100);
      const Tensor q = Input({1, 1, 64}, DType::kBF16), k = Input({1, 2048, 64}, DType::kBF16),
                   v = Input({1, 2048, 64}, DType::kBF16);
      const Tensor x = q.matmul(k.transpose(), DType::kF32) * (1.0 / 64),
                   e = (x - x.max(-1, true)).exp();
      return e.cast(DType::kBF16).matmul(v, DType::kF32) / e.sum(-1, true);
    };
    const auto record = [&](Graph& graph, bool in_parts, bool has_other) {
      return RecordResults(graph, [&]() -> std::vector<Tensor> {
        const SymInt n = Variable("n", 1, 512).bind(300);
        std::vector<Tensor> results;
        if (in_parts) results.push_back(AttentionOfInputs(kWithPlan, n));
        if (has_other) results.push_back(other());
        return results;
      });
    };
    Graph graph, of_parts, of_other;
    const RecordedResults both = record(graph, true, true);
    const GpuSchedule gpu(both.sink, "sm_90a"), parts(record(of_parts, true, false).sink, "sm_90a"),
        alone(record(of_other, false, true).sink, "sm_90a");
    EXPECT_EQ(parts.compiled().size(), 2u) << parts.ToString();
    EXPECT_EQ(alone.KernelsWithScores(), 0) << alone.ToString();
    EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
    EXPECT_EQ(gpu.compiled().size(), parts.compiled().size() + alone.compiled().size())
        << gpu.ToString() << alone.ToString();
    EXPECT_EQ(gpu.StoredBytes(), parts.StoredBytes() + alone.StoredBytes());
    gpu.ExpectAsInterpreted(both.sink, both.bindings, kAttentionTolerance);
  }
}

// What reads a result twice is fused with the kernel that makes it, which then stores that alone.
TEST(AttentionCases, APromptWithoutAPlanUnderAnActivation_LeavesAnotherWithoutScores) {
  const auto record = [&](Graph& graph, int64_t length) {
    return RecordResults(graph, [&]() -> std::vector<Tensor> {
      const SymInt n = Variable("n", 1, 140).bind(length);
      const Tensor without = AttentionOfInputs(kPromptWithout, n);
      return {AttentionOfInputs(kPromptWithPlan, n), without * without.sigmoid()};
    });
  };
  Graph graph;
  const GpuSchedule gpu(record(graph, 1).sink, "sm_90a");
  EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
  EXPECT_FALSE(Stores(gpu, 72 * 140)) << gpu.ToString();
  for (const int64_t length : {3, 140}) {
    Graph own;
    const RecordedResults bound = record(own, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kAttentionTolerance);
  }
}

// Values that are hidden by what a score is, not by where it stands: no kernel has that score when
// it fetches them.
TEST(AttentionCases, ValuesThatScoresHide_AreAsInterpreted) {
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, [&]() -> std::vector<Tensor> {
    const Tensor q = Input({4, 1, 64}, DType::kBF16), k = Input({4, 256, 64}, DType::kBF16),
                 v = Input({4, 256, 64}, DType::kBF16),
                 scores = q.matmul(k.transpose(), DType::kF32) * (1.0 / 8);
    const Tensor values = (scores.cast(DType::kI64) < 1).transpose().where(v, 0.0);
    return {scores.softmax().cast(DType::kBF16).matmul(values, DType::kF32)};
  });
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  gpu.ExpectAsInterpreted(recorded.sink, {}, kAttentionTolerance);
}

// A weight that is multiplied by something of itself has no factor that all of it is divided by.
TEST(AttentionCases, WeightsTimesWhatIsMadeOfThem_AreAsInterpreted) {
  for (const int which : {0, 1, 2}) {
    SCOPED_TRACE(which);
    Graph graph;
    const RecordedResults recorded = RecordResults(graph, [&]() -> std::vector<Tensor> {
      const Tensor queries = Input({2, 64, 64}, DType::kBF16);
      const Tensor keys = Input({2, 128, 64}, DType::kBF16);
      const Tensor values = Input({2, 128, 64}, DType::kBF16);
      const Tensor w = queries.matmul(keys.transpose(), DType::kF32).softmax();
      const Tensor other = which == 0   ? w + 1.0
                           : which == 1 ? 1.0 - w
                                        : (w < 0.01).where(0.0, 1.0).cast(DType::kF32);
      return {(w * other).cast(DType::kBF16).matmul(values, DType::kF32)};
    });
    for (const auto scores : {schedule::ScorePolicy::kByCost, schedule::ScorePolicy::kRecompute})
      GpuSchedule(recorded.sink, "sm_90", scores)
          .ExpectAsInterpreted(recorded.sink, {}, kAttentionTolerance);
    if (HasFailure()) return;
  }
}

// One after the other, as layers are: what the first makes is the queries of the second.
TEST(AttentionCases, LayersAreAskedOneByOne) {
  for (const bool first_without : {false, true}) {
    SCOPED_TRACE(first_without ? "the first has none" : "the second has none");
    const auto record = [&](Graph& graph, int64_t length) {
      return RecordResults(graph, [&]() -> std::vector<Tensor> {
        const SymInt n = Variable("n", 1, 500).bind(length);
        AttentionProgram one = first_without ? kWithout : kWithPlan,
                      two = first_without ? kWithPlan : kWithout;
        one.heads = two.heads = 2;
        const Tensor q = AttentionOfInputs(one, n);
        return {AttentionOf(two, q.cast(two.dtype), n)};
      });
    };
    Graph graph;
    const GpuSchedule gpu(record(graph, 1).sink, "sm_90a");
    EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
    for (const int64_t length : {5, 500}) {
      Graph own;
      const RecordedResults bound = record(own, length);
      gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kAttentionTolerance);
    }
  }
}

// On processors each is decided by its cost: scores whose lengths are numbers are computed again,
// those that a VAR counts are kept.
TEST(AttentionCases, OnProcessorsALengthThatAVarCounts_LeavesAnotherWithoutScores) {
  const auto record = [&](Graph& graph, int64_t length) {
    return RecordResults(graph, [&]() -> std::vector<Tensor> {
      const SymInt n = Variable("n", 1, 136).bind(length);
      AttentionProgram a{.heads = 1, .queries = 136, .keys = 136, .width = 4};
      a.dtype = a.of_keys = DType::kF32;
      AttentionProgram b = a;
      b.heads = 2;
      a.least = -1;
      return {AttentionOfInputs(a, n), AttentionOfInputs(b, n)};
    });
  };
  Graph graph, g;
  const schedule::Schedule made =
      ValueOrDie(schedule::MakeSchedule(g, record(graph, 1).sink, HostTarget()));
  bool stores_a = false, stores_b = false;
  for (const schedule::ScheduledBuffer& buffer : made.buffers) {
    if (buffer.kind != schedule::ScheduledBuffer::Kind::kTemporary) continue;
    stores_a = stores_a || buffer.elements == 136 * 136;
    stores_b = stores_b || buffer.elements == 2 * 136 * 136;
  }
  EXPECT_FALSE(stores_a) << ScheduleToString(made);
  EXPECT_TRUE(stores_b) << ScheduleToString(made);
  for (const int64_t length : {1, 37}) {
    Graph own;
    const RecordedResults bound = record(own, length);
    ExpectSame(bound.sink, SmallInputs(bound.sink), bound.bindings);
  }
}

// ---- iterations without masks

int64_t Products(const GpuSchedule& gpu, size_t kernel) {
  int64_t count = 0;
  const std::string& ptx = gpu.compiled()[kernel].object;
  for (size_t at = ptx.find("mma.sync"); at != std::string::npos; at = ptx.find("mma.sync", at + 1))
    ++count;
  return count;
}

// A kernel of parts whose keys a VAR counts has its products twice: in iterations that are whole,
// where nothing is masked, and in those that the end cuts.
TEST(AttentionCases, PartsOfKeys_HaveWholeIterations) {
  const auto products = [](const AttentionProgram& c) {
    Graph graph;
    const GpuSchedule gpu(RecordCase(graph, c, c.keys).sink, "sm_90a");
    EXPECT_EQ(gpu.compiled().size(), 2u) << gpu.ToString();
    return Products(gpu, 0);
  };
  const int64_t once = products({.heads = 1, .keys = 16384, .least = -1});
  EXPECT_EQ(products({.heads = 1, .keys = 16384}), 2 * once);
  EXPECT_EQ(products({.heads = 1, .keys = 16001, .least = -1}), 2 * once);
  EXPECT_EQ(products({.heads = 1, .queries = 8, .keys = 16384, .causal = true}), 2 * once);
}

// ---- lengths that may be 0

TEST(AttentionCases, ALengthThatMayBe0_KeepsNoScores) {
  CheckCase({.least = 0}, {0, 1, 63, 512}, 2);
  if (HasFailure()) return;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    CheckCase(
        {.heads = 1, .queries = 80, .keys = 150, .dtype = dtype, .of_keys = dtype, .least = 0},
        {0, 1, 65, 150}, 1, "sm_80");
    if (HasFailure()) return;
  }
  CheckCase({.heads = 1, .queries = 130, .keys = 256, .least = 0}, {0, 1, 65, 256}, 1);
  CheckCase({.heads = 1, .queries = 130, .keys = 256, .causal = true, .least = 0}, {130, 256}, 1);
}

// ---- gradients with VARs

enum class Counts { kKeys, kPrompt, kBatch };

struct Trained {
  Counts counts = Counts::kKeys;
  DType dtype = DType::kBF16;
  bool causal = false;
  int64_t queries = 72, keys = 160, width = 64, least = 1;
};

RecordedResults RecordGradients(Graph& graph, const Trained& trained, int64_t length) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    constexpr int64_t kHeads = 2, kBatch = 3;
    const auto [counts, dtype, causal, queries, keys, width, least] = trained;
    const SymInt n = Variable("n", least, counts == Counts::kBatch ? kBatch : keys).bind(length);
    const bool prompt = counts == Counts::kPrompt;
    const int64_t batch = counts == Counts::kBatch ? kBatch : 1;
    const auto leaf = [&, counts = counts, width = width, dtype = dtype](int64_t rows, bool ends) {
      Tensor t = Tensor::zeros({batch, kHeads, rows, width}, dtype).state_();
      if (ends) t = t.slice(2, 0, n);
      if (counts == Counts::kBatch) t = t.slice(0, 0, n);
      return t;
    };
    const bool ends = counts != Counts::kBatch;
    const Tensor q = leaf(prompt ? keys : queries, prompt), k = leaf(keys, ends),
                 v = leaf(keys, ends);
    Tensor scores = q.matmul(k.transpose()).cast(DType::kF32) * (1.0 / 8);
    if (causal) {
      const SymInt rows = prompt ? n : SymInt(queries), columns = ends ? n : SymInt(keys);
      scores = (Tensor::arange(columns) > Tensor::arange(rows).reshape({rows, 1}))
                   .where(-kInfinity, scores);
    }
    const Tensor out = scores.softmax().cast(dtype).matmul(v);
    Tensor from = Tensor::zeros({batch, kHeads, prompt ? keys : queries, width}, dtype).state_();
    if (prompt) from = from.slice(2, 0, n);
    if (counts == Counts::kBatch) from = from.slice(0, 0, n);
    std::vector<Tensor> results = {out};
    for (const Tensor& gradient : out.gradient({q, k, v}, from)) results.push_back(gradient);
    return results;
  });
}

// Always, sums over keys are sums over columns (compiler/schedule/keys/gradient_sums.h).
constexpr auto kByCost = schedule::ScorePolicy::kByCost,
               kRecompute = schedule::ScorePolicy::kRecompute;

class GradientsWithVars
    : public testing::TestWithParam<std::tuple<Counts, DType, schedule::ScorePolicy>> {};

TEST_P(GradientsWithVars, KeepNoScores) {
  const auto [counts, dtype, policy] = GetParam();
  const Trained trained{.counts = counts, .dtype = dtype, .causal = counts != Counts::kKeys};
  Graph graph;
  const GpuSchedule gpu(RecordGradients(graph, trained, 1).sink, "sm_90a", policy);
  std::printf("%zu launches, %lld with scores, %lld bytes stored\n", gpu.compiled().size(),
              static_cast<long long>(gpu.KernelsWithScores()),
              static_cast<long long>(gpu.StoredBytes()));
  EXPECT_GT(gpu.KernelsWithScores(), 0);
  EXPECT_TRUE(gpu.ScoresAreByUnits()) << gpu.ToString();
  EXPECT_FALSE(Stores(gpu, 2 * 72 * 160) || Stores(gpu, 2 * 160 * 160) ||
               Stores(gpu, 3 * 2 * 72 * 160))
      << gpu.ToString();
  // Of one key gradients of scores are 0: by sums over columns but for errors (docs/semantics.md),
  // which no part of the largest number bounds.
  const int64_t fewest = policy == kRecompute ? 3 : 1;
  const std::vector<int64_t> lengths = counts == Counts::kBatch
                                           ? std::vector<int64_t>{2}
                                           : std::vector<int64_t>{fewest, 65, 160};
  for (const int64_t length : lengths) {
    SCOPED_TRACE(length);
    Graph own;
    const RecordedResults bound = RecordGradients(own, trained, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings,
                            dtype == DType::kF32 ? 0x1p-14 : 2 * kAttentionTolerance);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GradientsWithVars,
                         testing::Values(std::tuple{Counts::kKeys, DType::kBF16, kByCost},
                                         std::tuple{Counts::kKeys, DType::kF32, kByCost},
                                         std::tuple{Counts::kPrompt, DType::kBF16, kByCost},
                                         std::tuple{Counts::kPrompt, DType::kF32, kByCost},
                                         std::tuple{Counts::kBatch, DType::kBF16, kByCost},
                                         std::tuple{Counts::kKeys, DType::kBF16, kRecompute},
                                         std::tuple{Counts::kPrompt, DType::kF32, kRecompute},
                                         std::tuple{Counts::kBatch, DType::kBF16, kRecompute}));

TEST(AttentionCases, GradientsOfNoKeys) {
  Graph graph;
  const auto record = [&](Graph& g, int64_t length) {
    return RecordGradients(g, {.least = 0}, length);
  };
  const GpuSchedule gpu(record(graph, 1).sink, "sm_90a");
  EXPECT_FALSE(Stores(gpu, 2 * 72 * 160)) << gpu.ToString();
  for (const int64_t length : {0, 1, 130}) {
    SCOPED_TRACE(length);
    Graph own;
    const RecordedResults bound = record(own, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, 2 * kAttentionTolerance);
  }
}

// ---- biases

// Queries, keys and values with a bias each, and gradients of all of these.
RecordedResults RecordBiases(Graph& graph, DType dtype, int64_t tokens) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    constexpr int64_t kBatch = 2, kWidth = 64;
    std::vector<Tensor> leaves, made;
    for (int i = 0; i < 3; ++i) {
      const Tensor rows = Input({kBatch, tokens, kWidth}, dtype), bias = Input({kWidth}, dtype);
      leaves.insert(leaves.end(), {rows, bias});
      made.push_back(rows + bias);
    }
    const Tensor scores =
        (Tensor::arange(tokens) > Tensor::arange(tokens).reshape({tokens, 1}))
            .where(-kInfinity, made[0].matmul(made[1].transpose()).cast(DType::kF32) * (1.0 / 8));
    const Tensor out = scores.softmax().cast(dtype).matmul(made[2]);
    std::vector<Tensor> results = {out};
    for (const Tensor& gradient :
         out.gradient(leaves, Input({kBatch, tokens, kWidth}, dtype)))
      results.push_back(gradient);
    // Weights add up to 1 whatever is added to all keys: this gradient is 0, but for errors.
    results[4] = results[4] + 1;
    return results;
  });
}

int64_t StoresOfSums(const GpuSchedule& gpu) {
  int64_t count = 0;
  for (const schedule::ScheduledKernel& kernel : gpu.schedule().kernels)
    count += std::count_if(kernel.ast->src.begin(), kernel.ast->src.end(), SumsPoints);
  return count;
}

class GradientsOfBiases : public testing::TestWithParam<std::tuple<DType, const char*>> {};

// A bias' gradient is the sum over rows of what a kernel with scores stores, which adds 16 each.
TEST_P(GradientsOfBiases, AreAddedBesideThoseOfRows) {
  const auto [dtype, arch] = GetParam();
  Graph graph, other;
  const RecordedResults recorded = RecordBiases(graph, dtype, 144);
  const GpuSchedule gpu(recorded.sink, arch);
  EXPECT_EQ(StoresOfSums(gpu), 3) << gpu.ToString();
  EXPECT_TRUE(gpu.ScoresAreByUnits()) << gpu.ToString();
  ExpectNoSpills(gpu, arch);
  gpu.ExpectAsInterpreted(recorded.sink, {},
                          dtype == DType::kF32 ? 0x1p-14 : 2 * kAttentionTolerance);
  // Blocks of 16 rows that are of two passages.
  EXPECT_EQ(StoresOfSums(GpuSchedule(RecordBiases(other, dtype, 136).sink, arch)), 0);
}

INSTANTIATE_TEST_SUITE_P(Units, GradientsOfBiases,
                         testing::Values(std::tuple{DType::kBF16, "sm_90a"},
                                         std::tuple{DType::kBF16, "sm_80"},
                                         std::tuple{DType::kF32, "sm_90a"}));

TEST(AttentionCases, GradientsOfLengthsThatVarsCount_OnProcessors) {
  for (const Counts counts : {Counts::kKeys, Counts::kPrompt, Counts::kBatch})
    for (const int64_t length : {1, 3}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(counts) << " " << length);
      Graph graph;
      const RecordedResults bound = RecordGradients(graph,
                                             {.counts = counts,
                                              .dtype = DType::kF32,
                                              .causal = true,
                                              .queries = 6,
                                              .keys = 9,
                                              .width = 4},
                                             length);
      ExpectSame(bound.sink, SmallInputs(bound.sink), bound.bindings);
    }
}

}  // namespace
}  // namespace outboard::test
