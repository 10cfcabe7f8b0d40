// The session over a link: the core that tracks unacknowledged items, the streams that carry its
// frames, and the lock between the program's threads and gRPC's. The program's calls are in
// remote_session.cc, how it begins and ends in opening.cc, the streams and their reconnection in
// links.cc, where callers sleep in waits.cc, its part of an estimate in estimates.cc.
//
// Invariants
//   T1  core_ and link_ are accessed under mutex_ only; frames go to the link in the order in which
//       core_ made them.
//   T2  A caller sleeps on changed_ only, in Sleep; everything that can end its wait notifies:
//       frames, the session's end. Hooks of waiting.h run without mutex_.
//   T3  One thread reconnects at a time; it is joined before the session is destroyed.
//   T4  A stream is destroyed without mutex_, because its last call may be waiting for the mutex; a
//       stream that has ended (values_ended_) has made that call.
//   T5  In a fork's child nothing is locked, sent, waited for or destroyed: the threads that would
//       answer belong to the parent. Every call but NewHandle begins with here().
//   T6  No item is sent before the session has begun, with the first Opened: that says which items
//       and handles there are already. Only a fork may wait for it behind Dial (AwaitBegun).
// Threads and errors: as session.h; Estimates is UNIMPLEMENTED over a link of the caller's. Include
// it only to implement the session: callers use Session::Connect.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/session/core/session_core.h"
#include "client/session/estimate/recording_session.h"
#include "client/session/estimate/run_log.h"
#include "client/session/forks.h"
#include "client/session/heads/heads_seen.h"
#include "client/session/link/bulk.h"
#include "client/session/link/link.h"
#include "client/session/link/private_serve.h"
#include "client/session/link/silence_watch.h"
#include "client/session/link/values_stream.h"
#include "client/session/remote/console.h"
#include "client/session/session.h"
#include "client/trace/trace.h"

namespace outboard::session {

class RemoteSession final : public Session, public Estimated, private LinkListener {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RemoteSession(SessionOptions options);
  ~RemoteSession() override;
  // `delete` in a fork's child leaves the object untouched (T5).
  static void operator delete(RemoteSession* session, std::destroying_delete_t);

  absl::Status Dial();
  absl::Status Open(std::unique_ptr<Link> link);
  // As Dial, for a fork: returns as soon as it has its device or a place in the queue. In the queue
  // it gets its device, and begins, by itself; what needs that waits for it (AwaitBegun).
  // `first_handle`: neither an array of its parent's has this one or a higher one, nor will have.
  absl::Status DialFork(uint64_t first_handle);
  // How many sessions are before it in the queue; nullopt: it has its device.
  std::optional<uint64_t> PlaceInQueue() const;

  uint64_t NewHandle() override { return next_handle_.fetch_add(1, std::memory_order_relaxed); }
  absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                   std::string_view bytes) override;
  absl::Status PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                       uint64_t total_bytes, std::string_view root) override;
  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) override;
  absl::Status AwaitWindow() override;
  absl::StatusOr<uint64_t> Run(const RunRequest& request) override;
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) override;
  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries) override;
  absl::StatusOr<Saved> AwaitSaved(uint64_t seq) override;
  absl::StatusOr<std::vector<StoredArray>> Stored(const std::string& name) override;
  absl::Status Keep(std::span<const KeepEntry> entries) override;
  std::vector<KeptArray> Kept() override;
  void Release(uint64_t handle) override;
  absl::StatusOr<HostTensor> Await(uint64_t seq, uint32_t index) override;
  bool Ready(uint64_t seq, uint32_t index) const override;
  void Forget(uint64_t seq, uint32_t index) override;
  absl::Status Sync() override;
  absl::Status status() const override;
  Stats stats() const override;
  absl::Status Close() override { return EndStream(/*leave=*/false); }
  absl::Status Detach() override;
  bool keeps_any() const override;
  bool outlives_program() const override {
    return !options_.name.empty() || !options_.attach.empty();
  }
  absl::Status Resume(std::optional<uint64_t> max_cost_micro_usd) override;
  absl::StatusOr<std::vector<std::unique_ptr<Session>>> Fork(int count) override;
  absl::StatusOr<std::vector<ClassEstimate>> Estimates(uint64_t steps) const override;
  RecordedWork Recorded() const override;

 private:
  // How long a lost connection to a private worker is tried again, instead of reconnect_timeout.
  static constexpr std::chrono::seconds kReconnectPrivateWithin{2};

  bool here() const { return birthplace_.here(); }

  // Runs `call` and returns its result; records it as a trace span with the sequence number of the
  // item that it makes or waits for.
  template <typename Call>
  auto Traced(const char* name, const Call& call, uint64_t seq = 0) -> decltype(call()) {
    if (!here()) return ForkedError();
    trace::Scope scope(options_.trace, name, trace_session_);
    auto result = call();
    if constexpr (std::is_same_v<decltype(result), absl::StatusOr<uint64_t>>)
      if (result.ok()) seq = *result;
    scope.SetSeq(seq);
    return result;
  }

  // ---- sleeping: waits.cc; all require `lock` on mutex_
  enum class Interruptible { kNo, kYes };
  bool stopped() const { return core_.state() == SessionCore::State::kStopped; }
  // Nothing is waited for, and calls fail with core_.status().
  bool ended() const { return core_.state() == SessionCore::State::kEnded || stopped(); }
  static SendWindow::Time Now() { return Clock::now().time_since_epoch(); }
  // Sleeps until `condition`, `deadline` or an interruption, whose status it returns. When it has
  // returned, another thread may have made the condition false again.
  absl::Status Sleep(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                     const std::function<bool()>& condition,
                     Interruptible interruptible = Interruptible::kYes);
  // Tells, with the lock released, if the gateway has fallen silent or is heard again.
  void TellOfSilence(std::unique_lock<std::mutex>& lock);
  uint64_t BytesDown() const;  // on all streams of this session so far
  // As Sleep, for an answer of the other side.
  absl::Status Wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition);
  // Sleeps until an item with this many bytes may be sent.
  absl::Status AwaitWindow(std::unique_lock<std::mutex>& lock, uint64_t bytes,
                           Interruptible interruptible = Interruptible::kYes);
  // Sleeps until the session has begun (T6).
  absl::Status AwaitBegun(std::unique_lock<std::mutex>& lock,
                          Interruptible interruptible = Interruptible::kYes);

  // PutBlob without a span of its own.
  absl::Status SendPutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                           uint64_t total_bytes, std::string_view root);

  // ---- beginning and ending: opening.cc
  // Whether a session that has no device yet, but a place in the queue, is what is waited for.
  enum class Until { kDevice, kPlace };
  absl::StatusOr<std::unique_ptr<Link>> MakeFirstLink();
  absl::Status AwaitOpened(std::unique_ptr<Link> link, Until until = Until::kDevice);
  absl::Status AwaitDecision(std::unique_lock<std::mutex>& lock, Until until = Until::kDevice);
  absl::Status NoDevice() const;  // open_timeout is over
  bool IsDecided() const;
  void NoteBegun();
  // For people: the line of the session, and from then on its progress. Without mutex_.
  void ShowOpened();
  void GiveUpOpening(std::unique_lock<std::mutex>& lock, const absl::Status& why);
  absl::Status EndStream(bool leave);
  void StopClock();

  // ---- streams: links.cc
  void OnFrame(proto::ServerFrame frame) override;
  void OnEnd(absl::Status status) override;
  void LoseLink();
  void OpenValues();
  std::unique_ptr<ValuesStream> DropValues();
  void OnValuesFrame(proto::ServerFrame frame);
  void OnValuesEnd(const absl::Status& status);
  void Flush();
  bool IsLost() const;
  void Reconnect();
  bool SeeksLink() const;
  void SeekLink(std::unique_lock<std::mutex>& lock);

  // ---- of an estimate: estimates.cc
  void NoteDone(const proto::ServerFrame& frame);
  void TellMeasured();
  // "estimate ..., actual ..., error ...", for people. Blocks for a round trip.
  std::string EstimateAtEnd() const;

  void Tell(const std::string& line) { teller_.Tell(line, over_progress_); }

  const Birthplace birthplace_;
  const SessionOptions options_;
  Teller teller_{options_.tell};
  HeadsSeen heads_seen_{options_.heads_file, options_.target};  // under heads_mutex_
  std::mutex heads_mutex_;                                       // never with mutex_
  const uint32_t trace_session_;  // its number in the trace
  std::string target_;            // empty over a link of the caller's
  std::unique_ptr<Bulk> bulk_;    // nullptr over such a link
  std::shared_ptr<PrivateServe> serve_;
  std::atomic<uint64_t> next_handle_{1};
  std::atomic<uint64_t> blob_round_trips_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  SessionCore core_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<ValuesStream> values_;
  bool values_ended_ = false, values_refused_ = false;
  int values_failures_ = 0;  // since the last frame
  SilenceWatch silence_;
  int sleepers_ = 0;  // threads in Sleep
  uint64_t values_bytes_before_ = 0;
  std::thread reconnector_;
  bool reconnecting_ = false, link_ended_ = false, stopping_ = false;
  bool close_called_ = false, closed_ = false;
  bool has_begun_ = false;         // T6
  bool shows_when_begun_ = false;  // a fork in the queue: nobody else calls ShowOpened
  // For an estimate: what was sent, and when it was done.
  RunLog run_log_;
  StepPace step_times_;
  uint64_t steps_sent_ = 0;
  std::deque<std::pair<uint64_t, uint64_t>> steps_by_seq_;  // in flight: seq, steps up to there
  Clock::duration slept_{};  // of callers, in Sleep
  bool measured_ = false;    // `outboard estimate --measure` has what it wants
  uint64_t round_trips_ = 0, window_waits_ = 0, frames_up_ = 0, bytes_up_before_ = 0,
           bytes_down_before_ = 0;
  Clock::time_point opened_at_, closed_at_;
  std::unique_ptr<ConsoleProgress> progress_;  // from ShowOpened to Close; under mutex_
  std::atomic<bool> over_progress_{false};     // it is shown; any thread may write lines
};

}  // namespace outboard::session
