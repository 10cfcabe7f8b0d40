// The send window's rule in virtual time: a program that always has another step, a path, and a
// cloud that takes one step after the other. What must hold: the cloud does not stand still, and
// its queue is bounded. SW1 to SW3 are the invariants in client/session/core/send_window.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

#include "client/session/core/send_window.h"

namespace outboard::session {
namespace {

using namespace std::chrono_literals;
using Time = SendWindow::Time;

class World {
 public:
  World(Time round_trip, Time step, int batch = 1)
      : way_(round_trip / 2), step_(step), batch_(batch) {}

  void Change(Time round_trip, Time step) {
    way_ = round_trip / 2;
    step_ = step;
  }
  void Restart() { window_.OnRestart(done_, now_); }

  // What was so since the last Reset.
  struct Figures {
    double busy = 0;   // share of the time in which the cloud had something to do
    double queue = 0;  // items in the cloud that had not begun, on average
    uint64_t queue_max = 0;
    uint64_t window_max = 0;
  };
  Figures Run(Time time) {
    Figures figures;
    const Time begin = now_, end = now_ + time;
    Time busy{0};
    double queued = 0;
    while (true) {
      while (sent_ - done_ < std::max<uint64_t>(1, window_.items())) {
        window_.OnSent(sent_ + 1, sent_ - done_, now_);
        ++sent_;
        arrivals_.push_back(std::max(now_ + way_, arrivals_.empty() ? Time{0} : arrivals_.back()));
      }
      figures.window_max = std::max(figures.window_max, window_.items());
      Time next = end;
      if (running_) next = std::min(next, step_ends_);
      if (!arrivals_.empty()) next = std::min(next, arrivals_.front());
      if (!answers_.empty()) next = std::min(next, answers_.front().first);
      if (running_) busy += next - now_;
      queued += static_cast<double>(queue_) * std::chrono::duration<double>(next - now_).count();
      now_ = next;
      if (now_ >= end) break;
      while (!arrivals_.empty() && arrivals_.front() <= now_) {
        arrivals_.pop_front();
        ++queue_;
      }
      if (running_ && step_ends_ <= now_) {
        running_ = false;
        ++applied_;
        if (++unanswered_ >= batch_ || queue_ == 0) {
          answers_.push_back({now_ + way_, applied_});
          unanswered_ = 0;
        }
      }
      if (!running_ && queue_ > 0) {
        --queue_;
        running_ = true;
        step_ends_ = now_ + step_;
      }
      figures.queue_max = std::max(figures.queue_max, queue_);
      while (!answers_.empty() && answers_.front().first <= now_) {
        done_ = std::max(done_, answers_.front().second);
        answers_.pop_front();
        window_.OnDone(done_, now_);
      }
    }
    figures.busy = std::chrono::duration<double>(busy) / std::chrono::duration<double>(end - begin);
    figures.queue = queued / std::chrono::duration<double>(end - begin).count();
    return figures;
  }
  const SendWindow& window() const { return window_; }

 private:
  SendWindow window_;
  Time now_{1s}, way_, step_, step_ends_{0};
  const int batch_;
  uint64_t sent_ = 0, done_ = 0, applied_ = 0, queue_ = 0;
  int unanswered_ = 0;
  bool running_ = false;
  std::deque<Time> arrivals_;
  std::deque<std::pair<Time, uint64_t>> answers_;
};

struct Case {
  Time round_trip, step;
  int batch = 1;
};
std::string Name(const Case& c) {
  return std::to_string(c.round_trip.count() / 1000) + "us_step_" +
         std::to_string(c.step.count() / 1000) + "us_batch_" + std::to_string(c.batch);
}

class WindowTest : public ::testing::TestWithParam<Case> {};

TEST_P(WindowTest, NeverStallsAndQueuesLittle) {
  const auto [round_trip, step, batch] = GetParam();
  World world(round_trip, step, batch);
  world.Run(std::max<Time>(20 * round_trip, 40 * step) + 100ms);
  const World::Figures figures = world.Run(std::max<Time>(25s, 100 * step));  // two measurements
  // A quarter of a round trip in ten seconds.
  EXPECT_GT(figures.busy, 1 - 0.5 * std::chrono::duration<double>(round_trip).count() / 10 - 0.002);
  const double product =
      static_cast<double>((round_trip + step).count()) / static_cast<double>(step.count());
  const double slack =
      6e6 / static_cast<double>(step.count()) + std::min<double>(batch, product + 64) + 3;
  EXPECT_LT(figures.queue, 0.3 * product + slack) << "of " << product << " under way";
  EXPECT_LT(figures.queue_max, product + slack) << "of " << product << " under way";
}

INSTANTIATE_TEST_SUITE_P(Table, WindowTest,
                         ::testing::Values(Case{100us, 20us}, Case{100us, 1ms}, Case{100us, 1s},
                                           Case{1ms, 100us}, Case{20ms, 20us}, Case{20ms, 1ms},
                                           Case{20ms, 50ms}, Case{100ms, 20us},
                                           Case{100ms, 20us, 64}, Case{100ms, 100us, 256},
                                           Case{100ms, 5ms}, Case{100ms, 300ms}, Case{200ms, 20us},
                                           Case{200ms, 1ms, 16}, Case{200ms, 2s}),
                         [](const auto& info) { return Name(info.param); });

TEST(SendWindow, KnowsNothingAtFirst) {
  SendWindow window;
  EXPECT_EQ(window.items(), 16u);
  EXPECT_EQ(window.rate(), 0);
}

TEST(SendWindow, GrowsToThousandsInTenRoundTrips) {
  World world(100ms, 20us);
  world.Run(1s);
  EXPECT_GT(world.window().items(), 5000u);
  EXPECT_LT(world.window().items(), 12'000u);
}

TEST(SendWindow, FollowsAPathThatGetsLonger) {
  World world(200us, 20us);
  world.Run(1s);
  world.Change(200ms, 20us);
  world.Run(2s);
  EXPECT_GT(world.Run(3s).busy, 0.98);
}

TEST(SendWindow, FollowsAPathThatGetsShorter) {
  World world(200ms, 1ms);
  world.Run(3s);
  world.Change(1ms, 1ms);
  world.Run(15s);
  EXPECT_LT(world.Run(3s).queue_max, 20u);
}

TEST(SendWindow, FollowsStepsThatGetSlower) {
  World world(1ms, 20us);
  world.Run(1s);
  world.Change(1ms, 20ms);
  world.Run(10s);
  const World::Figures figures = world.Run(3s);
  EXPECT_LT(figures.queue_max, 5u);
  EXPECT_GT(figures.busy, 0.99);
}

TEST(SendWindow, FollowsStepsThatGetFaster) {
  World world(100ms, 20ms);
  world.Run(3s);
  world.Change(100ms, 200us);
  world.Run(4s);
  EXPECT_GT(world.Run(3s).busy, 0.98);
}

TEST(SendWindow, AFirstStepThatCompilesForSecondsIsForgotten) {
  World world(20ms, 3s);
  world.Run(3s);
  world.Change(20ms, 1ms);
  world.Run(3s);
  const World::Figures figures = world.Run(3s);
  EXPECT_GT(figures.busy, 0.98);
  EXPECT_LT(figures.queue_max, 30u);
}

TEST(SendWindow, ANewConnectionMayBeAnotherPath) {
  World world(1ms, 100us);
  world.Run(1s);
  world.Restart();
  world.Change(100ms, 100us);
  world.Run(2s);
  EXPECT_GT(world.Run(3s).busy, 0.98);
}

// A program that makes less than the cloud could do says nothing about what it could.
TEST(SendWindow, APauseDoesNotNarrowIt) {
  SendWindow window;
  Time now = 1s;
  uint64_t seq = 0;
  for (int burst = 0; burst < 200; ++burst) {  // each fills the window
    const uint64_t items = std::min<uint64_t>(window.items(), 1000);
    for (uint64_t i = 0; i < items; ++i) window.OnSent(++seq, i, now);
    window.OnDone(seq, now + 10ms);
    now += 20ms;
  }
  const uint64_t wide = window.items();
  EXPECT_GT(wide, 100u);
  for (int i = 0; i < 400; ++i) {  // one at a time
    window.OnSent(++seq, 0, now);
    window.OnDone(seq, now + 10ms);
    now += 20ms;
  }
  EXPECT_GE(window.items(), wide / 2);
}

// A clock that stands, or times that make no sense, give a window all the same.
TEST(SendWindow, W2WithoutTimeThereIsAWindow) {
  SendWindow window;
  for (uint64_t seq = 1; seq < 100; ++seq) {
    window.OnSent(seq, 0, Time{0});
    window.OnDone(seq, Time{0});
    EXPECT_GE(window.items(), 1u);
  }
}

}  // namespace
}  // namespace outboard::session
