// Launches: checks, the runs over the same memory, and their comparison.
#include "tests/gpu/ptx/machine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr uint64_t kBlocksMax = 1u << 20;  // `who` has 20 bits for a block
constexpr uint32_t kClusterMax = 16;       // non-portable sizes included

using Pages = std::map<std::pair<uint64_t, uint64_t>, Region::SavedPage>;  // region's base, page

void StartLogs(DeviceMemory* memory) {
  for (auto& [base, region] : memory->regions()) {
    region->log.clear();
    region->last_saved = ~uint64_t{0};
    region->logging = true;
  }
}
void StopLogs(DeviceMemory* memory) {
  for (auto& [base, region] : memory->regions()) {
    region->log.clear();
    region->last_saved = ~uint64_t{0};
    region->logging = false;
  }
}

Region::SavedPage PageOf(const Region& region, uint64_t page) {
  const uint64_t begin = page * Region::kPageBytes;
  const uint64_t end = std::min<uint64_t>(begin + Region::kPageBytes, region.bytes());
  return {{region.data.begin() + begin, region.data.begin() + end},
          {region.state.begin() + begin, region.state.begin() + end}};
}

Pages Results(DeviceMemory* memory) {
  Pages pages;
  for (auto& [base, region] : memory->regions())
    for (const auto& [page, saved] : region->log) pages[{base, page}] = PageOf(*region, page);
  return pages;
}

void Undo(DeviceMemory* memory) {
  for (auto& [base, region] : memory->regions()) {
    for (const auto& [page, saved] : region->log) {
      const uint64_t begin = page * Region::kPageBytes;
      std::copy(saved.data.begin(), saved.data.end(), region->data.begin() + begin);
      std::copy(saved.state.begin(), saved.state.end(), region->state.begin() + begin);
    }
  }
}

// The first address whose byte differs, or 0.
uint64_t FirstDifference(DeviceMemory* memory, const Pages& first) {
  for (auto& [base, region] : memory->regions()) {
    for (const auto& [page, saved] : region->log) {
      const Region::SavedPage now = PageOf(*region, page);
      const auto it = first.find({base, page});
      const Region::SavedPage& then = it == first.end() ? saved : it->second;
      for (size_t i = 0; i < now.data.size(); ++i)
        if (now.data[i] != then.data[i] || now.state[i] != then.state[i])
          return base + page * Region::kPageBytes + i;
    }
  }
  return 0;
}

absl::Status CheckConfig(const Module& module, const Function& function,
                         const LaunchConfig& config) {
  uint64_t blocks = 1, threads = 1;
  for (int i = 0; i < 3; ++i) {
    blocks *= config.grid[i];
    threads *= config.block[i];
  }
  const auto invalid = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", function.name, ": ", std::string(what)));
  };
  if (blocks == 0 || threads == 0) return invalid("the grid or the block is empty");
  if (config.grid[1] > 65535 || config.grid[2] > 65535)
    return invalid("a grid has at most 65535 blocks in y and z");
  if (blocks > kBlocksMax) return invalid("the machine runs at most 2^20 blocks");
  if (threads > kThreadsMax || config.block[2] > 64)
    return invalid("a block has at most 1024 threads, 64 of them in z");
  if (function.max_threads > 0 && threads > static_cast<uint64_t>(function.max_threads))
    return invalid(absl::StrCat(threads, " threads, .maxntid allows ", function.max_threads));
  if (function.required_threads > 0 && threads != static_cast<uint64_t>(function.required_threads))
    return invalid(absl::StrCat(threads, " threads, .reqntid wants ", function.required_threads));
  if (module.dynamic_shared + uint64_t{config.shared_bytes} > kSharedBytesMax)
    return invalid("more shared memory than a block has (227 KiB)");
  if (config.parameters.size() != static_cast<size_t>(function.parameter_bytes))
    return invalid(absl::StrCat(config.parameters.size(), " bytes of parameters, expected ",
                                function.parameter_bytes));
  uint64_t cluster = 1;
  for (int i = 0; i < 3; ++i) {
    const uint32_t size =
        config.cluster[i] != 0 ? config.cluster[i] : std::max(1, function.cluster[i]);
    if (config.grid[i] % size != 0) return invalid("the grid is no multiple of the cluster");
    cluster *= size;
  }
  if (cluster > kClusterMax) return invalid("a cluster has at most 16 blocks");
  return absl::OkStatus();
}

}  // namespace

const char* NameOf(ReportKind kind) {
  switch (kind) {
    case ReportKind::kRace: return "race";
    case ReportKind::kInFlight: return "in-flight";
    case ReportKind::kNeverWritten: return "never-written";
    case ReportKind::kAccumulator: return "accumulator";
    case ReportKind::kProxyFence: return "proxy-fence";
    case ReportKind::kMisaligned: return "misaligned";
    case ReportKind::kOutOfBounds: return "out-of-bounds";
    case ReportKind::kBarrierMissed: return "barrier-missed";
    case ReportKind::kEndlessWait: return "endless-wait";
    case ReportKind::kDivergence: return "divergence";
    case ReportKind::kDiffers: return "differs";
    case ReportKind::kMisuse: return "misuse";
    case ReportKind::kDependency: return "dependency";
  }
  return "?";
}

std::string Report::ToString() const {
  std::string out =
      absl::StrCat(NameOf(kind), ": kernel ", kernel, ", line ", line, " `", text, "`");
  if (thread >= 0) absl::StrAppend(&out, ", block ", block, " thread ", thread);
  if (other_thread >= 0) {
    absl::StrAppend(&out, ", other: block ", other_block);
    if (other_thread < static_cast<int>(kEngineThread))
      absl::StrAppend(&out, " thread ", other_thread);
    else
      absl::StrAppend(&out, other_thread == static_cast<int>(kEngineThread) ? " copy" : " product");
  }
  constexpr const char* kSpaces[] = {"generic", "global", "shared", "cluster",
                                     "local",   "const",  "param"};
  if (address != 0)
    absl::StrAppend(&out, ", ", kSpaces[static_cast<int>(space)], " address ",
                    absl::StrFormat("%#x", address));
  if (!detail.empty()) absl::StrAppend(&out, ": ", detail);
  return out;
}

absl::StatusOr<std::unique_ptr<LoadedModule>> Machine::Load(std::string_view ptx) {
  absl::StatusOr<std::unique_ptr<Module>> module = Parse(ptx);
  if (!module.ok()) return module.status();
  auto loaded = std::make_unique<LoadedModule>();
  loaded->module = *std::move(module);
  for (const GlobalData& data : loaded->module->globals) {
    const uint64_t address = memory_->Allocate(data.bytes);
    if (address == 0) return absl::ResourceExhaustedError("no memory for a module's data");
    loaded->globals[data.name] = address;
    // PTX zeroes variables without an initial value.
    memory_->Write(address, data.data.data(), data.bytes);
  }
  return loaded;
}

void Machine::Unload(LoadedModule* module) {
  for (const auto& [name, address] : module->globals) memory_->Free(address);
  module->globals.clear();
}

// ---- what blocks leave to those after them

void Execution::TakeShared(Region* shared) const {
  const std::vector<uint8_t>& left = machine_->leftovers_.shared;
  std::copy_n(left.begin(), std::min<size_t>(left.size(), shared->bytes()), shared->data.begin());
  std::fill(shared->state.begin(), shared->state.end(), kWritten);
}

void Execution::TakeRegisters(Warp* warp) const {
  const std::vector<uint64_t>& left = machine_->leftovers_.registers;
  const size_t count = static_cast<size_t>(function_.rows) * 32;
  const size_t first = static_cast<size_t>(warp->index) * count;
  for (size_t i = 0; i < count && first + i < left.size(); ++i) warp->rows[i] = left[first + i];
}

void Execution::LeaveLeftovers(const Block& block) {
  Leftovers& left = machine_->leftovers_next_;
  left.shared.resize(std::max<size_t>(left.shared.size(), block.shared->bytes()));
  std::copy(block.shared->data.begin(), block.shared->data.end(), left.shared.begin());
  left.registers.resize(Leftovers::kRegisters);
  const size_t count = static_cast<size_t>(function_.rows) * 32;
  for (const auto& warp : block.warps) {
    const size_t first = static_cast<size_t>(warp->index) * count;
    for (size_t i = 0; i < count && first + i < left.registers.size(); ++i)
      left.registers[first + i] = warp->rows[i];
  }
}

absl::Status Machine::Launch(const LoadedModule& module, const std::string& kernel,
                             const LaunchConfig& config) {
  const auto it = module.module->functions.find(kernel);
  if (it == module.module->functions.end())
    return absl::NotFoundError(absl::StrCat("no kernel '", kernel, "'"));
  const Function& function = *it->second;
  OB_RETURN_IF_ERROR(CheckConfig(*module.module, function, config));
  ++counters_.launches;
  const size_t reports_before = reports_.size();
  StartLogs(memory_);
  Pages first;
  absl::Status status;
  for (int run = 0; run < options_.runs; ++run) {
    if (run > 0) Undo(memory_);
    leftovers_next_ = leftovers_;  // each run begins with the same
    Execution execution(this, module, function, config, run);
    status = execution.Run();
    clock_base_ = execution.clock_end() + 1;
    if (!status.ok() || reports_.size() > reports_before) break;
    if (run == 0) {
      if (options_.runs > 1) first = Results(memory_);
    } else if (!execution.depends_on_order()) {
      const uint64_t address = FirstDifference(memory_, first);
      if (address != 0) {
        Report report;
        report.kind = ReportKind::kDiffers;
        report.kernel = kernel;
        report.space = Space::kGlobal;
        report.address = address;
        report.detail = absl::StrCat("runs 0 and ", run, " gave other bytes");
        reports_.push_back(report);
        break;
      }
    }
  }
  std::swap(leftovers_, leftovers_next_);
  StopLogs(memory_);
  // Reports come first: a run that broke a rule may also trap or not end.
  if (reports_.size() > reports_before)
    return absl::FailedPreconditionError(reports_[reports_before].ToString());
  return status;
}

}  // namespace outboard::ptx
