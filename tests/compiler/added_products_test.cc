// Kernels that add several products of matrices (compiler/optimize/operands/mma.h): by matrix units
// and by warpgroups, their programs in the interpreter and their PTX on the PTX machine, against a
// walk of the kernel; what is refused; and how ptxas likes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/search/neighbours.h"
#include "compiler/starting_opts.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

// How an operand of [rows, k] lies in memory.
enum class Lies {
  kAlong,   // [rows, k]
  kAcross,  // [k, rows]
  kHeads,   // [passages, heads, rows / passages, k / heads]
  kWoven,   // 2 k a row: k % 8 + 8 * (k / 4), so that every other four lie where eight seem to
};

struct Addend {
  int64_t k = 64;
  Lies a = Lies::kAlong, b = Lies::kAcross;
  bool cast_a = false;   // a is of f32 in memory
  bool swapped = false;  // b * a
};

enum class Sums {
  kApart,     // an ADD of reductions
  kTogether,  // one reduction, of an ADD of products
  kNested,    // r0 + (r1 + r2) instead of (r0 + r1) + r2
};

struct AddedCase {
  const char* name;
  int64_t m = 128, n = 64;
  std::vector<Addend> addends;
  Sums sums = Sums::kApart;
  int64_t batch = 1, passages = 1, heads = 1;
  DType dtype = DType::kBF16, result = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;
  bool tf32 = false;
  bool sums_rows = false;    // and sums of 16 rows each (kernel/row_sums.h)
  bool apart = false;        // passages and their rows are two ranges
  bool own_blocks = false;   // and no block of sums has rows of two passages
  bool full_digits = false;  // operands of f32 have 24 digits
  bool infinite = false;     // and one of the last addend's is infinite
  // Of one reduction: what is added, and each addend's a, is 0 in the last 8 of k, where b is
  // infinite.
  bool gated = false;
};

int64_t AxisOf(const AddedCase& p) { return 2 + (p.batch > 1) + p.apart; }

// y[batch, m, n] = f(sum over addends i and k of a_i * b_i); slots y, a bias or residual or second
// result, then a_i and b_i, then sums of rows.
const UOp* KernelOf(Graph& g, const AddedCase& p) {
  const int64_t in_passage = p.m / p.passages;
  const UOp* const batch = Range(g, 0, p.batch);
  const UOp *m = Range(g, 1, p.m), *passage = nullptr, *token = nullptr;
  if (p.apart) {
    passage = Range(g, 1, p.passages);
    token = Range(g, 2, in_passage);
    m = RowMajor(g, {passage, token}, {p.passages, in_passage});
  }
  const UOp* const n = Range(g, 3, p.n);
  const auto wide = [&](const UOp* x) {
    return x->dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  int64_t id = 4, slot = 2;
  const UOp* shared_k = nullptr;
  std::vector<const UOp*> terms, sums;
  for (const Addend& addend : p.addends) {
    const UOp* k = shared_k;
    if (k == nullptr) k = ReduceRange(g, id++, addend.k);
    if (p.sums == Sums::kTogether) shared_k = k;
    const auto gate = [&] { return Within(g, k, addend.k - 8); };
    const auto load = [&](DType dtype, Lies lies, const UOp* row, int64_t rows) {
      const int64_t elements = p.batch * rows * addend.k * (lies == Lies::kWoven ? 2 : 1);
      const UOp* at = nullptr;
      if (lies == Lies::kWoven) {
        const UOp* const woven =
            Add(g, Alu(g, Op::kMod, k, ConstIndex(g, 8)),
                Mul(g, Alu(g, Op::kIDiv, k, ConstIndex(g, 4)), ConstIndex(g, 8)));
        at = RowMajor(g, {batch, row, woven}, {p.batch, rows, 2 * addend.k});
      } else if (lies == Lies::kHeads) {
        const int64_t each = rows / p.passages, width = addend.k / p.heads;
        at = RowMajor(g,
                      {batch, p.apart ? passage : Alu(g, Op::kIDiv, row, ConstIndex(g, each)),
                       Alu(g, Op::kIDiv, k, ConstIndex(g, width)),
                       p.apart ? token : Alu(g, Op::kMod, row, ConstIndex(g, each)),
                       Alu(g, Op::kMod, k, ConstIndex(g, width))},
                      {p.batch, p.passages, p.heads, each, width});
      } else if (lies == Lies::kAlong) {
        at = RowMajor(g, {batch, row, k}, {p.batch, rows, addend.k});
      } else {
        at = RowMajor(g, {batch, k, row}, {p.batch, addend.k, rows});
      }
      if (p.gated && rows == p.m) return GatedLoadAt(g, slot++, dtype, elements, at, gate(),
                           ConstFloat(g, dtype, 0));
      return LoadAt(g, slot++, dtype, elements, at);
    };
    const UOp* a = load(addend.cast_a ? DType::kF32 : p.dtype, addend.a, m, p.m);
    if (addend.cast_a) a = Cast(g, a, p.dtype);
    const UOp* const b = load(p.dtype, addend.b, n, p.n);
    terms.push_back(addend.swapped ? Mul(g, wide(b), wide(a)) : Mul(g, wide(a), wide(b)));
    if (p.sums != Sums::kTogether) sums.push_back(Fold(g, Op::kAdd, terms.back(), {k}));
  }
  const UOp* y = nullptr;
  const auto add = [&](const std::vector<const UOp*>& all) {
    const UOp* total = all[0];
    for (size_t i = 1; i < all.size(); ++i) total = Add(g, total, all[i]);
    return total;
  };
  if (p.gated)
    y = Fold(g, Op::kAdd,
             Alu(g, Op::kWhere, Within(g, shared_k, p.addends[0].k - 8), add(terms),
                 ConstFloat(g, DType::kF32, 0)),
             {shared_k});
  else if (p.sums == Sums::kTogether)
    y = Fold(g, Op::kAdd, add(terms), {shared_k});
  else if (p.sums == Sums::kNested)
    y = Add(g, sums[0], add({sums.begin() + 1, sums.end()}));
  else
    y = add(sums);
  const int64_t elements = p.batch * p.m * p.n;
  const UOp* const at = RowMajor(g, {batch, m, n}, {p.batch, p.m, p.n});
  if (p.epilogue == Epilogue::kBiasAndRelu)
    y = Alu(g, Op::kMax, Add(g, y, LoadAt(g, 1, DType::kF32, p.n, n)),
            ConstFloat(g, DType::kF32, 0));
  if (p.epilogue == Epilogue::kResidual)
    y = Add(g, y, wide(LoadAt(g, 1, p.dtype, elements, at)));
  std::vector<const UOp*> stores = {
      StoreAt(g, 0, elements, at, p.result == DType::kF32 ? y : Cast(g, y, p.result))};
  if (p.epilogue == Epilogue::kTwoResults)
    stores.push_back(StoreAt(g, 1, elements, at, Add(g, y, y)));
  if (p.sums_rows) {
    // Of passages of whole blocks: passage * blocks + token / 16.
    const UOp* block = Simplify(g, Alu(g, Op::kIDiv, m, ConstIndex(g, 16)));
    int64_t blocks = (p.m + 15) / 16;
    if (p.own_blocks) {
      const int64_t each = (in_passage + 15) / 16;
      blocks = p.passages * each;
      block = RowMajor(g, {passage, Alu(g, Op::kIDiv, token, ConstIndex(g, 16))},
                       {p.passages, each});
    }
    stores.push_back(g.MakeChecked(
        Op::kStore, DType::kVoid,
        {At(g, slot, DType::kF32, blocks * p.n, RowMajor(g, {block, n}, {blocks, p.n})), y}, {1}));
  }
  return g.MakeChecked(Op::kSink, DType::kVoid, stores,
                       p.tf32 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{});
}

double ToleranceOf(const AddedCase& p) {
  if (p.result != DType::kF32) return 8e-3;
  return p.full_digits ? 1e-5 : 0;
}

Buffers StartOf(const AddedCase& p, const UOp* sink) {
  Buffers start = RandomBuffers(sink, 1);
  const auto set = [&](size_t slot, size_t at, float number) {
    std::memcpy(start[slot].data() + at * 4, &number, 4);
  };
  for (size_t slot = 2; p.full_digits && slot < start.size(); ++slot)
    for (size_t i = 0; i < start[slot].size() / 4; ++i)
      set(slot, i,
          static_cast<float>(LoadFloat(DType::kF32, &start[slot][i * 4])) / 16 *
              (1 + static_cast<float>(i * 2654435761u & 0x7fffff) * 0x1p-23f));
  // Of b: [k, n], the last row of k.
  for (size_t addend = 0; p.gated && addend < p.addends.size(); ++addend)
    set(3 + 2 * addend, static_cast<size_t>((p.addends[addend].k - 1) * p.n), INFINITY);
  if (p.infinite) set(start.size() - 2, 5, INFINITY);  // of row 0, or of rows 5
  return start;
}

// By MMA in this tile, or by the heuristic's without one.
void CheckByUnits(const AddedCase& p, const MmaTile* tile, const char* arch) {
  SCOPED_TRACE(testing::Message() << p.name << " on " << arch);
  Graph g, guards;
  const UOp* const sink = KernelOf(g, p);
  const Target target = CudaTarget(arch, kMultiprocessors);
  const Buffers start = StartOf(p, sink);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  CompileOptions options{.target = target};
  if (tile != nullptr) options.opts = {{OptKind::kMma, AxisOf(p), codegen::MmaAmount(*tile)}};
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
  const auto plan = codegen::PlanMma(kernel, target, tile != nullptr ? &*options.opts : nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->has_value());
  EXPECT_EQ((*plan)->product.addends.size(), p.addends.size());
  const auto program = program::ExpandMma(kernel, **plan);
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers got = start;
  const program::RunReport report = program::Interpret(*program, got, {}, {.seed = 2});
  ASSERT_TRUE(report.ok()) << report.message;
  ExpectClose(sink, got, want, ToleranceOf(p));
  if (testing::Test::HasFatalFailure()) return;
  const auto compiled = CompileKernel(sink, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(UsesMatrixUnits(compiled->object));
  EXPECT_FALSE(absl::StrContains(compiled->object, ".local"));
  got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectClose(sink, got, want, ToleranceOf(p));
}

void CheckByWarpgroups(const AddedCase& p, const program::HopperTile& tile) {
  SCOPED_TRACE(p.name);
  Graph g, guards;
  const UOp* const sink = KernelOf(g, p);
  const Buffers start = StartOf(p, sink);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
  const auto product = codegen::FindMmaProduct(kernel);
  ASSERT_TRUE(product.ok()) << product.status();
  const auto plan = program::MakeHopperPlan(kernel, *product, tile);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shape.addends.size(), p.addends.size());
  const auto program = program::ExpandHopper(kernel, *plan);
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers got = start;
  const program::RunReport report = program::Interpret(*program, got, {}, {.seed = 3});
  ASSERT_TRUE(report.ok()) << report.message;
  ExpectClose(sink, got, want, ToleranceOf(p));
  if (testing::Test::HasFatalFailure()) return;
  const Opt opt{OptKind::kWgmma, AxisOf(p), program::WgmmaAmount(tile)};
  const auto compiled =
      CompileKernel(sink, {.target = CudaTarget("sm_90a", kMultiprocessors), .opts = {{opt}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE(absl::StrContains(compiled->object, "wgmma.mma_async"));
  EXPECT_FALSE(absl::StrContains(compiled->object, ".local"));
  got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectClose(sink, got, want, ToleranceOf(p));
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) return;
  const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_90a");
  ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
  EXPECT_EQ(*stack_bytes, 0);
}

const Addend kOther = {.k = 96, .a = Lies::kAcross, .b = Lies::kAlong};

TEST(AddedProducts, ByMatrixUnits_AreTheWalk) {
  const AddedCase cases[] = {
      {.name = "two", .addends = {{}, {}}},
      {.name = "three, other layouts and steps", .addends = {{}, kOther, {.k = 32}}},
      {.name = "nested, swapped factors", .addends = {{}, {.swapped = true}, kOther},
       .sums = Sums::kNested},
      {.name = "one reduction", .addends = {{}, {.a = Lies::kAcross}, {.b = Lies::kAlong}},
       .sums = Sums::kTogether},
      {.name = "remainders", .m = 100, .n = 70, .addends = {{.k = 33}, {.k = 100}, {.k = 7}},
       .epilogue = Epilogue::kBiasAndRelu},
      {.name = "a batch, a residual, an operand that is computed",
       .m = 70,
       .addends = {{.k = 40}, {.k = 48, .cast_a = true}},
       .batch = 2,
       .result = DType::kBF16,
       .epilogue = Epilogue::kResidual},
      {.name = "f16, two results", .addends = {{}, kOther}, .dtype = DType::kF16,
       .epilogue = Epilogue::kTwoResults},
      {.name = "heads",
       .m = 128,
       .addends = {{.k = 128, .a = Lies::kHeads}, {.k = 128, .a = Lies::kAcross}},
       .sums = Sums::kTogether,
       .passages = 2,
       .heads = 2},
      {.name = "e4m3", .addends = {{.b = Lies::kAlong}, {.k = 96, .b = Lies::kAlong}},
       .dtype = DType::kF8E4M3},
      {.name = "f32", .m = 72, .n = 40,
       .addends = {{.k = 40}, {.k = 30, .a = Lies::kAcross, .b = Lies::kAlong}},
       .dtype = DType::kF32, .full_digits = true},
      {.name = "f32, an infinity", .m = 72, .n = 40, .addends = {{.k = 40}, {.k = 30}, {.k = 25}},
       .dtype = DType::kF32, .full_digits = true, .infinite = true},
      {.name = "f32, infinities where a gate is false", .m = 72, .n = 40,
       .addends = {{}, {.a = Lies::kAcross}}, .sums = Sums::kTogether, .dtype = DType::kF32,
       .full_digits = true, .gated = true},
      {.name = "quotients and remainders by other numbers",
       .addends = {{.a = Lies::kWoven}, {.b = Lies::kWoven}}},
      {.name = "TF32", .addends = {{}, kOther}, .dtype = DType::kF32, .tf32 = true},
      {.name = "sums of rows", .m = 100, .addends = {{}, kOther, {}}, .sums_rows = true},
      {.name = "passages and their rows apart",
       .addends = {{.k = 128, .a = Lies::kHeads}, {.k = 128}},
       .passages = 2,
       .heads = 2,
       .apart = true},
      {.name = "sums of rows of passages apart", .m = 96,
       .addends = {{.k = 128, .a = Lies::kHeads}, {.k = 128}},
       .passages = 2, .heads = 2, .sums_rows = true, .apart = true},
      {.name = "sums of rows across passages apart", .m = 120,
       .addends = {{.k = 128, .a = Lies::kHeads}, {.k = 128}},
       .passages = 3, .heads = 2, .sums_rows = true, .apart = true},
  };
  for (const AddedCase& p : cases) {
    const int64_t width = ByteWidth(p.dtype);
    const MmaTile small{32, 32, 64 / width, 1, 2, 2}, large{64, 64, 64 / width, 2, 2, 4};
    CheckByUnits(p, &small, "sm_90");
    if (width > 1) CheckByUnits(p, &large, "sm_80");
    if (HasFatalFailure()) return;
  }
}

// Fewer steps of an addend than stages, as many, more, in each place.
TEST(AddedProducts, OfAnyNumberOfSteps_AreTheWalk) {
  for (const int64_t stages : {2, 3, 4})
    for (const int64_t first : {8, 64, 136})
      for (const int64_t second : {8, 64, 136}) {
        const MmaTile tile{32, 32, 32, 2, 2, stages};
        CheckByUnits({.name = "steps", .m = 32, .n = 32,
                      .addends = {{.k = first}, {.k = second, .cast_a = first == 8}, {.k = 40}}},
                     &tile, "sm_90");
        if (HasFatalFailure()) return;
      }
}

// By AMD's units, in the interpreter of programs.
TEST(AddedProducts, ByAmdsUnits_AreTheWalk) {
  for (const char* const arch : {"gfx1100", "gfx942"}) {
    SCOPED_TRACE(arch);
    Graph g, guards;
    const UOp* const sink = KernelOf(
        g, {.name = "", .m = 40, .n = 24, .addends = {{.k = 40}, kOther, {.b = Lies::kAlong}}});
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
    const auto plan = codegen::PlanMma(kernel, AmdTarget(arch, 96), nullptr);
    ASSERT_TRUE(plan.ok() && plan->has_value()) << plan.status();
    const auto program = program::ExpandMma(kernel, **plan);
    ASSERT_TRUE(program.ok()) << program.status();
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const program::RunReport report = program::Interpret(*program, got, {}, {.seed = 2});
    ASSERT_TRUE(report.ok()) << report.message;
    ExpectClose(sink, got, want, 0);
  }
}

TEST(AddedProducts, ByWarpgroups_AreTheWalk) {
  const AddedCase cases[] = {
      {.name = "two", .addends = {{.k = 128}, {.k = 128}}},
      {.name = "three, other layouts and steps",
       .addends = {{.k = 64}, {.k = 320, .a = Lies::kAcross, .b = Lies::kAlong}, {.k = 88}},
       .result = DType::kBF16},
      {.name = "one reduction, f16, remainders",
       .m = 200,
       .n = 136,
       .addends = {{.k = 136}, {.k = 136, .a = Lies::kAcross}, {.k = 136, .b = Lies::kAlong}},
       .sums = Sums::kTogether,
       .dtype = DType::kF16,
       .epilogue = Epilogue::kResidual},
      {.name = "a batch, nested, two results",
       .addends = {{.k = 64}, {.k = 72, .swapped = true}, {.k = 64, .a = Lies::kAcross}},
       .sums = Sums::kNested,
       .batch = 2,
       .epilogue = Epilogue::kTwoResults},
      {.name = "heads and passages",
       .m = 256,
       .addends = {{.k = 128, .a = Lies::kHeads},
                   {.k = 128, .a = Lies::kAcross},
                   {.k = 128, .a = Lies::kHeads}},
       .sums = Sums::kTogether,
       .passages = 2,
       .heads = 2,
       .result = DType::kBF16},
      {.name = "heads of one product", .m = 256, .addends = {{.k = 192, .a = Lies::kHeads}},
       .passages = 2, .heads = 3},
      {.name = "e5m2",
       .addends = {{.k = 256, .b = Lies::kAlong}, {.k = 144, .b = Lies::kAlong}},
       .dtype = DType::kF8E5M2,
       .epilogue = Epilogue::kBiasAndRelu},
      {.name = "TF32, of which one B is turned",
       .addends = {{.k = 64, .b = Lies::kAlong}, {.k = 96}, {.k = 32, .a = Lies::kAcross}},
       .dtype = DType::kF32,
       .tf32 = true},
      {.name = "f32, every layout",
       .m = 136,
       .n = 72,
       .addends = {{.k = 64},
                   {.k = 96, .a = Lies::kAcross, .b = Lies::kAlong},
                   {.k = 36, .b = Lies::kAlong}},
       .dtype = DType::kF32,
       .epilogue = Epilogue::kBiasAndRelu,
       .full_digits = true},
      {.name = "sums of rows", .m = 200, .addends = {{.k = 96}, {.k = 64}}, .sums_rows = true},
      {.name = "passages and their rows apart",
       .m = 256,
       .addends = {{.k = 128, .a = Lies::kHeads}, {.k = 128}},
       .passages = 2,
       .heads = 2,
       .result = DType::kBF16,
       .apart = true},
      {.name = "sums of rows of passages apart",
       .m = 384,
       .addends = {{.k = 128, .a = Lies::kHeads}, {.k = 128}, {.k = 128, .a = Lies::kHeads}},
       .passages = 3,
       .heads = 2,
       .result = DType::kBF16,
       .sums_rows = true,
       .apart = true},
      {.name = "f32, sums of rows of passages apart",
       .m = 256,
       .addends = {{.k = 64, .a = Lies::kHeads}, {.k = 128}},
       .passages = 2,
       .heads = 2,
       .dtype = DType::kF32,
       .sums_rows = true,
       .apart = true,
       .full_digits = true},
      {.name = "f32, heads and passages, an infinity",
       .m = 256,
       .addends = {{.k = 64, .a = Lies::kHeads}, {.k = 128}, {.k = 64, .a = Lies::kHeads}},
       .passages = 2,
       .heads = 2,
       .dtype = DType::kF32,
       .full_digits = true,
       .infinite = true},
  };
  for (const AddedCase& p : cases) {
    CheckByWarpgroups(p, {.columns = 64, .stages = 2});
    if (HasFatalFailure()) return;
  }
}

TEST(AddedProducts, ByOtherTilesOfWarpgroups_AreTheWalk) {
  const Addend across = {.k = 192, .a = Lies::kAcross, .b = Lies::kAlong};
  CheckByWarpgroups({.name = "clusters, persistent", .m = 512, .n = 136,
                     .addends = {{.k = 128}, across}, .result = DType::kBF16},
                    {.columns = 128, .stages = 4, .persistent_blocks = 132, .cluster = 2,
                     .order = 2});
  CheckByWarpgroups({.name = "sums in parts", .m = 200, .n = 136,
                     .addends = {{.k = 648}, across, {.k = 64}}, .result = DType::kBF16},
                    {.columns = 128, .stages = 4, .split = 2});
  CheckByWarpgroups({.name = "256 columns", .m = 128, .n = 256, .addends = {across, {.k = 64}}},
                    {.columns = 256});
}

TEST(AddedProducts, OfOtherForms_AreRefusedByName) {
  const auto refused = [](const auto& make) {
    Graph g;
    const UOp *m = Range(g, 0, 64), *n = Range(g, 1, 64);
    const UOp* const sink =
        Sink(g, {StoreAt(g, 0, 4096, RowMajor(g, {m, n}, {64, 64}), make(g, m, n))});
    return std::string(
        codegen::FindMmaProduct(*codegen::AnalyzeKernel(sink)).status().message());
  };
  int64_t id = 2;
  const auto sum = [&](Graph& g, const UOp* m, const UOp* n, DType dtype = DType::kBF16,
                       bool turned = false) {
    const UOp* const k = ReduceRange(g, id++, 64);
    const auto load = [&](int64_t slot, const UOp* row) {
      const UOp* const x = LoadAt(g, slot, dtype, 4096, RowMajor(g, {row, k}, {64, 64}));
      return dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
    };
    const int64_t slot = dtype == DType::kF32 ? 3 : 1;
    return Fold(g, Op::kAdd, Mul(g, load(slot, m), load(slot + 1, turned ? m : n)), {k});
  };
  EXPECT_EQ(refused([&](Graph& g, const UOp* m, const UOp* n) {
              return Add(g, sum(g, m, n), sum(g, m, n));
            }),
            "");
  EXPECT_EQ(refused([&](Graph& g, const UOp* m, const UOp* n) {
              return Mul(g, sum(g, m, n), sum(g, m, n));
            }),
            "several reductions that are not added");
  EXPECT_EQ(refused([&](Graph& g, const UOp* m, const UOp* n) {
              const UOp* const first = sum(g, m, n);
              return Mul(g, Add(g, first, sum(g, m, n)), first);
            }),
            "a part of the sum is used by itself");
  EXPECT_EQ(refused([&](Graph& g, const UOp* m, const UOp* n) {
              const UOp* const rounded =
                  Cast(g, Cast(g, sum(g, m, n), DType::kBF16), DType::kF32);
              return Add(g, rounded, sum(g, m, n));
            }),
            "several reductions that are not added");
  EXPECT_EQ(refused([&](Graph& g, const UOp* m, const UOp* n) {
              return Add(g, sum(g, m, n), sum(g, m, n, DType::kF32));
            }),
            "products of different types are added");
  EXPECT_EQ(refused([&](Graph& g, const UOp* m, const UOp* n) {
              return Add(g, sum(g, m, n), sum(g, m, n, DType::kBF16, true));
            }),
            "products of other rows or columns are added");
}

// Blocks of passages that 16 does not divide: a fragment has rows of two of them.
TEST(AddedProducts, WithBlocksOfRowsThatAreNoFragments_AreComputedWithoutUnits) {
  const AddedCase test = {.name = "", .m = 120, .n = 24, .addends = {{.k = 24}, {.k = 24}},
                          .passages = 3, .sums_rows = true, .apart = true, .own_blocks = true};
  Graph g;
  const UOp* const sink = KernelOf(g, test);
  EXPECT_EQ(codegen::FindMmaProduct(*codegen::AnalyzeKernel(sink)).status().message(),
            "a block of a sum beside the product has other rows than a fragment");
  Buffers want = StartOf(test, sink), got = want;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90a", kMultiprocessors)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(UsesMatrixUnits(compiled->object));
  ASSERT_THAT(compiled->given_up, testing::ElementsAre(testing::HasSubstr("sums of rows")));
  compiled->given_up.clear();  // so that it may run (ptx_run.h)
  const absl::Status ran = RunOnPtxMachine(*compiled, got);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectClose(sink, got, want, ToleranceOf(test));
}

// An Opt names an axis of the first reduction; a search finds neighbours of both kinds.
TEST(AddedProducts, AreSearched) {
  Graph g;
  const AddedCase p = {.name = "", .m = 4096, .n = 768,
                       .addends = {{.k = 768}, {.k = 768}, {.k = 768}}};
  const UOp* const sink = KernelOf(g, p);
  const Target target = CudaTarget("sm_90a", kMultiprocessors);
  bool by_mma = false, by_groups = false;
  for (const std::vector<Opt>& opts : ValueOrDie(StartingOpts(sink, target))) {
    if (opts.size() != 1) continue;
    by_mma |= opts[0].kind == OptKind::kMma;
    by_groups |= opts[0].kind == OptKind::kWgmma;
    EXPECT_EQ(opts[0].axis, AxisOf(p));
    EXPECT_FALSE(search::Neighbours(sink, opts, target).empty());
  }
  EXPECT_TRUE(by_mma && by_groups);
  CompileOptions other{.target = target};
  other.opts = {{OptKind::kMma, AxisOf(p) + 1, codegen::MmaAmount({64, 64, 32, 2, 2, 3})}};
  EXPECT_TRUE(absl::StrContains(CompileKernel(sink, other).status().message(),
                                "not the one that is summed over"));
}

// GPT-2's gradient of the common input of queries, keys and values, 8 x 1,024 tokens: by
// warpgroups, in f32 and in bf16, without a spill.
TEST(AddedProducts, OfGpt2_GoByWarpgroups) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Sums sums : {Sums::kApart, Sums::kTogether}) {
      Graph g;
      const Addend heads = {.k = 768, .a = Lies::kHeads, .b = Lies::kAcross};
      const Addend across = {.k = 768, .a = Lies::kAcross, .b = Lies::kAcross};
      const AddedCase p = {.name = "",
                           .m = 8192,
                           .n = 768,
                           .addends = {heads, dtype == DType::kF32 ? heads : across, heads},
                           .sums = sums,
                           .passages = 8,
                           .heads = 12,
                           .dtype = dtype,
                           .result = dtype};
      const auto compiled = CompileKernel(
          KernelOf(g, p), {.target = CudaTarget("sm_90a", kMultiprocessors)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      EXPECT_TRUE(absl::StrContains(compiled->object, "wgmma.mma_async"));
      const std::string ptxas = FindPtxas();
      if (ptxas.empty()) continue;
      const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_90a");
      ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
      EXPECT_EQ(*stack_bytes, 0);
    }
}

TEST(AddedProducts, AreAssembledWithoutSpills) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in PATH or OUTBOARD_PTXAS";
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const MmaTile& tile : {MmaTile{128, 128, 32, 2, 4, 3}, MmaTile{128, 64, 32, 2, 2, 4}}) {
      Graph g;
      MmaTile one = tile;
      if (dtype == DType::kF32) one.steps /= 2;
      CompileOptions options{.target = CudaTarget("sm_80", kMultiprocessors)};
      options.opts = {{OptKind::kMma, 2, codegen::MmaAmount(one)}};
      const auto compiled = CompileKernel(
          KernelOf(g, {.name = "", .m = 512, .n = 512,
                       .addends = {{.k = 512}, {.k = 512, .a = Lies::kAcross}, {.k = 512}},
                       .dtype = dtype}),
          options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const auto stack_bytes = StackBytesOf(ptxas, compiled->object, "sm_80");
      ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
      EXPECT_EQ(*stack_bytes, 0) << std::string(Name(dtype)) << " " << codegen::MmaAmount(one);
    }
}

}  // namespace
}  // namespace outboard::test
