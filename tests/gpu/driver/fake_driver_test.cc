// The fake driver through dlopen, as programs load the real one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/driver/types.h"

namespace outboard::fake_cuda {
namespace {

constexpr char kAddOne[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 p, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.s32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.f32 %f1, [%rd3];
  add.rn.f32 %f2, %f1, 0f3F800000;
  st.global.f32 [%rd3], %f2;
DONE:
  ret;
}
)";

// The functions of the driver by name; each test file declares what it calls.
class FakeDriver : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    library_ = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    ASSERT_EQ(Call<int(unsigned)>("cuInit")(0), kSuccess);
    void* context = nullptr;
    ASSERT_EQ((Call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0)), kSuccess);
    ASSERT_EQ(Call<int(void*)>("cuCtxSetCurrent")(context), kSuccess);
  }
  void TearDown() override { Call<void()>("outboard_fake_cuda_clear_reports")(); }

  template <class F>
  static F* Call(const char* name) {
    void* found = dlsym(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<F*>(found);
  }
  static std::string Reports(int* count) {
    std::string text(1 << 16, 0);
    *count = Call<int(char*, size_t)>("outboard_fake_cuda_reports")(text.data(), text.size());
    return text.substr(0, text.find('\0'));
  }
  static DevicePointer Allocate(size_t bytes) {
    DevicePointer address = 0;
    EXPECT_EQ((Call<int(DevicePointer*, size_t)>("cuMemAlloc_v2")(&address, bytes)), kSuccess);
    return address;
  }
  static void* Function(const char* ptx, const char* name) {
    void *module = nullptr, *function = nullptr;
    EXPECT_EQ((Call<int(void**, const void*)>("cuModuleLoadData")(&module, ptx)), kSuccess);
    EXPECT_EQ((Call<int(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, name)), kSuccess);
    return function;
  }
  static Result Launch(void* function, unsigned grid, unsigned block, void* stream, void** arguments) {
    return Call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>(
        "cuLaunchKernel")(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, nullptr);
  }

  static inline void* library_ = nullptr;
};

TEST_F(FakeDriver, Kernel_AddsOne) {
  std::vector<float> values(100, 2.5f);
  const DevicePointer address = Allocate(400);
  ASSERT_EQ((Call<int(DevicePointer, const void*, size_t)>("cuMemcpyHtoD_v2")(address, values.data(), 400)), kSuccess);
  int n = 100;
  DevicePointer argument = address;
  void* arguments[] = {&argument, &n};
  ASSERT_EQ(Launch(Function(kAddOne, "add_one"), 4, 32, nullptr, arguments), kSuccess);
  argument = 0;  // arguments are read by the call
  ASSERT_EQ((Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(values.data(), address, 400)), kSuccess);
  EXPECT_EQ(values, std::vector<float>(100, 3.5f));
  int count = 0;
  EXPECT_EQ(Reports(&count), "");
}

TEST_F(FakeDriver, StreamWork_IsLateAndOrderedByEvents) {
  void *first = nullptr, *second = nullptr, *event = nullptr;
  ASSERT_EQ((Call<int(void**, unsigned)>("cuStreamCreate")(&first, 1)), kSuccess);
  ASSERT_EQ((Call<int(void**, unsigned)>("cuStreamCreate")(&second, 1)), kSuccess);
  ASSERT_EQ((Call<int(void**, unsigned)>("cuEventCreate")(&event, 0)), kSuccess);
  void* pinned = nullptr;
  ASSERT_EQ((Call<int(void**, size_t, unsigned)>("cuMemHostAlloc")(&pinned, 128, 0)), kSuccess);
  auto* host = static_cast<float*>(pinned);
  const DevicePointer address = Allocate(128);
  for (int round = 0; round < 8; ++round) {
    for (int i = 0; i < 32; ++i) host[i] = static_cast<float>(i);
    void* function = Function(kAddOne, "add_one");
    ASSERT_EQ((Call<int(DevicePointer, const void*, size_t, void*)>("cuMemcpyHtoDAsync_v2")(address, host, 128, first)), kSuccess);
    ASSERT_EQ((Call<int(void*, void*)>("cuEventRecord")(event, first)), kSuccess);
    ASSERT_EQ((Call<int(void*, void*, unsigned)>("cuStreamWaitEvent")(second, event, 0)), kSuccess);
    int n = 32;
    DevicePointer argument = address;
    void* arguments[] = {&argument, &n};
    ASSERT_EQ(Launch(function, 1, 32, second, arguments), kSuccess);
    ASSERT_EQ((Call<int(void*, DevicePointer, size_t, void*)>("cuMemcpyDtoHAsync_v2")(host, address, 128, second)), kSuccess);
    ASSERT_EQ(Call<int(void*)>("cuStreamSynchronize")(second), kSuccess);
    for (int i = 0; i < 32; ++i) ASSERT_EQ(host[i], static_cast<float>(i + 1));
  }
}

TEST_F(FakeDriver, GraphsArePatched) {
  const DevicePointer one = Allocate(128), two = Allocate(128);
  Call<int(DevicePointer, unsigned, size_t)>("cuMemsetD32_v2")(one, 0, 32);
  Call<int(DevicePointer, unsigned, size_t)>("cuMemsetD32_v2")(two, 0, 32);
  void *graph = nullptr, *exec = nullptr, *stream = nullptr;
  void* nodes[2];
  ASSERT_EQ((Call<int(void**, unsigned)>("cuGraphCreate")(&graph, 0)), kSuccess);
  DevicePointer argument = one;
  int n = 32;
  void* arguments[] = {&argument, &n};
  KernelNodeParams params = {Function(kAddOne, "add_one"), {1, 1, 1}, {32, 1, 1}, 0, arguments, nullptr, nullptr, nullptr};
  using AddKernel = int(void**, void*, void* const*, size_t, const KernelNodeParams*);
  ASSERT_EQ(Call<AddKernel>("cuGraphAddKernelNode_v2")(&nodes[0], graph, nullptr, 0, &params), kSuccess);
  ASSERT_EQ(Call<AddKernel>("cuGraphAddKernelNode_v2")(&nodes[1], graph, &nodes[0], 1, &params), kSuccess);
  ASSERT_EQ((Call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&exec, graph, 0)), kSuccess);
  ASSERT_EQ((Call<int(void**, unsigned)>("cuStreamCreate")(&stream, 1)), kSuccess);
  ASSERT_EQ((Call<int(void*, void*)>("cuGraphLaunch")(exec, stream)), kSuccess);
  argument = two;  // for the second launch only
  ASSERT_EQ((Call<int(void*, void*, const KernelNodeParams*)>("cuGraphExecKernelNodeSetParams_v2")(exec, nodes[1], &params)), kSuccess);
  ASSERT_EQ((Call<int(void*, void*)>("cuGraphLaunch")(exec, stream)), kSuccess);
  ASSERT_EQ(Call<int(void*)>("cuStreamSynchronize")(stream), kSuccess);
  float values[2];
  Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(&values[0], one, 4);
  Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(&values[1], two, 4);
  EXPECT_EQ(values[0], 3.0f);
  EXPECT_EQ(values[1], 1.0f);
}

TEST_F(FakeDriver, CaptureOfTwoStreams_IsOneGraph) {
  void *first = nullptr, *second = nullptr, *fork = nullptr, *join = nullptr, *graph = nullptr, *exec = nullptr;
  Call<int(void**, unsigned)>("cuStreamCreate")(&first, 1);
  Call<int(void**, unsigned)>("cuStreamCreate")(&second, 1);
  Call<int(void**, unsigned)>("cuEventCreate")(&fork, 2);
  Call<int(void**, unsigned)>("cuEventCreate")(&join, 2);
  const DevicePointer one = Allocate(128), two = Allocate(128);
  using FillAsync = int(DevicePointer, unsigned, size_t, void*);
  ASSERT_EQ((Call<int(void*, int)>("cuStreamBeginCapture_v2")(first, 0)), kSuccess);
  Call<FillAsync>("cuMemsetD32Async")(one, 0x3f800000, 32, first);
  Call<int(void*, void*)>("cuEventRecord")(fork, first);
  ASSERT_EQ((Call<int(void*, void*, unsigned)>("cuStreamWaitEvent")(second, fork, 0)), kSuccess);
  Call<int(DevicePointer, DevicePointer, size_t, void*)>("cuMemcpyDtoDAsync_v2")(two, one, 128, second);
  Call<int(void*, void*)>("cuEventRecord")(join, second);
  Call<int(void*, void*, unsigned)>("cuStreamWaitEvent")(first, join, 0);
  ASSERT_EQ((Call<int(void*, void**)>("cuStreamEndCapture")(first, &graph)), kSuccess);
  size_t count = 0;
  Call<int(void*, void**, size_t*)>("cuGraphGetNodes")(graph, nullptr, &count);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ((Call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&exec, graph, 0)), kSuccess);
  ASSERT_EQ((Call<int(void*, void*)>("cuGraphLaunch")(exec, first)), kSuccess);
  ASSERT_EQ(Call<int(void*)>("cuStreamSynchronize")(first), kSuccess);
  float value = 0;
  Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(&value, two, 4);
  EXPECT_EQ(value, 1.0f);
}

TEST_F(FakeDriver, LinkedCubin_Loads) {
  void *link = nullptr, *cubin = nullptr, *module = nullptr;
  size_t bytes = 0;
  ASSERT_EQ((Call<int(unsigned, int*, void**, void**)>("cuLinkCreate_v2")(0, nullptr, nullptr, &link)), kSuccess);
  ASSERT_EQ((Call<int(void*, int, void*, size_t, const char*, unsigned, int*, void**)>("cuLinkAddData_v2")(
                link, 1, const_cast<char*>(kAddOne), sizeof(kAddOne), "k", 0, nullptr, nullptr)),
            kSuccess);
  ASSERT_EQ((Call<int(void*, void**, size_t*)>("cuLinkComplete")(link, &cubin, &bytes)), kSuccess);
  const std::string copy(static_cast<char*>(cubin), bytes);
  ASSERT_EQ(Call<int(void*)>("cuLinkDestroy")(link), kSuccess);
  EXPECT_EQ((Call<int(void**, const void*)>("cuModuleLoadData")(&module, copy.data())), kSuccess);
}

TEST_F(FakeDriver, BadPtx_IsRefusedWithALog) {
  char log[256] = {};
  int options[] = {5, 6};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  void* module = nullptr;
  std::string ptx(kAddOne);
  ptx.replace(ptx.find("mul.wide"), 8, "mul.odd");
  EXPECT_EQ((Call<int(void**, const void*, unsigned, int*, void**)>("cuModuleLoadDataEx")(&module, ptx.c_str(), 2, options, values)), kInvalidPtx);
  EXPECT_NE(std::string(log).find("odd"), std::string::npos) << log;
  ptx = kAddOne;
  ptx.replace(ptx.find("sm_80"), 5, "sm_99");
  EXPECT_EQ((Call<int(void**, const void*)>("cuModuleLoadData")(&module, ptx.c_str())), kNoBinary);
}

TEST_F(FakeDriver, NthAllocation_FailsOnDemand) {
  auto* allocate = Call<int(DevicePointer*, size_t)>("cuMemAlloc_v2");
  ASSERT_EQ((Call<int(const char*, int)>("outboard_fake_cuda_fault")("alloc", 2)), 1);
  DevicePointer address = 0;
  EXPECT_EQ(allocate(&address, 16), kSuccess);
  EXPECT_EQ(allocate(&address, 16), kOutOfMemory);
  EXPECT_EQ(allocate(&address, 16), kSuccess);
  EXPECT_EQ(allocate(&address, size_t{1} << 40), kOutOfMemory);
  EXPECT_EQ((Call<int(const char*, int)>("outboard_fake_cuda_fault")("unheard-of", 2)), 0);
}

// Last, since nothing runs on the device afterwards.
TEST_F(FakeDriver, IllegalAddress_IsStickyAndReported) {
  int n = 32;
  DevicePointer argument = 64;
  void* arguments[] = {&argument, &n};
  ASSERT_EQ(Launch(Function(kAddOne, "add_one"), 1, 32, nullptr, arguments), kSuccess);
  EXPECT_EQ(Call<int()>("cuCtxSynchronize")(), kIllegalAddress);
  DevicePointer address = 0;
  EXPECT_EQ((Call<int(DevicePointer*, size_t)>("cuMemAlloc_v2")(&address, 16)), kIllegalAddress);
  int count = 0;
  const std::string reports = Reports(&count);
  EXPECT_EQ(count, 1);
  EXPECT_NE(reports.find("out-of-bounds: kernel add_one, line 21"), std::string::npos) << reports;
}

}  // namespace
}  // namespace outboard::fake_cuda
