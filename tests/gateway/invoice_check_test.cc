// An invoice that is anything but what the ledger posted is found, whoever changed it.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/ledger/ledger.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/invoice_check.h"
#include "gateway/proof/invoice_page.h"
#include "gateway/proof/receipt_rows.h"
#include "tests/gateway/support.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway::test {
namespace {

constexpr TenantId kMine{1}, kOther{2};

struct Books {
  explicit Books(const std::string& path, const signing::SigningKey& key)
      : ledger(OpenLedger(path)),
        receipts(ValueOrDie(ReceiptRows::Open(path))),
        heads(ledger.get(), key) {}

  // Two leases of this account and one of another, in turns, and a credit.
  void Post(int64_t rounds, int64_t seconds = 5) {
    for (int64_t i = 0; i < rounds; ++i, ++round) {
      const int64_t from = round * seconds, to = from + seconds;
      ASSERT_TRUE(PostHeld(*ledger,
                           std::vector<Charge>{ChargeFor(DeviceOf(1), from, to, kMine.value),
                                               ChargeFor(DeviceOf(9), from, to, kOther.value),
                                               ChargeFor(DeviceOf(2, 3), from, to, kMine.value)},
                           WallTime{kNoon.unix_ms + 1000 * to})
                      .ok());
      ASSERT_TRUE(ledger
                      ->Credit(i % 2 == 0 ? kMine : kOther, MicroUsd{50'000},
                               "invoice-" + std::to_string(round), kNoon)
                      .ok());
    }
  }
  // All pages as one reply, with the head of the last.
  proto::InvoiceReply Invoice(TenantId tenant = kMine) {
    proto::InvoiceReply all;
    for (int64_t after = 0;;) {
      proto::InvoiceReply page;
      EXPECT_TRUE(InvoicePage(*ledger, heads, *receipts, tenant, after, page).ok());
      for (const auto& entry : page.entries()) *all.add_entries() = entry;
      *all.mutable_head() = page.head();
      if (page.next() == 0) return all;
      after = page.next();
    }
  }

  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<ReceiptRows> receipts;
  HeadSigner heads;
  int64_t round = 0;
};

absl::StatusOr<InvoiceReport> Check(const proto::InvoiceReply& invoice,
                                    std::vector<proto::LedgerHead> seen = {}) {
  InvoiceCheck check(std::move(seen));
  for (const proto::InvoiceEntry& entry : invoice.entries()) {
    const absl::Status status = check.Add(entry);
    if (!status.ok()) return status;
  }
  for (const proto::Receipt& receipt : invoice.receipts()) {
    const absl::Status status = check.AddReceipt(receipt);
    if (!status.ok()) return status;
  }
  return check.Finish(invoice.head());
}

class InvoiceCheckTest : public ::testing::Test {
 protected:
  TempDir dir_;
  const signing::SigningKey key_ = signing::SigningKey::Make();
};

TEST_F(InvoiceCheckTest, Invoice_OfTheLedger_Verifies) {
  Books books(dir_.File("books.db"), key_);
  std::vector<proto::LedgerHead> seen;
  for (int i = 0; i < 3; ++i) {
    books.Post(3);
    seen.push_back(books.Invoice().head());
  }
  const auto report = Check(books.Invoice(), seen);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->entries, 9 * 2 + 6);
  EXPECT_EQ(report->used, *books.ledger->UsageOf(kMine));
  EXPECT_EQ(report->balance, *books.ledger->Balance(kMine));
  EXPECT_EQ(report->heads_seen, 3);
  EXPECT_EQ(report->leases, 2);
  EXPECT_EQ(report->leases_receipted, 0);
}

TEST_F(InvoiceCheckTest, Invoice_OfNothing_Verifies) {
  Books books(dir_.File("books.db"), key_);
  const auto report = Check(books.Invoice());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->entries, 0);
}

TEST_F(InvoiceCheckTest, Invoice_OfManyPages_Verifies) {
  Books books(dir_.File("books.db"), key_);
  books.Post(kInvoiceEntriesMax / 2 + 3, 1);
  const auto report = Check(books.Invoice());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->entries, kInvoiceEntriesMax);
}

// As a gateway would that changes what it shows and signs that with its own key.
TEST_F(InvoiceCheckTest, Invoice_ThatWasChanged_DoesNotVerify) {
  Books books(dir_.File("books.db"), key_);
  books.Post(4);
  const proto::InvoiceReply good = books.Invoice();
  using Change = std::function<void(proto::InvoiceReply&)>;
  const auto use = [](auto change) -> Change {
    return [change](proto::InvoiceReply& invoice) {
      for (auto& entry : *invoice.mutable_entries())
        if (entry.has_use()) return change(entry);
    };
  };
  const std::vector<std::pair<const char*, Change>> changes = {
      {"number", use([](auto& entry) { entry.set_number(entry.number() + 1000); })},
      {"time", use([](auto& entry) { entry.set_at_unix_ms(entry.at_unix_ms() - 1); })},
      {"key", use([](auto& entry) { entry.set_key(entry.key() + "0"); })},
      {"memo", use([](auto& entry) { entry.set_memo("for you"); })},
      {"amount", use([](auto& entry) {
         for (auto& side : *entry.mutable_sides())
           side.set_amount_micro_usd(side.amount_micro_usd() * 2);
       })},
      {"one side", use([](auto& entry) { entry.mutable_sides(0)->set_amount_micro_usd(-1); })},
      {"account", use([](auto& entry) { entry.mutable_sides(0)->set_account("tenant:2"); })},
      {"session", use([](auto& entry) {
         (*entry.mutable_use()->mutable_session_id())[0] ^= 1;
       })},
      {"lease", use([](auto& entry) { entry.mutable_use()->set_grant(7); })},
      {"device", use([](auto& entry) { entry.mutable_use()->set_device(1); })},
      {"price", use([](auto& entry) {
         entry.mutable_use()->set_price_per_hour_micro_usd(1'000'000);
       })},
      {"begin", use([](auto& entry) { entry.mutable_use()->set_granted_unix_ms(1); })},
      {"from", use([](auto& entry) { entry.mutable_use()->set_from(1); })},
      {"to", use([](auto& entry) { entry.mutable_use()->set_to(6000); })},
      {"unit", use([](auto& entry) { entry.mutable_use()->set_unit_ms(1000); })},
      {"state", use([](auto& entry) { entry.mutable_use()->set_state(1); })},
      {"no state of ours", use([](auto& entry) { entry.mutable_use()->set_state(4); })},
      {"no unit", use([](auto& entry) { entry.mutable_use()->set_unit_ms(0); })},
      {"no use", use([](auto& entry) { entry.clear_use(); })},
      {"a credit left out", [](auto& invoice) {
         for (int i = 0; i < invoice.entries_size(); ++i)
           if (!invoice.entries(i).has_use())
             return invoice.mutable_entries()->DeleteSubrange(i, 1);
       }},
      {"the end left out", [](auto& invoice) { invoice.mutable_entries()->RemoveLast(); }},
      {"all left out", [](auto& invoice) { invoice.clear_entries(); }},
      {"twice", [](auto& invoice) { *invoice.add_entries() = invoice.entries(0); }},
      {"other order", [](auto& invoice) { invoice.mutable_entries()->SwapElements(1, 2); }},
      {"another's head", [&](auto& invoice) {
         *invoice.mutable_head() = books.Invoice(kOther).head();
       }},
      {"unsigned head", [](auto& invoice) { invoice.mutable_head()->set_ledger_entries(99); }},
  };
  ASSERT_TRUE(Check(good).ok());
  for (const auto& [what, change] : changes) {
    proto::InvoiceReply invoice = good;
    change(invoice);
    EXPECT_TRUE(absl::IsDataLoss(Check(invoice).status())) << what << Check(invoice).status();
  }
}

TEST_F(InvoiceCheckTest, Ledger_ThatWasWrittenAnew_IsFoundByAHeadThatWasSeen) {
  Books books(dir_.File("books.db"), key_), anew(dir_.File("anew.db"), key_);
  books.Post(3);
  const proto::LedgerHead seen = books.Invoice().head();
  anew.Post(4, /*seconds=*/6);
  EXPECT_TRUE(Check(anew.Invoice()).ok());
  const absl::Status found = Check(anew.Invoice(), {seen}).status();
  EXPECT_TRUE(absl::IsDataLoss(found)) << found;
  EXPECT_NE(found.message().find("written anew"), std::string::npos) << found;
}

TEST_F(InvoiceCheckTest, Ledger_OfWhichTheEndIsCut_IsFoundByAHeadThatWasSeen) {
  Books books(dir_.File("books.db"), key_), shorter(dir_.File("shorter.db"), key_);
  books.Post(3);
  shorter.Post(2);
  const absl::Status found = Check(shorter.Invoice(), {books.Invoice().head()}).status();
  EXPECT_TRUE(absl::IsDataLoss(found)) << found;
  EXPECT_NE(found.message().find("cut"), std::string::npos) << found;
}

TEST_F(InvoiceCheckTest, Gateway_WithAnotherKey_IsFoundByAHeadThatWasSeen) {
  Books books(dir_.File("books.db"), key_);
  books.Post(2);
  const proto::LedgerHead seen = books.Invoice().head();
  HeadSigner other(books.ledger.get(), signing::SigningKey::Make());
  proto::InvoiceReply invoice = books.Invoice();
  *invoice.mutable_head() = *other.Refresh(kMine)->head;
  EXPECT_TRUE(Check(invoice).ok());
  EXPECT_TRUE(absl::IsDataLoss(Check(invoice, {seen}).status()));
}

TEST_F(InvoiceCheckTest, Charges_BeyondWhatTheWorkerSigned_DoNotVerify) {
  Books books(dir_.File("books.db"), key_);
  books.Post(4);  // 20 s of each lease
  const signing::SigningKey worker = signing::SigningKey::Make();
  const auto with_receipt = [&](uint64_t usable_ms) {
    proto::InvoiceReply invoice = books.Invoice();
    proto::Receipt& receipt = *invoice.add_receipts();
    receipt.set_session_id(DeviceOf(1).lease.session.Bytes());
    receipt.set_grant(1);
    receipt.set_number(1);
    receipt.set_usable_ms(usable_ms);
    receipt.set_physical_device(signing::PhysicalDevice(worker.public_key(), 0));
    signing::Sign(worker, receipt);
    return invoice;
  };
  const auto report = Check(with_receipt(20'000 - kReceiptSlackMs));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->leases_receipted, 1);
  EXPECT_TRUE(absl::IsDataLoss(Check(with_receipt(20'000 - kReceiptSlackMs - 1)).status()));
  proto::InvoiceReply forged = with_receipt(20'000);
  forged.mutable_receipts(0)->set_usable_ms(30'000);
  EXPECT_TRUE(absl::IsDataLoss(Check(forged).status()));
}

// Heads are of what was posted by whichever process.
TEST_F(InvoiceCheckTest, Heads_CoverWhatAnotherProcessPosted) {
  Books books(dir_.File("books.db"), key_);
  books.Post(1);
  ASSERT_TRUE(books.heads.RefreshSome(kMine).ok());
  const auto first = books.heads.Of(kMine);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(books.heads.Of(kOther), nullptr);
  const auto beside = OpenLedger(dir_.File("books.db"));
  ASSERT_TRUE(beside->Credit(kMine, MicroUsd{5}, "beside", kNoon).ok());
  ASSERT_TRUE(books.heads.RefreshSome(kMine).ok());
  EXPECT_EQ(books.heads.Of(kMine)->entries(), first->entries() + 1);
  ASSERT_TRUE(books.heads.RefreshSome(kMine).ok());
  EXPECT_EQ(books.heads.Of(kMine)->signature(), books.Invoice().head().signature());
}

}  // namespace
}  // namespace outboard::gateway::test
