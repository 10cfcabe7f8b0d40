// A ledger that somebody changed is found at the next audit, and the gateway opens no session on
// it.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/session/session.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/proof/auditor.h"
#include "proto/account.grpc.pb.h"
#include "tests/gateway/support.h"
#include "tests/support/gateway_test.h"
#include "wire/proof/head_file.h"
#include "wire/proof/receipt.h"
#include "wire/proof/signed_head.h"

namespace outboard::gateway::test {
namespace {

// As somebody with the file would: past the triggers.
void Execute(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK)
      << (error != nullptr ? error : "");
  sqlite3_free(error);
  sqlite3_close(db);
}
constexpr char kNoTriggers[] =
    "DROP TRIGGER ledger_entry_fixed; DROP TRIGGER ledger_line_fixed; "
    "DROP TRIGGER ledger_entry_kept; DROP TRIGGER ledger_line_kept; "
    "DROP TRIGGER ledger_use_fixed; DROP TRIGGER ledger_use_kept; ";

void PostSome(Ledger& ledger, int64_t rounds, int64_t seconds = 5) {
  for (int64_t i = 0; i < rounds; ++i)
    ASSERT_TRUE(
        PostHeld(ledger,
                 std::vector<Charge>{ChargeFor(DeviceOf(1), i * seconds, (i + 1) * seconds)},
                 kNoon)
            .ok());
}

class AuditTest : public ::testing::Test {
 protected:
  AuditTest() { std::filesystem::create_directories(folder()); }
  std::string folder() const { return dir_.File("data"); }
  std::string books() const { return folder() + "/outboard.db"; }
  absl::StatusOr<AuditReport> Run() const { return Audit(folder(), books()); }
  TempDir dir_;
};

TEST_F(AuditTest, Ledger_AsItWasWritten_Verifies) {
  PostSome(*OpenLedger(books()), 3);
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->ledger.entries, 3);
  EXPECT_EQ(report->verified_before, 0);
  ASSERT_TRUE(OpenLedger(books())->Credit(TenantId{1}, MicroUsd{9}, "id", kNoon).ok());
  report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->ledger.entries, 4);
  EXPECT_EQ(report->verified_before, 3);
}

// Or any machine of an account's own could close the gateway.
TEST_F(AuditTest, WorkerThatSignedForTooLittle_IsAFinding_AndNoFailure) {
  const signing::SigningKey key = signing::SigningKey::Make();
  const std::string device = signing::PhysicalDevice(key.public_key(), 0);
  PostSome(*OpenLedger(books()), 6);
  {
    const auto receipts = ValueOrDie(ReceiptRows::Open(books()));
    ASSERT_TRUE(
        receipts->NameDevices(DeviceOf(1).lease, std::vector<std::string>{device}).ok());
    proto::Receipt receipt;
    receipt.set_session_id(DeviceOf(1).lease.session.Bytes());
    receipt.set_grant(1);
    receipt.set_number(1);
    receipt.set_usable_ms(5'000);
    receipt.set_physical_device(device);
    signing::Sign(key, receipt);
    ASSERT_TRUE(receipts->Keep({&receipt, 1}).ok());
  }
  const auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<WorkerShortfall> workers = ByWorker(report->shortfalls);
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].worker, device.substr(0, device.find('/')));
  EXPECT_EQ(workers[0].devices, 1);
  EXPECT_EQ(workers[0].charged_ms, 30'000);
  EXPECT_EQ(workers[0].signed_ms, 5'000);
}

// Its cap would count what another key uses.
TEST_F(AuditTest, AHoldOnAnotherKeyThanItsLease_DoesNotVerify) {
  const LeaseId lease = DeviceOf(1).lease;
  ASSERT_TRUE(OpenLedger(books())
                  ->Hold({.lease = lease,
                          .tenant = TenantId{1},
                          .key_id = "0123456789abcdef",
                          .prices_per_hour = {MicroUsd{1'000'000}},
                          .to_ms = 1000})
                  .ok());
  ASSERT_TRUE(ValueOrDie(SessionRows::Open(books()))
                  ->GrantLease({.lease = lease,
                                .tenant = TenantId{1},
                                .devices = 1,
                                .granted_at = kNoon,
                                .key_id = "0123456789abcdef"})
                  .ok());
  EXPECT_TRUE(Run().ok()) << Run().status();
  Execute(books(), "UPDATE lease SET key_id = 'fedcba9876543210'");
  const auto report = Run();
  EXPECT_TRUE(absl::IsDataLoss(report.status())) << report.status();
  EXPECT_NE(report.status().message().find("L10"), std::string::npos) << report.status();
}

TEST_F(AuditTest, Ledger_OfWhichSomethingWasChanged_DoesNotVerify) {
  PostSome(*OpenLedger(books()), 3);
  ASSERT_TRUE(Run().ok());
  const std::string good = books() + ".good";
  std::filesystem::copy_file(books(), good);
  for (const char* change : {
           "UPDATE ledger_entry SET at_ms = at_ms + 1 WHERE number = 2",
           "UPDATE ledger_entry SET price_per_hour = 1 WHERE number = 2",
           "UPDATE ledger_entry SET to_s = to_s + 1 WHERE number = 3",
           "UPDATE ledger_entry SET memo = 'x' WHERE number = 1",
           "UPDATE ledger_line SET amount = 2 * amount WHERE entry = 2",
           "UPDATE ledger_account SET balance = balance + 1 WHERE name = 'tenant:1'",
           "DELETE FROM ledger_line WHERE entry = 3; DELETE FROM ledger_use WHERE entry = 3; "
           "DELETE FROM ledger_entry WHERE number = 3",
           "UPDATE ledger_head SET number = 2",
           "UPDATE ledger_use SET tenant_amount = 0 WHERE entry = 3",
       }) {
    for (const char* more : {"-wal", "-shm"}) std::filesystem::remove(books() + more);
    std::filesystem::copy_file(good, books(), std::filesystem::copy_options::overwrite_existing);
    Execute(books(), std::string(kNoTriggers) + change);
    EXPECT_TRUE(absl::IsDataLoss(Run().status())) << change << ": " << Run().status();
  }
}

// Both verify by themselves.
TEST_F(AuditTest, Ledger_WrittenAnewOrPutBack_IsNotTheOneAudited) {
  PostSome(*OpenLedger(books()), 2);
  const std::string old = books() + ".old";
  std::filesystem::copy_file(books(), old);
  PostSome(*OpenLedger(books()), 4);
  ASSERT_TRUE(Run().ok());
  const auto replace = [&] {
    for (const char* more : {"", "-wal", "-shm"}) std::filesystem::remove(books() + more);
  };
  replace();
  std::filesystem::copy_file(old, books());
  absl::Status found = Run().status();
  EXPECT_TRUE(absl::IsDataLoss(found)) << found;
  EXPECT_NE(found.message().find("cut"), std::string::npos) << found;
  replace();
  PostSome(*OpenLedger(books()), 5, /*seconds=*/7);
  found = Run().status();
  EXPECT_TRUE(absl::IsDataLoss(found)) << found;
  EXPECT_NE(found.message().find("anew"), std::string::npos) << found;
  // Nor can the note of the last audit be changed to fit.
  std::ofstream(folder() + "/audited-head", std::ios::trunc)
      << "1 " << std::string(64, 'a') << " " << std::string(128, 'b') << "\n";
  EXPECT_TRUE(absl::IsDataLoss(Run().status()));
}

TEST(AuditorTest, Auditor_RepeatsAndEnds) {
  std::atomic<int> audits = 0;
  {
    Auditor auditor(
        [&]() -> absl::StatusOr<AuditReport> {
          ++audits;
          return absl::DataLossError("ledger: L5 broken");
        },
        [](const auto& report) { EXPECT_TRUE(absl::IsDataLoss(report.status())); },
        std::chrono::milliseconds(1));
    EXPECT_TRUE(auditor.AwaitFirst(std::chrono::seconds(30)));
    EXPECT_TRUE(outboard::test::Eventually([&] { return audits >= 3; }));
  }
  const int ended = audits;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // of one each millisecond
  EXPECT_EQ(audits, ended);
}

class AuditedGatewayTest : public outboard::test::GatewayTest {
 protected:
  std::string heads() const { return folder_ / "heads"; }
  session::SessionOptions WithHeads() {
    session::SessionOptions options = Options();
    options.heads_file = heads();
    return options;
  }
  proto::UsageReply Usage() {
    grpc::ClientContext context;
    proto::UsageReply reply;
    EXPECT_TRUE(proto::Account::NewStub(gateway_->InProcessChannel())
                    ->Usage(&context, {}, &reply)
                    .ok());
    return reply;
  }
};

TEST_F(AuditedGatewayTest, Session_KeepsTheHeadsThatItsGatewaySigned) {
  StartAll();
  auto session = Session::Connect(WithHeads());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Close().ok());
  const proto::UsageReply usage = Usage();
  ASSERT_TRUE(usage.has_head());
  EXPECT_TRUE(signing::CheckHead(usage.head()).ok());
  const auto kept = signing::HeadFile(heads()).Read();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_FALSE(kept->heads.empty());
  for (const signing::SeenHead& seen : kept->heads) {
    EXPECT_EQ(seen.target, gateway_->address());
    EXPECT_TRUE(signing::CheckHead(seen.head).ok());
    EXPECT_EQ(seen.head.key(), usage.head().key());
    EXPECT_EQ(seen.head.account(), usage.head().account());
  }
}

TEST_F(AuditedGatewayTest, ListAndStopOfSessions_CarryTheSignedHead) {
  StartAll();
  auto session = Session::Connect(WithHeads());
  ASSERT_TRUE(session.ok()) << session.status();
  const auto stub = proto::Account::NewStub(gateway_->InProcessChannel());
  proto::ListSessionsReply listed;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->ListSessions(&context, {}, &listed).ok());
  }
  ASSERT_EQ(listed.sessions_size(), 1);
  ASSERT_TRUE(listed.has_head());
  EXPECT_TRUE(signing::CheckHead(listed.head()).ok());
  EXPECT_EQ(listed.classes_size(), 0) << "nobody asked for them";
  proto::StopSessionRequest request;
  request.set_session(listed.sessions(0).session_id());
  proto::StopSessionReply stopped;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->StopSession(&context, request, &stopped).ok());
  }
  ASSERT_TRUE(stopped.has_head());
  EXPECT_TRUE(signing::CheckHead(stopped.head()).ok());
  EXPECT_EQ(stopped.head().account(), Usage().head().account());
}

TEST_F(AuditedGatewayTest, Gateway_WhoseLedgerDoesNotVerify_ServesUsageAndOpensNoSession) {
  StartAll();
  ASSERT_TRUE(Connect()->Close().ok());
  ASSERT_TRUE(Books()->Credit(TenantId{1}, MicroUsd{9}, "id", kNoon).ok());
  TearDown();
  Execute(AccountsPath(data()),
          std::string(kNoTriggers) + "UPDATE ledger_entry SET memo = 'x' WHERE key = 'id'");
  StartAll();
  const auto session = Session::Connect(Options());
  EXPECT_TRUE(absl::IsUnavailable(session.status())) << session.status();
  EXPECT_NE(session.status().message().find("does not verify"), std::string::npos)
      << session.status();
  EXPECT_EQ(Usage().balance_micro_usd(), Books()->Balance(TenantId{1})->value);
}

}  // namespace
}  // namespace outboard::gateway::test
