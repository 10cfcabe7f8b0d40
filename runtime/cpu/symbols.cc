#include "runtime/cpu/symbols.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "runtime/limits.h"

// libgcc's conversions of half precision and its wide division: declared only to take their
// addresses.
extern "C" {
void __truncsfhf2();
void __truncdfhf2();
void __extendhfsf2();
void __divti3();
void __udivti3();
void __modti3();
void __umodti3();
void __multi3();
}

namespace outboard::cpu {
namespace {

// libgcc 12 has no conversions to bf16. The psABI returns one in the low 16 bits of xmm0, like a
// float's low half.
float Bf16InXmm0(uint32_t bits) { return std::bit_cast<float>(bits & 0xFFFF); }

float TruncSfBf2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return Bf16InXmm0((bits >> 16) | 0x40);
  return Bf16InXmm0((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Through float rounded to odd, so that the two roundings give what one would.
float TruncDfBf2(double value) {
  float narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value && value == value && !std::isinf(narrow)) {
    uint32_t bits = std::bit_cast<uint32_t>(narrow);
    if (std::fabs(static_cast<double>(narrow)) > std::fabs(value)) --bits;  // towards zero first
    narrow = std::bit_cast<float>(bits | 1);
  }
  return TruncSfBf2(narrow);
}

// One block a thread, kept for the thread's life, so that its pages are there and its cache lines
// warm. Only a kernel that no compiler of ours has made asks for more than the limit.
void* Scratch(int64_t bytes) {
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  thread_local std::unique_ptr<void, Free> block;
  if (block == nullptr)
    block.reset(std::aligned_alloc(limits::kPageBytes, size_t{limits::kScratchBytesMax}));
  if (bytes < 0 || bytes > limits::kScratchBytesMax || block == nullptr) {
    std::fprintf(stderr, "a kernel asks for %lld bytes of scratch\n",
                 static_cast<long long>(bytes));
    std::abort();
  }
  return block.get();
}

// A kernel that calls this uses tiles (AMX), which the system grants to a process that asks, with
// all its threads (Linux, Documentation/arch/x86/xstate.rst).
void Tiles() {}

bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023,
                kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool may = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}

struct Symbol {
  std::string_view name;
  void* address;
};

template <typename F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}
using F1 = float(float);
using F2 = float(float, float);
using F3 = float(float, float, float);
using D1 = double(double);
using D2 = double(double, double);
using D3 = double(double, double, double);

// Sorted at first use; the order here is by kind, for people.
const auto& Symbols() {
  static const auto table = [] {
    std::array symbols = {
        Symbol{"outboard_scratch", Address<void*(int64_t)>(&Scratch)},
        Symbol{"outboard_tiles", Address<void()>(&Tiles)},
        Symbol{"exp2", Address<D1>(&::exp2)},
        Symbol{"exp", Address<D1>(&::exp)},
        Symbol{"log2", Address<D1>(&::log2)},
        Symbol{"log", Address<D1>(&::log)},
        Symbol{"sin", Address<D1>(&::sin)},
        Symbol{"cos", Address<D1>(&::cos)},
        Symbol{"sincos", Address<void(double, double*, double*)>(&::sincos)},  // SIN and COS of one
        Symbol{"tanh", Address<D1>(&::tanh)},
        Symbol{"sqrtf", Address<F1>(&::sqrtf)},
        Symbol{"sqrt", Address<D1>(&::sqrt)},
        Symbol{"truncf", Address<F1>(&::truncf)},
        Symbol{"trunc", Address<D1>(&::trunc)},
        Symbol{"floorf", Address<F1>(&::floorf)},
        Symbol{"floor", Address<D1>(&::floor)},
        Symbol{"ceilf", Address<F1>(&::ceilf)},
        Symbol{"ceil", Address<D1>(&::ceil)},
        Symbol{"rintf", Address<F1>(&::rintf)},
        Symbol{"rint", Address<D1>(&::rint)},
        Symbol{"roundevenf", Address<F1>(&::rintf)},  // equal to rint in the default rounding mode
        Symbol{"roundeven", Address<D1>(&::rint)},
        Symbol{"fmodf", Address<F2>(&::fmodf)},
        Symbol{"fmod", Address<D2>(&::fmod)},
        Symbol{"fmaf", Address<F3>(&::fmaf)},
        Symbol{"fma", Address<D3>(&::fma)},
        Symbol{"memcpy", Address<void*(void*, const void*, size_t)>(&::memcpy)},
        Symbol{"memmove", Address<void*(void*, const void*, size_t)>(&::memmove)},
        Symbol{"memset", Address<void*(void*, int, size_t)>(&::memset)},
        Symbol{"__truncsfhf2", Address(&__truncsfhf2)},
        Symbol{"__truncdfhf2", Address(&__truncdfhf2)},
        Symbol{"__extendhfsf2", Address(&__extendhfsf2)},
        Symbol{"__truncsfbf2", Address(&TruncSfBf2)},
        Symbol{"__truncdfbf2", Address(&TruncDfBf2)},
        Symbol{"__divti3", Address(&__divti3)},
        Symbol{"__udivti3", Address(&__udivti3)},
        Symbol{"__modti3", Address(&__modti3)},
        Symbol{"__umodti3", Address(&__umodti3)},
        Symbol{"__multi3", Address(&__multi3)},
    };
    std::sort(symbols.begin(), symbols.end(),
              [](const Symbol& a, const Symbol& b) { return a.name < b.name; });
    return symbols;
  }();
  return table;
}

}  // namespace

void* AllowedSymbol(std::string_view name) {
  if (name == "outboard_tiles" && !MayUseTiles()) return nullptr;
  const auto& table = Symbols();
  const auto it = std::lower_bound(
      table.begin(), table.end(), name,
      [](const Symbol& symbol, std::string_view key) { return symbol.name < key; });
  return it != table.end() && it->name == name ? it->address : nullptr;
}

}  // namespace outboard::cpu
