// Weights that kernels ask for before the launches in front of them are done
// (compiler/schedule/launches/steady.h, compiler/render/ptx/prefetch.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using schedule::Schedule;

constexpr int kMultiprocessors = 132;
constexpr char kAsks[] = "cp.async.bulk.prefetch.L2.global";
constexpr int64_t kRows = 1024, kColumns = 512;  // of weights of one MiB of bf16

// Weights [rows, columns] times a vector.
const UOp* Times(Graph& g, const UOp* weights, const UOp* x) {
  const Shape shape(weights->shape.begin(), weights->shape.end());
  const UOp* const row = Expand(g, Reshape(g, x, {Dim(1), shape[1]}), shape);
  return Reduce(g, Op::kAdd,
                Mul(g, Cast(g, weights, DType::kF32), Cast(g, row, DType::kF32)), {1});
}
const UOp* Weights(Graph& g, int64_t slot, int64_t rows = kRows, int64_t columns = kColumns) {
  return Param(g, slot, DType::kBF16, {Dim(rows), Dim(columns)});
}
const UOp* Vector(Graph& g, int64_t slot, int64_t count = kColumns) {
  return Param(g, slot, DType::kBF16, {Dim(count)});
}

Schedule ScheduleFor(Graph& g, const UOp* sink, const std::string& arch,
                     std::vector<int64_t> donated = {}) {
  const Target target = CudaTarget(arch, kMultiprocessors);
  return ValueOrDie(
      schedule::MakeSchedule(g, sink, target, donated, ScheduleOptionsFor(target)));
}
// The buffers that a kernel's marks are of, as KernelToString names inputs.
std::vector<int64_t> SteadyInputs(const Schedule& schedule, size_t kernel) {
  std::vector<int64_t> inputs;
  const schedule::ScheduledKernel& k = schedule.kernels[kernel];
  for (size_t slot = 0; slot < k.buffers.size(); ++slot) {
    if ((SteadySlots(k.ast) >> slot & 1) == 0) continue;
    const auto& buffer = schedule.buffers[static_cast<size_t>(k.buffers[slot])];
    EXPECT_EQ(buffer.kind, schedule::ScheduledBuffer::Kind::kInput);
    inputs.push_back(buffer.index);
  }
  return inputs;
}

TEST(Steady, WeightsAre_WhereLaunchesOverlap) {
  for (const auto& [arch, marked] :
       {std::pair("sm_90a", true), {"sm_90", true}, {"sm_80", false}}) {
    Graph g;
    const UOp* const weights = Weights(g, 0);
    const Schedule schedule = ScheduleFor(g, Sink(g, {Times(g, weights, Vector(g, 1))}), arch);
    ASSERT_EQ(schedule.kernels.size(), 1u);
    EXPECT_EQ(SteadyInputs(schedule, 0), marked ? std::vector<int64_t>{0} : std::vector<int64_t>{})
        << arch;
    const CompiledKernel kernel = ValueOrDie(CompileKernel(
        schedule.kernels[0].ast, {.target = CudaTarget(arch, kMultiprocessors)}));
    EXPECT_EQ(absl::StrContains(kernel.object, kAsks), marked);
    if (!marked) continue;
    EXPECT_LT(kernel.object.find(kAsks), kernel.object.find("griddepcontrol.wait"));
  }
}

// Inputs that a kernel of the step writes over, temporaries, and what is small.
TEST(Steady, NothingElseIs) {
  Graph g;
  const Shape shape = {Dim(kRows), Dim(kColumns)};
  const UOp *const kept = Weights(g, 0), *const state = Weights(g, 1);
  const UOp* const once = Times(g, kept, Vector(g, 2));
  const UOp* const short_row = Cast(g, Shrink(g, once, {0, kColumns, 0, 1}), DType::kBF16);
  const UOp* const twice = Times(g, state, short_row);
  const UOp* const changed = Add(g, state, Full(g, ConstFloat(g, DType::kBF16, 1), shape));
  const Schedule schedule = ScheduleFor(g, Sink(g, {twice, changed}), "sm_90a", {1});
  ASSERT_EQ(schedule.over[1], 1) << schedule::ScheduleToString(schedule);
  std::vector<int64_t> marked;
  for (size_t k = 0; k < schedule.kernels.size(); ++k)
    for (const int64_t input : SteadyInputs(schedule, k)) marked.push_back(input);
  EXPECT_THAT(marked, testing::ElementsAre(0)) << schedule::ScheduleToString(schedule);

  Graph small;
  const UOp* const half = Times(small, Weights(small, 0, kRows / 2), Vector(small, 1));
  EXPECT_EQ(SteadySlots(ScheduleFor(small, Sink(small, {half}), "sm_90a").kernels[0].ast), 0);
  // What writes as much as it reads is no product of decoding.
  Graph copied;
  const UOp* const again = Mul(copied, Weights(copied, 0), Weights(copied, 1));
  EXPECT_EQ(SteadySlots(ScheduleFor(copied, Sink(copied, {again}), "sm_90a").kernels[0].ast), 0);
}

// Rows of several lengths, with a rest of the block's rows; on the machine every address that is
// asked for must be the buffer's.
TEST(Steady, ProductsAreAsInterpreted) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1031, 600}, {60, 9000}}) {
    SCOPED_TRACE(absl::StrCat(rows, " x ", columns));
    Graph g;
    const UOp* const sink =
        Sink(g, {Times(g, Weights(g, 0, rows, columns), Vector(g, 1, columns))});
    const GpuSchedule gpu(sink, "sm_90a");
    bool asks = false;
    for (const CompiledKernel& kernel : gpu.compiled())
      asks = asks || absl::StrContains(kernel.object, kAsks);
    EXPECT_TRUE(asks);
    gpu.ExpectAsInterpreted(sink, {}, 1e-4);
  }
}

// Weights whose columns are added, in one piece of memory: all of it is read, too.
TEST(Steady, ProductsOfColumnsAreAsInterpreted) {
  Graph g;
  const UOp* const weights = Permute(g, Weights(g, 0, kColumns, kRows), {1, 0});
  const UOp* const sink = Sink(g, {Times(g, weights, Vector(g, 1))});
  const GpuSchedule gpu(sink, "sm_90a");
  EXPECT_TRUE(absl::StrContains(gpu.compiled()[0].object, kAsks));
  gpu.ExpectAsInterpreted(sink, {}, 1e-4);
}

// A row of an embedding, or some columns of a matrix, are few of what is there.
TEST(Steady, WhatIsReadInPart_IsNotAskedFor) {
  Graph g;
  const Shape shape = {Dim(kRows), Dim(kColumns)};
  const UOp* const place = Param(g, 1, DType::kI32, {Dim(1)});
  const UOp* const rows = Expand(
      g, Reshape(g, Iota(g, DType::kI32, Dim(kRows)), {Dim(kRows), Dim(1)}), shape);
  const UOp* const here =
      Alu(g, Op::kCmpEq, rows, Expand(g, Reshape(g, place, {Dim(1), Dim(1)}), shape));
  const UOp* const zero = Full(g, ConstFloat(g, DType::kBF16, 0), shape);
  const UOp* const row = Reduce(g, Op::kAdd, Where(g, here, Weights(g, 0), zero), {0});
  Graph h;
  const UOp* const some = Shrink(h, Weights(h, 0), {0, kRows, 0, kColumns / 2});
  const UOp* const part = Times(h, some, Vector(h, 1, kColumns / 2));
  for (const auto& [graph, sink] : {std::pair(&g, Sink(g, {row})), {&h, Sink(h, {part})}}) {
    const Schedule schedule = ScheduleFor(*graph, sink, "sm_90a");
    ASSERT_EQ(schedule.kernels.size(), 1u);
    EXPECT_NE(SteadySlots(schedule.kernels[0].ast), 0) << "the input stays as it is";
    const CompiledKernel kernel = ValueOrDie(CompileKernel(
        schedule.kernels[0].ast, {.target = CudaTarget("sm_90a", kMultiprocessors)}));
    EXPECT_FALSE(absl::StrContains(kernel.object, kAsks)) << kernel.object;
  }
}

TEST(Steady, MarksArePartOfTheKernel) {
  Graph g;
  const Schedule schedule =
      ScheduleFor(g, Sink(g, {Times(g, Weights(g, 0), Vector(g, 1))}), "sm_90a");
  const UOp* const marked = schedule.kernels[0].ast;
  const int64_t slots = SteadySlots(marked);
  ASSERT_NE(slots, 0);
  Graph decoded;
  const EncodedGraph encoded = ValueOrDie(EncodeGraph(marked));
  EXPECT_EQ(SteadySlots(ValueOrDie(DecodeGraph(decoded, encoded.bytes, Level::kKernel))), slots);
  EXPECT_EQ(SteadySlots(WithCopies(g, marked, 1)), slots);
  EXPECT_EQ(SteadySlots(WithCopies(g, marked, 2)), 0) << "each copy has other buffers";
  EXPECT_FALSE(AllowsTf32(marked));
  const UOp* const rounded = WithSteadySlots(g, WithTf32(g, marked), slots);
  EXPECT_TRUE(AllowsTf32(rounded));
  EXPECT_TRUE(AllowsTf32(WithCopies(g, rounded, 1)));
  EXPECT_EQ(SteadySlots(WithCopies(g, rounded, 1)), slots);
  // A client's graph says nothing of slots.
  const UOp* const value = Param(g, 0, DType::kF32, {Dim(4)});
  const UOp* const sent = g.MakeChecked(Op::kSink, DType::kVoid, {value}, {1, 1, 1});
  EXPECT_EQ(VerifyGraph(sent, Level::kTensor).code(), absl::StatusCode::kInvalidArgument);
  for (const std::vector<int64_t>& arg :
       {std::vector<int64_t>{1, 2, 1}, {1, 0, 0}, {1, 0, -1}, {1, 1, 1, 1}, {1, 0}})
    EXPECT_FALSE(g.Make(Op::kSink, DType::kVoid, {value}, arg).ok());
}

}  // namespace
}  // namespace outboard::test
