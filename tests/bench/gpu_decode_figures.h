// Writing one token after the other with a model of GPT-2's kind and 1.5 thousand million
// parameters (GPT-2 XL: Radford et al., 2019) on the CUDA device that is there, one text at a time,
// bf16: the embedding, norms, products, attention over a cache of keys and values, and the product
// with the vocabulary, in a worker's engine. cuda_decode_1b5_of_bound and, by torch_gpu.py in the
// same run, cuda_decode_1b5_vs_torch_compile.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "tests/bench/gpu_engine_session.h"

namespace outboard::bench {

// The model, and what is written with it.
struct DecodeModel {
  int64_t layers = 48, width = 1600, heads = 25, vocabulary = 50257;
  int64_t context = 1024;  // that the caches have room for
  // The last of the context, which are written in each of kDecodeRounds rounds.
  int64_t tokens = 64;

  // Of matrices that each token reads, bf16: those of the layers, and the logits'.
  int64_t WeightBytes() const { return (layers * 12 * width + vocabulary) * width * 2; }
};
inline constexpr int kDecodeRounds = 5;

// What MeasureDecode returns.
struct DecodeMeasured {
  SessionTimes token;         // medians of rounds
  double copied_per_s = 0;    // bytes that a copy within the device reads and writes
  int64_t compiled_late = 0;  // plans that were made after the first round: 0, or it is no decoding
};

// Errors: those of the session and the device; INTERNAL  a token is none of the vocabulary
absl::StatusOr<DecodeMeasured> MeasureDecode(const DecodeModel& model, double search_seconds);

}  // namespace outboard::bench
