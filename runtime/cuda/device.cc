#include "runtime/cuda/device.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "runtime/block_cache.h"
#include "runtime/cuda/delay_kernel.h"
#include "runtime/cuda/driver_context.h"
#include "runtime/cuda/gpu_state.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/launch_graph.h"
#include "runtime/cuda/pinned_pieces.h"
#include "runtime/cuda/scrub.h"
#include "runtime/cuda/upload_stream.h"

namespace outboard::cuda {
namespace {

using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

// Of VARs; a graph has at most 64 (compiler/ir/limits.h).
constexpr size_t kVarsMax = 512;
// The part of the free memory that stays the driver's: for modules, registers that do not fit, and
// its own tables.
constexpr int64_t kDriverShare = 16;

CUdeviceptr PointerOf(DeviceAddress address) { return static_cast<CUdeviceptr>(address); }
CUdeviceptr PointerOf(const void* block) { return reinterpret_cast<uintptr_t>(block); }

runtime::DeviceProperties PropertiesOf(const DriverContext& context, int64_t memory_bytes) {
  runtime::DeviceProperties properties;
  properties.kind = std::string(runtime::kCuda);
  properties.name = context.name();
  properties.form = CompiledKernel::Form::kPtx;
  properties.compute_units =
      std::max(1, context.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  properties.is_processor = false;
  properties.vector_bytes = 16;
  properties.shared_bytes =
      context.Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  properties.block_threads_max = context.Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties.memory_bytes = memory_bytes;
  properties.cache_bytes = context.Attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  properties.compute_capability =
      10 * context.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
      context.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties.cuda_version = context.api().version;
  properties.fp64 = true;  // of every device that the driver still knows
  properties.fp16 = properties.compute_capability >= 53;
  properties.records_launches = true;
  return properties;
}

class CudaDevice final : public runtime::Device {
 public:
  CudaDevice(const DriverApi& api, CUdevice device, std::function<void(std::string_view)> warn)
      : device_(device),
        context_(api, device, std::move(warn)),
        loader_(&context_, &left_),
        delay_(&context_),
        work_pieces_(&context_) {}

  ~CudaDevice() override {
    // After an error that is for good nothing can be freed: the process ends.
    const bool well = Synchronize().ok();
    left_.WorkIsDone();
    downloads_.clear();
    uploads_.reset();
    memory_.reset();
    if (!well || !context_.Enter().ok()) return;
    for (const CUevent event : {begin_, end_})
      if (event != nullptr) context_.api().cuEventDestroy(event);
    if (vars_ != 0) context_.api().cuMemFree(vars_);
    if (stream_ != nullptr) context_.api().cuStreamDestroy(stream_);
  }

  absl::Status Open(CUdevice device, int64_t memory_bytes_max) {
    if (absl::Status status = context_.Open(); !status.ok()) return status;
    OB_CUDA(context_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    OB_CUDA(context_, cuEventCreate, &begin_, CU_EVENT_DEFAULT);
    OB_CUDA(context_, cuEventCreate, &end_, CU_EVENT_DEFAULT);
    OB_CUDA(context_, cuMemAlloc, &vars_, kVarsMax * sizeof(int64_t));
    loader_.UseMemory(vars_);
    if (absl::Status status = work_pieces_.Open(stream_); !status.ok()) return status;
    uploads_ = std::make_unique<UploadStream>(&context_);
    if (absl::Status status = uploads_->Open(stream_); !status.ok()) return status;
    size_t total = 0, free = 0;
    OB_CUDA(context_, cuDeviceTotalMem, &total, device);
    OB_CUDA(context_, cuMemGetInfo, &free, &total);
    const auto room = static_cast<int64_t>(free) / kDriverShare * (kDriverShare - 1);
    memory_ = std::make_unique<runtime::BlockCache>(
        memory_bytes_max > 0 ? std::min(memory_bytes_max, room) : room,
        runtime::BlockSource{[this](int64_t bytes) { return NewBlock(bytes); },
                             [this](void* block) { FreeBlock(block); }});
    properties_ = PropertiesOf(context_, static_cast<int64_t>(total));
    return absl::OkStatus();
  }

  const runtime::DeviceProperties& properties() const override { return properties_; }
  absl::Status health() const override { return context_.health(); }

  // ---- memory

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    absl::StatusOr<void*> block = memory_->Allocate(bytes);
    if (MadeRoom(block.status())) block = memory_->Allocate(bytes);
    if (absl::Status status = CheckBlock(block.status(), bytes); !status.ok()) return status;
    return MakeBuffer(DeviceAddress{PointerOf(*block)}, bytes, /*mapped=*/false);
  }

  absl::StatusOr<DeviceBuffer> AllocateForUpload(int64_t bytes) override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    new_is_for_upload_ = true;
    absl::StatusOr<runtime::BlockCache::Block> block =
        memory_->AllocateIdle(bytes, uploads_->Done());
    if (MadeRoom(block.status())) block = memory_->AllocateIdle(bytes, uploads_->Done());
    new_is_for_upload_ = false;
    if (absl::Status status = CheckBlock(block.status(), bytes); !status.ok()) return status;
    const CUdeviceptr address = PointerOf(block->address);
    DeviceBuffer buffer = MakeBuffer(DeviceAddress{address}, bytes, /*mapped=*/false);
    uploads_->Add(address, bytes, block->used_until);
    if (block->is_new)  // all of it: the next owner may have more
      if (absl::Status status = uploads_->Clear(address, new_bytes_); !status.ok()) return status;
    return buffer;
  }

  absl::StatusOr<DeviceBuffer> MapFile(int fd, int64_t bytes) override {
    absl::StatusOr<DeviceBuffer> buffer = AllocateForUpload(bytes);
    if (!buffer.ok()) return buffer;
    const auto read = [&](int64_t offset, char* piece, int64_t length) -> absl::Status {
      for (int64_t done = 0; done < length;) {
        const ssize_t n =
            pread(fd, piece + done, static_cast<size_t>(length - done), offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
          return absl::DataLossError(absl::StrCat("the file of ", bytes, " bytes cannot be read"));
        done += n;
      }
      return absl::OkStatus();
    };
    if (absl::Status status = UploadPiecewise(buffer->address(), bytes, read); !status.ok())
      return status;
    return buffer;
  }

  void LimitMemory(int64_t bytes_max) override { memory_->Limit(bytes_max); }
  int64_t memory_bytes_max() const override { return memory_->bytes_max(); }
  int64_t memory_bytes_in_use() const override { return memory_->bytes_in_use(); }

  absl::Status Upload(DeviceAddress to, std::string_view from) override {
    return UploadPiecewise(to, static_cast<int64_t>(from.size()),
                           [&](int64_t offset, char* piece, int64_t length) {
                             std::memcpy(piece, from.data() + offset, static_cast<size_t>(length));
                             return absl::OkStatus();
                           });
  }

  absl::Status Download(DeviceAddress from, int64_t bytes, void* to) override {
    return ReadPiecewise(
        from, bytes, kPinnedPieceBytes, [to](int64_t offset, const char* piece, int64_t length) {
          std::memcpy(static_cast<char*>(to) + offset, piece, static_cast<size_t>(length));
          return absl::OkStatus();
        });
  }
  absl::Status Download(DeviceAddress from, int64_t bytes, int64_t piece_bytes,
                        Sink sink) override {
    return ReadPiecewise(from, bytes, piece_bytes,
                         [sink](int64_t, const char* piece, int64_t length) {
                           return sink({piece, static_cast<size_t>(length)});
                         });
  }

  absl::Status Copy(DeviceAddress to, DeviceAddress from, int64_t bytes) override {
    if (absl::Status status = context_.Enter(); !status.ok() || bytes <= 0) return status;
    const CUdeviceptr used[] = {PointerOf(to), PointerOf(from)};
    if (absl::Status status = uploads_->BeforeWork(used); !status.ok()) return status;
    OB_CUDA(context_, cuMemcpyDtoDAsync, PointerOf(to), PointerOf(from), static_cast<size_t>(bytes),
            stream_);
    return absl::OkStatus();
  }
  absl::Status Fill(DeviceAddress to, unsigned char byte, int64_t bytes) override {
    if (absl::Status status = context_.Enter(); !status.ok() || bytes <= 0) return status;
    const CUdeviceptr used[] = {PointerOf(to)};
    if (absl::Status status = uploads_->BeforeWork(used); !status.ok()) return status;
    OB_CUDA(context_, cuMemsetD8Async, PointerOf(to), byte, static_cast<size_t>(bytes), stream_);
    return absl::OkStatus();
  }

  // ---- kernels

  runtime::LoadedKernel Load(const CompiledKernel& compiled) override {
    return std::move(LoadAll({&compiled, 1})[0]);
  }
  void KeepLinked(runtime::LinkedCodeStore* store) override { loader_.UseStore(store); }
  std::vector<runtime::LoadedKernel> LoadAll(std::span<const CompiledKernel> compiled) override {
    if (const absl::Status status = context_.Enter(); !status.ok()) {
      std::vector<runtime::LoadedKernel> failed;
      for (size_t i = 0; i < compiled.size(); ++i) failed.emplace_back(status);
      return failed;
    }
    return loader_.Load(compiled);
  }

  absl::Status Launch(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                      std::span<const int64_t> vars) override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    if (absl::Status status = Bind(kernel, buffers, vars, bound_); !status.ok()) return status;
    if (bound_.kernel == nullptr) return absl::OkStatus();
    if (absl::Status status = uploads_->BeforeWork(bound_.arguments); !status.ok()) return status;
    if (bound_.kernel->reads_vars)
      if (absl::Status status = SetVars(vars); !status.ok()) return status;
    return Enqueue(bound_);
  }

  absl::Status LaunchAll(std::span<const runtime::KernelLaunch> launches,
                         std::span<const int64_t> vars,
                         std::unique_ptr<runtime::LaunchRecord>& record) override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    size_t count = 0;  // of those that compute something
    bool read_vars = false;
    for (const runtime::KernelLaunch& launch : launches) {
      if (all_bound_.size() == count) all_bound_.emplace_back();
      BoundLaunch& bound = all_bound_[count];
      const auto at = static_cast<size_t>(&launch - launches.data());
      if (absl::Status status = Bind(*launch.kernel, launch.buffers, vars, bound); !status.ok())
        return runtime::AtLaunch(std::move(status), at);
      if (bound.kernel == nullptr) continue;
      if (bound_launches_.size() == count) bound_launches_.emplace_back();
      bound_launches_[count] = at;
      read_vars = read_vars || bound.kernel->reads_vars;
      if (absl::Status status = uploads_->BeforeWork(bound.arguments); !status.ok()) return status;
      ++count;
    }
    if (read_vars)
      if (absl::Status status = SetVars(vars); !status.ok()) return status;
    if (record == nullptr) record = std::make_unique<LaunchGraph>(&context_, &left_);
    auto& graph = static_cast<LaunchGraph&>(*record);
    const std::span<const BoundLaunch> bound(all_bound_.data(), count);
    if (count > 1 && !timing_ && graph.IsWorthwhile()) {
      const absl::Status status = graph.Queue(bound, stream_);
      if (status.ok()) return uploads_->Mark();
      if (!health().ok()) return status;
      // Nothing is queued; one by one it may go.
    }
    for (size_t i = 0; i < count; ++i)
      if (absl::Status status = Enqueue(bound[i]); !status.ok())
        return runtime::AtLaunch(std::move(status), bound_launches_[i]);
    return uploads_->Mark();
  }

  // ---- time

  absl::Status Scrub() override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    return cuda::Scrub(context_, stream_);
  }

  absl::Status Synchronize() override {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    OB_CUDA(context_, cuStreamSynchronize, stream_);
    if (uploads_ != nullptr) OB_CUDA(context_, cuStreamSynchronize, uploads_->stream());
    left_.WorkIsDone();
    return absl::OkStatus();
  }

  absl::StatusOr<runtime::DeviceState> ReadState() override {
    if (!state_.has_value()) {
      char bus_id[32] = "";
      if (context_.api().cuDeviceGetPCIBusId == nullptr ||
          context_.api().cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device_) != CUDA_SUCCESS)
        return absl::UnimplementedError("the driver does not tell the GPU's place on the bus");
      state_.emplace(ManagementLibrary(), bus_id);
    }
    return state_->Read();
  }

  // From the first launch to the end of the work, by the device's clock. The device is kept busy
  // while the host queues both events and what is between them.
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work) override {
    if (absl::Status status = Synchronize(); !status.ok()) return status;
    if (absl::Status status = delay_.Load(); !status.ok()) return status;
    timing_ = true;
    begun_ = false;
    absl::Status status = work();
    timing_ = false;
    if (begun_)
      status.Update(context_.Check(context_.api().cuEventRecord(end_, stream_), "cuEventRecord"));
    status.Update(Synchronize());
    if (!status.ok()) return status;
    if (!begun_) return 0.0;
    float milliseconds = 0;
    OB_CUDA(context_, cuEventElapsedTime, &milliseconds, begin_, end_);
    return std::max(0.0, static_cast<double>(milliseconds) * 1e-3);
  }

 private:
  // Reused by later work alone, which the stream runs later, and by uploads that wait for it.
  void Free(DeviceAddress address, int64_t bytes, bool) override {
    // An error is for good: the next call returns it.
    if (context_.Enter().ok()) uploads_->Remove(PointerOf(address)).IgnoreError();
    memory_->Free(reinterpret_cast<void*>(static_cast<uintptr_t>(PointerOf(address))), bytes,
                  uploads_->queued());
  }

  // What is kept has other sizes, or lies in pieces: drops it, if the driver had no memory.
  bool MadeRoom(const absl::Status& status) {
    if (status.code() != absl::StatusCode::kResourceExhausted || !refused_ ||
        memory_->bytes_kept() == 0)
      return false;
    memory_->DropKept();
    return true;
  }

  // What to say of a block that was asked for.
  absl::Status CheckBlock(const absl::Status& status, int64_t bytes) {
    const bool refused = std::exchange(refused_, false);
    if (absl::Status ended = health(); !ended.ok()) return ended;
    return !status.ok() && refused ? NoMemory(bytes) : status;
  }

  void* NewBlock(int64_t bytes) {
    CUdeviceptr block = 0;
    const CUresult code = context_.api().cuMemAlloc(&block, static_cast<size_t>(bytes));
    if (code != CUDA_SUCCESS) {
      refused_ = true;
      context_.Check(code, "cuMemAlloc").IgnoreError();  // Allocate asks whether it is for good
      return nullptr;
    }
    new_bytes_ = bytes;
    if (new_is_for_upload_) return reinterpret_cast<void*>(static_cast<uintptr_t>(block));
    uploads_->BeforeWork({}).IgnoreError();  // of no buffer: it cannot fail
    const CUresult scrubbed =
        context_.api().cuMemsetD8Async(block, 0, static_cast<size_t>(bytes), stream_);
    if (scrubbed != CUDA_SUCCESS) {
      context_.Check(scrubbed, "cuMemsetD8Async").IgnoreError();
      context_.api().cuMemFree(block);
      return nullptr;
    }
    return reinterpret_cast<void*>(static_cast<uintptr_t>(block));
  }

  // The session's limit permits it, and the device has not so much, or not in one piece.
  absl::Status NoMemory(int64_t bytes) {
    size_t free = 0, total = 0;
    OB_CUDA(context_, cuMemGetInfo, &free, &total);
    return absl::ResourceExhaustedError(
        absl::StrCat("a buffer of ", bytes, " bytes, with ", memory_->bytes_in_use(),
                     " bytes in use: ", properties_.name, " has ", free, " bytes free of ", total));
  }

  // Queued work may use it still; blocks go back to the driver seldom.
  void FreeBlock(void* block) {
    if (Synchronize().ok()) context_.api().cuMemFree(PointerOf(block));
  }

  absl::Status UploadPiecewise(DeviceAddress to, int64_t bytes, UploadPieces::Source source) {
    if (absl::Status status = context_.Enter(); !status.ok() || bytes <= 0) return status;
    if (uploads_->IsFresh(PointerOf(to))) return uploads_->Copy(PointerOf(to), bytes, source);
    if (absl::Status status = uploads_->BeforeWork({}); !status.ok()) return status;
    return work_pieces_.CopyAll(PointerOf(to), bytes, source);
  }

  // On a second thread, too, at the same time.
  absl::Status ReadPiecewise(DeviceAddress from, int64_t bytes, int64_t piece_bytes,
                             DownloadPieces::Sink sink) {
    if (absl::Status status = context_.Enter(); !status.ok()) return status;
    std::unique_ptr<DownloadPieces> pieces;
    {
      absl::MutexLock lock(&downloads_mutex_);
      if (!downloads_.empty()) {
        pieces = std::move(downloads_.back());
        downloads_.pop_back();
      }
    }
    if (pieces == nullptr) {
      pieces = std::make_unique<DownloadPieces>(&context_);
      if (absl::Status status = pieces->Open(); !status.ok()) return status;
    }
    const CUstream before[] = {stream_, uploads_->stream()};
    absl::Status status = pieces->Read(before, PointerOf(from), bytes, piece_bytes, sink);
    absl::MutexLock lock(&downloads_mutex_);
    downloads_.push_back(std::move(pieces));
    return status;
  }

  // kernel nullptr: there is nothing to compute.
  absl::Status Bind(const DeviceKernel& kernel, std::span<const DeviceAddress> buffers,
                    std::span<const int64_t> vars, BoundLaunch& bound) {
    const auto count = static_cast<size_t>(kernel.buffer_count());
    if (buffers.size() < count)
      return absl::InternalError(
          absl::StrCat("kernel ", kernel.name(), " of ", count, " buffers got ", buffers.size()));
    const auto& ours = static_cast<const CudaKernel&>(kernel);
    bound.kernel = kernel.tasks() > 0 ? &ours : nullptr;
    bound.arguments.clear();
    for (size_t i = 0; i < count; ++i) bound.arguments.push_back(PointerOf(buffers[i]));
    if (absl::Status status = bound.EncodeMaps(context_); !status.ok()) return status;
    if (!ours.reads_vars || bound.kernel == nullptr) return absl::OkStatus();
    if (vars.empty())
      return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " reads VARs, got none"));
    bound.arguments.push_back(vars_);
    return absl::OkStatus();
  }

  // The kernels' table of VARs, at one address for all, so that a graph is right for all values:
  // the stream changes it when all that reads the values before is done.
  absl::Status SetVars(std::span<const int64_t> vars) {
    if (vars.size() > kVarsMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("values of ", vars.size(), " VARs; limit ", kVarsMax));
    if (std::ranges::equal(vars, vars_now_)) return absl::OkStatus();
    vars_now_.clear();  // not known, if what follows fails
    const absl::StatusOr<char*> piece = work_pieces_.Take(static_cast<int64_t>(vars.size_bytes()));
    if (!piece.ok()) return piece.status();
    std::memcpy(*piece, vars.data(), vars.size_bytes());
    OB_CUDA(context_, cuMemcpyHtoDAsync, vars_, *piece, vars.size_bytes(), stream_);
    vars_now_.assign(vars.begin(), vars.end());
    return absl::OkStatus();
  }

  absl::Status Enqueue(const BoundLaunch& launch) {
    if (timing_ && !begun_) {
      if (absl::Status status = delay_.Queue(stream_); !status.ok()) return status;
      OB_CUDA(context_, cuEventRecord, begin_, stream_);
      begun_ = true;
    }
    launch.PointTo(pointers_);
    const CudaKernel& kernel = *launch.kernel;
    const CUresult code = context_.api().cuLaunchKernel(
        kernel.function, kernel.blocks[0], kernel.blocks[1], kernel.blocks[2], kernel.threads[0],
        kernel.threads[1], kernel.threads[2], kernel.shared_bytes, stream_, pointers_.data(),
        nullptr);
    if (code == CUDA_SUCCESS) return absl::OkStatus();
    return context_.Check(code, "cuLaunchKernel");
  }

  const CUdevice device_;
  DriverContext context_;
  std::optional<StateReader> state_;  // once it is asked for
  LeftToWork left_;
  KernelLoader loader_;
  DelayKernel delay_;  // of Time
  runtime::DeviceProperties properties_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;  // of Time
  CUdeviceptr vars_ = 0;                     // kVarsMax values
  std::vector<int64_t> vars_now_;            // what work queued later finds there
  UploadPieces work_pieces_;  // of the VARs, and uploads that have their place among the work
  std::unique_ptr<UploadStream> uploads_;
  std::unique_ptr<runtime::BlockCache> memory_;
  absl::Mutex downloads_mutex_;
  std::vector<std::unique_ptr<DownloadPieces>> downloads_
      ABSL_GUARDED_BY(downloads_mutex_);  // those that nobody uses now
  bool refused_ = false;                  // NewBlock: the driver had no memory
  bool new_is_for_upload_ = false;        // NewBlock: the caller overwrites it
  int64_t new_bytes_ = 0;                 // NewBlock: of the last one
  bool timing_ = false, begun_ = false;
  BoundLaunch bound_;                   // of Launch; kept, as it is filled often
  std::vector<BoundLaunch> all_bound_;  // of LaunchAll, likewise
  std::vector<size_t> bound_launches_;  // which of LaunchAll's each of these is
  std::vector<void*> pointers_;         // of one launch, likewise
};

}  // namespace

absl::Status CheckThere() { return LoadApi().status(); }

std::vector<runtime::ListedDevice> ListDevices(std::vector<std::string>* left_out) {
  const absl::StatusOr<DriverApi>& api = LoadApi();
  return api.ok() ? ListDevicesOf(*api, left_out) : std::vector<runtime::ListedDevice>();
}

std::vector<runtime::ListedDevice> ListDevicesOf(const DriverApi& api,
                                                 std::vector<std::string>* left_out) {
  std::vector<runtime::ListedDevice> devices;
  int count = 0;
  if (api.cuDeviceGetCount(&count) != CUDA_SUCCESS) return devices;
  // What the driver shows this process, in the driver's order.
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> names;
  if (visible != nullptr) names = absl::StrSplit(visible, ',');
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    size_t bytes = 0;
    absl::StatusOr<CUdevice> gpu = FindGpu(api, ordinal);
    if (gpu.ok())
      if (const CUresult code = api.cuDeviceTotalMem(&bytes, *gpu); code != CUDA_SUCCESS)
        gpu = absl::UnimplementedError(absl::StrCat(
            "CUDA: GPU ", ordinal, " does not tell its memory: ", Describe(api, code)));
    if (!gpu.ok()) {
      if (left_out != nullptr) left_out->emplace_back(gpu.status().message());
      continue;
    }
    DriverContext named(api, *gpu);
    named.FindName();
    const auto place = static_cast<size_t>(ordinal);
    const std::string shown = place < names.size() ? names[place] : absl::StrCat(place);
    devices.push_back({PropertiesOf(named, static_cast<int64_t>(bytes)),
                       {absl::StrCat("CUDA_VISIBLE_DEVICES=", shown)}});
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<runtime::Device>> MakeCudaDevice(
    const runtime::DeviceOptions& options) {
  const absl::StatusOr<DriverApi>& api = LoadApi();
  if (!api.ok()) return api.status();
  return MakeCudaDeviceOf(*api, options);
}

absl::StatusOr<std::unique_ptr<runtime::Device>> MakeCudaDeviceOf(
    const DriverApi& api, const runtime::DeviceOptions& options) {
  const absl::StatusOr<CUdevice> gpu = FindFirstGpu(api);
  if (!gpu.ok()) return gpu.status();
  auto made = std::make_unique<CudaDevice>(api, *gpu, options.warn);
  if (absl::Status status = made->Open(*gpu, options.memory_bytes_max); !status.ok())
    return status;
  return made;
}

}  // namespace outboard::cuda
