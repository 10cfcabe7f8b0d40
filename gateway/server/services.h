// The gateway's services but for blobs (gateway/server/blob_service.h). Each method starts a stream
// or a job on the pool and makes no decisions.
//
// Threads: any. Disk and SQL on the pool.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/work_queue.h"
#include "gateway/accounts/usage_report.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/authenticator.h"
#include "gateway/streams/stall_watch.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "telemetry/metric.h"

namespace outboard::gateway {

// CloudService and AccountService (cloud.proto, account.proto): each method starts a stream or a
// job on the pool. No decisions are made here.

class CoreDriver;
class DriverHost;

class CloudService final : public proto::Cloud::CallbackService {
 public:
  // A stream whose client takes nothing for `reader_stalls_after` is cut.
  CloudService(CoreDriver* driver, DriverHost* host, Authenticator* authenticator, WorkQueue* pool,
               std::chrono::milliseconds reader_stalls_after)
      : driver_(driver),
        host_(host),
        authenticator_(authenticator),
        pool_(pool),
        readers_(reader_stalls_after) {}
  grpc::ServerWriteReactor<proto::ServerFrame>* Values(
      grpc::CallbackServerContext* context, const proto::ValuesRequest* request) override;
  grpc::ServerBidiReactor<proto::ClientFrame, proto::ServerFrame>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  CoreDriver* const driver_;
  DriverHost* const host_;
  Authenticator* const authenticator_;
  WorkQueue* const pool_;
  StallWatch readers_;
};

class AccountService final : public proto::Account::CallbackService {
 public:
  AccountService(Accounts* accounts, Ledger* ledger, std::unique_ptr<UsageReport> usage,
                 Authenticator* authenticator, WorkQueue* pool, WorkQueue* reports)
      : accounts_(accounts),
        ledger_(ledger),
        usage_(std::move(usage)),
        authenticator_(authenticator),
        pool_(pool),
        reports_(reports) {}
  grpc::ServerUnaryReactor* CreateKey(grpc::CallbackServerContext* context,
                                      const proto::CreateKeyRequest* request,
                                      proto::CreateKeyReply* reply) override;
  grpc::ServerUnaryReactor* ListKeys(grpc::CallbackServerContext* context,
                                     const proto::ListKeysRequest* request,
                                     proto::ListKeysReply* reply) override;
  grpc::ServerUnaryReactor* RevokeKey(grpc::CallbackServerContext* context,
                                      const proto::RevokeKeyRequest* request,
                                      proto::RevokeKeyReply* reply) override;
  grpc::ServerUnaryReactor* Usage(grpc::CallbackServerContext* context,
                                  const proto::UsageRequest* request,
                                  proto::UsageReply* reply) override;

 private:
  Accounts* const accounts_;
  Ledger* const ledger_;
  absl::Mutex usage_mutex_;
  const std::unique_ptr<UsageReport> usage_ ABSL_PT_GUARDED_BY(usage_mutex_);
  Authenticator* const authenticator_;
  WorkQueue* const pool_;
  // For usage: its calls wait for each other, and no thread of the pool with them.
  WorkQueue* const reports_;
};

// FleetService (fleet.proto): workers and their executors. Blobs that an executor stores become the
// session's snapshot, or a checkpoint, here.
//
// Threads: any. Disk is read on the pool.

class CoreDriver;

class FleetService final : public proto::Fleet::CallbackService {
 public:
  FleetService(CoreDriver* driver, BlobRetention* blob_retention, Authenticator* authenticator,
               WorkQueue* pool)
      : driver_(driver),
        blob_retention_(blob_retention),
        authenticator_(authenticator),
        pool_(pool) {}
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::KeepRequest* request,
                                 proto::KeepReply* reply) override;

 private:
  CoreDriver* const driver_;
  BlobRetention* const blob_retention_;
  Authenticator* const authenticator_;
  WorkQueue* const pool_;
};

// In FleetService's place where clients connect: whoever tries to join there is refused, with or
// without the fleet secret. Threads: any.
class NoFleetService final : public proto::Fleet::CallbackService {
 public:
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::KeepRequest* request,
                                 proto::KeepReply* reply) override;
};

// StoreService (store.proto): a tenant's names and their contents. Translates requests into calls
// of BlobRetention, which decides. Threads: any; disk and SQL on the pool.

class StoreService final : public proto::Store::CallbackService {
 public:
  StoreService(BlobRetention* blob_retention, Authenticator* authenticator, WorkQueue* pool)
      : blob_retention_(blob_retention), authenticator_(authenticator), pool_(pool) {}
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
  grpc::ServerUnaryReactor* Answer(telemetry::CallMethod method,
                                   grpc::CallbackServerContext* context,
                                   std::function<absl::Status(TenantId)> body);

  BlobRetention* const blob_retention_;
  Authenticator* const authenticator_;
  WorkQueue* const pool_;
};

}  // namespace outboard::gateway
