// Debian's OpenBLAS, loaded at run time where it is installed, as a peer to measure against.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::bench {

class OpenBlas {
 public:
  // Must be called before anything else in the process loads OpenBLAS, which reads its environment
  // once. Version 0.3.21 detects recent Xeons as Prescott, so on a processor with AVX-512 this
  // selects SkylakeX. Errors: NOT_FOUND, it is not installed.
  static absl::StatusOr<std::unique_ptr<OpenBlas>> Load(int threads);

  // c[n,n] = a[n,n] * b[n,n], row-major.
  void MatMul(int n, const float* a, const float* b, float* c) const;
  // Returns OpenBLAS's own description of its target processor and build.
  const std::string& config() const { return config_; }

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);
  OpenBlas(Sgemm sgemm, std::string config) : sgemm_(sgemm), config_(std::move(config)) {}

  Sgemm sgemm_;
  std::string config_;
};

}  // namespace outboard::bench
