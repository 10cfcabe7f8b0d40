// Keys at the door: what a wrong one costs, and what no key waits for.
#include "gateway/doors/key_door.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gateway/base/clock.h"
#include "storage/sqlite.h"
#include "tests/support/temp_folder.h"

namespace outboard::gateway {
namespace {

class KeyDoorTest : public ::testing::Test {
 protected:
  KeyDoorTest() {
    const Tenant tenant = accounts_->EnsureTenant("t", WallNow()).value();
    const NewApiKey made = accounts_->CreateKey(tenant.id, "k", WallNow()).value();
    key_ = std::string(made.text.Reveal());
    id_ = made.key.id;
  }
  std::future<absl::Status> Admit(const std::string& key, const std::string& peer) {
    auto answer = std::make_shared<std::promise<absl::Status>>();
    door_.Admit(
        {key, peer}, KeyScope::kRun, SlotKind::kCall,
        [answer](absl::StatusOr<Admitted> admitted) { answer->set_value(admitted.status()); });
    return answer->get_future();
  }
  // Wrong keys until the address is refused unheard. Each is judged before the next comes.
  std::vector<std::future<absl::Status>> SendWrongKeys(const std::string& peer) {
    std::vector<std::future<absl::Status>> wrong;
    while (refusals_.count(RefusalReason::kWrongKeysOfAddress) == 0 && wrong.size() < 10'000) {
      const uint64_t judged = refusals_.count(RefusalReason::kWrongKey) + 1;
      wrong.push_back(Admit("ob_live_wrong", peer));
      while (refusals_.count(RefusalReason::kWrongKey) < judged &&
             refusals_.count(RefusalReason::kWrongKeysOfAddress) == 0)
        std::this_thread::yield();
    }
    return wrong;
  }
  static bool IsReady(std::future<absl::Status>& answer) {
    return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  test::TempFolder folder_;
  std::unique_ptr<Accounts> accounts_ = Accounts::Open(folder_ / "a.db").value();
  std::string key_, id_;
  Authenticator authenticator_{accounts_.get(), nullptr, std::nullopt, "secret"};
  Refusals refusals_{[](RefusalReason, uint64_t, std::string_view) {}};
  AccountLimits limits_{{.calls = 8}, &refusals_};
  KeyDoor door_{&authenticator_, &limits_, &refusals_};
};

TEST_F(KeyDoorTest, GoodKey_IsLetIn) {
  EXPECT_EQ(Admit(key_, "ipv4:192.0.2.7:1").get(), absl::OkStatus());
}

TEST_F(KeyDoorTest, WrongKeys_WaitAndThenAreNotLookedAt) {
  const std::string peer = "ipv4:192.0.2.7:1";
  EXPECT_TRUE(Admit(key_, peer).get().ok());
  std::vector<std::future<absl::Status>> wrong = SendWrongKeys(peer);
  EXPECT_TRUE(absl::IsUnavailable(wrong.back().get()));
  // Others are let in, and so is who was here before.
  EXPECT_TRUE(Admit(key_, "ipv4:192.0.2.8:1").get().ok());
  EXPECT_TRUE(Admit(key_, peer).get().ok());
  door_.Stop();  // answers those that wait
  wrong.pop_back();
  for (std::future<absl::Status>& answer : wrong) {
    ASSERT_TRUE(IsReady(answer));
    EXPECT_TRUE(absl::IsUnauthenticated(answer.get()));
  }
}

TEST_F(KeyDoorTest, AKeyThatStandsNoMore_OpensNoClosedAddress) {
  const std::string peer = "ipv4:192.0.2.7:1";
  EXPECT_TRUE(Admit(key_, peer).get().ok());
  ASSERT_TRUE(accounts_->RevokeKey(id_, WallNow()).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Admit(key_, peer).get()));
  const std::vector<std::future<absl::Status>> wrong = SendWrongKeys(peer);
  EXPECT_TRUE(absl::IsUnavailable(Admit(key_, peer).get()));
}

// The proxy's own address has the limits of nobody behind it, and one who lies about being the
// proxy those of a wrong key.
TEST_F(KeyDoorTest, BehindAProxy_WrongKeysCloseTheirOwnAddressAlone) {
  const std::string secret(32, 's');
  Authenticator authenticator(accounts_.get(), nullptr, std::nullopt, "secret",
                              TrustedProxy(secret));
  KeyDoor door(&authenticator, &limits_, &refusals_);
  const auto admit = [&](const Credentials& credentials) {
    auto answer = std::make_shared<std::promise<absl::Status>>();
    door.Admit(
        credentials, KeyScope::kRun, SlotKind::kCall,
        [answer](absl::StatusOr<Admitted> admitted) { answer->set_value(admitted.status()); });
    return answer->get_future();
  };
  const std::string proxy = "ipv4:10.0.0.1:1";
  std::vector<std::future<absl::Status>> wrong;
  while (refusals_.count(RefusalReason::kWrongKeysOfAddress) == 0 && wrong.size() < 10'000)
    wrong.push_back(admit({"ob_live_wrong", proxy, secret, "192.0.2.7"}));
  EXPECT_TRUE(absl::IsUnavailable(admit({key_, proxy, secret, "192.0.2.7"}).get()));
  EXPECT_EQ(admit({key_, proxy, secret, "192.0.2.8"}).get(), absl::OkStatus());
  EXPECT_EQ(door.PeerOf({key_, proxy, secret, "192.0.2.8"}), "ipv4:192.0.2.8:0");
  // A wrong word costs the address of the connection.
  EXPECT_TRUE(
      absl::IsUnauthenticated(admit({key_, "ipv4:192.0.2.9:1", "wrong", "192.0.2.8"}).get()));
  door.Stop();
  EXPECT_EQ(refusals_.count(RefusalReason::kWrongKeysOfAddress), 2u);  // of `wrong`, of `key_`
  EXPECT_EQ(refusals_.count(RefusalReason::kWrongKey), wrong.size() - 1 + 1);
}

TEST_F(KeyDoorTest, AnAccountsCalls_AreLimited) {
  std::vector<Admitted> held;
  for (int i = 0; i < 20; ++i) {
    std::promise<void> done;
    door_.Admit({key_, "unix:"}, KeyScope::kRun, SlotKind::kCall,
                [&](absl::StatusOr<Admitted> admitted) {
                  if (admitted.ok()) held.push_back(*std::move(admitted));
                  done.set_value();
                });
    done.get_future().wait();
  }
  EXPECT_EQ(held.size(), 8u);
  EXPECT_EQ(refusals_.count(RefusalReason::kCallsOfAccount), 12u);
}

// Making keys, names and bills write to the same file, one after the other.
TEST_F(KeyDoorTest, AWriterOfTheAccountsFile_KeepsNobodyOut) {
  auto writer = storage::Database::Open(folder_ / "a.db").value();
  const absl::Status status =
      writer->Transaction(storage::Database::Mode::kWrite, [&]() -> absl::Status {
        auto answer = Admit(key_, "ipv4:192.0.2.7:1");
        EXPECT_EQ(answer.wait_for(std::chrono::seconds(5)), std::future_status::ready);
        return answer.get();
      });
  EXPECT_EQ(status, absl::OkStatus());
}

}  // namespace
}  // namespace outboard::gateway
