// The PTX text of products by warpgroups, one of each kind of operands, in golden_ptx: what the
// printer writes of TMA, barriers and wgmma, reviewed as a diff. Where a change is meant,
// OUTBOARD_UPDATE=1 writes the texts anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/whole_product.h"
#include "tests/support/paths.h"

namespace outboard::test {
namespace {

constexpr char kArch[] = "sm_90a";

struct Golden {
  const char* name;
  DType dtype;
  bool b_by_columns;        // what the unit reads of operands that have not 16 bits
  const char* instruction;  // that the text has
  bool three_tf32 = false;
  bool a_by_columns = false;
};
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

constexpr Golden kGoldens[] = {
    {"bf16", DType::kBF16, false, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"},
    {"f8e4m3", DType::kF8E4M3, true, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"},
    {"tf32", DType::kF32, true, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"},
    {"f32", DType::kF32, true, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", true},
    {"f32_across", DType::kF32, false, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", true,
     true},
};

// One tile, of as many steps as the ring has stages.
std::string PtxOf(const Golden& golden) {
  const program::HopperProduct product = {.dtype = golden.dtype,
                                          .three_tf32 = golden.three_tf32,
                                          .m = 128,
                                          .n = 64,
                                          .k = 128,
                                          .a_by_columns = golden.a_by_columns,
                                          .b_by_columns = golden.b_by_columns};
  const auto program = ValueOrDie(MakeHopperProduct(product, {.columns = 64, .stages = 2}));
  const auto renderer = ValueOrDie(render::MakePtxRenderer(CudaTarget(kArch, 132)));
  return ValueOrDie(renderer->Render(program, "product")).object;
}

class PtxGolden : public testing::TestWithParam<Golden> {};

TEST_P(PtxGolden, IsTheText) {
  const std::string path = test::SourceFile(
      absl::StrCat("tests/compiler/golden_ptx/", GetParam().name, ".ptx"));
  const std::string text = PtxOf(GetParam());
  EXPECT_TRUE(absl::StrContains(text, GetParam().instruction)) << GetParam().instruction;
  if (std::getenv("OUTBOARD_UPDATE") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::stringstream stored;
  stored << std::ifstream(path).rdbuf();
  const std::vector<std::string> was = absl::StrSplit(stored.str(), '\n'),
                                 is = absl::StrSplit(text, '\n');
  if (stored.str() == text) return;
  size_t first = 0;
  while (first < std::min(was.size(), is.size()) && was[first] == is[first]) ++first;
  const auto line = [&](const std::vector<std::string>& lines) {
    return first < lines.size() ? lines[first] : "(nothing)";
  };
  ADD_FAILURE() << GetParam().name << ".ptx, from line " << first + 1 << ":\n- " << line(was)
                << "\n+ " << line(is) << "\nOUTBOARD_UPDATE=1 writes the new text";
}

TEST_P(PtxGolden, IsAssembled) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  const auto assembled = AssembleKernel(ptxas, PtxOf(GetParam()), kArch);
  ASSERT_TRUE(assembled.ok()) << assembled.status();
  EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes + assembled->warnings, 0);
  EXPECT_FALSE(assembled->ignored);
}

// It says so of a kernel of any number of threads, but not in a warning.
TEST(PtxAssembler, AnInstructionThatIsIgnored_IsSeen) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  std::string ptx = PtxOf(kGoldens[0]);
  ASSERT_TRUE(absl::StrContains(ptx, "setmaxnreg"));
  for (const char* const bound : {".maxntid", ".minnctapersm"}) {
    const size_t at = ptx.find(bound);
    ASSERT_NE(at, std::string::npos) << bound;
    ptx.erase(at, ptx.find('\n', at) - at);
  }
  const auto assembled = AssembleKernel(ptxas, ptx, kArch);
  ASSERT_TRUE(assembled.ok()) << assembled.status();
  EXPECT_TRUE(assembled->ignored);
  EXPECT_EQ(assembled->warnings, 0);
}

INSTANTIATE_TEST_SUITE_P(Products, PtxGolden, testing::ValuesIn(kGoldens),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace outboard::test
