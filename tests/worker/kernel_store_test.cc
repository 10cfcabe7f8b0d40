#include "worker/kernel_store.h"

#include <gtest/gtest.h>

#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "tests/compiler/kernel_build.h"
#include "tests/support/temp_folder.h"
#include "worker/hardware_class.h"
#include "worker/tuning_key.h"

namespace outboard::worker {
namespace {

using absl::StatusCode;

TuningKey Key(char kernel, int version = 1, const std::string& hardware = "here") {
  return {std::string(32, kernel), version, hardware};
}

class KernelStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "made/kernels.db"; }
  std::unique_ptr<KernelStore> Open() { return ValueOrDie(KernelStore::Open(path())); }

  test::TempFolder folder_;
};

TEST_F(KernelStoreTest, TrialsAreKeptInOrderAndTheFastestWins) {
  const Trial trials[] = {{"VECTOR:0:16", 900, true, true},
                          {"VECTOR:0:8", 0, true, false},     // runs wrong
                          {"VECTOR:0:4", 500, false, false},  // given up on
                          {"VECTOR:0:2", 600, true, false},   // nobody has looked
                          {"VECTOR:0:16 UPCAST:0:4", 700, true, true},
                          {"VECTOR:0:16 UPCAST:0:8", 700, true, true}};
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
  ASSERT_TRUE(store->Add(Key('a'), "k", {"VECTOR:0:16", 900, true, true}).ok());
  for (const TuningKey& other : {Key('b'), Key('a', 2), Key('a', 1, "there")})
    EXPECT_FALSE(ValueOrDie(store->Find(other)).has_value());
}

TEST_F(KernelStoreTest, ATrialOfTheSameOptsIsReplaced) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('a'), "k", {"VECTOR:0:16", 900, true, true}).ok());
  ASSERT_TRUE(store->Add(Key('a'), "k", {"VECTOR:0:16", 800, true, true}).ok());
  EXPECT_EQ(ValueOrDie(store->Find(Key('a')))->trials,
            (std::vector<Trial>{{"VECTOR:0:16", 800, true, true}}));
}

TEST_F(KernelStoreTest, WhatIsNoTrialIsRefused) {
  const auto store = Open();
  const struct {
    TuningKey key;
    Trial trial;
  } cases[] = {
      {{"short", 1, "here"}, {"", 1}},
      {Key('a', 1, ""), {"", 1}},
      {Key('a'), {"VECTOR:0", 1}},
      {Key('a'), {"FROB:0:1", 1}},
      {Key('a'), {"", -1}},
      {Key('a'), {"", 0, true, /*verified=*/true}},
  };
  for (const auto& c : cases)
    EXPECT_EQ(store->Add(c.key, "k", c.trial).code(), StatusCode::kInvalidArgument)
        << c.trial.opts << c.trial.time_ns;
  EXPECT_TRUE(ValueOrDie(store->List()).empty());
}

TEST_F(KernelStoreTest, LinesCarryEntriesToAnotherStore) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('b'), "sum", {"", 5, true, true}).ok());
  ASSERT_TRUE(store->Add(Key('b'), "sum", {"VECTOR:0:16", 7, false, false}).ok());
  const Tuning tuning = *ValueOrDie(store->Find(Key('b')));
  const std::string line = ValueOrDie(TuningToLine(tuning));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Tuning read = ValueOrDie(TuningFromLine(line));
  EXPECT_EQ(read.key.kernel, tuning.key.kernel);
  EXPECT_EQ(read.key.hardware, "here");
  EXPECT_EQ(read.trials, tuning.trials);
  for (const std::string bad : {"", "{", "[]", "{\"kernel\":\"YQ==\"}", "{\"trials\":7}"})
    EXPECT_EQ(TuningFromLine(bad).status().code(), StatusCode::kInvalidArgument) << bad;
}

TEST_F(KernelStoreTest, EntriesAreListedByNameAndRemovedById) {
  const auto store = Open();
  ASSERT_TRUE(store->Add(Key('b'), "sum", {"", 5, true, true}).ok());
  ASSERT_TRUE(store->Add(Key('a'), "matmul", {"", 5, true, true}).ok());
  ASSERT_TRUE(store->Add(Key('c'), "matmul", {"", 5, true, true}).ok());
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
  ASSERT_TRUE(Open()->Add(Key('a'), "k", {"", 5, true, true}).ok());
  std::ofstream(path(), std::ios::trunc) << "not a database, and long enough to be read as one ...";
  const auto store = Open();
  EXPECT_TRUE(ValueOrDie(store->List()).empty());
  EXPECT_TRUE(store->Add(Key('a'), "k", {"", 5, true, true}).ok());
}

// y = x * a + b, over 64 elements.
std::string IdOf(double a, double b, int64_t elements = 64) {
  using namespace test;
  Graph g;
  const UOp* const r = Range(g, 0, elements);
  const UOp* const x = LoadAt(g, 1, DType::kF32, elements, r);
  const UOp* const y =
      Add(g, Mul(g, x, ConstFloat(g, DType::kF32, a)), ConstFloat(g, DType::kF32, b));
  return ValueOrDie(TuningId(Sink(g, {StoreAt(g, 0, elements, r, y)})));
}

TEST(TuningId, FloatConstantsAreAbstracted) {
  EXPECT_EQ(IdOf(0.1, 0.2), IdOf(3, 5));
  EXPECT_EQ(IdOf(0.1, 0.1), IdOf(3, 3));
  EXPECT_NE(IdOf(0.1, 0.2), IdOf(3, 3));  // one constant less to keep in a register
  EXPECT_NE(IdOf(0.1, 0.2), IdOf(0.1, 0.2, 128));
}

TEST(HardwareClass, NamesTheProcessor) {
  EXPECT_EQ(HardwareClass(), HardwareClass());
  EXPECT_NE(HardwareClass().find(" cores"), std::string::npos) << HardwareClass();
}

}  // namespace
}  // namespace outboard::worker
