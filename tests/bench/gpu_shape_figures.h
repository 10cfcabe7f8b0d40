// Products and attention in the shapes of models, on the CUDA device that is there, against
// PyTorch's in the same run (torch_gpu.py): cuda_matmul_shapes_vs_torch,
// cuda_attention_forward_vs_torch and cuda_attention_backward_vs_torch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/bench/gpu_device_figures.h"

namespace outboard::bench {

struct ProductShape {
  int64_t rows, steps, columns;
  std::string Name() const;  // as torch_gpu.py prints it: "matmul_shape_8192x768x2304"
};
// Of GPT-2 (8 x 1,024 tokens) and of a model of 7 thousand million parameters (4,096 tokens): the
// products of a layer, bf16.
std::vector<ProductShape> ModelProducts();

struct AttentionCase {
  int64_t width, rows;  // of a head; batch and heads make 2,048 columns of 16,384 tokens
  bool causal;
  std::string Name(bool backward) const;  // "attention_forward_64_1024_causal"
};
// Heads of 64 and 128, 1,024 to 16,384 rows, causal and not, bf16.
std::vector<AttentionCase> ModelAttention();

// Of steps with gradients those whose results are the same bits in every one of kEqualRuns runs,
// and the names of the others.
struct EqualBits {
  size_t steps = 0, equal = 0;
  std::string unequal;
};
inline constexpr int kEqualRuns = 4;

// Times of all shapes, and whether gradients are the same each time.
struct ShapesMeasured {
  // Of attention_backward_* the time is that of a whole step: forward, and all three gradients.
  std::vector<DeviceTimes> times;
  EqualBits as_chosen, after_beam;  // with the compiler's own Opts, and with those that BEAM found
};

// Each size is divided by `divisor` (at least 1): for tests. Names are those of the whole sizes.
// `report` is called before the search, with all but its times.
// Errors: those of the device
absl::StatusOr<ShapesMeasured> MeasureModelShapes(
    runtime::Device& device, const GpuTrial& trial, int64_t divisor,
    const std::function<void(const ShapesMeasured&)>& report = nullptr);

// The geometric mean of PyTorch's seconds by ours, over the times whose name begins with `prefix`;
// 0 where one of them has no peer, or there is none. `seconds`: which of ours.
double MeanRatio(const std::vector<DeviceTimes>& ours, const std::map<std::string, double>& torch,
                 const std::string& prefix, double DeviceTimes::*seconds = &DeviceTimes::seconds);

}  // namespace outboard::bench
