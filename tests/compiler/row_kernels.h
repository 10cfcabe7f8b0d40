// Kernels that need each of their rows several times, and what they compute, row by row: a walk of
// such a kernel would compute its reductions for every element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/program/expand.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

enum class RowFunction {
  kSoftmax,     // exp(x - max x) / sum
  kLogSoftmax,  // x - max x - log sum
  kLayerNorm,   // (x - mean) / sqrt(variance + e) * scale + bias
  kRmsNorm,     // x / sqrt(mean of squares + e) * scale
  kStatistics,  // max x + log sum, one number for a row
};
const char* Name(RowFunction function);

struct RowKernel {
  RowFunction function = RowFunction::kSoftmax;
  DType dtype = DType::kF32;  // of rows and what is stored; computed in f32
  int64_t rows = 2, columns = 1;
  bool in_place = false;  // stored over x
};
// Slots: 0 what is stored, then x unless it is the same, then scales and biases.
const UOp* MakeRowKernel(Graph& g, const RowKernel& kernel);

// What the kernel makes of `start`.
Buffers RowsOf(const RowKernel& kernel, const Buffers& start);

// Whether slot 0 is within `tolerance` of what is wanted, by the larger of 1 and each number's size
// where `absolute`, else by its size.
void ExpectRows(const RowKernel& kernel, const Buffers& got, const Buffers& want, double tolerance,
                bool absolute);

// Bytes of rows that are read once and of what is stored, and of scales and biases for each row.
uint64_t LeastBytes(const RowKernel& kernel);

// The sectors that the PTX machine has counted, to the least.
double SectorsOf(const RowKernel& kernel, const MachineCounts& counts);

// How far results of the type may be from what RowsOf says.
double ToleranceOf(DType dtype);

// The program of a kernel by these Opts, as text. Errors: as ParseOpts, ApplyOpts and ExpandPlan.
absl::StatusOr<program::Program> ProgramOf(const UOp* sink, const std::string& opts,
                                           const Target& target,
                                           std::vector<program::PassResult>* passes = nullptr);

}  // namespace outboard::test
