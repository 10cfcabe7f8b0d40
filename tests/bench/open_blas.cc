#include "tests/bench/open_blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::bench {
namespace {

constexpr char kLibrary[] = "libopenblas.so.0";
constexpr int kRowMajor = 101, kNoTranspose = 111;  // cblas.h

template <typename F>
F* Find(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OpenBlas>> OpenBlas::Load(int threads) {
  if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SkylakeX", /*replace=*/0);
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(absl::StrCat(kLibrary, " is not installed (libopenblas0-pthread)"));
  auto* const sgemm = Find<std::remove_pointer_t<Sgemm>>(library, "cblas_sgemm");
  auto* const set_threads = Find<void(int)>(library, "openblas_set_num_threads");
  auto* const config = Find<char*()>(library, "openblas_get_config");
  if (sgemm == nullptr || set_threads == nullptr || config == nullptr)
    return absl::NotFoundError(absl::StrCat(kLibrary, " lacks a function"));
  set_threads(threads);
  return std::unique_ptr<OpenBlas>(new OpenBlas(sgemm, config()));
}

void OpenBlas::MatMul(int n, const float* a, const float* b, float* c) const {
  sgemm_(kRowMajor, kNoTranspose, kNoTranspose, n, n, n, 1, a, n, b, n, 0, c, n);
}

}  // namespace outboard::bench
