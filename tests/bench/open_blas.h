// Debian's OpenBLAS, loaded at run time where it is installed, as a peer to measure against.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::bench {

class OpenBlas {
 public:
  // Must come before anything else of the process loads OpenBLAS: it looks at its environment once.
  // Version 0.3.21 takes recent Xeons for a Prescott, so that on a processor with AVX-512 it is
  // told to take it for a SkylakeX. Errors: NOT_FOUND, it is not installed.
  static absl::StatusOr<std::unique_ptr<OpenBlas>> Load(int threads);

  // c[n,n] = a[n,n] * b[n,n], row-major.
  void MatMul(int n, const float* a, const float* b, float* c) const;
  // Its own words for the processor it is made for and how it is built.
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
