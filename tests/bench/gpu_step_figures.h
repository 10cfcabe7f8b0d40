// Training steps on the CUDA device that is there, as worker's engine runs them, but in this
// process, with their host on both sides (torch_gpu.py in the same run). Of GPT-2 124M (Radford et
// al., 2019), bf16 products, weights of f32, AdamW: cuda_gpt2_124m_step_vs_torch_compile,
// cuda_gpt2_124m_step_vs_torch_eager and cuda_gpt2_124m_mfu. Of MNIST's network in f32:
// cuda_mnist_step_vs_torch and cuda_mnist_step_vs_torch_eager.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/examples/gpt.h"
#include "runtime/device.h"
#include "tests/bench/gpu_engine_session.h"

namespace outboard::bench {

struct GptStep {
  std::string name;  // as torch_gpu.py prints it
  examples::GptOptions options;
  int64_t batch = 0;  // passages of options.context tokens
};
// "gpt2_step" (8 passages) and "gpt2_step_32".
std::vector<GptStep> Gpt2Steps();
// The same step of a network so small that the tests' driver computes it in a second.
GptStep SmallStep(GptStep step);

// Seconds of one step: the median of kRounds rounds, each the mean of `steps` of them, after two
// others; then the same after BEAM of the kernels that take most time, for `search_seconds`: the
// device's work and that of its host, which overlap. The loss is read at the end of a round, and
// has to be a number.
// Errors: those of the session and the device; INTERNAL  the loss is none
inline constexpr int kRounds = 5;
absl::StatusOr<SessionTimes> MeasureGptStep(const GptStep& step, int steps,
                                            double search_seconds);

// The same of client/examples/mnist.h.
struct MnistSizes {
  int64_t pictures = 60000, batch = 512;
  int rounds = kRounds;
};
absl::StatusOr<SessionTimes> MeasureMnistStep(const MnistSizes& sizes, int steps,
                                              double search_seconds);

// Floating-point operations that one step is counted as: 6 for each weight of a product and token
// (forward and backward), and 12 x width x context for each layer and token for attention without
// regard to the mask (Chowdhery et al., 2022, appendix B). Embeddings that are looked up count
// nothing, the product with the logits does.
double ModelFlops(const GptStep& step);

// Of products of bf16 with sums in f32, without sparsity, as NVIDIA's data sheets say it for this
// class of device; 0: not known.
double PeakBf16Flops(const runtime::DeviceProperties& properties);

}  // namespace outboard::bench
