#include "tests/bench/gpu_sector_figures.h"

#include <cstdint>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/ptx_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::bench {
namespace {

using test::Fold;
using test::LoadAt;
using test::Range;
using test::ReduceRange;
using test::RowMajor;
using test::StoreAt;

constexpr double kSectorBytes = 32;
constexpr int64_t kRows = 64, kRowValues = 1024;
constexpr int64_t kSquare = 1024;  // a transposition's sides
constexpr int64_t kLongRows = 2, kLongRowValues = 32768;
constexpr int64_t kVocabulary = 50257;  // GPT-2's: a row that a cluster of blocks keeps
// Small enough for the machine: with a device of one multiprocessor the largest tile is chosen, as
// for a large product on a real one.
constexpr int64_t kMatrix = 256, kTerms = 64, kTile = 128;
constexpr int kOneMultiprocessor = 1, kMultiprocessors = 132;

struct Case {
  std::string name;
  std::function<const UOp*(Graph&)> kernel;
  std::vector<int64_t> floats;  // of each buffer
  double least_bytes = 0;
  int multiprocessors = kMultiprocessors;
  const char* arch = "sm_90";
};

const UOp* Stream(Graph& g) {
  constexpr int64_t kElements = kRows * kRowValues;
  const UOp* const i = Range(g, 0, kElements);
  const UOp* const sum =
      Add(g, LoadAt(g, 1, DType::kF32, kElements, i), LoadAt(g, 2, DType::kF32, kElements, i));
  return Sink(g, {StoreAt(g, 0, kElements, i, sum)});
}

// Loads of a row at each of `columns`.
std::vector<const UOp*> RowLoads(Graph& g, const UOp* row, std::vector<const UOp*> columns) {
  std::vector<const UOp*> out;
  for (const UOp* column : columns)
    out.push_back(LoadAt(g, 1, DType::kF32, kRows * kRowValues,
                         RowMajor(g, {row, column}, {kRows, kRowValues})));
  return out;
}

const UOp* SoftmaxOf(Graph& g, int64_t rows, int64_t columns) {
  const UOp *row = Range(g, 0, rows), *column = Range(g, 1, columns);
  const UOp *k = ReduceRange(g, 2, columns), *l = ReduceRange(g, 3, columns);
  const auto load = [&](const UOp* at) {
    return LoadAt(g, 1, DType::kF32, rows * columns, RowMajor(g, {row, at}, {rows, columns}));
  };
  const std::vector<const UOp*> x = {load(column), load(k), load(l)};
  const UOp* const max = Fold(g, Op::kMax, x[1], {k});
  const auto exponential = [&](const UOp* value) {
    return Alu(g, Op::kExp, Add(g, value, Alu(g, Op::kNeg, max)));
  };
  const UOp* const sum = Fold(g, Op::kAdd, exponential(x[2]), {l});
  return Sink(g, {StoreAt(g, 0, rows * columns, RowMajor(g, {row, column}, {rows, columns}),
                          Alu(g, Op::kFDiv, exponential(x[0]), sum))});
}
const UOp* Softmax(Graph& g) { return SoftmaxOf(g, kRows, kRowValues); }
const UOp* LongSoftmax(Graph& g) { return SoftmaxOf(g, kLongRows, kLongRowValues); }
const UOp* VocabularySoftmax(Graph& g) { return SoftmaxOf(g, kLongRows, kVocabulary); }

const UOp* LayerNorm(Graph& g) {
  const UOp *row = Range(g, 0, kRows), *column = Range(g, 1, kRowValues);
  const UOp *k = ReduceRange(g, 2, kRowValues), *l = ReduceRange(g, 3, kRowValues);
  const auto x = RowLoads(g, row, {column, k, l});
  const UOp* const count = ConstFloat(g, DType::kF32, static_cast<double>(kRowValues));
  const UOp* const minus_mean =
      Alu(g, Op::kNeg, Alu(g, Op::kFDiv, Fold(g, Op::kAdd, x[1], {k}), count));
  const UOp* const apart = Add(g, x[2], minus_mean);
  const UOp* const variance =
      Alu(g, Op::kFDiv, Fold(g, Op::kAdd, Mul(g, apart, apart), {l}), count);
  const UOp* const scale = Alu(g, Op::kSqrt, Add(g, variance, ConstFloat(g, DType::kF32, 1e-5)));
  const UOp* const normal = Alu(g, Op::kFDiv, Add(g, x[0], minus_mean), scale);
  const UOp* const value = Add(g, Mul(g, normal, LoadAt(g, 2, DType::kF32, kRowValues, column)),
                               LoadAt(g, 3, DType::kF32, kRowValues, column));
  return Sink(g, {StoreAt(g, 0, kRows * kRowValues, RowMajor(g, {row, column}, {kRows, kRowValues}),
                          value)});
}

const UOp* Transpose(Graph& g) {
  const UOp *i = Range(g, 0, kSquare), *j = Range(g, 1, kSquare);
  return Sink(g, {StoreAt(g, 0, kSquare * kSquare, RowMajor(g, {i, j}, {kSquare, kSquare}),
                          LoadAt(g, 1, DType::kF32, kSquare * kSquare,
                                 RowMajor(g, {j, i}, {kSquare, kSquare})))});
}

const UOp* MatrixProduct(Graph& g) {
  const UOp *m = Range(g, 0, kMatrix), *n = Range(g, 1, kMatrix), *k = ReduceRange(g, 2, kTerms);
  const UOp* const a =
      LoadAt(g, 1, DType::kF32, kMatrix * kTerms, RowMajor(g, {m, k}, {kMatrix, kTerms}));
  const UOp* const b =
      LoadAt(g, 2, DType::kF32, kMatrix * kTerms, RowMajor(g, {k, n}, {kTerms, kMatrix}));
  return Sink(g, {StoreAt(g, 0, kMatrix * kMatrix, RowMajor(g, {m, n}, {kMatrix, kMatrix}),
                          Fold(g, Op::kAdd, Mul(g, a, b), {k}))});
}

std::vector<Case> Cases() {
  constexpr int64_t kElements = kRows * kRowValues;
  constexpr double kFloat = 4;
  constexpr double kPanels = 2.0 * kMatrix * kTerms * (kMatrix / kTile);
  return {
      {"stream", Stream, {kElements, kElements, kElements}, 3 * kFloat * kElements},
      {"softmax", Softmax, {kElements, kElements}, 2 * kFloat * kElements},
      {"long_softmax",
       LongSoftmax,
       {kLongRows * kLongRowValues, kLongRows * kLongRowValues},
       2 * kFloat * kLongRows * kLongRowValues},
      {"vocabulary_softmax",
       VocabularySoftmax,
       {kLongRows * kVocabulary, kLongRows * kVocabulary},
       2 * kFloat * kLongRows * kVocabulary,
       kMultiprocessors,
       "sm_90a"},
      // Each row reads the scales and biases, too.
      {"layer_norm",
       LayerNorm,
       {kElements, kElements, kRowValues, kRowValues},
       4 * kFloat * kElements},
      {"transpose", Transpose, {kSquare * kSquare, kSquare * kSquare},
       2 * kFloat * kSquare * kSquare},
      {"matmul",
       MatrixProduct,
       {kMatrix * kMatrix, kMatrix * kTerms, kMatrix * kTerms},
       kFloat * (kPanels + kMatrix * kMatrix),
       kOneMultiprocessor},
  };
}

absl::StatusOr<ptx::Counters> CountersOf(const Case& c) {
  Graph g;
  OB_ASSIGN_OR_RETURN(
      const CompiledKernel kernel,
      CompileKernel(c.kernel(g), {.target = CudaTarget(c.arch, c.multiprocessors)}));
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  config.shared_bytes = test::SharedBytesOfLaunch(kernel);
  for (size_t axis = 0; axis < 3; ++axis) {
    config.grid[axis] = static_cast<uint32_t>(kernel.blocks[axis]);
    config.block[axis] = static_cast<uint32_t>(kernel.threads[axis]);
  }
  for (const int64_t floats : c.floats) {
    const std::vector<float> values(static_cast<size_t>(floats), 1.0F);
    const uint64_t address = memory.Allocate(values.size() * sizeof(float));
    if (!memory.Write(address, values.data(), values.size() * sizeof(float)))
      return absl::InternalError("the machine has no room");
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&address);
    config.parameters.insert(config.parameters.end(), bytes, bytes + sizeof address);
  }
  OB_RETURN_IF_ERROR(machine.Launch(*module, kernel.symbol, config));
  if (!machine.reports().empty())
    return absl::FailedPreconditionError(machine.reports()[0].ToString());
  return machine.counters();
}

}  // namespace

absl::StatusOr<std::vector<SectorFigure>> GpuSectorFigures() {
  std::vector<SectorFigure> figures;
  for (const Case& c : Cases()) {
    OB_ASSIGN_OR_RETURN(const ptx::Counters counters, CountersOf(c));
    figures.push_back(
        {absl::StrCat("cuda_sectors_ratio_", c.name),
         static_cast<double>(counters.global_sectors) / (c.least_bytes / kSectorBytes)});
    if (c.name != "matmul") continue;
    if (counters.shared_accesses == 0)
      return absl::InternalError("a large product does not use the memory that a block shares");
    figures.push_back(
        {"cuda_bank_ways_matmul", static_cast<double>(counters.shared_wavefronts) /
                                      static_cast<double>(counters.shared_accesses)});
  }
  return figures;
}

}  // namespace outboard::bench
