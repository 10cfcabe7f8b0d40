// The functions of libOpenCL that the device uses, loaded on first use so that a machine without
// OpenCL can still run every other device. The library is the ICD loader, which finds the drivers.
#pragma once

#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>

namespace outboard::opencl {

#define OUTBOARD_OPENCL_FUNCTIONS(F)    \
  F(clGetPlatformIDs)                   \
  F(clGetDeviceIDs)                     \
  F(clGetDeviceInfo)                    \
  F(clCreateContext)                    \
  F(clReleaseContext)                   \
  F(clCreateCommandQueueWithProperties) \
  F(clReleaseCommandQueue)              \
  F(clCreateProgramWithSource)          \
  F(clBuildProgram)                     \
  F(clGetProgramBuildInfo)              \
  F(clReleaseProgram)                   \
  F(clCreateKernel)                     \
  F(clReleaseKernel)                    \
  F(clGetKernelWorkGroupInfo)           \
  F(clSetKernelArg)                     \
  F(clSetKernelArgSVMPointer)           \
  F(clEnqueueNDRangeKernel)             \
  F(clCreateBuffer)                     \
  F(clReleaseMemObject)                 \
  F(clSVMAlloc)                         \
  F(clSVMFree)                          \
  F(clEnqueueSVMMemcpy)                 \
  F(clEnqueueSVMMemFill)                \
  F(clFinish)                           \
  F(clFlush)                            \
  F(clGetEventProfilingInfo)            \
  F(clReleaseEvent)

struct Api {
#define OUTBOARD_OPENCL_DECLARE(name) decltype(&::name) name = nullptr;
  OUTBOARD_OPENCL_FUNCTIONS(OUTBOARD_OPENCL_DECLARE)
#undef OUTBOARD_OPENCL_DECLARE
};

// Loads the library. nullptr: there is none, or it is older than OpenCL 2.0. Threads: any.
const Api* LoadApi();

}  // namespace outboard::opencl
