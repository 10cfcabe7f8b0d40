#include "tests/bench/gpu_figures.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "tests/bench/gpu_amd_figures.h"
#include "tests/bench/gpu_kernel_figures.h"
#include "tests/bench/gpu_memory_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/report.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

// What scripts/bundle has made last.
void BundleFigure() {
  std::error_code error;
  std::uintmax_t bytes = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(absl::StrCat(test::kBuildFolder, "/bundle"), error))
    if (file.path().extension() == ".zst") bytes = std::max(bytes, file.file_size(error));
  if (bytes == 0) return ReportSkipped("bundle_mib", "there is no bundle; scripts/bundle makes it");
  Report("bundle_mib", static_cast<double>(bytes) / (1 << 20), "MiB", "",
         "programs and libraries for a bare Debian 12 or Ubuntu 24.04; under 64 are wanted");
}

// Each family of figures by name; more of them come here.
constexpr void (*kFamilies[])() = {
    GpuCompileFigures,
    GpuAssemblerFigures,
    GpuAmdFigures,
    GpuMemoryFigures,
    GpuTestFigures,
    BundleFigure,
};

}  // namespace

void GpuFigures() {
  for (const auto family : kFamilies) family();
}

}  // namespace outboard::bench
