// Products by warpgroups, and rows by clusters, on the CUDA device, over the driver of tests/gpu:
// views of buffers are made when addresses are known, in launches one by one and in graphs, and
// anew where an address changed.
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "runtime/device.h"
#include "runtime/devices.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/row_kernels.h"
#include "tests/support/paths.h"

namespace outboard::test {
namespace {

using runtime::DeviceBuffer;

class HopperDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, /*overwrite=*/1);
    auto device = runtime::MakeDevice("cuda", {.memory_bytes_max = 1 << 26});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  static CompiledKernel Compiled(const HopperCase& test) {
    const auto program = MakeHopperProduct(test.product, test.tile, test.epilogue);
    OB_CHECK(program.ok());
    const auto renderer = render::MakePtxRenderer(CudaTarget("sm_90a", 132));
    auto kernel = (*renderer)->Render(*program, "k");
    OB_CHECK(kernel.ok());
    return *std::move(kernel);
  }

  // The case's buffers on the device, with its inputs in them.
  std::vector<DeviceBuffer> Uploaded(const HopperCase& test) {
    std::vector<DeviceBuffer> buffers;
    for (const std::string& bytes : InputsOf(test)) {
      buffers.push_back(*device_->Allocate(static_cast<int64_t>(bytes.size())));
      OB_CHECK(device_->Upload(buffers.back().address(), bytes).ok());
    }
    return buffers;
  }
  static std::vector<runtime::DeviceAddress> AddressesOf(const std::vector<DeviceBuffer>& buffers) {
    std::vector<runtime::DeviceAddress> addresses;
    for (const DeviceBuffer& buffer : buffers) addresses.push_back(buffer.address());
    return addresses;
  }
  std::string Difference(const HopperCase& test, const std::vector<DeviceBuffer>& buffers) {
    std::vector<std::string> bytes = InputsOf(test);
    const absl::Status status = device_->Download(
        buffers[0].address(), static_cast<int64_t>(bytes[0].size()), bytes[0].data());
    return status.ok() ? DifferenceOf(test, bytes) : std::string(status.message());
  }
  void Clear(const HopperCase& test, const std::vector<DeviceBuffer>& buffers) {
    OB_CHECK(device_->Upload(buffers[0].address(), InputsOf(test)[0]).ok());
  }

  std::unique_ptr<runtime::Device> device_;
};

HopperCase Small() {
  return {.product = {.m = 128, .n = 64, .k = 128, .c_dtype = DType::kF32},
          .tile = {.columns = 64, .stages = 2}};
}

TEST_F(HopperDevice, EveryCase_IsTheProduct) {
  for (const HopperCase& test : HopperCases()) {
    SCOPED_TRACE(test.name);
    const auto kernel = device_->Load(Compiled(test));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const std::vector<DeviceBuffer> buffers = Uploaded(test);
    ASSERT_EQ(device_->Launch(**kernel, AddressesOf(buffers), {}), absl::OkStatus());
    ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
    EXPECT_EQ(Difference(test, buffers), "");
  }
}

TEST_F(HopperDevice, AGraph_FollowsAddressesThatChange) {
  const HopperCase test = Small();
  const auto kernel = device_->Load(Compiled(test));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const std::vector<DeviceBuffer> first = Uploaded(test), second = Uploaded(test),
                                  third = Uploaded(test);
  std::unique_ptr<runtime::LaunchRecord> record;
  // Two launches, by turns of the same and of other buffers; from the second list on as one graph.
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    const std::vector<DeviceBuffer>& other = round / 2 % 2 == 0 ? second : third;
    for (const auto* buffers : {&first, &second, &third}) Clear(test, *buffers);
    const std::vector<runtime::DeviceAddress> one = AddressesOf(first), two = AddressesOf(other);
    const runtime::KernelLaunch launches[] = {{kernel->get(), one}, {kernel->get(), two}};
    ASSERT_EQ(device_->LaunchAll(launches, {}, record), absl::OkStatus());
    ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
    EXPECT_EQ(Difference(test, first), "");
    EXPECT_EQ(Difference(test, other), "");
    EXPECT_NE(Difference(test, &other == &second ? third : second), "");
  }
}

// The size of a cluster is in the text, so that the launch is as of any kernel.
TEST_F(HopperDevice, RowsByClustersAreLaunched) {
  const RowKernel rows = {RowFunction::kSoftmax, DType::kF32, 3, 50257};
  Graph g;
  const UOp* const sink = MakeRowKernel(g, rows);
  const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90a", 132)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE(absl::StrContains(compiled->object, ".reqnctapercluster 8"));
  const auto kernel = device_->Load(*compiled);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const Buffers start = RandomBuffers(sink, 1);
  std::vector<DeviceBuffer> buffers;
  for (const std::string& bytes : start) {
    buffers.push_back(*device_->Allocate(static_cast<int64_t>(bytes.size())));
    ASSERT_EQ(device_->Upload(buffers.back().address(), bytes), absl::OkStatus());
  }
  ASSERT_EQ(device_->Launch(**kernel, AddressesOf(buffers), {}), absl::OkStatus());
  ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
  Buffers got = start;
  ASSERT_EQ(
      device_->Download(buffers[0].address(), static_cast<int64_t>(got[0].size()), got[0].data()),
      absl::OkStatus());
  ExpectRows(rows, got, RowsOf(rows, start), 1e-4, /*absolute=*/false);
}

TEST_F(HopperDevice, AViewThatIsNone_IsRefusedWhenTheKernelIsLoaded) {
  const CompiledKernel good = Compiled(Small());
  const auto refused = [&](auto change) {
    CompiledKernel kernel = good;
    change(kernel.maps[0]);
    return std::string(device_->Load(kernel).status().message());
  };
  EXPECT_TRUE(absl::StrContains(refused([](MappedTensor& m) { m.slot = 3; }), "slot 3"));
  EXPECT_TRUE(absl::StrContains(refused([](MappedTensor& m) { m.box[0] = 512; }), "box of 512"));
  EXPECT_TRUE(
      absl::StrContains(refused([](MappedTensor& m) { m.strides[0] = 24; }), "stride of 24"));
  EXPECT_TRUE(absl::StrContains(refused([](MappedTensor& m) { m.dims.pop_back(); }), "dimensions"));
  // By the driver's own rules, which it applies where a view is encoded.
  const std::string row = refused([](MappedTensor& m) { m.box[0] = 4; });
  EXPECT_TRUE(absl::StrContains(row, "CUDA_ERROR_INVALID_VALUE")) << row;
  EXPECT_TRUE(absl::StrContains(row, "kernel k: a view")) << row;
  EXPECT_TRUE(device_->Load(good).ok()) << "the device works on";
}

}  // namespace
}  // namespace outboard::test
