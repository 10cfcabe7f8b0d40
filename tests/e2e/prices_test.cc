// A price file, with real processes: classes, the rate check, another file at SIGHUP, and what
// operators see of it.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/session/estimate/recording_session.h"
#include "tests/support/cluster.h"
#include "tests/support/paths.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::Eventually;
using test::Outboard;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One class of everything, with these rates and this price for RUN.
std::string FileOf(const std::string& rates, const std::string& run) {
  return "{\"classes\": [\n {\"name\": \"any\", \"hardware\": [\"*\"], \"rates\": {" + rates +
         "},\n  \"usd_per_hour\": {\"run\": " + run + ", \"held\": 0.9, \"parked\": 0.36}}]}\n";
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

class PricesTest : public ::testing::Test {
 protected:
  std::string file() const { return cluster_.folder() / "prices.json"; }
  std::string Log() { return cluster_.gateway().err(); }
  test::Cluster cluster_;
};

TEST_F(PricesTest, AFleetWithClasses_ServesAtTheirPrices_AndReadsAnotherFile) {
  Write(file(), FileOf("\"gflops\": 0.001, \"memory_gb_per_s\": 0.001", "3.6"));
  cluster_.StartUp(1, "--prices " + file());
  session::SessionOptions options = cluster_.Options();
  options.device_class = "any";
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status() << Log();
  ASSERT_TRUE(test::Step(**session).ok());
  EXPECT_EQ((*session)->stats().price_per_hour_micro_usd, 3'600'000u);

  const std::string data = " --data " + cluster_.data();
  const auto devices = Outboard("device ls --json" + data);
  EXPECT_EQ(devices.code, 0) << devices.err;
  EXPECT_TRUE(Has(devices.out, "\"class\":\"any\"")) << devices.out;
  EXPECT_TRUE(Has(devices.out, "\"state\":\"held\"")) << devices.out;
  EXPECT_TRUE(Has(devices.out, "\"account_name\":\"default\"")) << devices.out;
  const auto top = Outboard("top --count 2 --interval 0.1" + data);
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_TRUE(Has(top.out, "devices of any: 1 of 1 in use")) << top.out;

  Write(file(), FileOf("", "-1"));
  cluster_.gateway().Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return Has(Log(), "event=prices_refused"); })) << Log();
  EXPECT_TRUE(Has(Log(), "line 3")) << Log();
  EXPECT_TRUE(Has(Outboard("price show" + data).out, "$3.600000"));
  Write(file(), FileOf("", "7.2"));
  cluster_.gateway().Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return Has(Outboard("price show" + data).out, "$7.200000"); }))
      << Log();

  ASSERT_TRUE(test::Step(**session).ok());
  EXPECT_EQ((*session)->stats().price_per_hour_micro_usd, 3'600'000u) << "it keeps its price";
  EXPECT_TRUE((*session)->Close().ok());
  auto next = Session::Connect(options);
  ASSERT_TRUE(next.ok()) << next.status() << Log();
  EXPECT_EQ((*next)->stats().price_per_hour_micro_usd, 7'200'000u);
  EXPECT_TRUE((*next)->Close().ok());
  const auto usage = Outboard("usage --by key,state --json" + data);
  EXPECT_EQ(usage.code, 0) << usage.err;
  EXPECT_TRUE(Has(usage.out, "\"state\": \"run\"")) << usage.out;
  EXPECT_FALSE(Has(usage.out, "\"key\": \"\"")) << usage.out;

  options.device_class = "none-such";
  EXPECT_EQ(Session::Connect(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PricesTest, AnEstimate_AsksForClasses_AndAfterTenStepsIsMeasured) {
  Write(file(), FileOf("\"gflops\": 0.001, \"memory_gb_per_s\": 0.001", "3.6"));
  cluster_.StartUp(1, "--prices " + file());
  session::SessionOptions options = cluster_.Options();
  std::vector<std::string> lines;
  std::mutex mutex;
  options.debug = true;
  options.tell = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status() << Log();
  ASSERT_TRUE(test::Step(**session).ok());
  auto estimates = session::EstimatesOf(**session, 100);
  ASSERT_TRUE(estimates.ok()) << estimates.status();
  ASSERT_EQ(estimates->size(), 1u);
  EXPECT_EQ(estimates->front().of.name, "any");
  EXPECT_EQ(estimates->front().of.run_per_hour_micro_usd, 3'600'000u);
  EXPECT_FALSE(estimates->front().is_measured);
  EXPECT_TRUE(estimates->front().seconds.has_value()) << estimates->front().unknown;
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(test::Step(**session).ok());
  estimates = session::EstimatesOf(**session, 100);
  ASSERT_TRUE(estimates.ok()) << estimates.status();
  EXPECT_TRUE(estimates->front().is_measured);
  EXPECT_TRUE((*session)->Close().ok());
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(Has(lines.back(), "estimate ")) << lines.back();
  EXPECT_TRUE(Has(lines.back(), "; error ")) << lines.back();
}

// The program runs twice: without a device, and 20 steps of it on one, which are paid for.
TEST_F(PricesTest, AMeasuredEstimate_IsOfStepsOnADevice_AndCostsThem) {
  Write(file(), FileOf("\"gflops\": 0.000001, \"memory_gb_per_s\": 0.000001", "3.6"));
  cluster_.StartUp(1, "--prices " + file());
  const auto estimate = [&](const std::string& more) {
    return Outboard("estimate --json --steps 100 --gateway " + cluster_.target() + " " + more +
                        " -- " + test::kLinearProgram,
                    {"CLOUD", "CLOUD_KEY=" + cluster_.key()});
  };
  const auto seconds = [](const std::string& json) {
    const size_t at = json.find("\"seconds\": ");
    return at == std::string::npos ? -1 : std::atof(json.c_str() + at + 11);
  };
  const auto by_graphs = estimate("");
  EXPECT_EQ(by_graphs.code, 0) << by_graphs.err;
  EXPECT_TRUE(Has(by_graphs.out, "\"measured\": false")) << by_graphs.out;
  EXPECT_EQ(cluster_.Books()->UsageOfAll()->device_ms, 0) << "an estimate needs no device";
  const auto measured = estimate("--measure");
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_TRUE(Has(measured.out, "\"class\": \"any\"")) << measured.out;
  EXPECT_TRUE(Has(measured.out, "\"measured\": true")) << measured.out;
  EXPECT_GT(seconds(measured.out), 0) << measured.out;
  // The file's rates are so far below this machine's that no load on it makes up for them.
  EXPECT_LT(seconds(measured.out), seconds(by_graphs.out) / 100);
  EXPECT_TRUE(Eventually([&] { return cluster_.Books()->UsageOfAll()->device_ms > 0; }));
}

TEST_F(PricesTest, AnEstimateOfTooFewSteps_MeasuresNothing) {
  cluster_.StartUp(1);
  const auto ended = Outboard(
      "estimate --measure --gateway " + cluster_.target() + " -- " + test::kStepperProgram + " 5",
      {"CLOUD", "CLOUD_KEY=" + cluster_.key()});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(Has(ended.err, "ended before 20 steps were done: nothing is measured")) << ended.err;
}

TEST_F(PricesTest, AWorkerThatFallsShort_IsRefusedAndEnds) {
  Write(file(), FileOf("\"gflops\": 1e9", "1"));
  cluster_.StartGateway("--prices " + file());
  const test::Ended worker =
      Outboard("worker --gateway " + cluster_.fleet_target() + " --fleet-secret-file " +
               cluster_.data() + "/fleet.secret --identity-file " + cluster_.folder().path() +
               "/identity");
  EXPECT_EQ(worker.code, 2) << worker.err;
  EXPECT_TRUE(Has(worker.err, "falls short")) << worker.err;
  EXPECT_TRUE(Has(worker.err, "event=device_measured")) << worker.err;
  EXPECT_TRUE(Eventually([&] { return Has(Log(), "event=worker_refused"); })) << Log();
}

TEST_F(PricesTest, AWrongFile_StartsNoGateway) {
  Write(file(), "{\"classes\": [\n{}]}");
  const test::Ended ended = Outboard("gateway --listen 127.0.0.1:0 --prices " + file() +
                                     " --data " + cluster_.data());
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(Has(ended.err, "line 2")) << ended.err;
}

}  // namespace
}  // namespace outboard
