// Puts a relocatable object of the compile box into memory, without a linker and without LLVM.
//
// One mapping holds code, constants, a table of addresses and jumps to the few functions that a kernel may call. It is
// written once and then loses the right to be written (code and constants alike become read and execute).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::runtime {

// The function of a kernel; see compiler/codegen/compiled_kernel.h for its contract.
using KernelFunction = void (*)(void* const* buffers, int64_t task_begin, int64_t task_end);

class LoadedObject {
 public:
  // Loads `object` (ELF64, x86-64, relocatable) and finds `symbol`.
  // Errors: INVALID_ARGUMENT  not such an object, cut short, or a relocation of a kind not listed in the .cc
  //         NOT_FOUND         `symbol` is missing, or the object calls a function that kernels may not; named
  //         RESOURCE_EXHAUSTED  no memory
  static absl::StatusOr<std::unique_ptr<LoadedObject>> Load(std::string_view object, const std::string& symbol);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  KernelFunction function() const { return function_; }

 private:
  LoadedObject() = default;

  void* memory_ = nullptr;
  size_t bytes_ = 0;
  KernelFunction function_ = nullptr;
};

}  // namespace outboard::runtime
