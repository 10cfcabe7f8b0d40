// What threads do of kernels that read along another axis than they write (transpositions, copies
// to another layout): the sectors that the PTX machine counts, and the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;
constexpr double kSectorBytes = 32;

struct Case {
  const char* what;
  std::vector<int64_t> dims;  // of the operand
  std::vector<int> order;     // of its axes, in the result
  // Sectors at most, of the least: of values of 4, 2 and 1 bytes.
  double f32 = 1.05, bf16 = 1.05, u8 = 1.05;
};

const UOp* Permuted(Graph& g, DType dtype, const Case& c, bool plus) {
  std::vector<const UOp*> result, operand(c.dims.size());
  std::vector<int64_t> result_dims;
  int64_t elements = 1;
  for (const int axis : c.order) {
    const int64_t extent = c.dims[static_cast<size_t>(axis)];
    result.push_back(Range(g, static_cast<int64_t>(result.size()), extent));
    operand[static_cast<size_t>(axis)] = result.back();
    result_dims.push_back(extent);
    elements *= extent;
  }
  const UOp* const index = RowMajor(g, result, result_dims);
  const UOp* value = LoadAt(g, 1, dtype, elements, RowMajor(g, operand, c.dims));
  if (plus) value = Add(g, LoadAt(g, 2, dtype, elements, index), value);
  return Sink(g, {StoreAt(g, 0, elements, index, value)});
}

// A warp has 32 threads, and what it reads of a row that begins anywhere touches a sector more than
// it fills: so bounds of odd lengths are higher, and those of narrow types, of which a warp has
// fewer bytes. A small kernel has fewer values in each thread, or multiprocessors would have none.
TEST(TransposedThreads, ReadAndWriteWholeSectors) {
  const std::vector<Case> cases = {
      {"a square", {512, 512}, {1, 0}},
      {"few rows", {200, 300}, {1, 0}, 1.07, 1.65, 2.7},
      {"few columns", {300, 200}, {1, 0}, 1.1, 1.65, 2.7},
      {"an odd number of columns", {512, 499}, {1, 0}, 1.23, 1.49, 2.5},
      {"an odd number of rows", {499, 512}, {1, 0}, 1.3, 1.65, 2.67},
      {"matrices, each", {8, 96, 160}, {0, 2, 1}, 1.05, 1.05, 1.51},
      {"matrices, each, of more", {16, 128, 256}, {0, 2, 1}},
      {"in reverse", {64, 10, 96}, {2, 1, 0}, 1.05, 1.05, 2.01},
      {"in reverse, of more", {128, 10, 256}, {2, 1, 0}},
      {"rows change places", {20, 30, 64}, {1, 0, 2}},
      {"channels last", {4, 64, 28, 28}, {0, 2, 3, 1}, 1.05, 1.05, 1.26},
      {"channels last, of more", {16, 64, 32, 32}, {0, 2, 3, 1}},
      {"three channels last", {8, 3, 56, 56}, {0, 2, 3, 1}, 1.05, 1.56, 2.34},
      {"channels last of 7 x 7", {8, 64, 7, 7}, {0, 2, 3, 1}, 1.3, 2.08, 3.72},
      {"channels first", {4, 28, 28, 64}, {0, 3, 1, 2}, 1.05, 1.05, 1.35},
  };
  for (const Case& c : cases)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8})
      for (const bool plus : {false, true}) {
        SCOPED_TRACE(absl::StrCat(c.what, ", ", std::string(Name(dtype)), plus ? " + x" : ""));
        Graph g;
        const UOp* const sink = Permuted(g, dtype, c, plus);
        const CompileOptions options = {.target = CudaTarget("sm_90", kMultiprocessors)};
        const auto compiled = CompileKernel(sink, options);
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        // Small ones, too, have a block for each multiprocessor.
        if (c.order.back() != static_cast<int>(c.dims.size()) - 1)
          EXPECT_GE(compiled->blocks[0] * compiled->blocks[1], kMultiprocessors);
        const Buffers start = RandomBuffers(sink, 1);
        Buffers want = start, got = start;
        ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
        MachineCounts counts;
        const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
        ASSERT_TRUE(ran.ok()) << ran << compiled->object;
        ExpectClose(sink, got, want, /*tolerance=*/0);
        uint64_t bytes = 0;
        for (const std::string& buffer : start) bytes += buffer.size();
        const double most = dtype == DType::kF32 ? c.f32 : dtype == DType::kBF16 ? c.bf16 : c.u8;
        EXPECT_LE(static_cast<double>(counts.global_sectors),
                  most * static_cast<double>(bytes) / kSectorBytes);
      }
}

// Of several operands that all lie across, which then outweigh what is stored.
TEST(TransposedThreads, SeveralOperandsAcross_AreReadInWholeSectors) {
  constexpr int64_t kSide = 512;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8})
    for (const int operands : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(operands, " of ", std::string(Name(dtype))));
      Graph g;
      const UOp *const i = Range(g, 0, kSide), *const j = Range(g, 1, kSide);
      const UOp* value = nullptr;
      for (int operand = 1; operand <= operands; ++operand) {
        const UOp* const load =
            LoadAt(g, operand, dtype, kSide * kSide, RowMajor(g, {j, i}, {kSide, kSide}));
        value = value == nullptr ? load : Add(g, value, load);
      }
      const UOp* const sink =
          Sink(g, {StoreAt(g, 0, kSide * kSide, RowMajor(g, {i, j}, {kSide, kSide}), value)});
      const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const Buffers start = RandomBuffers(sink, 1);
      Buffers want = start, got = start;
      ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
      MachineCounts counts;
      const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
      ASSERT_TRUE(ran.ok()) << ran << compiled->object;
      ExpectClose(sink, got, want, /*tolerance=*/0);
      const double bytes = (operands + 1.0) * kSide * kSide * ByteWidth(dtype);
      EXPECT_LE(static_cast<double>(counts.global_sectors), 1.05 * bytes / kSectorBytes);
    }
}

// A buffer that is read at hundreds of places, each in another order of many axes: what is counted
// of the candidates has a bound. (Without one this takes minutes.)
TEST(TransposedThreads, ManyOperandsAndAxes_AreCountedInPart) {
  constexpr int kAxes = 8, kLoads = 300;
  Graph g;
  std::vector<const UOp*> axes;
  std::vector<int> order(kAxes);
  std::iota(order.begin(), order.end(), 0);
  int64_t elements = 1;
  for (int axis = 0; axis < kAxes; ++axis, elements *= 4) axes.push_back(Range(g, axis, 4));
  const std::vector<int64_t> dims(kAxes, 4);
  const UOp* const to = RowMajor(g, axes, dims);
  const UOp* value = nullptr;
  for (int load = 0; load < kLoads; ++load) {
    std::next_permutation(order.begin(), order.end());
    std::vector<const UOp*> permuted;
    for (const int axis : order) permuted.push_back(axes[static_cast<size_t>(axis)]);
    const UOp* const x = LoadAt(g, 1, DType::kU8, elements, RowMajor(g, permuted, dims));
    value = value == nullptr ? x : Add(g, value, x);
  }
  const UOp* const sink = Sink(g, {StoreAt(g, 0, elements, to, value)});
  const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
}

// Sums along rows of x + y transposed. Rows are long enough for two threads, and there are enough
// of them for each multiprocessor to have some side by side.
TEST(TransposedThreads, SumsReadWholeSectors) {
  constexpr int64_t kRows = 20 * kMultiprocessors, kColumns = 512;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    SCOPED_TRACE(std::string(Name(dtype)));
    Graph g;
    const UOp *row = Range(g, 0, kRows), *k = ReduceRange(g, 1, kColumns);
    const auto load = [&](int64_t slot, const UOp* index) {
      return Cast(g, LoadAt(g, slot, dtype, kRows * kColumns, index), DType::kF32);
    };
    const UOp* const x = load(1, RowMajor(g, {row, k}, {kRows, kColumns}));
    const UOp* const y = load(2, RowMajor(g, {k, row}, {kColumns, kRows}));
    const UOp* const sink =
        Sink(g, {StoreAt(g, 0, kRows, row, Fold(g, Op::kAdd, Add(g, x, y), {k}))});
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran << compiled->object;
    ExpectClose(sink, got, want, 4e-3);
    // Two threads of a warp have a row: of single bytes, 16 rows are half a sector.
    const double most = ByteWidth(dtype) == 1 ? 1.55 : 1.05,
                 bytes = static_cast<double>(start[0].size() + start[1].size() + start[2].size());
    EXPECT_LE(static_cast<double>(counts.global_sectors), most * bytes / kSectorBytes);
  }
}

}  // namespace
}  // namespace outboard::test
