// A session with the cloud: puts buffers, runs graphs, brings values back.
//
// Nothing here waits for the other side except Connect, Await, Sync, Close, a Put of more than
// kInlinePutBytesMax (it asks which chunks are missing) and any call that finds the credit used up;
// Stats::blocking_round_trips counts the times that a caller really slept. A Run is one frame, with
// the Releases made since the last one in it.
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
//     FAILED_PRECONDITION  used after Close, or a value taken twice
// What ends a session says how many of its Runs were done.
#ifndef OUTBOARD_CLIENT_TRANSPORT_SESSION_H_
#define OUTBOARD_CLIENT_TRANSPORT_SESSION_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/request.h"
#include "proto/blob_source.h"

namespace outboard::transport {

class Link;

struct SessionOptions {
  // "host:port" or "unix:/path". Empty: a private `outboard serve`, started for this process and
  // stopped with it.
  std::string target;
  std::string key;
  uint32_t devices = 1;
  std::chrono::milliseconds connect_timeout{3000};  // to find somebody at the target
  std::chrono::milliseconds open_timeout{30000};    // to be given a device
  // A connection that is lost is made again for so long, and no longer: a person waits.
  std::chrono::milliseconds reconnect_timeout{60000};
  // Lines for people: that a connection is being made again, what the gateway has to tell. They
  // are few (rate-limited) and hold printable ASCII only. Called from any thread, with no lock of
  // the session's held. Empty: "outboard: <line>" on stderr.
  std::function<void(const std::string& line)> tell;
  // Also two lines for each session: what device it was given, and in the end what it came to.
  bool debug = false;

  // From the environment: CLOUD unset, empty or 0 gives a private serve; CLOUD=1 takes CLOUD_HOST
  // (unset: localhost:6667) and CLOUD_KEY; DEBUG of 1 or more sets `debug`. OUTBOARD_BIN names the binary for a private serve if it
  // is neither beside the program nor on PATH.
  // Errors: INVALID_ARGUMENT  another CLOUD; a CLOUD_HOST or CLOUD_KEY that cannot be (target.h)
  static absl::StatusOr<SessionOptions> FromEnvironment();
};

struct Stats {
  uint64_t runs = 0;
  uint64_t blocking_round_trips = 0;
  uint64_t frames_up = 0;
  uint64_t bytes_up = 0;  // serialised frames and blob pieces
  uint64_t bytes_down = 0;
  uint64_t device_time_us = 0;
  uint64_t kernels_launched = 0;
  uint64_t cost_micro_usd = 0;  // as of the last Done; final after Close
  uint64_t seconds_billed = 0;
  double seconds_open = 0;  // by this process's own clock, from Opened to now or to Close
  uint64_t price_per_hour_micro_usd = 0;
  std::string device;  // "cpu: Xeon ..." as the worker told, for people
};

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

  // Returns the Run's sequence number.
  absl::StatusOr<uint64_t> Run(const RunRequest& request);

  // Makes sure that these blobs are in the cloud, for PutBlob: asks for all of them at once, and sends
  // the chunks that are missing (proto/blob_upload.h). Blocks.
  // Errors: UNIMPLEMENTED over a link of the caller's
  absl::StatusOr<wire::Uploaded> Upload(
      std::span<const wire::BlobSource> sources,
      const std::function<void(const wire::TransferProgress&)>& progress = {});

  // As Put, of a blob that the cloud has already (proto/merkle.h names it): nothing is sent.
  absl::Status PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                       uint64_t total_bytes, std::string_view root);

  // Asks for the values of handles that were not fetched by their Runs; Await(seq, i) for the i-th.
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles);
  absl::StatusOr<uint64_t> Fetch(uint64_t handle) { return Fetch(std::span(&handle, 1)); }

  // Writes arrays as they are now as a checkpoint in the cloud; what follows does not wait for it.
  // Names as in proto/store.proto. Returns the sequence number for AwaitSaved.
  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries);
  // Waits until the checkpoint is on disk, or has failed: asked once, as Await. A save whose session
  // ends before may have been written or not.
  absl::StatusOr<Saved> AwaitSaved(uint64_t seq);

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

#endif  // OUTBOARD_CLIENT_TRANSPORT_SESSION_H_
