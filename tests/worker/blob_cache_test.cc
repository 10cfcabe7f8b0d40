// The worker's blobs on disk: one pull for several who want it, nothing half-written is seen, the
// least recently used go, another boot's are not believed.
#include "worker/supervisor/blob_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/temp_folder.h"

namespace outboard::worker {
namespace {

class BlobCacheTest : public ::testing::Test {
 protected:
  void Open(uint64_t bytes_max = 0) {
    cache_ = BlobCache::Open(folder_ / "blobs", bytes_max).value();
  }
  // What a pull of these bytes would do.
  absl::StatusOr<int> Get(const std::string& bytes, absl::Status status = {}) {
    const absl::StatusOr<int> got =
        cache_->Get(owner_, wire::NameBlob(bytes).root, bytes.size(), [&](int fd) {
          ++pulls_;
          EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
          return status;
        });
    if (got.ok()) open_.push_back(*got);
    return got;
  }
  static std::string Read(int fd) {
    std::string bytes(100, '\0');
    const ssize_t count = pread(fd, bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }
  std::string PathOf(const std::string& bytes) {
    return (std::filesystem::path(cache_->folder()).parent_path() /
            wire::ToHex(Sha256("blob of " + owner_ + "\n" +
                               std::string(wire::AsBytes(wire::NameBlob(bytes).root)))))
        .string();
  }
  void TearDown() override {
    for (const int fd : open_) close(fd);
  }
  bool Has(const std::string& bytes) { return std::filesystem::exists(PathOf(bytes)); }
  // Used so many seconds ago.
  void Age(const std::string& bytes, int seconds) {
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(PathOf(bytes), now - std::chrono::seconds(seconds));
  }

  test::TempFolder folder_;
  std::unique_ptr<BlobCache> cache_;
  std::string owner_ = "7";
  std::atomic<int> pulls_{0};
  std::vector<int> open_;
};

TEST_F(BlobCacheTest, PullsOnceAndRemembersOverARestart) {
  Open();
  EXPECT_EQ(Read(Get("weights").value()), "weights");
  EXPECT_EQ(Read(Get("weights").value()), "weights");
  EXPECT_EQ(pulls_, 1);
  Open();
  EXPECT_EQ(Read(Get("weights").value()), "weights");
  EXPECT_EQ(pulls_, 1);
}

TEST_F(BlobCacheTest, AFailedPullLeavesNothing) {
  Open();
  EXPECT_EQ(Get("half", absl::DataLossError("cut")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(Has("half"));
  EXPECT_TRUE(std::filesystem::is_empty(cache_->folder()));
  EXPECT_TRUE(Get("half").ok());
}

TEST_F(BlobCacheTest, SeveralWhoWantTheSameWaitForOnePull) {
  Open();
  const wire::Hash root = wire::NameBlob("same").root;
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const absl::StatusOr<int> file = cache_->Get("7", root, 4, [&](int) {
        ++pulls_;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return absl::OkStatus();
      });
      if (!file.ok()) return;
      ++got;
      close(*file);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 4);
  EXPECT_EQ(pulls_, 1);
}

TEST_F(BlobCacheTest, TheLeastRecentlyUsedGoes) {
  Open(10);
  ASSERT_TRUE(Get("aaaa").ok() && Get("bbbb").ok());
  Age("aaaa", 30);
  Age("bbbb", 20);
  ASSERT_TRUE(Get("aaaa").ok());  // used now
  ASSERT_TRUE(Get("cccc").ok());
  EXPECT_TRUE(Has("aaaa"));
  EXPECT_FALSE(Has("bbbb"));
  EXPECT_EQ(Get("more than ten").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Has("cccc"));
}

TEST_F(BlobCacheTest, WhatWasGotStaysWhenItGoesFromTheCache) {
  Open(10);
  const int first = Get("aaaaaaaa").value(), again = Get("aaaaaaaa").value();
  ASSERT_TRUE(Get("bbbbbbbb").ok());
  EXPECT_FALSE(Has("aaaaaaaa"));
  EXPECT_EQ(Read(first), "aaaaaaaa");
  EXPECT_EQ(Read(again), "aaaaaaaa");
}

TEST_F(BlobCacheTest, NobodyFindsWhatAnotherHasPulled) {
  Open();
  ASSERT_TRUE(Get("weights").ok() && Get("weights").ok());
  EXPECT_EQ(pulls_, 1);
  owner_ = "8";
  EXPECT_FALSE(Has("weights"));
  EXPECT_EQ(Read(Get("weights").value()), "weights");
  EXPECT_EQ(pulls_, 2);
}

TEST_F(BlobCacheTest, WhatItHandsOutCannotBeWritten) {
  Open();
  const int fd = Get("weights").value();
  EXPECT_EQ(write(fd, "forged!", 7), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(mmap(nullptr, 7, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(Read(Get("weights").value()), "weights");
}

TEST_F(BlobCacheTest, AnotherBootsAreNotBelieved) {
  const std::string other = folder_ / "blobs/01234567-89ab-cdef-0123-456789abcdef";
  std::filesystem::create_directories(other);
  std::ofstream(other + "/" + wire::ToHex(wire::NameBlob("old").root)) << "torn";
  Open();
  EXPECT_FALSE(std::filesystem::exists(other));
  EXPECT_FALSE(Has("old"));
}

TEST_F(BlobCacheTest, WhatIsNotItsOwnIsLetAlone) {
  std::filesystem::create_directories(folder_ / "blobs/photographs");
  std::ofstream(folder_ / "blobs/photographs/cat") << "cat";
  std::ofstream(folder_ / "thesis") << "thesis";
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  Open();
  EXPECT_EQ(test::ReadFile(folder_ / "blobs/photographs/cat"), "cat");
  ASSERT_EQ(setenv("OUTBOARD_BLOB_CACHE", folder_.path().c_str(), 1), 0);
  cache_ = BlobCache::OpenDefault().value();
  ASSERT_TRUE(Get("weights").ok());
  EXPECT_EQ(test::ReadFile(folder_ / "thesis"), "thesis");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "outboard-blobs"));
  EXPECT_EQ(std::filesystem::status(folder_.path()).permissions(), std::filesystem::perms(0755));
}

TEST_F(BlobCacheTest, WhatADeadProcessLeftGoesAndWhatALivingOneHasStays) {
  Open();
  const std::string living = cache_->folder() + "/store-1";
  std::filesystem::create_directories(living);
  const std::string dead =
      std::filesystem::path(cache_->folder()).parent_path().string() + "/process-DEAD00";
  std::filesystem::create_directories(dead + "/store-1");
  std::ofstream(dead + "/part-0") << "half";
  const auto second = BlobCache::Open(folder_ / "blobs", 0).value();
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living));
  EXPECT_NE(second->folder(), cache_->folder());
  cache_.reset();
  EXPECT_FALSE(std::filesystem::exists(living));
}

TEST_F(BlobCacheTest, AMappedFileMayBeWrittenOverAndRemoved) {
  Open();
  const int file = Get("0123456789").value();
  const auto device = test::MakeDevice(1 << 20);
  const int64_t empty = device->memory_bytes_in_use();
  {
    const runtime::DeviceBuffer first = device->MapFile(file, 10).value();
    const runtime::DeviceBuffer second = device->MapFile(file, 10).value();
    EXPECT_GE(device->memory_bytes_in_use(), empty + 20);
    ASSERT_TRUE(device->Upload(first.address(), "changed").ok());
    EXPECT_EQ(test::BytesOf(second), "0123456789");
    EXPECT_EQ(Read(file), "0123456789") << "the cached file is as it was";
    unlink(PathOf("0123456789").c_str());
    EXPECT_EQ(test::BytesOf(first), "changed789");
    EXPECT_EQ(static_cast<uint64_t>(first.address()) % 64, 0u);
  }
  EXPECT_EQ(device->memory_bytes_in_use(), empty);
  EXPECT_EQ(device->MapFile(-1, 10).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(device->MapFile(Get("short").value(), 6).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(device->MapFile(file, 2 << 20).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::worker
