#include "runtime/cuda/tensor_maps.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace outboard::cuda {
namespace {

constexpr size_t kMapsMax = 16;  // of a kernel: parameters have 4 KiB
// Of the driver's interface: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion.
constexpr std::array<int, 4> kTypes = {6, 9, 7, 0};  // in the order of MappedTensor::Element
constexpr int kNoInterleave = 0, kNoSwizzle = 0, kSwizzle128 = 3, kWholeLines = 3, kZeros = 0;
constexpr int kMajorMin = 9;

}  // namespace

absl::Status CheckMaps(DriverContext& context, const CompiledKernel& kernel, CUdeviceptr memory) {
  if (kernel.maps.empty()) return absl::OkStatus();
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.symbol, ": a view ", what...));
  };
  if (context.api().cuTensorMapEncodeTiled == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("kernel ", kernel.symbol, " has views of buffers; the driver of CUDA ",
                     context.api().version / 1000, " has no function cuTensorMapEncodeTiled"));
  if (const int major = context.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
      major < kMajorMin)
    return absl::UnimplementedError(
        absl::StrCat("kernel ", kernel.symbol, " has views of buffers; ", context.name(),
                     " has compute capability ", major, ", not ", kMajorMin));
  if (kernel.maps.size() > kMapsMax)
    return bad("is one of ", kernel.maps.size(), "; limit ", kMapsMax);
  for (const MappedTensor& map : kernel.maps) {
    if (map.slot < 0 || map.slot >= kernel.buffer_count) return bad("is of slot ", map.slot);
    if (static_cast<size_t>(map.element) >= kTypes.size())
      return bad("has elements of type ", static_cast<int>(map.element));
    if (map.rank() < MappedTensor::kRankMin || map.rank() > MappedTensor::kRankMax ||
        map.box.size() != map.dims.size() || map.strides.size() + 1 != map.dims.size())
      return bad("has ", map.rank(), " dimensions");
    for (const int64_t length : map.dims)
      if (length < 1) return bad("has ", length, " elements along a dimension");
    for (const int64_t length : map.box)
      if (length < 1 || length > MappedTensor::kBoxMax)
        return bad("has a box of ", length, " elements along a dimension");
    for (const int64_t bytes : map.strides)
      if (bytes < 1 || bytes % MappedTensor::kStrideAlign != 0)
        return bad("has a stride of ", bytes, " bytes");
    CUtensorMap encoded;
    if (absl::Status status = EncodeMap(context, map, memory, &encoded); !status.ok())
      return absl::Status(status.code(),
                          absl::StrCat("kernel ", kernel.symbol, ": a view: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status EncodeMap(DriverContext& context, const MappedTensor& map, CUdeviceptr address,
                       CUtensorMap* out) {
  std::array<uint64_t, MappedTensor::kRankMax> dims{}, strides{};
  std::array<uint32_t, MappedTensor::kRankMax> box{}, steps{};
  for (size_t d = 0; d < map.dims.size(); ++d) {
    dims[d] = static_cast<uint64_t>(map.dims[d]);
    if (d > 0) strides[d - 1] = static_cast<uint64_t>(map.strides[d - 1]);
    box[d] = static_cast<uint32_t>(map.box[d]);
    steps[d] = 1;
  }
  OB_CUDA(context, cuTensorMapEncodeTiled, out, kTypes[static_cast<size_t>(map.element)],
          static_cast<uint32_t>(map.rank()), reinterpret_cast<void*>(address), dims.data(),
          strides.data(), box.data(), steps.data(), kNoInterleave,
          map.swizzled ? kSwizzle128 : kNoSwizzle, kWholeLines, kZeros);
  return absl::OkStatus();
}

}  // namespace outboard::cuda
