// What a session has of a GPU: all of it, alone, and what an earlier session's driver has linked.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "client/nn/optim.h"
#include "client/session/current_session.h"
#include "tests/e2e/gpu_cluster.h"
#include "tests/support/http.h"

namespace outboard {
namespace {

using test::Outboard;

class GpuSessions : public test::GpuCluster {};

TEST_F(GpuSessions, MoreSessionsThanGpus_AreRefusedAtTheStart) {
  const test::Ended ended =
      Outboard("serve --devices 3 --ephemeral --no-auth --listen unix:" + (folder_ / "s"),
               Driver(2));
  EXPECT_NE(ended.code, 0);
  EXPECT_TRUE(Contains(ended.err, "--devices 3") && Contains(ended.err, "2 GPUs")) << ended.err;
}

TEST_F(GpuSessions, SessionsHaveAGpuEach) {
  StartUp(Driver(2));
  const auto first = Connect(), second = Connect();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_TRUE(test::Step(*first).ok()) << test::Step(*first) << Log();
  EXPECT_TRUE(test::Step(*second).ok());
  // Both are taken; the next one's process begins when one is free.
  ASSERT_TRUE(first->Close().ok());
  const auto third = Connect();
  ASSERT_NE(third, nullptr);
  EXPECT_TRUE(test::Step(*third).ok());
}

// A program's graph may be one product by warpgroups, which is compiled alone: what is said of it
// is mostly its views of buffers.
TEST_F(GpuSessions, AProductAlone_IsComputed) {
  StartUp(Driver(1));
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  SetSession(std::move(session));
  {
    constexpr int64_t kSide = 512, kDepth = 512;
    const auto number = [](int64_t i) { return static_cast<float>(i % 5 - 2); };
    std::vector<float> rows, columns;
    for (int64_t i = 0; i < kSide * kDepth; ++i) {
      rows.push_back(number(i / kDepth + i % kDepth));
      columns.push_back(number(3 * (i / kSide) + i % kSide));
    }
    Tensor a = Tensor::from<float>(rows, {kSide, kDepth}).cast(DType::kBF16);
    Tensor b = Tensor::from<float>(columns, {kDepth, kSide}).cast(DType::kBF16);
    a.realize();
    b.realize();
    const std::vector<float> got = a.matmul(b).to_vector<float>();
    ASSERT_EQ(got.size(), static_cast<size_t>(kSide * kSide)) << Log();
    for (const int64_t at : {int64_t{0}, int64_t{511}, 317 * kSide + 3, kSide * kSide - 1}) {
      float want = 0;
      for (int64_t k = 0; k < kDepth; ++k)
        want += rows[at / kSide * kDepth + k] * columns[k * kSide + at % kSide];
      EXPECT_NEAR(got[at], want, std::abs(want) / 256) << at;  // rounded to bf16
    }
  }
  EXPECT_TRUE(CloseSession().ok()) << Log();
  SetSession(nullptr);
}

// A group of executors that each have a GPU: what they exchange leaves the memory of one and comes
// into that of the other.
TEST_F(GpuSessions, ATrainingOnTwoGpus_HasTheLossesOfOne) {
  StartUp(Driver(2));
  uint64_t operations = 0;
  const auto train = [&](uint32_t devices) {
    session::SessionOptions options = cluster_.Options();
    options.devices = devices;
    options.spread = "data";
    options.tell = [](const std::string&) {};
    auto connected = Session::Connect(options);
    EXPECT_TRUE(connected.ok()) << connected.status() << Log();
    if (!connected.ok()) return std::vector<float>();
    SetSession(*std::move(connected));
    std::vector<float> losses;
    {
      constexpr int64_t kRows = 64, kColumns = 4;
      std::vector<float> rows, sums(kRows);
      for (int i = 0; i < kRows * kColumns; ++i) {
        rows.push_back(static_cast<float>(i % 7 - 3) / 4);
        sums[i / kColumns] += rows.back();
      }
      const Tensor x = Tensor::from<float>(rows, {kRows, kColumns});
      const Tensor wanted = Tensor::from<float>(sums, {kRows, 1});
      Tensor w = Tensor::full({kColumns, 1}, 0.5).contiguous();
      optim::SGD sgd({w.requires_grad_()}, 0.1);
      const TrainingMode training(true);
      for (int step = 0; step < 3; ++step) {
        // By itself so small a program is whole on both, and nothing is exchanged.
        const Tensor off = x.shard(0).matmul(w) - wanted;
        const Tensor loss = (off * off).mean();
        loss.backward();
        sgd.step({loss});
        losses.push_back(loss.item());
      }
    }
    const absl::StatusOr<session::Stats> stats = CloseSession();
    EXPECT_TRUE(stats.ok()) << stats.status() << Log();
    if (stats.ok()) operations = stats->operations;
    SetSession(nullptr);
    return losses;
  };
  const std::vector<float> alone = train(1);
  const uint64_t of_one = operations;
  const std::vector<float> together = train(2);
  EXPECT_LT(operations, of_one + of_one / 2) << "of both: each has half of the rows, not all";
  ASSERT_EQ(alone.size(), 3u);
  ASSERT_EQ(together.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(together[i], alone[i], 1e-5 * alone[i]) << "step " << i;
  EXPECT_LT(alone[2], alone[0]);
  EXPECT_TRUE(Contains(Log(), " rank=1 pid=")) << "there is no second executor\n" << Log();
}

// The second process of the account finds what the first has linked; another account does not.
TEST_F(GpuSessions, LinkedCode_IsTheAccountsNextProcesss) {
  cluster_.StartGateway("--snapshot-every 0");
  std::vector<std::string> environment = Driver(1);
  environment.push_back("OUTBOARD_OBJECT_CACHE=" + (folder_ / "objects"));
  const auto worker =
      cluster_.StartWorker("--no-idle-search --shared-anyway --metrics-listen 127.0.0.1:0",
                           environment);
  const std::string metrics = cluster_.last_metrics();
  const auto lookups = [&](const char* result) {
    const std::string page = test::Get(metrics, "/metrics");
    const std::string name =
        std::string("outboard_linked_code_lookups_total{result=\"") + result + "\"} ";
    const size_t at = page.find(name);
    return at == std::string::npos ? -1 : std::atoi(page.c_str() + at + name.size());
  };
  struct Expected {
    bool is_other;
    int hits, misses;
  };
  for (const Expected& expected :
       {Expected{false, 0, 1}, {false, 1, 1}, {true, 1, 2}, {true, 2, 2}, {false, 3, 2}}) {
    const auto session = expected.is_other ? ConnectOther() : Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session) << worker->err();
    EXPECT_EQ(lookups("hit"), expected.hits);
    EXPECT_EQ(lookups("miss"), expected.misses);
    EXPECT_TRUE(session->Close().ok());
  }
}

// ---- between tenants ----------------------------------------------------------------------------

// What a process had run by a kernel of a session, by the driver's notes: bytes that were cleared,
// and blocks that had all of the shared memory that a block can have.
struct Before {
  uint64_t cleared_bytes = 0, wiping_blocks = 0;
};

// A GPU's memory, as the tests' driver has it.
constexpr uint64_t kMemoryBytes = uint64_t{64} << 20, kPageBytes = uint64_t{2} << 20;
constexpr uint64_t kSharedBytes = 227 << 10;

// Two accounts have the one GPU, one after the other: before the first kernel of each, all memory
// that is free is cleared, and the registers and shared memory of every multiprocessor are. What
// the kernel that does it leaves is gpu_leftovers_test's business.
TEST_F(GpuSessions, BetweenTwoAccounts_TheGpuIsWiped) {
  // Where no executor behind walls reaches: this driver is used without them, and numbers of
  // processes are then this machine's.
  const test::TempFolder outside;
  const std::string notes = outside / "notes";
  StartUp(Driver(1, {"OUTBOARD_FAKE_CUDA_NOTES=" + notes}));
  for (const bool is_other : {false, true}) {
    const auto session = is_other ? ConnectOther() : Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok()) << session->status() << Log();
    EXPECT_TRUE(session->Close().ok());
  }
  std::map<int, Before> processes;
  std::set<int> serving;
  std::istringstream lines(test::ReadFile(notes));
  int process = 0;
  std::string what, name, word;
  while (lines >> process >> what) {
    Before& before = processes[process];
    uint64_t bytes = 0, value = 0, blocks = 0;
    if (what == "fill") {
      lines >> bytes >> word >> value;
      if (!serving.contains(process) && value == 0) before.cleared_bytes += bytes;
      continue;
    }
    ASSERT_EQ(what, "kernel");
    lines >> name >> word >> blocks >> word >> bytes;
    if (name == "outboard_scrub") {
      if (!serving.contains(process) && bytes == kSharedBytes) before.wiping_blocks += blocks;
    } else if (serving.insert(process).second) {
      EXPECT_GE(before.cleared_bytes, kMemoryBytes - kPageBytes) << "process " << process;
      EXPECT_EQ(before.wiping_blocks, uint64_t{test::kMultiprocessors}) << "process " << process;
    }
  }
  EXPECT_EQ(serving.size(), 2u) << test::ReadFile(notes);  // a process of its own each
}

}  // namespace
}  // namespace outboard
