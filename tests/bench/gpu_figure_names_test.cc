// Every figure of GPUs that is promised is reported, or listed as skipped with the reason: without
// a GPU, and without NVIDIA's assembler.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/gpu_groups.h"
#include "tests/bench/gpu_kernel_figures.h"
#include "tests/bench/gpu_memory_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/report.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/support/command_output.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {
namespace {

struct Listed {
  std::set<std::string> reported, skipped;
};

// What `group` prints.
Listed NamesOf(const std::function<void()>& group) {
  report_json = true;
  testing::internal::CaptureStdout();
  group();
  const std::string said = testing::internal::GetCapturedStdout();
  constexpr char kStart[] = "{\"figure\": \"";
  Listed listed;
  for (const absl::string_view line : absl::StrSplit(said, '\n', absl::SkipEmpty())) {
    EXPECT_TRUE(absl::StartsWith(line, kStart)) << line;
    const absl::string_view rest = line.substr(sizeof kStart - 1);
    const std::string name(rest.substr(0, rest.find('"')));
    const bool skipped = absl::StrContains(line, "\"skipped\": \"");
    EXPECT_FALSE(absl::StrContains(line, "\"skipped\": \"\"")) << "without a reason: " << line;
    EXPECT_TRUE((skipped ? listed.skipped : listed.reported).insert(name).second) << name;
  }
  for (const std::string& name : listed.skipped)
    EXPECT_FALSE(listed.reported.contains(name)) << name << " is reported and skipped";
  return listed;
}

// Of one group of scripts/gpu-checks; the goals are beside the names.
struct GroupNames {
  const char* group;
  std::function<void()> run;
  std::set<std::string> names;
};

std::set<std::string> DeviceNames() {
  std::set<std::string> names = {
      "cuda_matmul_bf16_8192_vs_torch",           // 0.9
      "cuda_matmul_bf16_8192_vs_torch_nobeam",    // 0.75
      "cuda_matmul_bf16_8192_mma_sync_vs_torch",  // 0.5
      "cuda_matmul_fp32_8192_vs_torch",           // 1.5, and
      "cuda_matmul_fp32_8192_error_vs_torch",     // no larger error
      "cuda_matmul_fp32_8192_vs_torch_nobeam",
      "cuda_matmul_fp8_8192_vs_torch",  // 0.8
      "cuda_matmul_fp8_8192_vs_torch_nobeam",
      "cuda_graph_us_per_kernel",  // at most 1.6
      "cuda_host_us_per_step",     // at most 50
      "cuda_beam_matmul_8192_s",   // at most 20
      "cuda_upload_gb_per_s",      // 10
      "cuda_park_gb_per_s",        // 10
      "cuda_scrub_s",              // at most 1
      "cuda_snapshot_slowdown",    // at most 1.05
  };
  for (const std::string stream : {"elementwise", "reduce", "softmax", "layer_norm", "adamw"}) {
    names.insert(absl::StrCat("cuda_stream_ratio_", stream));               // 0.92
    names.insert(absl::StrCat("cuda_stream_", stream, "_vs_torch_compile"));  // 1.1
  }
  for (const std::string type : {"bf16", "bf16_mma_sync", "fp32", "fp8"})
    names.insert(absl::StrCat("cuda_matmul_", type, "_8192_tflops"));
  return names;
}

// Those whose sizes may be small.
std::vector<GroupNames> SizedGroups(GroupSize size) {
  return {
      {"gpu_device", [=] { GpuDeviceGroup(size); }, DeviceNames()},
      {"gpu_shapes",
       [=] { GpuShapesGroup(size); },
       {"cuda_matmul_shapes_vs_torch", "cuda_attention_forward_vs_torch",
        "cuda_attention_backward_vs_torch", "cuda_attention_backward_equal_bits",
        "cuda_attention_backward_equal_bits_beam"}},
      {"gpu_programs",
       [=] { GpuProgramsGroup(size); },
       {"cuda_mnist_step_vs_torch", "cuda_mnist_step_vs_torch_eager", "cuda_conv_resnet50_vs_torch",
        "cuda_conv_resnet50_forward_vs_torch", "cuda_decode_1b5_of_bound",
        "cuda_decode_1b5_vs_torch_compile"}},
      {"gpu_steps",
       [=] { GpuStepsGroup(size); },
       {"cuda_gpt2_124m_step_vs_torch_compile", "cuda_gpt2_124m_step_vs_torch_eager",
        "cuda_gpt2_124m_mfu"}},
  };
}

void ExpectAllSkipped() {
  setenv("OUTBOARD_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
  std::vector<GroupNames> groups = SizedGroups(GroupSize::kWhole);
  const std::vector<GroupNames> others = {
      {"gpu_tests",
       GpuTestsGroup,
       {"cuda_device_tests_ratio", "cuda_emulator_conformance", "cuda_sanitizer_errors"}},
      {"gpu_service",
       GpuServiceGroup,
       {"cuda_step_extra_us", "cuda_first_step_s_mnist_cold", "cuda_first_step_s_mnist_warm",
        "cuda_first_step_s_gpt2_cold", "cuda_first_step_s_gpt2_warm"}},
  };
  groups.insert(groups.end(), others.begin(), others.end());
  for (const GroupNames& group : groups) {
    const std::vector<std::string> known = GpuFigureNames(group.group);
    EXPECT_EQ(std::set<std::string>(known.begin(), known.end()), group.names) << group.group;
    const Listed listed = NamesOf(group.run);
    EXPECT_EQ(listed.skipped, group.names) << group.group;
    EXPECT_TRUE(listed.reported.empty()) << group.group;
  }
}

// The names of a part in which "{a,b}" stands for either.
std::vector<std::string> Expanded(const std::string& part) {
  const size_t open = part.find('{'), close = part.find('}');
  if (open == std::string::npos || close == std::string::npos) return {part};
  std::vector<std::string> names;
  for (const absl::string_view each :
       absl::StrSplit(part.substr(open + 1, close - open - 1), ','))
    for (const std::string& name :
         Expanded(absl::StrCat(part.substr(0, open), each, part.substr(close + 1))))
      names.push_back(name);
  return names;
}

// Of the table in docs/gpu-checks.md: "| `group` | `figure`, ... | why there |".
TEST(GpuFigureNames, OfTheDocument_AreThoseOfEachGroup) {
  std::ifstream document(test::SourceFile("docs/gpu-checks.md"));
  std::set<std::string> groups;
  for (std::string line; std::getline(document, line);) {
    if (!absl::StartsWith(line, "| `gpu_")) continue;
    const std::vector<std::string> columns = absl::StrSplit(line, '|');
    ASSERT_GE(columns.size(), 4u) << line;
    const std::vector<std::string> first = absl::StrSplit(columns[1], '`');
    const std::vector<std::string> parts = absl::StrSplit(columns[2], '`');
    ASSERT_EQ(first.size(), 3u) << line;
    std::set<std::string> named;
    for (size_t i = 1; i < parts.size(); i += 2)
      for (const std::string& name : Expanded(parts[i]))
        EXPECT_TRUE(named.insert(name).second) << name << " twice";
    const std::vector<std::string> known = GpuFigureNames(first[1]);
    EXPECT_EQ(named, std::set<std::string>(known.begin(), known.end())) << first[1];
    groups.insert(first[1]);
  }
  EXPECT_EQ(groups, (std::set<std::string>{"gpu_tests", "gpu_steps", "gpu_device", "gpu_shapes",
                                           "gpu_programs", "gpu_service"}));
}

// In a process of its own: a driver is looked for once in each.
TEST(GpuFigureNamesDeathTest, WithoutAGpu_EachIsSkippedByName) {
  const auto check = [] {
    ExpectAllSkipped();
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

// On the tests' own driver, with a PyTorch that takes a second for everything. A group each:
// ctest has an entry for each.
class GpuFigureNamesOfAGroup : public testing::TestWithParam<size_t> {};

TEST_P(GpuFigureNamesOfAGroup, WithAGpu_EachIsReported) {
  const test::TempFolder folder;
  std::ofstream(folder / "torch_gpu.py")
      << "import subprocess, sys\n"
      << "names = subprocess.run([sys.executable, '" << test::kBenchFolder
      << "/torch_gpu.py', '--names', sys.argv[1]], capture_output=True, text=True)\n"
      << "print(*(name + ' 1.0' for name in names.stdout.split()), sep='\\n')\n";
  const GroupNames group = SizedGroups(GroupSize::kSmall)[GetParam()];
  // 48 programs share it in gpu_shapes; one of the attentions' gradients must be searched.
  const char* const search_seconds = group.names.contains("cuda_attention_backward_equal_bits_beam")
                                         ? "20"
                                         : "2";
  for (const auto& [name, value] : {std::pair("OUTBOARD_CUDA_DRIVER", std::string(test::kFakeCuda)),
                                    {"OUTBOARD_FAKE_CUDA_RUNS", "1"},
                                    {"OUTBOARD_FAKE_CUDA_MIB", "64"},
                                    {"OUTBOARD_GPU_SEARCH_SECONDS", search_seconds},
                                    {"OUTBOARD_TORCH_PYTHON", "python3"},
                                    {"OUTBOARD_BENCH_SOURCES", folder.path()}})
    setenv(name, value.c_str(), 1);
  const Listed listed = NamesOf(group.run);
  std::set<std::string> all = group.names;
  // The peak of this device is not known.
  if (all.erase("cuda_gpt2_124m_mfu") > 0)
    EXPECT_EQ(listed.skipped, (std::set<std::string>{"cuda_gpt2_124m_mfu"}));
  else
    EXPECT_TRUE(listed.skipped.empty()) << group.group << " skips " << *listed.skipped.begin();
  EXPECT_EQ(listed.reported, all) << group.group;
}

INSTANTIATE_TEST_SUITE_P(Groups, GpuFigureNamesOfAGroup, testing::Range<size_t>(0, 4),
                         [](const auto& info) {
                           return SizedGroups(GroupSize::kSmall)[info.param].group;
                         });

TEST(GpuFigureNames, SecondsOfTheSearchThatAreNoNumber_AreRefused) {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  for (const std::string seconds : {"abc", "inf", "nan", "-1", ""}) {
    setenv("OUTBOARD_GPU_SEARCH_SECONDS", seconds.c_str(), 1);
    report_json = true;
    testing::internal::CaptureStdout();
    GpuStepsGroup(GroupSize::kSmall);
    const std::string said = testing::internal::GetCapturedStdout();
    EXPECT_NE(said.find("no number of seconds: " + seconds + "\"}"), std::string::npos) << said;
  }
  unsetenv("OUTBOARD_GPU_SEARCH_SECONDS");
}

TEST(GpuFigureNames, WhatIsNoNumber_IsNoJson) {
  for (const auto& [value, name] : {std::pair(INFINITY, "inf"), {-INFINITY, "-inf"}}) {
    testing::internal::CaptureStdout();
    report_json = true;
    Report("one", value, "s");
    EXPECT_EQ(testing::internal::GetCapturedStdout(),
              absl::StrCat("{\"figure\": \"one\", \"skipped\": \"its value is ", name, "\"}\n"));
  }
  testing::internal::CaptureStdout();
  Report("one", NAN, "s");
  EXPECT_TRUE(absl::StrContains(testing::internal::GetCapturedStdout(), "skipped"));
}

// scripts/gpu-checks with a stand-in for the benchmark, which reports one figure and half of
// another, and hangs.
TEST(GpuFigureNames, AGroupThatIsEnded_ListsWhatItHasNotReported) {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "bin");
  const std::string script = folder / "gpu-checks", program = folder / "bin/outboard_bench";
  std::filesystem::copy_file(test::SourceFile("scripts/gpu-checks"), script);
  std::ofstream(program) << "#!/bin/bash\n"
                            "[[ $1 != --list-figures ]] || { printf '%s\\n' a ab c; exit; }\n"
                            "echo '{\"figure\": \"ab\", \"value\": 1}'\n"
                            "printf '{\"figure\": \"c\", \"val'\n"
                            "sleep 60\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string run = "OUTBOARD_TORCH_PYTHON=none OUTBOARD_GPU_GROUP_SECONDS=1 bash " + script;
  const absl::StatusOr<std::string> said =
      test::OutputOf(run + " gpu_steps 2>/dev/null && echo wrong || echo exits with $?");
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(*said,
            "{\"figure\": \"ab\", \"value\": 1}\n"
            "{\"figure\": \"c\", \"val\n"
            "{\"figure\": \"a\", \"skipped\": \"the group was ended after 1 s\"}\n"
            "{\"figure\": \"c\", \"skipped\": \"the group was ended after 1 s\"}\n"
            "exits with 1\n");
  EXPECT_FALSE(test::OutputOf(run + " --search-seconds abc").ok());
}

// A name that is none would count as a failed test on a machine that has the bundle alone.
TEST(GpuFigureNames, TestsOfTheDevice_AreBuilt) {
  EXPECT_FALSE(DeviceTestPrograms().empty());
  for (const std::string& name : DeviceTestPrograms())
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(test::kBuildFolder, "/tests/", name))) << name;
}

// Of machine code; the goals are beside the names.
const std::set<std::string> kOfCode = {
    "ptx_instructions_per_hmma",  // at most 3.0
    "ptx_instructions_per_hmma_f32",
    "ptx_instructions_per_hmma_conv",
    "ptx_instructions_per_hmma_conv_f32",
    "ptx_instructions_per_hmma_conv_weights",
    "ptx_instructions_per_hmma_conv_pictures",
    "ptx_instructions_per_hgmma",       // at most 16
    "ptx_instructions_per_hgmma_conv",  // at most 16
    "ptx_instructions_per_hgmma_f32",
    "ptx_instructions_per_hgmma_f32_across",
    "ptx_instructions_per_qgmma",
    "ptx_wgmma_serialised_products",  // 0
    "ptx_attention_instructions_per_hmma_64",
    "ptx_attention_instructions_per_hmma_128",
    "ptx_attention_instructions_per_hgmma_64",
    "ptx_attention_instructions_per_hgmma_128",
};

// Of the PTX machine, which is always there.
const std::set<std::string> kOfTheMachine = {
    "cuda_sectors_ratio_stream",      // at most 1.05
    "cuda_sectors_ratio_softmax",     // at most 1.05
    "cuda_sectors_ratio_layer_norm",  // at most 1.05
    "cuda_sectors_ratio_long_softmax",  // at most 1.05
    "cuda_sectors_ratio_vocabulary_softmax",  // at most 1.05
    "cuda_sectors_ratio_transpose",   // at most 1.05
    "cuda_sectors_ratio_matmul",      // at most 1.05
    "cuda_sectors_ratio_matmul_bf16",
    "cuda_sectors_ratio_conv",        // at most 1.05
    "cuda_bank_ways_matmul",          // 1.0
    "cuda_bank_ways_matmul_bf16",
    "cuda_bank_ways_conv",
    "cuda_sectors_ratio_matmul_wgmma_bf16",  // at most 1.05
    "cuda_sectors_ratio_matmul_wgmma_f32",   // at most 1.05
    "cuda_bank_ways_matmul_wgmma_bf16",      // 1.0
    "cuda_bank_ways_matmul_wgmma_f32",
    "cuda_bank_ways_attention",       // 1.0
    "cuda_attention_causal_part",
};

// Of counts: times are another machine's.
TEST(GpuFigureNames, OfAStepOfGpt2_AreReportedInBothTypes) {
  std::set<std::string> all;
  for (const std::string type : {"", "_bf16"})
    for (const std::string name :
         {"cuda_compile_ms_p50",        // at most 6
          "cuda_compile_s_gpt2_124m",   // at most 3
          "cuda_launches_gpt2_124m",    // at most 260
          "cuda_wgmma_kernels_gpt2_124m"})
      all.insert(absl::StrCat(name, type));
  const Listed listed = NamesOf(GpuCompileFigures);
  EXPECT_EQ(listed.reported, all);
  EXPECT_TRUE(listed.skipped.empty());
}

TEST(GpuFigureNames, WithoutAnAssembler_WhatTakesOneIsSkippedByName) {
  for (const char* const tool : {"OUTBOARD_PTXAS", "OUTBOARD_NVDISASM"}) setenv(tool, "", 1);
  const Listed listed = NamesOf(GpuMemoryFigures), goldens = NamesOf(GpuAssemblerFigures);
  for (const char* const tool : {"OUTBOARD_PTXAS", "OUTBOARD_NVDISASM"}) unsetenv(tool);
  EXPECT_EQ(listed.skipped, kOfCode);
  EXPECT_EQ(listed.reported, kOfTheMachine);
  EXPECT_EQ(goldens.skipped,
            (std::set<std::string>{"ptx_assembled_ratio",  // 1
                                   "ptx_spill_bytes",      // 0
                                   "ptx_local_bytes",      // 0
                                   "ptx_registers_most", "ptx_warnings", "ptx_wgmma_kernels",
                                   "ptx_wgmma_serialised",  // 0
                                   "ptx_assemble_s_gpt2_124m",
                                   "ptx_spill_bytes_gpt2_124m"}));
  EXPECT_TRUE(goldens.reported.empty());
}

TEST(GpuFigureNames, WithAnAssembler_NothingIsSkipped) {
  if (test::FindPtxas().empty() || test::FindNvdisasm().empty())
    GTEST_SKIP() << "no ptxas or nvdisasm; scripts/setup --assembler fetches them";
  const Listed listed = NamesOf(GpuMemoryFigures);
  std::set<std::string> all = kOfTheMachine;
  all.insert(kOfCode.begin(), kOfCode.end());
  EXPECT_EQ(listed.reported, all);
  EXPECT_TRUE(listed.skipped.empty());
}

}  // namespace
}  // namespace outboard::bench
