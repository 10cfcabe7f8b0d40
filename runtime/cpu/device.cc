#include "runtime/cpu/device.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::cpu {
namespace {

// Below this, waking another thread takes longer than the kernel (about 2 us of one core's work).
constexpr int64_t kAloneWorkMax = 16384;

struct Call {
  KernelFunction function;
  void* const* buffers;
};

}  // namespace

Program::Program(LoadedObject object, const CompiledKernel& kernel)
    : object_(std::move(object)),
      name_(kernel.symbol),
      tasks_(kernel.tasks),
      flops_(kernel.flops),
      bytes_(kernel.bytes),
      buffer_count_(kernel.buffer_count) {}

Device::Device(const DeviceOptions& options)
    : memory_(options.memory_bytes_max > 0 ? options.memory_bytes_max : DefaultMemoryBytesMax()),
      pool_(options.threads) {}

absl::StatusOr<std::unique_ptr<Program>> Device::Load(const CompiledKernel& kernel) {
  absl::StatusOr<LoadedObject> object =
      kernel.tasks > 0 ? LoadedObject::Load(kernel.object, kernel.symbol) : LoadedObject::Nothing();
  if (!object.ok()) return object.status();
  return std::unique_ptr<Program>(new Program(*std::move(object), kernel));
}

absl::Status Device::Launch(const Program& program, std::span<void* const> buffers) {
  if (static_cast<int>(buffers.size()) < program.buffer_count_) {
    return absl::InternalError(absl::StrCat("kernel ", program.name_, " of ", program.buffer_count_,
                                            " buffers got ", buffers.size()));
  }
  if (program.tasks_ <= 0) return absl::OkStatus();
  const Call call{program.object_.function(), buffers.data()};
  if (std::max(program.flops_, program.bytes_) < kAloneWorkMax) {
    call.function(call.buffers, 0, program.tasks_);
    return absl::OkStatus();
  }
  pool_.ForRange(
      program.tasks_,
      [](void* context, int64_t begin, int64_t end) {
        const Call& call = *static_cast<const Call*>(context);
        call.function(call.buffers, begin, end);
      },
      const_cast<Call*>(&call));
  return absl::OkStatus();
}

}  // namespace outboard::cpu
