// A worker's process that is killed at every write of what it keeps on disk, once at each: what is
// there afterwards is whole, and the same program leaves what an undisturbed one does.
//
// Snapshots and receipts are not among them: a worker keeps neither on disk. A snapshot's bytes go
// through a file without a name, which ends with its process, to the gateway; receipts are counted
// in memory and are the gateway's once it has said so.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/failpoint.h"
#include "tests/support/failpoints.h"
#include "tests/support/temp_folder.h"
#include "worker/compile/object_folder.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {
namespace {

constexpr int kObjects = 3;

std::string KeyOf(int i) { return std::string(32, static_cast<char>('a' + i)); }
std::string ObjectOf(int i) { return std::string(100'000, static_cast<char>('k' + i)); }
TuningKey TuningOf(int i) { return {KeyOf(i), 1, "here"}; }

// What a worker does in its life; whoever is killed anywhere does all of it again.
void LiveIn(const std::string& folder) {
  ObjectFolder objects({.folder = folder + "/objects"});
  const auto tuning = ValueOrDie(TuningFile::Open(folder + "/kernels.db"));
  for (int i = 0; i < kObjects; ++i) {
    if (!objects.Load(KeyOf(i)).has_value()) objects.Store(KeyOf(i), ObjectOf(i));
    OB_CHECK_OK(tuning->Add(TuningOf(i), "kernel", {.time_ns = 100 + i, .verified = true}));
    const Demand demand{TuningOf(i), "kernel", "encoding", 10};
    OB_CHECK_OK(tuning->AddCosts({&demand, 1}));
  }
}

// Objects are whole or not there. Returns how many there are.
int ObjectsIn(const std::string& folder) {
  ObjectFolder objects({.folder = folder + "/objects"});
  int found = 0;
  for (int i = 0; i < kObjects; ++i) {
    const auto object = objects.Load(KeyOf(i));
    if (!object.has_value()) continue;
    EXPECT_TRUE(*object == ObjectOf(i)) << "object " << i << " is torn";
    ++found;
  }
  return found;
}
// A kernel that is there has its trial; costs are a hint, and may be counted again.
size_t TunedIn(const std::string& folder) {
  const auto tuning = ValueOrDie(TuningFile::Open(folder + "/kernels.db"));
  const std::vector<Tuning> all = ValueOrDie(tuning->List());
  for (const Tuning& of : all) EXPECT_EQ(of.trials.size(), 1u);
  return all.size();
}

int RunChild(const std::string& folder, const std::string& failpoint) {
  return test::RunChild("WorkerFailpointChild.DISABLED_Lives", folder, failpoint);
}

// What a child does.
TEST(WorkerFailpointChild, DISABLED_Lives) {
  const char* const folder = test::FolderOfChild();
  if (folder == nullptr) GTEST_SKIP() << "only as a child of the other tests";
  LiveIn(folder);
}

TEST(WorkerFailpoints, KilledAtEach_WhatIsThereIsWhole_AndTheRestComesAgain) {
  const auto failpoints = test::FailpointsOf(FailpointProcess::kWorker);
  ASSERT_FALSE(failpoints.empty());
  for (const auto& [name, process, interrupts] : failpoints) {
    SCOPED_TRACE(interrupts);
    for (const char* passes : {"", ":1"}) {
      const test::TempFolder folder;
      const int ended = RunChild(folder.path(), std::string(name) + passes);
      ASSERT_TRUE(test::WasKilled(ended)) << name << passes << " is never passed: " << ended;
      EXPECT_LT(ObjectsIn(folder.path()), kObjects) << name << passes;
      EXPECT_LT(TunedIn(folder.path()), size_t{kObjects}) << name << passes;
      ASSERT_EQ(RunChild(folder.path(), ""), 0) << name << passes;
      EXPECT_EQ(ObjectsIn(folder.path()), kObjects) << name << passes;
      EXPECT_EQ(TunedIn(folder.path()), size_t{kObjects}) << name << passes;
    }
  }
}

}  // namespace
}  // namespace outboard::worker
