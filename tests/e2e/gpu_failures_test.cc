// What goes wrong with GPUs, and the answer to each: the table of docs/gpu-workers.md, a test for each
// of its rows. Gateway, worker and executors are processes, as in production; the driver is that of
// the tests (tests/gpu/driver), which fails on demand.
//
// Figure: cuda_failure_cases_ratio of scripts/bench is the part of these tests that pass.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/http.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::Eventually;
using test::Outboard;

class GpuFailures : public ::testing::Test {
 protected:
  // A driver of `devices` GPUs, which does what the variables ask for.
  std::vector<std::string> Driver(int devices, const std::vector<std::string>& variables = {}) {
    const std::string driver = folder_ / "libcuda.so.1";
    std::filesystem::copy_file(FAKE_CUDA, driver,
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream lines(driver + ".env");
    lines << "OUTBOARD_FAKE_CUDA_DEVICES=" << devices << "\n"
          << "OUTBOARD_FAKE_CUDA_MIB=64\n"  // all of which is overwritten at each start
          << "OUTBOARD_FAKE_CUDA_RUNS=1\n";
    for (const std::string& line : variables) lines << line << "\n";
    return {"OUTBOARD_DEVICE=cuda", "OUTBOARD_CUDA_DRIVER=" + driver, "REF", "BEAM",
            "CUDA_VISIBLE_DEVICES"};
  }
  void StartUp(std::vector<std::string> environment) {
    cluster_.StartUp(1, "--no-idle-search --snapshot-every 1 --shared-anyway",
                     std::move(environment));
  }
  std::unique_ptr<Session> Connect() { return cluster_.Connect(); }
  std::string Log() { return cluster_.gateway().err(); }

  static bool Contains(absl::string_view text, absl::string_view part) {
    return text.find(part) != absl::string_view::npos;
  }
  static size_t Lines(const std::string& text) {
    return static_cast<size_t>(std::ranges::count(text, '\n'));
  }

  test::TempFolder folder_;
  test::Cluster cluster_;
};

// ---- no driver, too old a driver, no device, a class nobody has: one line; the rest is served ---

TEST_F(GpuFailures, NoDriver_IsOneLine) {
  const test::Ended ended = Outboard("serve --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
                                     {"OUTBOARD_DEVICE=cuda", "OUTBOARD_CUDA_DRIVER=/none.so"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(Contains(ended.err, "no driver") && Contains(ended.err, "CUDA 12.0")) << ended.err;
  EXPECT_EQ(Lines(ended.err), 1u) << ended.err;
}

TEST_F(GpuFailures, TooOldADriver_IsOneLineWithBothVersions) {
  const test::Ended ended = Outboard("serve --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
                                     Driver(1, {"OUTBOARD_FAKE_CUDA_VERSION=11080"}));
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(Contains(ended.err, "11.8") && Contains(ended.err, "12.0")) << ended.err;
  EXPECT_EQ(Lines(ended.err), 1u) << ended.err;
}

TEST_F(GpuFailures, NoDevice_IsOneLine) {
  const test::Ended ended = Outboard("serve --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
                                     Driver(0));
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(Contains(ended.err, "has no device")) << ended.err;
  EXPECT_EQ(Lines(ended.err), 1u) << ended.err;
}

TEST_F(GpuFailures, AClassNobodyCompilesFor_IsOneLineWithWhatIsNeeded) {
  const test::Ended ended = Outboard("serve --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
                                     Driver(1, {"OUTBOARD_FAKE_CUDA_ARCH=75"}));
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(Contains(ended.err, "7.5") && Contains(ended.err, "8.0")) << ended.err;
}

TEST_F(GpuFailures, TheSameProgramWithoutADriver_ServesTheProcessor) {
  cluster_.StartUp(1, "--no-idle-search", {"OUTBOARD_DEVICE", "OUTBOARD_CUDA_DRIVER=/none.so"});
  EXPECT_TRUE(test::Step(*Connect()).ok());
}

TEST_F(GpuFailures, MoreSessionsThanGpus_AreRefusedAtTheStart) {
  const test::Ended ended =
      Outboard("serve --devices 3 --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
               Driver(2));
  EXPECT_NE(ended.code, 0);
  EXPECT_TRUE(Contains(ended.err, "--devices 3") && Contains(ended.err, "2 GPUs")) << ended.err;
}

// ---- a session computes, alone on its GPU -------------------------------------------------------

TEST_F(GpuFailures, SessionsHaveAGpuEach) {
  StartUp(Driver(2));
  const auto first = Connect(), second = Connect();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_TRUE(test::Step(*first).ok()) << test::Step(*first) << Log();
  EXPECT_TRUE(test::Step(*second).ok());
  session::SessionOptions options = cluster_.Options();
  // Both are taken, so that a third one waits; its GPU is wiped before it begins.
  ASSERT_TRUE(first->Close().ok());
  const auto third = Connect();
  ASSERT_NE(third, nullptr);
  EXPECT_TRUE(test::Step(*third).ok());
}

// ---- more memory than the device has ------------------------------------------------------------

TEST_F(GpuFailures, MoreMemoryThanTheDeviceHas_FailsBeforeItBeginsAndTheSessionLives) {
  StartUp(Driver(1));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(1)});
  const UOp* const wide = Expand(g, Add(g, x, x), {Dim(24 << 20)});  // 96 MiB of 64
  const float one = 1;
  const int64_t dims[] = {1};
  const uint64_t input = session->NewHandle(), output = session->NewHandle();
  ASSERT_TRUE(
      session->Put(input, DType::kF32, dims, {reinterpret_cast<const char*>(&one), 4}).ok());
  auto seq = session->Run(test::RequestOf(Sink(g, {wide}), {input}, {output}, /*fetch=*/true));
  ASSERT_TRUE(seq.ok()) << seq.status();
  const absl::Status status = session->Await(*seq, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  for (const char* word : {"needs 96.0 MiB", "free are", "f32[25165824]", "Outboard PTX machine"})
    EXPECT_TRUE(Contains(status.message(), word)) << word << " in " << status;
  EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session);
}

// ---- illegal address, trap, launch failure, ECC -------------------------------------------------

// The first kernel of a process is the one that wipes the GPU, so that the second is the session's.
TEST_F(GpuFailures, AnErrorForGood_EndsTheExecutorAndTheSessionGoesOnElsewhere) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=sticky:2", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_failed"); })) << Log();
  EXPECT_FALSE(Contains(Log(), "device_out_of_service")) << Log();
}

TEST_F(GpuFailures, AnErrorThatComesBackInTheReplay_EndsTheSessionWithTheDriversWords) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=sticky:2"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const absl::Status status = test::Step(*session);
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
  EXPECT_TRUE(Contains(status.message(), "CUDA_ERROR_ILLEGAL_ADDRESS")) << status;
}

TEST_F(GpuFailures, AnEccError_TakesTheDeviceOutOfServiceAtOnce) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=ecc:2", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_out_of_service"); })) << Log();
  // What is left is one GPU, which is taken: nobody else is given the other.
  const std::string page = test::Get(cluster_.last_metrics(), "/metrics");
  EXPECT_TRUE(Contains(page, "outboard_devices{state=\"out_of_service\"} 1")) << page;
}

// ---- a kernel that does not end; a process that does not die ------------------------------------

TEST_F(GpuFailures, AKernelThatDoesNotEnd_IsStoppedAndTriedOnAnotherDevice) {
  std::vector<std::string> environment = Driver(
      2, {"OUTBOARD_FAKE_CUDA_FAULTS=endless:2", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"});
  environment.push_back("OUTBOARD_LAUNCH_SECONDS=3");
  StartUp(environment);
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  EXPECT_TRUE(Contains(Log(), "was not done after 3.0 s")) << Log();
}

TEST_F(GpuFailures, AKernelThatDoesNotEndAnywhere_IsAnErrorWithItsName) {
  std::vector<std::string> environment = Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=endless:2"});
  environment.push_back("OUTBOARD_LAUNCH_SECONDS=2");
  StartUp(environment);
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const absl::Status status = test::Step(*session);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(Contains(status.message(), "kernel ") &&
              Contains(status.message(), "was not done after 2.0 s"))
      << status;
}

}  // namespace
}  // namespace outboard
