// The Blobs service (cloud.proto): receives and sends chunks, commits roots. The store decides
// which blobs a tenant may see; this class assembles pieces in order, without a copy through a
// message.
//
// Threads: any. Disk and hashing happen on the pool, in the account's turn; a stream has one job
// there at a time, which is the backpressure on a client that sends faster than the disk writes.
// Nothing of a stream is read before its key is known to be good.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "base/fair_queue.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/doors/key_door.h"
#include "gateway/server/caller.h"
#include "gateway/server/key_watch.h"
#include "gateway/streams/transfer_limiter.h"
#include "proto/cloud.grpc.pb.h"
#include "telemetry/metric.h"

namespace outboard::gateway {

class CoreDriver;

// Who may call: clients with a key, or executors with the token of their session. Each has a
// listener of its own.
enum class BlobCallers { kClients, kExecutors };

// Pieces travel as gRPC's buffers (wire/blobs/piece.h).
class BlobService final
    : public proto::Blobs::WithRawCallbackMethod_Upload<
          proto::Blobs::WithRawCallbackMethod_Download<proto::Blobs::CallbackService>> {
 public:
  BlobService(BlobCallers callers, BlobStore* store, BlobRetention* blob_retention, KeyDoor* door,
              CoreDriver* driver, FairQueue* pool)
      : callers_(callers),
        store_(store),
        blob_retention_(blob_retention),
        door_(door),
        driver_(driver),
        pool_(pool) {}

  grpc::ServerUnaryReactor* Missing(grpc::CallbackServerContext* context,
                                    const proto::MissingRequest* request,
                                    proto::MissingReply* reply) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const proto::CommitRequest* request,
                                   proto::CommitReply* reply) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const proto::ListChunksRequest* request,
                                 proto::ListChunksReply* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;

 private:
  class UploadStream;
  class DownloadStream;

  // Errors: UNAUTHENTICATED    no key, or one that is not accepted; none of the executors that
  //                            this one serves
  //         PERMISSION_DENIED  neither scope of blobs, or not an executor of the session that it
  //                            names
  void Admit(const Caller& caller, const KeyDoor::What& what, KeyDoor::Then then);
  std::string PeerOf(const Caller& caller) const;  // for the log
  grpc::ServerUnaryReactor* Answer(telemetry::CallMethod method,
                                   grpc::CallbackServerContext* context,
                                   const google::protobuf::Message& request,
                                   std::function<absl::Status(TenantId)> body);
  void Post(TenantId tenant, std::function<void()> job) {
    pool_->Post(static_cast<uint64_t>(tenant.value), std::move(job));
  }

  const BlobCallers callers_;
  BlobStore* const store_;
  BlobRetention* const blob_retention_;
  KeyDoor* const door_;
  CoreDriver* const driver_;
  FairQueue* const pool_;
  TransferLimiter uploads_{"uploads", std::chrono::milliseconds(kTransferStalledMs)};
  TransferLimiter downloads_{"downloads", std::chrono::milliseconds(kTransferStalledMs)};
  KeyWatch watch_{door_};
};

}  // namespace outboard::gateway
