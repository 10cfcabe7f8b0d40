// Trains on nodes with links between them: over networks of their own, where what one machine's
// loopback would let pass must not matter, over paced connections, and over proxies.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "client/tensor/session_scope.h"
#include "tests/e2e/small_training.h"
#include "tests/shelf/shelf.h"
#include "tests/shelf/shelf_cloud.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

using test::ShelfLinks;

// Of test::SmallNet's convolution, normalisation and product. Each node sends half of them to be
// summed, and half of the sums.
constexpr uint64_t kGradientBytes = 4 * (4 * 9 + 4 + 2 * 4 + 36 * 5 + 5);

class ShelfTest : public ::testing::TestWithParam<ShelfLinks> {
 protected:
  void SetUp() override {
    if (const std::string why = test::Shelf::WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  void Start(test::ShelfOptions options, int devices) {
    options.links = GetParam();
    auto shelf = test::Shelf::Make(options);
    ASSERT_TRUE(shelf.ok()) << shelf.status();
    shelf_ = *std::move(shelf);
    auto cloud = test::ShelfCloud::Start(*shelf_, options.nodes,
                                         {.outboard = test::kOutboardProgram, .devices = devices});
    ASSERT_TRUE(cloud.ok()) << cloud.status();
    cloud_ = *std::move(cloud);
  }
  std::shared_ptr<Session> ConnectTo(uint32_t devices) {
    session::SessionOptions options;
    options.target = cloud_->target();
    options.key = cloud_->key();
    options.devices = devices;
    options.spread = "data";
    auto session = Session::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? std::shared_ptr<Session>(*std::move(session)) : nullptr;
  }
  std::vector<double> LossesOn(uint32_t devices, int steps) {
    const std::shared_ptr<Session> session = ConnectTo(devices);
    std::vector<double> losses;
    if (session == nullptr) return losses;
    {
      const SessionScope scope(session);
      test::SmallTraining training(/*cuts_batch=*/true);
      for (int step = 0; step < steps; ++step) losses.push_back(training.Step().item());
    }
    EXPECT_TRUE(session->Close().ok());
    return losses;
  }
  void ExpectTheSame(uint32_t devices, int steps) {
    const std::vector<double> one = LossesOn(1, steps);
    const std::optional<uint64_t> before = shelf_->bytes();
    const std::vector<double> many = LossesOn(devices, steps);
    if (before.has_value())
      EXPECT_GT(*shelf_->bytes() - *before, 2 * kGradientBytes * static_cast<uint64_t>(steps));
    ASSERT_EQ(one.size(), static_cast<size_t>(steps));
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(many[i], one[i], test::LossTolerance(one[i])) << "step " << i;
  }

  std::unique_ptr<test::Shelf> shelf_;
  std::unique_ptr<test::ShelfCloud> cloud_;
};

INSTANTIATE_TEST_SUITE_P(Over, ShelfTest,
                         ::testing::Values(ShelfLinks::kNetworks, ShelfLinks::kProxies),
                         [](const auto& info) {
                           return info.param == ShelfLinks::kNetworks ? "networks" : "proxies";
                         });

class PacedShelfTest : public ShelfTest {};
INSTANTIATE_TEST_SUITE_P(Over, PacedShelfTest, ::testing::Values(ShelfLinks::kPaced),
                         [](const auto&) { return "paced"; });

// As a worker, or PyTorch, makes them: by the C library, in a program that knows nothing of it.
TEST_P(PacedShelfTest, SocketsOfANodesPrograms_HaveItsRate) {
  const auto shelf =
      test::Shelf::Make({.nodes = 2, .gbit_per_s = 1, .links = ShelfLinks::kPaced});
  ASSERT_TRUE(shelf.ok()) << shelf.status();
  const std::string program =
      " python3 -c 'import socket, struct\n"
      "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
      "  s = socket.socket(socket.AF_INET, kind)\n"
      "  print(struct.unpack(\"Q\", s.getsockopt(socket.SOL_SOCKET, 47, 8))[0])'";
  FILE* const output = popen((absl::StrJoin((*shelf)->In(1), " ") + program).c_str(), "r");
  ASSERT_NE(output, nullptr);
  uint64_t of_stream = 0, of_datagrams = 0;
  EXPECT_EQ(fscanf(output, "%lu %lu", &of_stream, &of_datagrams), 2);
  EXPECT_EQ(pclose(output), 0);
  EXPECT_EQ(of_stream, 125'000'000u);
  EXPECT_EQ(of_datagrams, ~uint64_t{0});  // no limit
}

TEST_P(PacedShelfTest, TwoNodes_HaveTheLossesOfOneDevice) {
  ASSERT_NO_FATAL_FAILURE(Start({.nodes = 2, .gbit_per_s = 1}, 1));
  ExpectTheSame(2, 5);
}

TEST_P(ShelfTest, TwoNodes_HaveTheLossesOfOneDevice) {
  ASSERT_NO_FATAL_FAILURE(Start({.nodes = 2, .gbit_per_s = 1}, 1));
  ExpectTheSame(2, 20);
}

TEST_P(ShelfTest, ThreeNodesOfTwoDevices_HaveThemToo) {
  ASSERT_NO_FATAL_FAILURE(Start({.nodes = 3, .gbit_per_s = 0.1}, 2));
  ExpectTheSame(6, 10);
}

TEST_P(ShelfTest, NodesFarApart_HaveThemToo) {
  ASSERT_NO_FATAL_FAILURE(Start({.nodes = 2, .delay_ms = 10}, 1));
  ExpectTheSame(2, 10);
}

TEST_P(ShelfTest, ANodeThatIsLost_IsNamed) {
  ASSERT_NO_FATAL_FAILURE(Start({.nodes = 2, .gbit_per_s = 1}, 1));
  const std::shared_ptr<Session> session = ConnectTo(2);
  ASSERT_NE(session, nullptr);
  std::string why;
  const SessionScope scope(session);
  try {
    test::SmallTraining training(/*cuts_batch=*/true);
    training.Step().item();
    kill(cloud_->worker(1), SIGKILL);
    for (int i = 0; i < 100'000; ++i) training.Step().item();
  } catch (const Error& error) {
    why = error.what();
  }
  EXPECT_NE(why.find("worker lost: rank 1 of 2 (device 0 of node-1#"), std::string::npos) << why;
}

}  // namespace
}  // namespace outboard
