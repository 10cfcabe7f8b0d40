// What a hostile executor may leave in its folder: links, fifos, folders, devices by another name,
// files that grow or are exchanged while they are read. None is followed, waited for or sent.
#include "worker/node/stored_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPlenty = uint64_t{1} << 30;

class StoredFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "store");
    auto files = StoredFiles::Open(folder_ / "store");
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  static wire::Hash RootOf(const std::string& bytes) { return wire::NameBlob(bytes).root; }
  // Where a blob of these bytes belongs.
  std::string PathOf(const std::string& bytes) {
    return folder_ / ("store/" + wire::ToHex(RootOf(bytes)));
  }
  std::string Write(const std::string& named, const std::string& bytes) {
    std::ofstream(PathOf(named), std::ios::binary) << bytes;
    return PathOf(named);
  }
  absl::StatusOr<std::optional<wire::BlobSource>> Find(const std::string& bytes,
                                                       uint64_t bytes_max = kPlenty) {
    return files_->Find(RootOf(bytes), bytes_max, cancelled_);
  }
  absl::StatusCode CodeOf(const std::string& bytes, uint64_t bytes_max = kPlenty) {
    return Find(bytes, bytes_max).status().code();
  }
  static absl::Status ReadAll(const wire::BlobSource& source, std::string* bytes) {
    bytes->resize(source.size_bytes);
    return source.read(0, *bytes);
  }

  test::TempFolder folder_;
  std::unique_ptr<StoredFiles> files_;
  std::atomic<bool> cancelled_{false};
};

TEST_F(StoredFilesTest, AFileWithTheNameOfItsBytes) {
  const std::string large(9 << 20, 'x');
  for (const std::string& bytes : {std::string("weights"), std::string(), large}) {
    Write(bytes, bytes);
    const auto found = Find(bytes);
    ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
    ASSERT_TRUE((*found)->name.has_value());
    EXPECT_EQ((*found)->name->root, RootOf(bytes));
    std::string read;
    ASSERT_TRUE(ReadAll(**found, &read).ok());
    EXPECT_EQ(read, bytes);
    files_->Remove(RootOf(bytes));
    const auto gone = Find(bytes);
    EXPECT_TRUE(gone.ok() && !gone->has_value()) << "what is not there was stored before";
  }
}

TEST_F(StoredFilesTest, OtherBytesThanTheNameSays) {
  Write("weights", "forgery");
  EXPECT_EQ(CodeOf("weights"), absl::StatusCode::kDataLoss);
}

TEST_F(StoredFilesTest, ALinkIsNotFollowed) {
  std::ofstream(folder_ / "secret") << "secret";
  fs::create_symlink(folder_ / "secret", PathOf("secret"));
  EXPECT_EQ(CodeOf("secret"), absl::StatusCode::kDataLoss);
  // Nor one within the folder.
  Write("weights", "weights");
  fs::rename(PathOf("weights"), folder_ / "store/other");
  fs::create_symlink("other", PathOf("weights"));
  EXPECT_EQ(CodeOf("weights"), absl::StatusCode::kDataLoss);
}

TEST_F(StoredFilesTest, AFileWithASecondNameIsNotTaken) {
  std::ofstream(folder_ / "secret") << "secret";
  fs::create_hard_link(folder_ / "secret", PathOf("secret"));
  EXPECT_EQ(CodeOf("secret"), absl::StatusCode::kDataLoss);
}

// An open of a fifo for reading would wait for a writer.
TEST_F(StoredFilesTest, WhatIsNoFile) {
  ASSERT_EQ(mkfifo(PathOf("fifo").c_str(), 0600), 0);
  EXPECT_EQ(CodeOf("fifo"), absl::StatusCode::kDataLoss);
  fs::create_directories(PathOf("folder"));
  EXPECT_EQ(CodeOf("folder"), absl::StatusCode::kDataLoss);
}

TEST_F(StoredFilesTest, AFileThatIsTooLargeIsNotRead) {
  Write("weights", "weights");
  EXPECT_EQ(CodeOf("weights", 6), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf("weights", 7), absl::StatusCode::kOk);
  // A hole of a terabyte costs the executor nothing.
  const std::string path = Write("hole", "");
  ASSERT_EQ(truncate(path.c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(CodeOf("hole"), absl::StatusCode::kResourceExhausted);
}

TEST_F(StoredFilesTest, AFileThatChangesAfterItWasHashedCannotBeRead) {
  const std::string bytes = "weights", path = Write(bytes, bytes);
  const auto grown = Find(bytes);
  ASSERT_TRUE(grown.ok() && grown->has_value());
  std::ofstream(path, std::ios::app) << "!";
  std::string read;
  EXPECT_EQ(ReadAll(**grown, &read).code(), absl::StatusCode::kDataLoss);

  // Another file under the name, of the same size.
  Write(bytes, bytes);
  const auto exchanged = Find(bytes);
  ASSERT_TRUE(exchanged.ok() && exchanged->has_value());
  std::ofstream(folder_ / "store/new") << "forgery";
  fs::rename(folder_ / "store/new", path);
  EXPECT_EQ(ReadAll(**exchanged, &read).code(), absl::StatusCode::kDataLoss);

  fs::remove(path);
  EXPECT_EQ(ReadAll(**exchanged, &read).code(), absl::StatusCode::kDataLoss);
}

TEST_F(StoredFilesTest, TheFolderIsTheOneThatWasOpened) {
  Write("weights", "weights");
  fs::rename(folder_ / "store", folder_ / "moved");
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", folder_ / "store");
  EXPECT_TRUE(Find("weights")->has_value());
  files_->Remove(RootOf("weights"));
  EXPECT_TRUE(fs::is_empty(folder_ / "moved"));
}

TEST_F(StoredFilesTest, AnEndedSessionIsNotReadToTheEnd) {
  Write("weights", "weights");
  cancelled_ = true;
  EXPECT_EQ(CodeOf("weights"), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace outboard::worker
