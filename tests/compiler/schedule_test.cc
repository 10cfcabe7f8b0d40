// Schedules: how many kernels, what they read, and that walking their expressions gives what the
// interpreter gives.
#include "compiler/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "compiler/gradient/gradient.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/decompose_math_f64.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/limits.h"
#include "compiler/schedule/assemble/memory_plan.h"
#include "compiler/target.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/schedule_check.h"

namespace outboard {
namespace {

class ScheduleTest : public testing::Test {
 protected:
  // An input; Check numbers them as a client would.
  const UOp* F32(uint64_t handle, std::vector<int64_t> dims) {
    return BufferNode(g, handle, DType::kF32, Shape(dims.begin(), dims.end()));
  }

  // x with a window axis of `kernel` places after axis `axis`, spelled as a one-hot sum.
  const UOp* Windows(const UOp* x, int axis, int64_t kernel, int64_t stride) {
    const int64_t length = x->shape[axis].value(), places = (length - kernel) / stride + 1;
    Shape dims(x->shape.begin(), x->shape.end());
    dims.insert(dims.begin() + axis,
                {Dim(places), Dim(kernel)});  // [..., places, kernel, length, ...]
    const auto along = [&](int64_t n, int where) {
      Shape ones(dims.size(), Dim(1));
      ones[where] = Dim(n);
      return Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(n)), ones), dims);
    };
    const UOp* const step = Full(g, ConstInt(g, DType::kI32, stride), dims);
    const UOp* const place = Add(g, Mul(g, along(places, axis), step), along(kernel, axis + 1));
    Shape ones(x->shape.begin(), x->shape.end());
    ones.insert(ones.begin() + axis, {Dim(1), Dim(1)});
    const UOp* const spread = Expand(g, Reshape(g, x, ones), dims);
    const UOp* const zero = Full(g, ConstFloat(g, x->dtype, 0), dims);
    const UOp* const hot =
        Where(g, Alu(g, Op::kCmpEq, along(length, axis + 2), place), spread, zero);
    const UOp* const sum = Reduce(g, Op::kAdd, hot, {axis + 2});
    Shape result = dims;
    result.erase(result.begin() + axis + 2);
    return Reshape(g, sum, result);
  }

  // x [B, C, H, W] with w [O, C, K, K], stride 1: [B, O, H - K + 1, W - K + 1].
  const UOp* Conv(const UOp* x, const UOp* w) {
    const int64_t k = w->shape[2].value();
    const UOp* const windows = Windows(Windows(x, 2, k, 1), 4, k, 1);   // [B, C, OH, K, OW, K]
    const UOp* const turned = Permute(g, windows, {0, 2, 4, 1, 3, 5});  // [B, OH, OW, C, K, K]
    const Shape s(turned->shape.begin(), turned->shape.end());
    const Dim o = w->shape[0];
    const Shape full = {s[0], o, s[1], s[2], s[3], s[4], s[5]};
    const UOp* const left =
        Expand(g, Reshape(g, turned, {s[0], 1, s[1], s[2], s[3], s[4], s[5]}), full);
    const UOp* const right = Expand(g, Reshape(g, w, {1, o, 1, 1, s[3], s[4], s[5]}), full);
    return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {4, 5, 6}), {s[0], o, s[1], s[2]});
  }

  const UOp* MatMul(const UOp* a, const UOp* b) {
    const Shape full = {a->shape[0], a->shape[1], b->shape[1]};
    const UOp* const left = Expand(g, Reshape(g, a, {full[0], full[1], 1}), full);
    const UOp* const right = Expand(g, Reshape(g, b, {1, full[1], full[2]}), full);
    return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {1}), {full[0], full[2]});
  }

  schedule::Schedule Check(std::vector<const UOp*> results, double tolerance = 1e-5) {
    const auto encoded = ValueOrDie(EncodeGraph(Sink(g, results)));
    const UOp* const sink = ValueOrDie(DecodeGraph(g, encoded.bytes));
    auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
    test::ExpectAsInterpreted(sink, tolerance);
    return schedule;
  }

  Graph g;
};

// A kernel has at most so many operations; what would be longer becomes several, each of which
// reads what the one before it stored.
TEST_F(ScheduleTest, ChainsThatAreTooLongForOneKernelBecomeSeveral) {
  const UOp* const x = F32(0, {6});
  const UOp* const c = Full(g, ConstFloat(g, DType::kF32, 1.25), x->shape);
  const UOp* y = x;
  for (int i = 0; i < 1000; ++i) y = Alu(g, Op::kSin, Mul(g, y, c));
  const size_t sines = Check({y}, 1e-3).kernels.size();
  EXPECT_GE(sines, 4u);
  EXPECT_LE(sines, 40u);
}

// Functions of f64 are longer than those of f32: each kernel stays below the limit of nodes when
// they are written out.
TEST_F(ScheduleTest, ChainsOfFunctionsOfF64BecomeKernelsWithinTheLimit) {
  for (const Op op : {Op::kSin, Op::kCos, Op::kTanh, Op::kExp, Op::kLog}) {
    const UOp* const x = BufferNode(g, 0, DType::kF64, Shape{6});
    const UOp* const c = Full(g, ConstFloat(g, DType::kF64, 1.25), x->shape);
    const UOp* y = x;
    for (int i = 0; i < 300; ++i) y = Alu(g, op, Mul(g, y, c));
    const auto encoded = ValueOrDie(EncodeGraph(Sink(g, {y})));
    const UOp* const sink = ValueOrDie(DecodeGraph(g, encoded.bytes));
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
    for (const auto& kernel : schedule.kernels) {
      const UOp* const written = codegen::DecomposeTranscendentalsOfF64(g, kernel.ast);
      EXPECT_TRUE(codegen::AnalyzeKernel(written).ok()) << Name(op);
      EXPECT_LE(PostOrder(written).size(), size_t{limits::kKernelNodesMax}) << Name(op);
    }
    EXPECT_LE(schedule.kernels.size(), 40u) << Name(op);
  }
}

TEST_F(ScheduleTest, HundredsOfTensorsAreConcatenated) {
  constexpr int64_t kParts = 600;  // more is too much for the walk
  const UOp* all = nullptr;
  for (int64_t i = 0; i < kParts; ++i) {
    const UOp* const part = Pad(g, F32(i, {2}), {{2 * i, 2 * (kParts - 1 - i)}});
    all = all == nullptr ? part : Add(g, all, part);
  }
  EXPECT_LE(Check({all}).kernels.size(), 20u);
}

// The parameters of a launch have room for so many addresses: more operands than that are added in
// several kernels, and kernels that would have more between them stay apart.
TEST_F(ScheduleTest, KernelsForGpus_HaveTheBuffersOfALaunch) {
  const auto most = [&](const std::vector<const UOp*>& results, const Target& target) {
    const auto encoded = ValueOrDie(EncodeGraph(Sink(g, results)));
    Graph own;
    const UOp* const sink = ValueOrDie(DecodeGraph(own, encoded.bytes));
    size_t buffers = 0;
    for (const auto& kernel : ValueOrDie(schedule::MakeSchedule(own, sink, target)).kernels)
      buffers = std::max(buffers, kernel.buffers.size());
    return buffers;
  };
  const Target gpu = CudaTarget("sm_80", 108);
  constexpr int64_t kTensors = 750;
  std::vector<const UOp*> operands;
  for (int64_t i = 0; i < kTensors; ++i) operands.push_back(F32(i, {3, 5}));
  const UOp* chain = operands[0];
  for (int64_t i = 1; i < kTensors; ++i) chain = Add(g, chain, operands[i]);
  std::vector<const UOp*> tree = operands;  // by halves
  while (tree.size() > 1) {
    for (size_t i = 0; i < tree.size() / 2; ++i) tree[i] = Add(g, tree[2 * i], tree[2 * i + 1]);
    if (tree.size() % 2 == 1) tree[tree.size() / 2] = tree.back();
    tree.resize((tree.size() + 1) / 2);
  }
  std::vector<const UOp*> norms;  // single numbers, which one kernel computes
  for (int64_t i = 0; i + 25 <= kTensors; i += 25) {
    const UOp* sum = operands[i];
    for (int64_t k = 1; k < 25; ++k) sum = Add(g, sum, operands[i + k]);
    norms.push_back(Reduce(g, Op::kAdd, Mul(g, sum, sum), {0, 1}));
  }
  for (const auto& results : {std::vector<const UOp*>{chain}, {tree[0]}, norms}) {
    EXPECT_LE(most(results, gpu), size_t{limits::kKernelBuffersMax});
    EXPECT_GT(most(results, gpu), size_t{limits::kKernelBuffersMax} / 3) << "more than necessary";
    EXPECT_GT(most(results, TestTarget()), size_t{limits::kKernelBuffersMax})
        << "a processor's kernels have no such limit";
  }
}

TEST_F(ScheduleTest, ElementwiseChainIsOneKernel) {
  const UOp* const x = F32(0, {4, 6});
  const UOp* const y = Alu(g, Op::kMax, Add(g, x, Full(g, ConstFloat(g, DType::kF32, 1), x->shape)),
                           Full(g, ConstFloat(g, DType::kF32, 0), x->shape));
  EXPECT_EQ(Check({Permute(g, y, {1, 0})}).kernels.size(), 1u);
}

// A kernel that reads a value by many operations computes it once: what counts is how many kernels
// do. Here `u` costs less than a trip through memory, and two kernels need it.
TEST_F(ScheduleTest, ReadingsByOneKernelCountOnce) {
  const UOp* const h = MatMul(F32(0, {8, 8}), F32(1, {8, 8}));
  const UOp* const c = Full(g, ConstFloat(g, DType::kF32, 0.5), h->shape);
  const UOp* const u = Mul(g, Add(g, Mul(g, Add(g, Mul(g, h, c), c), h), c), h);
  const UOp* many = u;
  for (int i = 0; i < 9; ++i) many = Add(g, Mul(g, many, c), u);
  const schedule::Schedule schedule = Check({many, Reduce(g, Op::kAdd, Mul(g, u, h), {0})});
  EXPECT_EQ(schedule.kernels.size(), 2u);
  EXPECT_EQ(std::count_if(schedule.buffers.begin(), schedule.buffers.end(),
                          [](const schedule::ScheduledBuffer& buffer) {
                            return buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary;
                          }),
            1)
      << schedule::ScheduleToString(schedule);
}

TEST_F(ScheduleTest, MatMulWithBiasAndReluIsOneKernel) {
  const UOp* const y = MatMul(F32(0, {5, 7}), F32(1, {7, 3}));
  const UOp* const bias = Expand(g, Reshape(g, F32(2, {3}), {1, 3}), {Dim(5), Dim(3)});
  const UOp* const relu =
      Alu(g, Op::kMax, Add(g, y, bias), Full(g, ConstFloat(g, DType::kF32, 0), y->shape));
  EXPECT_EQ(Check({relu}).kernels.size(), 1u);
}

TEST_F(ScheduleTest, WindowsAreLoads) {
  const auto schedule = Check({Windows(F32(0, {2, 9}), 1, 3, 2)});
  ASSERT_EQ(schedule.kernels.size(), 1u);
  for (const UOp* node : PostOrder(schedule.kernels[0].ast)) {
    EXPECT_NE(node->op, Op::kReduceLoop);
    if (node->op == Op::kLoad) {
      EXPECT_EQ(node->src.size(), 1u) << "the window is always inside";
    }
  }
}

TEST_F(ScheduleTest, ConvolutionIsOneKernelOfThreeLoops) {
  const auto schedule = Check({Conv(F32(0, {2, 3, 6, 7}), F32(1, {4, 3, 3, 3}))});
  ASSERT_EQ(schedule.kernels.size(), 1u);
  for (const UOp* node : PostOrder(schedule.kernels[0].ast)) {
    if (node->op == Op::kReduceLoop) {
      EXPECT_EQ(node->src.size(), 4u);
    }
  }
}

TEST_F(ScheduleTest, ConvolutionGradientsAreOneKernelEach) {
  const UOp *const x = F32(0, {2, 3, 6, 7}), *const w = F32(1, {4, 3, 3, 3});
  const UOp* const y = Conv(x, w);
  const UOp* const dy = F32(2, {2, 4, 4, 5});
  const auto gradients = ValueOrDie(Gradient(g, y, dy, {x, w}));
  const auto schedule = Check({gradients[1], gradients[0]});
  EXPECT_EQ(schedule.kernels.size(), 2u) << schedule::ScheduleToString(schedule);
}

TEST_F(ScheduleTest, StridedWindowGradientIsGated) {
  const UOp* const x = F32(0, {2, 9});
  const UOp* const y = Windows(x, 1, 4, 2);
  const auto gradients = ValueOrDie(Gradient(g, y, F32(1, {2, 3, 4}), {x}));
  EXPECT_EQ(Check({gradients[0]}).kernels.size(), 1u);
}

TEST_F(ScheduleTest, GatherReadsByIndex) {
  const UOp *const table = F32(0, {5, 3}), *const rows = BufferNode(g, 1, DType::kI32, {Dim(4)});
  const Shape full = {4, 5, 3};
  const UOp* const row = Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(5)), {1, 5, 1}), full);
  const UOp* const wanted = Expand(g, Reshape(g, rows, {4, 1, 1}), full);
  const UOp* const spread = Expand(g, Reshape(g, table, {1, 5, 3}), full);
  const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, row, wanted), spread,
                               Full(g, ConstFloat(g, DType::kF32, 0), full));
  const auto schedule = Check({Reduce(g, Op::kAdd, hot, {1})});
  ASSERT_EQ(schedule.kernels.size(), 1u);
  for (const UOp* node : PostOrder(schedule.kernels[0].ast)) EXPECT_NE(node->op, Op::kReduceLoop);
}

TEST_F(ScheduleTest, ValuesOverTheSameLoopsShareAKernel) {
  const UOp *const m = F32(0, {8}), *const grad = F32(1, {8}), *const p = F32(2, {8});
  const auto c = [&](double v) { return Full(g, ConstFloat(g, DType::kF32, v), m->shape); };
  const UOp* const m2 = Add(g, Mul(g, m, c(0.9)), Mul(g, grad, c(0.1)));
  const UOp* const p2 = Add(g, p, Mul(g, m2, c(-0.001)));
  const auto schedule = Check({m2, p2});
  ASSERT_EQ(schedule.kernels.size(), 1u);
  EXPECT_EQ(schedule.kernels[0].ast->src.size(), 2u);
}

TEST_F(ScheduleTest, ResultsThatAreInputsOrTwins) {
  const UOp* const x = F32(0, {3, 2});
  const UOp* const y = Add(g, x, x);
  EXPECT_EQ(Check({x, y, y, Reshape(g, x, {6})}).buffers.size(), 5u);
}

TEST_F(ScheduleTest, EmptyAndScalar) {
  const UOp* const empty = F32(0, {0, 3});
  const UOp* const sum = Reduce(g, Op::kAdd, empty, {0});
  const UOp* const top = Reduce(g, Op::kMax, empty, {0});
  Check({empty, sum, Alu(g, Op::kMax, top, sum)});
}

TEST_F(ScheduleTest, PadIsGated) {
  const UOp* const x = F32(0, {3, 4});
  const UOp* const e = Alu(g, Op::kExp2, Pad(g, x, {1, 2, 0, 1}));
  Check(
      {e, Pad(g, Alu(g, Op::kExp2, x), {1, 2, 0, 1}), Flip(g, x, {1}), Shrink(g, x, {1, 3, 0, 2})});
}

TEST_F(ScheduleTest, SoftmaxIsOneKernel) {
  const UOp* const x = F32(0, {6, 5});
  const UOp* const top = Expand(g, Reduce(g, Op::kMax, x, {1}), x->shape);
  const UOp* const e = Alu(g, Op::kExp2, Add(g, x, Alu(g, Op::kNeg, top)));
  const UOp* const y = Alu(g, Op::kFDiv, e, Expand(g, Reduce(g, Op::kAdd, e, {1}), x->shape));
  EXPECT_EQ(Check({y}).kernels.size(), 1u);
}

TEST_F(ScheduleTest, LargeSumsWithFewResultsAreSplit) {
  const auto extents = [&](const UOp* result) {
    const auto schedule = Check({result}, 1e-4);
    std::vector<std::vector<int64_t>> outputs;
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      outputs.emplace_back();
      for (const UOp* node : PostOrder(kernel.ast))
        if (IsRange(node, RangeKind::kOutput)) outputs.back().push_back(RangeOf(node).extent());
    }
    return outputs;
  };
  using Outputs = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(extents(Reduce(g, Op::kAdd, F32(0, {1 << 19}), {0})), (Outputs{{64}, {}}));
  EXPECT_EQ(extents(Reduce(g, Op::kMax, F32(0, {600, 3, 400}), {0, 2})), (Outputs{{24, 3}, {3}}));
  EXPECT_EQ(extents(Reduce(g, Op::kAdd, F32(0, {524309}), {0})), (Outputs{{64}, {}})) << "a prime";
  EXPECT_EQ(extents(Reduce(g, Op::kMax, F32(0, {524309}), {0})), (Outputs{{}}));
  EXPECT_EQ(extents(Reduce(g, Op::kAdd, F32(0, {32, 1 << 15}), {1})), (Outputs{{32}}));
  const UOp* const half = Cast(g, F32(0, {1 << 19}), DType::kF16);
  EXPECT_EQ(extents(Reduce(g, Op::kAdd, half, {0})), (Outputs{{64}, {}}));
}

// The gradient of a gather from [places, columns]: rows [batch, n, columns] are added where
// `index` [batch, n] says; those that it sends out of range are dropped.
TEST_F(ScheduleTest, GatherGradientIsScattered) {
  for (const int64_t columns : {1, 5, 16, 72}) {
    const Shape full = {3, 50, 100, columns};
    const UOp* const index = Add(g, BufferNode(g, 1, DType::kI32, {Dim(3), Dim(50)}),
                                 Full(g, ConstInt(g, DType::kI32, -1), {Dim(3), Dim(50)}));
    const UOp* const place =
        Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(100)), {1, 1, 100, 1}), full);
    const UOp* const wanted = Expand(g, Reshape(g, index, {3, 50, 1, 1}), full);
    const UOp* const rows = Alu(g, Op::kExp2, F32(0, {3, 50, columns}));
    const UOp* const spread = Expand(g, Reshape(g, rows, {3, 50, 1, columns}), full);
    const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, place, wanted), spread,
                                 Full(g, ConstFloat(g, DType::kF32, 0), full));
    // Over everything, and for each of the batch.
    for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, 1}, {1}}) {
      const UOp* const sum = Reduce(g, Op::kAdd, hot, axes);
      const auto schedule = Check({Mul(g, sum, sum)});
      // The index in memory if there are many columns; zeros; rows; the square.
      EXPECT_LE(schedule.kernels.size(), 4u) << ScheduleToString(schedule);
      for (const schedule::ScheduledKernel& kernel : schedule.kernels)
        for (const UOp* node : PostOrder(kernel.ast))
          EXPECT_NE(node->op, Op::kReduceLoop) << ScheduleToString(schedule);
    }
  }
}

// Every row to one place, which does not follow from the row.
TEST_F(ScheduleTest, RowsOfOnePlaceAreAllAdded) {
  const Shape full = {80, 60, 5};
  const UOp* const wanted =
      Expand(g, Reshape(g, BufferNode(g, 1, DType::kI32, {Dim(1)}), {1, 1, 1}), full);
  const UOp* const place = Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(60)), {1, 60, 1}), full);
  const UOp* const rows = Expand(g, Reshape(g, F32(0, {80, 5}), {80, 1, 5}), full);
  const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, place, wanted), rows,
                               Full(g, ConstFloat(g, DType::kF32, 0), full));
  EXPECT_EQ(Check({Reduce(g, Op::kAdd, hot, {0})}).kernels.size(), 2u);
}

TEST_F(ScheduleTest, CountsAreScattered) {
  const Shape full = {300, 50};
  const UOp* const index = BufferNode(g, 1, DType::kU8, {Dim(300)});
  const UOp* const wanted = Expand(g, Reshape(g, Cast(g, index, DType::kI32), {300, 1}), full);
  const UOp* const place = Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(50)), {1, 50}), full);
  const UOp* const hot =
      Where(g, Alu(g, Op::kCmpEq, place, wanted), Full(g, ConstInt(g, DType::kI32, 1), full),
            Full(g, ConstInt(g, DType::kI32, 0), full));
  EXPECT_EQ(Check({Reduce(g, Op::kAdd, hot, {0})}).kernels.size(), 2u);
}

TEST_F(ScheduleTest, LargeGatherIsNotSplit) {
  const Shape full = {2, 300000};
  const UOp* const place = Expand(g, Reshape(g, Iota(g, DType::kI32, full[1]), {1, full[1]}), full);
  const UOp* const wanted =
      Expand(g, Reshape(g, BufferNode(g, 1, DType::kI32, {Dim(2)}), {2, 1}), full);
  const UOp* const spread = Expand(g, Reshape(g, F32(0, {300000}), {1, full[1]}), full);
  const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, place, wanted), spread,
                               Full(g, ConstFloat(g, DType::kF32, 0), full));
  EXPECT_EQ(Check({Reduce(g, Op::kAdd, hot, {1})}).kernels.size(), 1u);
}

// Values that somebody asked to be kept, of which nothing is read once the readers are simplified.
TEST_F(ScheduleTest, WhatNobodyReadsIsNotMade) {
  const auto kept = [&](const UOp* x) { return g.MakeChecked(Op::kContiguous, DType::kVoid, {x}); };
  const UOp* const x = F32(1, {6});
  const UOp* const chain = kept(Alu(g, Op::kSqrt, kept(Alu(g, Op::kExp2, x))));
  const UOp* const zeros = Shrink(g, Pad(g, chain, {2, 0}), {0, 2});
  EXPECT_EQ(Check({Add(g, zeros, F32(2, {2}))}).kernels.size(), 1u);
}

// A chain that a client may send: scheduled, or an error that names the limit, in either case soon.
TEST_F(ScheduleTest, AGraphThatIsTooLargeIsRefused) {
  const auto chain = [](int length) {
    Graph from, to;
    const UOp* const x = Param(from, 0, DType::kF32, {Dim(8)});
    const UOp* node = x;
    for (int i = 0; i < length; ++i) node = Alu(from, Op::kNeg, Add(from, node, x));
    return schedule::MakeSchedule(to, Sink(from, {node}), TestTarget()).status();
  };
  EXPECT_TRUE(chain(2000).ok());
  const absl::Status status = chain(70000);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

// Sums over the same rows, each of another length: every pair is tried, fails, and leaves nodes.
TEST_F(ScheduleTest, JoinsThatFailDoNotFillTheGraph) {
  Graph from, to;
  const UOp* const x = Param(from, 0, DType::kF32, {Dim(4), Dim(500)});
  std::vector<const UOp*> results;
  for (int64_t n = 100; n < 500; ++n) {
    const UOp* term = Shrink(from, x, {0, 4, 0, n});
    for (int i = 0; i < 10; ++i) term = Alu(from, i % 2 == 0 ? Op::kSqrt : Op::kTrunc, term);
    results.push_back(Reduce(from, Op::kAdd, term, {1}));
  }
  const auto schedule = schedule::MakeSchedule(to, Sink(from, results), TestTarget());
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->kernels.size(), results.size());
}

TEST_F(ScheduleTest, FunctionsAreWrittenOut) {
  const UOp* const p = Param(g, 0, DType::kF32, {Dim(4)});
  const UOp* const body = Mul(g, p, Add(g, p, p));
  const UOp* const function = g.MakeChecked(Op::kFunction, DType::kVoid, {body, p});
  const UOp* y = F32(0, {4});
  for (int i = 0; i < 3; ++i) y = g.MakeChecked(Op::kCall, DType::kVoid, {function, y});
  EXPECT_EQ(Check({y}).kernels.size(), 1u);
}

// One schedule for all bindings: places are those of the longest, loops end where the binding says.
TEST_F(ScheduleTest, DimensionsOfVars) {
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(8)});
  const UOp* const part = Shrink(g, x, {Dim(0), Dim(n)});
  const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, part, {0}), Mul(g, part, part)});
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
  EXPECT_EQ(schedule::ScheduleToString(schedule),
            "kernel 0: out  loop n0 reads in0 writes out0\n"
            "kernel 1: out n0 loop  reads in0 writes out1\n");
  EXPECT_EQ(schedule.buffers[2].padded_dims, std::vector<int64_t>{8});
  const HostTensor input = test::Floats(DType::kF32, {8}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (int64_t length = 1; length <= 8; ++length) {
    const Binding binding{0, length};
    test::ExpectSame(sink, {&input, 1}, {&binding, 1});
  }
}

// What is stored once a row is stored also where the row is empty.
TEST_F(ScheduleTest, RowsThatMayBeEmpty) {
  for (const int64_t least : {0, 1}) {
    const UOp* const n = Var(g, least, least, 4);
    const UOp* const x = Param(g, 0, DType::kI32, {Dim(3), Dim(n)});
    const UOp* const most = Reduce(g, Op::kMax, x, {1});
    const UOp* const sink =
        Sink(g, {most, Add(g, x, Expand(g, most, Shape(x->shape.begin(), x->shape.end())))});
    EXPECT_EQ(ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget())).kernels.size(),
              least == 0 ? 2u : 1u);
    for (int64_t length = least; length <= 4; ++length) {
      const HostTensor input =
          test::Ints(DType::kI32, {3, length}, std::vector<int64_t>(3 * length, 7 - length));
      const Binding binding{least, length};
      test::ExpectSame(sink, {&input, 1}, {&binding, 1});
    }
  }
}

TEST_F(ScheduleTest, EqualGraphsGiveEqualKernels) {
  const auto text = [](Graph& graph) {
    const UOp* const x = Param(graph, 0, DType::kF32, {Dim(4), Dim(6)});
    const UOp* const sum = Reduce(graph, Op::kAdd, Mul(graph, x, x), {1});
    return schedule::ScheduleToString(
        ValueOrDie(schedule::MakeSchedule(graph, Sink(graph, {sum}), TestTarget())));
  };
  Graph a, b;
  Iota(b, DType::kI32, Dim(3));  // other node indices
  EXPECT_EQ(text(a), text(b));
}

// What a graph allows, the kernels for GPUs with sums of products of f32 say, and no others.
TEST_F(ScheduleTest, Tf32IsSaidByTheKernelsThatItConcerns) {
  const UOp *const x = F32(1, {64, 64}), *const y = F32(2, {64, 64});
  const Shape wide = {Dim(64), Dim(64), Dim(64)};
  const UOp* const left = Expand(g, Reshape(g, x, {Dim(64), Dim(1), Dim(64)}), wide);
  const UOp* const right =
      Expand(g, Reshape(g, Permute(g, y, {1, 0}), {Dim(1), Dim(64), Dim(64)}), wide);
  const UOp* const product = Reduce(g, Op::kAdd, Mul(g, left, right), {2});
  const UOp* const total = Reduce(g, Op::kAdd, product, {0, 1});
  const UOp* const sink =
      g.MakeChecked(Op::kSink, DType::kVoid, {product, total}, {1, 1});
  const std::string encoded = EncodeGraph(sink)->bytes;
  for (const bool gpu : {false, true}) {
    Graph decoded;
    const UOp* const again = *DecodeGraph(decoded, encoded);
    EXPECT_TRUE(AllowsTf32(again));
    const auto schedule = schedule::MakeSchedule(
        decoded, again, gpu ? CudaTarget("sm_90", 132) : TestTarget(), {});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    int allowing = 0;
    for (const auto& kernel : schedule->kernels) allowing += AllowsTf32(kernel.ast);
    EXPECT_EQ(allowing, gpu ? 1 : 0) << ScheduleToString(*schedule);
    EXPECT_GT(schedule->kernels.size(), 1u);
  }
}

// Products that are 0 where a condition is false, as of windows with zeros around.
TEST_F(ScheduleTest, Tf32IsSaidByKernelsWhoseProductsHaveConditions) {
  const UOp *const x = F32(1, {64, 64}), *const y = F32(2, {64, 64});
  const Shape wide = {Dim(64), Dim(64), Dim(64)};
  const UOp* const left = Expand(g, Reshape(g, x, {Dim(64), Dim(1), Dim(64)}), wide);
  const UOp* const right = Expand(g, Reshape(g, y, {Dim(1), Dim(64), Dim(64)}), wide);
  const UOp* const padded = Pad(g, Mul(g, left, right), {0, 0, 0, 0, 1, 1});
  const UOp* const sink = g.MakeChecked(
      Op::kSink, DType::kVoid, {Reduce(g, Op::kAdd, padded, {2})}, {1, 1});
  Graph decoded;
  const UOp* const again = *DecodeGraph(decoded, EncodeGraph(sink)->bytes);
  const auto schedule = schedule::MakeSchedule(decoded, again, CudaTarget("sm_90", 132), {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->kernels.size(), 1u) << ScheduleToString(*schedule);
  EXPECT_TRUE(AllowsTf32(schedule->kernels[0].ast)) << ScheduleToString(*schedule);
}

TEST(MemoryPlan, SharesWhatIsNotAliveTogether) {
  const auto plan = schedule::PlanMemory({{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}});
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_EQ(plan.bytes, plan.bytes_least);
}

TEST(MemoryPlan, NeverOverlapsWhatIsAliveTogether) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<schedule::Lifetime> lives;
    for (int i = 0; i < 30; ++i) {
      const int first = static_cast<int>(random() % 20);
      lives.push_back({static_cast<int64_t>(1 + random() % 5000), first,
                       first + static_cast<int>(random() % 6)});
    }
    const auto plan = schedule::PlanMemory(lives);
    for (size_t a = 0; a < lives.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
        const bool apart = plan.offsets[a] + lives[a].bytes <= plan.offsets[b] ||
                           plan.offsets[b] + lives[b].bytes <= plan.offsets[a];
        EXPECT_TRUE(!together || apart);
      }
    EXPECT_GE(plan.bytes, plan.bytes_least);
  }
}

}  // namespace
}  // namespace outboard
