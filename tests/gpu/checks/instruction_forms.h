// One small kernel for each instruction that the PTX machine knows, in its types and modifiers,
// with drawn inputs: what the machine makes of them can be compared with what a GPU makes of them.
//
// A form is a piece of PTX that reads $a, $b and $c and leaves $d. Its kernel has four arrays of
// kFormThreads elements, in the order d, a, b, c; thread i reads and writes the elements i. The
// piece may use %r92 (the thread's number in its block), %d91 (the address of its element of a),
// registers from 20 on, predicates, and 8 KiB of shared memory at `tiles`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/text/module.h"

namespace outboard::ptx {

inline constexpr int kFormBlocks = 8, kFormBlockThreads = 64;
inline constexpr int kFormThreads = kFormBlocks * kFormBlockThreads;

// What PTX defines of a result.
enum class Defined : uint8_t {
  kBits,      // all of them
  kNumber,    // all but those of a NaN, by the type of d: f32 or f64
  kHalves,    // the same of each 16 bits of d, f16
  kBfloats,   // the same, bf16
  kRelative,  // within a part of 2^-20: an approximation
  kAbsolute,  // within 2^-20
  kCoarse,    // within a part of 2^-10
};

struct InstructionForm {
  std::string text;
  // Of d, a, b, c; those that are not used may be missing: r 32 bits, d 64 bits, h 16 bits, f f32,
  // g f64; of a: n f32 from 0.25 to 2.25.
  std::string types;
  Defined defined = Defined::kBits;
};

std::vector<InstructionForm> InstructionForms();

// ".version ...", without which no kernel is a module; then kernels.
std::string FormHeader();
std::string FormKernel(const InstructionForm& form, const std::string& name);

// The four arrays; d is full of another number. The same seed draws the same.
std::vector<std::string> FormInputs(const InstructionForm& form, uint64_t seed);

// The first element that differs where it may not, as a text; empty where there is none.
std::string FormDifference(const InstructionForm& form, const std::string& one,
                           const std::string& other);

// Instructions that no form has, each with its reason: those that need a kernel of their own.
struct WithoutForm {
  Op op;
  const char* reason;
};
const std::vector<WithoutForm>& InstructionsWithoutForm();

}  // namespace outboard::ptx
