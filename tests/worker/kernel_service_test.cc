// What a process gets over its kernel socket, and what a hostile one does not: other targets, more
// than one request's memory, another account's objects and measurements, a supervisor that waits.
#include "worker/kernels/kernel_service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"
#include "proto/kernels.pb.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/square_kernel.h"
#include "worker/compile/box_messages.h"
#include "worker/compile/rewrite_log.h"
#include "worker/kernels/kernel_client.h"
#include "worker/kernels/kernel_messages.h"
#include "worker/process/message_io.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

using absl::StatusCode;
using std::chrono::milliseconds;
using test::SquareKernel;

std::vector<KernelSource> Plain(const std::vector<std::string>& encodings) {
  std::vector<KernelSource> kernels;
  for (const std::string& encoding : encodings) kernels.push_back({encoding, std::nullopt});
  return kernels;
}

TuningKey Key(char kernel, bool shareable = false) {
  return {std::string(32, kernel), 1, "here", shareable};
}

search::Trial Made(std::string_view opts, int64_t time_ns) {
  return {ValueOrDie(codegen::ParseOpts(opts)), time_ns, true, true};
}

class KernelServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("OUTBOARD_BOX_FAULTS", "1", 1); }

  std::unique_ptr<KernelService> Start(const AccountFiles& files = {}) {
    KernelServiceOptions options{.compiler = COMPILER, .rewrite_log = folder_ / "viz"};
    std::unique_ptr<KernelService> service = ValueOrDie(KernelService::Start(options));
    service->Serve(files);
    return service;
  }
  std::unique_ptr<KernelClient> ClientOf(KernelService& service, int preempt_fd = -1) {
    return std::make_unique<KernelClient>(service.TakeSocket(), HostTarget(), preempt_fd);
  }
  AccountFiles Files(const std::string& account) {
    return {.objects = folder_ / (account + "/objects"),
            .tuning = folder_ / (account + "/kernels.db"),
            .shared_tuning = folder_ / "shared/kernels.db",
            .learns = true};
  }
  static size_t CountFiles(const std::string& folder) {
    std::error_code none;
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder, none), {}));
  }

  test::TempFolder folder_;
};

proto::KernelRequest CompileOf(const std::vector<KernelSource>& kernels,
                               const Target& target = HostTarget()) {
  proto::KernelRequest request;
  *request.mutable_compile()->mutable_request() = ToRequest(kernels, target);
  return request;
}

// A process that writes what it likes.
class HostileProcess {
 public:
  explicit HostileProcess(KernelService& service) : socket_(service.TakeSocket()) {}
  ~HostileProcess() { close(socket_); }
  void Write(const proto::KernelRequest& request) {
    EXPECT_TRUE(WriteMessage(socket_, request).ok());
  }
  void WriteRaw(const std::string& bytes) { WriteBytes(socket_, bytes).IgnoreError(); }
  absl::StatusOr<proto::KernelReply> Read() {
    proto::KernelReply reply;
    OB_RETURN_IF_ERROR(ReadMessage(socket_, &reply, IoLimits::Within(std::chrono::seconds(30))));
    return reply;
  }
  StatusCode Ask(const proto::KernelRequest& request) {
    Write(request);
    const auto reply = Read();
    return reply.ok() ? static_cast<StatusCode>(reply->code()) : reply.status().code();
  }

 private:
  const int socket_;
};

TEST_F(KernelServiceTest, CompilesForAStepForCandidatesAndForIdleTime) {
  const auto service = Start();
  const auto client = ClientOf(*service);
  const auto kernels = Plain({SquareKernel(8), "nonsense", SquareKernel(9)});
  for (KernelCompiler* compiler : {client->compiler(), client->candidates()}) {
    const auto results = compiler->Compile(kernels);
    ASSERT_EQ(results.size(), 3u);
    EXPECT_TRUE(results[0].ok()) << results[0].status();
    EXPECT_EQ(results[1].status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(results[2].ok()) << results[2].status();
  }
  EXPECT_TRUE(client->idle_compiler()->Compile({&kernels[0], 1})[0].ok());
  EXPECT_TRUE(client->compiler()->Compile({}).empty());
}

TEST_F(KernelServiceTest, ALargeBatchTravelsAsSeveral) {
  const auto service = Start();
  const auto client = ClientOf(*service);
  std::vector<KernelSource> kernels(kBatchKernelsMax + 3, KernelSource{"nonsense", std::nullopt});
  kernels[1].encoding.assign(kBatchBytesMax, 'x');
  kernels[2].encoding.assign(kBatchBytesMax, 'y');
  kernels.back().encoding = SquareKernel(8);
  const auto results = client->compiler()->Compile(kernels);
  ASSERT_EQ(results.size(), kernels.size());
  for (size_t i = 0; i + 1 < results.size(); ++i)
    ASSERT_EQ(results[i].status().code(), StatusCode::kInvalidArgument) << i;
  EXPECT_TRUE(results.back().ok()) << results.back().status();
}

TEST_F(KernelServiceTest, ACrashIsRememberedAndCostsItsKernelOnly) {
  const auto service = Start();
  const auto client = ClientOf(*service);
  for (int round = 0; round < 2; ++round) {
    const auto results = client->compiler()->Compile(Plain({SquareKernel(8), "!abort"}));
    EXPECT_TRUE(results[0].ok()) << results[0].status();
    EXPECT_EQ(results[1].status().code(), StatusCode::kResourceExhausted);
  }
}

// Without the preemption this would take the deadline of 5 s.
TEST_F(KernelServiceTest, IdleCompilationsArePreempted) {
  const auto service = Start();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const auto client = ClientOf(*service, pair[0]);
  ASSERT_EQ(write(pair[1], "!", 1), 1);
  EXPECT_EQ(client->idle_compiler()->Compile(Plain({"!hang"}))[0].status().code(),
            StatusCode::kCancelled);
  // A step is not: it has come for this.
  EXPECT_TRUE(client->compiler()->Compile(Plain({SquareKernel(8)}))[0].ok());
  char ignored;
  ASSERT_EQ(read(pair[0], &ignored, 1), 1);
  EXPECT_TRUE(client->idle_compiler()->Compile(Plain({SquareKernel(8)}))[0].ok());
  close(pair[0]);
  close(pair[1]);
}

TEST_F(KernelServiceTest, EndsWithinACompilation) {
  auto service = Start();
  auto client = ClientOf(*service);
  std::thread step([&] {
    EXPECT_FALSE(client->compiler()->Compile(Plain({"!hang"}))[0].ok());
    EXPECT_EQ(client->compiler()->Compile(Plain({SquareKernel(8)}))[0].status().code(),
              StatusCode::kUnavailable);
  });
  std::this_thread::sleep_for(milliseconds(100));
  const auto start = std::chrono::steady_clock::now();
  service.reset();
  step.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15)) << "not a deadline";
}

TEST_F(KernelServiceTest, TheEndOfAProcessEndsItsCompilation) {
  auto service = Start();
  {
    HostileProcess process(*service);
    process.Write(CompileOf(Plain({"!hang"})));
  }
  service.reset();  // would wait for the deadline
}

TEST_F(KernelServiceTest, ObjectsAreTheAccounts) {
  const auto kernels = Plain({SquareKernel(8)});
  for (const char* account : {"7", "8"}) {
    const auto service = Start(Files(account));
    EXPECT_EQ(CountFiles(Files(account).objects), 0u) << "nothing of another account's";
    ASSERT_TRUE(ClientOf(*service)->compiler()->Compile(kernels)[0].ok());
    EXPECT_EQ(CountFiles(Files(account).objects), 1u);
  }
  const auto service = Start();
  EXPECT_TRUE(ClientOf(*service)->compiler()->Compile(kernels)[0].ok()) << "and without any";
}

TEST_F(KernelServiceTest, MeasurementsAreTheAccounts) {
  const auto service = Start(Files("7"));
  const auto client = ClientOf(*service);
  TuningStore& store = *client->store();
  EXPECT_FALSE(ValueOrDie(store.Find(Key('a'))).has_value());
  ASSERT_TRUE(store.Add(Key('a'), "matmul", Made("VECTOR:0:16", 900)).ok());
  ASSERT_TRUE(store.Add(Key('a'), "matmul", Made("VECTOR:0:8", 700)).ok());
  ASSERT_TRUE(store.Finish(Key('a'), 4).ok());
  const auto found = ValueOrDie(store.Find(Key('a')));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "matmul");
  EXPECT_EQ(found->width, 4);
  EXPECT_EQ(found->trials,
            (std::vector<search::Trial>{Made("VECTOR:0:16", 900), Made("VECTOR:0:8", 700)}));

  std::vector<Demand> demands;
  for (int i = 0; i < 2 * static_cast<int>(kBatchDemandsMax) + 1; ++i)
    demands.push_back({Key(static_cast<char>(i)), "k", std::string(100, 'e'), 10 + i});
  demands.push_back({Key('z'), "too long", std::string(kDemandBytesMax + 1, 'e'), 1'000'000});
  ASSERT_TRUE(store.AddCosts(demands).ok());
  const auto next = ValueOrDie(store.Costliest(1, "here", 4));
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->cost_us, 10 + 2 * static_cast<int>(kBatchDemandsMax));
  EXPECT_FALSE(ValueOrDie(store.Costliest(1, "elsewhere", 4)).has_value());

  const auto other = Start(Files("8"));
  const auto stranger = ClientOf(*other);
  EXPECT_FALSE(ValueOrDie(stranger->store()->Find(Key('a'))).has_value());
  EXPECT_FALSE(ValueOrDie(stranger->store()->Costliest(1, "here", 4)).has_value());
}

TEST_F(KernelServiceTest, WithoutAStoreNothingIsFound) {
  const auto service = Start();
  const auto client = ClientOf(*service);
  EXPECT_FALSE(ValueOrDie(client->store()->Find(Key('a'))).has_value());
  EXPECT_FALSE(ValueOrDie(client->store()->Costliest(1, "here", 4)).has_value());
  EXPECT_FALSE(client->store()->Add(Key('a'), "k", Made("VECTOR:0:8", 700)).ok());
}

TEST_F(KernelServiceTest, ALogOfRewritesIsAFileOfTheSupervisors) {
  {
    const auto service = Start();
    const auto client = ClientOf(*service);
    EXPECT_FALSE(fs::exists(folder_ / "viz")) << "no lines, no file";
    EXPECT_TRUE(client->AppendRewrites("{\"end\":1}\n"));
    EXPECT_TRUE(client->AppendRewrites("{\"end\":2}\n"));
    int appended = 0;
    for (const std::string lines(16 << 20, '\n'); client->AppendRewrites(lines);) ++appended;
    EXPECT_EQ(appended, 3) << "of 64 MiB two lines are gone";
    EXPECT_FALSE(client->AppendRewrites("{\"end\":3}\n"));
  }
  const std::string log = ValueOrDie(NewestLog(folder_ / "viz"));
  EXPECT_LE(static_cast<int64_t>(fs::file_size(log)), kLogBytesMax);
  EXPECT_EQ(CountFiles(folder_ / "viz"), 1u);
}

// ---- hostile processes --------------------------------------------------------------------------

TEST_F(KernelServiceTest, TargetsOtherThanThisMachinesProcessorAreRefused) {
  Target forged = HostTarget();
  forged.features += ",+avx512fp16,+no-such-thing";
  Target large = HostTarget();
  large.kind = TargetKind::kOpenCl;
  large.name.assign(kKernelTextBytesMax + 1, 'x');
  for (const Target& target : {forged, large}) {
    const auto service = Start();
    HostileProcess process(*service);
    EXPECT_EQ(process.Ask(CompileOf(Plain({SquareKernel(8)}), target)),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(process.Ask(CompileOf(Plain({SquareKernel(8)}))), StatusCode::kOk);
    Target other = HostTarget();
    other.kind = TargetKind::kOpenCl;
    EXPECT_EQ(process.Ask(CompileOf(Plain({SquareKernel(8)}), other)), StatusCode::kInvalidArgument)
        << "the first request has decided";
  }
}

TEST_F(KernelServiceTest, RequestsAreBounded) {
  const auto service = Start(Files("7"));
  HostileProcess process(*service);
  proto::KernelRequest many;
  for (size_t i = 0; i <= kBatchKernelsMax; ++i)
    many.mutable_compile()->mutable_request()->add_kernels();
  EXPECT_EQ(process.Ask(many), StatusCode::kInvalidArgument);
  proto::KernelRequest opts = CompileOf(Plain({SquareKernel(8)}));
  opts.mutable_compile()->mutable_request()->mutable_kernels(0)->set_opts(
      std::string(kKernelTextBytesMax + 1, 'x'));
  EXPECT_EQ(process.Ask(opts), StatusCode::kInvalidArgument);
  proto::KernelRequest costs;
  for (size_t i = 0; i <= kBatchDemandsMax; ++i) costs.mutable_costs()->add_demands();
  EXPECT_EQ(process.Ask(costs), StatusCode::kInvalidArgument);
  EXPECT_EQ(process.Ask({}), StatusCode::kInvalidArgument) << "a request of no kind";
  proto::KernelRequest key;
  key.mutable_find()->set_kernel("short");
  EXPECT_EQ(process.Ask(key), StatusCode::kInvalidArgument);
  proto::KernelRequest trial;
  trial.mutable_add()->mutable_key()->set_kernel(std::string(32, 'a'));
  trial.mutable_add()->mutable_key()->set_hardware("here");
  trial.mutable_add()->mutable_trial()->set_opts("no opt");
  EXPECT_EQ(process.Ask(trial), StatusCode::kInvalidArgument);
}

TEST_F(KernelServiceTest, ALongMessageClosesTheSocketBeforeItIsRead) {
  const auto service = Start();
  HostileProcess process(*service);
  const uint32_t length = kKernelRequestBytesMax + 1;
  process.WriteRaw(std::string(reinterpret_cast<const char*>(&length), sizeof length));
  EXPECT_EQ(process.Read().status().code(), StatusCode::kUnavailable);
}

TEST_F(KernelServiceTest, WhatIsNoMessageClosesTheSocket) {
  const auto service = Start();
  HostileProcess process(*service);
  process.WriteRaw(std::string("\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  EXPECT_EQ(process.Read().status().code(), StatusCode::kUnavailable);
}

// Its second request ends the compilation of the first, and waits in the socket, not here.
TEST_F(KernelServiceTest, TwoRequestsAtATime) {
  const auto service = Start();
  HostileProcess process(*service);
  process.Write(CompileOf(Plain({"!hang"})));
  process.Write(CompileOf(Plain({SquareKernel(8)})));
  const auto first = process.Read(), second = process.Read();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->compiled().results(0).code(), static_cast<uint32_t>(StatusCode::kCancelled));
  EXPECT_EQ(second->compiled().results(0).code(), 0u);
}

TEST_F(KernelServiceTest, ACancelWithNothingInFlightIsNotAnswered) {
  const auto service = Start();
  HostileProcess process(*service);
  proto::KernelRequest cancel;
  cancel.mutable_cancel();
  for (int i = 0; i < 10; ++i) process.Write(cancel);
  EXPECT_EQ(process.Ask(CompileOf(Plain({SquareKernel(8)}))), StatusCode::kOk);
}

TEST_F(KernelServiceTest, AProcessThatReadsNoReplyDoesNotKeepItsService) {
  auto service = Start();
  HostileProcess process(*service);
  proto::KernelRequest request;
  request.mutable_find()->set_kernel(std::string(1 << 20, 'x'));
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) process.WriteRaw(std::string("\x02\0\0\0\x1a\0", 6));
  });
  std::this_thread::sleep_for(milliseconds(50));
  service.reset();
  writer.join();
}

}  // namespace
}  // namespace outboard::worker
