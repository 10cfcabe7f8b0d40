// What an executor runs graphs on. Two of them: the compiled one, and the reference interpreter
// (REF=1).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "runtime/device.h"
#include "worker/engine/trace.h"
#include "worker/session/kernel_use_log.h"

namespace outboard::worker {

// A value of a session, on the device: row-major and contiguous. Never changed once it is made, as
// far as anybody can see: an engine writes over one that was given up and that nobody else holds.
struct DeviceArray {
  DType dtype;
  std::vector<int64_t> dims;
  runtime::DeviceBuffer buffer;

  runtime::Device& device() const { return buffer.device(); }
  runtime::DeviceAddress address() const { return buffer.address(); }
  int64_t bytes() const { return buffer.bytes(); }
};
using DeviceArrayPtr = std::shared_ptr<const DeviceArray>;

struct EngineStats {
  uint64_t device_time_us = 0;  // spent in kernels
  uint64_t kernels_launched = 0;
  uint64_t plans_made = 0;  // graphs that were scheduled and compiled, once for all their bindings
};

struct Repeat;

// Threads: one. Engines outlive the arrays they made.
class Engine {
 public:
  explicit Engine(std::unique_ptr<runtime::Device> device) : device_(std::move(device)) {}
  virtual ~Engine() = default;

  // Uninitialised memory for a value that the caller fills whole.
  // Errors: RESOURCE_EXHAUSTED  over the session's memory
  absl::StatusOr<std::shared_ptr<DeviceArray>> NewArray(DType dtype, std::vector<int64_t> dims);

  // Memory for bytes that become an array later. Errors as above.
  absl::StatusOr<runtime::DeviceBuffer> NewBuffer(int64_t bytes) {
    return device_->Allocate(bytes);
  }

  // A blob that is in this file, as memory for an array; see runtime::Device::MapFile.
  absl::StatusOr<runtime::DeviceBuffer> MapFile(const std::string& path, int64_t bytes) {
    return device_->MapFile(path, bytes);
  }

  // Where the arrays are.
  runtime::Device& device() const { return *device_; }

  // Evaluates `sink` (verified, of tensor level) on `inputs`, in the order of its PARAM slots;
  // results in the order of its sources. `id` is the graph's and stands for it in caches. `donated`
  // are slots of inputs that nobody will ask for again, whatever becomes of the Run: a result may
  // be made in the memory of one, if `inputs` holds the last reference to it. Results have the same
  // bits with and without donations.
  // Errors: INVALID_ARGUMENT    inputs or bindings that do not fit the graph
  //         RESOURCE_EXHAUSTED  memory, or a limit of the compiler, named
  //         UNIMPLEMENTED       what this engine has no code for
  virtual absl::StatusOr<std::vector<DeviceArrayPtr>> Run(
      const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
      std::span<const Binding> bindings, std::span<const int64_t> donated = {}) = 0;

  // The same many times over, as repeat.h says, whose errors join those above. A carried input may
  // be written over as a donated one may. `on_repetition` is called after each, so that somebody
  // can see that there is progress.
  virtual absl::StatusOr<std::vector<DeviceArrayPtr>> RunRepeated(
      const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
      std::span<const Binding> bindings, const Repeat& repeat,
      const std::function<void()>& on_repetition);

  // Versions of kernels that came into use since the last call: made for a Run, or switched in
  // between two.
  virtual std::vector<KernelVersion> TakeVersions() { return {}; }
  // Replay: from the next Run on the kernel is used in this version, whatever a store knows. One
  // that cannot be compiled is as if nothing was said of it.
  virtual void Pin(const KernelVersion& version) {}

  // What there is to do while nobody waits for a Run: telling the kernel store what the kernels
  // cost, and switching in better versions of them that it knows of. Both come to an end at once
  // when `preempted` says that somebody waits, and go on where they were with the next call.
  virtual void TellCosts(const std::function<bool()>& preempted) {}
  virtual void UseBetterKernels(const std::function<bool()>& preempted) {}

  // What takes time is told to it from now on; nullptr: to nobody. Outlives its use.
  void SetTrace(ExecutorTrace* trace) { trace_ = trace; }

  virtual std::string kind() const = 0;  // that of the device, or "ref"
  const EngineStats& stats() const { return stats_; }
  // Only ever lower: what a session may have of the device.
  void LimitMemory(int64_t bytes) { device_->LimitMemory(bytes); }
  int64_t memory_bytes_max() const { return device_->memory_bytes_max(); }

 protected:
  EngineStats stats_;
  ExecutorTrace* trace_ = nullptr;

 private:
  std::unique_ptr<runtime::Device> device_;
};

// Whether an array of this kind has so many bytes.
// Errors: INVALID_ARGUMENT    it has not
//         RESOURCE_EXHAUSTED  no array has so many
absl::Status CheckBytes(DType dtype, const std::vector<int64_t>& dims, int64_t bytes);

// Whether each VAR of `sink` has a value in its range, and `inputs` are what its PARAMs are then.
absl::Status CheckInputs(const UOp* sink, std::span<const DeviceArrayPtr> inputs,
                         std::span<const Binding> bindings);

std::unique_ptr<Engine> MakeReferenceEngine(std::unique_ptr<runtime::Device> device);

}  // namespace outboard::worker
