#include "tests/bench/queue_figures.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "gateway/core/core.h"
#include "gateway/queue/device_queue.h"
#include "tests/bench/report.h"

namespace outboard::bench {
namespace {

using namespace gateway;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kWorkers = 1000;
constexpr uint64_t kWaiting = 10'000;
constexpr int64_t kAccounts = 1000;

uint32_t DevicesOf(const Parts& parts) {
  uint32_t devices = 0;
  for (const PlacedPart& part : parts) devices += part.devices;
  return devices;
}

// A full fleet with kWaiting requests; each time one session ends and whoever fits starts.
class BusyFleet {
 public:
  BusyFleet(uint32_t devices_each, uint32_t largest) : largest_(largest) {
    for (uint64_t worker = 1; worker <= kWorkers; ++worker)
      pools_.Set({.worker = {worker},
                  .pool_name = worker % 2 == 0 ? "even" : "odd",
                  .total = devices_each,
                  .free = devices_each});
    while (queue_.size() < kWaiting) {
      Ask();
      if (pools_.any_free()) StartAll(nullptr);
    }
  }
  // The time of each decision that placed somebody, in seconds.
  std::vector<double> Run(size_t decisions) {
    std::vector<double> took;
    while (took.size() < decisions) {
      now_.ns += 1'000'000;
      End();
      StartAll(&took);
      while (queue_.size() < kWaiting) Ask();
    }
    return took;
  }

 private:
  struct Held {
    TenantId account;
    Parts parts;
  };
  uint64_t Below(uint64_t n) { return random_() % n; }
  void Ask() {
    const auto devices = static_cast<uint32_t>(1 + Below(largest_));
    const TenantId account{1 + static_cast<int64_t>(Below(kAccounts))};
    accounts_[++last_] = account;
    queue_.Add({.session = {0, last_},
                .account = account,
                .wish = {.devices = devices, .workers_max = largest_ > 1 ? 0u : 1u}},
               now_);
  }
  void End() {
    const size_t at = Below(held_.size());
    std::swap(held_[at], held_.back());
    pools_.GiveBack(held_.back().parts);
    queue_.Gave(held_.back().account, DevicesOf(held_.back().parts), now_);
    held_.pop_back();
  }
  void StartAll(std::vector<double>* took) {
    for (;;) {
      const Clock::time_point begin = Clock::now();
      std::vector<DeviceGrant> grants = queue_.Next(pools_, {});
      for (DeviceGrant& grant : grants) {
        const TenantId account = accounts_.extract(grant.session.lo).mapped();
        queue_.Remove(grant.session, pools_);
        pools_.Take(grant.parts);
        queue_.Took(account, DevicesOf(grant.parts), now_);
        held_.push_back({account, std::move(grant.parts)});
      }
      const std::chrono::duration<double> passed = Clock::now() - begin;
      if (grants.empty()) return;
      if (took != nullptr) took->push_back(passed.count());
    }
  }

  const uint32_t largest_;
  DevicePools pools_;
  DeviceQueue queue_;
  MonoTime now_;
  std::mt19937_64 random_{31};
  uint64_t last_ = 0;
  std::map<uint64_t, TenantId> accounts_;
  std::vector<Held> held_;
};

void PlacementFigure(const char* name, uint32_t devices_each, uint32_t largest) {
  std::vector<double> took = BusyFleet(devices_each, largest).Run(20'000);
  std::sort(took.begin(), took.end());
  double sum = 0;
  for (const double s : took) sum += s;
  Report(name, 1e6 * sum / static_cast<double>(took.size()), "us", "",
         absl::StrFormat("mean of 20,000 decisions; %d workers of %d, %d waiting; p99 %.0f us",
                         kWorkers, devices_each, kWaiting, 1e6 * took[took.size() * 99 / 100]));
}

// One trace of requests: a fleet of 54 devices, kept busy by small requests of many accounts, and
// now and then one for all 54.
struct Asked {
  double at_s, runs_s;
  uint32_t devices;
};

// The longest wait of a request for 54. `fifo`: strictly in the order of arrival, with nobody
// passed over: what such a request waits for then runs, or asked, before it.
double LongestWaitOfLargeS(const std::vector<Asked>& trace, bool fifo) {
  DevicePools pools;
  DeviceQueue queue;
  for (uint64_t worker = 1; worker <= 9; ++worker)
    pools.Set({.worker = {worker}, .pool_name = "c", .total = 6, .free = 6});
  using Ending = std::pair<double, uint64_t>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings;
  std::map<uint64_t, Parts> held;
  std::deque<uint64_t> line;
  double longest_s = 0, now_s = 0;
  const auto wish = [&](uint64_t i) {
    return DeviceWish{.devices = trace[i].devices, .workers_max = 0};
  };
  // Each large one is of another account: that of one with much past use waits for its share, too.
  const auto account = [](uint64_t i) {
    return TenantId{1 + static_cast<int64_t>((i + i / 1000 * 13) % 40)};
  };
  const auto now = [&] { return MonoTime{static_cast<int64_t>(now_s * 1e9)}; };
  const auto start = [&](uint64_t i, const Parts& parts) {
    pools.Take(parts);
    held[i] = parts;
    endings.emplace(now_s + trace[i].runs_s, i);
    if (trace[i].devices == 54) longest_s = std::max(longest_s, now_s - trace[i].at_s);
  };
  const auto start_all = [&] {
    while (fifo && !line.empty()) {
      const auto parts = pools.Pick(wish(line.front()), {});
      if (!parts.has_value()) return;
      start(line.front(), *parts);
      line.pop_front();
    }
    while (!fifo) {
      const auto grants = queue.Next(pools, {});
      if (grants.empty()) return;
      const uint64_t i = grants[0].session.lo;
      queue.Remove(grants[0].session, pools);
      start(i, grants[0].parts);
      queue.Took(account(i), trace[i].devices, now());
    }
  };
  for (uint64_t next = 0; next < trace.size() || !endings.empty();) {
    if (next < trace.size() && (endings.empty() || trace[next].at_s <= endings.top().first)) {
      now_s = trace[next].at_s;
      if (fifo)
        line.push_back(next);
      else
        queue.Add({.session = {0, next}, .account = account(next), .wish = wish(next)}, now());
      ++next;
    } else {
      const auto [at_s, i] = endings.top();
      endings.pop();
      now_s = at_s;
      pools.GiveBack(held.at(i));
      if (!fifo) queue.Gave(account(i), trace[i].devices, now());
      held.erase(i);
    }
    start_all();
  }
  return longest_s;
}

// The longest wait of a request for 54 of 54 devices among small ones without an end, over what it
// is where everybody is served strictly in the order of arrival. Without a reservation it grows
// with the trace.
double GroupStarvationRatio() {
  std::mt19937_64 random(53);
  const auto uniform = [&] { return static_cast<double>(random() % 1'000'000) / 1e6; };
  std::vector<Asked> trace;
  for (double at_s = 0; trace.size() < 20'000; at_s += uniform() * 6.9)
    trace.push_back({at_s, 20 + 200 * uniform(),
                     trace.size() % 1000 == 500 ? 54 : 1 + static_cast<uint32_t>(random() % 2)});
  return LongestWaitOfLargeS(trace, /*fifo=*/false) / LongestWaitOfLargeS(trace, /*fifo=*/true);
}

double IdleBilledS() {
  constexpr int64_t kTickNs = kSecondNs / 5;
  GatewayCore core{CoreOptions{}};
  const SessionId id{1, 1};
  int64_t now_ns = 1;
  uint64_t done = 0;
  const auto tell = [&](const Event& event, const auto& again) -> void {
    for (const Action& action : core.On(event, {now_ns}))
      if (const auto* hold = std::get_if<TakeHold>(&action))
        again(HoldAnswered{id, hold->number, {hold->request.to_ms, {}}}, again);
      else if (const auto* lease = std::get_if<BeginLease>(&action))
        again(LeaseWritten{lease->lease}, again);
  };
  const auto pass = [&](double seconds, bool works) {
    for (const int64_t until = now_ns + static_cast<int64_t>(seconds * 1e9); now_ns < until;) {
      now_ns += kTickNs;
      tell(SessionProgress{id, false, works ? ++done : done}, tell);
      tell(WorkerHeartbeat{{1}, {id}}, tell);
      tell(Tick{}, tell);
    }
  };
  tell(WorkerJoined{{1}, "w#", std::vector<DeviceSlot>(1), "w", {}}, tell);
  tell(ClientOpen{{1}, {1}, 1, id, {1, 1}, {}}, tell);
  tell(ExecutorAttached{id, {}}, tell);
  pass(30, true);
  const int64_t worked_ms = core.BillOf(id).ms;
  pass(24 * 3600, false);
  return static_cast<double>(core.BillOf(id).ms - worked_ms) / 1000;
}

}  // namespace

void QueueFigures() {
  PlacementFigure("placement_us", 1, 1);
  PlacementFigure("group_placement_us", 6, 54);
  Report("group_starvation_ratio", GroupStarvationRatio(), "", "",
         "longest wait of a request for all of 54 devices, over that in strict order of arrival");
  Report("idle_billed_s", IdleBilledS(), "s", "", "of a day without work; virtual time");
}

}  // namespace outboard::bench
