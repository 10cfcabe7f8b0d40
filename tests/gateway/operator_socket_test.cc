// What an operator on the gateway's machine sees: by its socket, and as `outboard` shows it.
#include "gateway/observe/operator_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/books/fleet.h"
#include "gateway/prices/price_list.h"
#include "gateway/server/gateway.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

FleetView AView() {
  FleetView view;
  view.devices.push_back(
      {"gpu-1#1", 0, {"sm_90", 80'000'000'000, {2'500'000}, "large", {}, 51234.4, 2987.6},
       SessionId{0xab, 1}, "held"});
  view.devices.push_back({"gpu-1#1", 1, {"sm_90", 80'000'000'000, {2'500'000}, "large", {}},
                          std::nullopt, "out"});
  SessionView runs;
  runs.session = SessionId{0xab, 1};
  runs.account = TenantId{7};
  runs.state = "running";
  runs.state_s = 125;
  runs.worker = "gpu-1#1";
  runs.per_hour = {2'500'000};
  runs.bill = {60'000, {41'666}};
  SessionView waits;
  waits.session = SessionId{0xcd, 2};
  waits.account = TenantId{8};
  waits.state = "queued";
  waits.place = QueuePlace{waits.session, 3, 90};
  view.sessions = {waits, runs};
  return view;
}

const cli::AccountNames kNames = {{7, "ada"}};

PriceList AList() {
  return *ParsePriceList(
      R"({"classes": [{"name": "large", "hardware": ["sm_90*"], "memory": "80GB",)"
      R"("rates": {"gflops": 30000}, "usd_per_hour": {"run": 2.5, "parked": 0.02}}]})");
}

TEST(FleetText, ATable_HasEveryDeviceAndSession) {
  const PriceList list = AList();
  const std::string answer = FleetJson(AView(), &list, {500'000}, kNoon);
  const auto devices = cli::DevicesText(answer, kNames);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_TRUE(Has(*devices, "ada")) << *devices;
  EXPECT_TRUE(Has(*devices, "out")) << *devices;
  EXPECT_TRUE(Has(*devices, "$2.500000")) << *devices;
  EXPECT_TRUE(Has(*devices, "GFLOP/s")) << *devices;
  EXPECT_TRUE(Has(*devices, " 51234     2988 ")) << *devices;
  EXPECT_TRUE(Has(*devices, " -        - ")) << "not measured: " << *devices;
  const auto prices = cli::PricesText(answer);
  ASSERT_TRUE(prices.ok()) << prices.status();
  EXPECT_TRUE(Has(*prices, "large")) << *prices;
  EXPECT_TRUE(Has(*prices, "$0.020000")) << *prices;
  EXPECT_TRUE(Has(*prices, "30000 GFLOP/s")) << *prices;
  const auto top = cli::TopText(answer, kNames, 100, 1000);
  ASSERT_TRUE(top.ok()) << top.status();
  EXPECT_TRUE(Has(*top, "1 sessions, 1 waiting, $2.500000 an hour")) << *top;
  EXPECT_TRUE(Has(*top, "devices of large: 1 of 2 in use, 1 out of service")) << *top;
  EXPECT_TRUE(Has(*top, "3 before it, about 1 min")) << *top;
  EXPECT_LT(top->find("running"), top->find("queued")) << "those that run first";
}

TEST(FleetText, WithoutAPriceFile_ThereIsOnePrice) {
  const std::string answer = FleetJson({}, nullptr, {500'000}, kNoon);
  EXPECT_TRUE(Has(*cli::PricesText(answer), "all devices  $0.500000 an hour"));
  EXPECT_TRUE(Has(*cli::PricesJson(answer), "\"classes\":null"));
}

TEST(FleetText, APage_FitsItsTerminal) {
  FleetView view = AView();
  for (uint64_t i = 0; i < 100; ++i) {
    view.sessions.push_back(view.sessions.back());
    view.sessions.back().session.lo = 100 + i;
  }
  const std::string answer = FleetJson(view, nullptr, {500'000}, kNoon);
  const std::string page = *cli::TopText(answer, kNames, 20, 40);
  EXPECT_EQ(std::count(page.begin(), page.end(), '\n'), 20);
  EXPECT_TRUE(Has(page, "... and ")) << page;
  for (size_t at = 0; at < page.size();) {
    const size_t end = page.find('\n', at);
    EXPECT_LE(end - at, 40u);
    at = end + 1;
  }
}

TEST(FleetText, Json_HasNamesOfAccounts) {
  const std::string answer = FleetJson(AView(), nullptr, {500'000}, kNoon);
  const std::string devices = *cli::DevicesJson(answer, kNames);
  EXPECT_TRUE(Has(devices, "\"account_name\":\"ada\""));
  EXPECT_TRUE(Has(devices, "\"gflops\":51234.4")) << devices;
  EXPECT_TRUE(Has(devices, "\"memory_gb_per_s\":2987.6")) << devices;
  EXPECT_TRUE(Has(*cli::TopJson(answer, kNames), "\"account_name\":\"8\"")) << "without a name";
}

TEST(FleetText, WhatIsNoAnswer_IsAnError) {
  for (const char* text : {"", "{}", "[]", "{\"classes\": 1}", "{\"devices\": [{}]}"}) {
    EXPECT_EQ(cli::DevicesText(text, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_EQ(cli::TopText(text, {}, 10, 80).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_EQ(cli::PricesText(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// A worker's name may be anything.
TEST(FleetText, NamesOfWorkers_AreEscaped) {
  FleetView view = AView();
  view.devices.front().worker = "a\"b\xff\x1b[2J";
  const std::string answer = FleetJson(view, nullptr, {500'000}, kNoon);
  EXPECT_EQ(answer.find('\x1b'), std::string::npos);
  EXPECT_TRUE(cli::DevicesJson(answer, kNames).ok());
}

class OperatorSocketTest : public ::testing::Test {
 protected:
  std::unique_ptr<Gateway> Start(std::shared_ptr<const PriceList> prices = nullptr) {
    GatewayOptions options;
    options.data_folder = dir_.File("data");
    options.no_auth = true;
    options.prices = std::move(prices);
    return ValueOrDie(Gateway::Start(options));
  }
  TempDir dir_;
};

TEST_F(OperatorSocketTest, AGatewayThatRuns_Answers) {
  const auto list = std::make_shared<const PriceList>(AList());
  {
    const auto gateway = Start(list);
    const auto answer = AskGateway(dir_.File("data"));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(Has(*cli::PricesText(*answer), "large"));
    struct stat status{};
    ASSERT_EQ(stat(OperatorSocketPath(dir_.File("data")).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    auto other = *ParsePriceList(
        R"({"classes": [{"name": "small", "hardware": ["x"], "usd_per_hour": {"run": 1}}]})");
    ASSERT_TRUE(gateway->SetPrices(std::make_shared<const PriceList>(other)).ok());
    EXPECT_TRUE(Has(*cli::PricesText(*AskGateway(dir_.File("data"))), "small"));
  }
  const auto gone = AskGateway(dir_.File("data"));
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kUnavailable);
  const auto again = Start();
  EXPECT_TRUE(AskGateway(dir_.File("data")).ok());
}

TEST_F(OperatorSocketTest, NoGateway_IsUnavailable) {
  EXPECT_EQ(AskGateway(dir_.File("nothing")).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AskGateway(std::string(200, 'x')).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::gateway::test
