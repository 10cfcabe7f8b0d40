// The interpreter of programs: what it computes, and that it finds every one of twelve mistakes
// that a pass could make, in whatever order threads run.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "compiler/program/interpret.h"
#include "compiler/program/program.h"
#include "compiler/program/spec.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

using Buffers = std::vector<std::string>;

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}
std::vector<float> ToFloats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

enum class Mistake {
  kNone,
  kMissingBarrier,
  kWaitTooFew,
  kWrongSwizzle,
  kGateDropped,
  kUninitialisedRead,
  kIndexOffByOne,
  kRaceBetweenThreads,
  kDivergentBarrier,
  kSharedTooSmall,
  kStoreByTwoBlocks,
  kWrongLoopBound,
  kWrongMask,
};
constexpr int kMistakes = 12;

constexpr int64_t kThreads = 32, kSteps = 4, kBlocks = 3;
constexpr int64_t kElements = kThreads * kSteps * kBlocks;
constexpr int64_t kTerms = 250;  // of the sum: no multiple of the threads

// out0[i] = 2 * in[the element of its tile from behind] by tiles that are copied, one step ahead,
// to swizzled places of shared memory; out1[block] = the sum of in[0, kTerms) by a tree.
Program Make(Mistake mistake) {
  const auto is = [&](Mistake m) { return m == mistake; };
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kElements), in = b.Buffer(DType::kF32, 1, kElements),
                sums = b.Buffer(DType::kF32, 2, kBlocks), some = b.Buffer(DType::kF32, 3, kTerms);
  const ValueId block = b.Special(Grid::kBlock, kBlocks),
                thread = b.Special(Grid::kThread, kThreads);
  const ValueId tiles =
      b.Alloc(Space::kShared, DType::kF32, 2 * kThreads - (is(Mistake::kSharedTooSmall) ? 1 : 0));
  const ValueId tree = b.Alloc(Space::kShared, DType::kF32, kThreads);
  const auto swizzled = [&](ValueId i, int64_t by) {
    return b.Alu(Op::kXor, DType::kI64, {i, b.Int(by)});
  };
  const auto copy = [&](ValueId step) {
    const ValueId to = b.Plus(b.Times(b.Modulo(step, 2), kThreads), swizzled(thread, 5));
    const ValueId from = b.Plus(b.Times(b.Plus(b.Times(block, kSteps), step), kThreads), thread);
    b.Add({.code = Code::kCopy, .src = {tiles, to, in, from}, .imm = {1, 0, 0}});
  };
  copy(b.Int(0));
  b.Add({.code = Code::kCommit});
  const ValueId step = b.Loop(kSteps - (is(Mistake::kWrongLoopBound) ? 1 : 0));
  const ValueId more = b.If(b.Less(step, b.Int(kSteps - 1)));
  copy(b.Plus(step, b.Int(1)));
  b.EndIf(more);
  b.Add({.code = Code::kCommit});
  b.Add({.code = Code::kWait, .imm = {is(Mistake::kWaitTooFew) ? 2 : 1, 0, 0}});
  if (!is(Mistake::kMissingBarrier)) b.Barrier();
  const ValueId behind = b.Plus(b.Int(kThreads - 1), b.Times(thread, -1));
  const ValueId place = swizzled(behind, is(Mistake::kWrongSwizzle) ? 4 : 5);
  const ValueId value = b.Load(tiles, b.Plus(b.Times(b.Modulo(step, 2), kThreads), place));
  const ValueId owner = is(Mistake::kStoreByTwoBlocks) ? b.Divide(block, 2) : block;
  ValueId to = b.Plus(b.Times(b.Plus(b.Times(owner, kSteps), step), kThreads), thread);
  if (is(Mistake::kIndexOffByOne)) to = b.Plus(to, b.Int(1));
  b.Store(out, to, b.Alu(Op::kAdd, DType::kF32, {value, value}));
  b.Barrier();
  b.End(step);

  const ValueId sum = b.Alloc(Space::kPrivate, DType::kF32, 1);
  if (!is(Mistake::kUninitialisedRead)) b.Store(sum, b.Int(0), b.Const(DType::kF32, 0));
  const ValueId round = b.Loop((kTerms + kThreads - 1) / kThreads);
  const ValueId term = b.Plus(b.Times(round, kThreads), thread);
  Instruction load{.code = Code::kLoad, .dtype = DType::kF32, .src = {some, term}};
  if (!is(Mistake::kGateDropped)) {
    load.src.push_back(b.Less(term, b.Int(kTerms - (is(Mistake::kWrongMask) ? 1 : 0))));
    load.src.push_back(b.Const(DType::kF32, 0));
  }
  b.Store(sum, b.Int(0), b.Alu(Op::kAdd, DType::kF32, {b.Load(sum, b.Int(0)), b.Add(load)}));
  b.End(round);
  b.Store(tree, thread, b.Load(sum, b.Int(0)));
  b.Barrier();
  for (int64_t half = kThreads / 2; half > 0; half /= 2) {
    const int64_t bound = half + (is(Mistake::kRaceBetweenThreads) && half == 4 ? 1 : 0);
    const ValueId branch = b.If(b.Less(thread, b.Int(bound)));
    b.Store(tree, thread,
            b.Alu(Op::kAdd, DType::kF32,
                  {b.Load(tree, thread), b.Load(tree, b.Plus(thread, b.Int(half)))}));
    const bool divergent = is(Mistake::kDivergentBarrier) && half == 4;
    if (divergent) b.Barrier();
    b.EndIf(branch);
    if (!divergent) b.Barrier();
  }
  const ValueId first = b.If(b.Less(thread, b.Int(1)));
  b.Store(sums, block, b.Load(tree, b.Int(0)));
  b.EndIf(first);
  return b.Take(4);
}

Buffers Inputs() {
  std::vector<float> in(kElements), some(kTerms);
  for (int64_t i = 0; i < kElements; ++i) in[i] = static_cast<float>(i + 1);
  for (int64_t i = 0; i < kTerms; ++i) some[i] = static_cast<float>(i % 7 + 1);
  return {Floats(std::vector<float>(kElements)), Floats(in), Floats(std::vector<float>(kBlocks)),
          Floats(some)};
}

Buffers Wanted() {
  Buffers want = Inputs();
  std::vector<float> out(kElements), in = ToFloats(want[1]);
  for (int64_t i = 0; i < kElements; ++i)
    out[i] = 2 * in[i / kThreads * kThreads + kThreads - 1 - i % kThreads];
  float sum = 0;
  for (const float v : ToFloats(want[3])) sum += v;  // whole numbers: exact in any order
  want[0] = Floats(out);
  want[2] = Floats(std::vector<float>(kBlocks, sum));
  return want;
}

TEST(ProgramInterpret, StagedCopiesAndATreeOfSumsInAnyOrder) {
  const Program program = Make(Mistake::kNone);
  ASSERT_EQ(CheckProgram(program, "test"), absl::OkStatus());
  const Buffers want = Wanted();
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Buffers got = Inputs();
    const RunReport report = Interpret(program, got, {}, {.seed = seed});
    ASSERT_TRUE(report.ok()) << report.message;
    EXPECT_EQ(got, want) << "seed " << seed;
  }
}

TEST(ProgramInterpret, FindsEveryPlantedMistakeWhateverTheOrder) {
  const struct {
    Mistake mistake;
    Fault fault;  // kNone: the result differs
  } cases[] = {
      {Mistake::kMissingBarrier, Fault::kRace},  // or a read of what no copy was begun for
      {Mistake::kWaitTooFew, Fault::kRace},
      {Mistake::kWrongSwizzle, Fault::kNone},
      {Mistake::kGateDropped, Fault::kOutOfRange},
      {Mistake::kUninitialisedRead, Fault::kUninitialised},
      {Mistake::kIndexOffByOne, Fault::kOutOfRange},
      {Mistake::kRaceBetweenThreads, Fault::kRace},
      {Mistake::kDivergentBarrier, Fault::kDivergence},
      {Mistake::kSharedTooSmall, Fault::kOutOfRange},
      {Mistake::kStoreByTwoBlocks, Fault::kRace},
      {Mistake::kWrongLoopBound, Fault::kNone},
      {Mistake::kWrongMask, Fault::kNone},
  };
  static_assert(std::size(cases) == kMistakes);
  const Buffers want = Wanted();
  int found = 0;
  for (const auto& c : cases) {
    const Program program = Make(c.mistake);
    bool every = true;
    for (uint32_t seed = 0; seed < 50; ++seed) {
      Buffers got = Inputs();
      const RunReport report = Interpret(program, got, {}, {.seed = seed});
      const bool expected = report.fault == c.fault || (c.mistake == Mistake::kMissingBarrier &&
                                                        report.fault == Fault::kUninitialised);
      EXPECT_TRUE(expected) << static_cast<int>(c.mistake) << " " << report.message;
      every = every && expected && (!report.ok() || got != want);
    }
    EXPECT_TRUE(every) << static_cast<int>(c.mistake);
    found += every;
  }
  std::printf("program_planted_faults_found %d of %d\n", found, kMistakes);
  EXPECT_EQ(found, kMistakes);
}

// 16 x 16 by 16 x 8, each thread holding what MmaElement says.
TEST(ProgramInterpret, AMatrixUnitMultiplies) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, 128), left = b.Buffer(DType::kBF16, 1, 256),
                right = b.Buffer(DType::kBF16, 2, 128);
  const ValueId thread = b.Special(Grid::kThread, kWarpThreads);
  const ValueId group = b.Divide(thread, 4), member = b.Modulo(thread, 4);
  const auto fragment = [&](ValueId memory, MmaOperand operand, int lanes, int64_t columns) {
    Instruction vector{.code = Code::kLanes, .dtype = b.at(memory).dtype, .lanes = lanes};
    for (int lane = 0; lane < lanes; ++lane) {
      const MatrixPlace zero = MmaElement(operand, 2, 0, lane);
      const bool is_b = operand == MmaOperand::kB;
      const ValueId row = b.Plus(is_b ? b.Times(member, 2) : group, b.Int(zero.row)),
                    column = b.Plus(is_b ? group : b.Times(member, 2), b.Int(zero.column));
      vector.src.push_back(b.Load(memory, b.Plus(b.Times(row, columns), column)));
    }
    return b.Add(vector);
  };
  const ValueId x = fragment(left, MmaOperand::kA, 8, 16),
                y = fragment(right, MmaOperand::kB, 4, 8);
  const ValueId zero = b.Splat(b.Const(DType::kF32, 0), 4);
  const ValueId sum =
      b.Add({.code = Code::kMma, .dtype = DType::kF32, .lanes = 4, .src = {x, y, zero}});
  for (int lane = 0; lane < 4; ++lane) {
    const MatrixPlace at = MmaElement(MmaOperand::kC, 2, 0, lane);
    const ValueId row = b.Plus(group, b.Int(at.row)),
                  column = b.Plus(b.Times(member, 2), b.Int(at.column));
    b.Store(out, b.Plus(b.Times(row, 8), column),
            b.Add({.code = Code::kLane, .dtype = DType::kF32, .src = {sum}, .imm = {lane, 0, 0}}));
  }
  const Program program = b.Take(3);
  ASSERT_EQ(CheckProgram(program, "test"), absl::OkStatus());

  Buffers buffers = {std::string(512, '\0'), std::string(512, '\0'), std::string(256, '\0')};
  const auto a = [](int r, int k) { return static_cast<double>((r * 3 + k * 5) % 11 - 5); };
  const auto c = [](int k, int n) { return static_cast<double>((k * 7 + n) % 9 - 4); };
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < 16; ++k) StoreFloat(DType::kBF16, a(r, k), &buffers[1][2 * (r * 16 + k)]);
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; ++n) StoreFloat(DType::kBF16, c(k, n), &buffers[2][2 * (k * 8 + n)]);
  const RunReport report = Interpret(program, buffers, {});
  ASSERT_TRUE(report.ok()) << report.message;
  const std::vector<float> got = ToFloats(buffers[0]);
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) {
      double sum_of = 0;
      for (int k = 0; k < 16; ++k) sum_of += a(r, k) * c(k, n);
      EXPECT_EQ(got[r * 8 + n], sum_of) << r << " " << n;
    }
}

// A warp copies 32 rows of 8 numbers, of those past `rows` zeros, and reads them as four matrices.
enum class MatrixMistake { kNone, kNoBarrier, kNoWait, kRowInTheMiddle, kCopyInTheMiddle };
Program MatricesOf(int64_t rows, bool transposed, MatrixMistake mistake) {
  const auto is = [&](MatrixMistake m) { return m == mistake; };
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kBF16, 0, 256), in = b.Buffer(DType::kBF16, 1, 8 * rows);
  const ValueId thread = b.Special(Grid::kThread, kWarpThreads);
  const ValueId tile = b.Alloc(Space::kShared, DType::kBF16, 264);
  const ValueId place = b.Times(thread, 8);
  const ValueId to = is(MatrixMistake::kCopyInTheMiddle) ? b.Plus(place, b.Int(4)) : place;
  b.Add({.code = Code::kCopy,
         .src = {tile, to, in, place, b.Less(thread, b.Int(rows))},
         .imm = {8, 1, 0}});
  b.Add({.code = Code::kCommit});
  if (!is(MatrixMistake::kNoWait)) b.Add({.code = Code::kWait});
  if (!is(MatrixMistake::kNoBarrier)) b.Barrier();
  const ValueId row = is(MatrixMistake::kRowInTheMiddle) ? b.Plus(place, b.Int(4)) : place;
  const ValueId loaded = b.Add({.code = Code::kLdmatrix,
                                .dtype = DType::kBF16,
                                .lanes = 8,
                                .src = {tile, row},
                                .imm = {transposed ? 1 : 0, 0, 0}});
  b.Add({.code = Code::kStore, .lanes = 8, .src = {out, place, loaded}});
  return b.Take(2);
}

TEST(ProgramInterpret, Matrices_LieAcrossAWarpAsProgramHSays) {
  for (const int64_t rows : {32, 20})
    for (const bool transposed : {false, true}) {
      const Program program = MatricesOf(rows, transposed, MatrixMistake::kNone);
      ASSERT_EQ(CheckProgram(program, "test"), absl::OkStatus());
      Buffers buffers = {std::string(512, '\1'), std::string(16 * rows, '\0')};
      for (int64_t i = 0; i < 8 * rows; ++i)
        StoreFloat(DType::kBF16, static_cast<double>(i % 251), &buffers[1][2 * i]);
      const RunReport report = Interpret(program, buffers, {});
      ASSERT_TRUE(report.ok()) << report.message;
      for (int thread = 0; thread < kWarpThreads; ++thread)
        for (int lane = 0; lane < 8; ++lane) {
          int row = thread / 4, column = thread % 4 * 2 + lane % 2;
          if (transposed) std::swap(row, column);
          const int64_t of_all = lane / 2 * 8 + row;
          const double want =
              of_all < rows ? static_cast<double>((of_all * 8 + column) % 251) : 0.0;
          EXPECT_EQ(LoadFloat(DType::kBF16, &buffers[0][2 * (thread * 8 + lane)]), want)
              << thread << " " << lane;
        }
    }
}

TEST(ProgramInterpret, MistakesWithMatrices_AreReported) {
  const auto fault = [](MatrixMistake mistake) {
    Buffers buffers = {std::string(512, '\0'), std::string(512, '\0')};
    return Interpret(MatricesOf(32, false, mistake), buffers, {}).fault;
  };
  EXPECT_EQ(fault(MatrixMistake::kNone), Fault::kNone);
  EXPECT_EQ(fault(MatrixMistake::kNoBarrier), Fault::kRace);
  EXPECT_EQ(fault(MatrixMistake::kNoWait), Fault::kRace);
  EXPECT_EQ(fault(MatrixMistake::kRowInTheMiddle), Fault::kMisaligned);
  EXPECT_EQ(fault(MatrixMistake::kCopyInTheMiddle), Fault::kMisaligned);
}

TEST(ProgramInterpret, StopsAtTheLimitOfSteps) {
  ProgramBuilder b;
  const ValueId loop = b.Loop(int64_t{1} << 40);
  b.End(loop);
  Buffers none;
  EXPECT_EQ(Interpret(b.Take(0), none, {}, {.steps_max = 1000}).fault, Fault::kTooLong);
}

}  // namespace
}  // namespace outboard::program
