// What VIZ=1 writes: whole lines, every node before its use, no more bytes than allowed, no more
// files than allowed.
#include "worker/compile/rewrite_log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/support/temp_folder.h"

namespace outboard::worker {
namespace {

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A row sum of a square: one kernel.
const UOp* Program(Graph& g, int64_t slot = 0) {
  const UOp* const x = Param(g, slot, DType::kF32, {Dim(4), Dim(6)});
  return Sink(g, {Reduce(g, Op::kAdd, Mul(g, x, x), {1})});
}

class RewriteLogTest : public testing::Test {
 protected:
  std::vector<std::string> Record(int64_t bytes_max, int programs = 1) {
    {
      const auto log = MakeRewriteLog(folder_.path(), bytes_max);
      const RecordedThread thread(log.get());
      for (int i = 0; i < programs; ++i) {
        Graph g;
        ValueOrDie(schedule::MakeSchedule(g, Program(g), TestTarget()));
      }
    }
    return LinesOf(ValueOrDie(NewestLog(folder_.path())));
  }

  const test::TempFolder folder_;
};

TEST_F(RewriteLogTest, ARuleIsALine) {
  {
    const auto log = MakeRewriteLog(folder_.path());
    const RecordedThread thread(log.get());
    Graph g;
    const UOp* const x = Param(g, 0, DType::kI32, {});
    Simplify(g, Add(g, x, ConstInt(g, DType::kI32, 0)));
  }
  EXPECT_EQ(LinesOf(ValueOrDie(NewestLog(folder_.path()))),
            (std::vector<std::string>{R"({"node":0,"text":"CONST i32[] 0","src":[]})",
                                      R"({"node":1,"text":"PARAM i32[] 0","src":[]})",
                                      R"({"node":2,"text":"ADD i32[]","src":[1,0]})",
                                      R"({"begin":"rewrite","of":[],"graph":2})",
                                      R"({"rule":"add-zero","from":2,"to":1})", R"({"end":1})"}));
}

TEST_F(RewriteLogTest, PassesOfASchedule) {
  std::vector<std::string> begun;
  int open = 0;
  for (const std::string& line : Record(kLogBytesMax, 2)) {
    if (line.starts_with("{\"begin\":\"")) {
      begun.push_back(line.substr(10, line.find('"', 10) - 10));
      ++open;
    }
    if (line.starts_with("{\"end\"")) --open;
  }
  EXPECT_EQ(open, 0);
  const std::vector<std::string> once = {"schedule", "prepare", "lower", "merge"};
  std::vector<std::string> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  EXPECT_EQ(begun, twice);
}

TEST_F(RewriteLogTest, IsNoLongerThanAllowed) {
  const int64_t whole = [&] {
    Record(kLogBytesMax);
    return static_cast<int64_t>(std::filesystem::file_size(ValueOrDie(NewestLog(folder_.path()))));
  }();
  for (const int64_t bytes_max : {int64_t{20}, int64_t{100}, whole / 2, whole - 1}) {
    const std::vector<std::string> lines = Record(bytes_max);
    EXPECT_LE(
        static_cast<int64_t>(std::filesystem::file_size(ValueOrDie(NewestLog(folder_.path())))),
        bytes_max);
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back(), R"({"full":true})") << bytes_max;
  }
}

TEST_F(RewriteLogTest, AFolderKeepsTheNewest) {
  std::ofstream(folder_ / "mine.txt") << "stays";
  for (int i = 0; i < kLogsMax + 3; ++i) Record(kLogBytesMax);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    files += entry.path().extension() == ".jsonl";
  EXPECT_EQ(files, kLogsMax);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "mine.txt"));
}

// An executor that waits for a session leaves no empty file.
TEST_F(RewriteLogTest, NoPassNoFile) {
  MakeRewriteLog(folder_ / "new");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  EXPECT_EQ(NewestLog(folder_ / "new").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RewriteLogTest, WhereFilesCannotBeTheWorkGoesOn) {
  std::ofstream(folder_ / "file") << "no folder";
  const auto log = MakeRewriteLog(folder_ / "file");
  const RecordedThread thread(log.get());
  Graph g;
  EXPECT_TRUE(schedule::MakeSchedule(g, Program(g), TestTarget()).ok());
  EXPECT_TRUE(schedule::MakeSchedule(g, Program(g), TestTarget()).ok());
}

TEST_F(RewriteLogTest, WhatVizAsksFor) {
  const auto with = [](const char* value) {
    setenv("VIZ", value, 1);
    setenv("XDG_CACHE_HOME", "/home/of/cache", 1);
    return LogFolderFromEnvironment();
  };
  EXPECT_EQ(with(""), "");
  EXPECT_EQ(with("0"), "");
  EXPECT_EQ(with("1"), "/home/of/cache/outboard/viz");
  EXPECT_EQ(with("/a/folder"), "/a/folder");
  unsetenv("VIZ");
  EXPECT_EQ(LogFolderFromEnvironment(), "");
}

}  // namespace
}  // namespace outboard::worker
