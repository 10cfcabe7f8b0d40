// A committed blob is whole or absent, wherever the gateway stops and whatever the disk had by
// then; what was told to be durable is whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/blobs/blob_store.h"
#include "tests/gateway/fault_disk.h"
#include "tests/gateway/support.h"
#include "wire/limits.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kTenant{1};

// The second is of two chunks.
std::vector<std::string> Contents() {
  return {"one", std::string(wire::kBlobChunkBytes, 'b') + "two", "three", "four", "five"};
}

// What a gateway does with them: writes, syncs, removes. Notes what was told to be durable. Stops
// at the first call that fails.
void Work(BlobStore& store, std::set<std::string>& durable) {
  const auto contents = Contents();
  for (size_t i = 0; i < contents.size(); ++i) {
    auto root =
        store.Write(kTenant, contents[i], i == 3 ? BlobOrigin::kSession : BlobOrigin::kClient);
    if (!root.ok()) return;
    store.WhenDurable(kTenant, std::vector{*root}, [&, i](absl::Status status) {
      if (status.ok()) durable.insert(contents[i]);
    });
    if (i % 2 == 0) store.SyncSome();
  }
  store.SyncSome();
  // A client has what a session made, too.
  if (!store.Write(kTenant, contents[3], BlobOrigin::kClient).ok()) return;
  store.SyncSome();
  durable.erase(contents[0]);
  durable.erase(contents[2]);
  store.RemoveIdle(kTenant,
                   std::vector{wire::NameBlob(contents[0]).root, wire::NameBlob(contents[2]).root});
  store.SyncSome();
}

// Everything is whole or absent, and what is counted is what is there.
void Check(const std::string& folder, const std::set<std::string>& durable, bool goes_on) {
  auto store = ValueOrDie(BlobStore::Open(folder, {.sync_thread = false}));
  std::set<wire::Hash> chunks;
  for (const std::string& bytes : Contents()) {
    const wire::BlobName name = wire::NameBlob(bytes);
    auto read = store->Read(kTenant, name.root, bytes.size());
    EXPECT_TRUE(read.ok() ? *read == bytes : absl::IsNotFound(read.status())) << read.status();
    EXPECT_TRUE(read.ok() || !durable.contains(bytes)) << bytes.size() << " bytes were durable";
    for (const wire::Hash& chunk : name.chunks)
      if (store->ReadChunk(kTenant, chunk).ok()) chunks.insert(chunk);
  }
  uint64_t bytes = 0;
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const bool is_chunk = entry.path().parent_path().filename() == "chunks";
    EXPECT_TRUE(is_chunk || entry.path().parent_path().filename() == "roots") << entry.path();
    bytes += is_chunk ? entry.file_size() : 0;
    files += is_chunk;
  }
  EXPECT_EQ(files, chunks.size());
  EXPECT_EQ(store->UsageOf(kTenant).used_bytes, bytes);
  if (!goes_on) return;
  // And it goes on as if nothing had been.
  std::set<std::string> again;
  Work(*store, again);
  EXPECT_EQ(again.size(), 3u);
}

TEST(BlobCrash, WholeOrAbsentAtEveryStep) {
  using Loss = test::FaultDisk::Loss;
  int steps = 0;
  for (const Loss loss : {Loss::kNone, Loss::kEmpty, Loss::kGarbage}) {
    for (int stop = 0;; ++stop) {
      SCOPED_TRACE("loss " + std::to_string(static_cast<int>(loss)) + " before change " +
                   std::to_string(stop));
      test::TempDir temp;
      const std::string folder = temp.File("blobs");
      test::FaultDisk disk;
      disk.stop_before = stop;
      std::set<std::string> durable;
      {
        auto store = BlobStore::Open(folder, {.disk = &disk, .sync_thread = false});
        if (store.ok()) Work(**store, durable);
      }
      const bool finished = !disk.stopped();
      disk.CutPower(loss);
      Check(folder, durable, /*goes_on=*/stop % 4 == 0);  // it takes the longest
      if (HasFailure()) return;
      steps = std::max(steps, stop);
      if (finished) break;
    }
  }
  EXPECT_GT(steps, 60);  // the work is not empty
}

// While a file is synced others have the lock: its blob may be removed and uploaded again, and what
// the disk has told is of the file before it.
class SyncedMeanwhile : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<BlobStore> Open() {
    return ValueOrDie(BlobStore::Open(temp_.File("blobs"), {.disk = &disk_, .sync_thread = false}));
  }
  wire::Hash Write(BlobOrigin origin) {
    return ValueOrDie(store_->Write(kTenant, "bytes", origin));
  }
  // Does this while the file is synced, then waits for the blob. Returns what the waiter is told.
  absl::Status Sync(const std::function<absl::Status()>& meanwhile) {
    std::optional<absl::Status> told;
    disk_.meanwhile_at = GetParam();
    disk_.meanwhile = [&] {
      absl::Status synced = meanwhile();
      EXPECT_TRUE(store_->Protect(kTenant, root_).ok());
      store_->WhenDurable(kTenant, root_, [&](absl::Status status) { told = std::move(status); });
      return synced;
    };
    while (store_->SyncSome()) continue;
    EXPECT_EQ(disk_.meanwhile, nullptr);
    return told.value_or(absl::UnknownError("it was never told"));
  }
  const std::vector<wire::Hash> root_ = {wire::NameBlob("bytes").root};
  test::TempDir temp_;
  test::FaultDisk disk_;
  std::unique_ptr<BlobStore> store_ = Open();
};

TEST_P(SyncedMeanwhile, WhatComesAgain_IsSyncedOnceMore) {
  for (const BlobOrigin origin : {BlobOrigin::kClient, BlobOrigin::kSession}) {
    Write(BlobOrigin::kClient);
    const absl::Status told = Sync([&] {
      store_->RemoveIdle(kTenant, root_);
      Write(origin);
      return absl::OkStatus();
    });
    EXPECT_TRUE(told.ok()) << told;
    store_.reset();
    disk_.CutPower(test::FaultDisk::Loss::kGarbage);
    store_ = Open();
    const auto read = store_->Read(kTenant, root_[0], 5);
    EXPECT_EQ(read.value_or(std::string(read.status().message())), "bytes");
    store_->RemoveIdle(kTenant, root_);
  }
}

TEST_P(SyncedMeanwhile, WhatComesAgainAndIsNotSynced_IsNotDurable) {
  Write(BlobOrigin::kClient);
  const absl::Status told = Sync([&] {
    store_->RemoveIdle(kTenant, root_);
    Write(BlobOrigin::kClient);
    disk_.sync_status = absl::UnavailableError("the disk has failed");
    return absl::OkStatus();
  });
  EXPECT_FALSE(told.ok());
}

// The store cannot know of which of the two files the disk tells, and it tells once.
TEST_P(SyncedMeanwhile, WhatReplacesAFileThatWasNotSynced_IsDurableOnceItIsUploadedAgain) {
  Write(BlobOrigin::kClient);
  const absl::Status told = Sync([&] {
    store_->RemoveIdle(kTenant, root_);
    Write(BlobOrigin::kClient);
    return absl::UnavailableError("the disk has failed");
  });
  EXPECT_FALSE(told.ok());
  Write(BlobOrigin::kClient);
  std::optional<absl::Status> again;
  store_->WhenDurable(kTenant, root_, [&](absl::Status status) { again = std::move(status); });
  while (store_->SyncSome()) continue;
  EXPECT_TRUE(again.has_value() && again->ok()) << again.value_or(absl::OkStatus());
}

// Others go on while the disk writes what has replaced a file.
TEST_P(SyncedMeanwhile, WhatComesAgain_IsSyncedWithoutTheLock) {
  Write(BlobOrigin::kClient);
  bool was_free = false;
  const absl::Status told = Sync([&] {
    store_->RemoveIdle(kTenant, root_);
    Write(BlobOrigin::kClient);
    disk_.meanwhile = [&] {
      was_free = store_->Has(kTenant, wire::NameBlob("bytes").chunks[0]);
      return absl::OkStatus();
    };
    return absl::OkStatus();
  });
  EXPECT_TRUE(told.ok()) << told;
  EXPECT_TRUE(was_free);
}

// Whoever replaces a file whenever it is synced does not keep the disk busy with it for ever.
TEST_P(SyncedMeanwhile, WhatIsReplacedEachTime_IsLeftToTheQueue) {
  Write(BlobOrigin::kClient);
  int times = 0;
  std::function<absl::Status()> replace = [&] {
    if (++times < 20) {
      store_->RemoveIdle(kTenant, root_);
      Write(BlobOrigin::kClient);
      disk_.meanwhile = replace;
    }
    return absl::OkStatus();
  };
  disk_.meanwhile_at = GetParam();
  disk_.meanwhile = replace;
  ASSERT_TRUE(store_->SyncSome());
  EXPECT_LT(times, 20);
  while (store_->SyncSome()) continue;
  EXPECT_EQ(times, 20);
  std::optional<absl::Status> told;
  ASSERT_TRUE(store_->Protect(kTenant, root_).ok());
  store_->WhenDurable(kTenant, root_, [&](absl::Status status) { told = std::move(status); });
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->ok()) << *told;
}

// A blob whose sync failed is durable once it has been uploaded again.
TEST_P(SyncedMeanwhile, WhatWasNotSynced_IsUploadedAgain) {
  Write(BlobOrigin::kSession);
  EXPECT_FALSE(Sync([&] { return absl::UnavailableError("the disk has failed"); }).ok());
  Write(BlobOrigin::kClient);
  std::optional<absl::Status> told;
  store_->WhenDurable(kTenant, root_, [&](absl::Status status) { told = std::move(status); });
  while (store_->SyncSome()) continue;
  EXPECT_TRUE(told.has_value() && told->ok()) << told.value_or(absl::OkStatus());
  store_.reset();
  disk_.CutPower(test::FaultDisk::Loss::kGarbage);
  store_ = Open();
  const auto read = store_->Read(kTenant, root_[0], 5);
  EXPECT_EQ(read.value_or(std::string(read.status().message())), "bytes");
}

// Linux tells of a write that was lost once, and the next sync of the same file goes well.
TEST_P(SyncedMeanwhile, WhatGetsItsSecondNameAndWasNotSynced_IsNotDurable) {
  Write(BlobOrigin::kSession);
  const absl::Status told = Sync([&] {
    Write(BlobOrigin::kClient);
    return absl::UnavailableError("the disk has failed");
  });
  EXPECT_FALSE(told.ok());
}

INSTANTIATE_TEST_SUITE_P(BlobCrash, SyncedMeanwhile, testing::Values("/fresh/", "/roots/"),
                         [](const auto& info) {
                           return info.param == std::string("/fresh/") ? "AChunk" : "AList";
                         });

// A process that is killed at any time; the disk has all it wrote.
TEST(BlobCrash, KilledWhileItWrites) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    test::TempDir temp;
    const std::string folder = temp.File("blobs");
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = ValueOrDie(BlobStore::Open(folder));
      std::set<std::string> durable;
      for (;;) Work(*store, durable);
    }
    usleep(static_cast<useconds_t>(3000 + attempt * 7000));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    Check(folder, {}, /*goes_on=*/true);
  }
}

}  // namespace
}  // namespace outboard::gateway
