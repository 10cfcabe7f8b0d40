// A trace of all three, from the cloud as a user has it, read by a JSON parser of somebody else's.
#include "client/trace/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

using nlohmann::json;

enum Process { kClient = 1, kGateway = 2, kWorker = 3 };

struct Span {
  std::string name;
  int process, row;
  uint64_t seq;
  double begin_us, end_us;
};

std::vector<Span> SpansOf(const json& trace) {
  std::vector<Span> spans;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    spans.push_back({event["name"], event["pid"], event["tid"],
                     event["args"].value("seq", uint64_t{0}), begin,
                     begin + event["dur"].get<double>()});
  }
  return spans;
}

const Span* Find(const std::vector<Span>& spans, int process, const std::string& name,
                 uint64_t seq) {
  for (const Span& span : spans)
    if (span.process == process && span.seq == seq && span.name.starts_with(name)) return &span;
  return nullptr;
}

// Of one row any two spans are apart, or one lies within the other.
void ExpectNested(const std::vector<Span>& spans) {
  constexpr double kRounding = 0.002;
  for (const Span& a : spans)
    for (const Span& b : spans) {
      if (a.process != b.process || a.row != b.row || a.begin_us > b.begin_us) continue;
      EXPECT_TRUE(b.begin_us >= a.end_us - kRounding || b.end_us <= a.end_us + kRounding)
          << a.name << " " << a.seq << " and " << b.name << " " << b.seq;
    }
}

// Every Run of the client's: called, passed on, run, awaited, in this order on one clock that may
// be wrong by `error_us`; and its arrow touches each of them.
void ExpectOrdered(const json& trace, double error_us, size_t runs) {
  const std::vector<Span> spans = SpansOf(trace);
  std::map<uint64_t, std::set<int>>
      arrows;  // by seq: the processes where there is a kernel or a call
  for (const json& event : trace["traceEvents"]) {
    if (!event.contains("id")) continue;
    const uint64_t seq = event["id"].get<uint64_t>() & 0xFFFFFFFFFF;
    const double at = event["ts"];
    for (const Span& span : spans)
      if (span.process == event["pid"] && span.row == event["tid"] && span.begin_us <= at + 0.001 &&
          at <= span.end_us + 0.001 &&
          (span.process != kWorker || span.name.starts_with("kernel ")))
        arrows[seq].insert(span.process);
  }
  size_t found = 0;
  for (const Span& call : spans) {
    if (call.process != kClient || call.name != "run") continue;
    ++found;
    ASSERT_GT(call.seq, 0u);
    const Span* const run = Find(spans, kWorker, "run", call.seq);
    const Span* const kernel = Find(spans, kWorker, "kernel ", call.seq);
    const Span* const value = Find(spans, kClient, "wait for value", call.seq);
    ASSERT_TRUE(run != nullptr && kernel != nullptr && value != nullptr) << call.seq;
    EXPECT_GE(kernel->begin_us, run->begin_us);
    EXPECT_LE(kernel->end_us, run->end_us);
    EXPECT_GE(run->begin_us, call.begin_us - error_us);
    EXPECT_LE(run->end_us, value->end_us + error_us);
    EXPECT_EQ(arrows[call.seq], (std::set<int>{kClient, kGateway, kWorker})) << call.seq;
  }
  EXPECT_EQ(found, runs);
}

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() { cluster_.StartUp(1); }

  // Some steps through `target`, and their trace.
  json Traced(const std::string& target, int steps) {
    const std::string file = cluster_.folder() / "out.json";
    trace::Trace trace(file);
    session::SessionOptions options = cluster_.Options();
    options.target = target;
    options.trace = &trace;
    {
      auto session = Session::Connect(options);
      EXPECT_TRUE(session.ok()) << session.status();
      for (int i = 0; session.ok() && i < steps; ++i) {
        const absl::Status step = test::Step(**session);
        EXPECT_TRUE(step.ok()) << step;
      }
    }
    return json::parse(test::ReadFile(file));
  }

  test::Cluster cluster_;
};

TEST_F(TraceTest, ARunIsFollowedFromItsCallToItsKernelsAndBack) {
  const json trace = Traced(cluster_.target(), 20);
  ExpectNested(SpansOf(trace));
  // One machine has one clock: nothing is out of order by a nanosecond.
  ExpectOrdered(trace, 0.001, 20);
  EXPECT_EQ(trace["otherData"]["spans_without_a_clock"], 0);
  EXPECT_EQ(trace["otherData"]["spans_dropped"], 0);
}

TEST_F(TraceTest, ClocksAreComparedThroughA100MsRoundTrip) {
  test::FaultProxy proxy(cluster_.target());
  proxy.SetRoundTrip(std::chrono::milliseconds(100));
  const json trace = Traced(proxy.address(), 8);
  ExpectNested(SpansOf(trace));
  ExpectOrdered(trace, 0.001, 8);
  int clocks = 0;
  for (const auto& [name, about] : trace["otherData"].items()) {
    if (!name.starts_with("clock of the ")) continue;
    ++clocks;
    // The clocks are one, so what was measured is the error, of which no more can be proved than
    // the delay allows.
    EXPECT_LE(std::abs(about["offset_us"].get<double>()), about["error_us_max"].get<double>())
        << name;
    EXPECT_GE(about["error_us_max"].get<double>(), 49'000) << name;
  }
  EXPECT_EQ(clocks, 2);
}

TEST_F(TraceTest, AProgramOnlyHasToSetPROFILE) {
  const std::string file = cluster_.folder() / "program.json";
  const std::vector<std::string> cloud = {"CLOUD=1", "CLOUD_HOST=" + cluster_.target(),
                                          "CLOUD_KEY=" + cluster_.key()};
  const auto run = [&](const std::string& profile) {
    std::vector<std::string> environment = cloud;
    environment.push_back("PROFILE=" + profile);
    return test::RunToEnd({test::kOwnBoxProgram}, environment);
  };
  const test::Ended ended = run(file);
  EXPECT_EQ(ended.code, 0) << ended.err;
  const std::vector<Span> spans = SpansOf(json::parse(test::ReadFile(file)));
  ExpectNested(spans);
  for (const char* name : {"connect", "realize", "encode", "run", "wait for value"})
    EXPECT_NE(std::find_if(spans.begin(), spans.end(),
                           [&](const Span& s) { return s.process == kClient && s.name == name; }),
              spans.end())
        << name;

  const test::Ended nowhere = run(cluster_.folder() / "no/such/folder.json");
  EXPECT_NE(nowhere.code, 0);
  EXPECT_NE(nowhere.err.find("PROFILE"), std::string::npos) << nowhere.err;
}

}  // namespace
}  // namespace outboard
