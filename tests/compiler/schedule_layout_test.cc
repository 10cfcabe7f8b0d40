// Which values lie in memory in another order than that of their axes.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/harness.h"

namespace outboard::schedule {
namespace {

class ScheduleLayoutTest : public testing::Test {
 protected:
  const UOp* Input(const Shape& dims) { return Param(g, slot_++, DType::kF32, dims); }
  const UOp* Kept(const UOp* x) { return g.MakeChecked(Op::kContiguous, DType::kVoid, {x}); }

  // The sums of x [B, C, L] over C and over windows of `kernel` places along L.
  const UOp* WindowSums(const UOp* x, int64_t kernel) {
    const Dim length = x->shape[2], places = Dim(length.value() - kernel + 1);
    const Shape dims = {x->shape[0], x->shape[1], places, Dim(kernel), length};
    const auto along = [&](Dim n, int where) {
      Shape ones(dims.size(), Dim(1));
      ones[where] = n;
      return Expand(g, Reshape(g, Iota(g, DType::kI32, n), ones), dims);
    };
    const UOp* const place = Add(g, along(places, 2), along(Dim(kernel), 3));
    const UOp* const spread =
        Expand(g, Reshape(g, x, {x->shape[0], x->shape[1], 1, 1, length}), dims);
    const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, along(length, 4), place), spread,
                                 Full(g, ConstFloat(g, DType::kF32, 0), dims));
    return Reduce(g, Op::kAdd, Reduce(g, Op::kAdd, hot, {4}), {1, 3});
  }

  // The convolution of x [B, C, L] with weights [O, C, kernel], in f32: [B, O, 1, places, 1].
  const UOp* Convolution(const UOp* x, const UOp* weights) {
    const Dim batch = x->shape[0], channels = x->shape[1], length = x->shape[2],
              outputs = weights->shape[0], kernel = weights->shape[2],
              places = Dim(length.value() - kernel.value() + 1);
    const Shape dims = {batch, channels, places, kernel, length};
    const auto along = [&](Dim n, int where) {
      Shape ones(dims.size(), Dim(1));
      ones[where] = n;
      return Expand(g, Reshape(g, Iota(g, DType::kI32, n), ones), dims);
    };
    const UOp* const place = Add(g, along(places, 2), along(kernel, 3));
    const UOp* const spread = Expand(g, Reshape(g, x, {batch, channels, 1, 1, length}), dims);
    const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, along(length, 4), place), spread,
                                 Full(g, ConstFloat(g, x->dtype, 0), dims));
    const Shape all = {batch, outputs, channels, places, kernel};
    const auto wide = [&](const UOp* operand, const Shape& shape) {
      operand = Expand(g, Reshape(g, operand, shape), all);
      return operand->dtype == DType::kF32 ? operand : Cast(g, operand, DType::kF32);
    };
    return Reduce(g, Op::kAdd,
                  Mul(g, wide(Reduce(g, Op::kAdd, hot, {4}), {batch, 1, channels, places, kernel}),
                      wide(weights, {1, outputs, channels, 1, kernel})),
                  {2, 4});
  }

  void Choose(const UOp* result, const Target& target = TestTarget()) {
    Choose(std::vector<const UOp*>{result}, target);
  }
  void Choose(const std::vector<const UOp*>& results, const Target& target) {
    sink = Sink(g, results);
    choice = ValueOrDie(ChooseMaterialized(g, sink, target));
    std::vector<LoweredKernel> kernels;
    for (const UOp* value : choice.kept)
      kernels.push_back(ValueOrDie(LowerKernel(g, value, choice.read_again)));
    layouts = ChooseLayouts(sink, choice, kernels, target, &compared);
  }

  Graph g;
  const UOp* sink = nullptr;
  Choice choice;
  Layouts layouts;
  int64_t compared = 0;  // pairs of places

 private:
  int64_t slot_ = 0;
};

using Order = std::vector<int64_t>;

TEST_F(ScheduleLayoutTest, ChannelsOfWhatIsReadThroughWindowsGoLast) {
  const UOp* const x = Kept(Add(g, Input({2, 16, 9}), Input({2, 16, 9})));
  Choose(WindowSums(x, 3));
  ASSERT_EQ(layouts.size(), 1u);
  EXPECT_EQ(layouts.at(x), (Order{0, 2, 1}));

  const LaidOut laid_out = ApplyLayouts(g, sink, choice, layouts);
  ASSERT_EQ(laid_out.choice.kept.size(), choice.kept.size());
  const UOp* const kept = laid_out.choice.kept[0];
  EXPECT_EQ(kept->op, Op::kPermute);
  EXPECT_EQ(Shape(kept->shape.begin(), kept->shape.end()), (Shape{2, 9, 16}));
  EXPECT_TRUE(laid_out.choice.read_again.contains(kept));
  EXPECT_FALSE(laid_out.choice.read_again.contains(x));
}

TEST_F(ScheduleLayoutTest, WhatLiesBesideItFollows) {
  const UOp* const first = Kept(Add(g, Input({2, 16, 9}), Input({2, 16, 9})));
  const UOp* const second = Kept(Mul(g, first, first));
  Choose(WindowSums(second, 3));
  ASSERT_EQ(layouts.size(), 2u);
  EXPECT_EQ(layouts.at(first), (Order{0, 2, 1}));
  EXPECT_EQ(layouts.at(second), (Order{0, 2, 1}));
}

TEST_F(ScheduleLayoutTest, FewChannelsStayWhereTheyAre) {
  Choose(WindowSums(Kept(Add(g, Input({2, 3, 9}), Input({2, 3, 9}))), 3));
  EXPECT_TRUE(layouts.empty());
}

TEST_F(ScheduleLayoutTest, InputsAndResultsStayRowMajor) {
  Choose(WindowSums(Input({2, 16, 9}), 3));
  EXPECT_TRUE(layouts.empty());
}

TEST_F(ScheduleLayoutTest, RowsOfAMatrixAreNoWindow) {
  const UOp* const x = Kept(Add(g, Input({4, 16, 8}), Input({4, 16, 8})));
  Choose(Reduce(g, Op::kAdd, Reshape(g, x, {4, 16, 2, 4}), {1, 3}));
  EXPECT_TRUE(layouts.empty());
}

// [2, 16, 9] that is read as [2, 9, 16].
TEST_F(ScheduleLayoutTest, SumsReadTransposed_LieAsTheyAreReadOnGpus) {
  const UOp* const sum = Reduce(g, Op::kAdd, Input({2, 16, 9, 40}), {3});
  const UOp* const turned = Permute(g, Reshape(g, sum, {2, 16, 9}), {0, 2, 1});
  const UOp* const most = Reduce(g, Op::kMax, turned, {2});
  Choose(most, CudaTarget("sm_90a", 132));
  ASSERT_EQ(layouts.size(), 1u);
  EXPECT_EQ(layouts.at(sum).back(), 1);
  Choose(most);
  EXPECT_TRUE(layouts.empty());
}

TEST_F(ScheduleLayoutTest, SumsReadBothWays_StayRowMajor) {
  const UOp* const sum = Reshape(g, Reduce(g, Op::kAdd, Input({2, 16, 9, 40}), {3}), {2, 16, 9});
  const UOp* const turned = Reduce(g, Op::kMax, Permute(g, sum, {0, 2, 1}), {2});
  const UOp* const plain = Reduce(g, Op::kMax, sum, {1});
  Choose(Add(g, Reshape(g, turned, {2, 9}), Reshape(g, plain, {2, 9})),
         CudaTarget("sm_90a", 132));
  EXPECT_TRUE(layouts.empty());
}

// On GPUs, of 16 bits: as the image that they are multiplied by.
TEST_F(ScheduleLayoutTest, WeightsAreCopiedWithTheirChannelsLast) {
  const auto choose = [&](DType dtype, const Target& target) {
    const auto input = [&](const Shape& dims) { return Param(g, 10, dtype, dims); };
    const UOp* const x = Kept(Add(g, input({2, 16, 9}), Param(g, 11, dtype, {2, 16, 9})));
    const UOp* const weights = Param(g, 12, dtype, {6, 16, 3});
    Choose(Convolution(x, weights), target);
    EXPECT_EQ(layouts.at(x), (Order{0, 2, 1}));
    return weights;
  };
  const Target gpu = CudaTarget("sm_90a", 132);
  const UOp* const weights = choose(DType::kBF16, gpu);
  ASSERT_TRUE(layouts.contains(weights));
  EXPECT_EQ(layouts.at(weights), (Order{0, 2, 1}));
  const LaidOut laid_out = ApplyLayouts(g, sink, choice, layouts);
  ASSERT_EQ(laid_out.choice.kept.size(), choice.kept.size() + 1);
  const UOp* const copy = laid_out.choice.kept[0];
  EXPECT_EQ(copy->op, Op::kPermute);
  EXPECT_EQ(copy->src[0], weights);
  EXPECT_TRUE(laid_out.choice.read_again.contains(copy));
  EXPECT_FALSE(layouts.contains(choose(DType::kF32, gpu)));
  EXPECT_FALSE(layouts.contains(choose(DType::kBF16, TestTarget())));
}

// The update reads the weights themselves, and is written over them; the product reads the copy.
TEST_F(ScheduleLayoutTest, UpdatesOfCopiedWeights_AreWrittenOverThem) {
  const Target gpu = CudaTarget("sm_90a", 132);
  const auto input = [&](int64_t slot, const Shape& dims) {
    return Param(g, slot, DType::kBF16, dims);
  };
  const UOp* const x = Kept(Add(g, input(0, {2, 16, 20}), input(1, {2, 16, 20})));
  const UOp *const weights = input(2, {8, 16, 3}), *const gradient = input(3, {8, 16, 3});
  const UOp* const result = Convolution(x, weights);
  const UOp* const next = Add(g, weights, gradient);
  const std::vector<int64_t> donated = {2};
  const Schedule schedule = ValueOrDie(MakeSchedule(g, Sink(g, {result, next}), gpu, donated));
  EXPECT_EQ(schedule.over, (std::vector<int>{kNoInput, 2})) << ScheduleToString(schedule);
  // x, the copy, the convolution, the update; the copy is a temporary. The update has one buffer
  // for the old and the new weights, and the gradient.
  EXPECT_EQ(schedule.kernels.size(), 4u) << ScheduleToString(schedule);
  for (const ScheduledKernel& kernel : schedule.kernels) {
    const ScheduledBuffer& written = schedule.buffers[kernel.buffers[0]];
    if (written.kind != ScheduledBuffer::Kind::kOutput || written.index != 1) continue;
    EXPECT_EQ(kernel.buffers.size(), 2u) << ScheduleToString(schedule);
  }
  int copies = 0;
  for (const ScheduledBuffer& buffer : schedule.buffers)
    copies += buffer.kind == ScheduledBuffer::Kind::kTemporary && buffer.bytes() == 8 * 16 * 3 * 2;
  EXPECT_EQ(copies, 1) << ScheduleToString(schedule);
}

// A sum that reads each weight once reads the weights, and then there is nobody for the copy: they
// have no layout that others would follow, and no kernel is lowered again for them.
TEST_F(ScheduleLayoutTest, CopiesThatNobodyReadsAreNotMade) {
  const auto input = [&](int64_t slot, const Shape& dims) {
    return Param(g, slot, DType::kBF16, dims);
  };
  const UOp* const x = Kept(Add(g, input(0, {2, 16, 20}), input(1, {2, 16, 20})));
  const UOp* const weights = input(2, {2, 16, 20});
  const UOp* const sums =
      Reduce(g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, weights, DType::kF32)), {1});
  const UOp* const others = input(3, {8, 16, 3});
  Choose({Convolution(x, others), sums}, CudaTarget("sm_90a", 132));
  EXPECT_FALSE(layouts.contains(weights));
  ASSERT_TRUE(layouts.contains(others));
  const LaidOut laid_out = ApplyLayouts(g, sink, choice, layouts);
  ASSERT_EQ(laid_out.choice.kept.size(), choice.kept.size() + 1);
  EXPECT_EQ(laid_out.choice.kept[0]->src[0], others);
}

// Weights of more elements than the image are read as they are.
TEST_F(ScheduleLayoutTest, LargeWeightsAreNotCopied) {
  const auto copies = [&](int64_t outputs) {
    const auto input = [&](int64_t slot, const Shape& dims) {
      return Param(g, slot, DType::kBF16, dims);
    };
    const UOp* const x = Kept(Add(g, input(20, {2, 16, 9}), input(21, {2, 16, 9})));
    const UOp* const weights = input(22, {outputs, 16, 3});
    Choose(Convolution(x, weights), CudaTarget("sm_90a", 132));
    return layouts.contains(weights);
  };
  EXPECT_TRUE(copies(6));  // as many as the image has
  EXPECT_FALSE(copies(7));
}

// Unless eight tiles and more of 128 rows read them.
TEST_F(ScheduleLayoutTest, LargeWeightsThatManyTilesReadAreCopied) {
  const auto copies = [&](int64_t places) {
    const auto input = [&](int64_t slot, const Shape& dims) {
      return Param(g, slot, DType::kBF16, dims);
    };
    const Shape dims = {2, 16, places + 2};
    const UOp* const x = Kept(Add(g, input(40, dims), input(41, dims)));
    const UOp* const weights = input(42, {4096, 16, 3});
    Choose(Convolution(x, weights), CudaTarget("sm_90a", 132));
    return layouts.contains(weights);
  };
  EXPECT_TRUE(copies(512));
  EXPECT_FALSE(copies(511));
}

// x, with one place a window, and y, with three: x has channels that are summed over where y has
// those of the result.
TEST_F(ScheduleLayoutTest, ChannelsOfTheOtherFactorGoLastOnGpus) {
  const auto follows = [&](DType dtype, const Target& target) {
    const auto input = [&](int64_t slot, const Shape& dims) { return Param(g, slot, dtype, dims); };
    const UOp* const x = Kept(Add(g, input(50, {2, 16, 9}), input(51, {2, 16, 9})));
    const UOp* const sums = Convolution(x, input(52, {24, 16, 1}));
    const UOp* const y = Kept(Cast(g, Reshape(g, sums, {2, 24, 9}), dtype));
    Choose(Convolution(y, input(53, {8, 24, 3})), target);
    EXPECT_EQ(layouts.at(y), (Order{0, 2, 1}));
    return layouts.contains(x) && layouts.at(x) == Order{0, 2, 1};
  };
  EXPECT_TRUE(follows(DType::kBF16, CudaTarget("sm_90a", 132)));
  EXPECT_TRUE(follows(DType::kF16, CudaTarget("sm_80", 108)));
  EXPECT_FALSE(follows(DType::kF32, CudaTarget("sm_90a", 132)));
  EXPECT_FALSE(follows(DType::kBF16, TestTarget()));
}

// The windows are of the last value, from which all others follow one by one.
TEST_F(ScheduleLayoutTest, EachValueOfALongChainIsFollowedOnce) {
  const auto compared_of = [&](int64_t length) {
    const auto input = [&](int64_t slot, const Shape& dims) {
      return Param(g, slot, DType::kBF16, dims);
    };
    const UOp* x = Kept(Add(g, input(70, {2, 16, 9}), input(71, {2, 16, 9})));
    std::vector<const UOp*> chain = {x};
    for (int64_t i = 0; i < length; ++i) {
      const UOp* const sums = Convolution(x, input(72 + i, {16, 16, 1}));
      x = Kept(Cast(g, Reshape(g, sums, {2, 16, 9}), DType::kBF16));
      chain.push_back(x);
    }
    Choose(Convolution(x, input(72 + length, {8, 16, 3})), CudaTarget("sm_90a", 132));
    for (const UOp* value : chain) {
      EXPECT_TRUE(layouts.contains(value));
      if (layouts.contains(value)) EXPECT_EQ(layouts.at(value), (Order{0, 2, 1}));
    }
    return compared;
  };
  const int64_t few = compared_of(40);
  EXPECT_GT(few, 0);
  EXPECT_LE(compared_of(160), 4 * few + 4);
}

// One kernel reads a value at many places, beside as many others that do not follow it.
TEST_F(ScheduleLayoutTest, PlacesOfOneValueAreComparedOnce) {
  const auto compared_of = [&](int64_t places) {
    const UOp* const x = Kept(Add(g, Input({2, 16, 9 + places}), Input({2, 16, 9 + places})));
    const Shape dims = {2, 16, 9};
    const UOp* sum = Input(dims);
    for (int64_t i = 0; i < places; ++i) {
      const UOp* const other = Kept(Add(g, Input({2, 16}), Input({2, 16})));
      sum = Add(g, sum, Shrink(g, x, {0, 2, 0, 16, i, i + 9}));
      sum = Add(g, sum, Expand(g, Reshape(g, other, {2, 16, 1}), dims));
    }
    Choose({WindowSums(x, 3), sum}, TestTarget());
    EXPECT_EQ(layouts.at(x), (Order{0, 2, 1}));
    return compared;
  };
  const int64_t few = compared_of(8);
  EXPECT_GT(few, 8);
  EXPECT_LE(compared_of(32), 4 * few + 4);
}

// Of large products, on GPUs, of 16 bits.
TEST_F(ScheduleLayoutTest, ImagesThatWindowsReadAreCopied) {
  const Target gpu = CudaTarget("sm_90a", 132);
  const auto copies = [&](DType dtype, int64_t places, int64_t kernel, const Target& target) {
    const UOp* const x = Param(g, 60, dtype, {8, 64, places + kernel - 1});
    const UOp* const weights = Param(g, 61, dtype, {64, 64, kernel});
    Choose(Convolution(x, weights), target);
    const bool copied = layouts.contains(x);
    EXPECT_EQ(layouts.contains(weights), copied);
    if (!copied) return false;
    EXPECT_EQ(layouts.at(x), (Order{0, 2, 1}));
    return true;
  };
  EXPECT_TRUE(copies(DType::kBF16, 8192, 3, gpu));
  EXPECT_FALSE(copies(DType::kBF16, 64, 3, gpu));
  EXPECT_FALSE(copies(DType::kBF16, 1 << 15, 1, gpu));  // each place once
  EXPECT_FALSE(copies(DType::kF32, 8192, 3, gpu));
  EXPECT_FALSE(copies(DType::kBF16, 8192, 3, TestTarget()));
}

TEST_F(ScheduleLayoutTest, CopiesOfImages_GiveTheSameResults) {
  const UOp* const x = Param(g, 0, DType::kBF16, {2, 16, 9});
  const UOp* const weights = Param(g, 1, DType::kBF16, {6, 16, 3});
  Choose(Convolution(x, weights), CudaTarget("sm_90a", 132));
  EXPECT_TRUE(layouts.empty());
  const Layouts copied = {{x, {0, 2, 1}}, {weights, {0, 2, 1}}};
  const LaidOut laid_out = ApplyLayouts(g, sink, choice, copied);
  ASSERT_EQ(laid_out.choice.kept.size(), choice.kept.size() + 2);
  std::mt19937 random(3);
  const std::vector<HostTensor> params = test::FloatParams(
      sink, [&] { return static_cast<double>(static_cast<int>(random() % 17) - 8) / 32; });
  const std::vector<HostTensor> want = ValueOrDie(Interpret(sink, params)),
                                got = ValueOrDie(Interpret(laid_out.sink, params));
  ASSERT_EQ(want.size(), 1u);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes, want[0].bytes);
}

}  // namespace
}  // namespace outboard::schedule
