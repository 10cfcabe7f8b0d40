// The streams of a session over a link: what comes and goes on them, and how a lost one is made
// again.
#include <algorithm>

#include "base/check.h"
#include "client/session/link/grpc_link.h"
#include "client/session/remote/remote_session.h"
#include "client/session/waiting.h"

namespace outboard::session {
namespace {

constexpr std::chrono::milliseconds kReconnectPause{200};
constexpr std::chrono::seconds kTellAfter{1};  // a break that is shorter is nobody's business
constexpr int kValuesFailuresMax = 3;          // then values come on the session's stream

}  // namespace

absl::Status RemoteSession::Resume(std::optional<uint64_t> max_cost_micro_usd) {
  if (!here()) return ForkedError();
  const Waiting waiting;
  std::unique_lock lock(mutex_);
  if (!stopped() || close_called_ || reconnecting_)
    return absl::FailedPreconditionError(
        "the session has not stopped for want of money: there is nothing to resume");
  if (target_.empty())
    return absl::UnimplementedError("this session's connection cannot be made again");
  const absl::Status why = core_.status();
  if (max_cost_micro_usd.has_value()) core_.BoundCost(*max_cost_micro_usd);
  const auto drop_streams = [&] {  // T4
    std::shared_ptr<Link> link = std::exchange(link_, nullptr);
    std::unique_ptr<ValuesStream> values = DropValues();
    if (link != nullptr) {
      bytes_up_before_ += link->bytes_up();
      bytes_down_before_ += link->bytes_down();
    }
    lock.unlock();
    link.reset();
    values.reset();
    lock.lock();
  };
  drop_streams();
  lock.unlock();
  std::shared_ptr<grpc::Channel> channel = MakeChannel(target_, options_.protection);
  const absl::Status connected = WaitConnected(*channel, target_, options_.connect_timeout);
  lock.lock();
  if (!connected.ok() || !stopped() || link_ != nullptr)
    return connected.ok() ? absl::FailedPreconditionError("another thread resumed the session")
                          : connected;
  link_ = MakeGrpcLink(std::move(channel), options_.key);
  link_ended_ = false;
  link_->Start(this);
  core_.Advance(Now());
  core_.Resume();
  Flush();
  absl::Status interrupted = AwaitDecision(lock);
  if (interrupted.ok() && core_.state() == SessionCore::State::kOpening)
    interrupted = NoDevice();
  if (!interrupted.ok() && !ended()) {  // it can be tried again
    core_.Stop(why);
    drop_streams();
  }
  changed_.notify_all();
  if (!interrupted.ok()) return interrupted;
  return ended() ? core_.status() : absl::OkStatus();
}

void RemoteSession::OnFrame(proto::ServerFrame frame) {
  std::vector<std::string> lines;
  bool shows = false;
  if (!options_.heads_file.empty()) {
    std::lock_guard lock(heads_mutex_);
    if (auto line = heads_seen_.Note(frame, Clock::now())) lines.push_back(*std::move(line));
  }
  {
    std::lock_guard lock(mutex_);
    if (options_.trace != nullptr) options_.trace->Came(trace_session_, frame);
    core_.Advance(Now());
    core_.OnFrame(frame);
    NoteBegun();
    shows = has_begun_ && std::exchange(shows_when_begun_, false);
    NoteDone(frame);
    Flush();
    OpenValues();
    if (ended() && !stopped()) StopClock();
    if (auto line = core_.TakeQueueLine(); line && teller_.MayTellPlace(*line, Clock::now()))
      lines.push_back(*std::move(line));
    if (!core_.waits_for_device()) teller_.EndPlace();
    for (std::string& notice : core_.TakeNotices())
      if (teller_.MayTellNotice(Clock::now())) lines.push_back(std::move(notice));
    changed_.notify_all();
  }
  if (shows) ShowOpened();
  for (const std::string& line : lines) Tell(line);
}

void RemoteSession::OnEnd(absl::Status status) {
  std::lock_guard lock(mutex_);
  link_ended_ = true;
  if (stopped()) return changed_.notify_all();
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

void RemoteSession::LoseLink() {
  core_.OnLinkLost();
  // While the reconnector runs this is its own link that failed, and it sees link_ended_.
  if (std::exchange(reconnecting_, true)) return;
  if (reconnector_.joinable()) reconnector_.join();  // has ended: it waits for nothing any more
  reconnector_ = std::thread([this] { Reconnect(); });
}

// When the first large value has come, the next ones have a connection of their own.
void RemoteSession::OpenValues() {
  if (!core_.large_values() || target_.empty() || values_refused_ ||
      core_.state() != SessionCore::State::kOpen || (values_ != nullptr && !values_ended_))
    return;
  proto::ValuesRequest request;
  request.set_session_id(core_.opened().session_id());
  request.set_resume_token(core_.opened().resume_token());
  DropValues();  // has ended: nobody is waited for
  values_ended_ = false;
  values_ = std::make_unique<ValuesStream>(
      MakeChannel(target_, options_.protection), options_.key, std::move(request),
      ValuesStream::Listener{[this](proto::ServerFrame frame) { OnValuesFrame(std::move(frame)); },
                             [this](absl::Status status) { OnValuesEnd(status); }});
}

std::unique_ptr<ValuesStream> RemoteSession::DropValues() {
  if (values_ != nullptr) values_bytes_before_ += values_->bytes_down();
  return std::move(values_);
}

void RemoteSession::OnValuesFrame(proto::ServerFrame frame) {
  {
    std::lock_guard lock(mutex_);
    values_failures_ = 0;
  }
  OnFrame(std::move(frame));
}

// Nobody knows what was on its way: the executor sends it again when the session is resumed.
void RemoteSession::OnValuesEnd(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  values_ended_ = true;
  values_refused_ = absl::IsUnimplemented(status) || ++values_failures_ >= kValuesFailuresMax;
  if (MayLoseValues(status) && core_.MissesValues() && core_.state() == SessionCore::State::kOpen &&
      !stopping_)
    LoseLink();
}

// In kLost the core makes no frames, so there is a link where there is something to send.
void RemoteSession::Flush() {
  for (proto::ClientFrame& frame : core_.TakeFrames()) {
    ++frames_up_;
    if (options_.trace != nullptr) options_.trace->Sent(trace_session_, frame);
    link_->Send(std::move(frame));
  }
}

// No connection, or one that has not found its session again.
bool RemoteSession::IsLost() const {
  return core_.state() == SessionCore::State::kLost ||
         core_.state() == SessionCore::State::kOpening;
}

// Runs on reconnector_. A link that is lost while the program is told of the last one is its, too.
void RemoteSession::Reconnect() {
  std::unique_lock lock(mutex_);
  while (SeeksLink()) SeekLink(lock);
  reconnecting_ = false;
}

bool RemoteSession::SeeksLink() const {
  return !stopping_ && !closed_ && core_.state() == SessionCore::State::kLost;
}

// The session's state is kept over there for minutes; we give up much earlier, since a person
// waits.
void RemoteSession::SeekLink(std::unique_lock<std::mutex>& lock) {
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
      channel = MakeChannel(target_, options_.protection);
      dialled = Clock::now();
    }
    // Short, so that Close need not wait for it.
    const bool connected = WaitConnected(*channel, target_, kReconnectPause).ok();
    const Clock::time_point now = Clock::now();
    absl::Status unreachable;
    if (!connected && now > deadline)
      unreachable = options_.protection.Explain(
          target_, Unreachable(target_, serve_ != nullptr, deadline - start));
    if (!connected && serve_ == nullptr && now >= tell_at && now < deadline) {
      Tell(SeekingLine(target_, std::chrono::ceil<std::chrono::seconds>(deadline - now)));
      told = true;
      tell_at = now + kTellEvery;
    }
    lock.lock();
    if (!connected) {
      if (now > deadline) core_.End(std::move(unreachable));
      // A distant gateway may be about to answer, so its dial goes on; one that refused or is
      // silent is dialled again.
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
    const auto decided = [this] {
      return core_.state() != SessionCore::State::kOpening || link_ended_ || stopping_;
    };
    changed_.wait_for(lock, options_.open_timeout,
                      [&] { return decided() || core_.waits_for_device(); });
    if (core_.waits_for_device()) changed_.wait(lock, decided);
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

}  // namespace outboard::session
