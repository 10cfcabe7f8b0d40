// StoreService (store.proto): a tenant's names and their contents. Translates requests into calls
// of BlobRetention, which decides. Threads: any; disk and SQL on the pool.
#pragma once

#include "base/work_queue.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/server/authenticator.h"
#include "proto/store.grpc.pb.h"

namespace outboard::gateway {

class StoreService final : public proto::Store::CallbackService {
 public:
  StoreService(BlobRetention* catalogue, Authenticator* gatekeeper, WorkQueue* pool)
      : catalogue_(catalogue), gatekeeper_(gatekeeper), pool_(pool) {}
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const proto::StoreListRequest* request,
                                 proto::StoreListReply* reply) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const proto::StoreGetRequest* request,
                                proto::StoreGetReply* reply) override;
  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context,
                                const proto::StoreSetRequest* request,
                                proto::StoreSetReply* reply) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context,
                                   const proto::StoreRemoveRequest* request,
                                   proto::StoreRemoveReply* reply) override;
  grpc::ServerUnaryReactor* Pin(grpc::CallbackServerContext* context,
                                const proto::StorePinRequest* request,
                                proto::StorePinReply* reply) override;
  grpc::ServerUnaryReactor* Usage(grpc::CallbackServerContext* context,
                                  const proto::StoreUsageRequest* request,
                                  proto::StoreUsageReply* reply) override;

 private:
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   std::function<absl::Status(TenantId)> body);

  BlobRetention* const catalogue_;
  Authenticator* const gatekeeper_;
  WorkQueue* const pool_;
};

}  // namespace outboard::gateway
