#include "compiler/target.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace outboard {
namespace {

constexpr size_t kCosts = sizeof(CostTable) / sizeof(double);
using Costs = std::array<double, kCosts>;
static_assert(sizeof(CostTable) == kCosts * sizeof(double));
static_assert(std::endian::native == std::endian::little);

// The shared memory that a block may ask for: CUDA C++ Programming Guide, "Technical Specifications
// per Compute Capability".
struct BlockMemory {
  const char* arch;
  int64_t bytes_max;
};
constexpr BlockMemory kBlockMemories[] = {{"sm_80", 163 << 10},
                                          {"sm_89", 99 << 10},
                                          {"sm_90", kHopperSharedBytesMax},
                                          {"sm_90a", kHopperSharedBytesMax}};

// FNV-1a (Fowler, Noll, Vo), 64 bits.
uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

std::string Kibibytes(const char* name, int64_t bytes) {
  return bytes == 0 ? "" : absl::StrCat(" ", name, " ", bytes >> 10, "K");
}

// The features that decide the speed of a kernel, under LLVM's names, as listed in a fingerprint.
struct NamedFeature {
  const char *llvm, *text;
};
constexpr NamedFeature kDecisive[] = {
    {"avx2", "avx2"},
    {"fma", "fma"},
    {"avx512f", "avx512f"},
    {"avx512bf16", "avx512_bf16"},
    {"avx512fp16", "avx512_fp16"},
    {"amx-bf16", "amx_bf16"},
};

std::string DescribeArch(const Target& target) {
  std::string text;
  switch (target.kind) {
    case TargetKind::kCpu: text = "x86-64 "; break;
    case TargetKind::kOpenCl: text = "opencl "; break;
    case TargetKind::kCuda: text = "cuda "; break;
    case TargetKind::kAmd: text = "amd "; break;
  }
  if (target.kind != TargetKind::kCpu)
    absl::StrAppend(&text, "blocks of ", target.block_threads, " ");
  if (!target.model.empty()) {
    text += target.model;
    for (const auto& [llvm, name] : kDecisive)
      if (target.Has(llvm)) absl::StrAppend(&text, " ", name);
    if (target.kind == TargetKind::kCpu) return text;
  }
  // No model that the rest follows from.
  absl::StrAppend(&text, target.model.empty() ? "" : " ", target.arch,
                  target.features.empty() ? "" : " ", target.features, " vectors ",
                  target.vector_registers, "x", target.vector_bytes, " bf16 ",
                  static_cast<int>(target.bf16));
  if (target.multiprocessors > 0)
    absl::StrAppend(&text, " multiprocessors ", target.multiprocessors);
  if (target.shared_bytes > 0) text += Kibibytes("shared", target.shared_bytes);
  if (target.shared_bytes_max > 0) text += Kibibytes("to", target.shared_bytes_max);
  return absl::StrCat(text, target.fp64 ? "" : " no fp64", target.fp16 ? " fp16" : "");
}

bool IsListed(std::string_view features, char sign, std::string_view feature) {
  for (size_t at = 0; (at = features.find(feature, at)) != std::string_view::npos; ++at) {
    const size_t end = at + feature.size();
    if (at > 0 && features[at - 1] == sign && (at == 1 || features[at - 2] == ',') &&
        (end == features.size() || features[end] == ','))
      return true;
  }
  return false;
}

Target MakeTestTarget() {
  Target target;
  target.name = "test target";
  target.arch = "x86-64-v4";
  target.threads = 2;
  target.l1_bytes = 48 << 10;
  target.l2_bytes = 2 << 20;
  target.l3_bytes = 32 << 20;
  return target;
}

}  // namespace

bool Target::Has(std::string_view feature) const { return IsListed(features, '+', feature); }
bool Target::Lacks(std::string_view feature) const { return IsListed(features, '-', feature); }

std::string Target::Fingerprint() const {
  std::string text =
      absl::StrCat(DescribeArch(*this), ", ", threads, " cores,", Kibibytes("L1d", l1_bytes),
                   Kibibytes("L2", l2_bytes), Kibibytes("L3", l3_bytes));
  if (costs != CostTable())
    absl::StrAppend(&text, " costs ", absl::Hex(HashOf(CostTableBytes(costs)), absl::kZeroPad16));
  return text;
}

const Target& TestTarget() {
  static const Target* const kTarget = new Target(MakeTestTarget());
  return *kTarget;
}

Target CudaTarget(const std::string& arch, int multiprocessors) {
  constexpr int64_t kSharedBytes = 48 << 10;  // more must be asked for at launch
  Target target;
  target.kind = TargetKind::kCuda;
  target.name = target.arch = arch;
  target.threads = multiprocessors;
  target.multiprocessors = multiprocessors;
  target.vector_bytes = 16;  // the widest access of a thread
  target.vector_registers = kCudaThreadRegistersMax;
  target.block_threads = kCudaBlockThreads;
  target.shared_bytes = target.shared_bytes_max = kSharedBytes;
  for (const BlockMemory& memory : kBlockMemories)
    if (arch == memory.arch) target.shared_bytes_max = memory.bytes_max;
  target.fp16 = true;
  return target;
}

Target AmdTarget(const std::string& arch, int compute_units) {
  // With so many threads of a work-group each may have all of its 256 vector registers.
  constexpr int64_t kBlockThreads = 256;
  constexpr int64_t kSharedBytes = 64 << 10;
  Target target;
  target.kind = TargetKind::kAmd;
  target.name = target.arch = arch;
  target.threads = compute_units;
  target.vector_bytes = 16;  // the widest access of a thread
  target.vector_registers = 256;
  target.block_threads = kBlockThreads;
  target.shared_bytes = kSharedBytes;
  target.fp16 = true;
  return target;
}

std::string CostTableBytes(const CostTable& costs) {
  const auto numbers = std::bit_cast<Costs>(costs);
  return std::string(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
}

bool CostTableFromBytes(std::string_view bytes, CostTable* costs) {
  Costs numbers;
  if (bytes.size() != sizeof numbers) return false;
  std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
  for (const double number : numbers)
    if (!std::isfinite(number) || number < 0) return false;
  *costs = std::bit_cast<CostTable>(numbers);
  return true;
}

}  // namespace outboard
