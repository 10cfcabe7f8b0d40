// Gradients of scores of f32 that are rounded before they are multiplied with matrices of bf16
// (compiler/schedule/keys/rounded_gradients.h): training with scaled_dot_product_attention keeps no
// scores on GPUs, what the rounding does to its gradients, and which graphs stay as they were.
#include "compiler/schedule/keys/rounded_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/prepare.h"
#include "compiler/schedule_options.h"
#include "compiler/target.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

using schedule::ScorePolicy;

struct Trained {
  DType dtype = DType::kBF16;
  bool causal = false;
  bool biased = false;   // a mask of f32, with a gradient of its own
  bool packed = false;   // queries, keys and values as one matrix makes them
  bool grouped = false;  // two heads of queries for one of keys
  int64_t heads = 1, queries = 128, keys = 128, width = 64;
};

std::string NameOf(const Trained& t) {
  return absl::StrCat(std::string(Name(t.dtype)), t.causal ? ", causal" : "",
                      t.biased ? ", biased" : "", t.packed ? ", packed" : "",
                      t.grouped ? ", grouped" : "", ", ", t.queries, " queries, ", t.keys,
                      " keys, width ", t.width);
}

// The result, then the gradients of all leaves.
std::vector<Tensor> WithGradients(const Trained& t) {
  std::vector<Tensor> leaves;
  const auto leaf = [&](const Dims& dims, DType dtype) {
    leaves.push_back(Input(dims, dtype));
    return leaves.back();
  };
  Tensor q, k, v;
  if (t.packed) {
    const Tensor all = leaf({t.queries, 3, t.heads, t.width}, t.dtype);
    const auto part = [&](int64_t i) {
      return all.slice(1, i, i + 1).reshape({t.queries, t.heads, t.width}).permute({1, 0, 2});
    };
    q = part(0), k = part(1), v = part(2);
  } else {
    const int64_t of_keys = t.grouped ? t.heads / 2 : t.heads;
    q = leaf({t.heads, t.queries, t.width}, t.dtype);
    k = leaf({of_keys, t.keys, t.width}, t.dtype);
    v = leaf({of_keys, t.keys, t.width}, t.dtype);
  }
  AttentionOptions options{.is_causal = t.causal, .enable_gqa = t.grouped};
  if (t.biased)
    options.mask = leaf({t.queries, t.keys}, t.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  const Tensor out = scaled_dot_product_attention(q, k, v, options);
  std::vector<Tensor> results = {out};
  for (const Tensor& gradient : out.gradient(leaves, Input(out.shape(), t.dtype)))
    results.push_back(gradient);
  return results;
}

RecordedResults Record(Graph& graph, const Trained& t) {
  return RecordResults(graph, [&] { return WithGradients(t); });
}

// A graph before and after, as the schedule has it.
struct Both {
  const UOp* before = nullptr;
  schedule::RoundedGradients after;
};

Both Rounded(Graph& graph, const UOp* sink, ScorePolicy policy = ScorePolicy::kByCost,
             const Target& target = CudaTarget("sm_90a", 132)) {
  Both both;
  both.before = Simplify(graph, ValueOrDie(schedule::Prepare(graph, sink)));
  both.after = ValueOrDie(schedule::RoundGradients(graph, both.before, policy, target));
  return both;
}

// ---- numbers

std::vector<HostTensor> Exact(const Trained& t, const std::vector<HostTensor>& inputs) {
  Trained wide = t;
  wide.dtype = DType::kF64;
  Graph graph;
  return ValueOrDie(Interpret(Record(graph, wide).sink, Widened(inputs)));
}

double UnitOf(DType dtype) { return dtype == DType::kF16 ? 0x1p-11 : 0x1p-8; }

// Checks by EXPECT that one gradient of scores is rounded, and prints and bounds how far all
// results are from exact ones, before and after.
void CheckExact(const Trained& t) {
  SCOPED_TRACE(NameOf(t));
  Graph graph;
  const Both both = Rounded(graph, Record(graph, t).sink, ScorePolicy::kRecompute);
  EXPECT_EQ(both.after.all.size(), 1u);
  const std::vector<HostTensor> inputs = SmallInputs(both.before);
  const auto before = ValueOrDie(Interpret(both.before, inputs)),
             after = ValueOrDie(Interpret(both.after.sink, inputs)), exact = Exact(t, inputs);
  std::printf("%s:", NameOf(t).c_str());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double was = LargestDifference(before[i], exact[i]),
                 is = LargestDifference(after[i], exact[i]);
    std::printf(" %.1e %.1e;", was, is);
    EXPECT_LE(is, std::max(2 * UnitOf(t.dtype), 1.25 * was)) << "result " << i;
  }
  std::printf("\n");
}

TEST(RoundedGradients, AreWithinARoundingOfExactOnes) {
  for (const bool causal : {false, true}) CheckExact({.causal = causal});
  CheckExact(
      {.causal = true, .packed = true, .heads = 2, .queries = 224, .keys = 224, .width = 32});
  CheckExact({.grouped = true, .heads = 4, .queries = 72, .keys = 130});
  CheckExact({.biased = true, .heads = 2});
  CheckExact({.dtype = DType::kF16, .causal = true});
  CheckExact({.dtype = DType::kF16, .grouped = true, .heads = 2, .queries = 72, .keys = 130});
}

// With the gradient of the result, which is the last input, times `scale`.
std::vector<HostTensor> InputsAt(const UOp* sink, double scale) {
  std::vector<HostTensor> inputs = SmallInputs(sink);
  HostTensor& g = inputs.back();
  const std::vector<double> numbers = FloatsOf(g);
  const int width = ByteWidth(g.dtype);
  for (size_t i = 0; i < numbers.size(); ++i)
    StoreFloat(g.dtype, RoundTo(g.dtype, numbers[i] * scale),
               g.bytes.data() + i * static_cast<size_t>(width));
  return inputs;
}

// f16 has no number below 2^-24, and none beyond 65,504 (docs/semantics.md, Online sums).
TEST(RoundedGradients, OfF16_AtManyScales) {
  struct Case {
    double scale;
    double limit;  // of errors, in parts of the largest number; 0: some are not finite as written
  };
  for (const auto& [scale, limit] :
       {Case{1e-4, 4e-3}, {5e-3, 1e-3}, {0.5, 1e-3}, {1000, 1e-3}, {30000, 0}}) {
    SCOPED_TRACE(scale);
    const Trained t{.dtype = DType::kF16, .queries = 256, .keys = 256};
    Graph graph;
    const Both both = Rounded(graph, Record(graph, t).sink, ScorePolicy::kRecompute);
    ASSERT_EQ(both.after.all.size(), 1u);
    const std::vector<HostTensor> inputs = InputsAt(both.before, scale);
    const auto before = ValueOrDie(Interpret(both.before, inputs)),
               after = ValueOrDie(Interpret(both.after.sink, inputs)), exact = Exact(t, inputs);
    size_t infinite = 0;
    std::printf("gradients of at most %g:", 2 * scale);
    for (size_t i = 1; i < exact.size(); ++i) {
      const std::vector<double> was = FloatsOf(before[i]), is = FloatsOf(after[i]);
      for (size_t j = 0; j < is.size(); ++j) {
        infinite += !std::isfinite(was[j]);
        EXPECT_TRUE(std::isfinite(is[j]) || !std::isfinite(was[j])) << "result " << i << " " << j;
      }
      if (limit == 0) continue;
      const double error = LargestDifference(after[i], exact[i]);
      std::printf(" %.1e %.1e;", LargestDifference(before[i], exact[i]), error);
      EXPECT_LE(error, limit) << "result " << i;
    }
    std::printf("\n");
    EXPECT_EQ(infinite > 0, limit == 0);
  }
}

// ---- kernels

// Checks by EXPECT the kernels that a schedule has, and their results against exact ones.
void CheckKernels(const Trained& t, const std::string& arch, ScorePolicy policy,
                  const std::vector<size_t>& products) {
  SCOPED_TRACE(testing::Message() << NameOf(t) << " " << arch);
  Graph graph;
  const RecordedResults recorded = Record(graph, t);
  const GpuSchedule gpu(recorded.sink, arch, policy);
  EXPECT_EQ(ProductsOfScores(gpu, arch), products) << gpu.ToString();
  EXPECT_TRUE(gpu.ScoresAreByUnits()) << gpu.ToString();
  EXPECT_LT(gpu.LargestElements(), t.heads * t.queries * t.keys) << gpu.ToString();
  // The result, and three numbers of each row: its maximum, its sum, and the sum of p dp.
  if (!t.packed && !t.grouped) {  // else parts of gradients are stored
    EXPECT_LE(gpu.StoredBytes(), t.heads * t.queries * (t.width * 2 + 3 * 4)) << gpu.ToString();
  }
  const GpuSchedule kept(recorded.sink, arch, ScorePolicy::kKeep);
  EXPECT_GE(kept.StoredBytes(), t.heads * t.queries * t.keys * 4) << kept.ToString();
  // With heads of 128 blocks of one warp, which so few rows have, use every register.
  if (t.width == 64) ExpectNoSpills(gpu, arch.c_str());
  const std::vector<HostTensor> inputs = SmallInputs(recorded.sink);
  const std::vector<std::string> rooms = gpu.Run(inputs, {});
  if (testing::Test::HasFailure()) return;
  const std::vector<HostTensor> exact = Exact(t, inputs);
  for (size_t i = 0; i < exact.size(); ++i) {
    const DType dtype = recorded.sink->src[i]->dtype;
    EXPECT_LE(LargestDifference({dtype, exact[i].dims, rooms[i]}, exact[i]), 2 * UnitOf(dtype))
        << "result " << i;
  }
}

// Three products in the kernel of queries' gradients, four in that of keys and values, as of
// attention that is written in 16 bits.
TEST(RoundedGradients, KernelsHaveSevenProducts) {
  for (const char* arch : {"sm_90a", "sm_80"})
    for (const DType dtype : {DType::kBF16, DType::kF16})
      for (const bool causal : {false, true})
        CheckKernels({.dtype = dtype, .causal = causal}, arch, ScorePolicy::kRecompute, {2, 3, 4});
}

TEST(RoundedGradients, KernelsOfOtherForms) {
  const auto check = [](const Trained& t, const char* arch) {
    CheckKernels(t, arch, ScorePolicy::kRecompute, {2, 3, 4});
  };
  for (const char* arch : {"sm_90a", "sm_80"})
    check({.causal = true, .queries = 192, .keys = 192, .width = 128}, arch);
  check({.grouped = true, .heads = 2}, "sm_90a");
  check({.causal = true, .packed = true, .queries = 256, .keys = 256}, "sm_90a");
  check({.queries = 136, .keys = 200}, "sm_90a");
}

// By default: of so few rows sums of p dp are over keys, and queries' gradients are computed beside
// the result.
TEST(RoundedGradients, KernelsByCost) {
  for (const char* arch : {"sm_90a", "sm_80"})
    CheckKernels({.causal = true}, arch, ScorePolicy::kByCost, {4, 6});
}

// A layer as it is trained: sums over columns by cost, and on sm_90a all products by warpgroups.
TEST(RoundedGradients, KernelsOfALayer) {
  for (const char* arch : {"sm_90a", "sm_80"})
    for (const int64_t width : {64, 128}) {
      SCOPED_TRACE(testing::Message() << arch << ", heads of " << width);
      Graph graph;
      const Trained layer{
          .causal = true, .heads = 96, .queries = 1024, .keys = 1024, .width = width};
      const GpuSchedule gpu(Record(graph, layer).sink, arch);
      EXPECT_EQ(ProductsOfScores(gpu, arch), (std::vector<size_t>{2, 3, 4})) << gpu.ToString();
      ExpectNoSpills(gpu, arch);
      const auto by_warpgroups = std::ranges::count_if(gpu.compiled(), [](const CompiledKernel& k) {
        return absl::StrContains(k.object, "wgmma.mma_async");
      });
      EXPECT_EQ(by_warpgroups, std::string(arch) == "sm_90a" ? 3 : 0);
    }
}

// ---- graphs that stay as they were

// Gradients of attention that a program writes by hand, and what is much like them.
enum class Hand {
  kPlain,  // this and the next three are rounded
  kWeightsForExponentials,  // p (dp - sum of p dp), as it stands in papers
  kDivided,                 // -p (dp - sum of p dp) / -sqrt(d)
  kFactorsInTwoPlaces,      // 3 times that times 1/8, or 0 where a condition says so
  kByItsOwnNumbers,         // that times numbers, which may be large; of bf16 it is rounded
  kOfF32,                   // results are of f32
  kF32Keys,                 // keys are of f32: they are multiplied as they are
  kOtherType,               // results are of f16
  kReadTwice,               // a sum is rounded for one reader, and not for another
  kNoSum,                   // p dp
  kSumOfOthers,             // p (dp - sum of dp)
  kOtherSum,                // p (dp - sum of p g)
  kOtherWeights,            // p (dp - sum of r dp), r of other scores
  kOtherAxis,               // p (dp - sum of p dp over the queries)
  kNoSoftmax,               // exp(x) without a maximum
  kScoresRead,              // weights are a result
};

// `rounds_gradient`: dp is rounded to `narrow`, the type of matrices.
RecordedResults RecordByHand(Graph& graph, Hand hand, DType narrow = DType::kBF16,
                             bool rounds_gradient = false) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    constexpr int64_t kHeads = 2, kRows = 96, kWidth = 64;
    const DType f32 = DType::kF32;
    const auto matrix = [&](DType dtype) { return Input({kHeads, kRows, kWidth}, dtype); };
    const Tensor q = matrix(narrow), k = matrix(hand == Hand::kF32Keys ? f32 : narrow),
                 v = matrix(narrow), g = matrix(narrow);
    const Tensor x = q.matmul(k.transpose(), f32) * 0.125;
    const Tensor e = hand == Hand::kNoSoftmax ? x.exp() : (x - x.max(-1, true)).exp();
    const Tensor s = e.sum(-1, true), p = e / s;
    Tensor dp = g.matmul(v.transpose(), f32);
    if (rounds_gradient) dp = dp.cast(narrow).cast(f32);
    const auto over_keys = [](const Tensor& y) { return y.sum(-1, true); };
    Tensor ds = e * (dp / s - over_keys(p * (dp / s)));
    if (hand == Hand::kWeightsForExponentials) ds = p * (dp - over_keys(p * dp));
    if (hand == Hand::kNoSum) ds = p * dp;
    if (hand == Hand::kSumOfOthers) ds = p * (dp - over_keys(dp));
    if (hand == Hand::kOtherSum) ds = p * (dp - over_keys(p * g.matmul(k.transpose(), f32)));
    const Tensor by = dp / s, y = k.matmul(q.transpose(), f32) * 0.125;
    if (hand == Hand::kOtherWeights) ds = e * (by - over_keys(y.softmax() * by));
    if (hand == Hand::kOtherAxis) ds = e * (by - (p * by).sum(-2, true));
    ds = hand == Hand::kDivided ? -ds / -11.3137 : ds * 0.125;
    if (hand == Hand::kByItsOwnNumbers) ds = ds * x;
    if (hand == Hand::kFactorsInTwoPlaces) ds = 3 * (x < 2).where(ds, 0.0);
    DType dtype = hand == Hand::kOfF32 ? f32 : narrow;
    if (hand == Hand::kOtherType) dtype = DType::kF16;
    const Tensor dq = ds.matmul(k), dk = ds.transpose().matmul(q);
    std::vector<Tensor> results = {p.cast(narrow).matmul(v), dq.cast(dtype), dk.cast(dtype)};
    if (hand == Hand::kF32Keys) results[2] = dk;
    if (hand == Hand::kReadTwice) results.insert(results.end(), {dq + 1, dk + 1});
    if (hand == Hand::kScoresRead) results.push_back(p);
    return results;
  });
}

TEST(RoundedGradients, OnlyOfScores) {
  for (const Hand hand :
       {Hand::kPlain, Hand::kWeightsForExponentials, Hand::kDivided, Hand::kFactorsInTwoPlaces,
        Hand::kOfF32, Hand::kF32Keys, Hand::kOtherType, Hand::kReadTwice, Hand::kNoSum,
        Hand::kSumOfOthers, Hand::kOtherSum, Hand::kOtherWeights,
        Hand::kOtherAxis, Hand::kNoSoftmax, Hand::kScoresRead}) {
    SCOPED_TRACE(static_cast<int>(hand));
    Graph graph;
    const Both both = Rounded(graph, RecordByHand(graph, hand).sink, ScorePolicy::kRecompute);
    const bool rounds = hand <= Hand::kFactorsInTwoPlaces;
    EXPECT_EQ(both.after.all.size(), rounds ? 1u : 0u);
    EXPECT_EQ(both.after.sink != both.before, rounds);
    if (!rounds) continue;
    const std::vector<HostTensor> inputs = SmallInputs(both.before);
    const auto before = ValueOrDie(Interpret(both.before, inputs)),
               after = ValueOrDie(Interpret(both.after.sink, inputs));
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_LE(LargestDifference(after[i], before[i]), 2 * UnitOf(DType::kBF16)) << i;
  }
}

// Of f16 only where such gradients cannot be beyond its largest number.
TEST(RoundedGradients, OfF16_OnlyWhereTheyAreFinite) {
  const auto count = [](Hand hand, bool rounds_gradient) {
    Graph graph;
    const UOp* const sink = RecordByHand(graph, hand, DType::kF16, rounds_gradient).sink;
    return Rounded(graph, sink, ScorePolicy::kRecompute).after.all.size();
  };
  for (const Hand hand : {Hand::kPlain, Hand::kWeightsForExponentials, Hand::kDivided,
                          Hand::kFactorsInTwoPlaces}) {
    SCOPED_TRACE(static_cast<int>(hand));
    EXPECT_EQ(count(hand, true), 1u);
    EXPECT_EQ(count(hand, false), 0u);
  }
  EXPECT_EQ(count(Hand::kByItsOwnNumbers, true), 0u);
}

// Matrices of this width have no room in registers.
constexpr Trained kWide{.queries = 288, .keys = 288, .width = 272};

TEST(RoundedGradients, OnlyOf16BitsOnGpusWithoutScores) {
  const auto is_rounded = [](const Trained& t, ScorePolicy policy, const Target& target) {
    Graph graph;
    return !Rounded(graph, Record(graph, t).sink, policy, target).after.all.empty();
  };
  const Target gpu = CudaTarget("sm_90a", 132);
  EXPECT_TRUE(is_rounded({}, ScorePolicy::kByCost, gpu));
  EXPECT_TRUE(is_rounded({}, ScorePolicy::kRecompute, gpu));
  EXPECT_FALSE(is_rounded({}, ScorePolicy::kKeep, gpu));
  EXPECT_FALSE(is_rounded({}, ScorePolicy::kRecompute, TestTarget()));
  EXPECT_FALSE(is_rounded({.dtype = DType::kF32}, ScorePolicy::kRecompute, gpu));
  EXPECT_TRUE(is_rounded({.dtype = DType::kF16}, ScorePolicy::kRecompute, gpu));
  // The mask's gradient is that of scores, for all to see.
  EXPECT_FALSE(is_rounded({.biased = true}, ScorePolicy::kRecompute, gpu));
  // Too few rows, or too wide: such scores are stored.
  EXPECT_FALSE(is_rounded({.queries = 32, .keys = 32, .width = 16}, ScorePolicy::kByCost, gpu));
  EXPECT_FALSE(is_rounded(kWide, ScorePolicy::kByCost, gpu));
}

// The kernels of a schedule, written out.
std::vector<std::string> KernelsOf(const GpuSchedule& gpu) {
  std::vector<std::string> kernels;
  for (const schedule::ScheduledKernel& kernel : gpu.schedule().kernels)
    kernels.push_back(GraphToString(kernel.ast));
  return kernels;
}

// Where a kernel then has no plan the graph is the one that was written.
TEST(RoundedGradients, WithoutAPlan_TheGraphIsAsItWas) {
  Graph graph;
  const UOp* const sink = Record(graph, kWide).sink;
  EXPECT_EQ(Rounded(graph, sink, ScorePolicy::kRecompute).after.all.size(), 1u);
  EXPECT_EQ(KernelsOf(GpuSchedule(sink, "sm_90a", ScorePolicy::kRecompute)),
            KernelsOf(GpuSchedule(sink, "sm_90a", ScorePolicy::kKeep)));
}

TEST(RoundedGradients, WithoutAPlan_LeaveAnotherAttentionRounded) {
  Graph graph;
  const RecordedResults both = RecordResults(graph, [&] {
    std::vector<Tensor> results = WithGradients(kWide);
    for (const Tensor& result : WithGradients({.heads = 3})) results.push_back(result);
    return results;
  });
  const GpuSchedule gpu(both.sink, "sm_90a", ScorePolicy::kRecompute);
  EXPECT_EQ(ProductsOfScores(gpu, "sm_90a"), (std::vector<size_t>{2, 3, 4})) << gpu.ToString();
  EXPECT_TRUE(Stores(gpu, kWide.queries * kWide.keys)) << gpu.ToString();
  EXPECT_FALSE(Stores(gpu, 3 * 128 * 128)) << gpu.ToString();
}

// ---- beside attention of a token

// A training step, attention of one token, whose keys are divided into parts, or both; the token's
// query may be of a gradient.
enum class Work { kTraining, kToken, kBoth, kTokenOfGradient };

RecordedResults RecordWork(Graph& graph, Work work) {
  return RecordResults(graph, [&] {
    constexpr int64_t kHeads = 2, kKeys = 2048, kWidth = 64;
    std::vector<Tensor> results;
    if (work != Work::kToken)
      results = WithGradients({.causal = true, .heads = kHeads, .queries = 256, .keys = 256});
    if (work == Work::kTraining) return results;
    const auto matrix = [](int64_t rows) { return Input({kHeads, rows, kWidth}, DType::kBF16); };
    const Tensor query = work == Work::kTokenOfGradient ? results[1].slice(1, 7, 8) : matrix(1);
    results.push_back(scaled_dot_product_attention(query, matrix(kKeys), matrix(kKeys)));
    return results;
  });
}

// Each attention as it is alone: of the training step no scores are stored, and sums over keys are
// sums over columns; the token has as many parts.
TEST(RoundedGradients, BesideATokenWhoseKeysAreDivided) {
  for (const char* arch : {"sm_90a", "sm_80"}) {
    Graph of_training, of_token;
    const auto schedule_of = [&](Graph& graph, Work work) {
      return GpuSchedule(RecordWork(graph, work).sink, arch, ScorePolicy::kRecompute);
    };
    const GpuSchedule training = schedule_of(of_training, Work::kTraining),
                      token = schedule_of(of_token, Work::kToken);
    ASSERT_EQ(token.compiled().size(), 2u) << token.ToString();  // of parts, and joined
    for (const Work work : {Work::kBoth, Work::kTokenOfGradient}) {
      SCOPED_TRACE(testing::Message() << arch << " " << static_cast<int>(work));
      Graph graph;
      const RecordedResults both = RecordWork(graph, work);
      const GpuSchedule gpu(both.sink, arch, ScorePolicy::kRecompute);
      EXPECT_EQ(gpu.compiled().size(), training.compiled().size() + 2) << gpu.ToString();
      EXPECT_EQ(gpu.StoredBytes(), training.StoredBytes() + token.StoredBytes())
          << gpu.ToString();
      EXPECT_EQ(ProductsOfScores(gpu, arch), (std::vector<size_t>{2, 2, 3, 4})) << gpu.ToString();
      gpu.ExpectAsInterpreted(both.sink, {}, kAttentionTolerance);
    }
  }
}

// ---- a training step

constexpr int64_t kLayers = 4, kBatch = 8, kHeads = 4, kTime = 1024, kWidth = 256, kWords = 1024;

// Of a small GPT in mixed precision: products of bf16, all else in f32. Each weight is replaced by
// itself less a part of its gradient.
std::vector<Tensor> GptStep() {
  constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
  std::vector<Tensor> weights;
  const auto times = [&](const Tensor& x, int64_t in, int64_t out) {
    weights.push_back(Input({in, out}, kF32));
    return x.cast(kBF16).matmul(weights.back().cast(kBF16));
  };
  Tensor x = Input({kBatch, kTime, kWidth}, kF32);
  weights.push_back(x);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const Tensor parts = times(x.layernorm(), kWidth, 3 * kWidth)
                             .reshape({kBatch, kTime, 3, kHeads, kWidth / kHeads})
                             .permute({2, 0, 3, 1, 4});
    const auto part = [&](int64_t i) {
      return parts.slice(0, i, i + 1).reshape({kBatch, kHeads, kTime, kWidth / kHeads});
    };
    const Tensor mixed =
        scaled_dot_product_attention(part(0), part(1), part(2), {.is_causal = true});
    x = x + times(mixed.permute({0, 2, 1, 3}).reshape({kBatch, kTime, kWidth}), kWidth, kWidth)
                .cast(kF32);
    x = x + times(times(x.layernorm(), kWidth, 4 * kWidth).gelu(), 4 * kWidth, kWidth).cast(kF32);
  }
  const Tensor logits = times(x.layernorm(), kWidth, kWords).cast(kF32);
  const Tensor loss = logits.sparse_categorical_crossentropy(Input({kBatch, kTime}, DType::kI32));
  std::vector<Tensor> results = {loss};
  const std::vector<Tensor> gradients = loss.gradient(weights);
  for (size_t i = 0; i < weights.size(); ++i) results.push_back(weights[i] - gradients[i] * 0.001);
  return results;
}

struct Figures {
  int64_t launches = 0, bytes = 0, arena_bytes = 0;
  bool stores_scores = false;
};

Figures FiguresOf(const UOp* sink, const char* name, ScorePolicy policy) {
  const Target target = CudaTarget("sm_90a", 132);
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  options.scores = policy;
  Graph graph;
  const schedule::Schedule made =
      ValueOrDie(schedule::MakeSchedule(graph, sink, target, {}, options));
  Figures figures{.arena_bytes = made.arena_bytes};
  for (const schedule::ScheduledKernel& kernel : made.kernels) {
    figures.launches += kernel.together > 0;
    for (const int buffer : kernel.buffers)
      figures.bytes += made.buffers[static_cast<size_t>(buffer)].bytes();
  }
  for (const schedule::ScheduledBuffer& buffer : made.buffers)
    figures.stores_scores =
        figures.stores_scores || buffer.elements == kBatch * kHeads * kTime * kTime;
  std::printf("%s: %zu kernels, %lld launches, %.1f MB of all kernels, arena %.1f MB\n", name,
              made.kernels.size(), static_cast<long long>(figures.launches),
              static_cast<double>(figures.bytes) / 1e6,
              static_cast<double>(figures.arena_bytes) / 1e6);
  return figures;
}

TEST(RoundedGradients, AStepOfASmallGptStoresNoScores) {
  Graph graph;
  const UOp* const sink = RecordResults(graph, GptStep).sink;
  const Figures stored = FiguresOf(sink, "scores are stored", ScorePolicy::kKeep),
                now = FiguresOf(sink, "as a worker has it", ScorePolicy::kByCost);
  EXPECT_TRUE(stored.stores_scores);
  EXPECT_FALSE(now.stores_scores);
  EXPECT_LT(now.bytes, stored.bytes / 2);
  EXPECT_LT(now.arena_bytes, stored.arena_bytes / 2);
  EXPECT_LT(now.launches, stored.launches);
}

}  // namespace
}  // namespace outboard::test
