// Machine code of NVIDIA's GPUs, as ptxas makes it and nvdisasm lists it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::bench {

struct MachineCode {
  std::string said;     // by ptxas
  std::string listing;  // empty without nvdisasm
};
// Errors: INTERNAL with the words of the tool that failed.
absl::StatusOr<MachineCode> MachineCodeOf(const std::string& ptxas, const std::string& nvdisasm,
                                          const std::string& ptx, const std::string& arch);

// A jump back, and what is between its target and it.
struct CodeLoop {
  size_t first = 0;  // instruction
  size_t instructions = 0;
  size_t products = 0;
  double PerProduct() const {
    return static_cast<double>(instructions) / static_cast<double>(products);
  }
};
// The loops of a listing that have instructions named `product`: what is between a jump back and
// its target. Not that of a jump without a condition from behind the kernel's end, where the
// assembler puts what is rare.
std::vector<CodeLoop> LoopsWith(const std::string& product, const std::string& listing);

}  // namespace outboard::bench
