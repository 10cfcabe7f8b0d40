#include "tests/bench/gpu_matmul_figures.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::bench {
namespace {

using test::LoadAt;
using test::Range;
using test::RowMajor;

constexpr char kArch[] = "sm_90a";
constexpr int kMultiprocessors = 132;  // an H100's
// What is assembled, and what the machine runs: the same tile, fewer of them.
constexpr int64_t kLarge = 8192, kSide = 256, kSteps = 4096;

// y[m,n] = sum a[m,k] * b[k,n] over k, of bf16.
const UOp* Product(Graph& g, int64_t side, int64_t steps) {
  const UOp *m = Range(g, 0, side), *n = Range(g, 1, side), *k = test::ReduceRange(g, 2, steps);
  const UOp* const a = LoadAt(g, 1, DType::kBF16, side * steps, RowMajor(g, {m, k}, {side, steps}));
  const UOp* const b = LoadAt(g, 2, DType::kBF16, side * steps, RowMajor(g, {k, n}, {steps, side}));
  const UOp* const sum =
      test::Fold(g, Op::kAdd, Mul(g, Cast(g, a, DType::kF32), Cast(g, b, DType::kF32)), {k});
  return Sink(g, {test::StoreAt(g, 0, side * side, RowMajor(g, {m, n}, {side, side}),
                                Cast(g, sum, DType::kBF16))});
}

absl::StatusOr<CompiledKernel> Compiled(int64_t side, int64_t steps, const codegen::MmaTile& tile) {
  Graph g;
  CompileOptions options{.target = CudaTarget(kArch, kMultiprocessors)};
  options.opts = {{codegen::OptKind::kMma, 2, codegen::MmaAmount(tile)}};
  return CompileKernel(Product(g, side, steps), options);
}

// Of the loop with the most matrix instructions: a jump back, and what is between its target and
// it.
double InstructionsPerProduct(const std::string& listing) {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, size_t>> labels;  // and the instructions before
  for (const absl::string_view line : absl::StrSplit(listing, '\n')) {
    if (absl::StartsWith(line, ".L_") && absl::StrContains(line, ":"))
      labels.emplace_back(line.substr(0, line.find(':')), lines.size());
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "/*") &&
        absl::StrContains(line, ";"))
      lines.emplace_back(line);
  }
  double best = 0, most = 0;
  for (size_t end = 0; end < lines.size(); ++end) {
    if (!absl::StrContains(lines[end], "BRA")) continue;
    for (const auto& [label, begin] : labels) {
      if (begin > end || !absl::StrContains(lines[end], absl::StrCat("(", label, ")"))) continue;
      double products = 0;
      for (size_t i = begin; i <= end; ++i) products += absl::StrContains(lines[i], "HMMA");
      if (products <= most) continue;
      most = products;
      best = static_cast<double>(end - begin + 1) / products;
    }
  }
  return best;
}

absl::StatusOr<std::string> WordsOf(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  OB_CHECK(pipe != nullptr);
  std::string words;
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) words.append(piece, count);
  if (pclose(pipe) != 0) return absl::InternalError(words);
  return words;
}

absl::StatusOr<std::string> Disassembled(const std::string& ptxas, const std::string& nvdisasm,
                                         const std::string& ptx) {
  std::string folder = std::filesystem::temp_directory_path() / "outboard_sass_XXXXXX";
  OB_CHECK(mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/kernel.ptx") << ptx;
  auto words = WordsOf(absl::StrCat("'", ptxas, "' -arch=", kArch, " '", folder,
                                    "/kernel.ptx' -o '", folder, "/kernel.cubin' 2>&1"));
  if (words.ok())
    words = WordsOf(absl::StrCat("'", nvdisasm, "' '", folder, "/kernel.cubin' 2>&1"));
  std::filesystem::remove_all(folder);
  return words;
}

// Two numbers of a few bits each, so that every sum is exact.
double ElementOf(int64_t row, int64_t column) {
  return static_cast<double>((row * 7 + column * 3) % 9 - 4) / 4;
}

absl::Status RunOnMachine(const codegen::MmaTile& tile, GpuMatmulFigures& figures) {
  OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, Compiled(kSide, kSteps, tile));
  std::vector<std::string> buffers = {std::string(kSide * kSide * 2, '\0'),
                                      std::string(kSide * kSteps * 2, '\0'),
                                      std::string(kSide * kSteps * 2, '\0')};
  for (int64_t row = 0; row < kSide; ++row)
    for (int64_t k = 0; k < kSteps; ++k) {
      StoreFloat(DType::kBF16, ElementOf(row, k), buffers[1].data() + 2 * (row * kSteps + k));
      StoreFloat(DType::kBF16, ElementOf(k, row), buffers[2].data() + 2 * (k * kSide + row));
    }
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  config.grid[0] = static_cast<uint32_t>(kernel.blocks[0]);
  config.block[0] = static_cast<uint32_t>(kernel.threads[0]);
  config.shared_bytes = 0;
  std::vector<uint64_t> addresses;
  for (const std::string& buffer : buffers) {
    addresses.push_back(memory.Allocate(buffer.size()));
    OB_CHECK(memory.Write(addresses.back(), buffer.data(), buffer.size()));
  }
  config.parameters.resize(addresses.size() * sizeof(uint64_t));
  std::memcpy(config.parameters.data(), addresses.data(), config.parameters.size());
  OB_RETURN_IF_ERROR(machine.Launch(*module, kernel.symbol, config));
  if (!machine.reports().empty())
    return absl::FailedPreconditionError(machine.reports()[0].ToString());
  OB_CHECK(memory.Read(addresses[0], buffers[0].data(), buffers[0].size()));
  for (int64_t row = 0; row < kSide; row += 37)
    for (int64_t column = 0; column < kSide; column += 29) {
      double sum = 0;
      for (int64_t k = 0; k < kSteps; ++k) sum += ElementOf(row, k) * ElementOf(k, column);
      const double got = LoadFloat(DType::kBF16, buffers[0].data() + 2 * (row * kSide + column));
      if (got != RoundTo(DType::kBF16, sum))
        return absl::InternalError(
            absl::StrCat("row ", row, " column ", column, " is ", got, ", not ", sum));
    }
  const ptx::Counters& counters = machine.counters();
  figures.bank_ways = static_cast<double>(counters.shared_wavefronts) /
                      static_cast<double>(counters.shared_accesses);
  const double blocks = static_cast<double>(kernel.blocks[0]);
  const double least =
      (blocks * static_cast<double>((tile.rows + tile.columns) * kSteps) + kSide * kSide) * 2 / 32;
  figures.sectors_ratio = static_cast<double>(counters.global_sectors) / least;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GpuMatmulFigures> MeasureGpuMatmul() {
  Graph g;
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel,
                      codegen::AnalyzeKernel(Product(g, kLarge, kLarge)));
  OB_ASSIGN_OR_RETURN(const auto plan, codegen::PlanMma(kernel, CudaTarget(kArch, kMultiprocessors),
                                                        /*opts=*/nullptr));
  if (!plan) return absl::InternalError("a large product is not left to matrix units");
  GpuMatmulFigures figures;
  const auto begin = std::chrono::steady_clock::now();
  OB_ASSIGN_OR_RETURN(const CompiledKernel large, Compiled(kLarge, kLarge, plan->tile));
  figures.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  if (!ptxas.empty()) {
    OB_ASSIGN_OR_RETURN(figures.spill_bytes, test::Assemble(ptxas, large.object, kArch));
    if (!nvdisasm.empty()) {
      OB_ASSIGN_OR_RETURN(const std::string listing, Disassembled(ptxas, nvdisasm, large.object));
      figures.instructions_per_hmma = InstructionsPerProduct(listing);
    }
  }
  OB_RETURN_IF_ERROR(RunOnMachine(plan->tile, figures));
  return figures;
}

}  // namespace outboard::bench
