// Compiled kernels against a walk of their expression: the check that the tests of the code
// generator share. With OUTBOARD_CHECK_PTX=sm_90 the kernels are PTX for that GPU, run on the PTX
// machine.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

// Buffers of random elements for the kernel's slots. Small floats, so that sums stay exact enough
// to compare; every bit pattern where `wild`.
inline Buffers RandomBuffers(const UOp* sink, uint32_t seed, bool wild = false) {
  std::mt19937_64 random(seed);
  Buffers buffers;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node).slot());
    if (buffers.size() <= slot) buffers.resize(slot + 1);
    const int width = ByteWidth(node->dtype);
    std::string& bytes = buffers[slot];
    bytes.resize(GlobalOf(node).elements() * width);
    for (int64_t i = 0; i < GlobalOf(node).elements(); ++i) {
      char* const at = bytes.data() + i * width;
      const auto bits = random();
      if (IsFloat(node->dtype) && !wild) {
        StoreFloat(node->dtype, static_cast<double>(static_cast<int>(bits % 33) - 16) / 8, at);
      } else if (IsBool(node->dtype)) {
        *at = static_cast<char>(bits & 1);
      } else {
        std::memcpy(at, &bits, width);
        // Corners are rare among random bits.
        const int64_t corners[] = {0, 1, -1, IntMin(node->dtype)};
        if (!IsFloat(node->dtype) && bits >> 60 < 6)
          StoreInt(node->dtype, corners[bits >> 32 & 3], at);
        if (IsFloat(node->dtype) && bits >> 60 < 6) {
          const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.5, 3e9};
          StoreFloat(node->dtype, RoundTo(node->dtype, special[bits >> 32 & 7]), at);
        }
      }
    }
  }
  return buffers;
}

inline void ExpectClose(const UOp* sink, const Buffers& got, const Buffers& want,
                        double tolerance) {
  for (const UOp* node : PostOrder(sink)) {
    if (node->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node).slot());
    const int width = ByteWidth(node->dtype);
    for (int64_t i = 0; i < GlobalOf(node).elements(); ++i) {
      const char *a = got[slot].data() + i * width, *b = want[slot].data() + i * width;
      if (IsFloat(node->dtype)) {
        const double x = LoadFloat(node->dtype, a), y = LoadFloat(node->dtype, b);
        if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
        ASSERT_LE(std::abs(x - y), tolerance * std::max(1.0, std::abs(y)))
            << "slot " << slot << " element " << i << " got " << x << " want " << y << "\n"
            << GraphToString(sink);
      } else {
        ASSERT_EQ(LoadInt(node->dtype, a), LoadInt(node->dtype, b))
            << "slot " << slot << " element " << i << "\n"
            << GraphToString(sink);
      }
    }
  }
}

// Older processors: one without masks (256-bit vectors), one without most features.
inline const CompileOptions kOldOptions[] = {{.cpu = "haswell"}, {.cpu = "x86-64"}};

inline void CheckPtx(const UOp* sink, const std::string& arch, const Buffers& start,
                     const Buffers& want, double tolerance) {
  for (const bool no_opt : {false, true}) {
    CompileOptions options{.target = CudaTarget(arch, /*multiprocessors=*/132), .no_opt = no_opt};
    const auto compiled = CompileKernel(sink, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << GraphToString(sink);
    ASSERT_EQ(compiled->object.find(".local"), std::string::npos) << compiled->object;
    Buffers got = start;
    const absl::Status ran = RunOnPtxMachine(*compiled, got);
    ASSERT_TRUE(ran.ok()) << ran << "\n" << compiled->object;
    ExpectClose(sink, got, want, tolerance);
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << compiled->object;
      return;
    }
  }
}

// Compiles, runs in one and in three pieces, and with no_opt; compares all with the walk.
inline void Check(const UOp* sink, double tolerance = 0, bool wild = false, uint32_t seed = 1) {
  if (::testing::Test::HasFatalFailure()) return;
  const Buffers start = RandomBuffers(sink, seed, wild);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus()) << GraphToString(sink);
  if (const char* const arch = std::getenv("OUTBOARD_CHECK_PTX"); arch != nullptr) {
    CheckPtx(sink, arch, start, want, tolerance);
    return;
  }
  std::vector<CompileOptions> all = {{.no_opt = true}, {}};
  all.insert(all.end(), std::begin(kOldOptions), std::end(kOldOptions));
  for (const CompileOptions& options : all) {
    auto compiled = CompileKernel(sink, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << GraphToString(sink);
    EXPECT_EQ(compiled->buffer_count, static_cast<int>(start.size()));
    auto loaded = LoadedKernel::Load(*std::move(compiled));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    Buffers first = start;
    (*loaded)->RunGuarded(first, 1);
    ExpectClose(sink, first, want, tolerance);
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "no_opt " << options.no_opt << " cpu \"" << options.cpu << "\" seed "
                    << seed;
      return;
    }
    Buffers split = start;
    (*loaded)->RunGuarded(split, 3);
    ASSERT_EQ(split, first) << "the split of tasks changes bits, cpu " << options.cpu;
  }
}

}  // namespace outboard::test
