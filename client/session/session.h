// A session with the cloud: puts arrays, runs graphs, fetches values. The only interface between
// the tensor library and the implementations that compute: RemoteSession over a link to a gateway
// or an executor (Connect, ConnectLink below), DrySession (dry_session.h), which computes nothing,
// and the tests' fake, which interprets.
//
// Handles are 64-bit names of arrays in the cloud. Put, PutBlob and Run define them, once each;
// Release, or a Run that donates them, ends them. An item is a Put, Run, Release, Fetch, Save or
// Keep; items have sequence numbers 1, 2, 3 ... in the order in which the calls returned (Releases
// are collected, and go before the next item), and are applied in that order.
//
// Waiting. Only Connect, Await, AwaitSaved, Sync, Detach, Resume, Fork, Close, Upload, Stored and a
// Put of more than wire::kInlinePutBytesMax (also an upload) wait for the other side, and so does
// any call that finds the window full (client/session/core/send_window.h).
// Stats::blocking_round_trips counts how often a caller slept for an answer. Sleeping because the
// cloud is busy is no round trip; it is counted as window_waits. Maximum waits:
//     Connect   connect_timeout to reach the target, open_timeout to be given a device
//     Await, AwaitSaved, Sync, Upload, a Put, a full window
//               as long as the session lives. It lives while its gateway answers: a connection
//               without a sign of life for 30 s (keepalive) is dead, is made again for at most
//               reconnect_timeout, and then the session ends, and every wait with it. The gateway's
//               own deadlines find a lost worker and a step that does not end.
//     a full window that only a snapshot can empty
//               5 s; then the program goes on, and a worker that is lost before the next snapshot
//               ends the session
//     Detach, Fork
//               as Sync, and then as Close or Connect; Fork does not wait for a busy device
//     of a fork that waits for its device: any call that has to ask the gateway
//               until it has it, or for queue_timeout
//     Resume    as Connect
//     Close     10 s; 1 s where there is no connection
// A hook (client/session/waiting.h) can interrupt every wait except those of Run, Close and Stored,
// which are bounded. An interrupted call has taken and sent nothing, and the session continues. To
// make the wait of a Run interruptible, call AwaitWindow before it.
//
// Errors. A call fails only for reasons known locally: an invalid argument, a session that has
// ended. A failed computation fails Await of each value that depends on it, with the first cause
// and, if the Run has an origin (RunRequest), the line of the program. Codes:
//     UNAUTHENTICATED      no key, or a wrong or revoked one
//     UNAVAILABLE          nothing answers at the target (the message names it); the worker was
//                          lost
//     RESOURCE_EXHAUSTED   no device within queue_timeout, or a limit (named) is exceeded; at a
//                          cap, as FAILED_PRECONDITION without credit: the session has stopped,
//                          and Resume goes on
//     NOT_FOUND            `attach` or `fork_of` names no session of the account
//     ALREADY_EXISTS       `name` is that of another session
//     ABORTED              another client entered this session
//     INVALID_ARGUMENT     an invalid target, key or Run; a graph that the cloud refuses (the
//                          message names the node and the rule)
//     DEADLINE_EXCEEDED    a step ran longer than its worker allows
//     FAILED_PRECONDITION  used after Close or in a fork's child; a value awaited twice; a value of
//                          a DrySession
//     CANCELLED            an interrupted wait; or the status that the hook returned
// A status that ends the session includes the number of its Runs that were done.
//
// Threads: every method may be called from any thread. Ownership: bytes are copied, or hashed and
// uploaded, before Put returns; a graph's encoding is shared, never copied. After a fork a session
// is the parent's: in the child every call fails, none waits, and the destructor does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/request.h"
#include "client/session/session_options.h"
#include "client/session/stats.h"
#include "compiler/ir/host_tensor.h"
#include "wire/blobs/source.h"

namespace outboard {

namespace session {
class Link;
}

class Session {
 public:
  // Opens a session with the gateway that the options name. Blocks until a device is granted.
  static absl::StatusOr<std::unique_ptr<Session>> Connect(const session::SessionOptions& options);
  // Opens a session over the caller's link, for example to an executor core in this process. Such a
  // session has no blobs and no store: Upload and Stored are UNIMPLEMENTED.
  static absl::StatusOr<std::unique_ptr<Session>> ConnectLink(
      std::unique_ptr<session::Link> link, const session::SessionOptions& options);

  virtual ~Session() = default;  // as Close
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // A fresh handle: 1, 2, 3 ...; it means nothing until a Put or Run defines it.
  virtual uint64_t NewHandle() = 0;

  // Defines `handle`. The cloud checks that the length of `bytes` matches dtype and dims. Small
  // arrays are sent inline; of larger ones only the chunks that the cloud lacks.
  virtual absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                           std::string_view bytes) = 0;
  // As Put, for a blob that the cloud has already; wire/merkle.h defines its root. Sends no
  // content.
  virtual absl::Status PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                               uint64_t total_bytes, std::string_view root) = 0;
  // Uploads blobs for PutBlob: queries all of them at once and sends the missing chunks
  // (wire/blobs/upload.h). Blocks.
  virtual absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) = 0;

  // Waits until the window has space for a Run.
  virtual absl::Status AwaitWindow() = 0;
  // Returns the Run's sequence number.
  virtual absl::StatusOr<uint64_t> Run(const session::RunRequest& request) = 0;

  // Requests the values of handles that their Runs did not fetch; Await(seq, i) for the i-th.
  virtual absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) = 0;
  absl::StatusOr<uint64_t> Fetch(uint64_t handle) { return Fetch(std::span(&handle, 1)); }

  // Writes the current values of arrays as a checkpoint in the cloud; later items do not wait for
  // it. Names as in proto/store.proto. Returns the sequence number for AwaitSaved.
  virtual absl::StatusOr<uint64_t> Save(std::string_view name,
                                        std::span<const session::SaveEntry> entries) = 0;
  // Waits until the checkpoint is on disk, or has failed; once per Save. If the session ends first,
  // it is unknown whether the checkpoint was written.
  virtual absl::StatusOr<session::Saved> AwaitSaved(uint64_t seq) = 0;
  // Returns the arrays stored under `name`, sorted by name: one round trip on a separate
  // connection.
  // Errors: NOT_FOUND; INVALID_ARGUMENT for a file that holds no arrays.
  virtual absl::StatusOr<std::vector<session::StoredArray>> Stored(const std::string& name) = 0;

  // Gives these arrays names, in place of all names before. Another client that enters the session
  // finds them (Kept); until then a name follows its array from Run to Run (RunRequest::rekept),
  // and what has a name lives on when it is released. In the order of the items; waits for nothing.
  // Errors: INVALID_ARGUMENT  a name that is empty, too long, not UTF-8, or there twice
  //         UNIMPLEMENTED     of this kind of session
  virtual absl::Status Keep(std::span<const session::KeepEntry> entries) { return NotKept(); }
  // What had names when this client entered the session; none of a new one. Of a fork it waits till
  // that has begun, as Run does: AwaitWindow before it can be interrupted. The handles are the
  // caller's to release. What has lost its name since comes with FAILED_PRECONDITION.
  virtual std::vector<session::KeptArray> Kept() { return {}; }

  // Ends `handle`. Sent with the next frame.
  virtual void Release(uint64_t handle) = 0;

  // Waits for a fetched value and returns it; once per value.
  virtual absl::StatusOr<HostTensor> Await(uint64_t seq, uint32_t index) = 0;
  // True if Await would not block.
  virtual bool Ready(uint64_t seq, uint32_t index) const = 0;
  // Drops a value that will not be awaited, even if it is still in flight.
  virtual void Forget(uint64_t seq, uint32_t index) = 0;

  // Waits until every item so far is applied; returns the first failure of an item since the last
  // Sync.
  virtual absl::Status Sync() = 0;

  // OK while the session lives; then the reason for its end.
  virtual absl::Status status() const = 0;
  virtual session::Stats stats() const = 0;

  // Ends the session: when it returns the device is free and stats() has the final bill.
  // Idempotent.
  virtual absl::Status Close() = 0;
  // As Close, but the session goes on without this client: its device is given back, its state is
  // kept, and it can be entered again by its name or id (SessionOptions::attach). Waits until its
  // items are done.
  // Errors: those of Sync: it is left all the same. None of a session that has ended, or stopped
  virtual absl::Status Detach() { return Close(); }

  // True if arrays have names (Keep).
  virtual bool keeps_any() const { return false; }
  // True if it is to be left (Detach) and not ended where the program ends.
  virtual bool outlives_program() const { return false; }

  // Goes on after status() said that a cap or the credit is used up: call when there is more.
  // `max_cost_micro_usd`: a new bound of its own; nothing: as before. What was awaited then can be
  // awaited again.
  // Errors: those of Connect, such as the same again; FAILED_PRECONDITION: it has not stopped
  virtual absl::Status Resume(std::optional<uint64_t> max_cost_micro_usd) { return NotKept(); }

  // Opens `count` sessions that begin with this one's state and names (Kept), as of now; nothing of
  // it is sent. They share its options, but have no name. Returns once each has its device or a
  // place in the queue for one, those with a device first: each begins when it has it, and what
  // needs it waits for that.
  // Errors: those of Sync, such as of a Run that failed before, and of Connect; INVALID_ARGUMENT:
  // not 1 to 64; FAILED_PRECONDITION: the gateway takes no snapshots of this session
  virtual absl::StatusOr<std::vector<std::unique_ptr<Session>>> Fork(int count) {
    return absl::UnimplementedError("this kind of session cannot be forked");
  }

 protected:
  Session() = default;
  static absl::Status NotKept() {
    return absl::UnimplementedError("this kind of session cannot be entered again");
  }
};

}  // namespace outboard
