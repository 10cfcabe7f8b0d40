// The client's side of a session, without I/O. Numbers the items, stores those that may have to be
// sent again (ResendBuffer), and tracks which graphs the server has, how much may be in flight
// (send_window.h and the server's window), which answers are awaited (pending_answers.h), which
// items failed and which lines of the program sent them (failure.h).
//
// Methods are called for events of the program and of the stream; resulting frames collect inside
// until TakeFrames. Advance sets the time, on any monotonic clock, which affects the window only.
// Not thread-safe: RemoteSession owns one under its mutex.
//
// Errors: those of outgoing_items.h for invalid requests; status() is the reason why a session
// ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/core/failure.h"
#include "client/session/core/kept_handles.h"
#include "client/session/core/outgoing_items.h"
#include "client/session/core/pending_answers.h"
#include "client/session/core/send_window.h"
#include "client/session/request.h"
#include "client/session/stats.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"

namespace outboard::session {

class SessionCore {
 public:
  enum class State { kNew, kOpening, kOpen, kLost, kStopped, kClosing, kEnded };

  void Advance(SendWindow::Time now) { now_ = now; }

  // ---- events of the program; TakeFrames returns the frames
  // `devices`: as many as Opened is to have; 0: nobody has said, which is 1, or, where it begins
  // with the state of another session, as many as that has.
  void Open(uint32_t devices);
  void WantTrace() { trace_ = true; }  // before Open
  // How its devices are arranged, and the work divided among them. Before Open.
  void Spread(std::vector<uint32_t> mesh, std::string spread) {
    mesh_ = std::move(mesh);
    spread_ = std::move(spread);
  }
  // The most that the session may cost. Before Open.
  void BoundCost(uint64_t micro_usd) { max_cost_micro_usd_ = micro_usd; }
  // The longest wait for a device, and the sessions that start together with this one. Before Open.
  void BoundWait(uint32_t queue_ms) { queue_ms_max_ = queue_ms; }
  void JoinGang(std::string name, uint32_t size) {
    gang_ = std::move(name);
    gang_size_ = size;
  }
  // The new session's name, and the session that it begins as. Before Open.
  void Name(std::string name) { name_ = std::move(name); }
  void ForkOf(std::string session, uint64_t seq) {
    fork_of_ = std::move(session);
    fork_seq_ = seq;
  }
  // A session to enter, by name or id, instead of a new one. Before Open.
  void Attach(std::string session) { attach_ = std::move(session); }
  // What its devices are to be; "" and 0: anything. Before Open.
  void WantDevices(std::string device_class, uint64_t memory_bytes) {
    device_class_ = std::move(device_class);
    device_memory_bytes_ = memory_bytes;
  }
  // True if an item with `bytes` bytes of Put data may be sent now.
  bool HasWindow(uint64_t bytes) const;
  // True if HasWindow is false because the resend buffer is full and only a snapshot can free space
  // in it, which may take long. GiveUpRecovery frees the space at once; until the next snapshot a
  // lost worker cannot be replaced then.
  bool AwaitsSnapshot(uint64_t bytes) const;
  void GiveUpRecovery();
  uint64_t Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
               std::shared_ptr<const std::string> bytes);
  uint64_t PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                   uint64_t total_bytes, std::string_view root);
  absl::StatusOr<uint64_t> Run(const RunRequest& request);
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles);
  // Requires the first Opened (else FAILED_PRECONDITION), which reports whether the gateway
  // supports Save.
  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries);
  // Names for arrays, in place of those before. Requires the first Opened, as Save.
  absl::StatusOr<uint64_t> Keep(std::span<const KeepEntry> entries);
  void Release(uint64_t handle);
  void FlushReleases();  // adds them to the current frame, without waiting for the next Run
  void Close();
  void Leave();  // ends the stream, as Close, and not the session
  size_t pending_releases() const { return releases_.size(); }

  // ---- events of the streams
  void OnFrame(proto::ServerFrame& frame);  // either stream; in kLost only the session's end counts
  void OnLinkLost();                        // items stay in the resend buffer until Resume
  // A new link, also after kStopped: requests the same session again.
  void Resume();
  // For want of money; the gateway keeps the state. Calls fail with `status` until Resume.
  void Stop(absl::Status status);
  void End(absl::Status status);            // adds the number of Runs done

  std::vector<proto::ClientFrame> TakeFrames() { return out_.Take(); }

  // ---- state
  State state() const { return state_; }
  const absl::Status& status() const { return status_; }
  bool Ready(uint64_t seq, uint32_t index) const { return pending_answers_.Ready(seq, index); }
  absl::StatusOr<HostTensor> Take(uint64_t seq, uint32_t index) {
    return Explained(pending_answers_.Take(seq, index));
  }
  void Forget(uint64_t seq, uint32_t index) { pending_answers_.Forget(seq, index); }
  bool SavedReady(uint64_t seq) const { return pending_answers_.SavedReady(seq); }
  absl::StatusOr<Saved> TakeSaved(uint64_t seq) {
    return Explained(pending_answers_.TakeSaved(seq));
  }
  // Whether a value is awaited; whether a value was so large that a separate stream should carry
  // such values.
  bool MissesValues() const { return pending_answers_.misses_any(); }
  bool large_values() const { return large_values_; }
  uint64_t last_seq() const { return resend_buffer_.last_seq(); }
  // That the session has, or is to have; 0: that is not said.
  uint32_t devices() const { return devices_; }
  uint64_t done_seq() const { return done_seq_; }
  uint64_t durable_seq() const { return durable_seq_; }
  absl::Status TakeFirstFailure();
  std::vector<std::string> TakeNotices();  // from the gateway since the last call, for people
  // Whether the gateway has said, since this was opened or resumed, that it waits for a device, or
  // does so now while it is open.
  bool waits_for_device() const { return queue_line_.has_value(); }
  // How many sessions are before it in the queue, as it was told last.
  uint64_t sessions_before() const { return sessions_before_; }
  // Its place in the queue, for people, if that has changed since the last call.
  std::optional<std::string> TakeQueueLine();
  const proto::Opened& opened() const { return opened_; }
  bool can_resume() const { return !opened_.resume_token().empty(); }
  // Entered another client's state, whose names have not come yet.
  bool awaits_kept() const { return is_new_client_; }
  bool keeps_any() const { return !kept_handles_.empty(); }
  std::vector<KeptArray> TakeKept();  // they are the program's to release
  uint64_t first_handle() const { return first_handle_; }  // that is free
  void FillStats(Stats& stats) const;

 private:
  // A kernel version and the item from which it is used; a replacement worker must use the same to
  // get the same bits.
  using KernelUseKey = std::pair<uint64_t, std::string>;  // item, kernel

  // Adds the line of the program to a failure that names an item.
  template <typename T>
  absl::StatusOr<T> Explained(absl::StatusOr<T> answer) const {
    if (answer.ok()) return answer;
    return provenance_.Explain(answer.status());
  }
  ResendBuffer::Entry& Add(proto::ClientItem item, ResendBuffer::Entry entry);
  void SendAgain(const ResendBuffer::Entry& entry);
  void EmitGraphOf(const ResendBuffer::Entry& entry, const std::string& id);
  bool MayEmit() const { return state_ == State::kOpen; }
  void OnOpened(const proto::Opened& opened, uint64_t epoch);
  void OnDone(proto::Done& done);
  void AddKernelUse(const proto::KernelUse& entry);
  void OnFailed(const proto::Failed& failed);
  void OnNeed(const proto::Need& need);
  void OnKept(const proto::Kept& kept);
  void OnNotice(const proto::Notice& notice);
  void EndStream(proto::ClientItem item);
  void BeginAt(uint64_t seq);
  absl::Status WithRuns(absl::Status status) const;
  void AddNotice(std::string line);
  void Acknowledge();
  void DoneThrough(uint64_t seq);
  bool GoBackTo(uint64_t seq);
  void DropWhatIsSafe();
  uint64_t InFlight() const { return last_seq() - done_seq_; }

  State state_ = State::kNew;
  absl::Status status_;
  SendWindow::Time now_{0};
  uint32_t devices_ = 1;
  std::vector<uint32_t> mesh_;
  std::string spread_;
  bool trace_ = false;
  std::optional<uint64_t> max_cost_micro_usd_;
  std::optional<uint32_t> queue_ms_max_;
  std::string gang_;
  uint32_t gang_size_ = 1;
  std::string name_, attach_, fork_of_;
  uint64_t fork_seq_ = 0;
  bool is_new_client_ = false;  // of state that another made, until it has the names
  bool begins_ = false;         // its first Opened says where that state is
  std::vector<KeptArray> kept_;
  uint64_t first_handle_ = 1;
  KeptHandles kept_handles_;
  bool leaves_ = false;         // in kClosing: by Leave
  std::string device_class_;
  uint64_t device_memory_bytes_ = 0;
  uint64_t done_seq_ = 0;
  uint64_t durable_seq_ = 0;
  uint64_t acked_seq_ = 0;
  uint64_t bytes_in_flight_ = 0;  // of Puts above done_seq_
  uint32_t granted_items_max_ = wire::kWindowItems;
  uint64_t granted_bytes_max_ = wire::kWindowBytes;
  SendWindow send_window_;

  ResendBuffer resend_buffer_;
  FramePacker out_;
  PendingAnswers pending_answers_;
  Provenance provenance_;
  std::set<std::string> graphs_sent_;  // in this epoch
  std::vector<uint64_t> releases_;
  std::set<uint64_t> failed_;  // items in the resend buffer whose failure was reported
  absl::Status first_failure_;
  std::vector<std::string> notices_;
  std::optional<std::string> queue_line_;
  bool queue_line_is_new_ = false;
  uint64_t sessions_before_ = 0;
  bool large_values_ = false;
  bool ack_due_ = false;  // something arrived that the executor retains until an Ack

  proto::Opened opened_;
  std::map<KernelUseKey, proto::KernelUse> kernel_uses_;  // above durable_seq_
  size_t kernel_uses_bytes_ = 0;
  uint64_t kernel_uses_lack_seq_ = 0;  // the last item with an entry that did not fit
  uint64_t runs_ = 0, steps_ = 0;
  uint64_t device_time_us_ = 0, kernels_ = 0, operations_ = 0, bytes_accessed_ = 0;
  uint64_t cost_micro_usd_ = 0, billed_ms_ = 0;
};

}  // namespace outboard::session
