// Two gateways on one data folder, whose lock does not keep them apart: the one that came first
// writes nothing any more.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <vector>

#include "gateway/accounts/folder_turn.h"
#include "gateway/server/ledger_writer.h"
#include "tests/gateway/support.h"
#include "tests/support/gateway_test.h"

namespace outboard::gateway::test {
namespace {

TEST(FolderTurn, WhoseTurnIsOver_WritesNothing) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  const std::unique_ptr<Ledger> first = OpenLedger(path);
  first->GuardWrites(ValueOrDie(FolderTurn::Take(path)).Guard());
  const std::vector<Charge> charges = {ChargeFor(DeviceOf(1), 0, 5)};
  ASSERT_TRUE(PostHeld(*first, charges, kNoon).ok());

  const std::unique_ptr<Ledger> second = OpenLedger(path);
  second->GuardWrites(ValueOrDie(FolderTurn::Take(path)).Guard());
  const HoldRequest hold{.lease = DeviceOf(2).lease,
                         .tenant = TenantId{1},
                         .prices_per_hour = {kDefaultPricePerHour},
                         .to_ms = 60'000};
  EXPECT_TRUE(IsReplaced(first->Hold(hold).status()));
  EXPECT_TRUE(IsReplaced(first->EndHold(DeviceOf(1).lease)));
  EXPECT_TRUE(IsReplaced(first->EndAllHolds().status()));
  EXPECT_TRUE(IsReplaced(first->Post(charges, kNoon).status()));
  EXPECT_EQ(second->Balance(TenantId{1})->value, -charges[0].amount.value);
  EXPECT_TRUE(second->Hold(hold).ok());
  // The operator has no turn, and needs none.
  EXPECT_TRUE(OpenLedger(path)->Credit(TenantId{1}, MicroUsd{5}, "c", kNoon).ok());
}

TEST(FolderTurn, AWriterThatIsReplaced_GivesUpOnce) {
  TempDir dir;
  const std::string path = dir.File("books.db");
  const std::unique_ptr<Ledger> ledger = OpenLedger(path);
  const std::unique_ptr<SessionRows> rows = ValueOrDie(SessionRows::Open(path));
  ledger->GuardWrites(ValueOrDie(FolderTurn::Take(path)).Guard());
  ValueOrDie(FolderTurn::Take(path));
  LedgerWriter writer(ledger.get(), rows.get());
  int replaced = 0;
  writer.OnGivenUp([&](const absl::Status&) { ++replaced; });
  for (int i = 0; i < 3; ++i)
    writer.Post({ChargeFor(DeviceOf(1), 0, 5)},
                [](TenantId, const absl::Status&) { ADD_FAILURE() << "nobody is to blame"; });
  std::promise<absl::Status> told;
  writer.Then([&](const absl::Status& status) { told.set_value(status); });
  EXPECT_TRUE(IsReplaced(told.get_future().get()));
  EXPECT_TRUE(IsReplaced(writer.trouble()));
  EXPECT_EQ(replaced, 1);
}

class TwoGatewaysTest : public outboard::test::GatewayTest {};

TEST_F(TwoGatewaysTest, TheFirstIsToldToEnd_AndServesNobody) {
  GatewayOptions options;
  options.no_auth = true;
  std::promise<void> replaced;
  options.on_replaced = [&] { replaced.set_value(); };
  StartGateway(options);
  StartWorker();
  std::filesystem::remove(data() + "/gateway.lock");
  options.listen = "unix:" + folder_ / "s2";
  options.fleet_listen = "unix:" + folder_ / "f2";
  options.data_folder = data();
  options.on_replaced = [] { ADD_FAILURE() << "the second is the last"; };
  auto second = Gateway::Start(options);
  ASSERT_TRUE(second.ok()) << second.status();
  const auto session = Session::Connect(Options());
  EXPECT_TRUE(absl::IsUnavailable(session.status())) << session.status();
  replaced.get_future().wait();
}

}  // namespace
}  // namespace outboard::gateway::test
