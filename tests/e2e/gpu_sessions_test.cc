// What a session has of a GPU: all of it, alone, and what an earlier session's driver has linked.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
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
      Tensor x = (Tensor::arange(kRows * kColumns).cast(DType::kF32) * 0.25)
                     .reshape({kRows, kColumns})
                     .sin();
      Tensor wanted = x.sum({1}, true);
      realize(std::vector<Tensor>{x, wanted});
      Tensor w = Tensor::full({kColumns, 1}, 0.5).contiguous();
      optim::SGD sgd({w.requires_grad_()}, 0.1);
      const TrainingMode training(true);
      for (int step = 0; step < 3; ++step) {
        const Tensor off = x.matmul(w) - wanted;
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
  const auto hits = [&] {
    const std::string page = test::Get(metrics, "/metrics");
    const std::string name = "outboard_linked_code_lookups_total{result=\"hit\"} ";
    const size_t at = page.find(name);
    return at == std::string::npos ? -1 : std::atoi(page.c_str() + at + name.size());
  };
  for (const int expected : {0, 1}) {
    const auto session = Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(test::Step(*session).ok()) << test::Step(*session) << worker->err();
    EXPECT_EQ(hits(), expected);
    EXPECT_TRUE(session->Close().ok());
  }
}

}  // namespace
}  // namespace outboard
