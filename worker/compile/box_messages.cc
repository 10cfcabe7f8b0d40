#include "worker/compile/box_messages.h"

#include <utility>

#include "wire/status_code.h"

namespace outboard::worker {

proto::CompileRequest ToRequest(std::span<const KernelSource> kernels) {
  proto::CompileRequest request;
  for (const KernelSource& kernel : kernels) {
    proto::KernelSource* const source = request.add_kernels();
    source->set_encoding(kernel.encoding);
    if (kernel.opts.has_value()) source->set_opts(*kernel.opts);
  }
  return request;
}

std::vector<KernelSource> FromRequest(const proto::CompileRequest& request) {
  std::vector<KernelSource> kernels;
  for (const proto::KernelSource& source : request.kernels()) {
    kernels.push_back({source.encoding(), std::nullopt});
    if (source.has_opts()) kernels.back().opts = source.opts();
  }
  return kernels;
}

proto::CompileResult ToResult(absl::StatusOr<CompiledKernel> compiled) {
  proto::CompileResult result;
  if (!compiled.ok()) {
    result.set_code(static_cast<uint32_t>(compiled.status().code()));
    result.set_message(std::string(compiled.status().message()));
    return result;
  }
  result.set_object(std::move(compiled->object));
  result.set_symbol(std::move(compiled->symbol));
  result.set_tasks(compiled->tasks);
  result.set_buffer_count(compiled->buffer_count);
  result.set_flops(compiled->flops);
  result.set_bytes(compiled->bytes);
  return result;
}

absl::StatusOr<CompiledKernel> FromResult(proto::CompileResult result) {
  if (result.code() != 0) return absl::Status(wire::CodeFromWire(result.code()), result.message());
  CompiledKernel kernel;
  kernel.object = std::move(*result.mutable_object());
  kernel.symbol = std::move(*result.mutable_symbol());
  kernel.tasks = result.tasks();
  kernel.buffer_count = result.buffer_count();
  kernel.flops = result.flops();
  kernel.bytes = result.bytes();
  return kernel;
}

}  // namespace outboard::worker
