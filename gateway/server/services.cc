#include "gateway/server/services.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gateway/base/clock.h"
#include "gateway/base/thrown.h"
#include "gateway/blobs/limits.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/nodes/node_keeper.h"
#include "gateway/observe/call_record.h"
#include "gateway/prices/price_list.h"
#include "gateway/prices/rates_on_paper.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/invoice_page.h"
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

uint64_t AccountOf(const Admitted& caller) {
  return static_cast<uint64_t>(caller.identity.tenant.value);
}

void LetIn(grpc::CallbackServerContext* context, KeyDoor* door, Scopes any_of, CallRecord& record,
           KeyDoor::Then then) {
  const Credentials credentials = Authenticator::CredentialsOf(*context);
  record.SetPeer(door->PeerOf(credentials));
  door->Admit(credentials, any_of, SlotKind::kCall, std::move(then));
}

// Answers in the account's turn, when its key is good.
template <typename Request, typename Reply>
UnaryCall<Request, Reply>* AnswerInTurn(
    CallMethod method, grpc::CallbackServerContext* context, KeyDoor* door, WorkQueues* queues,
    FairQueue& queue, Scopes any_of,
    std::function<absl::Status(const Identity&, const Request*, Reply*)> body) {
  using Call = UnaryCall<Request, Reply>;
  return new Call(
      method, context, &queues->requests,
      [context, door, any_of](CallRecord& record, typename Call::Then then) {
        LetIn(context, door, any_of, record, std::move(then));
      },
      [&queue, body = std::move(body)](const Admitted& caller, const Request* request, Reply* reply,
                                       typename Call::Done done) {
        queue.Post(AccountOf(caller), [&caller, request, reply, body, done = std::move(done)] {
          const auto answer = [&] { return body(caller.identity, request, reply); };
          done(ErrorIfThrown("the call", answer, caller.identity.tenant.value));
        });
      });
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

grpc::ServerBidiReactor<proto::ValuesRequest, proto::ServerFrame>* CloudService::ServeValues(
    grpc::CallbackServerContext* context) {
  return new ValuesSender(driver_, auth_, &readers_, *context);
}

// ---- accounts -----------------------------------------------------------------------------------

grpc::ServerBidiReactor<proto::CreateKeyRequest, proto::CreateKeyReply>*
AccountService::ServeCreateKey(grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::CreateKeyRequest, proto::CreateKeyReply>(
      CallMethod::kCreateKey, context, door_, queues_, queues_->books, KeyScope::kAdmin,
      [this](const Identity& who, const proto::CreateKeyRequest* request,
             proto::CreateKeyReply* reply) {
        auto rights = RightsOf(*request, who.rights);
        if (!rights.ok()) return rights.status();
        if (absl::Status status = CheckNoWider(who.rights, *rights); !status.ok()) return status;
        // The keys that it made would have none, and be made again when they are revoked.
        const auto budget = ledger_->BudgetOf(BudgetScope::kKey, who.key_id);
        if (!budget.ok()) return budget.status();
        if (budget->cap.has_value())
          return absl::PermissionDeniedError(
              "this key has a cap, so it makes no keys; ask the operator (`outboard key create`)");
        auto made = accounts_->CreateKey(who.tenant, request->name(), WallNow(), *rights);
        if (!made.ok()) return made.status();
        reply->set_id(made->key.id);
        reply->set_key(std::string(made->text.Reveal()));
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<proto::ListKeysRequest, proto::ListKeysReply>*
AccountService::ServeListKeys(grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::ListKeysRequest, proto::ListKeysReply>(
      CallMethod::kListKeys, context, door_, queues_, queues_->books, KeyScope::kAdmin,
      [this](const Identity& who, const proto::ListKeysRequest* request,
             proto::ListKeysReply* reply) {
        auto keys = accounts_->ListKeys(who.tenant);
        if (!keys.ok()) return keys.status();
        for (const ApiKey& key : *keys) Fill(key, *reply->add_keys());
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<proto::RevokeKeyRequest, proto::RevokeKeyReply>*
AccountService::ServeRevokeKey(grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::RevokeKeyRequest, proto::RevokeKeyReply>(
      CallMethod::kRevokeKey, context, door_, queues_, queues_->books, KeyScope::kAdmin,
      [this](const Identity& who, const proto::RevokeKeyRequest* request,
             proto::RevokeKeyReply* reply) {
        return accounts_->RevokeKey(request->id(), WallNow(), who.tenant);
      });
}

grpc::ServerBidiReactor<proto::UsageRequest, proto::UsageReply>* AccountService::ServeUsage(
    grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::UsageRequest, proto::UsageReply>(
      CallMethod::kUsage, context, door_, queues_, queues_->reports, KeyScope::kUsage,
      [this](const Identity& who, const proto::UsageRequest* request, proto::UsageReply* reply) {
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
        auto head = heads_->Refresh(who.tenant);
        if (!head.ok()) return head.status();
        *reply->mutable_head() = *head->head;
        return absl::OkStatus();
      });
}

namespace {

// The present head; where the ledger cannot be read, the last one that was signed: sessions are
// listed and stopped all the same.
template <typename Reply>
void AddHead(HeadSigner& heads, TenantId tenant, Reply& reply) {
  if (const auto now = heads.Refresh(tenant); now.ok())
    *reply.mutable_head() = *now->head;
  else if (const auto last = heads.Of(tenant); last != nullptr)
    *reply.mutable_head() = *last;
}

void AddClasses(const CoreDriver& driver, MicroUsd price_per_hour,
                proto::ListSessionsReply& reply) {
  const std::shared_ptr<const PriceList> prices = driver.prices();
  if (prices == nullptr) {
    reply.add_classes()->set_run_per_hour_micro_usd(static_cast<uint64_t>(price_per_hour.value));
    return;
  }
  for (const PriceClass& of : prices->classes) {
    proto::DeviceClass& one = *reply.add_classes();
    one.set_name(of.name);
    const StatedRates stated = StatedRatesOf(of);
    one.mutable_rates()->set_gflops(stated.rates.gflops);
    one.mutable_rates()->set_memory_gb_per_s(stated.rates.memory_gb_per_s);
    one.set_tf32_gflops(stated.tf32_gflops);
    one.set_half_gflops(stated.half_gflops);
    one.set_f8_gflops(stated.f8_gflops);
    one.set_rates_on_paper(stated.on_paper);
    one.set_memory_bytes(of.memory_bytes);
    one.set_run_per_hour_micro_usd(static_cast<uint64_t>(of.run.value));
  }
}

}  // namespace

grpc::ServerBidiReactor<proto::ListSessionsRequest, proto::ListSessionsReply>*
AccountService::ServeListSessions(grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::ListSessionsRequest, proto::ListSessionsReply>(
      CallMethod::kListSessions, context, door_, queues_, queues_->reports,
      Scopes{KeyScope::kRun, KeyScope::kUsage},
      [this](const Identity& who, const proto::ListSessionsRequest* request,
             proto::ListSessionsReply* reply) {
        for (const GatewayCore::Listed& session : driver_->ListSessions(who.tenant)) {
          proto::SessionInfo& info = *reply->add_sessions();
          info.set_session_id(session.session.Hex());
          info.set_name(session.name);
          info.set_state(session.state);
          info.set_devices(session.devices);
          info.set_age_ms(static_cast<uint64_t>(session.age_ms));
          info.set_billed_ms(static_cast<uint64_t>(session.bill.ms));
          info.set_cost_micro_usd(static_cast<uint64_t>(session.bill.amount.value));
          info.set_has_client(session.has_client);
          info.set_stopped(std::string(session.stopped.message()));
        }
        if (request->with_classes()) AddClasses(*driver_, price_per_hour_, *reply);
        AddHead(*heads_, who.tenant, *reply);
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<proto::StopSessionRequest, proto::StopSessionReply>*
AccountService::ServeStopSession(grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::StopSessionRequest, proto::StopSessionReply>(
      CallMethod::kStopSession, context, door_, queues_, queues_->reports, KeyScope::kRun,
      [this](const Identity& who, const proto::StopSessionRequest* request,
             proto::StopSessionReply* reply) {
        const auto stopped = driver_->StopSession(who.tenant, request->session());
        if (!stopped.ok()) return stopped.status();
        reply->set_session_id(stopped->first.Hex());
        reply->set_cost_micro_usd(static_cast<uint64_t>(stopped->second.amount.value));
        AddHead(*heads_, who.tenant, *reply);
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<proto::InvoiceRequest, proto::InvoiceReply>* AccountService::ServeInvoice(
    grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::InvoiceRequest, proto::InvoiceReply>(
      CallMethod::kInvoice, context, door_, queues_, queues_->reports, KeyScope::kUsage,
      [this](const Identity& who, const proto::InvoiceRequest* request,
             proto::InvoiceReply* reply) {
        return InvoicePage(*ledger_, *heads_, *receipts_, who.tenant, request->after(), *reply);
      });
}

namespace {

grpc::Status NotHere(grpc::CallbackServerContext& context) {
  const absl::Status status = absl::UnauthenticatedError(
      "this address is for clients; workers join at the gateway's --fleet-listen");
  telemetry::CountRefused(telemetry::Refusal::kFleetSecret);
  CallRecord(CallMethod::kRefusedJoin, context).End(status);
  return wire::ToGrpc(status);
}

// Of a machine of an account's own; whatever else is shown where clients connect joins no fleet.
bool ShowsKey(const grpc::CallbackServerContext& context) {
  return Authenticator::CredentialsOf(context).key.starts_with(kKeyPrefix);
}

template <typename Request, typename Reply>
class Refusal final : public grpc::ServerBidiReactor<Request, Reply> {
 public:
  explicit Refusal(grpc::CallbackServerContext& context) { this->Finish(NotHere(context)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* FleetService::Join(
    grpc::CallbackServerContext* context) {
  if (keys_ != nullptr) {
    if (ShowsKey(*context)) return new ControlStream(driver_, keys_, *context);
    return new Refusal<proto::WorkerEvent, proto::GatewayCommand>(*context);
  }
  const std::string node =
      admission_ == nullptr ? "" : admission_->NodeOf(*context->auth_context());
  return new ControlStream(
      driver_, DoorFor(*context), *context, Watch(context),
      admission_ == nullptr ? "" : admission_->ProvedName(*context->auth_context()), node,
      [keeper = nodes_.keeper, node](const absl::Status& result) {
        if (keeper != nullptr) keeper->OnTested(node, result);
      });
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* FleetService::Attach(
    grpc::CallbackServerContext* context) {
  if (keys_ != nullptr) {
    if (ShowsKey(*context)) return new ExecutorStream(driver_, keys_, *context);
    return new Refusal<proto::ServerFrame, proto::ClientFrame>(*context);
  }
  return new ExecutorStream(driver_, DoorFor(*context), *context, Watch(context));
}

std::shared_ptr<void> FleetService::Watch(grpc::CallbackServerContext* context) {
  if (admission_ == nullptr) return nullptr;
  return admission_->Watch(*context->auth_context(), [context] { context->TryCancel(); });
}

FleetDoor* FleetService::DoorFor(const grpc::CallbackServerContext& context) const {
  const bool is_node =
      admission_ != nullptr && !admission_->NodeOf(*context.auth_context()).empty();
  return is_node ? nullptr : door_;
}

grpc::ServerBidiReactor<proto::EnrolNodeRequest, proto::EnrolReply>* FleetService::ServeEnrolNode(
    grpc::CallbackServerContext* context) {
  if (keys_ != nullptr) return new Refusal<proto::EnrolNodeRequest, proto::EnrolReply>(*context);
  return gateway::ServeEnrolNode(context, nodes_, door_, queues_);
}

grpc::ServerBidiReactor<proto::NodeLogRequest, proto::NodeLogReply>* FleetService::ServeNodeLog(
    grpc::CallbackServerContext* context) {
  if (keys_ != nullptr) return new Refusal<proto::NodeLogRequest, proto::NodeLogReply>(*context);
  return gateway::ServeNodeLog(context, nodes_, admission_, queues_);
}

grpc::ServerBidiReactor<proto::EnrolRequest, proto::EnrolReply>* FleetService::ServeEnrol(
    grpc::CallbackServerContext* context) {
  using Call = UnaryCall<proto::EnrolRequest, proto::EnrolReply>;
  if (keys_ != nullptr) return new Refusal<proto::EnrolRequest, proto::EnrolReply>(*context);
  const auto let_in = [this, context](CallRecord&, const Call::Then& then) {
    const Credentials credentials = Authenticator::CredentialsOf(*context);
    const auto refuse = [then](absl::Status why) { then(std::move(why)); };
    if (!door_->Admit(credentials.key, credentials.peer, refuse)) return;
    if (admission_ != nullptr) return then(Admitted{});
    then(absl::FailedPreconditionError("this port has no TLS: its workers need no certificate"));
  };
  const auto enrol = [this, context](const Admitted&, const proto::EnrolRequest* request,
                                     proto::EnrolReply* reply, const Call::Done& done) {
    constexpr uint64_t kNoAccount = 0;                                     // accounts count from 1
    queues_->pool.Post(kNoAccount, [this, context, request, reply, done] {  // signs, writes a file
      // A token is good once: it is not spent on a worker that has given up waiting.
      if (context->IsCancelled()) return done(absl::CancelledError("the worker has hung up"));
      const auto chain = admission_->Enrol(*context->auth_context(), request->certificate_request(),
                                           request->name(), request->token());
      if (chain.ok())
        for (const tls::Certificate& one : *chain)
          reply->mutable_certificate_chain()->append(one.ToPem());
      done(chain.status());
    });
  };
  return new Call(CallMethod::kEnrol, context, &queues_->requests, let_in, enrol);
}

grpc::ServerBidiReactor<proto::KeepRequest, proto::KeepReply>* FleetService::ServeKeep(
    grpc::CallbackServerContext* context) {
  using Call = UnaryCall<proto::KeepRequest, proto::KeepReply>;
  if (keys_ != nullptr && !ShowsKey(*context))
    return new Refusal<proto::KeepRequest, proto::KeepReply>(*context);
  const Caller caller = Caller::Of(*context);
  const auto let_in = [this, caller](CallRecord& record, const Call::Then& then) {
    if (!caller.session.has_value())
      return then(absl::UnauthenticatedError(
          "Keep: the metadata outboard-session and outboard-token are missing"));
    record.SetSession(*caller.session);
    const auto is_executor = [this, caller, then](absl::StatusOr<Admitted> admitted) {
      if (!admitted.ok()) return then(std::move(admitted));
      const auto tenant = driver_->TenantOf(*caller.session, caller.token);
      if (absl::IsUnavailable(tenant.status())) return then(tenant.status());
      // Not PERMISSION_DENIED: it once was this session's executor.
      if (!tenant.ok()) return then(absl::AbortedError(tenant.status().message()));
      if (keys_ != nullptr && *tenant != admitted->identity.tenant)
        return then(absl::PermissionDeniedError("the session is another account's"));
      admitted->identity.tenant = *tenant;
      then(std::move(admitted));
    };
    if (keys_ == nullptr) return is_executor(Admitted{});
    keys_->Admit(caller.credentials, KeyScope::kRun, SlotKind::kCall, is_executor);
  };
  const auto keep = [this, caller](const Admitted& admitted, const proto::KeepRequest* request,
                                   proto::KeepReply*, const Call::Done& done) {
    const std::optional<wire::Hash> manifest = wire::HashFromBytes(request->manifest_root());
    if (!manifest) return done(absl::InvalidArgumentError("manifest_root is a hash of 32 bytes"));
    // It writes a name: where no client that may asked for this one, the machine's own key must.
    if (keys_ != nullptr && request->what() == proto::KeepRequest::CHECKPOINT) {
      const absl::Status has_scope = CheckScope(admitted.identity.rights.scopes, KeyScope::kStore);
      if (!has_scope.ok()) {
        absl::Status asked = driver_->CheckAskedFor(*caller.session, request->name());
        if (!asked.ok()) return done(absl::IsNotFound(asked) ? has_scope : std::move(asked));
      }
    }
    const TenantId tenant = admitted.identity.tenant;
    queues_->pool.Post(AccountOf(admitted), [=, this] {
      KeepFor(tenant, caller, *manifest, *request, done);
    });
  };
  return new Call(CallMethod::kKeep, context, &queues_->requests, let_in, keep);
}

void FleetService::KeepFor(TenantId tenant, const Caller& caller, const wire::Hash& manifest,
                           const proto::KeepRequest& request,
                           const std::function<void(absl::Status)>& answer) {
  const SessionId session = *caller.session;
  if (request.what() == proto::KeepRequest::CHECKPOINT)
    return blob_retention_->KeepCheckpoint(tenant, session, request.name(), manifest, answer);
  const auto done = [this, session, token = caller.token, answer](absl::Status kept) {
    if (IsOfDisk(kept)) driver_->SnapshotNotKept(session, token);
    answer(std::move(kept));
  };
  const auto write = [this, session, token = caller.token, rank = caller.rank,
                      root = request.manifest_root(),
                      seq = request.seq()](const BlobRetention::Done& written) {
    driver_->KeepSnapshot(
        session, token, root, seq,
        [this, session, written](absl::Status status) {
          written(status);
          // Nobody else lets go of what was kept for a session that has ended meanwhile.
          if (absl::IsNotFound(status)) blob_retention_->EndSession(session);
        },
        rank);
  };
  if (driver_->ExecutorsOf(session) > 1)
    return blob_retention_->KeepPart(tenant, session, manifest, request.seq(), write, done);
  blob_retention_->KeepSnapshot(tenant, session, manifest, request.seq(), write, done);
}

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* NoFleetService::Join(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::WorkerEvent, proto::GatewayCommand>(*context);
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* NoFleetService::Attach(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::ServerFrame, proto::ClientFrame>(*context);
}

grpc::ServerBidiReactor<proto::KeepRequest, proto::KeepReply>* NoFleetService::ServeKeep(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::KeepRequest, proto::KeepReply>(*context);
}

grpc::ServerBidiReactor<proto::EnrolRequest, proto::EnrolReply>* NoFleetService::ServeEnrol(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::EnrolRequest, proto::EnrolReply>(*context);
}

grpc::ServerBidiReactor<proto::EnrolNodeRequest, proto::EnrolReply>* NoFleetService::ServeEnrolNode(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::EnrolNodeRequest, proto::EnrolReply>(*context);
}

grpc::ServerBidiReactor<proto::NodeLogRequest, proto::NodeLogReply>* NoFleetService::ServeNodeLog(
    grpc::CallbackServerContext* context) {
  return new Refusal<proto::NodeLogRequest, proto::NodeLogReply>(*context);
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

grpc::ServerBidiReactor<proto::StoreListRequest, proto::StoreListReply>* StoreService::ServeList(
    grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::StoreListRequest, proto::StoreListReply>(
      CallMethod::kStoreList, context, door_, queues_, queues_->pool, KeyScope::kStore,
      [this](const Identity& who, const proto::StoreListRequest* request,
             proto::StoreListReply* reply) {
        auto rows = blob_retention_->names().List(who.tenant, request->prefix(), request->after(),
                                                  kStoreNamesPerPage + 1);
        if (!rows.ok()) return rows.status();
        reply->set_more(rows->size() > kStoreNamesPerPage);
        if (reply->more()) rows->pop_back();
        for (const NameRow& row : *rows) Fill(row, *reply->add_names());
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<proto::StoreGetRequest, proto::StoreGetReply>* StoreService::ServeGet(
    grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::StoreGetRequest, proto::StoreGetReply>(
      CallMethod::kStoreGet, context, door_, queues_, queues_->pool, KeyScope::kStore,
      [this](const Identity& who, const proto::StoreGetRequest* request,
             proto::StoreGetReply* reply) {
        auto stored = blob_retention_->Get(who.tenant, request->name());
        if (!stored.ok()) return stored.status();
        Fill(stored->row, *reply->mutable_stored());
        *reply->mutable_checkpoint() = std::move(stored->checkpoint);
        return absl::OkStatus();
      });
}

// Answers when the name is on the disk, from the store's thread: no thread of the pool waits for
// that.
grpc::ServerBidiReactor<proto::StoreSetRequest, proto::StoreSetReply>* StoreService::ServeSet(
    grpc::CallbackServerContext* context) {
  using Call = UnaryCall<proto::StoreSetRequest, proto::StoreSetReply>;
  return new Call(
      CallMethod::kStoreSet, context, &queues_->requests,
      [context, door = door_](CallRecord& record, Call::Then then) {
        LetIn(context, door, KeyScope::kStore, record, std::move(then));
      },
      [this](const Admitted& caller, const proto::StoreSetRequest* request,
             proto::StoreSetReply* reply, Call::Done done) {
        const TenantId tenant = caller.identity.tenant;
        const auto written = [this, tenant, request, reply, done](absl::Status status) {
          auto row = blob_retention_->names().Find(tenant, request->name());
          if (status.ok() && row.ok()) Fill(*row, *reply->mutable_stored());
          done(std::move(status));
        };
        queues_->pool.Post(AccountOf(caller), [this, tenant, request, written] {
          blob_retention_->Set(tenant, request->name(), request->checkpoint(), written);
        });
      });
}

grpc::ServerBidiReactor<proto::StoreRemoveRequest, proto::StoreRemoveReply>*
StoreService::ServeRemove(grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::StoreRemoveRequest, proto::StoreRemoveReply>(
      CallMethod::kStoreRemove, context, door_, queues_, queues_->books, KeyScope::kStore,
      [this](const Identity& who, const proto::StoreRemoveRequest* request,
             proto::StoreRemoveReply* reply) {
        auto freed_bytes = blob_retention_->Remove(who.tenant, request->name());
        if (freed_bytes.ok()) reply->set_freed_bytes(*freed_bytes);
        return freed_bytes.status();
      });
}

grpc::ServerBidiReactor<proto::StorePinRequest, proto::StorePinReply>* StoreService::ServePin(
    grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::StorePinRequest, proto::StorePinReply>(
      CallMethod::kStorePin, context, door_, queues_, queues_->books, KeyScope::kStore,
      [this](const Identity& who, const proto::StorePinRequest* request,
             proto::StorePinReply* reply) {
        return blob_retention_->Pin(who.tenant, request->name(), request->pinned());
      });
}

grpc::ServerBidiReactor<proto::StoreUsageRequest, proto::StoreUsageReply>* StoreService::ServeUsage(
    grpc::CallbackServerContext* context) {
  return AnswerInTurn<proto::StoreUsageRequest, proto::StoreUsageReply>(
      CallMethod::kStoreUsage, context, door_, queues_, queues_->pool, KeyScope::kStore,
      [this](const Identity& who, const proto::StoreUsageRequest* request,
             proto::StoreUsageReply* reply) {
        auto usage = blob_retention_->UsageOf(who.tenant);
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
