// Attention's gradients by sums over columns (compiler/schedule/keys/gradient_sums.h): which graphs
// have them, that these are the same numbers, how many products their kernels have, and what
// rounding does to them.
#include "compiler/schedule/keys/gradient_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/accessors.h"
#include "compiler/reference/interpret.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/prepare.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "compiler/target.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

using schedule::ScorePolicy;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What stands between scores and the result, and what else reads the weights.
enum class Between {
  kNothing,
  kBias,        // added to scores, with a gradient of its own
  kCap,         // 30 tanh(x / 30)
  kDropped,     // weights that an input hides, others times 1.25
  kScaled,      // a factor for each weight
  kBand,        // query i sees i - 31 ... i
  kHiddenRows,  // queries 3 and 70 see nothing
  kRead,        // weights are a result
};

struct Trained {
  DType dtype = DType::kBF16;
  Between between = Between::kNothing;
  bool causal = false, packed = false, grouped = false;
  int64_t queries = 96, keys = 96, width = 32, of_values = 32;
  double scale = 1.0 / 8;
};

// Softmax as people write it: of narrow floats in f32.
DType Wide(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Tensor ScoresOf(const Trained& t, const Tensor& q, const Tensor& k) {
  Tensor x = q.matmul(k.transpose()).cast(Wide(t.dtype)) * t.scale;
  if (t.between == Between::kBias) x = x + Input({t.queries, t.keys}, Wide(t.dtype));
  if (t.between == Between::kCap) x = (x * (1.0 / 30)).tanh() * 30;
  const Tensor row = Tensor::arange(t.queries).reshape({t.queries, 1}),
               column = Tensor::arange(t.keys);
  if (t.causal) x = (column > row).where(-kInfinity, x);
  if (t.between == Between::kBand) x = ((column <= row) & (column > row - 32)).where(x, -kInfinity);
  if (t.between == Between::kHiddenRows)
    x = (Input({t.queries, 1}, DType::kI8) > 100).where(-kInfinity, x);
  return x;
}

// The result, then the gradients of queries, keys and values, as far as they are inputs.
RecordedResults Record(Graph& graph, const Trained& t) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    constexpr int64_t kHeads = 2;
    std::vector<Tensor> leaves;
    const auto leaf = [&](const Dims& dims) {
      leaves.push_back(Input(dims, t.dtype));
      return leaves.back();
    };
    Tensor q, k, v;
    if (t.packed) {  // as one matrix makes them: [tokens][which][heads][width]
      const Tensor all = leaf({t.queries, 3, kHeads, t.width});
      const auto part = [&](int64_t i) {
        return all.slice(1, i, i + 1).reshape({t.queries, kHeads, t.width}).permute({1, 0, 2});
      };
      q = part(0), k = part(1), v = part(2);
    } else {
      q = leaf({kHeads, t.queries, t.width});
      // Of a group of heads keys and values are the same.
      const auto steps = [&](int64_t width) {
        const Tensor x = leaf({t.grouped ? 1 : kHeads, t.keys, width});
        return t.grouped ? x.unsqueeze(1)
                               .expand({1, kHeads, t.keys, width})
                               .reshape({kHeads, t.keys, width})
                         : x;
      };
      k = steps(t.width), v = steps(t.of_values);
    }
    Tensor p = ScoresOf(t, q, k).softmax();
    const Tensor all = p;
    p = p.cast(t.dtype);
    if (t.between == Between::kDropped)
      p = (Input({kHeads, t.queries, t.keys}, DType::kI8) > 10).where(p * 1.25, 0);
    if (t.between == Between::kScaled) p = p * Input({t.queries, t.keys}, t.dtype);
    const Tensor out = p.matmul(v);
    std::vector<Tensor> results = {out};
    if (t.between == Between::kRead) results.push_back(all);
    for (const Tensor& gradient : out.gradient(leaves, Input(out.shape(), t.dtype)))
      results.push_back(gradient);
    return results;
  });
}

// A graph before and after, as the schedule has it for this kind of GPU.
struct Both {
  const UOp *before = nullptr, *after = nullptr;
};

Both Rewritten(Graph& graph, const UOp* sink, ScorePolicy policy = ScorePolicy::kRecompute,
               int64_t visits_max = schedule::GradientSumsSearch().visits_max) {
  const Target target = CudaTarget("sm_90a", 132);
  Both both;
  both.before = Simplify(graph, ValueOrDie(schedule::Prepare(graph, sink)));
  both.after = ValueOrDie(schedule::SumOverColumns(
      graph, both.before, schedule::FindScores(both.before, policy, target), policy, target,
      {.of_f32 = policy == ScorePolicy::kRecompute, .visits_max = visits_max}));
  return both;
}

// Sums of a quotient times another one by the same: of weights and their gradients.
int64_t SumsOverKeys(const UOp* sink) {
  const std::vector<const UOp*> order = PostOrder(sink);
  return std::count_if(order.begin(), order.end(), [](const UOp* node) {
    if (node->op != Op::kReduce || node->src[0]->op != Op::kMul) return false;
    const auto factors = node->src[0]->src;
    return factors[0]->op == Op::kFDiv && factors[1]->op == Op::kFDiv &&
           factors[0]->src[1] == factors[1]->src[1];
  });
}

std::vector<HostTensor> InputsOf(const Trained& t, const UOp* sink) {
  std::vector<HostTensor> inputs = SmallInputs(sink);
  if (t.between != Between::kHiddenRows) return inputs;
  for (HostTensor& input : inputs) {
    if (input.dtype != DType::kI8) continue;
    for (int64_t row = 0; row < t.queries; ++row)
      StoreInt(DType::kI8, row == 3 || row == 70 ? 101 : 0, input.bytes.data() + row);
  }
  return inputs;
}

std::string NameOf(const Trained& t) {
  return absl::StrCat("between ", static_cast<int>(t.between), t.causal ? ", causal" : "",
                      t.packed ? ", packed" : "", t.grouped ? ", grouped" : "", ", type ",
                      std::string(Name(t.dtype)), ", ", t.queries, " queries, ", t.keys, " keys");
}

// Checks by EXPECT that the graph has sums over columns, and prints and bounds how far all results
// are from exact ones, before and after: two roundings of the largest number, or what rounding
// large scores has done to them before.
void CheckExact(const Trained& t) {
  SCOPED_TRACE(NameOf(t));
  Graph graph, of_exact;
  const Both both = Rewritten(graph, Record(graph, t).sink);
  EXPECT_EQ(SumsOverKeys(both.before), 1);
  EXPECT_EQ(SumsOverKeys(both.after), 0);
  Trained wide = t;
  wide.dtype = DType::kF64;
  const std::vector<HostTensor> inputs = InputsOf(t, both.before);
  const auto before = ValueOrDie(Interpret(both.before, inputs)),
             after = ValueOrDie(Interpret(both.after, inputs)),
             exact = ValueOrDie(Interpret(Record(of_exact, wide).sink, Widened(inputs)));
  std::printf("%s:", NameOf(t).c_str());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double was = LargestDifference(before[i], exact[i]),
                 is = LargestDifference(after[i], exact[i]);
    std::printf(" %.1e %.1e;", was, is);
    const double roundings = t.dtype == DType::kF32   ? 0x1p-18
                             : t.dtype == DType::kF16 ? 0x1p-10
                                                      : 0x1p-7;
    EXPECT_LE(is, std::max(roundings, 1.25 * was)) << "result " << i;
  }
  std::printf("\n");
}

TEST(GradientSums, AreTheSameNumbers) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    CheckExact({.dtype = dtype});
    CheckExact({.dtype = dtype, .causal = true, .grouped = true});
    CheckExact({.dtype = dtype, .causal = true, .scale = 2});
  }
  CheckExact({.packed = true, .queries = 128, .keys = 128});
  CheckExact({.queries = 70, .keys = 150, .of_values = 16});
}

TEST(GradientSums, OfMasksBiasesAndFactors) {
  for (const Between between : {Between::kBias, Between::kCap, Between::kDropped, Between::kScaled,
                                Between::kBand, Between::kHiddenRows})
    CheckExact({.between = between});
}

// ---- written by hand

enum class Hand {
  kPlain,
  kPermuted,         // heads and queries change places, and back
  kOtherValues,      // gradients of other values than the result is made of
  kOtherFactor,      // a factor that the result alone has
  kGradientsFactor,  // one that the gradient alone has
  kTransposed,       // the result takes queries for keys
  kOtherDivisor,     // weights are divided by another number than their gradients
  kNoResult,         // nobody asks for the result
  kSecondUse,        // weights are of a second product, too
};

RecordedResults RecordByHand(Graph& graph, Hand hand) {
  return RecordResults(graph, [&]() -> std::vector<Tensor> {
    constexpr int64_t kHeads = 2, kRows = 96, kWidth = 32;
    const DType f32 = DType::kF32;
    const auto matrix = [&] { return Input({kHeads, kRows, kWidth}, f32); };
    const Tensor q = matrix(), k = matrix(), v = matrix(), g = matrix(), other = matrix(),
                 factor = Input({kHeads, kRows, kRows}, f32), row = Input({kHeads, kRows, 1}, f32);
    const Tensor x = q.matmul(k.transpose()) * 0.125, e = (x - x.max(-1, true)).exp(),
                 s = e.sum(-1, true), p = e / s;
    // [heads][queries][columns][keys]; of kPermuted [queries][heads] first.
    const auto of_values = [&](const Tensor& y) {
      const Tensor across = y.transpose();
      return hand == Hand::kPermuted ? across.reshape({1, kHeads, kWidth, kRows})
                                     : across.reshape({kHeads, 1, kWidth, kRows});
    };
    const auto rows = [&](const Tensor& y) {
      return hand == Hand::kPermuted ? y.permute({1, 0, 2}) : y;
    };
    const auto times = [&](const Tensor& weights, const Tensor& y) {
      return (of_values(y) * rows(weights).unsqueeze(2)).sum(-1);
    };
    const Tensor weights = hand == Hand::kOtherFactor  ? p * factor
                           : hand == Hand::kTransposed ? p.transpose()
                                                       : p;
    const Tensor of_columns =
        rows(g).unsqueeze(3) * of_values(hand == Hand::kOtherValues ? other : v);
    Tensor dp = rows(of_columns.sum(2));
    if (hand == Hand::kGradientsFactor) dp = dp * factor;
    if (hand == Hand::kSecondUse) dp = dp + rows((rows(g).unsqueeze(3) * of_values(other)).sum(2));
    const Tensor quotient = dp / (hand == Hand::kOtherDivisor ? row : s);
    const Tensor ds = e * (quotient - (p * quotient).sum(-1, true)) * 0.125;
    std::vector<Tensor> results = {ds.matmul(k), ds.transpose().matmul(q)};
    if (hand != Hand::kNoResult) results.push_back(times(weights, v));
    return results;
  });
}

// Sums over keys of weights times what their gradients are divided by.
TEST(GradientSums, OnlyWhereTheyAreTheSame) {
  for (const Hand hand : {Hand::kPlain, Hand::kPermuted, Hand::kOtherValues, Hand::kOtherFactor,
                          Hand::kGradientsFactor, Hand::kTransposed, Hand::kOtherDivisor,
                          Hand::kNoResult, Hand::kSecondUse}) {
    SCOPED_TRACE(static_cast<int>(hand));
    Graph graph;
    const Both both = Rewritten(graph, RecordByHand(graph, hand).sink);
    if (hand != Hand::kPlain && hand != Hand::kPermuted) {
      EXPECT_EQ(both.before, both.after);
      continue;
    }
    EXPECT_EQ(SumsOverKeys(both.before), 1);
    EXPECT_EQ(SumsOverKeys(both.after), 0);
    const std::vector<HostTensor> inputs = SmallInputs(both.before);
    const auto before = ValueOrDie(Interpret(both.before, inputs)),
               after = ValueOrDie(Interpret(both.after, inputs));
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_LE(LargestDifference(after[i], before[i]), 0x1p-18) << "result " << i;
  }
}

TEST(GradientSums, NotWhereScoresAreStoredOrSmall) {
  Graph graph;
  const UOp* const sink = Record(graph, {.dtype = DType::kF32}).sink;
  for (const ScorePolicy policy : {ScorePolicy::kKeep, ScorePolicy::kByCost}) {
    const Both both = Rewritten(graph, sink, policy);
    EXPECT_EQ(both.before, both.after);
  }
  // Weights that are a result are stored.
  const Both read = Rewritten(graph, Record(graph, {.between = Between::kRead}).sink);
  EXPECT_EQ(read.before, read.after);
  const UOp* const prepared = Simplify(graph, ValueOrDie(schedule::Prepare(graph, sink)));
  const auto scores = schedule::FindScores(prepared, ScorePolicy::kRecompute, TestTarget());
  EXPECT_FALSE(scores.attention_of.empty());
  EXPECT_EQ(ValueOrDie(schedule::SumOverColumns(graph, prepared, scores, ScorePolicy::kRecompute,
                                                TestTarget(), {.of_f32 = true})),
            prepared);
}

// Of many attentions with the same values each sum would look at the products of all: here at 16.
// The last one has values of its own, and is found if there are visits left. Once there are none,
// the graph stays as it was.
TEST(GradientSums, SharedValuesTakeVisitsInProportion) {
  constexpr int64_t kAttentions = 300, kVisitsOfEach = 250;
  Graph graph;
  const UOp* const sink =
      RecordResults(graph, [&]() -> std::vector<Tensor> {
        const auto matrix = [] { return Input({1, 32, 16}, DType::kBF16); };
        std::vector<Tensor> results;
        const Tensor shared = matrix();
        for (int64_t i = 0; i < kAttentions; ++i) {
          const Tensor q = matrix(), v = i + 1 < kAttentions ? shared : matrix();
          const Tensor scores = q.matmul(matrix().transpose()).cast(DType::kF32) * 0.25,
                       out = scores.softmax().cast(DType::kBF16).matmul(v);
          results.push_back(out);
          results.push_back(out.gradient({q}, matrix())[0]);
        }
        return results;
      }).sink;
  const Both both = Rewritten(graph, sink, ScorePolicy::kRecompute, kAttentions * kVisitsOfEach);
  EXPECT_EQ(SumsOverKeys(both.before), kAttentions);
  EXPECT_LT(SumsOverKeys(both.after), kAttentions);
  const auto last = [](const UOp* of) { return of->src.back(); };
  EXPECT_EQ(SumsOverKeys(last(both.before)), 1);
  EXPECT_EQ(SumsOverKeys(last(both.after)), 0);
  const Both stopped = Rewritten(graph, sink, ScorePolicy::kRecompute, /*visits_max=*/2);
  EXPECT_EQ(stopped.before, stopped.after);
}

// Real dropout: what is hidden is computed from a counter, in both directions.
TEST(GradientSums, OfDropout) {
  Graph graph;
  const UOp* const sink =
      RecordResults(graph, [&]() -> std::vector<Tensor> {
        const TrainingMode training(true);
        const Tensor q = Input({2, 128, 64}, DType::kBF16), k = Input({2, 128, 64}, DType::kBF16),
                     v = Input({2, 128, 64}, DType::kBF16);
        const Tensor out = scaled_dot_product_attention(q, k, v, {.dropout_p = 0.1});
        std::vector<Tensor> results = {out};
        for (const Tensor& gradient : out.gradient({q, k, v}, Input(out.shape(), DType::kBF16)))
          results.push_back(gradient);
        return results;
      }).sink;
  const Both both = Rewritten(graph, sink);
  EXPECT_EQ(SumsOverKeys(both.before), 1);
  EXPECT_EQ(SumsOverKeys(both.after), 0);
}

// ---- kernels

void CheckKernels(Trained t, const std::string& arch, int64_t rows = 128, int64_t width = 64) {
  SCOPED_TRACE(testing::Message() << NameOf(t) << ", width " << width << " " << arch);
  t.queries = t.keys = rows;
  t.width = t.of_values = width;
  Graph graph;
  const RecordedResults recorded = Record(graph, t);
  const GpuSchedule gpu(recorded.sink, arch, ScorePolicy::kRecompute);
  EXPECT_EQ(ProductsOfScores(gpu, arch), (std::vector<size_t>{2, 3, 4})) << gpu.ToString();
  EXPECT_TRUE(gpu.ScoresAreByUnits()) << gpu.ToString();
  EXPECT_FALSE(Stores(gpu, 2 * t.queries * t.keys)) << gpu.ToString();
  // With heads of 128, and in f32, blocks of one warp, which so few rows have, use every register.
  if (width == 64 && t.dtype != DType::kF32) ExpectNoSpills(gpu, arch.c_str());
  gpu.ExpectAsInterpreted(recorded.sink, {},
                          t.dtype == DType::kF32 ? 0x1p-14 : 2 * kAttentionTolerance);
}

TEST(GradientSums, KernelsHaveSevenProductsOfNine) {
  for (const char* arch : {"sm_80", "sm_90a"})
    for (const bool causal : {false, true}) {
      CheckKernels({.causal = causal}, arch);
      CheckKernels({.causal = causal}, arch, /*rows=*/192, /*width=*/128);
      if (HasFailure()) return;
    }
}

TEST(GradientSums, KernelsOfOtherTypesAndMasks) {
  CheckKernels({.dtype = DType::kF16, .causal = true}, "sm_90a");
  CheckKernels({.causal = true, .packed = true}, "sm_90a", /*rows=*/256);
  for (const Between between : {Between::kCap, Between::kBand, Between::kHiddenRows})
    CheckKernels({.between = between}, "sm_90a");
}

// Of a layer as it is trained the schedule takes them; of a small one it does not.
TEST(GradientSums, WhereTheyTakeLessTime) {
  Graph small, large;
  const GpuSchedule without(
      Record(small, {.causal = true, .queries = 128, .keys = 128, .width = 64, .of_values = 64})
          .sink,
      "sm_90a");
  // Queries' gradients are computed beside the result.
  EXPECT_EQ(ProductsOfScores(without, "sm_90a"), (std::vector<size_t>{4, 6})) << without.ToString();
  const GpuSchedule with(
      Record(large, {.causal = true, .queries = 4096, .keys = 4096, .width = 64, .of_values = 64})
          .sink,
      "sm_90a");
  EXPECT_EQ(ProductsOfScores(with, "sm_90a"), (std::vector<size_t>{2, 3, 4})) << with.ToString();
}

// Two gradients that differ by how that of the weights is rounded: by sums over columns, of dp in
// f32, they are one node.
TEST(GradientSums, ResultsThatBecomeOneNodeAreBothStored) {
  constexpr int64_t kHeads = 2, kRows = 128, kWidth = 64;
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, [&]() -> std::vector<Tensor> {
    const auto matrix = [&] { return Input({kHeads, kRows, kWidth}, DType::kBF16); };
    const Tensor q = matrix(), k = matrix(), v = matrix(), g = matrix();
    const Tensor x = q.matmul(k.transpose()).cast(DType::kF32) * 0.125,
                 e = (x - x.max(-1, true)).exp(), s = e.sum(-1, true), p = e / s;
    // [heads][queries][columns][keys]
    const auto wide = [](const Tensor& y, int64_t axis) {
      return y.unsqueeze(axis).cast(DType::kF32);
    };
    const Tensor values = wide(v.transpose(), 1);
    const Tensor out = (wide(p.cast(DType::kBF16), 2) * values).sum(-1).cast(DType::kBF16),
                 dp = (wide(g, 3) * values).sum(2);
    std::vector<Tensor> results = {out};
    for (const Tensor& of_weights : {dp, dp.cast(DType::kBF16).cast(DType::kF32)}) {
      const Tensor quotient = of_weights / s;
      const Tensor ds = e * (quotient - (p * quotient).sum(-1, true)) * 0.125;
      results.push_back(ds.cast(DType::kBF16).matmul(k));
    }
    return results;
  });
  const Both both = Rewritten(graph, recorded.sink);
  EXPECT_NE(both.before->src[1], both.before->src[2]);
  ASSERT_EQ(both.after->src[1], both.after->src[2]);
  const GpuSchedule gpu(recorded.sink, "sm_90a", ScorePolicy::kRecompute);
  EXPECT_EQ(ProductsOfScores(gpu, "sm_90a"), (std::vector<size_t>{2, 3})) << gpu.ToString();
  gpu.ExpectAsInterpreted(recorded.sink, {}, 2 * kAttentionTolerance);
}

// A product of f32 that is rounded later, as programs write it: only what is rounded is stored.
TEST(GradientSums, ResultsThatAreRoundedLaterAreStoredOnce) {
  constexpr int64_t kHeads = 2, kRows = 128, kWidth = 64;
  enum class Later { kDimensionsOf1, kReshaped, kPermuted, kJoined };
  for (const Later later :
       {Later::kDimensionsOf1, Later::kReshaped, Later::kPermuted, Later::kJoined}) {
    SCOPED_TRACE(static_cast<int>(later));
    Graph graph;
    const RecordedResults recorded = RecordResults(graph, [&]() -> std::vector<Tensor> {
      const auto matrix = [&] { return Input({kHeads, kRows, kWidth}, DType::kBF16); };
      const std::vector<Tensor> leaves = {matrix(), matrix(), matrix()};
      Tensor out = (leaves[0].matmul(leaves[1].transpose()).cast(DType::kF32) * 0.125)
                       .softmax()
                       .cast(DType::kBF16)
                       .matmul(leaves[2], DType::kF32);
      if (later == Later::kPermuted || later == Later::kJoined) out = out.permute({1, 0, 2});
      if (later == Later::kReshaped) out = out.reshape({kHeads * kRows, kWidth});
      if (later == Later::kJoined) out = out.reshape({kRows, kHeads * kWidth});
      out = out.cast(DType::kBF16);
      std::vector<Tensor> results = {out};
      for (const Tensor& gradient : out.gradient(leaves, Input(out.shape(), DType::kBF16)))
        results.push_back(gradient);
      return results;
    });
    const Both both = Rewritten(graph, recorded.sink);
    EXPECT_EQ(SumsOverKeys(both.before), 1);
    EXPECT_EQ(SumsOverKeys(both.after), 0);
    const GpuSchedule gpu(recorded.sink, "sm_90a", ScorePolicy::kRecompute);
    EXPECT_EQ(ProductsOfScores(gpu, "sm_90a"), (std::vector<size_t>{2, 3, 4})) << gpu.ToString();
    for (const schedule::ScheduledBuffer& buffer : gpu.schedule().buffers)
      EXPECT_FALSE(buffer.dtype == DType::kF32 && buffer.elements == kHeads * kRows * kWidth)
          << gpu.ToString();
    // As a result, too, where it lies as the sums do.
    const bool in_place = later == Later::kDimensionsOf1 || later == Later::kReshaped;
    EXPECT_EQ(Stores(gpu, kHeads * kRows * kWidth), !in_place) << gpu.ToString();
    gpu.ExpectAsInterpreted(recorded.sink, {}, 2 * kAttentionTolerance);
  }
}

// Layers of attention between products with weights. Gradients of the last product's weights need
// the attention's results anyway. Without them nothing else does, and they would take a third more
// memory.
TEST(GradientSums, NotWhereTheyTakeMoreMemory) {
  constexpr int64_t kLayers = 4, kHeads = 4, kRows = 4096, kWidth = 64;
  const Target target = CudaTarget("sm_90a", 132);
  const auto products = [&](bool trained) {
    Graph graph;
    const RecordedResults recorded = RecordResults(graph, [&]() -> std::vector<Tensor> {
      const auto weights = [&] { return Input({kWidth, kWidth}, DType::kBF16); };
      const Tensor first = Input({kHeads, kRows, kWidth}, DType::kBF16);
      std::vector<Tensor> leaves = {first};
      Tensor x = first;
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        const Tensor q = x.matmul(weights()), k = x.matmul(weights()), v = x.matmul(weights());
        const Tensor p = (q.matmul(k.transpose()).cast(DType::kF32) * 0.125).softmax(),
                     last = weights();
        x = p.cast(DType::kBF16).matmul(v).matmul(last);
        if (trained) leaves.push_back(last);
      }
      return x.gradient(leaves, Input(x.shape(), DType::kBF16));
    });
    const schedule::Schedule schedule = ValueOrDie(schedule::MakeSchedule(
        graph, recorded.sink, target, /*donated=*/{}, ScheduleOptionsFor(target)));
    std::printf("%s: %lld bytes of temporaries\n", trained ? "trained" : "not trained",
                static_cast<long long>(schedule.arena_bytes));
    return ProductsOfScores(schedule, "sm_90a");
  };
  const std::vector<size_t> over_columns = products(/*trained=*/true),
                            over_keys = products(/*trained=*/false);
  EXPECT_EQ(std::count(over_columns.begin(), over_columns.end(), 3u), kLayers);
  EXPECT_EQ(std::count(over_keys.begin(), over_keys.end(), 3u), 0);
}

}  // namespace
}  // namespace outboard::test
