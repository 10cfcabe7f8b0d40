// Which links between workers are measured, and what a session on several of them is predicted by.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gateway/groups/link_table.h"
#include "proto/groups.pb.h"
#include "tests/gateway/core_driver_world.h"

namespace outboard::gateway {
namespace {

constexpr WorkerId kA{1}, kB{2}, kC{3}, kD{4};

TEST(LinkTable, AWorkerThatJoins_IsMeasuredWithTheTwoBeforeIt) {
  LinkTable links;
  for (const WorkerId worker : {kA, kB, kC, kD}) links.Joined(worker, "");
  std::vector<LinkTable::Pair> begun;
  for (int i = 0; i < 10; ++i)
    if (const auto next = links.Next(MonoTime{0})) {
      begun.push_back(*next);
      links.Begun(*next, std::to_string(i), MonoTime{0});
      links.Measured(next->first, std::to_string(i), {1e9, 1e-5});
    }
  EXPECT_EQ(begun, (std::vector<LinkTable::Pair>{
                       {kB, kA}, {kC, kB}, {kC, kA}, {kD, kC}, {kD, kB}}));
}

TEST(LinkTable, AWorker_HasOneMeasurementAtATime) {
  LinkTable links;
  for (const WorkerId worker : {kA, kB, kC}) links.Joined(worker, "");
  const auto first = links.Next(MonoTime{0});
  ASSERT_TRUE(first.has_value());
  links.Begun(*first, "one", MonoTime{0});
  EXPECT_FALSE(links.Next(MonoTime{1}).has_value());  // each other pair has kA or kB
  // One that nobody answers is given up.
  EXPECT_TRUE(links.Next(MonoTime{LinkTable::kProbeMostNs + 1}).has_value());
  links.Measured(kB, "one", {1e9, 1e-5});  // too late
  EXPECT_FALSE(links.Between(kA, kB).has_value());
}

TEST(LinkTable, WhoWasNotMeasuredTogether_HasTheSlowestLinkOfBoth) {
  LinkTable links;
  for (const WorkerId worker : {kA, kB, kC, kD}) links.Joined(worker, "");
  links.Begun({kB, kA}, "ab", MonoTime{0});
  links.Measured(kA, "ab", {1e9, 1e-5});  // it was not asked
  EXPECT_FALSE(links.Between(kA, kB).has_value());
  links.Measured(kB, "ab", {1e9, 1e-5});
  links.Begun({kD, kC}, "cd", MonoTime{0});
  links.Measured(kD, "cd", {1e8, 2e-5});
  EXPECT_EQ(links.Between(kB, kA)->bytes_per_s, 1e9);
  EXPECT_EQ(links.Between(kA, kC)->bytes_per_s, 1e8);
  EXPECT_EQ(links.Between(kA, kC)->message_s, 2e-5);
  links.Left(kD);
  EXPECT_EQ(links.Between(kA, kC)->bytes_per_s, 1e9);
}

TEST(LinkTable, WhatFails_IsNotKnownAndMachinesOfOthers_AreNotAsked) {
  LinkTable links;
  links.Joined(kA, "");
  links.Joined(kB, "7");
  EXPECT_FALSE(links.Next(MonoTime{0}).has_value());
  links.Joined(kC, "7");
  EXPECT_EQ(links.Next(MonoTime{0}), (LinkTable::Pair{kC, kB}));
  links.Begun({kC, kB}, "x", MonoTime{0});
  links.Measured(kC, "x", {});
  EXPECT_FALSE(links.Between(kC, kB).has_value());
}

class DriverLinksTest : public CoreDriverTest {
 protected:
  struct Node {
    WorkerEnd end;
    WorkerPort port;
    explicit Node(CoreDriver* driver) : port(driver, &end) {}
    const proto::MeasureLink* asked() const {
      for (const proto::GatewayCommand& command : end.sent)
        if (command.has_measure_link()) return &command.measure_link();
      return nullptr;
    }
  };
  static void JoinAs(Node& node, char letter, const std::string& address, bool measures = true,
                     const std::string& build = "") {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("two");
    reg.set_identity(std::string(kWorkerIdentityBytes, letter));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    for (int i = 0; i < 2; ++i) reg.add_devices()->set_hardware_class("large");
    reg.set_has_collectives(true);
    reg.set_serves_groups(true);
    reg.set_groups_recover(true);
    reg.set_data_address(address);
    reg.set_version(build);
    reg.set_measures_links(measures);
    reg.set_link_bytes_per_s(uint64_t{1} << 33);
    reg.set_link_message_ns(8000);
    node.port.OnEvent(event);
  }
  // A session on all devices of both, as (nodes, devices of a node); what its row says of it.
  proto::GroupState OpenOnBoth() {
    proto::ClientFrame frame = OpenFrame();
    proto::Open& open = *frame.mutable_items(0)->mutable_open();
    open.set_devices(4);
    open.add_mesh(2);
    open.add_mesh(2);
    Open(client_port_, std::move(frame));
    RunAll(writes_.jobs);
    const proto::Assign& assign = *one_.end.assign();
    for (uint32_t rank = 0; rank < 4; ++rank)
      EXPECT_TRUE(ports_[rank]
                      .Attach(*SessionId::FromBytes(assign.session_id()),
                              *TokenFromBytes(assign.attach_token()), rank)
                      .ok());
    RunAll(writes_.jobs);
    proto::GroupState state;
    EXPECT_FALSE(writes_.rows.empty());
    if (!writes_.rows.empty()) EXPECT_TRUE(state.ParseFromString(writes_.rows.back().group_state));
    return state;
  }

  Node one_{&driver_}, other_{&driver_};
  ExecutorEnd ends_[4];
  ExecutorPort ports_[4] = {{&driver_, &ends_[0]},
                            {&driver_, &ends_[1]},
                            {&driver_, &ends_[2]},
                            {&driver_, &ends_[3]}};
};

TEST_F(DriverLinksTest, TheLinkOfTwoWorkers_IsMeasuredAndUsed) {
  JoinAs(one_, 'b', "10.0.0.1:4000");
  EXPECT_EQ(one_.asked(), nullptr);
  JoinAs(other_, 'c', "10.0.0.2:4000");
  ASSERT_TRUE(one_.asked() != nullptr && other_.asked() != nullptr);
  EXPECT_EQ(one_.asked()->id(), other_.asked()->id());
  EXPECT_EQ(one_.asked()->token(), other_.asked()->token());
  EXPECT_EQ(one_.asked()->data_address(), "");
  EXPECT_EQ(other_.asked()->data_address(), "10.0.0.1:4000");
  proto::WorkerEvent event;
  event.mutable_link_measured()->set_id(other_.asked()->id());
  event.mutable_link_measured()->set_bytes_per_s(uint64_t{1} << 27);
  event.mutable_link_measured()->set_message_ns(1'000'000);
  other_.port.OnEvent(event);
  const proto::GroupState state = OpenOnBoth();
  EXPECT_EQ(state.link_bytes_per_s(), 1 << 26) << "two devices send over it";
  EXPECT_NEAR(state.collective_s(), 1e-3, 1e-4);
  EXPECT_EQ(state.inner_axes(), 2u) << "the second axis is within a worker";
  EXPECT_EQ(state.inner_bytes_per_s(), uint64_t{1} << 33);
  EXPECT_NEAR(state.inner_collective_s(), 8e-6, 1e-6);
}

// Two builds may make different code of one kernel.
TEST_F(DriverLinksTest, WorkersOfTwoBuilds_HaveNoSessionTogether) {
  JoinAs(one_, 'b', "10.0.0.1:4000", true, "2027.1");
  JoinAs(other_, 'c', "10.0.0.2:4000", true, "2027.2");
  proto::ClientFrame frame = OpenFrame();
  frame.mutable_items(0)->mutable_open()->set_devices(4);
  Open(client_port_, std::move(frame));
  RunAll(writes_.jobs);
  EXPECT_EQ(one_.end.assign(), nullptr);
  EXPECT_EQ(other_.end.assign(), nullptr);
}

TEST_F(DriverLinksTest, AWorkerThatMeasuresNothing_IsNotAskedAndAssumed) {
  JoinAs(one_, 'b', "10.0.0.1:4000");
  JoinAs(other_, 'c', "10.0.0.2:4000", /*measures=*/false);
  EXPECT_EQ(one_.asked(), nullptr);
  EXPECT_EQ(other_.asked(), nullptr);
  EXPECT_EQ(OpenOnBoth().link_bytes_per_s(), shard::DeviceSpeeds().link_bytes_per_s);
}

}  // namespace
}  // namespace outboard::gateway
