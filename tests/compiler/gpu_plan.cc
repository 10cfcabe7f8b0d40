#include "tests/compiler/gpu_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/rewrite/bind.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {

using Kind = schedule::ScheduledBuffer::Kind;

// The elements of `result` from memory that has the padded extents; all of it where these are none.
static void TakeFromRoom(const std::string& room, const std::vector<int64_t>& padded_dims,
                         HostTensor& result) {
  if (padded_dims.empty()) {
    result.bytes = room.substr(0, result.bytes.size());
    return;
  }
  const auto width = static_cast<size_t>(ByteWidth(result.dtype));
  for (int64_t element = 0; element < result.ElementCount(); ++element) {
    int64_t place = 0, stride = 1, left = element;
    for (size_t axis = padded_dims.size(); axis-- > 0;) {
      place += left % result.dims[axis] * stride;
      left /= result.dims[axis];
      stride *= padded_dims[axis];
    }
    result.bytes.replace(static_cast<size_t>(element) * width, width, room,
                         static_cast<size_t>(place) * width, width);
  }
}

absl::StatusOr<GpuPlan> GpuPlan::Make(const UOp* sink, const Target& target,
                                      std::span<const int64_t> donated,
                                      const schedule::ScheduleOptions& options) {
  GpuPlan plan;
  plan.sink_ = sink;
  plan.graph_ = std::make_unique<Graph>();
  OB_ASSIGN_OR_RETURN(plan.schedule_,
                      schedule::MakeSchedule(*plan.graph_, sink, target, donated, options));
  for (size_t k = 0; k < plan.schedule_.kernels.size(); ++k) {
    const schedule::ScheduledKernel& kernel = plan.schedule_.kernels[k];
    if (kernel.together == 0) continue;
    OB_ASSIGN_OR_RETURN(
        CompiledKernel compiled,
        CompileKernel(WithCopies(*plan.graph_, kernel.ast, kernel.together), {.target = target}));
    for (const std::string& text : compiled.given_up)
      plan.given_up_.push_back(absl::StrCat("kernel ", k, ": ", text));
    compiled.given_up.clear();  // what is there instead runs
    plan.compiled_.push_back(std::move(compiled));
    plan.first_.push_back(k);
  }
  return plan;
}

absl::StatusOr<std::vector<HostTensor>> GpuPlan::Run(std::span<const HostTensor> params,
                                                     std::span<const Binding> bindings, bool apart,
                                                     uint64_t seed,
                                                     uint64_t instructions_max) const {
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory, {.seed = seed,
                                 .runs = seed % 4 == 0 ? 2 : 1,
                                 .warp_instructions_max = instructions_max,
                                 .inexact = 1});
  const auto allocate = [&](std::string_view bytes) {
    if (bytes.empty()) return uint64_t{0};
    const uint64_t address = memory.Allocate(bytes.size());
    OB_CHECK(memory.Write(address, bytes.data(), bytes.size()));
    return address;
  };
  const auto empty = [&](int64_t bytes) {
    return allocate(std::string(static_cast<size_t>(bytes), '\xff'));
  };
  std::vector<uint64_t> inputs, addresses;
  for (const HostTensor& param : params) inputs.push_back(allocate(param.bytes));
  const uint64_t arena = empty(schedule_.arena_bytes);
  for (const schedule::ScheduledBuffer& buffer : schedule_.buffers) {
    OB_CHECK(buffer.padded_dims.empty() || buffer.kind == Kind::kOutput);
    const int over = buffer.kind == Kind::kOutput ? schedule_.over[buffer.index] : -1;
    addresses.push_back(buffer.kind == Kind::kInput ? inputs[buffer.index]
                        : over >= 0                 ? inputs[over]
                        : buffer.kind == Kind::kOutput || apart
                            ? empty(buffer.bytes())
                            : arena + static_cast<uint64_t>(buffer.index));
  }
  const std::vector<int64_t> vars = VarsOf(bindings);
  const uint64_t at_vars =
      allocate({reinterpret_cast<const char*>(vars.data()), vars.size() * sizeof(int64_t)});
  for (size_t i = 0; i < compiled_.size(); ++i) {
    std::vector<uint64_t> own;
    for (int copy = 0; copy < compiled_[i].copies; ++copy)
      for (const int buffer : schedule_.kernels[first_[i] + static_cast<size_t>(copy)].buffers)
        own.push_back(addresses[static_cast<size_t>(buffer)]);
    if (compiled_[i].reads_vars) own.push_back(at_vars);
    const absl::Status ran = LaunchOnPtxMachine(compiled_[i], machine, own);
    if (absl::IsDeadlineExceeded(ran)) return absl::ResourceExhaustedError(ran.message());
    if (!ran.ok())
      return absl::Status(ran.code(), absl::StrCat("kernel ", first_[i], ": ", ran.message()));
  }
  std::vector<HostTensor> results;
  for (const UOp* result : sink_->src) {
    OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(result->shape, bindings));
    results.push_back({result->dtype, std::move(dims), {}});
    results.back().bytes.resize(
        static_cast<size_t>(results.back().ElementCount() * ByteWidth(result->dtype)));
  }
  for (size_t i = 0; i < schedule_.buffers.size(); ++i) {
    const schedule::ScheduledBuffer& buffer = schedule_.buffers[i];
    if (buffer.kind != Kind::kOutput || buffer.bytes() == 0) continue;
    std::string room(static_cast<size_t>(buffer.bytes()), '\0');
    OB_CHECK(memory.Read(addresses[i], room.data(), room.size()));
    TakeFromRoom(room, buffer.padded_dims, results[static_cast<size_t>(buffer.index)]);
  }
  return results;
}

std::string GpuPlan::WrongKernels(std::span<const HostTensor> params, double tolerance) const {
  std::vector<int> place(schedule_.buffers.size());
  Buffers memory(schedule_.buffers.size());
  for (size_t i = 0; i < schedule_.buffers.size(); ++i) {
    const schedule::ScheduledBuffer& buffer = schedule_.buffers[i];
    place[i] = static_cast<int>(i);
    memory[i].assign(static_cast<size_t>(buffer.bytes()), '\xff');
    if (buffer.kind == Kind::kInput) memory[i] = params[buffer.index].bytes;
    if (buffer.kind != Kind::kOutput || schedule_.over[buffer.index] < 0) continue;
    memory[i] = params[static_cast<size_t>(schedule_.over[buffer.index])].bytes;
    for (size_t j = 0; j < schedule_.buffers.size(); ++j)
      if (schedule_.buffers[j].kind == Kind::kInput &&
          schedule_.buffers[j].index == schedule_.over[buffer.index])
        place[i] = static_cast<int>(j);
  }
  std::string wrong;
  for (size_t i = 0; i < compiled_.size(); ++i) {
    const auto copies = static_cast<size_t>(compiled_[i].copies);
    Buffers own;
    for (size_t copy = 0; copy < copies; ++copy)
      for (const int b : schedule_.kernels[first_[i] + copy].buffers)
        own.push_back(memory[static_cast<size_t>(place[static_cast<size_t>(b)])]);
    const absl::Status ran = RunOnPtxMachine(compiled_[i], own);
    if (!ran.ok()) absl::StrAppend(&wrong, "kernel ", first_[i], ": ", ran.ToString(), "\n");
    size_t slot = 0;
    for (size_t copy = 0; copy < copies; ++copy) {
      const schedule::ScheduledKernel& kernel = schedule_.kernels[first_[i] + copy];
      Buffers walked;
      for (const int b : kernel.buffers)
        walked.push_back(memory[static_cast<size_t>(place[static_cast<size_t>(b)])]);
      const absl::Status walk = WalkKernel(kernel.ast, walked);
      if (!walk.ok()) absl::StrAppend(&wrong, "walk ", first_[i], ": ", walk.ToString(), "\n");
      for (size_t s = 0; s < walked.size(); ++s, ++slot) {
        const schedule::ScheduledBuffer& buffer =
            schedule_.buffers[static_cast<size_t>(kernel.buffers[s])];
        std::string& to =
            memory[static_cast<size_t>(place[static_cast<size_t>(kernel.buffers[s])])];
        to = walked[s];
        if (!IsFloat(buffer.dtype)) {
          if (own[slot] != to)
            absl::StrAppend(&wrong, "kernel ", first_[i] + copy, " slot ", s, "\n");
          continue;
        }
        double largest = 0x1p-5, most = 0;
        int64_t at = -1, count = 0;
        const auto value = [&](const std::string& bytes, int64_t e) {
          return LoadFloat(buffer.dtype, bytes.data() + e * ByteWidth(buffer.dtype));
        };
        for (int64_t e = 0; e < buffer.elements; ++e)
          if (const double y = value(to, e); y == y) largest = std::max(largest, std::abs(y));
        for (int64_t e = 0; e < buffer.elements; ++e) {
          const double x = value(own[slot], e), y = value(to, e);
          if (x == y || (x != x && y != y) || std::abs(x - y) <= tolerance * largest) continue;
          ++count;
          if (at < 0) at = e;
          most = std::max(most, std::abs(x - y));
        }
        if (count > 0)
          absl::StrAppend(&wrong, "kernel ", first_[i] + copy, " slot ", s, ": ", count, " of ",
                          buffer.elements, " elements, the first is ", at, ": ",
                          value(own[slot], at), " not ", value(to, at), "\n");
      }
    }
  }
  return wrong;
}

}  // namespace outboard::test
