// Attention of keys and values of 8 bits, and of queries, on an NVIDIA GPU: unpacked by the kernel
// that multiplies with them, without scores in memory, in parts where queries are few. All kernels
// of a schedule on the PTX machine, against the reference interpreter.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "compiler/ir/dtype.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

class PackedAttention : public testing::TestWithParam<KeysForm> {};

TEST_P(PackedAttention, AToken) {
  CheckCase({.heads = 1, .form = GetParam()}, {1, 17, 300, 512}, 2);
}

TEST_P(PackedAttention, APrompt) {
  CheckCase({.heads = 1, .queries = 72, .keys = 200, .form = GetParam(), .causal = true}, {72, 200},
            0);
}

// Heads that share keys: what is unpacked is not stored for them, either.
TEST_P(PackedAttention, AGroup) {
  CheckCase({.heads = 1, .queries = 8, .keys = 256, .form = GetParam()}, {200}, 0);
}

INSTANTIATE_TEST_SUITE_P(All, PackedAttention,
                         testing::Values(KeysForm::kScaledInF32, KeysForm::kScaledIn16,
                                         KeysForm::kByBlocks, KeysForm::kFromZero,
                                         KeysForm::kFromZeroAlone, KeysForm::kScaledAfter,
                                         KeysForm::kScaledWeights));

TEST(PackedAttentionOf, F16) {
  AttentionProgram c{.keys = 300,
                  .width = 128,
                  .dtype = DType::kF16,
                  .of_keys = DType::kF16,
                  .form = KeysForm::kScaledInF32,
                  .least = -1};
  CheckCase(c, {300}, 2, "sm_80");
  // Weights times scales may be larger than any f16 before they are divided: no parts, two passes.
  c.form = KeysForm::kScaledWeights;
  c.heads = 1;
  c.queries = 72;
  c.width = 64;
  Graph graph;
  const RecordedResults recorded = RecordCase(graph, c, c.keys);
  const GpuSchedule gpu(recorded.sink, "sm_80");
  EXPECT_EQ(gpu.KernelsWithScores(), 1) << gpu.ToString();
  gpu.ExpectAsInterpreted(recorded.sink, recorded.bindings, kAttentionTolerance);
}

// Three products of TF32.
TEST(PackedAttentionOf, F32) {
  AttentionProgram c{.heads = 1, .keys = 200, .dtype = DType::kF32, .of_keys = DType::kF32};
  for (const KeysForm form :
       {KeysForm::kScaledInF32, KeysForm::kFromZeroAlone, KeysForm::kScaledWeights}) {
    c.form = form;
    CheckCase(c, {1, 200}, 0);
    if (HasFailure()) return;
  }
  c.queries = 72;
  c.keys = 130;
  c.causal = true;
  for (const KeysForm form : {KeysForm::kFromZero, KeysForm::kScaledAfter}) {
    c.form = form;
    CheckCase(c, {72, 130}, 0);
    if (HasFailure()) return;
  }
}

// Keys lie side by side: the end of the steps is somewhere among what a thread unpacks at once.
TEST(PackedAttentionOf, KeysSideBySide) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const KeysForm form : {KeysForm::kScaledInF32, KeysForm::kFromZeroAlone}) {
      AttentionProgram c{.heads = 1, .keys = 205, .dtype = dtype, .of_keys = dtype, .form = form};
      c.transposed = true;
      CheckCase(c, {1, 67, 205}, 2);
      if (HasFailure()) return;
      if (dtype == DType::kF32) continue;
      c.queries = 72;
      c.keys = 150;
      CheckCase(c, {1, 67, 150}, 0);
      if (HasFailure()) return;
    }
}

// With more keys queries are unpacked once, by a kernel of their own.
TEST(PackedAttentionOf, Queries) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const KeysForm form : {KeysForm::kAsTheyAre, KeysForm::kFromZeroAlone}) {
      AttentionProgram c{.heads = 1, .queries = 5, .keys = 200, .dtype = dtype, .of_keys = dtype};
      c.form = form;
      c.packed_queries = true;
      CheckCase(c, {1, 200}, 2);
      if (HasFailure()) return;
      if (dtype == DType::kF32) continue;
      c.queries = 72;
      c.keys = 130;
      CheckCase(c, {1, 130}, 0);
      if (HasFailure()) return;
    }
}

// What is packed is read once, 8 bytes at a time, and nothing spills. Sectors: a part's keys are as
// many keys apart as there are parts, and so are their scales: each is a sector of its own, which
// the next block finds in the device's cache. Three for a key, where 2.125 hold what is counted.
TEST(PackedAttentionOf, KeysAreReadOnce) {
  const AttentionProgram c{.heads = 1, .keys = 8192, .form = KeysForm::kScaledInF32};
  Graph graph;
  const RecordedResults recorded = RecordCase(graph, c, c.keys);
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  ASSERT_EQ(gpu.compiled().size(), 2u) << gpu.ToString();
  const std::string& ptx = gpu.compiled()[0].object;
  EXPECT_TRUE(absl::StrContains(ptx, "ld.global.nc.v2.b32")) << "8 numbers of 8 bits at a time";
  EXPECT_FALSE(absl::StrContains(ptx, ".local"));
  if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
    const auto assembled = AssembleKernel(ptxas, ptx, "sm_90a");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->stack_bytes + assembled->spill_bytes, 0);
    std::printf("%lld registers, %lld blocks\n", static_cast<long long>(assembled->registers),
                static_cast<long long>(gpu.compiled()[0].blocks[0]));
  }
  const GpuSchedule kept(recorded.sink, "sm_90a", schedule::ScorePolicy::kKeep);
  std::printf("%zu launches, %lld bytes stored; with scores kept %zu, %lld\n",
              gpu.compiled().size(), static_cast<long long>(gpu.StoredBytes()),
              kept.compiled().size(), static_cast<long long>(kept.StoredBytes()));
  EXPECT_LT(gpu.StoredBytes(), kept.StoredBytes());
  MachineCounts counts;
  gpu.Run(SmallInputs(recorded.sink), VarsOf(recorded.bindings), &counts, 0);
  const double packed = static_cast<double>(2 * c.keys * (c.width + 4)) / 32;
  std::printf("sectors %.3f of those of keys, values and scales; %llu instructions\n",
              static_cast<double>(counts.global_sectors) / packed,
              static_cast<unsigned long long>(counts.warp_instructions));
  EXPECT_LT(static_cast<double>(counts.global_sectors), 1.5 * packed);
}

}  // namespace
}  // namespace outboard::test
