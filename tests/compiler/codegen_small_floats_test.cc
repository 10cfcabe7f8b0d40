// Floats of 8 and 16 bits in compiled code, every value of them: conversions both ways, and the
// arithmetic that is done in f32 and rounded back (docs/semantics.md, "Floats"). With
// OUTBOARD_CHECK_PTX=sm_90 the kernels are PTX for that GPU, run on the PTX machine.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {
namespace {

// An x86-64 without half precision, one with, and this machine.
const CompileOptions kProcessors[] = {{}, {.cpu = "haswell"}, {.cpu = "x86-64"}};

class SmallFloats : public testing::TestWithParam<DType> {
 protected:
  static int Width() { return ByteWidth(GetParam()); }
  static int64_t Values() { return int64_t{1} << (8 * Width()); }
  // Every bit pattern, in order.
  static std::string AllValues() {
    std::string bytes;
    for (int64_t i = 0; i < Values(); ++i) bytes.append(reinterpret_cast<const char*>(&i), Width());
    return bytes;
  }
  static double At(const std::string& bytes, int64_t i) {
    return LoadFloat(GetParam(), bytes.data() + i * Width());
  }

  // Runs a kernel of slot 0 = f(other slots) on each processor and hands over what it wrote.
  static void Run(const UOp* sink, const Buffers& start,
                  const std::function<void(const std::string&)>& check) {
    if (const char* const arch = std::getenv("OUTBOARD_CHECK_PTX"); arch != nullptr) {
      const auto compiled = CompileKernel(sink, {.target = CudaTarget(arch, 132)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      Buffers buffers = start;
      ASSERT_EQ(RunOnPtxMachine(*compiled, buffers), absl::OkStatus());
      check(buffers[0]);
      return;
    }
    for (const CompileOptions& options : kProcessors) {
      SCOPED_TRACE("cpu \"" + options.cpu + "\"");
      auto compiled = CompileKernel(sink, options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      auto loaded = LoadedKernel::Load(*std::move(compiled));
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      Buffers buffers = start;
      (*loaded)->RunGuarded(buffers);
      check(buffers[0]);
    }
  }
};

std::string NameOf(const testing::TestParamInfo<DType>& info) {
  return std::string(Name(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, SmallFloats,
                         testing::Values(DType::kF8E4M3, DType::kF8E5M2, DType::kF16, DType::kBF16),
                         NameOf);

TEST_P(SmallFloats, ToF32) {
  Graph g;
  const int64_t count = Values();
  const UOp* const i = Range(g, 0, count);
  const UOp* const wide = Cast(g, LoadAt(g, 1, GetParam(), count, i), DType::kF32);
  const std::string values = AllValues();
  Run(Sink(g, {StoreAt(g, 0, count, i, wide)}), {std::string(4 * count, '\0'), values},
      [&](const std::string& result) {
        for (int64_t k = 0; k < count; ++k) {
          const double want = At(values, k), got = LoadFloat(DType::kF32, result.data() + 4 * k);
          if (std::isnan(want) && std::isnan(got)) continue;
          ASSERT_EQ(got, want) << "bits " << k;
          ASSERT_EQ(std::signbit(got), std::signbit(want)) << "bits " << k;
        }
      });
}

// Each value, the middle between it and the next, and the f32 on either side of both; then what is
// beyond the largest.
TEST_P(SmallFloats, FromF32) {
  const std::string values = AllValues();
  std::vector<float> inputs = {INFINITY,   -INFINITY, NAN,      -NAN,     3.4e38f,
                               -3.4e38f,   1e-45f,    -1e-45f,  448.0f,   464.0f,
                               463.99997f, 480.0f,    57344.0f, 61440.0f, 61439.996f};
  for (int64_t k = 0; k + 1 < Values(); ++k) {
    const double a = At(values, k), b = At(values, k + 1);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    for (const double x : {a, (a + b) / 2}) {
      const auto nearest = static_cast<float>(x);
      inputs.insert(inputs.end(), {std::nextafterf(nearest, -INFINITY), nearest,
                                   std::nextafterf(nearest, INFINITY)});
    }
  }
  Graph g;
  const auto count = static_cast<int64_t>(inputs.size());
  const UOp* const i = Range(g, 0, count);
  const UOp* const narrow = Cast(g, LoadAt(g, 1, DType::kF32, count, i), GetParam());
  const std::string bytes(reinterpret_cast<const char*>(inputs.data()), 4 * inputs.size());
  Run(Sink(g, {StoreAt(g, 0, count, i, narrow)}), {std::string(count * Width(), '\0'), bytes},
      [&](const std::string& result) {
        for (int64_t k = 0; k < count; ++k) {
          const double want = RoundTo(GetParam(), inputs[k]), got = At(result, k);
          if (std::isnan(want) && std::isnan(got)) continue;
          ASSERT_EQ(got, want) << inputs[k];
          ASSERT_EQ(std::signbit(got), std::signbit(want)) << inputs[k];
        }
      });
}

// One operand is every value; the other too for 8 bits, and some of all sizes for 16.
// The largest of each three of some values: a NaN stays, whatever it is compared with and in
// whatever order, in every lane and in what is left over.
TEST_P(SmallFloats, LargestOfThree) {
  const std::string values = AllValues();
  std::vector<int64_t> chosen;  // bits
  for (const double wanted : {0.0, 1.0, 1.5, -1.0, -0.25})
    for (int64_t k = 0; k < Values(); ++k)
      if (At(values, k) == wanted) chosen.push_back(k);
  for (int64_t k = 0; k < Values(); ++k)
    if (std::isnan(At(values, k))) {
      chosen.push_back(k);
      break;
    }
  std::string rows;
  for (const int64_t a : chosen)
    for (const int64_t b : chosen)
      for (const int64_t c : chosen)
        for (const int64_t bits : {a, b, c})
          rows.append(reinterpret_cast<const char*>(&bits), Width());
  const auto count = static_cast<int64_t>(rows.size()) / Width() / 3;

  Graph g;
  const UOp *const r = Range(g, 0, count), *const k = ReduceRange(g, 1, 3);
  const UOp* const at = Add(g, Mul(g, r, ConstIndex(g, 3)), k);
  const UOp* const largest = Fold(g, Op::kMax, LoadAt(g, 1, GetParam(), 3 * count, at), {k});
  Run(Sink(g, {StoreAt(g, 0, count, r, largest)}), {std::string(Width() * count, '\0'), rows},
      [&](const std::string& result) {
        for (int64_t row = 0; row < count; ++row) {
          const double a = At(rows, 3 * row), b = At(rows, 3 * row + 1), c = At(rows, 3 * row + 2);
          const double got = At(result, row);
          if (std::isnan(a) || std::isnan(b) || std::isnan(c))
            ASSERT_TRUE(std::isnan(got)) << a << ", " << b << ", " << c << ": " << got;
          else
            ASSERT_EQ(got, std::max({a, b, c})) << a << ", " << b << ", " << c;
        }
      });
}

TEST_P(SmallFloats, Arithmetic) {
  const int64_t across = Width() == 1 ? 256 : 8;
  std::string others = AllValues();
  if (Width() == 2) {
    others.clear();
    for (const double x : {0.0, 1.0, -1.0078125, 3e-5, 60000.0, -1e-40, 0.3, -HUGE_VAL}) {
      char bits[2];
      StoreFloat(GetParam(), RoundTo(GetParam(), x), bits);
      others.append(bits, 2);
    }
  }
  const std::string values = AllValues();
  for (const Op op : {Op::kAdd, Op::kMul, Op::kFDiv, Op::kMax}) {
    SCOPED_TRACE(std::string(Name(op)));
    Graph g;
    const UOp *i = Range(g, 0, across), *k = Range(g, 1, Values());
    const UOp* const y =
        Alu(g, op, LoadAt(g, 1, GetParam(), across, i), LoadAt(g, 2, GetParam(), Values(), k));
    const UOp* const sink =
        Sink(g, {StoreAt(g, 0, across * Values(), RowMajor(g, {i, k}, {across, Values()}), y)});
    const Buffers start = {std::string(across * Values() * Width(), '\0'), others, values};
    Buffers want = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    Run(sink, start, [&](const std::string& result) {
      for (int64_t at = 0; at < across * Values(); ++at) {
        const double x = At(want[0], at), z = At(result, at);
        if (std::isnan(x) && std::isnan(z)) continue;
        ASSERT_EQ(z, x) << At(others, at / Values()) << " and " << At(values, at % Values());
        ASSERT_EQ(std::signbit(z), std::signbit(x)) << at;
      }
    });
  }
}

}  // namespace
}  // namespace outboard::test
