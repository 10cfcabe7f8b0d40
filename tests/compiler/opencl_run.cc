#include "tests/compiler/opencl_run.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

#ifdef OUTBOARD_HAS_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <cstdlib>

#include "compiler/render/opencl_c.h"

namespace outboard::test {
namespace {

absl::Status Failed(const char* what, cl_int code, const std::string& words = "") {
  return absl::InternalError(absl::StrCat(what, " failed with ", code, " ", words));
}

class Runner final : public OpenClRunner {
 public:
  bool Open() {
    setenv("POCL_KERNEL_CACHE", "0", /*overwrite=*/0);
    cl_platform_id platform;
    if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS) return false;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device_, nullptr) != CL_SUCCESS)
      return false;
    cl_int code = 0;
    context_ = clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) return false;
    queue_ = clCreateCommandQueue(context_, device_, 0, &code);
    return code == CL_SUCCESS;
  }

  ~Runner() override {
    if (program_ != nullptr) clReleaseProgram(program_);
    if (queue_ != nullptr) clReleaseCommandQueue(queue_);
    if (context_ != nullptr) clReleaseContext(context_);
  }

  absl::Status Build(std::span<const CompiledKernel> kernels, Optimiser optimiser) override {
    if (program_ != nullptr) clReleaseProgram(program_);
    std::vector<const char*> texts;
    std::vector<size_t> lengths;
    for (const CompiledKernel& kernel : kernels) {
      texts.push_back(kernel.object.data());
      lengths.push_back(kernel.object.size());
    }
    cl_int code = 0;
    program_ = clCreateProgramWithSource(context_, static_cast<cl_uint>(texts.size()), texts.data(),
                                         lengths.data(), &code);
    if (code != CL_SUCCESS) return Failed("clCreateProgramWithSource", code);
    std::string options = render::kOpenClBuildOptions;
    if (optimiser == Optimiser::kOff) options += " -cl-opt-disable";
    code = clBuildProgram(program_, 1, &device_, options.c_str(), nullptr, nullptr);
    if (code == CL_SUCCESS) return absl::OkStatus();
    std::string words(1 << 16, '\0');
    clGetProgramBuildInfo(program_, device_, CL_PROGRAM_BUILD_LOG, words.size(), words.data(),
                          nullptr);
    return Failed("clBuildProgram", code, words.c_str());
  }

  absl::Status Run(const CompiledKernel& kernel, Buffers& buffers,
                   std::span<const int64_t> vars) override {
    cl_int code = 0;
    const cl_kernel made = clCreateKernel(program_, kernel.symbol.c_str(), &code);
    if (code != CL_SUCCESS) return Failed("clCreateKernel", code);
    std::vector<cl_mem> memories;
    const auto memory_of = [&](const void* bytes, size_t size) {
      memories.push_back(
          clCreateBuffer(context_, CL_MEM_READ_WRITE, std::max<size_t>(size, 8), nullptr, &code));
      OB_CHECK(code == CL_SUCCESS);
      if (size > 0)
        OB_CHECK(clEnqueueWriteBuffer(queue_, memories.back(), CL_TRUE, 0, size, bytes, 0, nullptr,
                                      nullptr) == CL_SUCCESS);
    };
    for (const std::string& buffer : buffers) memory_of(buffer.data(), buffer.size());
    if (kernel.reads_vars) memory_of(vars.data(), vars.size() * sizeof(int64_t));
    for (size_t i = 0; i < memories.size(); ++i)
      OB_CHECK(clSetKernelArg(made, static_cast<cl_uint>(i), sizeof(cl_mem), &memories[i]) ==
               CL_SUCCESS);
    size_t global[3], local[3];
    for (int d = 0; d < 3; ++d) {
      local[d] = kernel.threads[d];
      global[d] = kernel.blocks[d] * kernel.threads[d];
    }
    absl::Status status;
    if (kernel.tasks > 0)
      if (code =
              clEnqueueNDRangeKernel(queue_, made, 3, nullptr, global, local, 0, nullptr, nullptr);
          code != CL_SUCCESS)
        status = Failed("clEnqueueNDRangeKernel", code);
    for (size_t i = 0; i < buffers.size(); ++i)
      if (!buffers[i].empty())
        OB_CHECK(clEnqueueReadBuffer(queue_, memories[i], CL_TRUE, 0, buffers[i].size(),
                                     buffers[i].data(), 0, nullptr, nullptr) == CL_SUCCESS);
    for (const cl_mem memory : memories) clReleaseMemObject(memory);
    clReleaseKernel(made);
    return status;
  }

 private:
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  cl_program program_ = nullptr;
};

}  // namespace

std::unique_ptr<OpenClRunner> OpenClRunner::Make() {
  auto runner = std::make_unique<Runner>();
  if (!runner->Open()) return nullptr;
  return runner;
}

}  // namespace outboard::test

#else

namespace outboard::test {
std::unique_ptr<OpenClRunner> OpenClRunner::Make() { return nullptr; }
}  // namespace outboard::test

#endif
