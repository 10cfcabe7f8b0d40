// The options of a session: target, key, time limits, and the receivers of messages.
//
// Times are milliseconds. Read once, by Session::Connect; threads: any.
// Errors of FromEnvironment: INVALID_ARGUMENT or UNAVAILABLE, with the variable's name.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/protection.h"

namespace outboard::trace {
class Trace;
}

namespace outboard::session {

struct SessionOptions {
  // "host:port" or "unix:/path". Empty: a private `outboard serve`, started for this process and
  // stopped with it.
  std::string target;
  std::string key;
  // TLS to whatever is not on this machine, checked by the system's roots, unless set otherwise.
  Protection protection = {};
  // 1 to wire::kSessionDevicesMax, all of one kind. The program is the same for any number. Not
  // said: 1, or those of the session that `attach` or `fork_of` names, which has no other number.
  std::optional<uint32_t> devices = {};
  // How they are arranged: sizes of axes, whose product is `devices`, the last one numbered
  // fastest: (nodes, devices of a node). Empty: one axis.
  std::vector<uint32_t> mesh = {};
  // How the work is divided: "auto" (also if empty), "data", "fsdp" or "tensor".
  std::string spread = {};
  // The most that the session may cost in all, in micro-USD; nothing: no bound of its own. At that
  // cost its steps fail with RESOURCE_EXHAUSTED, and its state is kept at the gateway for a while.
  std::optional<uint64_t> max_cost_micro_usd = {};
  // The longest wait for a device; nothing: as long as it takes. Then RESOURCE_EXHAUSTED.
  std::optional<std::chrono::milliseconds> queue_timeout = {};
  // Sessions of one account that start together or wait: each names the same gang, and how many
  // they are. Empty: this one starts alone.
  std::string gang = {};
  uint32_t gang_size = 1;
  // Of a new session: its name, unique among the account's (wire/session_name.h), by which it can
  // be entered again (`attach`). Such a session is left, and not ended, with the program. Empty: it
  // has none, and ends with the program.
  std::string name = {};
  // A session of the account to enter instead of a new one, by name or id. Its client of now is
  // told, and ends.
  std::string attach = {};
  // A session of the account whose state the new one begins with, by name or id; with the effect of
  // at least its items up to `fork_seq`.
  std::string fork_of = {};
  uint64_t fork_seq = 0;
  // A class of the gateway's devices (docs/prices.md); empty: any. And the least memory that each
  // device is to have; 0: any.
  std::string device_class = {};
  uint64_t device_memory_bytes = 0;
  std::chrono::milliseconds connect_timeout{3000};  // until the target answers
  // Until the gateway grants a device or says that the session waits for one. Longer than a
  // gateway's own limits for starting an executor, so that the gateway's more precise error is
  // reported.
  std::chrono::milliseconds open_timeout{60000};
  // Maximum time to retry a lost connection.
  std::chrono::milliseconds reconnect_timeout{60000};
  // Receives lines for people: reconnection attempts and notices of the gateway. They are
  // rate-limited and contain printable ASCII only. Called from any thread, without any lock of the
  // session's; a connection may wait until it returns, so it must not wait for the session. Empty:
  // "outboard: <line>" on stderr.
  std::function<void(const std::string& line)> tell;
  // The file in which the gateway's signed ledger heads are kept
  // (client/session/heads/heads_seen.h); empty: none.
  std::string heads_file = {};
  // Receives the spans of client, gateway and worker (client/trace/trace.h); nullptr: no trace.
  // Must outlive the session.
  trace::Trace* trace = nullptr;
  // Also writes two lines per session: the granted device, and the final statistics.
  bool debug = false;
  // Shows a progress line on stderr, updated once a second while there are new steps: steps, steps
  // per second, milliseconds per step, round trips, cost. None if stderr is not a terminal.
  bool progress = false;

  // From the environment: CLOUD unset, empty or 0 gives a private worker; CLOUD=1 takes CLOUD_HOST
  // (unset: localhost:6667) and CLOUD_KEY, and what Protection::FromEnvironment reads; DEBUG of 1
  // or more sets `debug` and `progress`, CLOUD_PROGRESS=1 `progress`, CLOUD_PROGRESS=0 unsets it;
  // CLOUD_DEVICES=8 sets `devices`;
  // CLOUD_MAX_COST=2.50 sets `max_cost_micro_usd`, in US dollars; CLOUD_QUEUE_S=60 sets
  // `queue_timeout`, in seconds; CLOUD_GANG=NAME:8 sets `gang` and `gang_size`;
  // CLOUD_SESSION_NAME, CLOUD_ATTACH and CLOUD_FORK_OF set `name`, `attach` and `fork_of`;
  // CLOUD_CLASS sets `device_class`; CLOUD_MEMORY=8GB sets `device_memory_bytes`;
  // CLOUD_HEADS=FILE sets `heads_file` (wire/proof/head_file.h), 0 unsets it; PROFILE sets `trace`.
  // OUTBOARD_BIN names the binary for a private worker if it is neither beside the program nor on
  // PATH.
  // Errors: INVALID_ARGUMENT  another CLOUD; an invalid CLOUD_HOST or CLOUD_KEY (address.h); a
  //                           CLOUD_DEVICES that is no number of devices; a
  //                           CLOUD_MAX_COST that is no amount above nothing; a CLOUD_QUEUE_S,
  //                           CLOUD_GANG or CLOUD_MEMORY that is not written so; those of
  //                           Protection::FromEnvironment
  //         UNAVAILABLE       a PROFILE that cannot be written
  static absl::StatusOr<SessionOptions> FromEnvironment();

  // Errors: INVALID_ARGUMENT  `devices`, `mesh` or `spread` is none of those above
  //         UNIMPLEMENTED     spread = "stages"
  absl::Status CheckDevices() const;
  // Errors: INVALID_ARGUMENT  `name`, `attach` or `fork_of` cannot be one, or they do not go
  //                           together
  absl::Status CheckNames() const;
};

}  // namespace outboard::session
