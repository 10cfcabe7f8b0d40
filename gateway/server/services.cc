#include "gateway/server/services.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/base/clock.h"
#include "gateway/streams/streams.h"
#include "gateway/streams/values_sender.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard::gateway {

namespace {

// Authenticates and answers on the pool: both read the disk.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Authenticator* gatekeeper,
                                 WorkQueue* pool,
                                 std::function<absl::Status(const Identity&)> body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool->Post(
      [reactor, gatekeeper, bearer = Authenticator::Bearer(*context), body = std::move(body)] {
        auto identity = gatekeeper->Client(bearer);
        reactor->Finish(wire::ToGrpc(identity.ok() ? body(*identity) : identity.status()));
      });
  return reactor;
}

}  // namespace

grpc::ServerBidiReactor<proto::ClientFrame, proto::ServerFrame>* CloudService::Session(
    grpc::CallbackServerContext* context) {
  return new ClientStream(driver_, host_, gatekeeper_, *context);
}

grpc::ServerWriteReactor<proto::ServerFrame>* CloudService::Values(
    grpc::CallbackServerContext* context, const proto::ValuesRequest* request) {
  return new ValuesSender(driver_, gatekeeper_, pool_, *context, *request);
}

// ---- accounts -----------------------------------------------------------------------------------

grpc::ServerUnaryReactor* AccountService::CreateKey(grpc::CallbackServerContext* context,
                                                    const proto::CreateKeyRequest* request,
                                                    proto::CreateKeyReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request, reply](const Identity& who) {
    auto made = accounts_->CreateKey(who.tenant, request->name(), WallNow());
    if (!made.ok()) return made.status();
    reply->set_id(made->key.id);
    reply->set_key(std::string(made->text.Reveal()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccountService::ListKeys(grpc::CallbackServerContext* context,
                                                   const proto::ListKeysRequest* request,
                                                   proto::ListKeysReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, reply](const Identity& who) {
    auto keys = accounts_->ListKeys(who.tenant);
    if (!keys.ok()) return keys.status();
    for (const ApiKey& key : *keys) {
      proto::KeyInfo& info = *reply->add_keys();
      info.set_id(key.id);
      info.set_name(key.name);
      info.set_created_unix_s(key.created_at.unix_ms / 1000);
      info.set_revoked(key.revoked_at.has_value());
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccountService::RevokeKey(grpc::CallbackServerContext* context,
                                                    const proto::RevokeKeyRequest* request,
                                                    proto::RevokeKeyReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request](const Identity& who) {
    return accounts_->RevokeKey(request->id(), WallNow(), who.tenant);
  });
}

grpc::ServerUnaryReactor* AccountService::Usage(grpc::CallbackServerContext* context,
                                                const proto::UsageRequest* request,
                                                proto::UsageReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request, reply](const Identity& who) {
    constexpr int64_t kLatest = int64_t{1} << 40;  // seconds; keeps the product below in range
    int64_t since_s = std::clamp<int64_t>(request->since_unix_s(), 0, kLatest);
    auto usage = ledger_->UsageOf(who.tenant, WallTime{since_s * 1000});
    if (!usage.ok()) return usage.status();
    auto balance = ledger_->Balance(who.tenant);
    if (!balance.ok()) return balance.status();
    for (const SessionUsage& session : usage->sessions) {
      proto::UsageLine& line = *reply->add_lines();
      line.set_session_id(session.session.Hex());
      line.set_devices(static_cast<uint32_t>(session.devices));
      line.set_started_unix_s(session.granted_at.unix_ms / 1000);
      line.set_seconds_billed(static_cast<uint64_t>(session.device_seconds));
      line.set_cost_micro_usd(static_cast<uint64_t>(session.amount.value));
    }
    reply->set_seconds_billed(static_cast<uint64_t>(usage->device_seconds));
    reply->set_cost_micro_usd(static_cast<uint64_t>(usage->amount.value));
    reply->set_balance_micro_usd(balance->value);
    return absl::OkStatus();
  });
}

}  // namespace outboard::gateway
