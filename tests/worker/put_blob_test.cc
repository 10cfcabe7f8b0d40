// Puts by blob: the core says what to get, applies nothing behind a Put whose blob is not here
// (E5), and makes the array in the memory that the blob came in.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/client_items.h"
#include "tests/support/device.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

using test::Item;

const std::string kRoot(32, 'r'), kOther(32, 'o');

class PutBlobTest : public ::testing::Test {
 protected:
  PutBlobTest() { Open(1); }

  void Open(uint64_t epoch) {
    epoch_ = epoch;
    proto::ClientItem open;
    open.mutable_open()->set_session_id("sixteen bytes id");
    Send({open});
  }

  void Send(const std::vector<proto::ClientItem>& items) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch_);
    for (const proto::ClientItem& item : items) *frame.add_items() = item;
    core_.On(std::move(frame), Reader());
  }
  void Arrive(const std::string& root, const std::string& bytes) {
    absl::StatusOr<runtime::DeviceBuffer> buffer =
        engine_->NewBuffer(static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(engine_->device().Upload(buffer->address(), bytes).ok());
    core_.OnBlob(root, std::move(buffer), Reader());
  }
  std::vector<std::string> Wanted() {
    std::vector<std::string> roots;
    for (const BlobWant& want : core_.TakeBlobWants()) roots.push_back(want.root);
    return roots;
  }

  static proto::ClientItem Put(uint64_t seq, uint64_t handle, const std::string& root,
                               uint64_t bytes) {
    proto::ClientItem item = Item::Put(seq, handle, "");
    item.mutable_put()->set_dims(0, bytes);
    item.mutable_put()->set_total_bytes(bytes);
    item.mutable_put()->set_blob_root(root);
    return item;
  }

  ExecutorCore::SendFrame Reader() {
    return [this](const proto::ServerFrame& frame) {
      for (const proto::ServerItem& item : frame.items()) {
        for (const proto::Value& value : item.done().values()) values_.push_back(value.data());
        if (item.has_failed()) failed_.push_back(item.failed());
      }
    };
  }

  std::unique_ptr<Engine> engine_ = MakeReferenceEngine(test::MakeDevice(1 << 20));
  ExecutorCore core_{engine_.get(), {}};
  uint64_t epoch_ = 0;
  std::vector<std::string> values_;
  std::vector<proto::Failed> failed_;
};

TEST_F(PutBlobTest, E5_NothingBehindItIsAppliedBeforeItIsHere) {
  Send({Put(1, 1, kRoot, 3), Item::Put(2, 2, "abc"), Item::Fetch(3, 1), Item::Fetch(4, 2)});
  EXPECT_EQ(Wanted(), std::vector<std::string>{kRoot});
  EXPECT_EQ(core_.applied_seq(), 0u);
  Arrive(kRoot, "xyz");
  EXPECT_EQ(core_.applied_seq(), 4u);
  EXPECT_EQ(values_, (std::vector<std::string>{"xyz", "abc"}));
  EXPECT_TRUE(Wanted().empty());
}

TEST_F(PutBlobTest, AllThatWaitAreAskedForAtOnceAndComeInAnyOrder) {
  Send({Put(1, 1, kRoot, 1), Put(2, 2, kOther, 1), Put(3, 3, kRoot, 1), Item::Fetch(4, 1),
        Item::Fetch(5, 2), Item::Fetch(6, 3)});
  EXPECT_EQ(Wanted(), (std::vector<std::string>{kRoot, kOther, kRoot}))
      << "each array has memory of its own";
  Arrive(kOther, "o");
  Arrive(kRoot, "r");
  Arrive(kRoot, "r");
  EXPECT_EQ(values_, (std::vector<std::string>{"r", "o", "r"}));
}

// Of three ranks each has its rows of five, and none has memory for all of them.
TEST_F(PutBlobTest, ARankKeepsItsRows) {
  const std::string blob = "aabbccddee";
  const std::string expected[] = {"aabb", "ccdd", std::string("ee\0\0", 4)};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const auto engine = MakeReferenceEngine(test::MakeDevice(1 << 20));
    ExecutorCore core(engine.get(), {});
    core.SetRank(rank);
    proto::ClientFrame frame;
    frame.set_epoch(1);
    frame.add_items()->mutable_open()->set_session_id("sixteen bytes id");
    proto::ClientItem put = Put(1, 1, kRoot, blob.size());
    put.mutable_put()->set_dims(0, 5);
    put.mutable_put()->add_dims(2);
    put.mutable_put()->set_parts(3);
    *frame.add_items() = put;
    core.On(std::move(frame), Reader());
    const std::vector<BlobWant> wants = core.TakeBlobWants();
    ASSERT_EQ(wants.size(), 1u);
    EXPECT_EQ(wants[0].root, kRoot);
    EXPECT_NE(wants[0].key, kRoot) << "all of the blob is another array";
    ASSERT_TRUE(wants[0].is_part);
    EXPECT_EQ(wants[0].size_bytes, blob.size());
    std::string rows = blob.substr(wants[0].offset, wants[0].bytes);
    rows.resize(wants[0].stored_bytes);
    EXPECT_EQ(rows, expected[rank]);
    absl::StatusOr<runtime::DeviceBuffer> buffer =
        engine->NewBuffer(static_cast<int64_t>(rows.size()));
    ASSERT_TRUE(engine->device().Upload(buffer->address(), rows).ok());
    core.OnBlob(wants[0].key, std::move(buffer), Reader());
    EXPECT_EQ(core.applied_seq(), 1u);
    EXPECT_TRUE(failed_.empty());
  }
}

TEST_F(PutBlobTest, PartsThatCannotBeArePoison) {
  proto::ClientItem none = Put(1, 1, kRoot, 3), odd = Put(2, 2, kRoot, 3);
  none.mutable_put()->clear_dims();
  none.mutable_put()->set_parts(2);
  odd.mutable_put()->set_dims(0, 2);
  odd.mutable_put()->set_parts(2);
  Send({none, odd});
  ASSERT_EQ(failed_.size(), 2u);
  for (const proto::Failed& failed : failed_)
    EXPECT_EQ(failed.code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(Wanted().empty());
}

TEST_F(PutBlobTest, OneThatCannotBeHadIsPoison) {
  Send({Put(1, 1, kRoot, 3), Item::Fetch(2, 1)});
  core_.OnBlob(kRoot, absl::NotFoundError("no such blob"), Reader());
  ASSERT_EQ(failed_.size(), 2u);
  EXPECT_EQ(failed_[1].cause_seq(), 1u);
  EXPECT_EQ(failed_[1].code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
  EXPECT_FALSE(core_.ended());
}

TEST_F(PutBlobTest, OneOfAnotherSizeOrLargerThanMemoryFails) {
  Send({Put(1, 1, kRoot, 3)});
  Arrive(kRoot, "four");
  Send({Put(2, 2, kOther, 2 << 20)});
  ASSERT_EQ(failed_.size(), 2u);
  EXPECT_EQ(failed_[0].code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(failed_[1].code(), static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Wanted(), std::vector<std::string>{kRoot}) << "the other is not worth getting";
}

TEST_F(PutBlobTest, AfterAReconnectionItIsAskedForAgainAndTakenOnce) {
  Send({Put(1, 1, kRoot, 1)});
  EXPECT_EQ(Wanted().size(), 1u);
  Open(2);
  Send({Put(1, 1, kRoot, 1), Item::Fetch(2, 1)});
  EXPECT_TRUE(Wanted().empty()) << "the first answer is still to come";
  Arrive(kRoot, "r");
  EXPECT_EQ(values_, std::vector<std::string>{"r"});
  Arrive(kRoot, "r");  // which nobody asked for
  EXPECT_EQ(core_.applied_seq(), 2u);
}

}  // namespace
}  // namespace outboard::worker
