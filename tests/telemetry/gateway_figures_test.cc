// What a gateway shows of itself: the census of the core, and accounts in bounded number.
#include "gateway/observe/gateway_figures.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "gateway/core/core.h"
#include "gateway/observe/call_record.h"
#include "telemetry/counters.h"

namespace outboard::gateway {
namespace {

using telemetry::Metric;
using telemetry::SessionStateLabel;

MonoTime At(int64_t seconds) { return {seconds * kSecondNs}; }

size_t In(const Census& census, SessionStateLabel state) {
  return census.by_state[static_cast<size_t>(state)];
}

TEST(Census, OfAQueue_SaysWhoWaitsAndHowLong) {
  GatewayCore core;
  const uint64_t refused =
      telemetry::CountOf(Metric::kRefused, static_cast<size_t>(telemetry::Refusal::kNoDevice));
  core.On(WorkerJoined{.worker = {1},
                       .name = "w",
                       .devices = {DeviceSlot{}},
                       .worker_identity = "w@1"},
          At(1));
  for (uint64_t i = 1; i <= 3; ++i)
    core.On(ClientOpen{.conn = {i},
                       .tenant = {7},
                       .session = {1, i},
                       .resume_hash = {i, i},
                       .queue_ns = 20 * kSecondNs},
            At(1 + static_cast<int64_t>(i)));
  core.On(HoldAnswered{.session = {1, 1}, .number = 1, .answer = {.funded_ms = 60'000}}, At(4));
  core.On(ExecutorAttached{.session = {1, 1}}, At(5));
  core.On(WorkerHeartbeat{.worker = {1}, .alive = {{1, 1}}}, At(6));
  Census census = core.CountAll(At(8));
  EXPECT_EQ(In(census, SessionStateLabel::kLive), 1u);
  EXPECT_EQ(In(census, SessionStateLabel::kQueued), 2u);
  EXPECT_EQ(census.by_tenant, (std::map<int64_t, size_t>{{7, 3}}));
  EXPECT_EQ(census.queued, 2u);
  EXPECT_DOUBLE_EQ(census.queue_oldest_s, 5);
  EXPECT_DOUBLE_EQ(census.heartbeat_oldest_s, 2);
  EXPECT_EQ(census.workers, 1u);
  EXPECT_EQ(census.devices, 1u);
  EXPECT_EQ(census.devices_busy, 1u);

  // They have waited for too long.
  core.On(WorkerHeartbeat{.worker = {1}, .alive = {{1, 1}}}, At(27));
  core.On(Tick{}, At(28));
  census = core.CountAll(At(28));
  EXPECT_EQ(census.queued, 0u);
  EXPECT_EQ(
      telemetry::CountOf(Metric::kRefused, static_cast<size_t>(telemetry::Refusal::kNoDevice)),
      refused + 2);
}

TEST(Census, OfASessionThatWorks_SaysHowOldItsSnapshotIs) {
  GatewayCore core({.snapshot_ns = kSecondNs});
  core.On(WorkerJoined{.worker = {1},
                       .name = "w",
                       .devices = {DeviceSlot{}},
                       .worker_identity = "w@1"},
          At(1));
  core.On(ClientOpen{.conn = {1}, .tenant = {7}, .session = {1, 1}, .resume_hash = {1, 1}}, At(1));
  core.On(HoldAnswered{.session = {1, 1}, .number = 1, .answer = {.funded_ms = 60'000}}, At(1));
  core.On(ExecutorAttached{.session = {1, 1}}, At(2));
  EXPECT_DOUBLE_EQ(core.CountAll(At(4)).snapshot_oldest_s, 0) << "it does nothing";
  core.On(SessionProgress{.session = {1, 1}, .busy = true}, At(4));
  EXPECT_DOUBLE_EQ(core.CountAll(At(5)).snapshot_oldest_s, 3);
  core.On(SnapshotKept{.session = {1, 1}, .root = "r", .seq = 1}, At(6));
  EXPECT_DOUBLE_EQ(core.CountAll(At(7)).snapshot_oldest_s, 1);
}

TEST(LargestAccounts, OthersAreOneSum) {
  std::map<int64_t, double> values;
  for (int64_t account = 1; account <= 1'000; ++account)
    values[account] = static_cast<double>(account);
  const std::map<std::string, double> shown = LargestAccounts(values, 3);
  EXPECT_EQ(shown.size(), 4u);
  EXPECT_EQ(shown.at("1000"), 1000);
  EXPECT_EQ(shown.at("998"), 998);
  EXPECT_EQ(shown.at("other"), 500'500 - 1000 - 999 - 998);
  EXPECT_TRUE(LargestAccounts({}, 3).empty());
}

TEST(RequestIds, OfTheCallerOnlyWhereTheyAreHarmless) {
  EXPECT_EQ(RequestIdOf("0af7651916cd43dd8448eb211c80319c"), "0af7651916cd43dd8448eb211c80319c");
  for (const std::string& bad :
       {std::string(), std::string("short"), std::string(65, 'a'), std::string("with\nbreak"),
        std::string("with space in it"), std::string("null\0byte-here", 14),
        std::string("caf\xc3\xa9-caf\xc3\xa9")}) {
    const std::string id = RequestIdOf(bad);
    EXPECT_NE(id, bad);
    EXPECT_EQ(id.size(), 32u);
  }
  EXPECT_NE(RequestIdOf(""), RequestIdOf(""));
}

}  // namespace
}  // namespace outboard::gateway
