// A client that breaks the rules of the wire, beside one that keeps them: the first is told what is
// wrong, the second notices nothing.
#include <gtest/gtest.h>

#include <regex>

#include "compiler/ir/build.h"
#include "tests/support/client_items.h"
#include "tests/support/cluster.h"
#include "tests/support/documented.h"
#include "tests/support/raw_session.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::Item;
using test::RawSession;

class HostileWireTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new test::Cluster;
    // For the honest one, a hostile one, the next, and one whose client is only thought to be gone.
    cluster_->StartUp(4);
    honest_ = cluster_->Connect().release();
  }
  static void TearDownTestSuite() {
    delete honest_;
    auto books = cluster_->Books();
    EXPECT_TRUE(books->Verify().ok());
    EXPECT_EQ(cluster_->gateway().Stop(SIGINT), 0);
    delete cluster_;
  }
  void SetUp() override {
    ASSERT_NE(honest_, nullptr);
    raw_ = std::make_unique<RawSession>(cluster_->Options());
    raw_->Open();
  }
  void TearDown() override {
    raw_.reset();
    EXPECT_TRUE(test::Step(*honest_).ok()) << test::Step(*honest_);
    // The device of the session that ended so is free at once: the next one does not wait.
    session::SessionOptions options = cluster_->Options();
    options.tell = [](const std::string& line) { ADD_FAILURE() << line; };
    auto next = Session::Connect(options);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_TRUE(test::Step(**next).ok());
  }

  std::string ValueOf(uint64_t seq, uint64_t handle) {
    raw_->Send({Item::Fetch(seq, handle)});
    RawSession::Answer answer;
    return raw_->Next(answer) ? answer.value : "the stream ended";
  }

  static test::Cluster* cluster_;
  static Session* honest_;
  std::unique_ptr<RawSession> raw_;
};
test::Cluster* HostileWireTest::cluster_ = nullptr;
Session* HostileWireTest::honest_ = nullptr;

TEST_F(HostileWireTest, AGapEndsTheSessionAndNamesBothNumbers) {
  raw_->Send({Item::Put(1, 1, "a"), Item::Put(3, 3, "c")});
  test::ExpectAsDocumented("An item is missing from the sequence", raw_->End());
}

TEST_F(HostileWireTest, ItemsBeforeTheirTurnAreAGap) {
  raw_->Send({Item::Put(2, 2, "b"), Item::Put(1, 1, "a")});
  test::ExpectAsDocumented("An item is missing from the sequence", raw_->End());
}

TEST_F(HostileWireTest, ADuplicateIsAppliedOnceWhateverItSays) {
  raw_->Send({Item::Put(1, 1, "first")});
  EXPECT_EQ(ValueOf(2, 1), "first");
  raw_->Send({Item::Put(1, 1, "first")});
  raw_->Send({Item::Put(1, 1, "other")});
  raw_->Send({Item::Release(1, 1)});
  EXPECT_EQ(ValueOf(3, 1), "first");
}

TEST_F(HostileWireTest, FramesOfAnotherEpochAreDropped) {
  raw_->Send(77, {Item::Put(1, 1, "of another time")});
  raw_->Send({Item::Put(1, 1, "now")});
  EXPECT_EQ(ValueOf(2, 1), "now");
}

TEST_F(HostileWireTest, HandlesThatAreNotThere) {
  RawSession::Answer answer;
  raw_->Send({Item::Fetch(1, 41)});
  ASSERT_TRUE(raw_->Next(answer));
  EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kNotFound));
  EXPECT_NE(answer.failed.message().find("41"), std::string::npos);
  raw_->Send({Item::Put(2, 1, "x"), Item::Release(3, 1), Item::Fetch(4, 1)});
  ASSERT_TRUE(raw_->Next(answer));
  EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kNotFound));
  raw_->Send({Item::Put(5, 2, "y"), Item::Put(6, 2, "z")});  // in use
  ASSERT_TRUE(raw_->Next(answer));
  EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kInvalidArgument));
  EXPECT_EQ(ValueOf(7, 2), "y");  // and the session goes on
}

TEST_F(HostileWireTest, ABrokenGraphNamesTheNodeAndTheRule) {
  // A good graph, each byte of it changed once: what the encoder would never make.
  Graph g;
  const UOp* x = Param(g, 0, DType::kU8, {Dim(5)});
  EncodedGraph good = EncodeGraph(Sink(g, {Add(g, x, x)})).value();
  raw_->Send({Item::Put(1, 1, "abcde")});
  int refused = 0;
  std::string words;
  uint64_t seq = 2;
  for (size_t byte = 0; byte < good.bytes.size(); ++byte) {
    std::string bytes = good.bytes;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 0x15);
    const std::string id = IdOfEncoding(bytes).ToBytes();
    raw_->Send({Item::Graph(id, bytes), Item::Run(seq, id, 1, 100 + seq)});
    RawSession::Answer answer;
    ASSERT_TRUE(raw_->Next(answer)) << "byte " << byte;
    ASSERT_EQ(answer.seq, seq) << answer.failed.message();
    ++seq;
    if (answer.failed.code() == 0) continue;  // another graph, and a good one
    ++refused;
    const auto code = static_cast<StatusCode>(answer.failed.code());
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kResourceExhausted)
        << answer.failed.message();
    EXPECT_FALSE(answer.failed.message().empty());
    words += absl::Status(code, answer.failed.message()).ToString() + "\n";
  }
  EXPECT_GT(refused, 10);
  EXPECT_TRUE(
      std::regex_search(words, std::regex(test::DocumentedPattern("A graph breaks a rule"))))
      << words;
  const std::string id = good.id.ToBytes();
  raw_->Send({Item::Graph(id, good.bytes), Item::Run(seq, id, 1, 100 + seq)});
  RawSession::Answer answer;
  ASSERT_TRUE(raw_->Next(answer));
  EXPECT_EQ(answer.value.size(), 5u);
}

TEST_F(HostileWireTest, BytesOfAnotherId) {
  Graph g;
  EncodedGraph good = EncodeGraph(Sink(g, {Param(g, 0, DType::kU8, {Dim(5)})})).value();
  const std::string id(32, 'i');
  raw_->Send({Item::Put(1, 1, "abcde"), Item::Graph(id, good.bytes), Item::Run(2, id, 1, 2)});
  RawSession::Answer answer;
  ASSERT_TRUE(raw_->Next(answer));
  EXPECT_EQ(answer.seq, 2u);
  EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kInvalidArgument));
}

TEST_F(HostileWireTest, FramesOverTheLimits) {
  std::vector<proto::ClientItem> many(wire::kFrameItemsMax + 1, Item::Release(1, 1));
  raw_->Send(many);
  test::ExpectAsDocumented("A frame has too many items", raw_->End());
}

TEST_F(HostileWireTest, AFrameOfTooManyBytes) {
  raw_->Send({Item::Put(1, 1, std::string(wire::kFrameBytesMax, 'x'))});
  test::ExpectAsDocumented("A frame is too long", raw_->End());
}

TEST_F(HostileWireTest, AFrameFarOverTheLimit) {
  raw_->Send({Item::Put(1, 1, std::string(2 * wire::kMessageBytesMax, 'x'))});
  EXPECT_EQ(raw_->End().code(), StatusCode::kResourceExhausted);
}

TEST_F(HostileWireTest, ASecondOpenEndsTheSession) {
  proto::ClientItem open;
  open.mutable_open();
  raw_->Send({open});
  EXPECT_EQ(raw_->End().code(), StatusCode::kInvalidArgument);
}

TEST_F(HostileWireTest, ABlobThatWasNeverSent) {
  proto::ClientItem put = Item::Put(1, 1, "");
  put.mutable_put()->set_blob_root(std::string(32, 'r'));
  put.mutable_put()->set_total_bytes(9);
  raw_->Send({put});
  EXPECT_EQ(raw_->End().code(), StatusCode::kNotFound);
}

TEST_F(HostileWireTest, PiecesOfAPutThatDoNotFollow) {
  proto::ClientItem first = Item::Put(1, 1, "12345"), second = first;
  for (proto::ClientItem* item : {&first, &second}) {
    item->mutable_put()->set_total_bytes(10);
    item->mutable_put()->set_dims(0, 10);
  }
  second.mutable_put()->set_offset(6);
  raw_->Send({first, second});
  EXPECT_EQ(raw_->End().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard
