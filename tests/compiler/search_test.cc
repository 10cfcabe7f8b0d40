// BEAM with times that a formula gives: what it asks, what it finds, and that it can be stopped.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "compiler/codegen/apply.h"
#include "compiler/ir/check.h"
#include "compiler/search/beam.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::search {
namespace {

using codegen::Opt;
using codegen::OptKind;
using codegen::OptsToString;

const codegen::Machine kMachine{64, 32};

// A machine that likes 16 lanes and tiles of 24 values, and nothing else.
int64_t TimeOf(const Opts& opts) {
  int64_t lanes = 1, tile = 1;
  for (const Opt& opt : opts) {
    if (opt.kind == OptKind::kVector) lanes *= opt.amount;
    if (opt.kind == OptKind::kUpcast) tile *= opt.amount;
  }
  return 1'000'000 / lanes + 10'000 * std::abs(tile - 24) + 100 * static_cast<int64_t>(opts.size());
}

class SearchTest : public ::testing::Test {
 protected:
  Graph graph_;
  const UOp* const product_ = test::MatMul(graph_, 96, 128, 64);
};

TEST_F(SearchTest, NeighboursAreLegalDistinctAndInOrder) {
  const Opts from = ValueOrDie(codegen::ParseOpts("VECTOR:1:16 UPCAST:0:8 BLOCK:1:64 THREAD:0:1"));
  const auto neighbours = ValueOrDie(Neighbours(product_, from, kMachine));
  EXPECT_GT(neighbours.size(), 20u);
  std::set<std::string> texts;
  for (const Opts& opts : neighbours) {
    EXPECT_TRUE(texts.insert(OptsToString(opts)).second) << OptsToString(opts);
    EXPECT_NE(opts, from);
    EXPECT_TRUE(std::is_sorted(opts.begin(), opts.end(), [](const Opt& a, const Opt& b) {
      return a.kind < b.kind;
    })) << OptsToString(opts);
    auto kernel = ValueOrDie(codegen::AnalyzeKernel(product_));
    EXPECT_TRUE(codegen::ApplyOpts(std::move(kernel), opts, kMachine).ok()) << OptsToString(opts);
  }
  EXPECT_EQ(ValueOrDie(Neighbours(product_, from, kMachine)), neighbours);
  // A block follows its tile: 64 is no whole number of tiles of 3 x 16.
  const Opts wider = ValueOrDie(codegen::ParseOpts("VECTOR:1:16 UPCAST:1:2 BLOCK:1:64"));
  const auto grown = ValueOrDie(Neighbours(product_, wider, kMachine));
  const Opts fitted = ValueOrDie(codegen::ParseOpts("VECTOR:1:16 UPCAST:1:3 BLOCK:1:48"));
  EXPECT_NE(std::find(grown.begin(), grown.end(), fitted), grown.end());
}

TEST_F(SearchTest, FindsWhatTheTimesFavour) {
  int asked = 0;
  std::set<std::string> seen;
  const auto result =
      ValueOrDie(Beam(product_, kMachine, {.width = 4}, [&](std::span<const Opts> lists) {
        std::vector<int64_t> times;
        for (const Opts& opts : lists) {
          ++asked;
          EXPECT_TRUE(seen.insert(OptsToString(opts)).second) << "asked twice";
          times.push_back(TimeOf(opts));
        }
        return times;
      }));
  EXPECT_EQ(result.trials, asked);
  EXPECT_EQ(result.time_ns, TimeOf(result.opts));
  EXPECT_LE(result.time_ns, result.baseline_ns);
  int64_t tile = 1;
  for (const Opt& opt : result.opts)
    if (opt.kind == OptKind::kUpcast) tile *= opt.amount;
  EXPECT_EQ(tile, 24) << OptsToString(result.opts);
}

TEST_F(SearchTest, WhatMayNotBeUsedNeverWins) {
  bool baseline = true;
  const auto result =
      ValueOrDie(Beam(product_, kMachine, {.width = 2}, [&](std::span<const Opts> lists) {
        std::vector<int64_t> times(lists.size(), 0);
        if (std::exchange(baseline, false)) times[0] = 1'000'000;
        return times;
      }));
  EXPECT_EQ(result.time_ns, result.baseline_ns);
  EXPECT_GT(result.trials, 1);
  const auto none = Beam(product_, kMachine, {}, [](std::span<const Opts> lists) {
    return std::vector<int64_t>(lists.size(), 0);
  });
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SearchTest, AStoppedSearchGoesOnWhereItWas) {
  const auto all = ValueOrDie(Beam(product_, kMachine, {}, [](std::span<const Opts> lists) {
    std::vector<int64_t> times;
    for (const Opts& opts : lists) times.push_back(TimeOf(opts));
    return times;
  }));
  std::map<std::string, int64_t> known;
  int fresh = 0, stops = 0;
  for (;;) {
    int left = 7;  // trials before it is stopped again
    const auto result =
        Beam(product_, kMachine, {},
             [&](std::span<const Opts> lists) -> absl::StatusOr<std::vector<int64_t>> {
               std::vector<int64_t> times;
               for (const Opts& opts : lists) {
                 auto [place, is_new] = known.try_emplace(OptsToString(opts));
                 if (is_new) {
                   if (--left < 0) {
                     known.erase(place);
                     return absl::CancelledError("enough for now");
                   }
                   place->second = TimeOf(opts);
                   ++fresh;
                 }
                 times.push_back(place->second);
               }
               return times;
             });
    if (!result.ok()) {
      ASSERT_EQ(result.status().code(), absl::StatusCode::kCancelled);
      ASSERT_LT(++stops, 1000);
      continue;
    }
    EXPECT_EQ(result->opts, all.opts);
    EXPECT_EQ(result->trials, all.trials);
    break;
  }
  EXPECT_EQ(fresh, all.trials);
  EXPECT_GT(stops, 1);
}

TEST_F(SearchTest, TriesNoMoreThanItMay) {
  int asked = 0;
  const auto result = ValueOrDie(
      Beam(product_, kMachine, {.width = 8, .trials_max = 30}, [&](std::span<const Opts> lists) {
        asked += static_cast<int>(lists.size());
        std::vector<int64_t> times;
        for (size_t i = 0; i < lists.size(); ++i) times.push_back(1'000'000 - asked * 20'000);
        return times;
      }));
  EXPECT_EQ(asked, 30);
  EXPECT_EQ(result.trials, 30);
}

}  // namespace
}  // namespace outboard::search
