// Attention whose keys, queries or batch are counted by VARs, by matrix units of a GPU
// (compiler/program/online): one kernel for all lengths, which keeps no scores. Programs in the
// interpreter, their PTX on the PTX machine, both against the reference interpreter. What lies
// beyond a length is not a number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/program/interpret.h"
#include "compiler/program/online/plan.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/online_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Fault;
using program::OnlineTile;

enum class Counts {
  kKeys,        // n keys
  kPrompt,      // n queries and as many keys
  kLastOfKeys,  // the queries are the last m of n keys
  kQueries,     // m queries, all keys
  kBatch,       // n texts
  kMask,        // all keys are there; those from n on are masked
};

struct Attention {
  const char* name;
  Counts counts = Counts::kKeys;
  int64_t queries = 80, keys = 256, width = 64;       // the largest
  bool causal = false, bias = false, turned = false;  // keys and values are [width][keys]
  DType dtype = DType::kBF16;
  int64_t batch = 1, heads = 2, least = 1;
};

// One length: n, and m where there are two.
struct Length {
  int64_t n = 1, m = 1;
};

struct Recorded {
  const UOp* sink = nullptr;
  std::vector<Binding> bindings;
  std::vector<int64_t> vars() const { return VarsOf(bindings); }
};

Recorded Record(Graph& graph, const Attention& a, const Length& length) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const bool prompt = a.counts == Counts::kPrompt;
  const bool ends = prompt || a.counts == Counts::kKeys || a.counts == Counts::kLastOfKeys;
  const SymInt n =
      Variable("n", a.least, a.counts == Counts::kBatch ? a.batch : a.keys).bind(length.n);
  const SymInt m = Variable("m", 1, a.queries).bind(length.m);
  const auto input = [&](const Dims& dims, DType dtype) {
    return Tensor::zeros(dims, dtype).state_();
  };
  Tensor q = input({a.batch, a.heads, prompt ? a.keys : a.queries, a.width}, a.dtype);
  const auto steps = [&] {
    Tensor t = a.turned ? input({a.batch, a.heads, a.width, a.keys}, a.dtype).transpose()
                        : input({a.batch, a.heads, a.keys, a.width}, a.dtype);
    if (ends) t = t.slice(2, 0, n);
    return a.counts == Counts::kBatch ? t.slice(0, 0, n) : t;
  };
  const Tensor k = steps(), v = steps();
  SymInt rows = a.queries;
  if (prompt) rows = n;
  if (a.counts == Counts::kQueries || a.counts == Counts::kLastOfKeys) rows = m;
  q = q.slice(2, 0, rows);
  if (a.counts == Counts::kBatch) q = q.slice(0, 0, n);
  const SymInt columns = ends ? n : SymInt(a.keys);
  Tensor scores =
      q.matmul(k.transpose()).cast(DType::kF32) * (1 / std::sqrt(static_cast<double>(a.width)));
  if (a.bias)
    scores = scores + input({prompt ? a.keys : a.queries, a.keys}, DType::kF32)
                          .slice(0, 0, rows)
                          .slice(1, 0, columns);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor key = Tensor::arange(columns), query = Tensor::arange(rows).reshape({rows, 1});
  if (a.counts == Counts::kLastOfKeys)
    scores = (key > query + (n - m)).where(-kInfinity, scores);
  else if (a.counts == Counts::kMask && a.causal)
    scores = (key > query + n - 1).where(-kInfinity, scores);
  else if (a.counts == Counts::kMask)
    scores = (key < n).where(scores, -kInfinity);
  else if (a.causal)
    scores = (key > query).where(-kInfinity, scores);
  realize(std::vector<Tensor>{scores.softmax().cast(a.dtype).matmul(v)});
  const Recorded recorded{ValueOrDie(DecodeGraph(graph, *session->last.graph)),
                          session->last.bindings};
  SetSession(nullptr);
  return recorded;
}

// All that no program counts is NaN: keys and values beyond n.
void Spoil(const Attention& a, int64_t from, HostTensor& keys) {
  const int width = ByteWidth(keys.dtype);
  for (int64_t i = 0; i < keys.ElementCount(); ++i) {
    const int64_t key = a.turned ? i % a.keys : i / a.width % a.keys;
    if (key >= from) StoreFloat(keys.dtype, std::nan(""), keys.bytes.data() + i * width);
  }
}

struct Kernel {
  Recorded recorded;
  Graph graph, scheduled;
  schedule::Schedule schedule;
};

// The one kernel of all lengths.
void Schedule(const Attention& a, Kernel& kernel) {
  kernel.recorded = Record(kernel.graph, a, {});
  kernel.schedule = Scheduled(kernel.scheduled, kernel.recorded.sink);
  ASSERT_EQ(kernel.schedule.kernels.size(), 1u) << ScheduleToString(kernel.schedule);
}

void CheckLengths(const Attention& a, std::span<const Length> lengths, Ways ways = {}) {
  SCOPED_TRACE(a.name);
  Kernel kernel;
  Schedule(a, kernel);
  if (testing::Test::HasFatalFailure()) return;
  const UOp* const ast = kernel.schedule.kernels[0].ast;
  CompileOptions options{.target = CudaTarget(ways.arch, kMultiprocessors)};
  if (ways.tile != nullptr) options.opts = OptsOf(*ways.tile);
  const program::Program program = ProgramOf(ast, ways);
  const auto compiled = CompileKernel(ast, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const bool groups = ways.tile != nullptr && ways.tile->groups;
  ASSERT_TRUE(absl::StrContains(compiled->object, groups ? "wgmma.mma_async" : "mma.sync"));
  if (const std::string ptxas = FindPtxas(); ways.assembled && !ptxas.empty()) {
    const auto assembled = AssembleKernel(ptxas, compiled->object, ways.arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->stack_bytes + assembled->spill_bytes, 0);
    EXPECT_FALSE(assembled->serialised);
    EXPECT_FALSE(assembled->ignored);
  }
  const UOp* const result = kernel.recorded.sink->src[0];
  for (const Length& length : lengths) {
    SCOPED_TRACE(testing::Message() << "n " << length.n << " m " << length.m);
    Graph graph;
    const Recorded bound = Record(graph, a, length);
    std::vector<HostTensor> params = RandomParams(bound.sink, 1);
    if (a.counts == Counts::kKeys || a.counts == Counts::kPrompt || a.counts == Counts::kLastOfKeys)
      for (const size_t of_steps : {1, 2}) Spoil(a, length.n, params[of_steps]);
    const Results want = ValueOrDie(Interpret(bound.sink, params, bound.bindings));
    const std::vector<double> numbers = FloatsOf(want[0]);
    double largest = 0;
    for (const double number : numbers)
      if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
    const double tolerance = (a.dtype == DType::kF32 ? 0x1p-16 : 0x1p-6) * largest;
    const auto check = [&](const char* way, const std::function<void(Buffers&)>& run) {
      SCOPED_TRACE(way);
      Buffers memory;
      for (const int i : kernel.schedule.kernels[0].buffers) {
        const schedule::ScheduledBuffer& buffer = kernel.schedule.buffers[i];
        memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
        if (buffer.kind == schedule::ScheduledBuffer::Kind::kInput)
          memory.back() = params[buffer.index].bytes;
      }
      run(memory);
      if (testing::Test::HasFatalFailure()) return;
      const std::vector<double> got = Below(memory[0], result->dtype, result->shape, want[0].dims);
      ASSERT_EQ(got.size(), numbers.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(std::isnan(got[i]), std::isnan(numbers[i])) << "element " << i;
        if (!std::isnan(got[i])) {
          ASSERT_NEAR(got[i], numbers[i], tolerance) << "element " << i;
        }
      }
    };
    const std::vector<int64_t> vars = bound.vars();
    if (ways.interpreted)
      check("program", [&](Buffers& memory) {
        const program::RunReport report = program::Interpret(program, memory, vars, {.seed = 3});
        ASSERT_TRUE(report.ok()) << report.message << ToString(program);
      });
    check("PTX", [&](Buffers& memory) {
      const absl::Status ran = RunOnPtxMachine(*compiled, memory, vars);
      ASSERT_TRUE(ran.ok()) << ran;
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

constexpr Length kLengths[] = {{1, 1}, {15, 15}, {64, 64}, {65, 64}, {130, 80}, {256, 3}};

TEST(SymbolicAttention, KeysThatAVarCounts) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const bool bias : {false, true}) {
      CheckLengths({.name = "keys", .keys = bias ? 260 : 256, .bias = bias, .dtype = dtype},
                   kLengths);
      if (HasFatalFailure()) return;
    }
}

TEST(SymbolicAttention, PromptsOfAnyLength) {
  for (const bool causal : {false, true}) {
    CheckLengths({.name = "prompt", .counts = Counts::kPrompt, .causal = causal, .heads = 1},
                 kLengths);
    if (HasFatalFailure()) return;
  }
}

TEST(SymbolicAttention, QueriesThatAreTheLastOfTheKeys) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    CheckLengths({.name = "last of keys", .counts = Counts::kLastOfKeys, .dtype = dtype}, kLengths);
    if (HasFatalFailure()) return;
  }
}

TEST(SymbolicAttention, QueriesAndBatches) {
  CheckLengths({.name = "queries", .counts = Counts::kQueries}, kLengths);
  const Length batches[] = {{1}, {2}, {3}};
  CheckLengths({.name = "batch", .counts = Counts::kBatch, .keys = 80, .batch = 3}, batches);
}

TEST(SymbolicAttention, MasksByAVar) {
  for (const bool causal : {false, true}) {
    CheckLengths({.name = "mask", .counts = Counts::kMask, .causal = causal}, kLengths);
    if (HasFatalFailure()) return;
  }
}

TEST(SymbolicAttention, KeysSideBySide) {
  CheckLengths({.name = "turned", .turned = true}, kLengths);
  CheckLengths({.name = "turned, odd", .keys = 77, .width = 24, .turned = true},
               std::vector<Length>{{1}, {13}, {77}});
}

TEST(SymbolicAttention, Heads) {
  for (const int64_t width : {40, 128, 256}) {
    CheckLengths({.name = "wide",
                  .counts = Counts::kPrompt,
                  .keys = width + 20,
                  .width = width,
                  .causal = true,
                  .heads = 1},
                 std::vector<Length>{{1}, {59}, {width + 20}},
                 {.interpreted = width < 128, .assembled = true});
    if (HasFatalFailure()) return;
  }
}

TEST(SymbolicAttention, Tiles) {
  const OnlineTile tiles[] = {
      {1, 1, 16, 1}, {2, 2, 32, 2}, {4, 1, 128, 1}, {2, 1, 48, 2}, {2, 1, 16, 2, false, 2}};
  for (const OnlineTile& tile : tiles)
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      if (dtype == DType::kF32 && (tile.fragments > 1 || tile.steps > 64)) continue;
      CheckLengths({.name = "tiles", .counts = Counts::kLastOfKeys, .dtype = dtype, .heads = 1},
                   std::vector<Length>{{1, 1}, {65, 40}, {256, 80}},
                   {.tile = &tile, .arch = "sm_80"});
      if (HasFatalFailure()) return;
    }
}

constexpr OnlineTile kTwoGroups = {8, 1, 64, 2, true}, kOneGroup = {4, 1, 64, 2, true};
constexpr Length kGroupLengths[] = {{1, 1}, {63, 63}, {64, 64}, {65, 64}, {140, 130}, {256, 3}};

Ways ByGroups(const OnlineTile& tile, bool interpreted = true) {
  return {.tile = &tile, .arch = "sm_90a", .interpreted = interpreted, .assembled = true};
}

TEST(SymbolicAttention, ByWarpgroups) {
  for (const Counts counts : {Counts::kKeys, Counts::kLastOfKeys, Counts::kQueries, Counts::kMask})
    for (const OnlineTile& tile : {kTwoGroups, kOneGroup}) {
      CheckLengths({.name = "groups", .counts = counts, .queries = 140, .heads = 1}, kGroupLengths,
                   ByGroups(tile, /*interpreted=*/tile == kTwoGroups));
      if (HasFatalFailure()) return;
    }
  for (const bool causal : {false, true}) {
    CheckLengths({.name = "groups, prompt",
                  .counts = Counts::kPrompt,
                  .queries = 140,
                  .causal = causal,
                  .bias = !causal,
                  .dtype = DType::kF16},
                 kGroupLengths, ByGroups(kTwoGroups, /*interpreted=*/causal));
    if (HasFatalFailure()) return;
  }
}

TEST(SymbolicAttention, TilesOfWarpgroups) {
  const struct {
    int64_t width;
    OnlineTile tile;
  } cases[] = {{128, {8, 1, 64, 2, true}},
               {128, {4, 1, 128, 2, true}},
               {64, {8, 1, 128, 4, true}},
               {128, {8, 1, 32, 2, true, 2}}};
  for (const auto& [width, tile] : cases) {
    CheckLengths({.name = "tiles of groups",
                  .counts = Counts::kLastOfKeys,
                  .queries = 140,
                  .width = width,
                  .heads = 1},
                 std::vector<Length>{{1, 1}, {65, 40}, {250, 140}, {256, 140}},
                 ByGroups(tile, /*interpreted=*/false));
    if (HasFatalFailure()) return;
  }
}

// Of the iteration that the end cuts: a warp waits for its box, writes zeros, and tells the others.
TEST(SymbolicAttention, PlantedMistakesOfTheEnd_AreFoundInEveryOrder) {
  const struct {
    const char* name;
    ProgramEdit edit;
    std::vector<Fault> faults;  // one of these
  } mistakes[] = {
      {"zeros are not fenced", Changing(Code::kProxyFence, 0, Drop), {Fault::kMissingFence}},
      {"one thread's zeros are enough",
       Changing(Code::kWarpSync, 0, Drop),
       {Fault::kRace, Fault::kMissingFence}},
      {"zeros do not wait for the box",
       Changing(Code::kMbWait, 2, Drop),
       {Fault::kRace, Fault::kUninitialised, Fault::kMisuse}},
      {"nobody says that zeros are there",
       Changing(Code::kMbArrive, 0, Drop),
       {Fault::kEndlessWait}},
  };
  const Attention a{.name = "", .queries = 128, .heads = 1};
  Kernel kernel;
  Schedule(a, kernel);
  Graph graph;
  const Recorded bound = Record(graph, a, {130});
  const std::vector<HostTensor> params = RandomParams(bound.sink, 1);
  const program::Program right = ProgramOf(kernel.schedule.kernels[0].ast, ByGroups(kTwoGroups));
  const auto run = [&](const program::Program& program, uint32_t seed) {
    Buffers memory;
    for (const int i : kernel.schedule.kernels[0].buffers) {
      const schedule::ScheduledBuffer& buffer = kernel.schedule.buffers[i];
      memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kInput)
        memory.back() = params[buffer.index].bytes;
    }
    return program::Interpret(program, memory, bound.vars(), {.seed = seed});
  };
  EXPECT_TRUE(run(right, 1).ok());
  for (const auto& [name, planted, faults] : mistakes) {
    const program::Program wrong = Edited(right, planted);
    ASSERT_NE(wrong, right);
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      const program::RunReport report = run(wrong, seed);
      EXPECT_TRUE(std::find(faults.begin(), faults.end(), report.fault) != faults.end())
          << name << ", seed " << seed << ": " << Name(report.fault) << ": " << report.message;
    }
  }
}

// Instructions of warps, of the largest length and of others.
uint64_t WorkOf(const Attention& a, const Length& length, const Ways& ways) {
  Kernel kernel;
  Schedule(a, kernel);
  CompileOptions options{.target = CudaTarget(ways.arch, kMultiprocessors)};
  if (ways.tile != nullptr) options.opts = OptsOf(*ways.tile);
  const CompiledKernel compiled =
      ValueOrDie(CompileKernel(kernel.schedule.kernels[0].ast, options));
  Graph graph;
  const std::vector<int64_t> vars = Record(graph, a, length).vars();
  Buffers memory;
  for (const int i : kernel.schedule.kernels[0].buffers)
    memory.emplace_back(static_cast<size_t>(kernel.schedule.buffers[i].bytes()), '\0');
  MachineCounts counts;
  OB_CHECK_OK(RunOnPtxMachine(compiled, memory, vars, 1, nullptr, &counts));
  return counts.warp_instructions;
}

// Loops over keys end with them, blocks beyond the last query leave, and a causal mask saves half
// of what is left.
TEST(SymbolicAttention, WorkIsThatOfTheLength) {
  const Attention keys{.name = "", .queries = 128, .keys = 1024, .heads = 1};
  const double few = static_cast<double>(WorkOf(keys, {128}, {})),
               many = static_cast<double>(WorkOf(keys, {1024}, {}));
  EXPECT_LT(few, 0.25 * many);
  const Attention prompt{.name = "", .counts = Counts::kPrompt, .keys = 512, .heads = 1};
  Attention causal = prompt;
  causal.causal = true;
  const double half = static_cast<double>(WorkOf(prompt, {256}, {})),
               whole = static_cast<double>(WorkOf(prompt, {512}, {})),
               masked = static_cast<double>(WorkOf(causal, {512}, {}));
  EXPECT_LT(half, 0.3 * whole);
  EXPECT_LT(masked, 0.65 * whole);
  EXPECT_LT(WorkOf(keys, {128}, ByGroups(kOneGroup)) * 4,
            WorkOf(keys, {1024}, ByGroups(kOneGroup)));
  std::printf("128 of 1024 keys: %.3f of the work; prompts of half the length %.3f, causal %.3f\n",
              few / many, half / whole, masked / whole);
}

// All kernels of the schedule that is made by cost, of parts of keys too, on the PTX machine.
void CheckWhole(const Attention& a, std::span<const Length> lengths, size_t launches) {
  SCOPED_TRACE(a.name);
  Graph recorded;
  const GpuSchedule gpu(Record(recorded, a, {}).sink, "sm_90a");
  ASSERT_EQ(gpu.compiled().size(), launches) << gpu.ToString();
  for (const Length& length : lengths) {
    SCOPED_TRACE(testing::Message() << "n " << length.n << " m " << length.m);
    Graph graph;
    const Recorded bound = Record(graph, a, length);
    gpu.ExpectAsInterpreted(bound.sink, bound.bindings, 0x1p-6,
                            [&](std::vector<HostTensor>& params) {
                              if (a.counts != Counts::kLastOfKeys) return;
                              for (const size_t of_steps : {1, 2})
                                Spoil(a, length.n, params[of_steps]);
                            });
    if (testing::Test::HasFailure()) return;
  }
}

// Parts of keys, of queries that VARs count, too; where the cache is masked rather than cut, loops
// end with the mask. A row that sees no key is not a number.
TEST(SymbolicAttention, FewQueriesInParts) {
  const Length few[] = {{1, 1}, {8, 8}, {70, 3}, {1000, 8}, {1024, 1}, {2, 5}};
  CheckWhole({.name = "few", .counts = Counts::kLastOfKeys, .queries = 8, .keys = 1024}, few, 2);
  if (HasFatalFailure()) return;
  CheckWhole({.name = "more", .counts = Counts::kLastOfKeys, .queries = 40, .keys = 512},
             std::vector<Length>{{1, 1}, {300, 33}, {512, 40}}, 2);
  if (HasFatalFailure()) return;
  const Length masks[] = {{1}, {70}, {1024}};
  CheckWhole({.name = "mask", .counts = Counts::kMask, .queries = 1, .keys = 1024}, masks, 2);
}

// By default, and whether a length may be 0 or not.
TEST(SymbolicAttention, ScoresAreRecomputedByCost) {
  const auto kernels = [](const Attention& a, const char* arch) {
    Graph graph, g;
    const UOp* const sink = Record(graph, a, {}).sink;
    const Target target = CudaTarget(arch, kMultiprocessors);
    return ValueOrDie(schedule::MakeSchedule(g, sink, target, {},
                                             {.computes_scores =
                                                  [&](const UOp* ast) {
                                                    return program::ComputesScores(ast, target);
                                                  }}))
        .kernels.size();
  };
  for (const char* const arch : {"sm_80", "sm_90", "sm_90a"})
    for (const Counts counts :
         {Counts::kKeys, Counts::kPrompt, Counts::kLastOfKeys, Counts::kQueries, Counts::kMask}) {
      EXPECT_EQ(kernels({.name = "", .counts = counts}, arch), 1u) << arch;
    }
  EXPECT_EQ(kernels({.name = "", .counts = Counts::kPrompt, .least = 0}, "sm_90"), 1u);
  EXPECT_GT(kernels({.name = "", .counts = Counts::kPrompt, .dtype = DType::kF32}, "sm_89"), 1u);
}

}  // namespace
}  // namespace outboard::test
