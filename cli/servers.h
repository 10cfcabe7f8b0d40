// `outboard up`, `gateway`, `worker` and `serve`: the long-running processes. `up` and `serve` are
// a gateway with its workers on one machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/common.h"

namespace outboard::cli {

struct ServerFlags {
  std::string listen;              // gateway, serve
  std::string host = "127.0.0.1";  // up
  int port = 6667;                 // up
  int workers = 1;                 // up
  int devices = 1;                 // worker, serve
  std::string data;
  std::string gateway;           // worker: the gateway to join
  std::string name;              // worker
  std::string fleet_token_file;  // gateway, worker; $OUTBOARD_FLEET_TOKEN takes precedence
  double price_per_hour_usd = 0.50;
  int drain_s = 5;
  std::optional<int> snapshot_every_s;  // up, gateway, serve
  uint64_t session_memory_bytes = 0;
  uint64_t quota_bytes = 0;  // per tenant in the store; 0: none
  bool no_auth = false;
  bool no_idle_search = false;  // up, worker, serve
  bool ephemeral = false;       // serve: the data folder is removed at the end
  int life_fd = -1;
  int parent_pid = 0;
  ReadyOptions ready;
};

// Each runs until SIGINT, SIGTERM or the end of its parent process, and returns the exit code.
int RunUp(ServerFlags flags);
int RunGateway(const ServerFlags& flags);
int RunWorker(const ServerFlags& flags);
int RunServe(const ServerFlags& flags);

}  // namespace outboard::cli
