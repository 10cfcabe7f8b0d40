// Programs rendered as PTX: run on the PTX machine against the interpreter of programs, and
// assembled where there is an assembler.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/program/interpret.h"
#include "compiler/program/program.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

inline constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_90a"};
inline constexpr int kMultiprocessors = 132;

inline absl::StatusOr<CompiledKernel> Rendered(const program::Program& program,
                                               const std::string& arch = "sm_90") {
  OB_ASSIGN_OR_RETURN(const auto renderer,
                      render::MakePtxRenderer(CudaTarget(arch, kMultiprocessors)));
  return renderer->Render(program, "k");
}

// What no kernel may contain: memory of a thread's own, and accesses to an address whose memory is
// not known.
// A reciprocal may be the unit's: divide_floats.cc proves what becomes of its error. An exponential
// may be, where `exponentials_by_unit`: of floats of 16 bits or fewer, within what
// docs/semantics.md allows.
inline void ExpectClean(const std::string& ptx, bool exponentials_by_unit = false) {
  EXPECT_FALSE(absl::StrContains(ptx, ".local")) << ptx;
  for (const absl::string_view line : absl::StrSplit(ptx, '\n')) {
    if (!absl::StartsWith(line, "\trcp.approx.ftz.") &&
        !(exponentials_by_unit && absl::StartsWith(line, "\tex2.approx."))) {
      EXPECT_FALSE(absl::StrContains(line, ".ftz")) << ptx;
      EXPECT_FALSE(absl::StrContains(line, ".approx")) << ptx;
    }
    const bool access = absl::StrContains(line, "\tld.") || absl::StrContains(line, "\tst.");
    const bool known = absl::StrContains(line, ".global") || absl::StrContains(line, ".shared") ||
                       absl::StrContains(line, ".param");
    EXPECT_TRUE(!access || known) << line;
  }
}

// On each kind of GPU, from the same bytes of buffers, with equal results. `assembled`: also by
// NVIDIA's assembler, where there is one.
inline void ExpectRunsAsInterpreted(const program::Program& program, const Buffers& start,
                                    const std::vector<int64_t>& vars = {},
                                    absl::Span<const char* const> archs = kArchs,
                                    bool assembled = true) {
  Buffers want = start;
  const program::RunReport report = program::Interpret(program, want, vars);
  ASSERT_TRUE(report.ok()) << report.message << ToString(program);
  const std::string ptxas = assembled ? FindPtxas() : "";
  for (const char* const arch : archs) {
    const auto compiled = Rendered(program, arch);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ExpectClean(compiled->object);
    Buffers got = start;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, vars);
    ASSERT_TRUE(ran.ok()) << ran << "\n" << compiled->object;
    EXPECT_EQ(got, want) << ToString(program) << compiled->object;
    if (ptxas.empty()) continue;
    const auto stack_bytes = StackBytesOf(ptxas, compiled->object, arch);
    ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
    EXPECT_EQ(*stack_bytes, 0) << arch;
  }
}

// Small numbers as the bytes of a buffer of f32.
inline std::string Floats(int64_t count, float step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = step * static_cast<float>(i % 31 - 7);
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace outboard::test
