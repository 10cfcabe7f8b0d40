// The file of a trace, read by a JSON parser of somebody else's.
#include "client/trace/perfetto.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "client/trace/trace.h"
#include "tests/support/documented.h"
#include "tests/support/processes.h"

namespace outboard::trace {
namespace {

using nlohmann::json;

constexpr uint64_t kMs = 1'000'000;

json Parsed(const Collected& collected) {
  std::ostringstream out;
  WritePerfetto(collected, out);
  return json::parse(out.str());
}

std::vector<json> Events(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

RemoteSpan Remote(proto::Span::Where where, const std::string& name, uint64_t seq,
                  uint64_t begin_ns, uint64_t duration_ns) {
  RemoteSpan remote{{1, 1}, {}};
  remote.span.set_where(where);
  remote.span.set_name(name);
  remote.span.set_seq(seq);
  remote.span.set_begin_ns(begin_ns);
  remote.span.set_duration_ns(duration_ns);
  return remote;
}

// Run 5 of session 1. The gateway's clock is 1,000 s ahead, the worker's 3,000 s; a message takes
// 10 ms from the client to the gateway, 1 ms from there to the worker.
Collected OneRun() {
  constexpr uint64_t kGatewayAhead = 1'000'000 * kMs, kWorkerAhead = 3'000'000 * kMs;
  const uint64_t sent = 100 * kMs;
  Collected collected;
  EpochClocks& clocks = collected.epochs[{1, 1}];
  clocks.Sent(5, sent);
  proto::Done done;
  proto::Passage& worker = *done.add_passages();
  worker.set_where(proto::Span::EXECUTOR);
  worker.set_seq(5);
  worker.set_received_ns(sent + 11 * kMs + kWorkerAhead);
  worker.set_sent_ns(sent + 20 * kMs + kWorkerAhead);
  proto::Passage& gateway = *done.add_passages();
  gateway.set_where(proto::Span::GATEWAY);
  gateway.set_seq(5);
  gateway.set_received_ns(sent + 10 * kMs + kGatewayAhead);
  gateway.set_sent_ns(sent + 21 * kMs + kGatewayAhead);
  clocks.Came(done, sent + 31 * kMs);
  collected.client = {{"run", 1, 1, 5, sent - kMs, sent + kMs},
                      {"wait for value", 1, 1, 5, sent + 2 * kMs, sent + 31 * kMs}};
  const uint64_t gateway_ns = sent + 10 * kMs + kGatewayAhead;
  const uint64_t worker_ns = sent + 12 * kMs + kWorkerAhead;
  collected.remote = {Remote(proto::Span::GATEWAY, "to worker", 5, gateway_ns, kMs / 2),
                      Remote(proto::Span::EXECUTOR, "kernel 4", 5, worker_ns + kMs, kMs),
                      Remote(proto::Span::EXECUTOR, "kernel 8", 5, worker_ns + 3 * kMs, kMs),
                      Remote(proto::Span::EXECUTOR, "run", 5, worker_ns, 7 * kMs)};
  return collected;
}

TEST(Perfetto, PutsAllOnOneClock) {
  const json trace = Parsed(OneRun());
  std::map<std::string, std::pair<double, double>> spans;  // begin and end in ms
  for (const json& event : Events(trace, "X")) {
    const double begin = event["ts"].get<double>() / 1000;
    spans[event["name"].get<std::string>() + " of " + std::to_string(event["pid"].get<int>())] = {
        begin, begin + event["dur"].get<double>() / 1000};
  }
  const std::map<std::string, std::pair<double, double>> expected = {
      {"run of 1", {0, 2}},   {"wait for value of 1", {3, 32}}, {"to worker of 2", {11, 11.5}},
      {"run of 3", {13, 20}}, {"kernel 4 of 3", {14, 15}},      {"kernel 8 of 3", {16, 17}}};
  ASSERT_EQ(spans.size(), expected.size());
  for (const auto& [name, times] : expected) {
    EXPECT_NEAR(spans[name].first, times.first, 0.001) << name;
    EXPECT_NEAR(spans[name].second, times.second, 0.001) << name;
  }
  const json about = trace["otherData"]["clock of the worker, session 1, epoch 1"];
  EXPECT_EQ(about["offset_us"], 3'000'000'000);
  EXPECT_EQ(about["error_us_max"], 11'000);
  EXPECT_EQ(about["same_clock"], false);
}

TEST(Perfetto, AnArrowGoesFromTheCallToItsKernelsAndToTheValue) {
  const json trace = Parsed(OneRun());
  std::vector<std::tuple<std::string, int, double>> path;  // phase, process, ms
  for (const json& event : trace["traceEvents"])
    if (event.contains("id"))
      path.emplace_back(event["ph"], event["pid"], event["ts"].get<double>() / 1000);
  const std::vector<std::tuple<std::string, int, double>> expected = {
      {"s", 1, 0}, {"t", 2, 11}, {"t", 3, 14}, {"t", 3, 16}, {"f", 1, 32}};
  ASSERT_EQ(path.size(), expected.size());
  for (size_t i = 0; i < path.size(); ++i) {
    EXPECT_EQ(std::get<0>(path[i]), std::get<0>(expected[i]));
    EXPECT_EQ(std::get<1>(path[i]), std::get<1>(expected[i]));
    EXPECT_NEAR(std::get<2>(path[i]), std::get<2>(expected[i]), 0.001);
  }
}

TEST(Perfetto, WhateverIsSentIsJson) {
  Collected collected = OneRun();
  collected.workers[{1, 1}] = "a \"worker\"\n\\ \xff\xc3";
  for (const std::string text : {"\"", "\\", "\n\t\x01", "\xff\xfe", "{}", ""}) {
    collected.remote.push_back(
        Remote(proto::Span::EXECUTOR, text, UINT64_MAX, UINT64_MAX, UINT64_MAX));
    collected.remote.back().span.set_detail(text);
    collected.remote.push_back(Remote(static_cast<proto::Span::Where>(77), text, 0, 0, 0));
    collected.remote.push_back(Remote(proto::Span::GATEWAY, text, 1, 0, 0));
    collected.remote.back().epoch = {9, 9};  // of no clock
  }
  const json trace = Parsed(collected);
  EXPECT_EQ(trace["otherData"]["spans_without_a_clock"], 6);
  EXPECT_EQ(Events(trace, "X").size(), 6u + 12u);
  EXPECT_EQ(Parsed({})["traceEvents"].size(), 3u);  // the names of the processes
}

TEST(Trace, IsBoundedAndSaysWhatIsMissing) {
  test::TempFolder folder;
  Trace trace(folder / "out.json", /*spans_max=*/10);
  for (int i = 0; i < 14; ++i) const Scope scope(&trace, "step");
  proto::ServerFrame frame;
  frame.add_items()->mutable_done()->set_spans_dropped(100);
  trace.Came(trace.AddSession(), frame);
  ASSERT_TRUE(trace.Write().ok());
  const json written = json::parse(test::ReadFile(folder / "out.json"));
  EXPECT_EQ(Events(written, "X").size(), 10u);
  EXPECT_EQ(written["otherData"]["spans_dropped"], 104);
}

TEST(Trace, ScopesOfAThreadLieWithinEachOther) {
  test::TempFolder folder;
  Trace trace(folder / "out.json");
  const auto work = [&] {
    for (int i = 0; i < 100; ++i) {
      const Scope outer(&trace, "outer");
      const Scope inner(&trace, "inner");
    }
  };
  std::thread other(work);
  work();
  other.join();
  ASSERT_TRUE(trace.Write().ok());
  std::map<int, double> outer_end;
  int threads = 0;
  for (const json& event : Events(json::parse(test::ReadFile(folder / "out.json")), "X")) {
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    const int thread = event["tid"];
    threads = std::max(threads, thread);
    if (event["name"] == "outer")
      outer_end[thread] = end;
    else
      EXPECT_LE(end, outer_end[thread] + 1e-4);
  }
  EXPECT_GE(threads, 2);
}

TEST(Trace, IsWrittenWholeOrNotAtAll) {
  test::TempFolder folder;
  Trace nowhere(folder / "no/such/folder/out.json");
  test::ExpectAsDocumented("A trace that cannot be written", nowhere.Check());
  EXPECT_EQ(nowhere.Write().code(), absl::StatusCode::kUnavailable);
  Trace trace(folder / "out.json");
  EXPECT_TRUE(trace.Check().ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out.json"));
  trace.WriteIfChanged();  // nothing to say
  EXPECT_FALSE(std::filesystem::exists(folder / "out.json"));
  { const Scope scope(&trace, "step"); }
  trace.WriteIfChanged();
  EXPECT_TRUE(std::filesystem::exists(folder / "out.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.json.part"));
}

// The status of a process that has made a span of PROFILE's trace and then does `end`.
template <typename End>
int StatusOfTraced(const std::string& file, End end) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("PROFILE", file.c_str(), 1);
    { const Scope scope(Trace::OfProcess(), "step"); }
    end();
    _exit(99);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Trace, IsWrittenHoweverTheProgramEnds) {
  test::TempFolder folder;
  const auto written = [&](const std::string& name) {
    return Events(json::parse(test::ReadFile(folder / name)), "X").size() == 1;
  };
  const int exited = StatusOfTraced(folder / "exit", [] { std::exit(3); });
  EXPECT_TRUE(WIFEXITED(exited) && WEXITSTATUS(exited) == 3);
  EXPECT_TRUE(written("exit"));
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string name = std::to_string(number);
    const int killed = StatusOfTraced(folder / name, [number] {
      raise(number);
      while (true) pause();
    });
    EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == number) << killed;
    EXPECT_TRUE(written(name));
  }
}

}  // namespace
}  // namespace outboard::trace
