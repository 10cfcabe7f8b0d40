#include "tests/bench/python_figures.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/bench/torch_peer.h"
#include "tests/bench/training_data.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

constexpr int kTurns = 3;
constexpr int kStepsMeasured = 200;  // a turn
constexpr int kSteps = 2000;         // that the figure is about

std::string TorchCommand(const std::string& text, unsigned threads, const std::string& how) {
  return absl::StrCat(Torch().python, " ", test::kBenchFolder, "/torch_chargpt.py ", text,
                      " --threads ", threads, " --steps ", kStepsMeasured, how, " 2>/dev/null");
}

// Of all steps, by the first and the mean of some others.
double SecondsOf(const std::string& json) {
  return NumberIn(json, "first_step_s") + (kSteps - 1) * NumberIn(json, "step_ms") / 1e3;
}

void CharGpt() {
  if (!Torch().lacks.empty()) return ReportSkipped("chargpt_vs_torch", Torch().lacks);
  const TrainingData data;
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<double> ours, one, all, compiled;
  for (int i = 0; i < kTurns; ++i) {
    const Cloud cloud(1);  // a new one: every first step compiles
    ours.push_back(SecondsOf(OutputOf(
        absl::StrCat(cloud.Prefix(), PythonCommand(),
                     test::SourceFile("python/examples/chargpt.py "), data.Text(), " --json --out ",
                     data.Text(), ".safetensors --steps ", kStepsMeasured, " 2>/dev/null"))));
    // PyTorch is not always quicker on two threads than on one, so it may choose; and whether to
    // compile, which is part of the time here as it is of ours.
    one.push_back(SecondsOf(OutputOf(TorchCommand(data.Text(), 1, ""))));
    all.push_back(SecondsOf(OutputOf(TorchCommand(data.Text(), threads, ""))));
    compiled.push_back(
        SecondsOf(OutputOf(absl::StrCat("TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 ",
                                        TorchCommand(data.Text(), threads, " --compile")))));
  }
  const double seconds = Quantile(ours, 0.5), torch_one = Quantile(one, 0.5),
               torch_all = Quantile(all, 0.5), torch_compiled = Quantile(compiled, 0.5);
  Report("chargpt_vs_torch", std::min({torch_one, torch_all, torch_compiled}) / seconds, "ratio",
         absl::StrFormat("PyTorch %s, %.0f s on %d threads, %.0f s on one, %.0f s with "
                         "torch.compile on %d",
                         Torch().version, torch_all, threads, torch_one, torch_compiled, threads),
         absl::StrFormat("%.0f s for %d steps through gateway and worker, compiling included; from "
                         "%d steps a turn",
                         seconds, kSteps, kStepsMeasured));
}

// What the package itself takes: python_figures.py says of each what is measured.
void Package() {
  const auto measured = [](const std::string& figure) {
    return OutputOf(absl::StrCat(PythonCommand(), test::kBenchFolder, "/python_figures.py ",
                                 figure, " 2>/dev/null"));
  };
  const std::string build = measured("python_gpt_build_ms");
  Report("python_gpt_build_ms", NumberIn(build, "python_gpt_build_ms"), "ms", "",
         absl::StrFormat("a training step of GPT-2 small, forward, backward and Adam, built and "
                         "encoded; the first takes %.0f ms, the second %.0f ms",
                         NumberIn(build, "first_ms"), NumberIn(build, "second_ms")));
  Report("python_gpt_jit_ms", NumberIn(measured("python_gpt_jit_ms"), "python_gpt_jit_ms"), "ms",
         "", "one call of that step under TinyJit, through a session");
  Report("sort_million_ms", NumberIn(measured("sort_million_ms"), "sort_million_ms"), "ms", "",
         "a million random floats and their places, on a private worker");
  Report("cli_start_ms_p50", NumberIn(measured("cli_start_ms_p50"), "cli_start_ms_p50"), "ms", "",
         "outboard --version, from start to end");
  Report("python_import_s", NumberIn(measured("python_import_s"), "python_import_s"), "s", "",
         "import outboard, above an empty program");
}

}  // namespace

void PythonFigures() {
  Package();
  CharGpt();
}

}  // namespace outboard::bench
