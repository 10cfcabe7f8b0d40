// Keys: none, garbled, revoked, expired, without the right, from elsewhere, guessed.
//
// These come from addresses of their own: what a wrong key costs its address costs no other case.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gateway/base/clock.h"
#include "tests/hostile/hostile_case.h"

namespace outboard::test {
namespace {

using absl::StatusCode;
using gateway::KeyRights;
using gateway::KeyScope;
using proto::Account;
using proto::Blobs;
using proto::Store;

// The answers to these calls, made at once: that of a wrong key may take seconds, and those that
// wait for it wait together.
std::vector<absl::Status> AnswersOf(const std::vector<std::function<absl::Status()>>& calls) {
  std::vector<absl::Status> answers(calls.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < calls.size(); ++i)
    threads.emplace_back([&, i] { answers[i] = calls[i](); });
  for (std::thread& thread : threads) thread.join();
  return answers;
}

// The answer to calls of every service, which must be the same everywhere.
absl::Status AnswerEverywhere(HostileWorld& world, const std::string& key,
                              const std::string& from) {
  HostileClient client = world.ClientOf(key, from);
  std::string bytes;
  const std::vector<absl::Status> answers = AnswersOf({
      [&] { return client.Ask(&Store::Stub::List, proto::StoreListRequest()); },
      [&] { return client.Ask(&Store::Stub::Usage, proto::StoreUsageRequest()); },
      [&] { return client.Ask(&Blobs::Stub::Missing, proto::MissingRequest()); },
      [&] { return client.Ask(&Account::Stub::Usage, proto::UsageRequest()); },
      [&] { return client.Ask(&Account::Stub::ListKeys, proto::ListKeysRequest()); },
      [&] { return client.Upload({Piece(std::string(32, 'h'), 1, 0, "x")}); },
      [&] { return client.Download({std::string(32, 'h')}, &bytes); },
      [&] { return client.Open(GoodOpen()); },
  });
  for (const absl::Status& answer : answers) EXPECT_EQ(answer.code(), answers[0].code()) << answer;
  EXPECT_EQ(bytes, "");
  return answers[0];
}

std::string TextOf(const gateway::NewApiKey& key) { return std::string(key.text.Reveal()); }

}  // namespace

absl::Status KeyMissing(HostileWorld& world) { return AnswerEverywhere(world, "", "127.0.1.1"); }

absl::Status KeyGarbled(HostileWorld& world) {
  const std::string good = world.mallory_key();
  std::string flipped = good;
  flipped.back() = flipped.back() == '0' ? '1' : '0';
  std::string of_honest_id = world.honest().key().substr(0, good.size() - 64);
  const std::string keys[] = {"x",
                              "ob_live_",
                              good + "0",
                              good.substr(0, good.size() - 1),
                              flipped,
                              of_honest_id + good.substr(good.size() - 64),
                              std::string(4000, 'k'),
                              "' OR 1=1 --"};
  std::vector<std::function<absl::Status()>> calls;
  for (const std::string& key : keys)
    calls.push_back([&] {
      return world.ClientOf(key, "127.0.1.2").Ask(&Store::Stub::List, proto::StoreListRequest());
    });
  const std::vector<absl::Status> answers = AnswersOf(calls);
  for (const absl::Status& answer : answers) {
    EXPECT_EQ(answer.code(), StatusCode::kUnauthenticated) << answer;
    // Which part was wrong is told to nobody.
    EXPECT_EQ(answer.ToString(), answers[0].ToString());
  }
  return AnswerEverywhere(world, flipped, "127.0.1.3");
}

absl::Status KeyRevoked(HostileWorld& world) {
  const gateway::NewApiKey key = world.MakeKey("mallory");
  EXPECT_TRUE(world.ClientOf(TextOf(key), "127.0.1.4")
                  .Ask(&Store::Stub::List, proto::StoreListRequest())
                  .ok());
  EXPECT_TRUE(world.accounts()->RevokeKey(key.key.id, gateway::WallNow()).ok());
  return AnswerEverywhere(world, TextOf(key), "127.0.1.4");
}

absl::Status KeyExpired(HostileWorld& world) {
  const gateway::NewApiKey key = world.MakeKey("mallory");
  // Its time is over: as if it had been made for so long.
  auto db = storage::Database::Open(gateway::AccountsPath(world.cluster().data())).value();
  auto update = db->Prepare("UPDATE api_key SET expires_ms = ? WHERE id = ?").value();
  EXPECT_TRUE(update.Bind(1, gateway::WallNow().unix_ms).BindText(2, key.key.id).Run().ok());
  return AnswerEverywhere(world, TextOf(key), "127.0.1.5");
}

absl::Status KeyWrongScope(HostileWorld& world) {
  const std::string reader = TextOf(world.MakeKey("mallory", {.scopes = KeyScope::kUsage}));
  const std::string runner = TextOf(world.MakeKey("mallory", {.scopes = KeyScope::kRun}));
  HostileClient reads = world.ClientOf(reader), runs = world.ClientOf(runner);
  EXPECT_TRUE(reads.Ask(&Account::Stub::Usage, proto::UsageRequest()).ok());
  proto::CreateKeyRequest more;
  more.add_scopes("admin");
  for (const absl::Status& status :
       {reads.Open(GoodOpen()), reads.Ask(&Store::Stub::List, proto::StoreListRequest()),
        reads.Ask(&Blobs::Stub::Missing, proto::MissingRequest()),
        runs.Ask(&Account::Stub::Usage, proto::UsageRequest()),
        runs.Ask(&Account::Stub::ListKeys, proto::ListKeysRequest()),
        runs.Ask(&Account::Stub::CreateKey, more)})
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status;
  return runs.Ask(&Store::Stub::List, proto::StoreListRequest());
}

absl::Status KeyWrongAddress(HostileWorld& world) {
  KeyRights rights;
  rights.scopes = gateway::Scopes::All();
  rights.from = gateway::ParseRanges("127.0.1.6,10.0.0.0/8").value();
  const std::string key = TextOf(world.MakeKey("mallory", rights));
  EXPECT_TRUE(
      world.ClientOf(key, "127.0.1.6").Ask(&Store::Stub::List, proto::StoreListRequest()).ok());
  return AnswerEverywhere(world, key, "127.0.1.7");
}

absl::Status KeyBruteForce(HostileWorld& world) {
  constexpr int kGuesses = 10'000, kConnections = 8;
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(world.Raw("127.0.1.8"));
    connections.back()->Greet();
  }
  for (int guess = 0; guess < kGuesses; ++guess) {
    RawHttp2& raw = *connections[static_cast<size_t>(guess % kConnections)];
    const std::string key =
        "ob_live_0123456789abcdef_" + std::string(58, 'a') + std::to_string(100'000 + guess);
    raw.Call(CallHeaders("Store/List", {{"authorization", "Bearer " + key}}), GrpcMessage(""));
    // HTTP/2's limit of streams at a time is kept.
    const size_t sent = static_cast<size_t>(guess / kConnections) + 1;
    raw.Pump([&] { return raw.replies().size() + 100 >= sent; }, std::chrono::seconds(5));
  }
  // The account that is guessed at works on meanwhile.
  const absl::Status step = world.honest().FreshStep();
  EXPECT_TRUE(step.ok()) << step;
  absl::Status last = absl::UnknownError("nothing was answered");
  int answered = 0;
  for (const auto& raw : connections) {
    EXPECT_FALSE(raw->closed());
    for (const auto& [stream, reply] : raw->replies()) {
      EXPECT_NE(reply.grpc_status.value_or(UINT32_MAX), 0u);
      answered += reply.grpc_status.has_value();
      if (reply.grpc_status)
        last = absl::Status(static_cast<StatusCode>(*reply.grpc_status), reply.grpc_message);
    }
  }
  EXPECT_GT(answered, kGuesses / 2);
  return world.replies().Note(last);
}

absl::Status MetadataGarbage(HostileWorld& world) {
  std::string every_byte;
  for (int byte = 1; byte < 256; ++byte)
    if (byte != '\n' && byte != '\r') every_byte += static_cast<char>(byte);
  const std::vector<std::vector<Header>> attempts = {
      {{"authorization", every_byte}},
      {{"authorization", std::string("Bearer \0", 8) + world.mallory_key()}},
      {{"authorization", "Bearer " + std::string(6000, '\xff')}},
      {{"authorization-bin", "!!!! no base64 !!!!"}},
      {{
           "outboard-token-bin",
           "====",
       },
       {"outboard-session", std::string(32, '\x80')}},
      {{"outboard-session", "zz"}, {"outboard-token", std::string(4000, '0')}},
      {{"grpc-trace-bin", std::string(3000, '\xfe')}},
  };
  std::vector<std::function<absl::Status()>> calls;
  for (const std::vector<Header>& headers : attempts)
    calls.push_back([&] {
      auto raw = world.Raw("127.0.1.9");
      raw->Greet();
      return world.replies().Note(
          raw->Await(raw->Call(CallHeaders("Store/List", headers), GrpcMessage(""))));
    });
  const std::vector<absl::Status> answers = AnswersOf(calls);
  for (const absl::Status& answer : answers)
    EXPECT_TRUE(answer.code() == StatusCode::kUnauthenticated ||
                answer.code() == StatusCode::kUnavailable || answer.code() == StatusCode::kInternal)
        << answer;
  return answers[0];
}

}  // namespace outboard::test
