// Files by their roots; what is stored already is not written again, what was not stored is.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/device.h"
#include "tests/support/temp_folder.h"
#include "wire/merkle.h"
#include "worker/executor/persist_writer.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

class SnapshotWriterTest : public ::testing::Test {
 protected:
  DeviceArrayPtr Bytes(const std::string& bytes) {
    auto array = *engine_->NewArray(DType::kU8, {static_cast<int64_t>(bytes.size())});
    test::SetBytes(*array, bytes);
    return array;
  }

  std::shared_ptr<PersistRequest> Request(uint64_t id, const std::vector<DeviceArrayPtr>& arrays) {
    auto request = std::make_shared<PersistRequest>();
    request->id = id;
    request->seq = 10 * id;
    request->snapshot.set_seq(10 * id);
    for (const DeviceArrayPtr& array : arrays) Describe(*array, request->snapshot.add_held());
    request->arrays = arrays;
    return request;
  }

  PersistWriter::Written WriteAndTake(std::shared_ptr<const PersistRequest> request) {
    writer_.Write(std::move(request));
    writer_.LetGo();
    EXPECT_FALSE(writer_.busy());
    return *writer_.Take();
  }

  std::set<std::string> Files() {
    std::set<std::string> names;
    for (const fs::directory_entry& file : fs::directory_iterator(folder_.path()))
      names.insert(file.path().filename());
    return names;
  }

  void Empty() {
    for (const std::string& name : Files()) fs::remove(fs::path(folder_.path()) / name);
  }

  void Answer(uint64_t id, absl::StatusCode code) {
    proto::Stored stored;
    stored.set_id(id);
    stored.set_code(static_cast<uint32_t>(code));
    writer_.Stored(stored);
  }

  static std::string HexOf(const std::string& bytes) {
    return wire::ToHex(wire::NameBlob(bytes).root);
  }

  test::TempFolder folder_;
  std::unique_ptr<Engine> engine_ = MakeReferenceEngine(test::MakeDevice(1 << 26));
  PersistWriter writer_{folder_.path()};
};

TEST_F(SnapshotWriterTest, FilesHaveTheNamesOfTheirBytes) {
  const std::string large(5 << 20, 'x');
  const auto written = WriteAndTake(Request(1, {Bytes("abc"), Bytes(large), Bytes("")}));
  ASSERT_TRUE(written.blobs.ok()) << written.blobs.status();
  const std::string manifest = wire::ToHex(written.blobs->manifest_root());
  EXPECT_EQ(Files(), (std::set<std::string>{HexOf("abc"), HexOf(large), HexOf(""), manifest}));
  EXPECT_EQ(written.blobs->roots_size(), 3);
  std::ifstream in(fs::path(folder_.path()) / manifest, std::ios::binary);
  proto::SessionSnapshot snapshot;
  ASSERT_TRUE(snapshot.ParseFromIstream(&in));
  EXPECT_EQ(wire::ToHex(snapshot.held(1).blob_root()), HexOf(large));
}

TEST_F(SnapshotWriterTest, WhatIsStoredIsNotWrittenAgain) {
  const DeviceArrayPtr kept = Bytes("kept"), changed = Bytes("before");
  ASSERT_TRUE(WriteAndTake(Request(1, {kept, changed})).blobs.ok());
  Answer(1, absl::StatusCode::kOk);
  Empty();
  const auto written = WriteAndTake(Request(2, {kept, Bytes("after")}));
  ASSERT_TRUE(written.blobs.ok());
  EXPECT_EQ(Files(),
            (std::set<std::string>{HexOf("after"), wire::ToHex(written.blobs->manifest_root())}));
  EXPECT_EQ(written.blobs->roots_size(), 2) << "it is named all the same";
}

TEST_F(SnapshotWriterTest, WhatWasNotStoredIsThereForTheNext) {
  const DeviceArrayPtr array = Bytes("bytes");
  ASSERT_TRUE(WriteAndTake(Request(1, {array})).blobs.ok());
  Answer(1, absl::StatusCode::kUnavailable);
  Empty();
  ASSERT_TRUE(WriteAndTake(Request(2, {array})).blobs.ok());
  EXPECT_TRUE(Files().contains(HexOf("bytes")));
}

TEST_F(SnapshotWriterTest, WhatTheStoreHasLostIsOfferedAgain) {
  const DeviceArrayPtr array = Bytes("bytes");
  for (const absl::StatusCode code : {absl::StatusCode::kOk, absl::StatusCode::kNotFound}) {
    Empty();
    ASSERT_TRUE(WriteAndTake(Request(1, {array})).blobs.ok());
    Answer(1, code);
  }
  EXPECT_FALSE(Files().contains(HexOf("bytes")));
  ASSERT_TRUE(WriteAndTake(Request(3, {array})).blobs.ok());
  EXPECT_TRUE(Files().contains(HexOf("bytes")));
}

TEST_F(SnapshotWriterTest, ACheckpointReliesOnNothingThatWasStoredBefore) {
  const DeviceArrayPtr array = Bytes("bytes");
  ASSERT_TRUE(WriteAndTake(Request(1, {array})).blobs.ok());
  Answer(1, absl::StatusCode::kOk);
  Empty();
  const auto request = Request(2, {array});
  request->checkpoint = true;
  request->manifest.add_entries()->set_name("x");
  ASSERT_TRUE(WriteAndTake(request).blobs.ok());
  EXPECT_TRUE(Files().contains(HexOf("bytes")));
}

TEST_F(SnapshotWriterTest, AnArrayInThePlaceOfAnotherIsAnother) {
  for (uint64_t id = 1; id <= 20; ++id) {
    const std::string bytes = "number " + std::to_string(id);
    ASSERT_TRUE(WriteAndTake(Request(id, {Bytes(bytes)})).blobs.ok());
    Answer(id, absl::StatusCode::kOk);
    EXPECT_TRUE(Files().contains(HexOf(bytes))) << id;
  }
}

TEST_F(SnapshotWriterTest, OfARequestThatFailsNoFileStays) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 2 << 20;
  const auto signals_before = signal(SIGXFSZ, SIG_IGN);  // as in an executor
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto request = Request(1, {Bytes("abc"), Bytes(std::string(5 << 20, 'x'))});
  const absl::Status failed = WriteAndTake(request).blobs.status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, signals_before);
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Files(), std::set<std::string>());
  EXPECT_TRUE(WriteAndTake(request).blobs.ok());
  EXPECT_EQ(Files().size(), 3u) << "with room, all of it is written";
}

TEST_F(SnapshotWriterTest, AFolderThatCannotBeWrittenIsAnError) {
  fs::remove_all(folder_.path());
  const auto written = WriteAndTake(Request(3, {Bytes("abc")}));
  EXPECT_EQ(written.id, 3u);
  EXPECT_EQ(written.blobs.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::worker
