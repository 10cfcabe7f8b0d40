// The small driver of fake_cuda_driver.cc, as tests see it: its counters and switches, and kernels
// that it runs.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "compiler/compiled_kernel.h"
#include "gtest/gtest.h"

namespace outboard::cuda {

template <typename F>
F* Symbol(const char* name) {
  void* const library = dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr);
  return reinterpret_cast<F*>(dlsym(library, name));
}
inline void Set(const char* name, int64_t value) {
  Symbol<void(const char*, int64_t)>("outboard_fake_set")(name, value);
}
inline int64_t Get(const char* name) {
  return Symbol<int64_t(const char*)>("outboard_fake_get")(name);
}

// value = 3 * value + 1, or + VAR 0.
inline CompiledKernel Kernel(const std::string& symbol = "k", bool reads_vars = false) {
  CompiledKernel kernel;
  kernel.form = CompiledKernel::Form::kPtx;
  kernel.symbol = symbol;
  kernel.tasks = 1;
  kernel.buffer_count = 1;
  kernel.reads_vars = reads_vars;
  kernel.object = ".visible .entry " + symbol + "(.param .u64 a" +
                  (reads_vars ? ", .param .u64 vars)" : ")") + " { ret; }";
  return kernel;
}

}  // namespace outboard::cuda
