// Sessions: numbers that were used, others' tokens, numbers out of range, work that is not paid
// for; and what stands in logs and answers.
#include <gtest/gtest.h>

#include <chrono>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "gateway/base/clock.h"
#include "gateway/ledger/ledger.h"
#include "tests/hostile/hostile_case.h"
#include "tests/support/client_items.h"
#include "tests/support/raw_session.h"
#include "wire/merkle.h"

namespace outboard::test {
namespace {

using absl::StatusCode;
using proto::Account;
using proto::Store;

// What no answer and no log may hold: a line that somebody else wrote.
constexpr char kInjected[] = "INJECTED level=error all is lost";
std::string WithLineBreak() { return std::string("x\n") + kInjected; }

std::string ValueOf(RawSession& session, uint64_t seq, uint64_t handle) {
  session.Send({Item::Fetch(seq, handle)});
  RawSession::Answer answer;
  return session.Next(answer) ? answer.value : "the stream ended";
}

}  // namespace

absl::Status StepIdReused(HostileWorld& world) {
  RawSession session(ChannelFrom(world.target(), "127.0.0.2"), world.mallory_key());
  session.Open();
  session.Send({Item::Put(1, 1, "first")});
  EXPECT_EQ(ValueOf(session, 2, 1), "first");
  session.Send({Item::Put(1, 1, "other"), Item::Put(1, 7, "more"), Item::Release(2, 1)});
  EXPECT_EQ(ValueOf(session, 3, 1), "first");
  session.Send({Item::Fetch(4, 7)});  // what the duplicate named does not exist
  RawSession::Answer answer;
  EXPECT_TRUE(session.Next(answer));
  EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kNotFound));
  return absl::OkStatus();
}

absl::Status StepIdOfOther(HostileWorld& world) {
  RawSession victim(ChannelFrom(world.target(), "127.0.0.1"), world.honest().key());
  victim.Open();
  victim.Send({Item::Put(1, 41, "an honest value")});
  EXPECT_EQ(ValueOf(victim, 2, 41), "an honest value");
  HostileClient mallory = world.Mallory();
  proto::Open resume = GoodOpen();
  resume.set_resume_token(victim.opened().resume_token());
  const absl::Status resumed = mallory.Open(resume);
  // Large values come by another call, which names the session.
  auto context = mallory.Context();
  proto::ValuesRequest request;
  request.set_session_id(victim.opened().session_id());
  request.set_resume_token(victim.opened().resume_token());
  auto values = mallory.cloud().Values(context.get(), request);
  proto::ServerFrame frame;
  EXPECT_FALSE(values->Read(&frame));
  EXPECT_EQ(world.replies().Note(wire::FromGrpc(values->Finish())).code(), StatusCode::kNotFound);
  // Handles are numbers of one session; the session's id in Open is the gateway's to say.
  RawSession session(mallory.channel(), world.mallory_key());
  session.Open();
  session.Send({Item::Fetch(1, 41)});
  RawSession::Answer answer;
  EXPECT_TRUE(session.Next(answer));
  EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kNotFound));
  proto::Open named = GoodOpen();
  named.set_session_id(victim.opened().session_id());
  named.set_snapshot_root(std::string(32, 's'));
  EXPECT_TRUE(mallory.Open(named).ok());
  EXPECT_EQ(ValueOf(victim, 3, 41), "an honest value");
  return resumed;
}

absl::Status HoldOverflow(HostileWorld& world) {
  HostileClient mallory = world.Mallory();
  proto::Open memory = GoodOpen();
  memory.set_memory_bytes_max(UINT64_MAX);
  memory.set_received_seq(UINT64_MAX);
  memory.set_snapshot_ms(UINT32_MAX);
  EXPECT_TRUE(mallory.Open(memory).ok());
  for (const int64_t since : {INT64_MIN, INT64_C(-1), INT64_MAX}) {
    proto::UsageRequest usage;
    usage.set_since_unix_s(since);
    EXPECT_TRUE(mallory.Ask(&Account::Stub::Usage, usage).ok()) << since;
  }
  proto::Open devices = GoodOpen();
  devices.set_devices(UINT32_MAX);
  EXPECT_EQ(mallory.Open(devices).code(), StatusCode::kInvalidArgument);
  proto::Open nothing = GoodOpen();
  nothing.set_max_cost_micro_usd(0);
  EXPECT_EQ(mallory.Open(nothing).code(), StatusCode::kInvalidArgument);
  proto::Open cost = GoodOpen();
  cost.set_max_cost_micro_usd(UINT64_MAX);
  return mallory.Open(cost);
}

// A prepaid account spends four seconds' credit in sessions that are opened all at once, again and
// again, until nothing is left. What one holds the others cannot.
absl::Status NegativeBalanceRace(HostileWorld& world) {
  constexpr int kThreads = 4, kRounds = 20;
  constexpr gateway::MicroUsd kCredit{4'000'000};
  const gateway::NewApiKey key = world.MakeKey("pauper");
  const gateway::TenantId pauper = key.key.tenant;
  const auto books = world.cluster().Books();
  EXPECT_TRUE(books->SetCreditLimit(pauper, gateway::MicroUsd{0}).ok());
  EXPECT_TRUE(books->Credit(pauper, kCredit, "a payment", gateway::WallNow()).ok());
  std::vector<absl::Status> refused(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      HostileClient client = world.ClientOf(std::string(key.text.Reveal()));
      for (int round = 0; round < kRounds; ++round) {
        const absl::Status opened = client.Open(GoodOpen());
        if (!opened.ok()) refused[t] = opened;
        const auto left = books->Balance(pauper);
        EXPECT_TRUE(left.ok() && left->value >= 0) << left.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // One that stays is told in time, uses what is left, and no more.
  absl::Status last;
  for (int i = 0; i < 10 && !absl::IsFailedPrecondition(last); ++i) {
    RawSession session(ChannelFrom(world.target(), "127.0.0.2"), std::string(key.text.Reveal()));
    session.Open("", /*or_queued=*/true);
    if (session.IsOpenedOrQueued()) session.Send({Item::Put(1, 1, "x")});
    last = world.replies().Note(session.End());
  }
  EXPECT_GE(books->Balance(pauper)->value, 0);
  EXPECT_LE(books->UsageOf(pauper)->amount.value, kCredit.value);
  EXPECT_TRUE(Eventually([&] { return books->BudgetOf(pauper)->held.value == 0; }))
      << books->BudgetOf(pauper)->held.value;
  for (const absl::Status& each : refused)
    EXPECT_TRUE(each.ok() || absl::IsFailedPrecondition(each)) << each;
  return last;
}

absl::Status CancelSpam(HostileWorld& world) {
  constexpr int kSessions = 3;
  constexpr std::chrono::milliseconds kHeld{1'300};
  HostileClient mallory = world.Mallory();
  proto::UsageReply before, after;
  EXPECT_TRUE(mallory.Unary(&Account::Stub::Usage, proto::UsageRequest(), &before).ok());
  std::vector<std::unique_ptr<RawSession>> sessions;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(std::make_unique<RawSession>(mallory.channel(), world.mallory_key()));
    sessions.back()->Open();
    sessions.back()->Send({Item::Put(1, 1, "x")});
  }
  std::this_thread::sleep_for(kHeld);
  std::vector<std::string> ids;
  for (auto& session : sessions) {
    session->Send({Item::Fetch(2, 1)});
    session->Cancel();  // as if nothing had been
    ids.push_back(wire::ToHex(session->opened().session_id()));
    // Its device is free when it is closed; a session that is left alone keeps it for a while.
    RawSession again(mallory.channel(), world.mallory_key());
    again.Open(session->opened().resume_token());
  }
  const auto billed = [&] {
    after.Clear();
    EXPECT_TRUE(mallory.Unary(&Account::Stub::Usage, proto::UsageRequest(), &after).ok());
    return after.seconds_billed() >= before.seconds_billed() + kSessions;
  };
  EXPECT_TRUE(Eventually(billed)) << after.seconds_billed() << " s; before "
                                  << before.seconds_billed();
  EXPECT_GT(after.cost_micro_usd(), before.cost_micro_usd());
  for (const proto::UsageLine& line : after.lines()) {
    if (std::find(ids.begin(), ids.end(), line.session_id()) == ids.end()) continue;
    EXPECT_GE(line.used_ms(), static_cast<uint64_t>(kHeld.count()));
    EXPECT_GE(line.seconds_billed(), 1u);
  }
  return absl::OkStatus();
}

absl::Status LogInjection(HostileWorld& world) {
  const gateway::NewApiKey admin = world.MakeKey("mallory", {.scopes = gateway::Scopes::All()});
  HostileClient mallory = world.ClientOf(std::string(admin.text.Reveal()));
  proto::CreateKeyRequest key;
  key.set_name(WithLineBreak());
  EXPECT_EQ(mallory.Ask(&Account::Stub::CreateKey, key).code(), StatusCode::kInvalidArgument);
  proto::RevokeKeyRequest revoke;
  revoke.set_id(WithLineBreak());
  EXPECT_EQ(mallory.Ask(&Account::Stub::RevokeKey, revoke).code(), StatusCode::kNotFound);
  proto::StoreRemoveRequest remove;
  remove.set_name(WithLineBreak());
  EXPECT_EQ(mallory.Ask(&Store::Stub::Remove, remove).code(), StatusCode::kInvalidArgument);
  proto::UsageRequest usage;
  usage.set_after(WithLineBreak());
  EXPECT_EQ(mallory.Ask(&Account::Stub::Usage, usage).code(), StatusCode::kInvalidArgument);
  proto::Open version = GoodOpen();
  version.set_client_version(WithLineBreak());
  EXPECT_EQ(mallory.Open(version).code(), StatusCode::kInvalidArgument);
  // Where HTTP/2 carries a line break at all.
  for (const char* header :
       {"user-agent", "authorization", "outboard-session", "x-forwarded-for"}) {
    auto raw = world.Raw("127.0.1.9");
    raw->Greet();
    const absl::Status status = world.replies().Note(raw->Await(
        raw->Call(CallHeaders("Store/List", {{header, WithLineBreak()}}), GrpcMessage(""))));
    EXPECT_FALSE(status.ok()) << header;
  }
  proto::Open name = GoodOpen();
  name.set_client_name(WithLineBreak());
  const absl::Status refused = mallory.Open(name);
  // Of the gateway and its worker, whatever came before this case.
  for (const std::string& log : {world.gateway().err(), world.worker().err()}) {
    EXPECT_EQ(log.find(std::string("\n") + kInjected), std::string::npos) << log;
    for (const std::string& secret : {world.mallory_key(), world.honest().key()})
      EXPECT_EQ(log.find(secret.substr(secret.size() - 64)), std::string::npos);
  }
  return refused;
}

absl::Status ErrorTextLeaks(HostileWorld& world) {
  // Some of every kind, if this case runs alone.
  HostileClient mallory = world.Mallory();
  for (const auto& one : AllHostileCases())
    if (world.replies().all().size() < 20 && one.run != nullptr && one.number <= 114)
      one.run(world).IgnoreError();
  const std::vector<std::string> replies = world.replies().all();
  EXPECT_GT(replies.size(), 20u);
  std::string others = world.honest().key();
  others = others.substr(0, others.rfind('_'));  // its id
  for (const std::string& id :
       {std::string("an-honest-account"), others.substr(others.rfind('_') + 1), world.mallory_key(),
        world.cluster().folder().path(), world.cluster().data()})
    for (const std::string& reply : replies) EXPECT_EQ(reply.find(id), std::string::npos) << reply;
  // An address in memory, a path, a line of source, a row of a table, an address of a peer.
  const std::regex leaks(
      R"(0x[0-9a-fA-F]{5,}|/(tmp|home|root|var|proc|usr|etc|work)/|\.(cc|h|db|sqlite)\b|)"
      R"(\b(SELECT|INSERT|UPDATE) |sqlite|errno|ipv4:|127\.0\.)",
      std::regex::icase);
  for (const std::string& reply : replies) EXPECT_FALSE(std::regex_search(reply, leaks)) << reply;
  return absl::OkStatus();
}

}  // namespace outboard::test
