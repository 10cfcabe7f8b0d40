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

#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/doors/key_door.h"
#include "gateway/server/caller.h"
#include "gateway/server/key_watch.h"
#include "gateway/streams/transfer_limiter.h"
#include "gateway/streams/unary_call.h"
#include "gateway/streams/work_queues.h"
#include "proto/cloud.grpc.pb.h"
#include "telemetry/metric.h"

namespace outboard::gateway {

class CoreDriver;

// Who may call: clients with a key, or executors with the token of their session. Each has a
// listener of its own.
enum class BlobCallers { kClients, kExecutors };

// Pieces travel as gRPC's buffers (wire/blobs/piece.h).
class BlobService final
    : public StreamedService<proto::Blobs::WithRawCallbackMethod_Upload<proto::Blobs::Service>> {
 public:
  BlobService(BlobCallers callers, BlobStore* store, BlobRetention* blob_retention, KeyDoor* door,
              CoreDriver* driver, WorkQueues* queues)
      : callers_(callers),
        store_(store),
        blob_retention_(blob_retention),
        door_(door),
        driver_(driver),
        queues_(queues) {
    Serve(0, &BlobService::ServeMissing);
    Serve(2, &BlobService::ServeCommit);
    Serve(3, &BlobService::ServeList);
    Serve(4, &BlobService::ServeDownload);
  }

  grpc::ServerBidiReactor<proto::MissingRequest, proto::MissingReply>* ServeMissing(
      grpc::CallbackServerContext* context);
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* reply) override;
  grpc::ServerBidiReactor<proto::CommitRequest, proto::CommitReply>* ServeCommit(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<proto::ListChunksRequest, proto::ListChunksReply>* ServeList(
      grpc::CallbackServerContext* context);
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServeDownload(
      grpc::CallbackServerContext* context);

 private:
  class UploadStream;
  class DownloadStream;

  // Errors: UNAUTHENTICATED    no key, or one that is not accepted; none of the executors that
  //                            this one serves
  //         PERMISSION_DENIED  neither scope of blobs, or not an executor of the session that it
  //                            names
  void Admit(const Caller& caller, SlotKind slot, KeyDoor::Then then);
  // Calls Begin of a stream of blobs with that; ends the stream where nobody does.
  template <typename Stream>
  void AdmitStream(const Caller& caller, Stream* stream) noexcept;
  // Has the pool do a step of it (streams/owed_answer.h).
  template <typename Stream>
  void PostStep(Stream* stream, absl::Status (Stream::*step)()) noexcept;
  // Of an executor, whose session is not to pay for what our disk cannot store.
  void NoteFailure(const Caller& caller, const absl::Status& status);
  std::string PeerOf(const Caller& caller) const;  // for the log
  template <typename Request, typename Reply>
  UnaryCall<Request, Reply>* Answer(
      telemetry::CallMethod method, grpc::CallbackServerContext* context,
      std::function<absl::Status(TenantId, const Request*, Reply*)> body);
  void Post(TenantId tenant, std::function<void()> job) {
    queues_->pool.Post(static_cast<uint64_t>(tenant.value), std::move(job));
  }

  const BlobCallers callers_;
  BlobStore* const store_;
  BlobRetention* const blob_retention_;
  KeyDoor* const door_;
  CoreDriver* const driver_;
  WorkQueues* const queues_;
  TransferLimiter uploads_{"uploads", std::chrono::milliseconds(kTransferStalledMs)};
  TransferLimiter downloads_{"downloads", std::chrono::milliseconds(kTransferStalledMs)};
  KeyWatch watch_{door_};
};

}  // namespace outboard::gateway
