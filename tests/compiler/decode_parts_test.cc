// Attention of few queries, divided by its keys (compiler/schedule/keys): two kernels for all
// lengths, the first by matrix units, and no scores in memory. Both run on the PTX machine, against
// the reference interpreter. Keys and values beyond a length are not numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/schedule/keys/key_parts.h"
#include "compiler/schedule/split.h"
#include "tests/compiler/decoded_attention.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;

void CheckLengths(Decoded d, std::initializer_list<int64_t> lengths, const char* arch = "sm_90a") {
  SCOPED_TRACE(testing::Message() << d.heads << " times " << d.group << " heads, " << d.keys
                                  << " keys, width " << d.width << (d.mask ? ", masked" : ""));
  d.length = *lengths.begin();
  Graph graph;
  const GpuSchedule gpu(d.Record(graph).sink, arch);
  ASSERT_EQ(gpu.compiled().size(), 2u) << gpu.ToString();
  EXPECT_TRUE(absl::StrContains(gpu.compiled()[0].object, "mma.sync"));
  EXPECT_LE(gpu.LargestElements(), d.heads * d.group * d.width * d.keys / 64) << gpu.ToString();
  const double tolerance = d.dtype == DType::kF32 ? 0x1p-13 : 0x1p-7;
  for (const int64_t length : lengths) {
    SCOPED_TRACE(testing::Message() << length << " bound");
    d.length = length;
    Graph own;
    const DecodedGraph bound = d.Record(own);
    const auto spoil = [&](std::vector<HostTensor>& params) {
      for (const size_t of_keys : {1, 2})
        for (int64_t i = 0; length > 0 && i < params[of_keys].ElementCount(); ++i)
          if (i / d.width % d.keys >= length)
            StoreFloat(d.dtype, std::nan(""),
                       params[of_keys].bytes.data() + i * ByteWidth(d.dtype));
    };
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, tolerance, spoil);
    if (testing::Test::HasFailure()) return;
  }
  // Whatever the order of warps, bits are the same.
  Graph own;
  const DecodedGraph bound = d.Record(own);
  const std::vector<HostTensor> params = SmallInputs(bound.sink);
  const std::vector<int64_t> vars = VarsOf(bound.bindings);
  EXPECT_EQ(gpu.Run(params, vars, nullptr, -1, /*seed=*/2), gpu.Run(params, vars)) << "other bits";
}

TEST(DecodeParts, KeysThatAVarCounts) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    CheckLengths({.dtype = dtype}, {1, 3, 16, 17, 70, 500, 1000, 1024});
}

TEST(DecodeParts, KeysOfAFixedNumber) {
  CheckLengths({}, {0});
  CheckLengths({.keys = 1000}, {0});
}

// A sum of no keys is 0, which a quotient of two such sums is not.
TEST(DecodeParts, KeysThatMayBeNone) { CheckLengths({.length_least = 0}, {1, 0, 5, 1024}); }

// The maxima of the 8 rows of scores x in turns along the keys.
const UOp* MaximaInTurns(Graph& g, const UOp* x) {
  const Dim heads = x->shape[0];
  const int64_t keys = x->shape[2].value();
  const UOp* const max = Reshape(g, Reduce(g, Op::kMax, x, {2}), {heads, Dim(1), Dim(1), Dim(8)});
  const UOp* const turns = Expand(g, max, {heads, Dim(1), Dim(keys / 8), Dim(8)});
  return Expand(g, Reshape(g, turns, {heads, Dim(1), Dim(keys)}), x->shape);
}

// Attention of 8 queries for each head, given scores x; what exponentials are divided by, and
// whether they are scaled.
enum class Sum { kOfTheRow, kOfAnotherRow, kLessOtherMaxima, kNone };
// `rounded`: to what weights, 100 times as large, are.
const UOp* WeightsTimesValues(Graph& g, int64_t keys, Sum of, int64_t heads = 8,
                              int64_t width = 64, bool scaled = false,
                              DType rounded = DType::kF32) {
  const UOp* const x = BufferNode(g, 0, DType::kF32, {Dim(heads), Dim(8), Dim(keys)});
  const UOp* const v = BufferNode(g, 1, DType::kF32, {Dim(heads), Dim(keys), Dim(width)});
  const UOp* const max = of == Sum::kLessOtherMaxima
                             ? MaximaInTurns(g, x)
                             : Expand(g, Reduce(g, Op::kMax, x, {2}), x->shape);
  const UOp* const e = Alu(g, Op::kExp, Add(g, x, Alu(g, Op::kNeg, max)));
  const UOp* sum = Reduce(g, Op::kAdd, e, {2});
  if (of == Sum::kOfAnotherRow) sum = Permute(g, sum, {1, 0, 2});
  const UOp* weights = of == Sum::kNone ? e : Alu(g, Op::kFDiv, e, Expand(g, sum, x->shape));
  if (scaled) weights = Mul(g, weights, BufferNode(g, 3, DType::kF32, x->shape));
  if (rounded != DType::kF32) {
    weights = Mul(g, weights, Full(g, ConstFloat(g, DType::kF32, 100), x->shape));
    weights = Cast(g, Cast(g, weights, rounded), DType::kF32);
  }
  const Shape all = {Dim(heads), Dim(8), Dim(keys), Dim(width)};
  const auto wide = [&](const UOp* node, const Shape& ones) {
    return Expand(g, Reshape(g, node, ones), all);
  };
  const UOp* const product = Mul(g, wide(weights, {Dim(heads), Dim(8), Dim(keys), Dim(1)}),
                                 wide(v, {Dim(heads), Dim(1), Dim(keys), Dim(width)}));
  return Sink(g, {Reduce(g, Op::kAdd, product, {2})});
}

size_t DividedSums(int64_t keys, Sum of, int64_t heads = 8, int64_t width = 64) {
  Graph g;
  const UOp* const sink = WeightsTimesValues(g, keys, of, heads, width);
  const schedule::KeysInParts parts =
      ValueOrDie(schedule::DivideKeys(g, sink, CudaTarget("sm_90a", kMultiprocessors)));
  EXPECT_EQ(parts.sink != sink, !parts.divided.empty());
  return parts.divided.size();
}

// The sum that exponentials are divided by is that of their own row, as is the maximum before, or
// this is no softmax.
TEST(DecodeParts, OnlyOfASoftmax) {
  EXPECT_EQ(DividedSums(1024, Sum::kOfTheRow), 1u);
  EXPECT_EQ(DividedSums(1024, Sum::kOfAnotherRow), 0u);
  EXPECT_EQ(DividedSums(1024, Sum::kLessOtherMaxima), 0u);
  EXPECT_EQ(DividedSums(1024, Sum::kNone), 0u);
}

// With as many queries as one kernel has for keys in parts, and with more.
TEST(DecodeParts, MaximaOfOtherRows_AreNotThoseOfASoftmax) {
  constexpr int64_t kKeys = 1024, kWidth = 64;
  for (const int64_t queries : {8, 72}) {
    Graph g;
    const auto matrix = [&](int64_t slot, int64_t rows) {
      return Param(g, slot, DType::kF32, {Dim(1), Dim(rows), Dim(kWidth)});
    };
    const Shape terms = {Dim(1), Dim(queries), Dim(kKeys), Dim(kWidth)};
    const auto wide = [&](const UOp* x, const Shape& ones) {
      return Expand(g, Reshape(g, x, ones), terms);
    };
    const Shape of_keys = {Dim(1), Dim(1), Dim(kKeys), Dim(kWidth)};
    const UOp* const x = Reshape(
        g,
        Reduce(g, Op::kAdd,
               Mul(g, wide(matrix(0, queries), {Dim(1), Dim(queries), Dim(1), Dim(kWidth)}),
                   wide(matrix(1, kKeys), of_keys)),
               {3}),
        {Dim(1), Dim(queries), Dim(kKeys)});
    const UOp* const first = Shrink(g, x, {0, 1, 0, 8, 0, kKeys});
    const UOp* const max = Expand(
        g, Shrink(g, MaximaInTurns(g, first), {0, 1, 0, 1, 0, kKeys}), x->shape);
    const UOp* const e = Alu(g, Op::kExp, Add(g, x, Alu(g, Op::kNeg, max)));
    const UOp* const weights =
        Alu(g, Op::kFDiv, e, Expand(g, Reduce(g, Op::kAdd, e, {2}), x->shape));
    const UOp* const product =
        Mul(g, wide(weights, {Dim(1), Dim(queries), Dim(kKeys), Dim(1)}),
            wide(matrix(2, kKeys), of_keys));
    const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, product, {2})});
    GpuSchedule(sink, "sm_90a").ExpectAsInterpreted(sink, {}, 0x1p-13);
  }
}

// Keys are those that the sum is over, and not as many of something else.
TEST(DecodeParts, OnlyWhereTheKeysStayTheKeys) {
  for (const bool turned : {false, true}) {
    Graph g;
    constexpr int64_t kKeys = 256, kWidth = 64;
    const UOp* const x = Param(g, 0, DType::kF32, {Dim(2), Dim(kKeys)});
    const UOp* const max = Expand(g, Reduce(g, Op::kMax, x, {1}), x->shape);
    const UOp* const e = Alu(g, Op::kExp, Add(g, x, Alu(g, Op::kNeg, max)));
    const UOp* weights =
        Alu(g, Op::kFDiv, e, Expand(g, Reduce(g, Op::kAdd, e, {1}), x->shape));
    if (turned) weights = Permute(g, weights, {1, 0});
    const Shape all = {Dim(kKeys), Dim(2), Dim(kWidth)};
    const UOp* const product =
        Mul(g, Expand(g, Reshape(g, weights, {Dim(kKeys), Dim(2), Dim(1)}), all),
            Param(g, 1, DType::kF32, all));
    const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, product, {0})});
    const schedule::KeysInParts parts =
        ValueOrDie(schedule::DivideKeys(g, sink, CudaTarget("sm_90a", kMultiprocessors)));
    EXPECT_EQ(parts.divided.size(), turned ? 1u : 0u);
  }
}

// Exponentials that are not divided yet have other integers than weights have.
TEST(DecodeParts, OnlyOfWeightsThatAreRoundedAsFloats) {
  for (const DType rounded : {DType::kBF16, DType::kF16, DType::kI8, DType::kI32, DType::kF8E4M3}) {
    Graph g;
    const UOp* const sink = WeightsTimesValues(g, 1024, Sum::kOfTheRow, /*heads=*/8, /*width=*/64,
                                               /*scaled=*/false, rounded);
    const schedule::KeysInParts parts =
        ValueOrDie(schedule::DivideKeys(g, sink, CudaTarget("sm_90a", kMultiprocessors)));
    EXPECT_EQ(parts.divided.size(), rounded == DType::kBF16 ? 1u : 0u) << Name(rounded);
  }
}

// Keys are filled up to a multiple of their parts, which a dimension must have room for.
TEST(DecodeParts, AsManyKeysAsADimensionHas) {
  constexpr int64_t kPartsMax = 64;
  const auto divided = [](int64_t keys) {
    return DividedSums(keys, Sum::kOfTheRow, /*heads=*/1, /*width=*/8);
  };
  EXPECT_EQ(divided(limits::kDimMax - kPartsMax), 1u);
  EXPECT_EQ(divided(limits::kDimMax - kPartsMax + 1), 0u);
  EXPECT_EQ(divided(limits::kDimMax), 0u);
}

// What is divided already, and has no quotient yet, is not divided again.
TEST(DecodeParts, SumsOfPartsStayWhole) {
  for (const bool scaled : {false, true}) {
    Graph g;
    const UOp* const sink =
        WeightsTimesValues(g, 1024, Sum::kNone, /*heads=*/1, /*width=*/64, scaled);
    const auto split = [&](const UOp* scores_of_part) {
      return ValueOrDie(schedule::SplitReductions(g, sink, CudaTarget("sm_90a", kMultiprocessors),
                                                  nullptr, {scores_of_part}));
    };
    const auto scores = [&](int64_t slot) {
      return BufferNode(g, slot, DType::kF32, {Dim(1), Dim(8), Dim(1024)});
    };
    EXPECT_EQ(split(scores(0)), sink);
    EXPECT_NE(split(scores(2)), sink) << "another attention's are in parts";
  }
}

// Those of a caller's choice stay whole, too.
TEST(DecodeParts, SumsThatAreToStayWhole) {
  Graph g;
  const UOp* const sink = WeightsTimesValues(g, 1024, Sum::kOfTheRow);
  const schedule::KeysInParts parts = ValueOrDie(
      schedule::DivideKeys(g, sink, CudaTarget("sm_90a", kMultiprocessors), {sink->src[0]}));
  EXPECT_EQ(parts.sink, sink);
}

TEST(DecodeParts, GroupsAndMasks) {
  CheckLengths({.heads = 2, .group = 4, .width = 128}, {1, 200, 1024});
  CheckLengths({.heads = 1, .group = 3, .keys = 700, .mask = true}, {1, 2, 555, 700});
}

// A part's loop ends with its last key. Keys and values are read once, 16 bytes at a time; nothing
// spills.
TEST(DecodeParts, WorkIsThatOfTheLength) {
  Decoded d{.heads = 1, .keys = 16384};
  d.length = 1;
  Graph graph;
  const GpuSchedule gpu(d.Record(graph).sink, "sm_90a");
  ASSERT_EQ(gpu.compiled().size(), 2u);
  const std::string& ptx = gpu.compiled()[0].object;
  EXPECT_TRUE(absl::StrContains(ptx, "cp.async.cg.shared.global")) << "16 bytes";
  EXPECT_FALSE(absl::StrContains(ptx, "cp.async.ca")) << "fewer";
  EXPECT_FALSE(absl::StrContains(ptx, ".local"));
  if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
    const auto assembled = AssembleKernel(ptxas, ptx, "sm_90a");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->stack_bytes + assembled->spill_bytes, 0);
    std::printf("%lld registers, %lld blocks of %lld threads\n",
                static_cast<long long>(assembled->registers),
                static_cast<long long>(gpu.compiled()[0].blocks[0]),
                static_cast<long long>(gpu.compiled()[0].threads[0]));
  }
  const auto counts = [&](int64_t length) {
    d.length = length;
    Graph own;
    const DecodedGraph bound = d.Record(own);
    MachineCounts counts;
    gpu.Run(SmallInputs(bound.sink), VarsOf(bound.bindings), &counts, /*counted=*/0);
    return counts;
  };
  const MachineCounts some = counts(2048), all = counts(16384);
  const auto sectors = static_cast<double>(d.keys * d.width * 2 * 2 / 32);
  std::printf(
      "2048 of 16384 keys: %.3f of the instructions, of all %llu; sectors %.3f of those of keys "
      "and values\n",
      static_cast<double>(some.warp_instructions) / static_cast<double>(all.warp_instructions),
      static_cast<unsigned long long>(all.warp_instructions),
      static_cast<double>(all.global_sectors) / sectors);
  EXPECT_LT(some.warp_instructions * 2, all.warp_instructions);
  EXPECT_LT(static_cast<double>(all.global_sectors), 1.1 * sectors);
}

TEST(DecodeParts, OtherArchitectures) { CheckLengths({.heads = 2}, {9, 900}, "sm_80"); }

}  // namespace
}  // namespace outboard::test
