// Debian's oneDNN, loaded at run time where it is installed, as a peer to measure against.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace outboard::bench {

// Version 2.6, which knows AMX. It runs on OpenMP's threads.
class OneDnn {
 public:
  // Errors: NOT_FOUND, it is not installed.
  static absl::StatusOr<std::unique_ptr<OneDnn>> Load(int threads);

  // A call that computes c[n,n] = a[n,n] * b[n,n] of bf16, row-major, as often as it is called.
  // What oneDNN prepares once for a shape is prepared here. It may be called as long as the OneDnn
  // lives.
  std::function<void()> MatMul(int64_t n, uint16_t* a, uint16_t* b, uint16_t* c);

 private:
  OneDnn() = default;

  void* library_ = nullptr;
  void* engine_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace outboard::bench
