// Attention as a program writes it, with what a graph may have of it: lengths that VARs count, keys
// and values of 8 bits. All kernels of its schedule run on the PTX machine, against the reference
// interpreter.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "client/tensor/tensor.h"
#include "compiler/ir/binding.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/gpu_schedule.h"

namespace outboard::test {

// Of the largest number of a result: weights of 16 bits are rounded to 2^-9 of themselves.
inline constexpr double kAttentionTolerance = 0x1p-6;

struct RecordedResults {
  const UOp* sink = nullptr;
  std::vector<Binding> bindings;
};

// Records what `program` returns.
RecordedResults RecordResults(Graph& graph, const std::function<std::vector<Tensor>()>& program);

// A matrix that a program is given.
Tensor Input(const Dims& dims, DType dtype);

// How keys and values lie in memory, and become numbers of the type that they are multiplied in.
enum class KeysForm {
  kAsTheyAre,
  kScaledInF32,    // int8, times a scale of f32 for each key, rounded
  kScaledIn16,     // the same in 16 bits
  kByBlocks,       // int8, a scale for every 32 columns
  kFromZero,       // uint8 less its zero, times a scale
  kFromZeroAlone,  // uint8 less its zero
  kScaledAfter,    // int8; keys' scales multiply scores
  kScaledWeights,  // the same, and values' scales multiply weights
};

struct AttentionProgram {
  int64_t heads = 2, queries = 1, keys = 512, width = 64;
  DType dtype = DType::kBF16, of_keys = DType::kBF16;
  KeysForm form = KeysForm::kAsTheyAre;
  bool causal = false;
  int64_t least = 1;            // that the VAR may be; -1: there is none
  bool transposed = false;          // keys and values lie with their keys side by side
  bool packed_queries = false;  // int8, times a scale of f32 for each
};

// The result, of f32, of queries of `c.heads`, `c.queries` and `c.width`; `n` keys.
Tensor AttentionOf(const AttentionProgram& c, const Tensor& q, const SymInt& n);

// With queries that are inputs, the VAR bound to `length`.
RecordedResults RecordCase(Graph& graph, const AttentionProgram& c, int64_t length);

// Checks by EXPECT: one kernel with scores, by matrix units, without spills; keys and values are
// not stored again; and the interpreter's results at all lengths. `launches`: how many there
// are; 0: any number.
void CheckCase(const AttentionProgram& c, std::initializer_list<int64_t> lengths, size_t launches,
               const char* arch = "sm_90a");

// Checks by EXPECT, where there is an assembler, that no kernel has memory of a thread's own.
void ExpectNoSpills(const GpuSchedule& gpu, const char* arch);

// Whether a temporary has so many elements.
bool Stores(const GpuSchedule& gpu, int64_t elements);

// How many products of matrices each kernel with scores computes, fewest first; 0: it has no plan.
std::vector<size_t> ProductsOfScores(const schedule::Schedule& schedule, const std::string& arch);
inline std::vector<size_t> ProductsOfScores(const GpuSchedule& gpu, const std::string& arch) {
  return ProductsOfScores(gpu.schedule(), arch);
}

// The same numbers, floats in f64.
std::vector<HostTensor> Widened(const std::vector<HostTensor>& inputs);

// Returns the largest difference, in parts of the largest number. Checks by EXPECT that the same
// places have no number.
double LargestDifference(const HostTensor& a, const HostTensor& exact);

}  // namespace outboard::test
