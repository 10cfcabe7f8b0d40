// How far EXP, EXP2, LOG, LOG2, SIN, COS and TANH of compiled kernels are from the exact values, in
// units in the last place (ulp) of their type; docs/semantics.md promises what is checked here.
//
// Every OUTBOARD_ULP_STEP-th float is tried: 1021 unless told, 1 for all of them (ten minutes).
// With OUTBOARD_CHECK_PTX, a kind of GPU, the kernels are PTX and run on the PTX machine. The C
// library's functions of wider numbers stand for the exact ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

struct Function {
  Op op;
  double (*exact)(double);
  long double (*exact_long)(long double);
};
const Function kFunctions[] = {
    {Op::kExp, std::exp, std::exp},    {Op::kExp2, std::exp2, std::exp2},
    {Op::kLog, std::log, std::log},    {Op::kLog2, std::log2, std::log2},
    {Op::kSin, std::sin, std::sin},    {Op::kCos, std::cos, std::cos},
    {Op::kTanh, std::tanh, std::tanh},
};
constexpr DType kSmallFloats[] = {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

// The kind of GPU whose kernels are tried; null: this machine's.
const char* Gpu() { return std::getenv("OUTBOARD_CHECK_PTX"); }

// Slot 1 is `op` of slot 0, for `count` elements.
class FunctionKernel {
 public:
  FunctionKernel(Op op, DType dtype, int64_t count, CompileOptions options = {}) {
    Graph g;
    const UOp* const i = Range(g, 0, count);
    const UOp* const value = Alu(g, op, LoadAt(g, 0, dtype, count, i));
    if (Gpu() != nullptr) options.target = CudaTarget(Gpu(), /*multiprocessors=*/132);
    auto compiled = CompileKernel(Sink(g, {StoreAt(g, 1, count, i, value)}), options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (Gpu() != nullptr) {
      ptx_ = *std::move(compiled);
      return;
    }
    auto loaded = LoadedKernel::Load(*std::move(compiled));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *std::move(loaded);
  }

  std::string Run(std::string in) const {
    std::string out(in.size(), '\0');
    if (loaded_ != nullptr) {
      void* const buffers[] = {in.data(), out.data()};
      loaded_->Run(buffers, 0, loaded_->kernel().tasks);
      return out;
    }
    Buffers buffers = {std::move(in), std::move(out)};
    const absl::Status ran = RunOnPtxMachine(ptx_, buffers);
    EXPECT_TRUE(ran.ok()) << ran << "\n" << ptx_.object;
    return std::move(buffers[1]);
  }

  template <typename T>
  std::vector<T> Run(const std::vector<T>& in) const {
    const std::string bytes =
        Run(std::string(reinterpret_cast<const char*>(in.data()), in.size() * sizeof(T)));
    std::vector<T> out(in.size());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }

 private:
  std::unique_ptr<LoadedKernel> loaded_;
  CompiledKernel ptx_;  // of a GPU
};

// |got - exact| in ulps of a type of `digits` digits whose least normal number is 2^lowest. An
// infinity counts as `beyond`, the number that would follow the largest one.
template <typename T>
double Ulps(T got, T exact, int digits, int lowest, T beyond) {
  if (std::isnan(exact) || std::isnan(got))
    return std::isnan(exact) && std::isnan(got) ? 0 : HUGE_VAL;
  const auto number = [&](T v) { return std::isinf(v) ? std::copysign(beyond, v) : v; };
  const T e = std::abs(exact) > beyond ? std::copysign(beyond, exact) : exact;
  if (number(got) == e) return 0;
  const int exponent = e == 0 ? lowest : std::max(std::ilogb(e), lowest);
  return static_cast<double>(std::abs(number(got) - e) / std::ldexp(T{1}, exponent - digits + 1));
}
double UlpsOfF32(float got, double exact) { return Ulps<double>(got, exact, 24, -126, 0x1p128); }

uint64_t Step() {
  const char* const text = std::getenv("OUTBOARD_ULP_STEP");
  return text == nullptr ? 1021 : std::max<uint64_t>(1, std::strtoull(text, nullptr, 10));
}

TEST(TranscendentalUlp, WithinTwoForEveryFloat) {
  constexpr size_t kCount = 1 << 16;
  const uint64_t step = Step();
  for (const Function& f : kFunctions) {
    const FunctionKernel kernel(f.op, DType::kF32, kCount);
    std::vector<float> in(kCount);
    double worst = 0;
    float where = 0;
    for (uint64_t first = 0; first < (uint64_t{1} << 32); first += kCount * step) {
      for (size_t k = 0; k < kCount; ++k)
        in[k] = std::bit_cast<float>(static_cast<uint32_t>(first + k * step));
      const std::vector<float> out = kernel.Run(in);
      for (size_t k = 0; k < kCount; ++k) {
        const double ulps = UlpsOfF32(out[k], f.exact(in[k]));
        if (ulps > worst) worst = ulps, where = in[k];
      }
    }
    std::printf("%s: %.3f ulp at %a\n", std::string(Name(f.op)).c_str(), worst, where);
    EXPECT_LE(worst, 2.0) << Name(f.op) << " of " << where;
  }
}

// Where range reduction, subnormal numbers and overflow are decided; and with them what comes to
// lie in the remainder of a vector.
TEST(TranscendentalUlp, Corners) {
  std::vector<float> in = {0.0f, 1.0f, 0.5f, 0.625f, 2.0f, 3.0f, 10.0f, 88.722839f, 88.72284f,
                           103.97208f, 103.97209f, 87.33654f, 126.0f, 127.0f, 127.99999f, 128.0f,
                           149.0f, 149.5f, 150.0f, 0x1p-149f, 0x1p-126f, 0x1.fffffep-127f,
                           0x1.fffffep127f, HUGE_VALF, NAN, 0x1p52f, 0x1.000002p52f, 0x1p80f,
                           0x1.000002p80f, 0x1p108f, 0x1.000002p108f,
                           // the multiples of pi / 2 that floats come closest to
                           0x1.6ac5b2p+2f, 0x1.f9cbe2p+7f, 0x1.a26ed4p+35f, 0x1.ddebp+107f,
                           0x1.2000bcp+71f, 0x1.d38b5ep+119f};
  for (int n = 0; n < 200; ++n) in.push_back(static_cast<float>(n * M_PI_2));
  for (int e = -149; e < 128; ++e) in.push_back(std::ldexp(1.3f, e));
  for (size_t k = 0, half = in.size(); k < half; ++k) in.push_back(-in[k]);
  for (const Function& f : kFunctions) {
    const auto count = static_cast<int64_t>(in.size());
    const std::vector<float> out = FunctionKernel(f.op, DType::kF32, count).Run(in);
    for (size_t k = 0; k < in.size(); ++k) {
      const double exact = f.exact(in[k]);
      EXPECT_LE(UlpsOfF32(out[k], exact), 2) << Name(f.op) << " of " << in[k] << " is " << out[k];
      if (exact == 0) {
        EXPECT_EQ(std::signbit(out[k]), std::signbit(exact)) << Name(f.op);
      }
    }
    CompileOptions alone;
    alone.no_opt = true;
    const std::vector<float> scalar = FunctionKernel(f.op, DType::kF32, count, alone).Run(in);
    for (size_t k = 0; k < in.size(); ++k)
      if (!std::isnan(out[k])) {
        EXPECT_EQ(out[k], scalar[k]) << Name(f.op) << " of " << in[k];
      }
  }
}

// By the unit of a GPU (docs/semantics.md, Exponentials of 16 bits).
bool IsByUnit(Op op, DType dtype) {
  return Gpu() != nullptr && ByteWidth(dtype) == 2 &&
         (op == Op::kExp || op == Op::kExp2 || op == Op::kTanh);
}

// Computed in f32 and rounded once: half a unit, and what two units of f32, or the bound of the
// unit, may carry over a tie.
TEST(TranscendentalUlp, SmallFloatsAreRoundedOnce) {
  for (const DType dtype : kSmallFloats) {
    const int width = ByteWidth(dtype);
    const auto count = size_t{1} << (8 * width);
    std::string in(count * width, '\0');
    for (size_t k = 0; k < count; ++k)
      StoreInt(width == 2 ? DType::kU16 : DType::kU8, static_cast<int64_t>(k),
               in.data() + k * width);
    for (const Function& f : kFunctions) {
      const std::string out = FunctionKernel(f.op, dtype, static_cast<int64_t>(count)).Run(in);
      for (size_t k = 0; k < count; ++k) {
        const double x = LoadFloat(dtype, in.data() + k * width);
        const double got = LoadFloat(dtype, out.data() + k * width), exact = f.exact(x);
        // Moved so far, the exact value rounds to what was found, one way or none.
        const double slack = std::abs(exact) * (IsByUnit(f.op, dtype) ? 0x1p-17 : 0x1p-22);
        const bool same = got == RoundTo(dtype, exact) || got == RoundTo(dtype, exact + slack) ||
                          got == RoundTo(dtype, exact - slack) ||
                          (std::isnan(got) && std::isnan(RoundTo(dtype, exact)));
        ASSERT_TRUE(same) << Name(f.op) << " " << Name(dtype) << " of " << x << ": " << got
                          << ", not " << exact;
      }
    }
  }
}

// docs/semantics.md allows four. `count` numbers of each kind; on the processor that LLVM calls
// `cpu`, or this one.
void ExpectDoublesWithinTwo(uint64_t count, const char* cpu) {
  std::mt19937_64 random(11);
  CompileOptions options;
  options.cpu = cpu;
  std::vector<double> in = {0, 1, 2, 10, 0.625, 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023,
                            HUGE_VAL, NAN, M_PI_4, 0x1.921fb54442d17p-1, 709.782712893384,
                            709.7827128933841, 745.1332191019411, 745.1332191019412, 1023.9999,
                            1024, 1074, 1075,
                            // the double that comes closest to a multiple of pi / 2
                            0x1.6ac5b262ca1ffp849,
                            // up to here sines are reduced by three parts of pi / 2
                            0x1p30, 0x1.0000000000001p30, 0x1.fffffffffffffp29};
  for (int n = 0; n < 200; ++n) in.push_back(n * M_PI_2);
  for (int e = -1074; e < 1024; ++e) in.push_back(std::ldexp(1.3, e));
  std::uniform_real_distribution<double> around(-40, 40), near(0.5, 2), far(-1100, 1100);
  std::uniform_real_distribution<double> exponent(0, 40);
  for (uint64_t k = 0; k < count; ++k) {
    in.push_back(std::bit_cast<double>(random()));
    in.push_back(around(random));
    in.push_back(near(random));
    in.push_back(far(random));
    // Many turns; and next to a multiple of pi / 2, where most digits cancel.
    const double turns = std::exp2(exponent(random));
    in.push_back(turns);
    in.push_back(static_cast<double>(std::trunc(turns) * (std::numbers::pi_v<long double> / 2)));
  }
  for (size_t k = 0, half = in.size(); k < half; ++k) in.push_back(-in[k]);
  for (const Function& f : kFunctions) {
    const std::vector<double> out =
        FunctionKernel(f.op, DType::kF64, static_cast<int64_t>(in.size()), options).Run(in);
    double worst = 0, where = 0;
    for (size_t k = 0; k < in.size(); ++k) {
      const long double exact = f.exact_long(in[k]);
      const auto ulps =
          static_cast<double>(Ulps<long double>(out[k], exact, 53, -1022, 0x1p1024L));
      if (ulps > worst) worst = ulps, where = in[k];
      if (exact == 0) {
        EXPECT_EQ(std::signbit(out[k]), std::signbit(exact)) << Name(f.op) << " of " << in[k];
      }
    }
    std::printf("%s: %.3f ulp at %a\n", std::string(Name(f.op)).c_str(), worst, where);
    EXPECT_LE(worst, 2.0) << Name(f.op) << " of " << where;
  }
}

TEST(TranscendentalUlp, DoublesWithinTwo) {
  ExpectDoublesWithinTwo(Gpu() != nullptr ? 1'000 : 20'000'000 / Step() + 20'000, "");
}

TEST(TranscendentalUlp, DoublesWithinTwo_ByAvx2) {
  if (!HostTarget().Has("avx2") || !HostTarget().Has("fma")) GTEST_SKIP() << "no AVX2 and FMA";
  ExpectDoublesWithinTwo(2'000'000 / Step() + 8'000, "haswell");
}

// MULACC is the C library's fma then, which rounds once as well: slow, and as close.
TEST(TranscendentalUlp, DoublesWithinTwo_WithoutFma) {
  ExpectDoublesWithinTwo(200'000 / Step() + 2'000, "x86-64");
}

// No calls: an object that is linked to nothing, with and without AVX-512.
TEST(TranscendentalUlp, CallsNothing) {
  for (const auto& [cpu, dtype] : {std::pair("skylake-avx512", DType::kF32),
                                   std::pair("haswell", DType::kF32),
                                   std::pair("skylake-avx512", DType::kF64),
                                   std::pair("haswell", DType::kF64)})
    for (const Function& f : kFunctions) {
      Graph g;
      const UOp* const i = Range(g, 0, 1000);
      const UOp* const value = Alu(g, f.op, LoadAt(g, 0, dtype, 1000, i));
      CompileOptions options;
      options.cpu = cpu;
      const auto compiled = CompileKernel(Sink(g, {StoreAt(g, 1, 1000, i, value)}), options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      for (const char* const name : {"exp", "log", "sin", "cos", "tan", "fma", "trunc", "mem"})
        EXPECT_EQ(compiled->object.find(name), std::string::npos)
            << Name(f.op) << " calls " << name;
    }
}

}  // namespace
}  // namespace outboard::test
