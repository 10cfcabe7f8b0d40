// A training on a network that stalls, closes half of a connection, refuses, lets connections
// overtake each other, and whose client stands still: what comes out is what comes out of a good
// one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/cloud_training.h"
#include "tests/support/documented.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

using std::chrono::milliseconds;
using test::Eventually;
using test::Trained;
using test::Way;

constexpr int kSteps = 12;

class BadNetworkTest : public test::CloudTrainingTest {
 protected:
  // With `fault` before the sixth step; the loss is read at each.
  void TrainWith(const std::function<void()>& fault) {
    static const Trained expected = Train(kSteps, 1, [](int) {});
    const Trained actual = Train(kSteps, 1, [&](int step) {
      if (step == 5) fault();
    });
    ExpectSame(expected, actual);
    EXPECT_EQ(actual.losses.size(), static_cast<size_t>(kSteps));
  }
};

TEST_F(BadNetworkTest, Stalls) {
  TrainWith([&] { proxy_->StallFor(Way::kUp, milliseconds(300)); });
  TrainWith([&] { proxy_->StallFor(Way::kDown, milliseconds(300)); });
  EXPECT_EQ(proxy_->counters().cut, 0u);
}

TEST_F(BadNetworkTest, SilenceIsToldWhileItLasts) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto told = [&](const std::string& words) {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(
        lines, [&](const auto& line) { return line.find(words) != std::string::npos; });
  };
  session::SessionOptions options = Options();
  options.tell = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  SetSession(*std::move(session));
  test::SmallTraining training;
  training.Step().item();
  for (const Way way : {Way::kUp, Way::kDown}) proxy_->Stall(way);
  std::jthread network([&] {
    EXPECT_TRUE(Eventually([&] { return told("no data from the gateway"); }));
    Calm();
  });
  training.Step().item();
  network.join();
  EXPECT_EQ(proxy_->counters().cut, 0u);
  Close();
  EXPECT_EQ(lines.size(), 2u);
  for (const std::string& line : lines)
    test::ExpectAsDocumented("Packets vanish while the program waits", line);
}

TEST_F(BadNetworkTest, AHalfOfTheConnectionIsClosed) {
  for (const Way way : {Way::kUp, Way::kDown}) {
    const uint64_t before = proxy_->counters().connections;
    TrainWith([&] { proxy_->HalfClose(way); });
    EXPECT_GE(proxy_->counters().connections, before + 2);  // made, and made again
  }
}

TEST_F(BadNetworkTest, NobodyListensForAMoment) {
  std::jthread later;  // also joined where the training fails before it is begun
  TrainWith([&] {
    proxy_->SetRefuse(true);
    proxy_->CutAll();
    later = std::jthread([&] {
      std::this_thread::sleep_for(milliseconds(600));
      proxy_->SetRefuse(false);
    });
  });
}

TEST_F(BadNetworkTest, TheNewConnectionIsOvertakenByTheOneAfterIt) {
  TrainWith([&] {
    proxy_->HoldNextConnection();
    proxy_->CutAll();
  });
}

TEST_F(BadNetworkTest, AFarGatewayIsFoundAgain) {
  TrainWith([&] {
    proxy_->SetRoundTrip(milliseconds(300));
    proxy_->CutAll();
  });
}

TEST_F(BadNetworkTest, DelaysThatChange) {
  TrainWith([&] {
    for (const Way way : {Way::kUp, Way::kDown})
      proxy_->SetShape(
          way, {.delay = milliseconds(3), .jitter = milliseconds(10), .bytes_per_s = 200'000});
  });
}

TEST_F(BadNetworkTest, BytesThatAreCutWhileAnUploadPasses) {
  // Of 3 MB, in chunks; cut once in a while, resumed each time.
  Open();
  std::string bytes(3 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  for (const uint64_t at : {5'000, 700'000, 1'500'000}) proxy_->CutAfter(Way::kUp, at);
  const Tensor tensor = Tensor::from_bytes(DType::kU8, {static_cast<int64_t>(bytes.size())}, bytes);
  EXPECT_TRUE(tensor.to_host().bytes == bytes);
  EXPECT_GE(proxy_->counters().cut, 1u);
  Close();
}

// A laptop that is closed for a while. The connection is cut meanwhile, as the gateway does when
// its pings are not answered: after 30 s, which is tried with OUTBOARD_STOPPED_S=60.
TEST_F(BadNetworkTest, AClientThatStandsStill) {
  const char* const given = std::getenv("OUTBOARD_STOPPED_S");
  const int seconds = given != nullptr ? std::atoi(given) : 2;
  std::string results[2];
  for (const bool stopped : {false, true}) {
    test::Process trainer(
        {test::kSmallTrainerProgram, "400"},
        {"CLOUD=1", "CLOUD_HOST=" + proxy_->address(), "CLOUD_KEY=" + cluster_.key()});
    if (stopped) {
      ASSERT_TRUE(Eventually([&] { return trainer.out().find("step 20:") != std::string::npos; }))
          << trainer.err();
      trainer.Signal(SIGSTOP);
      if (seconds < 40) proxy_->CutAll();
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      EXPECT_EQ(trainer.out().find("weights"), std::string::npos);
      trainer.Signal(SIGCONT);
    }
    EXPECT_EQ(trainer.Wait(), 0) << trainer.err();
    results[stopped] = trainer.out();
  }
  EXPECT_NE(results[0].find("weights"), std::string::npos);
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace outboard
