// Names, keys and ids that try to break the log, through the real services: no event takes more
// than its line, and no secret is in one.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gateway/base/limits.h"
#include "proto/account.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "telemetry/log.h"
#include "tests/support/gateway_test.h"
#include "tests/support/raw_session.h"
#include "tests/support/step.h"
#include "wire/version.h"

namespace outboard {
namespace {

constexpr int kNames = 10'000, kCallers = 9;

class HostileLog : public test::GatewayTest {
 protected:
  void SetUp() override {
    telemetry::StartLogging({.level = telemetry::LogLevel::kDebug,
                             .format = telemetry::LogFormat::kJson,
                             .events_per_second = 0,
                             .sink = [this](const std::string& line) {
                               std::lock_guard lock(mutex_);
                               lines_.push_back(line);
                             }});
  }
  void TearDown() override {
    GatewayTest::TearDown();
    telemetry::StopLogging();
  }

  std::vector<std::string> Lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Line breaks of several kinds, a forged event, escapes of a terminal, quotes, what is no UTF-8.
std::string HostileName(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {"\n",
                                                  "\r\n",
                                                  "\xc2\x85",
                                                  "\xe2\x80\xa8",
                                                  "\x1b[2J\x1b[31m",
                                                  "\x1b]0;title\x07",
                                                  "\"",
                                                  "\\",
                                                  "\",\"level\":\"error\",\"event\":\"forged",
                                                  "time=2026 level=error event=forged\n",
                                                  "\x7f",
                                                  std::string(1, '\0'),
                                                  "\xff\xfe",
                                                  "\xed\xa0\x80",
                                                  "\xe2\x80\xae",
                                                  "{}",
                                                  "%s%n",
                                                  "a",
                                                  "name",
                                                  std::string(300, 'x')};
  std::string name;
  for (uint64_t i = 0; i < 1 + random() % 6; ++i) name += kParts[random() % kParts.size()];
  return name;
}

// Of protobuf strings: those that are no UTF-8 are refused before anybody sees them.
std::string HostileUtf8(std::mt19937_64& random) {
  std::string name = HostileName(random);
  for (char& c : name)
    if (static_cast<unsigned char>(c) >= 0xfe) c = '?';
  const size_t surrogate = name.find("\xed\xa0\x80");
  if (surrogate != std::string::npos) name.erase(surrogate);
  return name;
}

TEST_F(HostileLog, TenThousandNamesAndKeys_NoBreakAndNoSecret) {
  gateway::GatewayOptions options;
  options.core.idle_ns = gateway::kSecondNs / 10;  // those who open and vanish leave the device
  StartGateway(options);
  StartWorker();
  const gateway::NewApiKey key = MakeKey({.scopes = gateway::Scopes::All()});
  const std::string text = TextOf(key);
  const std::string secret = text.substr(text.rfind('_') + 1);
  const auto store = proto::Store::NewStub(gateway_->InProcessChannel());
  const auto account = proto::Account::NewStub(gateway_->InProcessChannel());
  const auto fleet = proto::Fleet::NewStub(gateway_->InProcessFleetChannel());
  // Several callers, since most of the time is spent waiting for answers.
  const auto call = [&](int caller) {
    std::mt19937_64 random(100 + caller);
    for (int i = caller; i < kNames; i += kCallers) {
      grpc::ClientContext context;
      const bool wrong = i % 5 == 4;
      // A header bears printable characters only: gRPC itself refuses the rest at the client.
      const std::string presented =
          wrong ? text + "\"; level=error" + std::to_string(random() % 100) : text;
      context.AddMetadata("authorization", "Bearer " + presented);
      // The answer to a wrong key is delayed, and nobody here waits for it.
      if (wrong)
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(20));
      context.AddMetadata("x-request-id", i % 2 == 0 ? "id-" + std::to_string(i) + "-of-a-test"
                                                     : "\" level=error event=forged " + secret);
      const std::string name = HostileUtf8(random) + (i % 7 == 0 ? text : "");
      if (i % 4 == 0) {
        proto::StoreGetRequest request;
        request.set_name(name);
        proto::StoreGetReply reply;
        store->Get(&context, request, &reply);  // some are there
      } else if (i % 4 == 1) {
        proto::StoreSetRequest request;
        request.set_name(name);
        proto::StoreSetReply reply;
        store->Set(&context, request, &reply);
      } else if (i % 4 == 2) {
        proto::RevokeKeyRequest request;
        request.set_id(name);
        proto::RevokeKeyReply reply;
        EXPECT_FALSE(account->RevokeKey(&context, request, &reply).ok());
      } else {
        proto::StoreRemoveRequest request;
        request.set_name(name);
        proto::StoreRemoveReply reply;
        store->Remove(&context, request, &reply);
      }
    }
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) callers.emplace_back(call, caller);
  for (std::thread& caller : callers) caller.join();
  std::mt19937_64 random(7);
  // Workers have names too, and so have clients; and the fleet secret is one.
  const auto join = [&](const std::string& shown, const std::string& name,
                        const std::string& hardware) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + shown);
    auto stream = fleet->Join(&context);
    proto::WorkerEvent event;
    proto::Register& entry = *event.mutable_register_();
    entry.set_name(name + gateway_->fleet_secret());
    wire::SetRange(wire::kProtocolOfWorkers, *entry.mutable_protocol());
    entry.add_devices()->set_hardware_class(hardware);
    stream->Write(event);
    proto::GatewayCommand command;
    stream->Read(&command);
    context.TryCancel();
    stream->Finish();
  };
  // Each answer to a wrong secret is delayed by seconds, so they are waited for side by side.
  std::vector<std::thread> strangers;
  for (int i = 0; i < 50; ++i) {
    const std::string name = HostileUtf8(random), hardware = HostileUtf8(random);
    if (i % 2) {
      join(gateway_->fleet_secret(), name, hardware);
    } else {
      strangers.emplace_back(join, gateway_->fleet_secret() + "x", name, hardware);
    }
  }
  for (std::thread& stranger : strangers) stranger.join();
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + text);
    const auto cloud = proto::Cloud::NewStub(gateway_->InProcessChannel());
    auto stream = cloud->Session(&context);
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    for (proto::VersionRange* range : {open.mutable_protocol(), open.mutable_graph_schema()}) {
      range->set_min(1);
      range->set_max(1);
    }
    open.set_client_name(HostileUtf8(random).substr(0, 90));
    open.set_client_version(HostileUtf8(random).substr(0, 90));
    stream->Write(frame);
    proto::ServerFrame answer;
    stream->Read(&answer);
    context.TryCancel();
    stream->Finish();
  }

  const std::vector<std::string> lines = Lines();
  EXPECT_GT(lines.size(), static_cast<size_t>(kNames));
  std::map<std::string, int> events;
  for (const std::string& line : lines) {
    for (const char c : line)
      ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << line;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(json.is_discarded()) << line;
    ++events[json["event"].get<std::string>()];
    ASSERT_LT(line.size(), 8'000u);
    ASSERT_EQ(line.find(secret), std::string::npos) << line;
    ASSERT_EQ(line.find(gateway_->fleet_secret()), std::string::npos) << line;
  }
  EXPECT_EQ(events.count("forged"), 0u);
  // Some answers to wrong keys are still to come.
  EXPECT_GE(events["call_ended"], kNames - static_cast<int>(gateway::kWrongKeysWaitingMax));
  EXPECT_GT(events["worker_joined"], 0);

  // An honest account goes on.
  auto session = Connect(text);
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(HostileLog, RequestId_OfTheCallerComesBack_ABadOneDoesNot) {
  StartAll();
  const auto store = proto::Store::NewStub(gateway_->InProcessChannel());
  for (const auto& [given, kept] :
       std::map<std::string, bool>{{"0af7651916cd43dd8448eb211c80319c", true},
                                   {"trace-1.2_x", true},
                                   {"short", false},
                                   {"with space", false},
                                   {std::string(65, 'a'), false},
                                   {"quote\"quote", false}}) {
    grpc::ClientContext context;
    context.AddMetadata("x-request-id", given);
    proto::StoreListReply reply;
    EXPECT_TRUE(store->List(&context, proto::StoreListRequest(), &reply).ok());
    const auto& trailing = context.GetServerTrailingMetadata();
    const auto id = trailing.find("x-request-id");
    ASSERT_NE(id, trailing.end());
    const std::string answered(id->second.data(), id->second.size());
    EXPECT_EQ(answered == given, kept) << given;
    EXPECT_GE(answered.size(), 8u);
    bool logged = false;
    for (const std::string& line : Lines())
      logged |= line.find("\"request\":\"" + answered + "\"") != std::string::npos;
    EXPECT_TRUE(logged) << answered;
  }
}

}  // namespace
}  // namespace outboard
