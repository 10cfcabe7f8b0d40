// Uploads beside work (runtime/cuda/upload_stream.h; "Invariant n" is of that file). The driver's
// streams run as late as they may, or copies run as early as they may ("copies early"): a wait that
// is missing shows in one or the other.
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "tests/runtime/fake_cuda_driver.h"
#include "tests/support/paths.h"

namespace outboard::cuda {
namespace {

using runtime::Device;
using runtime::DeviceAddress;
using runtime::DeviceBuffer;

std::string Bytes(int64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

class CudaUploads : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ResetDriver();
    Set("copies early", GetParam() ? 1 : 0);
    Open(0);
  }
  void TearDown() override {
    kernel_.reset();
    device_.reset();
    Set("copies early", 0);
    EXPECT_EQ(Get("faults"), 0);
  }
  void Open(int64_t memory_bytes_max) {
    kernel_.reset();
    device_.reset();
    device_ = *MakeCudaDeviceOf(*LoadApiFrom(test::kRecordingCudaDriver),
                                {.memory_bytes_max = memory_bytes_max});
    kernel_ = *device_->Load(Kernel());
  }
  void Launch(const DeviceBuffer& buffer) {
    const DeviceAddress slots[] = {buffer.address()};
    ASSERT_TRUE(device_->Launch(*kernel_, slots, {}).ok());
  }
  // As a plan that has been run before: two launches, with a place behind them.
  void LaunchPlan(const DeviceBuffer& buffer) {
    const DeviceAddress slots[] = {buffer.address()};
    const runtime::KernelLaunch launches[] = {{kernel_.get(), slots}, {kernel_.get(), slots}};
    std::unique_ptr<runtime::LaunchRecord> record;
    ASSERT_TRUE(device_->LaunchAll(launches, {}, record).ok());
  }
  DeviceBuffer Uploaded(int64_t value) {
    DeviceBuffer buffer = *device_->AllocateForUpload(8);
    EXPECT_TRUE(device_->Upload(buffer.address(), Bytes(value)).ok());
    return buffer;
  }
  int64_t Value(const DeviceBuffer& buffer) {
    int64_t value = -1;
    const absl::Status status = device_->Download(buffer.address(), 8, &value);
    EXPECT_TRUE(status.ok()) << status;
    return value;
  }
  bool early() const { return GetParam(); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<runtime::DeviceKernel> kernel_;
};
INSTANTIATE_TEST_SUITE_P(Copies, CudaUploads, ::testing::Bool(), [](const auto& info) {
  return info.param ? "Early" : "Late";
});

// Invariant 4.
TEST_P(CudaUploads, WorkThatReadsAnUpload_WaitsForIt) {
  const DeviceBuffer buffer = Uploaded(5);
  Launch(buffer);
  EXPECT_EQ(Value(buffer), 16);
  ASSERT_TRUE(device_->Upload(buffer.address(), Bytes(7)).ok());  // fresh no more
  Launch(buffer);
  ASSERT_TRUE(device_->Upload(buffer.address(), Bytes(9)).ok());
  Launch(buffer);
  EXPECT_EQ(Value(buffer), 28);
}

TEST_P(CudaUploads, EveryKindOfWork_WaitsForTheUpload) {
  const DeviceBuffer copied = Uploaded(5), filled = Uploaded(6), to = *device_->Allocate(8);
  ASSERT_TRUE(device_->Copy(to.address(), copied.address(), 8).ok());
  ASSERT_TRUE(device_->Fill(filled.address(), 1, 4).ok());
  EXPECT_EQ(Value(to), 5);
  EXPECT_EQ(Value(filled), 0x01010101);
  const DeviceBuffer target = Uploaded(8);
  ASSERT_TRUE(device_->Copy(target.address(), to.address(), 4).ok());
  EXPECT_EQ(Value(target), 5);
  const DeviceBuffer planned = Uploaded(1);
  LaunchPlan(planned);
  EXPECT_EQ(Value(planned), 13);
}

// The point of all this: nothing of what is queued has run, and the upload has.
TEST_P(CudaUploads, AnUpload_RunsBesideQueuedWork) {
  const DeviceBuffer trained = *device_->Allocate(8);
  ASSERT_TRUE(device_->Synchronize().ok());
  const int64_t kernels = Get("kernels run"), uploads = Get("uploads run");
  LaunchPlan(trained);
  const DeviceBuffer next = Uploaded(3);
  EXPECT_EQ(Get("kernels run"), kernels);
  EXPECT_EQ(Get("uploads run"), uploads + (early() ? 1 : 0));
  Launch(next);
  EXPECT_EQ(Value(next), 10);
}

// A loop of steps that each have a batch: its memory is used by the step before, so that the next
// batch gets other memory rather than wait.
TEST_P(CudaUploads, BatchesOfSteps_DoNotWaitForTheStepBefore) {
  const DeviceBuffer trained = *device_->Allocate(8);
  ASSERT_TRUE(device_->Synchronize().ok());
  std::optional<DeviceBuffer> batch;
  batch.emplace(Uploaded(1));
  const int64_t blocks = Get("memory blocks");
  for (int step = 0; step < 20; ++step) {
    LaunchPlan(*batch);
    batch.reset();
    const int64_t kernels = Get("kernels run"), uploads = Get("uploads run");
    batch.emplace(Uploaded(step));
    if (early()) {
      EXPECT_EQ(Get("kernels run"), kernels);
      EXPECT_EQ(Get("uploads run"), uploads + 1);
    }
    if (step % 4 == 3) {  // the client reads a loss
      ASSERT_TRUE(device_->Synchronize().ok());
    }
  }
  LaunchPlan(*batch);
  EXPECT_EQ(Value(*batch), 19 * 9 + 4);
  // As many as steps are queued, not as there were steps.
  EXPECT_LE(Get("memory blocks"), blocks + 4);
}

// Invariant 3.
TEST_P(CudaUploads, MemoryThatWorkStillReads_IsUploadedToLater) {
  constexpr int64_t kBytes = 4 << 20;
  Open(9 << 20);  // two blocks
  const DeviceBuffer kept = *device_->Allocate(kBytes);
  const DeviceBuffer seen = *device_->Allocate(8);
  {
    const DeviceBuffer first = *device_->AllocateForUpload(kBytes);
    ASSERT_TRUE(device_->Upload(first.address(), Bytes(5)).ok());
    Launch(first);
    ASSERT_TRUE(device_->Copy(seen.address(), first.address(), 8).ok());
  }
  const DeviceBuffer second = *device_->AllocateForUpload(kBytes);  // the same memory
  ASSERT_TRUE(device_->Upload(second.address(), Bytes(1)).ok());
  EXPECT_EQ(Value(seen), 16);
  EXPECT_EQ(Value(second), 1);
}

TEST_P(CudaUploads, ABufferFreedBeforeAnyWork_StillOrdersWhatComesAfterIt) {
  DeviceAddress first{};
  {
    const DeviceBuffer abandoned = Uploaded(5);
    first = abandoned.address();
  }
  const DeviceBuffer next = *device_->Allocate(8);
  ASSERT_EQ(next.address(), first);
  ASSERT_TRUE(device_->Fill(next.address(), 1, 8).ok());
  EXPECT_EQ(Value(next), 0x0101010101010101);
}

// New memory is overwritten to its end, since a later buffer in it may be longer.
TEST_P(CudaUploads, NewMemory_HoldsNothingOfOthers) {
  DeviceAddress address{};
  {
    const DeviceBuffer shorter = *device_->AllocateForUpload(1001);
    address = shorter.address();
  }
  const DeviceBuffer buffer = *device_->Allocate(1024);
  ASSERT_EQ(buffer.address(), address);
  std::string bytes(1024, 'x');
  ASSERT_TRUE(device_->Download(buffer.address(), 1024, bytes.data()).ok());
  EXPECT_EQ(bytes, std::string(1024, '\0'));
}

TEST_P(CudaUploads, ARefusedBlock_IsTakenFromThoseInUse) {
  {
    const DeviceBuffer used = Uploaded(1);
    Launch(used);
  }
  Set("refuse memory", 1);
  const DeviceBuffer again = Uploaded(2);
  Launch(again);
  EXPECT_EQ(Value(again), 7);
  EXPECT_TRUE(device_->health().ok());
}

// Any order of calls does what the calls one after the other would.
TEST_P(CudaUploads, RandomCalls_AreAsOneAfterTheOther) {
  struct Held {
    DeviceBuffer buffer;
    int64_t value;
  };
  constexpr int64_t kBytes = 1 << 20, kLarge = int64_t{1} << 50;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    // From much room, where uploads get new memory, to little, where they wait.
    Open((3 + static_cast<int64_t>(seed % 3) * 8) * (kBytes + 4096));
    std::vector<std::unique_ptr<Held>> held;
    const auto any = [&]() -> std::unique_ptr<Held>& { return held[random() % held.size()]; };
    const auto free_one = [&] {
      std::swap(any(), held.back());
      held.pop_back();
    };
    for (int i = 0; i < 300; ++i) {
      const uint32_t what = random() % 10;
      if (what < 3 || held.empty()) {
        auto buffer = what == 0 ? device_->Allocate(kBytes) : device_->AllocateForUpload(kBytes);
        if (!buffer.ok()) {  // little room
          ASSERT_FALSE(held.empty()) << buffer.status();
          free_one();
          continue;
        }
        const auto value = static_cast<int64_t>(random() % 1000);
        ASSERT_TRUE(device_->Upload(buffer->address(), Bytes(value)).ok());
        held.push_back(std::make_unique<Held>(Held{*std::move(buffer), value}));
        continue;
      }
      Held& to = *any();
      if (what == 3) {
        free_one();
      } else if (what < 6 && to.value < kLarge) {
        Launch(to.buffer);
        to.value = to.value * 3 + 1;
      } else if (what == 6 && to.value < kLarge) {
        LaunchPlan(to.buffer);
        to.value = to.value * 9 + 4;
      } else if (what == 7) {
        const Held& from = *any();
        if (&to == &from) continue;
        ASSERT_TRUE(device_->Copy(to.buffer.address(), from.buffer.address(), 8).ok());
        to.value = from.value;
      } else if (what == 8) {
        to.value = static_cast<int64_t>(random() % 1000);
        ASSERT_TRUE(device_->Upload(to.buffer.address(), Bytes(to.value)).ok());
      } else if (random() % 4 == 0) {
        ASSERT_EQ(Value(to.buffer), to.value);
      }
    }
    for (const auto& one : held) ASSERT_EQ(Value(one->buffer), one->value);
  }
}

}  // namespace
}  // namespace outboard::cuda
