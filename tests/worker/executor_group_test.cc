// An executor that is one of several: what each rank answers, and what follows when one leaves
// (worker/executor/executor_core.h, SetRank).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/collective/loopback.h"
#include "tests/sim/fake_engine.h"
#include "wire/version.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

struct Rank {
  explicit Rank(uint32_t rank) {
    core.SetRank(rank);
    proto::ClientFrame frame;
    frame.set_epoch(1);
    proto::Open& open = *frame.add_items()->mutable_open();
    wire::SetRange(wire::kProtocolOfWorkers, *open.mutable_protocol());
    core.On(std::move(frame));
  }
  std::vector<proto::ServerItem> On(const proto::ClientItem& item) {
    proto::ClientFrame frame;
    frame.set_epoch(1);
    *frame.add_items() = item;
    std::vector<proto::ServerItem> answers;
    for (const proto::ServerFrame& answer : core.On(std::move(frame)))
      answers.insert(answers.end(), answer.items().begin(), answer.items().end());
    return answers;
  }
  sim::FakeEngine engine;
  ExecutorCore core{&engine, {}};
};

proto::ClientItem Put(uint64_t seq) {
  proto::ClientItem item;
  item.set_seq(seq);
  proto::Put& put = *item.mutable_put();
  put.set_handle(seq);
  put.set_dtype(static_cast<uint32_t>(DType::kF32));
  put.add_dims(2);
  put.set_total_bytes(8);
  put.set_data(std::string(8, 'x'));
  return item;
}
proto::ClientItem Fetch(uint64_t seq, uint64_t handle) {
  proto::ClientItem item;
  item.set_seq(seq);
  item.mutable_fetch()->add_handles(handle);
  return item;
}
bool HasValue(const std::vector<proto::ServerItem>& answers) {
  for (const proto::ServerItem& item : answers)
    if (item.done().values_size() > 0) return true;
  return false;
}

TEST(ExecutorGroup, AValue_IsRankZerosToSend) {
  Rank zero(0), one(1);
  for (Rank* rank : {&zero, &one}) rank->On(Put(1));
  EXPECT_TRUE(HasValue(zero.On(Fetch(2, 1))));
  const std::vector<proto::ServerItem> answers = one.On(Fetch(2, 1));
  EXPECT_FALSE(HasValue(answers));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.back().done().through_seq(), 2u) << "it is applied";
}

TEST(ExecutorGroup, AFailure_IsToldByEachRank) {
  Rank one(1);
  const std::vector<proto::ServerItem> answers = one.On(Fetch(1, 7));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers[0].failed().code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
}

TEST(ExecutorGroup, ACheckpoint_IsRankZerosToStore) {
  Rank zero(0), one(1);
  proto::ClientItem save;
  save.set_seq(2);
  save.mutable_save()->set_name("weights");
  save.mutable_save()->add_entries()->set_handle(1);
  for (Rank* rank : {&zero, &one}) {
    rank->On(Put(1));
    rank->On(save);
  }
  EXPECT_NE(zero.core.TakeStore(0), nullptr);
  EXPECT_EQ(one.core.TakeStore(0), nullptr);
}

TEST(ExecutorGroup, TheRankThatFailed_EndsTheSession) {
  auto group = collective::MakeLoopback({2});
  Rank one(1);
  one.engine.JoinGroup(std::move(group[1]));
  EXPECT_FALSE(one.On(Put(1)).empty());
  one.engine.group()->Abort(absl::InternalError("no kernel"));
  const std::vector<proto::ServerItem> answers = one.On(Put(2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].failed().seq(), 0u);
  EXPECT_NE(answers[0].failed().message().find("rank 1"), std::string::npos);
  EXPECT_NE(answers[0].failed().message().find("no kernel"), std::string::npos);
  EXPECT_TRUE(one.core.ended());
}

// Its supervisor and the gateway say what became of the partner.
TEST(ExecutorGroup, ARankWhosePartnerLeft_SaysNothingMore) {
  auto group = collective::MakeLoopback({2});
  Rank one(1);
  one.engine.JoinGroup(std::move(group[1]));
  group[0]->Abort(absl::UnavailableError("its process has ended"));
  EXPECT_TRUE(one.On(Put(1)).empty());
  EXPECT_TRUE(one.On(Put(2)).empty());
  EXPECT_FALSE(one.core.ended());
  EXPECT_EQ(one.core.applied_seq(), 0u);
}

}  // namespace
}  // namespace outboard::worker
