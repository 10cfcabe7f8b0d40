#include "tests/bench/metrics_figures.h"

#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/session/session.h"
#include "gateway/server/gateway.h"
#include "proto/cloud.grpc.pb.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "telemetry/metrics_server.h"
#include "tests/bench/report.h"
#include "tests/support/fake_worker.h"
#include "tests/support/http.h"
#include "tests/support/step.h"
#include "tests/support/temp_folder.h"
#include "wire/status.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kTurns = 60;
constexpr int kStepsPerTurn = 150;
constexpr int kSessions = 1'000;
constexpr int kScrapes = 200;

std::unique_ptr<telemetry::MetricsServer> ServeMetrics() {
  return ValueOrDie(telemetry::MetricsServer::Start(
      {.listen = "127.0.0.1:0", .processes = telemetry::kInGateway, .build = {"0", "0", "0"}}));
}

// The fake worker answers at once, so that what is left of a step is the way through the gateway.
void OneStep(Session& session, const session::RunRequest& run) {
  const uint64_t seq = ValueOrDie(session.Run(run));
  OB_CHECK_OK(session.Await(seq, 0).status());
}

double MicrosecondsAStep(Session& session, const session::RunRequest& run) {
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kStepsPerTurn; ++i) OneStep(session, run);
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kStepsPerTurn;
}

void StepFigure() {
  test::TempFolder folder;
  const auto gateway = ValueOrDie(gateway::Gateway::Start(
      {.listen = "unix:" + (folder / "s"), .data_folder = folder / "data", .no_auth = true}));
  FakeWorker worker(gateway->InProcessFleetChannel(), gateway->fleet_secret());
  OB_CHECK(gateway->AwaitDevices(1, milliseconds(10'000)));
  const auto server = ServeMetrics();
  session::SessionOptions options;
  options.target = gateway->address();
  const auto session = ValueOrDie(Session::Connect(options));
  Graph graph;
  const UOp* x = Param(graph, 0, DType::kF32, {Dim(4)});
  const float values[4] = {};
  const int64_t dims[] = {4};
  const uint64_t input = session->NewHandle(), output = session->NewHandle();
  OB_CHECK_OK(session->Put(input, DType::kF32, dims,
                           {reinterpret_cast<const char*>(values), sizeof values}));
  const session::RunRequest run =
      test::RequestOf(Sink(graph, {Add(graph, x, x)}), {input}, {output}, /*fetch=*/true);
  MicrosecondsAStep(*session, run);  // warm

  std::atomic<bool> watched{false}, stop{false};
  std::thread prometheus([&] {  // fifteen times as often as it usually comes
    while (!stop) {
      if (watched) OB_CHECK(!test::Get(server->address(), "/metrics").empty());
      std::this_thread::sleep_for(milliseconds(1'000));
    }
  });
  // In turns, of which each pair is compared: the machine's pace changes.
  std::vector<double> ratios, with, without;
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool first = turn % 2 == 0;
    double us[2];
    for (const bool counts : {first, !first}) {
      telemetry::SetCounting(counts);
      watched = counts;
      us[counts] = MicrosecondsAStep(*session, run);
    }
    ratios.push_back(us[1] / us[0]);
    with.push_back(us[1]);
    without.push_back(us[0]);
  }
  telemetry::SetCounting(true);
  stop = true;
  prometheus.join();
  Report("metrics_step_ratio", Quantile(ratios, 0.5), "",
         absl::StrFormat("without: %.1f us a step", Quantile(without, 0.5)),
         absl::StrFormat("a step that is read, through a gateway to a worker that answers at once: "
                         "counted and scraped every second, %.1f us; median of %d pairs",
                         Quantile(with, 0.5), kTurns));
  OB_CHECK_OK(session->Close());
}

// A client that opens a session and then says nothing.
struct IdleClient {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<proto::ClientFrame, proto::ServerFrame>> stream;
};

std::unique_ptr<IdleClient> OpenIdle(proto::Cloud::Stub& cloud) {
  auto client = std::make_unique<IdleClient>();
  client->stream = cloud.Session(&client->context);
  proto::ClientFrame frame;
  proto::Open& open = *frame.add_items()->mutable_open();
  for (proto::VersionRange* range : {open.mutable_protocol(), open.mutable_graph_schema()}) {
    range->set_min(1);
    range->set_max(1);
  }
  OB_CHECK(client->stream->Write(frame));
  proto::ServerFrame answer;
  for (bool opened = false; !opened;) {
    if (!client->stream->Read(&answer)) OB_CHECK_OK(wire::FromGrpc(client->stream->Finish()));
    for (const proto::ServerItem& item : answer.items()) opened |= item.has_opened();
  }
  return client;
}

void ScrapeFigure() {
  test::TempFolder folder;
  gateway::GatewayOptions options{.data_folder = folder / "data", .no_auth = true};
  options.core.sessions_per_tenant_max = kSessions;
  options.account.streams = kSessions;
  options.account.openings_per_minute = 1'000'000;
  const auto gateway = ValueOrDie(gateway::Gateway::Start(options));
  FakeWorker worker(gateway->InProcessFleetChannel(), gateway->fleet_secret(), kSessions);
  OB_CHECK(gateway->AwaitDevices(kSessions, milliseconds(10'000)));
  const auto server = ServeMetrics();
  const auto cloud = proto::Cloud::NewStub(gateway->InProcessChannel());
  std::vector<std::unique_ptr<IdleClient>> clients;
  for (int i = 0; i < kSessions; ++i) clients.push_back(OpenIdle(*cloud));
  std::vector<double> times;
  size_t bytes = 0;
  for (int i = 0; i < kScrapes; ++i) {
    const Clock::time_point begin = Clock::now();
    const std::string text = test::Get(server->address(), "/metrics");
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    OB_CHECK(text.find(absl::StrFormat("outboard_sessions{state=\"live\"} %d\n", kSessions)) !=
             std::string::npos);
    bytes = text.size();
  }
  Report("metrics_scrape_ms_p50", Quantile(times, 0.5), "ms",
         absl::StrFormat("99 of 100: %.1f ms", Quantile(times, 0.99)),
         absl::StrFormat("%d live sessions, %d bytes, by HTTP on loopback", kSessions, bytes));
  for (const auto& client : clients) client->context.TryCancel();
  for (const auto& client : clients) client->stream->Finish();
  worker.Stop();
  gateway->Stop(milliseconds(0));
}

// What a server with metrics takes longer to stop.
void StopFigure() {
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) {
    auto server = ServeMetrics();
    OB_CHECK(!test::Get(server->address(), "/metrics").empty());
    const Clock::time_point begin = Clock::now();
    server.reset();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  Report("metrics_stop_ms", Quantile(times, 0.5), "ms", "",
         "until the server of /metrics has stopped; median of 10");
}

}  // namespace

void MetricsFigures() {
  telemetry::StartLogging({.level = telemetry::LogLevel::kError});
  StepFigure();
  ScrapeFigure();
  StopFigure();
  telemetry::StopLogging();
}

}  // namespace outboard::bench
