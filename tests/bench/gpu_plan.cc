#include "tests/bench/gpu_plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/dtype.h"
#include "compiler/schedule/schedule.h"

namespace outboard::bench {
namespace {

using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using schedule::ScheduledBuffer;

// One piece of numbers, which are the same again every so many: more would take longer to draw than
// to compute with.
constexpr int64_t kDrawn = 1 << 20;

// Floats as the bits of their type: the exponent of 1/8 to 1/2, the rest drawn.
std::string Drawn(DType dtype, int64_t elements) {
  const int width = ByteWidth(dtype);
  std::string bytes(static_cast<size_t>(elements * width), '\0');
  uint64_t state = 0x9e3779b97f4a7c15;
  for (int64_t i = 0; i < std::min(elements, kDrawn); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const double value = 0.125 + 0.875 * static_cast<double>(state >> 11) * 0x1p-53;
    StoreFloat(dtype, value, bytes.data() + i * width);
  }
  for (int64_t done = kDrawn; done < elements; done += kDrawn)
    std::memcpy(bytes.data() + done * width, bytes.data(),
                static_cast<size_t>(std::min(kDrawn, elements - done) * width));
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuPlan>> GpuPlan::Make(
    runtime::Device& device, const Target& target,
    const std::function<const UOp*(Graph&)>& graph) {
  std::unique_ptr<GpuPlan> plan(new GpuPlan(device));
  Graph g;
  OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule,
                      schedule::MakeSchedule(g, graph(g), target));
  OB_ASSIGN_OR_RETURN(const DeviceAddress arena, plan->Memory(schedule.arena_bytes));
  std::vector<DeviceAddress> at;
  for (const ScheduledBuffer& buffer : schedule.buffers) {
    if (buffer.kind == ScheduledBuffer::Kind::kTemporary) {
      at.push_back(arena + buffer.index);
      continue;
    }
    OB_ASSIGN_OR_RETURN(const DeviceAddress own, plan->Memory(buffer.bytes()));
    at.push_back(own);
    if (buffer.kind == ScheduledBuffer::Kind::kInput && IsFloat(buffer.dtype)) {
      OB_RETURN_IF_ERROR(device.Upload(own, Drawn(buffer.dtype, buffer.elements)));
      OB_RETURN_IF_ERROR(device.Synchronize());
    }
  }
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    OB_ASSIGN_OR_RETURN(const CompiledKernel compiled,
                        CompileKernel(kernel.ast, {.target = target}));
    runtime::LoadedKernel loaded = device.Load(compiled);
    OB_RETURN_IF_ERROR(loaded.status());
    std::vector<DeviceAddress> slots;
    for (const int b : kernel.buffers) slots.push_back(at[static_cast<size_t>(b)]);
    slots.resize(static_cast<size_t>((*loaded)->buffer_count()));
    plan->kernels_.push_back(*std::move(loaded));
    plan->slots_.push_back(std::move(slots));
  }
  return plan;
}

absl::Status GpuPlan::Queue(int times) {
  std::vector<runtime::KernelLaunch> launches;
  for (int i = 0; i < times; ++i)
    for (size_t k = 0; k < kernels_.size(); ++k) launches.push_back({kernels_[k].get(), slots_[k]});
  return device_.LaunchAll(launches, {}, record_);
}

absl::StatusOr<double> GpuPlan::Seconds(int repeats) {
  double least = 0;
  for (int i = 0; i < repeats; ++i) {
    OB_ASSIGN_OR_RETURN(const double seconds, device_.Time([&] { return Queue(); }));
    least = i == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

absl::StatusOr<double> CopiedBytesPerSecond(runtime::Device& device, int64_t bytes, int repeats) {
  constexpr int kCopies = 8;
  OB_ASSIGN_OR_RETURN(const DeviceBuffer from, device.Allocate(bytes));
  OB_ASSIGN_OR_RETURN(const DeviceBuffer to, device.Allocate(bytes));
  OB_RETURN_IF_ERROR(device.Fill(from.address(), 1, bytes));
  double most = 0;
  for (int i = 0; i < repeats; ++i) {
    // Copies are no launches, which Time's clock begins with.
    OB_RETURN_IF_ERROR(device.Synchronize());
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < kCopies; ++k)
      OB_RETURN_IF_ERROR(device.Copy(to.address(), from.address(), bytes));
    OB_RETURN_IF_ERROR(device.Synchronize());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    most = std::max(most, 2.0 * kCopies * static_cast<double>(bytes) / taken.count());
  }
  return most;
}

absl::StatusOr<DeviceAddress> GpuPlan::Memory(int64_t bytes) {
  OB_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(bytes));
  OB_RETURN_IF_ERROR(device_.Fill(buffer.address(), 0, bytes));
  memory_.push_back(std::move(buffer));
  return memory_.back().address();
}

}  // namespace outboard::bench
