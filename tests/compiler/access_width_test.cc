// How wide the accesses are that kernels for a GPU make to their buffers: 16 bytes a thread where
// the extents allow it, of all types (docs/decisions/070-opts-for-gpus.md), by the text of the
// kernels, by what they compute on the PTX machine, and by the sectors that it counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/compile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int64_t kRows = 16;
constexpr int64_t kSectorBytes = 32;

// Bytes of each access to a buffer in the text, as of "ld.global.nc.v4.b32": 16.
struct AccessBytes {
  std::vector<int64_t> loads, stores;
};
AccessBytes AccessesOf(const std::string& ptx) {
  AccessBytes out;
  for (const absl::string_view line : absl::StrSplit(ptx, '\n')) {
    const bool load = absl::StrContains(line, "ld.global");
    if (!load && !absl::StrContains(line, "st.global")) continue;
    int64_t count = 1, bits = 0;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"));
    const auto word = std::find_if(words.begin(), words.end(), [](const std::string& w) {
      return absl::StrContains(w, ".global");
    });
    const std::vector<std::string> parts = absl::StrSplit(*word, '.');
    for (const std::string& part : parts) {
      if (part == "v2") count = 2;
      if (part == "v4") count = 4;
      if (part.size() > 1 && std::isdigit(part[1]) != 0 && part[0] != 'v')
        bits = std::atoi(part.c_str() + 1);
    }
    EXPECT_GT(bits, 0) << line;
    (load ? out.loads : out.stores).push_back(count * bits / 8);
  }
  return out;
}

const UOp* Negated(Graph& g, DType from, DType to, int64_t columns) {
  const int64_t elements = kRows * columns;
  const UOp* const i = Range(g, 0, elements);
  return Sink(g, {StoreAt(g, 0, elements, i,
                          Alu(g, Op::kNeg, Cast(g, LoadAt(g, 1, from, elements, i), to)))});
}

const UOp* RowSums(Graph& g, DType from, DType to, int64_t columns) {
  const UOp *i = Range(g, 0, kRows), *k = ReduceRange(g, 1, columns);
  const UOp* const x = LoadAt(g, 1, from, kRows * columns, RowMajor(g, {i, k}, {kRows, columns}));
  return Sink(g, {StoreAt(g, 0, kRows, i, Fold(g, Op::kAdd, Cast(g, x, to), {k}))});
}

// exp(x - max x) / sum, in f32.
const UOp* Softmax(Graph& g, DType from, DType to, int64_t columns) {
  const UOp *row = Range(g, 0, kRows), *column = Range(g, 1, columns);
  const UOp *k = ReduceRange(g, 2, columns), *l = ReduceRange(g, 3, columns);
  const auto x = [&](const UOp* at) {
    const UOp* const index = RowMajor(g, {row, at}, {kRows, columns});
    return Cast(g, LoadAt(g, 1, from, kRows * columns, index), DType::kF32);
  };
  const UOp* const max = Fold(g, Op::kMax, x(k), {k});
  const auto exponential = [&](const UOp* at) {
    return Alu(g, Op::kExp, Add(g, x(at), Alu(g, Op::kNeg, max)));
  };
  const UOp* const value =
      Alu(g, Op::kFDiv, exponential(column), Fold(g, Op::kAdd, exponential(l), {l}));
  return Sink(g, {StoreAt(g, 0, kRows * columns, RowMajor(g, {row, column}, {kRows, columns}),
                          Cast(g, value, to))});
}

struct Case {
  const char* what;
  const UOp* (*kernel)(Graph& g, DType from, DType to, int64_t columns);
  DType from, to;
  int64_t columns;
  int64_t load_bytes, store_bytes;  // of every access; 0: not by vectors
};
constexpr Case kCases[] = {
    {"values of f32", Negated, DType::kF32, DType::kF32, 256, 16, 16},
    {"values of bf16", Negated, DType::kBF16, DType::kBF16, 256, 16, 16},
    {"values of f16", Negated, DType::kF16, DType::kF16, 256, 16, 16},
    {"values of f8", Negated, DType::kF8E4M3, DType::kF8E4M3, 256, 16, 16},
    {"values of u8", Negated, DType::kU8, DType::kU8, 256, 16, 16},
    {"values of f64", Negated, DType::kF64, DType::kF64, 256, 16, 16},
    {"sums of bf16", RowSums, DType::kBF16, DType::kF32, 2048, 16, 0},
    {"sums of f16", RowSums, DType::kF16, DType::kF32, 2048, 16, 0},
    {"sums of f8", RowSums, DType::kF8E5M2, DType::kF32, 2048, 16, 0},
    {"sums of u8", RowSums, DType::kU8, DType::kI32, 2048, 16, 0},
    {"softmax of bf16", Softmax, DType::kBF16, DType::kBF16, 1024, 16, 16},
    {"softmax of f16", Softmax, DType::kF16, DType::kF16, 1024, 16, 16},
    {"softmax of f8", Softmax, DType::kF8E4M3, DType::kF8E4M3, 1024, 16, 16},
    // By the wider one: neighbours' accesses fill whole sectors on both sides.
    {"bf16 to f32", Negated, DType::kBF16, DType::kF32, 256, 8, 16},
    {"f32 to bf16", Negated, DType::kF32, DType::kBF16, 256, 16, 8},
    {"softmax of bf16 as f32", Softmax, DType::kBF16, DType::kF32, 1024, 8, 16},
    // As far as the extents allow: a row of 1,012 bf16 begins at a multiple of 8 bytes.
    {"rows of 1,012 bf16", Softmax, DType::kBF16, DType::kBF16, 1012, 8, 8},
    {"rows of 1,011 bf16", Softmax, DType::kBF16, DType::kBF16, 1011, 2, 2},
};

TEST(AccessWidth, BuffersAreReadAndWritten_BySixteenBytesAThread) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    Graph g;
    const UOp* const sink = c.kernel(g, c.from, c.to, c.columns);
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const AccessBytes accesses = AccessesOf(compiled->object);
    ASSERT_FALSE(accesses.loads.empty() || accesses.stores.empty()) << compiled->object;
    for (const int64_t bytes : accesses.loads) EXPECT_EQ(bytes, c.load_bytes) << compiled->object;
    for (const int64_t bytes : accesses.stores)
      EXPECT_TRUE(c.store_bytes == 0 || bytes == c.store_bytes) << bytes << compiled->object;
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran << compiled->object;
    constexpr double kLastPlace = 1.0 / 16;  // of f8, whose softmax is rounded once
    ExpectClose(sink, got, want, ByteWidth(c.to) == 1 ? kLastPlace : 4e-3);
    if (HasFailure()) return;
    if (c.columns % 8 != 0) continue;  // rows share sectors
    uint64_t bytes = 0;
    for (const std::string& buffer : start) bytes += buffer.size();
    EXPECT_LE(counts.global_sectors, bytes / kSectorBytes + kRows) << compiled->object;
  }
}

// A scale for each column and a number for each row come from the caches, and do not make the
// accesses narrower to what is read once.
TEST(AccessWidth, WhatManyRowsShare_DoesNotDecide) {
  constexpr int64_t kColumns = 1024;
  Graph g;
  const UOp *row = Range(g, 0, kRows), *column = Range(g, 1, kColumns);
  const UOp* const index = RowMajor(g, {row, column}, {kRows, kColumns});
  const UOp* const x = Cast(g, LoadAt(g, 1, DType::kBF16, kRows * kColumns, index), DType::kF32);
  const UOp* const scaled = Mul(g, x, LoadAt(g, 2, DType::kF32, kColumns, column));
  const UOp* const number = Cast(g, LoadAt(g, 3, DType::kI64, kRows, row), DType::kF32);
  const UOp* const sink = Sink(
      g, {StoreAt(g, 0, kRows * kColumns, index, Cast(g, Add(g, scaled, number), DType::kBF16))});
  const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const AccessBytes accesses = AccessesOf(compiled->object);
  EXPECT_EQ(accesses.stores, std::vector<int64_t>{16}) << compiled->object;
  // Of x, of two halves of the scales, and the number.
  std::vector<int64_t> loads = accesses.loads;
  std::sort(loads.begin(), loads.end());
  EXPECT_EQ(loads, (std::vector<int64_t>{8, 16, 16, 16})) << compiled->object;
}

// Loads along one axis, stores along the other one: a tile of a thread has vectors of both.
TEST(AccessWidth, Transpositions_HaveVectorsOnBothSides) {
  constexpr int64_t kSide = 1024;
  for (const auto& [dtype, bytes] : std::vector<std::pair<DType, int64_t>>{
           {DType::kF32, 16}, {DType::kBF16, 16}, {DType::kU8, 8}}) {
    Graph g;
    const UOp *i = Range(g, 0, kSide), *j = Range(g, 1, kSide);
    const UOp* const x = LoadAt(g, 1, dtype, kSide * kSide, RowMajor(g, {j, i}, {kSide, kSide}));
    const UOp* const sink =
        Sink(g, {StoreAt(g, 0, kSide * kSide, RowMajor(g, {i, j}, {kSide, kSide}), x)});
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const AccessBytes accesses = AccessesOf(compiled->object);
    for (const int64_t each : accesses.loads) EXPECT_EQ(each, bytes) << compiled->object;
    for (const int64_t each : accesses.stores) EXPECT_EQ(each, bytes) << compiled->object;
  }
}

// Sums over rows: a thread has neighbouring columns. Of few columns threads of other blocks have
// some, and those of a block more rows.
TEST(AccessWidth, SumsOverRows_ReadSixteenBytesAThread) {
  struct Sums {
    DType dtype;
    int64_t rows, columns, least_blocks, load_bytes;
  };
  for (const Sums& c : {Sums{DType::kF32, 512, 768, 96, 16}, Sums{DType::kBF16, 512, 768, 48, 8},
                        Sums{DType::kBF16, 2048, 768, 48, 16},
                        Sums{DType::kF32, 512, 8192, kMultiprocessors, 16},
                        Sums{DType::kU8, 512, 8192, kMultiprocessors, 4}}) {
    SCOPED_TRACE(absl::StrCat(std::string(Name(c.dtype)), " ", c.columns));
    Graph g;
    const UOp *column = Range(g, 0, c.columns), *row = ReduceRange(g, 1, c.rows);
    const UOp* const x = LoadAt(g, 1, c.dtype, c.rows * c.columns,
                                RowMajor(g, {row, column}, {c.rows, c.columns}));
    const DType sums = c.dtype == DType::kU8 ? DType::kI32 : DType::kF32;
    const UOp* const sink =
        Sink(g, {StoreAt(g, 0, c.columns, column, Fold(g, Op::kAdd, Cast(g, x, sums), {row}))});
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_GE(compiled->blocks[0], c.least_blocks);
    for (const int64_t bytes : AccessesOf(compiled->object).loads)
      EXPECT_EQ(bytes, c.load_bytes) << compiled->object;
    const Buffers start = RandomBuffers(sink, 1);
    Buffers want = start, got = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran << compiled->object;
    ExpectClose(sink, got, want, 4e-3);
    // What a thread stores may be wider than one access.
    EXPECT_LE(counts.global_sectors, (2 * start[0].size() + start[1].size()) / kSectorBytes)
        << compiled->object;
    constexpr char kSingle[] = "LANE:0:32 SHARE:1:8 UNROLL:1:4 GRID:0:1";  // a column a thread
    const auto single = CompileKernel(sink, {.target = CudaTarget("sm_90", kMultiprocessors),
                                             .opts = *codegen::ParseOpts(kSingle)});
    ASSERT_TRUE(single.ok()) << single.status();
    MachineCounts of_single;
    Buffers again = start;
    ASSERT_TRUE(RunOnPtxMachine(*single, again, {}, 1, nullptr, &of_single).ok());
    // Of the multiprocessor with the most blocks.
    const auto of_one = [](const MachineCounts& all, const CompiledKernel& kernel) {
      const auto blocks = static_cast<double>(kernel.blocks[0]);
      return static_cast<double>(all.warp_instructions) / blocks *
             std::ceil(blocks / kMultiprocessors);
    };
    if (c.dtype == DType::kU8) continue;  // which is taken apart once it is loaded
    EXPECT_LE(of_one(counts, *compiled), 1.02 * of_one(of_single, *single));
  }
}

}  // namespace
}  // namespace outboard::test
