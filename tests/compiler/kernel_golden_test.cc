// The text of named kernels, in tests/compiler/golden: what the schedule makes of a line of a
// program, the Opts that the heuristic chooses for it, and the loops they come to. The machine is
// fixed and LLVM has no part in it, so the texts are the same everywhere. Where a change is meant,
// OUTBOARD_UPDATE=1 writes them anew; they are reviewed as a diff.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/ir/print.h"
#include "compiler/kernel/decompose_math.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/golden_kernels.h"
#include "tests/compiler/schedule_programs.h"
#include "tests/compiler/test_targets.h"
#include "tests/support/paths.h"

namespace outboard::test {
namespace {

// 32 registers of 64 bytes, tiles of bf16.
const Target kTarget = TestTargetWith(64, 32, Bf16Products::kTiles);

std::string TextOf(const GoldenKernel& golden) {
  Graph g;
  const Program program = {golden.name, [&](Size) { realize(golden.results()); }};
  const UOp* const sink = RecordProgram(g, program, Size::kReal);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, kTarget));
  std::string text;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const UOp* ast = schedule.kernels[k].ast;
    codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(ast));
    const std::vector<codegen::Opt> opts = codegen::HeuristicOpts(kernel, kTarget);
    const auto planned = ValueOrDie(codegen::ApplyOpts(std::move(kernel), opts, kTarget));
    if (golden.decomposed) ast = codegen::DecomposeTranscendentals(g, ast);
    absl::StrAppend(&text, "kernel ", KernelToString(schedule, k), "\n", GraphToString(ast),
                    "Opts ", codegen::OptsToString(opts), "\n",
                    PlanToString(planned.kernel, planned.plan), "\n");
  }
  return text;
}

class KernelGolden : public testing::TestWithParam<GoldenKernel> {};

TEST_P(KernelGolden, IsTheText) {
  const std::string path = test::SourceFile(
      absl::StrCat("tests/compiler/golden/", GetParam().name, ".txt"));
  const std::string text = TextOf(GetParam());
  if (std::getenv("OUTBOARD_UPDATE") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::stringstream stored;
  stored << std::ifstream(path).rdbuf();
  if (stored.str() == text) return;
  const std::vector<std::string> was = absl::StrSplit(stored.str(), '\n'),
                                 is = absl::StrSplit(text, '\n');
  size_t first = 0;
  while (first < std::min(was.size(), is.size()) && was[first] == is[first]) ++first;
  const auto line = [&](const std::vector<std::string>& lines, size_t at) {
    return at < lines.size() ? lines[at] : "(nothing)";
  };
  std::string difference;
  for (size_t at = first; at < first + 3; ++at)
    absl::StrAppend(&difference, "\n- ", line(was, at), "\n+ ", line(is, at));
  ADD_FAILURE() << GetParam().name << ".txt, from line " << first + 1 << ":" << difference
                << "\nOUTBOARD_UPDATE=1 writes the new text";
}

INSTANTIATE_TEST_SUITE_P(All, KernelGolden, testing::ValuesIn(GoldenKernels()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace outboard::test
