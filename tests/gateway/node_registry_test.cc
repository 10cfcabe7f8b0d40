// Which nodes are let in, and what the gateway keeps of them (gateway/nodes).
#include "gateway/nodes/node_registry.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "gateway/nodes/driver_rows.h"
#include "gateway/nodes/node_logs.h"
#include "gateway/nodes/node_words.h"

namespace outboard::gateway {
namespace {

constexpr WallTime kNow{1'764'000'000'000};
constexpr WallTime After(int64_t ms) { return {kNow.unix_ms + ms}; }
const std::string kKey(32, 'a'), kOther(32, 'b');

class NodeRegistryTest : public ::testing::Test {
 protected:
  NodeRegistryTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nodes-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    registry_ = NodeRegistry::Open(folder_ + "/accounts.db").value();
  }
  ~NodeRegistryTest() override { std::filesystem::remove_all(folder_); }

  std::string Claim(const std::string& serial, WallTime now = kNow) {
    return std::string(registry_->MakeClaim(serial, now).value().Reveal());
  }
  static NodeRow Node(const std::string& serial, const std::string& key) {
    NodeRow node{.serial = serial, .key_id = key, .address = "ipv4:10.0.0.1:" + key.substr(0, 1)};
    node.facts.set_serial(serial);
    return node;
  }
  static std::string Word(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    return std::string(NodeWord(std::string(status.message())));
  }

  std::string folder_;
  std::unique_ptr<NodeRegistry> registry_;
};

TEST_F(NodeRegistryTest, AClaim_IsGoodOnce_ForOneSerial_FifteenMinutes) {
  const std::string claim = Claim("s-1");
  EXPECT_TRUE(registry_->CheckClaim(claim, "s-1", kKey, kNow).ok());
  EXPECT_EQ(Word(registry_->CheckClaim(claim, "s-2", kKey, kNow)), kClaimOtherSerial);
  EXPECT_EQ(Word(registry_->CheckClaim("ob_claim_0", "s-1", kKey, kNow)), kClaimUnknown);
  EXPECT_TRUE(registry_->CheckClaim(claim, "s-1", kKey, After(kClaimLifeMs - 1)).ok());
  EXPECT_EQ(Word(registry_->SpendClaim(claim, "s-1", kKey, After(kClaimLifeMs))), kClaimExpired);
  EXPECT_TRUE(registry_->SpendClaim(claim, "s-1", kKey, kNow).ok());
  // The answer may have been lost: the key that it was spent on asks again.
  EXPECT_TRUE(registry_->SpendClaim(claim, "s-1", kKey, kNow).ok());
  EXPECT_EQ(Word(registry_->SpendClaim(claim, "s-1", kOther, kNow)), kClaimUsed);
  EXPECT_EQ(Word(registry_->CheckClaim(claim, "s-1", kOther, After(kClaimLifeMs))), kClaimUsed);
}

TEST_F(NodeRegistryTest, ANewerClaim_EndsThoseBefore) {
  const std::string first = Claim("s-1"), other = Claim("s-2"), second = Claim("s-1");
  EXPECT_EQ(Word(registry_->CheckClaim(first, "s-1", kKey, kNow)), kClaimUnknown);
  EXPECT_TRUE(registry_->CheckClaim(second, "s-1", kKey, kNow).ok());
  EXPECT_TRUE(registry_->CheckClaim(other, "s-2", kKey, kNow).ok());
}

TEST_F(NodeRegistryTest, AnOffer_IsTakenOnceByItsSerial) {
  EXPECT_TRUE(registry_->OfferClaim("s-1", kNow).ok());
  EXPECT_FALSE(registry_->TakeOffer("s-2", kNow).value());
  EXPECT_FALSE(registry_->TakeOffer("s-1", After(kClaimLifeMs)).value());
  EXPECT_TRUE(registry_->TakeOffer("s-1", After(kClaimLifeMs - 1)).value());
  EXPECT_FALSE(registry_->TakeOffer("s-1", kNow).value());
}

TEST_F(NodeRegistryTest, Approve_LetsInOneKey_AndAsksWhichOfSeveral) {
  EXPECT_TRUE(absl::IsNotFound(registry_->Approve("s-1", "", kNow)));
  ASSERT_TRUE(registry_->NoteWaiting(Node("s-1", kKey), kNow).ok());
  ASSERT_TRUE(registry_->NoteWaiting(Node("s-1", kOther), After(1)).ok());
  EXPECT_EQ(registry_->List()->size(), 2u);
  EXPECT_TRUE(absl::IsFailedPrecondition(registry_->Approve("s-1", "", kNow)));
  EXPECT_TRUE(absl::IsNotFound(registry_->Approve("s-1", "c", kNow)));
  EXPECT_TRUE(registry_->Approve("s-1", "aaaa", kNow).ok());
  EXPECT_TRUE(registry_->IsApproved("s-1", kKey).value());
  EXPECT_FALSE(registry_->IsApproved("s-1", kOther).value());
  EXPECT_FALSE(registry_->IsApproved("s-2", kKey).value());
  // It asks again, and stays approved; it enrols, and waits no longer.
  ASSERT_TRUE(registry_->NoteWaiting(Node("s-1", kKey), After(2)).ok());
  EXPECT_TRUE(registry_->IsApproved("s-1", kKey).value());
  ASSERT_TRUE(registry_->Enrolled(Node("s-1", kKey), After(3)).ok());
  const std::vector<NodeRow> all = registry_->List().value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].state, NodeState::kWaiting);
  EXPECT_EQ(all[0].key_id, kOther);
  EXPECT_EQ(all[1].state, NodeState::kEnrolled);
  EXPECT_EQ(all[1].key_id, kKey);
}

TEST_F(NodeRegistryTest, OfOneSerial_FewKeysWait_AndAnApprovedOneStays) {
  ASSERT_TRUE(registry_->NoteWaiting(Node("s-1", kKey), kNow).ok());
  ASSERT_TRUE(registry_->Approve("s-1", "", kNow).ok());
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(registry_->NoteWaiting(Node("s-1", std::string(32, char('c' + i))), After(i)).ok());
  EXPECT_EQ(registry_->List()->size(), static_cast<size_t>(kKeysWaitingPerSerialMax) + 1);
  EXPECT_TRUE(registry_->IsApproved("s-1", kKey).value());
}

TEST_F(NodeRegistryTest, OfAllThatWait_ThereIsALimit_AndADayLaterRoom) {
  // All but one at once: each by itself is a transaction.
  const std::string fill =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i "
      "< " +
      std::to_string(kNodesWaitingMax - 1) +
      ") INSERT INTO node_waiting SELECT 's-' || i, 'k', x'', '', " + std::to_string(kNow.unix_ms) +
      ", " + std::to_string(kNow.unix_ms) + ", NULL FROM n";
  ASSERT_TRUE(
      storage::Database::Open(folder_ + "/accounts.db").value()->Execute(fill.c_str()).ok());
  EXPECT_TRUE(registry_->NoteWaiting(Node("last", kKey), kNow).ok());
  const absl::Status status = registry_->NoteWaiting(Node("new", kKey), kNow);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(NodeWord(std::string(status.message())), kTooManyWait);
  EXPECT_TRUE(registry_->NoteWaiting(Node("new", kKey), After(86'400'001)).ok());
}

// One machine that invents serial numbers leaves room for those of other addresses.
TEST_F(NodeRegistryTest, OfOneAddress_FewerMayWait) {
  const auto at = [](const std::string& serial, const std::string& address) {
    NodeRow node = Node(serial, kKey);
    node.address = address;
    return node;
  };
  const std::string fill =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i "
      "< " +
      std::to_string(kNodesWaitingPerAddressMax) +
      ") INSERT INTO node_waiting SELECT 's-' || i, '" + kKey + "', x'', 'ipv4:192.0.2.7:' || i, " +
      std::to_string(kNow.unix_ms) + ", " + std::to_string(kNow.unix_ms) + ", NULL FROM n";
  ASSERT_TRUE(
      storage::Database::Open(folder_ + "/accounts.db").value()->Execute(fill.c_str()).ok());
  const absl::Status status = registry_->NoteWaiting(at("new", "ipv4:192.0.2.7:9"), kNow);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(NodeWord(std::string(status.message())), kTooManyWait);
  EXPECT_TRUE(registry_->NoteWaiting(at("s-1", "ipv4:192.0.2.7:9"), kNow).ok()) << "waits already";
  EXPECT_TRUE(registry_->NoteWaiting(at("new", "ipv4:192.0.2.8:9"), kNow).ok());
}

TEST_F(NodeRegistryTest, Expected_LetsInOne) {
  EXPECT_TRUE(absl::IsNotFound(registry_->Find("s-1").status()));
  ASSERT_TRUE(registry_->Expect("s-1", kNow).ok());
  EXPECT_TRUE(registry_->Find("s-1")->is_expected);
  ASSERT_TRUE(registry_->Enrolled(Node("s-1", kKey), kNow).ok());
  EXPECT_FALSE(registry_->Find("s-1")->is_expected);
  ASSERT_TRUE(registry_->Expect("s-1", kNow).ok());
  EXPECT_TRUE(registry_->Find("s-1")->is_expected);
  EXPECT_EQ(registry_->Find("s-1")->state, NodeState::kEnrolled);
  ASSERT_TRUE(registry_->Remove("s-1").ok());
  EXPECT_TRUE(absl::IsNotFound(registry_->Find("s-1").status()));
  EXPECT_TRUE(absl::IsNotFound(registry_->Remove("s-1")));
}

TEST_F(NodeRegistryTest, WhatTheGatewayKeeps_IsThereForTheNextProcess) {
  const std::string claim = Claim("s-1");
  ASSERT_TRUE(registry_->Enrolled(Node("s-2", kKey), kNow).ok());
  registry_ = NodeRegistry::Open(folder_ + "/accounts.db").value();
  EXPECT_TRUE(registry_->CheckClaim(claim, "s-1", kKey, kNow).ok());
  EXPECT_EQ(registry_->Find("s-2")->key_id, kKey);
}

TEST_F(NodeRegistryTest, FactsAndSerials_AreBounded) {
  for (const std::string& serial : {std::string(), std::string(57, 's'), std::string("../x"),
                                    std::string("a b"), std::string("a/b"), std::string(".x")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(registry_->MakeClaim(serial, kNow).status())) << serial;
    proto::NodeFacts facts;
    facts.set_serial(serial);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckNodeFacts(facts))) << serial;
  }
  proto::NodeFacts facts;
  facts.set_serial("s-1");
  EXPECT_TRUE(CheckNodeFacts(facts).ok());
  for (int i = 0; i < kNodeListsMax; ++i) facts.add_mac("x");
  EXPECT_TRUE(CheckNodeFacts(facts).ok());
  facts.add_mac("x");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckNodeFacts(facts)));
  facts.clear_mac();
  facts.set_image("a\nb");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckNodeFacts(facts)));
}

TEST_F(NodeRegistryTest, ANodesLog_IsEscapedAndBounded) {
  NodeLogs logs(folder_);
  EXPECT_TRUE(absl::IsNotFound(logs.Read("s-1").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(logs.Append("../s", {"x"})));
  ASSERT_TRUE(logs.Append("s-1", {"first", "\x1b[31mred\n"}).ok());
  EXPECT_EQ(logs.Read("s-1").value(), "first\n\\x1b[31mred\\x0a\n");
  for (int i = 0; i < 5000; ++i)
    ASSERT_TRUE(logs.Append("s-1", {std::string(2000, 'x'), "end " + std::to_string(i)}).ok());
  const std::string text = logs.Read("s-1").value();
  EXPECT_LE(text.size(), 2 * kNodeLogBytesMax);
  EXPECT_TRUE(text.ends_with("end 4999\n"));
}

TEST_F(NodeRegistryTest, OfSeveralDriversForAKernel_TheLastCounts) {
  const auto drivers = DriverRows::Open(folder_ + "/accounts.db").value();
  EXPECT_FALSE(drivers->ForKernel("6.1.0-1")->has_value());
  for (const auto& [digest, kernel] : std::vector<std::pair<std::string, std::string>>{
           {"sha256:a", "6.1.0-1"}, {"sha256:b", "6.1.0-2"}, {"sha256:c", "6.1.0-1"}})
    ASSERT_TRUE(
        drivers->Add({.digest = digest, .kernel = kernel, .bytes = 7, .added = kNow}).ok());
  EXPECT_EQ(drivers->ForKernel("6.1.0-1").value()->digest, "sha256:c");
  EXPECT_EQ(drivers->ForKernel("6.1.0-2").value()->digest, "sha256:b");
  EXPECT_FALSE(drivers->ForKernel("6.1.0-3")->has_value());
  // Added again, an earlier one is the last.
  ASSERT_TRUE(
      drivers->Add({.digest = "sha256:a", .kernel = "6.1.0-1", .bytes = 7, .added = kNow}).ok());
  EXPECT_EQ(drivers->ForKernel("6.1.0-1").value()->digest, "sha256:a");
  EXPECT_EQ(drivers->List()->size(), 3u);
}

}  // namespace
}  // namespace outboard::gateway
