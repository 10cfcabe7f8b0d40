// Lists of launches as CUDA graphs (runtime/cuda/launch_graph.h), over a small driver of the tests'
// own: which calls it gets, and in which order kernels run.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/fake_cuda_driver.h"

namespace outboard::cuda {
namespace {

using runtime::Device;
using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

class CudaGraphTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    device_ = Make();
    for (const char* const name : {"a", "b", "v"})
      kernels_.push_back(*device_->Load(Kernel(name, *name == 'v')));
    buffers_.push_back(Holding(*device_, std::string(8, '\0')));
    buffers_.push_back(Holding(*device_, std::string(8, '\0')));
    for (const char* const name : {"graphs", "graph launches", "patches", "launches"}) Set(name, 0);
  }
  void TearDown() override {
    record_.reset();
    kernels_.clear();
    buffers_.clear();
    device_.reset();
    CudaTest::TearDown();
  }
  // Launches kernel which[i] on buffer on[i].
  absl::Status Run(const std::vector<int>& which, const std::vector<int>& on, int64_t var = 0) {
    std::vector<DeviceAddress> addresses;
    for (const int b : on) addresses.push_back(buffers_[b].address());
    std::vector<runtime::KernelLaunch> launches;
    for (size_t i = 0; i < which.size(); ++i)
      launches.push_back({kernels_[which[i]].get(), {&addresses[i], 1}});
    return device_->LaunchAll(launches, {{var}}, record_);
  }
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<DeviceKernel>> kernels_;
  std::vector<DeviceBuffer> buffers_;
  std::unique_ptr<runtime::LaunchRecord> record_;
};

TEST_F(CudaGraphTest, ThePlanThatComesBack_IsOneLaunch) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Run({0, 1, 0}, {0, 0, 1}).ok());
  EXPECT_EQ(Get("launches"), 3);  // the first time, when nobody knows that it comes back
  EXPECT_EQ(Get("graphs"), 1);
  EXPECT_EQ(Get("graph launches"), 3);
  EXPECT_EQ(Get("patches"), 0);
  EXPECT_EQ(Value(*device_, buffers_[0]), 3280);  // 3x + 1, eight times
  EXPECT_EQ(Value(*device_, buffers_[1]), 40);
}

TEST_F(CudaGraphTest, OnlyWhatDiffersIsPatched) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Run({0, 1, 0}, {0, 0, 1}).ok());
  ASSERT_TRUE(Run({0, 1, 0}, {0, 1, 1}).ok());
  EXPECT_EQ(Get("patches"), 1);
  ASSERT_TRUE(Run({0, 1, 0}, {0, 1, 1}).ok());
  EXPECT_EQ(Get("patches"), 1);
  // What was queued before the patch kept its addresses.
  EXPECT_EQ(Value(*device_, buffers_[0]), 364);  // six times
  EXPECT_EQ(Value(*device_, buffers_[1]), 364);
  EXPECT_EQ(Get("graphs"), 1);
  ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());  // another number of launches
  EXPECT_EQ(Get("graphs"), 2);
}

TEST_F(CudaGraphTest, VarsPatchNothing) {
  for (const int64_t var : {1, 2, 3, 4}) ASSERT_TRUE(Run({2, 2}, {0, 1}, var).ok());
  EXPECT_EQ(Get("patches"), 0);
  EXPECT_EQ(Get("graph launches"), 3);
  EXPECT_EQ(Value(*device_, buffers_[0]), ((1 * 3 + 2) * 3 + 3) * 3 + 4);
  EXPECT_EQ(Value(*device_, buffers_[1]), ((1 * 3 + 2) * 3 + 3) * 3 + 4);
}

// As idle search does it: a better kernel takes the place of one, which goes.
TEST_F(CudaGraphTest, AKernelIsReplacedWhileItsGraphIsQueued) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  kernels_[0] = *device_->Load(Kernel("better"));
  ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  EXPECT_EQ(Get("patches"), 1);
  EXPECT_EQ(Value(*device_, buffers_[0]), 40);
  // The plan goes while it is queued.
  ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  const int64_t destroyed = Get("graphs destroyed");
  record_.reset();
  EXPECT_EQ(Get("graphs destroyed"), destroyed);
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Get("graphs destroyed"), destroyed + 1);
  EXPECT_EQ(Value(*device_, buffers_[0]), 121);
}

TEST_F(CudaGraphTest, AGraphThatIsRefused_IsLaunchedOneByOneAndTriedAgain) {
  ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  Set("refuse graph", 1);
  ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  EXPECT_EQ(Get("launches"), 4);
  ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  EXPECT_EQ(Get("graph launches"), 1);
  EXPECT_EQ(Value(*device_, buffers_[0]), 13);
  EXPECT_TRUE(device_->health().ok());
}

TEST_F(CudaGraphTest, AGraphThatIsRefusedForEver_IsNotAskedForAgain) {
  for (int i = 0; i < 6; ++i) {
    Set("refuse graph", 1);
    ASSERT_TRUE(Run({0, 1}, {0, 1}).ok());
  }
  EXPECT_EQ(Get("graphs"), 3);
  EXPECT_EQ(Value(*device_, buffers_[0]), 364);
}

// A kernel that waits by itself may start before the one in front of it is done.
CompiledKernel Waiting(const std::string& symbol) {
  CompiledKernel kernel = Kernel(symbol);
  kernel.object.replace(kernel.object.find("ret;"), 0, "griddepcontrol.wait; ");
  return kernel;
}

TEST_F(CudaGraphTest, KernelsThatWait_OverlapThoseInFrontOfThem) {
  kernels_[0] = *device_->Load(Waiting("waits"));
  Set("edges that overlap", 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run({0, 0, 1, 0}, {0, 0, 0, 0}).ok());
  EXPECT_EQ(Get("edges that overlap"), 2);  // not to kernel 1, and not to the first
  EXPECT_EQ(Get("graphs"), 1);
  // Of another type is the edge to a kernel that does not wait.
  ASSERT_TRUE(Run({0, 1, 1, 0}, {0, 0, 0, 0}).ok());
  EXPECT_EQ(Get("graphs"), 2);
  EXPECT_EQ(Get("edges that overlap"), 3);
  EXPECT_EQ(Value(*device_, buffers_[0]), 21523360);  // 3x + 1, sixteen times
}

TEST_F(CudaGraphTest, EdgesThatAreRefused_AreLeftOut) {
  kernels_[0] = *device_->Load(Waiting("waits"));
  Set("edges that overlap", 0);
  Set("refuse edges", 1);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Run({0, 0}, {0, 1}).ok());
  EXPECT_EQ(Get("launches"), 4);  // twice one by one
  EXPECT_EQ(Get("graph launches"), 2);
  EXPECT_EQ(Get("edges that overlap"), 0);
  EXPECT_EQ(Value(*device_, buffers_[0]), 40);
}

TEST_F(CudaGraphTest, TheLaunchThatFails_IsNamedByItsPlace) {
  const DeviceAddress there[] = {buffers_[0].address()};
  const runtime::KernelLaunch launches[] = {{kernels_[0].get(), there}, {kernels_[1].get(), {}}};
  EXPECT_EQ(runtime::LaunchOf(device_->LaunchAll(launches, {}, record_)), 1u);
  EXPECT_EQ(runtime::LaunchOf(absl::OkStatus()), std::nullopt);
}

TEST_F(CudaGraphTest, TooFewBuffers_QueueNothing) {
  const runtime::KernelLaunch launches[] = {{kernels_[0].get(), {}}};
  EXPECT_EQ(device_->LaunchAll(launches, {}, record_).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Value(*device_, buffers_[0]), 0);
}

}  // namespace
}  // namespace outboard::cuda
