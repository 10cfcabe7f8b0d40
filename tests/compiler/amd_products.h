// Products of matrices of narrow floats as programs write them, and what their kernels are for
// AMD's GPUs: scheduled, compiled, linked and disassembled (amdgpu_object.h). No device runs them.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "client/tensor/tensor.h"
#include "compiler/target.h"

namespace outboard::test {

// A program with one product.
struct AmdProduct {
  std::string name;  // "bf16 turned_left"
  DType dtype = DType::kBF16;
  std::function<Tensor()> result;
};

// In bf16 and f16: all layouts, a batch, remainders, epilogues, a convolution and its gradients.
const std::vector<AmdProduct>& AmdProducts();

// Why not all kernels of the product are whole: one that does not compile, link or stay in
// registers, or that no kernel has the matrix unit's instruction for the type. Empty: they are.
// Requires the tools of amdgpu_object.h.
std::string TroubleOf(const AmdProduct& product, const Target& target);

inline void PrintTo(const AmdProduct& product, std::ostream* out) { *out << product.name; }

}  // namespace outboard::test
