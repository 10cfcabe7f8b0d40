// What only a GPU can show: copies, streams of memory, launches, products, the search, on the CUDA
// device that is there. The same code runs on the tests' own driver at small sizes, which shows
// that it works and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/bench/gpu_plan.h"

namespace outboard::bench {

struct DeviceFigure {
  std::string name, unit, note;
  double value = 0;
};

// Called with each figure as soon as it is measured.
using FigureReport = std::function<void(const DeviceFigure&)>;

struct DeviceSizes {
  int64_t copy_bytes = int64_t{1} << 30;
  // That a stream of memory reads and writes, at least, where the device has twice as much.
  int64_t stream_bytes = int64_t{4} << 30;
  int64_t stream_columns = 4096;  // of f32
  int64_t product = 8192;         // rows, columns and steps
  int kernels = 500;              // of one graph
  int repeats = 20;
  int beam_width = 4;
  double beam_seconds = 60;    // of the product of bf16
  double search_seconds = 90;  // of the other products and the streams together
};

struct DeviceMeasured {
  std::vector<DeviceFigure> figures;
  std::vector<DeviceTimes> times;
  // The largest error of a product of f32, by the sum of its terms: torch_gpu.py has PyTorch's of
  // the same matrices.
  double fp32_error = 0;
  std::string failed;  // why a search ended before its time; empty: it did not
};

// Rows of a stream of so many matrices: the least power of two for which all of them together have
// `bytes`, or half of the device's memory if that is less. torch_gpu.py has the same.
int64_t StreamRows(int64_t matrices, int64_t columns, int64_t bytes, int64_t memory_bytes);

// Names are those of the whole sizes.
// Times: "matmul_{bf16,fp32,fp8}" (fp8 from sm_89 on), "matmul_bf16_mma_sync", which is bf16 by
// mma.sync alone, and "stream_*".
// `device` is a CUDA device that nobody uses.
// Errors: those of the device before the searches; DATA_LOSS if a download is short; INTERNAL if a
// product of f32 has an infinite error or one that is no number
absl::StatusOr<DeviceMeasured> MeasureGpuDevice(runtime::Device& device, const DeviceSizes& sizes,
                                                const FigureReport& report = nullptr);

// The largest difference from sums in f64, by the sum of the terms' magnitudes: of x times w, both
// n x n of f32 and positive, in 16 rows of `got`. INTERNAL where one is infinite or no number.
absl::StatusOr<double> LargestError(const std::string& x, const std::string& w,
                                    const std::string& got, int64_t n);

}  // namespace outboard::bench
