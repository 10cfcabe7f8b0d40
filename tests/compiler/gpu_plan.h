// A schedule for an NVIDIA GPU run as a worker runs it, on the PTX machine: temporaries in one
// arena, results over donated inputs, equal kernels in one launch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/binding.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"

namespace outboard::test {

class GpuPlan {
 public:
  // `sink` outlives the plan. Errors: those of MakeSchedule and CompileKernel.
  static absl::StatusOr<GpuPlan> Make(const UOp* sink, const Target& target,
                                      std::span<const int64_t> donated,
                                      const schedule::ScheduleOptions& options);

  const schedule::Schedule& schedule() const { return schedule_; }
  // In the order of their launches; kernels of one launch are one.
  const std::vector<CompiledKernel>& compiled() const { return compiled_; }
  // Plans of kernels that did not fit (CompiledKernel::given_up).
  const std::vector<std::string>& given_up() const { return given_up_; }

  // Memory is 0xFF before: numbers that are none. `apart`: each temporary has memory of its own,
  // so that accesses outside of it are errors. Errors: what the machine reports, with the kernel;
  // RESOURCE_EXHAUSTED where a launch has more instructions of warps than `instructions_max`.
  absl::StatusOr<std::vector<HostTensor>> Run(std::span<const HostTensor> params,
                                              std::span<const Binding> bindings, bool apart,
                                              uint64_t seed, uint64_t instructions_max) const;

  // Each kernel on the machine, from what walks of the kernels before it gave: those whose results
  // are not their walk's, with the difference; for people. Without VARs.
  std::string WrongKernels(std::span<const HostTensor> params, double tolerance) const;

 private:
  const UOp* sink_ = nullptr;
  std::unique_ptr<Graph> graph_;
  schedule::Schedule schedule_;
  std::vector<CompiledKernel> compiled_;
  std::vector<std::string> given_up_;
  std::vector<size_t> first_;  // compiled_[i] is schedule_.kernels[first_[i]], and those together
};

}  // namespace outboard::test
