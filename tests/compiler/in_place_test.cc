// Which results are written over donated inputs, and which temporaries over others, and that what
// is computed stays the same.
#include "compiler/schedule/in_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/schedule_check.h"
#include "tests/compiler/schedule_eval.h"

namespace outboard {
namespace {

using schedule::kNoInput;

class InPlaceTest : public testing::Test {
 protected:
  const UOp* F32(int64_t slot, std::vector<int64_t> dims) {
    return Param(g, slot, DType::kF32, Shape(dims.begin(), dims.end()));
  }
  const UOp* Scaled(const UOp* x, double by) {
    return Mul(g, x, Full(g, ConstFloat(g, x->dtype, by), x->shape));
  }
  const UOp* MatMul(const UOp* a, const UOp* b) {
    const Shape full = {a->shape[0], a->shape[1], b->shape[1]};
    const UOp* const left = Expand(g, Reshape(g, a, {full[0], full[1], 1}), full);
    const UOp* const right = Expand(g, Reshape(g, b, {1, full[1], full[2]}), full);
    return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {1}), {full[0], full[2]});
  }

  // The schedule, after it was walked with its results over their inputs and compared.
  schedule::Schedule Make(const std::vector<const UOp*>& results,
                          const std::vector<int64_t>& donated) {
    const UOp* const sink = Sink(g, results);
    test::ExpectAsInterpreted(sink);
    auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget(), donated));
    std::mt19937 random(1);
    std::vector<HostTensor> params;
    for (const UOp* param : ParamsOf(sink)) {
      std::vector<double> values(ElementCount(param->shape));
      for (double& value : values) value = static_cast<double>(random() % 64) / 8;
      const std::vector<int64_t> integers(values.begin(), values.end());
      params.push_back(IsFloat(param->dtype)
                           ? test::Floats(param->dtype, StaticDims(param->shape), values)
                           : test::Ints(param->dtype, StaticDims(param->shape), integers));
    }
    const auto want = ValueOrDie(Interpret(sink, params));
    const auto got = ValueOrDie(test::EvaluateSchedule(schedule, sink, params));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i].bytes, want[i].bytes) << "result " << i << "\n"
                                             << ScheduleToString(schedule);
    return schedule;
  }
  std::vector<int> Over(const std::vector<const UOp*>& results,
                        const std::vector<int64_t>& donated) {
    return Make(results, donated).over;
  }

  Graph g;
};

using Inputs = std::vector<int>;

TEST_F(InPlaceTest, AnUpdateIsWrittenOverWhatItUpdates) {
  const UOp *const w = F32(0, {4, 6}), *const dw = F32(1, {4, 6});
  const UOp* const next = Add(g, w, Scaled(dw, -0.5));
  EXPECT_EQ(Over({next}, {}), Inputs{kNoInput});
  const auto schedule = Make({next}, {0});
  EXPECT_EQ(schedule.over, Inputs{0});
  EXPECT_EQ(schedule.kernels[0].buffers.size(), 2u) << "one for the old and the new weight";
  EXPECT_EQ(Over({next}, {1}), Inputs{1}) << "the gradient's memory is as good";
}

TEST_F(InPlaceTest, AnOptimiserStepNeedsNoMemoryForItsState) {
  const UOp *const w = F32(0, {40}), *const m = F32(1, {40}), *const v = F32(3, {40}),
                   *const dw = F32(2, {40});
  const UOp* const m2 = Add(g, Scaled(m, 0.5), Scaled(dw, 0.5));
  const UOp* const v2 = Add(g, Scaled(v, 0.75), Scaled(Mul(g, dw, dw), 0.25));
  const UOp* const w2 = Add(g, w, Mul(g, m2, v2));
  const auto schedule = Make({w2, m2, v2}, {0, 1, 3});
  EXPECT_EQ(schedule.kernels.size(), 1u);
  std::vector<int> over = schedule.over;
  std::sort(over.begin(), over.end());
  EXPECT_EQ(over, (Inputs{0, 1, 3}));
}

TEST_F(InPlaceTest, NotWhereTheKernelReadsTheInputElsewhere) {
  const UOp* const x = F32(0, {4, 4});
  EXPECT_EQ(Over({Add(g, x, Permute(g, x, {1, 0}))}, {0}), Inputs{kNoInput}) << "turned";
  EXPECT_EQ(Over({Add(g, x, Flip(g, x, {0}))}, {0}), Inputs{kNoInput}) << "reversed";
  EXPECT_EQ(Over({Add(g, x, Pad(g, Shrink(g, x, {0, 3, 0, 4}), {1, 0, 0, 0}))}, {0}),
            Inputs{kNoInput})
      << "shifted";
  const UOp* const sum = Expand(g, Reduce(g, Op::kAdd, x, {1}), x->shape);
  EXPECT_EQ(Over({Add(g, x, sum)}, {0}), Inputs{kNoInput}) << "summed over a row";
  EXPECT_EQ(Over({MatMul(x, F32(1, {4, 4}))}, {0}), Inputs{kNoInput}) << "a product";
}

// A sum whose steps read the input is the same on every device, though only one of a GPU's threads
// that divide it could store over what all of them read.
TEST_F(InPlaceTest, OnAGpu_NotWhereEachStepOfASumReadsTheInput) {
  const UOp *const x = F32(0, {8}), *const w = F32(1, {8, 64});
  const UOp* const spread = Expand(g, Reshape(g, x, {8, 1}), w->shape);
  const UOp* const in_sum =
      Reshape(g, Reduce(g, Op::kAdd, Alu(g, Op::kSin, Mul(g, spread, w)), {1}), {8});
  const UOp* const beside = Add(g, x, Reshape(g, Reduce(g, Op::kAdd, w, {1}), {8}));
  EXPECT_EQ(Over({in_sum}, {0}), Inputs{0});
  EXPECT_EQ(Over({beside}, {0}), Inputs{0});
  const auto on_a_gpu = [&](const UOp* result) {
    const std::vector<int64_t> donated = {0};
    return ValueOrDie(
               schedule::MakeSchedule(g, Sink(g, {result}), CudaTarget("sm_90", 132), donated))
        .over;
  };
  EXPECT_EQ(on_a_gpu(in_sum), Inputs{kNoInput});
  EXPECT_EQ(on_a_gpu(beside), Inputs{0});
}

TEST_F(InPlaceTest, NotWhereBytesOrTypesDiffer) {
  const UOp* const x = F32(0, {6});
  EXPECT_EQ(Over({Cast(g, x, DType::kF64)}, {0}), Inputs{kNoInput});
  EXPECT_EQ(Over({Cast(g, x, DType::kI32)}, {0}), Inputs{kNoInput});
  EXPECT_EQ(Over({Reduce(g, Op::kAdd, x, {0})}, {0}), Inputs{kNoInput});
  EXPECT_EQ(Over({Scaled(Reshape(g, x, {2, 3}), 2)}, {0}), Inputs{0}) << "a shape does not matter";
}

// x read by a kernel that comes later, as it is written: a product of matrices beside the update.
TEST_F(InPlaceTest, AWriterWaitsForOtherReaders) {
  const UOp *const w = F32(0, {5, 5}), *const x = F32(1, {3, 5});
  const auto schedule = Make({Scaled(w, 2), MatMul(x, w)}, {0});
  EXPECT_EQ(schedule.over, (Inputs{0, kNoInput}));
  ASSERT_EQ(schedule.kernels.size(), 2u);
  EXPECT_EQ(schedule.buffers[schedule.kernels[1].buffers[0]].index, 0) << "the update comes last";
}

TEST_F(InPlaceTest, NotWhereAReaderWaitsForTheWriter) {
  const UOp *const w = F32(0, {5, 5}), *const x = F32(1, {5, 5});
  const UOp* const next = Scaled(w, 2);
  EXPECT_EQ(Over({next, MatMul(next, MatMul(x, w))}, {0}), (Inputs{0, kNoInput}))
      << "the inner product need not wait";
  EXPECT_EQ(Over({next, MatMul(next, w)}, {0}), (Inputs{kNoInput, kNoInput}));
}

TEST_F(InPlaceTest, OneInputHasOneResult) {
  const UOp* const x = F32(0, {8});
  EXPECT_EQ(Over({Scaled(x, 2), Scaled(x, 3)}, {0}), (Inputs{0, kNoInput}));
}

TEST_F(InPlaceTest, ValuesChangePlaces) {
  const UOp *const a = F32(0, {8}), *const b = F32(1, {8});
  std::vector<int> over = Over({Add(g, Scaled(a, 2), b), Add(g, a, Scaled(b, 3))}, {0, 1});
  std::sort(over.begin(), over.end());
  EXPECT_EQ(over, (Inputs{0, 1}));
}

TEST_F(InPlaceTest, MemoryThatNobodyReadsAnyMore) {
  const UOp *const x = F32(0, {5, 5}), *const w = F32(1, {5, 5});
  const UOp* const hidden = MatMul(x, w);
  EXPECT_EQ(Over({MatMul(hidden, hidden)}, {0}), Inputs{0});
  EXPECT_EQ(Over({MatMul(hidden, w)}, {1}), Inputs{kNoInput});
}

// A value of the row, stored in a kernel that goes over all elements of it, is stored many times.
TEST_F(InPlaceTest, NotWhereAnElementIsComputedMoreThanOnce) {
  const UOp *const row = F32(0, {70, 1}), *const x = F32(1, {70, 8});
  const UOp* const next = Add(g, row, Reduce(g, Op::kMax, x, {1}));
  const auto schedule = Make({next, Add(g, x, Expand(g, next, x->shape))}, {0});
  EXPECT_EQ(schedule.kernels.size(), 1u) << ScheduleToString(schedule);
  EXPECT_EQ(schedule.over, (Inputs{kNoInput, kNoInput}));
}

// Rows added to places of a table that is donated: zeros, the rows, and the table updated by them.
TEST_F(InPlaceTest, ATableIsUpdatedByAScatter) {
  const Shape full = {60, 100, 4};
  const UOp *const index = Param(g, 0, DType::kI32, {Dim(60)}), *const rows = F32(1, {60, 4}),
                   *const table = F32(2, {100, 4});
  const UOp* const place = Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(100)), {1, 100, 1}), full);
  const UOp* const hot = Alu(g, Op::kCmpEq, place, Expand(g, Reshape(g, index, {60, 1, 1}), full));
  const UOp* const sum = Reduce(g, Op::kAdd,
                                Where(g, hot, Expand(g, Reshape(g, rows, {60, 1, 4}), full),
                                      Full(g, ConstFloat(g, DType::kF32, 0), full)),
                                {0});
  const auto schedule = Make({Add(g, Reshape(g, sum, table->shape), table)}, {0, 1, 2});
  EXPECT_EQ(schedule.kernels.size(), 3u) << ScheduleToString(schedule);
  EXPECT_EQ(schedule.over, Inputs{2});
}

// The row of a table that one kernel gathers another one has written by then.
TEST_F(InPlaceTest, NotWhereRowsAreGatheredFromIt) {
  const Shape full = {100, 100, 4};
  const UOp *const index = Param(g, 0, DType::kI32, {Dim(100)}), *const table = F32(1, {100, 4});
  const UOp* const place = Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(100)), {1, 100, 1}), full);
  const UOp* const hot = Alu(g, Op::kCmpEq, place, Expand(g, Reshape(g, index, {100, 1, 1}), full));
  const UOp* const rows = Reduce(g, Op::kAdd,
                                 Where(g, hot, Expand(g, Reshape(g, table, {1, 100, 4}), full),
                                       Full(g, ConstFloat(g, DType::kF32, 0), full)),
                                 {1});
  EXPECT_EQ(Over({Add(g, Reshape(g, rows, table->shape), table)}, {1}), Inputs{kNoInput});
}

TEST_F(InPlaceTest, InputsAndNothing) {
  EXPECT_EQ(Over({F32(0, {3})}, {0}), Inputs{0});
  EXPECT_EQ(Over({Scaled(F32(0, {0, 2}), 2)}, {0}), Inputs{kNoInput});
}

// ---- temporaries

class OverwriteTest : public InPlaceTest {
 protected:
  using Policy = schedule::OverwritePolicy;

  schedule::Schedule MakeBy(const std::vector<const UOp*>& results, Policy policy) {
    return ValueOrDie(schedule::MakeSchedule(g, Sink(g, results), TestTarget(), {},
                                             {.overwrites = policy}));
  }

  // How many kernels store a temporary over the one that they read, after all engines were
  // compared; one of them writes all temporaries over others that it can.
  int Overwrites(const std::vector<const UOp*>& results, Policy policy = Policy::kAll) {
    const UOp* const sink = Sink(g, results);
    test::ExpectAsInterpreted(sink, 1e-3, 0.1);
    const schedule::Schedule schedule = MakeBy(results, policy);
    int count = 0;
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      std::vector<int64_t> stored, loaded;
      for (const UOp* node : PostOrder(kernel.ast)) {
        if (node->op == Op::kStore) stored.push_back(GlobalOfAccess(node).slot());
        if (node->op == Op::kLoad) loaded.push_back(GlobalOfAccess(node).slot());
      }
      for (const int64_t slot : stored)
        count += std::count(loaded.begin(), loaded.end(), slot) > 0 &&
                 schedule.buffers[kernel.buffers[slot]].kind ==
                     schedule::ScheduledBuffer::Kind::kTemporary;
    }
    if (count > 0) {
      const schedule::Schedule apart = MakeBy(results, Policy::kNever);
      EXPECT_LE(schedule.arena_bytes, apart.arena_bytes) << ScheduleToString(schedule);
    }
    return count;
  }

  const UOp* Rows(const UOp* value, const UOp* like) {  // [n] -> [n, m]
    return Expand(g, Reshape(g, value, {like->shape[0], 1}), like->shape);
  }
  const UOp* RowMax(const UOp* x) {
    return Rows(Reshape(g, Reduce(g, Op::kMax, x, {1}), {x->shape[0]}), x);
  }
  const UOp* RowSum(const UOp* x) {
    return Rows(Reshape(g, Reduce(g, Op::kAdd, x, {1}), {x->shape[0]}), x);
  }
  const UOp* Exp(const UOp* x) { return Alu(g, Op::kExp, x); }
  const UOp* Minus(const UOp* a, const UOp* b) { return Add(g, a, Alu(g, Op::kNeg, b)); }
  const UOp* Transposed(const UOp* x) { return Permute(g, x, {1, 0}); }
  // Two products, so that `x` is stored.
  std::vector<const UOp*> Used(const UOp* x) { return {MatMul(x, w), MatMul(v, x)}; }

  const UOp* const h = MatMul(F32(0, {70, 3}), F32(1, {3, 64}));
  const UOp* const w = F32(2, {64, 3});
  const UOp* const v = F32(3, {3, 70});
};

TEST_F(OverwriteTest, ElementByElement) {
  const UOp* const sums = Reduce(g, Op::kAdd, h, {0});
  const UOp* const next = Alu(g, Op::kSin, Mul(g, h, Expand(g, sums, h->shape)));
  EXPECT_EQ(Overwrites(Used(next)), 1);
  EXPECT_EQ(Overwrites(Used(next), Policy::kNever), 0);
  EXPECT_EQ(Overwrites(Used(next), Policy::kLarge), 0) << "too small to be worth it";
}

TEST_F(OverwriteTest, AChainIsOneValue) {
  const auto scaled = [&](const UOp* x) {
    const UOp* const most = Expand(g, Reduce(g, Op::kMax, x, {0}), x->shape);
    return Alu(g, Op::kSin, Mul(g, x, most));
  };
  const std::vector<const UOp*> results = Used(scaled(scaled(scaled(h))));
  EXPECT_EQ(Overwrites(results), 3);
  int64_t large = 0;
  for (const schedule::ScheduledBuffer& buffer : MakeBy(results, Policy::kAll).buffers)
    large += buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary &&
             buffer.bytes() == int64_t{70} * 64 * 4;
  EXPECT_EQ(large, 1);
}

TEST_F(OverwriteTest, ARowThatReductionsHaveRead) {
  const UOp* const e = Exp(Minus(h, RowMax(h)));
  EXPECT_EQ(Overwrites(Used(Alu(g, Op::kFDiv, e, RowSum(e)))), 1);
}

TEST_F(OverwriteTest, NotWhereOthersAreRead) {
  const UOp* const square = MatMul(F32(0, {64, 3}), F32(1, {3, 64}));
  const UOp* const turned = Exp(Minus(square, Transposed(square)));
  EXPECT_EQ(Overwrites({MatMul(turned, w), MatMul(F32(3, {3, 64}), turned)}), 0);
  EXPECT_EQ(Overwrites(Used(Minus(h, RowMax(Flip(g, h, {0}))))), 0) << "another row";
  const UOp* const below = Pad(g, Shrink(g, h, {0, 69, 0, 64}), {1, 0, 0, 0});
  EXPECT_EQ(Overwrites(Used(Minus(h, RowMax(below)))), 0) << "the row before";
}

TEST_F(OverwriteTest, NotWhereItIsReadLater) {
  const UOp* const next = Minus(h, RowMax(h));
  // A product of what is made of it with all of what it is made of.
  EXPECT_EQ(Overwrites({MatMul(Transposed(h), MatMul(next, w)), MatMul(v, next)}), 0);
  // Both are results, or one.
  EXPECT_EQ(Overwrites({h, next}), 0);
  EXPECT_EQ(Overwrites({h, MatMul(next, w), MatMul(v, next)}), 0);
  EXPECT_EQ(Overwrites({next, MatMul(next, w)}), 0);
}

// Rows read by two kernels that both could write over them: one does.
TEST_F(OverwriteTest, TwoUsers) {
  const UOp *const a = Minus(h, RowMax(h)), *const b = Alu(g, Op::kFDiv, h, RowSum(h));
  std::vector<const UOp*> results = Used(a);
  for (const UOp* result : Used(b)) results.push_back(result);
  EXPECT_LE(Overwrites(results), 1);
}

// Each of many kernels reads all values elsewhere than it stores, and so may write over none: what
// is looked at to see that is limited, and then nothing is written over anything.
TEST_F(InPlaceTest, KernelsThatReadManyValuesAreLookedAtUpToALimit) {
  constexpr int64_t kElements = 64, kValues = 64;
  const auto walked_of = [&](int64_t readers) {
    std::vector<const UOp*> values;
    for (int64_t i = 0; i < kValues + readers; ++i)
      values.push_back(g.MakeChecked(Op::kContiguous, DType::kVoid, {F32(i, {kElements})}));
    const UOp* const r = test::Range(g, 0, kElements);
    const UOp* const back = Add(g, ConstIndex(g, kElements - 1), Mul(g, r, ConstIndex(g, -1)));
    std::vector<schedule::FusedKernel> kernels;
    for (int64_t i = 0; i < kValues; ++i)
      kernels.push_back(
          {Sink(g, {test::StoreAt(g, 0, kElements, r, ConstFloat(g, DType::kF32, 1))}),
           {values[i]},
           1});
    for (int64_t k = 0; k < readers; ++k) {
      std::vector<const UOp*> buffers = {values[kValues + k]};
      const UOp* sum = ConstFloat(g, DType::kF32, 0);
      for (int64_t i = 0; i < kValues; ++i) {
        buffers.push_back(values[i]);
        sum = Add(g, sum, test::LoadAt(g, i + 1, DType::kF32, kElements, back));
      }
      kernels.push_back({Sink(g, {test::StoreAt(g, 0, kElements, r, sum)}), buffers, 1});
    }
    int64_t walked = 0;
    const schedule::WrittenOver over = schedule::WriteTemporariesInPlace(
        g, kernels, {}, /*bytes_least=*/0, {}, /*divided_sums=*/false, {}, &walked);
    EXPECT_TRUE(over.empty());
    return walked;
  };
  constexpr int64_t kLimit = int64_t{1} << 20, kAtLeast = int64_t{1} << 16;
  EXPECT_GT(walked_of(5), kAtLeast);
  EXPECT_LT(walked_of(5), kLimit);
  EXPECT_LE(walked_of(200), 2 * kLimit + kAtLeast);
}

// As a client writes it: the loss reads the logits at the labels, and the sums that the gradient's
// kernel makes, so it would come after what it reads is gone.
class LossTest : public OverwriteTest {
 protected:
  static constexpr int64_t kRows = 70, kClasses = 256;

  void SetUp() override {
    logits = MatMul(F32(1, {kRows, 3}), F32(2, {3, kClasses}));
    const UOp* const most = RowMax(logits);
    const UOp* const e = Exp(Minus(logits, most));
    const UOp* const sum = RowSum(e);
    const UOp* const labels = Param(g, 0, DType::kI32, {Dim(kRows)});
    const UOp* const place = Expand(
        g, Reshape(g, Iota(g, DType::kI32, Dim(kClasses)), {1, kClasses}), logits->shape);
    const UOp* const hot = Alu(g, Op::kCmpEq, place, Rows(labels, logits));
    const auto full = [&](double value) {
      return Full(g, ConstFloat(g, DType::kF32, value), logits->shape);
    };
    gradient = Minus(Alu(g, Op::kFDiv, e, sum), Where(g, hot, full(1), full(0)));
    const UOp* const log = Alu(g, Op::kLog, Shrink(g, sum, {0, kRows, 0, 1}));
    const UOp* const picked = Reduce(g, Op::kAdd, Where(g, hot, logits, full(0)), {1});
    const UOp* const losses = Minus(Minus(picked, Shrink(g, most, {0, kRows, 0, 1})), log);
    loss = Reduce(g, Op::kAdd, losses, {0, 1});
    of_weights = MatMul(Transposed(F32(1, {kRows, 3})), gradient);
    of_inputs = MatMul(gradient, Transposed(F32(2, {3, kClasses})));
  }

  const UOp *logits = nullptr, *gradient = nullptr, *loss = nullptr, *of_weights = nullptr,
            *of_inputs = nullptr;
};

TEST_F(LossTest, TheGradientIsWrittenOverTheLogits) {
  const std::vector<const UOp*> results = {loss, of_weights, of_inputs};
  EXPECT_EQ(Overwrites(results), 1) << ScheduleToString(MakeBy(results, Policy::kAll));
  const schedule::Schedule apart = MakeBy(results, Policy::kNever),
                           over = MakeBy(results, Policy::kAll);
  EXPECT_EQ(over.kernels.size(), apart.kernels.size() + 1) << "the logits at the labels";
  EXPECT_LT(over.arena_bytes, apart.arena_bytes - kRows * kClasses * 4 * 9 / 10);
}

TEST_F(LossTest, NotWhereTheLogitsAreAResult) {
  EXPECT_EQ(Overwrites({loss, of_weights, of_inputs, logits}), 0);
}

TEST_F(LossTest, NotWhereAllOfTheLogitsAreReadLater) {
  EXPECT_EQ(Overwrites({loss, of_weights, of_inputs, Reduce(g, Op::kMax, logits, {0})}), 1)
      << "their maxima need not wait";
  const UOp* const of_rows = Reshape(g, Reduce(g, Op::kAdd, of_inputs, {1}), {kRows});
  const UOp* const later = Reduce(g, Op::kAdd, Mul(g, logits, Rows(of_rows, logits)), {0});
  EXPECT_EQ(Overwrites({loss, of_weights, of_inputs, later}), 0);
}

TEST_F(InPlaceTest, EqualGraphsGiveEqualPlans) {
  const UOp *const w = F32(0, {5, 5}), *const x = F32(1, {3, 5});
  const auto text = [&] {
    return ScheduleToString(Make({Scaled(w, 2), MatMul(x, w), Scaled(w, 3)}, {1, 0}));
  };
  EXPECT_EQ(text(), text());
}

}  // namespace
}  // namespace outboard
