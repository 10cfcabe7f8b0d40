#include "gateway/server/store_service.h"

#include <utility>

#include "gateway/blobs/limits.h"
#include "wire/status.h"

namespace outboard::gateway {

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

// Authenticates and answers on the pool: both read the disk.
grpc::ServerUnaryReactor* StoreService::Answer(grpc::CallbackServerContext* context,
                                               std::function<absl::Status(TenantId)> body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool_->Post([this, reactor, bearer = Authenticator::Bearer(*context), body = std::move(body)] {
    auto identity = gatekeeper_->Client(bearer);
    reactor->Finish(wire::ToGrpc(identity.ok() ? body(identity->tenant) : identity.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* StoreService::List(grpc::CallbackServerContext* context,
                                             const proto::StoreListRequest* request,
                                             proto::StoreListReply* reply) {
  return Answer(context, [this, request, reply](TenantId tenant) {
    auto rows = catalogue_->names().List(tenant, request->prefix(), request->after(),
                                         kStoreNamesPerPage + 1);
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
  return Answer(context, [this, request, reply](TenantId tenant) {
    auto stored = catalogue_->Get(tenant, request->name());
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
  pool_->Post([this, reactor, request, reply, bearer = Authenticator::Bearer(*context)] {
    auto identity = gatekeeper_->Client(bearer);
    if (!identity.ok()) return reactor->Finish(wire::ToGrpc(identity.status()));
    const TenantId tenant = identity->tenant;
    catalogue_->Set(tenant, request->name(), request->checkpoint(),
                    [this, reactor, request, reply, tenant](absl::Status status) {
                      auto row = catalogue_->names().Find(tenant, request->name());
                      if (status.ok() && row.ok()) Fill(*row, *reply->mutable_stored());
                      reactor->Finish(wire::ToGrpc(status));
                    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* StoreService::Remove(grpc::CallbackServerContext* context,
                                               const proto::StoreRemoveRequest* request,
                                               proto::StoreRemoveReply* reply) {
  return Answer(context, [this, request, reply](TenantId tenant) {
    auto freed_bytes = catalogue_->Remove(tenant, request->name());
    if (freed_bytes.ok()) reply->set_freed_bytes(*freed_bytes);
    return freed_bytes.status();
  });
}

grpc::ServerUnaryReactor* StoreService::Pin(grpc::CallbackServerContext* context,
                                            const proto::StorePinRequest* request,
                                            proto::StorePinReply* reply) {
  return Answer(context, [this, request](TenantId tenant) {
    return catalogue_->names().Pin(tenant, request->name(), request->pinned());
  });
}

grpc::ServerUnaryReactor* StoreService::Usage(grpc::CallbackServerContext* context,
                                              const proto::StoreUsageRequest* request,
                                              proto::StoreUsageReply* reply) {
  return Answer(context, [this, reply](TenantId tenant) {
    auto usage = catalogue_->UsageOf(tenant);
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
