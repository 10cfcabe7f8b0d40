// What is remembered of files: found again, and never for a file that could have changed.
#include "client/files/file_index.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "client/files/open_file.h"
#include "tests/support/temp_folder.h"
#include "wire/limits.h"

namespace outboard::files {
namespace {

class FileIndexTest : public ::testing::Test {
 protected:
  void Write(const std::string& bytes, int seconds_ago = 3600) {
    std::ofstream(path_, std::ios::binary) << bytes;
    SetTime(seconds_ago);
  }
  void SetTime(int seconds_ago) {
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(path_, now - std::chrono::seconds(seconds_ago));
  }
  FileStamp Stamp() {
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const FileStamp stamp = StampOf(fd).value();
    close(fd);
    return stamp;
  }
  // As if it had been looked at an hour later.
  int64_t Later() { return WallNowNs() + int64_t{3600} * 1'000'000'000; }
  bool Knows(const FileRange& range) { return index_.Find(Stamp(), {&range, 1})[0].has_value(); }
  std::string Only() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "index"))
      return entry.path().string();
    return "";
  }

  test::TempFolder folder_;
  const std::string path_ = folder_ / "file";
  FileIndex index_{folder_ / "index"};
};

TEST_F(FileIndexTest, FindsWhatItKept) {
  const std::string bytes(2 * wire::kBlobChunkBytes + 7, 'x');
  Write(bytes);
  const FileRange ranges[] = {{0, bytes.size()}, {5, 10}, {15, 0}};
  const wire::BlobName names[] = {wire::NameBlob(bytes), wire::NameBlob(bytes.substr(5, 10)),
                                  wire::NameBlob("")};
  EXPECT_FALSE(Knows(ranges[0]));
  index_.Keep(Stamp(), {ranges, 1}, {names, 1}, Later());
  index_.Keep(Stamp(), {ranges + 1, 2}, {names + 1, 2}, Later());
  const auto found = FileIndex(folder_ / "index").Find(Stamp(), ranges);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(found[i].has_value()) << i;
    EXPECT_EQ(found[i]->root, names[i].root) << i;
    EXPECT_EQ(found[i]->chunks, names[i].chunks) << i;
  }
  EXPECT_FALSE(Knows({5, 11}));
}

TEST_F(FileIndexTest, AFileThatChangedIsNotKnown) {
  const FileRange all{0, 4};
  const wire::BlobName name = wire::NameBlob("abcd");
  Write("abcd");
  index_.Keep(Stamp(), {&all, 1}, {&name, 1}, Later());
  ASSERT_TRUE(Knows(all));
  Write("abce");  // of the same size, and put back to nearly the same time
  EXPECT_FALSE(Knows(all));
  index_.Keep(Stamp(), {&all, 1}, {&name, 1}, Later());
  ASSERT_TRUE(Knows(all));
  SetTime(10);  // only touched
  EXPECT_FALSE(Knows(all));
}

TEST_F(FileIndexTest, AFileThatWasJustWrittenIsNotRemembered) {
  const FileRange all{0, 4};
  const wire::BlobName name = wire::NameBlob("abcd");
  Write("abcd");  // long ago by its own word, but its inode was changed just now
  index_.Keep(Stamp(), {&all, 1}, {&name, 1}, WallNowNs());
  EXPECT_FALSE(Knows(all));
}

TEST_F(FileIndexTest, ADamagedIndexIsAsNone) {
  const FileRange all{0, 4};
  const wire::BlobName name = wire::NameBlob("abcd");
  Write("abcd");
  index_.Keep(Stamp(), {&all, 1}, {&name, 1}, Later());
  const std::string path = Only();
  std::string text(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<int64_t>(text.size()));
  for (size_t i = 0; i < text.size(); i += 7) {
    std::string damaged = text;
    damaged[i] ^= 4;
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_FALSE(Knows(all)) << "byte " << i;
    std::ofstream(path, std::ios::binary) << text.substr(0, i);
    EXPECT_FALSE(Knows(all)) << i << " bytes";
  }
  index_.Keep(Stamp(), {&all, 1}, {&name, 1}, Later());
  EXPECT_TRUE(Knows(all));
}

TEST_F(FileIndexTest, NoFolderKnowsNothing) {
  const FileRange all{0, 4};
  const wire::BlobName name = wire::NameBlob("abcd");
  Write("abcd");
  FileIndex none("");
  none.Keep(Stamp(), {&all, 1}, {&name, 1}, Later());
  EXPECT_FALSE(none.Find(Stamp(), {&all, 1})[0].has_value());
}

TEST_F(FileIndexTest, OpenFilesSayWhatTheyAreNot) {
  EXPECT_EQ(OpenFile::Open(folder_ / "none", index_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenFile::Open(folder_.path(), index_).status().code(),
            absl::StatusCode::kInvalidArgument);
  mkfifo(path_.c_str(), 0600);
  EXPECT_EQ(OpenFile::Open(path_, index_).status().code(), absl::StatusCode::kInvalidArgument);
}

// A file of thousands of arrays is one write, not one for each.
TEST_F(FileIndexTest, WhatIsFoundIsKeptWhenTheFileIsClosed) {
  const std::string old = "/bin/sh";  // what was written a moment ago is not believed
  auto file = OpenFile::Open(old, index_).value();
  const FileRange ranges[] = {{0, 4}, {4, 4}};
  const wire::BlobName names[] = {wire::NameBlob("abcd"), wire::NameBlob("efgh")};
  for (int i : {0, 1}) {
    file->Found({&ranges[i], 1}, {&names[i], 1});
    EXPECT_FALSE(OpenFile::Open(old, index_).value()->Sources(ranges)[i].name.has_value());
  }
  file.reset();
  const auto sources = OpenFile::Open(old, index_).value()->Sources(ranges);
  for (int i : {0, 1}) {
    ASSERT_TRUE(sources[i].name.has_value());
    EXPECT_EQ(sources[i].name->root, names[i].root);
  }
}

TEST_F(FileIndexTest, AFileThatBecomesShorterIsAnErrorAndNoSignal) {
  Write("0123456789");
  auto file = OpenFile::Open(path_, index_).value();
  const FileRange all{0, 10};
  const wire::BlobSource source = file->Sources({&all, 1})[0];
  ASSERT_EQ(truncate(path_.c_str(), 5), 0);
  std::string bytes(10, '\0');
  EXPECT_EQ(source.read(0, bytes).code(), absl::StatusCode::kDataLoss);
}

TEST_F(FileIndexTest, OthersFilesInItsFolderAreNeverForgotten) {
  Write("abcdef");
  std::filesystem::create_directories(folder_ / "index");
  const auto others = {"notes", "1-2.txt", "1-2.3", "a-", "-b", "1-2.3.4.5"};
  for (const char* const name : others) std::ofstream((folder_ / "index/") + name) << "mine";
  for (int i = 0; i < 4200; ++i)  // more than it keeps
    std::ofstream((folder_ / "index/7-") + std::to_string(i)) << "x";
  const FileRange all{0, 6};
  const wire::BlobName name = wire::NameBlob("abcdef");
  index_.Keep(Stamp(), {&all, 1}, {&name, 1}, Later());
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ / "index"))
    ++count;
  EXPECT_LT(count, 4000u);
  for (const char* const other : others)
    EXPECT_TRUE(std::filesystem::exists((folder_ / "index/") + other)) << other;
}

}  // namespace
}  // namespace outboard::files
