// What kernels are made for (compiler/target.h): the host as LLVM sees it, fingerprints that stay,
// and costs that grow where work does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/cost.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/loop_cost.h"
#include "compiler/search/neighbours.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

using codegen::OptsToString;
using codegen::ParseOpts;

std::map<std::string, char> SignsOf(const std::string& features) {
  std::map<std::string, char> signs;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(features, ',')))
    signs[part.substr(1)] = part[0];
  return signs;
}

TEST(HostTarget, Processor_IsNamedAsLlvmNamesIt) {
  const std::string llvm = llvm::sys::getHostCPUName().str();
  const std::vector<std::string> levels = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  if (std::find(levels.begin(), levels.end(), HostTarget().arch) == levels.end()) {
    EXPECT_EQ(HostTarget().arch, llvm);
  } else {
    // Not in our table. LLVM may know it; what is compiled must run here all the same.
    EXPECT_TRUE(TargetOf({.cpu = HostTarget().arch}).ok()) << llvm;
  }
}

// Not compared: tiles, which LLVM names where the processor has them and this process may not use
// them; and avx10.1-512, for which LLVM 19 reads leaf 0x24 without choosing subleaf 0 (on
// processors with AVX10 it then sees another subleaf).
TEST(HostTarget, Features_AreThoseOfLlvm) {
  std::map<std::string, char> want, has = SignsOf(HostTarget().features);
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    want[feature.first().str()] = feature.second ? '+' : '-';
  for (std::map<std::string, char>* signs : {&want, &has})
    std::erase_if(*signs, [](const auto& entry) {
      return entry.first.starts_with("amx") || entry.first == "avx10.1-512";
    });
  EXPECT_EQ(has, want);
  const std::vector<std::string> parts = absl::StrSplit(HostTarget().features, ',');
  EXPECT_TRUE(std::is_sorted(parts.begin(), parts.end()));
}

TEST(HostTarget, Vectors_AreWhatLlvmMakesOfTheFeatures) {
  const Target llvm =
      ValueOrDie(TargetOf({.cpu = HostTarget().arch, .features = HostTarget().features}));
  EXPECT_EQ(HostTarget().vector_bytes, llvm.vector_bytes);
  EXPECT_EQ(HostTarget().vector_registers, llvm.vector_registers);
  EXPECT_EQ(HostTarget().bf16, llvm.bf16);
  EXPECT_EQ(HostTarget().fp16, llvm.fp16);
}

TEST(HostTarget, Everything_IsFoundAndStays) {
  const Target& target = HostTarget();
  EXPECT_EQ(&target, &HostTarget());
  EXPECT_FALSE(target.name.empty());
  EXPECT_GE(target.threads, 1);
  EXPECT_GE(target.l1_bytes, 8 << 10);
  EXPECT_GT(target.l2_bytes, target.l1_bytes);
  EXPECT_THAT(target.Fingerprint(), testing::MatchesRegex("x86-64 .+ [0-9]+-[0-9]+ .*, [0-9]+ "
                                                          "cores, L1d [0-9]+K L2 [0-9]+K.*"));
}

TEST(HostTarget, Kernel_EqualsOneForTheSameNames) {
  Graph g;
  const UOp* const sink = MatMul(g, 20, 24, 12);
  const auto host = CompileKernel(sink);
  ASSERT_TRUE(host.ok()) << host.status();
  const auto named =
      CompileKernel(sink, {.cpu = HostTarget().arch, .features = HostTarget().features});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(host->object, named->object);
}

// Stores of tuned kernels are keyed by these texts: a change here forgets what was learnt.
TEST(Fingerprint, KnownTargets_KeepTheirTexts) {
  Target rapids = TestTarget();
  rapids.model = "GenuineIntel 6-207";
  rapids.features = "+amx-bf16,-amx-fp16,+avx2,+avx512f,+fma";
  rapids.l3_bytes = 260 << 20;
  EXPECT_EQ(rapids.Fingerprint(),
            "x86-64 GenuineIntel 6-207 avx2 fma avx512f amx_bf16, 2 cores, L1d 48K L2 2048K L3 "
            "266240K");
  EXPECT_EQ(TestTarget().Fingerprint(),
            "x86-64 x86-64-v4 vectors 32x64 bf16 0, 2 cores, L1d 48K L2 2048K L3 32768K");
}

TEST(Fingerprint, WhateverDecides_IsInIt) {
  const std::string plain = TestTarget().Fingerprint();
  const std::vector<void (*)(Target&)> changes = {
      [](Target& t) { t.kind = TargetKind::kOpenCl; },
      [](Target& t) {
        t.kind = TargetKind::kOpenCl;
        t.block_threads = 64;
      },
      [](Target& t) { t.kind = TargetKind::kCuda; },
      [](Target& t) { t = CudaTarget("sm_90", 132); },
      [](Target& t) { t = CudaTarget("sm_90a", 132); },
      [](Target& t) { t = CudaTarget("sm_90", 78); },
      [](Target& t) { t.model = "GenuineIntel 6-207"; },
      [](Target& t) { t.arch = "znver5"; },
      [](Target& t) { t.features = "-fma"; },
      [](Target& t) { t.threads = 3; },
      [](Target& t) { t.vector_bytes = 32; },
      [](Target& t) { t.vector_registers = 16; },
      [](Target& t) { t.l1_bytes = 32 << 10; },
      [](Target& t) { t.l2_bytes = 1 << 20; },
      [](Target& t) { t.l3_bytes = 0; },
      [](Target& t) { t.shared_bytes = 32 << 10; },
      [](Target& t) { t.shared_bytes_max = 32 << 10; },
      [](Target& t) { t.bf16 = Bf16Products::kTiles; },
      [](Target& t) { t.fp64 = false; },
      [](Target& t) { t.fp16 = true; },
      [](Target& t) { t.costs.gate = 2; },
      [](Target& t) { t.costs.tasks_wanted = 32; },
  };
  std::vector<std::string> texts = {plain};
  for (const auto& change : changes) {
    Target target = TestTarget();
    change(target);
    texts.push_back(target.Fingerprint());
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
  Target renamed = TestTarget();
  renamed.name = "another";
  EXPECT_EQ(renamed.Fingerprint(), plain);
}

TEST(CostTable, Bytes_ComeBackOrAreRefused) {
  CostTable costs, back;
  costs.sine = 7;
  costs.tasks_wanted = 1;
  ASSERT_TRUE(CostTableFromBytes(CostTableBytes(costs), &back));
  EXPECT_EQ(back, costs);
  EXPECT_FALSE(CostTableFromBytes("", &back));
  EXPECT_FALSE(CostTableFromBytes(CostTableBytes(costs) + "x", &back));
  costs.gate = -1;
  EXPECT_FALSE(CostTableFromBytes(CostTableBytes(costs), &back));
  costs.gate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(CostTableFromBytes(CostTableBytes(costs), &back));
  EXPECT_EQ(back.sine, 7) << "what is refused leaves it";
}

TEST(Compile, TargetThatSaysTooMuch_IsRefused) {
  Graph g;
  const UOp* const sink = MatMul(g, 20, 24, 12);
  const auto code = [&](const Target& target) {
    CompileOptions options;
    options.target = target;
    return CompileKernel(sink, options).status().code();
  };
  Target old = TestTargetWith(32, 16);
  old.arch = "haswell";
  EXPECT_EQ(code(old), absl::StatusCode::kOk);
  old.vector_bytes = 64;
  EXPECT_EQ(code(old), absl::StatusCode::kInvalidArgument);
  old.vector_bytes = 32;
  old.bf16 = Bf16Products::kTiles;  // LLVM would abort
  EXPECT_EQ(code(old), absl::StatusCode::kInvalidArgument);
  Target other = TestTarget();
  other.kind = TargetKind::kOpenCl;
  CompileOptions options;
  options.target = other;
  EXPECT_EQ(KernelToLlvmIr(sink, options).status().code(), absl::StatusCode::kInvalidArgument);
  other = TestTarget();
  other.arch = "abacus";
  EXPECT_EQ(code(other), absl::StatusCode::kInvalidArgument);
}

double CostOf(const UOp* sink, const char* opts, const Target& target) {
  const codegen::PlannedKernel planned = ValueOrDie(
      codegen::ApplyOpts(ValueOrDie(codegen::AnalyzeKernel(sink)), *ParseOpts(opts), target));
  return optimize::LoopCost(planned.kernel, target).PlanCost(planned.plan);
}

TEST(Cost, Operations_AreOrderedByTheirWork) {
  const CostTable costs;
  const auto cost = [&](Op op) { return optimize::OpCost(op, costs); };
  const Op ascending[] = {Op::kIndex, Op::kAdd, Op::kFDiv,    Op::kExp,
                          Op::kTanh,  Op::kSin, Op::kThreefry};
  for (size_t i = 1; i < std::size(ascending); ++i)
    EXPECT_LT(cost(ascending[i - 1]), cost(ascending[i])) << i;
  EXPECT_EQ(cost(Op::kLoad), cost(Op::kCast));
  for (const Op op : {Op::kExp, Op::kTanh, Op::kSin}) {
    EXPECT_EQ(optimize::OpSize(op, DType::kF32, costs), cost(op));
    EXPECT_GT(optimize::OpSize(op, DType::kF64, costs), cost(op)) << "of f64 it is longer";
  }
  EXPECT_GT(optimize::RecomputeForKernel(costs), optimize::RecomputeForMemory(costs));
}

TEST(Cost, Sizes_GrowWithTheTarget) {
  int64_t before = 0;
  for (const int64_t kib : {0, 256, 1024, 2048, 3072, 4096}) {
    Target target = TestTarget();
    target.l2_bytes = kib << 10;
    const int64_t bytes = optimize::ReusedBytesMax(target);
    EXPECT_GE(bytes, before) << kib;
    EXPECT_GE(bytes, 1 << 20) << kib;
    before = bytes;
  }
  EXPECT_EQ(before, 2 << 20);
  EXPECT_EQ(optimize::LanesMin(TestTargetWith(64, 32)), 8);
  EXPECT_EQ(optimize::LanesMin(TestTargetWith(32, 16)), 4);
}

TEST(LoopCost, MoreWork_CostsMore) {
  double before = 0;
  for (const int64_t k : {8, 64, 100, 1000}) {
    Graph g;
    const double cost = CostOf(MatMul(g, 64, 64, k), "", TestTarget());
    EXPECT_GT(cost, before) << k;
    before = cost;
  }
}

// Each list does what the one before it does and one thing better.
TEST(LoopCost, EachGoodChoice_CostsLess) {
  Graph g;
  const UOp* const sink = MatMul(g, 512, 512, 512);
  double before = 1e300;
  for (const char* opts :
       {"", "THREAD:0:1", "VECTOR:1:16 THREAD:0:1", "VECTOR:1:16 UPCAST:0:4 THREAD:0:1",
        "VECTOR:1:16 UPCAST:0:6 UPCAST:1:4 THREAD:0:1"}) {
    const double cost = CostOf(sink, opts, TestTarget());
    EXPECT_LT(cost, before) << opts;
    before = cost;
  }
}

TEST(LoopCost, WhatDoesNotFitTheRegisters_CostsMore) {
  Graph g;
  const UOp* const sink = MatMul(g, 512, 512, 512);
  const char* const opts = "VECTOR:1:8 UPCAST:0:6 UPCAST:1:4 THREAD:0:1";
  Target few = TestTargetWith(32, 16), many = TestTargetWith(32, 32);
  EXPECT_GT(CostOf(sink, opts, few), CostOf(sink, opts, many));
}

// No cost of the table can fall where an entry rises.
TEST(LoopCost, DearerTable_IsNeverCheaper) {
  Graph g;
  const UOp* const sinks[] = {MatMul(g, 70, 90, 50), ConvForward(g, {4, 3, 8, 5, 12, 12})};
  for (const UOp* sink : sinks) {
    const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
    const std::string opts = OptsToString(codegen::HeuristicOpts(kernel, TestTarget()));
    const double plain = CostOf(sink, opts.c_str(), TestTarget());
    const std::string bytes = CostTableBytes(TestTarget().costs);
    for (size_t i = 0; i < bytes.size() / sizeof(double); ++i) {
      double numbers[sizeof(CostTable) / sizeof(double)];
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(numbers));
      numbers[i] *= 2;
      Target dear = TestTarget();
      ASSERT_TRUE(CostTableFromBytes(
          std::string_view(reinterpret_cast<const char*>(numbers), sizeof numbers), &dear.costs));
      EXPECT_GE(CostOf(sink, opts.c_str(), dear), plain) << "entry " << i;
    }
  }
}

// The search begins with what the estimate likes: what it tries first is better than what it tries
// last, and the heuristic's choice is no worse than plain loops.
TEST(LoopCost, Heuristic_IsBetterThanPlainLoops) {
  Graph g;
  for (const UOp* sink : {MatMul(g, 256, 256, 256), ConvForward(g, {8, 16, 16, 3, 14, 14}),
                          ConvWeightGradient(g, {8, 16, 16, 3, 14, 14})}) {
    const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
    for (const Target& target : {TestTarget(), TestTargetWith(32, 16)}) {
      const std::string opts = OptsToString(codegen::HeuristicOpts(kernel, target));
      EXPECT_LT(CostOf(sink, opts.c_str(), target), CostOf(sink, "THREAD:0:1", target)) << opts;
    }
  }
}

}  // namespace
}  // namespace outboard::test
