// A trace in a page of text.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "cli/commands.h"

namespace outboard::cli {
namespace {

std::string Span(int process, const std::string& name, double begin_us, double us) {
  return R"({"ph":"X","name":")" + name + R"(","pid":)" + std::to_string(process) +
         R"(,"tid":1,"ts":)" + std::to_string(begin_us) + R"(,"dur":)" + std::to_string(us) +
         R"(,"args":{}})";
}

TEST(TraceSummary, SaysWhatWaitedAndWhatComputed) {
  const std::string json = R"({"otherData":{"spans_dropped":5},"traceEvents":[)" +
                           Span(1, "connect", 0, 900) + "," + Span(1, "run", 1000, 10) + "," +
                           Span(1, "blocked", 1010, 750) + "," + Span(3, "kernel 4", 1200, 100) +
                           "," + Span(3, "kernel 4", 1300, 300) + "," +
                           Span(3, "kernel 8", 1700, 300) + R"(,{"ph":"s","id":1}]})";
  const auto summary = TraceSummary(json);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_NE(
      summary->find("1 Runs in 1.0 ms. The program was blocked 1 times, 0.8 ms (75 %); kernels "
                    "ran for 0.7 ms (70 %)."),
      std::string::npos)
      << *summary;
  EXPECT_NE(summary->find("5 spans found no room"), std::string::npos);
  // Mean and most of the two launches.
  EXPECT_NE(summary->find("200.0       300.0   40 %"), std::string::npos) << *summary;
}

// The share of each row, in percent: what stands before its last sign.
double SharesOf(const std::string& summary, const std::string& process) {
  double sum = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(summary, '\n'))) {
    if (!line.starts_with(process)) continue;
    double share = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(line.size() - 6, 4), &share)) << line;
    sum += share;
  }
  return sum;
}

TEST(TraceSummary, SharesOfAProcessAddUpToTheWhole) {
  // In the worker 100 of 1000 us lie before all spans, and 400 of `run` are its kernels'.
  const std::string json = R"({"traceEvents":[)" + Span(1, "run", 1000, 10) + "," +
                           Span(1, "wait for value", 1010, 990) + "," +
                           Span(1, "blocked", 1110, 790) + "," + Span(3, "run", 1100, 900) + "," +
                           Span(3, "kernel 4", 1200, 300) + "," + Span(3, "kernel 8", 1500, 100) +
                           "," + Span(3, "before", 500, 200) + "]}";
  const auto summary = TraceSummary(json);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(SharesOf(*summary, "client"), 100) << *summary;
  EXPECT_EQ(SharesOf(*summary, "worker"), 100) << *summary;
  for (const char* row : {"blocked                                         1        0.79       "
                          "790.0       790.0   79 %",
                          "run                                             1        0.90       "
                          "900.0       900.0   50 %",
                          "(nothing)                                       0        0.10         "
                          "0.0         0.0   10 %"})
    EXPECT_NE(summary->find(row), std::string::npos) << row << "\n" << *summary;
}

// Each third is 33 %, and rounded sixths are 17 %.
TEST(TraceSummary, RoundedSharesAddUpToo) {
  for (const int parts : {3, 6, 7, 40}) {
    std::string json = R"({"traceEvents":[)" + Span(1, "run", 0, 1);
    for (int i = 0; i < parts; ++i)
      json += "," + Span(3, "part " + std::to_string(i), 600.0 * i / parts, 600.0 / parts);
    const auto summary = TraceSummary(json + "]}");
    ASSERT_TRUE(summary.ok()) << summary.status();
    double sum = SharesOf(*summary, "worker");
    if (parts == 40) {  // in a table of 30 rows: the others together
      double others = 0;
      const size_t at = summary->find("of together ");
      ASSERT_NE(at, std::string::npos) << *summary;
      ASSERT_TRUE(absl::SimpleAtod(summary->substr(at + 12, 2), &others)) << *summary;
      sum += others + SharesOf(*summary, "client") - 100;
    }
    EXPECT_EQ(sum, 100) << *summary;
  }
}

TEST(TraceSummary, WhatIsNoTraceIsRefused) {
  for (const char* json :
       {"", "{", "[]", "{}", R"({"traceEvents":7})", R"({"traceEvents":[]})",
        R"({"traceEvents":[1,null,{"ph":"X"}]})", R"({"traceEvents":[{"ph":7,"pid":"x"}]})"})
    EXPECT_TRUE(absl::StartsWith(TraceSummary(json).status().message(), "not a trace")) << json;
}

}  // namespace
}  // namespace outboard::cli
