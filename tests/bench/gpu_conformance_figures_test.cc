// The comparison of the PTX machine with a device, on the tests' own driver, which is the same
// machine behind the driver's calls: that both agree, and that a difference is seen. NVIDIA's
// assembler has to take every form.
#include "tests/bench/gpu_conformance_figures.h"
#include "tests/compiler/ptx_assembler.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "runtime/devices.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

std::unique_ptr<runtime::Device> FakeDevice() {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  return ValueOrDie(runtime::MakeDevice(std::string(runtime::kCuda), {}));
}

TEST(GpuConformanceFigures, TheDriverOfTheTestsAgrees) {
  const auto device = FakeDevice();
  const std::vector<ptx::InstructionForm> forms = ptx::InstructionForms();
  const auto conformance = CompareForms(*device, forms, /*seed=*/2);
  ASSERT_TRUE(conformance.ok()) << conformance.status();
  EXPECT_EQ(conformance->compared, static_cast<int>(forms.size()));
  EXPECT_EQ(conformance->ratio(), 1);
  for (const std::string& difference : conformance->differences) ADD_FAILURE() << difference;
}

TEST(GpuConformanceFigures, ProductsAgree) {
  const auto device = FakeDevice();
  const std::vector<test::HopperCase> all = test::HopperCases();
  const auto full = std::find_if(all.begin(), all.end(),
                                 [](const test::HopperCase& one) { return one.full_digits; });
  ASSERT_NE(full, all.end());
  const std::vector<test::HopperCase> cases = {all[0], all[1], *full};
  const auto conformance = CompareProducts(*device, cases);
  ASSERT_TRUE(conformance.ok()) << conformance.status();
  EXPECT_EQ(conformance->compared, 3);
  EXPECT_EQ(conformance->ratio(), 1);
}

// Addresses of memory are others on each.
TEST(GpuConformanceFigures, ADifferenceIsCountedAndNamed) {
  const auto device = FakeDevice();
  const std::vector<ptx::InstructionForm> forms = {{"add.u32 $d, $a, $b;", "rrr"},
                                                   {"frobnicate.u32 $d, $a, $b;", "rrr"},
                                                   {"mov.u64 $d, %d91;", "d"}};
  const auto conformance = CompareForms(*device, forms, /*seed=*/2);
  ASSERT_TRUE(conformance.ok()) << conformance.status();
  EXPECT_EQ(conformance->compared, 3);
  ASSERT_EQ(conformance->differences.size(), 2u);
  EXPECT_TRUE(absl::StrContains(conformance->differences[0], "frobnicate"));
  EXPECT_TRUE(absl::StrContains(conformance->differences[1], "thread 0"));
  EXPECT_NEAR(conformance->ratio(), 1.0 / 3, 1e-9);
}

TEST(GpuConformanceFigures, NvidiasAssemblerTakesEveryForm) {
  const std::string ptxas = test::FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  std::string text = ptx::FormHeader();
  int count = 0;
  for (const ptx::InstructionForm& form : ptx::InstructionForms())
    absl::StrAppend(&text, ptx::FormKernel(form, absl::StrCat("k", count++)));
  const auto assembled = test::AssembleKernel(ptxas, text, "sm_90a");
  EXPECT_TRUE(assembled.ok()) << assembled.status();
}

}  // namespace
}  // namespace outboard::bench
