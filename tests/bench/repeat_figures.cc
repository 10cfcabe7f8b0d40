#include "tests/bench/repeat_figures.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/check.h"
#include "client/capture/repeat.h"
#include "tests/bench/report.h"
#include "tests/e2e/in_process.h"

namespace outboard::bench {
namespace {

constexpr int kTimes = 20'000;
constexpr int kRounds = 5;

// Of a step, by the least of some rounds of kTimes.
template <typename Round>
double LeastUs(const Round& round) {
  using Clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRounds; ++i) {
    const Clock::time_point begin = Clock::now();
    round();
    least =
        std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return least / kTimes;
}

}  // namespace

void RepeatFigures() {
  SetSession(test::InProcessSession(test::EngineKind::kCompiled));
  {
    Tensor n = Tensor::zeros({4}).contiguous().state_();
    const auto assign = [&] { n.assign(n + 1); };
    const auto step = [&] {
      assign();
      n.realize();
    };
    step();
    repeat(2, assign);
    n.to_host();
    const double once = LeastUs([&] {
      for (int i = 0; i < kTimes; ++i) step();
      n.to_host();
    });
    const double repeated = LeastUs([&] {
      repeat(kTimes, assign);
      n.to_host();
    });
    OB_CHECK(n.to_vector<double>()[0] == 3 + 2.0 * kRounds * kTimes);  // all of it was done
    Report("repeat_us", repeated, "us", "", "a repetition of x + 1 of four floats, in one process");
    Report("repeat_ratio", once / repeated, "", "one Run each",
           "steps sent alone, dispatched ahead, to repetitions");
  }
  SetSession(nullptr);
}

}  // namespace outboard::bench
