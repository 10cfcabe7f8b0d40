// Loops in listings of machine code, as nvdisasm writes them.
#include "tests/bench/gpu_machine_code.h"

#include <gtest/gtest.h>

namespace outboard::bench {
namespace {

TEST(GpuMachineCode, LoopsWith_CountsWhatIsBetweenAJumpBackAndItsTarget) {
  const std::vector<CodeLoop> loops = LoopsWith("HMMA", R"(
.L_x_0:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0020*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0030*/                   HMMA.16816.F32 R12, R4, R7, R12 ;
        /*0040*/              @!P0 BRA `(.L_x_1) ;
        /*0050*/                   EXIT ;
)");
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].first, 1u);
  EXPECT_EQ(loops[0].instructions, 4u);
  EXPECT_EQ(loops[0].products, 2u);
}

TEST(GpuMachineCode, LoopsWith_HasThoseThatEndWithoutACondition) {
  const std::vector<CodeLoop> loops = LoopsWith("HGMMA", R"(
.L_x_1:
        /*0000*/               @P0 BRA `(.L_x_2) ;
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0020*/                   BRA `(.L_x_1) ;
.L_x_2:
        /*0030*/                   EXIT ;
)");
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].instructions, 3u);
}

TEST(GpuMachineCode, LoopsWith_LeavesOutReturnsFromBehindTheEnd) {
  const std::vector<CodeLoop> loops = LoopsWith("HGMMA", R"(
.L_x_1:
        /*0000*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0010*/              @!P1 BRA `(.L_x_3) ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/                   EXIT ;
.L_x_3:
        /*0040*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R2], R3 ;
        /*0050*/                   BRA `(.L_x_1) ;
)");
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].instructions, 3u);
}

}  // namespace
}  // namespace outboard::bench
