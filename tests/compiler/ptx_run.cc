#include "tests/compiler/ptx_run.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/gpu/ptx/machine.h"
#include "tests/gpu/ptx/tensor_map.h"

namespace outboard::test {
namespace {

std::string FindTool(const char* name, const char* variable) {
  if (const char* const named = std::getenv(variable); named != nullptr) return named;
  const char* const path = std::getenv("PATH");
  const std::string folders = absl::StrCat(OUTBOARD_ASSEMBLER ":", path == nullptr ? "" : path);
  for (const absl::string_view folder : absl::StrSplit(folders, ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace
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

absl::Status RunOnPtxMachine(const CompiledKernel& kernel, Buffers& buffers,
                             std::span<const int64_t> vars, uint64_t seed,
                             uint64_t* bank_conflicts, MachineCounts* counts, uint64_t inexact) {
  if (kernel.tasks == 0) return absl::OkStatus();
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory, {.seed = seed, .inexact = inexact});
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<ptx::LoadedModule> module, machine.Load(kernel.object));
  std::vector<uint64_t> addresses;
  const auto upload = [&](const void* bytes, size_t count) {
    addresses.push_back(count == 0 ? 0 : memory.Allocate(count));
    OB_CHECK(count == 0 || memory.Write(addresses.back(), bytes, count));
  };
  for (const std::string& buffer : buffers) upload(buffer.data(), buffer.size());
  if (kernel.reads_vars) upload(vars.data(), vars.size_bytes());
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
  const absl::Status status = machine.Launch(*module, kernel.symbol, config);
  if (!status.ok() || !machine.reports().empty()) {
    std::string text(status.message());
    for (const ptx::Report& report : machine.reports())
      absl::StrAppend(&text, "\n", report.ToString());
    return absl::Status(status.ok() ? absl::StatusCode::kFailedPrecondition : status.code(), text);
  }
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

std::string FindPtxas() { return FindTool("ptxas", "OUTBOARD_PTXAS"); }
std::string FindNvdisasm() { return FindTool("nvdisasm", "OUTBOARD_NVDISASM"); }

absl::StatusOr<Assembled> AssembleKernel(const std::string& ptxas, const std::string& ptx,
                                         const std::string& arch) {
  std::string folder = std::filesystem::temp_directory_path() / "outboard_ptx_XXXXXX";
  OB_CHECK(mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/kernel.ptx") << ptx;
  const std::string command = absl::StrCat("'", ptxas, "' -v -arch=", arch, " '", folder,
                                           "/kernel.ptx' -o '", folder, "/kernel.cubin' 2>&1");
  std::string words;
  std::FILE* const pipe = popen(command.c_str(), "r");
  OB_CHECK(pipe != nullptr);
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) words.append(piece, count);
  const int code = pclose(pipe);
  std::filesystem::remove_all(folder);
  if (code != 0) return absl::InternalError(words);
  // The number before `unit`, in the last line that has it.
  const auto number = [&](const char* unit, int64_t* value) {
    const size_t said = words.rfind(unit);
    if (said == std::string::npos) return false;
    const size_t first = words.find_last_not_of("0123456789", said - 1) + 1;
    return absl::SimpleAtoi(words.substr(first, said - first), value);
  };
  Assembled out;
  int64_t stored = 0, loaded = 0;
  if (!number(" registers", &out.registers) || !number(" bytes stack frame", &out.stack_bytes) ||
      !number(" bytes spill stores", &stored) || !number(" bytes spill loads", &loaded))
    return absl::InternalError(words);
  out.spill_bytes = stored + loaded;
  out.serialised = absl::StrContains(words, "serialized");
  for (const absl::string_view line : absl::StrSplit(words, '\n'))
    out.warnings += absl::StrContains(line, "warning") ? 1 : 0;
  return out;
}

absl::StatusOr<int64_t> StackBytesOf(const std::string& ptxas, const std::string& ptx,
                                     const std::string& arch) {
  OB_ASSIGN_OR_RETURN(const Assembled assembled, AssembleKernel(ptxas, ptx, arch));
  return assembled.stack_bytes;
}

}  // namespace outboard::test
