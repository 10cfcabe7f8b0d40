// FleetService (fleet.proto): workers and their executors. Blobs that an executor stores become the
// session's snapshot, or a checkpoint, here.
//
// Threads: any. Disk is read on the pool.
#pragma once

#include "base/work_queue.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/server/authenticator.h"
#include "proto/fleet.grpc.pb.h"

namespace outboard::gateway {

class CoreDriver;

class FleetService final : public proto::Fleet::CallbackService {
 public:
  FleetService(CoreDriver* driver, BlobRetention* catalogue, Authenticator* gatekeeper,
               WorkQueue* pool)
      : driver_(driver), catalogue_(catalogue), gatekeeper_(gatekeeper), pool_(pool) {}
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::KeepRequest* request,
                                 proto::KeepReply* reply) override;

 private:
  CoreDriver* const driver_;
  BlobRetention* const catalogue_;
  Authenticator* const gatekeeper_;
  WorkQueue* const pool_;
};

}  // namespace outboard::gateway
