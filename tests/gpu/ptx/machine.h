// The PTX machine: runs kernels on a CPU as a GPU may, and reports what no GPU promises.
//
// A launch runs at least twice on the same memory: once with copies and matrix products as early as
// PTX allows and warps in order, then as late as it allows with warps in a seeded order. Each run
// starts from the same bytes. What differs afterwards is a report, and so is each broken rule
// (ReportKind).
//
// Errors of Launch:  NOT_FOUND           no kernel of that name
//                    INVALID_ARGUMENT    grid, block, cluster, shared memory or parameters that
//                                        no device accepts
//                    FAILED_PRECONDITION the launch broke a rule: reports() says which
//                    ABORTED             a trap
//                    DEADLINE_EXCEEDED   more instructions than MachineOptions allows
// Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/gpu/ptx/memory.h"
#include "tests/gpu/text/module.h"

namespace outboard::ptx {

enum class ReportKind : uint8_t {
  kRace,          // two accesses that nothing orders, one of them a write
  kInFlight,      // bytes that a copy is still writing, or that a product still reads
  kNeverWritten,  // bytes that nobody has written
  kAccumulator,   // a register of a product that was not waited for
  // the asynchronous proxy reads what ordinary stores wrote, without fence.proxy.async
  kProxyFence,
  kMisaligned,
  kOutOfBounds,    // bytes that belong to no allocation
  kBarrierMissed,  // threads wait at a barrier that others can no longer reach
  kEndlessWait,    // nothing can end this wait
  kDivergence,     // lanes that an instruction needs are elsewhere or have left
  kDiffers,        // two runs gave other results
  kMisuse,         // an operand that PTX gives no meaning
  // global memory before griddepcontrol.wait, or a grid of which no thread waits, in a launch that
  // starts before what it depends on is done
  kDependency,
};
const char* NameOf(ReportKind kind);

struct Report {
  ReportKind kind = ReportKind::kMisuse;
  std::string kernel;
  int line = 0;        // of the PTX
  std::string text;    // that line
  uint32_t block = 0;  // linear
  int thread = -1;     // linear, in the block
  int64_t other_block = -1;
  int other_thread = -1;  // the other of a race; 1024 and above are the copy engine and products
  Space space = Space::kGeneric;
  uint64_t address = 0;
  std::string detail;

  std::string ToString() const;
};

struct LaunchConfig {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  std::array<uint32_t, 3> cluster = {0, 0, 0};  // zeros: as the kernel says, or none
  uint32_t shared_bytes = 0;                    // dynamic
  std::vector<uint8_t> parameters;              // as the kernel's parameters lie in memory
  // It may start before the launches that it depends on are done (programmatic edges of graphs):
  // its threads wait for them by griddepcontrol.wait.
  bool dependent = false;
};

// Of the first run of each launch.
struct Counters {
  uint64_t launches = 0;
  uint64_t warp_instructions = 0;
  uint64_t slept_ns = 0;  // by nanosleep, of warps
  uint64_t lane_instructions = 0;
  uint64_t global_accesses = 0;  // of warps
  uint64_t global_sectors = 0;   // pieces of 32 bytes that these touch, each counted once an access
  uint64_t global_bytes = 0;     // asked for by lanes
  uint64_t shared_accesses = 0;  // phases: up to 128 bytes by 32, 16 or 8 lanes
  uint64_t shared_wavefronts = 0;  // phases times the ways of their bank conflicts
  uint64_t products = 0;           // mma and wgmma
};

struct MachineOptions {
  uint64_t seed = 1;
  int runs = 2;  // the first is early and in order, the second late; further ones vary at random
  uint64_t warp_instructions_max = 200'000'000;  // of a run: a kernel that does not end
  int resident_blocks = 4;                       // that run side by side; whole clusters always do
  size_t reports_max = 100;
  // A block begins with what blocks before it left in shared memory and registers, as on a GPU; its
  // shared memory counts as written. Otherwise both are 0, and the first not written.
  bool keeps_leftovers = false;
  // Unless it is 0: ex2.approx and rcp.approx of f32 give any number within PTX's bounds, which
  // depends on their argument and this, and rcp.approx of f64 one within a part of 2^-14.
  uint64_t inexact = 0;
};

// What blocks have left on the machine's one multiprocessor. Registers lie as warps got them, each
// 32 lanes wide; a warp's part begins behind those of the warps before it.
struct Leftovers {
  static constexpr size_t kRegisters = 65536;
  std::vector<uint8_t> shared;
  std::vector<uint64_t> registers;
};

// A module on the device: its data has addresses.
struct LoadedModule {
  std::unique_ptr<Module> module;
  std::map<std::string, uint64_t> globals;
};

class Machine {
 public:
  explicit Machine(DeviceMemory* memory, MachineOptions options = {})
      : memory_(memory), options_(options) {}

  absl::StatusOr<std::unique_ptr<LoadedModule>> Load(std::string_view ptx);
  void Unload(LoadedModule* module);
  absl::Status Launch(const LoadedModule& module, const std::string& kernel,
                      const LaunchConfig& config);

  const std::vector<Report>& reports() const { return reports_; }
  void ClearReports() { reports_.clear(); }
  const Counters& counters() const { return counters_; }
  void ClearCounters() { counters_ = {}; }
  MachineOptions& options() { return options_; }
  DeviceMemory* memory() { return memory_; }

 private:
  friend class Execution;
  DeviceMemory* memory_;
  MachineOptions options_;
  std::vector<Report> reports_;
  Counters counters_;
  Leftovers leftovers_;       // before the launch that runs
  Leftovers leftovers_next_;  // after it
  uint32_t clock_base_ = 1;  // of the next run
};

}  // namespace outboard::ptx
