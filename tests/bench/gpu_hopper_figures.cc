#include "tests/bench/gpu_hopper_figures.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/program/hopper/product.h"
#include "compiler/render/llvm/nvptx.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::bench {
namespace {

using program::HopperProduct;
using program::HopperTile;

constexpr char kHopperArch[] = "sm_90a";
constexpr int kSms = 132;  // an H100's
constexpr int64_t kSide = 8192;

std::string FindNvdisasm() {
  if (const char* const named = std::getenv("OUTBOARD_NVDISASM"); named != nullptr) return named;
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string file = absl::StrCat(folder, "/nvdisasm");
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

absl::StatusOr<std::string> OutputOf(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  OB_CHECK(pipe != nullptr);
  std::string words;
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) words.append(piece, count);
  if (pclose(pipe) != 0) return absl::InternalError(words);
  return words;
}

// The innermost loop with products: the shortest jump back over any.
double PerProduct(const std::string& listing) {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, size_t>> labels;  // and the instructions before
  for (const absl::string_view line : absl::StrSplit(listing, '\n')) {
    if (absl::StartsWith(line, ".L_") && absl::StrContains(line, ":"))
      labels.emplace_back(line.substr(0, line.find(':')), lines.size());
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "/*") &&
        absl::StrContains(line, ";"))
      lines.emplace_back(line);
  }
  size_t shortest = lines.size();
  double best = 0;
  for (size_t end = 0; end < lines.size(); ++end) {
    if (!absl::StrContains(lines[end], "BRA")) continue;
    for (const auto& [label, begin] : labels) {
      if (begin > end || !absl::StrContains(lines[end], absl::StrCat("(", label, ")"))) continue;
      double products = 0;
      for (size_t i = begin; i <= end; ++i) products += absl::StrContains(lines[i], "HGMMA");
      if (products == 0 || end - begin >= shortest) continue;
      shortest = end - begin;
      best = static_cast<double>(end - begin + 1) / products;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<GpuHopperFigures> MeasureGpuHopper() {
  GpuHopperFigures figures;
  const std::string ptxas = test::FindPtxas(), nvdisasm = FindNvdisasm();
  OB_ASSIGN_OR_RETURN(const auto renderer,
                      render::MakeNvptxRenderer(CudaTarget(kHopperArch, kSms)));
  for (const int64_t columns : {128, 256})
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        const HopperProduct product{
            .m = kSide, .n = kSide, .k = kSide, .a_by_columns = a, .b_by_columns = b};
        OB_ASSIGN_OR_RETURN(
            const program::Program program,
            MakeHopperProduct(product, {.columns = columns, .persistent_blocks = kSms}));
        OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                            renderer->Render(program, "k", /*no_opt=*/false, nullptr));
        if (ptxas.empty()) continue;
        OB_ASSIGN_OR_RETURN(const int64_t spilled,
                            test::Assemble(ptxas, kernel.object, kHopperArch));
        figures.spill_bytes = figures.spill_bytes.value_or(0) + spilled;
        std::string folder = std::filesystem::temp_directory_path() / "outboard_hopper_XXXXXX";
        OB_CHECK(mkdtemp(folder.data()) != nullptr);
        std::ofstream(folder + "/kernel.ptx") << kernel.object;
        auto words = OutputOf(absl::StrCat("'", ptxas, "' -arch=", kHopperArch, " '", folder,
                                           "/kernel.ptx' -o '", folder, "/kernel.cubin' 2>&1"));
        if (words.ok())
          figures.serialised =
              figures.serialised.value_or(0) + absl::StrContains(*words, "serialized");
        if (words.ok() && !nvdisasm.empty())
          words = OutputOf(absl::StrCat("'", nvdisasm, "' '", folder, "/kernel.cubin' 2>&1"));
        std::filesystem::remove_all(folder);
        if (!words.ok()) return words.status();
        if (!nvdisasm.empty())
          figures.instructions_per_hgmma =
              std::max(figures.instructions_per_hgmma.value_or(0), PerProduct(*words));
      }
  return figures;
}

}  // namespace outboard::bench
