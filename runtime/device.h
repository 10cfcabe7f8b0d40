// A device: memory, kernels and launches. Everything that computes goes through this interface;
// only the folders runtime/cpu, runtime/far and runtime/opencl know what is behind it.
//
// Order.   Uploads, fills, copies, launches and downloads take effect one after the other, in the
//          order of the calls (one stream). A call may return before its work has begun.
// Blocks.  Download, Synchronize and Time wait for everything before them. Upload returns when the
//          source has been read. All others may return at once.
// Lifetime of sources.  Spans and host memory passed to a call are read before the call returns,
//          or, for Download, written before it returns. A DeviceBuffer or DeviceKernel may be
//          destroyed while work that uses it is queued: the device keeps what that work needs.
// Ownership.  A DeviceBuffer owns its memory and gives it back at its end. The device outlives its
//          buffers and kernels.
// Errors.  A call reports its own mistakes at once. Work that fails later is reported once, by the
//          next call that waits (Download, Synchronize, Time); what was queued behind it may not
//          have run. Codes: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (memory, or a limit, with its
//          number), UNIMPLEMENTED (what this device has no way to do), DATA_LOSS (a file), INTERNAL
//          (the device, or its driver, failed).
// Threads. One thread at a time, with one exception: Download may be called by a second thread at
//          the same time, for bytes that nothing queued after that call writes.
#pragma once

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

// The place of a byte in a device's memory, in the device's own numbers: no pointer of this
// process. The bytes of one buffer have consecutive addresses.
enum class DeviceAddress : uint64_t {};

constexpr DeviceAddress operator+(DeviceAddress address, int64_t bytes) {
  return DeviceAddress{static_cast<uint64_t>(address) + static_cast<uint64_t>(bytes)};
}

class Device;

// Memory of a device, aligned to limits::kBufferAlignment. Movable, never copied.
class DeviceBuffer {
 public:
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer();

  Device& device() const { return *device_; }  // not of one that was moved from
  DeviceAddress address() const { return address_; }
  int64_t bytes() const { return bytes_; }  // as asked for

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
        buffer_count_(kernel.buffer_count) {}
  virtual ~DeviceKernel() = default;

  const std::string& name() const { return name_; }
  int64_t tasks() const { return tasks_; }
  int64_t flops() const { return flops_; }  // this and bytes: estimates of one launch
  int64_t bytes() const { return bytes_; }
  int buffer_count() const { return buffer_count_; }

 private:
  std::string name_;
  int64_t tasks_, flops_, bytes_;
  int buffer_count_;
};

struct DeviceProperties {
  std::string kind;  // "cpu", "far", "opencl": what OUTBOARD_DEVICE says
  std::string name;  // for people
  int threads = 1;   // that run one kernel together; of a GPU: compute units
  CompiledKernel::Form form = CompiledKernel::Form::kElfX86;  // of the kernels that it loads
  bool cuts_tasks = false;  // LaunchTasks runs these tasks and no others
  bool fp64 = true;
  bool fp16 = true;
  int64_t local_memory_bytes = 0;   // of one work-group; 0: there is none
  int64_t work_group_size_max = 1;  // threads of one block
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;

  // ---- memory -----------------------------------------------------------------------------------

  // Memory of undefined contents. `bytes` may be 0. What is freed is kept for reuse, since a step
  // allocates the same sizes over and over.
  // Errors: INVALID_ARGUMENT    negative
  //         RESOURCE_EXHAUSTED  names the bytes asked for, those in use and the limit
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;

  // The first `bytes` bytes of a file as memory that may be written over; the file stays as it is
  // and must not become shorter. A device that shares the host's memory maps the file: nothing is
  // read before it is used. Others copy it.
  // Errors: as Allocate; DATA_LOSS  the file cannot be read, or has fewer bytes
  virtual absl::StatusOr<DeviceBuffer> MapFile(const std::string& path, int64_t bytes);

  // Lowers the limit of memory in use and kept for reuse; a higher one changes nothing.
  virtual void LimitMemory(int64_t bytes_max) = 0;
  virtual int64_t memory_bytes_max() const = 0;
  virtual int64_t memory_bytes_in_use() const = 0;

  // Copies host memory to the device; `from` may go when this returns.
  virtual absl::Status Upload(DeviceAddress to, std::string_view from) = 0;
  // Copies to host memory; waits for what was queued before.
  virtual absl::Status Download(DeviceAddress from, int64_t bytes, void* to) = 0;
  // The same in pieces of at most `piece_bytes`, in order, without a copy where the host can read
  // the memory as it is. Ends with the first error of `sink`. The view lives as long as the call.
  using Sink = absl::FunctionRef<absl::Status(std::string_view piece)>;
  virtual absl::Status Download(DeviceAddress from, int64_t bytes, int64_t piece_bytes, Sink sink);
  // The two ranges do not overlap.
  virtual absl::Status Copy(DeviceAddress to, DeviceAddress from, int64_t bytes) = 0;
  // Copies a box of elements: element (i, j, ...) below `box` of the row-major array of dimensions
  // `from_dims` becomes element (i, j, ...) of that of `to_dims`. No dimension of `box` is larger
  // than that of either array.
  virtual absl::Status CopyBox(DeviceAddress to, std::span<const int64_t> to_dims,
                               DeviceAddress from, std::span<const int64_t> from_dims,
                               std::span<const int64_t> box, int element_bytes);
  virtual absl::Status Fill(DeviceAddress to, unsigned char byte, int64_t bytes) = 0;

  // A fast path for the search alone: host memory as this device addresses it, where the device
  // works on the host's memory as it is; it must live until the next Synchronize. nullopt: it does
  // not, and the bytes must be uploaded.
  virtual std::optional<DeviceAddress> AddressOfHost(void* data, int64_t bytes) {
    return std::nullopt;
  }

  // ---- kernels ----------------------------------------------------------------------------------

  // A kernel of no tasks needs no object and loads as one that does nothing.
  // Errors: INVALID_ARGUMENT  an object that is none
  //         UNIMPLEMENTED     one that needs what this device lacks (named)
  //         NOT_FOUND         a symbol that is not there (named)
  //         INTERNAL          the driver's compiler refused it; its log follows
  virtual absl::StatusOr<std::unique_ptr<DeviceKernel>> Load(const CompiledKernel& kernel) = 0;

  // buffers[i] is the kernel's slot i; they do not overlap. `vars`: the values of VARs by slot, as
  // compiled_kernel.h says; may be empty where the kernel reads none. Both are read before this
  // returns.
  // Errors: INTERNAL  fewer buffers than the kernel uses
  virtual absl::Status Launch(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                              std::span<const int64_t> vars) = 0;

  // As Launch, of the tasks [begin, end) alone, on one thread, where properties().cuts_tasks says
  // so; elsewhere the whole kernel is run.
  virtual absl::Status LaunchTasks(const DeviceKernel& kernel,
                                   std::span<const DeviceAddress> buffers,
                                   std::span<const int64_t> vars, int64_t begin, int64_t end) {
    return Launch(kernel, buffers, vars);
  }

  // ---- time -------------------------------------------------------------------------------------

  // Waits until everything queued is done.
  virtual absl::Status Synchronize() = 0;
  // Seconds that the device took for what `work` queued; waits for it.
  virtual absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work) = 0;

 protected:
  DeviceBuffer MakeBuffer(DeviceAddress address, int64_t bytes, bool mapped) {
    return DeviceBuffer(this, address, bytes, mapped);
  }

 private:
  friend class DeviceBuffer;
  // At the end of a buffer. Work that is queued may still use the memory.
  virtual void Free(DeviceAddress address, int64_t bytes, bool mapped) = 0;
};

// What Device::CopyBox does, run by run: calls copy(byte among to, byte among from, bytes) for each
// run of elements that lie side by side in both arrays.
void ForEachRun(std::span<const int64_t> to_dims, std::span<const int64_t> from_dims,
                std::span<const int64_t> box, int element_bytes,
                absl::FunctionRef<void(int64_t to, int64_t from, int64_t bytes)> copy);

}  // namespace outboard::runtime
