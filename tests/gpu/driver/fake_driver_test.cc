// The fake driver through dlopen, as programs load the real one.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/driver/types.h"
#include "tests/support/paths.h"

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
    library_ = dlopen(test::kFakeCuda, RTLD_NOW | RTLD_LOCAL);
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
    EXPECT_EQ(
        (Call<int(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, name)),
        kSuccess);
    return function;
  }
  static Result Launch(void* function, unsigned grid, unsigned block, void* stream,
                       void** arguments) {
    return Call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    void*, void**, void**)>("cuLaunchKernel")(function, grid, 1, 1, block, 1, 1, 0,
                                                              stream, arguments, nullptr);
  }

  static inline void* library_ = nullptr;
};

TEST_F(FakeDriver, Kernel_AddsOne) {
  std::vector<float> values(100, 2.5f);
  const DevicePointer address = Allocate(400);
  ASSERT_EQ((Call<int(DevicePointer, const void*, size_t)>("cuMemcpyHtoD_v2")(address,
                                                                              values.data(), 400)),
            kSuccess);
  int n = 100;
  DevicePointer argument = address;
  void* arguments[] = {&argument, &n};
  ASSERT_EQ(Launch(Function(kAddOne, "add_one"), 4, 32, nullptr, arguments), kSuccess);
  argument = 0;  // arguments are read by the call
  ASSERT_EQ(
      (Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(values.data(), address, 400)),
      kSuccess);
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
    ASSERT_EQ((Call<int(DevicePointer, const void*, size_t, void*)>("cuMemcpyHtoDAsync_v2")(
                  address, host, 128, first)),
              kSuccess);
    ASSERT_EQ((Call<int(void*, void*)>("cuEventRecord")(event, first)), kSuccess);
    ASSERT_EQ((Call<int(void*, void*, unsigned)>("cuStreamWaitEvent")(second, event, 0)), kSuccess);
    int n = 32;
    DevicePointer argument = address;
    void* arguments[] = {&argument, &n};
    ASSERT_EQ(Launch(function, 1, 32, second, arguments), kSuccess);
    ASSERT_EQ((Call<int(void*, DevicePointer, size_t, void*)>("cuMemcpyDtoHAsync_v2")(host, address,
                                                                                      128, second)),
              kSuccess);
    ASSERT_EQ(Call<int(void*)>("cuStreamSynchronize")(second), kSuccess);
    for (int i = 0; i < 32; ++i) ASSERT_EQ(host[i], static_cast<float>(i + 1));
  }
}

TEST_F(FakeDriver, GraphsArePatched) {
  const DevicePointer one = Allocate(128), two = Allocate(128);
  Call<int(DevicePointer, unsigned, size_t)>("cuMemsetD32_v2")(one, 0, 32);
  Call<int(DevicePointer, unsigned, size_t)>("cuMemsetD32_v2")(two, 0, 32);
  // A blocking stream: it waits for the fills, which are in the legacy stream.
  void *graph = nullptr, *exec = nullptr, *stream = nullptr;
  void* nodes[2];
  ASSERT_EQ((Call<int(void**, unsigned)>("cuGraphCreate")(&graph, 0)), kSuccess);
  DevicePointer argument = one;
  int n = 32;
  void* arguments[] = {&argument, &n};
  KernelNodeParams params = {
      Function(kAddOne, "add_one"), {1, 1, 1}, {32, 1, 1}, 0, arguments, nullptr, nullptr, nullptr};
  using AddKernel = int(void**, void*, void* const*, size_t, const KernelNodeParams*);
  ASSERT_EQ(Call<AddKernel>("cuGraphAddKernelNode_v2")(&nodes[0], graph, nullptr, 0, &params),
            kSuccess);
  ASSERT_EQ(Call<AddKernel>("cuGraphAddKernelNode_v2")(&nodes[1], graph, &nodes[0], 1, &params),
            kSuccess);
  ASSERT_EQ((Call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&exec,
                                                                                         graph, 0)),
            kSuccess);
  ASSERT_EQ((Call<int(void**, unsigned)>("cuStreamCreate")(&stream, 0)), kSuccess);
  ASSERT_EQ((Call<int(void*, void*)>("cuGraphLaunch")(exec, stream)), kSuccess);
  argument = two;  // for the second launch only
  ASSERT_EQ((Call<int(void*, void*, const KernelNodeParams*)>("cuGraphExecKernelNodeSetParams_v2")(
                exec, nodes[1], &params)),
            kSuccess);
  ASSERT_EQ((Call<int(void*, void*)>("cuGraphLaunch")(exec, stream)), kSuccess);
  ASSERT_EQ(Call<int(void*)>("cuStreamSynchronize")(stream), kSuccess);
  float values[2];
  Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(&values[0], one, 4);
  Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(&values[1], two, 4);
  EXPECT_EQ(values[0], 3.0f);
  EXPECT_EQ(values[1], 1.0f);
}

TEST_F(FakeDriver, CaptureOfTwoStreams_IsOneGraph) {
  void *first = nullptr, *second = nullptr, *fork = nullptr, *join = nullptr, *graph = nullptr,
       *exec = nullptr;
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
  Call<int(DevicePointer, DevicePointer, size_t, void*)>("cuMemcpyDtoDAsync_v2")(two, one, 128,
                                                                                 second);
  Call<int(void*, void*)>("cuEventRecord")(join, second);
  Call<int(void*, void*, unsigned)>("cuStreamWaitEvent")(first, join, 0);
  ASSERT_EQ((Call<int(void*, void**)>("cuStreamEndCapture")(first, &graph)), kSuccess);
  size_t count = 0;
  Call<int(void*, void**, size_t*)>("cuGraphGetNodes")(graph, nullptr, &count);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ((Call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&exec,
                                                                                         graph, 0)),
            kSuccess);
  ASSERT_EQ((Call<int(void*, void*)>("cuGraphLaunch")(exec, first)), kSuccess);
  ASSERT_EQ(Call<int(void*)>("cuStreamSynchronize")(first), kSuccess);
  float value = 0;
  Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(&value, two, 4);
  EXPECT_EQ(value, 1.0f);
}

TEST_F(FakeDriver, LinkedCubin_Loads) {
  void *link = nullptr, *cubin = nullptr, *module = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(
      (Call<int(unsigned, int*, void**, void**)>("cuLinkCreate_v2")(0, nullptr, nullptr, &link)),
      kSuccess);
  ASSERT_EQ((Call<int(void*, int, void*, size_t, const char*, unsigned, int*, void**)>(
                "cuLinkAddData_v2")(link, 1, const_cast<char*>(kAddOne), sizeof(kAddOne), "k", 0,
                                    nullptr, nullptr)),
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
  EXPECT_EQ((Call<int(void**, const void*, unsigned, int*, void**)>("cuModuleLoadDataEx")(
                &module, ptx.c_str(), 2, options, values)),
            kInvalidPtx);
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

// ---- what ends a context: each on a driver of its own

// A copy of the library, which has read `variables`: nothing that it does touches the other's.
class FreshDriver {
 public:
  using Variables = std::vector<std::pair<const char*, const char*>>;
  explicit FreshDriver(const Variables& variables = {}) {
    std::string name = "/tmp/fake_cuda_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/libcuda.so.1";
    std::filesystem::copy_file(test::kFakeCuda, path_);
    for (const auto& [key, value] : variables) setenv(key, value, 1);
    library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    EXPECT_EQ(Call<int(unsigned)>("cuInit")(0), kSuccess);
    for (const auto& [key, value] : variables) unsetenv(key);
    EXPECT_EQ((Call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context_, 0)), kSuccess);
    Enter();
  }
  // The library stays: its thread may be in a kernel.
  ~FreshDriver() { std::filesystem::remove_all(folder_); }

  template <class F>
  F* Call(const char* name) const {
    void* found = dlsym(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<F*>(found);
  }
  void Enter() const {  // a thread
    EXPECT_EQ(Call<int(void*)>("cuCtxSetCurrent")(context_), kSuccess);
  }
  void Fault(const char* name, int nth) const {
    EXPECT_EQ((Call<int(const char*, int)>("outboard_fake_cuda_fault")(name, nth)), 1) << name;
  }
  DevicePointer Allocate(size_t bytes) const {
    DevicePointer address = 0;
    EXPECT_EQ((Call<int(DevicePointer*, size_t)>("cuMemAlloc_v2")(&address, bytes)), kSuccess);
    return address;
  }
  std::string Read(DevicePointer address, size_t bytes) const {
    std::string values(bytes, 0);
    EXPECT_EQ(
        (Call<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2")(values.data(), address, bytes)),
        kSuccess);
    return values;
  }
  void* Kernel(const char* ptx, const char* name) const {
    void *module = nullptr, *function = nullptr;
    EXPECT_EQ((Call<int(void**, const void*)>("cuModuleLoadData")(&module, ptx)), kSuccess);
    EXPECT_EQ(
        (Call<int(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, name)),
        kSuccess);
    return function;
  }
  // What the linker makes of a text.
  std::string Linked(const std::string& ptx) const {
    void *link = nullptr, *cubin = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(
        (Call<int(unsigned, int*, void**, void**)>("cuLinkCreate_v2")(0, nullptr, nullptr, &link)),
        kSuccess);
    EXPECT_EQ(
        (Call<int(void*, int, const void*, size_t, const char*, unsigned, int*, void**)>(
            "cuLinkAddData_v2")(link, 1, ptx.c_str(), ptx.size() + 1, "k", 0, nullptr, nullptr)),
        kSuccess);
    EXPECT_EQ((Call<int(void*, void**, size_t*)>("cuLinkComplete")(link, &cubin, &bytes)),
              kSuccess);
    return {static_cast<char*>(cubin), bytes};
  }
  std::string Reports() const {
    std::string text(1 << 16, 0);
    Call<int(char*, size_t)>("outboard_fake_cuda_reports")(text.data(), text.size());
    return text.substr(0, text.find('\0'));
  }
  // Of one block.
  Result Launch(void* function, DevicePointer pointer, int threads = 32) const {
    int n = threads;
    void* arguments[] = {&pointer, &n};
    return Call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    void*, void**, void**)>("cuLaunchKernel")(
        function, 1, 1, 1, static_cast<unsigned>(threads), 1, 1, 0, nullptr, arguments, nullptr);
  }

 private:
  std::string folder_, path_;
  void *library_ = nullptr, *context_ = nullptr;
};

std::string WithLineBefore(const char* line, const char* added) {
  std::string text = kAddOne;
  text.insert(text.find(line), added);
  return text;
}

// `text` on a driver of its own, at an address that is there.
Result EndOf(const FreshDriver& driver, const char* text = kAddOne) {
  const DevicePointer address = driver.Allocate(128);
  EXPECT_EQ((driver.Call<int(DevicePointer, unsigned, size_t)>("cuMemsetD32_v2")(address, 0, 32)),
            kSuccess);
  EXPECT_EQ(driver.Launch(driver.Kernel(text, "add_one"), address), kSuccess);
  return driver.Call<int()>("cuCtxSynchronize")();
}

struct EndingFault {
  const char* name;
  Result result;
};

TEST(FakeDriverFaults, EachEndsTheContextWithItsCode) {
  for (const EndingFault& fault : {EndingFault{"ecc", kEccUncorrectable},
                                   {"gone", kDeviceUnavailable},
                                   {"sticky", kIllegalAddress},
                                   {"trap", kLaunchFailed},
                                   {"timeout", kLaunchTimeout}}) {
    SCOPED_TRACE(fault.name);
    const FreshDriver driver;
    EXPECT_EQ(EndOf(driver), kSuccess);
    driver.Fault(fault.name, 2);
    EXPECT_EQ(EndOf(driver), kSuccess);  // the first of the two
    EXPECT_EQ(EndOf(driver), fault.result);
    // For good.
    DevicePointer address = 0;
    EXPECT_EQ((driver.Call<int(DevicePointer*, size_t)>("cuMemAlloc_v2")(&address, 16)),
              fault.result);
  }
}

TEST(FakeDriverFaults, ATrapInAKernel_FailsTheLaunch) {
  const FreshDriver driver;
  EXPECT_EQ(EndOf(driver, WithLineBefore("  ld.global.f32", "  trap;\n").c_str()), kLaunchFailed);
}

TEST(FakeDriverFaults, AKernelWithoutAnEnd_TimesOut) {
  const FreshDriver driver(FreshDriver::Variables{{"OUTBOARD_FAKE_CUDA_INSTRUCTIONS", "10000"}});
  EXPECT_EQ(EndOf(driver, WithLineBefore("  ld.global.f32", "SPIN:\n  bra SPIN;\n").c_str()),
            kLaunchTimeout);
}

// Nothing behind it in its stream runs either; the process can still end.
TEST(FakeDriverFaults, AnEndlessKernel_IsNeverDone) {
  const FreshDriver driver;
  const DevicePointer address = driver.Allocate(128);
  driver.Fault("endless", 1);
  EXPECT_EQ(driver.Launch(driver.Kernel(kAddOne, "add_one"), address), kSuccess);
  void* event = nullptr;
  ASSERT_EQ((driver.Call<int(void**, unsigned)>("cuEventCreate")(&event, 0)), kSuccess);
  ASSERT_EQ((driver.Call<int(void*, void*)>("cuEventRecord")(event, nullptr)), kSuccess);
  // They outlive the test.
  auto* const waited = new FreshDriver(driver);
  auto* const done = new std::atomic<bool>(false);
  std::thread([waited, done] {  // for ever
    waited->Enter();
    waited->Call<int()>("cuCtxSynchronize")();
    *done = true;
  })
      .detach();
  for (int look = 0; look < 20; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_FALSE(*done);
    ASSERT_EQ(driver.Call<int(void*)>("cuEventQuery")(event), kNotReady);
  }
}

// ---- modules

TEST(FakeDriverModules, NewerPtxThanTheDriversCuda_IsRefused) {
  struct Case {
    const char *cuda, *ptx;
    Result result;
  };
  for (const Case& each : {Case{"12000", "8.0", kSuccess},
                           {"12000", "8.1", kUnsupportedPtxVersion},
                           {"12040", "8.4", kSuccess},
                           {"12040", "9.0", kUnsupportedPtxVersion},
                           {"13000", "8.8", kSuccess},
                           {"13000", "9.0", kSuccess},
                           {"13000", "9.1", kUnsupportedPtxVersion}}) {
    SCOPED_TRACE(std::string(each.cuda) + " " + each.ptx);
    const FreshDriver driver(FreshDriver::Variables{{"OUTBOARD_FAKE_CUDA_VERSION", each.cuda}});
    std::string text = kAddOne;
    text.replace(text.find("8.0"), 3, each.ptx);
    void* module = nullptr;
    EXPECT_EQ((driver.Call<int(void**, const void*)>("cuModuleLoadData")(&module, text.c_str())),
              each.result);
  }
}

// Of a kernel that asks for other registers, a module made by the linker and one of the text.
TEST(FakeDriverModules, WhatRelocatableCodeDoesWithout_IsMisuseInLinkedOnes) {
  const std::string text =
      WithLineBefore("  mov.u32 %r2", "  setmaxnreg.dec.sync.aligned.u32 24;\n");
  std::string hopper = text;
  hopper.replace(hopper.find("sm_80"), 5, "sm_90a");
  hopper.replace(hopper.find("n)\n{"), 4, "n)\n.maxntid 128, 1, 1\n.minnctapersm 1\n{");
  for (const bool linked : {false, true}) {
    SCOPED_TRACE(linked);
    const FreshDriver driver;
    const std::string code = linked ? driver.Linked(hopper) : hopper;
    void* const function = driver.Kernel(code.c_str(), "add_one");
    const DevicePointer address = driver.Allocate(512);
    EXPECT_EQ(
        (driver.Call<int(DevicePointer, unsigned, size_t)>("cuMemsetD32_v2")(address, 0, 128)),
        kSuccess);
    EXPECT_EQ(driver.Launch(function, address, 128), kSuccess);
    EXPECT_EQ(driver.Call<int()>("cuCtxSynchronize")(), linked ? kLaunchFailed : kSuccess);
    const std::string reports = driver.Reports();
    EXPECT_EQ(reports.find("misuse: kernel add_one, line 15") != std::string::npos, linked)
        << reports;
  }
}

// ---- memory that nobody has written

TEST(FakeDriverMemory, NewMemory_IsFullOfAaOnDemand) {
  const FreshDriver driver(FreshDriver::Variables{{"OUTBOARD_FAKE_CUDA_AA", "1"}});
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{3} << 20})
    EXPECT_EQ(driver.Read(driver.Allocate(bytes), bytes), std::string(bytes, '\xaa'));
  // Also what was somebody's before, and in a kernel, which may read it: 0xaaaaaaaa + 1.
  const DevicePointer address = driver.Allocate(128);
  EXPECT_EQ(driver.Launch(driver.Kernel(kAddOne, "add_one"), address), kSuccess);
  float first = 0, expected = 0;
  std::memcpy(&first, driver.Read(address, 4).data(), 4);
  std::memcpy(&expected, "\xaa\xaa\xaa\xaa", 4);
  EXPECT_EQ(first, expected + 1.0f);
  EXPECT_EQ(driver.Call<int(DevicePointer)>("cuMemFree_v2")(address), kSuccess);
  EXPECT_EQ(driver.Read(driver.Allocate(128), 128), std::string(128, '\xaa'));
}

// Without it, whoever reads is reported.
TEST(FakeDriverMemory, NewMemory_IsNotReadOtherwise) {
  const FreshDriver driver;
  EXPECT_EQ(driver.Launch(driver.Kernel(kAddOne, "add_one"), driver.Allocate(128)), kSuccess);
  EXPECT_EQ(driver.Call<int()>("cuCtxSynchronize")(), kLaunchFailed);
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
