// A training whose connection is cut again and again: behind every message, inside messages, on the
// way up and on the way back, and where new connections are refused, stalled or half-closed.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/e2e/cloud_training.h"
#include "tests/net/message_ends.h"

namespace outboard {
namespace {

using std::chrono::milliseconds;
using test::CloudTrainingTest;
using test::Trained;
using test::Way;

constexpr int kSteps = 40;

// Cuts each connection when 1, 2 or 3 messages have passed this way, or within the one that comes
// then. The first is the Open, or its answer; then comes what was not acknowledged.
class MessageCutter {
 public:
  MessageCutter(Way way, bool inside) : way_(way), inside_(inside) {}

  void Arm() { armed_ = true; }
  uint64_t cuts() const { return cuts_; }

  // Sees connections from their first byte, also before it is armed.
  std::optional<size_t> operator()(uint64_t number, Way way, std::string_view bytes) {
    if (way != way_) return std::nullopt;
    const auto [it, fresh] =
        connections_.try_emplace(number, Connection{test::MessageEnds(way == Way::kUp)});
    Connection& connection = it->second;
    if (fresh) connection.left = 1 + connections_.size() % 3 - (inside_ ? 1 : 0);
    size_t begin = 0;
    for (const size_t end : connection.ends.In(bytes)) {
      if (!armed_) continue;
      if (connection.left == 0) return Cut(begin + random_() % (end - begin));
      if (--connection.left == 0 && !inside_) return Cut(end);
      begin = end;
    }
    return std::nullopt;
  }

 private:
  struct Connection {
    test::MessageEnds ends;
    size_t left = 0;  // messages
  };
  size_t Cut(size_t at) {
    ++cuts_;
    return at;
  }

  const Way way_;
  const bool inside_;
  std::atomic<bool> armed_ = false;
  std::atomic<uint64_t> cuts_ = 0;
  std::mt19937 random_{7};
  std::map<uint64_t, Connection> connections_;
};

using CutConnectionsTest = CloudTrainingTest;

TEST_F(CutConnectionsTest, EveryMessageOneWayOrTheOtherWholeOrNot) {
  const Trained expected = Train(kSteps, 1, [](int) {});
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(kSteps));
  for (const Way way : {Way::kUp, Way::kDown}) {
    for (const bool inside : {false, true}) {
      SCOPED_TRACE(std::string(way == Way::kUp ? "up" : "down") +
                   (inside ? ", inside" : ", behind"));
      MessageCutter cutter(way, inside);
      proxy_->SetCutter([&](uint64_t connection, Way which, std::string_view bytes) {
        return cutter(connection, which, bytes);
      });
      const Trained trained = Train(kSteps, 1, [&](int) { cutter.Arm(); });
      ExpectSame(expected, trained);
      EXPECT_GE(cutter.cuts(), 15u);
    }
  }
}

TEST_F(CutConnectionsTest, LargeValues) {
  constexpr int kNumbers = 100'000;
  MessageCutter cutter(Way::kDown, /*inside=*/true);
  proxy_->SetCutter([&](uint64_t connection, Way which, std::string_view bytes) {
    return cutter(connection, which, bytes);
  });
  Open();
  {
    Tensor numbers = Tensor::arange(kNumbers).realize();
    cutter.Arm();
    int added = 0;
    for (int step = 1; step <= 20; ++step) {
      numbers = numbers + step;
      added += step;
      const std::vector<int> values = numbers.to_vector<int>();
      ASSERT_EQ(values.size(), static_cast<size_t>(kNumbers));
      for (int i = 0; i < kNumbers; ++i) ASSERT_EQ(values[i], i + added) << "step " << step;
    }
    Calm();
  }
  EXPECT_GE(cutter.cuts(), 10u);
  Close();
}

}  // namespace
}  // namespace outboard
