// `outboard cache` as a user has it: what was measured is listed, explained, taken to another store
// and removed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/search/trial.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"
#include "worker/tuning/tuning_store.h"

namespace outboard {
namespace {

using codegen::OptKind;
using search::Trial;

// A product that was measured with clocks, and a sum that was measured on a processor.
class CacheCliTest : public ::testing::Test {
 protected:
  CacheCliTest() {
    const auto store = worker::TuningFile::Open(store_);
    OB_CHECK_OK(store.status());
    const auto add = [&](const worker::TuningKey& key, const char* name, const Trial& trial) {
      OB_CHECK_OK((*store)->Add(key, name, trial));
    };
    const search::Conditions cool{.clock_mhz = 1980, .power_mw = 402'000, .celsius = 58};
    const search::Conditions hot{.clock_mhz = 1200, .power_mw = 700'000, .celsius = 91};
    add(product_, "product", {.time_ns = 40'000, .verified = true, .at = cool});
    add(product_, "product",
        {.opts = {{OptKind::kThread, 0, 1}}, .time_ns = 10'000, .verified = true, .at = cool});
    add(product_, "product",
        {.opts = {{OptKind::kThread, 0, 2}}, .time_ns = 30'000, .verified = true, .at = hot});
    add(product_, "product", {.opts = {{OptKind::kVector, 0, 4}}, .time_ns = 0});
    add(product_, "product",
        {.opts = {{OptKind::kVector, 0, 8}}, .time_ns = 55'000, .exact = false});
    OB_CHECK_OK((*store)->Finish(product_, 4));
    add(sum_, "sum", {.time_ns = 2'500, .verified = true});
  }

  test::Ended Run(std::vector<std::string> args, const std::string& store) {
    args.insert(args.begin(), {test::kOutboardProgram, "cache"});
    args.insert(args.end(), {"--store", store});
    return test::RunToEnd(args, {"OUTBOARD_DATA=" + (folder_ / "data")});
  }
  test::Ended Run(const std::vector<std::string>& args) { return Run(args, store_); }

  test::TempFolder folder_;
  const std::string store_ = folder_ / "kernels.db";
  const worker::TuningKey product_{std::string(32, '\xab'), 7, "a GPU"};
  const worker::TuningKey sum_{std::string(32, '\x12'), 7, "a processor"};
};

// The line that has `part`, without its spaces at the ends; empty: there is none.
std::string LineWith(const std::string& part, const std::string& text) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return "";
  size_t begin = text.rfind('\n', at) + 1;
  begin = text.find_first_not_of(' ', begin);
  return text.substr(begin, text.find('\n', at) - begin);
}

TEST_F(CacheCliTest, Ls_HasTheBestTimeBesideTheFirst) {
  const test::Ended ended = Run({"ls"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(LineWith("product", ended.out),
            "abababababab       5      4       40.0 us       10.0 us     4.00  product");
  EXPECT_EQ(LineWith("sum", ended.out),
            "121212121212       1      0        2.5 us        2.5 us     1.00  sum");
}

TEST_F(CacheCliTest, Explain_HasEachVariant_FastestFirst_WithTheClocksOfItsTime) {
  const test::Ended ended = Run({"explain", "ABAB"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string& out = ended.out;
  EXPECT_NE(out.find("search space 7, a GPU\na search of width 4 is finished\n"), std::string::npos)
      << out;
  EXPECT_EQ(LineWith("10.0 us", out), "10.0 us   1980 MHz  402 W  58 C            THREAD:0:1");
  // Slower than the fastest clock of the kernel's trials by more than search::IsThrottled allows.
  EXPECT_EQ(LineWith("30.0 us", out), "30.0 us   1200 MHz  700 W  91 C throttled  THREAD:0:2");
  EXPECT_EQ(LineWith("40.0 us", out),
            "40.0 us   1980 MHz  402 W  58 C            (no Opts)  <- the heuristic's");
  EXPECT_LT(out.find("10.0 us"), out.find("30.0 us"));
  EXPECT_LT(out.find("30.0 us"), out.find("40.0 us"));
  // Given up while it ran; and one that is no kernel at all, which comes last. Neither has clocks:
  // its Opts stand below the others'.
  const std::string slow = LineWith("> 55.0 us", out), bad = LineWith("VECTOR:0:4", out);
  EXPECT_EQ(slow, "> 55.0 us  " + std::string(34, ' ') + "VECTOR:0:8");
  EXPECT_EQ(bad, "-  " + std::string(34, ' ') + "VECTOR:0:4  does not compile, or runs wrong");
  EXPECT_LT(out.find(slow), out.find(bad));
  EXPECT_EQ(LineWith("\"sum\"", out), "");
}

TEST_F(CacheCliTest, Explain_HasNoColumnsOfClocksWhereNoneWereRead) {
  const test::Ended ended = Run({"explain", "12"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(LineWith("2.5 us", ended.out), "2.5 us  (no Opts)  <- the heuristic's");
}

TEST_F(CacheCliTest, WhatIsExported_IsTheSameWhereItIsImported) {
  const std::string file = folder_ / "tuned.jsonl", other = folder_ / "other.db";
  ASSERT_EQ(Run({"export", file}).code, 0);
  const test::Ended imported = Run({"import", file}, other);
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(imported.err, "outboard: 2 kernels imported\n");
  for (const char* kernel : {"ab", "12"})
    EXPECT_EQ(Run({"explain", kernel}, other).out, Run({"explain", kernel}).out);
}

TEST_F(CacheCliTest, Rm_RemovesOneKernel_OrAllWhereThatIsSaid) {
  EXPECT_NE(Run({"rm"}).code, 0);
  EXPECT_NE(Run({"rm", "ab", "--all"}).code, 0);
  EXPECT_EQ(Run({"rm", "ab"}).err, "outboard: 1 kernel removed\n");
  EXPECT_EQ(LineWith("product", Run({"ls"}).out), "");
  EXPECT_NE(LineWith("sum", Run({"ls"}).out), "");
  EXPECT_EQ(Run({"rm", "--all"}).code, 0);
  EXPECT_EQ(LineWith("sum", Run({"ls"}).out), "");
}

TEST_F(CacheCliTest, WhatIsNotThere_IsNamed) {
  const test::Ended unknown = Run({"explain", "cd"});
  EXPECT_NE(unknown.code, 0);
  EXPECT_NE(unknown.err.find("no kernel whose id begins with cd"), std::string::npos);
  const test::Ended nothing = Run({"ls"}, folder_ / "none.db");
  EXPECT_NE(nothing.code, 0);
  EXPECT_NE(nothing.err.find("nothing was measured yet"), std::string::npos) << nothing.err;
}

}  // namespace
}  // namespace outboard
