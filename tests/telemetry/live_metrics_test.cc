// Scrapes of real processes of each kind: promtool finds no fault, nobody is named, and a step is
// counted from the client's stream to the executor.
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "client/session/session.h"
#include "tests/support/cluster.h"
#include "tests/support/http.h"
#include "tests/support/step.h"
#include "tests/telemetry/promtool.h"

namespace outboard {
namespace {

using test::Get;

double ValueOf(const std::string& text, const std::string& series) {
  const std::string line = "\n" + series + " ";
  const size_t at = ("\n" + text).find(line);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() - 1));
}

void ExpectGood(const std::string& text) {
  ASSERT_NE(text, "");
  if (test::HasPromtool()) {
    EXPECT_EQ(test::Promtool("check metrics", text), "");
  }
  for (const char* word : {"account=", "session=", "tenant=", "key=", "peer=", "ob_live_"})
    EXPECT_EQ(text.find(word), std::string::npos) << word;
  // No ids either: 16 hex digits and more.
  EXPECT_FALSE(std::regex_search(text, std::regex("\"[0-9a-f]{16,}"))) << text;
}

class LiveMetrics : public ::testing::Test {
 protected:
  // Waits: executors report every two seconds.
  static bool Reaches(const std::string& address, const std::string& series, double least) {
    return test::Eventually([&] { return ValueOf(Get(address, "/metrics"), series) >= least; });
  }
  void Steps(int count) {
    auto session = cluster_.Connect();
    ASSERT_NE(session, nullptr);
    for (int i = 0; i < count; ++i) ASSERT_TRUE(test::Step(*session).ok());
    EXPECT_TRUE(session->Close().ok());
  }

  test::Cluster cluster_;
};

TEST_F(LiveMetrics, GatewayAndWorker_CountASession) {
  cluster_.StartGateway();
  const std::string gateway = cluster_.last_metrics();
  auto worker = cluster_.StartWorker();
  const std::string of_worker = cluster_.last_metrics();
  ASSERT_NE(gateway, of_worker);
  Steps(5);
  EXPECT_TRUE(Reaches(gateway, "outboard_steps_total", 5));
  EXPECT_TRUE(Reaches(of_worker, "outboard_worker_steps_total", 5));
  EXPECT_TRUE(Reaches(of_worker, "outboard_kernels_compiled_total{result=\"ok\"}", 1));
  EXPECT_TRUE(Reaches(gateway, "outboard_sessions_ended_total{how=\"closed\"}", 1));
  const std::string text = Get(gateway, "/metrics");
  ExpectGood(text);
  ExpectGood(Get(of_worker, "/metrics"));
  EXPECT_EQ(ValueOf(text, "outboard_workers"), 1) << text;
  EXPECT_EQ(ValueOf(text, "outboard_devices{state=\"free\"}"), 1);
  EXPECT_EQ(ValueOf(text, "outboard_sessions_opened_total"), 1);
  EXPECT_EQ(ValueOf(text, "outboard_grants_total"), 1);
  EXPECT_EQ(ValueOf(text, "outboard_leases_ended_total{reason=\"closed\"}"), 1);
  EXPECT_EQ(ValueOf(text, "outboard_queue_wait_seconds_count"), 1);
  EXPECT_EQ(ValueOf(text, "outboard_session_open_seconds_count"), 1);
  EXPECT_EQ(ValueOf(text, "outboard_graph_checks_total{result=\"passed\"}"), 1);
  EXPECT_GT(ValueOf(text, "outboard_client_bytes_total{direction=\"in\"}"), 100);
  EXPECT_GT(ValueOf(text, "outboard_client_bytes_total{direction=\"out\"}"), 100);
  EXPECT_EQ(ValueOf(text, "outboard_ledger_blocked"), 0);
  EXPECT_EQ(ValueOf(Get(of_worker, "/metrics"), "outboard_worker_joined"), 1);
}

TEST_F(LiveMetrics, WrongKey_IsCountedByReason) {
  cluster_.StartGateway();
  cluster_.key();
  session::SessionOptions options = cluster_.Options();
  options.key = "ob_live_0123456789abcdef_wrong";
  EXPECT_FALSE(Session::Connect(options).ok());
  // A call is counted when its stream is over, which the client need not wait for.
  std::string text;
  EXPECT_TRUE(test::Eventually([&] {
    text = Get(cluster_.last_metrics(), "/metrics");
    return ValueOf(text,
                   "outboard_calls_total{method=\"Cloud.Session\",code=\"UNAUTHENTICATED\"}") >= 1;
  })) << text;
  EXPECT_GE(ValueOf(text, "outboard_refused_total{reason=\"key\"}"), 1) << text;
}

TEST_F(LiveMetrics, Up_ShowsItselfAndItsWorkers) {
  cluster_.StartUp(1);
  ExpectGood(Get(cluster_.last_metrics(), "/metrics"));
  const std::string err = cluster_.gateway().err();
  const std::regex served("event=metrics_served address=(\\S+)");
  int count = 0;
  for (std::sregex_iterator m(err.begin(), err.end(), served), end; m != end; ++m, ++count)
    ExpectGood(Get((*m)[1], "/metrics"));
  EXPECT_EQ(count, 2) << err;
}

TEST_F(LiveMetrics, Serve_ShowsBothWhenAsked) {
  auto quiet = cluster_.Start("serve --no-auth --ephemeral --listen 127.0.0.1:0");
  EXPECT_EQ(cluster_.last_metrics(), "") << "a program's own worker opens no port";
  quiet.reset();
  auto serve = cluster_.Start(
      "serve --no-auth --ephemeral --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0");
  ExpectGood(Get(cluster_.last_metrics(), "/metrics"));
  EXPECT_TRUE(test::Eventually([&] {  // ready is when the gateway knows its worker
    const std::string text = Get(cluster_.last_metrics(), "/metrics");
    return ValueOf(text, "outboard_worker_joined") == 1 && ValueOf(text, "outboard_workers") == 1;
  }));
}

TEST_F(LiveMetrics, ByAccount_OnlyWhenAsked) {
  cluster_.StartGateway("--metrics-by-account");
  const std::string gateway = cluster_.last_metrics();
  auto worker = cluster_.StartWorker();
  auto session = cluster_.Connect();
  ASSERT_NE(session, nullptr);
  const std::string text = Get(gateway, "/metrics");
  EXPECT_EQ(ValueOf(text, "outboard_account_sessions{account=\"1\"}"), 1) << text;
  if (test::HasPromtool()) {
    EXPECT_EQ(test::Promtool("check metrics", text), "");
  }
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(LiveMetrics, BeyondThisMachine_RefusedWithoutAToken) {
  const test::Ended ended = test::Outboard(
      "gateway --listen 127.0.0.1:0 --metrics-listen 0.0.0.0:0 --data " + cluster_.data());
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("--metrics-token-file"), std::string::npos) << ended.err;
}

// The rest of this file would say nothing of what it skips.
TEST_F(LiveMetrics, Promtool_IsHere) { OB_NEEDS_PROMTOOL(); }

}  // namespace
}  // namespace outboard
