// What the servers' flags mean: options of the gateway, of a worker and of its devices, each
// checked before anything starts. Errors name the flag.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "client/session/protection.h"
#include "gateway/server/gateway.h"
#include "worker/groups/group_links.h"

namespace outboard::cli {

// Of a worker: where nothing is given, that of a gateway of this user's on this machine.
absl::StatusOr<std::string> FleetSecretOfWorker(const ServerFlags& flags,
                                                std::string* fingerprint);

// Where workers join a gateway that listens for clients at `listen`, unless it is given.
std::string FleetListenFor(const std::string& listen);

// Where a worker listens for others, as --data-address says; null: nowhere.
absl::StatusOr<std::shared_ptr<worker::GroupLinks>> LinksOf(const ServerFlags& flags);

// How a worker's connections are protected. `fingerprint`: of the file with the secret, for where
// nothing else says whom to believe.
absl::StatusOr<session::Protection> ProtectionOfWorker(const ServerFlags& flags,
                                                       const std::string& fingerprint);

// By default the file of this name in this user's data folder.
std::string IdentityPath(const ServerFlags& flags);

// The token that a worker was given, or "".
absl::StatusOr<std::string> GivenToken(const ServerFlags& flags);

// `snapshot_every_s`: what --snapshot-every is where it is not given.
absl::StatusOr<gateway::GatewayOptions> OptionsFor(const ServerFlags& flags,
                                                   int snapshot_every_s = 30);

// What --prices names. Errors: INVALID_ARGUMENT, with the line
absl::StatusOr<std::shared_ptr<const gateway::PriceList>> PricesFrom(const std::string& file);

// Fails if the folder, which will be removed at the end, holds files.
absl::Status OwnFolder(const ServerFlags& flags, gateway::GatewayOptions& options);

// Of a session, in bytes, as --session-memory says; 0: not limited by a flag.
int64_t MemoryOf(const ServerFlags& flags);

// Returns the command line of the search process; empty if idle-time search is off. Writes into the
// environment, which tells executors whether they take part, so it must run before any thread
// starts.
std::vector<std::string> ChooseIdleSearch(const ServerFlags& flags);

// Of a session of a worker whose sessions share this machine's memory; 0: each has its GPU's.
int64_t SharedMemory();

// How many devices a worker has, each of which serves one session at a time: as --devices says,
// else `otherwise`; with GPUs at most and by default one for each of them.
absl::StatusOr<int> DevicesOf(const ServerFlags& flags, int otherwise);

// Before anything is started: every executor would end with the same words. Also decides what
// OUTBOARD_DEVICE=auto is here (docs/gpu-workers.md), for this process and those that it starts.
absl::Status CheckThisCanWork();

}  // namespace outboard::cli
