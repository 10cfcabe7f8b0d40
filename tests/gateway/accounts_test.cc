// Tenants, keys, secrets; rows of sessions and leases.
#include "gateway/accounts/accounts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/sha256.h"
#include "gateway/accounts/accounts_schema.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/ledger/limits.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

WallTime After(int64_t seconds) { return WallTime{kNoon.unix_ms + seconds * 1000}; }

class AccountsTest : public ::testing::Test {
 protected:
  NewApiKey MakeKey(const std::string& name, std::optional<WallTime> expires_at = std::nullopt) {
    return ValueOrDie(accounts->CreateKey(tenant.id, name, kNoon, {.expires_at = expires_at}));
  }
  absl::Status Try(std::string_view key, WallTime now = kNoon) {
    return accounts->Authenticate(key, now).status();
  }

  TempDir dir;
  std::string path = dir.File("cloud.db");
  std::unique_ptr<Accounts> accounts = ValueOrDie(Accounts::Open(path));
  Tenant tenant = ValueOrDie(accounts->CreateTenant("ada", kNoon));
};

TEST_F(AccountsTest, AKeySpeaksForItsTenant) {
  const NewApiKey made = MakeKey("laptop");
  EXPECT_EQ(made.text.Reveal().substr(0, 8 + 16 + 1), "ob_live_" + made.key.id + "_");
  EXPECT_EQ(made.text.Reveal().size(), 8u + 16 + 1 + 64);
  const auto identity = accounts->Authenticate(made.text.Reveal(), kNoon);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->tenant, tenant.id);
  EXPECT_EQ(identity->key_id, made.key.id);
  EXPECT_TRUE(accounts->CheckKey(made.key.id, kNoon).ok());
}

TEST_F(AccountsTest, EveryWrongKeyFailsInTheSameWords) {
  const std::string good(MakeKey("laptop").text.Reveal());
  const std::string other(MakeKey("desk", After(10)).text.Reveal());
  const NewApiKey lost = MakeKey("lost");
  ASSERT_TRUE(accounts->RevokeKey(lost.key.id, kNoon).ok());
  const std::string revoked(lost.text.Reveal());
  std::string upper = good;
  for (char& c : upper) c = static_cast<char>(toupper(c));
  std::vector<std::string> wrong = {
      "",
      "ob_live_",
      "hello",
      std::string(100'000, 'a'),
      good + "0",
      good.substr(1),
      upper,
      good.substr(0, 25) + other.substr(25),                     // another key's secret
      good.substr(0, 8) + "0000000000000000" + good.substr(24),  // no such id
      revoked.substr(0, 25) + other.substr(25),                  // that it was revoked is not said
      std::string(good.size(), '\0'),
  };
  for (size_t i = 0; i < good.size(); ++i) {  // each character counts
    wrong.push_back(good);
    wrong.back()[i] = good[i] == '0' ? '1' : '0';
  }
  std::set<std::string> words;
  for (const std::string& key : wrong) {
    const absl::Status status = Try(key);
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << key;
    words.insert(std::string(status.message()));
  }
  EXPECT_EQ(words.size(), 1u);
  EXPECT_TRUE(Try(good).ok());
}

TEST_F(AccountsTest, ARightKeyIsToldWhyItIsRefused) {
  const NewApiKey key = MakeKey("desk", After(10));
  const std::string text(key.text.Reveal());
  EXPECT_TRUE(Try(text, After(9)).ok());
  const absl::Status expired = Try(text, After(10));
  EXPECT_TRUE(absl::IsUnauthenticated(expired));
  EXPECT_NE(expired.message().find("expired"), absl::string_view::npos) << expired;
  EXPECT_EQ(accounts->CheckKey(key.key.id, After(10)), expired);
  ASSERT_TRUE(accounts->RevokeKey(key.key.id, After(1)).ok());
  const absl::Status revoked = Try(text, After(9));
  EXPECT_TRUE(absl::IsUnauthenticated(revoked));
  EXPECT_NE(revoked.message().find("revoked"), absl::string_view::npos) << revoked;
}

TEST_F(AccountsTest, ASuspendedTenantsKeysAreRefusedUntilItIsResumed) {
  const NewApiKey key = MakeKey("laptop");
  const Tenant bob = ValueOrDie(accounts->EnsureTenant("bob", kNoon));
  const NewApiKey his = ValueOrDie(accounts->CreateKey(bob.id, "k", kNoon));
  ASSERT_TRUE(accounts->SuspendTenant("ada", After(1)).ok());
  ASSERT_TRUE(accounts->SuspendTenant("ada", After(2)).ok());
  EXPECT_EQ(accounts->GetTenant(tenant.id)->suspended_at, After(1));
  EXPECT_TRUE(absl::IsPermissionDenied(Try(key.text.Reveal())));
  EXPECT_TRUE(absl::IsPermissionDenied(accounts->CheckKey(key.key.id, kNoon)));
  EXPECT_TRUE(Try(his.text.Reveal()).ok());
  ASSERT_TRUE(accounts->ResumeTenant("ada").ok());
  EXPECT_TRUE(Try(key.text.Reveal()).ok());
  EXPECT_TRUE(absl::IsNotFound(accounts->SuspendTenant("nobody", kNoon)));
}

TEST_F(AccountsTest, AnAccountSharesWhatIsMeasuredUnlessItOptsOut) {
  const NewApiKey key = MakeKey("laptop");
  EXPECT_TRUE(tenant.shares_tuning);
  EXPECT_TRUE(accounts->Authenticate(key.text.Reveal(), kNoon)->shares_tuning);
  for (const bool shares : {false, false, true}) {
    ASSERT_TRUE(accounts->SetSharesTuning("ada", shares).ok());
    EXPECT_EQ(accounts->GetTenant(tenant.id)->shares_tuning, shares);
    EXPECT_EQ(accounts->Authenticate(key.text.Reveal(), kNoon)->shares_tuning, shares);
  }
  EXPECT_TRUE(absl::IsNotFound(accounts->SetSharesTuning("nobody", true)));
}

TEST_F(AccountsTest, RightsAndTheLastUseAreKept) {
  const KeyRights rights{.scopes = {KeyScope::kUsage, KeyScope::kAdmin},
                         .expires_at = After(60),
                         .from = ValueOrDie(ParseRanges("10.0.0.0/8,fd00::/8"))};
  const NewApiKey made = ValueOrDie(accounts->CreateKey(tenant.id, "k", kNoon, rights));
  EXPECT_EQ(accounts->Authenticate(made.text.Reveal(), kNoon)->rights, rights);
  EXPECT_EQ(accounts->ListKeys()->at(0).rights, rights);
  EXPECT_EQ(accounts->ListKeys()->at(0).used_at, std::nullopt);
  ASSERT_TRUE(accounts->NoteKeyUse(made.key.id, After(5)).ok());
  ASSERT_TRUE(accounts->NoteKeyUse(made.key.id, After(4)).ok());
  EXPECT_EQ(accounts->ListKeys()->at(0).used_at, After(5));
  EXPECT_EQ(MakeKey("plain").key.rights.scopes, *Scopes::Parse("run,usage,store"));
  KeyRights wrong;
  wrong.scopes = {};
  EXPECT_TRUE(absl::IsInvalidArgument(accounts->CreateKey(tenant.id, "k", kNoon, wrong).status()));
  wrong = {.from = {kKeyRangesMax + 1, rights.from[0]}};
  EXPECT_TRUE(absl::IsInvalidArgument(accounts->CreateKey(tenant.id, "k", kNoon, wrong).status()));
}

TEST_F(AccountsTest, OnlyKeysThatStandCountAgainstTheQuota) {
  const NewApiKey first = MakeKey("first"), expiring = MakeKey("expiring", After(10));
  for (size_t i = 2; i < kKeysPerTenantMax; ++i) MakeKey("k");
  const auto more = [&](WallTime now) { return accounts->CreateKey(tenant.id, "k", now).status(); };
  EXPECT_TRUE(absl::IsResourceExhausted(more(After(9))));
  EXPECT_TRUE(more(After(10)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(more(After(10))));
  ASSERT_TRUE(accounts->RevokeKey(first.key.id, After(10)).ok());
  EXPECT_TRUE(more(After(10)).ok());
}

TEST_F(AccountsTest, OfKeysThatStandNoMoreTheLastAreRemembered) {
  const NewApiKey stands = MakeKey("stands"), oldest = MakeKey("oldest");
  ASSERT_TRUE(accounts->RevokeKey(oldest.key.id, kNoon).ok());
  for (size_t i = 0; i < kDeadKeysPerTenantMax; ++i)
    ASSERT_TRUE(accounts->RevokeKey(MakeKey("k").key.id, kNoon).ok());
  MakeKey("last");
  EXPECT_EQ(accounts->ListKeys()->size(), kDeadKeysPerTenantMax + 2);
  EXPECT_TRUE(Try(stands.text.Reveal()).ok());
  EXPECT_TRUE(absl::IsNotFound(accounts->RevokeKey(oldest.key.id, kNoon)));
  EXPECT_TRUE(absl::IsUnauthenticated(Try(oldest.text.Reveal())));
}

// A file as the version before scopes wrote it.
TEST_F(AccountsTest, KeysOfAnOldFileKeepAllRights) {
  const std::string old = dir.File("old.db");
  const std::string secret(64, '7'), id = "0123456789abcdef";
  {
    auto db = ValueOrDie(storage::Database::Open(old));
    ASSERT_TRUE(db->Migrate("accounts", {kAccountsSchema, 1}).ok());
    ASSERT_TRUE(
        db->Execute("INSERT INTO tenant(name, created_ms) VALUES('ada', 1700000000000)").ok());
    auto insert =
        ValueOrDie(db->Prepare("INSERT INTO api_key(id, tenant, name, secret_hash, created_ms) "
                               "VALUES(?, 1, 'laptop', ?, 1700000000000)"));
    const Sha256Digest hash = Sha256(secret);
    insert.BindText(1, id).BindBlob(
        2, std::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
    ASSERT_TRUE(insert.Run().ok());
  }
  const auto opened = ValueOrDie(Accounts::Open(old));
  const auto identity = opened->Authenticate("ob_live_" + id + "_" + secret, After(1));
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->rights, KeyRights{.scopes = Scopes::All()});
  EXPECT_EQ(opened->ListKeys()->at(0).used_at, std::nullopt);
  EXPECT_EQ(opened->FindTenant("ada")->suspended_at, std::nullopt);
}

TEST_F(AccountsTest, RevocationIsSeenByOthersAndStays) {
  const NewApiKey made = MakeKey("laptop");
  const auto gateway = ValueOrDie(Accounts::Open(path));
  ASSERT_TRUE(gateway->Authenticate(made.text.Reveal(), kNoon).ok());
  ASSERT_TRUE(accounts->RevokeKey(made.key.id, After(5)).ok());
  EXPECT_TRUE(
      absl::IsUnauthenticated(gateway->Authenticate(made.text.Reveal(), After(6)).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(gateway->CheckKey(made.key.id, After(6))));
  ASSERT_TRUE(accounts->RevokeKey(made.key.id, After(7)).ok());
  EXPECT_EQ(accounts->ListKeys()->at(0).revoked_at, After(5));
}

TEST_F(AccountsTest, Errors) {
  EXPECT_TRUE(absl::IsAlreadyExists(accounts->CreateTenant("ada", kNoon).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(accounts->CreateTenant("", kNoon).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(accounts->CreateTenant("a\nb", kNoon).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(accounts->EnsureTenant(std::string(101, 'a'), kNoon).status()));
  EXPECT_TRUE(absl::IsNotFound(accounts->FindTenant("bob").status()));
  EXPECT_TRUE(absl::IsNotFound(accounts->GetTenant(TenantId{99}).status()));
  EXPECT_TRUE(absl::IsNotFound(accounts->CreateKey(TenantId{99}, "k", kNoon).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(accounts->CreateKey(tenant.id, "", kNoon).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      accounts->CreateKey(tenant.id, "k", kNoon, {.expires_at = kNoon}).status()));
  EXPECT_TRUE(absl::IsNotFound(accounts->RevokeKey("0123456789abcdef", kNoon)));
  const Tenant bob = ValueOrDie(accounts->EnsureTenant("bob", kNoon));
  const NewApiKey made = MakeKey("mine");
  EXPECT_TRUE(absl::IsNotFound(accounts->RevokeKey(made.key.id, kNoon, bob.id)));
  EXPECT_TRUE(accounts->RevokeKey(made.key.id, kNoon, tenant.id).ok());
}

TEST_F(AccountsTest, ListsAreByTenantInOrder) {
  const Tenant bob = ValueOrDie(accounts->EnsureTenant("bob", kNoon));
  EXPECT_EQ(accounts->EnsureTenant("bob", After(1))->id, bob.id);
  MakeKey("one");
  ASSERT_TRUE(accounts->CreateKey(bob.id, "his", kNoon).ok());
  MakeKey("two", After(60));
  EXPECT_EQ(accounts->ListKeys()->size(), 3u);
  const auto mine = accounts->ListKeys(tenant.id);
  ASSERT_EQ(mine->size(), 2u);
  EXPECT_EQ(mine->at(1).name, "two");
  EXPECT_EQ(mine->at(1).rights.expires_at, After(60));
  EXPECT_EQ(accounts->ListTenants()->size(), 2u);
}

TEST_F(AccountsTest, NoSecretIsStoredPrintedOrReadableByOthers) {
  const NewApiKey made = MakeKey("laptop");
  const std::string secret(made.text.Reveal().substr(25));
  std::ostringstream printed;
  printed << made.text;
  EXPECT_EQ(printed.str(), "***");
  std::set<int> modes;
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::ifstream in(path + suffix, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    EXPECT_EQ(bytes.str().find(secret), std::string::npos) << suffix;
    struct stat info {};
    ASSERT_EQ(stat((path + suffix).c_str(), &info), 0) << suffix;
    modes.insert(info.st_mode & 0777);
  }
  EXPECT_EQ(modes, std::set<int>{0600});
}

TEST_F(AccountsTest, AMovedSecretIsEmpty) {
  Secret secret(std::string("short"));
  const Secret taken = std::move(secret);
  EXPECT_EQ(taken.Reveal(), "short");
  EXPECT_EQ(secret.Reveal(), "");  // NOLINT: that it is defined is the point
}

TEST_F(AccountsTest, ProgramsMayOpenAndWriteAtOnce) {
  std::vector<std::thread> threads;
  std::vector<absl::Status> outcomes(4);
  const std::string shared = dir.File("shared.db");
  for (size_t i = 0; i < outcomes.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto mine = Accounts::Open(shared);
      const auto books = Ledger::Open(shared);
      if (!mine.ok() || !books.ok()) {
        outcomes[i] = mine.ok() ? books.status() : mine.status();
        return;
      }
      for (int k = 0; k < 10 && outcomes[i].ok(); ++k) {
        const auto who = (*mine)->EnsureTenant("tenant " + std::to_string(k), kNoon);
        outcomes[i] = who.ok() ? (*mine)->CreateKey(who->id, "k", kNoon).status() : who.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
  const auto all = ValueOrDie(Accounts::Open(shared));
  EXPECT_EQ(all->ListTenants()->size(), 10u);
  EXPECT_EQ(all->ListKeys()->size(), 40u);
}

class SessionRowsTest : public ::testing::Test {
 protected:
  SessionRow Row(uint64_t session, uint64_t epoch = 1) {
    return {.session = SessionId{1, session},
            .tenant = TenantId{1},
            .epoch = epoch,
            .worker = "w1",
            .opened_at = kNoon,
            .resume_hash = "resume"};
  }
  LeaseRow Lease(uint64_t session) {
    return {.lease = {SessionId{1, session}},
            .tenant = TenantId{1},
            .devices = 2,
            .worker = "w1",
            .granted_at = kNoon};
  }
  TempDir dir;
  std::unique_ptr<SessionRows> rows = ValueOrDie(SessionRows::Open(dir.File("cloud.db")));
};

TEST_F(SessionRowsTest, ARowFollowsItsSession) {
  SessionRow row = Row(7);
  ASSERT_TRUE(rows->Put(row).ok());
  row.epoch = 2;
  row.worker = "w2";
  row.state = SessionRowState::kDetached;
  row.attach_hash = "attach";
  row.devices = 2;
  row.recoverable = true;
  row.snapshot_root = "root";
  row.snapshot_seq = 12;
  ASSERT_TRUE(rows->Put(row).ok());
  EXPECT_EQ(*rows->Get(row.session), row);
  EXPECT_EQ(rows->ListLive()->size(), 1u);
  row.state = SessionRowState::kClosed;
  row.closed_at = After(9);
  ASSERT_TRUE(rows->Put(row).ok());
  EXPECT_EQ(*rows->Get(row.session), row);
  EXPECT_TRUE(rows->ListLive()->empty());
}

// A gateway that is started again with another price file charges what the session began with.
TEST_F(SessionRowsTest, ARowKeepsThePricesOfItsSession) {
  SessionRow row = Row(7);
  row.price_per_hour = MicroUsd{2'500'000};
  row.price_class = "large";
  row.idle_prices = {.held = MicroUsd{0}, .parked = MicroUsd{20'000}, .stored = MicroUsd{1}};
  row.name = "run7";
  ASSERT_TRUE(rows->Put(row).ok());
  EXPECT_EQ(*rows->Get(row.session), row);
  row.idle_prices.held.reset();
  row.epoch = 2;
  ASSERT_TRUE(rows->Put(row).ok());
  EXPECT_EQ(*rows->Get(row.session), row);
}

TEST_F(SessionRowsTest, ALeaseOfStateAloneIsNoTimeOfDevices) {
  ASSERT_TRUE(rows->Put(Row(7)).ok());
  for (const UseState use : {UseState::kRun, UseState::kHeld, UseState::kParked}) {
    LeaseRow lease = Lease(7);
    lease.use = use;
    lease.key_id = "k";
    lease.price_class = "small";
    const uint64_t grant = *rows->GrantLease(lease);
    ASSERT_TRUE(rows->EndLease({SessionId{1, 7}, grant}, LeaseEnd::kIdle, After(10)).ok());
  }
  const auto leases = rows->LeasesOf(SessionId{1, 7});
  ASSERT_EQ(leases->size(), 3u);
  EXPECT_EQ(leases->at(2).use, UseState::kParked);
  EXPECT_EQ(leases->at(2).key_id, "k");
  EXPECT_EQ(leases->at(2).price_class, "small");
  const auto page = rows->ListTimes({.now = After(20), .limit = 10});
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->sessions.size(), 1u);
  EXPECT_EQ(page->sessions[0].held_ms, 20'000);
}

TEST_F(SessionRowsTest, Errors) {
  ASSERT_TRUE(rows->Put(Row(7, 5)).ok());
  EXPECT_TRUE(absl::IsAborted(rows->Put(Row(7, 4))));  // an older owner
  SessionRow row = Row(7, 6);
  row.tenant = TenantId{2};
  EXPECT_TRUE(absl::IsFailedPrecondition(rows->Put(row)));
  row = Row(7, 6);
  row.closed_at = kNoon;
  EXPECT_TRUE(absl::IsInvalidArgument(rows->Put(row)));
  row.state = SessionRowState::kClosed;
  ASSERT_TRUE(rows->Put(row).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(rows->Put(Row(7, 7))));  // it has ended
  row = Row(8);
  row.tenant = {};
  EXPECT_TRUE(absl::IsInvalidArgument(rows->Put(row)));
  EXPECT_TRUE(absl::IsInvalidArgument(rows->Put(Row(8, UINT64_MAX))));
  EXPECT_TRUE(absl::IsNotFound(rows->Get(SessionId{1, 8}).status()));
  EXPECT_TRUE(absl::IsNotFound(rows->EndLease({SessionId{1, 8}, 1}, LeaseEnd::kClosed, kNoon)));
  LeaseRow lease = Lease(8);
  lease.devices = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(rows->GrantLease(lease).status()));
}

TEST_F(SessionRowsTest, LeasesAreNumberedAndNeverAgain) {
  EXPECT_EQ(*rows->GrantLease(Lease(7)), 1u);
  EXPECT_EQ(*rows->GrantLease(Lease(8)), 1u);
  ASSERT_TRUE(rows->EndLease({SessionId{1, 7}, 1}, LeaseEnd::kIdle, After(3)).ok());
  ASSERT_TRUE(rows->EndLease({SessionId{1, 7}, 1}, LeaseEnd::kClosed, After(4)).ok());
  EXPECT_EQ(*rows->GrantLease(Lease(7)), 2u);
  const auto leases = rows->LeasesOf(SessionId{1, 7});
  ASSERT_EQ(leases->size(), 2u);
  EXPECT_EQ(leases->at(0).released_at, After(3));
  EXPECT_EQ(leases->at(0).end, "idle");
  EXPECT_FALSE(leases->at(1).released_at.has_value());
}

// Files of earlier versions have these texts, and a usage report looks for one of them.
TEST_F(SessionRowsTest, TheEndOfALease_HasTheTextThatItAlwaysHad) {
  const std::string_view texts[] = {
      "closed",        "idle",      "abandoned",  "refused",         "executor lost",
      "worker lost",   "no device", "no credit",  "gateway stopped", "gateway restarted",
      "not written",   "held",      "runs again", "put away",        "resumed",
      "worker drained", "taken over", "gateway fault"};
  for (size_t i = 0; i < std::size(texts); ++i) {
    const uint64_t grant = *rows->GrantLease(Lease(7));
    ASSERT_TRUE(rows->EndLease({SessionId{1, 7}, grant}, static_cast<LeaseEnd>(i), kNoon).ok());
    EXPECT_EQ(rows->LeasesOf(SessionId{1, 7})->back().end, texts[i]);
  }
  EXPECT_EQ(LeaseEnd::kGatewayFault, static_cast<LeaseEnd>(std::size(texts) - 1))
      << "or more texts";
}

TEST_F(SessionRowsTest, AStartOfTheGatewayTakesOverWhatWasLive) {
  ASSERT_TRUE(rows->Put(Row(1)).ok());
  SessionRow nameless = Row(2);  // of a version before
  nameless.resume_hash.clear();
  ASSERT_TRUE(rows->Put(nameless).ok());
  SessionRow closed = Row(3);
  closed.state = SessionRowState::kClosed;
  closed.closed_at = kNoon;
  ASSERT_TRUE(rows->Put(closed).ok());
  ASSERT_TRUE(rows->GrantLease(Lease(1)).ok());
  LeaseRow second = Lease(1);
  second.key_id = "capped";
  ASSERT_TRUE(rows->GrantLease(second).ok());
  const auto restarted = ValueOrDie(SessionRows::Open(dir.File("cloud.db")));
  for (int i = 0; i < 2; ++i) {  // a second restart finds the same
    const auto taken = ValueOrDie(restarted->TakeOver(After(60 + i)));
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].row, Row(1));
    EXPECT_EQ(taken[0].last_grant, 2u);
    EXPECT_EQ(taken[0].last_key, "capped");
  }
  EXPECT_EQ(restarted->LeasesOf(SessionId{1, 1})->at(1).end, "gateway restarted");
  EXPECT_EQ(restarted->LeasesOf(SessionId{1, 1})->at(1).released_at, After(60));
  EXPECT_EQ(restarted->Get(SessionId{1, 2})->state, SessionRowState::kLost);
}

TEST_F(SessionRowsTest, ANamedSessionWithASnapshotOutlivesItsExecutor) {
  SessionRow named = Row(1), unsaved = Row(2), plain = Row(3);
  named.name = unsaved.name = "run7";
  named.recoverable = unsaved.recoverable = plain.recoverable = true;
  named.snapshot_root = plain.snapshot_root = std::string(32, 'r');
  for (const SessionRow& row : {named, unsaved, plain}) ASSERT_TRUE(rows->Put(row).ok());
  named.resume_hash = "of another client";
  ASSERT_TRUE(rows->Put(named).ok());
  EXPECT_EQ(rows->LoseAllLive(After(60), /*but_named=*/true)->size(), 2u);
  const auto taken = ValueOrDie(rows->TakeOver(After(61)));
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].row, named);
}

TEST_F(SessionRowsTest, AStartOfTheGatewayEndsWhatWasLiveWhereExecutorsEndWithIt) {
  ASSERT_TRUE(rows->Put(Row(1)).ok());
  ASSERT_TRUE(rows->Put(Row(2)).ok());
  ASSERT_TRUE(rows->GrantLease(Lease(1)).ok());
  const auto restarted = ValueOrDie(SessionRows::Open(dir.File("cloud.db")));
  EXPECT_EQ(restarted->LoseAllLive(After(60))->size(), 2u);
  EXPECT_TRUE(restarted->LoseAllLive(After(61))->empty());
  EXPECT_EQ(restarted->Get(SessionId{1, 1})->state, SessionRowState::kLost);
  EXPECT_EQ(restarted->Get(SessionId{1, 1})->closed_at, After(60));
  EXPECT_EQ(restarted->LeasesOf(SessionId{1, 1})->at(0).end, "gateway restarted");
}

}  // namespace
}  // namespace outboard::gateway::test
