// Attention in cases that one graph may mix, on an NVIDIA GPU: of two attentions one that no kernel
// computes without its scores, keys and values of 8 bits, lengths that may be 0, gradients with
// VARs. All kernels of a schedule on the PTX machine, against the reference interpreter; and by
// every engine of processors, where those differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 0x1p-6;  // weights of 16 bits are rounded to 2^-9 of themselves

struct Recorded {
  const UOp* sink = nullptr;
  std::vector<Binding> bindings;
};

// Records what `program` returns.
Recorded Record(Graph& graph, const std::function<std::vector<Tensor>()>& program) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  realize(program());
  const Recorded recorded{ValueOrDie(DecodeGraph(graph, *session->last.graph)),
                          session->last.bindings};
  SetSession(nullptr);
  return recorded;
}

Tensor Input(const Dims& dims, DType dtype) { return Tensor::zeros(dims, dtype).state_(); }

// Of f32.
Tensor ScoresOf(const Tensor& q, const Tensor& k) {
  return q.matmul(k.transpose(), DType::kF32) * (1 / std::sqrt(static_cast<double>(q.shape(-1))));
}

// How keys and values lie in memory, and become numbers of 16 bits.
enum class Kept {
  kAsTheyAre,
  kScaledInF32,  // int8, times a scale of f32 for each key, rounded
  kScaledIn16,   // the same in 16 bits
  kByBlocks,     // int8, a scale for every 32 columns
  kFromZero,     // uint8 less its zero, times a scale
  kScaledAfter,  // int8; keys' scales multiply scores
};

struct Case {
  int64_t heads = 4, queries = 1, keys = 1024, width = 64;
  DType dtype = DType::kBF16, of_keys = DType::kBF16;
  Kept kept = Kept::kAsTheyAre;
  bool causal = false;
  int64_t least = 1;  // that the VAR may be; -1: there is none
};

// A matrix of keys or values: [heads][keys][width].
Tensor Steps(const Case& c) {
  const Dims dims = {c.heads, c.keys, c.width}, of_scale = {c.heads, c.keys, 1};
  constexpr double kSmall = 1.0 / 64;  // so that scores are no larger than those of floats
  switch (c.kept) {
    case Kept::kAsTheyAre: return Input(dims, c.of_keys);
    case Kept::kScaledInF32:
      return (Input(dims, DType::kI8).cast(DType::kF32) * kSmall * Input(of_scale, DType::kF32))
          .cast(c.of_keys);
    case Kept::kScaledIn16:
      return Input(dims, DType::kI8).cast(c.of_keys) * kSmall * Input(of_scale, c.of_keys);
    case Kept::kByBlocks: {
      const Tensor blocks =
          Input({c.heads, c.keys, c.width / 32, 32}, DType::kI8).cast(DType::kF32) *
          Input({c.heads, c.keys, c.width / 32, 1}, DType::kF32);
      return (blocks * kSmall).reshape(dims).cast(c.of_keys);
    }
    case Kept::kFromZero:
      return ((Input(dims, DType::kU8).cast(DType::kF32) - 128) * kSmall *
              Input(of_scale, DType::kF32))
          .cast(c.of_keys);
    case Kept::kScaledAfter: return Input(dims, DType::kI8).cast(c.of_keys);
  }
  return {};
}

Tensor Attention(const Case& c, const Tensor& q, const SymInt& n) {
  Tensor k = Steps(c), v = Steps(c);
  if (c.least >= 0) {
    k = k.slice(1, 0, n);
    v = v.slice(1, 0, n);
  }
  Tensor scores = ScoresOf(q, k);
  if (c.kept == Kept::kScaledAfter) {
    Tensor scale = Input({c.heads, 1, c.keys}, DType::kF32);
    if (c.least >= 0) scale = scale.slice(2, 0, n);
    scores = scores * scale * (1.0 / 64);
  }
  if (c.causal) {
    const int64_t queries = c.queries;
    scores = (Tensor::arange(n) > Tensor::arange(queries).reshape({queries, 1}) + n - queries)
                 .where(-kInfinity, scores);
  }
  return scores.softmax().cast(c.dtype).matmul(v, DType::kF32);
}

Recorded RecordCase(Graph& graph, const Case& c, int64_t length) {
  return Record(graph, [&]() -> std::vector<Tensor> {
    const SymInt n = Variable("n", std::max<int64_t>(c.least, 0), c.keys).bind(length);
    return {Attention(c, Input({c.heads, c.queries, c.width}, c.dtype), n)};
  });
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

void CheckCase(const Case& c, std::initializer_list<int64_t> lengths, size_t launches,
               const char* arch = "sm_90a") {
  SCOPED_TRACE(testing::Message() << c.heads << " heads, " << c.queries << " queries, " << c.keys
                                  << " keys, width " << c.width << ", kept "
                                  << static_cast<int>(c.kept) << " " << arch);
  Graph graph;
  const Recorded recorded = RecordCase(graph, c, c.keys);
  const GpuSchedule gpu(recorded.sink, arch);
  if (launches > 0) {
    EXPECT_EQ(gpu.compiled().size(), launches) << gpu.ToString();
  }
  EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
  EXPECT_TRUE(std::any_of(gpu.compiled().begin(), gpu.compiled().end(), [](const auto& kernel) {
    return absl::StrContains(kernel.object, "mma.sync") ||
           absl::StrContains(kernel.object, "wgmma.mma_async");
  }));
  ExpectNoSpills(gpu, arch);
  for (const int64_t length : lengths) {
    SCOPED_TRACE(testing::Message() << length << " bound");
    Graph own;
    const Recorded bound = RecordCase(own, c, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kTolerance);
    if (testing::Test::HasFailure()) return;
  }
}

// ---- of several attentions, one that has no plan

// Keys of another float than queries: no matrix unit takes both.
constexpr Case kWithPlan{.heads = 3, .keys = 1024};
constexpr Case kWithout{.heads = 5, .keys = 1000, .of_keys = DType::kF16};

Recorded RecordTwo(Graph& graph, const Case& a, const Case& b, int64_t length) {
  return Record(graph, [&]() -> std::vector<Tensor> {
    const SymInt n = Variable("n", 1, std::min(a.keys, b.keys)).bind(length);
    return {Attention(a, Input({a.heads, a.queries, a.width}, a.dtype), n),
            Attention(b, Input({b.heads, b.queries, b.width}, b.dtype), n)};
  });
}

bool Stores(const GpuSchedule& gpu, int64_t elements) {
  return std::any_of(gpu.schedule().buffers.begin(), gpu.schedule().buffers.end(),
                     [&](const schedule::ScheduledBuffer& buffer) {
                       return buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary &&
                              buffer.elements == elements;
                     });
}

void CheckTwo(Case a, Case b, std::initializer_list<int64_t> lengths) {
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
    const Recorded bound = RecordTwo(own, a, b, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kTolerance);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(AttentionCases, ATokenWithoutAPlan_LeavesAnotherInParts) {
  CheckTwo(kWithPlan, kWithout, {1, 77, 1000});
}

TEST(AttentionCases, APromptWithoutAPlan_LeavesAnotherWithoutScores) {
  Case a = kWithPlan, b = kWithout;
  a.queries = b.queries = 80;
  a.keys = b.keys = 200;
  CheckTwo(a, b, {1, 77, 200});
}

TEST(AttentionCases, APromptWithoutAPlan_LeavesATokenInParts) {
  Case b = kWithout;
  b.queries = 80;
  CheckTwo(kWithPlan, b, {1, 300});
}

// What reads a result twice is fused with the kernel that makes it, which then stores that alone.
TEST(AttentionCases, APromptWithoutAPlanUnderAnActivation_LeavesAnotherWithoutScores) {
  const auto record = [&](Graph& graph, int64_t length) {
    return Record(graph, [&]() -> std::vector<Tensor> {
      const SymInt n = Variable("n", 1, 200).bind(length);
      Case a = kWithPlan, b = kWithout;
      a.queries = b.queries = 80;
      a.keys = b.keys = 200;
      const Tensor with = Attention(a, Input({a.heads, 80, 64}, a.dtype), n),
                   without = Attention(b, Input({b.heads, 80, 64}, b.dtype), n);
      return {with, without * without.sigmoid()};
    });
  };
  Graph graph;
  const GpuSchedule gpu(record(graph, 1).sink, "sm_90a");
  EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
  EXPECT_FALSE(Stores(gpu, kWithPlan.heads * 80 * 200)) << gpu.ToString();
  for (const int64_t length : {3, 200}) {
    Graph own;
    const Recorded bound = record(own, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kTolerance);
  }
}

// Values that are hidden by what a score is, not by where it stands: no kernel has that score when
// it fetches them.
TEST(AttentionCases, ValuesThatScoresHide_AreAsInterpreted) {
  Graph graph;
  const Recorded recorded = Record(graph, [&]() -> std::vector<Tensor> {
    const Tensor q = Input({4, 1, 64}, DType::kBF16), k = Input({4, 256, 64}, DType::kBF16),
                 v = Input({4, 256, 64}, DType::kBF16), scores = ScoresOf(q, k);
    const Tensor values = (scores.cast(DType::kI64) < 1).transpose().where(v, 0.0);
    return {scores.softmax().cast(DType::kBF16).matmul(values, DType::kF32)};
  });
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  gpu.ExpectAsInterpreted(recorded.sink, {}, kTolerance);
}

// One after the other, as layers are: what the first makes is the queries of the second.
TEST(AttentionCases, LayersAreAskedOneByOne) {
  for (const bool first_without : {false, true}) {
    SCOPED_TRACE(first_without ? "the first has none" : "the second has none");
    const auto record = [&](Graph& graph, int64_t length) {
      return Record(graph, [&]() -> std::vector<Tensor> {
        const SymInt n = Variable("n", 1, 1000).bind(length);
        Case one = first_without ? kWithout : kWithPlan, two = first_without ? kWithPlan : kWithout;
        one.heads = two.heads = 4;
        const Tensor q = Attention(one, Input({4, 1, 64}, one.dtype), n);
        return {Attention(two, q.cast(two.dtype), n)};
      });
    };
    Graph graph;
    const GpuSchedule gpu(record(graph, 1).sink, "sm_90a");
    EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
    for (const int64_t length : {5, 1000}) {
      Graph own;
      const Recorded bound = record(own, length);
      gpu.ExpectAsInterpreted(bound.sink, bound.bindings, kTolerance);
    }
  }
}

// On processors each is decided by its cost: scores whose lengths are numbers are computed again,
// those that a VAR counts are kept.
TEST(AttentionCases, OnProcessorsALengthThatAVarCounts_LeavesAnotherWithoutScores) {
  const auto record = [&](Graph& graph, int64_t length) {
    return Record(graph, [&]() -> std::vector<Tensor> {
      const SymInt n = Variable("n", 1, 136).bind(length);
      Case a{.heads = 1, .queries = 136, .keys = 136, .width = 4};
      a.dtype = a.of_keys = DType::kF32;
      Case b = a;
      b.heads = 2;
      a.least = -1;
      return {Attention(a, Input({1, 136, 4}, DType::kF32), n),
              Attention(b, Input({2, 136, 4}, DType::kF32), n)};
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
    const Recorded bound = record(own, length);
    ExpectSame(bound.sink, SmallInputs(bound.sink), bound.bindings);
  }
}

// ---- keys and values of 8 bits

constexpr Kept kPacked[] = {Kept::kScaledInF32, Kept::kScaledIn16, Kept::kByBlocks, Kept::kFromZero,
                            Kept::kScaledAfter};

TEST(AttentionCases, ATokenWithKeysOf8Bits_KeepsNoScores) {
  for (const Kept kept : kPacked) {
    CheckCase({.kept = kept}, {1, 17, 500, 1024}, 2);
    if (HasFailure()) return;
  }
  CheckCase({.heads = 2,
             .keys = 900,
             .width = 128,
             .dtype = DType::kF16,
             .of_keys = DType::kF16,
             .kept = Kept::kScaledInF32,
             .least = -1},
            {900}, 2, "sm_80");
}

TEST(AttentionCases, APromptWithKeysOf8Bits_KeepsNoScores) {
  for (const Kept kept : kPacked) {
    CheckCase({.heads = 2, .queries = 72, .keys = 260, .kept = kept, .causal = true},
              {72, 130, 260}, 0);
    if (HasFailure()) return;
  }
}

// What is packed is read once, 8 bytes at a time, and nothing spills. Sectors: a part's keys are as
// many keys apart as there are parts, and so are their scales: each is a sector of its own, which
// the next block finds in the device's cache. Three for a key, where 2.125 hold what is counted.
TEST(AttentionCases, KeysOf8Bits_AreReadOnce) {
  const Case c{.heads = 1, .keys = 16384, .kept = Kept::kScaledInF32};
  Graph graph;
  const Recorded recorded = RecordCase(graph, c, c.keys);
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  ASSERT_EQ(gpu.compiled().size(), 2u) << gpu.ToString();
  const std::string& ptx = gpu.compiled()[0].object;
  EXPECT_TRUE(absl::StrContains(ptx, "ld.global.nc.v2.b32")) << "8 numbers of 8 bits at a time";
  EXPECT_FALSE(absl::StrContains(ptx, ".local"));
  if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
    const auto assembled = AssembleKernel(ptxas, ptx, "sm_90a");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->stack_bytes + assembled->spill_bytes, 0);
    std::printf("%lld registers, %lld blocks\n", static_cast<long long>(assembled->registers),
                static_cast<long long>(gpu.compiled()[0].blocks[0]));
  }
  const GpuSchedule kept(recorded.sink, "sm_90a", schedule::ScorePolicy::kKeep);
  std::printf("%zu launches, %lld bytes stored; with scores kept %zu, %lld\n",
              gpu.compiled().size(), static_cast<long long>(gpu.StoredBytes()),
              kept.compiled().size(), static_cast<long long>(kept.StoredBytes()));
  EXPECT_LT(gpu.StoredBytes(), kept.StoredBytes());
  MachineCounts counts, before;
  const std::vector<HostTensor> params = SmallInputs(recorded.sink);
  gpu.Run(params, VarsOf(recorded.bindings), &counts, 0);
  kept.Run(params, VarsOf(recorded.bindings), &before);
  std::printf("with scores kept: %llu sectors, %llu instructions\n",
              static_cast<unsigned long long>(before.global_sectors),
              static_cast<unsigned long long>(before.warp_instructions));
  const double packed = static_cast<double>(2 * c.keys * (c.width + 4)) / 32;
  std::printf("sectors %.3f of those of keys, values and scales; %llu instructions\n",
              static_cast<double>(counts.global_sectors) / packed,
              static_cast<unsigned long long>(counts.warp_instructions));
  EXPECT_LT(static_cast<double>(counts.global_sectors), 1.5 * packed);
}

// ---- times without masks

int64_t Products(const GpuSchedule& gpu, size_t kernel) {
  int64_t count = 0;
  const std::string& ptx = gpu.compiled()[kernel].object;
  for (size_t at = ptx.find("mma.sync"); at != std::string::npos; at = ptx.find("mma.sync", at + 1))
    ++count;
  return count;
}

// A kernel of parts whose keys a VAR counts has its products twice: in times that are whole, where
// nothing is masked, and in those that the end cuts.
TEST(AttentionCases, PartsOfKeys_HaveWholeTimes) {
  const auto products = [](const Case& c) {
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
  CheckCase({.least = 0}, {0, 1, 63, 1024}, 2);
  if (HasFailure()) return;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    CheckCase(
        {.heads = 2, .queries = 80, .keys = 256, .dtype = dtype, .of_keys = dtype, .least = 0},
        {0, 1, 65, 256}, 1, "sm_80");
    if (HasFailure()) return;
  }
  CheckCase({.heads = 2, .queries = 130, .keys = 256, .least = 0}, {0, 1, 65, 256}, 1);
  CheckCase({.heads = 2, .queries = 130, .keys = 256, .causal = true, .least = 0}, {130, 200, 256},
            1);
}

// ---- gradients with VARs

enum class Counts { kKeys, kPrompt, kBatch };

struct Trained {
  Counts counts = Counts::kKeys;
  DType dtype = DType::kBF16;
  bool causal = false;
  int64_t queries = 72, keys = 160, width = 64, least = 1;
};

Recorded RecordGradients(Graph& graph, const Trained& trained, int64_t length) {
  return Record(graph, [&]() -> std::vector<Tensor> {
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

class GradientsWithVars : public testing::TestWithParam<std::tuple<Counts, DType>> {};

TEST_P(GradientsWithVars, KeepNoScores) {
  const auto [counts, dtype] = GetParam();
  const Trained trained{.counts = counts, .dtype = dtype, .causal = counts != Counts::kKeys};
  Graph graph;
  const GpuSchedule gpu(RecordGradients(graph, trained, 1).sink, "sm_90a");
  std::printf("%zu launches, %lld with scores, %lld bytes stored\n", gpu.compiled().size(),
              static_cast<long long>(gpu.KernelsWithScores()),
              static_cast<long long>(gpu.StoredBytes()));
  EXPECT_GT(gpu.KernelsWithScores(), 0);
  EXPECT_FALSE(Stores(gpu, 2 * 72 * 160) || Stores(gpu, 2 * 160 * 160) ||
               Stores(gpu, 3 * 2 * 72 * 160))
      << gpu.ToString();
  const std::vector<int64_t> lengths =
      counts == Counts::kBatch ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 65, 160};
  for (const int64_t length : lengths) {
    SCOPED_TRACE(length);
    Graph own;
    const Recorded bound = RecordGradients(own, trained, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings,
                            dtype == DType::kF32 ? 0x1p-14 : 2 * kTolerance);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GradientsWithVars,
                         testing::Values(std::tuple{Counts::kKeys, DType::kBF16},
                                         std::tuple{Counts::kKeys, DType::kF32},
                                         std::tuple{Counts::kPrompt, DType::kBF16},
                                         std::tuple{Counts::kPrompt, DType::kF32},
                                         // A minute of the machine each; the counted axis differs.
                                         std::tuple{Counts::kBatch, DType::kBF16}));

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
    const Recorded bound = record(own, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, 2 * kTolerance);
  }
}

TEST(AttentionCases, GradientsOfLengthsThatVarsCount_OnProcessors) {
  for (const Counts counts : {Counts::kKeys, Counts::kPrompt, Counts::kBatch})
    for (const int64_t length : {1, 3}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(counts) << " " << length);
      Graph graph;
      const Recorded bound = RecordGradients(graph,
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
