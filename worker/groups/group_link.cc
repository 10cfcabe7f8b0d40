#include "worker/groups/group_link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/log.h"
#include "wire/data_address.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerWithin{5'000};  // to one try
constexpr milliseconds kPauseFirst{20}, kPauseMost{500};
// As long as a worker's lease: who is silent for longer is lost to the gateway too.
constexpr int kSilentMs = 5'000;

}  // namespace

void SetLinkOptions(int connection) {
  const int on = 1, idle_s = 2, interval_s = 1, probes = 3, silent_ms = kSilentMs;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
}

GroupLink::GroupLink(GroupLinkOptions options)
    : options_(std::move(options)),
      state_(options_.address.has_value() ? State::kPausing : State::kAwaited),
      deadline_(LinkClock::now() + options_.connect_within),
      try_at_(LinkClock::now()) {}

GroupLink::~GroupLink() { Close(); }

void GroupLink::Close() {
  if (network_ >= 0) close(std::exchange(network_, -1));
  if (options_.executor >= 0) close(std::exchange(options_.executor, -1));
  out_.reset();
  in_.reset();
  state_ = State::kEnded;
}

std::string GroupLink::Partner() const {
  return options_.address.has_value()
             ? absl::StrCat("rank ", options_.partner, " at ",
                            wire::DataAddressText(*options_.address))
             : absl::StrCat("rank ", options_.partner);
}

bool GroupLink::Accept(int connection, std::string_view challenge, std::string_view claim) {
  if (state_ != State::kAwaited) return false;
  const std::string proof = MakeProof(challenge, claim, options_.attach_token);
  // A connection that is new takes so few bytes, or is of no use.
  if (send(connection, proof.data(), proof.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(proof.size()))
    return false;
  network_ = connection;
  Open();
  return true;
}

void GroupLink::Open() {
  state_ = State::kOpen;
  if (is_watch()) {
    heard_ = beat_at_ = LinkClock::now();
    return;
  }
  out_.emplace(options_.executor, network_);
  in_.emplace(network_, options_.executor);
}

uint32_t GroupLink::executor_events() const {
  if (state_ != State::kOpen || is_watch()) return 0;
  return (out_->awaits_bytes() ? EPOLLIN : 0u) | (in_->awaits_room() ? EPOLLOUT : 0u);
}

uint32_t GroupLink::network_events() const {
  switch (state_) {
    case State::kConnecting: return EPOLLOUT;
    case State::kChallenge:
    case State::kProof: return EPOLLIN;
    case State::kOpen:
      if (is_watch()) return EPOLLIN;
      return (in_->awaits_bytes() ? EPOLLIN : 0u) | (out_->awaits_room() ? EPOLLOUT : 0u);
    default: return 0;
  }
}

std::optional<LinkClock::time_point> GroupLink::time() const {
  if (state_ == State::kOpen && is_watch()) return std::min(beat_at_, heard_ + Patience());
  if (state_ == State::kOpen || state_ == State::kEnded) return tell_at_;
  return state_ == State::kAwaited ? deadline_ : std::min(try_at_, deadline_);
}

void GroupLink::Step(LinkClock::time_point now) {
  if (tell_at_.has_value() && now >= *tell_at_) {
    lost_ = ended_;
    tell_at_.reset();
  }
  if (state_ == State::kOpen) return is_watch() ? Beat(now) : Pass(now);
  if (state_ == State::kEnded) return;
  if (now >= deadline_) {
    if (is_watch()) {  // a worker from before this: the gateway finds out that it stands still
      telemetry::LogInfo("group_watch_missing", {{"message", last_try_}});
      return Close();
    }
    lost_ = absl::UnavailableError(absl::StrCat(
        "no connection with ", Partner(), " within ", options_.connect_within.count(), " ms",
        last_try_.empty() ? "" : absl::StrCat(": ", last_try_)));
    return Close();
  }
  if (state_ == State::kPausing) {
    if (now >= try_at_) Connect(now);
  } else if (state_ != State::kAwaited) {
    Greet(now);
  }
}

void GroupLink::Connect(LinkClock::time_point now) {
  network_ = socket(options_.address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (network_ < 0) return Again(strerror(errno), now);
  SetLinkOptions(network_);
  state_ = State::kConnecting;
  try_at_ = now + kAnswerWithin;
  came_.clear();
  if (connect(network_, reinterpret_cast<const sockaddr*>(&*options_.address),
              wire::LengthOf(*options_.address)) != 0 &&
      errno != EINPROGRESS)
    Again(strerror(errno), now);
}

void GroupLink::Again(const std::string& why, LinkClock::time_point now) {
  last_try_ = why;
  if (network_ >= 0) close(std::exchange(network_, -1));
  state_ = State::kPausing;
  pause_ = std::clamp(2 * pause_, kPauseFirst, kPauseMost);
  try_at_ = now + pause_;
}

void GroupLink::Greet(LinkClock::time_point now) {
  if (now >= try_at_) return Again("it does not answer", now);
  if (state_ == State::kConnecting) {
    int error = 0;
    socklen_t size = sizeof error;
    sockaddr_storage peer{};
    socklen_t peer_size = sizeof peer;
    getsockopt(network_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Again(strerror(error), now);
    if (getpeername(network_, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return;
    state_ = State::kChallenge;
  }
  if (state_ == State::kChallenge) {
    if (!Receive(kChallengeBytes, now)) return;
    if (!IsChallenge(came_)) return Again("what listens there is no worker", now);
    challenge_ = std::exchange(came_, {});
    const absl::StatusOr<std::string> claim =
        MakeClaim(options_.name, challenge_, options_.attach_token);
    if (!claim.ok()) return Again(std::string(claim.status().message()), now);
    claim_ = *claim;
    if (!Send(claim_, now)) return;
    state_ = State::kProof;
  }
  if (!Receive(kProofBytes, now)) return;
  if (!ProofIsRight(challenge_, claim_, came_, options_.attach_token))
    return Again("what listens there does not have the session's token", now);
  Open();
}

bool GroupLink::Receive(size_t bytes, LinkClock::time_point now) {
  char part[kChallengeBytes];
  static_assert(kChallengeBytes >= kProofBytes);
  const ssize_t got = recv(network_, part, bytes - came_.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    // Most often: its worker does not know the session yet.
    Again(got == 0 ? "it closed the connection" : strerror(errno), now);
    return false;
  }
  came_.append(part, static_cast<size_t>(got));
  return came_.size() == bytes;
}

bool GroupLink::Send(std::string_view bytes, LinkClock::time_point now) {
  if (send(network_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
      static_cast<ssize_t>(bytes.size()))
    return true;
  Again(strerror(errno), now);
  return false;
}

// Whose side ended first says who is to explain it: an executor's end is its supervisor's.
void GroupLink::Pass(LinkClock::time_point now) {
  out_->Move();
  const bool executor_ended = out_->from_ended();
  in_->Move();
  if (in_->from_ended() && !executor_ended && ended_.ok()) {
    ended_ = absl::UnavailableError(absl::StrCat(
        "the connection with ", Partner(), " ended",
        in_->error() == 0 ? "" : absl::StrCat(": ", strerror(in_->error()))));
    tell_at_ = now + options_.tell_after;
  }
  if (out_->done() && in_->done()) Close();
}

milliseconds GroupLink::Patience() const {
  return std::clamp(3 * pause_seen_, kSilentLeast, kSilentMost);
}

// What ends a watch that is no silence, the other links tell.
void GroupLink::Beat(LinkClock::time_point now) {
  // Who has stood still itself knows nothing of others.
  const bool stood = now - std::min(beat_at_, heard_ + Patience()) > kSilentLeast / 2;
  constexpr int kReadsAtOnce = 4;
  char beats[64];
  bool has_heard = false;
  // Not to the end: one that sends without end would keep all other links waiting.
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    const ssize_t got = recv(network_, beats, sizeof beats, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return Close();
    if (got < 0) break;
    has_heard = true;
  }
  if (has_heard) {
    const auto pause = std::chrono::duration_cast<milliseconds>(now - heard_);
    pause_seen_ = std::clamp(pause, pause_seen_ - pause_seen_ / 16, kSilentMost);
  }
  if (has_heard || stood) heard_ = now;
  if (now - heard_ >= Patience()) {
    lost_ = absl::UnavailableError(
        absl::StrCat("the worker of ", Partner(), " stands still: nothing came from it for ",
                     std::chrono::duration_cast<milliseconds>(now - heard_).count(), " ms"));
    return Close();
  }
  if (now < beat_at_) return;
  beat_at_ = now + kBeatEvery;
  const char beat = 0;
  (void)!send(network_, &beat, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace outboard::worker
