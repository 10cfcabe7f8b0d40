// Several connections of one process and of another on one file.
#include "storage/sqlite.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/check.h"

namespace outboard::storage {
namespace {

// What the other process does: opens the file, counts the rows, closes it. Run by the test below,
// which sets the variables.
TEST(Storage, DISABLED_OtherProcess) {
  auto db = ValueOrDie(Database::Open(std::getenv("STORAGE_TEST_FILE"), {}));
  Statement count = ValueOrDie(db->Prepare("SELECT count(*) FROM t"));
  ASSERT_TRUE(ValueOrDie(count.Step()));
  EXPECT_EQ(count.Int(0), std::atoi(std::getenv("STORAGE_TEST_ROWS")));
}

bool OtherProcessSees(const std::string& path, int rows) {
  setenv("STORAGE_TEST_FILE", path.c_str(), 1);
  setenv("STORAGE_TEST_ROWS", std::to_string(rows).c_str(), 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return std::system(
             (self + " --gtest_filter=Storage.DISABLED_OtherProcess --gtest_also_run_disabled_tests"
                     " >/dev/null 2>&1")
                 .c_str()) == 0;
}

TEST(Storage, AnotherProcessDoesNotTakeTheLogAway) {
  const std::string folder = testing::TempDir() + "/storage_test." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/a.db";
  {
    auto first = ValueOrDie(Database::Open(path, {}));
    ASSERT_TRUE(first->Execute("CREATE TABLE t(x)").ok());
    auto second = ValueOrDie(Database::Open(path, {}));  // must leave the locks of `first` alone
    EXPECT_TRUE(OtherProcessSees(path, 0));
    EXPECT_TRUE(std::filesystem::exists(path + "-wal"))
        << "it took itself for the last user of the file";
    ASSERT_TRUE(first->Execute("INSERT INTO t VALUES (1)").ok());
    EXPECT_TRUE(OtherProcessSees(path, 1));
  }
  std::filesystem::remove_all(folder);
}

// 1 is NORMAL: a commit is written and not synced; 2 is FULL.
TEST(Storage, SyncedByCaller_CommitsDoNotWaitForTheDisk_AndSyncLogDoes) {
  const std::string folder = testing::TempDir() + "/storage_sync." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/a.db";
  for (const bool synced_by_caller : {false, true}) {
    auto db = ValueOrDie(Database::Open(path, {.synced_by_caller = synced_by_caller}));
    Statement level = ValueOrDie(db->Prepare("PRAGMA synchronous"));
    ASSERT_TRUE(ValueOrDie(level.Step()));
    EXPECT_EQ(level.Int(0), synced_by_caller ? 1 : 2);
    level.Reset();
    ASSERT_TRUE(db->Execute("CREATE TABLE IF NOT EXISTS t(x)").ok());
    EXPECT_TRUE(SyncLog(path).ok());
  }
  EXPECT_TRUE(SyncLog(path).ok()) << "without a log all is in the file";
  std::filesystem::create_symlink(path + "-wal", path + "-wal");  // to itself
  EXPECT_TRUE(absl::IsUnavailable(SyncLog(path)));
  std::filesystem::remove_all(folder);
}

TEST(Storage, ACopyInMemoryHasWhatTheFileHas_AndLeavesItAsItWas) {
  const std::string folder = testing::TempDir() + "/storage_copy." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/a.db";
  EXPECT_TRUE(absl::IsNotFound(Database::Open(path, {.copied_to_memory = true}).status()));
  const auto count = [](Database& db) {
    Statement rows = ValueOrDie(db.Prepare("SELECT count(*) FROM t"));
    return ValueOrDie(rows.Step()) ? rows.Int(0) : -1;
  };
  {
    auto db = ValueOrDie(Database::Open(path, {}));
    ASSERT_TRUE(db->Execute("CREATE TABLE t(x); INSERT INTO t VALUES (1), (2)").ok());
  }
  {
    auto copy = ValueOrDie(Database::Open(path, {.copied_to_memory = true}));
    EXPECT_EQ(count(*copy), 2);
    const absl::Status failed = copy->Transaction(Database::Mode::kWrite, [&] {
      OB_CHECK_OK(ValueOrDie(copy->Prepare("INSERT INTO t VALUES (3)")).Run());
      return absl::AbortedError("on purpose");
    });
    EXPECT_TRUE(absl::IsAborted(failed));
    EXPECT_EQ(count(*copy), 2) << "a transaction that fails is undone there, too";
    ASSERT_TRUE(copy->Execute("INSERT INTO t SELECT x FROM t, (SELECT 1 UNION SELECT 2)").ok());
    EXPECT_EQ(count(*copy), 6);
  }
  EXPECT_EQ(count(*ValueOrDie(Database::Open(path, {}))), 2);
  std::filesystem::remove_all(folder);
}

// Statements are kept for the next one who prepares the same.
TEST(Storage, AStatementThatWasUsedBeforeBeginsAnew) {
  const std::string folder = testing::TempDir() + "/storage_again." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  {
    auto db = ValueOrDie(Database::Open(folder + "/a.db", {}));
    ASSERT_TRUE(db->Execute("CREATE TABLE t(x); INSERT INTO t VALUES (1), (2), (3)").ok());
    constexpr char kSql[] = "SELECT x, ?1 FROM t ORDER BY x";
    {
      Statement half = ValueOrDie(db->Prepare(kSql));
      half.Bind(1, 7);
      ASSERT_TRUE(ValueOrDie(half.Step()));
      ASSERT_TRUE(ValueOrDie(half.Step()));
      Statement other = ValueOrDie(db->Prepare(kSql));  // both at once
      ASSERT_TRUE(ValueOrDie(other.Step()));
      EXPECT_EQ(other.Int(0), 1);
      EXPECT_EQ(half.Int(0), 2);
    }
    ASSERT_TRUE(db->Execute("ALTER TABLE t ADD COLUMN y; INSERT INTO t VALUES (0, 0)").ok());
    Statement again = ValueOrDie(db->Prepare(kSql));
    ASSERT_TRUE(ValueOrDie(again.Step()));
    EXPECT_EQ(again.Int(0), 0) << "it began where the one before had stopped";
    EXPECT_TRUE(again.IsNull(1)) << "it has the binding of the one before";
    const absl::Status failed = db->Transaction(Database::Mode::kWrite, [&] {
      OB_CHECK_OK(ValueOrDie(db->Prepare("DELETE FROM t")).Run());
      return absl::AbortedError("on purpose");
    });
    EXPECT_TRUE(absl::IsAborted(failed));
    Statement count = ValueOrDie(db->Prepare("SELECT count(*) FROM t"));
    ASSERT_TRUE(ValueOrDie(count.Step()));
    EXPECT_EQ(count.Int(0), 4);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace outboard::storage
