// Which files are an account's, what accounts share, and who gets the turn of the search.
#include "worker/kernels/account_kernels.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/optimize/opt.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "tests/support/temp_folder.h"
#include "worker/tuning/tuning_key.h"

namespace outboard::worker {
namespace {

constexpr bool kShares = true, kAlone = false;

TuningKey Key(char kernel) {
  return {std::string(32, kernel), search::kSpaceVersion, HostTarget().Fingerprint()};
}

const UOp* Scalar(Graph& g, double value) {
  return Expand(g, Reshape(g, ConstFloat(g, DType::kF32, value), {Dim(1), Dim(1)}),
                {Dim(48), Dim(64)});
}

// The key of x * x, or of x * 0.001, over 48 by 64 elements.
TuningKey KeyOfProduct(bool with_constant) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(48), Dim(64)});
  const UOp* const product = Mul(g, x, with_constant ? Scalar(g, 0.001) : x);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, Sink(g, {product}), HostTarget()));
  const EncodedGraph form = ValueOrDie(CanonicalKernel(schedule.kernels[0].ast));
  return {form.id.ToBytes(), search::kSpaceVersion, HostTarget().Fingerprint(), form.bytes};
}

search::Trial Made(std::string_view opts, int64_t time_ns) {
  return {ValueOrDie(codegen::ParseOpts(opts)), time_ns, true, true};
}

class AccountKernelsTest : public ::testing::Test {
 protected:
  AccountKernelsOptions Options(const std::string& secret = "fleet") {
    return {.store = folder_ / "kernels.db",
            .objects = folder_ / "objects",
            .fleet_secret = secret,
            .learns = true};
  }
  std::unique_ptr<TuningStore> Open(uint64_t account, bool shares) {
    return ValueOrDie(OpenTuning(kernels_.FilesOf(account, shares)));
  }
  // `cost_us` of device time in kernels of this account.
  void Cost(uint64_t account, int64_t cost_us) {
    const Demand demand{Key('d'), "k", "encoding", cost_us};
    ASSERT_TRUE(Open(account, kShares)->AddCosts({&demand, 1}).ok());
  }
  std::optional<std::string> NextSearch(bool new_round) {
    const auto turn = kernels_.NextSearch(new_round);
    if (!turn.has_value()) return std::nullopt;
    return turn->files.tuning;
  }

  test::TempFolder folder_;
  AccountKernels kernels_{Options()};
};

TEST_F(AccountKernelsTest, NoTwoAccountsHaveAFileInCommon) {
  AccountKernels elsewhere(Options("another fleet"));
  std::set<std::string> owners, objects, tuning;
  for (AccountKernels* kernels : {&kernels_, &elsewhere})
    for (const uint64_t account : {1, 2, 12}) {
      const AccountFiles files = kernels->FilesOf(account, kAlone);
      owners.insert(files.owner);
      objects.insert(files.objects);
      tuning.insert(files.tuning);
      EXPECT_EQ(files.shared_tuning, "");
      EXPECT_EQ(files.objects.find("fleet"), std::string::npos) << "no secret is in a path";
    }
  EXPECT_EQ(owners.size(), 6u);
  EXPECT_EQ(objects.size(), 6u);
  EXPECT_EQ(tuning.size(), 6u);
}

TEST_F(AccountKernelsTest, ForNobodyNothingIsKept) {
  EXPECT_EQ(kernels_.FilesOf(0, kShares), (AccountFiles{.learns = true}));
  EXPECT_EQ(ValueOrDie(OpenTuning(kernels_.FilesOf(0, kShares))), nullptr);
}

TEST_F(AccountKernelsTest, OneUserHasTheWholeCache) {
  AccountKernelsOptions options = Options();
  options.one_user = true;
  AccountKernels kernels(options);
  for (const uint64_t account : {0, 1, 2})
    EXPECT_EQ(kernels.FilesOf(account, kShares),
              (AccountFiles{"", folder_ / "objects", folder_ / "kernels.db", "", true}));
}

TEST_F(AccountKernelsTest, WhatLearnsNothingMakesNoFile) {
  AccountKernelsOptions options = Options();
  options.learns = false;
  AccountKernels kernels(options);
  EXPECT_FALSE(kernels.tunes());
  EXPECT_EQ(ValueOrDie(OpenTuning(kernels.FilesOf(1, kShares))), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  Open(1, kShares);
  EXPECT_TRUE(kernels.tunes()) << "but reads what is there";
  EXPECT_NE(ValueOrDie(OpenTuning(kernels.FilesOf(1, kShares))), nullptr);
  EXPECT_EQ(std::filesystem::status(folder_ / "accounts/shared").permissions(),
            std::filesystem::perms::owner_all);
}

TEST_F(AccountKernelsTest, KernelsWithoutConstantsAreShared) {
  const TuningKey plain = KeyOfProduct(false), with_constant = KeyOfProduct(true);
  for (const TuningKey& key : {plain, with_constant}) {
    ASSERT_TRUE(Open(1, kShares)->Add(key, "a secret shape", Made("VECTOR:0:16", 900)).ok());
    ASSERT_TRUE(Open(1, kShares)->Finish(key, 4).ok());
  }
  const auto other = Open(2, kShares);
  const auto found = ValueOrDie(other->Find(plain));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->width, 4);
  EXPECT_EQ(found->name, "") << "a name shows how its author wrote it";
  EXPECT_FALSE(ValueOrDie(other->Find(with_constant)).has_value());
  // Its own measurements, until others have searched more widely.
  ASSERT_TRUE(other->Add(plain, "mine", Made("VECTOR:0:8", 800)).ok());
  EXPECT_EQ(ValueOrDie(other->Find(plain))->width, 4);
  ASSERT_TRUE(other->Finish(plain, 5).ok());
  EXPECT_EQ(ValueOrDie(other->Find(plain))->name, "mine");
}

// What a process says of a kernel does not count.
TEST_F(AccountKernelsTest, WhatIsSharedIsDecidedByTheKernelItself) {
  const TuningKey plain = KeyOfProduct(false), with_constant = KeyOfProduct(true);
  TuningKey forged = with_constant;  // the id of one, the form of the other
  forged.canonical = plain.canonical;
  TuningKey unknown = plain;
  unknown.canonical.clear();
  TuningKey nonsense = Key('n');
  nonsense.canonical = "no kernel";
  TuningKey long_form{IdOfEncoding(std::string(kDemandBytesMax + 1, 'x')).ToBytes(),
                      search::kSpaceVersion, HostTarget().Fingerprint(),
                      std::string(kDemandBytesMax + 1, 'x')};
  for (const TuningKey& key : {forged, unknown, nonsense, long_form}) {
    ASSERT_TRUE(Open(1, kShares)->Add(key, "k", Made("VECTOR:0:16", 900)).ok());
    EXPECT_TRUE(ValueOrDie(Open(1, kShares)->Find(key)).has_value()) << "its own";
    EXPECT_FALSE(ValueOrDie(Open(2, kShares)->Find(key)).has_value());
  }
}

TEST_F(AccountKernelsTest, AnAccountThatOptsOutNeitherGivesNorTakes) {
  const TuningKey plain = KeyOfProduct(false);
  ASSERT_TRUE(Open(1, kAlone)->Add(plain, "k", Made("VECTOR:0:16", 900)).ok());
  EXPECT_FALSE(ValueOrDie(Open(2, kShares)->Find(plain)).has_value());
  ASSERT_TRUE(Open(2, kShares)->Add(plain, "k", Made("VECTOR:0:8", 800)).ok());
  EXPECT_EQ(ValueOrDie(Open(1, kAlone)->Find(plain))->trials.size(), 1u);
  EXPECT_FALSE(ValueOrDie(Open(3, kAlone)->Find(plain)).has_value());
}

TEST_F(AccountKernelsTest, TheCostliestAccountSearchesFirstAndEachOnceARound) {
  EXPECT_EQ(NextSearch(true), std::nullopt) << "nobody had a session";
  Cost(1, 100);
  Cost(2, 300);
  Cost(3, 200);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(NextSearch(true), kernels_.FilesOf(2, kShares).tuning);
    EXPECT_EQ(NextSearch(false), kernels_.FilesOf(3, kShares).tuning);
    EXPECT_EQ(NextSearch(false), kernels_.FilesOf(1, kShares).tuning);
    EXPECT_EQ(NextSearch(false), std::nullopt);
  }
  ASSERT_TRUE(Open(2, kShares)->Add(Key('d'), "k", Made("VECTOR:0:8", 800)).ok());
  ASSERT_TRUE(Open(2, kShares)->Finish(Key('d'), 100).ok());
  EXPECT_EQ(NextSearch(true), kernels_.FilesOf(3, kShares).tuning) << "2 has nothing left";
}

TEST_F(AccountKernelsTest, OneSearchOnAMachineAtATime) {
  Cost(1, 100);
  AccountKernels another(Options());
  another.FilesOf(1, kShares);
  auto turn = kernels_.NextSearch(true);
  ASSERT_TRUE(turn.has_value());
  EXPECT_FALSE(another.NextSearch(true).has_value());
  turn.reset();
  EXPECT_TRUE(another.NextSearch(true).has_value());
}

// ---- which kernels have constants ---------------------------------------------------------------

bool AllShareable(const std::function<const UOp*(Graph&, const UOp*, const UOp*)>& program) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(48), Dim(64)});
  const UOp* const y = Param(g, 1, DType::kF32, {Dim(64), Dim(48)});
  const auto schedule =
      ValueOrDie(schedule::MakeSchedule(g, Sink(g, {program(g, x, y)}), HostTarget()));
  bool all = true;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) all &= IsShareable(kernel.ast);
  return all;
}

TEST(IsShareableTest, ShapesAreNoConstants) {
  EXPECT_TRUE(AllShareable([](Graph& g, const UOp* x, const UOp*) { return Mul(g, x, x); }));
  EXPECT_TRUE(
      AllShareable([](Graph& g, const UOp* x, const UOp*) { return Reduce(g, Op::kAdd, x, {1}); }));
  EXPECT_TRUE(AllShareable([](Graph& g, const UOp* x, const UOp* y) {
    return Add(g, x, Permute(g, y, {1, 0}));  // strides
  }));
  EXPECT_TRUE(AllShareable([](Graph& g, const UOp* x, const UOp*) {
    return g.MakeChecked(Op::kMax, DType::kVoid, {x, Scalar(g, 0)});  // a relu
  }));
}

TEST(IsShareableTest, WhatAnAuthorChoseIsAConstant) {
  EXPECT_FALSE(
      AllShareable([](Graph& g, const UOp* x, const UOp*) { return Mul(g, x, Scalar(g, 0.001)); }));
  EXPECT_FALSE(
      AllShareable([](Graph& g, const UOp* x, const UOp*) { return Add(g, x, Scalar(g, 1)); }));
  EXPECT_FALSE(AllShareable([](Graph& g, const UOp* x, const UOp*) {
    // Where a slice begins.
    const UOp* const part = Shrink(g, x, {Dim(5), Dim(45), Dim(7), Dim(60)});
    return Mul(g, part, part);
  }));
}

}  // namespace
}  // namespace outboard::worker
