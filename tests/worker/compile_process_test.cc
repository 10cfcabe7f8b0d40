// The compile process as a process: what comes back, and what its death or silence costs.
#include "worker/compile/compile_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "runtime/devices.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/square_kernel.h"
#include "worker/compile/compile_messages.h"
#include "worker/compile/compile_pool.h"
#include "worker/engine/device_target.h"
#include "worker/process/program_file.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

using test::SquareKernel;
using test::SumOfLoads;

// Kernels as the heuristic optimises them.
struct Sources : std::vector<KernelSource> {
  Sources(std::initializer_list<std::string> encodings) {
    for (const std::string& encoding : encodings) push_back({encoding, std::nullopt});
  }
};

class CompileProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("OUTBOARD_BOX_FAULTS", "1", 1); }
  CompileProcessOptions Options() { return {.program = test::kCompilerProgram}; }
};

TEST_F(CompileProcessTest, ObjectsThatRunAndErrorsByKernel) {
  CompileProcess process(Options());
  const Sources kernels = {SquareKernel(1000), "no kernel", SquareKernel(7)};
  const auto results = process.Compile(kernels);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kInvalidArgument);
  const auto device =
      ValueOrDie(runtime::MakeDevice(runtime::kCpu, {.threads = 2, .memory_bytes_max = 1 << 20}));
  for (const auto& [i, count] : {std::pair{0, 1000}, {2, 7}}) {
    ASSERT_TRUE(results[i].ok()) << results[i].status();
    auto program = device->Load(*results[i]);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<float> in(count), out(count);
    for (int j = 0; j < count; ++j) in[j] = static_cast<float>(j);
    const runtime::DeviceAddress buffers[] = {*device->AddressOfHost(out.data(), 4 * count),
                                              *device->AddressOfHost(in.data(), 4 * count)};
    ASSERT_TRUE(device->Launch(**program, buffers, {}).ok());
    for (int j = 0; j < count; ++j) ASSERT_EQ(out[j], in[j] * in[j]);
  }
  EXPECT_TRUE(process.Compile({}).empty());
}

// A kernel that takes the compiler over must not write into its supervisor's log as it likes.
TEST_F(CompileProcessTest, WhatItPrints_IsALineOfTheLog) {
  if (kIsSanitizersBuild) GTEST_SKIP() << "a sanitizer's build prints to its supervisor's stderr";
  std::mutex mutex;
  std::vector<std::string> log;
  telemetry::StartLogging({.sink = [&](const std::string& line) {
    std::lock_guard lock(mutex);
    log.push_back(line);
  }});
  {
    const test::TempFolder folder;
    const std::string program = folder / "prints";
    std::ofstream(program) << "#!/bin/sh\nprintf 'level=error\\033[2J\\n' >&2\nexit 1\n";
    chmod(program.c_str(), 0700);
    CompileProcess process({.program = program});
    EXPECT_FALSE(process.Compile(Sources{SquareKernel(7)})[0].ok());
  }
  telemetry::StopLogging();
  EXPECT_NE(
      log.end(),
      std::find_if(log.begin(), log.end(),
                   [](const std::string& line) {
                     return line.find("event=compiler_output line=\"level=error\\u{1b}[2J\"") !=
                            std::string::npos;
                   }))
      << absl::StrJoin(log, "\n");
}

// The process compiles for the target that the request carries, not for what it runs on; one that
// says what its processor does not have is an error of the request, and the process lives.
TEST_F(CompileProcessTest, TargetOfTheRequest_DecidesTheCode) {
  const Sources kernels = {SquareKernel(1000)};
  CompileProcessOptions old = Options();
  old.target.arch = "x86-64";
  old.target.features.clear();
  old.target.vector_bytes = 16;
  old.target.vector_registers = 16;
  old.target.bf16 = Bf16Products::kNone;
  CompileProcess process(old), host(Options());
  const auto plain = process.Compile(kernels), wide = host.Compile(kernels);
  ASSERT_TRUE(plain[0].ok() && wide[0].ok()) << plain[0].status() << wide[0].status();
  if (HostTarget().vector_bytes > 16) {
    EXPECT_NE(plain[0]->object, wide[0]->object);
  }
  old.target.bf16 = Bf16Products::kTiles;
  CompileProcess wrong(old);
  const int pid = wrong.process_pid();
  EXPECT_EQ(wrong.Compile(kernels)[0].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(wrong.process_pid(), pid);
}

TEST_F(CompileProcessTest, TargetOfAGpu_GivesPtx) {
  CompileProcessOptions options = Options();
  options.target = CudaTarget("sm_90", 132);
  CompileProcess process(options);
  const auto compiled = process.Compile(Sources{SquareKernel(1000)});
  ASSERT_TRUE(compiled[0].ok()) << compiled[0].status();
  EXPECT_EQ(compiled[0]->form, CompiledKernel::Form::kPtx);
  EXPECT_EQ(compiled[0]->threads[0], 256);
  EXPECT_NE(compiled[0]->object.find(".target sm_90"), std::string::npos);
}

TEST(DeviceTarget, CudaDevice_HasTheNewestCodeThatRunsOnIt) {
  runtime::DeviceProperties properties;
  properties.form = CompiledKernel::Form::kPtx;
  properties.compute_units = 100;
  properties.block_threads_max = 1024;
  properties.shared_bytes = 227 << 10;
  for (const auto& [capability, arch] :
       {std::pair{80, "sm_80"}, {86, "sm_80"}, {89, "sm_89"}, {90, "sm_90a"}, {120, "sm_90"}}) {
    properties.compute_capability = capability;
    const Target target = TargetOfDevice(properties);
    EXPECT_EQ(target.arch, arch) << capability;
    EXPECT_EQ(target.kind, TargetKind::kCuda);
    EXPECT_EQ(target.block_threads, 256);
    const auto back = TargetOfRequest(ToRequest({}, target));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, target);
  }
  for (const auto& [version, lacks] : {std::pair{12'030, true}, {12'040, false}, {13'000, false}}) {
    properties.cuda_version = version;
    const Target target = TargetOfDevice(properties);
    EXPECT_EQ(target.Lacks("ptx84"), lacks) << version;
    EXPECT_EQ(*TargetOfRequest(ToRequest({}, target)), target) << version;
  }
}

TEST(BoxMessages, Target_ComesBackOrIsRefused) {
  Target target = HostTarget();
  target.costs.gate = 7;
  target.block_threads = 64;
  proto::CompileRequest request = ToRequest({}, target);
  const auto back = TargetOfRequest(request);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, target);
  EXPECT_EQ(*TargetOfRequest(proto::CompileRequest()), HostTarget());
  const std::vector<void (*)(proto::CompileTarget&)> wrong = {
      [](proto::CompileTarget& t) { t.set_kind(9); },
      [](proto::CompileTarget& t) { t.set_bf16(3); },
      [](proto::CompileTarget& t) { t.set_threads(0); },
      [](proto::CompileTarget& t) { t.set_vector_bytes(48); },
      [](proto::CompileTarget& t) { t.set_vector_registers(0); },
      [](proto::CompileTarget& t) { t.set_block_threads(0); },
      [](proto::CompileTarget& t) { t.set_l2_bytes(-1); },
      [](proto::CompileTarget& t) { t.set_multiprocessors(-1); },
      [](proto::CompileTarget& t) { t.set_costs("short"); },
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    proto::CompileRequest changed = request;
    wrong[i](*changed.mutable_target());
    EXPECT_EQ(TargetOfRequest(changed).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

// A large batch is shared by threads: every result in its place, and the same bytes as one by one.
// A kernel may have more views of buffers than all else that is said of it. It was refused where it
// was compiled alone, or with few others: "a message of more than 32 fields".
TEST_F(CompileProcessTest, ViewsOfBuffers_AreAsManyAsAKernelHas) {
  CompileProcessOptions options = Options();
  options.target = CudaTarget("sm_90a", 132);
  CompileProcess process(options);
  CompilePool pool({.program = test::kCompilerProgram, .target = options.target, .count = 1});
  const Sources alone = {test::ProductKernel(1024)};
  for (const auto& compiled : {process.Compile(alone)[0], pool.Compile(alone)[0]}) {
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->maps.size(), 3u);
  }
}

// A kernel that is slow because its plan did not fit is right, so that nobody else would tell.
TEST(BoxMessages, PlansThatWereGivenUp_AreLoggedAndCounted) {
  CompiledKernel kernel;
  kernel.given_up = {"MMA 3: too much", std::string(5000, 'x')};
  kernel.threads = {32, 1, 1};
  const auto again = FromResult(ToResult(kernel));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->given_up.size(), 1u);
  EXPECT_EQ(again->given_up[0].rfind("MMA 3: too much; xxx", 0), 0u);
  EXPECT_LE(again->given_up[0].size(), 2000u);

  std::vector<std::string> log;
  telemetry::StartLogging({.sink = [&](const std::string& line) { log.push_back(line); }});
  const uint64_t before = telemetry::CountOf(telemetry::Metric::kKernelPlansGivenUp);
  ReportGivenUp(*again);
  ReportGivenUp(CompiledKernel());
  telemetry::StopLogging();
  EXPECT_EQ(telemetry::CountOf(telemetry::Metric::kKernelPlansGivenUp), before + 1);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("event=kernel_plan_given_up why=\"MMA 3: too much"), std::string::npos)
      << log[0];
}

TEST_F(CompileProcessTest, BatchesKeepTheirOrder) {
  CompileProcess process(Options());
  std::vector<KernelSource> kernels;
  for (int i = 0; i < 40; ++i)
    kernels.push_back({i % 7 == 3 ? "no kernel" : SquareKernel(100 + i), std::nullopt});
  const auto results = process.Compile(kernels);
  ASSERT_EQ(results.size(), kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto alone = process.Compile(std::span(kernels).subspan(i, 1));
    ASSERT_EQ(results[i].status().code(), alone[0].status().code()) << i;
    if (results[i].ok()) {
      ASSERT_EQ(results[i]->object, alone[0]->object) << i;
    }
  }
}

TEST_F(CompileProcessTest, OptsGoWithTheKernel) {
  CompileProcess process(Options());
  const std::string kernel = SquareKernel(1000);
  const auto results = process.Compile(std::vector<KernelSource>{{kernel, std::nullopt},
                                                             {kernel, ""},
                                                             {kernel, "VECTOR:0:4 UPCAST:0:2"},
                                                             {kernel, "VECTOR:0:3"},
                                                             {kernel, "FROB"}});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(results[i].ok()) << i << results[i].status();
  EXPECT_NE(results[0]->object, results[1]->object);
  EXPECT_NE(results[1]->object, results[2]->object);
  for (int i : {3, 4})
    EXPECT_EQ(results[i].status().code(), absl::StatusCode::kInvalidArgument) << i;
}

TEST_F(CompileProcessTest, CrashCostsTheKernelThatDidIt) {
  CompileProcess process(Options());
  const auto results = process.Compile(Sources{SquareKernel(8), "!abort", SquareKernel(9)});
  EXPECT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(results[1].status().message()).find("signal 6"), std::string::npos)
      << results[1].status();
  EXPECT_TRUE(results[2].ok()) << results[2].status();
  // Remembered: the process that runs now is not asked, and lives on.
  const int pid = process.process_pid();
  EXPECT_EQ(process.Compile(Sources{"!abort"})[0].status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(process.process_pid(), pid);
}

// Wherever it ends: in a table that grows, in LLVM, while a request is read.
TEST_F(CompileProcessTest, WhereMemoryEnds_ThatKernelFailsAndIsNotTriedAgain) {
  if (kIsSanitizersBuild) GTEST_SKIP() << "its compile process has no limit";
  const Sources large = {SumOfLoads(400)};
  int failed = 0, compiled = 0;
  for (int room_kb = 0; room_kb <= 64 << 10; room_kb += 256 + room_kb / 2) {
    SCOPED_TRACE(absl::StrCat(room_kb, " KiB"));
    setenv("OUTBOARD_BOX_FAULTS", absl::StrCat("room ", room_kb).c_str(), 1);
    CompileProcess process(Options());
    const absl::Status status = process.Compile(large)[0].status();
    setenv("OUTBOARD_BOX_FAULTS", "1", 1);  // for processes that start from now on
    (status.ok() ? compiled : failed) += 1;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_NE(status.message().find("more memory"), absl::string_view::npos) << status;
    EXPECT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok()) << "another process";
    const int pid = process.process_pid();
    EXPECT_EQ(process.Compile(large)[0].status(), status);
    EXPECT_EQ(process.process_pid(), pid);
  }
  EXPECT_GT(failed, 3);
  EXPECT_GT(compiled, 0);
}

// One that had what others have left behind gets its own process, and all of the memory.
TEST_F(CompileProcessTest, WhereMemoryEndsInAProcessThatWasInUse_AnotherCompiles) {
  if (kIsSanitizersBuild) GTEST_SKIP() << "its compile process has no limit";
  setenv("OUTBOARD_BOX_FAULTS", "room 256", 1);
  CompileProcess process(Options());
  setenv("OUTBOARD_BOX_FAULTS", "1", 1);
  const int pid = process.process_pid();
  EXPECT_TRUE(process.Compile(Sources{SumOfLoads(400)})[0].ok());
  EXPECT_NE(process.process_pid(), pid);
}

// Of a batch with one that ends processes, the others are not held responsible: the second one of
// these has too little memory in the process that compiled the first.
TEST_F(CompileProcessTest, WhoComesAfterOthers_IsTriedAloneBeforeItIsRefused) {
  if (kIsSanitizersBuild) GTEST_SKIP() << "its compile process has no limit";
  CompileProcess process(Options());
  EXPECT_FALSE(process.Compile(Sources{"!abort"})[0].ok());
  setenv("OUTBOARD_BOX_FAULTS", "room 1024", 1);
  EXPECT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok());
  setenv("OUTBOARD_BOX_FAULTS", "1", 1);
  const int pid = process.process_pid();
  const auto results = process.Compile(Sources{"!abort", SumOfLoads(400)});
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(results[1].ok()) << results[1].status();
  EXPECT_NE(process.process_pid(), pid) << "there was room enough: this test shows nothing";
}

TEST_F(CompileProcessTest, WithoutMemoryToStartIn_NoKernelIsBlamed) {
  if (kIsSanitizersBuild) GTEST_SKIP() << "its compile process has no limit";
  setenv("OUTBOARD_BOX_FAULTS", "start in 64", 1);
  CompileProcess process(Options());
  const absl::Status status = process.Compile(Sources{SquareKernel(8)})[0].status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("no memory to start"), absl::string_view::npos) << status;
  setenv("OUTBOARD_BOX_FAULTS", "1", 1);
  EXPECT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok());
}

TEST_F(CompileProcessTest, HangIsCutAtTheDeadline) {
  CompileProcessOptions options = Options();
  options.deadline = std::chrono::milliseconds(1500);
  CompileProcess process(options);
  ASSERT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok());  // LLVM is warm now
  const auto results = process.Compile(Sources{"!hang"});
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(process.Compile(Sources{SquareKernel(10)})[0].ok());
}

TEST_F(CompileProcessTest, AStopEndsItAndIsNotHeldAgainstTheKernels) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  CompileProcessOptions options = Options();
  options.stop_fd = pair[0];
  CompileProcess process(options);
  const int pid = process.process_pid();
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(write(pair[1], "!", 1), 1);
  });
  for (const auto& result : process.Compile(Sources{"!hang", SquareKernel(8), SquareKernel(9)}))
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_NE(process.process_pid(), pid) << "a process that hangs is killed";
  char ignored;
  ASSERT_EQ(read(pair[0], &ignored, 1), 1);
  EXPECT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok());
  close(pair[1]);  // whoever asked has gone
  EXPECT_EQ(process.Compile(Sources{SquareKernel(8)})[0].status().code(),
            absl::StatusCode::kCancelled);
  close(pair[0]);
}

TEST_F(CompileProcessTest, KilledFromOutsideIsReplaced) {
  CompileProcess process(Options());
  ASSERT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok());
  const int pid = process.process_pid();
  kill(pid, SIGKILL);
  EXPECT_TRUE(process.Compile(Sources{SquareKernel(11)})[0].ok());
  EXPECT_NE(process.process_pid(), pid);
}

// A worker has said of which build its kernels are.
TEST_F(CompileProcessTest, AProgramThatIsReplaced_StaysWhatItWas) {
  test::TempFolder folder;
  const std::filesystem::path path = folder / "outboard-compiler";
  std::filesystem::copy_file(test::kCompilerProgram, path);
  CompileProcess process({.program = path});
  ASSERT_TRUE(process.Compile(Sources{SquareKernel(8)})[0].ok());
  // As an installation does it: another file under the name, which is no compiler.
  std::filesystem::copy_file("/bin/true", folder / "new");
  std::filesystem::rename(folder / "new", path);
  EXPECT_EQ(ProgramAt(path).build_id, BuildIdOf(test::kCompilerProgram));
  EXPECT_NE(BuildIdOf(path), BuildIdOf(test::kCompilerProgram));
  kill(process.process_pid(), SIGKILL);
  const auto again = process.Compile(Sources{SquareKernel(9)});
  EXPECT_TRUE(again[0].ok()) << again[0].status();
  std::filesystem::remove(path);
  CompileProcess other({.program = path});
  EXPECT_TRUE(other.Compile(Sources{SquareKernel(10)})[0].ok());
}

TEST_F(CompileProcessTest, AProgramThatIsWrittenOver_IsNotStarted) {
  test::TempFolder folder;
  const std::filesystem::path path = folder / "outboard-compiler";
  std::filesystem::copy_file(test::kCompilerProgram, path);
  ASSERT_FALSE(ProgramAt(path).build_id.empty());
  std::ifstream other("/bin/true", std::ios::binary);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << other.rdbuf();
  CompileProcess process({.program = path});
  const absl::Status status = process.Compile(Sources{SquareKernel(8)})[0].status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("written over"), absl::string_view::npos) << status;
}

TEST_F(CompileProcessTest, NoProgram) {
  CompileProcess process({.program = "/nowhere/outboard-compiler"});
  EXPECT_EQ(process.Compile(Sources{SquareKernel(8)})[0].status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::worker
