#include "worker/compile/box_messages.h"

#include <algorithm>
#include <utility>

#include "wire/status_code.h"

namespace outboard::worker {

proto::CompileRequest ToRequest(std::span<const KernelSource> kernels) {
  proto::CompileRequest request;
  for (const KernelSource& kernel : kernels) {
    proto::KernelSource* const source = request.add_kernels();
    source->set_encoding(kernel.encoding);
    if (kernel.opts.has_value()) source->set_opts(*kernel.opts);
    if (kernel.target == KernelTarget()) continue;
    proto::KernelTarget& target = *source->mutable_target();
    target.set_form(static_cast<uint32_t>(kernel.target.form));
    target.set_device(kernel.target.device);
    target.set_fp64(kernel.target.fp64);
    target.set_threads_max(kernel.target.threads_max);
    target.set_shared_bytes_max(kernel.target.shared_bytes_max);
  }
  return request;
}

std::vector<KernelSource> FromRequest(const proto::CompileRequest& request) {
  std::vector<KernelSource> kernels;
  for (const proto::KernelSource& source : request.kernels()) {
    kernels.push_back({source.encoding(), std::nullopt, {}});
    if (source.has_opts()) kernels.back().opts = source.opts();
    if (!source.has_target()) continue;
    const proto::KernelTarget& target = source.target();
    kernels.back().target = {static_cast<CompiledKernel::Form>(target.form()), target.device(),
                             target.fp64(), target.threads_max(), target.shared_bytes_max()};
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
  if (compiled->form == CompiledKernel::Form::kElfX86) return result;
  result.set_form(static_cast<uint32_t>(compiled->form));
  for (const int64_t blocks : compiled->blocks) result.add_blocks(blocks);
  for (const int64_t threads : compiled->threads) result.add_threads(threads);
  result.set_shared_bytes(compiled->shared_bytes);
  result.set_reads_vars(compiled->reads_vars);
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
  kernel.form = static_cast<CompiledKernel::Form>(result.form());
  if (result.blocks_size() == 3)
    std::copy(result.blocks().begin(), result.blocks().end(), kernel.blocks.begin());
  if (result.threads_size() == 3)
    std::copy(result.threads().begin(), result.threads().end(), kernel.threads.begin());
  kernel.shared_bytes = result.shared_bytes();
  kernel.reads_vars = result.reads_vars();
  return kernel;
}

}  // namespace outboard::worker
