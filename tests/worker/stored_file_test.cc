// What a hostile executor may do with the file of what is to be stored: name other bytes than there
// are, grow it, change it while it is read. None of it is sent.
#include "worker/supervisor/stored_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace outboard::worker {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 30;

class StoredFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = StoredFile::Make(folder_.path());
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  static wire::Hash RootOf(const std::string& bytes) { return wire::NameBlob(bytes).root; }
  void Write(uint64_t offset, const std::string& bytes) {
    ASSERT_EQ(pwrite(file_->fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }
  absl::StatusOr<wire::BlobSource> Find(const std::string& bytes, uint64_t offset,
                                        uint64_t bytes_max = kPlenty) {
    return file_->Find(RootOf(bytes), offset, bytes.size(), bytes_max, cancelled_);
  }
  absl::StatusCode CodeOf(const std::string& bytes, uint64_t offset, uint64_t bytes_max = kPlenty) {
    return Find(bytes, offset, bytes_max).status().code();
  }
  // Times of files are those of the kernel's last tick.
  static void AwaitTick() { usleep(20'000); }

  test::TempFolder folder_;
  std::unique_ptr<StoredFile> file_;
  std::atomic<bool> cancelled_{false};
};

TEST_F(StoredFileTest, BlobsLieBehindEachOther) {
  const std::string large(9 << 20, 'x');
  uint64_t offset = 0;
  for (const std::string& bytes : {std::string("weights"), std::string(), large}) {
    Write(offset, bytes);
    const auto found = Find(bytes, offset);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->name.has_value());
    EXPECT_EQ(found->name->root, RootOf(bytes));
    std::string read(found->size_bytes, '\0');
    ASSERT_TRUE(found->read(0, read).ok());
    EXPECT_EQ(read, bytes);
    offset += bytes.size();
  }
}

TEST_F(StoredFileTest, TheFolderShowsNothingOfIt) {
  Write(0, "weights");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(StoredFileTest, OtherBytesThanTheNameSays) {
  Write(0, "forgery");
  EXPECT_EQ(CodeOf("weights", 0), absl::StatusCode::kDataLoss);
}

TEST_F(StoredFileTest, WhatIsNotInTheFile) {
  Write(0, "weights");
  EXPECT_EQ(CodeOf("weights", 1), absl::StatusCode::kDataLoss);
  EXPECT_EQ(CodeOf("weights", ~uint64_t{0}), absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      file_->Find(RootOf("weights"), 1, ~uint64_t{0}, ~uint64_t{0}, cancelled_).status().code(),
      absl::StatusCode::kDataLoss);
}

TEST_F(StoredFileTest, ABlobThatIsTooLargeIsNotRead) {
  Write(0, "weights");
  EXPECT_EQ(CodeOf("weights", 0, 6), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf("weights", 0, 7), absl::StatusCode::kOk);
  // A hole of a terabyte costs the executor nothing.
  ASSERT_EQ(ftruncate(file_->fd(), off_t{1} << 40), 0);
  EXPECT_EQ(file_->Find(RootOf("hole"), 0, uint64_t{1} << 40, kPlenty, cancelled_).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(StoredFileTest, AFileThatChangesAfterItWasHashedCannotBeRead) {
  for (const bool grows : {true, false}) {
    Write(0, "weights");
    const auto found = Find("weights", 0);
    ASSERT_TRUE(found.ok()) << found.status();
    AwaitTick();
    Write(grows ? 7 : 0, grows ? "!" : "forgery");
    std::string read(7, '\0');
    EXPECT_EQ(found->read(0, read).code(), absl::StatusCode::kDataLoss);
    file_->Clear();
    EXPECT_EQ(found->read(0, read).code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(StoredFileTest, WhatIsClearedTakesNoSpace) {
  Write(0, std::string(1 << 20, 'x'));
  file_->Clear();
  struct stat info {};
  ASSERT_EQ(fstat(file_->fd(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_EQ(CodeOf("x", 0), absl::StatusCode::kDataLoss);
}

TEST_F(StoredFileTest, AnEndedSessionIsNotReadToTheEnd) {
  Write(0, "weights");
  cancelled_ = true;
  EXPECT_EQ(CodeOf("weights", 0), absl::StatusCode::kCancelled);
}

TEST_F(StoredFileTest, AFolderThatIsNotThere_IsAnError) {
  EXPECT_EQ(StoredFile::Make(folder_ / "none").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::worker
