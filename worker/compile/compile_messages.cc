#include "worker/compile/compile_messages.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "wire/status_code.h"

namespace outboard::worker {

proto::CompileTarget TargetToWire(const Target& target) {
  proto::CompileTarget message;
  message.set_kind(static_cast<uint32_t>(target.kind));
  message.set_name(target.name);
  message.set_model(target.model);
  message.set_arch(target.arch);
  message.set_features(target.features);
  message.set_threads(static_cast<uint32_t>(target.threads));
  message.set_vector_bytes(static_cast<uint32_t>(target.vector_bytes));
  message.set_vector_registers(static_cast<uint32_t>(target.vector_registers));
  message.set_l1_bytes(target.l1_bytes);
  message.set_l2_bytes(target.l2_bytes);
  message.set_l3_bytes(target.l3_bytes);
  message.set_block_threads(static_cast<uint32_t>(target.block_threads));
  message.set_multiprocessors(target.multiprocessors);
  message.set_shared_bytes(target.shared_bytes);
  message.set_shared_bytes_max(target.shared_bytes_max);
  message.set_bf16(static_cast<uint32_t>(target.bf16));
  message.set_fp64(target.fp64);
  message.set_fp16(target.fp16);
  message.set_costs(CostTableBytes(target.costs));
  return message;
}

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

proto::CompileRequest ToRequest(std::span<const KernelSource> kernels, const Target& target) {
  proto::CompileRequest request = ToRequest(kernels);
  *request.mutable_target() = TargetToWire(target);
  return request;
}

absl::StatusOr<Target> TargetOfRequest(const proto::CompileRequest& request) {
  if (!request.has_target()) return HostTarget();
  return TargetFromWire(request.target());
}

absl::StatusOr<Target> TargetFromWire(const proto::CompileTarget& message) {
  const auto bad = [](const char* field, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat("target: ", field, " is ", value));
  };
  constexpr uint32_t kThreadsMost = 1 << 16, kVectorBytesMost = 1024, kRegistersMost = 1 << 16;
  if (message.kind() > static_cast<uint32_t>(TargetKind::kCuda))
    return bad("kind", message.kind());
  if (message.bf16() > static_cast<uint32_t>(Bf16Products::kTiles))
    return bad("bf16", message.bf16());
  if (message.threads() < 1 || message.threads() > kThreadsMost)
    return bad("threads", message.threads());
  if (!std::has_single_bit(message.vector_bytes()) || message.vector_bytes() < 16 ||
      message.vector_bytes() > kVectorBytesMost)
    return bad("vector_bytes", message.vector_bytes());
  if (message.vector_registers() < 1 || message.vector_registers() > kRegistersMost)
    return bad("vector_registers", message.vector_registers());
  if (message.block_threads() < 1 || message.block_threads() > kThreadsMost)
    return bad("block_threads", message.block_threads());
  for (const int64_t bytes :
       {message.l1_bytes(), message.l2_bytes(), message.l3_bytes(), message.shared_bytes(),
        message.shared_bytes_max()})
    if (bytes < 0) return bad("bytes of a memory", bytes);
  if (message.multiprocessors() < 0 || message.multiprocessors() > kThreadsMost)
    return bad("multiprocessors", message.multiprocessors());
  Target target;
  if (!CostTableFromBytes(message.costs(), &target.costs))
    return bad("bytes of the cost table", static_cast<int64_t>(message.costs().size()));
  target.kind = static_cast<TargetKind>(message.kind());
  target.name = message.name();
  target.model = message.model();
  target.arch = message.arch();
  target.features = message.features();
  target.threads = static_cast<int>(message.threads());
  target.vector_bytes = static_cast<int>(message.vector_bytes());
  target.vector_registers = static_cast<int>(message.vector_registers());
  target.l1_bytes = message.l1_bytes();
  target.l2_bytes = message.l2_bytes();
  target.l3_bytes = message.l3_bytes();
  target.block_threads = message.block_threads();
  target.multiprocessors = message.multiprocessors();
  target.shared_bytes = message.shared_bytes();
  target.shared_bytes_max = message.shared_bytes_max();
  target.bf16 = static_cast<Bf16Products>(message.bf16());
  target.fp64 = message.fp64();
  target.fp16 = message.fp16();
  return target;
}

// Of what is reported of plans that were given up.
static constexpr size_t kGivenUpBytesMax = 2000;

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
  result.set_given_up(absl::StrJoin(compiled->given_up, "; ").substr(0, kGivenUpBytesMax));
  if (compiled->form == CompiledKernel::Form::kElfX86) return result;
  result.set_form(static_cast<uint32_t>(compiled->form));
  for (const int64_t blocks : compiled->blocks) result.add_blocks(blocks);
  for (const int64_t threads : compiled->threads) result.add_threads(threads);
  result.set_shared_bytes(compiled->shared_bytes);
  result.set_reads_vars(compiled->reads_vars);
  if (compiled->copies > 1) result.set_copies(compiled->copies);
  for (const MappedTensor& map : compiled->maps) {
    proto::BufferView& view = *result.add_maps();
    view.set_slot(map.slot);
    view.set_element(static_cast<uint32_t>(map.element));
    view.set_swizzled(map.swizzled);
    for (const int64_t length : map.dims) view.add_dims(length);
    for (const int64_t bytes : map.strides) view.add_strides(bytes);
    for (const int64_t length : map.box) view.add_box(length);
  }
  return result;
}

absl::StatusOr<CompiledKernel> FromResult(proto::CompileResult result) {
  if (result.code() != 0) return absl::Status(wire::CodeFromWire(result.code()), result.message());
  if (result.form() > static_cast<uint32_t>(CompiledKernel::Form::kPtx))
    return absl::InternalError(absl::StrCat("a compiled kernel of unknown form ", result.form()));
  CompiledKernel kernel;
  kernel.object = std::move(*result.mutable_object());
  kernel.symbol = std::move(*result.mutable_symbol());
  kernel.tasks = result.tasks();
  kernel.buffer_count = result.buffer_count();
  kernel.flops = result.flops();
  kernel.bytes = result.bytes();
  if (!result.given_up().empty()) kernel.given_up = {std::move(*result.mutable_given_up())};
  kernel.form = static_cast<CompiledKernel::Form>(result.form());
  if (result.blocks_size() == 3)
    std::copy(result.blocks().begin(), result.blocks().end(), kernel.blocks.begin());
  if (result.threads_size() == 3)
    std::copy(result.threads().begin(), result.threads().end(), kernel.threads.begin());
  kernel.shared_bytes = result.shared_bytes();
  kernel.reads_vars = result.reads_vars();
  kernel.copies = std::max(1, result.copies());
  if (kernel.copies > CompiledKernel::kCopiesMax ||
      (kernel.copies > 1 && kernel.buffer_count > CompiledKernel::kCopiesMax / kernel.copies))
    return absl::InternalError(absl::StrCat("a compiled kernel of ", kernel.copies, " copies with ",
                                            kernel.buffer_count, " buffers each"));
  for (const proto::BufferView& view : result.maps()) {
    if (view.element() > static_cast<uint32_t>(MappedTensor::kElementLast))
      return absl::InternalError(
          absl::StrCat("a view of a buffer with elements of unknown type ", view.element()));
    kernel.maps.push_back({.slot = view.slot(),
                           .element = static_cast<MappedTensor::Element>(view.element()),
                           .swizzled = view.swizzled(),
                           .dims = {view.dims().begin(), view.dims().end()},
                           .strides = {view.strides().begin(), view.strides().end()},
                           .box = {view.box().begin(), view.box().end()}});
  }
  return kernel;
}

}  // namespace outboard::worker
