// The `outboard` program as a user has it: real processes, real executors, killed and stopped in
// the ways that happen.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/transport/private_serve.h"
#include "client/transport/session.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

extern char** environ;

namespace outboard {
namespace {

using absl::StatusCode;
using transport::RunRequest;
using transport::Session;
using transport::SessionOptions;

struct Result {
  int code = -1;
  std::string out;
};

// Runs `outboard` with `args` to its end.
Result Outboard(const std::string& args) {
  Result result;
  FILE* pipe = popen((std::string(OUTBOARD_BINARY) + " " + args + " 2>/dev/null").c_str(), "r");
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.out.append(buffer, got);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

bool Eventually(const std::function<bool()>& condition, int seconds = 20) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// Children of `pid`, by the kernel's list.
std::vector<int> ChildrenOf(int pid) {
  std::vector<int> children;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    std::ifstream file(task.path() / "children");
    for (int child; file >> child;) children.push_back(child);
  }
  return children;
}

bool IsAlive(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  size_t after_name = line.rfind(')');  // the name may hold anything
  return after_name != std::string::npos && line[after_name + 2] != 'Z';
}

class ProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/obup-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    Stop(SIGKILL);
    std::filesystem::remove_all(folder_);
  }

  void StartUp(int workers) {
    std::string ready = folder_ + "/ready";
    std::vector<std::string> args = {OUTBOARD_BINARY, "up", "--workers", std::to_string(workers),
                                     "--port",        "0",  "--data",    folder_,
                                     "--ready-file",  ready};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    ASSERT_EQ(posix_spawn(&pid_, OUTBOARD_BINARY, nullptr, nullptr, argv.data(), environ), 0);
    ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(ready); }, 40));
    std::getline(std::ifstream(ready), options_.target);
    Result key = Outboard("key create --data " + folder_);
    ASSERT_EQ(key.code, 0);
    options_.key = key.out.substr(0, key.out.find('\n'));
  }

  // The exit status.
  int Stop(int signal) {
    if (pid_ <= 0) return -1;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder_;
  int pid_ = -1;
  SessionOptions options_;
};

// One step of x + x with its value; OK if the value is right.
absl::Status Step(Session& session) {
  Graph g;
  const UOp* x = Param(g, 0, DType::kF32, {Dim(3)});
  auto encoded = EncodeGraph(Sink(g, {Add(g, x, x)}));
  if (!encoded.ok()) return encoded.status();
  const float in[] = {1, 2.5, -3};
  const float expected[] = {2, 5, -6};
  const int64_t dims[] = {3};
  uint64_t input = session.NewHandle(), output = session.NewHandle();
  absl::Status put = session.Put(input, static_cast<uint32_t>(DType::kF32), dims,
                                 {reinterpret_cast<const char*>(in), sizeof in});
  if (!put.ok()) return put;
  RunRequest request;
  request.graph_id = encoded->id.bytes;
  request.graph = std::make_shared<const std::string>(encoded->bytes);
  request.inputs = {input};
  request.outputs = {output};
  request.fetch = {0};
  auto seq = session.Run(request);
  if (!seq.ok()) return seq.status();
  auto value = session.Await(*seq, 0);
  if (!value.ok()) return value.status();
  bool right = value->bytes.size() == sizeof expected &&
               std::memcmp(value->bytes.data(), expected, sizeof expected) == 0;
  return right ? absl::OkStatus() : absl::DataLossError("a wrong value");
}

TEST_F(ProcessesTest, UpRunsStepsBillsThemAndStops) {
  StartUp(2);
  auto first = Session::Connect(options_);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Session::Connect(options_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(Step(**first).ok()) << Step(**first);
  EXPECT_TRUE(Step(**second).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  ASSERT_TRUE((*first)->Close().ok());
  transport::Stats stats = (*first)->stats();
  EXPECT_NEAR(static_cast<double>(stats.seconds_billed), stats.seconds_open, 1.0);
  Result usage = Outboard("usage --json --data " + folder_);
  EXPECT_EQ(usage.code, 0);
  EXPECT_NE(usage.out.find("\"device_seconds\": " + std::to_string(stats.seconds_billed)),
            std::string::npos)
      << usage.out;

  std::vector<int> family = ChildrenOf(pid_);
  EXPECT_EQ(family.size(), 2u);
  for (size_t i = 0; i < family.size(); ++i) {
    for (int child : ChildrenOf(family[i])) family.push_back(child);
  }
  EXPECT_GE(family.size(), 4u);  // an executor each
  EXPECT_EQ(Stop(SIGINT), 0);
  EXPECT_EQ((*second)->status().code() == StatusCode::kOk ? Step(**second).code()
                                                          : (*second)->status().code(),
            StatusCode::kUnavailable);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }, 5)) << pid;
}

TEST_F(ProcessesTest, ChildrenEndWithAParentThatIsKilled) {
  StartUp(1);
  auto session = Session::Connect(options_);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<int> family = ChildrenOf(pid_);
  for (size_t i = 0; i < family.size(); ++i) {
    for (int child : ChildrenOf(family[i])) family.push_back(child);
  }
  ASSERT_GE(family.size(), 2u);
  Stop(SIGKILL);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }, 10)) << pid;
}

TEST_F(ProcessesTest, AKilledWorkerIsSaidSoAndStartedAgain) {
  StartUp(1);
  auto session = Session::Connect(options_);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(**session).ok());
  ASSERT_EQ(ChildrenOf(pid_).size(), 1u);
  kill(ChildrenOf(pid_)[0], SIGKILL);
  absl::Status status;
  ASSERT_TRUE(Eventually([&] { return !(status = Step(**session)).ok(); }));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("worker lost"), std::string::npos) << status;
  absl::StatusOr<std::unique_ptr<Session>> again = absl::UnknownError("");
  EXPECT_TRUE(Eventually([&] { return (again = Session::Connect(options_)).ok(); }))
      << again.status();
  if (again.ok()) EXPECT_TRUE(Step(**again).ok());
}

TEST_F(ProcessesTest, APrivateServeLivesAsLongAsItsSessions) {
  setenv("OUTBOARD_BIN", OUTBOARD_BINARY, 1);
  unsetenv("CLOUD");
  setenv("TMPDIR", folder_.c_str(), 1);
  std::vector<int> before = ChildrenOf(getpid());
  std::vector<int> family;
  {
    auto session = Session::Connect(SessionOptions::FromEnvironment());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(Step(**session).ok());
    auto another = Session::Connect(SessionOptions::FromEnvironment());
    ASSERT_TRUE(another.ok()) << another.status();
    EXPECT_TRUE(Step(**another).ok());
    EXPECT_EQ(ChildrenOf(getpid()).size(), before.size() + 1);  // shared
    family = ChildrenOf(getpid());
    EXPECT_FALSE(std::filesystem::is_empty(folder_));
  }
  EXPECT_EQ(ChildrenOf(getpid()).size(), before.size());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  unsetenv("TMPDIR");
  setenv("OUTBOARD_BIN", "/nowhere/outboard", 1);
  absl::Status none = Session::Connect(SessionOptions::FromEnvironment()).status();
  EXPECT_EQ(none.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(none.message()).find("CLOUD_HOST"), std::string::npos);
  unsetenv("OUTBOARD_BIN");
}

TEST_F(ProcessesTest, ExitCodes) {
  struct Case {
    std::string args;
    int code;
  } cases[] = {
      {"--version", 0},
      {"--help", 0},
      {"", 2},
      {"frob", 2},
      {"up --workers 0", 2},
      {"worker --gateway localhost:1 --quiet", 2},
      {"usage --gateway localhost:1", 2},
      {"usage --data " + folder_ + "/none", 2},
      {"key list --data " + folder_, 0},
      {"gateway --no-auth --listen 0.0.0.0:0 --data " + folder_, 2},
      {"serve --ephemeral --data " + folder_, 2},  // would remove the accounts of a real one
      {"serve --no-auth --ephemeral --listen unix:" + folder_ + "/s --data " + folder_, 2},
      {"key revoke 0000000000000000 --data " + folder_, 1},
      {"key list --data " + folder_, 0},
  };
  for (const Case& c : cases) EXPECT_EQ(Outboard(c.args).code, c.code) << c.args;
}

}  // namespace
}  // namespace outboard
