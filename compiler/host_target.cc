// Queries the processor (CPUID: Intel, "Software Developer's Manual", volume 2A; AMD, "Architecture
// Programmer's Manual", volume 3, appendix E) and names it and its features as LLVM does, without
// linking LLVM. A test compares the result with LLVM's on the machine that it runs on
// (tests/compiler/target_test.cc).
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/cores.h"
#include "compiler/target.h"

namespace outboard {
namespace {

enum Register { kEax, kEbx, kEcx, kEdx };
using Registers = std::array<unsigned, 4>;

// All zeros where the processor does not have the leaf.
Registers Cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r = {};
  if (__get_cpuid_max(leaf & 0x80000000, nullptr) < leaf) return r;
  __cpuid_count(leaf, subleaf, r[kEax], r[kEbx], r[kEcx], r[kEdx]);
  return r;
}

// The register state that the operating system saves at a context switch, as reported by XGETBV; a
// feature whose registers are not saved may not be used.
enum class Kept { kAlways, kXsave, kAvx, kAvx512, kApx, kAmx };

struct Feature {
  const char* name;  // LLVM's
  unsigned leaf, subleaf;
  Register in;
  int bit;
  Kept kept = Kept::kAlways;
};

constexpr unsigned kExtended = 0x80000001, kAddresses = 0x80000008;
constexpr Feature kFeatures[] = {
    {"cx8", 1, 0, kEdx, 8},
    {"cmov", 1, 0, kEdx, 15},
    {"mmx", 1, 0, kEdx, 23},
    {"fxsr", 1, 0, kEdx, 24},
    {"sse", 1, 0, kEdx, 25},
    {"sse2", 1, 0, kEdx, 26},
    {"sse3", 1, 0, kEcx, 0},
    {"pclmul", 1, 0, kEcx, 1},
    {"ssse3", 1, 0, kEcx, 9},
    {"fma", 1, 0, kEcx, 12, Kept::kAvx},
    {"cx16", 1, 0, kEcx, 13},
    {"sse4.1", 1, 0, kEcx, 19},
    {"sse4.2", 1, 0, kEcx, 20},
    {"crc32", 1, 0, kEcx, 20},
    {"movbe", 1, 0, kEcx, 22},
    {"popcnt", 1, 0, kEcx, 23},
    {"aes", 1, 0, kEcx, 25},
    {"xsave", 1, 0, kEcx, 26, Kept::kXsave},
    {"avx", 1, 0, kEcx, 28, Kept::kAvx},
    {"f16c", 1, 0, kEcx, 29, Kept::kAvx},
    {"rdrnd", 1, 0, kEcx, 30},
    {"sahf", kExtended, 0, kEcx, 0},
    {"lzcnt", kExtended, 0, kEcx, 5},
    {"sse4a", kExtended, 0, kEcx, 6},
    {"prfchw", kExtended, 0, kEcx, 8},
    {"xop", kExtended, 0, kEcx, 11, Kept::kAvx},
    {"lwp", kExtended, 0, kEcx, 15},
    {"fma4", kExtended, 0, kEcx, 16, Kept::kAvx},
    {"tbm", kExtended, 0, kEcx, 21},
    {"mwaitx", kExtended, 0, kEcx, 29},
    {"64bit", kExtended, 0, kEdx, 29},
    {"clzero", kAddresses, 0, kEbx, 0},
    {"rdpru", kAddresses, 0, kEbx, 4},
    {"wbnoinvd", kAddresses, 0, kEbx, 9},
    {"fsgsbase", 7, 0, kEbx, 0},
    {"sgx", 7, 0, kEbx, 2},
    {"bmi", 7, 0, kEbx, 3},
    {"avx2", 7, 0, kEbx, 5, Kept::kAvx},
    {"bmi2", 7, 0, kEbx, 8},
    {"invpcid", 7, 0, kEbx, 10},
    {"rtm", 7, 0, kEbx, 11},
    {"avx512f", 7, 0, kEbx, 16, Kept::kAvx512},
    {"evex512", 7, 0, kEbx, 16, Kept::kAvx512},
    {"avx512dq", 7, 0, kEbx, 17, Kept::kAvx512},
    {"rdseed", 7, 0, kEbx, 18},
    {"adx", 7, 0, kEbx, 19},
    {"avx512ifma", 7, 0, kEbx, 21, Kept::kAvx512},
    {"clflushopt", 7, 0, kEbx, 23},
    {"clwb", 7, 0, kEbx, 24},
    {"avx512cd", 7, 0, kEbx, 28, Kept::kAvx512},
    {"sha", 7, 0, kEbx, 29},
    {"avx512bw", 7, 0, kEbx, 30, Kept::kAvx512},
    {"avx512vl", 7, 0, kEbx, 31, Kept::kAvx512},
    {"avx512vbmi", 7, 0, kEcx, 1, Kept::kAvx512},
    {"pku", 7, 0, kEcx, 4},
    {"waitpkg", 7, 0, kEcx, 5},
    {"avx512vbmi2", 7, 0, kEcx, 6, Kept::kAvx512},
    {"shstk", 7, 0, kEcx, 7},
    {"gfni", 7, 0, kEcx, 8},
    {"vaes", 7, 0, kEcx, 9, Kept::kAvx},
    {"vpclmulqdq", 7, 0, kEcx, 10, Kept::kAvx},
    {"avx512vnni", 7, 0, kEcx, 11, Kept::kAvx512},
    {"avx512bitalg", 7, 0, kEcx, 12, Kept::kAvx512},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, Kept::kAvx512},
    {"rdpid", 7, 0, kEcx, 22},
    {"kl", 7, 0, kEcx, 23},
    {"cldemote", 7, 0, kEcx, 25},
    {"movdiri", 7, 0, kEcx, 27},
    {"movdir64b", 7, 0, kEcx, 28},
    {"enqcmd", 7, 0, kEcx, 29},
    {"uintr", 7, 0, kEdx, 5},
    {"avx512vp2intersect", 7, 0, kEdx, 8, Kept::kAvx512},
    {"serialize", 7, 0, kEdx, 14},
    {"tsxldtrk", 7, 0, kEdx, 16},
    {"pconfig", 7, 0, kEdx, 18},
    {"amx-bf16", 7, 0, kEdx, 22, Kept::kAmx},
    {"avx512fp16", 7, 0, kEdx, 23, Kept::kAvx512},
    {"amx-tile", 7, 0, kEdx, 24, Kept::kAmx},
    {"amx-int8", 7, 0, kEdx, 25, Kept::kAmx},
    {"sha512", 7, 1, kEax, 0},
    {"sm3", 7, 1, kEax, 1},
    {"sm4", 7, 1, kEax, 2},
    {"raoint", 7, 1, kEax, 3},
    {"avxvnni", 7, 1, kEax, 4, Kept::kAvx},
    {"avx512bf16", 7, 1, kEax, 5, Kept::kAvx512},
    {"cmpccxadd", 7, 1, kEax, 7},
    {"amx-fp16", 7, 1, kEax, 21, Kept::kAmx},
    {"hreset", 7, 1, kEax, 22},
    {"avxifma", 7, 1, kEax, 23, Kept::kAvx},
    {"avxvnniint8", 7, 1, kEdx, 4, Kept::kAvx},
    {"avxneconvert", 7, 1, kEdx, 5, Kept::kAvx},
    {"amx-complex", 7, 1, kEdx, 8, Kept::kAmx},
    {"avxvnniint16", 7, 1, kEdx, 10, Kept::kAvx},
    {"prefetchi", 7, 1, kEdx, 14},
    {"usermsr", 7, 1, kEdx, 15},
    {"avx10.1-256", 7, 1, kEdx, 19, Kept::kAvx512},
    {"egpr", 7, 1, kEdx, 21, Kept::kApx},
    {"push2pop2", 7, 1, kEdx, 21, Kept::kApx},
    {"ppx", 7, 1, kEdx, 21, Kept::kApx},
    {"ndd", 7, 1, kEdx, 21, Kept::kApx},
    {"ccmp", 7, 1, kEdx, 21, Kept::kApx},
    {"cf", 7, 1, kEdx, 21, Kept::kApx},
    {"xsaveopt", 0xd, 1, kEax, 0, Kept::kXsave},
    {"xsavec", 0xd, 1, kEax, 1, Kept::kXsave},
    {"xsaves", 0xd, 1, kEax, 3, Kept::kXsave},
    {"ptwrite", 0x14, 0, kEbx, 4},
    {"widekl", 0x19, 0, kEbx, 2},
    {"avx10.1-512", 0x24, 0, kEbx, 18, Kept::kAvx512},
};

// Tiles are register state that a process must request, once for all its threads and the processes
// it starts afterwards (Linux, Documentation/arch/x86/xstate.rst). If the system refuses, the
// target has no tiles.
bool SystemGrantsTiles() {
  constexpr int kRequestPermission = 0x1023,
                kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// XCR0: one bit for each kind of register state that the system saves.
uint64_t KeptRegisters() {
  constexpr unsigned kOsXsave = 27;
  if ((Cpuid(1)[kEcx] >> kOsXsave & 1) == 0) return 0;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool Keeps(uint64_t kept, Kept needed) {
  constexpr uint64_t kVectors = 0x6, kWideVectors = 0xe6, kTiles = 0x60000, kMoreGeneral = 1 << 19;
  const auto all = [&](uint64_t bits) { return (kept & bits) == bits; };
  switch (needed) {
    case Kept::kAlways: return true;
    case Kept::kXsave: return kept != 0;
    case Kept::kAvx: return all(kVectors);
    case Kept::kAvx512: return all(kWideVectors);
    case Kept::kApx: return all(kMoreGeneral);
    case Kept::kAmx: return all(kTiles) && SystemGrantsTiles();
  }
  return false;
}

std::string Features() {
  const uint64_t kept = KeptRegisters();
  std::vector<std::string> features;
  const Feature* read = nullptr;  // whose leaf `leaf` is: a virtual machine takes long to answer
  Registers leaf = {};
  for (const Feature& feature : kFeatures) {
    if (read == nullptr || read->leaf != feature.leaf || read->subleaf != feature.subleaf)
      leaf = Cpuid(feature.leaf, feature.subleaf);
    read = &feature;
    const bool has = (leaf[feature.in] >> feature.bit & 1) != 0 && Keeps(kept, feature.kept);
    // LLVM names this one only where the processor has AVX-512.
    if (!has && std::string_view(feature.name) == "evex512") continue;
    features.push_back(absl::StrCat(has ? "+" : "-", feature.name));
  }
  std::sort(features.begin(), features.end());
  return absl::StrJoin(features, ",");
}

struct Models {
  unsigned family, first, last;
  const char* arch;
};
// As LLVM 19 names them, as far as they have AVX2 (what is older runs as the level it has).
constexpr Models kIntel[] = {
    {6, 0x3c, 0x3c, "haswell"},        {6, 0x3f, 0x3f, "haswell"},
    {6, 0x45, 0x46, "haswell"},        {6, 0x3d, 0x3d, "broadwell"},
    {6, 0x47, 0x47, "broadwell"},      {6, 0x4f, 0x4f, "broadwell"},
    {6, 0x56, 0x56, "broadwell"},      {6, 0x4e, 0x4e, "skylake"},
    {6, 0x5e, 0x5e, "skylake"},        {6, 0x8e, 0x8e, "skylake"},
    {6, 0x9e, 0x9e, "skylake"},        {6, 0xa5, 0xa6, "skylake"},
    {6, 0x66, 0x66, "cannonlake"},     {6, 0x7d, 0x7e, "icelake-client"},
    {6, 0x6a, 0x6a, "icelake-server"}, {6, 0x6c, 0x6c, "icelake-server"},
    {6, 0x8c, 0x8d, "tigerlake"},      {6, 0xa7, 0xa7, "rocketlake"},
    {6, 0x97, 0x97, "alderlake"},      {6, 0x9a, 0x9a, "alderlake"},
    {6, 0xbe, 0xbe, "gracemont"},      {6, 0xb7, 0xb7, "raptorlake"},
    {6, 0xba, 0xba, "raptorlake"},     {6, 0xbf, 0xbf, "raptorlake"},
    {6, 0xaa, 0xaa, "meteorlake"},     {6, 0xac, 0xac, "meteorlake"},
    {6, 0x8f, 0x8f, "sapphirerapids"}, {6, 0xcf, 0xcf, "sapphirerapids"},
    {6, 0xad, 0xad, "graniterapids"},  {6, 0xae, 0xae, "graniterapids-d"},
    {6, 0xaf, 0xaf, "sierraforest"},   {6, 0xb6, 0xb6, "grandridge"},
};
constexpr Models kAmd[] = {
    {0x17, 0x30, 0x3f, "znver2"}, {0x17, 0x47, 0x47, "znver2"}, {0x17, 0x60, 0x7f, "znver2"},
    {0x17, 0x84, 0x87, "znver2"}, {0x17, 0x90, 0xaf, "znver2"}, {0x17, 0x00, 0xff, "znver1"},
    {0x19, 0x10, 0x1f, "znver4"}, {0x19, 0x60, 0x7f, "znver4"}, {0x19, 0xa0, 0xaf, "znver4"},
    {0x19, 0x00, 0xff, "znver3"}, {0x1a, 0x00, 0xff, "znver5"},
};

// LLVM's name; for one that the tables lack, the level of x86-64 that it has, with which its
// features give the same instructions, if not the same order.
std::string ArchOf(const Target& target, std::string_view vendor, unsigned family, unsigned model) {
  // One model number for three processors.
  if (vendor == "GenuineIntel" && family == 6 && model == 0x55)
    return target.Has("avx512bf16")   ? "cooperlake"
           : target.Has("avx512vnni") ? "cascadelake"
                                      : "skylake-avx512";
  const auto find = [&](const auto& models) -> const char* {
    for (const Models& m : models)
      if (m.family == family && m.first <= model && model <= m.last) return m.arch;
    return nullptr;
  };
  const char* const known = vendor == "GenuineIntel"   ? find(kIntel)
                            : vendor == "AuthenticAMD" ? find(kAmd)
                                                       : nullptr;
  if (known != nullptr) return known;
  return target.vector_bytes == 64                                              ? "x86-64-v4"
         : target.vector_bytes == 32 && target.Has("fma") && target.Has("bmi2") ? "x86-64-v3"
         : target.Has("sse4.2") && target.Has("popcnt")                         ? "x86-64-v2"
                                                                                : "x86-64";
}

// Text in the registers, in this order.
template <size_t kCount>
std::string TextOf(const std::array<unsigned, kCount>& words) {
  std::string text;
  for (const unsigned word : words)
    for (int shift = 0; shift < 32; shift += 8)
      if (const char c = static_cast<char>(word >> shift); c != '\0') text += c;
  return text;
}

std::string Brand() {
  std::string brand;
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) brand += TextOf(Cpuid(leaf));
  return std::string(absl::StripAsciiWhitespace(brand));
}

// Of the first core: Intel's leaf 4 and AMD's 0x8000001d are laid out alike.
void FindCaches(bool amd, Target& target) {
  enum { kNoMore = 0, kInstructions = 2 };
  for (unsigned i = 0; i < 16; ++i) {
    const Registers r = Cpuid(amd ? 0x8000001d : 4, i);
    const unsigned type = r[kEax] & 31, level = r[kEax] >> 5 & 7;
    if (type == kNoMore) return;
    if (type == kInstructions) continue;
    const int64_t bytes = (int64_t{r[kEbx] >> 22} + 1) * ((r[kEbx] >> 12 & 1023) + 1) *
                          ((r[kEbx] & 4095) + 1) * (int64_t{r[kEcx]} + 1);
    if (level == 1) target.l1_bytes = bytes;
    if (level == 2) target.l2_bytes = bytes;
    if (level == 3) target.l3_bytes = bytes;
  }
}

Target Find() {
  Target target;
  const Registers first = Cpuid(0), version = Cpuid(1);
  const std::string vendor = TextOf(std::array{first[kEbx], first[kEdx], first[kEcx]});
  unsigned family = version[kEax] >> 8 & 15, model = version[kEax] >> 4 & 15;
  if (family == 6 || family == 15) model += (version[kEax] >> 16 & 15) << 4;
  if (family == 15) family += version[kEax] >> 20 & 255;
  target.name = Brand().empty() ? "CPU" : Brand();
  target.model = absl::StrCat(vendor, " ", family, "-", model);
  target.features = Features();
  target.threads = static_cast<int>(UsableCores().size());
  target.vector_bytes = 16;
  target.vector_registers = 16;
  if (target.Has("avx512f") && target.Has("avx512vl") && target.Has("avx512bw") &&
      target.Has("avx512dq")) {
    target.vector_bytes = 64;
    target.vector_registers = 32;
  } else if (target.Has("avx2")) {
    target.vector_bytes = 32;
  }
  if (target.Has("amx-tile") && target.Has("amx-bf16"))
    target.bf16 = Bf16Products::kTiles;
  else if (target.Has("avx512bf16"))
    target.bf16 = Bf16Products::kVectors;
  target.fp16 = target.Has("avx512fp16");
  FindCaches(vendor == "AuthenticAMD", target);
  target.arch = ArchOf(target, vendor, family, model);
  return target;
}

}  // namespace

const Target& HostTarget() {
  static const Target* const kTarget = new Target(Find());
  return *kTarget;
}

}  // namespace outboard
