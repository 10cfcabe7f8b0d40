// The Fleet service (fleet.proto): workers and their executors. What executors store becomes the
// session's snapshot, or a checkpoint, here.
//
// Threads: any. Disk is read on the pool.
#pragma once

#include "base/work_queue.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/data_path/hub.h"
#include "proto/fleet.grpc.pb.h"

namespace outboard::gateway {

class FleetService final : public proto::Fleet::CallbackService {
 public:
  FleetService(Hub* hub, BlobRetention* catalogue, WorkQueue* pool, const CoreOptions& options)
      : hub_(hub), catalogue_(catalogue), pool_(pool), options_(options) {}
  grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::KeepRequest* request,
                                 proto::KeepReply* reply) override;

 private:
  Hub* const hub_;
  BlobRetention* const catalogue_;
  WorkQueue* const pool_;
  const CoreOptions options_;
};

}  // namespace outboard::gateway
