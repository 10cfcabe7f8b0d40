// `outboard estimate` as a user has it: real processes, prices from a file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/estimate/estimate_table.h"
#include "cli/estimate/recorded_run.h"
#include "cli/estimate/scheduled_work.h"
#include "client/session/estimate/recording_session.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/target.h"
#include "gateway/prices/price_list.h"
#include "gateway/prices/rates_on_paper.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/temp_folder.h"
#include "worker/devices/device_info.h"

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
    args.insert(args.begin(), {test::kOutboardProgram, "estimate"});
    std::vector<std::string> environment = {"CLOUD=", "OUTBOARD_DATA=" + (folder_ / "data")};
    environment.insert(environment.end(), more.begin(), more.end());
    return test::RunToEnd(args, environment);
  }
  test::TempFolder folder_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Of a class in the command's JSON; 0: it says none.
double SecondsOf(const std::string& name, const std::string& json) {
  const std::string before = "\"class\": \"" + name + "\", \"seconds\": ";
  const size_t at = json.find(before);
  return at == std::string::npos ? 0 : std::strtod(json.c_str() + at + before.size(), nullptr);
}

// The first example of JSON on a page of docs/.
std::string JsonOnPage(const std::string& page) {
  const std::string text = test::ReadFile(test::SourceFile("docs/" + page));
  const size_t fence = text.find("```json\n");
  OB_CHECK(fence != std::string::npos);
  const size_t begin = fence + 8;
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST_F(EstimateCliTest, AProgram_IsEndedAfterItsSteps_AndPricedForEachClass) {
  const test::Ended ended =
      Run({"--steps", "12", "--json", "--prices", prices(), "--", test::kLinearProgram});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(Has(ended.out, "{\"steps\": 12, ")) << ended.out;
  EXPECT_GT(SecondsOf("quick", ended.out), 0) << ended.out;
  EXPECT_TRUE(Has(ended.out, "\"class\": \"silent\", \"seconds\": null")) << ended.out;
  EXPECT_TRUE(Has(ended.out, "does not say its rates")) << ended.out;
  const test::Ended table =
      Run({"--steps", "12", "--prices", prices(), "--", test::kLinearProgram});
  EXPECT_TRUE(Has(table.out, "12 steps, ")) << table.out;
  EXPECT_TRUE(Has(table.out, "silent         unknown")) << table.out;
}

TEST_F(EstimateCliTest, ToItsEnd_AndItsExitCodeIsTold) {
  // Its loss is made up, so it finds that it has not learned.
  const test::Ended ended = Run({"--json", "--prices", prices(), "--", test::kLinearProgram});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(Has(ended.err, "ended with 1 after ")) << ended.err;
  EXPECT_GT(SecondsOf("quick", ended.out), 0) << ended.out;
}

TEST_F(EstimateCliTest, CtrlC_EndsTheProgram_AndTheEstimateIsOfItsStepsSoFar) {
  // By exec: a shell that is just starting a program may lose the signal.
  const std::string endless = std::string("\"") + test::kLinearProgram + "\"; exec sleep 60";
  test::Process estimate({test::kOutboardProgram, "estimate", "--json", "--prices", prices(), "--",
                          "sh", "-c", endless},
                         {"CLOUD=", "OUTBOARD_DATA=" + (folder_ / "data")});
  ASSERT_TRUE(test::Eventually([&] { return Has(estimate.err(), "runs, "); })) << estimate.err();
  EXPECT_EQ(estimate.Stop(SIGINT), 0) << estimate.err();
  EXPECT_TRUE(Has(estimate.err(), "was interrupted after ")) << estimate.err();
  EXPECT_GT(SecondsOf("quick", estimate.out()), 0) << estimate.out();
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
      "echo begun >>\"$0\"; \"" + std::string(test::kLinearProgram) + "\"; exec sleep 60";
  const std::string runs = folder_ / "runs";
  test::Process estimate(
      {test::kOutboardProgram, "estimate", "--json", "--measure", "--", "sh", "-c", endless, runs},
      {"CLOUD=", std::string("OUTBOARD_BIN=") + test::kOutboardProgram,
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
  EXPECT_EQ(no_file.code, 2);
  EXPECT_TRUE(Has(no_file.err, "--prices: ")) << no_file.err;
  EXPECT_TRUE(Has(no_file.err, "No such file")) << no_file.err;
}

// Kernels compile for these, and no worker serves one.
TEST_F(EstimateCliTest, AmdClasses_HaveTimeAndMoneyWithAWideRange) {
  const std::string file = folder_ / "amd.json";
  std::ofstream(file) << R"({"classes": [
    {"name": "instinct", "hardware": ["amd; amd blocks of 256 gfx942*"],
     "usd_per_hour": {"run": 2.1}},
    {"name": "radeon", "hardware": ["amd blocks of 256 gfx1100*"], "usd_per_hour": {"run": 0.4}},
    {"name": "silent", "hardware": ["amd blocks of 256 gfx90a*"], "usd_per_hour": {"run": 1}}]})";
  const test::Ended table = Run({"--steps", "12", "--prices", file, "--", test::kLinearProgram});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(Has(table.out, "(rates on paper)")) << table.out;
  EXPECT_TRUE(Has(table.out, "silent         unknown")) << table.out;
  const test::Ended json =
      Run({"--steps", "12", "--json", "--prices", file, "--", test::kLinearProgram});
  ASSERT_EQ(json.code, 0) << json.err;
  EXPECT_GT(SecondsOf("instinct", json.out), 0) << json.out;
  EXPECT_TRUE(Has(json.out, "\"rates_on_paper\": true, \"gflops\": 81700")) << json.out;
  EXPECT_TRUE(Has(json.out, "\"rates_on_paper\": true, \"gflops\": 30700")) << json.out;
}

// Of a class in the command's JSON: its line behind the times, which differ from run to run.
std::string FactsOf(const std::string& name, const std::string& json) {
  const size_t at = json.find("\"class\": \"" + name + "\"");
  const size_t facts = json.find("\"measured\": ", at);
  if (at == std::string::npos || facts == std::string::npos) return "";
  return json.substr(facts, json.find('}', facts) - facts);
}

// A gateway tells the rates, and not of which hardware they are.
TEST_F(EstimateCliTest, AGatewayWithThePriceFile_AnswersAsTheFileDoes) {
  const std::string file = folder_ / "amd.json", at = "unix:" + (folder_ / "s");
  std::ofstream(file) << R"({"classes": [
    {"name": "instinct", "hardware": ["amd; amd blocks of 256 gfx942*"],
     "usd_per_hour": {"run": 2.1}},
    {"name": "radeon", "hardware": ["amd blocks of 256 gfx1100*"],
     "rates": {"gflops": 20000}, "usd_per_hour": {"run": 0.4}},
    {"name": "mixed", "hardware": ["amd blocks of 256 gfx1100*", "x*"],
     "usd_per_hour": {"run": 1}},
    {"name": "small", "hardware": ["*"], "rates": {"gflops": 1, "memory_gb_per_s": 0.1},
     "usd_per_hour": {"run": 0.1}}]})";
  const std::string ready = folder_ / "ready";
  test::Process gateway({test::kOutboardProgram, "gateway", "--listen", at, "--no-auth", "--prices",
                         file, "--data", folder_ / "gateway", "--ready-file", ready});
  ASSERT_TRUE(test::Eventually([&] { return std::filesystem::exists(ready); })) << gateway.err();
  const auto estimated = [&](const std::string& option, const std::string& value) {
    const test::Ended ended =
        Run({"--steps", "12", "--json", option, value, "--", test::kLinearProgram});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const std::string of_file = estimated("--prices", file);
  const std::string of_gateway = estimated("--gateway", at);
  for (const std::string name : {"instinct", "radeon", "mixed", "small"}) {
    EXPECT_NE(FactsOf(name, of_file), "") << of_file;
    EXPECT_EQ(FactsOf(name, of_gateway), FactsOf(name, of_file)) << name;
    EXPECT_EQ(Has(FactsOf(name, of_gateway), "\"rates_on_paper\": true"),
              name == "instinct" || name == "radeon")
        << of_gateway;
  }
  EXPECT_GT(SecondsOf("instinct", of_gateway), 0) << of_gateway;
  EXPECT_TRUE(Has(FactsOf("radeon", of_gateway), "\"gflops\": 20000")) << of_gateway;
}

TEST(StatedRates, AreOnPaperOnlyWhereAllHardwareIsOfThatKind) {
  const auto filled = [](const std::vector<std::string>& hardware, double gflops = 0) {
    const gateway::StatedRates stated =
        gateway::StatedRatesOf({.hardware = hardware, .rates = {.gflops = gflops}});
    return session::DeviceClass{.gflops = stated.rates.gflops,
                                .memory_gb_per_s = stated.rates.memory_gb_per_s,
                                .rates_on_paper = stated.on_paper};
  };
  const std::string cdna = "amd blocks of 256 gfx942*", rdna = "amd blocks of 256 gfx1100*";
  for (const char* other :
       {"x86-64*", "cuda; cuda blocks of 256 NVIDIA *", "cuda blocks of 256 NVIDIA T4*",
        "cuda blocks of 256 NVIDIA H10",
        // Beginnings that other models have, too: RTX 5090, A10 and A16, H20.
        "cuda blocks of 256 NVIDIA GeForce RTX*", "cuda blocks of 256 NVIDIA A1*",
        "cuda blocks of 256 NVIDIA H*", "cuda blocks of 256 NVIDIA GeForce RTX 409*",
        // Other models whose names begin with that of one of these.
        "cuda blocks of 256 NVIDIA GeForce RTX 4090 Laptop GPU sm_89*",
        "cuda blocks of 256 NVIDIA GeForce RTX 4090 D*", "cuda blocks of 256 NVIDIA H200 NVL*",
        "cuda blocks of 256 NVIDIA H100 80GB HBM3 MIG 1g.10gb sm_90a*",
        "amd blocks of 256 gfx9*",
        "amd blocks of 256 gfx1100x*", "amd blocks of 256 gfx942", "amd blocks of gfx942*",
        "amd blocks of 256*", "amd blocks of 256", "amd:gfx942", "amd*", "*", ""}) {
    EXPECT_FALSE(filled({other}).rates_on_paper) << other;
    EXPECT_EQ(filled({other}).gflops, 0) << other;
    EXPECT_FALSE(filled({cdna, other}).rates_on_paper) << other;
  }
  EXPECT_FALSE(filled({}).rates_on_paper);
  EXPECT_TRUE(filled({cdna}).rates_on_paper);
  EXPECT_EQ(filled({cdna, rdna}).gflops, 30700) << "the least of both";
  const std::string h100 = "cuda; cuda blocks of 256 NVIDIA H100*";
  EXPECT_EQ(filled({h100}).gflops, 25600) << "the least of all H100s";
  EXPECT_TRUE(filled({h100}).rates_on_paper);
  EXPECT_EQ(filled({"cuda blocks of 256 NVIDIA A100*"}).memory_gb_per_s, 777.5) << "40 GB";
  for (const char* behind : {"*", " sm_90a*"})
    EXPECT_EQ(filled({absl::StrCat("cuda blocks of 256 NVIDIA H100 80GB HBM3", behind)}).gflops,
              33450);
  // As the compiler's targets and a worker spell it, whole or as a beginning.
  for (const std::string arch : {"gfx942", "gfx1100"}) {
    const std::string fingerprint = AmdTarget(arch, 304).Fingerprint();
    const double gflops = arch == "gfx942" ? 81700 : 30700;
    EXPECT_EQ(filled({fingerprint}).gflops, gflops) << fingerprint;
    EXPECT_EQ(filled({"amd; " + fingerprint}).gflops, gflops) << fingerprint;
    const size_t end = fingerprint.find(arch) + arch.size();
    EXPECT_EQ(filled({fingerprint.substr(0, end) + "*"}).gflops, gflops) << fingerprint;
    EXPECT_EQ(filled({fingerprint.substr(0, end + 3) + "*"}).gflops, gflops) << fingerprint;
  }
  const session::DeviceClass said = filled({cdna}, 90000);
  EXPECT_EQ(said.gflops, 90000) << "what the file says";
  EXPECT_EQ(said.memory_gb_per_s, 2650);
  EXPECT_TRUE(said.rates_on_paper) << "by nobody measured, all the same";
  // What the rate check measures is not on paper; it measures no products of narrow floats.
  const gateway::PriceClass measured{.hardware = {h100},
                                     .rates = {.gflops = 30'000, .memory_gb_per_s = 1'800}};
  const gateway::StatedRates rates = gateway::StatedRatesOf(measured);
  EXPECT_FALSE(rates.on_paper);
  EXPECT_EQ(rates.rates, measured.rates);
  EXPECT_EQ(rates.half_gflops, 378'000);
  EXPECT_EQ(rates.tf32_gflops, 189'000);
  EXPECT_EQ(gateway::StatedRatesOf({.hardware = {rdna}}).f8_gflops, 0) << "it has none";
  // The range is a factor of four to both sides.
  const session::RecordedWork work{.runs = 1, .steps = 1, .kernels = {{1e12, 0, 1e9, 1}}};
  const session::ClassEstimate estimate = session::EstimateFor(said, work);
  ASSERT_TRUE(estimate.seconds.has_value());
  EXPECT_DOUBLE_EQ(estimate.seconds->high, 4 * estimate.seconds->expected);
  EXPECT_DOUBLE_EQ(estimate.seconds->low, estimate.seconds->expected / 4);
}

// With --prices a program's graphs reach the command, and are scheduled for the class's GPU.
TEST(RecordRun, WithGraphs_HasEachGraphAndHowOftenItRan) {
  const auto run = cli::RecordRun({test::kLinearProgram}, /*steps=*/12, /*with_graphs=*/true);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->graphs.size(), run->work.graphs);
  uint64_t steps = 0;
  for (const session::SentGraph& graph : run->graphs) steps += graph.steps;
  EXPECT_EQ(steps, run->work.steps);
  const session::RecordedWork on = cli::ScheduledFor(AmdTarget("gfx942", 304), run->work,
                                                     run->graphs);
  EXPECT_EQ(on.unknown, "");
  EXPECT_FALSE(on.kernels.empty());
  EXPECT_NE(on.kernels, run->work.kernels);
  const auto without = cli::RecordRun({test::kLinearProgram}, /*steps=*/12);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->graphs.empty());
}

// Such as a Python package that is installed elsewhere: here its shell hides the variable.
TEST_F(EstimateCliTest, AProgramThatWritesNoGraphs_IsEstimatedByWhatWasCounted) {
  const std::string file = folder_ / "amd.json";
  std::ofstream(file) << R"({"classes": [{"name": "instinct", "usd_per_hour": {"run": 2.1},
    "hardware": ["amd; amd blocks of 256 gfx942*"]}]})";
  const auto estimated = [&](const std::vector<std::string>& program) {
    std::vector<std::string> args = {"--steps", "12", "--json", "--prices", file, "--"};
    args.insert(args.end(), program.begin(), program.end());
    return Run(args);
  };
  const std::string line = "kernels are counted, not scheduled";
  const test::Ended older =
      estimated({"env", "-u", "OUTBOARD_ESTIMATE_GRAPHS", test::kLinearProgram});
  ASSERT_EQ(older.code, 0) << older.err;
  EXPECT_TRUE(Has(older.err, line)) << older.err;
  EXPECT_GT(SecondsOf("instinct", older.out), 0) << older.out;
  EXPECT_FALSE(Has(estimated({test::kLinearProgram}).err, line));
}

constexpr int kSessionsOfTwoThreads = 100;

// A program whose sessions are each told of by two threads at once.
TEST(RecordRun, DISABLED_TwoThreads) {
  Graph g;
  const UOp* sum = Param(g, 0, DType::kF32, {Dim(8)});
  for (int i = 0; i < 300; ++i) sum = Add(g, sum, Alu(g, Op::kExp, sum));
  const EncodedGraph encoded = ValueOrDie(EncodeGraph(Sink(g, {sum})));
  const auto graph = std::make_shared<const std::string>(encoded.bytes);
  for (int i = 0; i < kSessionsOfTwoThreads; ++i) {
    const std::shared_ptr<Session> session = MakeRecordingSession({});
    ASSERT_TRUE(session->Run({.graph_id = encoded.id.bytes,
                              .graph = graph,
                              .inputs = {session->NewHandle()},
                              .outputs = {session->NewHandle()}}).ok());
    std::latch both(2);
    const auto close = [&] {
      both.arrive_and_wait();
      (void)session->Close();
    };
    std::thread other(close);
    close();
    other.join();
  }
}

// The line with a graph is ahead of those of other threads that take it as known.
TEST(RecordRun, OfTwoThreads_EachGraphIsWholeOnceBeforeItIsKnown) {
  const std::string program = ::testing::internal::GetArgvs()[0];
  const auto run = cli::RecordRun({program, "--gtest_filter=RecordRun.DISABLED_TwoThreads",
                                   "--gtest_also_run_disabled_tests"},
                                  /*steps=*/0, /*with_graphs=*/true);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->exit_code, 0);
  EXPECT_EQ(run->work.sessions, static_cast<uint64_t>(kSessionsOfTwoThreads));
  EXPECT_EQ(run->graphs.size(), static_cast<size_t>(kSessionsOfTwoThreads));
  EXPECT_TRUE(cli::HasAllGraphs(run->work, run->graphs));
}

TEST(StatedRates, ATargetIsOfOneKindOfGpu) {
  const auto target = [](const std::vector<std::string>& hardware) {
    const std::optional<Target> of = gateway::TargetOnPaper({.hardware = hardware});
    return of ? of->arch : "";
  };
  EXPECT_EQ(target({"amd blocks of 256 gfx942*"}), "gfx942");
  EXPECT_EQ(target({"cuda blocks of 256 NVIDIA H100*", "cuda blocks of 256 NVIDIA H200*"}),
            "sm_90a");
  EXPECT_EQ(target({"cuda blocks of 256 NVIDIA H100*", "cuda blocks of 256 NVIDIA L40S*"}), "");
  EXPECT_EQ(target({"amd blocks of 256 gfx942*", "x86-64*"}), "");
  EXPECT_EQ(target({}), "");
}

// The examples match hardware that there is: devices as workers describe them, and the compiler's
// target.
TEST(PricesOnPages, MatchHardware) {
  const auto prices = gateway::ParsePriceList(JsonOnPage("prices.md"));
  ASSERT_TRUE(prices.ok()) << prices.status();
  const runtime::DeviceProperties h100{.kind = "cuda",
                                       .name = "NVIDIA H100 80GB HBM3",
                                       .compute_units = 132,
                                       .form = CompiledKernel::Form::kPtx,
                                       .is_processor = false,
                                       .shared_bytes = 48 << 10,
                                       .block_threads_max = 1024,
                                       .compute_capability = 90};
  const std::string gpu = worker::DescribeGpu(h100).hardware_class;
  const gateway::PriceClass* of = prices->ClassOf(gpu, 85'000'000'000);
  ASSERT_NE(of, nullptr) << gpu;
  EXPECT_EQ(of->name, "large") << gpu;
  const std::string processor = worker::DescribeDevice("cpu", 0).hardware_class;
  of = prices->ClassOf(processor, 0);
  ASSERT_NE(of, nullptr) << processor;
  EXPECT_EQ(of->name, "small") << processor;

  const auto on_paper = gateway::ParsePriceList(JsonOnPage("estimates.md"));
  ASSERT_TRUE(on_paper.ok()) << on_paper.status();
  const std::string amd = "amd; " + AmdTarget("gfx942", 304).Fingerprint();
  of = on_paper->ClassOf(amd, 0);
  ASSERT_NE(of, nullptr) << amd;
  EXPECT_TRUE(gateway::StatedRatesOf(*of).on_paper);
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
