// What goes wrong with GPUs, and the answer to each: the table of docs/gpu-workers.md, a test for
// each of its rows (a process that does not die: executor_host_test; candidates of a search, and
// clusters without room: gpu_tuner_test).
//
// Figure: cuda_failure_cases_ratio of scripts/bench is the part of these tests that pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/e2e/gpu_cluster.h"
#include "tests/support/documented.h"
#include "tests/support/http.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::Eventually;
using test::Outboard;

// The row of docs/when-it-breaks.md.
constexpr char kAGpuFails[] =
    "A GPU fails (`CUDA_ERROR_ECC_UNCORRECTABLE`, `CUDA_ERROR_ILLEGAL_ADDRESS` ...)";

class GpuFailures : public test::GpuCluster {
 protected:
  // f(x) of these values, computed by the session.
  template <typename T>
  static absl::StatusOr<std::vector<T>> Compute(Session& session, DType dtype,
                                                const std::vector<int64_t>& dims,
                                                const std::vector<T>& values,
                                                const UOp* (*f)(Graph&, const UOp*)) {
    Graph g;
    const UOp* const x = Param(g, 0, dtype, std::vector<Dim>(dims.begin(), dims.end()));
    const uint64_t input = session.NewHandle(), output = session.NewHandle();
    const auto* const bytes = reinterpret_cast<const char*>(values.data());
    OB_RETURN_IF_ERROR(session.Put(input, dtype, dims, {bytes, values.size() * sizeof(T)}));
    OB_ASSIGN_OR_RETURN(const uint64_t seq,
                        session.Run(test::RequestOf(Sink(g, {f(g, x)}), {input}, {output}, true)));
    OB_ASSIGN_OR_RETURN(const auto value, session.Await(seq, 0));
    std::vector<T> results(value.bytes.size() / sizeof(T));
    std::memcpy(results.data(), value.bytes.data(), value.bytes.size());
    return results;
  }
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
  EXPECT_TRUE(Contains(ended.err, "compute capability 7.5; needed: 8.0")) << ended.err;
  EXPECT_EQ(Lines(ended.err), 1u) << ended.err;
}

// As a machine to which a GPU was added: what is too old is named, and the other one served.
TEST_F(GpuFailures, AnOldGpuBesideANewOne_IsNamedInOneLineAndTheNewOneServed) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_ARCH=75,90"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  const std::string log = Log(), left_out = "event=gpu_left_out", found = "event=gpu_found";
  const size_t at = log.find(left_out);
  ASSERT_NE(at, std::string::npos) << log;
  const std::string line = log.substr(at, log.find('\n', at) - at);
  EXPECT_TRUE(Contains(line, "sm_75") &&
              Contains(line, "compute capability 7.5; needed: 8.0 or newer"))
      << line;
  EXPECT_EQ(log.find(left_out, at + 1), std::string::npos) << log;
  EXPECT_TRUE(Contains(log, "sm_90") && log.find(found) == log.rfind(found)) << log;
  EXPECT_TRUE(Contains(log, "CUDA_VISIBLE_DEVICES=1")) << log;
  const std::string page = test::Get(cluster_.last_metrics(), "/metrics");
  EXPECT_TRUE(Contains(page, "outboard_devices{state=\"busy\"} 1") &&
              Contains(page, "outboard_devices{state=\"free\"} 0"))
      << page;
}

// One of a class that came after this program runs the code of the newest one that it knows.
TEST_F(GpuFailures, AGpuNewerThanAnyClassOfOurs_IsServed) {
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_ARCH=120"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  const auto sums =
      Compute<float>(*session, DType::kF32, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                     [](Graph& g, const UOp* v) { return Reduce(g, Op::kAdd, v, {1}); });
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(*sums, (std::vector<float>{10, 26, 42}));
}

TEST_F(GpuFailures, TheSameProgramWithoutADriver_ServesTheProcessor) {
  cluster_.StartUp(1, "--no-idle-search", {"OUTBOARD_DEVICE", "OUTBOARD_CUDA_DRIVER=/none.so"});
  EXPECT_TRUE(test::Step(*Connect()).ok());
}

// OUTBOARD_DEVICE=auto: the GPUs where there are some, else the processor, and one line why.
TEST_F(GpuFailures, Auto_ServesTheGpu_WhereADriverHasOne) {
  auto environment = Driver(1);
  environment[0] = "OUTBOARD_DEVICE=auto";
  StartUp(environment);
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok());
  EXPECT_TRUE(Contains(Log(), "event=device_chosen device=cuda count=1") &&
              Contains(Log(), "event=gpu_found"))
      << Log();
}

TEST_F(GpuFailures, Auto_ServesTheProcessor_WhereThereIsNoDriverOrNoDevice) {
  const auto up = [&](const std::vector<std::string>& environment, const char* why) {
    test::Cluster cluster;
    cluster.StartUp(1, "--no-idle-search", environment);
    const std::string log = cluster.gateway().err();
    EXPECT_TRUE(Contains(log, "event=device_chosen device=cpu") && Contains(log, why)) << log;
    EXPECT_EQ(log.find("event=device_chosen"), log.rfind("event=device_chosen")) << log;
    const auto session = cluster.Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok());
  };
  up({"OUTBOARD_DEVICE=auto", "OUTBOARD_CUDA_DRIVER=/none.so"}, "no driver");
  auto environment = Driver(0);
  environment[0] = "OUTBOARD_DEVICE=auto";
  up(environment, "has no device");
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
  test::ExpectAsDocumented("The device has no more memory", status);
  EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session);
}

// The plan had room by what the driver said was free, and the driver has no memory all the same: as
// where another process takes it, or there is none in one piece.
TEST_F(GpuFailures, MemoryThatTheDriverRefuses_IsAnErrorOfTheRunAndTheSessionLives) {
  constexpr int64_t kMiB = 1 << 20;
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_FAULTS=alloc:-1000",
                     "OUTBOARD_FAKE_CUDA_FAULT_BYTES=" + std::to_string(9 * kMiB)}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const float one = 1;
  const int64_t dims[] = {1};
  const uint64_t input = session->NewHandle();
  ASSERT_TRUE(
      session->Put(input, DType::kF32, dims, {reinterpret_cast<const char*>(&one), 4}).ok());
  // Of so many MiB, each element 1 + 1.
  const auto run = [&](int64_t mib) -> absl::StatusOr<float> {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {Dim(1)});
    const UOp* const wide = Expand(g, Add(g, x, x), {Dim(mib * kMiB / 4)});
    const uint64_t output = session->NewHandle();
    OB_ASSIGN_OR_RETURN(const uint64_t seq,
                        session->Run(test::RequestOf(Sink(g, {wide}), {input}, {output}, true)));
    const auto value = session->Await(seq, 0);
    session->Release(output);
    OB_RETURN_IF_ERROR(value.status());
    float last = 0;
    std::memcpy(&last, value->bytes.data() + value->bytes.size() - sizeof last, sizeof last);
    return last;
  };
  for (int time = 0; time < 2; ++time) {
    const absl::Status refused = run(9).status();
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
    for (const char* word : {"a buffer of 9437184 bytes", "Outboard PTX machine", "bytes free of"})
      EXPECT_TRUE(Contains(refused.message(), word)) << word << " in " << refused;
    const auto other = run(10);  // with the value that it had before
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(*other, 2.0f);
  }
  EXPECT_TRUE(test::Step(*session).ok()) << session->status();
  EXPECT_FALSE(Contains(Log(), "device_failed")) << Log();
}

// Copies go through pinned pieces, four from a process's start and two more at the first download.
TEST_F(GpuFailures, NoMemoryToPinOnTheHost_CopiesGoThroughOrdinaryMemory) {
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_FAULTS=host:-100"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  EXPECT_FALSE(Contains(Log(), "device_failed")) << Log();
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

// As one that has fallen off its bus.
TEST_F(GpuFailures, ADeviceThatIsGone_EndsTheExecutorAndTheSessionGoesOnElsewhere) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=gone:2", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_failed"); })) << Log();
  EXPECT_TRUE(Contains(Log(), "CUDA_ERROR_DEVICE_UNAVAILABLE")) << Log();
}

// The driver tells a kernel that trapped from one that it gave up itself; so does the log.
TEST_F(GpuFailures, ATrap_EndsTheExecutorAndTheSessionGoesOnElsewhere) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=trap:2", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_failed"); })) << Log();
  EXPECT_TRUE(Contains(Log(), "CUDA_ERROR_LAUNCH_FAILED")) << Log();
  EXPECT_FALSE(Contains(Log(), "CUDA_ERROR_LAUNCH_TIMEOUT")) << Log();
}

TEST_F(GpuFailures, ALaunchThatTheDriverGivesUp_FailsTheRunIfItComesBack) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=timeout:2"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const absl::Status status = test::Step(*session);
  EXPECT_TRUE(session->status().ok()) << session->status();
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
  EXPECT_TRUE(Contains(status.message(), "CUDA_ERROR_LAUNCH_TIMEOUT")) << status;
}

TEST_F(GpuFailures, AnErrorThatComesBackInTheReplay_FailsTheRunAndTheSessionLives) {
  StartUp(Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=sticky:2"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const absl::Status status = test::Step(*session);
  EXPECT_TRUE(session->status().ok()) << session->status();
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
  EXPECT_TRUE(Contains(status.message(), "CUDA_ERROR_ILLEGAL_ADDRESS")) << status;
  EXPECT_TRUE(Contains(status.message(), ", in kernel out 3 ")) << status;  // it writes three
  test::ExpectAsDocumented("A kernel breaks a GPU's driver, and a second one's", status);
}

// As `serve` is by itself: what there was of the session was on the GPU.
TEST_F(GpuFailures, WithoutSnapshots_AnErrorForGoodEndsTheSession) {
  cluster_.StartUp(1, "--no-idle-search --snapshot-every 0 --shared-anyway",
                   Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=sticky:2",
                              "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"}));
  const auto session = Connect(), other = Connect();
  ASSERT_TRUE(session != nullptr && other != nullptr);
  const absl::Status status = test::Step(*session);
  EXPECT_FALSE(session->status().ok());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_TRUE(Contains(status.message(), "the session's values are gone")) << status;
  EXPECT_TRUE(Contains(status.message(), "CUDA_ERROR_ILLEGAL_ADDRESS")) << status;
  test::ExpectAsDocumented(kAGpuFails, status);
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "event=device_failed"); })) << Log();
  EXPECT_TRUE(test::Step(*other).ok()) << other->status() << Log();
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
  EXPECT_TRUE(session->status().ok()) << session->status();  // its values are there
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  // The name says what the kernel writes: three numbers.
  const std::string message(status.message()), word = "kernel ";
  const size_t name = message.find(word), end = message.find(" was not done after 2.0 s");
  ASSERT_TRUE(name != std::string::npos && end != std::string::npos && name + word.size() < end)
      << status;
  EXPECT_TRUE(Contains(message.substr(name, end - name), "out 3 ")) << status;
  test::ExpectAsDocumented("A kernel on a GPU does not end, nor on a second one", status);
}

// ---- a driver that does not begin; a GPU that does not become wiped ---------------------------

TEST_F(GpuFailures, ADriverThatDoesNotBegin_EndsTheExecutorAtItsBound) {
  std::vector<std::string> environment =
      Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=start:1", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"});
  environment.push_back("OUTBOARD_DEVICE_SECONDS=8");
  StartUp(environment);
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_failed device=0"); })) << Log();
  EXPECT_TRUE(Contains(Log(), "(OUTBOARD_DEVICE_SECONDS)")) << Log();
}

TEST_F(GpuFailures, AGpuThatDoesNotBecomeWiped_EndsTheExecutorAtItsBound) {
  std::vector<std::string> environment =
      Driver(2, {"OUTBOARD_FAKE_CUDA_FAULTS=endless:1", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"});
  environment.push_back("OUTBOARD_DEVICE_SECONDS=8");
  StartUp(environment);
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_failed device=0"); })) << Log();
  EXPECT_TRUE(Contains(Log(), "(OUTBOARD_DEVICE_SECONDS)")) << Log();
}

// ---- a GPU that fails again and again -----------------------------------------------------------

// Three kernels without an end within an hour, of two accounts: one alone takes no GPU out
// (docs/decisions/074-a-gpu-for-one-session.md). Every session goes on, on the other GPU.
TEST_F(GpuFailures, ThreeEndlessKernelsOfTwoAccounts_TakeTheDeviceOutOfService) {
  std::vector<std::string> environment = Driver(
      2, {"OUTBOARD_FAKE_CUDA_FAULTS=endless:2", "OUTBOARD_FAKE_CUDA_FAULT_DEVICE=0"});
  environment.push_back("OUTBOARD_LAUNCH_SECONDS=2");
  StartUp(environment);
  const auto failures = [&] {
    const std::string log = Log(), word = "event=device_failed";
    int count = 0;
    for (size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) ++count;
    return count;
  };
  for (int failed = 1; failed <= 3; ++failed) {
    EXPECT_FALSE(Contains(Log(), "device_out_of_service")) << Log();
    const auto session = failed < 3 ? Connect() : ConnectOther();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
    EXPECT_TRUE(Eventually([&] { return failures() == failed; })) << Log();
    EXPECT_TRUE(session->Close().ok());
  }
  EXPECT_TRUE(Eventually([&] { return Contains(Log(), "device_out_of_service"); })) << Log();
  EXPECT_TRUE(Contains(Log(), "it has failed 3 times within an hour")) << Log();
  const std::string page = test::Get(cluster_.last_metrics(), "/metrics");
  EXPECT_TRUE(Contains(page, "outboard_devices{state=\"out_of_service\"} 1")) << page;
  // The next ones get the GPU that is left, at once, and wait for it where it is taken.
  const auto first = Connect();
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(test::Step(*first).ok()) << first->status() << Log();
  std::unique_ptr<Session> second;
  std::thread waits([&] { second = ConnectOther(); });
  EXPECT_TRUE(Eventually([&] {
    return Contains(test::Get(cluster_.last_metrics(), "/metrics"),
                    "outboard_sessions{state=\"queued\"} 1");
  })) << test::Get(cluster_.last_metrics(), "/metrics");
  EXPECT_TRUE(first->Close().ok());
  waits.join();
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(test::Step(*second).ok()) << second->status() << Log();
  EXPECT_EQ(failures(), 3) << Log();
}

// ---- PTX that the driver refuses ----------------------------------------------------------------

TEST_F(GpuFailures, PtxThatTheDriverRefuses_PlainLoopsRunInstead) {
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_FAULTS=ptx:1"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session);
}

TEST_F(GpuFailures, PtxThatTheDriverRefusesInAnyForm_FailsTheRunWithItsWordsAndTheSessionLives) {
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_FAULTS=ptx:-2"}));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const absl::Status status = test::Step(*session);
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
  EXPECT_TRUE(Contains(status.message(), "does not take the PTX") &&
              Contains(status.message(), "CUDA_ERROR_INVALID_PTX") &&
              Contains(status.message(), "kernel out 3 ") &&
              !Contains(status.message(), "outboard_kernel"))
      << status;
  EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session);
}

// ---- a dtype or size that the device lacks ------------------------------------------------------

TEST_F(GpuFailures, WhatHasNoInstruction_IsComputedFromWhatHas) {
  StartUp(Driver(1));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  const std::vector<double> x = {-3.25, 0, 0.5, 10};
  const auto powers = Compute<double>(
      *session, DType::kF64, {4}, x, [](Graph& g, const UOp* v) { return Alu(g, Op::kExp2, v); });
  ASSERT_TRUE(powers.ok()) << powers.status();
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR((*powers)[i] / std::exp2(x[i]), 1, 1e-14) << x[i];
}

// A grid has at most 65,535 blocks along two of its axes: all lie along the first.
TEST_F(GpuFailures, MoreRowsThanTheOtherAxesOfAGridTake_LieAlongTheFirst) {
  StartUp(Driver(1));
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  constexpr int64_t kRows = 70'000, kColumns = 3;
  std::vector<float> x(kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000);
  const auto sums =
      Compute<float>(*session, DType::kF32, {kRows, kColumns}, x,
                     [](Graph& g, const UOp* v) { return Reduce(g, Op::kAdd, v, {1}); });
  ASSERT_TRUE(sums.ok()) << sums.status();
  ASSERT_EQ(sums->size(), static_cast<size_t>(kRows));
  for (size_t row = 0; row < kRows; row += 6'999)
    EXPECT_EQ((*sums)[row], x[3 * row] + x[3 * row + 1] + x[3 * row + 2]) << row;
}

}  // namespace
}  // namespace outboard
