// What a process gets over its kernel socket, and what a hostile one does not: other targets, more
// than one request's memory, another account's objects and measurements, a supervisor that waits.
#include "worker/kernels/kernel_service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/cores.h"
#include "compiler/ir/encoding.h"
#include "compiler/optimize/opt.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "proto/kernels.pb.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/square_kernel.h"
#include "worker/compile/compile_messages.h"
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

TuningKey Key(char kernel) { return {std::string(32, kernel), search::kSpaceVersion, "here"}; }

search::Trial Made(std::string_view opts, int64_t time_ns) {
  return {ValueOrDie(codegen::ParseOpts(opts)), time_ns, true, true};
}

class KernelServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("OUTBOARD_BOX_FAULTS", "1", 1); }

  static constexpr SearchRights kAllRights{
      .width_max = 4, .uses_idle_time = true, .takes_demands = true};

  std::unique_ptr<KernelService> Start(const AccountFiles& files = {},
                                       const SearchRights& rights = kAllRights,
                                       const std::vector<int>& cores = {},
                                       bool names_target = false) {
    KernelServiceOptions options{.compiler = test::kCompilerProgram,
                                 .rewrite_log = folder_ / "viz",
                                 .rights = rights,
                                 .names_target = names_target,
                                 .cores = cores};
    std::unique_ptr<KernelService> service = ValueOrDie(KernelService::Start(options));
    service->Serve(files);
    return service;
  }
  std::unique_ptr<KernelClient> ClientOf(KernelService& service, int preempt_fd = -1,
                                         const Target& target = HostTarget()) {
    return std::make_unique<KernelClient>(service.TakeSocket(), target, preempt_fd);
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

proto::KernelRequest CompileOf(const std::vector<KernelSource>& kernels) {
  proto::KernelRequest request;
  *request.mutable_compile()->mutable_request() = ToRequest(kernels);
  return request;
}

proto::KernelRequest NameTarget(const Target& target) {
  proto::KernelRequest request;
  *request.mutable_target() = TargetToWire(target);
  return request;
}

Target Gpu(const char* arch, const char* model) {
  Target target = CudaTarget(arch, /*multiprocessors=*/8);
  target.name = target.model = model;
  return target;
}

// The cores that the compile process of this process's service may use.
std::vector<int> CoresOfCompiler() {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    if (line.find("(outboard-compil") == std::string::npos) continue;
    char state;
    int parent = 0;
    std::istringstream(line.substr(line.rfind(')') + 1)) >> state >> parent;
    cpu_set_t set;
    const int pid = std::stoi(entry.path().filename());
    if (parent != getpid() || sched_getaffinity(pid, sizeof set, &set) != 0) continue;
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
  }
  return {};
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
    std::vector<KernelSource> sources = kernels;
    if (compiler == client->candidates())
      for (KernelSource& source : sources) source.opts = "";
    const auto results = compiler->Compile(sources);
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
    demands.push_back({Key('?'), "k", "kernel " + std::to_string(i), 10 + i});
  demands.push_back({Key('z'), "too long", std::string(kDemandBytesMax + 1, 'e'), 1'000'000});
  ASSERT_TRUE(store.AddCosts(demands).ok());
  const auto next = ValueOrDie(store.Costliest(search::kSpaceVersion, "here", 4));
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->cost_us, 10 + 2 * static_cast<int>(kBatchDemandsMax));
  EXPECT_EQ(next->key.kernel, IdOfEncoding(next->encoding).ToBytes())
      << "of the kernel itself, whatever the process says";

  const auto other = Start(Files("8"));
  const auto stranger = ClientOf(*other);
  EXPECT_FALSE(ValueOrDie(stranger->store()->Find(Key('a'))).has_value());
  EXPECT_FALSE(
      ValueOrDie(stranger->store()->Costliest(search::kSpaceVersion, "here", 4)).has_value());
}

TEST_F(KernelServiceTest, WithoutAStoreNothingIsFound) {
  const auto service = Start();
  const auto client = ClientOf(*service);
  const TuningKey keys[] = {Key('a'), Key('b')};
  EXPECT_EQ(ValueOrDie(client->store()->FindAll(keys)).size(), 2u);
  EXPECT_FALSE(ValueOrDie(client->store()->Find(Key('a'))).has_value());
  EXPECT_FALSE(
      ValueOrDie(client->store()->Costliest(search::kSpaceVersion, "here", 4)).has_value());
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

TEST_F(KernelServiceTest, AProcessorsTargetIsNotTheProcessesToName) {
  Target forged = HostTarget();
  forged.features += ",+avx512fp16,+no-such-thing";
  Target threads = HostTarget();
  threads.threads += 1;
  Target driver = HostTarget();
  driver.kind = TargetKind::kOpenCl;
  for (const Target& target : {forged, threads, driver}) {
    const auto service = Start();
    HostileProcess process(*service);
    proto::KernelRequest with_target = CompileOf(Plain({SquareKernel(8)}));
    *with_target.mutable_compile()->mutable_request()->mutable_target() = TargetToWire(target);
    EXPECT_EQ(process.Ask(with_target), StatusCode::kInvalidArgument);
    EXPECT_EQ(process.Ask(NameTarget(target)), StatusCode::kInvalidArgument);
    EXPECT_EQ(process.Ask(CompileOf(Plain({SquareKernel(8)}))), StatusCode::kOk);
  }
}

TEST_F(KernelServiceTest, TheTargetOfADriverIsNamedOnceAndBeforeAllElse) {
  const auto service = Start(Files("a"), kAllRights, {}, /*names_target=*/true);
  HostileProcess process(*service);
  Target driver = HostTarget(), large = driver, processor = driver;
  driver.kind = large.kind = TargetKind::kOpenCl;
  large.name.assign(kKernelTextBytesMax + 1, 'x');
  processor.features += ",+no-such-thing";
  proto::KernelRequest find;
  find.mutable_find()->add_kernels(std::string(32, 'a'));
  for (const proto::KernelRequest& early : {CompileOf(Plain({SquareKernel(8)})), find})
    EXPECT_EQ(process.Ask(early), StatusCode::kFailedPrecondition);
  for (const Target& target : {large, processor})
    EXPECT_EQ(process.Ask(NameTarget(target)), StatusCode::kInvalidArgument);
  EXPECT_EQ(process.Ask(NameTarget(driver)), StatusCode::kOk);
  EXPECT_EQ(process.Ask(CompileOf(Plain({SquareKernel(8)}))), StatusCode::kOk);
  EXPECT_EQ(process.Ask(find), StatusCode::kOk);
  EXPECT_EQ(process.Ask(NameTarget(driver)), StatusCode::kInvalidArgument);
}

// What was measured on one class of GPU is not known of another, nor of the processor beside it.
TEST_F(KernelServiceTest, MeasurementsAreOfTheClassThatTheProcessHas) {
  const auto best_on = [&](const Target& target) -> std::optional<Tuning> {
    const bool on_gpu = target.kind != TargetKind::kCpu;
    const auto service = Start(Files("a"), kAllRights, {}, /*names_target=*/on_gpu);
    return ValueOrDie(ClientOf(*service, -1, target)->store()->Find(Key('k')));
  };
  {
    const auto service = Start(Files("a"), kAllRights, {}, /*names_target=*/true);
    const auto client = ClientOf(*service, -1, Gpu("sm_90a", "H200"));
    ASSERT_TRUE(client->store()->Add(Key('k'), "product", Made("VECTOR:0:4", 500)).ok());
  }
  const auto found = best_on(Gpu("sm_90a", "H200"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->trials.size(), 1u);
  EXPECT_FALSE(best_on(Gpu("sm_90a", "H100")).has_value());
  EXPECT_FALSE(best_on(Gpu("sm_80", "A100")).has_value());
  EXPECT_FALSE(best_on(HostTarget()).has_value());
  const auto file = ValueOrDie(TuningFile::Open(Files("a").tuning));
  const std::vector<Tuning> all = ValueOrDie(file->List());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].key.hardware, Gpu("sm_90a", "H200").Fingerprint());
}

// What an executor asks for when no search was asked for (BEAM=0, no idle search) is refused.
TEST_F(KernelServiceTest, WithoutASearchThatWasAskedForNothingIsSearched) {
  const auto service = Start(Files("7"), {});
  HostileProcess process(*service);
  for (const auto purpose : {proto::CompileKernels::CANDIDATES, proto::CompileKernels::IDLE}) {
    proto::KernelRequest compile = CompileOf({{SquareKernel(8), ""}});
    compile.mutable_compile()->set_purpose(purpose);
    EXPECT_EQ(process.Ask(compile), StatusCode::kFailedPrecondition) << purpose;
  }
  proto::KernelRequest add, finish, costs, next;
  add.mutable_add()->set_kernel(std::string(32, 'a'));
  finish.mutable_finish()->set_width(1);
  costs.mutable_costs();
  next.mutable_next()->set_width(1);
  for (const proto::KernelRequest& request : {add, finish, costs, next})
    EXPECT_EQ(process.Ask(request), StatusCode::kFailedPrecondition) << request.kind_case();
  proto::KernelRequest find;
  find.mutable_find()->add_kernels(std::string(32, 'a'));
  EXPECT_EQ(process.Ask(find), StatusCode::kOk);
  EXPECT_EQ(process.Ask(CompileOf({{SquareKernel(8), ""}})), StatusCode::kOk) << "a step's";
}

TEST_F(KernelServiceTest, ASearchIsNoWiderAndNoLongerThanWasAskedFor) {
  const auto service = Start(Files("7"), {.width_max = 1});
  HostileProcess process(*service);
  const auto candidates = [](size_t count, const KernelSource& candidate) {
    proto::KernelRequest request = CompileOf(std::vector<KernelSource>(count, candidate));
    request.mutable_compile()->set_purpose(proto::CompileKernels::CANDIDATES);
    return request;
  };
  EXPECT_EQ(process.Ask(candidates(1, {SquareKernel(8), "VECTOR:0:8"})), StatusCode::kOk);
  EXPECT_EQ(process.Ask(candidates(1, {SquareKernel(8), std::nullopt})),
            StatusCode::kInvalidArgument)
      << "a kernel as a step has it";
  EXPECT_EQ(process.Ask(candidates(kBatchCandidatesMax + 1, {"nonsense", ""})),
            StatusCode::kInvalidArgument);
  int compiled = 0;
  while (compiled <= kTrialsMax &&
         process.Ask(candidates(kBatchCandidatesMax, {"nonsense", ""})) == StatusCode::kOk)
    compiled += static_cast<int>(kBatchCandidatesMax);
  EXPECT_EQ(compiled, 512) << "of one kernel";
  EXPECT_EQ(process.Ask(candidates(1, {"another", ""})), StatusCode::kOk);
  for (const auto& [width, code] :
       {std::pair{0, StatusCode::kInvalidArgument}, std::pair{1, StatusCode::kOk},
        std::pair{2, StatusCode::kInvalidArgument}}) {
    proto::KernelRequest finish;
    finish.mutable_finish()->set_kernel(std::string(32, 'a'));
    finish.mutable_finish()->set_width(width);
    EXPECT_EQ(process.Ask(finish), code) << width;
  }
}

// So that a session neither compiles on others' cores nor measures for a device that it has not.
TEST_F(KernelServiceTest, CompilesOnTheCoresOfTheDevice) {
  const std::vector<int> usable = UsableCores(), one = {usable.front()}, other = {usable.back()};
  const auto service = Start(Files("7"), kAllRights, one);
  const auto client = ClientOf(*service);
  EXPECT_TRUE(client->compiler()->Compile(Plain({SquareKernel(8)}))[0].ok());
  EXPECT_EQ(CoresOfCompiler(), one);
  ASSERT_TRUE(client->store()->Add(Key('a'), "k", Made("VECTOR:0:8", 700)).ok());
  const auto entries = ValueOrDie(ValueOrDie(TuningFile::Open(Files("7").tuning))->List());
  ASSERT_EQ(entries.size(), 1u);
  Target target = HostTarget();
  target.threads = 1;
  EXPECT_EQ(entries[0].key.hardware, target.Fingerprint()) << "not as the process says";
  service->MoveTo(other);
  EXPECT_TRUE(client->compiler()->Compile(Plain({SquareKernel(9)}))[0].ok());
  EXPECT_EQ(CoresOfCompiler(), other) << "the process that was warm";
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
  proto::KernelRequest find;
  for (size_t i = 0; i <= kBatchFindsMax; ++i) find.mutable_find()->add_kernels();
  EXPECT_EQ(process.Ask(find), StatusCode::kInvalidArgument);
  proto::KernelRequest key;
  key.mutable_find()->add_kernels("short");
  EXPECT_EQ(process.Ask(key), StatusCode::kInvalidArgument);
  proto::KernelRequest trial;
  trial.mutable_add()->set_kernel(std::string(32, 'a'));
  trial.mutable_add()->mutable_trial()->set_opts("no opt");
  EXPECT_EQ(process.Ask(trial), StatusCode::kInvalidArgument);
}

// 16 MiB that would be a GB in memory: eight million kernels of two bytes each.
TEST_F(KernelServiceTest, EmptySubmessagesCloseTheSocketBeforeTheyAreParsed) {
  std::string kernels;
  for (int i = 0; i < 8'000'000; ++i) kernels += std::string("\x0a\0", 2);
  const auto wrapped = [](char tag, const std::string& bytes) {
    std::string field(1, tag);
    for (size_t left = bytes.size(); left > 0 || field.size() == 1; left >>= 7)
      field += static_cast<char>((left & 0x7f) | (left >= 0x80 ? 0x80 : 0));
    return field + bytes;
  };
  for (const std::string& bytes :
       {wrapped('\x0a', wrapped('\x12', kernels)), wrapped('\x32', kernels)}) {
    const auto service = Start();
    HostileProcess process(*service);
    const auto length = static_cast<uint32_t>(bytes.size());
    process.WriteRaw(std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes);
    EXPECT_EQ(process.Read().status().code(), StatusCode::kUnavailable);
  }
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
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) process.WriteRaw(std::string("\x02\0\0\0\x1a\0", 6));
  });
  std::this_thread::sleep_for(milliseconds(50));
  service.reset();
  writer.join();
}

// What a GPU's driver has linked is the account's, as compiled kernels are.
TEST_F(KernelServiceTest, LinkedCode_IsFoundByTheNextProcessOfTheAccount) {
  const std::string key(32, 'k'), other(32, 'o'), code(100'000, 'c');
  {
    const auto service = Start(Files("a"), {}, {}, /*names_target=*/true);
    const auto client = ClientOf(*service);
    EXPECT_EQ(client->linked()->Find({&key, 1}), std::vector<std::string>{""});
    const runtime::LinkedCode linked[] = {{key, code}, {other, "x"}};
    client->linked()->Add(linked);
  }
  const auto service = Start(Files("a"), {}, {}, /*names_target=*/true);
  const std::string keys[] = {other, std::string(32, 'n'), key};
  EXPECT_EQ(ClientOf(*service)->linked()->Find(keys), (std::vector<std::string>{"x", "", code}));
  const auto stranger = Start(Files("b"), {}, {}, /*names_target=*/true);
  EXPECT_EQ(ClientOf(*stranger)->linked()->Find({&key, 1}), std::vector<std::string>{""});
}

TEST_F(KernelServiceTest, LinkedCode_IsNotOfADeviceWithoutADriver) {
  const auto service = Start(Files("a"));
  const auto client = ClientOf(*service);
  const std::string key(32, 'k');
  const runtime::LinkedCode linked[] = {{key, "code"}};
  client->linked()->Add(linked);
  EXPECT_EQ(client->linked()->Find({&key, 1}), std::vector<std::string>{""});
  EXPECT_EQ(CountFiles(folder_ / "a/objects"), 0u);
}

TEST(LinkedMessages, KeysAndCodeAreBounded) {
  proto::FindLinked find;
  find.add_keys(std::string(32, 'k'));
  EXPECT_TRUE(CheckLinked(find).ok());
  find.add_keys("../../../other");
  EXPECT_EQ(CheckLinked(find).code(), StatusCode::kInvalidArgument);
  proto::AddLinked add;
  add.add_kernels()->set_key(std::string(32, 'k'));
  EXPECT_EQ(CheckLinked(add).code(), StatusCode::kInvalidArgument);  // without code
  add.mutable_kernels(0)->set_code(std::string(kLinkedBytesMax, 'c'));
  EXPECT_TRUE(CheckLinked(add).ok());
  add.mutable_kernels(0)->mutable_code()->push_back('c');
  EXPECT_EQ(CheckLinked(add).code(), StatusCode::kInvalidArgument);
  proto::FindLinked many;
  for (size_t i = 0; i <= kBatchLinkedMax; ++i) many.add_keys(std::string(32, 'k'));
  EXPECT_EQ(CheckLinked(many).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::worker
