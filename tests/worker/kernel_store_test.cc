#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "storage/sqlite.h"
#include "tests/compiler/kernel_build.h"
#include "tests/support/temp_folder.h"
#include "worker/tuning/tuning_key.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {
namespace {

using absl::StatusCode;
using search::Trial;

TuningKey Key(char kernel, int version = 1, const std::string& hardware = "here") {
  return {std::string(32, kernel), version, hardware};
}

Trial Made(std::string_view opts, int64_t time_ns, bool exact = true, bool verified = true) {
  return {ValueOrDie(codegen::ParseOpts(opts)), time_ns, exact, verified};
}

class KernelStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "made/kernels.db"; }
  std::unique_ptr<TuningFile> Open() { return ValueOrDie(TuningFile::Open(path())); }

  test::TempFolder folder_;
};

TEST_F(KernelStoreTest, TrialsAreKeptInOrderAndTheFastestWins) {
  const Trial trials[] = {Made("VECTOR:0:16", 900),
                          Made("VECTOR:0:8", 0, true, false),     // runs wrong
                          Made("VECTOR:0:4", 500, false, false),  // given up on
                          Made("VECTOR:0:2", 600, true, false),   // nobody has looked
                          Made("VECTOR:0:16 UPCAST:0:4", 700),
                          Made("VECTOR:0:16 UPCAST:0:8", 700)};
  for (const Trial& trial : trials) ASSERT_TRUE(Open()->Add(Key('a'), "matmul", trial).ok());
  const auto store = Open();
  const auto found = ValueOrDie(store->Find(Key('a')));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "matmul");
  EXPECT_EQ(found->trials, std::vector<Trial>(std::begin(trials), std::end(trials)));
  ASSERT_NE(found->best(), nullptr);
  EXPECT_EQ(*found->best(), trials[4]);
  EXPECT_EQ(found->width, 0);
  ASSERT_TRUE(store->Finish(Key('a'), 4).ok());
  ASSERT_TRUE(store->Finish(Key('a'), 2).ok());
  EXPECT_EQ(ValueOrDie(store->Find(Key('a')))->width, 4);
}

TEST_F(KernelStoreTest, AnEntryIsOfItsKernelItsSearchAndItsHardware) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('a'), "k", Made("VECTOR:0:16", 900)).ok());
  for (const TuningKey& other : {Key('b'), Key('a', 2), Key('a', 1, "there")})
    EXPECT_FALSE(ValueOrDie(store->Find(other)).has_value());
}

TEST_F(KernelStoreTest, ATrialOfTheSameOptsIsReplaced) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('a'), "k", Made("VECTOR:0:16", 900)).ok());
  ASSERT_TRUE(store->Add(Key('a'), "k", Made("VECTOR:0:16", 800)).ok());
  EXPECT_EQ(ValueOrDie(store->Find(Key('a')))->trials,
            (std::vector<Trial>{Made("VECTOR:0:16", 800)}));
}

TEST_F(KernelStoreTest, WhatIsNoTrialIsRefused) {
  const auto store = Open();
  const struct {
    TuningKey key;
    Trial trial;
  } cases[] = {
      {{"short", 1, "here"}, {.time_ns = 1}},
      {Key('a', 1, ""), {.time_ns = 1}},
      {Key('a'), {.opts = std::vector<codegen::Opt>(1000), .time_ns = 1}},  // too long
      {Key('a'), {.time_ns = -1}},
      {Key('a'), {.time_ns = 0, .verified = true}},
  };
  for (const auto& c : cases)
    EXPECT_EQ(store->Add(c.key, "k", c.trial).code(), StatusCode::kInvalidArgument)
        << c.trial.opts.size() << " " << c.trial.time_ns;
  EXPECT_TRUE(ValueOrDie(store->List()).empty());
}

// A file is a cache: when it is nearly full, what nobody has used for the longest goes.
TEST_F(KernelStoreTest, WhatWasNotUsedForLongestMakesRoom) {
  constexpr int64_t kBytesMax = int64_t{1} << 20;
  const std::string name(4000, 'n');
  const auto key = [](int kernel) {
    std::string id(32, 'k');
    std::memcpy(id.data(), &kernel, sizeof kernel);
    return TuningKey{id, 1, "here"};
  };
  const auto open = [&] { return ValueOrDie(TuningFile::Open(path(), kBytesMax)); };
  for (int opening = 0; opening < 10; ++opening) {
    const auto store = open();
    for (int old = 10 * opening; old < 10 * opening + 10; ++old)
      ASSERT_TRUE(store->Add(key(old), name, Made("", 5)).ok());
  }
  EXPECT_TRUE(ValueOrDie(open()->Find(key(0))).has_value()) << "found, and so used";
  const Demand demand{key(1), "k", "encoding", 7};
  ASSERT_TRUE(open()->AddCosts({&demand, 1}).ok());
  {
    const auto store = open();
    for (int fresh = 1000; fresh < 1400; ++fresh)
      ASSERT_TRUE(store->Add(key(fresh), name, Made("", 5)).ok()) << fresh;
  }
  const auto store = open();
  EXPECT_FALSE(ValueOrDie(store->Find(key(2))).has_value());
  EXPECT_TRUE(ValueOrDie(store->Find(key(1399))).has_value());
  EXPECT_LE(std::filesystem::file_size(path()), static_cast<uintmax_t>(kBytesMax));
  EXPECT_GT(ValueOrDie(store->List()).size(), 100u) << "no more than is needed goes";
}

TEST_F(KernelStoreTest, WhatWasFoundOutlivesWhatWasAddedWithIt) {
  constexpr int64_t kBytesMax = int64_t{1} << 20;
  const std::string name(4000, 'n');
  const auto key = [](int kernel) {
    return TuningKey{std::string(32, static_cast<char>(kernel)), 1, "here"};
  };
  const auto open = [&] { return ValueOrDie(TuningFile::Open(path(), kBytesMax)); };
  for (int opening = 0; opening < 10; ++opening) {
    const auto store = open();
    for (int kernel = 10 * opening; kernel < 10 * opening + 10; ++kernel)
      ASSERT_TRUE(store->Add(key(kernel), name, Made("", 5)).ok());
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(ValueOrDie(open()->Find(key(0))).has_value()) << round;
    const auto store = open();
    for (int kernel = 100 + 50 * round; kernel < 150 + 50 * round; ++kernel)
      ASSERT_TRUE(store->Add(key(kernel), name, Made("", 5)).ok()) << kernel;
  }
  EXPECT_TRUE(ValueOrDie(open()->Find(key(0))).has_value());
  EXPECT_FALSE(ValueOrDie(open()->Find(key(1))).has_value());
}

TEST_F(KernelStoreTest, LinesCarryEntriesToAnotherStore) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('b'), "sum", Made("", 5)).ok());
  ASSERT_TRUE(store->Add(Key('b'), "sum", Made("VECTOR:0:16", 7, false, false)).ok());
  search::Trial measured = Made("UPCAST:0:2", 6);
  measured.at = {.clock_mhz = 1980, .power_mw = 402'500, .celsius = 58};
  ASSERT_TRUE(store->Add(Key('b'), "sum", measured).ok());
  const Tuning tuning = *ValueOrDie(store->Find(Key('b')));
  const std::string line = ValueOrDie(TuningToLine(tuning));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Tuning read = ValueOrDie(TuningFromLine(line));
  EXPECT_EQ(read.key.kernel, tuning.key.kernel);
  EXPECT_EQ(read.key.hardware, "here");
  EXPECT_EQ(read.trials, tuning.trials);
  EXPECT_EQ(read.trials.at(2), measured);
  for (const std::string& bad : std::initializer_list<std::string>{
           "", "{", "[]", "{\"kernel\":\"YQ==\"}", "{\"trials\":7}",
           line.substr(0, line.find(",\"trials\"")) + "}",  // none
           std::string(line).replace(line.find("VECTOR"), 6, "FROBBE")})
    EXPECT_EQ(TuningFromLine(bad).status().code(), StatusCode::kInvalidArgument) << bad;
}

TEST_F(KernelStoreTest, EntriesAreListedByNameAndRemovedById) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('b'), "sum", Made("", 5)).ok());
  ASSERT_TRUE(store->Add(Key('a'), "matmul", Made("", 5)).ok());
  ASSERT_TRUE(store->Add(Key('c'), "matmul", Made("", 5)).ok());
  std::string names;
  for (const Tuning& tuning : ValueOrDie(store->List()))
    names += tuning.name + tuning.key.kernel[0] + " ";
  EXPECT_EQ(names, "matmula matmulc sumb ");
  EXPECT_EQ(ValueOrDie(store->Remove("6161")), 1);  // 'a'
  EXPECT_EQ(ValueOrDie(store->Remove("ff")), 0);
  EXPECT_EQ(ValueOrDie(store->Remove("")), 2);
  EXPECT_TRUE(ValueOrDie(store->List()).empty());
}

TEST_F(KernelStoreTest, ADamagedFileIsBegunAnew) {
  ASSERT_TRUE(Open()->Add(Key('a'), "k", Made("", 5)).ok());
  std::ofstream(path(), std::ios::trunc) << "not a database, and long enough to be read as one ...";
  const auto store = Open();
  EXPECT_TRUE(ValueOrDie(store->List()).empty());
  EXPECT_TRUE(store->Add(Key('a'), "k", Made("", 5)).ok());
}

// A file that somebody has written into: what makes no sense is as good as not there.
TEST_F(KernelStoreTest, TrialsThatMakeNoSenseAreLeftOut) {
  const auto store = Open();
  for (const char kernel : {'a', 'b'})
    ASSERT_TRUE(store->Add(Key(kernel), "k", Made("VECTOR:0:16", 5)).ok());
  ASSERT_TRUE(store->Add(Key('b'), "k", Made("", 7)).ok());
  {
    const auto db = ValueOrDie(storage::Database::Open(path()));
    ASSERT_TRUE(db->Execute("UPDATE trial SET opts = 'FROB:0:1' WHERE opts = 'VECTOR:0:16'").ok());
  }
  EXPECT_FALSE(ValueOrDie(store->Find(Key('a'))).has_value());
  const std::vector<Tuning> left = ValueOrDie(store->List());
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].key.kernel, Key('b').kernel);
  EXPECT_EQ(left[0].trials, std::vector<Trial>{Made("", 7)});
}

// y = x * a + b, over 64 elements.
std::string IdOf(double a, double b, int64_t elements = 64) {
  using namespace test;
  Graph g;
  const UOp* const r = Range(g, 0, elements);
  const UOp* const x = LoadAt(g, 1, DType::kF32, elements, r);
  const UOp* const y =
      Add(g, Mul(g, x, ConstFloat(g, DType::kF32, a)), ConstFloat(g, DType::kF32, b));
  return ValueOrDie(CanonicalKernel(Sink(g, {StoreAt(g, 0, elements, r, y)}))).bytes;
}

TEST(CanonicalKernel, FloatConstantsAreAbstracted) {
  EXPECT_EQ(IdOf(0.1, 0.2), IdOf(0.7, 1));
  EXPECT_EQ(IdOf(1.5, 5), IdOf(200, 2));
  EXPECT_EQ(IdOf(0.1, -0.2), IdOf(1, -1));
  EXPECT_EQ(IdOf(0.1, 0.1), IdOf(0.3, 0.3));
  EXPECT_NE(IdOf(0.1, 0.2), IdOf(0.3, 0.3));  // one constant less to keep in a register
  EXPECT_NE(IdOf(0.1, 0.2), IdOf(0.1, 0.2, 128));
  // A factor's sign, and whether it is larger than 1, decide how exponentials are computed.
  EXPECT_NE(IdOf(0.1, 0.2), IdOf(-0.1, 0.2));
  EXPECT_NE(IdOf(0.1, 0.2), IdOf(2, 0.2));
  EXPECT_NE(IdOf(2, 3), IdOf(2, -3));
  // What code is made for by its value stays.
  EXPECT_NE(IdOf(0.1, 0), IdOf(0.1, 0.2));
  EXPECT_NE(IdOf(0.1, -std::numeric_limits<double>::infinity()), IdOf(0.1, 0.2));
}

}  // namespace
}  // namespace outboard::worker
