// A graph as a worker would compile it for an NVIDIA GPU: all kernels of its schedule, run on the
// PTX machine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/compiled_kernel.h"
#include "compiler/ir/binding.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

// The values of VARs, by slot.
std::vector<int64_t> VarsOf(std::span<const Binding> bindings);

// The elements of `room`, which has the padded extents of `dims`, that lie below `bound`.
std::vector<double> Below(const std::string& room, DType dtype, ShapeView dims,
                          std::span<const int64_t> bound);

// Small numbers for all inputs, the same each time: floats in -2..2, integers in -100..100.
std::vector<HostTensor> SmallInputs(const UOp* sink, uint32_t seed = 1);

class GpuSchedule {
 public:
  // `sink` outlives this. `scores` as in ScheduleOptions.
  GpuSchedule(const UOp* sink, const std::string& arch,
              schedule::ScorePolicy scores = schedule::ScorePolicy::kByCost,
              int multiprocessors = 132);

  const UOp* sink() const { return sink_; }
  const schedule::Schedule& schedule() const { return schedule_; }
  const std::vector<CompiledKernel>& compiled() const { return compiled_; }
  std::string ToString() const { return schedule::ScheduleToString(schedule_); }
  // Of temporaries.
  int64_t LargestElements() const;
  int64_t StoredBytes() const;
  // Kernels that compute reductions inside of others; whether all of them do by matrix units. Plain
  // threads would compute scores again for each column of a result.
  int64_t KernelsWithScores() const;
  bool ScoresAreByUnits() const;

  // Memory is 0xFF before: numbers that are none. Checks by EXPECT that kernels run. Adds the
  // sectors and instructions of kernel `counted` (-1: of all) to `counts`. `seed`: of the order of
  // warps.
  std::vector<std::string> Run(std::span<const HostTensor> params, std::span<const int64_t> vars,
                               MachineCounts* counts = nullptr, int counted = -1,
                               uint64_t seed = 1) const;

  // Checks by EXPECT that the results are those of the interpreter, within `tolerance` of the
  // largest number of each: `bound` is the same graph with its VARs bound. `spoil` changes inputs
  // that the kernels get and the interpreter does not.
  void ExpectAsInterpreted(
      const UOp* bound, std::span<const Binding> bindings, double tolerance,
      const std::function<void(std::vector<HostTensor>&)>& spoil = nullptr) const;

 private:
  const UOp* const sink_;
  Graph graph_;
  schedule::Schedule schedule_;
  std::vector<CompiledKernel> compiled_;
};

}  // namespace outboard::test
