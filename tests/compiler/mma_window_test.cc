// Convolutions of few channels by the matrix units of a GPU, whose windows lie in slots of shared
// memory (compiler/optimize/operands/mma_window.h): their programs in the interpreter, their PTX on
// the PTX machine, both against a walk of the kernel.
#include "compiler/optimize/operands/mma_window.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "tests/compiler/conv_kernels.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_assembler.h"

namespace outboard::test {
namespace {

enum class Of { kForward, kInputGradient, kWeightGradient };

const UOp* KernelOf(Graph& g, const ConvCase& conv, Of of) {
  ConvKernels kernels(g, conv);
  switch (of) {
    case Of::kForward: return kernels.Forward();
    case Of::kInputGradient: return kernels.InputGradient();
    case Of::kWeightGradient: break;
  }
  return kernels.WeightGradient();
}

// The product by this tile with its windows in slots.
codegen::MmaProduct Padded(const UOp* sink, const MmaTile& tile) {
  const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
  codegen::MmaPlan plan{.product = ValueOrDie(codegen::FindMmaProduct(kernel)), .tile = tile};
  PadWindows(kernel, plan);
  return plan.product;
}

bool HasPairs(const codegen::MmaProduct& product) {
  return product.addends[0].rows.pairs || product.addends[0].columns.pairs;
}

// Of sums of eighths, which are exact.
void Check(const ConvCase& conv, Of of, const MmaTile& tile, const char* arch = "sm_80") {
  SCOPED_TRACE(testing::Message() << conv.in << " channels, window " << conv.kernel << ", stride "
                                  << conv.stride << ", padding " << conv.padding << ", "
                                  << conv.height << " x " << conv.width << ", groups "
                                  << conv.groups << ", " << std::string(Name(conv.dtype))
                                  << ", last " << conv.channels_last << conv.taps_last << ", "
                                  << static_cast<int>(of) << " on " << arch);
  Graph g;
  const UOp* const sink = KernelOf(g, conv, of);
  const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
  CheckKernel(sink, &tile, kernel.groups[0].ranges[0], 0, arch);
}

constexpr MmaTile kTile{32, 32, 32, 2, 2, 3}, kTileOfF32{32, 64, 32, 2, 2, 2};
constexpr ConvCase kFirstLayer{.batch = 1,
                               .in = 3,
                               .out = 16,
                               .height = 12,
                               .width = 14,
                               .kernel = 7,
                               .stride = 2,
                               .padding = 3,
                               .channels_last = false,
                               .taps_last = true};

struct Slots {
  const char* name;
  ConvCase conv;
  Of of;
  int64_t slots, front;
  bool pairs;
};

TEST(MmaWindow, PadWindows_OfFewChannels) {
  ConvCase odd_width = kFirstLayer, stride_1 = kFirstLayer, even_start = kFirstLayer,
           small = kFirstLayer, last = kFirstLayer, many = kFirstLayer, tf32 = kFirstLayer;
  odd_width.width = 13;
  stride_1.stride = 1;
  even_start.padding = 2;
  small.kernel = 3;
  small.padding = 1;
  last.channels_last = true;
  last.taps_last = false;
  many.in = 64;
  tf32.dtype = DType::kF32;
  tf32.tf32 = true;
  ConvCase exact = tf32;
  exact.tf32 = false;
  const Slots cases[] = {
      {"first layer", kFirstLayer, Of::kForward, 8, 1, true},
      {"its weights", kFirstLayer, Of::kWeightGradient, 8, 1, true},
      {"rows of odd lengths", odd_width, Of::kForward, 8, 0, false},
      {"windows that begin anywhere", stride_1, Of::kForward, 8, 0, false},
      {"windows that begin at even places", even_start, Of::kForward, 8, 0, true},
      {"3 x 3", small, Of::kForward, 4, 1, true},
      {"channels last", last, Of::kForward, 4, 0, false},
      {"channels last, weights", last, Of::kWeightGradient, 4, 0, false},
      {"TF32", tf32, Of::kForward, 8, 0, false},
      {"TF32, weights", tf32, Of::kWeightGradient, 0, 0, false},
      {"three products", exact, Of::kForward, 0, 0, false},
      {"many channels", many, Of::kForward, 0, 0, false},
  };
  for (const Slots& want : cases) {
    SCOPED_TRACE(want.name);
    Graph g;
    const codegen::MmaProduct product = Padded(KernelOf(g, want.conv, want.of),
                                               want.conv.dtype == DType::kF32 ? kTileOfF32 : kTile);
    EXPECT_EQ(product.window.slots, want.slots);
    EXPECT_EQ(product.window.front, want.front);
    EXPECT_EQ(HasPairs(product), want.pairs);
  }
}

// A tile of which a thread has less than a window of an operand copies elements.
TEST(MmaWindow, PadWindows_LeavesTilesThatAreTooSmall) {
  Graph g;
  const UOp* const sink = KernelOf(g, kFirstLayer, Of::kForward);
  const MmaTile tile{32, 16, 16, 2, 1, 2};
  EXPECT_EQ(Padded(sink, {32, 32, 32, 2, 2, 2}).window.slots, 8);
  EXPECT_EQ(Padded(sink, tile).window.slots, 0);
  Check(kFirstLayer, Of::kForward, tile);
}

// Checks forward and both gradients, where their windows lie in slots; returns in how many they do.
int CheckThoseWithSlots(const ConvCase& conv) {
  int checked = 0;
  for (const Of of : {Of::kForward, Of::kInputGradient, Of::kWeightGradient}) {
    if (conv.in == 1 && of == Of::kInputGradient) continue;  // no product of matrices
    Graph g;
    if (Padded(KernelOf(g, conv, of), kTile).window.slots == 0 || testing::Test::HasFatalFailure())
      continue;
    Check(conv, of, kTile);
    ++checked;
  }
  return checked;
}

TEST(MmaWindow, EveryWindowAndStride) {
  int checked = 0;
  for (const int64_t kernel : {1, 2, 3, 4, 5, 6, 7})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t padding : {int64_t{0}, kernel / 2})
        for (const int64_t width : {19, 20}) {
          ConvCase conv = kFirstLayer;
          conv.width = width;
          conv.kernel = kernel;
          conv.stride = stride;
          conv.padding = padding;
          checked += CheckThoseWithSlots(conv);
        }
  EXPECT_EQ(checked, 106);
}

TEST(MmaWindow, EveryNumberOfChannels) {
  int checked = 0;
  for (const int64_t in : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const bool last : {false, true})
      for (const int64_t width : {14, 13}) {
        ConvCase conv = kFirstLayer;
        conv.in = in;
        conv.width = width;
        conv.kernel = last ? 3 : 5;
        conv.padding = 1;
        conv.channels_last = last;
        conv.taps_last = !last;
        checked += CheckThoseWithSlots(conv);
      }
  EXPECT_EQ(checked, 54);
}

TEST(MmaWindow, EveryTypeTileAndDevice) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const int64_t kernel : {3, 7})
      for (const int64_t groups : {1, 2})
        for (const bool mixed : {false, true}) {  // weights with taps first: they lie otherwise
          ConvCase conv = kFirstLayer;
          conv.kernel = kernel;
          conv.padding = kernel / 2;
          conv.groups = groups;
          conv.taps_last = !mixed;
          conv.dtype = dtype;
          conv.tf32 = dtype == DType::kF32;
          for (const Of of : {Of::kForward, Of::kWeightGradient}) {
            Check(conv, of, dtype == DType::kF32 ? kTileOfF32 : kTile, "sm_89");
            if (HasFatalFailure()) return;
          }
        }
  for (const MmaTile& tile : {MmaTile{64, 128, 32, 2, 2, 4}, MmaTile{128, 64, 32, 2, 2, 4},
                              MmaTile{16, 64, 64, 1, 4, 4}, MmaTile{64, 16, 64, 4, 1, 2}})
    for (const Of of : {Of::kForward, Of::kWeightGradient}) {
      Check(kFirstLayer, of, tile, "sm_90a");
      if (HasFatalFailure()) return;
    }
}

// As users have them, by the tile that is chosen: the program is shown to be in range.
TEST(MmaWindow, LargeLayers_AreProved) {
  const Target target = CudaTarget("sm_80", kMultiprocessors);
  int proved = 0;
  for (const int64_t side : {224, 227, 32, 28})
    for (const int64_t kernel : {3, 5, 7})
      for (const int64_t stride : {1, 2})
        for (const int64_t in : {1, 3})
          for (const int64_t out : {32, 64, 96})
            for (const Of of : {Of::kForward, Of::kWeightGradient}) {
              ConvCase conv = kFirstLayer;
              conv.batch = 32;
              conv.in = in;
              conv.out = out;
              conv.height = conv.width = side;
              conv.kernel = kernel;
              conv.stride = stride;
              conv.padding = kernel / 2;
              SCOPED_TRACE(testing::Message() << side << " " << kernel << " " << stride << " " << in
                                              << " " << out << " " << static_cast<int>(of));
              Graph g, guards;
              const codegen::LoopNest nest = ValueOrDie(codegen::AnalyzeKernel(
                  ValueOrDie(proof::GuardUnproved(guards, KernelOf(g, conv, of)))));
              const auto plan = ValueOrDie(codegen::PlanMma(nest, target, nullptr));
              if (!plan) continue;
              codegen::MmaPlan padded = *plan;
              PadWindows(nest, padded);
              if (padded.product.window.slots == 0) continue;
              // As it is: `plan` would be lowered without windows if these were not proved.
              const auto program = program::ExpandMma(nest, padded);
              EXPECT_TRUE(program.ok()) << program.status();
              ++proved;
            }
  EXPECT_EQ(proved, 192);
}

// The gradient of weights that are stored [in,kh,kw,out]: the image is the rows, which are more in
// slots, and so are the tiles below each other that an order divides.
TEST(MmaWindow, OrdersOfTiles_DivideThoseWithSlotsOrThereAreNone) {
  constexpr int64_t kIn = 3, kOut = 40, kTaps = 7, kHigh = 12, kWide = 14, kDown = 3, kAcross = 4;
  Graph g;
  const UOp *ic = Range(g, 0, kIn), *kh = Range(g, 1, kTaps), *kw = Range(g, 2, kTaps),
            *oc = Range(g, 3, kOut), *oh = ReduceRange(g, 4, kDown),
            *ow = ReduceRange(g, 5, kAcross);
  const UOp* const two = ConstIndex(g, 2);
  const UOp* const x = LoadAt(
      g, 1, DType::kBF16, kIn * kHigh * kWide,
      RowMajor(g, {ic, Add(g, Mul(g, oh, two), kh), Add(g, Mul(g, ow, two), kw)},
               {kIn, kHigh, kWide}));
  const UOp* const dy = LoadAt(g, 2, DType::kBF16, kOut * kDown * kAcross,
                               RowMajor(g, {oc, oh, ow}, {kOut, kDown, kAcross}));
  const UOp* const sum =
      Fold(g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, dy, DType::kF32)), {oh, ow});
  const UOp* const sink =
      Sink(g, {StoreAt(g, 0, kIn * kTaps * kTaps * kOut,
                       RowMajor(g, {ic, kh, kw, oc}, {kIn, kTaps, kTaps, kOut}), sum)});
  const auto tile = [](int64_t order) { return MmaTile{16, 32, 64, 1, 2, 2, 32, order}; };
  EXPECT_EQ(Padded(sink, tile(0)).window.slots, 8);
  EXPECT_EQ(Padded(sink, tile(5)).window.slots, 0) << "11 tiles with slots, 10 without";
  for (const int64_t order : {0, 1, 2, 5}) {
    SCOPED_TRACE(order);
    const MmaTile ordered = tile(order);
    CheckKernel(sink, &ordered, 4, 0, "sm_80");
  }
}

// y[oc,o] = sum x[c,2*o+tap] * w[oc,c,tap], of which only the first `places` of x are not zeros;
// or, with the tap on both sides, those at 2*o + 2*tap < places - tap.
const UOp* Cut(Graph& g, int64_t places, bool both_sides = false) {
  constexpr int64_t kChannels = 5, kWidth = 40, kTaps = 7, kOut = 16, kResults = 17;
  const UOp *oc = Range(g, 0, kOut), *o = Range(g, 1, kResults);
  const UOp *c = ReduceRange(g, 2, kChannels), *tap = ReduceRange(g, 3, kTaps);
  const UOp* const at = Add(g, Mul(g, o, ConstIndex(g, 2)), tap);
  const UOp* const x =
      GatedLoadAt(g, 1, DType::kBF16, kChannels * kWidth, RowMajor(g, {c, at}, {kChannels, kWidth}),
                  both_sides ? Alu(g, Op::kCmpLt, Add(g, at, tap),
                                   Add(g, ConstIndex(g, places), Mul(g, tap, ConstIndex(g, -1))))
                             : Alu(g, Op::kCmpLt, at, ConstIndex(g, places)),
                  ConstFloat(g, DType::kBF16, 0));
  const UOp* const w = LoadAt(g, 2, DType::kBF16, kOut * kChannels * kTaps,
                              RowMajor(g, {oc, c, tap}, {kOut, kChannels, kTaps}));
  const UOp* const sum =
      Fold(g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, w, DType::kF32)), {c, tap});
  return Sink(g, {StoreAt(g, 0, kOut * kResults, RowMajor(g, {oc, o}, {kOut, kResults}), sum)});
}

// A bound between the two taps of a pair: each is copied by itself.
TEST(MmaWindow, ABoundWithinAPair) {
  for (const int64_t places : {20, 21}) {
    SCOPED_TRACE(places);
    Graph g;
    const UOp* const sink = Cut(g, places);
    EXPECT_EQ(Padded(sink, kTile).window.slots, 8);
    EXPECT_EQ(HasPairs(Padded(sink, kTile)), places % 2 == 0);
    CheckKernel(sink, &kTile, 2, 0, "sm_80");
    const UOp* const both = Cut(g, places + 1, /*both_sides=*/true);
    EXPECT_FALSE(HasPairs(Padded(both, kTile)));
    CheckKernel(both, &kTile, 2, 0, "sm_80");
  }
}

// A slot without a tap is 0 in both operands: what lies beside a window is no part of its sum.
TEST(MmaWindow, WhatLiesBesideAWindow_IsNoPartOfIt) {
  for (const Of of : {Of::kForward, Of::kWeightGradient}) {
    Graph g;
    const UOp* const sink = KernelOf(g, kFirstLayer, of);
    ASSERT_TRUE(HasPairs(Padded(sink, kTile)));
    Buffers start = RandomBuffers(sink, 1);
    // Of the last channel, the last row's places 2 and 11: some windows have neither.
    const double infinity = std::numeric_limits<double>::infinity();
    const int64_t row = (3 * kFirstLayer.height - 1) * kFirstLayer.width;
    StoreFloat(DType::kBF16, infinity, start[1].data() + 2 * (row + 2));
    StoreFloat(DType::kBF16, std::nan(""), start[1].data() + 2 * (row + 11));
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const codegen::LoopNest kernel = ValueOrDie(codegen::AnalyzeKernel(sink));
    const CompiledKernel compiled = ValueOrDie(CompileKernel(
        sink, {.target = CudaTarget("sm_80", kMultiprocessors),
               .opts = {{{OptKind::kMma, kernel.groups[0].ranges[0], MmaAmount(kTile)}}}}));
    ASSERT_EQ(RunOnPtxMachine(compiled, got), absl::OkStatus());
    int finite = 0, other = 0;
    for (size_t at = 0; at < got[0].size(); at += 4) {
      const double x = LoadFloat(DType::kF32, got[0].data() + at),
                   y = LoadFloat(DType::kF32, want[0].data() + at);
      ASSERT_EQ(std::isfinite(x), std::isfinite(y)) << at / 4;
      if (std::isfinite(y)) {
        ASSERT_EQ(x, y) << at / 4;
      }
      ++(std::isfinite(y) ? finite : other);
    }
    EXPECT_GT(finite, 0);
    EXPECT_GT(other, 0);
  }
}

}  // namespace
}  // namespace outboard::test
