// A process that is killed at every write of the books, once at each: after it was started again
// and has gone on, the books balance, and nothing is charged twice.
//
// The same program is run as a child with OUTBOARD_FAILPOINT, then again without, on one folder;
// what a reader sees at the end is what an undisturbed run leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/failpoint.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/auditor.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/receipt_rows.h"
#include "gateway/server/ledger_writer.h"
#include "tests/gateway/support.h"
#include "tests/support/failpoints.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway::test {
namespace {

constexpr WallTime kJanuary{1'767'225'600'000}, kFebruary{1'769'904'000'000};  // of 2026
constexpr char kMonth[] = "2026-01";
constexpr TenantId kAnna{1}, kBert{2};

std::string BooksIn(const std::string& folder) { return folder + "/outboard.db"; }

Charge Range(uint64_t session, TenantId tenant, int64_t from_s) {
  return ChargeFor(DeviceOf(session), from_s, from_s + 5, tenant.value);
}
HoldRequest HoldOf(uint64_t session, TenantId tenant) {
  return {.lease = DeviceOf(session).lease,
          .tenant = tenant,
          .key_id = "0123456789abcdef",
          .prices_per_hour = {kDefaultPricePerHour},
          .to_ms = 60'000};
}

// What a gateway does in its life, in order; whoever is killed anywhere does all of it again.
void LiveIn(const std::string& folder) {
  const std::string books = BooksIn(folder);
  const auto ledger = OpenLedger(books);
  const auto rows = ValueOrDie(SessionRows::Open(books));
  const auto receipts = ValueOrDie(ReceiptRows::Open(books));
  const auto key = ValueOrDie(signing::SigningKey::Open(LedgerKeyPath(folder)));
  HeadSigner heads(ledger.get(), key);

  OB_CHECK_OK(ledger->SetCreditLimit(kAnna, MicroUsd{9'000'000}));
  if (!ValueOrDie(ledger->BudgetOf(kAnna)).cap.has_value())  // setting it again counts anew
    OB_CHECK_OK(ledger->SetCap(BudgetScope::kAccount, "1", MicroUsd{5'000'000}));
  // A lease of an old month, which is archived.
  if (!std::filesystem::exists(folder + "/ledger-" + kMonth + ".db")) {
    OB_CHECK_OK(ledger->Hold(HoldOf(50, kBert)).status());
    for (const int64_t from : {0, 5, 10})
      OB_CHECK_OK(ledger->Post(std::vector<Charge>{Range(50, kBert, from)}, kJanuary).status());
    OB_CHECK_OK(ledger->EndHold(DeviceOf(50).lease));
  }
  OB_CHECK_OK(ledger->ArchiveMonth(kMonth, kFebruary).status());
  for (const TenantId tenant : {kAnna, kBert})
    OB_CHECK_OK(ledger->Credit(tenant, MicroUsd{700'000}, "paid" + std::to_string(tenant.value),
                               kFebruary)
                    .status());
  OB_CHECK_OK(receipts->NameDevices(
      DeviceOf(1).lease, std::vector<std::string>{signing::PhysicalDevice(key.public_key(), 0)}));
  {
    LedgerWriter writer(ledger.get(), rows.get(), kNoCreditLimit, &heads, receipts.get());
    for (const auto& [session, tenant] : {std::pair(1, kAnna), {2, kBert}}) {
      std::promise<HoldAnswer> held;
      writer.Hold(HoldOf(static_cast<uint64_t>(session), tenant),
                  [&](HoldAnswer answer) { held.set_value(std::move(answer)); });
      OB_CHECK_OK(held.get_future().get().why);
    }
    for (const int64_t from : {0, 5, 10, 15}) {
      writer.Post({Range(1, kAnna, from), Range(2, kBert, from)},
                  [](TenantId, const absl::Status& why) { OB_CHECK_OK(why); });
      proto::Receipt receipt;
      receipt.set_session_id(DeviceOf(1).lease.session.Bytes());
      receipt.set_grant(1);
      receipt.set_number(static_cast<uint64_t>(from / 5 + 1));
      receipt.set_usable_ms(static_cast<uint64_t>(1000 * from + 5000));
      receipt.set_physical_device(signing::PhysicalDevice(key.public_key(), 0));
      signing::Sign(key, receipt);
      writer.KeepReceipts({receipt}, [](const proto::Receipt&, const absl::Status& why) {
        OB_CHECK_OK(why);
      });
    }
    for (const uint64_t session : {1, 2}) writer.EndHold(DeviceOf(session).lease);
    std::promise<void> written;
    writer.Then([&](const absl::Status& status) {
      OB_CHECK_OK(status);
      written.set_value();
    });
    written.get_future().get();
  }
  OB_CHECK_OK(ledger->EndAllHolds().status());
  OB_CHECK_OK(Audit(folder, books).status());
}

// All that is charged, held and counted.
std::string Seen(const std::string& folder) {
  std::ostringstream out;
  const auto ledger = OpenLedger(BooksIn(folder));
  const auto verified = ledger->Verify();
  if (!verified.ok()) return std::string(verified.status().message());
  out << verified->entries << " entries, " << verified->archived << " archived\n";
  for (const TenantId tenant : {kAnna, kBert}) {
    const SpendBudget budget = ValueOrDie(ledger->BudgetOf(tenant));
    const Usage usage = ValueOrDie(ledger->UsageOf(tenant));
    out << tenant.value << ": " << ledger->Balance(tenant)->value << " " << usage.device_ms
        << " ms " << usage.amount.value << ", held " << budget.held.value << ", spent "
        << budget.spent.value << "\n";
    for (const auto& entry : ValueOrDie(ledger->EntriesOf(tenant, 0, 1000)))
      out << entry.body.key << " " << entry.body.lines[0].amount.value << "\n";
  }
  out << ledger->Balance(LedgerAccount::Revenue())->value << "\n";
  const auto receipts = ValueOrDie(ReceiptRows::Open(BooksIn(folder)));
  for (const proto::Receipt& receipt : ValueOrDie(receipts->Of(DeviceOf(1).lease)))
    out << "receipt " << receipt.number() << " " << receipt.usable_ms() << "\n";
  return out.str();
}

int RunChild(const std::string& folder, const std::string& failpoint) {
  return outboard::test::RunChild("FailpointChild.DISABLED_Lives", folder, failpoint);
}

// What a child does.
TEST(FailpointChild, DISABLED_Lives) {
  const char* const folder = outboard::test::FolderOfChild();
  if (folder == nullptr) GTEST_SKIP() << "only as a child of the other tests";
  LiveIn(folder);
}

TEST(Failpoints, KilledAtEach_BooksBalanceAndNothingIsChargedTwice) {
  const auto failpoints = outboard::test::FailpointsOf(FailpointProcess::kGateway);
  EXPECT_GE(failpoints.size(), 30u);
  TempDir undisturbed;
  ASSERT_EQ(RunChild(undisturbed.File(""), ""), 0);
  const std::string expected = Seen(undisturbed.File(""));
  EXPECT_NE(expected.find("13 entries, 3 archived"), std::string::npos) << expected;
  EXPECT_NE(expected.find("receipt 4 20000"), std::string::npos) << expected;
  ASSERT_EQ(RunChild(undisturbed.File(""), ""), 0);  // all of it again
  EXPECT_EQ(Seen(undisturbed.File("")), expected);
  for (const auto& [name, process, interrupts] : failpoints) {
    SCOPED_TRACE(interrupts);
    for (const char* passes : {"", ":2"}) {  // the first time, and where there is one the third
      TempDir dir;
      const int ended = RunChild(dir.File(""), std::string(name) + passes);
      const bool killed = outboard::test::WasKilled(ended);
      if (*passes == '\0') EXPECT_TRUE(killed) << name << " is never passed: " << ended;
      if (!killed) continue;
      // What is there already verifies, before anything goes on.
      if (std::filesystem::exists(BooksIn(dir.File("")))) {
        const auto verified = OpenLedger(BooksIn(dir.File("")))->Verify();
        EXPECT_TRUE(verified.ok()) << name << passes << ": " << verified.status();
      }
      ASSERT_EQ(RunChild(dir.File(""), ""), 0) << name << passes;
      EXPECT_EQ(Seen(dir.File("")), expected) << name << passes;
    }
  }
}

// Each failpoint is killed at by the test of its process: here, or in worker_failpoints_test.
TEST(Failpoints, EachIsOfAProcessThatIsTested_AndThereOnce) {
  std::set<std::string_view> names;
  for (const auto& [name, process, interrupts] : kFailpoints) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(process == FailpointProcess::kGateway || process == FailpointProcess::kWorker)
        << name;
    EXPECT_FALSE(interrupts.empty()) << name;
  }
}

TEST(Failpoints, AnEnvironmentThatNamesNone_EndsTheProcess) {
  TempDir dir;
  const int ended = RunChild(dir.File(""), "ledger.post.nowhere");
  EXPECT_TRUE(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT) << ended;
}

}  // namespace
}  // namespace outboard::gateway::test
