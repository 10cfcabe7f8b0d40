// Programs as people write them (written_programs.h), scheduled and compiled for NVIDIA's GPUs and
// run on the PTX machine as a worker runs them, and on this processor, against the reference
// interpreter.
//
//   OUTBOARD_PROGRAMS   how many      OUTBOARD_FROM  the first one's seed
//   OUTBOARD_SEED       one alone, which is printed, and made smaller with OUTBOARD_SHRINK
//   OUTBOARD_PROCESSOR  another processor (harness.cc)
#include "tests/compiler/written_programs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule_options.h"
#include "compiler/target.h"
#include "tests/compiler/gpu_plan.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kPrograms = 4;
#else
constexpr uint64_t kPrograms = 32;
#endif
constexpr uint64_t kInstructionsMax = 6'000'000;  // of a launch, by warps: some seconds

// What no order of operations explains.
std::string Difference(const HostTensor& want, const HostTensor& got, bool narrow) {
  if (!IsFloat(want.dtype)) {
    if (want.bytes == got.bytes) return "";
    const int width = ByteWidth(want.dtype);
    int64_t at = 0, count = 0;
    for (int64_t i = want.ElementCount() - 1; i >= 0; --i)
      if (want.bytes.compare(static_cast<size_t>(i * width), static_cast<size_t>(width), got.bytes,
                             static_cast<size_t>(i * width), static_cast<size_t>(width)) != 0)
        at = i, ++count;
    return absl::StrCat("integers differ in ", count, " places, the first is ", at, " of ",
                        want.ElementCount());
  }
  const std::vector<double> a = FloatsOf(want), b = FloatsOf(got);
  constexpr double kSmallest = 0x1p-5;  // differences of numbers that nearly cancel
  double largest = kSmallest, squares = 0, errors = 0;
  for (const double x : a)
    if (std::isfinite(x)) {
      largest = std::max(largest, std::abs(x));
      squares += x * x;
    }
  const double bound = (narrow ? 0x1p-4 : 0x1p-11) * largest;
  int64_t count = 0;
  std::string first;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && std::isfinite(a[i])) errors += (a[i] - b[i]) * (a[i] - b[i]);
    if (same || std::abs(a[i] - b[i]) <= bound) continue;
    if (++count == 1) first = absl::StrCat("element ", i, " is ", b[i], ", not ", a[i]);
  }
  if (count > 0)
    return absl::StrCat(count, " of ", a.size(), " elements differ: ", first, "; the largest is ",
                        largest);
  const double floor = static_cast<double>(a.size()) * kSmallest * kSmallest;
  const double part = std::sqrt(errors / std::max(squares, floor));
  if (part > (narrow ? 0x1p-5 : 0x1p-13))
    return absl::StrCat("the differences are ", part, " of the numbers");
  return "";
}

struct Machine {
  const char* arch;
  int multiprocessors;
};
constexpr Machine kMachines[] = {{"sm_90a", 132}, {"sm_80", 108}, {"sm_90a", 8},
                                 {"sm_90", 132},  {"sm_80", 4},   {"sm_90a", 2}};

struct Counts {
  int64_t programs = 0, given_up = 0, kernels = 0;
  std::map<std::string, int64_t> of;
};
Counts& Counted() {
  static auto* const counts = new Counts;
  return *counts;
}

void Count(const GpuPlan& plan) {
  Counts& counts = Counted();
  std::set<std::string> has;
  for (const CompiledKernel& kernel : plan.compiled()) {
    ++counts.kernels;
    const std::string& text = kernel.object;
    const bool wgmma = absl::StrContains(text, "wgmma.mma_async"),
               mma = absl::StrContains(text, "mma.sync");
    if (wgmma) has.insert("wgmma");
    if (mma) has.insert("mma");
    if (kernel.copies > 1) has.insert("copies");
    if (!kernel.maps.empty()) has.insert("boxes");
    if (absl::StrContains(text, "cp.async")) has.insert("cp.async");
    if (absl::StrContains(text, ".reqnctapercluster")) has.insert("clusters");
    if ((wgmma || mma) && absl::StrContains(text, "shfl")) has.insert("products with shuffles");
    if ((wgmma || mma) && absl::StrContains(text, "ex2.approx"))
      has.insert("products with exponentials");
  }
  for (const schedule::ScheduledKernel& kernel : plan.schedule().kernels) {
    if (SteadySlots(kernel.ast) != 0) has.insert("weights before the wait");
    if (std::ranges::any_of(kernel.ast->src, SumsPoints)) has.insert("sums beside a product");
    const auto nest = codegen::AnalyzeKernel(kernel.ast);
    if (nest.ok() && !codegen::PanelsOf(*nest, /*ends=*/true).empty())
      has.insert("scores within a kernel");
    for (const UOp* node : PostOrder(kernel.ast))
      if (IsRange(node, RangeKind::kSequence)) has.insert("scatters");
  }
  for (const int over : plan.schedule().over)
    if (over >= 0) has.insert("results over inputs");
  for (const std::string& what : has) ++counts.of[what];
}

// Those of a worker; of every other program such that more is rewritten than what costs less.
schedule::ScheduleOptions OptionsOf(const Target& target, uint64_t seed) {
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  if (seed % 2 == 0) return options;
  if (seed / 2 % 2 == 0) options.computes_sums = [](const UOp*) { return true; };
  if (seed / 4 % 2 == 0) options.overwrites = schedule::OverwritePolicy::kAll;
  if (seed / 8 % 3 == 0) options.scores = schedule::ScorePolicy::kRecompute;
  if (seed / 8 % 3 == 1) options.scores = schedule::ScorePolicy::kKeep;
  return options;
}

absl::StatusOr<GpuPlan> PlanOf(const UOp* sink, const std::vector<int64_t>& donated,
                               uint64_t seed) {
  const Machine& machine = kMachines[seed / 2 % std::size(kMachines)];
  const Target target = CudaTarget(machine.arch, machine.multiprocessors);
  return GpuPlan::Make(sink, target, donated, OptionsOf(target, seed));
}

const UOp* VarOfSlot(const UOp* sink, int64_t slot) {
  for (const UOp* node : PostOrder(sink, /*into_functions=*/true))
    if (node->op == Op::kVar && VarOf(node).slot() == slot) return node;
  OB_CHECK(false && "a binding has its VAR");
}

using RunWith = std::function<absl::StatusOr<Results>(const std::vector<Binding>&)>;

// The first result that is not the interpreter's, "" if all are. RESOURCE_EXHAUSTED: `run` gave up.
absl::StatusOr<std::string> DefectOf(const RandomCase& c, bool narrow, const RunWith& run) {
  std::vector<std::vector<Binding>> all = {c.bindings};
  for (const int64_t bound : {1, 64, 129}) {  // of a variable other values, too
    std::vector<Binding> others = c.bindings;
    for (Binding& binding : others) {
      const UOp* const var = VarOfSlot(c.sink, binding.slot);
      binding.value = std::clamp(bound == 129 ? var->vmax : bound, var->vmin, var->vmax);
    }
    if (!others.empty()) all.push_back(others);
  }
  for (const std::vector<Binding>& bindings : all) {
    const auto got = run(bindings);
    if (absl::IsResourceExhausted(got.status())) return got.status();
    if (!got.ok()) return absl::StrCat("run ", got.status().ToString());
    const auto want = Interpret(c.sink, c.params, bindings);
    if (!want.ok()) return absl::StrCat("interpreter ", want.status().ToString());
    for (size_t i = 0; i < want->size(); ++i)
      if (const std::string text = Difference((*want)[i], (*got)[i], narrow); !text.empty())
        return absl::StrCat("result ", i, ": ", text,
                            bindings.empty() ? "" : absl::StrCat("; bound ", bindings[0].value));
  }
  return "";
}

std::string Defect(const RandomCase& c, const std::vector<int64_t>& donated, bool narrow,
                   uint64_t seed, bool count) {
  const auto plan = PlanOf(c.sink, donated, seed);
  if (!plan.ok()) return absl::StrCat("plan ", plan.status().ToString());
  if (count) Count(*plan);
  const auto defect = DefectOf(c, narrow, [&](const std::vector<Binding>& bindings) {
    return plan->Run(c.params, bindings, seed % 3 == 0, seed, kInstructionsMax);
  });
  if (!defect.ok()) {
    ++Counted().given_up;
    return "";
  }
  if (!defect->empty()) return *defect;
  // A kernel that is said to compute sums of rows may have no plan that does.
  for (const std::string& text : plan->given_up())
    if (!absl::StrContains(text, "sums of rows")) return absl::StrCat("given-up ", text);
  return "";
}

// As a worker computes it on this processor, with results over inputs and without.
std::string DefectOnProcessor(const RandomCase& c, bool narrow) {
  const auto compiled = std::ranges::find(Engines(), "compiled-in-place", &Engine::name);
  OB_CHECK(compiled != Engines().end());
  const auto defect = DefectOf(c, narrow, [&](const std::vector<Binding>& bindings) {
    return compiled->run(c.sink, c.params, bindings);
  });
  return defect.ok() ? *defect : defect.status().ToString();
}

// The programs that the environment asks for.
struct Seeds {
  bool one = std::getenv("OUTBOARD_SEED") != nullptr;
  uint64_t first =
      one ? FromEnvironment("OUTBOARD_SEED", 0) : FromEnvironment("OUTBOARD_FROM", 1);
  uint64_t count = one ? 1 : FromEnvironment("OUTBOARD_PROGRAMS", kPrograms);
};

uint64_t seed_now = 0;
void OnAbort(int) {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "aborted at OUTBOARD_SEED=%llu\n",
                                   static_cast<unsigned long long>(seed_now));
  [[maybe_unused]] const auto written = write(2, text, static_cast<size_t>(length));
}

TEST(WrittenPrograms, OnThePtxMachine_AreTheInterpreters) {
  const auto [one, first, count] = Seeds();
  const bool told = std::getenv("OUTBOARD_TOLD") != nullptr;
  std::signal(SIGABRT, OnAbort);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    seed_now = seed;
    const auto begin = std::chrono::steady_clock::now();
    const WrittenProgram written = WriteProgram(seed);
    if (one) std::printf("%s\n", written.text.c_str());
    const Machine& machine = kMachines[seed / 2 % std::size(kMachines)];
    if (one) {
      const auto plan = PlanOf(written.program.sink, written.donated, seed);
      if (plan.ok())
        std::printf("%s %d\n%s\n", machine.arch, machine.multiprocessors,
                    ScheduleToString(plan->schedule()).c_str());
    }
    const std::string defect = Defect(written.program, written.donated, written.narrow, seed, true);
    ++Counted().programs;
    if (told) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      std::printf("%llu: %.2f s %s\n", static_cast<unsigned long long>(seed), took.count(),
                  defect.substr(0, 300).c_str());
      std::fflush(stdout);
    }
    if (defect.empty()) continue;
    if (one) {
      const auto plan = PlanOf(written.program.sink, written.donated, seed);
      if (plan.ok() && written.program.bindings.empty())
        std::printf(
            "%s\n",
            plan->WrongKernels(written.program.params, written.narrow ? 0x1p-5 : 0x1p-12).c_str());
    }
    ADD_FAILURE() << "OUTBOARD_SEED=" << seed << " " << machine.arch << " "
                  << machine.multiprocessors << " " << defect << "\n"
                  << written.text;
    std::fflush(stdout);
    if (one && std::getenv("OUTBOARD_SHRINK") != nullptr) {
      WrittenProgram again = WriteProgram(seed);
      const RandomCase small = Shrink(std::move(again.program), [&](const RandomCase& c) {
        return Defect(c, {}, written.narrow, seed, false);
      });
      std::printf("%s\n%s\n", Defect(small, {}, written.narrow, seed, false).c_str(),
                  GraphToString(small.sink).c_str());
    }
  }
  std::printf(
      "%lld programs, %lld given up, %lld kernels;", static_cast<long long>(Counted().programs),
      static_cast<long long>(Counted().given_up), static_cast<long long>(Counted().kernels));
  for (const auto& [what, programs] : Counted().of)
    std::printf(" %s: %lld;", what.c_str(), static_cast<long long>(programs));
  std::printf("\n");
  EXPECT_LE(10 * Counted().given_up, Counted().programs);
  if (!one && count >= 32) {  // most are not too small for matrix units
    EXPECT_GT(4 * Counted().of["mma"], Counted().programs);
  }
}

TEST(WrittenPrograms, OnTheProcessor_AreTheInterpreters) {
  const auto [one, first, count] = Seeds();
  std::signal(SIGABRT, OnAbort);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    seed_now = seed;
    const WrittenProgram written = WriteProgram(seed);
    const std::string defect = DefectOnProcessor(written.program, written.narrow);
    if (defect.empty()) continue;
    ADD_FAILURE() << "OUTBOARD_SEED=" << seed << " " << defect << "\n" << written.text;
    if (!one || std::getenv("OUTBOARD_SHRINK") == nullptr) continue;
    WrittenProgram again = WriteProgram(seed);
    const RandomCase small = Shrink(std::move(again.program), [&](const RandomCase& c) {
      return DefectOnProcessor(c, written.narrow);
    });
    std::printf("%s\n%s\n", DefectOnProcessor(small, written.narrow).c_str(),
                GraphToString(small.sink).c_str());
  }
}

}  // namespace
}  // namespace outboard::test
