// `outboard estimate` as a user has it: real processes, prices from a file.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/estimate/estimate_table.h"
#include "cli/estimate/recorded_run.h"
#include "cli/estimate/unmeasured.h"
#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"

namespace outboard {
namespace {

constexpr char kPrices[] =
    "{\"classes\": [\n"
    " {\"name\": \"quick\", \"hardware\": [\"a*\"],\n"
    "  \"rates\": {\"gflops\": 100, \"memory_gb_per_s\": 20}, \"usd_per_hour\": {\"run\": 3.6}},\n"
    " {\"name\": \"silent\", \"hardware\": [\"*\"], \"usd_per_hour\": {\"run\": 1}}]}\n";

class EstimateCliTest : public ::testing::Test {
 protected:
  EstimateCliTest() { std::ofstream(prices()) << kPrices; }
  std::string prices() const { return folder_ / "prices.json"; }
  test::Ended Run(std::vector<std::string> args, std::vector<std::string> more = {}) {
    args.insert(args.begin(), {OUTBOARD_BINARY, "estimate"});
    std::vector<std::string> environment = {"CLOUD=", "OUTBOARD_DATA=" + (folder_ / "data")};
    environment.insert(environment.end(), more.begin(), more.end());
    return test::RunToEnd(args, environment);
  }
  test::TempFolder folder_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(EstimateCliTest, AProgram_IsEndedAfterItsSteps_AndPricedForEachClass) {
  const test::Ended ended =
      Run({"--steps", "12", "--json", "--prices", prices(), "--", LINEAR_PROGRAM});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(Has(ended.out, "{\"steps\": 12, ")) << ended.out;
  EXPECT_TRUE(Has(ended.out, "\"class\": \"quick\", \"seconds\": 0.")) << ended.out;
  EXPECT_TRUE(Has(ended.out, "\"class\": \"silent\", \"seconds\": null")) << ended.out;
  EXPECT_TRUE(Has(ended.out, "does not say its rates")) << ended.out;
  const test::Ended table = Run({"--steps", "12", "--prices", prices(), "--", LINEAR_PROGRAM});
  EXPECT_TRUE(Has(table.out, "12 steps, ")) << table.out;
  EXPECT_TRUE(Has(table.out, "silent         unknown")) << table.out;
}

TEST_F(EstimateCliTest, ToItsEnd_AndItsExitCodeIsTold) {
  // Its loss is made up, so it finds that it has not learned.
  const test::Ended ended = Run({"--json", "--prices", prices(), "--", LINEAR_PROGRAM});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(Has(ended.err, "ended with 1 after ")) << ended.err;
  EXPECT_TRUE(Has(ended.out, "\"class\": \"quick\", \"seconds\": 0.")) << ended.out;
}

TEST_F(EstimateCliTest, CtrlC_EndsTheProgram_AndTheEstimateIsOfItsStepsSoFar) {
  // By exec: a shell that is just starting a program may lose the signal.
  const std::string endless = std::string("\"") + LINEAR_PROGRAM + "\"; exec sleep 60";
  test::Process estimate({OUTBOARD_BINARY, "estimate", "--json", "--prices", prices(), "--", "sh",
                          "-c", endless},
                         {"CLOUD=", "OUTBOARD_DATA=" + (folder_ / "data")});
  ASSERT_TRUE(test::Eventually([&] { return Has(estimate.err(), "runs, "); })) << estimate.err();
  EXPECT_EQ(estimate.Stop(SIGINT), 0) << estimate.err();
  EXPECT_TRUE(Has(estimate.err(), "was interrupted after ")) << estimate.err();
  EXPECT_TRUE(Has(estimate.out(), "\"class\": \"quick\", \"seconds\": 0.")) << estimate.out();
}

TEST_F(EstimateCliTest, WrongUsage_NamesTheParameter) {
  const std::string file = prices();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--steps", "0", "--prices", file, "--", "true"}, "--steps"},
      {{"--steps", "many", "--prices", file, "--", "true"}, "--steps"},
      {{"--prices", file}, "the program is missing"},
      {{"--prices", file, "--gateway", "box:1", "--", "true"}, "--gateway"},
      {{"--prices", file, "--measure", "--", "true"}, "--measure"},
      {{"--gateway", "box", "--", "true"}, "--gateway"}};
  for (const auto& [args, words] : cases) {
    const test::Ended ended = Run(args);
    EXPECT_EQ(ended.code, 2) << words << ended.err;
    EXPECT_TRUE(Has(ended.err, words)) << ended.err;
    EXPECT_EQ(ended.out, "") << words;
  }
}

// Whoever presses Ctrl-C wants no second run, which on a device would cost.
TEST_F(EstimateCliTest, CtrlC_OfTheRecordedRun_MeasuresNothing) {
  const std::string endless =
      "echo begun >>\"$0\"; \"" + std::string(LINEAR_PROGRAM) + "\"; exec sleep 60";
  const std::string runs = folder_ / "runs";
  test::Process estimate(
      {OUTBOARD_BINARY, "estimate", "--json", "--measure", "--", "sh", "-c", endless, runs},
      {"CLOUD=", std::string("OUTBOARD_BIN=") + OUTBOARD_BINARY,
       "OUTBOARD_DATA=" + (folder_ / "data")});
  ASSERT_TRUE(test::Eventually([&] { return Has(estimate.err(), "runs, "); })) << estimate.err();
  EXPECT_EQ(estimate.Stop(SIGINT), 1) << estimate.err();
  EXPECT_TRUE(Has(estimate.err(), "interrupted, so nothing is measured")) << estimate.err();
  EXPECT_TRUE(Has(estimate.out(), "\"class\": \"this machine\"")) << estimate.out();
  EXPECT_EQ(test::ReadFile(runs), "begun\n");
}

TEST_F(EstimateCliTest, AProgramThatComputesNothing_OrIsNone_IsAnError) {
  const test::Ended nothing = Run({"--prices", prices(), "--", "true"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_TRUE(Has(nothing.err, "true computed nothing")) << nothing.err;
  const test::Ended none = Run({"--prices", prices(), "--", "no-such-program"});
  EXPECT_EQ(none.code, 1) << "2 is wrong usage";
  EXPECT_TRUE(Has(none.err, "no-such-program: No such file")) << none.err;
  const test::Ended no_file = Run({"--prices", folder_ / "none", "--", "true"});
  EXPECT_NE(no_file.code, 0);
}

// Kernels compile for these, and no worker serves one.
TEST_F(EstimateCliTest, AmdClasses_HaveTimeAndMoneyWithAWideRange) {
  const std::string file = folder_ / "amd.json";
  std::ofstream(file) << R"({"classes": [
    {"name": "instinct", "hardware": ["amd:gfx942*"], "usd_per_hour": {"run": 2.1}},
    {"name": "radeon", "hardware": ["amd:gfx1100"], "usd_per_hour": {"run": 0.4}},
    {"name": "silent", "hardware": ["amd:gfx90a"], "usd_per_hour": {"run": 1}}]})";
  const test::Ended table = Run({"--steps", "12", "--prices", file, "--", LINEAR_PROGRAM});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(Has(table.out, "(no such device was ever measured)")) << table.out;
  EXPECT_TRUE(Has(table.out, "silent         unknown")) << table.out;
  const test::Ended json = Run({"--steps", "12", "--json", "--prices", file, "--", LINEAR_PROGRAM});
  EXPECT_TRUE(Has(json.out, "\"class\": \"instinct\", \"seconds\": 0.")) << json.out;
  EXPECT_TRUE(Has(json.out, "\"on_paper\": true, \"gflops\": 81700")) << json.out;
  EXPECT_TRUE(Has(json.out, "\"on_paper\": true, \"gflops\": 30700")) << json.out;
}

TEST(FillUnmeasured, OnlyWhereAllHardwareIsOfItsKind) {
  const auto filled = [](const std::vector<std::string>& hardware, double gflops = 0) {
    session::DeviceClass of{.gflops = gflops};
    cli::FillUnmeasured(hardware, of);
    return of;
  };
  for (const char* hardware : {"x86-64*", "cuda:sm_90*", "amd:gfx9", "amd:gfx1100x", "amd*", "*"}) {
    EXPECT_FALSE(filled({hardware}).is_unmeasured) << hardware;
    EXPECT_EQ(filled({hardware}).gflops, 0) << hardware;
    EXPECT_FALSE(filled({"amd:gfx942", hardware}).is_unmeasured) << hardware;
  }
  EXPECT_FALSE(filled({}).is_unmeasured);
  EXPECT_TRUE(filled({"amd:gfx942"}).is_unmeasured);
  EXPECT_EQ(filled({"amd:gfx942", "amd:gfx1100*"}).gflops, 30700) << "the least of both";
  const session::DeviceClass said = filled({"amd:gfx942*"}, 90000);
  EXPECT_EQ(said.gflops, 90000) << "what the file says";
  EXPECT_EQ(said.memory_gb_per_s, 2650);
  EXPECT_TRUE(said.is_unmeasured) << "by nobody, all the same";
  // The range is a factor of four to both sides.
  const session::RecordedWork work{.runs = 1, .steps = 1, .kernels = {{1e12, 0, 1e9, 1}}};
  const session::ClassEstimate estimate = session::EstimateFor(said, work);
  ASSERT_TRUE(estimate.seconds.has_value());
  EXPECT_DOUBLE_EQ(estimate.seconds->high, 4 * estimate.seconds->expected);
  EXPECT_DOUBLE_EQ(estimate.seconds->low, estimate.seconds->expected / 4);
}

TEST(ReadRecords, TheLastRecordOfEachSessionCounts) {
  session::RecordedWork work{.runs = 1, .steps = 1, .kernels = {{1, 2, 3, 4}}};
  const std::string first = "session 1\n" + ToText(work);
  work.runs = work.steps = 5;
  const std::string later = "session 1\n" + ToText(work), other = "session 2\n" + ToText(work);
  const auto run = cli::ReadRecords(first + later + other + "measured 10 0.5 1 quick\n" +
                                    first.substr(0, first.size() / 2));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->work.steps, 10u);
  EXPECT_EQ(run->work.sessions, 2u);
  ASSERT_TRUE(run->measured.has_value());
  EXPECT_EQ(run->measured->device_class, "quick");
  EXPECT_FALSE(cli::ReadRecords("hello\n").ok());
}

}  // namespace
}  // namespace outboard
