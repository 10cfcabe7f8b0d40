// The kernels of a group: the same on all ranks, whatever one of them cannot make.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/search/neighbours.h"
#include "tests/support/device.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/engine_group.h"
#include "worker/engine/transfers.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {
namespace {

// Kernels of a group whose rank 0 has a store, in which plain loops are said to be best.
class GroupKernels : public ::testing::Test {
 protected:
  // A product and its sum over ranks, of integers, whose bits do not depend on Opts.
  static const UOp* Step(Graph& g) {
    const UOp* const x = Param(g, 0, DType::kI32, Shape{8, 8});
    const UOp* const left = Expand(g, Reshape(g, x, {8, 8, 1}), {8, 8, 8});
    const UOp* const right = Expand(g, Reshape(g, x, {1, 8, 8}), {8, 8, 8});
    return Sink(g, {Make(g, Op::kAllReduce, Reduce(g, Op::kAdd, Mul(g, left, right), {1}),
                         {kAdd, 2, 1})});
  }
  // Runs the step once on all ranks, with the interpreter's result.
  void Run(Group& group) {
    Graph g;
    group.ExpectAsInterpreted(Step(g), ParamsFor(group, DType::kI32, {8, 8}, 1, 1));
  }
  // By rank, the versions that came into use.
  static std::vector<std::vector<KernelVersion>> VersionsOf(Group& group) {
    std::vector<std::vector<KernelVersion>> versions;
    for (size_t rank = 0; rank < group.ranks(); ++rank)
      versions.push_back(group.engine(rank).TakeVersions());
    return versions;
  }
  // After a Run of `group`: its costliest kernel.
  void MakePlainBest(Group& group) {
    group.engine(0).TellCosts([] { return false; });
    const std::string hardware = test::DeviceTarget().Fingerprint();
    const auto demand =
        ValueOrDie(store_->Costliest(search::kSpaceVersion, hardware, kIdleSearchWidth));
    ASSERT_TRUE(demand.has_value());
    const auto other = ValueOrDie(codegen::ParseOpts("UNROLL:0:2"));  // said to be the heuristic's
    ASSERT_TRUE(store_->Add(demand->key, "x", {other, 1000, true, true}).ok());
    ASSERT_TRUE(store_->Add(demand->key, "x", {{}, 1, true, true}).ok());
  }
  static size_t PlainOnes(const std::vector<KernelVersion>& versions) {
    return static_cast<size_t>(
        std::ranges::count(versions, std::optional<std::string>(""), &KernelVersion::opts));
  }

  test::TempFolder folder_;
  std::unique_ptr<TuningFile> store_ = ValueOrDie(TuningFile::Open(folder_ / "kernels.db"));
};

TEST_F(GroupKernels, AreThoseThatRank0Finds) {
  Group first({2}, false, store_.get());
  Run(first);
  for (const auto& versions : VersionsOf(first)) EXPECT_EQ(PlainOnes(versions), 0u);
  MakePlainBest(first);
  Group second({2}, false, store_.get());
  Run(second);
  const auto versions = VersionsOf(second);
  EXPECT_EQ(PlainOnes(versions[0]), 1u);
  EXPECT_EQ(versions[0], versions[1]);
}

// BEAM, on rank 0 for all; also of a kernel that reads at its rank.
TEST_F(GroupKernels, AreSearchedForOnRank0) {
  Group group({2}, false, store_.get(), /*beam=*/1);
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{8, 8});
  const UOp* const begin = Mul(g, Rank(g, 2), ConstIndex(g, 4));
  const UOp* const mine =
      Shrink(g, x, Shape{Dim(begin), Dim(Add(g, begin, ConstIndex(g, 4))), 0, 8});
  group.ExpectAsInterpreted(Sink(g, {Make(g, Op::kUnshard, Reduce(g, Op::kAdd, mine, {1}),
                                          {0, 2, 1})}),
                            ParamsFor(group, DType::kI32, {8, 8}, 1, 1));
  const auto versions = VersionsOf(group);
  ASSERT_FALSE(versions[0].empty());
  for (const KernelVersion& version : versions[0]) EXPECT_TRUE(version.opts.has_value());
  EXPECT_EQ(versions[0], versions[1]);
  EXPECT_GT(group.compiler(0).compiled, group.compiler(1).compiled);
}

TEST_F(GroupKernels, ThatOneRankCannotMake_NoneUses) {
  Group first({2}, false, store_.get());
  Run(first);
  MakePlainBest(first);
  Group second({2}, false, store_.get());
  second.compiler(1).refuse_opts = true;
  Run(second);
  const auto versions = VersionsOf(second);
  EXPECT_FALSE(versions[0].empty());
  EXPECT_EQ(PlainOnes(versions[0]), 0u);
  EXPECT_EQ(versions[0], versions[1]);
}

TEST_F(GroupKernels, AreReplacedOnAllRanksAtOneRun) {
  for (const bool refuses : {false, true}) {
    Group group({2}, false, store_.get());
    group.compiler(1).refuse_opts = refuses;
    Run(group);
    if (!refuses) MakePlainBest(group);
    VersionsOf(group);
    std::vector<int> at;  // Runs after the first
    for (int run = 1; run <= 130; ++run) {
      Run(group);
      const auto versions = VersionsOf(group);
      EXPECT_EQ(versions[0], versions[1]);
      if (!versions[0].empty()) at.push_back(run);
    }
    EXPECT_EQ(at, refuses ? std::vector<int>{} : std::vector<int>{64});
  }
}

// A driver may take no Opts at all: not those of rank 0, and not what the compiler chooses.
TEST_F(GroupKernels, ThatOneDriverTakesAsPlainLoopsAlone_AllHaveAsPlainLoops) {
  for (const size_t rank : {0, 1}) {
    Group group({2});
    group.compiler(rank).driver_takes_plain_alone = true;
    Run(group);
    const auto versions = VersionsOf(group);
    EXPECT_GT(PlainOnes(versions[0]), 0u);
    EXPECT_EQ(versions[0], versions[1]);
    for (size_t each = 0; each < 2; ++each) EXPECT_EQ(group.engine(each).stats().plans_made, 1u);
  }
}

// On CUDA equal kernels are copies in one launch. If one rank's compiler takes fewer copies, all
// ranks launch them in parts. The parameter: the most copies that it takes.
class GroupCopies : public GroupKernels, public testing::WithParamInterface<int> {};

TEST_P(GroupCopies, ThatOneRankRefuses_AreLaunchedInPartsOnAll) {
  Group group({2});
  group.compiler(1).copies_max = GetParam();
  Graph g;
  std::vector<const UOp*> results;  // without transfers, beside which nothing is in copies
  for (int64_t slot = 0; slot < 4; ++slot) {
    const UOp* const x = Param(g, slot, DType::kI32, Shape{8, 8});
    results.push_back(Reduce(g, Op::kAdd, Mul(g, x, x), {1}));
  }
  const UOp* const sink = Sink(g, results);
  for (int run = 0; run < 2; ++run)
    group.ExpectAsInterpreted(sink, ParamsFor(group, DType::kI32, {8, 8}, 4, 1));
  const bool has_copies = test::DeviceTarget().kind == TargetKind::kCuda;
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(group.engine(rank).stats().kernels_launched,
              uint64_t(2 * 4 / (has_copies ? GetParam() : 1)));
}

INSTANTIATE_TEST_SUITE_P(Copies, GroupCopies, testing::Values(1, 2, 4));

// The place of a plan that one rank cannot make is taken by none.
TEST_F(GroupKernels, APlanThatOneRankCannotMake_EvictsNothing) {
  Group group({2}, false, nullptr, 0, /*plans_max=*/2);
  const auto run = [&](int64_t numbers) {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kI32, Shape{numbers});
    const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1})});
    GroupTensors results;
    return group.Run(sink, ParamsFor(group, DType::kI32, {numbers}, 1, 1), results);
  };
  const auto expect_all = [&](int64_t numbers, absl::StatusCode code) {
    for (const absl::Status& status : run(numbers)) EXPECT_EQ(status.code(), code) << status;
  };
  expect_all(10, absl::StatusCode::kOk);
  expect_all(20, absl::StatusCode::kOk);
  group.compiler(1).refuse = true;
  expect_all(30, absl::StatusCode::kResourceExhausted);
  expect_all(10, absl::StatusCode::kOk);
  expect_all(20, absl::StatusCode::kOk);
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(group.engine(rank).stats().plans_made, 2u);
  group.compiler(1).refuse = false;
  expect_all(30, absl::StatusCode::kOk);
  expect_all(20, absl::StatusCode::kOk);
  expect_all(10, absl::StatusCode::kOk);  // made again, by both
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(group.engine(rank).stats().plans_made, 4u);
}

// The driver of one takes plain loops alone, and the compiler of the other makes none.
TEST_F(GroupKernels, ThatNoFormFitsAllRanks_AreGivenUpOnAll) {
  Group group({2});
  group.compiler(0).driver_takes_plain_alone = true;
  group.compiler(1).refuse_opts = true;
  Graph g;
  GroupTensors results;
  const GroupTensors params = ParamsFor(group, DType::kI32, {8, 8}, 1, 1);
  for (int i = 0; i < 2; ++i)  // also from what is known by then
    for (const absl::Status& status : group.Run(Step(g), params, results)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "rank 1 made other kernels")) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), i == 0 ? "after 2 attempts" : "after 1 "))
          << status;
    }
  group.compiler(1).refuse_opts = false;
  Run(group);  // the group goes on
}

// A compiler's status is its own, whatever its code: no word of ranks that have made different
// kernels. All get it, and are in step afterwards.
TEST_F(GroupKernels, ThatACompilerAborts_FailTheRunOnAllRanks) {
  for (const bool both : {false, true}) {
    Group group({2});
    group.compiler(1).refuse = true;
    group.compiler(1).refusal = absl::AbortedError("the compiler was ended");
    group.compiler(0).refuse = both;
    Graph g;
    GroupTensors results;
    const std::vector<absl::Status> statuses =
        group.Run(Step(g), ParamsFor(group, DType::kI32, {8, 8}, 1, 1), results);
    ASSERT_EQ(statuses[1].code(), absl::StatusCode::kAborted) << statuses[1];
    EXPECT_TRUE(absl::StrContains(statuses[1].message(), "was ended")) << statuses[1];
    EXPECT_EQ(statuses[0].code(), both ? absl::StatusCode::kResourceExhausted
                                       : absl::StatusCode::kAborted)
        << statuses[0];
    group.compiler(0).refuse = group.compiler(1).refuse = false;
    Run(group);
  }
}

// A replay switches kernels that are in use, on all ranks or on none.
TEST_F(GroupKernels, ThatALogPinsWhileTheyAreInUse_ChangeTogether) {
  for (const bool refuses : {false, true}) {
    Group group({2});
    Run(group);
    const auto before = VersionsOf(group);
    group.compiler(1).refuse_opts = refuses;
    for (size_t rank = 0; rank < 2; ++rank)
      for (const KernelVersion& version : before[0]) group.engine(rank).Pin({version.kernel, ""});
    Run(group);
    const auto after = VersionsOf(group);
    EXPECT_EQ(PlainOnes(after[0]), refuses ? 0 : before[0].size());
    EXPECT_EQ(after[0], after[1]);
    Run(group);
  }
}

TEST_F(GroupKernels, ThatLogsPinDifferently_FailTheRunOnAllRanks) {
  Group group({2});
  Run(group);
  const KernelVersion version = VersionsOf(group)[0][0];
  group.engine(0).Pin({version.kernel, ""});
  group.engine(1).Pin({version.kernel, std::nullopt});  // in use already
  Graph g;
  GroupTensors results;
  for (const absl::Status& status :
       group.Run(Step(g), ParamsFor(group, DType::kI32, {8, 8}, 1, 1), results))
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

// What is pinned before the first Run of an epoch is for its plans: what the last one left in use
// on some ranks alone changes nothing.
TEST_F(GroupKernels, OfAnEarlierEpoch_AreNotWhatALogPins) {
  Group group({2});
  Run(group);
  const auto before = VersionsOf(group);
  group.Renew(2);
  for (size_t rank = 0; rank < 2; ++rank)
    group.engine(rank).Pin({before[0][0].kernel, ""});
  group.engine(1).JoinGroup(std::move(collective::MakeLoopback({1}, 3)[0]));
  Graph g;
  const UOp* const alone = Sink(g, {Param(g, 0, DType::kI32, Shape{10})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
  ASSERT_TRUE(group.engine(1).Execute(EncodeGraph(alone)->id, alone, group.Upload(1, params[1]), {})
                  .ok());
  VersionsOf(group);
  group.Renew(4);
  for (size_t rank = 0; rank < 2; ++rank)
    group.engine(rank).Pin({before[0][0].kernel, ""});
  Run(group);
  const auto after = VersionsOf(group);
  EXPECT_GT(PlainOnes(after[0]), 0u);
  EXPECT_EQ(after[0], after[1]);
}

TEST_F(GroupKernels, OfAnEpochThatEndedOnOneRankFirst_AreMadeAnew) {
  Group group({2});
  Run(group);
  // Rank 1 has planned one more graph than rank 0 when the epoch ends.
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
  group.engine(1).JoinGroup(std::move(collective::MakeLoopback({1}, 1)[0]));
  const UOp* const alone = Sink(g, {Add(g, x, x)});
  ASSERT_TRUE(group.engine(1).Execute(EncodeGraph(alone)->id, alone, group.Upload(1, params[1]), {})
                  .ok());
  group.Renew(2);
  group.ExpectAsInterpreted(alone, params);
  group.ExpectAsInterpreted(sink, params);
  Run(group);
}

// What ranks tell each other of kernels, of different lengths.
TEST(GroupAgreement, SimplerKernels_AreToldToAllInTheOrderOfRanks) {
  auto ranks = collective::MakeLoopback({3});
  std::vector<std::vector<SimplerKernel>> told(3);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<SimplerKernel> mine;
      for (size_t i = 0; i < rank; ++i) {
        GraphId hash;
        hash.bytes[0] = static_cast<uint8_t>(10 * rank + i);
        mine.push_back({KernelId(hash), i == 0 ? Simpler::kPlainLoops : Simpler::kInHalves});
      }
      const auto all = ShareSimpler(*ranks[rank], mine);
      ASSERT_TRUE(all.ok()) << all.status();
      told[rank] = *all;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<SimplerKernel>& all : told) {
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].kernel.hash().bytes[0], 10);
    EXPECT_EQ(all[1].kernel.hash().bytes[0], 20);
    EXPECT_EQ(all[2].kernel.hash().bytes[0], 21);
    EXPECT_EQ(all[1].how, Simpler::kPlainLoops);
    EXPECT_EQ(all[2].how, Simpler::kInHalves);
  }
}

}  // namespace
}  // namespace outboard::worker
