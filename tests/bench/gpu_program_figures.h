// Whole programs on the CUDA device that is there, against PyTorch's in the same run
// (torch_gpu.py): cuda_mnist_step_vs_torch, cuda_conv_resnet50_vs_torch,
// cuda_decode_1b5_vs_torch_compile and cuda_decode_1b5_of_bound. Kernels alone, without BEAM, with
// neither gateway nor worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/bench/gpu_device_figures.h"

namespace outboard::bench {

struct ConvShape {
  int64_t channels, side, filters, kernel, stride;  // square pictures, padding kernel / 2
  std::string Name() const;                         // "conv_256x56x64_1_1"
};
// Of ResNet-50 (He et al., 2015), one of each kind of its layers; 32 pictures, bf16.
std::vector<ConvShape> ResNetConvolutions();

// Times: "mnist_step" (512 pictures, f32), those of ResNetConvolutions, and "decode_1b5": one token
// by the products of 48 layers of width 1,600, bf16, without attention over the tokens before,
// which is little beside them while these are few. One figure: cuda_decode_1b5_of_bound, by the
// time that a copy within the device takes to move as many bytes. Sizes are divided by `divisor`,
// for tests; names are those of the whole sizes.
// Errors: those of the device
absl::StatusOr<DeviceMeasured> MeasureGpuPrograms(runtime::Device& device, int repeats,
                                                  int64_t divisor);

}  // namespace outboard::bench
