// Closed months in files: nothing that a reader of the books sees changes, and both parts verify.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/ledger_archive.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/invoice_check.h"
#include "gateway/proof/invoice_page.h"
#include "gateway/proof/receipt_rows.h"
#include "tests/gateway/support.h"

namespace {
std::atomic<bool> folders_cannot_sync{false};
std::atomic<bool> no_thread_is_left{false};
}  // namespace

// In place of the C library's: a process that has all the threads that it may.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  if (no_thread_is_left) return EAGAIN;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, run, argument);
}

// In place of the C library's: a disk whose folders cannot be written.
extern "C" int fsync(int file) {
  struct stat what {};
  if (folders_cannot_sync && fstat(file, &what) == 0 && S_ISDIR(what.st_mode)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace outboard::gateway::test {
namespace {

const WallTime kOctober = MonthFrom("2026-10")->begin, kNovember = MonthFrom("2026-10")->end;
constexpr int64_t kDayMs = 86'400'000;

void Execute(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
}

class LedgerArchiveTest : public ::testing::Test {
 protected:
  // Leases of two tenants that end in October, one that goes on in November, and credits between.
  LedgerArchiveTest() {
    for (int64_t day = 0; day < 35; ++day) {
      const WallTime at{kOctober.unix_ms + day * kDayMs + 1000};
      std::vector<Charge> charges;
      for (uint64_t session : {1, 2, 3}) {
        const bool goes_on = session == 3;
        if (!goes_on && at >= kNovember) continue;
        const auto grant = static_cast<uint64_t>(goes_on ? 1 : day / 5 + 1);
        const int64_t from = goes_on ? day * 7 : day % 5 * 7;
        charges.push_back(ChargeFor(DeviceOf(session, grant), from, from + 7,
                                    session == 2 ? 2 : 1));
      }
      EXPECT_TRUE(PostHeld(*ledger_, charges, at).ok());
      EXPECT_TRUE(
          ledger_->Credit(TenantId{day % 2 + 1}, MicroUsd{500}, "c" + std::to_string(day), at)
              .ok());
      if (day % 5 == 4 || day >= 30)
        for (const Charge& charge : charges)
          if (charge.device != DeviceOf(3)) EXPECT_TRUE(ledger_->EndHold(charge.device.lease).ok());
    }
    for (uint64_t session : {1, 2})
      for (uint64_t grant = 1; grant < 9; ++grant)
        EXPECT_TRUE(ledger_->EndHold(DeviceOf(session, grant).lease).ok());
  }

  struct Seen {
    std::vector<MicroUsd> balances;
    std::vector<Usage> usage;
    std::vector<std::string> heads;
    std::vector<int64_t> entries;
    bool operator==(const Seen&) const = default;
  };
  Seen Look() {
    Seen seen;
    HeadSigner heads(ledger_.get(), key_);
    const auto receipts = ValueOrDie(ReceiptRows::Open(path()));
    for (const TenantId tenant : {TenantId{1}, TenantId{2}}) {
      seen.balances.push_back(*ledger_->Balance(tenant));
      for (const WallTime since : {WallTime{INT64_MIN}, WallTime{kOctober.unix_ms + 12 * kDayMs}})
        seen.usage.push_back(*ledger_->UsageOf(tenant, {.since = since}));
      proto::InvoiceReply invoice;
      EXPECT_TRUE(InvoicePage(*ledger_, heads, *receipts, tenant, 0, invoice).ok());
      seen.heads.push_back(invoice.head().account_hash());
      seen.heads.push_back(invoice.head().ledger_hash());
      InvoiceCheck check({invoice.head()});
      for (const proto::InvoiceEntry& entry : invoice.entries()) {
        EXPECT_TRUE(check.Add(entry).ok());
        seen.entries.push_back(entry.number());
      }
      const auto report = check.Finish(invoice.head());
      EXPECT_TRUE(report.ok()) << report.status();
    }
    seen.balances.push_back(*ledger_->Balance(LedgerAccount::Revenue()));
    return seen;
  }
  absl::StatusOr<VerifyReport> VerifyWithoutThreads() {
    no_thread_is_left = true;
    auto report = ledger_->Verify();
    no_thread_is_left = false;
    return report;
  }
  std::string path() const { return dir_.File("books.db"); }
  std::string file() const { return dir_.File("ledger-2026-10.db"); }

  TempDir dir_;
  std::unique_ptr<Ledger> ledger_ = OpenLedger(path());
  const signing::SigningKey key_ = signing::SigningKey::Make();
};

TEST_F(LedgerArchiveTest, Months_AreWrittenAsTheyShouldBe) {
  EXPECT_EQ(MonthFrom("2024-02")->end.unix_ms - MonthFrom("2024-02")->begin.unix_ms, 29 * kDayMs);
  EXPECT_EQ(MonthFrom("2026-12")->end, MonthFrom("2027-01")->begin);
  for (const char* odd : {"", "2026", "2026-13", "2026-00", "2026-1", "2026/10", "20x6-10",
                          "../..-1", "2026-10 "})
    EXPECT_TRUE(absl::IsInvalidArgument(MonthFrom(odd).status())) << odd;
}

TEST_F(LedgerArchiveTest, Archive_ChangesNothingThatIsSeen) {
  const Seen before = Look();
  const auto verified = ledger_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  const auto moved = ledger_->ArchiveMonth("2026-10", kNovember);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(*moved, 31 * 2);  // not the lease that goes on
  EXPECT_TRUE(std::filesystem::exists(file()));
  EXPECT_EQ(Look(), before);
  const auto after = ledger_->Verify();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->head_hash, verified->head_hash);
  EXPECT_EQ(after->entries, verified->entries);
  EXPECT_EQ(after->archived, 62);
  EXPECT_EQ(*ledger_->ArchiveMonth("2026-10", kNovember), 0);  // again
  // And it goes on.
  ASSERT_TRUE(PostHeld(*ledger_, std::vector<Charge>{ChargeFor(DeviceOf(3), 245, 250)},
                       WallTime{kNovember.unix_ms + 9 * kDayMs})
                  .ok());
  ASSERT_TRUE(PostHeld(*ledger_, std::vector<Charge>{ChargeFor(DeviceOf(1, 40), 0, 5)},
                       WallTime{kNovember.unix_ms + 9 * kDayMs})
                  .ok());
  EXPECT_TRUE(ledger_->Verify().ok());
  Look();
}

TEST_F(LedgerArchiveTest, Credit_OfAnArchivedMonth_IsStillKnown) {
  ASSERT_TRUE(ledger_->ArchiveMonth("2026-10", kNovember).ok());
  EXPECT_TRUE(ledger_->Credit(TenantId{1}, MicroUsd{500}, "c0", kNovember)->replayed);
  EXPECT_TRUE(absl::IsAlreadyExists(
      ledger_->Credit(TenantId{1}, MicroUsd{501}, "c0", kNovember).status()));
}

TEST_F(LedgerArchiveTest, Month_ThatIsNotOver_Stays) {
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ledger_->ArchiveMonth("2026-10", WallTime{kNovember.unix_ms - 1}).status()));
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(LedgerArchiveTest, Lease_ThatHolds_Stays) {
  ASSERT_TRUE(ledger_
                  ->Hold({.lease = DeviceOf(1, 1).lease,
                          .tenant = TenantId{1},
                          .prices_per_hour = std::vector<MicroUsd>(4, kDefaultPricePerHour),
                          .to_ms = 60'000})
                  .ok());
  EXPECT_EQ(*ledger_->ArchiveMonth("2026-10", kNovember), 62 - 5);
  EXPECT_TRUE(ledger_->Verify().ok());
}

TEST_F(LedgerArchiveTest, File_ThatWasChangedOrLost_DoesNotVerify) {
  ASSERT_TRUE(ledger_->ArchiveMonth("2026-10", kNovember).ok());
  const std::string good = file() + ".good";
  std::filesystem::copy_file(file(), good);
  for (const char* change : {
           "UPDATE archived_entry SET price_per_hour = 1 WHERE number = 1",
           "UPDATE archived_entry SET to_s = to_s + 1 WHERE number = 1",
           "UPDATE archived_entry SET tenant = 2 WHERE number = 1",
           "DELETE FROM archived_entry WHERE number = 1",
           "UPDATE archived_entry SET body_hash = zeroblob(32) WHERE number = 1",
       }) {
    Execute(file(), change);
    EXPECT_TRUE(absl::IsDataLoss(ledger_->Verify().status()))
        << change << ledger_->Verify().status();
    std::filesystem::copy_file(good, file(), std::filesystem::copy_options::overwrite_existing);
    ASSERT_TRUE(ledger_->Verify().ok()) << change;
  }
  std::filesystem::remove(file());
  EXPECT_TRUE(absl::IsNotFound(ledger_->Verify().status())) << ledger_->Verify().status();
}

// A charge as good as entry 1, which the ledger never had.
TEST_F(LedgerArchiveTest, File_WithOneEntryMore_DoesNotVerify) {
  ASSERT_TRUE(ledger_->ArchiveMonth("2026-10", kNovember).ok());
  const Charge charge = ChargeFor(DeviceOf(4, 1), 0, 7, 1);
  Execute(file(), absl::StrCat("INSERT INTO archived_entry SELECT 999, at_ms, tenant, x'",
                               absl::BytesToHexString(charge.device.lease.session.Bytes()),
                               "', grant_number, device, price_per_hour, granted_ms, from_s, to_s, "
                               "unit_ms, x'", absl::BytesToHexString(BodyHash(BodyOf(charge))),
                               "', hash, use FROM archived_entry WHERE number = 1"));
  EXPECT_EQ(ledger_->Verify().status(),
            absl::DataLossError("ledger: entry 999 of 2026-10 is not one of the ledger's"));
}

// What would be added to each account's balance, so that L6 alone does not find it.
constexpr char kDropped[] =
    "UPDATE ledger_account SET balance = balance - (SELECT amount FROM ledger_archived_sum s "
    "WHERE s.account = ledger_account.id) "
    "WHERE id IN (SELECT account FROM ledger_archived_sum WHERE month = '2026-10'); "
    "DELETE FROM ledger_archived_sum WHERE month = '2026-10'";
constexpr char kOfNoEntry[] =
    "INSERT INTO ledger_account(name, balance) VALUES('tenant:9', 500); "
    "INSERT INTO ledger_archived_sum SELECT '2026-10', id, 500 FROM ledger_account "
    "WHERE name = 'tenant:9'; "
    "INSERT INTO ledger_archived_sum SELECT '2026-10', id, -500 FROM ledger_account "
    "WHERE name = 'payments'; "
    "UPDATE ledger_account SET balance = balance - 500 WHERE name = 'payments'";
constexpr char kOfAnotherMonth[] =
    "INSERT INTO ledger_archived_sum SELECT '2026-09', id, 500 FROM ledger_account "
    "WHERE name = 'tenant:1'; "
    "INSERT INTO ledger_archived_sum SELECT '2026-09', id, -500 FROM ledger_account "
    "WHERE name = 'revenue'; "
    "UPDATE ledger_account SET balance = balance + 500 WHERE name = 'tenant:1'; "
    "UPDATE ledger_account SET balance = balance - 500 WHERE name = 'revenue'";
// Entry 1, of tenant 1, in all sums that are stored.
constexpr char kOfAnotherAmount[] =
    "DROP TRIGGER ledger_entry_fixed; DROP TRIGGER ledger_use_fixed; "
    "UPDATE ledger_use SET session_amount = session_amount - 1 WHERE session = (SELECT session "
    "FROM ledger_use WHERE entry = 1); "
    "UPDATE ledger_use SET amount = amount - 1; "
    "UPDATE ledger_use SET tenant_amount = tenant_amount - 1 WHERE tenant = 1; "
    "UPDATE ledger_entry SET archived_amount = archived_amount - 1 WHERE number = 1; "
    "UPDATE ledger_archived_sum SET amount = amount + 1 WHERE account = (SELECT id FROM "
    "ledger_account WHERE name = 'tenant:1'); "
    "UPDATE ledger_archived_sum SET amount = amount - 1 WHERE account = (SELECT id FROM "
    "ledger_account WHERE name = 'revenue'); "
    "UPDATE ledger_account SET balance = balance + 1 WHERE name = 'tenant:1'; "
    "UPDATE ledger_account SET balance = balance - 1 WHERE name = 'revenue'";

TEST_F(LedgerArchiveTest, Ledger_OfWhichAnArchivedPartWasChanged_DoesNotVerify) {
  ASSERT_TRUE(ledger_->ArchiveMonth("2026-10", kNovember).ok());
  ledger_.reset();
  const std::string good = path() + ".good";
  std::filesystem::copy_file(path(), good);
  for (const char* change : {
           "UPDATE ledger_archived_sum SET amount = amount + 1 WHERE account = 1",
           "DROP TRIGGER ledger_entry_fixed; UPDATE ledger_entry SET archived_amount = 0 "
           "WHERE number = 1",
           "DROP TRIGGER ledger_entry_fixed; UPDATE ledger_entry SET to_s = to_s + 1 "
           "WHERE number = 1",
           "DROP TRIGGER ledger_entry_fixed; UPDATE ledger_entry SET body_hash = zeroblob(32) "
           "WHERE number = 1",
           // Balances that agree with it.
           kDropped, kOfNoEntry, kOfAnotherMonth, kOfAnotherAmount,
           "DROP TRIGGER ledger_entry_fixed; UPDATE ledger_entry SET grant_number = 77 "
           "WHERE number = 1",
           "DROP TRIGGER ledger_entry_fixed; UPDATE ledger_entry SET archived_amount = NULL "
           "WHERE number = 1",
       }) {
    for (const char* more : {"-wal", "-shm"}) std::filesystem::remove(path() + more);
    std::filesystem::copy_file(good, path(), std::filesystem::copy_options::overwrite_existing);
    Execute(path(), change);
    EXPECT_TRUE(absl::IsDataLoss(OpenLedger(path())->Verify().status()))
        << change << OpenLedger(path())->Verify().status();
  }
}

TEST_F(LedgerArchiveTest, Verify_WithoutAThreadToSpare_LooksAtTheStructureAllTheSame) {
  ASSERT_TRUE(ledger_->ArchiveMonth("2026-10", kNovember).ok());
  const auto sound = VerifyWithoutThreads();
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_EQ(sound->archived, 62);
  // Nothing else looks at this.
  Execute(path(), "PRAGMA ignore_check_constraints=ON; UPDATE ledger_budget SET cap = -1");
  const absl::Status alone = VerifyWithoutThreads().status();
  EXPECT_TRUE(absl::IsDataLoss(alone)) << alone;
  const absl::Status beside = ledger_->Verify().status();
  EXPECT_TRUE(absl::IsDataLoss(beside)) << beside;
}

// The name of the month's file may not be on disk yet: nothing goes from the ledger.
TEST_F(LedgerArchiveTest, FolderThatCannotBeSynced_NothingIsMoved_AndItGoesOnLater) {
  const Seen before = Look();
  folders_cannot_sync = true;
  const auto failed = ledger_->ArchiveMonth("2026-10", kNovember);
  folders_cannot_sync = false;
  EXPECT_TRUE(absl::IsUnavailable(failed.status())) << failed.status();
  EXPECT_EQ(ledger_->Verify()->archived, 0);
  EXPECT_EQ(Look(), before);
  EXPECT_EQ(*ledger_->ArchiveMonth("2026-10", kNovember), 62);
  EXPECT_EQ(Look(), before);
}

// As after a crash between the file and the ledger: the file has what is to move.
TEST_F(LedgerArchiveTest, Archive_FindsItsFileWritten_GoesOn) {
  const Seen before = Look();
  const std::string unmoved = path() + ".unmoved";
  ledger_.reset();
  std::filesystem::copy_file(path(), unmoved);
  ledger_ = OpenLedger(path());
  ASSERT_EQ(*ledger_->ArchiveMonth("2026-10", kNovember), 62);
  ledger_.reset();
  for (const char* more : {"-wal", "-shm"}) std::filesystem::remove(path() + more);
  std::filesystem::copy_file(unmoved, path(), std::filesystem::copy_options::overwrite_existing);
  ledger_ = OpenLedger(path());
  EXPECT_EQ(*ledger_->ArchiveMonth("2026-10", kNovember), 62);
  EXPECT_EQ(Look(), before);
  EXPECT_TRUE(ledger_->Verify().ok());
}

// As after a crash between two transactions, or as an audit sees it that runs meanwhile.
TEST_F(LedgerArchiveTest, LeaseOfWhichAPartHasMoved_Verifies_AndTheRestMovesLater) {
  constexpr int64_t kCharges = 2100, kMovedAtOnce = 2000;
  const WallTime november{kNovember.unix_ms + 10 * kDayMs};
  const WallTime december = MonthFrom("2026-11")->end;
  std::vector<Charge> charges;
  for (int64_t i = 0; i < kCharges; ++i) charges.push_back(ChargeFor(DeviceOf(9), i, i + 1));
  ASSERT_TRUE(PostHeld(*ledger_, charges, november).ok());
  ASSERT_TRUE(ledger_->EndHold(DeviceOf(9).lease).ok());
  Execute(path(), "CREATE TRIGGER full BEFORE UPDATE ON ledger_entry WHEN NEW.number = " +
                      std::to_string(*ledger_->LastEntry()) +
                      " BEGIN SELECT RAISE(ABORT, 'no room'); END");
  EXPECT_FALSE(ledger_->ArchiveMonth("2026-11", december).ok());
  Execute(path(), "DROP TRIGGER full");
  const auto partly = ledger_->Verify();
  ASSERT_TRUE(partly.ok()) << partly.status();
  EXPECT_EQ(partly->archived, kMovedAtOnce);
  EXPECT_EQ(*ledger_->ArchiveMonth("2026-11", december), kCharges - kMovedAtOnce);
  const auto all = ledger_->Verify();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->archived, kCharges);
}

}  // namespace
}  // namespace outboard::gateway::test
