#include "tests/compiler/ptx_run.h"

#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "tests/gpu/ptx/machine.h"
#include "tests/gpu/ptx/tensor_map.h"

namespace outboard::test {
namespace {

// As the driver of the tests encodes it.
ptx::TensorMap EncodeMap(const MappedTensor& map, uint64_t address) {
  ptx::TensorMap out;
  out.rank = static_cast<uint8_t>(map.rank());
  out.swizzle = map.swizzled ? 3 : 0;
  out.address = address;
  out.element_bytes = static_cast<uint8_t>(map.element_bytes());
  for (size_t d = 0; d < map.dims.size(); ++d) {
    out.dims[d] = static_cast<uint64_t>(map.dims[d]);
    out.box[d] = static_cast<uint16_t>(map.box[d]);
    out.element_strides[d] = 1;
    if (d > 0) out.strides[d - 1] = static_cast<uint64_t>(map.strides[d - 1]);
  }
  return out;
}

}  // namespace

uint32_t SharedBytesOfLaunch(const CompiledKernel& kernel) {
  const bool at_launch = absl::StrContains(kernel.object, ".extern .shared");
  return at_launch ? static_cast<uint32_t>(kernel.shared_bytes) : 0;
}

absl::Status LaunchOnPtxMachine(const CompiledKernel& kernel, ptx::Machine& machine,
                                std::span<const uint64_t> addresses) {
  if (!kernel.given_up.empty())
    return absl::FailedPreconditionError(
        absl::StrCat("a plan was given up: ", kernel.given_up.front()));
  if (kernel.tasks == 0) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<ptx::LoadedModule> module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  for (size_t axis = 0; axis < 3; ++axis) {
    config.grid[axis] = static_cast<uint32_t>(kernel.blocks[axis]);
    config.block[axis] = static_cast<uint32_t>(kernel.threads[axis]);
  }
  config.parameters.resize(addresses.size() * sizeof(uint64_t));
  if (!addresses.empty())
    std::memcpy(config.parameters.data(), addresses.data(), config.parameters.size());
  for (int copy = 0; copy < kernel.copies; ++copy)
    for (const MappedTensor& map : kernel.maps) {
      const ptx::TensorMap encoded =
          EncodeMap(map, addresses[static_cast<size_t>(copy * kernel.buffer_count + map.slot)]);
      constexpr size_t kAlign = 64;
      const size_t at = (config.parameters.size() + kAlign - 1) / kAlign * kAlign;
      config.parameters.resize(at + sizeof encoded);
      std::memcpy(config.parameters.data() + at, &encoded, sizeof encoded);
    }
  config.shared_bytes = SharedBytesOfLaunch(kernel);
  // As in a graph, whose launches begin before those in front of them are done.
  config.dependent = absl::StrContains(kernel.object, "griddepcontrol.wait");
  const absl::Status status = machine.Launch(*module, kernel.symbol, config);
  if (!status.ok() || !machine.reports().empty()) {
    std::string text(status.message());
    for (const ptx::Report& report : machine.reports())
      absl::StrAppend(&text, "\n", report.ToString());
    return absl::Status(status.ok() ? absl::StatusCode::kFailedPrecondition : status.code(), text);
  }
  return absl::OkStatus();
}

absl::Status RunOnPtxMachine(const CompiledKernel& kernel, Buffers& buffers,
                             std::span<const int64_t> vars, uint64_t seed,
                             uint64_t* bank_conflicts, MachineCounts* counts, uint64_t inexact) {
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory, {.seed = seed, .inexact = inexact});
  std::vector<uint64_t> addresses;
  const auto upload = [&](const void* bytes, size_t count) {
    addresses.push_back(count == 0 ? 0 : memory.Allocate(count));
    OB_CHECK(count == 0 || memory.Write(addresses.back(), bytes, count));
  };
  for (const std::string& buffer : buffers) upload(buffer.data(), buffer.size());
  if (kernel.reads_vars) upload(vars.data(), vars.size_bytes());
  OB_RETURN_IF_ERROR(LaunchOnPtxMachine(kernel, machine, addresses));
  if (kernel.tasks == 0) return absl::OkStatus();
  for (size_t slot = 0; slot < buffers.size(); ++slot)
    if (!buffers[slot].empty())
      OB_CHECK(memory.Read(addresses[slot], buffers[slot].data(), buffers[slot].size()));
  if (bank_conflicts != nullptr)
    *bank_conflicts = machine.counters().shared_wavefronts - machine.counters().shared_accesses;
  if (counts != nullptr)
    *counts = {machine.counters().shared_accesses, machine.counters().shared_wavefronts,
               machine.counters().global_sectors, machine.counters().warp_instructions};
  return absl::OkStatus();
}

std::string BodyOf(const CompiledKernel& kernel) {
  const size_t at = kernel.maps.empty() ? kernel.object.find(".address_size") : 0;
  OB_CHECK(at != std::string::npos);
  return absl::StrCat(kernel.tasks, " tasks, blocks ", absl::StrJoin(kernel.blocks, " "),
                      ", threads ", absl::StrJoin(kernel.threads, " "), ", ", kernel.shared_bytes,
                      " bytes\n", kernel.object.substr(at));
}

}  // namespace outboard::test
