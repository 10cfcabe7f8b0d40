// The functions of NVIDIA's driver that the device uses, declared here and loaded on first use, so
// that nothing of the vendor's is needed to build, and the same program runs where no driver is.
//
// Types and names are those of the driver's binary interface, which NVIDIA keeps stable: a function
// whose arguments change gets a new symbol (cuMemAlloc_v2); the old one stays. Integers, pointers
// and structs here have the sizes of x86-64 Linux.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT: the driver's own type
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUarray = struct CUarray_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUlinkState = struct CUlinkState_st*;

// Other values occur; cuGetErrorName knows them.
enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_CONTAINED = 226,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,  // Y and Z follow
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,   // Y and Z follow
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

// Options of cuModuleLoadDataEx and cuLinkCreate. A value is passed in place of its pointer where
// it is a number.
enum CUjit_option : int {
  CU_JIT_ERROR_LOG_BUFFER = 5,             // char*
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,  // unsigned
  CU_JIT_OPTIMIZATION_LEVEL = 7,           // unsigned, 0 to 4
};

enum CUjitInputType : int { CU_JIT_INPUT_PTX = 1 };

inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DEFAULT = 0;
inline constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;

enum CUlaunchAttributeID : int {
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,                  // three unsigned
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,  // int
};
union CUlaunchAttributeValue {
  char pad[64];
  unsigned cluster_dimension[3];
  int programmatic_serialization;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};

struct CUDA_KERNEL_NODE_PARAMS_v2 {
  CUfunction function;  // or nullptr, and `kernel`
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** params;
  void** extra;
  CUkernel kernel;
  CUcontext context;
};

// An edge of a graph: from a place of one node's work to another node.
struct CUgraphEdgeData {
  unsigned char from_port;  // CU_GRAPH_KERNEL_NODE_PORT_...
  unsigned char to_port;
  unsigned char type;  // CU_GRAPH_DEPENDENCY_TYPE_...
  unsigned char reserved[5];
};
// When all blocks of the kernel have let its dependents start, or have left.
inline constexpr unsigned char CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1;
inline constexpr unsigned char CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1;

enum CUmemorytype : int { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

struct CUDA_MEMCPY3D_v2 {
  size_t from_x, from_y, from_z, from_lod;
  CUmemorytype from_type;
  const void* from_host;
  CUdeviceptr from_device;
  CUarray from_array;
  void* reserved0;
  size_t from_pitch, from_height;
  size_t to_x, to_y, to_z, to_lod;
  CUmemorytype to_type;
  void* to_host;
  CUdeviceptr to_device;
  CUarray to_array;
  void* reserved1;
  size_t to_pitch, to_height;
  size_t width, height, depth;  // `width` in bytes
};

struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};

static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56 &&
              sizeof(CUDA_KERNEL_NODE_PARAMS_v2) == 72 && sizeof(CUDA_MEMCPY3D_v2) == 200 &&
              sizeof(CUtensorMap) == 128 && sizeof(CUgraphEdgeData) == 8);

// F(member of DriverApi, symbol in the library, arguments). Every function returns a CUresult.
#define OUTBOARD_CUDA_FUNCTIONS(F)                                                                \
  F(cuInit, cuInit, (unsigned flags))                                                             \
  F(cuDriverGetVersion, cuDriverGetVersion, (int* version))                                       \
  F(cuGetErrorName, cuGetErrorName, (CUresult code, const char** name))                           \
  F(cuGetErrorString, cuGetErrorString, (CUresult code, const char** text))                       \
  F(cuDeviceGetCount, cuDeviceGetCount, (int* count))                                             \
  F(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                   \
  F(cuDeviceGetName, cuDeviceGetName, (char* name, int bytes, CUdevice device))                   \
  F(cuDeviceGetAttribute, cuDeviceGetAttribute,                                                   \
    (int* value, CUdevice_attribute what, CUdevice device))                                       \
  F(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                     \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))   \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                   \
  F(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                        \
  F(cuCtxSynchronize, cuCtxSynchronize, ())                                                       \
  F(cuMemGetInfo, cuMemGetInfo_v2, (size_t * free, size_t * total))                               \
  F(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                             \
  F(cuMemFree, cuMemFree_v2, (CUdeviceptr address))                                               \
  F(cuMemHostAlloc, cuMemHostAlloc, (void** host, size_t bytes, unsigned flags))                  \
  F(cuMemFreeHost, cuMemFreeHost, (void* host))                                                   \
  F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                      \
    (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                            \
  F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                      \
    (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                                  \
  F(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                      \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                            \
  F(cuMemsetD8Async, cuMemsetD8Async,                                                             \
    (CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream))                          \
  F(cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                          \
  F(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                       \
  F(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))                                  \
  F(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))       \
  F(cuEventCreate, cuEventCreate, (CUevent * event, unsigned flags))                              \
  F(cuEventDestroy, cuEventDestroy_v2, (CUevent event))                                           \
  F(cuEventRecord, cuEventRecord, (CUevent event, CUstream stream))                               \
  F(cuEventQuery, cuEventQuery, (CUevent event))                                                  \
  F(cuEventSynchronize, cuEventSynchronize, (CUevent event))                                      \
  F(cuEventElapsedTime, cuEventElapsedTime, (float* milliseconds, CUevent begin, CUevent end))    \
  F(cuModuleLoadDataEx, cuModuleLoadDataEx,                                                       \
    (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values)) \
  F(cuModuleUnload, cuModuleUnload, (CUmodule module))                                            \
  F(cuLinkCreate, cuLinkCreate_v2,                                                                \
    (unsigned count, CUjit_option* options, void** values, CUlinkState* state))                   \
  F(cuLinkAddData, cuLinkAddData_v2,                                                              \
    (CUlinkState state, CUjitInputType type, void* data, size_t bytes, const char* name,          \
     unsigned count, CUjit_option* options, void** values))                                       \
  F(cuLinkComplete, cuLinkComplete, (CUlinkState state, void** cubin, size_t* bytes))             \
  F(cuLinkDestroy, cuLinkDestroy, (CUlinkState state))                                            \
  F(cuModuleGetFunction, cuModuleGetFunction,                                                     \
    (CUfunction * function, CUmodule module, const char* name))                                   \
  F(cuFuncGetAttribute, cuFuncGetAttribute,                                                       \
    (int* value, CUfunction_attribute what, CUfunction function))                                 \
  F(cuFuncSetAttribute, cuFuncSetAttribute,                                                       \
    (CUfunction function, CUfunction_attribute what, int value))                                  \
  F(cuLaunchKernel, cuLaunchKernel,                                                               \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params,   \
     void** extra))                                                                               \
  F(cuGraphCreate, cuGraphCreate, (CUgraph * graph, unsigned flags))                              \
  F(cuGraphDestroy, cuGraphDestroy, (CUgraph graph))                                              \
  F(cuGraphAddKernelNode, cuGraphAddKernelNode_v2,                                                \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t after_count,             \
     const CUDA_KERNEL_NODE_PARAMS_v2* params))                                                   \
  F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                     \
    (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                                \
  F(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2,                            \
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* params))               \
  F(cuGraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                            \
  F(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec exec))

// Used where they are there; nullptr otherwise.
#define OUTBOARD_CUDA_OPTIONAL_FUNCTIONS(F)                                           \
  F(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char* id, int bytes, CUdevice device)) \
  F(cuGraphAddDependencies2, cuGraphAddDependencies_v2,                               \
    (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,                   \
     const CUgraphEdgeData* edges, size_t count))                                     \
  F(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode,                                       \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t after_count, \
     const CUDA_MEMCPY3D_v2* params, CUcontext context))                              \
  F(cuLaunchKernelEx, cuLaunchKernelEx,                                               \
    (const CUlaunchConfig* config, CUfunction function, void** params, void** extra)) \
  F(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters,                       \
    (int* clusters, CUfunction function, const CUlaunchConfig* config))               \
  F(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled,                                   \
    (CUtensorMap * map, int type, uint32_t rank, void* address, const uint64_t* dims, \
     const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,   \
     int interleave, int swizzle, int promotion, int outside))

struct DriverApi {
#define OUTBOARD_CUDA_DECLARE(member, symbol, arguments) CUresult(*member) arguments = nullptr;
  OUTBOARD_CUDA_FUNCTIONS(OUTBOARD_CUDA_DECLARE)
  OUTBOARD_CUDA_OPTIONAL_FUNCTIONS(OUTBOARD_CUDA_DECLARE)
#undef OUTBOARD_CUDA_DECLARE
  int version = 0;  // of CUDA, that the driver offers: 1000 * major + 10 * minor
  // Of the library's file, which differs between two drivers of one CUDA version: its build id, or
  // its path where it has none.
  std::string build;
};

// The oldest that will do: graphs whose nodes name their context (cuGraphAddKernelNode_v2).
inline constexpr int kVersionMin = 12000;

// The library of drivers: OUTBOARD_CUDA_DRIVER, or libcuda.so.1.
std::string DriverLibrary();

// Loads `library`, which stays loaded, and initialises the driver.
// Errors: UNIMPLEMENTED  one line: no such library, one that is too old (with its version and the
//                        one needed) or lacks a function (named), no device, or none
//                        where our kernels run (what FindGpu says of the first)
absl::StatusOr<DriverApi> LoadApiFrom(const std::string& library);

// The driver's GPU of this ordinal, if kernels of ours run there.
// Errors: UNIMPLEMENTED  one line: it does not answer (the driver's words), or its compute
//                        capability and the one needed
absl::StatusOr<CUdevice> FindGpu(const DriverApi& api, int ordinal);
// The first one where they do. Errors: UNIMPLEMENTED  none; what FindGpu says of the first
absl::StatusOr<CUdevice> FindFirstGpu(const DriverApi& api);

// LoadApiFrom(DriverLibrary()), once per process: the same answer for ever. Threads: any.
const absl::StatusOr<DriverApi>& LoadApi();

// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", in the driver's words.
std::string Describe(const DriverApi& api, CUresult code);

}  // namespace outboard::cuda
