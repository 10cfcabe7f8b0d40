// The most instructions of a main loop for each product of a matrix unit, as NVIDIA's disassembler
// lists them: one place for the tests that hold them and the notes of the figures.
#pragma once

namespace outboard::bench::code_bounds {

// Products of bf16 matrices of 8,192.
inline constexpr double kHmma = 3.0;
inline constexpr double kHgmma = 13;
// Convolutions of pictures' three channels by mma.sync, forward and the gradient of the weights.
inline constexpr double kHmmaOfPictures = 8;
// Convolutions by warpgroups: of four products in a step, as without gathers.
inline constexpr double kHgmmaOfConvolutions = 16;
// f32 by three products of TF32. Of twelve in a stage of 128 columns: 64 additions in f32, 48 that
// take A apart; and 12 loads and 16 exchanges more where A is stored across the steps.
inline constexpr double kHgmmaOfF32 = 15, kHgmmaOfF32Across = 18;
// 8-bit floats. Of four in a stage of 128 columns 16 each are the additions in f32.
inline constexpr double kQgmma = 12 + 16;
// Attention, by the width of heads.
inline constexpr double kAttentionHmma64 = 8, kAttentionHmma128 = 7;
inline constexpr double kAttentionHgmma64 = 44, kAttentionHgmma128 = 36;
// Its gradients: of each loop, for each score of a thread.
inline constexpr double kGradientOfQueries64 = 16, kGradientOfQueries128 = 17;
inline constexpr double kGradientOfKeys64 = 18, kGradientOfKeys128 = 22;

}  // namespace outboard::bench::code_bounds
