#include "client/files/store_client.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "base/check.h"
#include "proto/store.grpc.pb.h"
#include "wire/status.h"

namespace outboard::files {

namespace {

constexpr std::chrono::seconds kAnswerWithin{30};
constexpr std::chrono::seconds kStoredWithin{600};  // gigabytes may be on their way to the disk

using Stub = proto::Store::Stub;

template <typename Request, typename Reply>
absl::StatusOr<Reply> Call(const std::shared_ptr<grpc::Channel>& channel,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Reply*),
                           const std::string& key, const Request& request,
                           std::chrono::seconds within = kAnswerWithin) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + within);
  if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
  Reply reply;
  const grpc::Status status = (*proto::Store::NewStub(channel).*method)(&context, request, &reply);
  if (!status.ok()) return wire::FromGrpc(status);
  return reply;
}

}  // namespace

absl::StatusOr<std::vector<proto::StoredName>> StoreClient::List(const std::string& prefix) const {
  std::vector<proto::StoredName> names;
  proto::StoreListRequest request;
  request.set_prefix(prefix);
  for (;;) {
    OB_ASSIGN_OR_RETURN(const proto::StoreListReply reply,
                        Call(channel_, &Stub::List, key_, request));
    names.insert(names.end(), reply.names().begin(), reply.names().end());
    if (!reply.more() || reply.names().empty()) return names;
    request.set_after(names.back().name());
  }
}

absl::StatusOr<proto::StoreGetReply> StoreClient::Get(const std::string& name) const {
  proto::StoreGetRequest request;
  request.set_name(name);
  return Call(channel_, &Stub::Get, key_, request);
}

absl::StatusOr<proto::StoredName> StoreClient::Set(const std::string& name,
                                                   const proto::Checkpoint& checkpoint) const {
  proto::StoreSetRequest request;
  request.set_name(name);
  *request.mutable_checkpoint() = checkpoint;
  OB_ASSIGN_OR_RETURN(const proto::StoreSetReply reply,
                      Call(channel_, &Stub::Set, key_, request, kStoredWithin));
  return reply.stored();
}

absl::StatusOr<uint64_t> StoreClient::Remove(const std::string& name) const {
  proto::StoreRemoveRequest request;
  request.set_name(name);
  OB_ASSIGN_OR_RETURN(const proto::StoreRemoveReply reply,
                      Call(channel_, &Stub::Remove, key_, request));
  return reply.freed_bytes();
}

absl::Status StoreClient::Pin(const std::string& name, bool pinned) const {
  proto::StorePinRequest request;
  request.set_name(name);
  request.set_pinned(pinned);
  return Call(channel_, &Stub::Pin, key_, request).status();
}

absl::StatusOr<proto::StoreUsageReply> StoreClient::Usage() const {
  return Call(channel_, &Stub::Usage, key_, proto::StoreUsageRequest());
}

}  // namespace outboard::files
