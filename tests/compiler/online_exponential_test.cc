// Exponentials of online kernels by the unit of an NVIDIA GPU (compiler/program/online/
// exponential.h): their bound, where the unit is as wrong as PTX allows, and maxima of any size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/program/online/exponential.h"
#include "compiler/program/online/plan.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/online_run.h"

namespace outboard::test {
namespace {

using program::OnlineTile;

constexpr int64_t kRows = 128, kSteps = 256, kWidth = 64;
constexpr float kScale = 0.3f;
constexpr double kUnit = 0x1p-24;  // u' of docs/semantics.md
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Slots: 0 the result, 1 the sums of exponentials, 2 q, 3 k, 4 v, 5 what is added to scores.
constexpr int64_t kElements[] = {kRows * kWidth,  kRows,           kRows * kWidth,
                                 kSteps * kWidth, kSteps * kWidth, kRows * kSteps};

// s[i] = sum of exp(x[i, j] - max x[i]) over j, x = scale q k (+ bias); y = bf16(exp / s) v.
const UOp* SumsKernel(Graph& g, bool biased, bool masked, double scale = kScale) {
  const UOp *i = Range(g, 0, kRows), *c = Range(g, 1, kWidth);
  const UOp *j = ReduceRange(g, 2, kSteps), *d = ReduceRange(g, 3, kWidth);
  const auto load = [&](int64_t slot, const UOp* row, const UOp* column) {
    return Cast(g,
                LoadAt(g, slot, DType::kBF16, kElements[slot],
                       RowMajor(g, {row, column}, {kElements[slot] / kWidth, kWidth})),
                DType::kF32);
  };
  const UOp* x = Fold(g, Op::kAdd, Mul(g, load(2, i, d), load(3, j, d)), {d});
  x = Mul(g, x, ConstFloat(g, DType::kF32, scale));
  if (biased)
    x = Add(g, x, LoadAt(g, 5, DType::kF32, kElements[5], RowMajor(g, {i, j}, {kRows, kSteps})));
  if (masked)
    x = Alu(g, Op::kWhere, Alu(g, Op::kCmpLt, i, j), ConstFloat(g, DType::kF32, -kInfinity), x);
  const UOp* const max = Fold(g, Op::kMax, x, {j});
  const UOp* const e = Alu(g, Op::kExp, Add(g, x, Alu(g, Op::kNeg, max)));
  const UOp* const s = Fold(g, Op::kAdd, e, {j});
  const UOp* const weight = Cast(g, Cast(g, Alu(g, Op::kFDiv, e, s), DType::kBF16), DType::kF32);
  const UOp* const y = Fold(g, Op::kAdd, Mul(g, weight, load(4, j, c)), {j});
  return Sink(g, {StoreAt(g, 0, kElements[0], RowMajor(g, {i, c}, {kRows, kWidth}),
                          Cast(g, y, DType::kBF16)),
                  StoreAt(g, 1, kElements[1], i, s)});
}

// q and k are such that their products, and sums of these, are exact in f32. v is 1.
Buffers Inputs(bool biased) {
  Buffers buffers;
  for (int64_t slot = 0; slot < (biased ? 6 : 5); ++slot) {
    const DType type = slot == 1 || slot == 5 ? DType::kF32 : DType::kBF16;
    const auto width = static_cast<size_t>(ByteWidth(type));
    std::string bytes(static_cast<size_t>(kElements[slot]) * width, '\0');
    uint32_t random = 12345;
    for (int64_t at = 0; at < kElements[slot]; ++at) {
      random = random * 1664525 + 1013904223;
      const double number = slot == 4 ? 1 : static_cast<double>(random >> 16 & 31) / 8 - 2;
      if (slot >= 2 && slot < 5)
        StoreFloat(type, number, bytes.data() + static_cast<size_t>(at) * width);
    }
    buffers.push_back(std::move(bytes));
  }
  return buffers;
}

double NumberAt(const Buffers& buffers, int64_t slot, int64_t element) {
  const DType type = slot == 1 || slot == 5 ? DType::kF32 : DType::kBF16;
  return LoadFloat(type, buffers[static_cast<size_t>(slot)].data() + element * ByteWidth(type));
}

struct Device {
  const char* arch;
  OnlineTile tile;
};
const Device kDevices[] = {{"sm_90", {4, 1, 64, 2}},
                           {"sm_90a", {4, 1, 64, 2, true}},
                           {"sm_90a", {8, 1, 128, 2, true}}};

// docs/semantics.md, "Online sums": each term is within (5 + 3 |x - m|) u' of itself, and within
// 5 u' more for each growth of the maximum; and the ADD's own n u'.
TEST(OnlineExponential, Sums_AreWithinTheirBound) {
  for (const bool masked : {false, true})
    for (const Device& device : kDevices) {
      Graph g;
      Buffers buffers = Inputs(/*biased=*/false);
      RunAsPtx(SumsKernel(g, false, masked), {.tile = &device.tile, .arch = device.arch}, buffers);
      if (HasFatalFailure()) return;
      double most = 0, of_exact = 0;
      for (int64_t i = 0; i < kRows; ++i) {
        const int64_t seen = masked ? i + 1 : kSteps;
        std::vector<double> x;
        for (int64_t j = 0; j < seen; ++j) {
          double product = 0;
          for (int64_t d = 0; d < kWidth; ++d)
            product +=
                NumberAt(buffers, 2, i * kWidth + d) * NumberAt(buffers, 3, j * kWidth + d);
          x.push_back(product * static_cast<double>(kScale));
        }
        const double m = *std::max_element(x.begin(), x.end());
        const auto growths =
            static_cast<double>((seen + device.tile.steps - 1) / device.tile.steps);
        double sum = 0, bound = 0;
        for (const double number : x) {
          const double e = std::exp(number - m);
          sum += e;
          bound += e * (5 + 5 * growths + 3 * (m - number) + static_cast<double>(seen)) * kUnit;
        }
        const double found = NumberAt(buffers, 1, i);
        EXPECT_NEAR(found, sum, bound) << device.arch << " row " << i;
        most = std::max(most, std::abs(found - sum) / bound);
        of_exact = std::max(of_exact, std::abs(found - sum) / sum / kUnit);
      }
      std::printf("%s, %d steps: at most %.3f of the bound, %.1f u' of the sum\n", device.arch,
                  static_cast<int>(device.tile.steps), most, of_exact);
      // The unit is wrong on the machine: were it exact, this test would say nothing of it. And
      // n u' is far more than sums in several threads lose.
      EXPECT_GT(of_exact, 1);
      EXPECT_LT(of_exact, 8);
    }
}

// Of a row whose scores are all the same number, however large, every exponential is 1.
TEST(OnlineExponential, LargeMaxima) {
  const double biases[] = {0, -1e4, -1e9, -1e30, -std::numeric_limits<float>::max(), 1e30};
  for (const Device& device : kDevices) {
    Graph g;
    Buffers buffers = Inputs(/*biased=*/true);
    std::fill(buffers[2].begin(), buffers[2].end(), '\0');
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kSteps; ++j)
        StoreFloat(DType::kF32, biases[i % 6],
                   buffers[5].data() + static_cast<size_t>(i * kSteps + j) * 4);
    RunAsPtx(SumsKernel(g, true, false), {.tile = &device.tile, .arch = device.arch}, buffers);
    if (HasFatalFailure()) return;
    for (int64_t i = 0; i < kRows; ++i) {
      EXPECT_NEAR(NumberAt(buffers, 1, i), kSteps, kSteps * 0x1p-20) << biases[i % 6];
      EXPECT_EQ(NumberAt(buffers, 0, i * kWidth), 1) << biases[i % 6];
    }
  }
}

// A row that sees nothing is NaN, and so is one with a NaN or an infinity of a score.
TEST(OnlineExponential, RowsThatAreNoNumbers) {
  for (const Device& device : kDevices) {
    Graph g;
    Buffers buffers = Inputs(/*biased=*/true);
    const double biases[] = {-kInfinity, kInfinity, std::numeric_limits<double>::quiet_NaN()};
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < kSteps; ++j)
        if (i == 0 || j == 200)
          StoreFloat(DType::kF32, biases[i],
                     buffers[5].data() + static_cast<size_t>(i * kSteps + j) * 4);
    RunAsPtx(SumsKernel(g, true, false), {.tile = &device.tile, .arch = device.arch}, buffers);
    if (HasFatalFailure()) return;
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::isnan(NumberAt(buffers, 1, i)), i < 3) << i;
      EXPECT_EQ(std::isnan(NumberAt(buffers, 0, i * kWidth)), i < 3) << i;
    }
  }
}

// Finite products q k that are -infinity when they are scaled. Row 0 has nothing else, row 1 sees
// step 7 alone.
TEST(OnlineExponential, ScalesThatOverflow) {
  for (const Device& device : kDevices) {
    Graph g;
    Buffers buffers = Inputs(/*biased=*/false);
    for (const size_t slot : {2, 3}) std::fill(buffers[slot].begin(), buffers[slot].end(), '\0');
    const auto set = [&](int64_t slot, int64_t row, int64_t column, double number) {
      StoreFloat(DType::kBF16, number,
                 buffers[static_cast<size_t>(slot)].data() + (row * kWidth + column) * 2);
    };
    for (int64_t j = 0; j < kSteps; ++j) {
      set(3, j, 0, 0x1p60);
      set(3, j, 1, j == 7 ? 0 : 0x1p60);
    }
    set(2, 0, 0, -0x1p20);
    set(2, 1, 1, -0x1p20);
    RunAsPtx(SumsKernel(g, false, false, 0x1p60), {.tile = &device.tile, .arch = device.arch},
             buffers);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(std::isnan(NumberAt(buffers, 1, 0)));
    EXPECT_TRUE(std::isnan(NumberAt(buffers, 0, 0)));
    EXPECT_EQ(NumberAt(buffers, 1, 1), 1);
    EXPECT_EQ(NumberAt(buffers, 0, kWidth), 1);
    EXPECT_NEAR(NumberAt(buffers, 1, 2), kSteps, kSteps * 0x1p-20);
  }
}

// What x is: the factor comes out of masks, and of nothing else.
TEST(OnlineExponential, Factors) {
  for (const bool biased : {false, true})
    for (const bool masked : {false, true}) {
      Graph g;
      const codegen::LoopNest kernel = *codegen::AnalyzeKernel(SumsKernel(g, biased, masked));
      const auto units = program::UnitExponentialsOf(kernel, 2);
      ASSERT_EQ(units.size(), 1u);
      const program::UnitExponential& unit = units.begin()->second;
      EXPECT_EQ(unit.factor, biased ? 1 : static_cast<double>(kScale));
      EXPECT_EQ(unit.hidden.size(), masked && !biased ? 1u : 0u);
      EXPECT_EQ(unit.value->op, biased ? (masked ? Op::kWhere : Op::kAdd) : Op::kReduceLoop);
    }
  for (const double scale : {0x1p-64, 1.0, 1.0 + 0x1p-23, 0x1p64, -0.5}) {
    Graph g;
    const codegen::LoopNest kernel =
        *codegen::AnalyzeKernel(SumsKernel(g, /*biased=*/false, /*masked=*/false, scale));
    const auto units = program::UnitExponentialsOf(kernel, 2);
    ASSERT_EQ(units.size(), 1u);
    EXPECT_EQ(units.begin()->second.factor, scale > 0 && scale <= 1 ? scale : 1) << scale;
  }
}

}  // namespace
}  // namespace outboard::test
