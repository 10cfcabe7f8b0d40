// What `outboard sweep` tries, reads and stops, without a process.
#include "cli/sweep/sweep_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "cli/sweep/report_line.h"
#include "cli/sweep/sweep_table.h"
#include "cli/sweep/trial.h"

namespace outboard::cli {
namespace {

using Texts = std::vector<std::string>;

SweepPlan PlanOf(Texts parameters, Texts command) {
  SweepPlan plan;
  plan.parameters = std::move(parameters);
  plan.command = std::move(command);
  return plan;
}

TEST(SweptParameterTest, Reads) {
  const auto grid = [](const char* text) { return SweptParameter::Parse(text)->GridValues(); };
  EXPECT_EQ(grid("bs=64,128"), (Texts{"64", "128"}));
  EXPECT_EQ(grid("opt=sgd"), (Texts{"sgd"}));
  EXPECT_EQ(grid("lr=1e-4..1e-2:log:3"), (Texts{"0.0001", "0.001", "0.01"}));
  EXPECT_EQ(grid("x=0.0..1:5"), (Texts{"0", "0.25", "0.5", "0.75", "1"}));
  EXPECT_EQ(grid("layers=2..4:9"), (Texts{"2", "3", "4"}));
  EXPECT_EQ(grid("lr=0.1..0.5"), Texts());
  EXPECT_EQ(grid("t=-1..1:3"), (Texts{"-1", "0", "1"}));
}

TEST(SweptParameterTest, DrawsFromTheWholeRange) {
  const SweptParameter layers = *SweptParameter::Parse("layers=2..4");
  std::set<std::string> seen;
  for (int i = 0; i < 300; ++i) seen.insert(layers.ValueAt(i / 300.0));
  EXPECT_EQ(seen, (std::set<std::string>{"2", "3", "4"}));
  const SweptParameter lr = *SweptParameter::Parse("lr=1e-4..1e-2:log");
  EXPECT_EQ(lr.ValueAt(0), "0.0001");
  EXPECT_EQ(lr.ValueAt(0.5), "0.001");
}

TEST(SweptParameterTest, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"lr", "-p lr: no value"},
      {"lr=", "-p lr=: no value"},
      {"lr=5..1", "5 is not below 1"},
      {"lr=1..1", "1 is not below 1"},
      {"lr=0..1:log", ":log needs a range above 0"},
      {"lr=a..1", "\"a\" is no number"},
      {"lr=1..", "\"\" is no number"},
      {"lr=1..inf", "\"inf\" is no number"},
      {"lr=1..2:lin", "\"lin\" is neither"},
      {"lr=1..2:1", "\"1\" is neither"},
      {"lr=1..2:log:log", "\"log\" is neither"},
      {"bs=1,,2", "an empty value"},
      {"bs=1,2,1", "\"1\" is there twice"},
      {"2x=1", "a name has letters"},
      {"=1", "a name has letters"}};
  for (const auto& [text, words] : cases) {
    const absl::Status status = SweptParameter::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(words), std::string::npos) << text << ": " << status;
  }
}

TEST(SweepPlanTest, AGridHasEveryCombinationOnce) {
  SweepPlan plan = PlanOf({"a=1,2", "b=x,y,z"}, {"run", "--a={a}", "{b}"});
  ASSERT_TRUE(plan.Complete("", 0).ok());
  EXPECT_EQ(plan.strategy, SweepStrategy::kGrid);
  ASSERT_EQ(plan.trials, 6);
  const auto values = plan.ValuesOf();
  EXPECT_EQ(std::set<Texts>(values.begin(), values.end()).size(), 6u);
  EXPECT_EQ(plan.CommandOf(values[1]), (Texts{"run", "--a=1", "y"}));
}

TEST(SweepPlanTest, DrawsTheSameFromTheSameSeed) {
  SweepPlan plan = PlanOf({"lr=1e-4..1e-2:log"}, {"run", "{lr}"}), other = plan;
  ASSERT_TRUE(plan.Complete("", 50).ok());
  EXPECT_EQ(plan.strategy, SweepStrategy::kRandom);
  const absl::StatusOr<SweepPlan> again = SweepPlan::FromJson(plan.ToJson());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ValuesOf(), plan.ValuesOf());
  other.seed = 1;
  ASSERT_TRUE(other.Complete("", 50).ok());
  EXPECT_NE(other.ValuesOf(), plan.ValuesOf());
  double low = 0;  // half of the draws are in the lower half of the logarithm
  for (const Texts& values : plan.ValuesOf()) low += std::stod(values[0]) < 1e-3 ? 1 : 0;
  EXPECT_NEAR(low / 50, 0.5, 0.2);
}

TEST(SweepPlanTest, BracesAroundAnythingButANameStay) {
  SweepPlan plan = PlanOf({"lr=1,2"}, {"run", "{\"lr\": {lr}, \"n\": {}}", "{ lr }", "{3}"});
  ASSERT_TRUE(plan.Complete("", 0).ok());
  EXPECT_EQ(plan.CommandOf({"2"}), (Texts{"run", "{\"lr\": 2, \"n\": {}}", "{ lr }", "{3}"}));
}

TEST(SweepPlanTest, SaysWhatIsWrong) {
  struct Case {
    Texts parameters, command;
    const char* strategy;
    int number;
    const char* words;
  };
  const Case cases[] = {
      {{"lr=1,2"}, {}, "", 0, "no command"},
      {{}, {"run"}, "", 0, "nothing to sweep"},
      {{"a=1,2"}, {"run", "{a}", "{lr}"}, "", 0, "{lr}: there is no -p lr="},
      {{"a=1,2", "b=1"}, {"run", "{a}"}, "", 0, "-p b=1: the command does not have {b}"},
      {{"a=1,2", "a=3"}, {"run", "{a}"}, "", 0, "a is there twice"},
      {{"a=0..1"}, {"run", "{a}"}, "", 0, "how many trials? write -n 8"},
      {{"a=0..1"}, {"run", "{a}"}, "grid", 0, "a grid needs the number of points"},
      {{"a=0..1"}, {"run", "{a}"}, "", 10'001, "at most 10000 trials"},
      {{"a=0.0..1:200", "b=0.0..1:200"}, {"run", "{a}{b}"}, "", 0, "more than 10000 trials"},
      {{"a=1,2"}, {"run", "{a}"}, "grid", 3, "the grid has 2 trials"},
      {{"a=1,2"}, {"run", "{a}"}, "bayes", 0, "it is grid, random or halving"},
      {{"a=1,2"}, {"run", "{a}"}, "halving", 2, "needs --first-rung"}};
  for (const Case& test : cases) {
    SweepPlan plan = PlanOf(test.parameters, test.command);
    const absl::Status status = plan.Complete(test.strategy, test.number);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.words;
    EXPECT_NE(status.message().find(test.words), std::string::npos) << status;
  }
}

TEST(ReportLineTest, ReadsWords) {
  const ReportLine line = ReadReportLine("epoch 3 (step=12, loss=0.31; acc=+9.5e1) lr=1e-3x a= =2");
  EXPECT_EQ(line.step, 12);
  ASSERT_EQ(line.values.size(), 2u);
  EXPECT_EQ(line.values[0], (std::pair<std::string, double>("loss", 0.31)));
  EXPECT_EQ(line.values[1], (std::pair<std::string, double>("acc", 95)));
  EXPECT_FALSE(line.cost_micro_usd.has_value());
  EXPECT_TRUE(std::isnan(ReadReportLine("loss=nan").values.at(0).second));
  EXPECT_TRUE(std::isinf(ReadReportLine("loss=-inf").values.at(0).second));
  EXPECT_FALSE(ReadReportLine("step=-1 step=1.5").step.has_value());
  EXPECT_TRUE(ReadReportLine(std::string(kReportLineMax, ' ') + "loss=1").values.empty());
}

class HalvingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    plan_ = PlanOf({"a=0..1"}, {"run", "{a}"});
    plan_.first_rung = 10;
    plan_.keep_one_of = 3;
    ASSERT_TRUE(plan_.Complete("halving", 9).ok());
    trials_.resize(9);
  }
  // SweepTrial `i` comes to `step` with this loss; returns whether it is stopped.
  bool Reach(size_t i, int64_t step, double loss) {
    const size_t rungs = trials_[i].at_rungs.size();
    trials_[i].Note(plan_, step, loss);
    return trials_[i].at_rungs.size() > rungs && StopsAtRung(plan_, trials_, trials_[i]);
  }
  SweepPlan plan_;
  std::vector<SweepTrial> trials_;
};

TEST_F(HalvingTest, ThoseThatFallBehindAreStopped) {
  EXPECT_EQ(StepOfRung(plan_, 2), 90);
  EXPECT_FALSE(Reach(0, 9, 5));  // no rung yet
  EXPECT_FALSE(Reach(0, 10, 5)) << "the first at a rung has nobody to be compared with";
  EXPECT_TRUE(Reach(1, 10, 6));
  EXPECT_FALSE(Reach(2, 11, 4)) << "better than all before";
  EXPECT_TRUE(Reach(3, 10, std::nan("")));
  EXPECT_TRUE(Reach(4, 10, std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(Reach(5, 10, 4.5)) << "the second of six, of which two go on";
  EXPECT_FALSE(Reach(0, 31, 3)) << "the first at the second rung";
  EXPECT_TRUE(Reach(2, 30, 3.5));
}

TEST_F(HalvingTest, LargerMayBeBetter) {
  plan_.larger_is_better = true;
  EXPECT_FALSE(Reach(0, 10, 5));
  EXPECT_TRUE(Reach(1, 10, 4));
  EXPECT_FALSE(Reach(2, 10, 6));
  EXPECT_EQ(BestOf(plan_, trials_), &trials_[2]);
}

TEST(TrialTest, OutlivesTheDisk) {
  SweepPlan plan = PlanOf({"a=1,2,3"}, {"run", "{a}"});
  ASSERT_TRUE(plan.Complete("", 0).ok());
  std::vector<SweepTrial> trials(3);
  for (int i = 0; i < 3; ++i) trials[i].number = i + 1, trials[i].values = plan.ValuesOf()[i];
  trials[0].Note(plan, 3, 0.5);
  trials[0].Note(plan, 4, std::nan(""));
  trials[0].state = TrialState::kFailed;
  trials[0].note = "exit code 1: \xff,\"";
  trials[1].state = TrialState::kDone;
  trials[1].Note(plan, 7, 0.25);
  const absl::StatusOr<std::vector<SweepTrial>> again = TrialsFromJson(plan, TrialsToJson(trials));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ResultsAsCsv(plan, *again), ResultsAsCsv(plan, trials));
  EXPECT_EQ(ResultsAsCsv(plan, trials),
            "trial,a,state,step,loss,best_loss\n"
            "1,1,failed,4,nan,0.5\n"
            "2,2,done,7,0.25,0.25\n"
            "3,3,waiting,,,\n");
  EXPECT_EQ((*again)[0].note.substr(0, 13), "exit code 1: ");
  EXPECT_FALSE(TrialsFromJson(plan, "[]").ok());
  EXPECT_FALSE(TrialsFromJson(plan, "{").ok());
}

TEST(SweepTableTest, NothingOfANoteSteersTheTerminal) {
  SweepPlan plan = PlanOf({"a=1,2"}, {"run", "{a}"});
  ASSERT_TRUE(plan.Complete("", 0).ok());
  std::vector<SweepTrial> trials(2);
  for (int i = 0; i < 2; ++i) trials[i].number = i + 1, trials[i].values = plan.ValuesOf()[i];
  trials[0].note = "\x1b[2Jgone";
  for (const std::string& line : SweepTable(plan, trials, 1, 60)) {
    EXPECT_LE(line.size(), 60u);
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
  EXPECT_EQ(SweepTable(plan, trials, 1, 60).back(), "... and 1 more");
}

}  // namespace
}  // namespace outboard::cli
