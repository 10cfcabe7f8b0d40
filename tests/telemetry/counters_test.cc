// Counting, sampling, and how both become text.
#include "telemetry/counters.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "telemetry/exposition.h"
#include "telemetry/samples.h"

namespace outboard::telemetry {
namespace {

std::string Text(bool by_account = false) {
  return Exposition(kInAll, {"1.2.3", "2", "1"}, by_account);
}
bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Counters, FromManyThreads_AllAreCounted) {
  const uint64_t before = CountOf(Metric::kRuns);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int n = 0; n < 10'000; ++n) Count(Metric::kRuns);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CountOf(Metric::kRuns), before + 40'000);
}

TEST(Counters, OfMillionths_AreShownInTheUnit) {
  Count(Metric::kChargedUsd, 1'500'000);
  EXPECT_TRUE(Has(Text(), "outboard_charged_usd_total 1.5")) << Text();
}

TEST(Counters, Labels_ComeFromTheTable) {
  CountRefused(Refusal::kFleetSecret);
  const std::string text = Text();
  EXPECT_TRUE(Has(text, "outboard_refused_total{reason=\"fleet_secret\"} 1"));
  EXPECT_TRUE(Has(text, "outboard_refused_total{reason=\"rate\"} 0"));
}

TEST(Counters, TwoLabels_OnlyThosePairsThatWereSeen) {
  CountAt(Metric::kCalls, static_cast<size_t>(CallMethod::kStoreSet) * kCodes + 5);
  const std::string text = Text();
  EXPECT_TRUE(Has(text, "outboard_calls_total{method=\"Store.Set\",code=\"NOT_FOUND\"} 1"));
  EXPECT_EQ(text.find("Store.Pin"), std::string::npos);
}

TEST(Counters, Histogram_IsCumulative) {
  ObserveNs(Metric::kQueueWait, 0);
  ObserveNs(Metric::kQueueWait, 200'000'000);      // 0.2 s
  ObserveNs(Metric::kQueueWait, 100'000'000'000);  // above all bounds
  ObserveNs(Metric::kQueueWait, -5);               // a clock that went back
  const std::string text = Text();
  EXPECT_TRUE(Has(text, "outboard_queue_wait_seconds_bucket{le=\"0.0005\"} 2")) << text;
  EXPECT_TRUE(Has(text, "outboard_queue_wait_seconds_bucket{le=\"0.25\"} 3"));
  EXPECT_TRUE(Has(text, "outboard_queue_wait_seconds_bucket{le=\"30\"} 3"));
  EXPECT_TRUE(Has(text, "outboard_queue_wait_seconds_bucket{le=\"+Inf\"} 4"));
  EXPECT_TRUE(Has(text, "outboard_queue_wait_seconds_count 4"));
  EXPECT_TRUE(Has(text, "outboard_queue_wait_seconds_sum 100.2"));
}

TEST(Counters, ExecutorCounts_AreTakenOnceAndAdded) {
  TakeCounts();
  Count(Metric::kWorkerSteps, 3);
  ObserveNs(Metric::kCompileTime, 3'000'000);
  CountAs(Metric::kKernelsCompiled, CompileResult::kFailed, 2);
  const std::vector<CellCount> counts = TakeCounts();
  EXPECT_EQ(counts.size(), 4u);  // a histogram has a bucket and a sum
  EXPECT_EQ(CountOf(Metric::kWorkerSteps), 0u);
  EXPECT_TRUE(TakeCounts().empty());
  AddCounts(counts);
  AddCounts(counts);
  EXPECT_EQ(CountOf(Metric::kWorkerSteps), 6u);
  EXPECT_EQ(CountOf(Metric::kKernelsCompiled, 1), 4u);
}

// An executor runs what strangers send: it counts what is its own, or nothing.
TEST(Counters, ExecutorThatLies_ChangesNothingElse) {
  const uint64_t charged = CountOf(Metric::kChargedUsd);
  const std::vector<CellCount> lies = {{static_cast<uint32_t>(Metric::kChargedUsd), 0, 1'000'000},
                                       {static_cast<uint32_t>(Metric::kWorkerSteps), 1, 7},
                                       {static_cast<uint32_t>(Metric::kWorkerSteps), 0xffffffff, 7},
                                       {0xffffffff, 0, 7},
                                       {static_cast<uint32_t>(kMetrics), 0, 7}};
  AddCounts(lies);
  EXPECT_EQ(CountOf(Metric::kChargedUsd), charged);
  for (uint32_t metric = 0; metric < kMetrics; ++metric)
    for (const uint32_t cell : {0u, 1u, 1'000u, std::numeric_limits<uint32_t>::max()}) {
      const CellCount count{metric, cell, 1};
      AddCounts({&count, 1});
    }
  EXPECT_EQ(CountOf(Metric::kChargedUsd), charged);
}

TEST(Counters, DeviceClasses_AreBounded) {
  const size_t first = DeviceClassLabel("first");
  EXPECT_EQ(DeviceClassLabel("first"), first);
  for (int i = 0; i < 100; ++i)
    CountAt(Metric::kDeviceTime, DeviceClassLabel("c" + std::to_string(i)), 1'000'000);
  EXPECT_EQ(DeviceClasses().size(), InfoOf(Metric::kDeviceTime).labels[0].size());
  EXPECT_EQ(DeviceClasses().back(), "other");
  const std::string text = Text();
  EXPECT_TRUE(Has(text, "outboard_device_seconds_total{class=\"c0\"} 1"));
  EXPECT_TRUE(Has(text, "outboard_device_seconds_total{class=\"other\"} 86")) << text;
}

TEST(Samples, OfSeveralSamplers_AreAddedOrTheLargest) {
  EXPECT_EQ(Text().find("outboard_workers "), std::string::npos);
  {
    const auto sample = [](Samples& samples) {
      samples.Set(Metric::kWorkers, 2);
      samples.Largest(Metric::kQueueOldest, 4);
    };
    const Sampled one(sample), two(sample);
    const std::string text = Text();
    EXPECT_TRUE(Has(text, "outboard_workers 4"));
    EXPECT_TRUE(Has(text, "outboard_queue_oldest_seconds 4"));
  }
  EXPECT_EQ(Text().find("outboard_workers "), std::string::npos);
}

TEST(Samples, Accounts_OnlyWhenAskedFor) {
  const Sampled sampled(
      [](Samples& samples) { samples.SetFor(Metric::kAccountSessions, {"7"}, 3); });
  EXPECT_EQ(Text().find("account="), std::string::npos);
  EXPECT_TRUE(Has(Text(true), "outboard_account_sessions{account=\"7\"} 3"));
}

TEST(Exposition, ProcessAndBuild_AreThere) {
  const std::string text = Text();
  EXPECT_TRUE(
      Has(text, "outboard_build_info{version=\"1.2.3\",protocol=\"2\",graph_schema=\"1\"} 1"));
  for (const char* name : {"process_cpu_seconds_total", "process_open_fds", "process_max_fds",
                           "process_resident_memory_bytes", "process_start_time_seconds"})
    EXPECT_NE(text.find("\n" + std::string(name) + " "), std::string::npos) << name;
  const std::string start = "\nprocess_start_time_seconds ";
  const double seconds = std::stod(text.substr(text.find(start) + start.size()));
  EXPECT_NEAR(seconds, static_cast<double>(time(nullptr)), 300) << "this test started just now";
}

TEST(Exposition, OfAWorker_HasNothingOfAGateway) {
  const std::string text = Exposition(kInWorker, {}, false);
  EXPECT_EQ(text.find("outboard_sessions"), std::string::npos);
  EXPECT_NE(text.find("outboard_compile_seconds"), std::string::npos);
}

}  // namespace
}  // namespace outboard::telemetry
