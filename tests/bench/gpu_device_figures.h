// What only a GPU can show: copies, streams of memory, launches, products, the search, on the CUDA
// device that is there. The same code runs on the tests' own driver at small sizes, which shows
// that it works and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace outboard::bench {

struct DeviceFigure {
  std::string name, unit, note;
  double value = 0;
};

struct DeviceSizes {
  int64_t copy_bytes = int64_t{1} << 30;
  int64_t stream_rows = 1 << 16, stream_columns = 4096;  // of f32: 1 GiB a matrix
  int64_t product = 8192;                                // rows, columns and steps
  int kernels = 500;                                     // of one graph
  int repeats = 20;
  int beam_width = 4;
  double beam_seconds = 60;
};

// Seconds of ours that PyTorch's are divided by, by the names of torch_gpu.py.
struct DeviceTimes {
  std::string name;
  double seconds = 0;
};

struct DeviceMeasured {
  std::vector<DeviceFigure> figures;
  std::vector<DeviceTimes> times;
};

// `device` is a CUDA device that nobody uses.
// Errors: those of the device; DATA_LOSS if a download is short
absl::StatusOr<DeviceMeasured> MeasureGpuDevice(runtime::Device& device, const DeviceSizes& sizes);

}  // namespace outboard::bench
