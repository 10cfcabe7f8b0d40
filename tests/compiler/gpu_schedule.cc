#include "tests/compiler/gpu_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/padded_dims.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {

using Kind = schedule::ScheduledBuffer::Kind;

std::vector<int64_t> VarsOf(std::span<const Binding> bindings) {
  std::vector<int64_t> vars;
  for (const Binding& binding : bindings) {
    vars.resize(std::max(vars.size(), static_cast<size_t>(binding.slot) + 1));
    vars[static_cast<size_t>(binding.slot)] = binding.value;
  }
  return vars;
}

std::vector<double> Below(const std::string& room, DType dtype, ShapeView dims,
                          std::span<const int64_t> bound) {
  std::vector<double> values;
  const int64_t all = schedule::PaddedSize(dims);
  for (int64_t i = 0; i < all; ++i) {
    int64_t left = i;
    bool inside = true;
    for (size_t d = dims.size(); d-- > 0;) {
      inside = inside && left % dims[d].max() < bound[d];
      left /= dims[d].max();
    }
    if (inside) values.push_back(LoadFloat(dtype, room.data() + i * ByteWidth(dtype)));
  }
  return values;
}

std::vector<HostTensor> SmallInputs(const UOp* sink, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink)) {
    HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
    const int width = ByteWidth(param->dtype);
    tensor.bytes.resize(static_cast<size_t>(tensor.ElementCount() * width));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      char* const to = tensor.bytes.data() + i * width;
      if (IsFloat(param->dtype))
        StoreFloat(param->dtype,
                   RoundTo(param->dtype, std::uniform_real_distribution<>(-2, 2)(random)), to);
      else
        StoreInt(param->dtype, std::uniform_int_distribution<int64_t>(-100, 100)(random), to);
    }
    params.push_back(std::move(tensor));
  }
  return params;
}

GpuSchedule::GpuSchedule(const UOp* sink, const std::string& arch, schedule::ScorePolicy scores,
                         int multiprocessors)
    : sink_(sink) {
  const Target target = CudaTarget(arch, multiprocessors);
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  options.scores = scores;
  schedule_ = ValueOrDie(schedule::MakeSchedule(graph_, sink, target, {}, options));
  for (const schedule::ScheduledKernel& kernel : schedule_.kernels)
    compiled_.push_back(ValueOrDie(CompileKernel(kernel.ast, {.target = target})));
}

int64_t GpuSchedule::LargestElements() const {
  int64_t most = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule_.buffers)
    if (buffer.kind == Kind::kTemporary) most = std::max(most, buffer.elements);
  return most;
}

int64_t GpuSchedule::StoredBytes() const {
  int64_t bytes = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule_.buffers)
    if (buffer.kind == Kind::kTemporary) bytes += buffer.bytes();
  return bytes;
}

namespace {

bool HasScores(const schedule::ScheduledKernel& kernel) {
  const auto nest = ValueOrDie(codegen::AnalyzeKernel(kernel.ast));
  return !codegen::PanelsOf(nest, /*ends=*/true).empty();
}

}  // namespace

int64_t GpuSchedule::KernelsWithScores() const {
  return std::count_if(schedule_.kernels.begin(), schedule_.kernels.end(), HasScores);
}

bool GpuSchedule::ScoresAreByUnits() const {
  for (size_t k = 0; k < compiled_.size(); ++k) {
    const std::string& ptx = compiled_[k].object;
    if (HasScores(schedule_.kernels[k]) && !absl::StrContains(ptx, "mma.sync") &&
        !absl::StrContains(ptx, "wgmma.mma_async"))
      return false;
  }
  return true;
}

std::vector<std::string> GpuSchedule::Run(std::span<const HostTensor> params,
                                          std::span<const int64_t> vars, MachineCounts* counts,
                                          int counted, uint64_t seed) const {
  Buffers memory;
  for (const schedule::ScheduledBuffer& buffer : schedule_.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xff');
    if (buffer.kind == Kind::kInput) memory.back() = params[buffer.index].bytes;
  }
  for (size_t k = 0; k < compiled_.size(); ++k) {
    Buffers own;
    for (const int i : schedule_.kernels[k].buffers) own.push_back(memory[i]);
    MachineCounts own_counts;
    const absl::Status ran = RunOnPtxMachine(compiled_[k], own, vars, seed, nullptr, &own_counts);
    if (counts != nullptr && (counted < 0 || static_cast<size_t>(counted) == k)) {
      counts->global_sectors += own_counts.global_sectors;
      counts->warp_instructions += own_counts.warp_instructions;
    }
    EXPECT_EQ(ran, absl::OkStatus()) << "kernel " << k << " " << compiled_[k].object;
    if (!ran.ok()) break;
    for (size_t slot = 0; slot < own.size(); ++slot)
      memory[schedule_.kernels[k].buffers[slot]] = own[slot];
  }
  std::vector<std::string> results(sink_->src.size());
  for (size_t i = 0; i < schedule_.buffers.size(); ++i)
    if (schedule_.buffers[i].kind == Kind::kOutput)
      results[static_cast<size_t>(schedule_.buffers[i].index)] = memory[i];
  return results;
}

void GpuSchedule::ExpectAsInterpreted(
    const UOp* bound, std::span<const Binding> bindings, double tolerance,
    const std::function<void(std::vector<HostTensor>&)>& spoil) const {
  std::vector<HostTensor> params = SmallInputs(bound);
  const Results want = ValueOrDie(Interpret(bound, params, bindings));
  if (spoil) spoil(params);
  const std::vector<std::string> rooms = Run(params, VarsOf(bindings));
  if (testing::Test::HasFailure()) return;
  for (size_t r = 0; r < want.size(); ++r) {
    const UOp* const result = sink_->src[r];
    const std::vector<double> numbers = FloatsOf(want[r]),
                              got = Below(rooms[r], result->dtype, result->shape, want[r].dims);
    ASSERT_EQ(got.size(), numbers.size()) << "result " << r;
    double largest = 0;
    for (const double number : numbers)
      if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
    for (size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(numbers[i])) << "result " << r << " element " << i;
      if (!std::isnan(got[i])) {
        ASSERT_NEAR(got[i], numbers[i], tolerance * largest) << "result " << r << " element " << i;
      }
    }
  }
}

}  // namespace outboard::test
