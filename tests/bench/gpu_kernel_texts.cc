// Writes the PTX of every distinct kernel of some programs to a folder, one file each, so that two
// versions of the renderer can be compared by what NVIDIA's assembler makes of their texts:
//   gpu_kernel_texts FOLDER ARCH PROGRAM ...
// Programs: gpt2_f32, gpt2_bf16 (a training step of GPT-2 124M, 8 x 1,024), mnist, golden, matrix,
// odd_rows (losses, softmax and places of maxima of 50,257 numbers),
// and those of tests/compiler/schedule_programs.cc. With DEBUG=5 each kernel's way is printed to
// stderr: what it reads and writes, its nodes, its Opts or tile, its program and its text.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/bench/gpu_assembled_kernels.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

constexpr int kMultiprocessors = 132;  // of an H100

GpuProgram Recorded(const test::Program& program) {
  return {program.name, [program](Graph& graph) {
            SentProgram sent;
            sent.sink = test::RecordProgram(graph, program, test::Size::kReal, &sent.donated);
            return sent;
          }};
}

// As GPT-2's logits: a row has an odd number of them.
std::vector<GpuProgram> OddRows() {
  constexpr int64_t kRows = 8192, kFewRows = 64, kVocabulary = 50257;
  std::vector<GpuProgram> programs;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const std::string type = dtype == DType::kF32 ? "_f32" : "_bf16";
    const test::LogitRows logits = {kRows, kVocabulary, dtype};
    programs.push_back(Recorded(test::LossGradient("loss_gradient" + type, logits)));
    programs.push_back(Recorded(test::SoftmaxOfRows("softmax" + type, logits)));
    for (const int64_t rows : {kRows, kFewRows})
      programs.push_back(Recorded(test::ArgmaxOfRows(absl::StrCat("argmax_", rows, type),
                                                     {rows, kVocabulary, dtype})));
  }
  return programs;
}

std::vector<GpuProgram> Named(const std::string& name) {
  if (name == "gpt2_f32") return {Recorded(test::Gpt2Step(name))};
  if (name == "gpt2_bf16") return {Recorded(test::Gpt2Step(name, DType::kBF16))};
  if (name == "golden") return GoldenPrograms();
  if (name == "matrix") return MatrixPrograms();
  if (name == "odd_rows") return OddRows();
  std::vector<GpuProgram> programs;
  for (const test::Program& program : test::Programs())
    if (program.name == name || (name == "mnist" && absl::StrContains(program.name, "mnist")))
      programs.push_back(Recorded(program));
  OB_CHECK(!programs.empty());
  return programs;
}

void Write(const std::string& folder, const std::string& arch, const std::string& name) {
  const Target target = CudaTarget(arch, kMultiprocessors);
  const char* const debug = std::getenv("DEBUG");
  const bool prints = debug != nullptr && std::atoi(debug) >= 5;
  Compiler compiler({.target = target, .dump = prints});
  absl::flat_hash_set<GraphId> known;
  int written = 0;
  for (const GpuProgram& program : Named(name)) {
    Graph graph;
    const SentProgram sent = program.graph(graph);
    const schedule::Schedule schedule = ValueOrDie(
        schedule::MakeSchedule(graph, sent.sink, target, sent.donated, ScheduleOptionsFor(target)));
    for (size_t k = 0; k < schedule.kernels.size(); ++k) {
      if (schedule.kernels[k].together == 0) continue;
      const UOp* const kernel =
          WithCopies(graph, schedule.kernels[k].ast, schedule.kernels[k].together);
      if (!known.insert(ValueOrDie(EncodeGraph(kernel)).id).second) continue;
      if (prints)
        std::fprintf(stderr, "kernel %zu: %s\n", k, KernelToString(schedule, k).c_str());
      const absl::StatusOr<CompiledKernel> compiled = compiler.Compile(kernel);
      const std::string file =
          absl::StrFormat("%s/%s.%s.%s.%03d.ptx", folder, arch, name, program.name, k);
      if (!compiled.ok()) {
        std::fprintf(stderr, "%s: %s\n", file.c_str(),
                     std::string(compiled.status().message()).c_str());
        continue;
      }
      if (compiled->tasks == 0) continue;
      std::ofstream(file) << compiled->object;
      ++written;
    }
  }
  std::printf("%s for %s: %d kernels\n", name.c_str(), arch.c_str(), written);
}

}  // namespace
}  // namespace outboard::bench

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "gpu_kernel_texts FOLDER ARCH PROGRAM ...\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  for (int i = 3; i < argc; ++i) outboard::bench::Write(argv[1], argv[2], argv[i]);
  return 0;
}
