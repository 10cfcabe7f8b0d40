// Sessions on several devices of one worker: a program runs as it does on one, has an executor for
// each device, and is billed for each.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/tensor/session_scope.h"
#include "client/tensor/variable.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/e2e/lost_test.h"
#include "tests/e2e/small_training.h"
#include "tests/e2e/trainer_program.h"
#include "tests/support/row_sums.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::DescendantsNamed;
using test::Eventually;
using test::LossesOf;
using test::LostTest;
using test::Outboard;
using test::StartTraining;
using test::Step;

class GroupsTest : public LostTest {
 protected:
  std::unique_ptr<Session> ConnectTo(uint32_t devices) {
    session::SessionOptions options = cluster_.Options();
    options.devices = devices;
    auto session = Session::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  // The processes of both ranks, by rank. A third one is spare, and may be older or younger.
  std::vector<int> RanksOf(const Session& session) {
    const std::string id = absl::BytesToHexString(session.stats().session_id);
    std::vector<int> ranks(2);
    EXPECT_TRUE(Eventually([&] {
      const std::string log = cluster_.gateway().err();
      for (uint32_t rank = 0; rank < 2; ++rank) ranks[rank] = test::ExecutorOf(log, id, rank);
      return std::ranges::all_of(ranks, [](int pid) { return pid > 0 && test::IsAlive(pid); });
    }));
    return ranks;
  }
};

TEST_F(GroupsTest, ATraining_OnTwoDevices_HasTheLossesOfOneAndIsBilledForTwo) {
  cluster_.StartUp(1, "--devices 2 --no-idle-search");
  std::vector<double> expected;
  for (const std::string devices : {"", "2"}) {
    auto training = StartTraining(cluster_, devices, "60");
    ASSERT_EQ(training->Wait(), 0) << training->err();
    const std::vector<double> losses = LossesOf(training->out());
    ASSERT_EQ(losses.size(), 60u);
    if (expected.empty()) expected = losses;
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], test::LossTolerance(expected[i]))
          << devices << ", step " << i;
  }
  const test::Ended usage = Outboard("usage --json --data " + cluster_.data());
  EXPECT_NE(usage.out.find("\"devices\": 2"), std::string::npos) << usage.out;
  EXPECT_TRUE(cluster_.Books()->Verify().ok());
}

TEST_F(GroupsTest, ASession_HasAnExecutorForEachDeviceAndTwiceTheBill) {
  cluster_.StartUp(1, "--devices 2");
  auto session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Step(*session).ok());
  EXPECT_TRUE(Eventually([&] {
    return DescendantsNamed(cluster_.gateway().pid(), "executor").size() == 3;
  })) << "one is spare, and may come later";
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ASSERT_TRUE(Step(*session).ok());
  ASSERT_TRUE(session->Close().ok());
  const session::Stats stats = session->stats();
  EXPECT_NEAR(stats.seconds_billed, 2 * stats.seconds_open, 1.0);
  EXPECT_EQ(cluster_.Books()->UsageOfAll()->device_ms,
            static_cast<int64_t>(stats.seconds_billed * 1000 + 0.5));
  EXPECT_TRUE(Eventually([&] {
    return DescendantsNamed(cluster_.gateway().pid(), "executor").size() == 1;
  })) << "all of its executors end";
}

// What the ranks hold in parts is whole where it leaves the session: as a value, and on disk.
TEST_F(GroupsTest, AnArrayThatIsCut_IsReadAndStoredWhole) {
  cluster_.StartUp(1, "--devices 3");
  constexpr int64_t kRows = 7, kColumns = 5;  // three parts do not divide them
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {kRows, kColumns});
  const EncodedGraph graph = ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)})));
  std::vector<float> numbers, doubled;
  for (int i = 0; i < kRows * kColumns; ++i) {
    numbers.push_back(static_cast<float>(i));
    doubled.push_back(static_cast<float>(2 * i));
  }
  const auto bytes_of = [](const std::vector<float>& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
  };
  session::SessionOptions options = cluster_.Options();
  options.devices = 3;
  options.spread = "data";
  auto session = ValueOrDie(Session::Connect(options));
  const uint64_t in = session->NewHandle(), out = session->NewHandle();
  const std::vector<int64_t> dims = {kRows, kColumns};
  ASSERT_TRUE(session->Put(in, DType::kF32, dims, bytes_of(numbers)).ok());
  session::RunRequest request;
  request.graph_id = graph.id.bytes;
  request.graph = std::make_shared<const std::string>(graph.bytes);
  request.inputs = {in};
  request.outputs = {out};
  ASSERT_TRUE(session->Run(request).ok());
  const absl::StatusOr<HostTensor> value = session->Await(ValueOrDie(session->Fetch(out)), 0);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, bytes_of(doubled));
  const session::SaveEntry entry{"doubled", out};
  ASSERT_TRUE(session->AwaitSaved(ValueOrDie(session->Save("cut", {&entry, 1}))).ok());
  const auto stored = session->Stored("cut");
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ((*stored)[0].dims, dims);
  const uint64_t back = session->NewHandle();
  ASSERT_TRUE(
      session->PutBlob(back, DType::kF32, dims, (*stored)[0].total_bytes, (*stored)[0].root).ok());
  const absl::StatusOr<HostTensor> again = session->Await(ValueOrDie(session->Fetch(back)), 0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->bytes, bytes_of(doubled));
  EXPECT_TRUE(session->Close().ok());
}

// Six weights of 8 MiB: one device has room for five, two devices for all of them in halves.
TEST_F(GroupsTest, StateThatHasNoRoomWhole_IsStoredInParts) {
  cluster_.StartUp(1, "--devices 2 --session-memory 44MiB");
  Graph g;
  std::vector<const UOp*> weights;
  for (int i = 0; i < 6; ++i) {
    const UOp* const counted = Cast(g, Iota(g, DType::kI64, Dim(int64_t{1} << 21)), DType::kF32);
    weights.push_back(
        Reshape(g, Mul(g, counted, Full(g, ConstFloat(g, DType::kF32, i + 1), counted->shape)),
                {1 << 11, 1 << 10}));
  }
  const EncodedGraph graph = ValueOrDie(EncodeGraph(Sink(g, weights)));
  const auto first_element_of_last_row = [&](uint32_t devices, const std::string& spread) {
    session::SessionOptions options = cluster_.Options();
    options.devices = devices;
    options.spread = spread;
    auto session = ValueOrDie(Session::Connect(options));
    session::RunRequest request;
    request.graph_id = graph.id.bytes;
    request.graph = std::make_shared<const std::string>(graph.bytes);
    for (int i = 0; i < 6; ++i) request.outputs.push_back(session->NewHandle());
    OB_CHECK(session->Run(request).ok());
    absl::StatusOr<HostTensor> value =
        session->Await(ValueOrDie(session->Fetch(request.outputs[2])), 0);
    EXPECT_TRUE(session->Close().ok());
    return value;
  };
  for (const char* spread : {"auto", "fsdp"}) {
    const auto value = first_element_of_last_row(2, spread);
    ASSERT_TRUE(value.ok()) << spread << ": " << value.status();
    const auto* numbers = reinterpret_cast<const float*>(value->bytes.data());
    EXPECT_EQ(numbers[(1 << 21) - 1024], 3.0f * ((1 << 21) - 1024)) << spread;
  }
  const absl::Status refused = first_element_of_last_row(2, "data").status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  test::ExpectAsDocumented("State that has no room on any device of a session", refused);
  EXPECT_EQ(first_element_of_last_row(1, "auto").status().code(),
            StatusCode::kResourceExhausted);
}

// Without snapshots.
TEST_F(GroupsTest, ALostRank_EndsTheSessionAndIsNamed) {
  cluster_.StartUp(1, "--devices 2 --snapshot-every 0");
  auto session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Step(*session).ok());
  const std::vector<int> ranks = RanksOf(*session);
  kill(ranks.at(1), SIGKILL);
  const absl::Status why = FailureOf(*session);
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  test::ExpectAsDocumented("A device of several is lost", why);
  EXPECT_NE(why.message().find("signal 9"), std::string::npos) << why;
  EXPECT_TRUE(Eventually([&] { return !test::IsAlive(ranks[0]); }));
  auto next = ConnectTo(2);
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(Step(*next).ok());
}

class LostRankTest : public GroupsTest {
 protected:
  std::unique_ptr<test::RowSums> Open() {
    session::SessionOptions options = cluster_.Options();
    options.devices = 2;
    options.spread = test::RowSums::kSpread;
    return std::make_unique<test::RowSums>(ValueOrDie(Session::Connect(options)));
  }
};

TEST_F(LostRankTest, ARankThatIsKilled_InACollectiveAndBetween_ChangesNoBit) {
  cluster_.StartUp(1, "--devices 2 --no-idle-search --snapshot-every 1");
  constexpr int kSteps = 60;
  std::vector<std::string> expected;
  {
    auto undisturbed = Open();
    for (int i = 0; i < kSteps; ++i) expected.push_back(ValueOrDie(undisturbed->Step()));
    ASSERT_TRUE(undisturbed->session().Close().ok());
  }
  auto program = Open();
  for (int i = 0; i < kSteps; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that there are snapshots
    if (i == 30) {
      const std::vector<int> ranks = RanksOf(program->session());
      kill(ranks.at(1), SIGKILL);
      EXPECT_TRUE(Eventually([&] { return !test::IsAlive(ranks[0]); })) << "it has no partner";
    }
    absl::StatusOr<std::string> value;
    if (i != 50) {
      value = program->Step();
    } else {
      const std::vector<int> ranks = RanksOf(program->session());
      kill(ranks.at(1), SIGSTOP);
      std::atomic<bool> has_value = false;
      std::thread step([&] {
        value = program->Step();
        has_value = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_FALSE(has_value) << "no step is without the other rank";
      kill(ranks[1], SIGKILL);
      EXPECT_TRUE(Eventually([&] { return !test::IsAlive(ranks[0]); }));
      step.join();
    }
    ASSERT_TRUE(value.ok()) << i << ": " << value.status();
    EXPECT_EQ(*value, expected[i]) << "step " << i;
  }
  EXPECT_TRUE(program->session().Close().ok());
}

TEST_F(LostRankTest, ATrainingOnTwoDevices_WhoseWorkerIsKilled_GoesOnWithAnother) {
  cluster_.StartUp(2, "--devices 2 --no-idle-search --snapshot-every 1");
  auto undisturbed = StartTraining(cluster_, "2", "2000");
  ASSERT_EQ(undisturbed->Wait(), 0) << undisturbed->err();
  auto training = StartTraining(cluster_, "2", "2000");
  ASSERT_TRUE(Eventually([&] { return training->out().find("step 400:") != std::string::npos; }))
      << training->err();
  // The one whose ranks they are.
  for (const char* name : {"--name local-0", "--name local-1"})
    for (const int worker : DescendantsNamed(cluster_.gateway().pid(), name))
      if (DescendantsNamed(worker, "executor").size() >= 2) kill(worker, SIGKILL);
  ASSERT_EQ(training->Wait(), 0) << training->err();
  const auto result = [](const std::string& out) {
    const size_t weights = out.find("weights ");
    return out.substr(0, out.find('\n', weights));
  };
  EXPECT_EQ(result(training->out()), result(undisturbed->out()));
  test::ExpectAsDocumented("A worker or an executor is lost, and the gateway takes snapshots",
                           training->err());
}

// It begins again from its last snapshot, on new executors; what the worker still has of it ends.
TEST_F(LostRankTest, AGatewayThatIsKilledAndStartedAgain_ChangesNoBit) {
  cluster_.StartGateway("--snapshot-every 1");
  cluster_.key();
  auto worker = cluster_.StartWorker("--devices 2 --no-idle-search");
  auto undisturbed = StartTraining(cluster_, "2", "2000");
  ASSERT_EQ(undisturbed->Wait(), 0) << undisturbed->err();
  auto training = StartTraining(cluster_, "2", "2000");
  for (const char* const step : {"step 400:", "step 900:"}) {
    ASSERT_TRUE(Eventually([&] { return training->out().find(step) != std::string::npos; }))
        << training->err();
    // A snapshot in between.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    cluster_.gateway().Stop(SIGKILL);
    cluster_.StartGateway("--snapshot-every 1");
  }
  ASSERT_EQ(training->Wait(), 0) << training->err();
  const auto result = [](const std::string& out) {
    const size_t weights = out.find("weights ");
    return out.substr(0, out.find('\n', weights));
  };
  EXPECT_EQ(result(training->out()), result(undisturbed->out()));
  EXPECT_TRUE(Eventually([&] { return DescendantsNamed(worker->pid(), "executor").size() == 1; }))
      << "those of the gateway before are gone, too";
}

// What is cut stays so: the rows that each rank holds are added up as before.
TEST_F(LostRankTest, ArraysInParts_LieAsBefore_BehindARestartOfTheGateway) {
  cluster_.StartGateway("--snapshot-every 1");
  cluster_.key();
  auto worker = cluster_.StartWorker("--devices 2 --no-idle-search");
  constexpr int kSteps = 40;
  std::vector<std::string> expected;
  {
    auto undisturbed = Open();
    for (int i = 0; i < kSteps; ++i) expected.push_back(ValueOrDie(undisturbed->Step()));
    ASSERT_TRUE(undisturbed->session().Close().ok());
  }
  auto program = Open();
  for (int i = 0; i < kSteps; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that there are snapshots
    if (i == 25) {
      cluster_.gateway().Stop(SIGKILL);
      cluster_.StartGateway("--snapshot-every 1");
    }
    const absl::StatusOr<std::string> value = program->Step();
    ASSERT_TRUE(value.ok()) << i << ": " << value.status();
    EXPECT_EQ(*value, expected[i]) << "step " << i;
  }
  EXPECT_TRUE(program->session().Close().ok());
}

TEST_F(GroupsTest, AWorkerThatStandsStill_CostsNothing) {
  cluster_.StartUp(1, "--devices 2");
  auto training = StartTraining(cluster_, "2", "400");
  ASSERT_TRUE(Eventually([&] { return training->out().find("step 100:") != std::string::npos; }))
      << training->err();
  const std::vector<int> worker = DescendantsNamed(cluster_.gateway().pid(), "--name local-0");
  ASSERT_EQ(worker.size(), 1u);
  kill(worker[0], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(worker[0], SIGCONT);
  ASSERT_EQ(training->Wait(), 0) << training->err();
  EXPECT_EQ(LossesOf(training->out()).size(), 400u);
}

TEST_F(GroupsTest, AWrongNumberOfDevices_IsSaidAtOnce) {
  cluster_.StartUp(1);
  for (const char* devices : {"0", "two", "65", "-1", "2.5"}) {
    auto training = StartTraining(cluster_, devices, "1");
    EXPECT_EQ(training->Wait(), 1) << devices;
    test::ExpectAsDocumented("No devices, or more than a session can have", training->err());
  }
  session::SessionOptions options = cluster_.Options();
  options.devices = 0;
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.devices = 6;
  options.mesh = {2, 2};
  test::ExpectAsDocumented("A mesh that is not of the session's devices",
                           Session::Connect(options).status());
  options.mesh = {2, 3};
  options.spread = "everywhere";
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.spread = "stages";
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kUnimplemented);
}

// What a hint asks for and cannot have: the code, the numbers, and the line of the hint.
TEST_F(GroupsTest, AHintThatDoesNotFit_IsSaidAtItsLine) {
  cluster_.StartUp(1, "--devices 2");
  const std::shared_ptr<Session> session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  const SessionScope scope(session);
  const Tensor x = Tensor::zeros({8, 6}).state_();
  const Variable rows("rows", 1, 8);
  const auto reaches = [&](const Tensor& hinted) { return (hinted + 1).sum().item(); };
  struct Case {
    StatusCode code;
    std::vector<std::string> words;
    int line;
    std::function<Tensor()> hinted;
  };
  const std::vector<Case> cases = {
      {StatusCode::kInvalidArgument, {"mesh axis 1", "2"}, __LINE__,
       [&] { return x.shard(0, 1); }},
      {StatusCode::kInvalidArgument, {"dimension 1", "dimension 0"}, __LINE__,
       [&] { return x.shard(0).shard(1); }},
      {StatusCode::kUnimplemented, {"dimension 0", "VAR", "rows"}, __LINE__,
       [&] { return x.slice(0, 0, rows.bind(4)).shard(0); }}};
  for (const Case& c : cases) {
    try {
      reaches(c.hinted());
      ADD_FAILURE() << "the hint of line " << c.line << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status().code(), c.code) << error.what();
      for (const std::string& words : c.words)
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
            << error.what() << "\nlacks " << words;
      EXPECT_NE(std::string(error.what()).find(absl::StrCat("groups_test.cc:", c.line + 1)),
                std::string::npos)
          << error.what() << "\nlacks line " << c.line + 1;
    }
  }
  EXPECT_EQ(reaches(x.shard(0)), 48) << "the session goes on";
}

// A client may say what it wants, not how devices do it.
TEST_F(GroupsTest, AGraphWithOperationsOfDevices_IsRefused) {
  cluster_.StartUp(1, "--devices 2");
  for (const uint32_t devices : {1u, 2u}) {
    auto session = ConnectTo(devices);
    ASSERT_NE(session, nullptr);
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {4});
    const UOp* const all = g.MakeChecked(Op::kUnshard, DType::kVoid, {x}, {0, 2, 1});
    const EncodedGraph graph = ValueOrDie(EncodeGraph(Sink(g, {all})));
    session::RunRequest request;
    request.graph_id = graph.id.bytes;
    request.graph = std::make_shared<const std::string>(graph.bytes);
    request.inputs = {session->NewHandle()};
    request.outputs = {session->NewHandle()};
    const std::vector<int64_t> dims = {4};
    ASSERT_TRUE(session->Put(request.inputs[0], DType::kF32, dims, std::string(16, '\0')).ok());
    ASSERT_TRUE(session->Run(request).ok());
    const absl::Status refused =
        session->Await(ValueOrDie(session->Fetch(request.outputs[0])), 0).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused;
    EXPECT_NE(refused.message().find("node 1 (UNSHARD)"), std::string::npos) << refused;
    EXPECT_TRUE(session->Close().ok());
  }
}

}  // namespace
}  // namespace outboard
