// Makes modules of PTX by the driver's compiler, on several threads. Most texts are linked, and the
// machine code that comes of it is kept: another process of the same account loads it without
// linking.
//
// The linker makes relocatable code (as `ptxas -c`, -rdc=true), in which setmaxnreg is ignored and
// wgmma instructions wait for each other. A text with either instruction is loaded as a whole
// program instead. The driver has no call that returns such a module's machine code, so each
// process compiles it again. docs/decisions/211-kernels-loaded-whole.md
//
// A text that the linker refuses is loaded as a whole program, too, with a warning. NVIDIA does not
// document which targets the linker accepts; sm_90a may not be among them.
//
// A key names the text, the driver's version and the device's compute capability: with another of
// these the code may differ or not load. Code that the driver refuses is linked anew.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/driver_context.h"
#include "runtime/device.h"

namespace outboard::cuda {

// What the driver has linked or loaded. It goes with the last kernel that uses it, and with the
// last work (LeftToWork).
class LinkedModule {
 public:
  LinkedModule(DriverContext* context, CUmodule module) : context_(context), module_(module) {}
  ~LinkedModule();
  LinkedModule(const LinkedModule&) = delete;
  LinkedModule& operator=(const LinkedModule&) = delete;
  CUmodule get() const { return module_; }

 private:
  DriverContext* const context_;
  const CUmodule module_;
};

// Threads: one at a time; links on several of its own.
class Linker {
 public:
  using Linked = absl::StatusOr<std::shared_ptr<const LinkedModule>>;

  explicit Linker(DriverContext* context) : context_(context) {}

  // As Device::KeepLinked.
  void UseStore(runtime::LinkedCodeStore* store) { store_ = store; }

  // Links or loads each of these texts, which differ; results are in their order.
  // Errors: INTERNAL, RESOURCE_EXHAUSTED  the driver's, with what its compiler says of the text
  std::vector<Linked> Link(const std::vector<const std::string*>& texts);

 private:
  void FindKnown(const std::vector<const std::string*>& texts, std::vector<std::string>& keys,
                 std::vector<std::string>& known);
  Linked LoadWhole(const std::string& text);
  Linked LoadUnlinked(const std::string& text, const absl::Status& refused);
  absl::StatusOr<std::string> CodeOf(const std::string& text);
  Linked Load(const void* image);
  std::string KeyOf(const std::string& text) const;

  DriverContext* const context_;
  runtime::LinkedCodeStore* store_ = nullptr;
};

}  // namespace outboard::cuda
