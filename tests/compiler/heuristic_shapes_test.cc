// The heuristic never chooses Opts that are refused, and divides sums in the same way at each price
// of code: products, convolutions and reductions of random shapes, large, odd and prime ones among
// them, with their gradients, for targets of several vector widths. Nothing is compiled.
// OUTBOARD_SHAPES=n makes n programs, OUTBOARD_SEED=n repeats program n alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/proof/in_range.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/schedule_programs.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

constexpr double kElementsMax = 1 << 23;  // of a tensor, which the session allocates

class RandomShapes {
 public:
  explicit RandomShapes(uint32_t seed) : random_(seed) {}

  Program Next() {
    switch (random_() % 4) {
      case 0: return {"product", [this](Size) { Product(); }};
      case 1: return {"convolution", [this](Size) { Convolution(); }};
      case 2: return {"reduction", [this](Size) { Reduction(); }};
      default: return {"softmax", [this](Size) { Softmax(); }};
    }
  }
  const std::string& what() const { return what_; }

 private:
  int64_t Below(int64_t end) { return static_cast<int64_t>(random_() % end); }
  bool Sometimes() { return random_() % 3 == 0; }
  // Small, a prime, near a power of two, or large.
  int64_t Extent(int64_t most) {
    static constexpr int64_t kPrimes[] = {2,  3,  5,   7,   11,  13,   31,
                                          61, 97, 127, 251, 509, 1021, 4093};
    int64_t extent = 1;
    switch (random_() % 4) {
      case 0: extent = 1 + Below(16); break;
      case 1: extent = kPrimes[Below(std::size(kPrimes))]; break;
      case 2: extent = (int64_t{1} << Below(15)) + Below(3) - 1; break;
      default: extent = 1 + Below(most);
    }
    return std::clamp<int64_t>(extent, 1, most);
  }
  Dims Shape(const Dims& most) {
    while (true) {
      Dims dims;
      double elements = 1;
      for (const int64_t extent : most) {
        dims.push_back(Extent(extent));
        elements *= static_cast<double>(dims.back());
      }
      if (elements <= kElementsMax) return dims;
    }
  }
  Tensor Weight(const Dims& dims) {
    what_ += " (";
    for (const int64_t extent : dims) what_ += " " + std::to_string(extent);
    what_ += " )";
    return Tensor::zeros(dims, Sometimes() ? DType::kBF16 : DType::kF32).requires_grad_();
  }
  void Run(const Tensor& result, const std::vector<Tensor>& weights) {
    std::vector<Tensor> results = {result};
    if (Sometimes())
      for (Tensor& gradient : result.cast(DType::kF32).sum().gradient(weights))
        results.push_back(gradient);
    realize(results);
  }

  void Product() {
    const Dims left_shape = Shape({20000, 70000}), right_shape = Shape({20000});
    const int64_t rows = left_shape[0], inner = left_shape[1];
    const int64_t columns = std::min(right_shape[0], (1 << 23) / std::max(rows, inner));
    const bool batched = Sometimes();
    const auto matrix = [&](int64_t a, int64_t b, bool turned) {
      Dims dims = turned ? Dims{b, a} : Dims{a, b};
      if (batched) dims.insert(dims.begin(), 3);
      const Tensor made = Weight(dims);
      return std::pair{made, turned ? made.transpose() : made};
    };
    const auto [a, left] = matrix(rows, inner, Sometimes());
    const auto [b, right] = matrix(inner, columns, Sometimes());
    const Tensor product = left.cast(DType::kF32).matmul(right.cast(DType::kF32));
    Run(Sometimes() ? product.relu() : product, {a, b});
  }
  void Convolution() {
    const int64_t size = 1 + Below(7), batch = 1 + Below(8), side = size + Below(60);
    const int64_t groups = Sometimes() ? 1 + Below(4) : 1;
    const int64_t in = groups * Extent(1280 / groups), out = groups * Extent(1280 / groups);
    const Tensor x = Weight({batch, in, side, side}), w = Weight({out, in / groups, size, size});
    Run(x.cast(DType::kF32)
            .conv2d(w.cast(DType::kF32), {}, {.groups = groups, .stride = 1 + Below(2)}),
        {x, w});
  }
  void Reduction() {
    const Dims dims = Shape({2000, 300, 2000});
    const Tensor x = Weight(dims);
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < 3; ++axis)
      if (random_() % 2) axes.push_back(axis);
    if (axes.empty()) axes = {2};
    const Tensor y = x.cast(DType::kF32);
    Run(Sometimes() ? y.max(axes) : (y * y).sum(axes), {x});
  }
  void Softmax() {
    const Tensor x = Weight(Shape({5000, 70000}));
    Run(Sometimes() ? x.cast(DType::kF32).layernorm() : x.cast(DType::kF32).softmax(), {x});
  }

  std::mt19937 random_;
  std::string what_;
};

// What the bits of a result depend on: all but tiles, tasks and copies.
std::string DivisionOf(std::vector<codegen::Opt> opts) {
  std::erase_if(opts, [](const codegen::Opt& opt) {
    return opt.kind == codegen::OptKind::kUpcast || opt.kind == codegen::OptKind::kThread ||
           opt.kind == codegen::OptKind::kBlock || opt.kind == codegen::OptKind::kSwap ||
           opt.kind == codegen::OptKind::kLocal;
  });
  return codegen::OptsToString(opts);
}

TEST(HeuristicShapes, NeverChoosesWhatIsRefused) {
  const char* const only = std::getenv("OUTBOARD_SEED");
  const char* const count = std::getenv("OUTBOARD_SHAPES");
  const uint32_t first = only ? std::atoi(only) : 0;
  const uint32_t last = only ? first + 1 : count ? std::atoi(count) : 200;
  const Target targets[] = {TestTarget(), TestTargetWith(32, 16), TestTargetWith(16, 16),
                            TestTargetWith(64, 32, Bf16Products::kTiles)};
  int64_t kernels = 0;
  for (uint32_t seed = first; seed < last; ++seed) {
    RandomShapes shapes(seed);
    const Program program = shapes.Next();
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kReal);
    const Target& target = targets[seed % std::size(targets)];
    const auto schedule = schedule::MakeSchedule(g, sink, target);
    ASSERT_TRUE(schedule.ok()) << "seed " << seed << ": " << program.name << shapes.what() << "\n"
                               << schedule.status();
    for (const schedule::ScheduledKernel& scheduled : schedule->kernels) {
      Graph guards;
      const UOp* const guarded = ValueOrDie(proof::GuardUnproved(guards, scheduled.ast));
      auto kernel = codegen::AnalyzeKernel(guarded);
      ASSERT_TRUE(kernel.ok()) << "seed " << seed << ": " << kernel.status();
      const std::vector<codegen::Opt> opts =
          codegen::HeuristicOpts(*kernel, target, codegen::kCodePrice);
      EXPECT_EQ(DivisionOf(opts), DivisionOf(codegen::HeuristicOpts(*kernel, target)))
          << "seed " << seed << ": " << program.name << shapes.what();
      const auto planned = codegen::ApplyOpts(*std::move(kernel), opts, target);
      EXPECT_TRUE(planned.ok()) << "seed " << seed << ": " << program.name << shapes.what() << "\n"
                                << codegen::OptsToString(opts) << "\n"
                                << planned.status();
      ++kernels;
    }
  }
  EXPECT_GE(kernels, static_cast<int64_t>(last - first));
}

// A kernel that does little is written out once or twice, one that does much as if LLVM took no
// time.
TEST(Tiles, AreForWorkThatPaysForThem) {
  // Of a tile; vectors of the range in lanes.
  const auto values = [](const std::vector<codegen::Opt>& opts) {
    int64_t count = 1;
    for (const codegen::Opt& opt : opts)
      if (opt.kind == codegen::OptKind::kUpcast) count *= opt.amount;
    return count;
  };
  for (const Target& target : {TestTarget(), TestTargetWith(32, 16)}) {
    const auto chosen = [&](int64_t m, int64_t n, int64_t k, double price) {
      Graph g;
      const auto kernel = ValueOrDie(codegen::AnalyzeKernel(MatMul(g, m, n, k)));
      return codegen::HeuristicOpts(kernel, target, price);
    };
    EXPECT_GE(values(chosen(16, 16, 8, 0)), 8);
    EXPECT_LE(values(chosen(16, 16, 8, codegen::kCodePrice)), 2);
    EXPECT_GE(values(chosen(500, 500, 300, 0)), 8);
    EXPECT_EQ(chosen(500, 500, 300, codegen::kCodePrice), chosen(500, 500, 300, 0));
  }
}

}  // namespace
}  // namespace outboard::test
