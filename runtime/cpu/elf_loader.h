// Loads a relocatable x86-64 object into this process, without a linker and without LLVM.
//
// An object comes from a compile process, which is not trusted, since malicious input may have
// compromised it: every offset in the file is checked, and a kernel can call only the functions
// that symbols.h lists. (The code itself is not checked: the executor that runs it holds one
// session and nothing else.)
//
// Memory is writable or executable, never both: the image is filled and relocated while writable,
// then code becomes read + execute and everything else read-only. Objects with writable data are
// refused: kernels have none.
//
// Format: System V ABI, "ELF-64 Object File Format" and the x86-64 supplement 1.0, tables 4.9
// and 4.10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::cpu {

using KernelFunction = void (*)(void* const* buffers, int64_t task_begin, int64_t task_end);

// A loaded object; the destructor unloads it. Moving it does not move the code.
class LoadedObject {
 public:
  // Loads `object` and finds the kernel `symbol` in it.
  // Errors: INVALID_ARGUMENT    not an ELF64 x86-64 relocatable object, truncated, or offsets out
  //                             of range
  //         UNIMPLEMENTED       an unsupported relocation, section or symbol kind (named)
  //         NOT_FOUND           `symbol` is not defined there; or an undefined symbol that is not
  //                             in the list (named)
  //         RESOURCE_EXHAUSTED  larger than kObjectBytesMax, or out of memory
  static absl::StatusOr<LoadedObject> Load(std::string_view object, std::string_view symbol);

  // Returns a placeholder for a kernel without code.
  static LoadedObject Nothing() { return LoadedObject(nullptr, 0, nullptr); }

  LoadedObject(LoadedObject&& other) noexcept;
  LoadedObject& operator=(LoadedObject&& other) noexcept;
  ~LoadedObject();

  KernelFunction function() const { return function_; }
  size_t bytes() const { return bytes_; }

 private:
  LoadedObject(void* memory, size_t bytes, KernelFunction function)
      : memory_(memory), bytes_(bytes), function_(function) {}
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  KernelFunction function_ = nullptr;
};

}  // namespace outboard::cpu
