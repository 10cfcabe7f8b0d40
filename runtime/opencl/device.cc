#include "runtime/opencl/device.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/block_cache.h"
#include "runtime/limits.h"
#include "runtime/opencl/api.h"

namespace outboard::opencl {
namespace {

using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

// So much is queued before the device is waited for: a driver's queue may have no limit of its own.
constexpr int kQueuedMax = 4096;
constexpr size_t kLogBytesMax = 4096;  // of a compiler's log, in an error
// A kernel that touches and computes less takes microseconds however it is compiled, and a driver's
// optimiser a tenth of a second.
constexpr int64_t kSmallWork = 16 << 10;

absl::Status Failure(const char* call, cl_int code) {
  const std::string message = absl::StrCat("OpenCL: ", call, " failed with ", code);
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
      code == CL_OUT_OF_HOST_MEMORY)
    return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

#define OUTBOARD_CL(call, ...)                                 \
  do {                                                         \
    const cl_int ob_code = api_.call(__VA_ARGS__);             \
    if (ob_code != CL_SUCCESS) return Failure(#call, ob_code); \
  } while (false)

template <typename T>
T DeviceInfo(const Api& api, cl_device_id device, cl_device_info what) {
  T value{};
  if (api.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) != CL_SUCCESS) return T{};
  return value;
}

std::string DeviceText(const Api& api, cl_device_id device, cl_device_info what) {
  size_t bytes = 0;
  if (api.clGetDeviceInfo(device, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (api.clGetDeviceInfo(device, what, bytes, text.data(), nullptr) != CL_SUCCESS) return "";
  text.resize(text.find('\0') == std::string::npos ? bytes : text.find('\0'));
  return text;
}

bool HasSharedMemory(const Api& api, cl_device_id device) {
  const auto svm = DeviceInfo<cl_device_svm_capabilities>(api, device, CL_DEVICE_SVM_CAPABILITIES);
  return (svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) != 0;
}

// The first that will do; without one, the reason.
absl::StatusOr<cl_device_id> FindDevice(const Api* api) {
  if (api == nullptr) return absl::UnimplementedError("OpenCL: there is no libOpenCL.so.1 of 2.0");
  cl_uint count = 0;
  std::vector<cl_platform_id> platforms;
  if (api->clGetPlatformIDs(0, nullptr, &count) == CL_SUCCESS && count > 0) {
    platforms.resize(count);
    if (api->clGetPlatformIDs(count, platforms.data(), nullptr) != CL_SUCCESS) platforms.clear();
  }
  std::string refused;
  for (const cl_platform_id platform : platforms) {
    if (api->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS)
      continue;
    std::vector<cl_device_id> devices(count);
    if (count == 0 || api->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(),
                                          nullptr) != CL_SUCCESS)
      continue;
    for (const cl_device_id device : devices) {
      if (HasSharedMemory(*api, device)) return device;
      absl::StrAppend(&refused, refused.empty() ? "" : ", ",
                      DeviceText(*api, device, CL_DEVICE_NAME));
    }
  }
  return absl::UnimplementedError(
      refused.empty() ? std::string("OpenCL: no platform has a device")
                      : absl::StrCat("OpenCL: without shared virtual memory: ", refused));
}

void* Pointer(DeviceAddress address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}
DeviceAddress AddressOf(void* data) { return DeviceAddress{reinterpret_cast<uintptr_t>(data)}; }

class OpenClKernel final : public DeviceKernel {
 public:
  OpenClKernel(const Api& api, const CompiledKernel& kernel)
      : DeviceKernel(kernel), api_(api), reads_vars(kernel.reads_vars) {
    for (int axis = 0; axis < 3; ++axis) {
      local[axis] = static_cast<size_t>(kernel.threads[axis]);
      global[axis] = static_cast<size_t>(kernel.blocks[axis] * kernel.threads[axis]);
    }
  }
  // A driver keeps it as long as it runs it.
  ~OpenClKernel() override {
    if (kernel != nullptr) api_.clReleaseKernel(kernel);
  }

 private:
  const Api& api_;

 public:
  cl_kernel kernel = nullptr;
  size_t global[3], local[3];
  const bool reads_vars;
};

class OpenClDevice final : public runtime::Device {
 public:
  OpenClDevice(const Api& api, cl_device_id device, int64_t memory_bytes_max)
      : api_(api),
        device_(device),
        memory_(memory_bytes_max, {[this](int64_t bytes) {
                                     return api_.clSVMAlloc(
                                         context_, CL_MEM_READ_WRITE, static_cast<size_t>(bytes),
                                         static_cast<cl_uint>(limits::kBufferAlignment));
                                   },
                                   [this](void* block) {
                                     // Queued work may use it still; blocks go back to the system
                                     // seldom.
                                     if (queue_ != nullptr) api_.clFinish(queue_);
                                     api_.clSVMFree(context_, block);
                                   }}) {
    properties_.kind = "opencl";
    properties_.name = DeviceText(api, device, CL_DEVICE_NAME);
    properties_.form = CompiledKernel::Form::kOpenClC;
    properties_.compute_units =
        static_cast<int>(DeviceInfo<cl_uint>(api, device, CL_DEVICE_MAX_COMPUTE_UNITS));
    properties_.fp64 =
        DeviceInfo<cl_device_fp_config>(api, device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
    properties_.fp16 =
        DeviceText(api, device, CL_DEVICE_EXTENSIONS).find("cl_khr_fp16") != std::string::npos;
    properties_.is_processor =
        (DeviceInfo<cl_device_type>(api, device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
    properties_.vector_bytes =
        static_cast<int>(4 * DeviceInfo<cl_uint>(api, device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
    properties_.shared_bytes =
        static_cast<int64_t>(DeviceInfo<cl_ulong>(api, device, CL_DEVICE_LOCAL_MEM_SIZE));
    properties_.block_threads_max =
        static_cast<int64_t>(DeviceInfo<size_t>(api, device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
    const auto fp32 = DeviceInfo<cl_device_fp_config>(api, device, CL_DEVICE_SINGLE_FP_CONFIG);
    if ((fp32 & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0)
      build_options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
  }

  ~OpenClDevice() override {
    if (queue_ != nullptr) api_.clFinish(queue_);
    for (const cl_event event : events_) api_.clReleaseEvent(event);
    memory_.DropKept();
    if (queue_ != nullptr) api_.clReleaseCommandQueue(queue_);
    if (context_ != nullptr) api_.clReleaseContext(context_);
  }

  absl::Status Open() {
    cl_int code = CL_SUCCESS;
    context_ = api_.clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) return Failure("clCreateContext", code);
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    queue_ = api_.clCreateCommandQueueWithProperties(context_, device_, properties, &code);
    if (code != CL_SUCCESS) return Failure("clCreateCommandQueueWithProperties", code);
    return absl::OkStatus();
  }

  const runtime::DeviceProperties& properties() const override { return properties_; }

  // ---- memory

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    const absl::StatusOr<void*> block = memory_.Allocate(bytes);
    if (!block.ok()) return block.status();
    return MakeBuffer(AddressOf(*block), bytes, /*mapped=*/false);
  }
  void LimitMemory(int64_t bytes_max) override { memory_.Limit(bytes_max); }
  int64_t memory_bytes_max() const override { return memory_.bytes_max(); }
  int64_t memory_bytes_in_use() const override { return memory_.bytes_in_use(); }

  absl::Status Upload(DeviceAddress to, std::string_view from) override {
    if (from.empty()) return absl::OkStatus();
    OUTBOARD_CL(clEnqueueSVMMemcpy, queue_, CL_TRUE, Pointer(to), from.data(), from.size(), 0,
                nullptr, nullptr);
    return absl::OkStatus();
  }
  absl::Status Download(DeviceAddress from, int64_t bytes, void* to) override {
    if (bytes <= 0) return Synchronize();
    OUTBOARD_CL(clEnqueueSVMMemcpy, queue_, CL_TRUE, to, Pointer(from), static_cast<size_t>(bytes),
                0, nullptr, nullptr);
    return absl::OkStatus();
  }
  using Device::Download;
  absl::Status Copy(DeviceAddress to, DeviceAddress from, int64_t bytes) override {
    if (bytes <= 0) return absl::OkStatus();
    OUTBOARD_CL(clEnqueueSVMMemcpy, queue_, CL_FALSE, Pointer(to), Pointer(from),
                static_cast<size_t>(bytes), 0, nullptr, nullptr);
    return Queued();
  }
  absl::Status Fill(DeviceAddress to, unsigned char byte, int64_t bytes) override {
    if (bytes <= 0) return absl::OkStatus();
    OUTBOARD_CL(clEnqueueSVMMemFill, queue_, Pointer(to), &byte, 1, static_cast<size_t>(bytes), 0,
                nullptr, nullptr);
    return Queued();
  }

  // ---- kernels

  runtime::LoadedKernel Load(const CompiledKernel& compiled) override {
    return std::move(LoadAll({&compiled, 1})[0]);
  }

  // The texts are built as one program, those of small kernels as another, which is not optimised:
  // a driver reads its own headers once a build.
  std::vector<runtime::LoadedKernel> LoadAll(std::span<const CompiledKernel> compiled) override {
    std::vector<runtime::LoadedKernel> loaded;
    std::vector<size_t> small, others;
    for (size_t i = 0; i < compiled.size(); ++i) {
      const absl::Status fits = compiled[i].tasks > 0 ? CheckFits(compiled[i]) : absl::OkStatus();
      loaded.push_back(std::make_unique<OpenClKernel>(api_, compiled[i]));
      if (!fits.ok()) loaded.back() = fits;
      if (!fits.ok() || compiled[i].tasks <= 0) continue;
      (compiled[i].flops + compiled[i].bytes <= kSmallWork ? small : others).push_back(i);
    }
    BuildAll(compiled, small, build_options_ + " -cl-opt-disable", loaded);
    BuildAll(compiled, others, build_options_, loaded);
    return loaded;
  }

  absl::Status Launch(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                      std::span<const int64_t> vars) override {
    const auto& ours = static_cast<const OpenClKernel&>(kernel);
    const auto count = static_cast<size_t>(kernel.buffer_count());
    if (buffers.size() < count)
      return absl::InternalError(
          absl::StrCat("kernel ", kernel.name(), " of ", count, " buffers got ", buffers.size()));
    if (kernel.tasks() <= 0) return absl::OkStatus();
    for (size_t i = 0; i < count; ++i)
      OUTBOARD_CL(clSetKernelArgSVMPointer, ours.kernel, static_cast<cl_uint>(i),
                  Pointer(buffers[i]));
    cl_mem values = nullptr;
    if (ours.reads_vars) {
      if (vars.empty())
        return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " reads VARs, got none"));
      cl_int code = CL_SUCCESS;
      values = api_.clCreateBuffer(context_, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                   vars.size_bytes(), const_cast<int64_t*>(vars.data()), &code);
      if (code != CL_SUCCESS) return Failure("clCreateBuffer", code);
    }
    const absl::Status status = Enqueue(ours, count, values);
    if (values != nullptr) api_.clReleaseMemObject(values);  // the driver keeps it while it is used
    if (!status.ok()) return status;
    return Queued();
  }

  // ---- time

  absl::Status Synchronize() override {
    queued_ = 0;
    OUTBOARD_CL(clFinish, queue_);
    return absl::OkStatus();
  }

  // From the start of the first launch to the end of the last, by the device's clock.
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work) override {
    if (absl::Status status = Synchronize(); !status.ok()) return status;
    timing_ = true;
    absl::Status status = work();
    timing_ = false;
    status.Update(Synchronize());
    cl_ulong first = 0, last = 0;
    if (status.ok() && !events_.empty()) {
      const cl_int begin = api_.clGetEventProfilingInfo(events_.front(), CL_PROFILING_COMMAND_START,
                                                        sizeof(first), &first, nullptr);
      const cl_int end = api_.clGetEventProfilingInfo(events_.back(), CL_PROFILING_COMMAND_END,
                                                      sizeof(last), &last, nullptr);
      if (begin != CL_SUCCESS || end != CL_SUCCESS)
        status = Failure("clGetEventProfilingInfo", begin != CL_SUCCESS ? begin : end);
    }
    for (const cl_event event : events_) api_.clReleaseEvent(event);
    events_.clear();
    if (!status.ok()) return status;
    return last > first ? static_cast<double>(last - first) * 1e-9 : 0.0;
  }

 private:
  void Free(DeviceAddress address, int64_t bytes, bool) override {
    // Reused by later work alone, which the queue runs later.
    memory_.Free(Pointer(address), bytes);
  }

  absl::Status Queued() {
    if (++queued_ < kQueuedMax) return absl::OkStatus();
    return Synchronize();
  }

  absl::Status CheckFits(const CompiledKernel& kernel) const {
    if (kernel.form != CompiledKernel::Form::kOpenClC)
      return absl::InvalidArgumentError(absl::StrCat(
          "kernel ", kernel.symbol, " is no OpenCL C, which ", properties_.name, " wants"));
    int64_t threads = 1;
    for (int axis = 0; axis < 3; ++axis) {
      if (kernel.blocks[axis] <= 0 || kernel.threads[axis] <= 0 ||
          __builtin_mul_overflow(threads, kernel.threads[axis], &threads))
        return absl::InvalidArgumentError(
            absl::StrCat("kernel ", kernel.symbol, " has no blocks or threads on axis ", axis));
    }
    if (threads > properties_.block_threads_max)
      return absl::UnimplementedError(
          absl::StrCat("kernel ", kernel.symbol, " has blocks of ", threads, " threads; ",
                       properties_.name, " has at most ", properties_.block_threads_max));
    if (kernel.shared_bytes > properties_.shared_bytes)
      return absl::UnimplementedError(absl::StrCat(
          "kernel ", kernel.symbol, " wants ", kernel.shared_bytes, " bytes of local memory; ",
          properties_.name, " has ", properties_.shared_bytes));
    if (kernel.object.size() > limits::kObjectBytesMax)
      return absl::ResourceExhaustedError(absl::StrCat("kernel ", kernel.symbol, " of ",
                                                       kernel.object.size(), " bytes; limit ",
                                                       limits::kObjectBytesMax));
    return absl::OkStatus();
  }

  // The name of kernel i of a program of many: all may have one symbol.
  static std::string NameInProgram(const CompiledKernel& kernel, size_t i) {
    return absl::StrCat(kernel.symbol, "_", i);
  }

  // Where the driver refuses a program of several kernels, each is built by itself, so that the
  // error is that of the kernel it belongs to.
  void BuildAll(std::span<const CompiledKernel> compiled, std::span<const size_t> which,
                const std::string& options, std::vector<runtime::LoadedKernel>& loaded) {
    if (which.empty()) return;
    const absl::StatusOr<cl_program> program = Build(compiled, which, options);
    if (!program.ok() && which.size() > 1) {
      for (const size_t& i : which) BuildAll(compiled, {&i, 1}, options, loaded);
      return;
    }
    for (const size_t i : which) {
      absl::Status status = program.status();
      if (status.ok())
        status = Take(*program, compiled[i], i, static_cast<OpenClKernel&>(**loaded[i]));
      if (!status.ok()) loaded[i] = status;
    }
    if (program.ok()) api_.clReleaseProgram(*program);  // its kernels hold it
  }

  absl::StatusOr<cl_program> Build(std::span<const CompiledKernel> compiled,
                                   std::span<const size_t> which, const std::string& options) {
    std::vector<std::string> pieces;
    for (const size_t i : which) {
      const CompiledKernel& kernel = compiled[i];
      pieces.push_back(
          absl::StrCat("#define ", kernel.symbol, " ", NameInProgram(kernel, i), "\n"));
      pieces.push_back(kernel.object);
      pieces.push_back(absl::StrCat("\n#undef ", kernel.symbol, "\n"));
    }
    std::vector<const char*> texts;
    std::vector<size_t> lengths;
    for (const std::string& piece : pieces) {
      texts.push_back(piece.data());
      lengths.push_back(piece.size());
    }
    cl_int code = CL_SUCCESS;
    const cl_program program = api_.clCreateProgramWithSource(
        context_, static_cast<cl_uint>(texts.size()), texts.data(), lengths.data(), &code);
    if (code != CL_SUCCESS) return Failure("clCreateProgramWithSource", code);
    code = api_.clBuildProgram(program, 1, &device_, options.c_str(), nullptr, nullptr);
    if (code == CL_SUCCESS) return program;
    const absl::Status status = absl::InternalError(
        absl::StrCat("OpenCL: ", properties_.name, " does not compile kernel ",
                     compiled[which[0]].symbol, " (", code, "): ", BuildLog(program)));
    api_.clReleaseProgram(program);
    return status;
  }

  absl::Status Take(cl_program program, const CompiledKernel& compiled, size_t i,
                    OpenClKernel& kernel) {
    cl_int code = CL_SUCCESS;
    kernel.kernel = api_.clCreateKernel(program, NameInProgram(compiled, i).c_str(), &code);
    if (code == CL_INVALID_KERNEL_NAME)
      return absl::NotFoundError(absl::StrCat("OpenCL: the text has no kernel ", compiled.symbol));
    if (code != CL_SUCCESS) return Failure("clCreateKernel", code);
    size_t most = 0;
    OUTBOARD_CL(clGetKernelWorkGroupInfo, kernel.kernel, device_, CL_KERNEL_WORK_GROUP_SIZE,
                sizeof(most), &most, nullptr);
    const size_t threads = kernel.local[0] * kernel.local[1] * kernel.local[2];
    if (threads > most)
      return absl::ResourceExhaustedError(absl::StrCat("kernel ", compiled.symbol,
                                                       " has blocks of ", threads, " threads; on ",
                                                       properties_.name, " it may have ", most));
    return absl::OkStatus();
  }

  std::string BuildLog(cl_program program) const {
    size_t bytes = 0;
    if (api_.clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) !=
            CL_SUCCESS ||
        bytes == 0)
      return "(no log)";
    std::string log(bytes, '\0');
    if (api_.clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, bytes, log.data(),
                                   nullptr) != CL_SUCCESS)
      return "(no log)";
    log.resize(std::min({log.find('\0'), log.size(), kLogBytesMax}));
    return log;
  }

  absl::Status Enqueue(const OpenClKernel& kernel, size_t count, cl_mem values) {
    if (values != nullptr)
      OUTBOARD_CL(clSetKernelArg, kernel.kernel, static_cast<cl_uint>(count), sizeof(values),
                  &values);
    cl_event event = nullptr;
    OUTBOARD_CL(clEnqueueNDRangeKernel, queue_, kernel.kernel, 3, nullptr, kernel.global,
                kernel.local, 0, nullptr, timing_ ? &event : nullptr);
    if (event != nullptr) events_.push_back(event);
    return absl::OkStatus();
  }

  const Api& api_;
  const cl_device_id device_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  runtime::DeviceProperties properties_;
  std::string build_options_ = "-w -cl-std=CL1.2";  // what compiler/render/opencl_c.h asks for
  runtime::BlockCache memory_;
  int queued_ = 0;  // since the device was last waited for
  bool timing_ = false;
  std::vector<cl_event> events_;  // of launches in Time
};

#undef OUTBOARD_CL

}  // namespace

absl::Status CheckThere() { return FindDevice(LoadApi()).status(); }

absl::StatusOr<std::unique_ptr<runtime::Device>> MakeOpenClDevice(
    const runtime::DeviceOptions& options) {
  const Api* const api = LoadApi();
  const absl::StatusOr<cl_device_id> found = FindDevice(api);
  if (!found.ok()) return found.status();
  const auto all =
      static_cast<int64_t>(DeviceInfo<cl_ulong>(*api, *found, CL_DEVICE_GLOBAL_MEM_SIZE));
  const int64_t wanted = options.memory_bytes_max > 0 ? options.memory_bytes_max : all;
  auto device = std::make_unique<OpenClDevice>(*api, *found, std::min(wanted, all / 4 * 3));
  if (absl::Status status = device->Open(); !status.ok()) return status;
  return device;
}

}  // namespace outboard::opencl
