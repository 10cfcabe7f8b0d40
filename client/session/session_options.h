// How a session is made: where, with which key, how long to try, and who is told.
//
// Times are milliseconds. Read once, by Session::Connect; threads: any.
// Errors of FromEnvironment: INVALID_ARGUMENT or UNAVAILABLE, with the variable's name.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::trace {
class Trace;
}

namespace outboard::transport {

struct SessionOptions {
  // "host:port" or "unix:/path". Empty: a private `outboard serve`, started for this process and
  // stopped with it.
  std::string target;
  std::string key;
  uint32_t devices = 1;
  std::chrono::milliseconds connect_timeout{3000};  // to find somebody at the target
  // To be given a device: longer than a gateway lets it wait for one and for its executor to start,
  // so that it is the gateway who says what is missing.
  std::chrono::milliseconds open_timeout{60000};
  // A connection that is lost is made again for so long, and no longer: a person waits.
  std::chrono::milliseconds reconnect_timeout{60000};
  // Lines for people: that a connection is being made again, what the gateway has to tell. They
  // are few (rate-limited) and hold printable ASCII only. Called from any thread, with no lock of
  // the session's held; while it runs, a connection may have to wait for it, so that it must not
  // wait for the session. Empty: "outboard: <line>" on stderr.
  std::function<void(const std::string& line)> tell;
  // Whom to tell what took how long, here and there (client/trace/trace.h); nullptr: nobody.
  // Outlives the session.
  trace::Trace* trace = nullptr;
  // Also two lines for each session: what device it was given, and in the end what it came to.
  bool debug = false;
  // A line on stderr, once a second while there are new steps, that rewrites itself: steps, steps a
  // second, milliseconds a step, round trips, cost. Where stderr is no terminal there is none.
  bool progress = false;

  // From the environment: CLOUD unset, empty or 0 gives a private serve; CLOUD=1 takes CLOUD_HOST
  // (unset: localhost:6667) and CLOUD_KEY; DEBUG of 1 or more sets `debug` and `progress`,
  // CLOUD_PROGRESS=1 `progress`, CLOUD_PROGRESS=0 unsets it; PROFILE sets `trace`. OUTBOARD_BIN
  // names the binary for a private serve if it is neither beside the program nor on PATH.
  // Errors: INVALID_ARGUMENT  another CLOUD; a CLOUD_HOST or CLOUD_KEY that cannot be (target.h)
  //         UNAVAILABLE       a PROFILE that cannot be written
  static absl::StatusOr<SessionOptions> FromEnvironment();
};

}  // namespace outboard::transport
