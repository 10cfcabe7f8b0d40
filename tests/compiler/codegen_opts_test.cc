// Opts: their text, which of them are legal, and that none of them changes what a kernel computes.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_random_opts.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

using codegen::Opt;
using codegen::OptKind;
using codegen::OptsToString;
using codegen::ParseOpts;

TEST(CodegenOpts, TextAndBack) {
  const std::string text =
      "FLATTEN:1:0 VECTOR:1:16 UPCAST:0:8 UNROLL:2:4 GROUP:2:2 BLOCK:1:96 SWAP:0:1 THREAD:0:2 "
      "LOCAL:1:2";
  EXPECT_EQ(OptsToString(*ParseOpts(text)), text);
  EXPECT_EQ(ParseOpts("")->size(), 0u);
  EXPECT_EQ((*ParseOpts("UPCAST:3:-7"))[0], (Opt{OptKind::kUpcast, 3, -7}));
  // As tuning stores of earlier versions have it.
  EXPECT_EQ(OptsToString(*ParseOpts("UPCAST:0:16 TC:2:0")), "UPCAST:0:16 CPU_MATRIX_UNIT:2:0");
  for (const char* wrong : {"UPCAST", "UPCAST:1", "UPCAST:1:", "upcast:1:2", "UPCAST:1:2:3",
                            "UPCAST:1:2x", "UPCAST:1:99999999999999999999", ":1:2", "X:1:2"}) {
    const auto parsed = ParseOpts(std::string("VECTOR:0:4 ") + wrong);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_NE(parsed.status().message().find(wrong), std::string::npos) << parsed.status();
  }
}

// Compiles a kernel by these Opts and compares it with the walk.
void CheckOpts(const UOp* sink, const std::string& text, const std::string& cpu = "",
               uint32_t seed = 1) {
  SCOPED_TRACE(text);
  const Buffers start = RandomBuffers(sink, seed);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus()) << GraphToString(sink);
  auto compiled = CompileKernel(
      sink, {.cpu = cpu, .dump = std::getenv("DUMP") != nullptr, .opts = *ParseOpts(text)});
  ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << GraphToString(sink);
  const auto loaded = std::move(LoadedKernel::Load(*std::move(compiled))).value();
  Buffers once = start, split = start;
  loaded->RunGuarded(once, 1);
  ExpectClose(sink, once, want, 2e-3);
  loaded->RunGuarded(split, 3);
  ASSERT_EQ(split, once) << "the split of tasks changes bits";
}

// Rows that fill no tile have a copy of their own: two of 2 MiB are more than a thread has, and no
// kernel is made that the device would refuse to run.
TEST(CodegenOpts, CopiesOfTilesAndTheirRestAreCounted) {
  Graph g;
  const std::vector<Opt> opts = *ParseOpts("VECTOR:1:16 UPCAST:0:6 UPCAST:1:4 LOCAL:1:1");
  const auto compiled =
      CompileKernel(MatMul(g, 256, 1024, 512), {.cpu = "x86-64-v4", .opts = opts});
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted) << compiled.status();
}

// Tiles, blocks and copies that do not divide the extents, and that do.
TEST(CodegenOpts, BlockedProducts) {
  for (const auto& [m, n, k] : {std::tuple{37, 83, 29}, {32, 96, 16}, {9, 50, 64}, {64, 49, 5}})
    for (const bool transposed : {false, true}) {
      Graph g;
      const UOp* const sink = MatMul(g, m, n, k, transposed);
      for (const char* opts : {
               "VECTOR:1:8 UPCAST:1:3 UPCAST:0:8 BLOCK:1:24 THREAD:0:1 LOCAL:1:1",
               "VECTOR:1:8 UPCAST:1:2 UPCAST:0:4 BLOCK:1:32 BLOCK:0:8 THREAD:0:2 LOCAL:1:2 "
               "LOCAL:0:3",
               "VECTOR:1:8 UPCAST:1:2 UPCAST:0:3 BLOCK:1:16 BLOCK:0:6 SWAP:0:1 SWAP:2:3 THREAD:0:1 "
               "LOCAL:1:2 LOCAL:0:2",
               "VECTOR:1:4 UPCAST:0:4 UNROLL:2:4 GROUP:2:2 LOCAL:1:0 LOCAL:0:0",
               "UPCAST:0:4 UPCAST:1:4 BLOCK:0:8 LOCAL:0:1 LOCAL:1:3",
               "VECTOR:2:4 UNROLL:2:2 BLOCK:0:4 BLOCK:1:5 THREAD:0:2 LOCAL:0:2 LOCAL:1:2",
           }) {
        CheckOpts(sink, opts);
        CheckOpts(sink, opts, "haswell");
        if (HasFatalFailure()) return;
      }
    }
}

// The second operand is consecutive along the reduction: its copy is made in transposed squares,
// but for the last columns where they fill no vector. Of blocks of a batch; with a reduction that
// is unrolled; with one of two ranges; and of offsets that are no multiples of a vector.
TEST(CodegenOpts, CopiesInSquares) {
  const auto product = [](Graph& g, int64_t batch, int64_t m, int64_t n, int64_t k) {
    const UOp *b = Range(g, 0, batch), *i = Range(g, 1, m), *j = Range(g, 2, n),
              *o = ReduceRange(g, 3, 3), *l = ReduceRange(g, 4, k);
    const UOp* const x =
        LoadAt(g, 1, DType::kF32, batch * m * 3 * k, RowMajor(g, {b, i, o, l}, {batch, m, 3, k}));
    const UOp* const place =
        Alu(g, Op::kAdd, RowMajor(g, {b, j, o, l}, {batch, n, 3, k + 1}), ConstIndex(g, 1));
    const UOp* const y = LoadAt(g, 2, DType::kF32, batch * n * 3 * (k + 1), place);
    return Sink(g, {StoreAt(g, 0, batch * m * n, RowMajor(g, {b, i, j}, {batch, m, n}),
                            Fold(g, Op::kAdd, Mul(g, x, y), {o, l}))});
  };
  for (const auto& [n, k] : {std::pair{64, 32}, {50, 16}, {40, 48}})
    for (const char* opts :
         {"VECTOR:2:8 UPCAST:2:2 UPCAST:1:3 THREAD:0:1 LOCAL:1:1",
          "VECTOR:2:8 UPCAST:2:2 UPCAST:1:3 UNROLL:4:4 GROUP:4:2 BLOCK:2:16 THREAD:0:2 LOCAL:1:2",
          "VECTOR:2:8 UNROLL:4:16 BLOCK:2:8 BLOCK:1:4 SWAP:0:1 THREAD:0:1 LOCAL:1:3",
          "VECTOR:2:4 UPCAST:2:4 UNROLL:3:3 THREAD:0:1 LOCAL:1:1 LOCAL:0:2"}) {
      Graph g;
      CheckOpts(product(g, 2, 10, n, k), opts);
      CheckOpts(product(g, 2, 10, n, k), opts, "haswell");
      if (HasFatalFailure()) return;
    }
}

// A value of an outer loop that is first needed inside of an inner one, and whose address has a
// quotient: all of its code belongs to the outer loop.
TEST(CodegenOpts, QuotientsOfOuterLoops) {
  Graph g;
  const UOp *i = Range(g, 0, 17), *j = Range(g, 1, 5);
  const UOp* const quotient = LoadAt(g, 1, DType::kF32, 5, Alu(g, Op::kIDiv, i, ConstIndex(g, 4)));
  const UOp* const copied = LoadAt(g, 2, DType::kF32, 85, RowMajor(g, {i, j}, {17, 5}));
  const UOp* const where = Where(g, Alu(g, Op::kCmpNe, j, ConstIndex(g, 2)),
                                 Mul(g, quotient, LoadAt(g, 3, DType::kF32, 17, i)), copied);
  const UOp* const sink = Sink(g, {StoreAt(g, 0, 85, RowMajor(g, {i, j}, {17, 5}), where)});
  CheckOpts(sink, "VECTOR:0:8 UPCAST:1:3 BLOCK:1:3 THREAD:0:2");
  CheckOpts(sink, "VECTOR:0:8 UPCAST:1:3 BLOCK:1:3 THREAD:0:2 LOCAL:2:2");
}

// A copy of what lies behind gates, quotients and other strides.
TEST(CodegenOpts, CopiesOfAnyLoad) {
  Graph g;
  const Conv c{2, 3, 5, 3, 7, 9};
  for (const bool gate_term : {false, true})
    for (const char* opts :
         {"VECTOR:3:8 UPCAST:1:3 THREAD:0:1 LOCAL:0:1 LOCAL:1:1",
          "VECTOR:1:4 UPCAST:3:4 THREAD:0:1 LOCAL:0:2 LOCAL:1:2", "LOCAL:0:0 LOCAL:1:4"}) {
      CheckOpts(ConvInputGradient(g, c, gate_term), opts);
      CheckOpts(ConvForward(g, c), opts);
      if (HasFatalFailure()) return;
    }
}

TEST(CodegenOpts, IllegalOnesAreNamed) {
  Graph g;
  const UOp* const sink = MatMul(g, 40, 60, 20);
  const struct {
    const char *opts, *last;
  } cases[] = {
      {"VECTOR:3:16", "VECTOR:3:16"},
      {"VECTOR:-1:16", "VECTOR:-1:16"},
      {"VECTOR:1:12", "VECTOR:1:12"},
      {"VECTOR:1:1", "VECTOR:1:1"},
      {"VECTOR:2:64", "VECTOR:2:64"},
      {"VECTOR:1:16 VECTOR:0:16", "VECTOR:0:16"},
      {"VECTOR:1:16 VECTOR:2:16", "VECTOR:2:16"},
      {"VECTOR:2:16 VECTOR:1:16", "VECTOR:1:16"},
      {"UPCAST:2:2", "UPCAST:2:2"},
      {"UPCAST:0:1", "UPCAST:0:1"},
      {"UPCAST:0:41", "UPCAST:0:41"},
      {"UPCAST:0:4 UPCAST:0:4", "UPCAST:0:4"},
      {"UNROLL:1:2", "UNROLL:1:2"},
      {"UNROLL:2:21", "UNROLL:2:21"},
      {"GROUP:2:2", "GROUP:2:2"},
      {"UNROLL:2:4 GROUP:2:5", "GROUP:2:5"},
      {"UPCAST:0:4 BLOCK:0:10", "BLOCK:0:10"},
      {"BLOCK:0:40", "BLOCK:0:40"},
      {"BLOCK:0:8 BLOCK:0:4", "BLOCK:0:4"},
      {"BLOCK:0:8 UPCAST:0:4", "UPCAST:0:4"},
      {"BLOCK:0:8 SWAP:0:1", "SWAP:0:1"},
      {"SWAP:1:0", "SWAP:1:0"},
      {"SWAP:0:2", "SWAP:0:2"},
      {"THREAD:0:3", "THREAD:0:3"},
      {"THREAD:0:1 THREAD:0:1", "THREAD:0:1"},
      {"THREAD:0:1 SWAP:0:1", "SWAP:0:1"},
      {"THREAD:0:2 LOCAL:1:1", "LOCAL:1:1"},
      {"LOCAL:2:0", "LOCAL:2:0"},
      {"LOCAL:1:3", "LOCAL:1:3"},
      {"LOCAL:1:1 LOCAL:1:1", "LOCAL:1:1"},
      {"UPCAST:0:2 FLATTEN:1:0", "FLATTEN:1:0"},
      {"FLATTEN:0:0", "FLATTEN:0:0"},
  };
  for (const auto& c : cases) {
    // For a processor whose vectors have 16 lanes, wherever this runs.
    const auto compiled = CompileKernel(sink, {.cpu = "x86-64-v4", .opts = *ParseOpts(c.opts)});
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << c.opts;
    EXPECT_NE(compiled.status().message().find(c.last), std::string::npos) << compiled.status();
  }
  const UOp* const large = MatMul(g, 4000, 6000, 2000);
  for (const char* over : {"UPCAST:0:200", "UPCAST:0:16 UPCAST:1:16", "UNROLL:2:300",
                           "UPCAST:0:16 UNROLL:2:40", "LOCAL:1:0"}) {
    const auto compiled = CompileKernel(large, {.opts = *ParseOpts(over)});
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted) << over;
  }
}

// What is written must not be copied before; an index that is summed is not there yet.
TEST(CodegenOpts, LoadsThatAreNotCopied) {
  Graph g;
  const UOp *i = Range(g, 0, 40), *k = ReduceRange(g, 1, 8);
  const UOp* const in_place = Sink(
      g, {StoreAt(g, 0, 40, i,
                  Add(g, LoadAt(g, 0, DType::kF32, 40, i), LoadAt(g, 1, DType::kF32, 40, i)))});
  EXPECT_FALSE(CompileKernel(in_place, {.opts = *ParseOpts("LOCAL:0:0")}).ok());
  CheckOpts(in_place, "LOCAL:1:0");
  const UOp* const sum =
      Fold(g, Op::kAdd,
           Cast(g, LoadAt(g, 2, DType::kU8, 320, RowMajor(g, {i, k}, {40, 8})), DType::kI64), {k});
  const UOp* const picked =
      GatedLoadAt(g, 1, DType::kF32, 50, sum, Within(g, sum, 50), ConstFloat(g, DType::kF32, 1));
  const UOp* const gather = Sink(g, {StoreAt(g, 0, 40, i, picked)});
  int copied = 0;
  for (const char* opts : {"LOCAL:0:0", "LOCAL:1:0"})
    copied += CompileKernel(gather, {.opts = *ParseOpts(opts)}).ok();
  EXPECT_EQ(copied, 0) << "one is an integer, the other depends on a reduction";
}

TEST(CodegenOpts, TheHeuristicsAreLegalAndDeterministic) {
  const Target& target = TestTarget();
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::string texts[2];
    for (std::string& text : texts) {
      Graph g;
      auto kernel = codegen::AnalyzeKernel(RandomKernel(g, seed));
      ASSERT_TRUE(kernel.ok());
      const std::vector<Opt> opts = codegen::HeuristicOpts(*kernel, target);
      text = OptsToString(opts);
      const auto planned = codegen::ApplyOpts(*std::move(kernel), opts, target);
      ASSERT_TRUE(planned.ok()) << "seed " << seed << ": " << text << "\n" << planned.status();
    }
    EXPECT_EQ(texts[0], texts[1]);
  }
}

// A large operand that each row reads again is copied, and one whose lanes are no neighbours; what
// fits a cache as it is, or is a window of something smaller, is not. Targets of two vector widths.
TEST(CodegenOpts, LargeOperandsAreCopied) {
  const auto opts = [](const UOp* sink, const Target& target) {
    return OptsToString(codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), target));
  };
  Graph g;
  const Target wide = TestTargetWith(64, 32), narrow = TestTargetWith(32, 16);
  EXPECT_EQ(opts(MatMul(g, 1024, 1024, 1024), wide),
            "VECTOR:1:16 UPCAST:0:6 UPCAST:1:4 BLOCK:1:128 BLOCK:0:258 THREAD:0:2 LOCAL:1:2");
  EXPECT_EQ(opts(MatMul(g, 1024, 1024, 1024, true), wide),
            opts(MatMul(g, 1024, 1024, 1024), wide));  // squares of it are transposed
  // 999 steps are no whole squares: the copy is made element by element, so for more rows.
  EXPECT_EQ(opts(MatMul(g, 1024, 1024, 999, true), wide),
            "VECTOR:1:16 UPCAST:0:6 UPCAST:1:4 BLOCK:1:64 BLOCK:0:516 THREAD:0:2 LOCAL:1:2");
  EXPECT_THAT(opts(MatMul(g, 1024, 1024, 1024), narrow), ::testing::HasSubstr("LOCAL"));
  EXPECT_THAT(opts(MatMul(g, 512, 512, 512), wide), ::testing::Not(::testing::HasSubstr("LOCAL")));
  EXPECT_THAT(opts(MatMul(g, 32, 1024, 1024), wide), ::testing::Not(::testing::HasSubstr("LOCAL")));
  // Channels lie in lanes: the weights are copied, the images are not.
  EXPECT_EQ(opts(ConvForward(g, {128, 32, 32, 5, 24, 24}), wide),
            "VECTOR:1:16 UPCAST:3:10 UPCAST:1:2 UNROLL:6:5 BLOCK:0:4 SWAP:2:3 SWAP:3:4 THREAD:0:1 "
            "LOCAL:1:1");
  // One matrix for each of a batch: its loop is around the blocks.
  const UOp *b = Range(g, 0, 4), *i = Range(g, 1, 600), *j = Range(g, 2, 600),
            *k = ReduceRange(g, 3, 600);
  const int64_t n = 4 * 600 * 600;
  const auto at = [&](int64_t slot, const UOp* row, const UOp* column) {
    return LoadAt(g, slot, DType::kF32, n, RowMajor(g, {b, row, column}, {4, 600, 600}));
  };
  const UOp* const batched =
      Sink(g, {StoreAt(g, 0, n, RowMajor(g, {b, i, j}, {4, 600, 600}),
                       Fold(g, Op::kAdd, Mul(g, at(1, i, k), at(2, k, j)), {k}))});
  EXPECT_EQ(opts(batched, wide),
            "VECTOR:2:16 UPCAST:1:8 UPCAST:2:3 BLOCK:2:192 BLOCK:1:304 SWAP:1:2 SWAP:0:1 "
            "THREAD:0:3 LOCAL:1:3");
}

// out[i][j] = the sum over `steps` of x[step][i] * y[step][j].
const UOp* WeightGradient(Graph& g, int64_t rows, int64_t columns, int64_t steps) {
  const UOp *i = Range(g, 0, rows), *j = Range(g, 1, columns), *k = ReduceRange(g, 2, steps);
  const UOp* const x =
      LoadAt(g, 1, DType::kF32, steps * rows, RowMajor(g, {k, i}, {steps, rows}));
  const UOp* const y =
      LoadAt(g, 2, DType::kF32, steps * columns, RowMajor(g, {k, j}, {steps, columns}));
  return Sink(g, {StoreAt(g, 0, rows * columns, RowMajor(g, {i, j}, {rows, columns}),
                          Fold(g, Op::kAdd, Mul(g, x, y), {k}))});
}

// Rows that are 4 KiB apart from step to step drive each other out of the cache, so blocks of them
// are copied; those that are 1 KiB apart are read where they are.
TEST(CodegenOpts, FarRowsAreCopied) {
  const Target target = TestTargetWith(64, 32);
  Graph g;
  const auto opts = [&](const UOp* sink) {
    return OptsToString(codegen::HeuristicOpts(*codegen::AnalyzeKernel(sink), target));
  };
  const UOp* const far = WeightGradient(g, 1024, 256, 512);
  EXPECT_EQ(opts(far), "VECTOR:1:16 UPCAST:0:6 UPCAST:1:4 BLOCK:0:48 THREAD:0:1 LOCAL:0:1");
  EXPECT_THAT(opts(WeightGradient(g, 256, 256, 512)),
              ::testing::Not(::testing::HasSubstr("LOCAL")));
  // The lanes stay along the columns, whose copy costs two accesses a vector.
  EXPECT_THAT(opts(WeightGradient(g, 256, 1024, 512)), ::testing::EndsWith("LOCAL:1:2"));
  for (const int64_t rows : {96, 100, 50}) {
    CheckOpts(WeightGradient(g, rows, 70, 33),
              "VECTOR:1:8 UPCAST:0:6 UPCAST:1:2 BLOCK:0:48 THREAD:0:1 LOCAL:0:1");
    if (HasFatalFailure()) return;
  }
  // As the heuristic has it for vectors that this processor has, of rows that are no whole blocks.
  const UOp* const odd = WeightGradient(g, 1024, 130, 257);
  EXPECT_THAT(opts(odd), ::testing::HasSubstr("LOCAL"));
  const Target here = TestTargetWith(HostTarget().vector_bytes, 32);
  CheckOpts(odd, OptsToString(codegen::HeuristicOpts(*codegen::AnalyzeKernel(odd), here)));
}

// OUTBOARD_SEED=n repeats kernel n alone; OUTBOARD_KERNELS=n makes n (20,000 in nightly runs).
TEST(CodegenOpts, RandomKernelsByRandomOpts) {
  const char* const only = std::getenv("OUTBOARD_SEED");
  const char* const count = std::getenv("OUTBOARD_KERNELS");
  const uint32_t first = only ? std::atoi(only) : 0, last = only    ? first + 1
                                                            : count ? std::atoi(count)
                                                                    : 500;
  std::map<OptKind, int> used;
  for (uint32_t seed = first; seed < last; ++seed) {
    Graph g;
    const UOp* const sink = RandomKernel(g, seed);
    std::mt19937 random(seed);
    const bool old = seed % 4 == 0 || HostTarget().vector_bytes < 64;
    const std::vector<Opt> opts =
        RandomOpts(sink, TestTargetWith(old ? 32 : 64, old ? 16 : 32), random);
    for (const Opt& opt : opts) ++used[opt.kind];
    CheckOpts(sink, OptsToString(opts), old ? "haswell" : "", seed);
    if (HasFatalFailure() || HasNonfatalFailure()) {
      ADD_FAILURE() << "repeat with OUTBOARD_SEED=" << seed << " codegen_opts_test";
      return;
    }
  }
  if (only != nullptr) return;
  for (const OptKind kind : {OptKind::kVector, OptKind::kUpcast, OptKind::kUnroll, OptKind::kGroup,
                             OptKind::kBlock, OptKind::kSwap, OptKind::kThread, OptKind::kLocal})
    if (last >= 500) {
      EXPECT_GE(used[kind], 10) << "hardly tried: " << OptsToString({{kind, 0, 0}});
    }
}

}  // namespace
}  // namespace outboard::test
