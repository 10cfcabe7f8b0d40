#include "runtime/cuda/kernel.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/tensor_maps.h"
#include "runtime/limits.h"

namespace outboard::cuda {
namespace {

// Of PTX: waits until the launches that this one depends on are done.
constexpr std::string_view kWaits = "griddepcontrol.wait;";
// Of PTX: so many blocks are a cluster, which the hardware runs at once.
constexpr std::string_view kOfClusters = ".reqnctapercluster";

uint64_t NextSerial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// The views of each copy, of its own buffers.
std::vector<MappedTensor> MapsOfAll(const CompiledKernel& kernel) {
  std::vector<MappedTensor> maps;
  for (int copy = 0; copy < kernel.copies; ++copy)
    for (const MappedTensor& map : kernel.maps) {
      maps.push_back(map);
      maps.back().slot += copy * kernel.buffer_count;
    }
  return maps;
}

}  // namespace

CudaKernel::CudaKernel(const CompiledKernel& kernel, LeftToWork* left)
    : DeviceKernel(kernel),
      reads_vars(kernel.reads_vars),
      waits(kernel.object.find(kWaits) != std::string::npos),
      copies(kernel.copies),
      maps(MapsOfAll(kernel)),
      serial(NextSerial()),
      left_(left) {
  for (int axis = 0; axis < 3; ++axis) {
    blocks[axis] = static_cast<unsigned>(kernel.blocks[axis]);
    threads[axis] = static_cast<unsigned>(kernel.threads[axis]);
  }
}

std::vector<runtime::LoadedKernel> KernelLoader::Load(std::span<const CompiledKernel> compiled) {
  std::vector<runtime::LoadedKernel> loaded;
  std::vector<std::optional<Linker::Linked>> modules(compiled.size());
  absl::flat_hash_map<std::string_view, size_t> first;  // of the texts that are linked now
  std::vector<size_t> missing;
  absl::erase_if(by_text_, [](const auto& entry) { return entry.second.expired(); });
  for (size_t i = 0; i < compiled.size(); ++i) {
    loaded.push_back(std::make_unique<CudaKernel>(compiled[i], left_));
    if (compiled[i].tasks <= 0) continue;
    if (absl::Status fits = CheckFits(compiled[i]); !fits.ok()) {
      loaded.back() = fits;
    } else if (const auto known = by_text_.find(compiled[i].object); known != by_text_.end()) {
      modules[i] = known->second.lock();
    } else if (first.try_emplace(compiled[i].object, i).second) {
      missing.push_back(i);
    }
  }
  std::vector<const std::string*> texts;
  for (const size_t i : missing) texts.push_back(&compiled[i].object);
  std::vector<Linker::Linked> linked = linker_.Link(texts);
  for (size_t m = 0; m < missing.size(); ++m) modules[missing[m]] = std::move(linked[m]);
  for (size_t i = 0; i < compiled.size(); ++i) {
    if (!loaded[i].ok() || compiled[i].tasks <= 0) continue;
    const Linker::Linked& module =
        modules[i].has_value() ? *modules[i] : *modules[first.at(compiled[i].object)];
    absl::Status status = module.status();
    if (status.ok()) {
      by_text_[compiled[i].object] = *module;
      auto& kernel = static_cast<CudaKernel&>(**loaded[i]);
      kernel.module = *module;
      status = FindFunction(compiled[i], kernel);
    } else {
      status = absl::Status(status.code(),
                            absl::StrCat("kernel ", compiled[i].symbol, ": ", status.message()));
    }
    if (!status.ok()) loaded[i] = status;
  }
  return loaded;
}

absl::Status KernelLoader::CheckFits(const CompiledKernel& kernel) const {
  if (kernel.form != CompiledKernel::Form::kPtx)
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.symbol, " is no PTX, which ", context_->name(), " wants"));
  if (kernel.copies < 1 || kernel.copies > CompiledKernel::kCopiesMax ||
      (kernel.copies > 1 && kernel.blocks[2] != kernel.copies))
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.symbol, " has ", kernel.copies,
                                                   " copies in ", kernel.blocks[2],
                                                   " layers of blocks; at most ",
                                                   CompiledKernel::kCopiesMax));
  int64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const auto at = [axis](CUdevice_attribute first) {
      return static_cast<CUdevice_attribute>(static_cast<int>(first) + axis);
    };
    if (kernel.blocks[axis] <= 0 || kernel.threads[axis] <= 0 ||
        __builtin_mul_overflow(threads, kernel.threads[axis], &threads))
      return absl::InvalidArgumentError(
          absl::StrCat("kernel ", kernel.symbol, " has no blocks or threads on axis ", axis));
    const int blocks_max = context_->Attribute(at(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X));
    const int threads_max = context_->Attribute(at(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X));
    if (kernel.blocks[axis] > blocks_max || kernel.threads[axis] > threads_max)
      return absl::UnimplementedError(
          absl::StrCat("kernel ", kernel.symbol, " has ", kernel.blocks[axis], " blocks of ",
                       kernel.threads[axis], " threads on axis ", axis, "; ", context_->name(),
                       " has at most ", blocks_max, " of ", threads_max));
  }
  if (const int most = context_->Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      threads > most)
    return absl::UnimplementedError(absl::StrCat("kernel ", kernel.symbol, " has blocks of ",
                                                 threads, " threads; ", context_->name(),
                                                 " has at most ", most));
  if (const int most = context_->Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
      kernel.shared_bytes > most)
    return absl::UnimplementedError(absl::StrCat("kernel ", kernel.symbol, " wants ",
                                                 kernel.shared_bytes, " bytes of shared memory; ",
                                                 context_->name(), " has ", most));
  if (absl::Status status = CheckMaps(*context_, kernel, memory_); !status.ok()) return status;
  if (kernel.object.size() > limits::kObjectBytesMax)
    return absl::ResourceExhaustedError(absl::StrCat("kernel ", kernel.symbol, " of ",
                                                     kernel.object.size(), " bytes; limit ",
                                                     limits::kObjectBytesMax));
  return absl::OkStatus();
}

absl::Status KernelLoader::FindFunction(const CompiledKernel& compiled, CudaKernel& kernel) {
  const DriverApi& api = context_->api();
  const CUresult code =
      api.cuModuleGetFunction(&kernel.function, kernel.module->get(), compiled.symbol.c_str());
  if (code == CUDA_ERROR_NOT_FOUND)
    return absl::NotFoundError(absl::StrCat("CUDA: the PTX has no kernel ", compiled.symbol));
  if (code != CUDA_SUCCESS) return context_->Check(code, "cuModuleGetFunction");
  int most = 0, declared = 0;
  OB_CUDA(*context_, cuFuncGetAttribute, &most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
          kernel.function);
  OB_CUDA(*context_, cuFuncGetAttribute, &declared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
          kernel.function);
  const int64_t threads =
      compiled.threads[0] * compiled.threads[1] * compiled.threads[2];  // checked: no overflow
  if (threads > most)
    return absl::ResourceExhaustedError(absl::StrCat("kernel ", compiled.symbol, " has blocks of ",
                                                     threads, " threads; on ", context_->name(),
                                                     " its registers leave room for ", most));
  if (compiled.shared_bytes > declared) {
    kernel.shared_bytes = static_cast<unsigned>(compiled.shared_bytes - declared);
    int allowed = 0;  // of another kernel of this text, it may be more
    OB_CUDA(*context_, cuFuncGetAttribute, &allowed,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.function);
    if (static_cast<int>(kernel.shared_bytes) > allowed)
      OB_CUDA(*context_, cuFuncSetAttribute, kernel.function,
              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              static_cast<int>(kernel.shared_bytes));
  }
  return CheckClusters(compiled, kernel);
}

// Code for sm_90 runs on newer devices, of which some have fewer multiprocessors side by side or
// less memory in each. Drivers that cannot be asked are of CUDA before 11.8.
absl::Status KernelLoader::CheckClusters(const CompiledKernel& compiled, const CudaKernel& kernel) {
  if (context_->api().cuOccupancyMaxActiveClusters == nullptr ||
      compiled.object.find(kOfClusters) == std::string::npos)
    return absl::OkStatus();
  // Without attributes: the text says how many blocks a cluster has.
  const CUlaunchConfig config{.grid_x = kernel.blocks[0],
                              .grid_y = kernel.blocks[1],
                              .grid_z = kernel.blocks[2],
                              .block_x = kernel.threads[0],
                              .block_y = kernel.threads[1],
                              .block_z = kernel.threads[2],
                              .shared_bytes = kernel.shared_bytes};
  int clusters = 0;
  OB_CUDA(*context_, cuOccupancyMaxActiveClusters, &clusters, kernel.function, &config);
  if (clusters > 0) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("kernel ", compiled.symbol, " has clusters of blocks of ", compiled.threads[0],
                   " threads with ", compiled.shared_bytes, " bytes of shared memory; ",
                   context_->name(), " has room for none"));
}

}  // namespace outboard::cuda
