// Kernels that one launch runs several copies of (compiler/copies.h), on the PTX machine, against a
// walk of the kernel.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/uop.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

// `sink` is what each of the kernel's copies computes, from random numbers of its own.
inline void ExpectEachCopyIsTheWalk(const UOp* sink, const CompiledKernel& kernel, uint32_t seed,
                                    double tolerance) {
  Buffers all;
  std::vector<Buffers> want;
  for (int copy = 0; copy < kernel.copies; ++copy) {
    want.push_back(RandomBuffers(sink, seed + 100 * static_cast<uint32_t>(copy)));
    want.back().resize(static_cast<size_t>(kernel.buffer_count));
    all.insert(all.end(), want.back().begin(), want.back().end());
    ASSERT_EQ(WalkKernel(sink, want.back()), absl::OkStatus());
  }
  const absl::Status ran = RunOnPtxMachine(kernel, all, {}, seed);
  ASSERT_TRUE(ran.ok()) << ran << kernel.object;
  for (int copy = 0; copy < kernel.copies; ++copy) {
    SCOPED_TRACE(absl::StrCat("copy ", copy));
    const auto begin = all.begin() + copy * kernel.buffer_count;
    ExpectClose(sink, Buffers(begin, begin + kernel.buffer_count), want[static_cast<size_t>(copy)],
                tolerance);
  }
}

}  // namespace outboard::test
