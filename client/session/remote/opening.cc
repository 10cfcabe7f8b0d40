// How a session over a link begins and ends: it is connected, opened, forked, detached and closed.
// Waiting for its device, or for a place in the queue, is here too.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/report/report_channel.h"
#include "client/session/address.h"
#include "client/session/link/grpc_link.h"
#include "client/session/remote/remote_session.h"
#include "client/session/waiting.h"

namespace outboard {

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const session::SessionOptions& options) {
  // gRPC itself does not survive a fork either, whoever uses it.
  static const session::Birthplace first_connect;
  if (!first_connect.here()) return session::ForkedError();
  if (session::IsEstimated()) return NewRecordingSession(options);
  const trace::Scope scope(options.trace, "connect");
  auto session = std::make_unique<session::RemoteSession>(options);
  OB_RETURN_IF_ERROR(session->Dial());
  return session;
}

absl::StatusOr<std::unique_ptr<Session>> Session::ConnectLink(
    std::unique_ptr<session::Link> link, const session::SessionOptions& options) {
  auto session = std::make_unique<session::RemoteSession>(options);
  OB_RETURN_IF_ERROR(session->Open(std::move(link)));
  return session;
}

namespace session {
namespace {

constexpr int kForksMax = 64;  // more than an account may have by default
// Handles that a parent may still use while its forks have not begun.
constexpr uint64_t kHandlesPerParent = uint64_t{1} << 32;
constexpr std::chrono::seconds kCloseWithin{10}, kCloseLostWithin{1}, kGiveBackWithin{1};

}  // namespace

RemoteSession::RemoteSession(SessionOptions options)
    : options_(std::move(options)),
      trace_session_(options_.trace != nullptr ? options_.trace->AddSession() : 0) {
  if (options_.trace != nullptr) core_.WantTrace();
  core_.Spread(options_.mesh, options_.spread);
  if (options_.max_cost_micro_usd.has_value()) core_.BoundCost(*options_.max_cost_micro_usd);
  if (options_.queue_timeout.has_value())
    core_.BoundWait(static_cast<uint32_t>(std::clamp<int64_t>(
        options_.queue_timeout->count(), 0, std::numeric_limits<uint32_t>::max())));
  core_.Name(options_.name);
  core_.Attach(options_.attach);
  core_.ForkOf(options_.fork_of, options_.fork_seq);
  if (!options_.gang.empty()) core_.JoinGang(options_.gang, options_.gang_size);
  core_.WantDevices(options_.device_class, options_.device_memory_bytes);
}

RemoteSession::~RemoteSession() {
  const Waiting waiting;  // for threads that may be in a callback of the program's
  // What has a name is to be entered again.
  EndStream(/*leave=*/outlives_program()).IgnoreError();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reconnector_.joinable()) reconnector_.join();
  values_.reset();  // wait for the last call of the listener
  link_.reset();
}

void RemoteSession::operator delete(RemoteSession* session, std::destroying_delete_t) {
  if (!session->here()) return;
  session->~RemoteSession();
  ::operator delete(session, sizeof(RemoteSession));
}

absl::Status RemoteSession::Dial() {
  const Waiting waiting;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeFirstLink());
  return Open(std::move(link));
}

absl::Status RemoteSession::DialFork(uint64_t first_handle) {
  const Waiting waiting;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeFirstLink());
  OB_RETURN_IF_ERROR(AwaitOpened(std::move(link), Until::kPlace));
  {
    std::lock_guard lock(mutex_);
    if (!has_begun_) {
      next_handle_ = first_handle;
      shows_when_begun_ = true;
      return absl::OkStatus();
    }
  }
  ShowOpened();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Link>> RemoteSession::MakeFirstLink() {
  std::string target = options_.target;
  OB_RETURN_IF_ERROR(options_.CheckDevices());
  OB_RETURN_IF_ERROR(options_.CheckNames());
  OB_RETURN_IF_ERROR(CheckKeyText("the key", options_.key));
  if (!target.empty()) {
    OB_RETURN_IF_ERROR(CheckTarget("the gateway's address", target));
  } else {
    OB_ASSIGN_OR_RETURN(serve_, PrivateServe::Get(options_.devices.value_or(1)));
    target = serve_->target();
  }
  target_ = target;
  bulk_ = std::make_unique<Bulk>(
      target, options_.key, options_.protection,
      serve_ != nullptr ? kReconnectPrivateWithin : options_.reconnect_timeout);
  auto channel = MakeChannel(target, options_.protection);
  if (absl::Status status = WaitConnected(*channel, target, options_.connect_timeout); !status.ok())
    return absl::IsUnavailable(status) ? options_.protection.Explain(target, status) : status;
  if (!options_.protection.UsesTls(target)) teller_.TellOfPlainText(target);
  return MakeGrpcLink(std::move(channel), options_.key);
}

absl::Status RemoteSession::Open(std::unique_ptr<Link> link) {
  OB_RETURN_IF_ERROR(AwaitOpened(std::move(link)));
  ShowOpened();
  return absl::OkStatus();
}

void RemoteSession::ShowOpened() {
  {
    std::lock_guard lock(mutex_);
    if (close_called_) return;
    if (options_.progress && isatty(STDERR_FILENO) != 0)
      progress_ = std::make_unique<ConsoleProgress>([this] { return stats(); }, stderr);
    over_progress_ = progress_ != nullptr;
  }
  if (options_.debug) Tell(OpenedLine(target_, stats()));
}

absl::Status RemoteSession::AwaitOpened(std::unique_ptr<Link> link, Until until) {
  std::unique_lock lock(mutex_);
  link_ = std::move(link);
  link_->Start(this);
  core_.Advance(Now());
  core_.Open(options_.devices.value_or(0));
  Flush();
  absl::Status interrupted = AwaitDecision(lock, until);
  if (!interrupted.ok()) GiveUpOpening(lock, interrupted);
  if (core_.state() == SessionCore::State::kOpening &&
      !(until == Until::kPlace && core_.waits_for_device()))
    core_.End(NoDevice());
  if (ended()) return interrupted.ok() ? core_.status() : interrupted;
  return absl::OkStatus();
}

absl::Status RemoteSession::NoDevice() const {
  const double seconds = std::chrono::duration<double>(options_.open_timeout).count();
  return absl::UnavailableError(absl::StrCat(target_.empty() ? "the gateway" : target_,
                                             " granted no device within ", seconds, " s"));
}

// It is open, with all that it begins with, or it is not to be.
bool RemoteSession::IsDecided() const {
  return (core_.state() == SessionCore::State::kOpen && !core_.awaits_kept()) || ended();
}

// Until the session is open, or is not; or open_timeout.
absl::Status RemoteSession::AwaitDecision(std::unique_lock<std::mutex>& lock, Until until) {
  absl::Status interrupted = Sleep(lock, Clock::now() + options_.open_timeout,
                                   [&] { return IsDecided() || core_.waits_for_device(); });
  // The gateway has said that it waits, and says when that is over.
  if (interrupted.ok() && core_.waits_for_device() && until == Until::kDevice)
    interrupted = Sleep(lock, Clock::time_point::max(), [this] { return IsDecided(); });
  return interrupted;
}

// With a frame, so that a fork has begun whether or not anybody looks.
void RemoteSession::NoteBegun() {
  if (has_begun_ || !IsDecided() || ended()) return;
  has_begun_ = true;
  // Of a fork that waited it is lower than those that the program has by now.
  if (next_handle_ < core_.first_handle()) next_handle_ = core_.first_handle();
  opened_at_ = Clock::now();
}

// A device that is given just now is given back, not kept until the gateway misses us.
void RemoteSession::GiveUpOpening(std::unique_lock<std::mutex>& lock, const absl::Status& why) {
  core_.Close();
  Flush();
  changed_.wait_for(lock, kGiveBackWithin, [this] { return ended(); });
  core_.End(why);
}

absl::StatusOr<std::vector<std::unique_ptr<Session>>> RemoteSession::Fork(int count) {
  if (count < 1 || count > kForksMax)
    return absl::InvalidArgumentError(
        absl::StrCat("fork: ", count, " sessions; from 1 to ", kForksMax, " at a time"));
  OB_RETURN_IF_ERROR(Sync());
  SessionOptions options = options_;
  options.name.clear();
  options.attach.clear();
  options.gang.clear();
  options.gang_size = 1;
  {
    std::lock_guard lock(mutex_);
    if (target_.empty())
      return absl::UnimplementedError("this session's connection does not support others");
    options.fork_of = absl::BytesToHexString(core_.opened().session_id());
    options.fork_seq = core_.last_seq();
    options.devices = core_.devices();
  }
  OB_RETURN_IF_ERROR(options.CheckNames());
  const trace::Scope scope(options_.trace, "fork", trace_session_);
  const Waiting waiting;
  const uint64_t first_handle = next_handle_ + kHandlesPerParent;
  std::vector<std::unique_ptr<RemoteSession>> forks;
  std::vector<absl::Status> dialled(static_cast<size_t>(count));
  std::vector<std::thread> diallers;  // each waits for an executor that reads the state
  for (absl::Status& status : dialled) {
    RemoteSession* const fork =
        forks.emplace_back(std::make_unique<RemoteSession>(options)).get();
    diallers.emplace_back([fork, first_handle, &status] { status = fork->DialFork(first_handle); });
  }
  for (std::thread& dialler : diallers) dialler.join();
  for (const absl::Status& status : dialled) OB_RETURN_IF_ERROR(status);  // the others end
  // Those with a device first, then by place in the queue: a loop over them never waits for a later
  // one. Places are read once, since forks begin meanwhile.
  using Placed = std::pair<std::optional<uint64_t>, std::unique_ptr<RemoteSession>>;
  std::vector<Placed> placed;
  for (auto& fork : forks) {
    const std::optional<uint64_t> place = fork->PlaceInQueue();
    placed.emplace_back(place, std::move(fork));
  }
  std::ranges::stable_sort(placed, {}, &Placed::first);
  std::vector<std::unique_ptr<Session>> sorted;
  for (auto& [place, fork] : placed) sorted.push_back(std::move(fork));
  return sorted;
}

std::optional<uint64_t> RemoteSession::PlaceInQueue() const {
  std::lock_guard lock(mutex_);
  return has_begun_ ? std::nullopt : std::optional(core_.sessions_before());
}

absl::Status RemoteSession::Detach() {
  if (!status().ok()) return EndStream(/*leave=*/true);  // its calls have said why
  const absl::Status status = Sync();
  OB_RETURN_IF_ERROR(EndStream(/*leave=*/true));
  return status;
}

absl::Status RemoteSession::EndStream(bool leave) {
  if (!here()) return absl::OkStatus();
  const Waiting waiting;
  std::unique_lock lock(mutex_);
  TellMeasured();  // of a short program
  if (!has_begun_ && link_ != nullptr && !ended() && !close_called_) {  // a fork without a device
    closed_ = close_called_ = true;
    GiveUpOpening(lock, absl::OkStatus());
    link_->Finish();
    changed_.notify_all();
    return absl::OkStatus();
  }
  if (opened_at_ == Clock::time_point() || std::exchange(close_called_, true))
    return absl::OkStatus();
  // A connection that is just being made again is worth a moment: it stops the meter.
  changed_.wait_for(lock, kCloseLostWithin, [&] { return !IsLost() || ended(); });
  closed_ = true;
  if (!ended() && !IsLost()) {
    leave ? core_.Leave() : core_.Close();
    Flush();
    // Without an answer the gateway's grace time ends the session; the program must not hang on
    // its way out.
    changed_.wait_for(lock, kCloseWithin, [this] { return ended(); });
  }
  StopClock();
  core_.End(absl::OkStatus());
  if (link_ != nullptr) link_->Finish();
  changed_.notify_all();
  Stats last;
  core_.FillStats(last);
  std::unique_ptr<ConsoleProgress> progress = std::move(progress_);
  lock.unlock();
  internal::ReportEndedSession(last.cost_micro_usd);
  {
    std::lock_guard heads_lock(heads_mutex_);
    if (auto line = heads_seen_.End()) Tell(*line);
  }
  if (options_.trace != nullptr) options_.trace->WriteIfChanged();
  progress.reset();
  over_progress_ = false;
  if (options_.debug) Tell(EndedLine(stats()));
  // A private worker has no classes and no price.
  if (options_.debug && !target_.empty() && serve_ == nullptr && stats().runs > 0)
    Tell(EstimateAtEnd());
  return absl::OkStatus();
}

void RemoteSession::StopClock() {
  if (closed_at_ == Clock::time_point()) closed_at_ = Clock::now();
  if (bulk_ != nullptr) bulk_->Cancel();
}

}  // namespace session

}  // namespace outboard
