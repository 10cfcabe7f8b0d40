// Products of f32 by three products of TF32 by warpgroups (compiler/program/hopper/two_tf32.h): how
// exact they are, what becomes of infinities, and mistakes that must be found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/match.h"
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/program/interpret.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/hopper_edit.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/whole_product.h"

namespace outboard::program {
namespace {

using Buffers = std::vector<std::string>;

HopperProduct ProductOf(int64_t m, int64_t n, int64_t k) {
  return {.dtype = DType::kF32,
          .three_tf32 = true,
          .m = m,
          .n = n,
          .k = k,
          .b_by_columns = true,
          .c_dtype = DType::kF32};
}

// The places of numbers in their buffers; `row` of all batches, so is `column`.
int64_t PlaceOfA(const HopperProduct& p, int64_t row, int64_t k) {
  return p.a_by_columns ? row / p.m * p.m * p.k + k * p.m + row % p.m : row * p.k + k;
}
int64_t PlaceOfB(const HopperProduct& p, int64_t column, int64_t k) {
  return p.b_by_columns ? column * p.k + k
                        : column / p.n * p.n * p.k + k * p.n + column % p.n;
}

float NumberIn(const std::string& buffer, int64_t index) {
  float number = 0;
  std::memcpy(&number, buffer.data() + index * sizeof(float), sizeof(float));
  return number;
}
void SetNumber(std::string& buffer, int64_t index, float number) {
  std::memcpy(buffer.data() + index * sizeof(float), &number, sizeof(float));
}

Buffers EmptyBuffers(const HopperProduct& p) {
  const auto of = [](int64_t count) {
    return std::string(static_cast<size_t>(count) * sizeof(float), '\0');
  };
  return {of(p.batch * p.m * p.n), of(p.batch * p.m * p.k), of(p.batch * p.n * p.k)};
}

// The last digit of TF32: each number may be wrong by as much.
constexpr double kLastOfTf32 = 0x1p-136;

// The largest error of a sum, in parts of its sum of absolute products; without what `each` for
// each number explains.
double WorstOf(const HopperProduct& p, const Buffers& buffers, double each = 0) {
  double worst = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0, size = 0, sizes = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const double a = NumberIn(buffers[1], i * p.k + k), b = NumberIn(buffers[2], j * p.k + k);
        sum += a * b;
        size += std::abs(a * b);
        sizes += std::abs(a) + std::abs(b);
      }
      const double error = std::abs(NumberIn(buffers[0], i * p.n + j) - sum);
      worst = std::max(worst, (error - each * sizes) / size);
    }
  return worst;
}

CompiledKernel KernelOf(const Program& program) {
  const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  return *(*renderer)->Render(program, "k");
}

// Numbers of 24 digits, of one sign and of both: their low parts matter, and what each addition
// cuts off adds up where all have one sign. The machine and the interpreter both cut operands off.
TEST(HopperF32, Sums_AreWithinTheirBound) {
  constexpr double kU = 0x1p-24;
  for (const bool above_zero : {true, false}) {
    SCOPED_TRACE(above_zero);
    HopperProduct p = ProductOf(16, 64, 512);
    Buffers start = EmptyBuffers(p);
    std::mt19937 random(7);
    for (const size_t slot : {1, 2})
      for (size_t i = 0; i < start[slot].size() / sizeof(float); ++i) {
        const float size = 1 + static_cast<float>(random() & 0x7fffff) * 0x1p-23f;
        SetNumber(start[slot], static_cast<int64_t>(i),
                  above_zero || random() % 2 == 0 ? size : -size);
      }
    const double bound = (90 + static_cast<double>(p.k) / 32) * kU;
    ASSERT_LE(bound, static_cast<double>(p.k) * kU);
    const HopperTile tile{.columns = 64, .stages = 2};
    const auto program = MakeHopperProduct(p, tile);
    ASSERT_TRUE(program.ok()) << program.status();
    Buffers by_ptx = start, by_program = start;
    ASSERT_EQ(test::RunOnPtxMachine(KernelOf(*program), by_ptx), absl::OkStatus());
    const RunReport report = Interpret(*program, by_program, {}, {.seed = 2});
    ASSERT_TRUE(report.ok()) << report.message;
    std::printf("worst: %.2f u on the machine, %.2f u in the interpreter, of %.0f u\n",
                WorstOf(p, by_ptx) / kU, WorstOf(p, by_program) / kU, bound / kU);
    EXPECT_LE(WorstOf(p, by_ptx), bound);
    EXPECT_LE(WorstOf(p, by_program), bound);
    if (!above_zero) continue;
    // One product of these numbers is far off.
    p.three_tf32 = false;
    const auto single = MakeHopperProduct(p, tile);
    ASSERT_TRUE(single.ok()) << single.status();
    Buffers rounded = start;
    ASSERT_EQ(test::RunOnPtxMachine(KernelOf(*single), rounded), absl::OkStatus());
    EXPECT_GT(WorstOf(p, rounded), 10 * bound);
    // Without the low parts of B the sums are no better than their high parts.
    const Program without = test::Edited(*program, [](ProgramBuilder& b, Instruction& i) {
      if (i.code == Code::kStore && b.at(i.src[0]).code == Code::kAlloc && i.lanes == 4 &&
          b.at(i.src[0]).imm[0] == static_cast<int64_t>(Space::kShared))
        i.src[2] = b.Splat(b.Const(DType::kF32, 0), 4);
      return true;
    });
    ASSERT_NE(without, *program);
    Buffers half = start;
    ASSERT_TRUE(Interpret(without, half, {}, {.seed = 2}).ok());
    EXPECT_GT(WorstOf(p, half), 5 * bound);
    // Nor without those of A, which are bitcast from a difference.
    const Program high_a = test::Edited(*program, [](ProgramBuilder& b, Instruction& i) {
      if (i.code == Code::kBitcast && i.dtype == DType::kU32 &&
          b.at(i.src[0]).code == Code::kAlu && b.at(i.src[0]).op == Op::kAdd)
        i.src[0] = b.Splat(b.Const(DType::kF32, 0), i.lanes);
      return true;
    });
    ASSERT_NE(high_a, *program);
    half = start;
    ASSERT_TRUE(Interpret(high_a, half, {}, {.seed = 2}).ok());
    EXPECT_GT(WorstOf(p, half), 2 * bound);
  }
}

// Low parts of small numbers have digits below TF32's last, of A and of B.
TEST(HopperF32, SmallNumbers_LoseNoMoreThanTheLastDigitOfTf32) {
  const HopperProduct p = ProductOf(16, 64, 128);
  const double bound = (90 + static_cast<double>(p.k) / 32) * 0x1p-24;
  const auto program = MakeHopperProduct(p, {.columns = 64, .stages = 2});
  ASSERT_TRUE(program.ok()) << program.status();
  const CompiledKernel kernel = KernelOf(*program);
  const std::pair<float, float> cases[] = {
      {std::ldexp(1 + 0x1p-16f - 0x1p-23f, -120), 1.0f},
      {0x1.2aaaaap-128f, 0x1.8001p60f},  // subnormal
      {0x1p-140f, 0x1p60f}};
  for (const auto& [small, other] : cases)
    for (const size_t slot : {1, 2}) {
      SCOPED_TRACE(testing::Message() << small << " in slot " << slot);
      Buffers start = EmptyBuffers(p);
      for (const size_t s : {1, 2})
        for (size_t i = 0; i < start[s].size() / sizeof(float); ++i)
          SetNumber(start[s], static_cast<int64_t>(i), s == slot ? small : other);
      Buffers by_ptx = start, by_program = start;
      ASSERT_EQ(test::RunOnPtxMachine(kernel, by_ptx), absl::OkStatus());
      ASSERT_TRUE(Interpret(*program, by_program, {}, {.seed = 2}).ok());
      for (const Buffers* got : {&by_ptx, &by_program}) {
        EXPECT_LE(WorstOf(p, *got, kLastOfTf32), bound);
        EXPECT_GT(WorstOf(p, *got), bound) << "these numbers show no difference";
      }
    }
}

// As sums of f32 give them: an infinity has no low part, the largest numbers round to one, and a
// NaN may be one in its last digit alone.
void CheckInfinities(const HopperProduct& p, const HopperTile& tile) {
  Buffers start = EmptyBuffers(p);
  const auto set_a = [&](int64_t row, int64_t k, float number) {
    SetNumber(start[1], PlaceOfA(p, row, k), number);
  };
  const auto set_b = [&](int64_t column, int64_t k, float number) {
    SetNumber(start[2], PlaceOfB(p, column, k), number);
  };
  for (const size_t slot : {1, 2})
    for (size_t i = 0; i < start[slot].size() / sizeof(float); ++i)
      SetNumber(start[slot], static_cast<int64_t>(i), static_cast<float>(i % 7 + 1) / 8);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const uint32_t last_digit = 0x7f800001;
  float nan = 0;
  std::memcpy(&nan, &last_digit, sizeof(nan));
  // In the last batch, and in the last row and column, which may be in a tile that is not whole.
  const int64_t rows = (p.batch - 1) * p.m, columns = (p.batch - 1) * p.n;
  set_a(rows + 3, 5, kInf);
  set_a(9, 0, nan);
  set_a(rows + p.m - 1, 127, std::numeric_limits<float>::max());
  set_a(p.m - 1, 1, -kInf);
  set_b(columns + 20, 5, 0);  // infinity * 0
  set_b(columns + 33, 9, -kInf);
  set_b(p.n - 1, 5, nan);
  set_b(columns + p.n - 1, 8, kInf);
  const auto program = MakeHopperProduct(p, tile);
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers by_ptx = start, by_program = start;
  ASSERT_EQ(test::RunOnPtxMachine(KernelOf(*program), by_ptx), absl::OkStatus());
  const RunReport report = Interpret(*program, by_program, {}, {.seed = 2});
  ASSERT_TRUE(report.ok()) << report.message;
  for (int64_t i = 0; i < p.batch * p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t column = i / p.m * p.n + j;
      float sum = 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += NumberIn(start[1], PlaceOfA(p, i, k)) * NumberIn(start[2], PlaceOfB(p, column, k));
      for (const Buffers* got : {&by_ptx, &by_program}) {
        const float there = NumberIn((*got)[0], i * p.n + j);
        if (std::isfinite(sum))
          ASSERT_NEAR(there, sum, std::abs(sum) * 1e-5) << i << " " << j;
        else
          ASSERT_TRUE(std::isnan(sum) ? std::isnan(there) : there == sum)
              << i << " " << j << ": " << there << ", not " << sum;
      }
    }
}

TEST(HopperF32, InfinitiesAndNaN_AreThoseOfF32) {
  CheckInfinities(ProductOf(40, 64, 128), {.columns = 64, .stages = 2, .split = 2});
}

// Tiles that are not whole, of two batches, several by each block.
TEST(HopperF32, InfinitiesAndNaN_AreThoseOfF32InEveryTile) {
  HopperProduct p = ProductOf(200, 136, 128);
  p.batch = 2;
  CheckInfinities(p, {.columns = 64, .stages = 2, .persistent_blocks = 2});
}

TEST(HopperF32, InfinitiesAndNaNAcrossTheSteps_AreThoseOfF32) {
  HopperProduct p = ProductOf(40, 64, 128);
  p.batch = 2;
  p.a_by_columns = true;
  p.b_by_columns = false;
  CheckInfinities(p, {.columns = 64, .stages = 2});
}

// What is turned on the way has the same parts, which are summed in the same order. And no lane
// waits for a bank for it: results leave as they do without, which waits for some.
TEST(HopperF32, EveryLayout_GivesTheSameBitsWithoutMoreBankConflicts) {
  const HopperProduct along = ProductOf(136, 136, 136);
  std::mt19937 random(11);
  std::vector<float> a(along.m * along.k), b(along.n * along.k);
  for (std::vector<float>* side : {&a, &b})
    for (float& number : *side)
      number = std::ldexp(static_cast<float>(random() & 0xffffff) - 0x1p23f,
                          static_cast<int>(random() % 40) - 40);
  std::vector<std::string> wanted;  // of the machine, and of the interpreter
  uint64_t conflicts_wanted = 0;
  for (const bool turns_a : {false, true})
    for (const bool turns_b : {false, true}) {
      SCOPED_TRACE(testing::Message() << turns_a << turns_b);
      HopperProduct p = along;
      p.a_by_columns = turns_a;
      p.b_by_columns = !turns_b;
      Buffers start = EmptyBuffers(p);
      for (int64_t k = 0; k < p.k; ++k) {
        for (int64_t i = 0; i < p.m; ++i)
          SetNumber(start[1], PlaceOfA(p, i, k), a[static_cast<size_t>(i * p.k + k)]);
        for (int64_t j = 0; j < p.n; ++j)
          SetNumber(start[2], PlaceOfB(p, j, k), b[static_cast<size_t>(j * p.k + k)]);
      }
      const auto program = MakeHopperProduct(p, {.columns = 128, .stages = 2});
      ASSERT_TRUE(program.ok()) << program.status();
      Buffers by_ptx = start, by_program = start;
      uint64_t conflicts = 0;
      ASSERT_EQ(test::RunOnPtxMachine(KernelOf(*program), by_ptx, {}, 1, &conflicts),
                absl::OkStatus());
      const RunReport report = Interpret(*program, by_program, {}, {.seed = 2});
      ASSERT_TRUE(report.ok()) << report.message;
      if (wanted.empty()) {
        wanted = {by_ptx[0], by_program[0]};
        conflicts_wanted = conflicts;
      }
      EXPECT_EQ(conflicts, conflicts_wanted);
      EXPECT_EQ(by_ptx[0], wanted[0]);
      EXPECT_EQ(by_program[0], wanted[1]);
    }
}

struct Planted {
  const char* name;
  test::ProgramEdit edit;
  std::vector<Fault> faults;  // one of these, in both orders that are tried
};

// In the order of the program there are waits of the one who copies, of those who split (for a full
// stage), and of those who multiply (for a full one, then for its low parts).
std::vector<Planted> Mistakes() {
  using test::Changing;
  using test::Drop;
  const auto imm = [](int64_t value) {
    return [value](ProgramBuilder&, Instruction& i) {
      i.imm[0] = value;
      return true;
    };
  };
  const auto accumulators_alone = [](ProgramBuilder&, Instruction& i) {
    i.src.resize(1);
    return true;
  };
  return {
      {"no proxy fence behind the low parts",
       Changing(Code::kProxyFence, 0, Drop),
       {Fault::kMissingFence}},
      {"low parts of what is not there",
       Changing(Code::kMbWait, 1, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"A is read before it is there",
       Changing(Code::kMbWait, 2, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"products before the low parts are there",
       Changing(Code::kMbWait, 3, Drop),
       {Fault::kRace, Fault::kUninitialised}},
      {"one thread of those who split is not waited for",
       Changing(Code::kMbInit, 2, imm(63)),
       {Fault::kRace, Fault::kMisuse, Fault::kUninitialised, Fault::kMissingFence}},
      {"a stage is released while some still read A",
       Changing(Code::kWgSync, 0, Drop),
       {Fault::kRace}},
      {"no WGFENCE behind A's registers",
       Changing(Code::kWgFence, 0, accumulators_alone),
       {Fault::kAccumulator}},
      {"sums are added before they are there",
       Changing(Code::kWgWait, 0, imm(1)),
       {Fault::kAccumulator}},
      {"A's registers are not waited for",
       Changing(Code::kWgWait, 0, accumulators_alone),
       {Fault::kAccumulator}},
  };
}

void CheckMistakes(const test::HopperCase& product, const std::vector<Planted>& mistakes) {
  const auto program = MakeHopperProduct(product.product, product.tile);
  ASSERT_TRUE(program.ok()) << program.status();
  for (const Planted& planted : mistakes) {
    SCOPED_TRACE(planted.name);
    const Program wrong = test::Edited(*program, planted.edit);
    ASSERT_NE(wrong, *program);
    for (uint32_t seed = 1; seed <= 2; ++seed) {
      Buffers buffers = test::InputsOf(product);
      const RunReport report = Interpret(wrong, buffers, {}, {.seed = seed});
      EXPECT_TRUE(std::find(planted.faults.begin(), planted.faults.end(), report.fault) !=
                  planted.faults.end())
          << "seed " << seed << ": " << Name(report.fault) << ": " << report.message;
    }
  }
}

test::HopperCase Small(bool turned) {
  HopperProduct product = ProductOf(128, 64, 256);
  product.a_by_columns = turned;
  product.b_by_columns = !turned;
  return {.product = product, .tile = {.columns = 64, .stages = 2}};
}

TEST(HopperF32, EveryPlantedMistake_IsFoundInTwoOrders) { CheckMistakes(Small(false), Mistakes()); }

// Where B is turned, its parts overwrite what others of the warp have still to load.
TEST(HopperF32, EveryPlantedMistakeAcrossTheSteps_IsFoundInTwoOrders) {
  std::vector<Planted> mistakes = Mistakes();
  for (int quarters = 0; quarters < 2; ++quarters)
    mistakes.push_back({"a square is stored before all are loaded",
                        test::Changing(Code::kWarpSync, quarters, test::Drop),
                        {Fault::kRace}});
  CheckMistakes(Small(true), mistakes);
}

// The same of its PTX, with the report of its kind. One instruction is left out, of several alike
// the one with this number.
TEST(HopperF32, MistakesInPtx_AreReported) {
  struct Mistake {
    const char *name, *left_out, *kind, *report;
    bool turned = false;
    int number = 0;
  };
  const Mistake cases[] = {
      {"no proxy fence behind the low parts", "fence.proxy.async.shared::cta;", "proxy-fence",
       "other: block 0"},
      {"no WGFENCE behind A's registers", "wgmma.fence.sync.aligned;", "accumulator",
       "written without wgmma.fence"},
      {"no wait for the products", "wgmma.wait_group.sync.aligned 0;", "accumulator",
       "not waited for (wgmma.wait_group)"},
      {"no proxy fence behind what was turned", "fence.proxy.async.shared::cta;", "proxy-fence",
       "other: block 0", true},
      {"the first quarters are stored before all are loaded", "bar.warp.sync", "race", "", true},
      {"the others are", "bar.warp.sync", "race", "", true, 1},
  };
  for (const Mistake& mistake : cases) {
    SCOPED_TRACE(mistake.name);
    const test::HopperCase product = Small(mistake.turned);
    const auto program = MakeHopperProduct(product.product, product.tile);
    ASSERT_TRUE(program.ok()) << program.status();
    CompiledKernel wrong = KernelOf(*program);
    size_t at = wrong.object.find(mistake.left_out);
    for (int n = 0; n < mistake.number; ++n) at = wrong.object.find(mistake.left_out, at + 1);
    ASSERT_NE(at, std::string::npos);
    wrong.object.erase(at, wrong.object.find(';', at) + 1 - at);
    Buffers buffers = test::InputsOf(product);
    const std::string ran(test::RunOnPtxMachine(wrong, buffers).message());
    const std::string first = ran.substr(0, ran.find('\n'));
    EXPECT_TRUE(absl::StartsWith(first, mistake.kind)) << first;
    EXPECT_TRUE(absl::StrContains(first, mistake.report)) << first;
  }
}

TEST(HopperF32, FewStepsAndWideTiles_AreRefusedByTheirLimit) {
  EXPECT_TRUE(absl::StrContains(
      MakeHopperProduct(ProductOf(128, 128, 96), {}).status().message(), "from 128 on"));
  EXPECT_TRUE(absl::StrContains(
      MakeHopperProduct(ProductOf(128, 256, 128), {.columns = 256}).status().message(),
      "64 to 128 columns"));
  HopperProduct halves = ProductOf(128, 128, 128);
  halves.dtype = DType::kBF16;
  EXPECT_TRUE(absl::StrContains(MakeHopperProduct(halves, {}).status().message(),
                                "f32 has two parts"));
}

}  // namespace
}  // namespace outboard::program
