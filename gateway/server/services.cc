#include "gateway/server/services.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gateway/base/clock.h"
#include "gateway/blobs/limits.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/observe/call_record.h"
#include "gateway/server/caller.h"
#include "gateway/streams/streams.h"
#include "gateway/tls/fleet_door.h"
#include "gateway/tls/worker_admission.h"
#include "telemetry/counters.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace outboard::gateway {

namespace {

using telemetry::CallMethod;

// Answers in the account's turn, when its key is good.
grpc::ServerUnaryReactor* AnswerInTurn(CallMethod method, grpc::CallbackServerContext* context,
                                       const google::protobuf::Message& request, KeyDoor* door,
                                       FairQueue& queue, Scopes any_of,
                                       std::function<absl::Status(const Identity&)> body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto record = std::make_shared<CallRecord>(method, *context);
  const auto finish = Finisher(reactor, record);
  const auto then = [record, finish, &queue,
                     body = std::move(body)](absl::StatusOr<Admitted> admitted) {
    if (!admitted.ok()) return finish(admitted.status());
    record->SetAccount(admitted->identity.tenant);
    const auto account = static_cast<uint64_t>(admitted->identity.tenant.value);
    queue.Post(account, [finish, body, admitted = *std::move(admitted)] {
      finish(body(admitted.identity));
    });
  };
  const Credentials credentials = Authenticator::CredentialsOf(*context);
  record->SetPeer(door->PeerOf(credentials));
  door->Admit(credentials, any_of, {.slot = SlotKind::kCall, .held_bytes = request.ByteSizeLong()},
              then);
  return reactor;
}

// The rights that a request names; what it does not name is as wide as those of the key that asks.
absl::StatusOr<KeyRights> RightsOf(const proto::CreateKeyRequest& request, const KeyRights& maker) {
  KeyRights rights = maker;
  if (request.scopes().empty()) {
    rights.scopes = maker.scopes.And(kScopesOfNewKeys);
  } else {
    auto scopes = Scopes::Parse(absl::StrJoin(request.scopes(), ","));
    if (!scopes.ok()) return scopes.status();
    rights.scopes = *scopes;
  }
  if (request.expires_unix_s() < 0 || request.expires_unix_s() > kLatestUnixS)
    return absl::InvalidArgumentError("expires_unix_s is no time");
  if (request.expires_unix_s() != 0) rights.expires_at = WallTime{request.expires_unix_s() * 1000};
  if (!request.from().empty()) {
    auto from = ParseRanges(absl::StrJoin(request.from(), ","));
    if (!from.ok()) return from.status();
    rights.from = *std::move(from);
  }
  return rights;
}

void Fill(const ApiKey& key, proto::KeyInfo& info) {
  const auto seconds = [](const std::optional<WallTime>& time) {
    return time.value_or(WallTime{}).unix_ms / 1000;
  };
  info.set_id(key.id);
  info.set_name(key.name);
  info.set_created_unix_s(key.created_at.unix_ms / 1000);
  info.set_revoked(key.revoked_at.has_value());
  for (std::string& word : key.rights.scopes.Words()) info.add_scopes(std::move(word));
  info.set_expires_unix_s(seconds(key.rights.expires_at));
  for (const AddressRange& range : key.rights.from) info.add_from(range.ToString());
  info.set_used_unix_s(seconds(key.used_at));
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* CloudService::Session(
    grpc::CallbackServerContext* context) {
  return new ClientStream(driver_, host_, auth_, &readers_, *context);
}

grpc::ServerWriteReactor<proto::ServerFrame>* CloudService::Values(
    grpc::CallbackServerContext* context, const proto::ValuesRequest* request) {
  return new ValuesSender(driver_, auth_, &readers_, *context, *request);
}

// ---- accounts -----------------------------------------------------------------------------------

grpc::ServerUnaryReactor* AccountService::CreateKey(grpc::CallbackServerContext* context,
                                                    const proto::CreateKeyRequest* request,
                                                    proto::CreateKeyReply* reply) {
  return AnswerInTurn(CallMethod::kCreateKey, context, *request, door_, turns_->books,
                      KeyScope::kAdmin, [this, request, reply](const Identity& who) {
                        auto rights = RightsOf(*request, who.rights);
                        if (!rights.ok()) return rights.status();
                        if (absl::Status status = CheckNoWider(who.rights, *rights); !status.ok())
                          return status;
                        auto made =
                            accounts_->CreateKey(who.tenant, request->name(), WallNow(), *rights);
                        if (!made.ok()) return made.status();
                        reply->set_id(made->key.id);
                        reply->set_key(std::string(made->text.Reveal()));
                        return absl::OkStatus();
                      });
}

grpc::ServerUnaryReactor* AccountService::ListKeys(grpc::CallbackServerContext* context,
                                                   const proto::ListKeysRequest* request,
                                                   proto::ListKeysReply* reply) {
  return AnswerInTurn(CallMethod::kListKeys, context, *request, door_, turns_->books,
                      KeyScope::kAdmin, [this, reply](const Identity& who) {
                        auto keys = accounts_->ListKeys(who.tenant);
                        if (!keys.ok()) return keys.status();
                        for (const ApiKey& key : *keys) Fill(key, *reply->add_keys());
                        return absl::OkStatus();
                      });
}

grpc::ServerUnaryReactor* AccountService::RevokeKey(grpc::CallbackServerContext* context,
                                                    const proto::RevokeKeyRequest* request,
                                                    proto::RevokeKeyReply* reply) {
  return AnswerInTurn(CallMethod::kRevokeKey, context, *request, door_, turns_->books,
                      KeyScope::kAdmin, [this, request](const Identity& who) {
                        return accounts_->RevokeKey(request->id(), WallNow(), who.tenant);
                      });
}

grpc::ServerUnaryReactor* AccountService::Usage(grpc::CallbackServerContext* context,
                                                const proto::UsageRequest* request,
                                                proto::UsageReply* reply) {
  return AnswerInTurn(
      CallMethod::kUsage, context, *request, door_, turns_->reports, KeyScope::kUsage,
      [this, request, reply](const Identity& who) {
        const int64_t since_s = std::clamp<int64_t>(request->since_unix_s(), 0, kLatestUnixS);
        absl::StatusOr<UsagePage> page = [&] {
          absl::MutexLock lock(&usage_mutex_);
          return usage_->Read({.tenant = who.tenant,
                               .since = WallTime{since_s * 1000},
                               .now = WallNow(),
                               .after = request->after()});
        }();
        if (!page.ok()) return page.status();
        for (const SessionUsage& session : page->sessions) {
          proto::UsageLine& line = *reply->add_lines();
          line.set_session_id(session.session.Hex());
          line.set_devices(static_cast<uint32_t>(session.devices));
          line.set_started_unix_s(session.began_at.unix_ms / 1000);
          line.set_running(session.open);
          if (session.used_ms) line.set_used_ms(static_cast<uint64_t>(*session.used_ms));
          line.set_used_at_least(session.used_at_least);
          line.set_seconds_billed(static_cast<uint64_t>(session.charged.device_ms / 1000));
          line.set_billed_ms(static_cast<uint64_t>(session.charged.device_ms));
          line.set_cost_micro_usd(static_cast<uint64_t>(session.charged.amount.value));
        }
        reply->set_next(page->next);
        if (!page->total.has_value()) return absl::OkStatus();
        auto balance = ledger_->Balance(who.tenant);
        if (!balance.ok()) return balance.status();
        auto budget = ledger_->BudgetOf(who.tenant);
        if (!budget.ok()) return budget.status();
        reply->set_held_micro_usd(budget->held.value);
        reply->set_seconds_billed(static_cast<uint64_t>(page->total->device_ms / 1000));
        reply->set_billed_ms(static_cast<uint64_t>(page->total->device_ms));
        reply->set_cost_micro_usd(static_cast<uint64_t>(page->total->amount.value));
        reply->set_balance_micro_usd(balance->value);
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* FleetService::Join(
    grpc::CallbackServerContext* context) {
  return new ControlStream(
      driver_, door_, *context, Watch(context),
      admission_ == nullptr ? "" : admission_->ProvedName(*context->auth_context()));
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* FleetService::Attach(
    grpc::CallbackServerContext* context) {
  return new ExecutorStream(driver_, door_, *context, Watch(context));
}

std::shared_ptr<void> FleetService::Watch(grpc::CallbackServerContext* context) {
  if (admission_ == nullptr) return nullptr;
  return admission_->Watch(*context->auth_context(), [context] { context->TryCancel(); });
}

grpc::ServerUnaryReactor* FleetService::Enrol(grpc::CallbackServerContext* context,
                                              const proto::EnrolRequest* request,
                                              proto::EnrolReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto finish =
      Finisher(reactor, std::make_shared<CallRecord>(CallMethod::kEnrol, *context));
  const Credentials credentials = Authenticator::CredentialsOf(*context);
  if (!door_->Admit(credentials.key, credentials.peer, finish)) return reactor;
  if (admission_ == nullptr) {
    finish(absl::FailedPreconditionError("this port has no TLS: its workers need no certificate"));
    return reactor;
  }
  constexpr uint64_t kNoAccount = 0;                                       // accounts count from 1
  turns_->pool.Post(kNoAccount, [this, finish, context, request, reply] {  // signs, writes a file
    // A token is good once: it is not spent on a worker that has given up waiting.
    if (context->IsCancelled()) return finish(absl::CancelledError("the worker has hung up"));
    const auto chain = admission_->Enrol(*context->auth_context(), request->certificate_request(),
                                         request->name(), request->token());
    if (chain.ok())
      for (const tls::Certificate& one : *chain)
        reply->mutable_certificate_chain()->append(one.ToPem());
    finish(chain.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* FleetService::Keep(grpc::CallbackServerContext* context,
                                             const proto::KeepRequest* request, proto::KeepReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Caller caller = Caller::Of(*context);
  auto record = std::make_shared<CallRecord>(CallMethod::kKeep, *context);
  if (caller.session.has_value()) record->SetSession(*caller.session);
  const auto finish = Finisher(reactor, record);
  const auto refuse = [&](const absl::Status& status) {
    finish(status);
    return reactor;
  };
  if (!caller.session.has_value())
    return refuse(absl::UnauthenticatedError(
        "Keep: the metadata outboard-session and outboard-token are missing"));
  const std::optional<wire::Hash> manifest = wire::HashFromBytes(request->manifest_root());
  if (!manifest) return refuse(absl::InvalidArgumentError("manifest_root is a hash of 32 bytes"));
  const SessionId session = *caller.session;
  const auto tenant = driver_->TenantOf(session, caller.token);
  if (absl::IsUnavailable(tenant.status())) return refuse(tenant.status());
  // Not PERMISSION_DENIED: it once was this session's executor.
  if (!tenant.ok()) return refuse(absl::AbortedError(tenant.status().message()));
  turns_->pool.Post(static_cast<uint64_t>(tenant->value), [=, this] {
    if (request->what() == proto::KeepRequest::CHECKPOINT)
      return blob_retention_->KeepCheckpoint(*tenant, session, request->name(), *manifest, finish);
    const auto write = [this, session, token = caller.token, root = request->manifest_root(),
                        seq = request->seq()](const BlobRetention::Done& written) {
      driver_->KeepSnapshot(session, token, root, seq,
                            [this, session, written](absl::Status status) {
                              written(status);
                              // Nobody else lets go of what was kept for a session that has ended
                              // meanwhile.
                              if (absl::IsNotFound(status)) blob_retention_->EndSession(session);
                            });
    };
    blob_retention_->KeepSnapshot(*tenant, session, *manifest, request->seq(), write, finish);
  });
  return reactor;
}

namespace {

grpc::Status NotHere(grpc::CallbackServerContext& context) {
  const absl::Status status = absl::UnauthenticatedError(
      "this address is for clients; workers join at the gateway's --fleet-listen");
  telemetry::CountRefused(telemetry::Refusal::kFleetSecret);
  CallRecord(CallMethod::kRefusedJoin, context).End(status);
  return wire::ToGrpc(status);
}

template <typename Request, typename Reply>
class Refusal final : public grpc::ServerBidiReactor<Request, Reply> {
 public:
  explicit Refusal(grpc::CallbackServerContext& context) { this->Finish(NotHere(context)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* NoFleetService::Join(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::WorkerEvent, proto::GatewayCommand>(*context);
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* NoFleetService::Attach(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::ServerFrame, proto::ClientFrame>(*context);
}

grpc::ServerUnaryReactor* NoFleetService::Keep(grpc::CallbackServerContext* context,
                                               const proto::KeepRequest*, proto::KeepReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(NotHere(*context));
  return reactor;
}

grpc::ServerUnaryReactor* NoFleetService::Enrol(grpc::CallbackServerContext* context,
                                                const proto::EnrolRequest*, proto::EnrolReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(NotHere(*context));
  return reactor;
}

namespace {

void Fill(const NameRow& row, proto::StoredName& stored) {
  stored.set_name(row.name);
  stored.set_manifest_root(std::string(wire::AsBytes(row.manifest)));
  stored.set_size_bytes(row.size_bytes);
  stored.set_written_unix_ms(row.written_at.unix_ms);
  stored.set_pinned(row.pinned);
  stored.set_entries(row.entries);
}

}  // namespace

grpc::ServerUnaryReactor* StoreService::Answer(CallMethod method,
                                               grpc::CallbackServerContext* context,
                                               const google::protobuf::Message& request,
                                               FairQueue& queue,
                                               std::function<absl::Status(TenantId)> body) {
  return AnswerInTurn(method, context, request, door_, queue, KeyScope::kStore,
                      [body = std::move(body)](const Identity& who) { return body(who.tenant); });
}

grpc::ServerUnaryReactor* StoreService::List(grpc::CallbackServerContext* context,
                                             const proto::StoreListRequest* request,
                                             proto::StoreListReply* reply) {
  return Answer(CallMethod::kStoreList, context, *request, turns_->pool,
                [this, request, reply](TenantId tenant) {
                  auto rows = blob_retention_->names().List(
                      tenant, request->prefix(), request->after(), kStoreNamesPerPage + 1);
                  if (!rows.ok()) return rows.status();
                  reply->set_more(rows->size() > kStoreNamesPerPage);
                  if (reply->more()) rows->pop_back();
                  for (const NameRow& row : *rows) Fill(row, *reply->add_names());
                  return absl::OkStatus();
                });
}

grpc::ServerUnaryReactor* StoreService::Get(grpc::CallbackServerContext* context,
                                            const proto::StoreGetRequest* request,
                                            proto::StoreGetReply* reply) {
  return Answer(CallMethod::kStoreGet, context, *request, turns_->pool,
                [this, request, reply](TenantId tenant) {
                  auto stored = blob_retention_->Get(tenant, request->name());
                  if (!stored.ok()) return stored.status();
                  Fill(stored->row, *reply->mutable_stored());
                  *reply->mutable_checkpoint() = std::move(stored->checkpoint);
                  return absl::OkStatus();
                });
}

// Answers when the name is on the disk, from the store's thread: no thread of the pool waits for
// that.
grpc::ServerUnaryReactor* StoreService::Set(grpc::CallbackServerContext* context,
                                            const proto::StoreSetRequest* request,
                                            proto::StoreSetReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto record = std::make_shared<CallRecord>(CallMethod::kStoreSet, *context);
  const auto finish = Finisher(reactor, record);
  const auto then = [this, record, finish, request, reply](absl::StatusOr<Admitted> admitted) {
    if (!admitted.ok()) return finish(admitted.status());
    const TenantId tenant = admitted->identity.tenant;
    record->SetAccount(tenant);
    const auto done = [this, finish, request, reply, tenant,
                       slot = admitted->slot](absl::Status status) {
      auto row = blob_retention_->names().Find(tenant, request->name());
      if (status.ok() && row.ok()) Fill(*row, *reply->mutable_stored());
      finish(status);
    };
    turns_->pool.Post(static_cast<uint64_t>(tenant.value), [=, this] {
      blob_retention_->Set(tenant, request->name(), request->checkpoint(), done);
    });
  };
  const Credentials credentials = Authenticator::CredentialsOf(*context);
  record->SetPeer(door_->PeerOf(credentials));
  door_->Admit(credentials, KeyScope::kStore,
               {.slot = SlotKind::kCall, .held_bytes = request->ByteSizeLong()}, then);
  return reactor;
}

grpc::ServerUnaryReactor* StoreService::Remove(grpc::CallbackServerContext* context,
                                               const proto::StoreRemoveRequest* request,
                                               proto::StoreRemoveReply* reply) {
  return Answer(CallMethod::kStoreRemove, context, *request, turns_->books,
                [this, request, reply](TenantId tenant) {
                  auto freed_bytes = blob_retention_->Remove(tenant, request->name());
                  if (freed_bytes.ok()) reply->set_freed_bytes(*freed_bytes);
                  return freed_bytes.status();
                });
}

grpc::ServerUnaryReactor* StoreService::Pin(grpc::CallbackServerContext* context,
                                            const proto::StorePinRequest* request,
                                            proto::StorePinReply* reply) {
  return Answer(CallMethod::kStorePin, context, *request, turns_->books,
                [this, request](TenantId tenant) {
                  return blob_retention_->Pin(tenant, request->name(), request->pinned());
                });
}

grpc::ServerUnaryReactor* StoreService::Usage(grpc::CallbackServerContext* context,
                                              const proto::StoreUsageRequest* request,
                                              proto::StoreUsageReply* reply) {
  return Answer(CallMethod::kStoreUsage, context, *request, turns_->pool,
                [this, reply](TenantId tenant) {
                  auto usage = blob_retention_->UsageOf(tenant);
                  if (!usage.ok()) return usage.status();
                  reply->set_used_bytes(usage->used_bytes);
                  reply->set_pinned_bytes(usage->pinned_bytes);
                  reply->set_quota_bytes(usage->quota_bytes);
                  reply->set_names(usage->names);
                  reply->set_unnamed_bytes(usage->used_bytes - usage->protected_bytes);
                  return absl::OkStatus();
                });
}

}  // namespace outboard::gateway
