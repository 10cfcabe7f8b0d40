// Attention's gradients where the rows' maxima and sums are loaded (compiler/program/online/
// exponential.h): exponentials and inverses by the unit, as wrong as PTX allows, within the bounds
// of docs/semantics.md; and which times a mask leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/host_tensor.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/program/online/exponential.h"
#include "tests/compiler/attention_gradient_kernels.h"
#include "tests/compiler/online_run.h"

namespace outboard::test {
namespace {

using program::OnlineTile;

constexpr double kUnit = 0x1p-24;  // u' of docs/semantics.md
constexpr double kHalf = 0x1p-8;   // u of bf16
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Matrix = std::vector<std::vector<double>>;  // rows

// Of one head.
struct Case {
  GradientShape shape;
  double largest = 1;  // of a number of q
  std::vector<int64_t> none = {};  // rows whose maximum is -infinity, as of one that sees nothing
  double sum_factor = 1;           // of the sums that are loaded
};

struct Inputs {
  Matrix q, k, v, out;
  std::vector<double> max, sum, dot, dot_error;
  // By query and key: exponentials, the result's gradients by v over the sum, and max - x; 0 of
  // hidden keys.
  Matrix e, dp, distance;

  explicit Inputs(const Case& c) {
    const GradientShape& shape = c.shape;
    uint32_t random = 12345;
    // Sums of products of these are exact in f32.
    const auto made = [&](int64_t rows, double largest) {
      Matrix matrix(static_cast<size_t>(rows));
      for (std::vector<double>& row : matrix)
        for (int64_t d = 0; d < shape.width; ++d) {
          random = random * 1664525 + 1013904223;
          row.push_back((static_cast<double>(random >> 16 & 31) / 16 - 1) * largest);
        }
      return matrix;
    };
    q = made(shape.queries, c.largest);
    k = made(shape.keys, 1);
    v = made(shape.keys, 1);
    out = made(shape.queries, 1);
    const auto product = [&](const std::vector<double>& a, const std::vector<double>& b) {
      double total = 0;
      for (size_t d = 0; d < a.size(); ++d) total += a[d] * b[d];
      return total;
    };
    for (int64_t row = 0; row < shape.queries; ++row) {
      const auto i = static_cast<size_t>(row);
      const int64_t seen = shape.causal ? std::min(row + 1, shape.keys) : shape.keys;
      std::vector<double> x;
      for (int64_t j = 0; j < seen; ++j)
        x.push_back(shape.scale *
                    RoundTo(DType::kBF16, product(q[i], k[static_cast<size_t>(j)])));
      max.push_back(*std::max_element(x.begin(), x.end()));
      double total = 0;
      for (const double number : x) total += std::exp(number - max[i]);
      sum.push_back(static_cast<float>(total * c.sum_factor));
      e.emplace_back(static_cast<size_t>(shape.keys));
      dp.emplace_back();
      distance.emplace_back(static_cast<size_t>(shape.keys));
      double dots = 0, error = 0;
      for (size_t j = 0; j < static_cast<size_t>(shape.keys); ++j) {
        const double of_p = product(out[i], v[j]);
        dp[i].push_back((shape.loads_dot ? of_p : RoundTo(DType::kBF16, of_p)) / sum[i]);
        if (static_cast<int64_t>(j) >= seen) continue;
        e[i][j] = std::exp(x[j] - max[i]);
        distance[i][j] = max[i] - x[j];
        const double term = e[i][j] / sum[i] * dp[i][j];
        dots += term;
        error += std::abs(term) *
                 (OfExponential(i, j) + (2 * kOfQuotient + static_cast<double>(seen)) * kUnit);
      }
      dot.push_back(-dots);
      dot_error.push_back(shape.loads_dot ? std::abs(dots) * kUnit : error);
    }
    for (const int64_t row : c.none) {
      max[static_cast<size_t>(row)] = -kInfinity;
      sum[static_cast<size_t>(row)] = std::numeric_limits<double>::quiet_NaN();
    }
  }

  // How far they may be from their values, in parts of these: docs/semantics.md, "Online sums".
  static constexpr double kOfQuotient = 3;  // in u'
  double OfExponential(size_t i, size_t j) const { return (5 + 3 * distance[i][j]) * kUnit; }
  // The gradient of a score, and how far it may be off, with what rounding it to bf16 takes; dot
  // within `error`. Three operations are rounded.
  double Gradient(const Case& c, size_t i, size_t j) const {
    return c.shape.scale * e[i][j] * (dp[i][j] + dot[i]);
  }
  double ErrorOf(const Case& c, size_t i, size_t j, double error) const {
    const double exact = std::abs(Gradient(c, i, j));
    const double size = c.shape.scale * e[i][j] * (std::abs(dp[i][j]) + std::abs(dot[i]));
    const double before = size * (OfExponential(i, j) + (kOfQuotient + 3) * kUnit) +
                          c.shape.scale * e[i][j] * error;
    return before + (exact + before) * kHalf;
  }
};

Buffers BuffersOf(const Case& c, const Inputs& inputs, bool of_keys) {
  Buffers buffers(kSlotDot + 1);
  const auto size = [](int64_t elements, DType type) {
    return std::string(static_cast<size_t>(elements * ByteWidth(type)), '\0');
  };
  buffers[0] = size(of_keys ? c.shape.of_keys() : c.shape.of_queries(), DType::kBF16);
  buffers[1] = of_keys ? size(c.shape.of_keys(), DType::kBF16)
                       : size(c.shape.rows(), DType::kF32);
  const auto set = [&](int64_t slot, const Matrix& matrix) {
    for (const std::vector<double>& row : matrix)
      for (const double number : row) {
        std::string& to = buffers[static_cast<size_t>(slot)];
        to.resize(to.size() + 2);
        StoreFloat(DType::kBF16, number, to.data() + to.size() - 2);
      }
  };
  set(kSlotQ, inputs.q);
  set(kSlotK, inputs.k);
  set(kSlotV, inputs.v);
  set(kSlotOut, inputs.out);
  const auto set_rows = [&](int64_t slot, const std::vector<double>& rows) {
    std::string& to = buffers[static_cast<size_t>(slot)];
    to = size(static_cast<int64_t>(rows.size()), DType::kF32);
    for (size_t i = 0; i < rows.size(); ++i) StoreFloat(DType::kF32, rows[i], to.data() + 4 * i);
  };
  set_rows(kSlotMax, inputs.max);
  set_rows(kSlotSum, inputs.sum);
  if (of_keys)
    set_rows(kSlotDot, inputs.dot);
  else
    buffers.pop_back();
  if (!of_keys && c.shape.loads_dot) set_rows(1, inputs.dot);
  return buffers;
}

double NumberAt(const std::string& bytes, DType type, size_t element) {
  return LoadFloat(type, bytes.data() + element * static_cast<size_t>(ByteWidth(type)));
}

bool IsNone(const Case& c, size_t row) {
  return std::find(c.none.begin(), c.none.end(), static_cast<int64_t>(row)) != c.none.end();
}

void CheckQueries(const Case& c, const Ways& ways) {
  const Inputs inputs(c);
  Graph g;
  Buffers buffers = BuffersOf(c, inputs, /*of_keys=*/false);
  RunAsPtx(QueriesGradientKernel(g, c.shape), ways, buffers);
  if (testing::Test::HasFatalFailure()) return;
  const auto width = static_cast<size_t>(c.shape.width);
  for (size_t i = 0; i < inputs.q.size(); ++i) {
    const double dot = NumberAt(buffers[1], DType::kF32, i);
    if (IsNone(c, i)) {
      EXPECT_TRUE(c.shape.loads_dot || std::isnan(dot)) << "row " << i;
      EXPECT_TRUE(std::isnan(NumberAt(buffers[0], DType::kBF16, i * width))) << "row " << i;
      continue;
    }
    ASSERT_NEAR(dot, inputs.dot[i], inputs.dot_error[i] + 0x1p-120) << "row " << i;
    for (size_t d = 0; d < width; ++d) {
      double exact = 0, error = 0;
      for (size_t j = 0; j < inputs.k.size(); ++j) {
        const double term = inputs.Gradient(c, i, j) * inputs.k[j][d];
        exact += term;
        error += std::abs(inputs.k[j][d]) * inputs.ErrorOf(c, i, j, inputs.dot_error[i]) +
                 std::abs(term) * 2 * static_cast<double>(inputs.k.size()) * kUnit;
      }
      ASSERT_NEAR(NumberAt(buffers[0], DType::kBF16, i * width + d), exact,
                  error + (std::abs(exact) + error) * kHalf + 0x1p-100)
          << "row " << i << " column " << d;
    }
  }
}

void CheckKeys(const Case& c, const Ways& ways) {
  const Inputs inputs(c);
  Graph g;
  Buffers buffers = BuffersOf(c, inputs, /*of_keys=*/true);
  RunAsPtx(KeysGradientKernel(g, c.shape), ways, buffers);
  if (testing::Test::HasFatalFailure()) return;
  const auto width = static_cast<size_t>(c.shape.width);
  for (size_t j = 0; j < inputs.k.size(); ++j)
    for (size_t d = 0; d < width; ++d) {
      const double found[] = {NumberAt(buffers[0], DType::kBF16, j * width + d),
                              NumberAt(buffers[1], DType::kBF16, j * width + d)};
      if (!c.none.empty()) {
        // Its probabilities are no numbers, hidden or not.
        ASSERT_TRUE(std::isnan(found[1])) << "key " << j;
        continue;
      }
      double exact[2] = {}, error[2] = {};
      for (size_t i = 0; i < inputs.q.size(); ++i) {
        const double p = inputs.e[i][j] / inputs.sum[i];
        const double to_p = p * (inputs.OfExponential(i, j) + Inputs::kOfQuotient * kUnit);
        const double terms[] = {inputs.Gradient(c, i, j) * inputs.q[i][d], p * inputs.out[i][d]};
        const double errors[] = {
            inputs.ErrorOf(c, i, j, std::abs(inputs.dot[i]) * kUnit) * std::abs(inputs.q[i][d]),
            (to_p + (p + to_p) * kHalf) * std::abs(inputs.out[i][d])};
        for (const size_t r : {0, 1}) {
          exact[r] += terms[r];
          error[r] += errors[r] +
                      std::abs(terms[r]) * 2 * static_cast<double>(inputs.q.size()) * kUnit;
        }
      }
      for (const size_t r : {0, 1})
        ASSERT_NEAR(found[r], exact[r],
                    error[r] + (std::abs(exact[r]) + error[r]) * kHalf + 0x1p-100)
            << "result " << r << " key " << j << " column " << d;
    }
}

struct Device {
  const char* arch;
  OnlineTile tile;
};
const Device kDevices[] = {{"sm_90", {4, 1, 32, 2}}, {"sm_90a", {4, 1, 32, 2, true}}};

// Scores of 8 and of 2,000.
TEST(OnlineGradients, AreWithinTheirBounds) {
  for (const Device& device : kDevices)
    for (const int64_t width : {64, 128})
      for (const bool causal : {false, true})
        for (const double largest : {1.0, 256.0})
          for (const bool loads_dot : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << device.arch << " width " << width << " causal " << causal
                         << " largest " << largest << " loads dot " << loads_dot);
            const Case c{.shape = {.width = width, .causal = causal, .loads_dot = loads_dot},
                         .largest = largest};
            const Ways ways{.tile = &device.tile, .arch = device.arch, .spilled_bytes_max = 0};
            CheckQueries(c, ways);
            CheckKeys(c, ways);
            if (HasFatalFailure()) return;
          }
}

// By larger tiles, of which a causal mask leaves some whole.
TEST(OnlineGradients, OfLargerTiles) {
  const OnlineTile tile = {8, 1, 64, 2, true};
  for (const bool causal : {false, true})
    for (const bool loads_dot : {false, true}) {
      const Case c{
          .shape = {.queries = 256, .keys = 256, .causal = causal, .loads_dot = loads_dot}};
      CheckQueries(c, {.tile = &tile, .arch = "sm_90a"});
      CheckKeys(c, {.tile = &tile, .arch = "sm_90a"});
      if (HasFatalFailure()) return;
    }
}

// A row that sees nothing has no numbers; other rows have theirs, whatever a mask leaves out.
TEST(OnlineGradients, RowsThatSeeNothing) {
  for (const Device& device : kDevices)
    for (const bool causal : {false, true})
      for (const bool loads_dot : {false, true}) {
        const Case c{
            .shape = {.queries = 192, .keys = 192, .causal = causal, .loads_dot = loads_dot},
            .none = {3, 70, 191}};
        CheckQueries(c, {.tile = &device.tile, .arch = device.arch});
        CheckKeys(c, {.tile = &device.tile, .arch = device.arch});
        if (HasFatalFailure()) return;
      }
}

// Sums that no forward kernel stores, of any size that has an inverse.
TEST(OnlineGradients, OfAnySums) {
  for (const Device& device : kDevices)
    for (const double factor : {0x1p-40, 0x1p40}) {
      const Case c{.shape = {.causal = true}, .sum_factor = factor};
      CheckKeys(c, {.tile = &device.tile, .arch = device.arch});
      if (HasFatalFailure()) return;
    }
}

// Which exponentials and quotients are the unit's.
TEST(OnlineGradients, Found) {
  for (const bool of_keys : {false, true}) {
    Graph g;
    const GradientShape shape{.causal = true};
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(
        of_keys ? KeysGradientKernel(g, shape) : QueriesGradientKernel(g, shape));
    const int steps = codegen::PanelRange(kernel, codegen::PanelsOf(kernel, /*ends=*/true)[0]);
    const auto units = program::LoadedExponentialsOf(kernel, steps);
    ASSERT_EQ(units.size(), 1u);
    EXPECT_EQ(units.begin()->second.max->op, Op::kLoad);
    EXPECT_EQ(units.begin()->second.factor, shape.scale);
    EXPECT_EQ(units.begin()->second.hidden.size(), 1u);
    EXPECT_EQ(program::LoadedQuotientsOf(kernel, steps, units).size(), 2u);
    // A quotient of the exponent is the maximum's, too: rounded as it was there.
    auto others = units;
    for (const UOp* node : kernel.nodes)
      if (node->op == Op::kFDiv) others.begin()->second.value = node;
    EXPECT_EQ(program::LoadedQuotientsOf(kernel, steps, others).size(), 1u);
    EXPECT_TRUE(program::UnitExponentialsOf(kernel, steps).empty());
  }
}

}  // namespace
}  // namespace outboard::test
