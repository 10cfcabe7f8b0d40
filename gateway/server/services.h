// The gateway's services but for blobs (gateway/server/blob_service.h). Each method lets its caller
// in (gateway/doors/key_door.h), starts a stream or a job in its account's turn, and makes no
// decisions.
//
// Threads: any. Disk and SQL on those of Turns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/fair_queue.h"
#include "gateway/accounts/usage_report.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/doors/key_door.h"
#include "gateway/doors/step_times.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/authenticator.h"
#include "gateway/streams/stall_watch.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "telemetry/metric.h"

namespace outboard::gateway {

class CoreDriver;
class FleetDoor;
class WorkerAdmission;
class DriverHost;

// The queues of the gateway's threads, in which accounts take turns. Each kind of work that could
// keep a thread waiting for a lock or the disk has threads of its own.
struct Turns {
  StepTimes steps;
  // Graphs, hashing, chunks: they let the threads go first that pass steps on.
  FairQueue pool{{.threads = kPoolThreads,
                  .at_once = kPoolThreads - 1,
                  .niceness = kPoolNiceness,
                  .gives_way = GivesWay()}};
  FairQueue books{{.threads = kBooksThreads}};  // writes to the accounts file
  FairQueue reports{{.threads = kBooksThreads,  // usage, read in pages
                     .niceness = kPoolNiceness,
                     .gives_way = GivesWay()}};

  std::function<bool(uint64_t)> GivesWay() {
    return [this](uint64_t account) {
      return steps.OthersStep({static_cast<int64_t>(account)}, StepTimes::Clock::now());
    };
  }
  void Stop() {
    for (FairQueue* queue : {&pool, &books, &reports}) queue->Stop();
  }
};

// Sessions as bytes: a frame is looked at before it is parsed.
class CloudService final : public proto::Cloud::WithRawCallbackMethod_Session<
                               proto::Cloud::WithCallbackMethod_Values<proto::Cloud::Service>> {
 public:
  // A stream whose client takes nothing for `reader_stalls_after` is cut.
  CloudService(CoreDriver* driver, DriverHost* host, ClientAuth* auth,
               std::chrono::milliseconds reader_stalls_after)
      : driver_(driver), host_(host), auth_(auth), readers_(reader_stalls_after) {}
  grpc::ServerWriteReactor<proto::ServerFrame>* Values(
      grpc::CallbackServerContext* context, const proto::ValuesRequest* request) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  CoreDriver* const driver_;
  DriverHost* const host_;
  ClientAuth* const auth_;
  StallWatch readers_;
};

class AccountService final : public proto::Account::CallbackService {
 public:
  AccountService(Accounts* accounts, Ledger* ledger, std::unique_ptr<UsageReport> usage,
                 KeyDoor* door, Turns* turns)
      : accounts_(accounts),
        ledger_(ledger),
        usage_(std::move(usage)),
        door_(door),
        turns_(turns) {}
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
  KeyDoor* const door_;
  Turns* const turns_;
};

// FleetService (fleet.proto): workers and their executors. Blobs that an executor stores become the
// session's snapshot, or a checkpoint, here.
//
// Threads: any. Disk is read on the pool.
class FleetService final : public proto::Fleet::CallbackService {
 public:
  // `admission`: null where the fleet's port has no TLS.
  FleetService(CoreDriver* driver, BlobRetention* blob_retention, FleetDoor* door,
               WorkerAdmission* admission, Turns* turns)
      : driver_(driver),
        blob_retention_(blob_retention),
        door_(door),
        admission_(admission),
        turns_(turns) {}
  grpc::ServerUnaryReactor* Enrol(grpc::CallbackServerContext* context,
                                  const proto::EnrolRequest* request,
                                  proto::EnrolReply* reply) override;
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::KeepRequest* request,
                                 proto::KeepReply* reply) override;

 private:
  CoreDriver* const driver_;
  // Held by a call: it ends when its worker's certificate does.
  std::shared_ptr<void> Watch(grpc::CallbackServerContext* context);

  BlobRetention* const blob_retention_;
  FleetDoor* const door_;
  WorkerAdmission* const admission_;
  Turns* const turns_;
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
  grpc::ServerUnaryReactor* Enrol(grpc::CallbackServerContext* context,
                                  const proto::EnrolRequest* request,
                                  proto::EnrolReply* reply) override;
};

// StoreService (store.proto): a tenant's names and their contents. Translates requests into calls
// of BlobRetention, which decides. Threads: any; disk and SQL on the pool.

class StoreService final : public proto::Store::CallbackService {
 public:
  StoreService(BlobRetention* blob_retention, KeyDoor* door, Turns* turns)
      : blob_retention_(blob_retention), door_(door), turns_(turns) {}
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
                                   const google::protobuf::Message& request, FairQueue& queue,
                                   std::function<absl::Status(TenantId)> body);

  BlobRetention* const blob_retention_;
  KeyDoor* const door_;
  Turns* const turns_;
};

}  // namespace outboard::gateway
