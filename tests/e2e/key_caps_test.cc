// The cap of a key, with real processes: where it ends a session, who goes on, and whose bill that
// is.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::Outboard;

// A cent for a second of a device.
constexpr char kPrice[] = "--price 36 --snapshot-every 1";
constexpr int64_t kCapMicroUsd = 40'000;

class KeyCapsTest : public ::testing::Test {
 protected:
  struct Key {
    std::string id, text;
  };
  Key MakeKey(const std::string& name) {
    const test::Ended made = Outboard("key create --json --name " + name + Data());
    EXPECT_EQ(made.code, 0) << made.err;
    const auto part = [&](const std::string& field) {
      const size_t at = made.out.find("\"" + field + "\": \"") + field.size() + 5;
      return made.out.substr(at, made.out.find('"', at) - at);
    };
    return {part("id"), part("key")};
  }
  std::string Data() const { return " --data " + cluster_.data(); }
  session::SessionOptions OptionsOf(const Key& key) {
    session::SessionOptions options;
    options.target = cluster_.target();
    options.key = key.text;
    return options;
  }
  void SetCap(const Key& key, const std::string& usd) {
    const test::Ended set = Outboard("cap set " + usd + " --key " + key.id + Data());
    EXPECT_EQ(set.code, 0) << set.err;
  }
  gateway::SpendBudget BudgetOf(const Key& key) {
    return cluster_.Books()->BudgetOf(gateway::BudgetScope::kKey, key.id).value();
  }
  // Until the session ends for want of money; the last status.
  static absl::Status StepUntilStopped(Session& session) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    absl::Status status;
    while (status.ok() && std::chrono::steady_clock::now() < until) status = test::Step(session);
    return status;
  }

  test::Cluster cluster_;
};

TEST_F(KeyCapsTest, ACapEndsItsSession_AndAHigherOneLetsItGoOn) {
  cluster_.StartUp(1, kPrice);
  const Key capped = MakeKey("capped");
  SetCap(capped, "0.04");
  session::SessionOptions options = OptionsOf(capped);
  options.name = "job";
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status() << cluster_.gateway().err();
  const absl::Status stopped = StepUntilStopped(**session);
  EXPECT_EQ(stopped.code(), absl::StatusCode::kResourceExhausted) << stopped;
  const std::string cap = "the cap of the key " + capped.id;
  EXPECT_NE(std::string(stopped.message()).find(cap), std::string::npos) << stopped;
  // To the millisecond, and no further.
  EXPECT_TRUE(test::Eventually([&] { return BudgetOf(capped).held.value == 0; }));
  EXPECT_LE(BudgetOf(capped).spent.value, kCapMicroUsd);
  EXPECT_GT(BudgetOf(capped).spent.value, kCapMicroUsd / 2);
  const auto again = Session::Connect(OptionsOf(capped));
  if (again.ok()) EXPECT_FALSE(StepUntilStopped(**again).ok()) << "what was left is little";
  SetCap(capped, "5");
  ASSERT_TRUE((*session)->Resume(std::nullopt).ok());
  EXPECT_TRUE(test::Step(**session).ok());
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_TRUE(cluster_.Books()->Verify().ok());
}

// The session runs all the while: its first client is replaced by one with another key.
TEST_F(KeyCapsTest, ASessionThatAnotherKeyEnters_IsOnThatKeysBill) {
  cluster_.StartUp(1, kPrice);
  const Key first = MakeKey("first"), second = MakeKey("second");
  SetCap(second, "0.04");
  session::SessionOptions options = OptionsOf(first);
  options.name = "job";
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status() << cluster_.gateway().err();
  ASSERT_TRUE(test::Step(**session).ok());
  session::SessionOptions enters = OptionsOf(second);
  enters.attach = "job";
  auto other = Session::Connect(enters);
  ASSERT_TRUE(other.ok()) << other.status() << cluster_.gateway().err();
  EXPECT_EQ(test::Step(**session).code(), absl::StatusCode::kAborted);
  const absl::Status stopped = StepUntilStopped(**other);
  EXPECT_EQ(stopped.code(), absl::StatusCode::kResourceExhausted) << stopped;
  EXPECT_TRUE(test::Eventually([&] { return BudgetOf(second).held.value == 0; }));
  EXPECT_EQ(BudgetOf(first).held.value, 0);
  const int64_t by_second = BudgetOf(second).spent.value;
  EXPECT_LE(by_second, kCapMicroUsd);
  EXPECT_GT(by_second, kCapMicroUsd / 2);
  const auto usage = Outboard("usage --by key --json" + Data());
  EXPECT_NE(usage.out.find(first.id), std::string::npos) << usage.out;
  EXPECT_NE(usage.out.find(second.id), std::string::npos) << usage.out;
  EXPECT_TRUE(cluster_.Books()->Verify().ok());
  // And with the first one it goes on.
  enters.key = first.text;
  auto back = Session::Connect(enters);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(test::Step(**back).ok());
  EXPECT_EQ(BudgetOf(second).spent.value, by_second);
  EXPECT_TRUE((*back)->Close().ok());
}

}  // namespace
}  // namespace outboard
