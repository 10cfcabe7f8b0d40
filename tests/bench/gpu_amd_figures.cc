#include "tests/bench/gpu_amd_figures.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/schedule/schedule.h"
#include "tests/bench/report.h"
#include "tests/compiler/amd_products.h"
#include "tests/compiler/amdgpu_object.h"
#include "tests/compiler/golden_kernels.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

constexpr char kFigure[] = "amd_objects_ratio";

// Compiled, linked, disassembled, and nothing in memory of a thread's own.
bool IsWhole(const UOp* kernel, const Target& target) {
  const auto compiled = CompileKernel(kernel, {.target = target});
  if (!compiled.ok()) return false;
  if (compiled->tasks == 0) return true;
  const auto code = test::LinkAndDisassemble(compiled->object, target.arch);
  return code.ok() && code->private_bytes == 0 && code->spills == 0;
}

}  // namespace

void GpuAmdFigures() {
  if (const std::string missing = test::MissingAmdgpuTool(); !missing.empty())
    return ReportSkipped(kFigure, absl::StrCat("no ", missing, " (Debian's lld-19, llvm-19)"));
  int all = 0, whole = 0;
  // Accelerators of that kind have so many compute units: MI300X, RX 7900 XTX.
  for (const Target& target : {AmdTarget("gfx942", 304), AmdTarget("gfx1100", 96)}) {
    for (const test::AmdProduct& product : test::AmdProducts()) {
      ++all;
      whole += test::TroubleOf(product, target).empty() ? 1 : 0;
    }
    for (const test::GoldenKernel& golden : test::GoldenKernels()) {
      Graph graph;
      const test::Program program = {golden.name, [&](test::Size) { realize(golden.results()); }};
      const UOp* const sink = test::RecordProgram(graph, program, test::Size::kReal);
      const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, sink, target));
      for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
        ++all;
        whole += IsWhole(kernel.ast, target) ? 1 : 0;
      }
    }
  }
  Report(kFigure, static_cast<double>(whole) / all, "", "",
         absl::StrCat(all, " golden kernels, and products of bf16 and f16 by matrix units, for "
                           "gfx942 and gfx1100: linked, and without spills"));
}

}  // namespace outboard::bench
