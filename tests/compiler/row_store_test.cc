// Updates of rows in place: only what changes is written, and the rest stays.
#include "compiler/schedule/gather/row_store.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/schedule_eval.h"

namespace outboard {
namespace {

class RowStoreTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 5, kWidth = 3;
  const Shape dims = {Dim(2), Dim(kRows), Dim(kWidth)};

  // Where the row's number is `at`.
  const UOp* IsRow(const UOp* at) {
    const UOp* const rows = Reshape(g, Iota(g, DType::kI32, kRows), {1, kRows, 1});
    return Alu(g, Op::kCmpEq, Expand(g, rows, dims), Full(g, Cast(g, at, DType::kI32), dims));
  }
  const UOp* NewRow() {
    return Expand(g, Param(g, 0, DType::kF32, {Dim(2), Dim(1), Dim(kWidth)}), dims);
  }

  // The one kernel of `result` over input 1, after its walk was compared for all values of VAR 0.
  std::string KernelOf(const UOp* result, int64_t least, int64_t most) {
    const UOp* const sink = Sink(g, {result});
    const int64_t slots[] = {1};
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget(), slots));
    EXPECT_EQ(schedule.over, std::vector<int>{1});
    std::vector<double> old(2 * kRows * kWidth), rows(2 * kWidth);
    for (size_t i = 0; i < old.size(); ++i) old[i] = static_cast<double>(i);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = 100 + static_cast<double>(i);
    const std::vector<HostTensor> params = {test::Floats(DType::kF32, {2, 1, kWidth}, rows),
                                            test::Floats(DType::kF32, {2, kRows, kWidth}, old)};
    for (int64_t at = least; at <= most; ++at) {
      const Binding binding{0, at};
      const auto want = ValueOrDie(Interpret(sink, params, {&binding, 1}));
      const auto got = ValueOrDie(test::EvaluateSchedule(schedule, sink, params, {&binding, 1}));
      EXPECT_EQ(got[0].bytes, want[0].bytes) << at;
      test::ExpectSame(sink, params, {&binding, 1});
    }
    EXPECT_EQ(schedule.kernels.size(), 1u);
    return schedule::KernelToString(schedule, 0);
  }

  Graph g;
};

TEST_F(RowStoreTest, OneRow) {
  const UOp* const old = Param(g, 1, DType::kF32, dims);
  const UOp* const at = Var(g, 0, 0, kRows - 1);
  EXPECT_EQ(KernelOf(Where(g, IsRow(at), NewRow(), old), 0, kRows - 1),
            "out 2x3 loop  reads in0 writes out0>in1");
}

TEST_F(RowStoreTest, ARowThatMayBeOutside) {
  const UOp* const old = Param(g, 1, DType::kF32, dims);
  const UOp* const at = Add(g, Var(g, 0, 0, 9), ConstIndex(g, -2));
  EXPECT_EQ(KernelOf(Where(g, IsRow(at), NewRow(), old), 0, 9),
            "out 2x3 loop  reads in0 writes out0>in1");
}

TEST_F(RowStoreTest, WhatTheRowWas) {
  const UOp* const old = Param(g, 1, DType::kF32, dims);
  const UOp* const at = Var(g, 0, 0, kRows - 1);
  EXPECT_EQ(KernelOf(Where(g, IsRow(at), Mul(g, Add(g, NewRow(), old), old), old), 0, kRows - 1),
            "out 2x3 loop  reads in0 writes out0>in1");
}

TEST_F(RowStoreTest, NotWhereOtherRowsChangeToo) {
  const UOp* const old = Param(g, 1, DType::kF32, dims);
  const UOp* const at = Var(g, 0, 0, kRows - 1);
  EXPECT_EQ(KernelOf(Where(g, IsRow(at), NewRow(), Add(g, old, old)), 0, kRows - 1),
            "out 2x5x3 loop  reads in0 writes out0>in1");
}

}  // namespace
}  // namespace outboard
