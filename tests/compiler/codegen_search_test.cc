// The search over Opts, with times that a test makes up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "compiler/compile.h"
#include "compiler/optimize/apply.h"
#include "compiler/search/beam.h"
#include "compiler/search/neighbours.h"
#include "tests/compiler/kernel_random.h"
#include "tests/compiler/kernel_random_opts.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

using codegen::Opt;
using codegen::OptsToString;
using search::Beam;
using search::BeamOptions;
using search::BeamResult;
using search::Trial;

const Target kTarget = TestTargetWith(32, 16);

// Compiles and runs in truth; what a run takes follows from the text of the Opts.
class MadeUpDevice : public search::Measurer {
 public:
  explicit MadeUpDevice(const UOp* sink) : sink_(sink) {}

  void Expect(std::span<const std::vector<Opt>> candidates) override {
    for (const auto& opts : candidates) expected.push_back(OptsToString(opts));
  }
  absl::StatusOr<CompiledKernel> Compile(const std::vector<Opt>& opts) override {
    ++compiled;
    text_ = OptsToString(opts);
    if (refuses(text_)) return absl::DeadlineExceededError("too slow to compile");
    if (compiles_for_the_host) return CompileKernel(sink_, {.cpu = "haswell"});
    return CompileKernel(sink_, {.cpu = "haswell", .opts = opts});
  }
  absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers, int64_t begin,
                   int64_t end) override {
    const auto loaded = LoadedKernel::Load(kernel);
    if (!loaded.ok()) return loaded.status();
    (*loaded)->Run(buffers.data(), begin, end);
    if (wrong(text_)) static_cast<float*>(buffers[0])[5] += 1;
    return absl::OkStatus();
  }
  absl::StatusOr<double> Seconds(const CompiledKernel&, std::span<void* const>, double) override {
    if (fails(text_)) return absl::InternalError("does not run");
    return seconds(text_);
  }

  search::Conditions conditions() const override { return at; }

  search::Conditions at;
  std::function<double(const std::string&)> seconds = [](const std::string& text) {
    uint64_t hash = 1469598103934665603ULL;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
    return 1 + static_cast<double>(hash % 1000) / 1000;
  };
  std::function<bool(const std::string&)> wrong = [](const std::string&) { return false; };
  std::function<bool(const std::string&)> refuses = wrong;
  std::function<bool(const std::string&)> fails = wrong;  // when it is timed
  bool compiles_for_the_host = false;  // whatever the Opts, which are a GPU's
  int compiled = 0;
  std::vector<std::string> expected;

 private:
  const UOp* const sink_;
  std::string text_;
};

bool Has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

std::string Lines(const std::vector<Trial>& trials) {
  std::string out;
  for (const Trial& trial : trials)
    out += OptsToString(trial.opts) + " " + std::to_string(trial.time_ns) + "\n";
  return out;
}

class SearchTest : public ::testing::Test {
 protected:
  Graph g_;
  const UOp* const sink_ = MatMul(g_, 20, 24, 12);
  MadeUpDevice device_{sink_};
  BeamOptions options_{.width = 2, .target = kTarget};
};

TEST_F(SearchTest, EndsWithTheBestOfItsTrialsTheSameEachTime) {
  const auto result = Beam(sink_, device_, options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->finished);
  EXPECT_GT(result->trials.size(), 30u);
  EXPECT_LT(result->best.time_ns, result->start_ns);
  ASSERT_EQ(device_.expected.size(), result->trials.size() - 1) << "all but the heuristic's";
  for (size_t i = 1; i < result->trials.size(); ++i)
    EXPECT_EQ(device_.expected[i - 1], OptsToString(result->trials[i].opts));
  for (const Trial& trial : result->trials)
    if (trial.verified) {
      EXPECT_GE(trial.time_ns, result->best.time_ns);
    }
  MadeUpDevice again(sink_);
  EXPECT_EQ(Lines(Beam(sink_, again, options_)->trials), Lines(result->trials));
}

TEST_F(SearchTest, GoesOnWhereItWasStopped) {
  const auto whole = Beam(sink_, device_, options_);
  ASSERT_TRUE(whole.ok());
  MadeUpDevice again(sink_);
  std::vector<Trial> known;
  BeamOptions some = options_;
  some.trials_max = 13;
  some.on_trial = [&](const Trial& trial) { known.push_back(trial); };
  int calls = 0;
  while (true) {
    const size_t before = known.size();
    const auto part = Beam(sink_, again, some, known);
    ASSERT_TRUE(part.ok()) << part.status();
    ++calls;
    if (part->finished) {
      EXPECT_EQ(OptsToString(part->best.opts), OptsToString(whole->best.opts));
      break;
    }
    ASSERT_GT(known.size(), before);
    ASSERT_LE(known.size(), before + 14);  // the heuristic's is not counted
  }
  EXPECT_GT(calls, 2);
  EXPECT_EQ(Lines(known), Lines(whole->trials));
  again.compiled = 0;
  EXPECT_TRUE(Beam(sink_, again, some, known)->finished);
  EXPECT_EQ(again.compiled, 1) << "only plain loops";
}

// Trials of a narrower search serve a wider one, which ends as if it had made all itself.
TEST_F(SearchTest, AWiderSearchUsesWhatANarrowOneTried) {
  options_.width = 1;
  const auto narrow = Beam(sink_, device_, options_);
  ASSERT_TRUE(narrow.ok());
  options_.width = 4;
  MadeUpDevice fresh(sink_), again(sink_);
  const auto whole = Beam(sink_, fresh, options_),
             more = Beam(sink_, again, options_, narrow->trials);
  ASSERT_TRUE(whole.ok() && more.ok());
  EXPECT_EQ(OptsToString(more->best.opts), OptsToString(whole->best.opts));
  EXPECT_LT(again.compiled, fresh.compiled);
}

TEST_F(SearchTest, StopsWhenItIsTold) {
  int asked = 0;
  options_.stop = [&] { return ++asked > 5; };
  const auto result = Beam(sink_, device_, options_);
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->finished);
  EXPECT_EQ(result->trials.size(), 6u);
}

// At half of its clock the device takes twice as long.
TEST_F(SearchTest, ATimeAtSlowClocks_IsTakenOnceMore) {
  const auto honest = device_.seconds;
  int timed = 0;
  std::vector<std::string> slow;  // that were timed at slow clocks
  device_.seconds = [&](const std::string& text) {
    // Of each ten times one is slow, and of each thirty another after it.
    const bool throttled = ++timed % 10 == 0 || timed % 30 == 1;
    device_.at = {.clock_mhz = throttled && timed > 1 ? 900 : 1800, .power_mw = 5, .celsius = 6};
    if (device_.at.clock_mhz == 900) slow.push_back(text);
    return honest(text) * 1800 / device_.at.clock_mhz;
  };
  const auto result = Beam(sink_, device_, options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(timed, static_cast<int>(result->trials.size() + slow.size()) -
                       timed / 30);  // no time is taken a third time
  int marked = 0;
  for (const Trial& trial : result->trials) {
    EXPECT_EQ(trial.at.power_mw, 5);
    EXPECT_EQ(trial.at.celsius, 6);
    marked += search::IsThrottled(trial.at, 1800);
    if (!search::IsThrottled(trial.at, 1800)) {
      EXPECT_EQ(trial.time_ns, std::llround(honest(OptsToString(trial.opts)) * 1e9))
          << OptsToString(trial.opts);
    }
  }
  EXPECT_EQ(marked, timed / 30);
  EXPECT_GT(marked, 0);
  EXPECT_FALSE(search::IsThrottled({.clock_mhz = 1620}, 1800));
  EXPECT_FALSE(search::IsThrottled({}, 1800)) << "not known";
}

// The first time was taken at slow clocks: it is not kept as the time of what then did not run.
TEST_F(SearchTest, WhatFailsTheSecondTime_DoesNotWork) {
  const auto honest = device_.seconds;
  std::vector<std::string> timed;
  device_.seconds = [&](const std::string& text) {
    device_.at = {.clock_mhz = timed.empty() ? 1800 : 900};
    timed.push_back(text);
    return honest(text);
  };
  device_.fails = [&](const std::string& text) {
    return std::find(timed.begin(), timed.end(), text) != timed.end();
  };
  const auto result = Beam(sink_, device_, options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(OptsToString(result->best.opts), timed[0]);
  EXPECT_GT(result->trials.size(), 1u);
  for (const Trial& trial : result->trials)
    EXPECT_EQ(trial.works(), OptsToString(trial.opts) == timed[0]) << OptsToString(trial.opts);
}

TEST_F(SearchTest, WrongResultsNeverWin) {
  const auto bad = [](const std::string& text) { return Has(text, "GROUP"); };
  device_.wrong = bad;
  const auto honest = device_.seconds;
  device_.seconds = [&](const std::string& text) { return bad(text) ? 0.001 : honest(text); };
  device_.refuses = [](const std::string& text) { return Has(text, "SWAP"); };
  const auto result = Beam(sink_, device_, options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(bad(OptsToString(result->best.opts)));
  int wrong = 0, refused = 0;
  for (const Trial& trial : result->trials) {
    const std::string text = OptsToString(trial.opts);
    if (bad(text) || Has(text, "SWAP")) {
      EXPECT_FALSE(trial.verified) << text;
      EXPECT_FALSE(trial.works()) << text;
    }
    wrong += bad(text);
    refused += Has(text, "SWAP");
  }
  EXPECT_GT(wrong, 0);
  EXPECT_GT(refused, 0);
}

// What is slow and was given up on is compared where the target is a GPU, so that a wrong one is
// struck; and a wider search does not take its time for a whole one.
TEST_F(SearchTest, OnAGpu_SlowOnesAreComparedToo) {
  options_.width = 1;
  options_.target = CudaTarget("sm_90", 1);
  options_.trials_max = 30;
  device_.compiles_for_the_host = true;
  const auto right = Beam(sink_, device_, options_);
  ASSERT_TRUE(right.ok()) << right.status();
  const std::string start = OptsToString(right->trials[0].opts);
  const auto bad = [&](const std::string& text) {
    return !text.empty() && text != start && text.size() % 2 == 0;
  };
  device_.wrong = bad;
  const auto honest = device_.seconds;
  const auto slow = [&](const std::string& text) { return bad(text) ? 100 : honest(text); };
  device_.seconds = slow;
  const auto narrow = Beam(sink_, device_, options_);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  int wrong = 0, abandoned = 0;
  for (const Trial& trial : narrow->trials) {
    const std::string text = OptsToString(trial.opts);
    EXPECT_EQ(trial.verified, trial.works()) << text;
    EXPECT_EQ(trial.works(), !bad(text)) << text;
    wrong += bad(text);
    abandoned += trial.works() && !trial.exact;
  }
  EXPECT_GT(wrong, 0);
  EXPECT_GT(abandoned, 0);
  options_.width = 4;
  const auto wide = Beam(sink_, device_, options_, narrow->trials);
  ASSERT_TRUE(wide.ok()) << wide.status();
  std::map<std::string, int> whole;  // times of what had been given up on
  for (const Trial& trial : narrow->trials)
    if (trial.works() && !trial.exact) whole[OptsToString(trial.opts)] = 0;
  for (size_t i = narrow->trials.size(); i < wide->trials.size(); ++i)
    if (const auto at = whole.find(OptsToString(wide->trials[i].opts));
        at != whole.end() && wide->trials[i].exact)
      ++at->second;
  const bool again = std::any_of(whole.begin(), whole.end(),
                                 [](const auto& one) { return one.second > 0; });
  EXPECT_TRUE(again) << "none of " << whole.size() << " is timed again";
}

TEST_F(SearchTest, AWrongStartIsAnError) {
  device_.wrong = [](const std::string& text) { return Has(text, "VECTOR"); };
  EXPECT_EQ(Beam(sink_, device_, options_).status().code(), absl::StatusCode::kDataLoss);
  device_.wrong = [](const std::string&) { return false; };
  device_.refuses = [](const std::string&) { return true; };
  EXPECT_EQ(Beam(sink_, device_, options_).status().code(), absl::StatusCode::kDeadlineExceeded);
  const UOp* const none = Range(g_, 0, 0);
  const UOp* const empty = Sink(g_, {StoreAt(g_, 0, 0, none, LoadAt(g_, 1, DType::kF32, 0, none))});
  EXPECT_EQ(Beam(empty, device_, options_).status().code(), absl::StatusCode::kInvalidArgument);
}

// table[row % 3, column] += x[row, column], row after row: Opts of the rows are refused by name,
// those of the columns are searched.
TEST_F(SearchTest, AScatterIsSearchedOverItsColumns) {
  const UOp* const column = Range(g_, 0, 24);
  const UOp* const row = Range(g_, 1, 12, RangeKind::kSequence);
  const UOp* const at = RowMajor(g_, {Alu(g_, Op::kMod, row, ConstIndex(g_, 3)), column}, {3, 24});
  const UOp* const x = LoadAt(g_, 1, DType::kF32, 12 * 24, RowMajor(g_, {row, column}, {12, 24}));
  const UOp* const sink =
      Sink(g_, {StoreAt(g_, 0, 72, at, Add(g_, LoadAt(g_, 0, DType::kF32, 72, at), x))});
  MadeUpDevice device(sink);
  const auto result = Beam(sink, device, options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->finished);
  EXPECT_GT(result->trials.size(), 3u);
  for (const Trial& trial : result->trials)
    for (const Opt& opt : trial.opts) {
      const bool of_loads = opt.kind == codegen::OptKind::kLocal;
      EXPECT_TRUE(of_loads || opt.axis == 0) << OptsToString(trial.opts);
    }
  const auto refused =
      codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), *codegen::ParseOpts("UPCAST:1:2"), kTarget);
  EXPECT_EQ(refused.status().message(), "Opt UPCAST:1:2: a sequence is one step after the other");
}

TEST_F(SearchTest, NeighboursAreLegalAndDiffer) {
  const auto start =
      *codegen::ParseOpts("VECTOR:1:8 UPCAST:0:4 UPCAST:1:2 BLOCK:0:8 THREAD:0:1 LOCAL:1:1");
  const auto all = search::Neighbours(sink_, start, kTarget);
  std::vector<std::string> texts;
  for (const auto& [opts, cost] : all) {
    EXPECT_GT(cost, 0);
    texts.push_back(OptsToString(opts));
    EXPECT_TRUE(codegen::ApplyOpts(*codegen::AnalyzeKernel(sink_), opts, kTarget).ok())
        << texts.back();
  }
  // A larger tile takes the block along; kinds stay sorted.
  for (const char* wanted :
       {"VECTOR:1:8 UPCAST:0:3 UPCAST:1:2 BLOCK:0:9 THREAD:0:1 LOCAL:1:1",
        "VECTOR:1:8 UPCAST:0:4 UPCAST:1:2 UNROLL:2:4 BLOCK:0:8 THREAD:0:1 LOCAL:1:1",
        "VECTOR:1:8 UPCAST:0:4 UPCAST:1:2 BLOCK:0:8 THREAD:0:1"})
    EXPECT_EQ(std::count(texts.begin(), texts.end(), wanted), 1) << wanted;
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
  EXPECT_TRUE(search::Neighbours(sink_, *codegen::ParseOpts("VECTOR:9:8"), kTarget).empty());
}

// Small amounts and every kind: what a move makes of them is legal, or no move.
TEST(SearchNeighbours, OfRandomOpts) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Graph g;
    const UOp* const sink = RandomKernel(g, seed);
    std::mt19937 random(seed);
    const auto start = RandomOpts(sink, kTarget, random);
    for (const auto& [opts, cost] : search::Neighbours(sink, start, kTarget)) {
      const auto planned = codegen::ApplyOpts(*codegen::AnalyzeKernel(sink), opts, kTarget);
      ASSERT_TRUE(planned.ok()) << seed << ": " << planned.status();
      ASSERT_TRUE(std::isfinite(cost) && cost > 0) << seed << ": " << OptsToString(opts);
    }
  }
}

}  // namespace
}  // namespace outboard::test
