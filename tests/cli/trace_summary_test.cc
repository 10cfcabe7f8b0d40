// A trace in a page of text.
#include <gtest/gtest.h>

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

TEST(TraceSummary, WhatIsNoTraceIsRefused) {
  for (const char* json :
       {"", "{", "[]", "{}", R"({"traceEvents":7})", R"({"traceEvents":[]})",
        R"({"traceEvents":[1,null,{"ph":"X"}]})", R"({"traceEvents":[{"ph":7,"pid":"x"}]})"})
    EXPECT_EQ(TraceSummary(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
}

}  // namespace
}  // namespace outboard::cli
