// All accounts' files together stay within a limit: what was used least recently goes, also after a
// restart, and nothing that is open.
#include "worker/kernels/account_disk.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/check.h"
#include "compiler/optimize/opt.h"
#include "tests/support/temp_folder.h"
#include "worker/kernels/account_kernels.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

class AccountDiskTest : public ::testing::Test {
 protected:
  // A file of an account, used so many hours ago.
  void Write(const std::string& path, int64_t bytes, int hours) {
    const fs::path file(Accounts() + "/" + path);
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << std::string(static_cast<size_t>(bytes), 'x');
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  bool Has(const std::string& path) { return fs::exists(Accounts() + "/" + path); }
  std::string Accounts() { return folder_ / "accounts"; }
  // Until the disk's own thread has done it.
  bool Goes(const std::string& path) {
    for (int i = 0; i < 1000 && Has(path); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !Has(path);
  }

  test::TempFolder folder_;
};

TEST_F(AccountDiskTest, Objects_TheLeastRecentlyUsedOfAllAccountsGo) {
  Write("1/a.obj", 100, 5);
  Write("1/b.obj", 100, 1);
  Write("2/c.obj", 100, 4);
  Write("3/d.obj", 100, 2);
  Write("4/e.obj", 100, 6);
  EXPECT_EQ(TrimAccountObjects(Accounts(), 500), 500);
  EXPECT_TRUE(Has("4/e.obj")) << "they fit";
  EXPECT_EQ(TrimAccountObjects(Accounts(), 400), 300) << "to three quarters";
  EXPECT_FALSE(Has("4")) << "with its folder";
  EXPECT_FALSE(Has("1/a.obj"));
  EXPECT_TRUE(Has("1/b.obj") && Has("2/c.obj") && Has("3/d.obj"));
}

TEST_F(AccountDiskTest, Measurements_TheLeastRecentlyUsedAccountsGoWhole) {
  for (const auto& [account, hours] : {std::pair{"1", 3}, {"2", 9}, {"3", 1}, {"shared", 2}}) {
    Write(std::string(account) + "/kernels.db", 80, 0);
    Write(std::string(account) + "/kernels.db-wal", 20, 0);
    Write(std::string(account) + "/in-use", 0, hours);
  }
  EXPECT_EQ(TrimMeasurements(Accounts(), 400), 400);
  EXPECT_TRUE(Has("2"));
  EXPECT_EQ(TrimMeasurements(Accounts(), 399), 200);
  EXPECT_FALSE(Has("1") || Has("2"));
  EXPECT_TRUE(Has("3/kernels.db") && Has("shared/kernels.db"));
}

TEST_F(AccountDiskTest, Measurements_ThatAreOpenStay) {
  Write("1/kernels.db", 100, 9);
  Write("2/kernels.db", 100, 8);
  {
    const HeldFolder held = HeldFolder::Take(Accounts() + "/1"),
                     again = HeldFolder::Take(Accounts() + "/1");
    EXPECT_EQ(TrimMeasurements(Accounts(), 10), 100);
    EXPECT_TRUE(Has("1/kernels.db"));
    EXPECT_FALSE(Has("2"));
  }
  EXPECT_EQ(TrimMeasurements(Accounts(), 10), 0);
}

TEST_F(AccountDiskTest, Measurements_AreUsedWhenTheyAreTaken) {
  for (const char* account : {"1", "2"}) {
    Write(std::string(account) + "/kernels.db", 100, 0);
    Write(std::string(account) + "/in-use", 0, account[0] - '0');
  }
  HeldFolder::Take(Accounts() + "/1", HeldFolder::kLook);
  HeldFolder::Take(Accounts() + "/2");
  TrimMeasurements(Accounts(), 150);
  EXPECT_FALSE(Has("1")) << "a look is no use";
  EXPECT_TRUE(Has("2"));
}

// What a worker was left with, and what its sessions write.
TEST_F(AccountDiskTest, AWorkerKeepsItsLimits) {
  Write("1/old.obj", 100, 5);
  Write("2/kernels.db", 100, 9);
  Write("2/in-use", 0, 9);
  AccountDisk disk({.objects = Accounts(),
                    .measurements = Accounts(),
                    .objects_bytes_max = 80,
                    .measurements_bytes_max = 80});
  EXPECT_TRUE(Goes("1/old.obj"));
  EXPECT_TRUE(Goes("2"));
  Write("3/new.obj", 100, 0);
  disk.StoredObject(100);
  EXPECT_TRUE(Goes("3"));
  Write("4/kernels.db", 100, 0);
  disk.OpenedMeasurements();
  EXPECT_TRUE(Goes("4"));
}

TEST_F(AccountDiskTest, ManyAccountsOfAWorkerStayWithinItsLimit) {
  AccountKernels kernels({.store = folder_ / "kernels.db",
                          .fleet_secret = "fleet",
                          .learns = true,
                          .store_bytes_max = 200'000});
  const std::string name(4000, 'n');
  fs::path first;
  for (uint64_t account = 1; account <= 20; ++account) {
    const AccountFiles files = kernels.FilesOf(account, /*shares=*/false);
    const auto store = ValueOrDie(OpenTuning(files));
    ASSERT_TRUE(store
                    ->Add({std::string(32, 'k'), 1, "here"}, name,
                          {ValueOrDie(codegen::ParseOpts("")), 5, true, true})
                    .ok());
    if (first.empty()) first = fs::path(files.tuning).parent_path();
  }
  for (int i = 0; i < 1000 && fs::exists(first); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(fs::exists(first));
}

}  // namespace
}  // namespace outboard::worker
