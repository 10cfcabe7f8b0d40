// Engines execute graphs, in an executor. There are two: the compiling one (compiled_engine.h), and
// the reference interpreter (REF=1).
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
#include "runtime/collective/collective.h"
#include "runtime/device.h"
#include "worker/engine/trace.h"
#include "worker/session/kernel_use_log.h"

namespace outboard::worker {

// A value of a session, on the device: row-major and contiguous. Immutable as far as any holder can
// observe: an engine overwrites only a donated array without other references.
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
  uint64_t operations = 0;      // arithmetic on floats, estimated (compiler/compiled_kernel.h)
  uint64_t bytes_accessed = 0;  // likewise
  uint64_t plans_made = 0;  // graphs scheduled and compiled, once for all bindings
};

struct Repeat;

// Threads: one. Engines outlive the arrays they made.
class Engine {
 public:
  explicit Engine(std::unique_ptr<runtime::Device> device) : device_(std::move(device)) {}
  virtual ~Engine() = default;

  // Returns an uninitialised array, which the caller fills completely.
  // Errors: RESOURCE_EXHAUSTED  over the session's memory
  absl::StatusOr<std::shared_ptr<DeviceArray>> NewArray(DType dtype, std::vector<int64_t> dims);

  // As NewArray, for contents that are uploaded: beside earlier work, where the device can.
  absl::StatusOr<std::shared_ptr<DeviceArray>> NewArrayForUpload(DType dtype,
                                                                 std::vector<int64_t> dims);

  // Returns memory for bytes that become an array later. Errors as above.
  absl::StatusOr<runtime::DeviceBuffer> NewBuffer(int64_t bytes) {
    return device_->Allocate(bytes);
  }

  // Returns the blob in this open file as memory for an array; see runtime::Device::MapFile.
  absl::StatusOr<runtime::DeviceBuffer> MapFile(int fd, int64_t bytes) {
    return device_->MapFile(fd, bytes);
  }

  // The device that holds the arrays.
  runtime::Device& device() const { return *device_; }

  // Makes this engine one rank of a group: from now on it executes graphs of the device level,
  // whose collectives go through `collective` and whose rank is that of its Member. All ranks
  // execute the same graphs in the same order. After an abort, or for a new epoch, call it again
  // with the new one; nullptr leaves the group. What a Run adds in a group:
  //   - The first Run of a graph is planned by all ranks before one of them begins it: where a rank
  //     cannot, all return its error, and the group goes on.
  //   - A Run that fails later aborts the group: the others return UNAVAILABLE with rank and cause.
  void JoinGroup(std::unique_ptr<collective::Collective> collective) {
    collective_ = std::move(collective);
  }
  // nullptr: no group. Any thread may call its Abort while a Run waits.
  collective::Collective* group() const { return collective_.get(); }

  // Returns `status`, of a Run that has begun. Where it is an error, the other ranks must not wait
  // for this one.
  absl::Status EndGroupIfFailed(absl::Status status);

  // In a group: called where memory lacks before a Run launches anything, and gives back what it
  // can. Nothing: there is nothing to give back.
  void SetMakeRoom(std::function<void()> make_room) { make_room_ = std::move(make_room); }

  // Evaluates `sink` (verified, of tensor level, or in a group of device level) on `inputs`,
  // in the order of its PARAM slots;
  // returns the results in the order of its sources. `id` is the graph's id, the key of caches.
  // `donated` are slots of inputs that no later item reads, even if the Run fails: a result may be
  // written into the memory of one if `inputs` holds the last reference to it. Results have the
  // same bits with and without donations.
  // Errors: INVALID_ARGUMENT    inputs or bindings do not fit the graph
  //         RESOURCE_EXHAUSTED  memory, or a limit of the compiler, named
  //         UNIMPLEMENTED       not supported by this engine
  //         UNAVAILABLE         another rank left the group: its rank and its reason
  virtual absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(
      const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
      std::span<const Binding> bindings, std::span<const int64_t> donated = {}) = 0;

  // As Execute, several times over; see repeat.h, also for further errors. A carried input may be
  // overwritten like a donated one. Calls `on_repetition` after each repetition, to report
  // progress.
  virtual absl::StatusOr<std::vector<DeviceArrayPtr>> ExecuteRepeated(
      const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
      std::span<const Binding> bindings, const Repeat& repeat,
      const std::function<void()>& on_repetition);

  // Between two Runs, after UseBetterKernels: searches for better versions of the kernels that have
  // cost most, on this device, until `preempted` or nothing is left. What it finds is in the store.
  // A candidate may end the process; it is in the store as one that does not work then.
  virtual void SearchForBetterKernels(const std::function<bool()>& preempted) {}

  // Returns the kernel versions that came into use since the last call: compiled for a Run, or
  // replaced between two.
  virtual std::vector<KernelVersion> TakeVersions() { return {}; }
  // For a replay: uses the kernel in this version from the next Run on, regardless of the tuning
  // store. Has no effect if that version cannot be compiled; in a group, if one rank cannot make
  // it.
  virtual void Pin(const KernelVersion& version) {}

  // Work for idle time: TellCosts reports the costs of kernels to the tuning store;
  // UseBetterKernels replaces kernels by better versions from the store. Both return at once when
  // `preempted` returns true, and the next call continues from there.
  virtual void TellCosts(const std::function<bool()>& preempted) {}
  virtual void UseBetterKernels(const std::function<bool()>& preempted) {}

  // Records time spans in `trace` from now on; nullptr: records none. `trace` must stay alive until
  // it is replaced.
  void SetTrace(ExecutorTrace* trace) { trace_ = trace; }

  virtual std::string kind() const = 0;  // the device's kind, or "ref"
  const EngineStats& stats() const { return stats_; }
  // Lowers the session's limit of device memory; a higher limit has no effect.
  void LimitMemory(int64_t bytes) { device_->LimitMemory(bytes); }
  int64_t memory_bytes_max() const { return device_->memory_bytes_max(); }

 protected:
  // `bindings`, in a group with that of the rank.
  // Errors: INVALID_ARGUMENT  a Run binds the rank; those of the group, where it has ended
  absl::StatusOr<std::vector<Binding>> WithRank(std::span<const Binding> bindings) const;

  EngineStats stats_;
  std::function<void()> make_room_;
  ExecutorTrace* trace_ = nullptr;

 private:
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<collective::Collective> collective_;
};

// Checks that an array of this type and shape has `bytes` bytes.
// Errors: INVALID_ARGUMENT    it has another size
//         RESOURCE_EXHAUSTED  more than any array may have
absl::Status CheckBytes(DType dtype, const std::vector<int64_t>& dims, int64_t bytes);

// Checks that each VAR of `sink` is bound to a value in its range, and that `inputs` have the types
// and shapes of its PARAMs under these bindings.
// Errors: INVALID_ARGUMENT
absl::Status CheckInputs(const UOp* sink, std::span<const DeviceArrayPtr> inputs,
                         std::span<const Binding> bindings);

std::unique_ptr<Engine> MakeReferenceEngine(std::unique_ptr<runtime::Device> device);

}  // namespace outboard::worker
