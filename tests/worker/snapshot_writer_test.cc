// Blobs behind each other in one file; what is stored already is not written again, what was not
// stored is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/device.h"
#include "tests/support/temp_folder.h"
#include "wire/field_count.h"
#include "wire/merkle.h"
#include "worker/executor/persist_writer.h"

namespace outboard::worker {
namespace {

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

  // The blobs that the last request has pieces of, each with the bytes that are there.
  std::set<std::string> Pieces(const absl::StatusOr<proto::StoreBlobs>& blobs) {
    std::set<std::string> names;
    if (!blobs.ok()) return names;
    for (const proto::StoreBlobs::Piece& piece : blobs->pieces()) {
      EXPECT_EQ(wire::NameBlob(BytesOf(piece)).root, wire::HashFromBytes(piece.root()));
      names.insert(wire::ToHex(*wire::HashFromBytes(piece.root())));
    }
    return names;
  }
  std::string BytesOf(const proto::StoreBlobs::Piece& piece) const {
    std::string bytes(piece.size_bytes(), '\0');
    EXPECT_EQ(pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(piece.offset())),
              static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  off_t FileBytes() const {
    struct stat info {};
    EXPECT_EQ(fstat(file_, &info), 0);
    return info.st_size;
  }

  // As the supervisor does when it has answered.
  void Empty() const { EXPECT_EQ(ftruncate(file_, 0), 0); }

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
  const int file_ = open((folder_ / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  std::unique_ptr<Engine> engine_ = MakeReferenceEngine(test::MakeDevice(1 << 26));
  PersistWriter writer_{file_};  // owns it
};

TEST_F(SnapshotWriterTest, PiecesHaveTheRootsOfTheirBytes) {
  const std::string large(5 << 20, 'x');
  const auto written = WriteAndTake(Request(1, {Bytes("abc"), Bytes(large), Bytes("")}));
  ASSERT_TRUE(written.blobs.ok()) << written.blobs.status();
  const std::string manifest = wire::ToHex(written.blobs->manifest_root());
  EXPECT_EQ(Pieces(written.blobs),
            (std::set<std::string>{HexOf("abc"), HexOf(large), HexOf(""), manifest}));
  EXPECT_EQ(written.roots.size(), 3u);
  const proto::StoreBlobs::Piece& last = *written.blobs->pieces().rbegin();
  ASSERT_EQ(last.root(), written.blobs->manifest_root());
  EXPECT_EQ(static_cast<off_t>(last.offset() + last.size_bytes()), FileBytes());
  proto::SessionSnapshot snapshot;
  ASSERT_TRUE(snapshot.ParseFromString(BytesOf(last)));
  EXPECT_EQ(wire::ToHex(snapshot.held(1).blob_root()), HexOf(large));
}

TEST_F(SnapshotWriterTest, EqualArraysAreWrittenOnce) {
  const auto written = WriteAndTake(Request(1, {Bytes("equal"), Bytes("equal"), Bytes("other")}));
  ASSERT_TRUE(written.blobs.ok()) << written.blobs.status();
  EXPECT_EQ(written.blobs->pieces_size(), 3) << "with the manifest";
  EXPECT_EQ(Pieces(written.blobs).size(), 3u);
}

// Each of them passes the supervisor's limits, however many arrays there are.
TEST_F(SnapshotWriterTest, MorePiecesThanAMessageMayHaveGoInSeveral) {
  std::vector<DeviceArrayPtr> arrays;
  for (size_t i = 0; i <= kStorePiecesMax; ++i) arrays.push_back(Bytes(std::to_string(i)));
  const auto written = WriteAndTake(Request(1, arrays));
  ASSERT_TRUE(written.blobs.ok()) << written.blobs.status();
  ASSERT_EQ(written.before.size(), 1u);
  EXPECT_EQ(written.before[0].id(), 1u);
  EXPECT_TRUE(written.before[0].more());
  EXPECT_FALSE(written.blobs->more());
  EXPECT_EQ(Pieces(written.before[0]).size(), kStorePiecesMax);
  EXPECT_EQ(Pieces(written.blobs),
            (std::set<std::string>{HexOf(std::to_string(kStorePiecesMax)),
                                   wire::ToHex(written.blobs->manifest_root())}));
  EXPECT_EQ(written.roots.size(), arrays.size());
  for (const proto::StoreBlobs& part : {written.before[0], *written.blobs}) {
    proto::FromExecutor event;
    *event.mutable_store() = part;
    const std::string bytes = event.SerializeAsString();
    EXPECT_LT(bytes.size(), kFromExecutorBytesMax);
    EXPECT_TRUE(
        wire::CheckFieldCount(bytes, *proto::FromExecutor::descriptor(), kFromExecutorFieldsMax)
            .ok());
  }
}

// What is stored is known when the last has been answered, and offered again if one was not.
TEST_F(SnapshotWriterTest, OfSeveralMessagesOneThatFailsFailsAll) {
  PersistWriter writer(open((folder_ / "other").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), 2);
  const std::vector<DeviceArrayPtr> arrays = {Bytes("a"), Bytes("b"), Bytes("c"), Bytes("d")};
  for (const absl::StatusCode code : {absl::StatusCode::kUnavailable, absl::StatusCode::kOk}) {
    writer.Write(Request(1, arrays));
    writer.LetGo();
    const auto written = *writer.Take();
    ASSERT_TRUE(written.blobs.ok()) << written.blobs.status();
    EXPECT_EQ(written.before.size(), 2u);
    EXPECT_EQ(written.blobs->pieces_size(), 1);
    proto::Stored stored;
    stored.set_code(static_cast<uint32_t>(code));
    writer.Stored(stored);
  }
  writer.Write(Request(2, arrays));
  writer.LetGo();
  EXPECT_TRUE(writer.Take()->before.empty());
}

// Nor does it need room in the file twice: the file has a limit.
TEST_F(SnapshotWriterTest, AnArrayOfSeveralHandlesIsWrittenOnce) {
  const DeviceArrayPtr large = Bytes(std::string(3 << 20, 'x'));
  const auto written = WriteAndTake(Request(1, {large, large, Bytes("other"), large}));
  ASSERT_TRUE(written.blobs.ok()) << written.blobs.status();
  EXPECT_EQ(Pieces(written.blobs).size(), 3u);
  EXPECT_LT(lseek(file_, 0, SEEK_END), 4 << 20);
}

TEST_F(SnapshotWriterTest, WhatIsStoredIsNotWrittenAgain) {
  const DeviceArrayPtr kept = Bytes("kept"), changed = Bytes("before");
  ASSERT_TRUE(WriteAndTake(Request(1, {kept, changed})).blobs.ok());
  Answer(1, absl::StatusCode::kOk);
  Empty();
  const auto written = WriteAndTake(Request(2, {kept, Bytes("after")}));
  ASSERT_TRUE(written.blobs.ok());
  EXPECT_EQ(Pieces(written.blobs),
            (std::set<std::string>{HexOf("after"), wire::ToHex(written.blobs->manifest_root())}));
  EXPECT_EQ(written.roots.size(), 2u) << "it is named all the same";
}

TEST_F(SnapshotWriterTest, WhatWasNotStoredIsThereForTheNext) {
  const DeviceArrayPtr array = Bytes("bytes");
  ASSERT_TRUE(WriteAndTake(Request(1, {array})).blobs.ok());
  Answer(1, absl::StatusCode::kUnavailable);
  Empty();
  EXPECT_TRUE(Pieces(WriteAndTake(Request(2, {array})).blobs).contains(HexOf("bytes")));
}

TEST_F(SnapshotWriterTest, WhatTheStoreHasLostIsOfferedAgain) {
  const DeviceArrayPtr array = Bytes("bytes");
  for (const absl::StatusCode code : {absl::StatusCode::kOk, absl::StatusCode::kNotFound}) {
    Empty();
    const auto written = WriteAndTake(Request(1, {array}));
    EXPECT_EQ(Pieces(written.blobs).contains(HexOf("bytes")), code == absl::StatusCode::kOk);
    Answer(1, code);
  }
  EXPECT_TRUE(Pieces(WriteAndTake(Request(3, {array})).blobs).contains(HexOf("bytes")));
}

TEST_F(SnapshotWriterTest, ACheckpointReliesOnNothingThatWasStoredBefore) {
  const DeviceArrayPtr array = Bytes("bytes");
  ASSERT_TRUE(WriteAndTake(Request(1, {array})).blobs.ok());
  Answer(1, absl::StatusCode::kOk);
  Empty();
  const auto request = Request(2, {array});
  request->checkpoint = true;
  request->manifest.add_entries()->set_name("x");
  EXPECT_TRUE(Pieces(WriteAndTake(request).blobs).contains(HexOf("bytes")));
}

TEST_F(SnapshotWriterTest, AnArrayInThePlaceOfAnotherIsAnother) {
  for (uint64_t id = 1; id <= 20; ++id) {
    const std::string bytes = "number " + std::to_string(id);
    const auto written = WriteAndTake(Request(id, {Bytes(bytes)}));
    EXPECT_TRUE(Pieces(written.blobs).contains(HexOf(bytes))) << id;
    Answer(id, absl::StatusCode::kOk);
  }
}

TEST_F(SnapshotWriterTest, OfARequestThatFailsNothingStays) {
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
  EXPECT_EQ(FileBytes(), 0);
  EXPECT_EQ(Pieces(WriteAndTake(request).blobs).size(), 3u) << "with room, all of it is written";
}

TEST_F(SnapshotWriterTest, AFileThatCannotBeWrittenIsAnError) {
  std::ofstream(folder_ / "fixed") << "x";
  PersistWriter writer(open((folder_ / "fixed").c_str(), O_RDONLY | O_CLOEXEC));
  writer.Write(Request(3, {Bytes("abc")}));
  writer.LetGo();
  const auto written = *writer.Take();
  EXPECT_EQ(written.id, 3u);
  EXPECT_EQ(written.blobs.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::worker
