// A session with the cloud: puts buffers, runs graphs, brings values back.
//
// Nothing here waits for the other side except Connect, Await, AwaitSaved, Sync, Close, Upload and
// a Put of more than kInlinePutBytesMax (both ask which chunks are missing, and send those), Stored
// and any call that finds the window used up (window.h). Stats::blocking_round_trips counts the
// times that a caller slept for an answer; sleeping because so much is under way that the cloud is
// busy is no round trip, and counted as credit_waits.
//
// How long a wait may last:
//     Connect         connect_timeout to find somebody, open_timeout to be given a device
//     Await, AwaitSaved, Sync, Upload, a Put, a full window
//                     as long as the session lives. It does while its gateway answers: a connection
//                     is known to be dead 30 s after the last sign of life (keepalive), made again
//                     for reconnect_timeout at most, and then the session ends, and with it every
//                     wait. Behind the gateway a lost worker or a step that does not end is found
//                     by its own deadlines, and told.
//     a ring that waits for a snapshot   5 s; then the program goes on, and until the next snapshot
//                     a lost worker ends the session
//     Close           10 s, and 1 s where there is no connection
//
// A wait may be cut short by whoever has set a hook (waiting.h); all do but those of Run, Close and
// Stored, which are bounded. Then nothing was taken or sent, and the session goes on. AwaitRoom
// before a Run lets that be interrupted.
//
// After a fork the session is the parent's. In the child every call fails (FAILED_PRECONDITION),
// none waits, and the destructor does nothing.
//
// A Run is one frame, with the Releases made since the last one in it; what is made while a frame
// is being written joins the next.
//
// Threads: every method may be called from any thread. Runs are applied in the order in which the
// calls returned. Ownership: bytes are copied (or hashed and uploaded) before Put returns; a
// graph's encoding is shared, never copied.
//
// Errors. A call fails only for what is known by then: a wrong argument, a session that has ended.
// The failure of a computation is raised by Await of a value that depends on it, with the first
// cause. Codes:
//     UNAUTHENTICATED      no key, a wrong or revoked one
//     UNAVAILABLE          nothing answers at the target (the message names it), or the worker
//                          was lost
//     RESOURCE_EXHAUSTED   no device is free, or a limit (named) was hit
//     INVALID_ARGUMENT     a target, key or Run that cannot be; a graph that the cloud refuses
//                          (names the node and the rule)
//     DEADLINE_EXCEEDED    a step ran longer than its worker allows
//     FAILED_PRECONDITION  used after Close or in a fork's child, or a value taken twice
//     CANCELLED            a wait that was cut short, or whatever status its hook returned
// What ends a session says how many of its Runs were done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/request.h"
#include "client/session/session_options.h"
#include "client/session/stats.h"
#include "wire/blobs/source.h"

namespace outboard::transport {

class Link;

class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Connect(const SessionOptions& options);
  // Over a link of the caller's, e.g. to an executor core in this process.
  static absl::StatusOr<std::unique_ptr<Session>> ConnectLink(std::unique_ptr<Link> link,
                                                              const SessionOptions& options);
  ~Session();  // as Close
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Fresh names, 1, 2, 3 ...; a handle means nothing until a Put or Run defines it.
  uint64_t NewHandle();

  // Defines `handle`. `bytes` must be as long as dtype and dims say (checked by the cloud). Small
  // ones travel inline; larger ones by hash, and only the chunks that the cloud lacks are sent.
  absl::Status Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                   std::string_view bytes);

  // Waits until there is room in the window for a Run.
  absl::Status AwaitRoom();
  // Returns the Run's sequence number.
  absl::StatusOr<uint64_t> Run(const RunRequest& request);

  // Makes sure that these blobs are in the cloud, for PutBlob: asks for all of them at once, and
  // sends the chunks that are missing (wire/blobs/upload.h). Blocks.
  // Errors: UNIMPLEMENTED over a link of the caller's
  absl::StatusOr<wire::Uploaded> Upload(
      std::span<const wire::BlobSource> sources,
      const std::function<void(const wire::TransferProgress&)>& progress = {});

  // As Put, of a blob that the cloud has already (wire/merkle.h names it): nothing is sent.
  absl::Status PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                       uint64_t total_bytes, std::string_view root);

  // Asks for the values of handles that were not fetched by their Runs; Await(seq, i) for the i-th.
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles);
  absl::StatusOr<uint64_t> Fetch(uint64_t handle) { return Fetch(std::span(&handle, 1)); }

  // Writes arrays as they are now as a checkpoint in the cloud; what follows does not wait for it.
  // Names as in proto/store.proto. Returns the sequence number for AwaitSaved.
  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries);
  // Waits until the checkpoint is on disk, or has failed: asked once, as Await. A save whose
  // session ends before may have been written or not.
  absl::StatusOr<Saved> AwaitSaved(uint64_t seq);

  // The arrays under a name in the cloud, in the order of their names: a question and its answer on
  // a connection of its own. NOT_FOUND; INVALID_ARGUMENT for a file that is no arrays.
  absl::StatusOr<std::vector<StoredArray>> Stored(const std::string& name);

  // The handle is not used again. Travels with the next frame.
  void Release(uint64_t handle);

  // Waits for one fetched value and takes it: a second Await of the same is FAILED_PRECONDITION.
  absl::StatusOr<Value> Await(uint64_t seq, uint32_t index);
  // True if Await would not block.
  bool Ready(uint64_t seq, uint32_t index) const;
  // The value will not be awaited: drops it, also if it is still under way.
  void Forget(uint64_t seq, uint32_t index);

  // Waits until everything so far is applied; returns the first failure of an item since the last
  // Sync.
  absl::Status Sync();

  // Not OK once the session has ended; the reason.
  absl::Status status() const;
  Stats stats() const;

  // Ends the session: the device is free and the meter stands when it returns. Idempotent.
  absl::Status Close();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::transport
