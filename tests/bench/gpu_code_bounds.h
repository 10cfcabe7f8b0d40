// The most instructions of a main loop for each product of a matrix unit, as NVIDIA's disassembler
// lists them: one place for the tests that hold them and the notes of the figures.
#pragma once

namespace outboard::bench::code_bounds {

// Products of bf16 matrices of 8,192.
inline constexpr double kHmma = 3.0;
// f32 by three products of TF32, which takes both operands apart.
inline constexpr double kHmmaOfF32 = 6.5;
inline constexpr double kHgmma = 13;
// Accesses to shared memory of products by warpgroups, in phases for each. Results of f32 meet a
// bank twice on their way to boxes; all else of three products of TF32, which is most, does not.
inline constexpr double kWgmmaBankWays = 1.0, kWgmmaBankWaysOfF32 = 1.06;
// Convolutions by mma.sync, forward and the gradient of the input, of bf16 and of f32 by three
// products: half as many products in a step as of matrices, and for each copy its place and whether
// it is a border. Few weights have a small tile, with fewer products for each copy.
inline constexpr double kHmmaOfConvolutions = 5, kHmmaOfConvolutionsOfF32 = 5.5;
inline constexpr double kHmmaOfWeightGradients = 14.5;
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
