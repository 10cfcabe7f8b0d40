// CoreDriver's entry for a client, a worker and a session. Included only by the .cc files of
// CoreDriver.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "compiler/shard/shard.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/base/allowance.h"
#include "gateway/base/limits.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/ports.h"
#include "gateway/data_path/relay.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"

namespace outboard::gateway {

// What a worker says of itself, which is shown to people and sent on as text.
inline std::string NameToldBy(std::string_view worker) {
  return Printable(worker, kWorkerNameBytesMax);
}

// The core's name of a worker, which another one cannot have: "gpu-3@77aa...".
inline std::string KnownIdentity(const std::string& known_as, const std::string& identity) {
  return absl::StrCat(known_as, "@", identity);
}

struct CoreDriver::Client {
  ClientPort* port;
  Identity identity;
  proto::Open open;
  Token resume_token;
  std::shared_ptr<Relay> relay;               // set when its session goes live
  // How long it has said nothing: from the time when its key is good to its first message.
  std::optional<int64_t> silent_ns = {};

  ClientEndpoint& endpoint() const { return port->endpoint(); }
};

struct CoreDriver::Worker {
  WorkerEndpoint* endpoint;
  std::string name;
  std::string identity;  // the hash of what it showed, in hex
  uint32_t protocol;     // negotiated version
  bool has_collectives;  // its executors exchange what a graph says
  bool groups_recover;   // as in Register
  std::string data_address;  // where its partners connect; empty: it has none
  shard::DeviceSpeeds speeds = {};          // of its links, as it measured them
  std::vector<uint64_t> device_bytes = {};  // memory of each device; 0: not known
  std::optional<TenantId> owner = {};  // of a machine of an account's own
  std::string key_id = {};             // with which it joined, likewise
  // Sessions that it said it holds when it joined; it may speak of them until it has ended them.
  std::set<SessionId> claimed = {};
  std::string receipt_key = {};  // verifies its receipts; empty: it writes none
  std::string node_serial = {};  // as its certificate proves it; empty: it is no node
  // Receipts that it may send; an account's own machines share one.
  std::shared_ptr<Allowance> receipts = {};
  std::optional<Allowance> events = {};  // what it may say, where it is an account's own
  std::set<uint32_t> devices_out = {};   // as it said since it joined
  size_t sessions_named = 0;             // in its last heartbeat
  bool is_cut = false;                   // its stream is being ended: nothing it says counts

  std::string KnownIdentity() const {
    return gateway::KnownIdentity(name.substr(0, name.rfind('#')), identity);
  }
};

// The driver's entry for a session.
struct CoreDriver::Session {
  struct Ending {
    MonoTime since;
    std::optional<ExecutorGone> report;  // the worker's; none: the stream has ended
    uint32_t rank = 0;                   // whose
  };
  std::shared_ptr<Relay> relay;   // D1
  bool is_connecting = false;     // from Do(Live) to Connect (D3)
  Relay::KernelUsesOfRanks kernel_uses;  // of the last relay, while `relay` is null
  // Of a session on several devices, since its Assign. What is known of its arrays outlives a
  // placement, what its ranks have kept does not.
  std::shared_ptr<GroupRuns> runs;
  std::optional<SnapshotParts> parts;
  // Of it, for its row: what a gateway that is started again goes on with (proto/groups.proto).
  // Empty: it cannot, since nobody knows how its arrays lie behind its last snapshot.
  std::string group_state;
  ValuesEndpoint* values = nullptr;
  std::string values_key;             // id of the key that opened `values`
  std::optional<Token> attach_hash;   // of the last Assign
  std::optional<Token> group_token;   // the same to several workers, until all of them have it
  std::optional<WallTime> opened_at;  // for its row
  // Its executor is ending: either its stream has ended or its worker has said so, and the other
  // is awaited for at most kExecutorWordMs.
  std::optional<Ending> ending;
  std::set<std::string> had_by;  // identities of the workers that were given it
  bool is_restored = false;      // others may have been given it by the gateway before this one
};

inline constexpr std::string_view kContradictsItself =
    "it signed two receipts that contradict each other";
struct CoreDriver::Receipts {
  std::string identity, name;  // of the worker, which may have left since
  bool is_own = false;         // of an account
  std::vector<proto::Receipt> receipts = {};  // the last two
};

struct CoreDriver::Aside {
  SetAsideWorker worker;
  bool is_written = false;
};

}  // namespace outboard::gateway
