// Kernels in several copies (compiler/copies.h): what one launch of them computes on the PTX
// machine against a walk of each copy, and which kernels of a schedule become one launch.
#include "compiler/copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "compiler/schedule/launches/group.h"
#include "compiler/schedule/launches/slots.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/copies_check.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_90a"};
constexpr double kTolerance = 3e-5;  // sums in another order

// ---- what a launch computes

// Every copy has its own numbers; one buffer, if asked for, is the same for all.
void ExpectEachCopy(const UOp* sink, int copies, const std::string& arch, uint32_t seed) {
  SCOPED_TRACE(absl::StrCat(copies, " copies for ", arch, ", seed ", seed));
  Graph graph;
  const auto kernel =
      CompileKernel(WithCopies(graph, sink, copies), {.target = CudaTarget(arch, 132)});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_EQ(kernel->copies, copies);
  EXPECT_EQ(kernel->blocks[2], copies);
  EXPECT_FALSE(absl::StrContains(kernel->object, ".local")) << kernel->object;
  ExpectEachCopyIsTheWalk(sink, *kernel, seed, kTolerance);
}

// A step of an optimiser: the sum of a gradient over rows, then two buffers renewed in place.
const UOp* Update(Graph& g) {
  constexpr int64_t kColumns = 40, kRows = 70;
  const UOp *const i = Range(g, 0, kColumns), *const r = ReduceRange(g, 1, kRows);
  const UOp* const gradient = Fold(
      g, Op::kAdd,
      LoadAt(g, 2, DType::kF32, kColumns * kRows, RowMajor(g, {r, i}, {kRows, kColumns})), {r});
  const UOp* const mean = Add(g, LoadAt(g, 0, DType::kF32, kColumns, i),
                              Mul(g, gradient, LoadAt(g, 3, DType::kF32, 1, ConstIndex(g, 0))));
  return Sink(g,
              {StoreAt(g, 0, kColumns, i, mean),
               StoreAt(g, 1, kColumns, i, Add(g, LoadAt(g, 1, DType::kF32, kColumns, i), mean))});
}

// A product that has tiles in the block's memory, with barriers.
const UOp* Product(Graph& g, DType dtype, int64_t rows, int64_t depth, int64_t columns) {
  const UOp *const i = Range(g, 0, rows), *const j = Range(g, 1, columns),
                   *const k = ReduceRange(g, 2, depth);
  const auto load = [&](int64_t slot, const UOp* a, const UOp* b, int64_t first, int64_t second) {
    const UOp* const x =
        LoadAt(g, slot, dtype, first * second, RowMajor(g, {a, b}, {first, second}));
    return dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  const UOp* const sum =
      Fold(g, Op::kAdd, Mul(g, load(1, i, k, rows, depth), load(2, k, j, depth, columns)), {k});
  return Sink(g, {StoreAt(g, 0, rows * columns, RowMajor(g, {i, j}, {rows, columns}), sum)});
}

TEST(Copies, OfAnUpdate_EachRenewsItsOwn) {
  for (const char* const arch : kArchs) {
    Graph g;
    ExpectEachCopy(Update(g), 2, arch, 1);
    ExpectEachCopy(Update(g), 7, arch, 2);
  }
}

TEST(Copies, OfAProduct_EachIsItsOwn) {
  Graph g;
  ExpectEachCopy(Product(g, DType::kF32, 33, 20, 65), 3, "sm_80", 1);
  ExpectEachCopy(Product(g, DType::kF32, 128, 32, 128), 2, "sm_90", 2);
  ExpectEachCopy(Product(g, DType::kBF16, 64, 32, 64), 2, "sm_80", 3);
}

// Boxes that the tensor memory accelerator copies: views of each copy's own buffers.
TEST(Copies, OfAProductByWarpgroups_HaveViewsOfTheirOwn) {
  const auto renderer = *render::MakePtxRenderer(CudaTarget("sm_90a", 132));
  const HopperCase test = {.product = {.m = 128, .n = 64, .k = 128, .c_dtype = DType::kF32},
                           .tile = {.columns = 64, .stages = 2}};
  auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
  ASSERT_TRUE(program.ok()) << program.status();
  program->copies = 3;
  const auto kernel = renderer->Render(*program, "k");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_FALSE(kernel->maps.empty());
  const std::vector<std::string> one = InputsOf(test);
  Buffers all;
  for (int copy = 0; copy < 3; ++copy) all.insert(all.end(), one.begin(), one.end());
  const absl::Status ran = RunOnPtxMachine(*kernel, all);
  ASSERT_TRUE(ran.ok()) << ran;
  for (int copy = 0; copy < 3; ++copy) {
    const auto begin = all.begin() + copy * static_cast<int64_t>(one.size());
    EXPECT_EQ(DifferenceOf(test, Buffers(begin, begin + static_cast<int64_t>(one.size()))), "");
  }
}

TEST(Copies, OfRandomKernels_AreTheWalk) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Graph g;
    const UOp* const sink = RandomKernel(g, seed);
    ExpectEachCopy(sink, 2 + static_cast<int>(seed % 3), kArchs[seed % 4], seed);
    if (HasFatalFailure()) return;
  }
}

// NVIDIA's assembler takes them, and reads the table where it lies.
TEST(Copies, AreAssembled_WithoutAStack) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  for (const char* const arch : kArchs) {
    Graph g;
    for (const UOp* const sink : {Update(g), Product(g, DType::kF32, 128, 32, 128),
                                  Product(g, DType::kBF16, 256, 64, 128)}) {
      const auto kernel = CompileKernel(WithCopies(g, sink, 3), {.target = CudaTarget(arch, 132)});
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const auto assembled = AssembleKernel(ptxas, kernel->object, arch);
      ASSERT_TRUE(assembled.ok()) << assembled.status() << kernel->object;
      EXPECT_EQ(assembled->stack_bytes, 0);
      EXPECT_EQ(assembled->spill_bytes, 0);
      EXPECT_EQ(assembled->warnings, 0);
    }
  }
}

TEST(Copies, MoreThanParameters_AreRefusedByTheirNumber) {
  Graph g;
  const auto refused =
      CompileKernel(WithCopies(g, Update(g), 200), {.target = CudaTarget("sm_90", 132)});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "4096")) << refused.status();
}

TEST(Copies, OnOtherDevices_AreRefused) {
  Graph g;
  for (const Target& target : {TestTarget(), AmdTarget("gfx942", 304)})
    EXPECT_EQ(CompileKernel(WithCopies(g, Update(g), 2), {.target = target}).status().code(),
              absl::StatusCode::kUnimplemented);
}

TEST(Copies, Encoded_AreAnotherKernel) {
  Graph g;
  const UOp* const sink = Update(g);
  const EncodedGraph one = *EncodeGraph(sink), three = *EncodeGraph(WithCopies(g, sink, 3));
  EXPECT_NE(one.id, three.id);
  Graph own;
  const auto decoded = DecodeGraph(own, three.bytes, Level::kKernel);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(CopiesOf(*decoded), 3);
  EXPECT_EQ(WithCopies(g, *decoded, 1)->arg.size(), 0);
}

// ---- which kernels are one launch

// Kernels by name, over values that are named by letters.
class Grouping : public ::testing::Test {
 protected:
  const UOp* Value(int64_t number) { return Param(g_, number, DType::kF32, {4}); }
  // Kernels of one `kind` are equal.
  void Add(int64_t kind, std::vector<int64_t> writes, std::vector<int64_t> reads) {
    schedule::FusedKernel kernel;
    kernel.ast = Sink(g_, {ConstIndex(g_, kind)});
    kernel.stores = static_cast<int>(writes.size());
    writes.insert(writes.end(), reads.begin(), reads.end());
    for (const int64_t number : writes) kernel.buffers.push_back(Value(number));
    kernels_.push_back(std::move(kernel));
  }
  // "0 1+2 3": kernels in order; those of one launch are joined by "+".
  std::string Groups(const schedule::WrittenOver& over = {}) {
    const schedule::Launches launches = schedule::GroupLaunches(kernels_, over);
    std::string text;
    for (size_t i = 0; i < launches.order.size(); ++i)
      absl::StrAppend(&text,
                      i == 0                      ? ""
                      : launches.together[i] == 0 ? "+"
                                                  : " ",
                      launches.order[i]);
    return text;
  }

  Graph g_;
  std::vector<schedule::FusedKernel> kernels_;
};

TEST_F(Grouping, EqualAndIndependent_AreOne) {
  Add(1, {10}, {0});
  Add(1, {11}, {0});
  Add(2, {12}, {10, 11});
  EXPECT_EQ(Groups(), "0+1 2");
}

TEST_F(Grouping, EqualInAChain_StayInOrder) {
  Add(1, {10}, {0});
  Add(1, {11}, {10});
  Add(1, {12}, {11});
  EXPECT_EQ(Groups(), "0 1 2");
}

// A gradient's chain, with an update that each of its values feeds.
TEST_F(Grouping, Updates_WaitForAllOfTheChain) {
  Add(1, {10}, {0});
  Add(2, {20}, {10});
  Add(1, {11}, {10});
  Add(2, {21}, {11});
  Add(1, {12}, {11});
  Add(2, {22}, {12});
  EXPECT_EQ(Groups(), "0 2 4 1+3+5");
}

// Two layers of three equal products: those of one layer, never those of both.
TEST_F(Grouping, EqualInLayers_AreOneForEachLayer) {
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t i = 0; i < 3; ++i) Add(1, {10 * (layer + 1) + i}, {layer});
    Add(2, {layer + 1}, {10 * (layer + 1), 10 * (layer + 1) + 1, 10 * (layer + 1) + 2});
  }
  EXPECT_EQ(Groups(), "0+1+2 3 4+5+6 7");
}

TEST_F(Grouping, WriterOfWhatAnotherReads_ComesAfterIt) {
  Add(1, {10}, {0});  // written over input 1
  Add(2, {11}, {1});  // reads input 1, so it comes first
  Add(1, {12}, {11});
  std::swap(kernels_[0], kernels_[1]);
  const schedule::WrittenOver over = {{Value(10), Value(1)}};
  EXPECT_EQ(Groups(over), "0 1+2");
}

// Each writes over what the other one reads: in one launch both would read either.
TEST_F(Grouping, ReaderOfWhatATwinWrites_IsInAnotherLaunch) {
  Add(1, {10}, {0, 1});
  Add(1, {11}, {1, 2});  // over input 0
  const schedule::WrittenOver over = {{Value(11), Value(0)}};
  EXPECT_EQ(Groups(over), "0 1");
}

// 4 KB of parameters: 10 slots leave room for 49 copies.
TEST_F(Grouping, MoreThanParametersHaveRoomFor_AreDividedEvenly) {
  for (int64_t i = 0; i < 60; ++i) Add(1, {100 + i}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const schedule::Launches launches = schedule::GroupLaunches(kernels_, {});
  std::vector<int> sizes;
  for (const int together : launches.together)
    if (together > 0) sizes.push_back(together);
  EXPECT_EQ(sizes, (std::vector<int>{30, 30}));
}

// A view has 128 bytes: with one in each copy there is room for 20, with three for 8. Where
// launches of fewer than 13 have three, what is left behind the first one is a launch again.
TEST_F(Grouping, ViewsHaveRoomToo_AsManyAsTheLaunchHas) {
  for (int64_t i = 0; i < 24; ++i) Add(1, {100 + i}, {0, 1, 2, 3, 4, 5, 6});
  Add(2, {200}, {0});
  const auto sizes = [&](const schedule::MapsOfCopy& maps_of) {
    std::vector<int> out;
    for (const int together : schedule::GroupLaunches(kernels_, {}, maps_of).together)
      if (together > 0) out.push_back(together);
    return out;
  };
  using Sizes = std::vector<int>;
  EXPECT_EQ(sizes(nullptr), (Sizes{24, 1}));
  std::vector<int64_t> asked;
  EXPECT_EQ(sizes([&](const UOp* kernel, int64_t copies) {
              EXPECT_EQ(kernel, kernels_[0].ast);
              asked.push_back(copies);
              return int64_t{1};
            }),
            (Sizes{12, 12, 1}));
  EXPECT_EQ(asked, (std::vector<int64_t>{24, 12, 12}));
  EXPECT_EQ(sizes([](const UOp*, int64_t copies) { return copies < 13 ? 3 : 1; }),
            (Sizes{8, 16, 1}));
  EXPECT_EQ(sizes([](const UOp*, int64_t) { return 100; }), Sizes(25, 1)) << "one at least";
}

// What is counted before is what the compiler then plans: neither operands nor results of
// warpgroups make a launch that has no room for its parameters. 3 addresses and 3 views are 408
// bytes a copy.
TEST(Copies, ProductsOfManyLayers_AreNotMoreThanTheirParametersHaveRoomFor) {
  constexpr int64_t kLayers = 30;
  const Target target = CudaTarget("sm_90a", 132);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    SCOPED_TRACE(Name(dtype));
    Graph g;
    std::vector<const UOp*> products;
    for (int64_t i = 0; i < kLayers; ++i) {
      const Dim rows(1024), width(768), one(1);
      const auto factor = [&](int64_t slot, const Shape& shape, const Shape& as) {
        const UOp* const x = Reshape(g, Param(g, slot, dtype, shape), as);
        return Cast(g, Expand(g, x, {rows, width, width}), DType::kF32);
      };
      const UOp* const sum =
          Reduce(g, Op::kAdd,
                 Mul(g, factor(2 * i, {rows, width}, {rows, width, one}),
                     factor(2 * i + 1, {width, width}, {one, width, width})),
                 {1});
      products.push_back(Cast(g, Reshape(g, sum, {rows, width}), dtype));
    }
    const auto launches = [&](const schedule::ScheduleOptions& options) {
      std::vector<absl::StatusOr<CompiledKernel>> compiled;
      for (const schedule::ScheduledKernel& kernel :
           ValueOrDie(schedule::MakeSchedule(g, Sink(g, products), target, {}, options)).kernels)
        if (kernel.together > 0)
          compiled.push_back(
              CompileKernel(WithCopies(g, kernel.ast, kernel.together), {.target = target}));
      return compiled;
    };
    schedule::ScheduleOptions options = ScheduleOptionsFor(target);
    std::vector<int> copies;
    for (const absl::StatusOr<CompiledKernel>& kernel : launches(options)) {
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_EQ(kernel->maps.size(), 3u) << "by warpgroups";
      copies.push_back(kernel->copies);
    }
    EXPECT_EQ(copies, (std::vector<int>{8, 8, 7, 7}));
    options.maps_of = nullptr;
    const auto refused = launches(options);
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].status().code(), absl::StatusCode::kOutOfRange) << refused[0].status();
  }
}

TEST_F(Grouping, NothingEqual_KeepsTheOrder) {
  Add(1, {10}, {0});
  Add(2, {11}, {0});
  Add(3, {12}, {0});
  EXPECT_EQ(Groups(), "0 1 2");
}

// ---- kernels that are equal but for the numbers of their buffers

class Slots : public Grouping {
 protected:
  const UOp* Read(int64_t slot, int64_t elements, const UOp* place) {
    const UOp* const global = g_.MakeChecked(Op::kGlobal, DType::kF32, {}, {slot, elements});
    return g_.MakeChecked(Op::kIndex, DType::kVoid, {global, place});
  }
  const UOp* Load(int64_t slot, int64_t elements, const UOp* place) {
    return g_.MakeChecked(Op::kLoad, DType::kVoid, {Read(slot, elements, place)});
  }
  const UOp* Row() {
    return g_.MakeChecked(Op::kRange, DType::kI64, {},
                          {0, 8, static_cast<int64_t>(RangeKind::kOutput)});
  }
  // out[r] = slot 1 `op` slot 2
  void Add(Op op, const UOp* first, const UOp* second, std::vector<int64_t> buffers) {
    const UOp* const value = g_.MakeChecked(op, DType::kVoid, {first, second});
    schedule::FusedKernel kernel;
    kernel.ast =
        Sink(g_, {g_.MakeChecked(Op::kStore, DType::kVoid, {Read(0, 8, Row()), value})});
    for (const int64_t number : buffers) kernel.buffers.push_back(Value(number));
    kernels_.push_back(std::move(kernel));
  }
};

TEST_F(Slots, FactorsInTheOtherOrder_AreOneLaunch) {
  const UOp* const start = ConstIndex(g_, 0);
  Add(Op::kMul, Load(1, 8, Row()), Load(2, 3, start), {10, 0, 1});
  Add(Op::kMul, Load(1, 3, start), Load(2, 8, Row()), {11, 2, 3});
  EXPECT_EQ(Groups(), "0 1");
  const UOp* const first = kernels_[0].ast;
  schedule::NumberSlotsAlike(g_, kernels_);
  EXPECT_EQ(kernels_[0].ast, first);
  EXPECT_EQ(kernels_[1].ast, first);
  EXPECT_EQ(kernels_[0].buffers, (std::vector<const UOp*>{Value(10), Value(0), Value(1)}));
  EXPECT_EQ(kernels_[1].buffers, (std::vector<const UOp*>{Value(11), Value(3), Value(2)}));
  EXPECT_EQ(Groups(), "0+1");
}

// a / b is not b / a, and elements of other places are other elements.
TEST_F(Slots, OtherKernels_StayAsTheyAre) {
  const UOp* const start = ConstIndex(g_, 0);
  Add(Op::kFDiv, Load(1, 8, Row()), Load(2, 3, start), {10, 0, 1});
  Add(Op::kFDiv, Load(1, 3, start), Load(2, 8, Row()), {11, 2, 3});
  Add(Op::kMul, Load(1, 8, Row()), Load(2, 3, start), {12, 0, 1});
  Add(Op::kMul, Load(1, 3, ConstIndex(g_, 1)), Load(2, 8, Row()), {13, 2, 3});
  const std::vector<schedule::FusedKernel> before = kernels_;
  schedule::NumberSlotsAlike(g_, kernels_);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(kernels_[i].ast, before[i].ast) << i;
    EXPECT_EQ(kernels_[i].buffers, before[i].buffers) << i;
  }
  EXPECT_EQ(Groups(), "0 1 2 3");
}

}  // namespace
}  // namespace outboard::test
