// Plans as programs, by hand: ranges that end before their extent, what is computed once a call,
// the order of a reduction's terms, and the instructions of matrix units.
#include <gtest/gtest.h>

#include <cstring>

#include "compiler/kernel/decompose_math_f64.h"
#include "compiler/optimize/apply.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/program/spec.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Instruction;
using program::Program;
using program::ProgramBuilder;
using program::Space;
using program::ValueId;

// The program after the last pass, which every pass is checked before.
Program Expand(const UOp* sink, const char* opts, std::vector<program::PassResult>* passes) {
  auto planned =
      codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), *codegen::ParseOpts(opts), TestTarget());
  EXPECT_TRUE(planned.ok()) << planned.status();
  auto made = program::ExpandPlan(planned->kernel, planned->plan, passes);
  EXPECT_TRUE(made.ok()) << made.status() << " " << opts;
  return made.ok() ? *std::move(made) : Program();
}

// A copy of what is consecutive along the reduction loads vectors along it, and no single elements
// or lanes far from each other.
TEST(ProgramPlan, CopiesAreMadeInSquares) {
  Graph g;
  const UOp *i = Range(g, 0, 32), *j = Range(g, 1, 32), *k = ReduceRange(g, 2, 64);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 2048, RowMajor(g, {i, k}, {32, 64}));
  const UOp* const w = LoadAt(g, 2, DType::kF32, 2048, RowMajor(g, {j, k}, {32, 64}));
  const UOp* const sink = Sink(g, {StoreAt(g, 0, 1024, RowMajor(g, {i, j}, {32, 32}),
                                           Fold(g, Op::kAdd, Mul(g, x, w), {k}))});
  std::vector<program::PassResult> passes;
  const Program made = Expand(sink, "VECTOR:1:8 UPCAST:1:2 UPCAST:0:4 LOCAL:1:0", &passes);
  int loads = 0;
  for (const Instruction& instruction : made.code) {
    if (instruction.code != Code::kLoad || made.code[instruction.src[0]].code != Code::kBuffer ||
        made.code[instruction.src[0]].imm[0] != 2)
      continue;
    ++loads;
    EXPECT_EQ(instruction.lanes, 8);
    EXPECT_EQ(made.code[instruction.src[1]].lanes, 1) << "the lanes are not consecutive";
  }
  EXPECT_EQ(loads, 8);
}

constexpr int64_t kRows = 40, kColumns = 21, kSteps = 12;

// y[i,j] = sum a[i,k] * b[k,j] for k < steps; rows and steps may be VARs, where loops end.
const UOp* ProductTo(Graph& g, const UOp* rows, const UOp* steps) {
  const auto range = [&](int64_t id, int64_t extent, RangeKind kind, const UOp* end) {
    std::vector<const UOp*> source;
    if (end != nullptr && !end->is_const()) source = {end};
    return g.MakeChecked(Op::kRange, DType::kI64, source, {id, extent, static_cast<int64_t>(kind)});
  };
  const UOp* const i = range(0, kRows, RangeKind::kOutput, rows);
  const UOp* const j = range(1, kColumns, RangeKind::kOutput, nullptr);
  const UOp* const k = range(2, kSteps, RangeKind::kReduce, steps);
  const UOp* const a =
      LoadAt(g, 1, DType::kF32, kRows * kSteps, RowMajor(g, {i, k}, {kRows, kSteps}));
  const UOp* const b =
      LoadAt(g, 2, DType::kF32, kSteps * kColumns, RowMajor(g, {k, j}, {kSteps, kColumns}));
  const UOp* const term =
      Alu(g, Op::kWhere, Alu(g, Op::kCmpLt, k, steps), Mul(g, a, b), ConstFloat(g, DType::kF32, 0));
  return Sink(g, {StoreAt(g, 0, kRows * kColumns, RowMajor(g, {i, j}, {kRows, kColumns}),
                          Fold(g, Op::kAdd, term, {k}))});
}

TEST(ProgramPlan, LoopsEndWhereTheirRangesDo) {
  Graph g;
  const UOp* const sink = ProductTo(g, Var(g, 0, 0, kRows), Var(g, 1, 0, kSteps));
  for (const char* opts :
       {"", "UPCAST:0:3", "VECTOR:1:8 UPCAST:0:4 THREAD:0:1", "VECTOR:0:8 THREAD:0:1",
        "VECTOR:1:16 UPCAST:0:3 BLOCK:0:9 THREAD:0:1", "UPCAST:0:3 BLOCK:0:6 BLOCK:1:7",
        "VECTOR:2:4 UNROLL:2:2 GROUP:2:2", "UNROLL:2:5 THREAD:0:2",
        "VECTOR:1:8 UPCAST:0:4 BLOCK:0:8 LOCAL:0:1 LOCAL:1:0"}) {
    std::vector<program::PassResult> passes;
    Expand(sink, opts, &passes);
    for (const int64_t rows : {0, 1, 5, 9, 39, 40})
      for (const int64_t steps : {0, 1, 7, 12}) {
        Graph fixed;
        const UOp* const walked =
            ProductTo(fixed, ConstIndex(fixed, rows), ConstIndex(fixed, steps));
        const Buffers start = RandomBuffers(walked, 1);
        Buffers want = start;
        ASSERT_EQ(WalkKernel(walked, want), absl::OkStatus());
        const int64_t vars[] = {rows, steps};
        for (const program::PassResult& pass : passes) {
          SCOPED_TRACE(testing::Message() << opts << ", " << rows << " rows, " << steps
                                          << " steps, after " << pass.pass);
          Buffers got = start;
          const program::RunReport report = program::Interpret(pass.program, got, vars);
          ASSERT_TRUE(report.ok()) << report.message;
          const size_t bytes = rows * kColumns * sizeof(float);
          ASSERT_EQ(std::memcmp(got[0].data(), want[0].data(), bytes), 0);
        }
      }
  }
}

// Blocks of rows at or past the end are not run: nothing is written there.
TEST(ProgramPlan, NothingRunsPastTheEnd) {
  Graph g;
  const UOp* const sink = ProductTo(g, Var(g, 0, 0, kRows), ConstIndex(g, kSteps));
  for (const char* opts : {"", "UPCAST:0:4 THREAD:0:1", "UPCAST:0:4 BLOCK:0:8 THREAD:0:1"}) {
    const Program made = Expand(sink, opts, nullptr);
    Buffers buffers = RandomBuffers(sink, 1);
    const Buffers start = buffers;
    const int64_t vars[] = {16};
    ASSERT_TRUE(program::Interpret(made, buffers, vars).ok());
    EXPECT_NE(buffers[0].substr(0, 16 * kColumns * 4), start[0].substr(0, 16 * kColumns * 4));
    EXPECT_EQ(buffers[0].substr(16 * kColumns * 4), start[0].substr(16 * kColumns * 4)) << opts;
  }
}

// A sum that every output reads lies before the number of the task: it is computed once a call.
TEST(ProgramPlan, WhatDependsOnNoTaskComesBeforeIt) {
  Graph g;
  const UOp *const i = Range(g, 0, 64), *const k = ReduceRange(g, 1, 32);
  const UOp* const sum = Fold(g, Op::kAdd, LoadAt(g, 1, DType::kF32, 32, k), {k});
  const UOp* const sink =
      Sink(g, {StoreAt(g, 0, 64, i, Mul(g, sum, LoadAt(g, 2, DType::kF32, 64, i)))});
  const Program made = Expand(sink, "VECTOR:0:8 THREAD:0:1", nullptr);
  size_t task = 0, last_loop = 0;
  for (size_t n = 0; n < made.code.size(); ++n) {
    if (made.code[n].code == Code::kSpecial) task = n;
    if (made.code[n].code == Code::kEnd) last_loop = n;
    if (made.code[n].code == Code::kStore && task == 0) {
      EXPECT_EQ(made.code[made.code[n].src[0]].code, Code::kAlloc) << "writes a buffer";
    }
  }
  EXPECT_GT(task, last_loop);
  EXPECT_GT(last_loop, 0u);
}

// Partial sums first to last, then lanes by halves: with numbers of which any other order makes
// something else.
TEST(ProgramPlan, TermsAreAddedInTheOrderOfThePlan) {
  constexpr int64_t kTerms = 22;  // two vectors at a time: 8, 8, then 6 of 8
  Graph g;
  const UOp *const i = Range(g, 0, 1), *const k = ReduceRange(g, 1, kTerms);
  const UOp* const sink =
      Sink(g, {StoreAt(g, 0, 1, i, Fold(g, Op::kAdd, LoadAt(g, 1, DType::kF32, kTerms, k), {k}))});
  Buffers buffers = RandomBuffers(sink, 1);
  std::vector<float> terms;
  for (int64_t t = 0; t < kTerms; ++t)
    terms.push_back(1.0f / static_cast<float>(t + 3) * (t % 3 == 0 ? 1e4f : t % 3 == 1 ? -3 : 1));
  std::memcpy(buffers[1].data(), terms.data(), buffers[1].size());
  float partials[2][8] = {};
  for (int64_t t = 0; t < 16; ++t) partials[t / 8][t % 8] += terms[t];
  for (int64_t t = 16; t < kTerms; ++t) partials[0][t % 8] += terms[t];
  for (int lane = 0; lane < 8; ++lane) partials[0][lane] += partials[1][lane];
  for (int half = 4; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) partials[0][lane] += partials[0][lane + half];
  std::vector<program::PassResult> passes;
  Expand(sink, "VECTOR:0:8 UNROLL:0:2 GROUP:0:2", &passes);
  for (const program::PassResult& pass : passes) {
    const program::RunReport report = program::Interpret(pass.program, buffers, {});
    ASSERT_TRUE(report.ok()) << report.message;
    float got = 0;
    std::memcpy(&got, buffers[0].data(), sizeof(got));
    EXPECT_EQ(got, partials[0][0]) << pass.pass;
  }
}

// Where a term's condition fails for a whole step, the step is left out.
TEST(ProgramPlan, ConditionsOfTermsBecomeBranches) {
  Graph g;
  const UOp* const sink = ProductTo(g, ConstIndex(g, kRows), ConstIndex(g, 5));
  const Program made = Expand(sink, "VECTOR:1:8 UPCAST:0:4", nullptr);
  bool branch = false;
  for (const Instruction& i : made.code) {
    branch = branch || i.code == Code::kIf;
    EXPECT_FALSE(i.code == Code::kAlu && i.op == Op::kWhere);
  }
  EXPECT_TRUE(branch);
}

// ---- rare work

// y[i] = 0 < x[i] ? chain of x[i] : x[i], twice, so that two WHEREs want one chain. `steps` long;
// with `shared`, the chain's value is stored for all elements, too.
Program Rare(int steps, int lanes, bool shared) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 32), in = b.Buffer(DType::kF32, 1, 32);
  const ValueId loop = b.Loop(16 / lanes);
  const ValueId at = b.Times(loop, lanes);
  const auto number = [&](float n) { return b.Splat(b.Const(DType::kF32, n), lanes); };
  const auto alu = [&](Op op, DType dtype, std::initializer_list<ValueId> src) {
    return b.Add({.code = Code::kAlu, .op = op, .dtype = dtype, .lanes = lanes, .src = src});
  };
  const ValueId x =
      b.Add({.code = Code::kLoad, .dtype = DType::kF32, .lanes = lanes, .src = {in, at}});
  const ValueId wanted = alu(Op::kCmpLt, DType::kBool, {number(0), x});
  ValueId y = x, before = x;
  for (int k = 0; k < steps; ++k) {
    before = y;
    y = alu(Op::kMulAcc, DType::kF32, {y, number(0.5f), number(static_cast<float>(k % 7))});
  }
  const ValueId first = alu(Op::kWhere, DType::kF32, {wanted, y, x});
  const ValueId second = alu(Op::kWhere, DType::kF32, {wanted, before, number(-1)});
  b.Store(out, at, alu(Op::kAdd, DType::kF32, {first, second}));
  if (shared) b.Store(out, b.Plus(at, b.Int(16)), y);
  b.End(loop);
  return b.Take(2);
}

// 0 < x ? long work : (x < 2 ? other long work : x), and x < 2 ? work on
// (0 < x ? the long work : 1) : x. A WHERE of either condition is within what the other's want.
Program RareWithinRare(int lanes) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 32), in = b.Buffer(DType::kF32, 1, 32);
  const ValueId loop = b.Loop(32 / lanes);
  const ValueId at = b.Times(loop, lanes);
  const auto number = [&](float n) { return b.Splat(b.Const(DType::kF32, n), lanes); };
  const auto alu = [&](Op op, DType dtype, std::initializer_list<ValueId> src) {
    return b.Add({.code = Code::kAlu, .op = op, .dtype = dtype, .lanes = lanes, .src = src});
  };
  const ValueId zero = number(0), half = number(0.5f), one = number(1), two = number(2);
  const auto chain = [&](ValueId y, int steps) {
    for (int k = 0; k < steps; ++k) y = alu(Op::kMulAcc, DType::kF32, {y, half, one});
    return y;
  };
  const ValueId x =
      b.Add({.code = Code::kLoad, .dtype = DType::kF32, .lanes = lanes, .src = {in, at}});
  const ValueId positive = alu(Op::kCmpLt, DType::kBool, {zero, x});
  const ValueId small = alu(Op::kCmpLt, DType::kBool, {x, two});
  const ValueId more = alu(Op::kAdd, DType::kF32, {x, two});
  const ValueId first = chain(x, 110), second = chain(more, 120);
  const ValueId a = alu(Op::kWhere, DType::kF32, {small, second, x});
  const ValueId left = alu(Op::kWhere, DType::kF32, {positive, first, a});
  const ValueId inner = alu(Op::kWhere, DType::kF32, {positive, first, one});
  const ValueId right = alu(Op::kWhere, DType::kF32, {small, chain(inner, 5), x});
  b.Store(out, at, alu(Op::kAdd, DType::kF32, {left, right}));
  b.End(loop);
  return b.Take(2);
}

int CountOf(const Program& program, Code code) {
  int count = 0;
  for (const Instruction& i : program.code) count += i.code == code;
  return count;
}

// Long work that a condition's WHEREs alone want is behind a branch, which gives the same numbers;
// what is short, or wanted elsewhere, stays.
TEST(ProgramPlan, RareWorkIsBehindABranch) {
  std::vector<std::string> in(2, std::string(32 * 4, '\0'));
  for (int k = 0; k < 32; ++k) {
    const float x = k < 8 ? -1.0f - static_cast<float>(k) : static_cast<float>(k % 3) - 1;
    std::memcpy(in[1].data() + 4 * k, &x, 4);
  }
  for (const int lanes : {1, 4, 8})
    for (const int steps : {20, 300, 2000})
      for (const bool shared : {false, true}) {
        const Program plain = Rare(steps, lanes, shared);
        const Program made = program::BranchAroundRareWork(plain);
        ASSERT_TRUE(program::CheckProgram(made, "rare work", program::Phase::kFinal).ok());
        EXPECT_EQ(CountOf(made, Code::kIf), steps == 300 && !shared ? 1 : 0) << steps << shared;
        EXPECT_EQ(made.code == plain.code, steps != 300 || shared);
        std::vector<std::string> expected = in, got = in;
        ASSERT_TRUE(program::Interpret(plain, expected, {}).ok());
        const program::RunReport report = program::Interpret(made, got, {});
        ASSERT_TRUE(report.ok()) << report.message;
        EXPECT_EQ(expected[0], got[0]) << lanes << " " << steps << " " << shared;
      }
}

TEST(ProgramPlan, RareWorkThatAnotherNeedsWithinItsBranch_Stays) {
  std::vector<std::string> in(2, std::string(32 * 4, '\0'));
  for (int k = 0; k < 32; ++k) {
    const float x = static_cast<float>(k % 7) - 3;
    std::memcpy(in[1].data() + 4 * k, &x, 4);
  }
  for (const int lanes : {1, 4}) {
    const Program plain = RareWithinRare(lanes), made = program::BranchAroundRareWork(plain);
    ASSERT_TRUE(program::CheckProgram(made, "rare work", program::Phase::kFinal).ok());
    EXPECT_EQ(CountOf(made, Code::kIf), 1);
    std::vector<std::string> expected = in, got = in;
    ASSERT_TRUE(program::Interpret(plain, expected, {}).ok());
    const program::RunReport report = program::Interpret(made, got, {});
    ASSERT_TRUE(report.ok()) << report.message;
    EXPECT_EQ(expected[0], got[0]) << lanes;
  }
}

// The 192 bits of a sine of f64 are read for large angles alone.
TEST(ProgramPlan, ALongReductionOfAnglesIsBehindABranch) {
  Graph g;
  const UOp* const i = Range(g, 0, 64);
  const UOp* const sine = Alu(g, Op::kSin, LoadAt(g, 1, DType::kF64, 64, i));
  const UOp* const sink =
      codegen::DecomposeTranscendentalsOfF64(g, Sink(g, {StoreAt(g, 0, 64, i, sine)}));
  for (const char* const opts : {"", "VECTOR:0:8", "VECTOR:0:4 UPCAST:0:2"}) {
    const Program made = Expand(sink, opts, nullptr);
    int depth = 0, inside = 0, outside = 0;
    for (const Instruction& instruction : made.code) {
      depth += (instruction.code == Code::kIf) - (instruction.code == Code::kEndIf);
      (depth > 0 ? inside : outside) += instruction.code == Code::kAlu;
    }
    const int copies = std::strstr(opts, "UPCAST") == nullptr ? 1 : 2;
    EXPECT_EQ(CountOf(made, Code::kIf), copies) << opts;
    EXPECT_GT(inside, 200 * copies) << opts;
    EXPECT_LT(outside, 80 * copies) << opts;
  }
}

// ---- matrix units

float Bf16(int number) { return static_cast<float>(number % 9 - 4) / 2; }
uint32_t PairOf(float low, float high) {
  uint32_t bits[2];
  std::memcpy(&bits[0], &low, 4);
  std::memcpy(&bits[1], &high, 4);
  return bits[0] >> 16 | (bits[1] & 0xffff0000u);
}

enum class Mistake { kNone, kNoZero, kRowNeverWritten, kPastTheEnd };

// c = a * b by tiles, or by DOTs of vectors: a in slot 1, b in slot 2, 16 x 16 pairs each.
Program Products(bool tiles, Mistake mistake) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 256);
  ValueId own[2];
  for (const int s : {0, 1}) {
    own[s] = b.Alloc(Space::kPrivate, DType::kU32, 256);
    const ValueId loop = b.Loop(mistake == Mistake::kRowNeverWritten && s == 0 ? 255 : 256);
    b.Store(own[s], loop, b.Load(b.Buffer(DType::kU32, s + 1, 256), loop));
    b.End(loop);
  }
  const auto vector = [&](ValueId memory, ValueId index) {
    return b.Add(
        {.code = Code::kLoad, .dtype = b.at(memory).dtype, .lanes = 16, .src = {memory, index}});
  };
  if (!tiles) {
    const ValueId row = b.Loop(16), sum = b.Alloc(Space::kPrivate, DType::kF32, 16);
    if (mistake != Mistake::kNoZero) b.Store(sum, b.Int(0), b.Splat(b.Const(DType::kF32, 0), 16));
    const ValueId pair = b.Loop(mistake == Mistake::kPastTheEnd ? 17 : 16);
    const ValueId one = b.Load(own[0], b.Plus(b.Times(row, 16), pair));
    b.Store(sum, b.Int(0),
            b.Add({.code = Code::kDot,
                   .dtype = DType::kF32,
                   .lanes = 16,
                   .src = {vector(sum, b.Int(0)), b.Splat(one, 16),
                           vector(own[1], b.Times(pair, 16))}}));
    b.End(pair);
    b.Store(out, b.Times(row, 16), vector(sum, b.Int(0)));
    b.End(row);
    return b.Take(3);
  }
  const ValueId c = b.Alloc(Space::kTile, DType::kF32, 256),
                a = b.Alloc(Space::kTile, DType::kU32, 256),
                right = b.Alloc(Space::kTile, DType::kU32, 256);
  const ValueId sums = b.Alloc(Space::kPrivate, DType::kF32, 256);
  const ValueId first = b.Int(mistake == Mistake::kPastTheEnd ? 1 : 0);
  if (mistake != Mistake::kNoZero) b.Add({.code = Code::kTileZero, .src = {c}});
  b.Add({.code = Code::kTileLoad, .src = {a, own[0], first}, .imm = {16, 0, 0}});
  b.Add({.code = Code::kTileLoad, .src = {right, own[1], b.Int(0)}, .imm = {16, 0, 0}});
  b.Add({.code = Code::kTileDot, .src = {c, a, right}});
  b.Add({.code = Code::kTileStore, .src = {c, sums, b.Int(0)}, .imm = {16, 0, 0}});
  const ValueId row = b.Loop(16);
  b.Store(out, b.Times(row, 16), vector(sums, b.Times(row, 16)));
  b.End(row);
  return b.Take(3);
}

TEST(ProgramMatrixUnits, InterpretedAndTheirMistakesFound) {
  Buffers start = {std::string(1024, 0), std::string(1024, 0), std::string(1024, 0)};
  float a[16][32], b[32][16];
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 32; ++k) {
      a[i][k] = Bf16(7 * i + 3 * k);
      b[k][i] = Bf16(5 * k + i);
    }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = PairOf(a[i][2 * k], a[i][2 * k + 1]),
                     right = PairOf(b[2 * k][i], b[2 * k + 1][i]);
      std::memcpy(&start[1][4 * (16 * i + k)], &left, 4);
      std::memcpy(&start[2][4 * (16 * k + i)], &right, 4);
    }
  for (const bool tiles : {false, true}) {
    Buffers got = start;
    const auto run = [&](Mistake mistake) {
      got = start;
      return program::Interpret(Products(tiles, mistake), got, {}).fault;
    };
    EXPECT_EQ(run(Mistake::kNoZero), program::Fault::kUninitialised);
    EXPECT_EQ(run(Mistake::kRowNeverWritten), program::Fault::kUninitialised);
    EXPECT_EQ(run(Mistake::kPastTheEnd), program::Fault::kOutOfRange);
    ASSERT_EQ(run(Mistake::kNone), program::Fault::kNone);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        float want = 0, sum = 0;
        for (int k = 0; k < 32; ++k) want += a[i][k] * b[k][j];
        std::memcpy(&sum, &got[0][4 * (16 * i + j)], 4);
        ASSERT_EQ(sum, want) << i << ", " << j << (tiles ? " by tiles" : " by vectors");
      }
  }
}

}  // namespace
}  // namespace outboard::test
