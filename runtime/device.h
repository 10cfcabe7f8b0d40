// A device: memory, kernels and launches. All computation goes through this interface; only the
// folders runtime/cpu, runtime/far, runtime/opencl and runtime/cuda depend on a particular device.
//
// Order.   Uploads, fills, copies, launches and downloads take effect one after the other, in the
//          order of the calls (one stream). A call may return before its work has begun.
// Blocks.  Download, Synchronize and Time wait for all work queued before them. Upload returns when
//          the source has been read. All others may return at once.
// Lifetime of sources.  Spans and host memory passed to a call are read before the call returns,
//          or, for Download, written before it returns. A DeviceBuffer or DeviceKernel may be
//          destroyed while queued work uses it: the device holds the resources until that work is
//          done.
// Ownership.  A DeviceBuffer owns its memory and frees it in its destructor. The device outlives
//          its buffers and kernels.
// Errors.  A call reports invalid arguments at once. Work that fails later is reported once, by the
//          next call that waits (Download, Synchronize, Time); work queued after it may not have
//          run. Codes: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (memory, or a limit, with its number),
//          UNIMPLEMENTED (this device does not support it), DATA_LOSS (a file), INTERNAL (the
//          device, or its driver, failed).
// Threads. One thread at a time, with one exception: a second thread may call Download at the same
//          time, for bytes that no work queued after that call writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"

namespace outboard::runtime {

// The address of a byte in a device's memory, in the device's own numbering: not a pointer of this
// process. The bytes of one buffer have consecutive addresses.
enum class DeviceAddress : uint64_t {};

constexpr DeviceAddress operator+(DeviceAddress address, int64_t bytes) {
  return DeviceAddress{static_cast<uint64_t>(address) + static_cast<uint64_t>(bytes)};
}

class Device;

// Memory of a device, aligned to limits::kBufferAlignment. Movable, not copyable.
class DeviceBuffer {
 public:
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer();

  Device& device() const { return *device_; }  // invalid after a move
  DeviceAddress address() const { return address_; }
  int64_t bytes() const { return bytes_; }  // the size requested

 private:
  friend class Device;
  DeviceBuffer(Device* device, DeviceAddress address, int64_t bytes, bool mapped)
      : device_(device), address_(address), bytes_(bytes), mapped_(mapped) {}
  Device* device_;  // nullptr: moved from
  DeviceAddress address_;
  int64_t bytes_;
  bool mapped_;  // from MapFile
};

// A kernel that is ready to run on the device that loaded it.
class DeviceKernel {
 public:
  explicit DeviceKernel(const CompiledKernel& kernel)
      : name_(kernel.symbol),
        tasks_(kernel.tasks),
        flops_(kernel.flops),
        bytes_(kernel.bytes),
        buffer_count_(kernel.buffer_count * kernel.copies) {}
  virtual ~DeviceKernel() = default;

  const std::string& name() const { return name_; }
  int64_t tasks() const { return tasks_; }
  int64_t flops() const { return flops_; }  // flops and bytes are estimates for one launch
  int64_t bytes() const { return bytes_; }
  int buffer_count() const { return buffer_count_; }  // of all copies, one after the other

 private:
  std::string name_;
  int64_t tasks_, flops_, bytes_;
  int buffer_count_;
};

struct DeviceProperties {
  std::string kind;  // "cpu", "far", "opencl", "cuda": the value of OUTBOARD_DEVICE
  std::string name;  // for people
  int compute_units = 1;  // that run one kernel together: a processor's threads, a GPU's
                          // multiprocessors
  CompiledKernel::Form form = CompiledKernel::Form::kElfX86;  // of kernels that Load accepts
  // Blocks of several threads run one after the other: a kernel should be one thread's vectors.
  bool is_processor = true;
  int vector_bytes = 0;     // that the device computes with at a time; 0: not known
  bool cuts_tasks = false;  // LaunchTasks runs only the tasks it is given
  bool fp64 = true;
  bool fp16 = true;
  int64_t shared_bytes = 0;       // memory that a block of threads shares; 0: none
  int64_t block_threads_max = 1;  // of one block
  int64_t memory_bytes = 0;       // of the device; 0: the host's, or not known
  int64_t cache_bytes = 0;        // of the cache that all of a GPU shares; 0: not known
  int compute_capability = 0;     // of CUDA: 10 * major + minor; 0: another device
  int cuda_version = 0;  // that the driver offers: 1000 * major + 10 * minor; 0: another device
  bool records_launches = false;  // LaunchAll costs less than its launches one by one
};

// What a device runs at: clocks fall where it is hot or draws too much. 0: not known.
struct DeviceState {
  int clock_mhz = 0;  // of what computes
  int power_mw = 0;
  int celsius = 0;
};

// One launch of several that are queued together.
struct KernelLaunch {
  const DeviceKernel* kernel;
  std::span<const DeviceAddress> buffers;
};

// What a driver has made of a kernel's text, for the next process that loads it.
struct LinkedCode {
  std::string key;   // 32 bytes: names the text, the driver's version and the class of device
  std::string code;  // empty: not known
};

// Where linked code is kept beyond this process. Failures cost time alone. Threads: the device's.
class LinkedCodeStore {
 public:
  virtual ~LinkedCodeStore() = default;
  // The code of each key, in order.
  virtual std::vector<std::string> Find(std::span<const std::string> keys) = 0;
  virtual void Add(std::span<const LinkedCode> linked) = 0;
};

// What a device keeps of a list of launches, so that it queues the list again at less cost. The
// device outlives it.
class LaunchRecord {
 public:
  virtual ~LaunchRecord() = default;
};

using LoadedKernel = absl::StatusOr<std::unique_ptr<DeviceKernel>>;

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;

  // ---- memory -----------------------------------------------------------------------------------

  // Allocates memory with undefined contents. `bytes` may be 0. Freed memory is cached for reuse,
  // since a step allocates the same sizes over and over.
  // Errors: INVALID_ARGUMENT    negative size
  //         RESOURCE_EXHAUSTED  names the bytes requested, those in use and the limit
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;

  // Allocates memory that is uploaded to next. Uploads into it run beside the work that is queued
  // already, on devices that can, until work uses it. Prefers memory that no queued work uses.
  // Errors: as Allocate
  virtual absl::StatusOr<DeviceBuffer> AllocateForUpload(int64_t bytes) { return Allocate(bytes); }

  // Returns the first `bytes` bytes of an open file as writable memory. `fd` needs to be open for
  // reading only, and may be closed afterwards. Writes do not change the file, which must not be
  // truncated meanwhile. A device that shares the host's memory maps the file, so pages are read on
  // first use; other devices copy it.
  // Errors: as Allocate; DATA_LOSS  the file cannot be read, or has fewer bytes
  virtual absl::StatusOr<DeviceBuffer> MapFile(int fd, int64_t bytes);

  // Lowers the limit of memory in use plus memory cached for reuse; a higher limit has no effect.
  virtual void LimitMemory(int64_t bytes_max) = 0;
  virtual int64_t memory_bytes_max() const = 0;
  virtual int64_t memory_bytes_in_use() const = 0;

  // Copies host memory to the device; `from` may be freed when this returns.
  virtual absl::Status Upload(DeviceAddress to, std::string_view from) = 0;
  // Copies to host memory; waits for all work queued before.
  virtual absl::Status Download(DeviceAddress from, int64_t bytes, void* to) = 0;
  // As above, but passes pieces of at most `piece_bytes` to `sink`, in order; without a copy if the
  // host can read the device's memory. Stops at the first error of `sink` and returns it. A piece
  // is valid only during the call of `sink`.
  using Sink = absl::FunctionRef<absl::Status(std::string_view piece)>;
  virtual absl::Status Download(DeviceAddress from, int64_t bytes, int64_t piece_bytes, Sink sink);
  // Copies within the device. The two ranges must not overlap.
  virtual absl::Status Copy(DeviceAddress to, DeviceAddress from, int64_t bytes) = 0;
  // Copies a box of elements: for all indices (i, j, ...) below `box`, element (i, j, ...) of the
  // row-major array with dimensions `from_dims` is stored at the same indices of the array with
  // dimensions `to_dims`. No dimension of `box` is larger than that of either array.
  virtual absl::Status CopyBox(DeviceAddress to, std::span<const int64_t> to_dims,
                               DeviceAddress from, std::span<const int64_t> from_dims,
                               std::span<const int64_t> box, int element_bytes);
  virtual absl::Status Fill(DeviceAddress to, unsigned char byte, int64_t bytes) = 0;

  // Returns where this process reads and writes the bytes at `address` itself, once queued work is
  // done (Synchronize); nullptr: it cannot, and they must be copied.
  virtual char* HostBytes(DeviceAddress address) { return nullptr; }

  // A fast path for the kernel search only: returns the device address of host memory if the device
  // can use host memory directly; the memory must live until the next Synchronize. nullopt: the
  // device cannot, and the bytes must be uploaded.
  virtual std::optional<DeviceAddress> AddressOfHost(void* data, int64_t bytes) {
    return std::nullopt;
  }

  // ---- kernels ----------------------------------------------------------------------------------

  // Loads a compiled kernel. A kernel with no tasks needs no object, and its launch does nothing.
  // Errors: INVALID_ARGUMENT  the object is malformed
  //         UNIMPLEMENTED     the object needs a feature that this device lacks (named)
  //         NOT_FOUND         a symbol is undefined (named)
  //         INTERNAL          the driver's compiler refused it; its log follows
  virtual LoadedKernel Load(const CompiledKernel& kernel) = 0;
  // From now on, what the driver links is looked up in `store` first, and added to it; nullptr: no
  // more. The store outlives the device, or is replaced. Devices without a linker ignore it.
  virtual void KeepLinked(LinkedCodeStore* store) {}
  // Loads several at less cost each, where the device's compiler has a cost of its own for each
  // call; results are in the order of `kernels`.
  virtual std::vector<LoadedKernel> LoadAll(std::span<const CompiledKernel> kernels);

  // Queues one launch. buffers[i] is the kernel's slot i; buffers do not overlap. `vars` are the
  // values of VARs by slot, see compiler/compiled_kernel.h; may be empty if the kernel reads none.
  // Both are read before this returns.
  // Errors: INTERNAL  fewer buffers than the kernel uses
  virtual absl::Status Launch(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                              std::span<const int64_t> vars) = 0;

  // If properties().cuts_tasks: as Launch, but runs only the tasks [begin, end), on one thread.
  // Otherwise runs the whole kernel.
  virtual absl::Status LaunchTasks(const DeviceKernel& kernel,
                                   std::span<const DeviceAddress> buffers,
                                   std::span<const int64_t> vars, int64_t begin, int64_t end) {
    return Launch(kernel, buffers, vars);
  }

  // Queues several launches, one after the other, as Launch of each. `record` is the caller's, one
  // for each list that it queues over and over; nullptr at first. Devices with records_launches
  // keep there what makes the next time cheap. Kernels and buffers may differ each time: what
  // differs costs more. The record may go while the launches are queued.
  // Errors: as Launch; some of the launches may have been queued. LaunchOf says which one failed
  virtual absl::Status LaunchAll(std::span<const KernelLaunch> launches,
                                 std::span<const int64_t> vars,
                                 std::unique_ptr<LaunchRecord>& record);

  // ---- time -------------------------------------------------------------------------------------

  // Waits until all queued work is done.
  virtual absl::Status Synchronize() = 0;
  // OK, or why this device serves this process no more (INTERNAL): the process should end, since a
  // new one may find the device well. Every other call returns the same error. Threads: any.
  virtual absl::Status health() const { return absl::OkStatus(); }
  // Overwrites what other processes may have left on the device: memory that nobody has, the memory
  // that a block's threads share, registers. Call once, before the first kernel. Devices that the
  // system wipes between processes do nothing.
  // Errors: INTERNAL  the device failed
  virtual absl::Status Scrub() { return absl::OkStatus(); }
  // Reads what the device runs at now. Takes up to some milliseconds, and waits for no work; what
  // does not answer is given up after some seconds.
  // Errors: UNIMPLEMENTED  one line: nothing of this machine tells it. So are all later calls
  virtual absl::StatusOr<DeviceState> ReadState() {
    return absl::UnimplementedError("clocks of this kind of device are not read");
  }
  // Waits for the work that `work` queues and returns the seconds that the device spent on it.
  virtual absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work) = 0;

 protected:
  DeviceBuffer MakeBuffer(DeviceAddress address, int64_t bytes, bool mapped) {
    return DeviceBuffer(this, address, bytes, mapped);
  }

 private:
  friend class DeviceBuffer;
  // Called by the destructor of a DeviceBuffer. Queued work may still use the memory.
  virtual void Free(DeviceAddress address, int64_t bytes, bool mapped) = 0;
};

// `status`, of launch `index` of a LaunchAll.
absl::Status AtLaunch(absl::Status status, size_t index);
// Returns that index; nullopt for a status of no launch.
std::optional<size_t> LaunchOf(const absl::Status& status);

// `status`, of a device whose memory has failed (ECC), whatever ran on it.
absl::Status AsMemoryFault(absl::Status status);
bool IsMemoryFault(const absl::Status& status);

// Splits Device::CopyBox into contiguous runs: calls copy(byte offset in the destination, byte
// offset in the source, bytes) for each run of elements that is contiguous in both arrays.
void ForEachRun(std::span<const int64_t> to_dims, std::span<const int64_t> from_dims,
                std::span<const int64_t> box, int element_bytes,
                absl::FunctionRef<void(int64_t to, int64_t from, int64_t bytes)> copy);

}  // namespace outboard::runtime
