// Convolutions on the CUDA device that is there, against PyTorch's in the same run (torch_gpu.py):
// cuda_conv_resnet50_vs_torch. Kernels alone on both sides, as recorded launches.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/bench/gpu_device_figures.h"

namespace outboard::bench {

// A layer that convolves.
struct ConvShape {
  int64_t channels, side, filters, kernel, stride;  // square pictures, padding kernel / 2
  int count;                                        // such layers of the network
  std::string Name() const;                         // "256x56x128_1_1"
};
// All convolutions of ResNet-50 (He et al., 2015; strides in the 3 x 3 ones, as in PyTorch): 53, of
// 23 kinds. 32 pictures, bf16.
std::vector<ConvShape> ResNetConvolutions();

// Of each of ResNetConvolutions "conv_forward_" and "conv_step_", which is with both gradients.
// Sizes are divided by `divisor`, for tests; names are those of the whole sizes.
std::vector<GpuProgram> ConvolutionPrograms(int64_t divisor);

// Times of ConvolutionPrograms.
// Errors: those of the device
absl::StatusOr<std::vector<DeviceTimes>> MeasureGpuPrograms(runtime::Device& device,
                                                            const GpuTrial& trial,
                                                            int64_t divisor);

// PyTorch's seconds for all convolutions of the network by ours: of times whose names begin with
// `prefix`, each as often as the network has such layers. 0 where one of them has no peer.
double ConvolutionsRatio(const std::vector<DeviceTimes>& ours,
                         const std::map<std::string, double>& torch, const std::string& prefix,
                         double DeviceTimes::*seconds = &DeviceTimes::seconds);

}  // namespace outboard::bench
