// Sums over rows beside a product (compiler/kernel/row_sums.h): kernels with stores of sums, by
// matrix units, by warpgroups and without either, against a walk of the kernel; and the schedule
// that makes such kernels, against the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/reference/interpret.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/search/neighbours.h"
#include "compiler/starting_opts.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/schedule_eval.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

struct SumCase {
  const char* name;
  int64_t passages = 1, m = 128, n = 64, k = 128;  // rows are [passages][m]
  int64_t heads = 1;                               // products of a batch
  DType dtype = DType::kBF16, result = DType::kF32;
  bool gated = false;      // by what lies in slot 4, as a gradient of relu is
  bool in_place = false;   // by what lies in slot 0 before
  bool only_sums = false;  // nothing else is stored
  int sums = 1;
  double more = 0;  // is added: what lies beyond the rows is then not 0
};

const UOp* StoreSumsAt(Graph& g, int64_t slot, int64_t elements, const UOp* index,
                       const UOp* value) {
  return g.MakeChecked(Op::kStore, DType::kVoid,
                       {At(g, slot, DType::kF32, elements, index), value}, {1});
}

// y[head, row, n] = f(sum over k of a[head, row, k] * b[head, k, n]), and beside it
// p[head, row / 16, n], of y and of y + y; slots y, a, b, p, gate, second p.
const UOp* KernelOf(Graph& g, const SumCase& p) {
  const UOp *const head = Range(g, 0, p.heads), *const passage = Range(g, 1, p.passages),
                   *const m = Range(g, 2, p.m), *const n = Range(g, 3, p.n),
                   *const k = ReduceRange(g, 4, p.k);
  const int64_t rows = p.passages * p.m, blocks = (rows + 15) / 16;
  const UOp* const row = RowMajor(g, {passage, m}, {p.passages, p.m});
  const UOp* const a =
      LoadAt(g, 1, p.dtype, p.heads * rows * p.k,
             RowMajor(g, {head, row, k}, {p.heads, rows, p.k}));
  const UOp* const b =
      LoadAt(g, 2, p.dtype, p.heads * p.k * p.n, RowMajor(g, {head, k, n}, {p.heads, p.k, p.n}));
  const auto wide = [&](const UOp* x) { return Cast(g, x, DType::kF32); };
  const UOp* y = Fold(g, Op::kAdd, Mul(g, wide(a), wide(b)), {k});
  const int64_t elements = p.heads * rows * p.n;
  const UOp* const at = RowMajor(g, {head, row, n}, {p.heads, rows, p.n});
  if (p.gated || p.in_place) {
    const UOp* const gate =
        p.in_place ? LoadAt(g, 0, p.result, elements, at) : LoadAt(g, 4, p.dtype, elements, at);
    y = Where(g, Alu(g, Op::kCmpLt, ConstFloat(g, DType::kF32, 0), wide(gate)), y,
              ConstFloat(g, DType::kF32, 0));
  }
  if (p.more != 0) y = Add(g, y, ConstFloat(g, DType::kF32, p.more));
  const UOp* const block = Alu(g, Op::kIDiv, row, ConstIndex(g, 16));
  const UOp* const sum_at = RowMajor(g, {head, block, n}, {p.heads, blocks, p.n});
  std::vector<const UOp*> stores;
  if (!p.only_sums) stores.push_back(StoreAt(g, 0, elements, at, Cast(g, y, p.result)));
  stores.push_back(StoreSumsAt(g, 3, p.heads * blocks * p.n, sum_at, y));
  if (p.sums > 1)
    stores.push_back(StoreSumsAt(g, 5, p.heads * blocks * p.n, sum_at, Add(g, y, y)));
  return Simplify(g, Sink(g, stores));
}

const SumCase kCases[] = {
    {.name = "plain"},
    {.name = "several ranges of rows", .passages = 3, .m = 64, .n = 128},
    {.name = "rows that blocks do not divide", .m = 137, .n = 72, .k = 64, .more = 0.5},
    {.name = "several ranges, which blocks do not divide", .passages = 3, .m = 57, .k = 64,
     .more = 0.5},
    {.name = "a batch", .m = 80, .n = 64, .k = 64, .heads = 3},
    {.name = "bf16, gated, two sums", .m = 200, .n = 136, .result = DType::kBF16, .gated = true,
     .sums = 2},
    {.name = "sums alone", .m = 130, .n = 64, .only_sums = true, .sums = 2},
    {.name = "a gathered operand", .m = 150, .n = 62, .k = 64, .more = 0.5},
    {.name = "f32", .m = 130, .n = 64, .k = 160, .dtype = DType::kF32, .gated = true,
     .more = 2},
};

double ToleranceOf(const SumCase& test) { return test.result == DType::kF32 ? 1e-5 : 8e-3; }

int64_t AxisOf(const SumCase& test) { return test.heads > 1 ? 3 : 2; }

TEST(RowSums, BesideMatrixUnits_AreTheWalk) {
  for (const SumCase& test : kCases) {
    SCOPED_TRACE(test.name);
    Graph g;
    const UOp* const sink = KernelOf(g, test);
    const bool f32 = test.dtype == DType::kF32;
    const MmaTile small{32, 32, f32 ? 16 : 32, 1, 2, 2}, large{64, 64, f32 ? 16 : 32, 2, 2, 3};
    const double tolerance = ToleranceOf(test);
    CheckKernel(sink, &small, AxisOf(test), tolerance, "sm_80");
    CheckKernel(sink, &large, AxisOf(test), tolerance, "sm_90");
    if (HasFatalFailure()) return;
  }
}

// An odd number of columns is stored one by one.
TEST(RowSums, OddColumns_AreTheWalk) {
  Graph g;
  const MmaTile tile{64, 64, 32, 2, 2, 3};
  CheckKernel(KernelOf(g, {.name = "odd", .m = 75, .n = 61, .k = 64}), &tile, 2, 1e-5, "sm_90");
}

TEST(RowSums, OddColumns_AreRefusedByWarpgroups) {
  for (const int64_t n : {61, 62}) {
    Graph g;
    // No view has such strides: B is gathered.
    const codegen::LoopNest kernel =
        *codegen::AnalyzeKernel(KernelOf(g, {.name = "odd", .n = n, .k = 64}));
    const auto product = codegen::FindMmaProduct(kernel);
    ASSERT_TRUE(product.ok()) << product.status();
    const auto shape = program::HopperShapeOf(kernel, *product);
    EXPECT_EQ(shape.ok(), n == 62) << shape.status();
    const Target target = CudaTarget("sm_90a", 132);
    EXPECT_EQ(program::ComputesRowSums(KernelOf(g, {.name = "odd", .n = n, .k = 64}), target),
              n == 62);
  }
}

// ptxas gives each of eight warps 128 registers. Three products of f32 and sums need more.
TEST(RowSums, TilesThatWouldSpill_AreRefused) {
  const std::string ptxas = FindPtxas();
  int refused = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const MmaTile& tile : {MmaTile{128, 128, 32, 2, 2, 3}, MmaTile{128, 128, 32, 2, 4, 3},
                                MmaTile{128, 64, 32, 2, 2, 4}, MmaTile{64, 64, 32, 2, 2, 4}})
      for (const int64_t m : {512, 500}) {
        Graph g;
        const UOp* const sink = KernelOf(
            g, {.name = "", .m = m, .n = 514, .k = 512, .dtype = dtype, .gated = true});
        MmaTile one = tile;
        if (dtype == DType::kF32) one.steps /= 2;
        for (const char* const arch : {"sm_80", "sm_90a"}) {
          CompileOptions options{.target = CudaTarget(arch, 132)};
          options.opts = {{OptKind::kMma, 2, codegen::MmaAmount(one)}};
          const auto compiled = CompileKernel(sink, options);
          if (absl::IsResourceExhausted(compiled.status())) {
            ++refused;
            continue;
          }
          ASSERT_TRUE(compiled.ok()) << compiled.status();
          if (ptxas.empty()) continue;
          const auto stack_bytes = StackBytesOf(ptxas, compiled->object, arch);
          ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
          EXPECT_EQ(*stack_bytes, 0) << arch << " " << codegen::MmaAmount(one) << " rows " << m;
        }
      }
  EXPECT_EQ(refused, 12);  // of f32 both of 128 columns, of bf16 the one of eight warps
}

// Rows of 3,074 numbers have no view: the product is one of MMA, whose best tile has eight warps.
TEST(RowSums, ThatWouldCostTheBestTile_AreNotDivided) {
  const Target target = CudaTarget("sm_90a", 132);
  for (const int64_t n : {3072, 3074}) {
    Graph g;
    const UOp* const sink =
        KernelOf(g, {.name = "", .m = 8192, .n = n, .k = 768, .dtype = DType::kF32});
    EXPECT_EQ(program::ComputesRowSums(sink, target), n == 3072);
  }
}

// What plain Opts are of, for all that choose them: axes of the kernel that is compiled with them.
TEST(RowSums, PlainOpts_AreOfTheKernelWithoutSums) {
  Graph g, h;
  const UOp* const sink = KernelOf(g, {.name = "", .k = 48, .gated = true, .only_sums = true});
  const UOp* const spread = ValueOrDie(codegen::WithoutRowSums(h, sink));
  const Target target = CudaTarget("sm_90a", 132);
  using Opts = std::vector<codegen::Opt>;
  const auto plain_of = [&](const UOp* kernel) {
    std::vector<std::string> plain;
    for (const Opts& opts : ValueOrDie(StartingOpts(kernel, target)))
      if (opts.size() != 1) plain.push_back(codegen::OptsToString(opts));
    return plain;
  };
  EXPECT_EQ(plain_of(sink), plain_of(spread));
  const auto neighbours_of = [&](const UOp* kernel, const Opts& opts) {
    std::vector<std::string> all;
    for (const search::Neighbour& neighbour : search::Neighbours(kernel, opts, target))
      all.push_back(codegen::OptsToString(neighbour.opts));
    return all;
  };
  EXPECT_FALSE(neighbours_of(sink, {}).empty());
  EXPECT_EQ(neighbours_of(sink, {}), neighbours_of(spread, {}));
  // As are the operations that are counted.
  CompileOptions options{.target = target};
  options.opts.emplace();
  EXPECT_EQ(ValueOrDie(CompileKernel(sink, options)).flops,
            ValueOrDie(CompileKernel(spread, options)).flops);
}

void CheckByWarpgroups(const SumCase& test, const program::HopperTile& tile) {
  SCOPED_TRACE(test.name);
  Graph g, guards;
  const UOp* const sink = KernelOf(g, test);
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
  const auto product = codegen::FindMmaProduct(kernel);
  ASSERT_TRUE(product.ok()) << product.status();
  const auto plan = program::MakeHopperPlan(kernel, *product, tile);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto program = program::ExpandHopper(kernel, *plan);
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers got = start;
  const program::RunReport report = program::Interpret(*program, got, {}, {.seed = 3});
  ASSERT_TRUE(report.ok()) << report.message;
  ExpectClose(sink, got, want, ToleranceOf(test));
  if (testing::Test::HasFatalFailure()) return;

  const codegen::Opt opt{codegen::OptKind::kWgmma, AxisOf(test), program::WgmmaAmount(tile)};
  const auto compiled =
      CompileKernel(sink, {.target = CudaTarget("sm_90a", 132), .opts = {{opt}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE(absl::StrContains(compiled->object, "wgmma.mma_async"));
  EXPECT_FALSE(absl::StrContains(compiled->object, ".local"));
  got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectClose(sink, got, want, ToleranceOf(test));
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) return;
  const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_90a");
  ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
  EXPECT_EQ(*stack_bytes, 0);
}

TEST(RowSums, BesideWarpgroups_AreTheWalk) {
  for (const SumCase& test : kCases) {
    CheckByWarpgroups(test, {.columns = 64, .stages = 2});
    if (HasFatalFailure()) return;
  }
}

TEST(RowSums, BesideOtherTilesOfWarpgroups_AreTheWalk) {
  const SumCase wide = {.name = "256 columns", .m = 260, .n = 264, .result = DType::kBF16,
                        .gated = true};
  CheckByWarpgroups(wide, {.columns = 256});
  const SumCase parts = {.name = "sums in parts", .m = 200, .n = 136, .k = 648, .gated = true};
  CheckByWarpgroups(parts, {.columns = 128, .stages = 4, .split = 2});
  const SumCase cluster = {.name = "clusters, persistent", .m = 512, .n = 136, .k = 192,
                           .result = DType::kBF16};
  CheckByWarpgroups(cluster, {.columns = 128, .stages = 2, .persistent_blocks = 132, .cluster = 2,
                              .order = 2});
}

// Of persistent blocks, for each tile where a warpgroup has 128 sums: predicates would be kept, in
// registers, while it multiplies. With fewer sums once for all tiles.
TEST(RowSums, OfManySumsTheirConditions_AreComputedBehindTheProducts) {
  const SumCase test = {.name = "persistent", .m = 512, .n = 256, .k = 256,
                        .result = DType::kBF16, .gated = true};
  for (const int64_t columns : {256, 128}) {
    SCOPED_TRACE(columns);
    const program::HopperTile tile{.columns = columns, .stages = 2, .persistent_blocks = 2};
    CheckByWarpgroups(test, tile);
    if (HasFatalFailure()) return;
    Graph g;
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(KernelOf(g, test));
    const auto product = codegen::FindMmaProduct(kernel);
    const auto plan = program::MakeHopperPlan(kernel, *product, tile);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const program::Program program = ValueOrDie(program::ExpandHopper(kernel, *plan));
    const auto at = [&](program::ValueId n) { return program.code[static_cast<size_t>(n)]; };
    program::ValueId last_product = 0;
    int conditions = 0;
    for (program::ValueId n = 0; n < static_cast<program::ValueId>(program.code.size()); ++n) {
      if (at(n).code == program::Code::kWgmma) last_product = n;
      if (at(n).code != program::Code::kShuffle || at(at(n).src[0]).op != Op::kWhere) continue;
      ++conditions;
      EXPECT_EQ(at(at(n).src[0]).src[0] > last_product, columns == 256);
    }
    EXPECT_GT(conditions, 0);
  }
}

// Without matrix units rows are computed again for their sums. Columns and steps are few: nothing
// is decided by how many there are, but for a vector's rest.
TEST(RowSums, WithoutMatrixUnits_AreTheWalk) {
  for (const SumCase& test : kCases) {
    SCOPED_TRACE(test.name);
    SumCase small = test;
    small.n = 20;
    small.k = 12;
    Graph g;
    const UOp* const sink = KernelOf(g, small);
    Check(sink, ToleranceOf(test));
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    CompileOptions plain{.target = CudaTarget("sm_90a", 132)};
    plain.opts.emplace();
    const auto compiled = CompileKernel(sink, plain);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const absl::Status ran = RunOnPtxMachine(*compiled, got);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectClose(sink, got, want, ToleranceOf(test));
    if (HasFatalFailure()) return;
    // Not what was meant where nobody asks for it: the schedule makes no such kernel.
    plain.opts.reset();
    const auto chosen = CompileKernel(sink, plain);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_THAT(chosen->given_up, testing::ElementsAre(testing::HasSubstr("sums of rows")));
    EXPECT_TRUE(absl::IsFailedPrecondition(RunOnPtxMachine(*chosen, got)));
  }
}

// The additions are in one order, whatever the tile.
TEST(RowSums, HaveTheSameBitsInEveryTile) {
  Graph g;
  const SumCase test = {.name = "", .m = 144, .n = 64, .k = 64};
  const UOp* const sink = KernelOf(g, test);
  Buffers start = RandomBuffers(sink, 1);
  uint64_t digits = 1;
  for (const size_t slot : {1, 2})
    for (size_t i = 0; i < start[slot].size(); i += 2) {
      digits = digits * 6364136223846793005 + 1442695040888963407;
      StoreFloat(DType::kBF16, static_cast<double>(digits >> 40) * 0x1p-24 - 0.4,
                 &start[slot][i]);
    }
  std::vector<std::string> sums;
  for (const MmaTile& tile : {MmaTile{32, 32, 32, 1, 2, 2}, MmaTile{64, 64, 32, 2, 2, 3},
                              MmaTile{128, 64, 32, 4, 1, 2}}) {
    CompileOptions options{.target = CudaTarget("sm_90", 132)};
    options.opts = {{OptKind::kMma, 2, codegen::MmaAmount(tile)}};
    const auto compiled = CompileKernel(sink, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Buffers got = start;
    ASSERT_EQ(RunOnPtxMachine(*compiled, got), absl::OkStatus());
    sums.push_back(got[3]);
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(RowSums, OverWhatTheyAreComputedFrom_AreRefused) {
  Graph g;
  const UOp* const sink = KernelOf(g, {.name = "", .in_place = true});
  const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90a", 132)});
  ASSERT_TRUE(absl::IsInvalidArgument(compiled.status())) << compiled.status();
  EXPECT_TRUE(absl::StrContains(compiled.status().message(), "reads what it stores"));
}

TEST(RowSums, OtherStores_AreRefused) {
  Graph g;
  const UOp* const n = Range(g, 0, 8);
  const auto made = [&](DType dtype, std::vector<int64_t> arg, bool gated) {
    std::vector<const UOp*> src = {At(g, 0, dtype, 8, n), ConstFloat(g, dtype, 1)};
    if (gated) src.push_back(Within(g, n, 4));
    return g.Make(Op::kStore, DType::kVoid, src, arg).ok();
  };
  EXPECT_TRUE(made(DType::kF32, {1}, false));
  EXPECT_FALSE(made(DType::kF32, {2}, false));
  EXPECT_FALSE(made(DType::kF32, {1, 1}, false));
  EXPECT_FALSE(made(DType::kF32, {1}, true));
  EXPECT_FALSE(made(DType::kBF16, {1}, false));
  EXPECT_TRUE(made(DType::kBF16, {}, true));
}

TEST(RowSums, OtherPlaces_AreRefused) {
  Graph g;
  const UOp *const m = Range(g, 0, 64), *const n = Range(g, 1, 8);
  const auto refused = [&](const UOp* place) {
    const UOp* const store = StoreSumsAt(g, 0, 1024, place, ConstFloat(g, DType::kF32, 1));
    return std::string(codegen::SummedRows(store, {m, n}).status().message());
  };
  const UOp* const block = Alu(g, Op::kIDiv, m, ConstIndex(g, 16));
  const auto times = [&](const UOp* x, int64_t by) { return Mul(g, x, ConstIndex(g, by)); };
  EXPECT_EQ(refused(Add(g, times(block, 8), n)), "");
  EXPECT_TRUE(absl::StrContains(refused(Add(g, times(m, 8), n)), "no range is divided"));
  EXPECT_TRUE(absl::StrContains(refused(Add(g, times(block, 4), n)), "two blocks"));
  EXPECT_TRUE(absl::StrContains(refused(block), "not in the place"));
  EXPECT_TRUE(absl::StrContains(refused(Add(g, times(block, 64), m)), "divided and is not"));
  const UOp* const shifted = Alu(g, Op::kIDiv, Add(g, m, ConstIndex(g, 1)), ConstIndex(g, 16));
  EXPECT_TRUE(absl::StrContains(refused(Add(g, times(shifted, 8), n)), "no dense number"));
}

// ---- the schedule

struct Network {
  std::vector<int64_t> batch;  // dimensions of rows
  int64_t in = 64, hidden = 96, out = 48;
  DType dtype = DType::kF32;
};

// The gradients of a layer between two others. Each result is named for what it is the gradient of.
// The first is the bias': a sum over rows of a product times the gradient of an activation.
Program GradientsOf(const Network& net) {
  return {"gradients", [net](Size) {
            const auto input = [&](std::vector<int64_t> dims) {
              Tensor t = Tensor::zeros(dims, DType::kF32).state_();
              t.requires_grad_();
              return t;
            };
            std::vector<int64_t> rows = net.batch;
            rows.push_back(net.in);
            const Tensor x = input(rows);
            const Tensor w1 = input({net.in, net.hidden}), b1 = input({net.hidden});
            const Tensor w2 = input({net.hidden, net.out}), b2 = input({net.out});
            const auto cast = [&](const Tensor& t) { return t.cast(net.dtype); };
            const Tensor hidden = (cast(x).matmul(cast(w1)) + cast(b1)).relu();
            const Tensor y = hidden.matmul(cast(w2)) + cast(b2);
            (y.cast(DType::kF32) * y.cast(DType::kF32)).sum().backward();
            realize(std::vector<Tensor>{b1.grad(), w1.grad(), w2.grad(), b2.grad()});
          }};
}

schedule::Schedule ScheduleOf(Graph& g, const UOp* sink, const char* arch, bool divides) {
  const Target target = CudaTarget(arch, kMultiprocessors);
  schedule::ScheduleOptions options;
  if (divides)
    options.computes_sums = [target](const UOp* kernel) {
      return program::ComputesRowSums(kernel, target);
    };
  return ValueOrDie(schedule::MakeSchedule(g, sink, target, {}, options));
}

int64_t SumsIn(const schedule::Schedule& schedule) {
  int64_t sums = 0;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels)
    sums += std::count_if(kernel.ast->src.begin(), kernel.ast->src.end(), SumsPoints);
  return sums;
}

void ExpectNear(const Results& want, const Results& got, double tolerance) {
  for (size_t r = 0; r < want.size(); ++r) {
    const std::vector<double> x = FloatsOf(want[r]), y = FloatsOf(got[r]);
    double largest = 0;
    for (const double number : x) largest = std::max(largest, std::abs(number));
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], tolerance * largest) << "result " << r << " element " << i;
  }
}

// All kernels as PTX on the machine, one after the other.
Results RunAsPtx(const schedule::Schedule& schedule, const UOp* sink,
                 const std::vector<HostTensor>& params, const char* arch) {
  using Kind = schedule::ScheduledBuffer::Kind;
  Buffers memory;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
    if (buffer.kind == Kind::kInput) memory.back() = params[buffer.index].bytes;
  }
  Compiler compiler({.target = CudaTarget(arch, kMultiprocessors)});
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    Buffers own;
    for (const int i : kernel.buffers) own.push_back(memory[i]);
    const auto compiled = compiler.Compile(kernel.ast);
    OB_CHECK_OK(compiled.status());
    if (compiled->tasks > 0) OB_CHECK_OK(RunOnPtxMachine(*compiled, own));
    for (size_t slot = 0; slot < own.size(); ++slot) memory[kernel.buffers[slot]] = own[slot];
  }
  Results out;
  for (const UOp* result : sink->src) out.push_back({result->dtype, StaticDims(result->shape), {}});
  for (size_t i = 0; i < schedule.buffers.size(); ++i)
    if (schedule.buffers[i].kind == Kind::kOutput)
      out[schedule.buffers[i].index].bytes = memory[i];
  return out;
}

// Between -0.5 and 0.5, the same in each run.
std::vector<HostTensor> RandomParams(const UOp* sink) {
  uint64_t random = 1;
  return FloatParams(sink, [&] {
    random = random * 6364136223846793005 + 1442695040888963407;
    return static_cast<double>(random >> 40) * 0x1p-24 - 0.5;
  });
}

void CheckNetwork(const Network& net, int64_t sums, const char* arch) {
  Graph recorded, g, h;
  const UOp* const sink = RecordProgram(recorded, GradientsOf(net), Size::kSmall);
  const std::vector<HostTensor> params = RandomParams(sink);
  const double tolerance = net.dtype == DType::kF32 ? 1e-5 : 2e-2;
  const Results want = ValueOrDie(Interpret(sink, params));
  const schedule::Schedule whole = ScheduleOf(h, sink, arch, false);
  const schedule::Schedule divided = ScheduleOf(g, sink, arch, true);
  EXPECT_EQ(SumsIn(whole), 0);
  ASSERT_EQ(SumsIn(divided), sums) << ScheduleToString(divided);
  EXPECT_LE(divided.kernels.size(), whole.kernels.size());
  ExpectNear(want, ValueOrDie(EvaluateSchedule(divided, sink, params)), tolerance);
  if (testing::Test::HasFatalFailure()) return;
  ExpectNear(want, RunAsPtx(divided, sink, params, arch), tolerance);
}

TEST(RowSums, GradientsOfBiases_AreTheInterpreters) {
  CheckNetwork({.batch = {272}}, 2, "sm_90a");
  CheckNetwork({.batch = {300}}, 2, "sm_90a");
  CheckNetwork({.batch = {4, 80}}, 2, "sm_90a");
  CheckNetwork({.batch = {4, 75}}, 2, "sm_90a");
  CheckNetwork({.batch = {2, 144}, .dtype = DType::kBF16}, 2, "sm_90a");
  CheckNetwork({.batch = {290}, .dtype = DType::kBF16}, 2, "sm_80");
}

// Few rows are in a cache.
TEST(RowSums, OfFewRows_AreNotDivided) { CheckNetwork({.batch = {96}}, 0, "sm_90a"); }

// x w, of [rows, terms] and [terms, columns] in bf16, added in f32.
const UOp* ProductOf(Graph& g, int64_t rows, int64_t terms, int64_t columns) {
  const Shape all = {Dim(rows), Dim(terms), Dim(columns)};
  const auto wide = [&](const UOp* x, const Shape& ones) {
    return Expand(g, Reshape(g, Cast(g, x, DType::kF32), ones), all);
  };
  const UOp* const x = Param(g, 0, DType::kBF16, {Dim(rows), Dim(terms)});
  const UOp* const w = Param(g, 1, DType::kBF16, {Dim(terms), Dim(columns)});
  const UOp* const sum = Reduce(g, Op::kAdd,
                                Mul(g, wide(x, {Dim(rows), Dim(terms), Dim(1)}),
                                    wide(w, {Dim(1), Dim(terms), Dim(columns)})),
                                {1});
  return Reshape(g, sum, {Dim(rows), Dim(columns)});
}

// The numbers 0, 1, ... along one axis of `all`, the same along the others.
const UOp* Along(Graph& g, const Shape& all, int axis) {
  Shape ones(all.size(), Dim(1));
  ones[axis] = all[axis];
  return Expand(g, Reshape(g, Iota(g, DType::kI32, all[axis]), ones), all);
}

// No sum is computed beside the product, and results are the interpreter's.
void ExpectNotDivided(Graph& g, const UOp* sink) {
  const char* const arch = "sm_90a";
  const std::vector<HostTensor> params = RandomParams(sink);
  const Results want = ValueOrDie(Interpret(sink, params));
  const schedule::Schedule schedule = ScheduleOf(g, sink, arch, true);
  EXPECT_EQ(SumsIn(schedule), 0) << ScheduleToString(schedule);
  ExpectNear(want, ValueOrDie(EvaluateSchedule(schedule, sink, params)), 1e-5);
  if (testing::Test::HasFatalFailure()) return;
  ExpectNear(want, RunAsPtx(schedule, sink, params, arch), 1e-5);
}

// Of each row another column is added: of the product's kernel, which ends with its rows, no range
// is left to say which.
TEST(RowSums, OfColumnsThatTheRowDecides_AreNotDivided) {
  constexpr int64_t kRows = 272, kTerms = 64, kColumns = 96;
  Graph g;
  const UOp* const product = ProductOf(g, kRows, kTerms, kColumns);
  const Shape all = {Dim(kRows), Dim(kColumns), Dim(kColumns)};  // row, number of the sum, column
  const UOp* const column = Alu(g, Op::kMod, Add(g, Along(g, all, 0), Along(g, all, 1)),
                                Full(g, ConstInt(g, DType::kI32, kColumns), all));
  const UOp* const picked = Reduce(
      g, Op::kAdd,
      Where(g, Alu(g, Op::kCmpEq, Along(g, all, 2), column),
            Expand(g, Reshape(g, product, {Dim(kRows), Dim(1), Dim(kColumns)}), all),
            Full(g, ConstFloat(g, DType::kF32, 0), all)),
      {2});
  ExpectNotDivided(g, Sink(g, {product, Reduce(g, Op::kAdd, picked, {0})}));
}

// A running sum: to each row of the result other rows of the product are added. The result's rows
// and the product's have equal ranges.
TEST(RowSums, OfRowsThatTheRowDecides_AreNotDivided) {
  constexpr int64_t kRows = 256, kTerms = 64, kColumns = 64;
  Graph g;
  const UOp* const product = ProductOf(g, kRows, kTerms, kColumns);
  const Shape all = {Dim(kRows), Dim(kRows), Dim(kColumns)};  // the result's row, product's, column
  const UOp* const running = Reduce(
      g, Op::kAdd,
      Where(g, Alu(g, Op::kCmpLt, Along(g, all, 0), Along(g, all, 1)),
            Full(g, ConstFloat(g, DType::kF32, 0), all),
            Expand(g, Reshape(g, product, {Dim(1), Dim(kRows), Dim(kColumns)}), all)),
      {1});
  ExpectNotDivided(g, Sink(g, {product, running}));
}

}  // namespace
}  // namespace outboard::test
