// What a key may do at a gateway: the scope of every method, from which addresses, and what a key
// that makes others may give them.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "client/session/link/grpc_link.h"
#include "gateway/server/key_uses.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "tests/support/gateway_test.h"
#include "tests/support/paths.h"
#include "wire/status.h"
#include "wire/version.h"

namespace outboard {
namespace {

using absl::StatusCode;
using gateway::KeyRights;
using gateway::KeyScope;
using gateway::Scopes;

// The scopes of each method of a service of clients: a key needs one of them.
const std::map<std::string, Scopes> kScopesOf = {
    {"Cloud/Session", KeyScope::kRun},
    {"Cloud/Values", KeyScope::kRun},
    {"Blobs/Missing", {KeyScope::kRun, KeyScope::kStore}},
    {"Blobs/Upload", {KeyScope::kRun, KeyScope::kStore}},
    {"Blobs/Commit", {KeyScope::kRun, KeyScope::kStore}},
    {"Blobs/List", {KeyScope::kRun, KeyScope::kStore}},
    {"Blobs/Download", {KeyScope::kRun, KeyScope::kStore}},
    {"Store/List", KeyScope::kStore},
    {"Store/Get", KeyScope::kStore},
    {"Store/Set", KeyScope::kStore},
    {"Store/Remove", KeyScope::kStore},
    {"Store/Pin", KeyScope::kStore},
    {"Store/Usage", KeyScope::kStore},
    {"Account/CreateKey", KeyScope::kAdmin},
    {"Account/ListKeys", KeyScope::kAdmin},
    {"Account/RevokeKey", KeyScope::kAdmin},
    {"Account/Usage", KeyScope::kUsage},
    {"Account/Invoice", KeyScope::kUsage},
    {"Account/ListSessions", {KeyScope::kRun, KeyScope::kUsage}},
    {"Account/StopSession", KeyScope::kRun},
};

// "Cloud/Session" and so on, of all services in proto/ but the workers'.
std::vector<std::string> MethodsOfClients() {
  proto::Account::service_full_name();  // links the schemas
  std::vector<std::string> methods;
  for (const auto& file : std::filesystem::directory_iterator(test::SourceFile("proto"))) {
    const std::string text = test::ReadFile(file.path());
    const std::regex declares("\nservice (\\w+)");
    for (std::sregex_iterator it(text.begin(), text.end(), declares), none; it != none; ++it) {
      const std::string name = (*it)[1];
      if (name == "Fleet") continue;  // the fleet secret, no keys
      const auto* const service =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("outboard.proto." +
                                                                                name);
      if (service == nullptr) {
        ADD_FAILURE() << "link the schema of the service " << name;
        continue;
      }
      for (int i = 0; i < service->method_count(); ++i)
        methods.push_back(name + "/" + service->method(i)->name());
    }
  }
  return methods;
}

proto::ClientFrame Open() {
  proto::ClientFrame frame;
  proto::Open& open = *frame.add_items()->mutable_open();
  wire::SetRange(wire::kProtocolOfClients, *open.mutable_protocol());
  wire::SetRange(wire::kGraphSchemas, *open.mutable_graph_schema());
  return frame;
}

class KeyAccessTest : public test::GatewayTest {
 protected:
  // Calls any method with a first message that reaches the check of the key. OK also if the method
  // goes on talking.
  absl::Status Call(const std::string& method, const std::string& key) {
    const bool is_session = method == "Cloud/Session";
    std::string first;
    if (is_session) first = Open().SerializeAsString();
    if (method == "Cloud/Values") {
      proto::ValuesRequest request;
      request.set_session_id(std::string(16, 's'));
      request.set_resume_token(std::string(16, 't'));
      first = request.SerializeAsString();
    }
    grpc::GenericStub stub(session::MakeChannel(gateway_->address()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    context.AddMetadata("authorization", "Bearer " + key);
    grpc::CompletionQueue queue;
    const auto done = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    auto call = stub.PrepareCall(&context, "/outboard.proto." + method, &queue);
    call->StartCall(nullptr);
    done();
    grpc::Slice slice(first);
    grpc::ByteBuffer message(&slice, 1);
    call->Write(message, nullptr);
    done();
    if (!is_session) {  // which would end with it, before the key is looked at
      call->WritesDone(nullptr);
      done();
    }
    bool goes_on = false;
    for (grpc::ByteBuffer answer; !goes_on; answer.Clear()) {
      call->Read(&answer, nullptr);
      if (!done()) break;
      proto::ServerFrame frame;
      std::vector<grpc::Slice> slices;
      if (!is_session || !answer.Dump(&slices).ok()) continue;
      std::string bytes;
      for (const grpc::Slice& part : slices)
        bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
      goes_on = frame.ParseFromString(bytes) &&
                std::any_of(frame.items().begin(), frame.items().end(),
                            [](const auto& item) { return item.has_opened(); });
    }
    if (goes_on) context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    done();
    return goes_on ? absl::OkStatus() : wire::FromGrpc(status);
  }

  std::string TextWith(const KeyRights& rights) { return TextOf(MakeKey(rights)); }
  static KeyRights From(const char* ranges) {
    return {.scopes = Scopes::All(), .from = gateway::ParseRanges(ranges).value()};
  }

  absl::Status Make(const std::string& key, const proto::CreateKeyRequest& request,
                    proto::CreateKeyReply& reply) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + key);
    auto stub = proto::Account::NewStub(session::MakeChannel(gateway_->address()));
    return wire::FromGrpc(stub->CreateKey(&context, request, &reply));
  }
  std::vector<gateway::ApiKey> Keys() {
    return gateway::Accounts::Open(gateway::AccountsPath(data())).value()->ListKeys().value();
  }
};

TEST_F(KeyAccessTest, EveryMethodNeedsItsScope) {
  StartGateway();
  StartWorker();
  std::map<KeyScope, std::string> keys;
  for (const KeyScope scope :
       {KeyScope::kRun, KeyScope::kUsage, KeyScope::kStore, KeyScope::kAdmin})
    keys[scope] = TextWith({.scopes = scope});
  const std::vector<std::string> methods = MethodsOfClients();
  EXPECT_EQ(methods.size(), kScopesOf.size());
  for (const std::string& method : methods) {
    const auto needs = kScopesOf.find(method);
    if (needs == kScopesOf.end()) {
      ADD_FAILURE() << method << ": say here, and in the service, which scope it needs";
      continue;
    }
    for (const auto& [scope, key] : keys) {
      const absl::Status status = Call(method, key);
      const std::string what = method + " with " + Scopes(scope).ToString();
      EXPECT_NE(status.code(), StatusCode::kUnauthenticated) << what << ": " << status;
      const bool may = needs->second.HasAny(scope);
      EXPECT_EQ(status.code() == StatusCode::kPermissionDenied, !may) << what << ": " << status;
      if (may) continue;
      for (const std::string& word : needs->second.Words())
        EXPECT_NE(status.message().find(word), absl::string_view::npos) << what << ": " << status;
    }
  }
}

TEST_F(KeyAccessTest, AKeyIsForItsAddresses) {
  StartGateway();  // at a unix socket, which counts as loopback
  for (const char* here : {"", "127.0.0.1", "::1", "10.0.0.0/8,127.0.0.0/8"})
    EXPECT_TRUE(Call("Account/Usage", TextWith(From(here))).ok()) << here;
  for (const char* elsewhere : {"10.0.0.0/8", "fd00::/8", "127.0.0.2"}) {
    const absl::Status status = Call("Account/Usage", TextWith(From(elsewhere)));
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << elsewhere << ": " << status;
    EXPECT_NE(status.message().find("address"), absl::string_view::npos) << status;
  }
  // In process.
  auto stub = proto::Account::NewStub(gateway_->InProcessChannel());
  for (const auto& [ranges, code] : {std::pair("127.0.0.1", grpc::StatusCode::OK),
                                     {"10.0.0.0/8", grpc::StatusCode::UNAUTHENTICATED}}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + TextWith(From(ranges)));
    proto::UsageReply reply;
    EXPECT_EQ(stub->Usage(&context, {}, &reply).error_code(), code) << ranges;
  }
}

TEST_F(KeyAccessTest, AKeyIsForItsAddressesOverTcp) {
  gateway::GatewayOptions options;
  options.listen = "127.0.0.1:0";
  StartGateway(options);
  auto stub = proto::Account::NewStub(
      grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
  for (const auto& [ranges, code] : {std::pair("127.0.0.0/8", grpc::StatusCode::OK),
                                     {"127.0.0.1", grpc::StatusCode::OK},
                                     {"::1", grpc::StatusCode::UNAUTHENTICATED},
                                     {"10.0.0.0/8", grpc::StatusCode::UNAUTHENTICATED}}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + TextWith(From(ranges)));
    proto::UsageReply reply;
    EXPECT_EQ(stub->Usage(&context, {}, &reply).error_code(), code) << ranges;
  }
}

TEST_F(KeyAccessTest, AKeyMakesNoneWithMoreRights) {
  StartGateway();
  const int64_t later_s = gateway::WallNow().unix_ms / 1000 + 3600;
  KeyRights rights = From("127.0.0.0/8,::1");
  rights.scopes = {KeyScope::kRun, KeyScope::kAdmin};
  rights.expires_at = gateway::WallTime{later_s * 1000};
  const std::string maker = TextWith(rights);
  struct Case {
    std::vector<std::string> scopes;
    int64_t expires_s;
    std::vector<std::string> from;
    StatusCode code;
  };
  const Case cases[] = {
      {{"run"}, later_s, {"127.0.0.1"}, StatusCode::kOk},
      {{"run", "admin"}, 0, {}, StatusCode::kOk},
      {{"run", "store"}, later_s, {"127.0.0.1"}, StatusCode::kPermissionDenied},
      {{"run"}, later_s + 1, {"127.0.0.1"}, StatusCode::kPermissionDenied},
      {{"run"}, later_s, {"126.0.0.0/7"}, StatusCode::kPermissionDenied},
      {{"all"}, 0, {}, StatusCode::kInvalidArgument},
      {{"run"}, -1, {}, StatusCode::kInvalidArgument},
      {{"run"}, 1, {}, StatusCode::kInvalidArgument},
      {{"run"}, INT64_MAX, {}, StatusCode::kInvalidArgument},
      {{"run"}, 0, {"here"}, StatusCode::kInvalidArgument},
      {{"run"}, 0, std::vector<std::string>(9, "127.0.0.1"), StatusCode::kInvalidArgument},
  };
  for (const Case& c : cases) {
    const size_t before = Keys().size();
    proto::CreateKeyRequest request;
    request.set_name("k");
    for (const std::string& scope : c.scopes) request.add_scopes(scope);
    request.set_expires_unix_s(c.expires_s);
    for (const std::string& range : c.from) request.add_from(range);
    proto::CreateKeyReply reply;
    const absl::Status status = Make(maker, request, reply);
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_EQ(Keys().size(), before + (status.ok() ? 1 : 0));
  }
  // Without a word about rights: those that new keys have, as far as the maker has them.
  proto::CreateKeyRequest plain;
  plain.set_name("plain");
  proto::CreateKeyReply reply;
  ASSERT_TRUE(Make(maker, plain, reply).ok());
  rights.scopes = KeyScope::kRun;
  EXPECT_EQ(Keys().back().rights, rights);
}

// What such a key makes has no cap: it would be a cap of nothing.
TEST_F(KeyAccessTest, AKeyWithACap_MakesNoKeys) {
  StartGateway();
  KeyRights rights;
  rights.scopes = {KeyScope::kRun, KeyScope::kAdmin};
  const gateway::NewApiKey maker = MakeKey(rights);
  proto::CreateKeyRequest request;
  request.set_name("k");
  proto::CreateKeyReply reply;
  ASSERT_TRUE(Books()->SetCap(gateway::BudgetScope::kKey, maker.key.id,
                              gateway::MicroUsd{5'000'000}).ok());
  const absl::Status refused = Make(TextOf(maker), request, reply);
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_EQ(Keys().size(), 1u);
  ASSERT_TRUE(Books()->SetCap(gateway::BudgetScope::kKey, maker.key.id, std::nullopt).ok());
  EXPECT_TRUE(Make(TextOf(maker), request, reply).ok());
}

// A machine of an account's own shows its key where clients connect, beside its session's token.
TEST_F(KeyAccessTest, AMachineOfOnesOwn_KeepsWhatItsKeyAllows) {
  StartGateway();
  const auto with = [&](Scopes scopes) {
    KeyRights rights;
    rights.scopes = scopes;
    return MakeKey(rights);
  };
  const std::string runs = TextOf(with(KeyScope::kRun));
  const std::string stores = TextOf(with({KeyScope::kRun, KeyScope::kStore}));
  const std::string reads = TextOf(with(KeyScope::kUsage));
  std::string another;
  {
    auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
    auto tenant = accounts->EnsureTenant("another", gateway::WallNow()).value();
    another = TextOf(accounts->CreateKey(tenant.id, "k", gateway::WallNow(), {}).value());
  }
  FakeWorker machine(session::MakeChannel(gateway_->address()), runs);
  session::SessionOptions options = Options(runs);
  options.device_class = "own";
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  const std::string id = (*session)->stats().session_id;
  using Keep = proto::KeepRequest;
  const struct {
    const char* what;
    Keep::What kept;
    std::string key;
    std::optional<StatusCode> code;  // none: it is let in, and its manifest is not there
  } cases[] = {
      {"no key of this gateway", Keep::SNAPSHOT, "ob_live_" + std::string(runs.size() - 8, 'a'),
       StatusCode::kUnauthenticated},
      {"a wrong secret", Keep::SNAPSHOT, runs.substr(0, runs.size() - 4) + "0000",
       StatusCode::kUnauthenticated},
      {"another account's", Keep::SNAPSHOT, another, StatusCode::kPermissionDenied},
      {"not the scope to run", Keep::SNAPSHOT, reads, StatusCode::kPermissionDenied},
      {"a name without the scope to store", Keep::CHECKPOINT, runs, StatusCode::kPermissionDenied},
      {"a snapshot", Keep::SNAPSHOT, runs, std::nullopt},
      {"a name", Keep::CHECKPOINT, stores, std::nullopt},
  };
  for (const auto& c : cases) {
    const absl::Status status = machine.Keep(id, c.kept, c.key);
    EXPECT_FALSE(status.ok()) << c.what;
    if (c.code.has_value()) {
      EXPECT_EQ(status.code(), *c.code) << c.what << ": " << status;
    } else {
      EXPECT_NE(status.code(), StatusCode::kPermissionDenied) << c.what << ": " << status;
      EXPECT_NE(status.code(), StatusCode::kUnauthenticated) << c.what << ": " << status;
    }
  }
}

TEST_F(KeyAccessTest, AListShowsEveryRight) {
  StartGateway();
  KeyRights rights = From("127.0.0.1");
  rights.expires_at = gateway::WallTime{gateway::WallNow().unix_ms + 3'600'000};
  const gateway::NewApiKey made = MakeKey(rights);
  const int64_t before_s = gateway::WallNow().unix_ms / 1000;
  auto stub = proto::Account::NewStub(session::MakeChannel(gateway_->address()));
  proto::ListKeysReply reply;
  // A use is written soon after the call that was one.
  ASSERT_TRUE(test::Eventually([&] {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + TextOf(made));
    reply.Clear();
    return stub->ListKeys(&context, {}, &reply).ok() && reply.keys(0).used_unix_s() != 0;
  }));
  const proto::KeyInfo& info = reply.keys(0);
  EXPECT_GE(info.used_unix_s(), before_s);
  EXPECT_EQ(info.expires_unix_s(), rights.expires_at->unix_ms / 1000);
  ASSERT_EQ(info.from_size(), 1);
  EXPECT_EQ(info.from(0), "127.0.0.1");
  EXPECT_EQ(info.scopes_size(), 4);
}

TEST_F(KeyAccessTest, AUseIsWrittenOnceAMinute) {
  StartGateway();
  const gateway::NewApiKey made = MakeKey();
  const gateway::WallTime noon{1'700'000'000'000};
  const auto after_uses_at = [&](std::vector<int64_t> seconds) {
    {
      gateway::KeyUses uses(gateway::Accounts::Open(gateway::AccountsPath(data())).value());
      for (const int64_t s : seconds)
        uses.Note(made.key.id, gateway::WallTime{noon.unix_ms + s * 1000});
    }
    return (Keys().at(0).used_at->unix_ms - noon.unix_ms) / 1000;
  };
  EXPECT_EQ(after_uses_at({0, 1, 59}), 0);
  EXPECT_EQ(after_uses_at({0, 59, 60, 61}), 60);
}

}  // namespace
}  // namespace outboard
