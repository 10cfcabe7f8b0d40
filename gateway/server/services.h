// The gateway's services but for blobs (gateway/server/blob_service.h). Each method lets its caller
// in (gateway/doors/key_door.h), starts a stream or a job in its account's turn, and makes no
// decisions.
//
// Threads: any. Disk and SQL on those of WorkQueues.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gateway/accounts/usage_report.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/doors/key_door.h"
#include "gateway/ledger/ledger.h"
#include "gateway/nodes/node_calls.h"
#include "gateway/server/authenticator.h"
#include "gateway/server/caller.h"
#include "gateway/streams/stall_watch.h"
#include "gateway/streams/unary_call.h"
#include "gateway/streams/work_queues.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "wire/merkle.h"

namespace outboard::gateway {

class CoreDriver;
class FleetDoor;
class WorkerAdmission;
class DriverHost;
class HeadSigner;
class ReceiptRows;

// Sessions as bytes: a frame is looked at before it is parsed.
class CloudService final
    : public StreamedService<proto::Cloud::WithRawCallbackMethod_Session<proto::Cloud::Service>> {
 public:
  // A stream whose client takes nothing for `reader_stalls_after` is cut.
  CloudService(CoreDriver* driver, DriverHost* host, ClientAuth* auth,
               std::chrono::milliseconds reader_stalls_after)
      : driver_(driver), host_(host), auth_(auth), readers_(reader_stalls_after) {
    Serve(1, &CloudService::ServeValues);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ValuesRequest, proto::ServerFrame>* ServeValues(
      grpc::CallbackServerContext* context);

 private:
  CoreDriver* const driver_;
  DriverHost* const host_;
  ClientAuth* const auth_;
  StallWatch readers_;
};

class AccountService final : public StreamedService<proto::Account::Service> {
 public:
  AccountService(Accounts* accounts, Ledger* ledger, std::unique_ptr<UsageReport> usage,
                 HeadSigner* heads, ReceiptRows* receipts, CoreDriver* driver,
                 MicroUsd price_per_hour, KeyDoor* door, WorkQueues* queues)
      : accounts_(accounts),
        ledger_(ledger),
        usage_(std::move(usage)),
        heads_(heads),
        receipts_(receipts),
        driver_(driver),
        price_per_hour_(price_per_hour),
        door_(door),
        queues_(queues) {
    Serve(0, &AccountService::ServeCreateKey);
    Serve(1, &AccountService::ServeListKeys);
    Serve(2, &AccountService::ServeRevokeKey);
    Serve(3, &AccountService::ServeUsage);
    Serve(4, &AccountService::ServeListSessions);
    Serve(5, &AccountService::ServeStopSession);
    Serve(6, &AccountService::ServeInvoice);
  }
  grpc::ServerBidiReactor<proto::CreateKeyRequest, proto::CreateKeyReply>* ServeCreateKey(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::ListKeysRequest, proto::ListKeysReply>* ServeListKeys(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::RevokeKeyRequest, proto::RevokeKeyReply>* ServeRevokeKey(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::UsageRequest, proto::UsageReply>* ServeUsage(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::ListSessionsRequest, proto::ListSessionsReply>* ServeListSessions(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::StopSessionRequest, proto::StopSessionReply>* ServeStopSession(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::InvoiceRequest, proto::InvoiceReply>* ServeInvoice(
      grpc::CallbackServerContext* context);

 private:
  Accounts* const accounts_;
  Ledger* const ledger_;
  absl::Mutex usage_mutex_;
  const std::unique_ptr<UsageReport> usage_ ABSL_PT_GUARDED_BY(usage_mutex_);
  HeadSigner* const heads_;
  ReceiptRows* const receipts_;
  CoreDriver* const driver_;
  const MicroUsd price_per_hour_;  // where there is no price file
  KeyDoor* const door_;
  WorkQueues* const queues_;
};

// FleetService (fleet.proto): workers and their executors. Blobs that an executor stores become the
// session's snapshot, or a checkpoint, here.
//
// Threads: any. Disk is read on the pool.
// Served as streams: Enrol, Keep, EnrolNode and NodeLog.
using StreamedFleet = StreamedService<proto::Fleet::WithCallbackMethod_Join<
    proto::Fleet::WithCallbackMethod_Attach<proto::Fleet::Service>>>;

class FleetService final : public StreamedFleet {
 public:
  // `admission`: null where the fleet's port has no TLS.
  FleetService(CoreDriver* driver, BlobRetention* blob_retention, FleetDoor* door,
               WorkerAdmission* admission, const Nodes& nodes, WorkQueues* queues)
      : FleetService(driver, blob_retention, door, admission, /*keys=*/nullptr, nodes, queues) {}
  // Where clients connect: of machines of an account's own, which show its key. Whoever shows
  // something else is refused, the fleet secret included.
  FleetService(CoreDriver* driver, BlobRetention* blob_retention, KeyDoor* keys, WorkQueues* queues)
      : FleetService(driver, blob_retention, /*door=*/nullptr, /*admission=*/nullptr, keys, Nodes{},
                     queues) {}

 private:
  FleetService(CoreDriver* driver, BlobRetention* blob_retention, FleetDoor* door,
               WorkerAdmission* admission, KeyDoor* keys, const Nodes& nodes, WorkQueues* queues)
      : driver_(driver),
        blob_retention_(blob_retention),
        door_(door),
        keys_(keys),
        admission_(admission),
        nodes_(nodes),
        queues_(queues) {
    Serve(0, &FleetService::ServeEnrol);
    Serve(3, &FleetService::ServeKeep);
    Serve(4, &FleetService::ServeEnrolNode);
    Serve(5, &FleetService::ServeNodeLog);
  }

 public:
  grpc::ServerBidiReactor<proto::EnrolNodeRequest, proto::EnrolReply>* ServeEnrolNode(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::NodeLogRequest, proto::NodeLogReply>* ServeNodeLog(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::EnrolRequest, proto::EnrolReply>* ServeEnrol(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::KeepRequest, proto::KeepReply>* ServeKeep(
      grpc::CallbackServerContext* context);

 private:
  CoreDriver* const driver_;
  // Held by a call: it ends when its worker's certificate does.
  std::shared_ptr<void> Watch(grpc::CallbackServerContext* context);
  // Who looks at the caller's fleet secret; null for a node, whose certificate is in its place.
  FleetDoor* DoorFor(const grpc::CallbackServerContext& context) const;
  void KeepFor(TenantId tenant, const Caller& caller, const wire::Hash& manifest,
               const proto::KeepRequest& request, const std::function<void(absl::Status)>& answer);

  BlobRetention* const blob_retention_;
  FleetDoor* const door_;  // null with keys_
  KeyDoor* const keys_;
  WorkerAdmission* const admission_;
  const Nodes nodes_;
  WorkQueues* const queues_;
};

// In FleetService's place where clients connect without keys: whoever tries to join there is
// refused, with or without the fleet secret. Threads: any.
class NoFleetService final : public StreamedFleet {
 public:
  NoFleetService() {
    Serve(0, &NoFleetService::ServeEnrol);
    Serve(3, &NoFleetService::ServeKeep);
    Serve(4, &NoFleetService::ServeEnrolNode);
    Serve(5, &NoFleetService::ServeNodeLog);
  }
  grpc::ServerBidiReactor<proto::EnrolNodeRequest, proto::EnrolReply>* ServeEnrolNode(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::NodeLogRequest, proto::NodeLogReply>* ServeNodeLog(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::KeepRequest, proto::KeepReply>* ServeKeep(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::EnrolRequest, proto::EnrolReply>* ServeEnrol(
      grpc::CallbackServerContext* context);
};

// StoreService (store.proto): a tenant's names and their contents. Translates requests into calls
// of BlobRetention, which decides. Threads: any; disk and SQL on the pool.
class StoreService final : public StreamedService<proto::Store::Service> {
 public:
  StoreService(BlobRetention* blob_retention, KeyDoor* door, WorkQueues* queues)
      : blob_retention_(blob_retention), door_(door), queues_(queues) {
    Serve(0, &StoreService::ServeList);
    Serve(1, &StoreService::ServeGet);
    Serve(2, &StoreService::ServeSet);
    Serve(3, &StoreService::ServeRemove);
    Serve(4, &StoreService::ServePin);
    Serve(5, &StoreService::ServeUsage);
  }
  grpc::ServerBidiReactor<proto::StoreListRequest, proto::StoreListReply>* ServeList(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::StoreGetRequest, proto::StoreGetReply>* ServeGet(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::StoreSetRequest, proto::StoreSetReply>* ServeSet(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::StoreRemoveRequest, proto::StoreRemoveReply>* ServeRemove(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::StorePinRequest, proto::StorePinReply>* ServePin(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::StoreUsageRequest, proto::StoreUsageReply>* ServeUsage(
      grpc::CallbackServerContext* context);

 private:
  BlobRetention* const blob_retention_;
  KeyDoor* const door_;
  WorkQueues* const queues_;
};

}  // namespace outboard::gateway
