// The client's side of a session without I/O: numbers the items, keeps those that may have to be
// sent again (ring.h), knows which graphs the server has, how much may be in flight (window.h and
// the server's credit), which answers are awaited (awaited.h), which items failed and which lines
// of the program sent them (provenance.h).
//
// Calls take what the program or the stream does; frames to send collect inside and are taken by
// TakeFrames. The time is told by Advance, on any monotonic clock, and moves the window only. Not
// thread-safe: Session owns one under its mutex.
//
// Errors: those of items.h for what cannot be asked; what ends the session is status().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/core/frame_packer.h"
#include "client/session/core/pending_answers.h"
#include "client/session/core/resend_buffer.h"
#include "client/session/core/send_window.h"
#include "client/session/request.h"
#include "client/session/stats.h"
#include "client/session/core/provenance.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"

namespace outboard::transport {

class SessionCore {
 public:
  enum class State { kNew, kOpening, kOpen, kLost, kClosing, kEnded };

  void Advance(SendWindow::Time now) { now_ = now; }

  // ---- what the program does; the frames are taken by TakeFrames
  void Open(uint32_t devices);
  void WantTrace() { trace_ = true; }  // before Open
  // True if an item with `bytes` of Put data may be sent now.
  bool HasCredit(uint64_t bytes) const;
  // Only a snapshot can make room in the ring, which may take its time: true if HasCredit is false
  // for that reason. GiveUpRecovery makes room: a lost worker is not replaced until there is a
  // snapshot.
  bool AwaitsSnapshot(uint64_t bytes) const;
  void GiveUpRecovery();
  uint64_t Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
               std::shared_ptr<const std::string> bytes);
  uint64_t PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                   uint64_t total_bytes, std::string_view root);
  absl::StatusOr<uint64_t> Run(const RunRequest& request);
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles);
  // After the first Opened (FAILED_PRECONDITION), which says whether the gateway understands it.
  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries);
  void Release(uint64_t handle);
  void FlushReleases();  // into the frame under way, without waiting for the next Run
  void Close();
  size_t pending_releases() const { return releases_.size(); }

  // ---- what the streams do
  void OnFrame(proto::ServerFrame& frame);  // of either stream; in kLost only what ends the session
  void OnLinkLost();                        // the ring waits for Resume
  void Resume();                            // a new link: asks for the same session again
  void End(absl::Status status);            // adds how many Runs were done

  std::vector<proto::ClientFrame> TakeFrames() { return out_.Take(); }

  // ---- what is known
  State state() const { return state_; }
  const absl::Status& status() const { return status_; }
  bool Ready(uint64_t seq, uint32_t index) const { return awaited_.Ready(seq, index); }
  absl::StatusOr<HostTensor> Take(uint64_t seq, uint32_t index) {
    return Explained(awaited_.Take(seq, index));
  }
  void Forget(uint64_t seq, uint32_t index) { awaited_.Forget(seq, index); }
  bool SavedReady(uint64_t seq) const { return awaited_.SavedReady(seq); }
  absl::StatusOr<Saved> TakeSaved(uint64_t seq) { return Explained(awaited_.TakeSaved(seq)); }
  // Whether a value is awaited; whether one was so large that it is better had on a stream of its
  // own.
  bool MissesValues() const { return awaited_.misses_any(); }
  bool large_values() const { return large_values_; }
  uint64_t last_seq() const { return ring_.last_seq(); }
  uint64_t done_seq() const { return done_seq_; }
  uint64_t durable_seq() const { return durable_seq_; }
  absl::Status TakeFirstFailure();
  std::vector<std::string> TakeNotices();  // what the gateway has told since, for people
  const proto::Opened& opened() const { return opened_; }
  bool can_resume() const { return !opened_.resume_token().empty(); }
  void FillStats(Stats& stats) const;

 private:
  // A kernel in use from an item on; what a new worker has to follow to get the same bits.
  using PlanKey = std::pair<uint64_t, std::string>;  // item, kernel

  // A failure that names an item, with the line of the program.
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
  void AddToPlan(const proto::KernelUse& entry);
  void OnFailed(const proto::Failed& failed);
  void OnNeed(const proto::Need& need);
  void OnNotice(const proto::Notice& notice);
  void Acknowledge();
  void DoneThrough(uint64_t seq);
  bool GoBackTo(uint64_t seq);
  void DropWhatIsSafe();
  uint64_t InFlight() const { return last_seq() - done_seq_; }

  State state_ = State::kNew;
  absl::Status status_;
  SendWindow::Time now_{0};
  uint32_t devices_ = 1;
  bool trace_ = false;
  uint64_t done_seq_ = 0;
  uint64_t durable_seq_ = 0;
  uint64_t acked_seq_ = 0;
  uint64_t bytes_in_flight_ = 0;  // of Puts above done_seq_
  uint32_t items_max_ = wire::kCreditItems;
  uint64_t bytes_max_ = wire::kCreditBytes;
  SendWindow window_;

  ResendBuffer ring_;
  FramePacker out_;
  PendingAnswers awaited_;
  Provenance provenance_;
  std::set<std::string> graphs_sent_;  // in this epoch
  std::vector<uint64_t> releases_;
  std::set<uint64_t> failed_;  // of the ring: told already
  absl::Status first_failure_;
  std::vector<std::string> notices_;
  bool large_values_ = false;
  bool ack_due_ = false;  // something came that the executor keeps until an Ack

  proto::Opened opened_;
  std::map<PlanKey, proto::KernelUse> plan_;  // above durable_seq_
  size_t plan_bytes_ = 0;
  uint64_t plan_lacks_seq_ = 0;  // the last item of which an entry found no room
  uint64_t runs_ = 0, steps_ = 0;
  uint64_t device_time_us_ = 0, kernels_ = 0, cost_micro_usd_ = 0, seconds_billed_ = 0;
};

}  // namespace outboard::transport
