// One link of a session on several workers: between the executor of a rank here, which has the
// other end of a socket pair, and that of a rank on another worker, over TCP. It connects, or is
// given a connection that came; both ends prove to each other that they have the session's token
// (link_greeting.h); then it passes bytes on without reading them.
//
//   kAwaited --Accept--> kOpen          the partner connects
//   kPausing --Connect--> kConnecting --> kChallenge --> kProof --> kOpen
//       ^---- refused, closed, no answer ----'--------------'
//   any but kOpen --too late--> kEnded, and lost() says why
//   kOpen --both sides have ended--> kEnded
//
// A link may be a watch: then it is between two workers, has no executor, and carries beats, by
// which each finds out that the other stands still, though its connection takes bytes. It waits for
// three times the longest pause between beats that it has seen lately, so that a busy machine is
// not taken for a stopped one.
//
// An executor's end of the socket pair closes with the link, so a partner that is lost is seen at
// once.
//
// Threads: one, that of GroupLinks.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/groups/byte_pump.h"
#include "worker/groups/link_greeting.h"

namespace outboard::worker {

using LinkClock = std::chrono::steady_clock;

inline constexpr std::chrono::milliseconds kBeatEvery{150};
// A partner is lost that was silent for three times as long as it has been lately, within these.
inline constexpr std::chrono::milliseconds kSilentLeast{700}, kSilentMost{5'000};

struct GroupLinkOptions {
  LinkName name;  // of a watch, by MakeWatch
  std::string attach_token;
  uint32_t partner = 0;  // the rank there
  // Where to connect; nothing: the partner does.
  std::optional<sockaddr_storage> address;
  int executor = -1;  // this end of the executor's socket; owned
  // The partner's worker may hear of the session later than this one, and has executors to start.
  std::chrono::milliseconds connect_within{20'000};
  // The gateway hears of a lost worker or executor, and ends the session, in less time.
  std::chrono::milliseconds tell_after{2'000};
};

class GroupLink {
 public:
  explicit GroupLink(GroupLinkOptions options);
  ~GroupLink();
  GroupLink(const GroupLink&) = delete;
  GroupLink& operator=(const GroupLink&) = delete;

  // A connection whose claim was checked, and answered but for the proof; owned. False, and not
  // taken: this link has one.
  bool Accept(int connection, std::string_view challenge, std::string_view claim);
  // Does what can be done now: one of its sockets is ready, or its time has come.
  void Step(LinkClock::time_point now);

  // What it waits for of each socket: EPOLLIN, EPOLLOUT; 0: nothing.
  uint32_t executor_events() const;
  uint32_t network_events() const;
  bool is_watch() const { return IsWatch(options_.name); }
  int executor() const { return options_.executor; }
  int network() const { return network_; }
  std::optional<LinkClock::time_point> time() const;  // of the next Step without a socket

  const LinkName& name() const { return options_.name; }
  const std::string& token() const { return options_.attach_token; }
  uint32_t partner() const { return options_.partner; }
  bool is_open() const { return state_ == State::kOpen; }
  // OK, or why its partner is lost. Where a connection ended, this is known some time after it: the
  // gateway most likely says why, and better.
  const absl::Status& lost() const { return lost_; }

 private:
  enum class State { kAwaited, kPausing, kConnecting, kChallenge, kProof, kOpen, kEnded };

  void Connect(LinkClock::time_point now);
  void Greet(LinkClock::time_point now);
  // Of a greeting: `bytes` in all have come. False: not yet, or Again was called.
  bool Receive(size_t bytes, LinkClock::time_point now);
  bool Send(std::string_view bytes, LinkClock::time_point now);
  void Again(const std::string& why, LinkClock::time_point now);  // connects once more, later
  void Open();
  void Pass(LinkClock::time_point now);
  void Beat(LinkClock::time_point now);
  std::chrono::milliseconds Patience() const;
  void Close();
  std::string Partner() const;

  GroupLinkOptions options_;
  State state_;
  int network_ = -1;
  std::string came_, challenge_, claim_;
  LinkClock::time_point deadline_, try_at_;
  std::chrono::milliseconds pause_{0};
  std::string last_try_;  // why it failed
  std::optional<BytePump> out_, in_;  // from the executor, and to it
  std::optional<LinkClock::time_point> tell_at_;
  absl::Status lost_, ended_;
  // Of a watch that is open.
  LinkClock::time_point heard_, beat_at_;
  std::chrono::milliseconds pause_seen_{1'000};  // between two beats: the longest, which fades
};

// Of a connection between workers: a silent partner counts as gone after some seconds.
void SetLinkOptions(int connection);

}  // namespace outboard::worker
