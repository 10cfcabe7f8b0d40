// The target that code is generated for: one description of a processor, which every pass, the
// search and the tuning keys read.
//
// A pass whose decisions depend on the hardware takes a `const Target&`; no pass queries the
// processor itself. Equal graphs and equal targets give equal kernels. Nothing here changes the
// result of a kernel, except for the order of a reduction's terms, which may follow from cache
// sizes (schedule/split.h) but never from `threads`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace outboard {

// What kind of device a target is: selects the code generator, and is part of the fingerprint.
enum class TargetKind { kCpu, kOpenCl, kCuda, kAmd };

// Threads of a GPU's block that run in step, and may shuffle values and multiply matrices together;
// a smaller block is one such group.
inline constexpr int kWarpThreads = 32;
// Of NVIDIA's GPUs from sm_80 on: the registers of a multiprocessor, all of which one block may
// have, and those that one thread may have.
inline constexpr int64_t kCudaRegisters = 65536;
inline constexpr int64_t kCudaThreadRegistersMax = 255;
// The threads of a block: so many have room for all registers that a thread may have, so that
// nothing is spilled; of more each has fewer than it might need, so only long rows have as many.
inline constexpr int64_t kCudaBlockThreads = 256;
inline constexpr int64_t kCudaBlockThreadsMax = 1024;
// Blocks of a cluster that every device of sm_90 can place (CUDA's portable size).
inline constexpr int64_t kClusterBlocksMax = 8;
// The memory that a block of sm_90 may have at most, if its launch asks for that.
inline constexpr int64_t kHopperSharedBytesMax = 227 << 10;

// The instructions that a processor has for sums of products of bf16: AVX512-BF16, AMX.
enum class Bf16Products { kNone, kVectors, kTiles };

// Estimated costs (optimize/cost.h), fitted by eye to kernel times measured on Zen 5 and Sapphire
// Rapids. The unit is one arithmetic instruction on a vector, and on a scalar unless noted
// otherwise. Doubles only: CostTableBytes depends on it.
struct CostTable {
  // One load or store of a vector.
  double vector_load = 1.5;    // most cross a cache line
  double reversed_load = 2.5;  // lanes in descending order
  double picked_load = 5;      // from a run of up to four vectors
  double load_per_lane = 1.5;  // at constant distances, one by one
  double gather_per_lane = 4;
  double scatter_per_lane = 5;
  double far_lane = 0.25;       // added for each lane that is alone in its cache line
  double stream = 1.5;          // added where a vector comes from beyond the first cache
  double gate = 3;              // a load that is skipped or not, for each that is decided alone
  double copy_per_element = 3;  // of an operand to memory of the thread's own
  double library_call = 20;     // per lane: functions of f64 that are left as they are
  double latency_ops = 8;       // operations in flight that keep two units of latency 4 busy
  double spill = 4;             // a value that gets no register: a store, a load and their latency
  // Operations that are counted before they are decomposed into arithmetic.
  double division = 4;      // and square roots
  double exponential = 15;  // and logarithms
  double tanh = 25;
  double sine = 60;  // and cosines
  double threefry = 100;
  // Storing and loading one element, and the cost of one more kernel beside that, per element of
  // its result.
  double memory_trip = 20;
  double kernel_share = 10;
  double tasks_wanted = 64;  // enough for any number of threads we have

  bool operator==(const CostTable&) const = default;
};

struct Target {
  TargetKind kind = TargetKind::kCpu;
  std::string name;      // for people: "AMD EPYC 9B45"; no decision depends on it
  std::string model;     // vendor, family and model: "AuthenticAMD 26-2"; empty where none is meant
  std::string arch;      // LLVM's name of the processor: "znver5"; of a GPU: "sm_90a"
  // LLVM's "+a,-b"; empty: those that `arch` has. Of a GPU "-ptx84" where its driver does not know
  // PTX 8.4, in which products of 8-bit floats by mma.sync came.
  std::string features;
  int threads = 1;       // for compilers and tuning keys; kernels do not depend on it
  int vector_bytes = 64;
  int vector_registers = 32;
  // Data caches of one core; the third one may be shared by several. 0: none, or not known.
  int64_t l1_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  // Threads of one block that may run together; 1: the device is a processor, whose kernels are
  // written for one thread and its vectors.
  int64_t block_threads = 1;
  // Those that a block may have at all. A device or a test that has fewer than the usual number
  // means it.
  int64_t block_threads_max() const {
    return kind == TargetKind::kCuda && block_threads >= kCudaBlockThreads ? kCudaBlockThreadsMax
                                                                           : block_threads;
  }
  // The blocks of a cluster, at most: 1 on devices without clusters.
  int64_t cluster_blocks_max() const {
    return kind == TargetKind::kCuda && (arch == "sm_90" || arch == "sm_90a") ? kClusterBlocksMax
                                                                              : 1;
  }
  int64_t multiprocessors = 0;  // that run blocks; 0 where that is not known
  int64_t shared_bytes = 0;  // memory that a block of threads shares; 0 on a CPU
  // That it may have if its launch asks for it, on CUDA. A multiprocessor has 1 KiB more for all of
  // its blocks, and takes 1 KiB beside each.
  int64_t shared_bytes_max = 0;
  // The most that a block may have at all; and the most that leaves room for a second one on the
  // multiprocessor.
  int64_t block_bytes_max() const { return std::max(shared_bytes, shared_bytes_max); }
  int64_t half_of_block_bytes() const {
    return std::max(shared_bytes, (block_bytes_max() + 1024) / 2 - 1024);
  }
  Bf16Products bf16 = Bf16Products::kNone;
  bool fp64 = true;  // has arithmetic of this type; elsewhere it must be decomposed
  bool fp16 = false;
  CostTable costs;

  // Return whether `features` contains "+", or "-", followed by this name.
  bool Has(std::string_view feature) const;
  bool Lacks(std::string_view feature) const;

  // One line that is equal for two targets exactly if times measured on one are meaningful on the
  // other, and equal kernels get equal Opts. Tuning keys name a target by it, so it is the same in
  // every process and build: for example "x86-64 GenuineIntel 6-207 avx2 fma avx512f amx_bf16, 2
  // cores, L1d 48K L2 2048K L3 266240K". It excludes names, serial numbers and current clock rates.
  std::string Fingerprint() const;

  bool operator==(const Target&) const = default;
};

// Returns the processor that this process runs on. This is the only function that queries it
// (CPUID; no file is read, so that it works in a sandbox). AMX tiles are among its features if the
// operating system grants them; the call requests them for the process. Queried once per process.
// Threads: any.
const Target& HostTarget();

// A fixed target, independent of the machine, for tests and goldens: AVX-512 without products of
// bf16, 32 registers, caches of 48 KiB, 2 MiB and 32 MiB.
const Target& TestTarget();

// The target of an NVIDIA GPU of that kind ("sm_80", "sm_89", "sm_90", "sm_90a") with so many
// multiprocessors: blocks of 256 threads, the shared memory that every kind has, and what this one
// has for launches that ask.
Target CudaTarget(const std::string& arch, int multiprocessors);

// The target of an AMD GPU of that kind ("gfx942", "gfx1100") with so many compute units. Kernels
// are compiled for it, and run nowhere: there is no device of this kind.
Target AmdTarget(const std::string& arch, int compute_units);

// Serialises the costs to bytes that are the same on every machine: for fingerprints and messages.
std::string CostTableBytes(const CostTable& costs);
// Returns false, and leaves `costs` unchanged, if `bytes` are not such a table of the right number
// of finite values.
bool CostTableFromBytes(std::string_view bytes, CostTable* costs);

}  // namespace outboard
