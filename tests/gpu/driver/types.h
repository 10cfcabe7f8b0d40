// The part of CUDA's driver API that the fake driver serves: types as the ABI has them, by the
// public documentation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::fake_cuda {

using Result = int;  // CUresult

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinary = 209,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureImplicit = 906,
  kGraphUpdateFailure = 910,
  kUnknown = 999,
};

using DevicePointer = uint64_t;  // CUdeviceptr
using DeviceOrdinal = int;       // CUdevice

// CUlaunchAttribute: an id, padding to 8, and a union of 64 bytes.
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int number;
  } value;
};
inline constexpr int kAttributeCluster = 4;
inline constexpr int kAttributeProgrammatic = 6;

struct LaunchExConfig {  // CUlaunchConfig
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2; v1 ends before `kernel`
  void* function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  void* context;
};

struct EdgeData {  // CUgraphEdgeData
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
};
inline constexpr int kEdgeProgrammatic = 1;  // as a port, and as a type

struct MemsetNodeParams {  // CUDA_MEMSET_NODE_PARAMS
  DevicePointer target;
  size_t pitch;
  unsigned value;
  unsigned element_bytes;
  size_t width;
  size_t height;
};

struct HostNodeParams {  // CUDA_HOST_NODE_PARAMS
  void (*function)(void*);
  void* data;
};

struct Copy3D {  // CUDA_MEMCPY3D
  size_t source_x, source_y, source_z, source_lod;
  int source_type;
  const void* source_host;
  DevicePointer source_device;
  void* source_array;
  void* reserved0;
  size_t source_pitch, source_height;
  size_t target_x, target_y, target_z, target_lod;
  int target_type;
  void* target_host;
  DevicePointer target_device;
  void* target_array;
  void* reserved1;
  size_t target_pitch, target_height;
  size_t width_bytes, height, depth;
};
inline constexpr int kMemoryHost = 1;
inline constexpr int kMemoryDevice = 2;
inline constexpr int kMemoryUnified = 4;

}  // namespace outboard::fake_cuda
