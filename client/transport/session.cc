// Invariants
//   T1  core_ and link_ are touched under mutex_ only; frames go to the link in the order in which
//       core_ made them.
//   T2  A caller sleeps on changed_ only; everything that can end its wait notifies: frames, the
//       session's end.
//   T3  One thread reconnects at a time; it is joined before the Impl is destroyed.
//   T4  A stream is destroyed without mutex_, since its last call may be waiting for it; one that has
//       ended (values_ended_) has made that call.
#include "client/transport/session.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/trace/trace.h"
#include "client/transport/bulk.h"
#include "client/transport/grpc_link.h"
#include "client/transport/items.h"
#include "client/transport/link.h"
#include "client/transport/private_serve.h"
#include "client/transport/progress.h"
#include "client/transport/session_core.h"
#include "client/transport/stored_arrays.h"
#include "client/transport/target.h"
#include "client/transport/teller.h"
#include "client/transport/values_stream.h"
#include "proto/limits.h"
#include "proto/merkle.h"

namespace outboard::transport {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReleasesPending = 4096;  // who only drops handles frees memory over there, too
constexpr std::chrono::milliseconds kReconnectPause{200};
constexpr std::chrono::seconds kCloseWithin{10}, kCloseLostWithin{1}, kSnapshotWithin{5};
constexpr std::chrono::seconds kReconnectPrivateWithin{2};  // its process is ours: there or dead
constexpr std::chrono::seconds kTellAfter{1};  // a break that is shorter is nobody's business
constexpr int kValuesFailuresMax = 3;          // then values come on the session's stream

Window::Time Now() { return Clock::now().time_since_epoch(); }

}  // namespace

class Session::Impl final : public LinkListener {
 public:
  explicit Impl(SessionOptions options)
      : options_(std::move(options)),
        trace_session_(options_.trace != nullptr ? options_.trace->AddSession() : 0) {
    if (options_.trace != nullptr) core_.WantTrace();
  }
  ~Impl() override {
    Close().IgnoreError();
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (reconnector_.joinable()) reconnector_.join();
    values_.reset();  // wait for the last call of the listener
    link_.reset();
  }

  absl::Status Dial() {
    std::string target = options_.target;
    if (absl::Status status = CheckKeyText("the key", options_.key); !status.ok()) return status;
    if (!target.empty()) {
      if (absl::Status status = CheckTarget("the gateway's address", target); !status.ok())
        return status;
    } else {
      auto serve = PrivateServe::Get();
      if (!serve.ok()) return serve.status();
      serve_ = *serve;
      target = serve_->target();
    }
    target_ = target;
    bulk_ = std::make_unique<Bulk>(
        target, options_.key,
        serve_ != nullptr ? kReconnectPrivateWithin : options_.reconnect_timeout);
    auto channel = MakeChannel(target);
    if (absl::Status status = WaitConnected(*channel, target, options_.connect_timeout);
        !status.ok())
      return status;
    teller_.TellOfPlainText(target);
    return Open(MakeGrpcLink(std::move(channel), options_.key));
  }

  absl::Status Open(std::unique_ptr<Link> link) {
    if (absl::Status status = AwaitOpened(std::move(link)); !status.ok()) return status;
    if (options_.progress && isatty(STDERR_FILENO) != 0)
      progress_ = std::make_unique<Progress>([this] { return stats(); }, stderr);
    over_progress_ = progress_ != nullptr;
    if (options_.debug) Tell(OpenedLine(target_, stats()));
    return absl::OkStatus();
  }

  absl::Status AwaitOpened(std::unique_ptr<Link> link) {
    std::unique_lock lock(mutex_);
    link_ = std::move(link);
    link_->Start(this);
    core_.Advance(Now());
    core_.Open(options_.devices);
    Flush();
    bool answered = changed_.wait_for(lock, options_.open_timeout, [this] {
      return core_.state() == SessionCore::State::kOpen ||
             core_.state() == SessionCore::State::kEnded;
    });
    if (!answered)
      core_.End(absl::UnavailableError(absl::StrCat(target_.empty() ? "nobody" : target_,
                                                    " gave no device within ",
                                                    options_.open_timeout.count(), " ms")));
    if (core_.state() == SessionCore::State::kEnded) return core_.status();
    opened_at_ = Clock::now();
    return absl::OkStatus();
  }

  // ---- LinkListener
  void OnFrame(proto::ServerFrame frame) override {
    std::vector<std::string> lines;
    {
      std::lock_guard lock(mutex_);
      if (options_.trace != nullptr) options_.trace->Came(trace_session_, frame);
      core_.Advance(Now());
      core_.OnFrame(frame);
      Flush();
      OpenValues();
      if (core_.state() == SessionCore::State::kEnded) StopClock();
      for (std::string& notice : core_.TakeNotices())
        if (teller_.MayTellNotice(Clock::now())) lines.push_back(std::move(notice));
      changed_.notify_all();
    }
    for (const std::string& line : lines) Tell(line);
  }

  void OnEnd(absl::Status status) override {
    std::lock_guard lock(mutex_);
    link_ended_ = true;
    bool resumable = status.code() == absl::StatusCode::kUnavailable && core_.can_resume() &&
                     !target_.empty() && core_.state() != SessionCore::State::kEnded &&
                     core_.state() != SessionCore::State::kClosing && !stopping_;
    if (resumable) {
      LoseLink();
    } else {
      core_.End(std::move(status));
      StopClock();
    }
    changed_.notify_all();
  }

  // ---- the program's calls
  absl::Status Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                   std::string_view bytes) {
    if (absl::Status status = CheckDims(dims); !status.ok()) return status;
    if (bytes.size() > wire::kInlinePutBytesMax && bulk_ != nullptr) {
      const wire::BlobSource source = wire::SourceOf(bytes);
      auto uploaded = Upload({&source, 1}, {});
      if (!uploaded.ok()) return uploaded.status();
      return PutBlob(handle, dtype, dims, bytes.size(), wire::AsBytes(uploaded->names[0].root));
    }
    auto copy = std::make_shared<const std::string>(bytes);
    std::unique_lock lock(mutex_);
    if (absl::Status status = AwaitCredit(lock, bytes.size()); !status.ok()) return status;
    core_.Put(handle, dtype, dims, std::move(copy));
    Flush();
    return absl::OkStatus();
  }

  absl::StatusOr<wire::Uploaded> Upload(
      std::span<const wire::BlobSource> sources,
      const std::function<void(const wire::TransferProgress&)>& progress) {
    if (absl::Status ended = status(); !ended.ok()) return ended;
    if (bulk_ == nullptr) return absl::UnimplementedError("this session's link has no blobs");
    ++blob_round_trips_;
    // Outside the lock: values and steps of other threads go on.
    const trace::Scope scope(options_.trace, "upload", trace_session_);
    auto uploaded = bulk_->Upload(sources, progress);
    if (absl::Status ended = status(); !uploaded.ok() && !ended.ok()) return ended;
    return uploaded;
  }

  absl::StatusOr<std::vector<StoredArray>> Stored(const std::string& name) {
    if (bulk_ == nullptr) return absl::UnimplementedError("this session's link has no store");
    ++blob_round_trips_;
    return StoredArrays(MakeChannel(target_), options_.key, name);
  }

  absl::StatusOr<uint64_t> Run(const RunRequest& request) {
    std::unique_lock lock(mutex_);
    if (absl::Status status = AwaitCredit(lock, 0); !status.ok()) return status;
    auto seq = core_.Run(request);
    Flush();
    return seq;
  }

  absl::Status PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                       uint64_t total_bytes, std::string_view root) {
    if (absl::Status status = CheckDims(dims); !status.ok()) return status;
    if (root.size() != wire::kHashBytes)
      return absl::InvalidArgumentError(absl::StrCat("a blob's root of ", root.size(), " bytes"));
    std::unique_lock lock(mutex_);
    if (absl::Status status = AwaitCredit(lock, 0); !status.ok()) return status;
    core_.PutBlob(handle, dtype, dims, total_bytes, root);
    Flush();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) {
    std::unique_lock lock(mutex_);
    if (absl::Status status = AwaitCredit(lock, 0); !status.ok()) return status;
    auto seq = core_.Fetch(handles);
    Flush();
    return seq;
  }

  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries) {
    std::unique_lock lock(mutex_);
    if (absl::Status status = AwaitCredit(lock, 0); !status.ok()) return status;
    auto seq = core_.Save(name, entries);
    Flush();
    return seq;
  }

  absl::StatusOr<Saved> AwaitSaved(uint64_t seq) {
    std::unique_lock lock(mutex_);
    Wait(lock, [&] { return core_.SavedReady(seq); });
    return core_.TakeSaved(seq);
  }

  void Release(uint64_t handle) {
    std::lock_guard lock(mutex_);
    core_.Advance(Now());
    core_.Release(handle);
    if (core_.pending_releases() < kReleasesPending) return;
    core_.FlushReleases();
    Flush();
  }

  absl::StatusOr<Value> Await(uint64_t seq, uint32_t index) {
    std::unique_lock lock(mutex_);
    Wait(lock, [&] { return core_.Ready(seq, index); });
    return core_.Take(seq, index);
  }

  bool Ready(uint64_t seq, uint32_t index) {
    std::lock_guard lock(mutex_);
    return core_.Ready(seq, index);
  }

  void Forget(uint64_t seq, uint32_t index) {
    std::lock_guard lock(mutex_);
    core_.Forget(seq, index);
  }

  absl::Status Sync() {
    std::unique_lock lock(mutex_);
    core_.Advance(Now());
    core_.FlushReleases();
    Flush();
    uint64_t seq = core_.last_seq();
    Wait(lock,
         [&] { return core_.done_seq() >= seq || core_.state() == SessionCore::State::kEnded; });
    if (core_.state() == SessionCore::State::kEnded) return core_.status();
    return core_.TakeFirstFailure();
  }

  absl::Status status() {
    std::lock_guard lock(mutex_);
    return core_.state() == SessionCore::State::kEnded ? core_.status() : absl::OkStatus();
  }

  Stats stats() {
    std::lock_guard lock(mutex_);
    Stats stats;
    core_.FillStats(stats);
    stats.blocking_round_trips = round_trips_ + blob_round_trips_;
    stats.credit_waits = credit_waits_;
    stats.frames_up = frames_up_;
    if (link_ != nullptr) {
      stats.bytes_up = bytes_up_before_ + link_->bytes_up();
      stats.bytes_down = bytes_down_before_ + link_->bytes_down();
      stats.bytes_down_apart = values_bytes_before_;
      if (values_ != nullptr) stats.bytes_down_apart += values_->bytes_down();
      stats.bytes_down += stats.bytes_down_apart;
    }
    if (bulk_ != nullptr) stats.bytes_up += bulk_->bytes_up();
    if (opened_at_ != Clock::time_point()) {
      const auto end = closed_at_ != Clock::time_point() ? closed_at_ : Clock::now();
      stats.seconds_open = std::chrono::duration<double>(end - opened_at_).count();
    }
    return stats;
  }

  absl::Status Close() {
    std::unique_lock lock(mutex_);
    if (opened_at_ == Clock::time_point() || std::exchange(close_called_, true))
      return absl::OkStatus();
    auto ended = [this] { return core_.state() == SessionCore::State::kEnded; };
    // A connection that is just being made again is worth a moment: it stops the meter.
    changed_.wait_for(lock, kCloseLostWithin, [&] { return !IsLost() || ended(); });
    closed_ = true;
    if (!ended() && !IsLost()) {
      core_.Close();
      Flush();
      // Without an answer the gateway's grace time ends the session; the program must not hang on
      // its way out.
      changed_.wait_for(lock, kCloseWithin, ended);
    }
    StopClock();
    core_.End(absl::OkStatus());
    if (link_ != nullptr) link_->Finish();
    changed_.notify_all();
    lock.unlock();
    if (options_.trace != nullptr) options_.trace->WriteIfChanged();
    progress_.reset();
    over_progress_ = false;
    if (options_.debug) Tell(EndedLine(stats()));
    return absl::OkStatus();
  }

  // What `call` returns, as a span of the trace with the seq of the item that it makes or waits for.
  template <typename Call>
  auto Traced(const char* name, Call call, uint64_t seq = 0) {
    trace::Scope scope(options_.trace, name, trace_session_);
    auto result = call();
    if constexpr (std::is_same_v<decltype(result), absl::StatusOr<uint64_t>>)
      if (result.ok()) seq = *result;
    scope.SetSeq(seq);
    return result;
  }

  uint64_t NewHandle() { return next_handle_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void LoseLink() {
    core_.OnLinkLost();
    // While the reconnector runs this is its own link that failed, and it sees link_ended_.
    if (std::exchange(reconnecting_, true)) return;
    if (reconnector_.joinable()) reconnector_.join();  // has ended: it waits for nothing any more
    reconnector_ = std::thread([this] { Reconnect(); });
  }

  // When the first large value has come, the next ones have a connection of their own.
  void OpenValues() {
    if (!core_.large_values() || target_.empty() || values_refused_ ||
        core_.state() != SessionCore::State::kOpen || (values_ != nullptr && !values_ended_))
      return;
    proto::ValuesRequest request;
    request.set_session_id(core_.opened().session_id());
    request.set_resume_token(core_.opened().resume_token());
    DropValues();  // has ended: nobody is waited for
    values_ended_ = false;
    values_ = std::make_unique<ValuesStream>(
        MakeChannel(target_), options_.key, std::move(request),
        ValuesStream::Listener{
            [this](proto::ServerFrame frame) { OnValuesFrame(std::move(frame)); },
            [this](absl::Status status) { OnValuesEnd(status); }});
  }

  std::unique_ptr<ValuesStream> DropValues() {
    if (values_ != nullptr) values_bytes_before_ += values_->bytes_down();
    return std::move(values_);
  }

  void OnValuesFrame(proto::ServerFrame frame) {
    {
      std::lock_guard lock(mutex_);
      values_failures_ = 0;
    }
    OnFrame(std::move(frame));
  }

  // Nobody knows what was on its way: the executor sends it again when the session is resumed.
  void OnValuesEnd(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    values_ended_ = true;
    values_refused_ = absl::IsUnimplemented(status) || ++values_failures_ >= kValuesFailuresMax;
    if (MayLoseValues(status) && core_.MissesValues() &&
        core_.state() == SessionCore::State::kOpen && !stopping_)
      LoseLink();
  }

  // In kLost the core makes no frames, so there is a link where there is something to send.
  void Flush() {
    for (proto::ClientFrame& frame : core_.TakeFrames()) {
      ++frames_up_;
      if (options_.trace != nullptr) options_.trace->Sent(trace_session_, frame);
      link_->Send(std::move(frame));
    }
  }

  template <typename Condition>
  void Wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    if (condition()) return;
    const trace::Scope scope(options_.trace, "blocked", trace_session_);
    ++round_trips_;
    changed_.wait(lock, condition);
  }

  // Until an item with so many bytes may be sent.
  absl::Status AwaitCredit(std::unique_lock<std::mutex>& lock, uint64_t bytes) {
    const auto ended = [&] { return core_.state() == SessionCore::State::kEnded; };
    const auto may = [&] { return core_.HasCredit(bytes) || ended(); };
    const auto snapshot = [&] { return core_.AwaitsSnapshot(bytes); };
    if (!may()) {
      const trace::Scope scope(options_.trace, "window full", trace_session_);
      ++credit_waits_;
      do {
        changed_.wait(lock, [&] { return may() || snapshot(); });
        if (!may() &&
            !changed_.wait_for(lock, kSnapshotWithin, [&] { return ended() || !snapshot(); }))
          core_.GiveUpRecovery();
      } while (!may());
    }
    core_.Advance(Now());
    return ended() ? core_.status() : absl::OkStatus();
  }

  void StopClock() {
    if (closed_at_ == Clock::time_point()) closed_at_ = Clock::now();
    if (bulk_ != nullptr) bulk_->Cancel();
  }

  void Tell(const std::string& line) { teller_.Tell(line, over_progress_); }

  // No connection, or one that has not found its session again.
  bool IsLost() const {
    return core_.state() == SessionCore::State::kLost ||
           core_.state() == SessionCore::State::kOpening;
  }

  // Runs on reconnector_. A link that is lost while the program is told of the last one is its, too.
  void Reconnect() {
    std::unique_lock lock(mutex_);
    while (SeeksLink()) SeekLink(lock);
    reconnecting_ = false;
  }

  bool SeeksLink() const {
    return !stopping_ && !closed_ && core_.state() == SessionCore::State::kLost;
  }

  // The session's state is kept over there for minutes; we give up much earlier, since a person waits.
  void SeekLink(std::unique_lock<std::mutex>& lock) {
    const Clock::time_point start = Clock::now();
    const Clock::time_point deadline =
        start + (serve_ != nullptr ? kReconnectPrivateWithin : options_.reconnect_timeout);
    Clock::time_point tell_at = start + kTellAfter, dialled = start;
    bool told = false;
    std::shared_ptr<grpc::Channel> channel;
    while (SeeksLink()) {
      std::shared_ptr<Link> old = std::exchange(link_, nullptr);
      if (old != nullptr) {
        bytes_up_before_ += old->bytes_up();
        bytes_down_before_ += old->bytes_down();
      }
      std::unique_ptr<ValuesStream> old_values = DropValues();
      lock.unlock();
      old.reset();
      old_values.reset();
      if (channel == nullptr) {
        channel = MakeChannel(target_);
        dialled = Clock::now();
      }
      // Short, so that Close need not wait for it.
      const bool connected = WaitConnected(*channel, target_, kReconnectPause).ok();
      const Clock::time_point now = Clock::now();
      if (!connected && serve_ == nullptr && now >= tell_at && now < deadline) {
        Tell(SeekingLine(target_, std::chrono::ceil<std::chrono::seconds>(deadline - now)));
        told = true;
        tell_at = now + kTellEvery;
      }
      lock.lock();
      if (!connected) {
        if (now > deadline) core_.End(Unreachable(target_, serve_ != nullptr, deadline - start));
        // A gateway that is far away is about to answer; one that refused, or is silent, is dialled anew.
        if (channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_CONNECTING ||
            now - dialled > options_.connect_timeout) {
          channel = nullptr;
          changed_.wait_for(lock, kReconnectPause, [this] { return stopping_ || closed_; });
        }
        continue;
      }
      link_ = MakeGrpcLink(std::exchange(channel, nullptr),
                           options_.key);  // never one that is not started
      link_ended_ = false;
      link_->Start(this);
      core_.Advance(Now());
      core_.Resume();
      Flush();
      changed_.wait_for(lock, options_.open_timeout, [this] {
        return core_.state() != SessionCore::State::kOpening || link_ended_ || stopping_;
      });
      if (core_.state() == SessionCore::State::kOpening) core_.OnLinkLost();
      if (core_.state() == SessionCore::State::kLost && Clock::now() > deadline)
        core_.End(Unreachable(target_, serve_ != nullptr, deadline - start));
    }
    changed_.notify_all();
    if (!told || core_.state() != SessionCore::State::kOpen) return;
    lock.unlock();
    Tell(FoundLine(target_));
    lock.lock();
  }

  const SessionOptions options_;
  Teller teller_{options_.tell};
  const uint32_t trace_session_;  // its number there
  std::string target_;            // empty over a link of the caller's
  std::unique_ptr<Bulk> bulk_;    // nullptr there
  std::shared_ptr<PrivateServe> serve_;
  std::atomic<uint64_t> next_handle_{1};
  std::atomic<uint64_t> blob_round_trips_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  SessionCore core_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<ValuesStream> values_;
  bool values_ended_ = false, values_refused_ = false;
  int values_failures_ = 0;  // since the last frame
  uint64_t values_bytes_before_ = 0;
  std::thread reconnector_;
  bool reconnecting_ = false, link_ended_ = false, stopping_ = false;
  bool close_called_ = false, closed_ = false;
  uint64_t round_trips_ = 0, credit_waits_ = 0, frames_up_ = 0, bytes_up_before_ = 0,
           bytes_down_before_ = 0;
  Clock::time_point opened_at_, closed_at_;
  std::unique_ptr<Progress> progress_;      // of Open and Close
  std::atomic<bool> over_progress_{false};  // whether it is there: lines are told by any thread
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const SessionOptions& options) {
  const trace::Scope scope(options.trace, "connect");
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status status = impl->Dial(); !status.ok()) return status;
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Session>> Session::ConnectLink(std::unique_ptr<Link> link,
                                                              const SessionOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status status = impl->Open(std::move(link)); !status.ok()) return status;
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

uint64_t Session::NewHandle() { return impl_->NewHandle(); }
absl::Status Session::Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          std::string_view bytes) {
  return impl_->Traced("put", [&] { return impl_->Put(handle, dtype, dims, bytes); });
}
absl::StatusOr<uint64_t> Session::Run(const RunRequest& request) {
  return impl_->Traced("run", [&] { return impl_->Run(request); });
}
absl::StatusOr<wire::Uploaded> Session::Upload(
    std::span<const wire::BlobSource> sources,
    const std::function<void(const wire::TransferProgress&)>& progress) {
  return impl_->Upload(sources, progress);
}
absl::Status Session::PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                              uint64_t total_bytes, std::string_view root) {
  return impl_->Traced("put",
                       [&] { return impl_->PutBlob(handle, dtype, dims, total_bytes, root); });
}
absl::StatusOr<uint64_t> Session::Fetch(std::span<const uint64_t> handles) {
  return impl_->Traced("fetch", [&] { return impl_->Fetch(handles); });
}
absl::StatusOr<uint64_t> Session::Save(std::string_view name, std::span<const SaveEntry> entries) {
  return impl_->Traced("save", [&] { return impl_->Save(name, entries); });
}
absl::StatusOr<Saved> Session::AwaitSaved(uint64_t seq) {
  return impl_->Traced("wait for save", [&] { return impl_->AwaitSaved(seq); }, seq);
}
absl::StatusOr<std::vector<StoredArray>> Session::Stored(const std::string& name) {
  return impl_->Traced("ask the store", [&] { return impl_->Stored(name); });
}
void Session::Release(uint64_t handle) { impl_->Release(handle); }
absl::StatusOr<Value> Session::Await(uint64_t seq, uint32_t index) {
  return impl_->Traced("wait for value", [&] { return impl_->Await(seq, index); }, seq);
}
bool Session::Ready(uint64_t seq, uint32_t index) const { return impl_->Ready(seq, index); }
void Session::Forget(uint64_t seq, uint32_t index) { impl_->Forget(seq, index); }
absl::Status Session::Sync() {
  return impl_->Traced("wait for all", [&] { return impl_->Sync(); });
}
absl::Status Session::status() const { return impl_->status(); }
Stats Session::stats() const { return impl_->stats(); }
absl::Status Session::Close() { return impl_->Close(); }

}  // namespace outboard::transport
